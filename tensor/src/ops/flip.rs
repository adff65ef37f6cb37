//! Dims read backwards, and dims that begin elsewhere. The gradient of a flip is the flip of the gradient, that of a roll the roll back.

use crate::op::{BackwardContext, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, DimList, Result, Tensor};
use smallvec::smallvec;

/// Dims of the mask backwards.
struct Flip {
    dims: u32,
}

impl Op for Flip {
    fn name(&self) -> &'static str {
        "flip"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let mut y = inputs[0].detach();
        for d in (0..y.rank()).filter(|d| self.dims >> d & 1 == 1) {
            let n = y.dims()[d];
            if n > 1 && y.elem_count() > 0 {
                y = y.index_select(d, &Tensor::arange(n as i64 - 1, -1, -1, DType::I64, y.device())?)?;
            }
        }
        Ok(y.into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok(smallvec![Some(ctx.only(grads)?.flip_dims(self.dims)?)])
    }
}

impl Tensor {
    /// The dims of a list read backwards: one (`-1`), several (`[0, 2]`) or all (`()`). A copy.
    ///
    /// # Errors
    /// For a dim out of range or listed twice.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.flip(-1)?.to_vec2::<i64>()?, [[2, 1], [4, 3]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn flip(&self, dims: impl DimList) -> Result<Tensor> {
        self.flip_dims(dims.mask("flip", &self.shape())?)
    }

    #[track_caller]
    fn flip_dims(&self, dims: u32) -> Result<Tensor> {
        apply(Flip { dims }, &[self])
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn flips_any_dims_of_any_view() -> Result<()> {
        let x = Tensor::from_vec((0..6).collect::<Vec<i64>>(), (2, 3), &Device::cpu())?;
        assert_eq!(x.flip(())?.to_vec::<i64>()?, [5, 4, 3, 2, 1, 0]);
        assert_eq!(x.t()?.flip([0])?.to_vec2::<i64>()?, [[2, 5], [1, 4], [0, 3]]);
        assert_eq!(Tensor::zeros((2, 0), DType::F32, &Device::cpu())?.flip(0)?.dims(), [2, 0]);
        assert!(x.flip([0, -2]).is_err() && x.flip(2).is_err());
        Ok(())
    }
}
