//! Copies side by side: a view that repeats elements, then one copy. The gradient is the sum over the copies.

use crate::{Dim, Error, Result, Shape, Tensor};
use kiln_kernels::MAX_RANK;

impl Tensor {
    /// The whole repeated: `repeats[d]` times along dim `d`, new dims in front where there are more numbers than dims. (PyTorch's `repeat`.)
    ///
    /// # Errors
    /// For fewer numbers than dims.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2], 2, &Device::cpu())?;
    /// assert_eq!(x.repeat(&[2, 2])?.to_vec2::<i64>()?, [[1, 2, 1, 2], [1, 2, 1, 2]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn repeat(&self, repeats: &[usize]) -> Result<Tensor> {
        if repeats.len() < self.rank() {
            let message = format!("{repeats:?} has fewer numbers than shape {} dims; `tile` takes fewer", self.shape());
            return Err(Error::shape("repeat", message));
        }
        self.copies("repeat", repeats)
    }

    /// As [`Tensor::repeat`], but of fewer numbers than dims those in front are 1.
    ///
    /// # Errors
    /// Where the result is too large.
    #[track_caller]
    pub fn tile(&self, repeats: &[usize]) -> Result<Tensor> {
        let ones = self.rank().saturating_sub(repeats.len());
        self.copies("tile", &[&vec![1; ones], repeats].concat())
    }

    #[track_caller]
    fn copies(&self, op: &'static str, repeats: &[usize]) -> Result<Tensor> {
        let lead = repeats.len() - self.rank();
        let sizes: Vec<usize> = (0..repeats.len()).map(|d| if d < lead { 1 } else { self.dims()[d - lead] }).collect();
        let overflow = || Error::SizeOverflow { shape: self.shape(), dtype: self.dtype() };
        let to = sizes.iter().zip(repeats).map(|(n, r)| n.checked_mul(*r).ok_or_else(overflow)).collect::<Result<Vec<_>>>()?;
        let to = Shape::from(to);
        to.checked_elements(op, self.dtype())?;
        // The copies of a dim are a dim of their own for a while, before it; one of size 1 is its own.
        let (mut split, mut spread) = (Vec::new(), Vec::new());
        for (&n, &times) in sizes.iter().zip(repeats) {
            if times != 1 && n != 1 {
                split.push(1);
                spread.push(times);
            }
            split.push(n);
            spread.push(if n == 1 { times } else { n });
        }
        if split.len() <= MAX_RANK {
            return self.reshape(split)?.expand(spread)?.reshape(to)?.contiguous();
        }
        // Too many dims at once: one after the other.
        let mut x = self.reshape(&sizes)?;
        for (d, &times) in repeats.iter().enumerate().filter(|(_, times)| **times != 1) {
            let (front, back) = (x.dims()[..d].iter().product(), x.dims()[d..].iter().product());
            let mut dims = x.dims().to_vec();
            dims[d] *= times;
            x = x.reshape((front, 1, back))?.expand((front, times, back))?.reshape(dims)?;
        }
        x.contiguous()
    }

    /// Each element of `dim` repeated `repeats` times in its place.
    ///
    /// # Errors
    /// Where the result is too large.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2], 2, &Device::cpu())?;
    /// assert_eq!(x.repeat_interleave(2, 0)?.to_vec::<i64>()?, [1, 1, 2, 2]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn repeat_interleave(&self, repeats: usize, dim: impl Dim) -> Result<Tensor> {
        const NAME: &str = "repeat_interleave";
        let mut shape = self.shape();
        let dim = dim.resolve(NAME, &shape)?;
        let overflow = || Error::SizeOverflow { shape: self.shape(), dtype: self.dtype() };
        shape.0[dim] = shape.0[dim].checked_mul(repeats).ok_or_else(overflow)?;
        shape.checked_elements(NAME, self.dtype())?;
        self.shape().checked_elements(NAME, self.dtype())?;
        let (front, back): (usize, usize) = (self.dims()[..=dim].iter().product(), self.dims()[dim + 1..].iter().product());
        self.reshape((front, 1, back))?.expand((front, repeats, back))?.reshape(shape)?.contiguous()
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn repeats_along_several_dims() -> Result<()> {
        let x = Tensor::from_vec(vec![1i64, 2, 3, 4], (2, 2), &Device::cpu())?;
        assert_eq!(x.repeat(&[2, 1])?.to_vec2::<i64>()?, [[1, 2], [3, 4], [1, 2], [3, 4]]);
        assert_eq!(x.tile(&[2])?.to_vec2::<i64>()?, [[1, 2, 1, 2], [3, 4, 3, 4]]);
        assert_eq!(x.t()?.repeat(&[1, 1, 3])?.to_vec3::<i64>()?, [[[1, 3, 1, 3, 1, 3], [2, 4, 2, 4, 2, 4]]]);
        assert_eq!(x.repeat(&[3, 0, 2])?.dims(), [3, 0, 4]);
        assert_eq!(x.repeat_interleave(2, -1)?.to_vec2::<i64>()?, [[1, 1, 2, 2], [3, 3, 4, 4]]);
        assert_eq!(x.repeat_interleave(0, 0)?.dims(), [0, 2]);
        assert!(x.repeat(&[2]).unwrap_err().to_string().contains("[2, 2]"));
        assert!(x.repeat(&[usize::MAX, 2]).is_err() && x.repeat_interleave(usize::MAX, 0).is_err());
        Ok(())
    }

    #[test]
    fn any_rank_repeats() -> Result<()> {
        let x = Tensor::arange(0, 256, 1, DType::I64, &Device::cpu())?.reshape([2; 8])?;
        let y = x.repeat(&[2; 8])?;
        assert_eq!(y.dims(), [4; 8]);
        for dim in 0..8 {
            assert_eq!(y.narrow(dim, 0, 2)?.to_vec::<i64>()?, y.narrow(dim, 2, 2)?.to_vec::<i64>()?);
            let z = x.repeat_interleave(3, dim)?;
            assert_eq!(z.narrow(dim, 3, 1)?.to_vec::<i64>()?, x.narrow(dim, 1, 1)?.to_vec::<i64>()?);
        }
        Ok(())
    }

    #[test]
    fn a_repeat_of_everything_once_is_the_same() -> Result<()> {
        let x = Tensor::zeros((2, 3), DType::F32, &Device::cpu())?;
        assert_eq!(x.repeat(&[1, 1, 1])?.dims(), [1, 2, 3]);
        assert_eq!(x.tile(&[])?.dims(), [2, 3]);
        Ok(())
    }
}
