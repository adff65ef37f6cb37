//! Where elements are not 0. The result has as many rows as there are such elements, so the values must be known: the mask is read back, one byte an
//! element, which waits for the device.

use crate::{DType, Error, Result, Tensor, modes};

/// The row-major numbers of the elements that are not 0.
pub(super) fn numbers(op: &'static str, x: &Tensor) -> Result<Vec<i64>> {
    if x.device().is_dry_run() {
        return Err(Error::DryRun { op });
    }
    let mask = modes::no_grad(|| if x.dtype() == DType::U8 { Ok(x.detach()) } else { x.detach().ne(0) })?;
    let mask = mask.to_vec::<u8>()?;
    Ok((0..).zip(&mask).filter(|(_, m)| **m != 0).map(|(i, _)| i).collect())
}

impl Tensor {
    /// The places of the elements that are not 0 (NaN is not 0), row-major: shape `[count, rank]`, type i64.
    ///
    /// Reads a mask back and so waits for the device; `where_cond` and `masked_fill` do without.
    ///
    /// # Errors
    /// [`Error::DryRun`] on a dry-run device, whose values are not known.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![0f32, 2.0, 3.0, 0.0], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.nonzero()?.to_vec2::<i64>()?, [[0, 1], [1, 0]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        let found = numbers("nonzero", self)?;
        let rank = self.rank();
        let mut places = vec![0i64; found.len() * rank];
        for (place, &number) in places.chunks_exact_mut(rank.max(1)).zip(&found) {
            let mut rest = number;
            for (at, &n) in place.iter_mut().zip(self.dims()).rev() {
                (*at, rest) = (rest % n as i64, rest / n as i64);
            }
        }
        Tensor::from_vec(places, (found.len(), rank), self.device())
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Error, Result, Tensor};

    #[test]
    fn finds_places_in_views_and_scalars() -> Result<()> {
        let d = Device::cpu();
        let x = Tensor::from_vec(vec![0f64, f64::NAN, -0.0, 4.0, 5.0, 0.0], (2, 3), &d)?;
        assert_eq!(x.t()?.nonzero()?.to_vec2::<i64>()?, [[0, 1], [1, 0], [1, 1]]);
        assert_eq!(Tensor::scalar(1u8, &d)?.nonzero()?.dims(), [1, 0]);
        assert_eq!(Tensor::scalar(0u8, &d)?.nonzero()?.dims(), [0, 0]);
        assert_eq!(Tensor::zeros((3, 0, 2), DType::I64, &d)?.nonzero()?.dims(), [0, 3]);
        Ok(())
    }

    #[test]
    fn a_dry_run_has_no_values() -> Result<()> {
        let d = Device::dry_run("1GiB")?;
        let x = Tensor::ones(3, DType::F32, &d)?;
        assert!(matches!(x.nonzero(), Err(Error::DryRun { op: "nonzero" })));
        assert!(matches!(x.masked_select(&x.gt(0.0)?), Err(Error::DryRun { op: "masked_select" })));
        Ok(())
    }
}
