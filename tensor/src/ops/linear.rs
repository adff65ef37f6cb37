//! `y = x·Wᵀ + b` over the last dim; `dx = dy·W`, `dW = dyᵀ·x`, `db` the column sums of `dy`.

use super::product::{check_types, operand, product};
use super::sum::reduce;
use crate::op::{Autocast, BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{Error, Layout, Result, Tensor, exec};
use kiln_kernels::elementwise::row;
use kiln_kernels::reduce::Reduction;
use smallvec::SmallVec;

const NAME: &str = "linear";

struct Linear {
    bias: bool,
}

impl Op for Linear {
    fn name(&self) -> &'static str {
        NAME
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (x, weight) = (&inputs[0], &inputs[1]);
        check_types(NAME, x, weight)?;
        let mut dims = x.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = weight.dims()[0];
        }
        let y = product(NAME, &at_least_a_row(x), &transposed(weight), x.dtype())?;
        let y = y.with_layout(Layout::contiguous(&dims));
        if let Some(bias) = inputs.get(2) {
            check_types(NAME, x, bias)?;
            // Nobody has seen `y` yet.
            exec::map_in_place(NAME, row("add"), [0.0; 2], &y, &[bias])?;
        }
        Ok(y.into())
    }
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        if keep.needs(1) {
            keep.tensor(&inputs[0])?;
        }
        if keep.needs(0) {
            keep.tensor(&inputs[1])?;
        }
        Ok(())
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        let (dims, dtype) = (g.dims().to_vec(), g.dtype());
        let g = operand(&as_rows(&g)?)?;
        let mut results: InputGrads = SmallVec::from_elem(None, 2 + usize::from(self.bias));
        if ctx.needs(0) {
            let weight = saved.take(usize::from(ctx.recorded(1)))?;
            let lead = &dims[..dims.len() - 1];
            let dx = product(NAME, &g, &weight, dtype)?;
            results[0] = Some(dx.with_layout(Layout::contiguous(&[lead, &weight.dims()[1..]].concat())));
        }
        if ctx.needs(1) {
            let x = as_rows(&saved.take(0)?)?;
            results[1] = Some(product(NAME, &g.t()?, &x, dtype)?);
        }
        if self.bias && ctx.needs(2) {
            let columns = g.dims()[1];
            results[2] = Some(reduce(NAME, Reduction::Sum, &g, 1, dtype)?.with_layout(Layout::contiguous(&[columns])));
        }
        Ok(results)
    }
    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

/// `x` with a dim in front where it has one alone.
fn at_least_a_row(x: &Tensor) -> Tensor {
    let l = x.layout();
    match (l.dims(), l.strides()) {
        (&[n], &[stride]) => x.with_layout(Layout::new(&[1, n], &[n * stride, stride], l.offset())),
        _ => x.detach(),
    }
}

fn transposed(weight: &Tensor) -> Tensor {
    let l = weight.layout();
    weight.with_layout(Layout::new(&[l.dims()[1], l.dims()[0]], &[l.strides()[1], l.strides()[0]], l.offset()))
}

/// All dims but the last as one.
fn as_rows(t: &Tensor) -> Result<Tensor> {
    let (lead, last) = t.dims().split_at(t.rank() - 1);
    t.reshape((lead.iter().product::<usize>(), last[0]))
}

impl Tensor {
    /// `x·Wᵀ + b` for `x` of shape `[.., in]`, a weight of `[out, in]` and a bias of `[out]`; the result is `[.., out]`.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let device = Device::cpu();
    /// let x = Tensor::from_vec(vec![1f32, 2.0], (1, 2), &device)?;
    /// let weight = Tensor::from_vec(vec![3f32, 4.0], (1, 2), &device)?;
    /// let bias = Tensor::from_vec(vec![0.5f32], 1, &device)?;
    /// assert_eq!(x.linear(&weight, Some(&bias))?.to_vec2::<f32>()?, [[11.5]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where shapes do not fit, or the types are not floats of one kind.
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let fits = match (self.dims(), weight.dims(), bias.map(Tensor::dims)) {
            ([.., n], [_, weight_in], None) => n == weight_in,
            ([.., n], [out, weight_in], Some([bias_out])) => n == weight_in && out == bias_out,
            _ => false,
        };
        if !fits {
            let bias = bias.map(|b| format!(" and a bias of {}", b.shape())).unwrap_or_default();
            let message = format!("an input of shape {} does not fit a weight of {}{bias}", self.shape(), weight.shape());
            return Err(Error::shape(NAME, message));
        }
        match bias {
            Some(bias) => apply(Linear { bias: true }, &[self, weight, bias]),
            None => apply(Linear { bias: false }, &[self, weight]),
        }
    }
}
