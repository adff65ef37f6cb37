//! The elements where a mask is not 0, in one dim. `dx` is `dy` at those places and 0 elsewhere.

use super::nonzero::numbers;
use crate::{DType, Error, Result, Tensor};

impl Tensor {
    /// The elements where `mask` (u8) is not 0, row-major, in one dim. Tensor and mask broadcast to each other.
    ///
    /// How many there are depends on values: the mask is read back, which waits for the device. `masked_fill` and `where_cond` do without.
    ///
    /// # Errors
    /// For a mask of another type; where shapes do not broadcast; [`Error::DryRun`] on a dry-run device.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1f32, -2.0, 3.0], 3, &Device::cpu())?;
    /// assert_eq!(x.masked_select(&x.gt(0.0)?)?.to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        const NAME: &str = "masked_select";
        if mask.dtype() != DType::U8 {
            let message = format!("the mask has type {}; compare it with 0 (`mask.ne(0)`) to get a mask of u8", mask.dtype());
            return Err(Error::dtype(NAME, message));
        }
        if mask.device() != self.device() {
            let message = format!("operands lie on {} and {}; move one with `to_device`", self.device(), mask.device());
            return Err(Error::Device { op: NAME, message });
        }
        let shape = self.shape().broadcast(&mask.shape(), NAME)?;
        shape.checked_elements(NAME, self.dtype())?;
        let found = numbers(NAME, &mask.detach().expand(&shape)?)?;
        let count = found.len();
        let index = Tensor::from_vec(found, count, self.device())?;
        let all = self.expand(&shape)?.flatten_all()?;
        if all.elem_count() == 0 { Ok(all) } else { all.index_select(0, &index) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn tensor_and_mask_broadcast() -> Result<()> {
        let d = Device::cpu();
        let x = Tensor::from_vec(vec![1i64, 2, 3], (3, 1), &d)?;
        let mask = Tensor::from_vec(vec![1u8, 0, 2], 3, &d)?;
        assert_eq!(x.masked_select(&mask)?.to_vec::<i64>()?, [1, 1, 2, 2, 3, 3]);
        assert_eq!(x.masked_select(&Tensor::zeros(1, DType::U8, &d)?)?.dims(), [0]);
        assert_eq!(Tensor::zeros((0, 3), DType::F32, &d)?.masked_select(&mask)?.dims(), [0]);
        assert!(x.masked_select(&x).is_err() && mask.masked_select(&Tensor::zeros(2, DType::U8, &d)?).is_err());
        Ok(())
    }
}
