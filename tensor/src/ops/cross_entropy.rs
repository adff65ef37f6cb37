//! `loss[r] = logsumexp(x[r]) - x[r][target[r]]`, and its sum or mean over the rows that count; `dx = (softmax(x) - onehot) dloss`. Saves the logits,
//! the targets and one number a row: the softmax is never stored.

use crate::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, Error, Layout, Result, Shape, Tensor, exec};
use kiln_kernels::cross_entropy::{CrossEntropy as Forward, CrossEntropyBackward};
use kiln_kernels::elementwise::row;
use kiln_kernels::{Arg, OutArg, reduce};
use smallvec::smallvec;

const NAME: &str = "cross_entropy";

/// What becomes of the losses of single rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reduction {
    /// Their mean over the rows that count.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// They are the result, in the shape of the target.
    None,
}

/// How [`Tensor::cross_entropy_with`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossEntropyConfig {
    /// Rows with this target count nothing; -100.
    pub ignore_index: i64,
    /// What becomes of the losses of single rows; their mean.
    pub reduction: Reduction,
}

impl Default for CrossEntropyConfig {
    fn default() -> CrossEntropyConfig {
        CrossEntropyConfig { ignore_index: -100, reduction: Reduction::Mean }
    }
}

struct CrossEntropy {
    config: CrossEntropyConfig,
    rows: usize,
    classes: usize,
}

impl CrossEntropy {
    fn matrix(&self, logits: &Tensor) -> Result<Tensor> {
        let x = exec::contiguous(logits)?;
        Ok(x.with_layout(Layout::new(&[self.rows, self.classes], &[self.classes, 1], x.layout().offset())))
    }
    fn vector(&self, t: &Tensor) -> Result<Tensor> {
        let t = exec::contiguous(t)?;
        Ok(t.with_layout(Layout::new(&[self.rows], &[1], t.layout().offset())))
    }
}

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        NAME
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (x, target) = (self.matrix(&inputs[0])?, self.vector(&inputs[1])?);
        let (device, wide) = (x.device(), x.dtype().accumulator());
        let vector = || exec::empty(NAME, &Shape::from(self.rows), wide, device);
        let (loss, lse, counted) = (vector()?, vector()?, vector()?);
        if self.rows > 0 {
            let stream = device.stream();
            let (x_token, target_token) = (x.storage().read(&stream)?, target.storage().read(&stream)?);
            let (mut loss_token, mut lse_token) = (loss.storage().write_new(&stream)?, lse.storage().write_new(&stream)?);
            let mut counted_token = counted.storage().write_new(&stream)?;
            let kernel = Forward {
                logits: Arg::new(&x_token, x.dtype(), x.layout()),
                target: Arg::new(&target_token, target.dtype(), target.layout()),
                ignore_index: self.config.ignore_index,
                loss: OutArg::new(&mut loss_token, wide, loss.layout()),
                lse: OutArg::new(&mut lse_token, wide, lse.layout()),
                counted: OutArg::new(&mut counted_token, wide, counted.layout()),
            };
            device.run(kernel, &stream)?;
        }
        let total = |t: &Tensor| {
            Ok::<_, Error>(super::sum::reduce(NAME, reduce::Reduction::Sum, t, 1, wide)?.with_layout(Layout::contiguous(&[])))
        };
        Ok(match self.config.reduction {
            Reduction::None => {
                let shaped = loss.with_layout(Layout::contiguous(inputs[1].dims()));
                Outputs { results: smallvec![shaped], extra: smallvec![lse] }
            }
            Reduction::Sum => Outputs { results: smallvec![total(&loss)?], extra: smallvec![lse] },
            Reduction::Mean => {
                let count = total(&counted)?;
                let mean = exec::map(NAME, row("div"), [0.0; 2], &[&total(&loss)?, &count], &Shape::from(()))?;
                Outputs { results: smallvec![mean], extra: smallvec![lse, count] }
            }
        })
    }
    fn save(&self, inputs: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        inputs.iter().chain(&outputs.extra).try_for_each(|t| keep.tensor(t))
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let mut g = ctx.only(grads)?;
        if self.config.reduction == Reduction::Mean {
            // The count is known to the device alone: the gradient is divided there.
            g = exec::map(NAME, row("div"), [0.0; 2], &[&g, &saved.take(3)?], &Shape::from(()))?;
        }
        let g = match self.config.reduction {
            Reduction::None => self.vector(&g)?,
            _ => g.expand(self.rows)?,
        };
        let logits = saved.take(0)?;
        let shape = logits.shape();
        let (x, target, lse) = (self.matrix(&logits)?, self.vector(&saved.take(1)?)?, self.vector(&saved.take(2)?)?);
        drop(logits);
        let dx = exec::fill_new(NAME, &shape, x.dtype(), x.device(), |dx, stream| {
            if self.rows == 0 {
                return Ok(());
            }
            let (x_token, target_token) = (x.storage().read(stream)?, target.storage().read(stream)?);
            let (lse_token, g_token) = (lse.storage().read(stream)?, g.storage().read(stream)?);
            let kernel = CrossEntropyBackward {
                logits: Arg::new(&x_token, x.dtype(), x.layout()),
                target: Arg::new(&target_token, target.dtype(), target.layout()),
                ignore_index: self.config.ignore_index,
                lse: Arg::new(&lse_token, lse.dtype(), lse.layout()),
                g: Arg::new(&g_token, g.dtype(), g.layout()),
                dx,
            };
            x.device().run(kernel, stream)
        })?;
        Ok(smallvec![Some(dx), None])
    }
}

impl Tensor {
    /// The mean cross entropy of logits `[.., classes]` and class numbers of shape `[..]` (or as many in one dim), natural logarithm. Computed in f32
    /// or wider: the loss of 16-bit logits is f32. Rows with class -100 count nothing; NaN where none counts.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// let device = Device::cpu();
    /// let logits = Tensor::zeros((2, 4), DType::F32, &device)?;
    /// let loss = logits.cross_entropy(&Tensor::from_vec(vec![0i64, 3], 2, &device)?)?;
    /// assert!((loss.to_scalar::<f32>()? - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where shapes do not fit, logits are no floats or targets no integers. A class out of range is an error: at once on the CPU, at the next
    /// read-back on CUDA.
    #[track_caller]
    pub fn cross_entropy(&self, target: &Tensor) -> Result<Tensor> {
        self.cross_entropy_with(target, CrossEntropyConfig::default())
    }
    /// [`Tensor::cross_entropy`] with another class that counts nothing, or as a sum, or with one loss a row.
    #[track_caller]
    pub fn cross_entropy_with(&self, target: &Tensor, config: CrossEntropyConfig) -> Result<Tensor> {
        let fits = |lead: &[usize]| {
            target.dims() == lead || (target.rank() == 1 && target.elem_count() == lead.iter().product::<usize>())
        };
        let classes = match self.dims() {
            [lead @ .., classes] if fits(lead) => *classes,
            _ => {
                let message = format!("a target of shape {} does not fit logits of {}", target.shape(), self.shape());
                return Err(Error::shape(NAME, message));
            }
        };
        let rows = target.elem_count();
        if rows > 0 && classes == 0 {
            return Err(Error::shape(NAME, format!("logits of shape {} have no classes", self.shape())));
        }
        if !self.dtype().is_float() {
            return Err(Error::dtype(
                NAME,
                format!("not defined for logits of {}; convert to a float type with `to_dtype`", self.dtype()),
            ));
        }
        if target.dtype().is_float() {
            return Err(Error::dtype(NAME, format!("targets are class numbers of type i64, not {}", target.dtype())));
        }
        apply(CrossEntropy { config, rows, classes }, &[self, &target.to_dtype(DType::I64)?])
    }
}
