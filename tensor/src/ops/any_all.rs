//! Whether any or all elements are not 0, and how many: reductions of the mask `x != 0`, one byte an element. They carry no history.

use super::sum::{drop_dims, kept, reduce};
use crate::{DType, DimList, Result, Tensor};
use kiln_kernels::reduce::Reduction;

impl Tensor {
    #[track_caller]
    fn count_over(&self, op: &'static str, reduction: Reduction, mask: u32) -> Result<Tensor> {
        if self.elem_count() == 0 && reduction == Reduction::Min {
            return Tensor::ones(kept(self, mask), DType::U8, self.device());
        }
        let to = if reduction == Reduction::Sum { DType::I64 } else { DType::U8 };
        reduce(op, reduction, &self.detach().ne(0)?, mask, to)
    }
    /// Whether any element over dims, which vanish, is not 0, as u8; `()` means all dims. NaN is not 0. 0 of nothing.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![0f32, 0., 0., 2.], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.any(-1)?.to_vec::<u8>()?, [0, 1]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn any(&self, dims: impl DimList) -> Result<Tensor> {
        let mask = dims.mask("any", &self.shape())?;
        drop_dims(&self.count_over("any", Reduction::Max, mask)?, mask)
    }
    /// As [`Tensor::any`]; the dims stay with size 1.
    #[track_caller]
    pub fn any_keepdim(&self, dims: impl DimList) -> Result<Tensor> {
        self.count_over("any", Reduction::Max, dims.mask("any", &self.shape())?)
    }
    /// Whether all elements over dims, which vanish, are not 0, as u8; `()` means all dims. NaN is not 0. 1 of nothing.
    #[track_caller]
    pub fn all(&self, dims: impl DimList) -> Result<Tensor> {
        let mask = dims.mask("all", &self.shape())?;
        drop_dims(&self.count_over("all", Reduction::Min, mask)?, mask)
    }
    /// As [`Tensor::all`]; the dims stay with size 1.
    #[track_caller]
    pub fn all_keepdim(&self, dims: impl DimList) -> Result<Tensor> {
        self.count_over("all", Reduction::Min, dims.mask("all", &self.shape())?)
    }
    /// How many elements over dims, which vanish, are not 0, as i64; `()` means all dims. NaN is not 0.
    #[track_caller]
    pub fn count_nonzero(&self, dims: impl DimList) -> Result<Tensor> {
        let mask = dims.mask("count_nonzero", &self.shape())?;
        drop_dims(&self.count_over("count_nonzero", Reduction::Sum, mask)?, mask)
    }
}
