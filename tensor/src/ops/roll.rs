//! `y[(i + shift) mod n] = x[i]` along a dim: its two parts change places.

use crate::{Dim, Error, Result, Tensor};

impl Tensor {
    /// Elements moved by `shifts[k]` places along `dims[k]`; what leaves at one end enters at the other.
    ///
    /// # Errors
    /// For lists of different lengths; for a dim out of range.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4], 4, &Device::cpu())?;
    /// assert_eq!(x.roll(&[1], &[0])?.to_vec::<i64>()?, [4, 1, 2, 3]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn roll<D: Dim>(&self, shifts: &[i64], dims: &[D]) -> Result<Tensor> {
        if shifts.len() != dims.len() {
            let message = format!("{} shifts and {} dims for shape {}", shifts.len(), dims.len(), self.shape());
            return Err(Error::argument("roll", message));
        }
        let mut y = self.clone();
        for (&shift, dim) in shifts.iter().zip(dims) {
            let dim = dim.resolve("roll", &y.shape())?;
            let n = y.dims()[dim];
            if y.elem_count() == 0 {
                continue;
            }
            let shift = i128::from(shift).rem_euclid(n as i128) as usize;
            if shift > 0 {
                let parts = y.split(&[n - shift, shift], dim)?;
                y = Tensor::cat(&[&parts[1], &parts[0]], dim)?;
            }
        }
        Ok(y)
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn rolls_either_way_and_around() -> Result<()> {
        let x = Tensor::from_vec((0..6).collect::<Vec<i64>>(), (2, 3), &Device::cpu())?;
        assert_eq!(x.roll(&[-1], &[1])?.to_vec2::<i64>()?, [[1, 2, 0], [4, 5, 3]]);
        assert_eq!(x.roll(&[7, 1], &[-1, 0])?.to_vec2::<i64>()?, [[5, 3, 4], [2, 0, 1]]);
        assert_eq!(x.roll(&[i64::MIN], &[0])?.to_vec::<i64>()?, x.to_vec::<i64>()?);
        assert_eq!(Tensor::zeros((0, 2), DType::F32, &Device::cpu())?.roll(&[1], &[0])?.dims(), [0, 2]);
        assert!(x.roll(&[1], &[0, 1]).is_err() && x.roll(&[1], &[2]).is_err());
        Ok(())
    }
}
