//! `y = m + ln(sum of exp(x - m) over dims)` with `m` the largest element: two passes, no temporary. `dx = exp(x - y) dy`.

use super::extremum::zero;
use super::sum::{check_float, drop_dims, kept, reduce, reduce_made, result_type};
use crate::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, DimList, Result, Tensor, exec};
use kiln_kernels::elementwise::row;
use kiln_kernels::reduce::{Made, Reduction};
use smallvec::smallvec;

/// The logarithm of the sum of exponentials over the dims of a mask; reduced dims stay with size 1.
struct LogSumExp {
    mask: u32,
    from: DType,
    to: DType,
}

impl Op for LogSumExp {
    fn name(&self) -> &'static str {
        "logsumexp"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (name, x) = (self.name(), &inputs[0]);
        if x.elem_count() == 0 {
            return Ok(Tensor::full(f64::NEG_INFINITY, kept(x, self.mask), self.to, x.device())?.into());
        }
        let largest = reduce(name, Reduction::Max, x, self.mask, self.from)?.to_dtype(DType::F64)?;
        // Infinities speak for themselves: they are not taken off.
        let shift = largest.abs()?.eq(f64::INFINITY)?.where_cond(&zero(&largest)?, &largest)?;
        let sum = reduce_made(name, Made::ExpSum, x, self.mask, Some(&shift), DType::F64)?;
        Ok(sum.log()?.add(&shift)?.to_dtype(self.to)?.into())
    }
    fn save(&self, inputs: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&inputs[0])?;
        keep.tensor(&outputs.results[0])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let (name, g) = (self.name(), ctx.only(grads)?.to_dtype(self.from)?);
        let (x, y) = (saved.take(0)?, saved.take(1)?);
        // Of -inf alone every weight is exp(-inf) = 0.
        let y = y.eq(f64::NEG_INFINITY)?.where_cond(&zero(&y)?, &y)?.to_dtype(self.from)?;
        let mut weights = exec::map(name, row("sub"), [0.0; 2], &[&x, &y], &x.shape())?;
        drop(x);
        weights = exec::map(name, row("exp"), [0.0; 2], &[&weights], &weights.shape())?;
        Ok(smallvec![Some(exec::map(name, row("exp_backward"), [0.0; 2], &[&weights, &g], &weights.shape())?)])
    }
}

impl Tensor {
    #[track_caller]
    fn logsumexp_over(&self, mask: u32) -> Result<Tensor> {
        check_float("logsumexp", self)?;
        let from = self.dtype();
        apply(LogSumExp { mask, from, to: result_type(from) }, &[self])
    }
    /// `ln(sum of exp(x))` over dims, which vanish; `()` means all. Overflows nowhere. Of -inf alone and of nothing it is -inf with gradients of 0; a
    /// +inf gives +inf, with a gradient of NaN at its place.
    ///
    /// # Errors
    /// For integers.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1000f64, 1000.], 2, &Device::cpu())?;
    /// assert_eq!(x.logsumexp(-1)?.to_scalar::<f64>()?, 1000.0 + 2f64.ln());
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn logsumexp(&self, dims: impl DimList) -> Result<Tensor> {
        let mask = dims.mask("logsumexp", &self.shape())?;
        drop_dims(&self.logsumexp_over(mask)?, mask)
    }
    /// `ln(sum of exp(x))` over dims, which stay with size 1; see [`Tensor::logsumexp`].
    #[track_caller]
    pub fn logsumexp_keepdim(&self, dims: impl DimList) -> Result<Tensor> {
        self.logsumexp_over(dims.mask("logsumexp", &self.shape())?)
    }
}
