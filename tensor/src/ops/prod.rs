//! `y = product of x over dims`. `dx_i = dy` times the product of the others: `dy y / x_i` where no factor is 0, the product of the others at the
//! place of an only 0, and 0 elsewhere.

use super::extremum::zero;
use super::sum::{drop_dims, reduce, result_type};
use crate::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, DimList, Result, Tensor, exec};
use kiln_kernels::elementwise::row;
use kiln_kernels::reduce::Reduction;
use smallvec::smallvec;

/// The product over the dims of a mask; reduced dims stay with size 1.
struct Prod {
    mask: u32,
    from: DType,
    to: DType,
}

impl Op for Prod {
    fn name(&self) -> &'static str {
        "prod"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(reduce(self.name(), Reduction::Product, &inputs[0], self.mask, self.to)?.into())
    }
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&inputs[0])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let x = saved.take(0)?;
        let wide = self.from.accumulator();
        let g = ctx.only(grads)?.to_dtype(wide)?;
        let is_zero = x.eq(0.0)?;
        let zeros = reduce(self.name(), Reduction::Sum, &is_zero, self.mask, DType::I64)?;
        let others = {
            let factors = is_zero.where_cond(&Tensor::full(1, (), self.from, x.device())?, &x)?;
            reduce(self.name(), Reduction::Product, &factors, self.mask, wide)?.mul(&g)?
        };
        let where_zeros = |n: i64| zeros.eq(n)?.where_cond(&others, &zero(&others)?)?.to_dtype(self.from);
        let (no_zero, one_zero) = (where_zeros(0)?, where_zeros(1)?);
        // `no_zero / x`, and 0 where `no_zero` is: no division by the zeros of other results.
        let divided = exec::map(self.name(), row("div_backward_x"), [0.0; 2], &[&x, &x, &no_zero], &x.shape())?;
        drop(x);
        Ok(smallvec![Some(is_zero.where_cond(&one_zero, &divided)?)])
    }
}

impl Tensor {
    #[track_caller]
    fn product_over(&self, mask: u32) -> Result<Tensor> {
        let from = self.dtype();
        let to = if from.is_float() { result_type(from) } else { DType::I64 };
        apply(Prod { mask, from, to }, &[self])
    }
    /// The product over dims, which vanish; `()` means all. 1 of nothing. Products of integers are i64 and wrap. Floats are multiplied in f32 or
    /// wider and rounded once. The gradient is exact with zeros among the factors.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1f32, 2., 3., 4.], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.prod(-1)?.to_vec::<f32>()?, [2., 12.]);
    /// assert_eq!(x.prod(())?.to_scalar::<f32>()?, 24.);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn prod(&self, dims: impl DimList) -> Result<Tensor> {
        let mask = dims.mask("prod", &self.shape())?;
        drop_dims(&self.product_over(mask)?, mask)
    }
    /// The product over dims, which stay with size 1.
    #[track_caller]
    pub fn prod_keepdim(&self, dims: impl DimList) -> Result<Tensor> {
        self.product_over(dims.mask("prod", &self.shape())?)
    }
}
