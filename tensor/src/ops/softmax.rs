//! Softmax over a dim, `y = exp(x - max) / sum(exp(x - max))`, and its logarithm; `dx = y (dy - sum(dy y))`, or `dx = dy - exp(y) sum(dy)`.
//! Only the result is saved. With a mask, the same over the elements that it names.

use super::sum::check_float;
use crate::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, Dim, Error, Result, Tensor, exec, modes};
use kiln_kernels::Arg;
use kiln_kernels::softmax::{Softmax as Forward, SoftmaxBackward};
use smallvec::smallvec;

struct Softmax {
    log: bool,
    dim: usize,
    from: DType,
    to: DType,
}

impl Softmax {
    /// Products of the dims before, at and after the one normalised.
    fn sizes(&self, dims: &[usize]) -> (usize, usize, usize) {
        (dims[..self.dim].iter().product(), dims[self.dim], dims[self.dim + 1..].iter().product())
    }
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        if self.log { "log_softmax" } else { "softmax" }
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let x = exec::contiguous(&inputs[0])?;
        let (outer, n, inner) = self.sizes(x.dims());
        let y = exec::fill_new(self.name(), &x.shape(), self.to, x.device(), |out, stream| {
            if x.elem_count() == 0 {
                return Ok(());
            }
            let token = x.storage().read(stream)?;
            let x_arg = Arg::new(&token, x.dtype(), x.layout());
            x.device().run(Forward { log: self.log, x: x_arg, outer, n, inner, out }, stream)
        })?;
        Ok(y.into())
    }
    fn save(&self, _: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&outputs.results[0])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = exec::contiguous(&ctx.only(grads)?)?;
        let y = exec::contiguous(&saved.take(0)?)?;
        let (outer, n, inner) = self.sizes(y.dims());
        let dx = exec::fill_new(self.name(), &y.shape(), self.from, y.device(), |dx, stream| {
            if y.elem_count() == 0 {
                return Ok(());
            }
            let (y_token, g_token) = (y.storage().read(stream)?, g.storage().read(stream)?);
            let (y_arg, g_arg) = (Arg::new(&y_token, y.dtype(), y.layout()), Arg::new(&g_token, g.dtype(), g.layout()));
            y.device().run(SoftmaxBackward { log: self.log, y: y_arg, g: g_arg, outer, n, inner, dx }, stream)
        })?;
        Ok(smallvec![Some(dx)])
    }
}

/// Softmax over the elements that a mask names: 0 at the others, and so in rows without any.
struct Masked(Softmax);

impl Op for Masked {
    fn name(&self) -> &'static str {
        "softmax_masked"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (x, mask) = (&inputs[0], &inputs[1]);
        let number = |value: f64| Tensor::full(value, (), x.dtype(), x.device());
        let filled = mask.where_cond(x, &number(f64::NEG_INFINITY)?)?;
        let y = self.0.forward(&[filled])?.results.remove(0);
        // A row without elements has become NaN.
        Ok(mask.where_cond(&y, &number(0.0)?)?.into())
    }
    fn save(&self, _: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&outputs.results[0])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        // As without a mask: `dx = y (dy - sum(dy y))` is 0 where `y` is.
        let mut result = self.0.backward(grads, saved, ctx)?;
        result.push(None);
        Ok(result)
    }
}

impl Tensor {
    /// Softmax over the elements along a dim where `mask` (u8, broadcasts to this shape) is not 0; the others get 0. A row that is masked out as a
    /// whole is 0, and its gradients are.
    ///
    /// # Errors
    /// For integers; for a mask of another type, or whose shape does not broadcast to this one.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1f32, 1., 9., 5., 5., 5.], (2, 3), &Device::cpu())?;
    /// let mask = Tensor::from_vec(vec![1u8, 1, 0, 0, 0, 0], (2, 3), &Device::cpu())?;
    /// assert_eq!(x.softmax_masked(&mask, -1)?.to_vec2::<f32>()?, [[0.5, 0.5, 0.], [0., 0., 0.]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn softmax_masked(&self, mask: &Tensor, dim: impl Dim) -> Result<Tensor> {
        const NAME: &str = "softmax_masked";
        let (dim, dtype) = (dim.resolve(NAME, &self.shape())?, self.dtype());
        check_float(NAME, self)?;
        if mask.dtype() != DType::U8 {
            let message = format!("the mask has type {}; compare it with 0 (`mask.ne(0)`) to get a mask of u8", mask.dtype());
            return Err(Error::dtype(NAME, message));
        }
        exec::broadcast_view(NAME, mask, &self.shape())?;
        apply(Masked(Softmax { log: false, dim, from: dtype, to: dtype }), &[self, mask])
    }
    /// `exp(x) / sum(exp(x))` over a dim, in f32 or wider inside, in the type of `x`. A row of -inf alone gives NaN.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![0f32, 0.0, 1e4, 1e4], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.softmax(-1)?.to_vec::<f32>()?, [0.5; 4]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn softmax(&self, dim: impl Dim) -> Result<Tensor> {
        let dim = dim.resolve("softmax", &self.shape())?;
        self.normalised(Softmax { log: false, dim, from: self.dtype(), to: self.dtype() })
    }
    /// The logarithm of softmax over a dim, exact where softmax itself would round to 0. Inside autocast the result of a 16-bit input is f32.
    #[track_caller]
    pub fn log_softmax(&self, dim: impl Dim) -> Result<Tensor> {
        let (dim, from) = (dim.resolve("log_softmax", &self.shape())?, self.dtype());
        let to = if modes::with(|m| m.autocast.is_some()) { from.accumulator() } else { from };
        self.normalised(Softmax { log: true, dim, from, to })
    }
    #[track_caller]
    fn normalised(&self, op: Softmax) -> Result<Tensor> {
        check_float(op.name(), self)?;
        apply(op, &[self])
    }
}
