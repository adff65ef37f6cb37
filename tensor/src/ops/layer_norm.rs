//! `y = h weight + bias`, `h = (x - mean) rstd`, `rstd = 1 / sqrt(var + eps)` over the last dim. With `s = dy weight`:
//! `dx = rstd (s - mean(s) - h mean(s h))`, `dweight = sum of dy h`, `dbias = sum of dy`. Saves `x`, two numbers a row and the weight.

use super::sum::reduce;
use crate::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, Error, Layout, Result, Shape, Tensor, exec};
use kiln_kernels::norm::{LayerNorm as Forward, LayerNormBackward};
use kiln_kernels::reduce::Reduction;
use kiln_kernels::{Arg, OutArg};
use smallvec::{SmallVec, smallvec};

const NAME: &str = "layer_norm";

struct LayerNorm {
    eps: f64,
    /// Type of each input: `x`, then weight and bias where there are such.
    types: SmallVec<[DType; 3]>,
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        NAME
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let x = rows(&exec::contiguous(&inputs[0])?);
        let vectors = inputs[1..].iter().map(exec::contiguous).collect::<Result<SmallVec<[Tensor; 2]>>>()?;
        let (device, statistics) = (x.device(), self.types[0].accumulator());
        let y = exec::empty(NAME, &x.shape(), x.dtype(), device)?;
        let mean = exec::empty(NAME, &Shape::from(x.dims()[0]), statistics, device)?;
        let rstd = exec::empty(NAME, &Shape::from(x.dims()[0]), statistics, device)?;
        if x.elem_count() > 0 {
            let stream = device.stream();
            let x_token = x.storage().read(&stream)?;
            let tokens = vectors.iter().map(|t| t.storage().read(&stream)).collect::<Result<SmallVec<[_; 2]>>>()?;
            let vector = |i: usize| tokens.get(i).map(|token| Arg::new(token, vectors[i].dtype(), vectors[i].layout()));
            let mut y_token = y.storage().write_new(&stream)?;
            let (mut mean_token, mut rstd_token) = (mean.storage().write_new(&stream)?, rstd.storage().write_new(&stream)?);
            let kernel = Forward {
                x: Arg::new(&x_token, x.dtype(), x.layout()),
                weight: vector(0),
                bias: vector(1),
                eps: self.eps,
                out: OutArg::new(&mut y_token, y.dtype(), y.layout()),
                mean: OutArg::new(&mut mean_token, statistics, mean.layout()),
                rstd: OutArg::new(&mut rstd_token, statistics, rstd.layout()),
            };
            device.run(kernel, &stream)?;
        }
        Ok(Outputs { results: smallvec![y.with_layout(Layout::contiguous(inputs[0].dims()))], extra: smallvec![mean, rstd] })
    }
    /// The gradient of the bias alone reads nothing.
    fn save(&self, inputs: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        if keep.needs(0) || (inputs.len() > 1 && keep.needs(1)) {
            inputs.iter().take(1).chain(&outputs.extra).chain(inputs.get(1)).try_for_each(|t| keep.tensor(t))?;
        }
        Ok(())
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        let dims = g.dims().to_vec();
        let g = rows(&exec::contiguous(&g)?);
        let n = g.dims()[1];
        let wants = |i: usize| i < self.types.len() && ctx.needs(i);
        let mut results: InputGrads = SmallVec::from_elem(None, self.types.len());
        if !wants(0) && !wants(1) {
            let sum = reduce(NAME, Reduction::Sum, &g, 1, g.dtype().accumulator())?.to_dtype(self.types[2])?;
            results[2] = Some(sum.with_layout(Layout::contiguous(&[n])));
            return Ok(results);
        }
        for (i, result) in results.iter_mut().enumerate().filter(|(i, _)| wants(*i)) {
            let shape = if i == 0 { Shape::from(dims.as_slice()) } else { Shape::from(n) };
            *result = Some(match g.elem_count() {
                0 => Tensor::zeros(shape, self.types[i], g.device())?,
                _ => exec::empty(NAME, &shape, self.types[i], g.device())?,
            });
        }
        if g.elem_count() > 0 {
            let x = rows(&exec::contiguous(&saved.take(0)?)?);
            let (mean, rstd) = (exec::contiguous(&saved.take(1)?)?, exec::contiguous(&saved.take(2)?)?);
            let weight = if self.types.len() > 1 { Some(exec::contiguous(&saved.take(3)?)?) } else { None };
            backward(&x, weight.as_ref(), &mean, &rstd, &g, &results)?;
        }
        Ok(results)
    }
}

/// Fills the gradients that are wanted.
fn backward(
    x: &Tensor,
    weight: Option<&Tensor>,
    mean: &Tensor,
    rstd: &Tensor,
    g: &Tensor,
    results: &[Option<Tensor>],
) -> Result<()> {
    let (device, stream) = (x.device(), x.device().stream());
    let inputs = [x, mean, rstd, g];
    let tokens = inputs.iter().map(|t| t.storage().read(&stream)).collect::<Result<SmallVec<[_; 4]>>>()?;
    let arg = |i: usize| Arg::new(&tokens[i], inputs[i].dtype(), inputs[i].layout());
    let weight_token = weight.map(|t| t.storage().read(&stream)).transpose()?;
    let weight = weight.zip(weight_token.as_ref()).map(|(t, token)| Arg::new(token, t.dtype(), t.layout()));
    let mut writes: SmallVec<[_; 3]> = SmallVec::new();
    for result in results {
        writes.push(match result {
            Some(t) => Some((t, t.storage().write_new(&stream)?)),
            None => None,
        });
    }
    let mut outs = writes.iter_mut().map(|w| w.as_mut().map(|(t, token)| OutArg::new(token, t.dtype(), t.layout())));
    let mut next = || outs.next().flatten();
    let kernel = LayerNormBackward {
        x: arg(0),
        weight,
        mean: arg(1),
        rstd: arg(2),
        g: arg(3),
        dx: next(),
        dweight: next(),
        dbias: next(),
    };
    device.run(kernel, &stream)
}

/// A contiguous tensor as `[rows, n]`.
fn rows(t: &Tensor) -> Tensor {
    let (lead, n) = t.dims().split_at(t.rank() - 1);
    t.with_layout(Layout::new(&[lead.iter().product(), n[0]], &[n[0], 1], t.layout().offset()))
}

impl Tensor {
    /// Each row of the last dim brought to mean 0 and variance 1 (biased, with `eps` added), then scaled by `weight` and shifted by `bias`, both of
    /// shape `[n]`. Computed in f32 or wider; the result has the type of `x`, whatever float type weight and bias have.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1f32, 3.0, -10.0, 10.0], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.layer_norm(None, None, 0.0)?.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where weight or bias are not as long as the last dim of `x`, their types differ, `eps` is negative or NaN, or a type is no float.
    #[track_caller]
    pub fn layer_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        let vectors: SmallVec<[&Tensor; 2]> = weight.into_iter().chain(bias).collect();
        let Some(&n) = self.dims().last() else {
            return Err(Error::shape(NAME, "a tensor with no dims has no rows to normalise"));
        };
        if let Some(v) = vectors.iter().find(|v| v.dims() != [n]) {
            let message = format!("weight and bias have shape [{n}] for an input of {}, not {}", self.shape(), v.shape());
            return Err(Error::shape(NAME, message));
        }
        if let Some(t) = vectors.iter().chain([&self]).find(|t| !t.dtype().is_float()) {
            return Err(Error::dtype(NAME, format!("not defined for {}; convert to a float type with `to_dtype`", t.dtype())));
        }
        if let [w, b] = vectors[..]
            && w.dtype() != b.dtype()
        {
            return Err(Error::dtype(NAME, format!("weight and bias have types {} and {}", w.dtype(), b.dtype())));
        }
        if eps < 0.0 || eps.is_nan() {
            return Err(Error::argument(NAME, format!("eps is {eps}; it is added to a variance and must not be negative")));
        }
        if let (None, Some(bias)) = (weight, bias) {
            // The kernel's bias comes with a weight.
            return self.layer_norm(None, None, eps)?.add(&bias.to_dtype(self.dtype())?);
        }
        let inputs: SmallVec<[&Tensor; 3]> = [self].into_iter().chain(vectors).collect();
        apply(LayerNorm { eps, types: inputs.iter().map(|t| t.dtype()).collect() }, &inputs)
    }
}
