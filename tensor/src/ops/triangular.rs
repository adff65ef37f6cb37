//! The lower and upper triangle of matrices. `y = x` inside, 0 outside; `dx = dy` inside, 0 outside.

use crate::ops::compare::scalar_like;
use crate::{DType, Device, Error, Result, Shape, Tensor};

/// A mask (u8) of `rows x columns` with 1 where `column - row <= k`.
#[track_caller]
fn lower(rows: usize, columns: usize, k: i64, device: &Device) -> Result<Tensor> {
    // A diagonal farther out than the matrix is as good as any other.
    let k = k.clamp(-(saturated(rows)), saturated(columns));
    let row = Tensor::arange(k, k + saturated(rows), 1, DType::I64, device)?.unsqueeze(1)?;
    Tensor::arange(0, saturated(columns), 1, DType::I64, device)?.le(&row)
}

fn saturated(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX >> 2).min(i64::MAX >> 2)
}

impl Tensor {
    /// The lower triangle of the last two dims: elements with `column - row <= k` (0: the diagonal and below), zeros elsewhere.
    ///
    /// # Errors
    /// For fewer than two dims.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.tril(0)?.to_vec2::<i64>()?, [[1, 0], [3, 4]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn tril(&self, k: i64) -> Result<Tensor> {
        self.triangle("tril", k, true)
    }

    /// The upper triangle of the last two dims: elements with `column - row >= k` (0: the diagonal and above), zeros elsewhere.
    ///
    /// # Errors
    /// For fewer than two dims.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.triu(1)?.to_vec2::<i64>()?, [[0, 2], [0, 0]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn triu(&self, k: i64) -> Result<Tensor> {
        self.triangle("triu", k, false)
    }

    #[track_caller]
    fn triangle(&self, op: &'static str, k: i64, below: bool) -> Result<Tensor> {
        let &[.., rows, columns] = self.dims() else {
            return Err(Error::shape(op, format!("shape {} has fewer than two dims", self.shape())));
        };
        self.shape().checked_elements(op, self.dtype())?;
        let mask = lower(rows, columns, if below { k } else { k.saturating_sub(1) }, self.device())?;
        let zero = scalar_like(op, 0i64.into(), self)?;
        if below { mask.where_cond(self, &zero) } else { mask.where_cond(&zero, self) }
    }

    /// Ones at and below diagonal `k` of a matrix, zeros above: NumPy's `tri`. With type u8 it is a mask; a causal one is `tri(n, n, 0, ..)`.
    ///
    /// # Errors
    /// Where the matrix is too large.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// assert_eq!(Tensor::tri(2, 3, 1, DType::U8, &Device::cpu())?.to_vec2::<u8>()?, [[1, 1, 0], [1, 1, 1]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn tri(rows: usize, columns: usize, k: i64, dtype: DType, device: &Device) -> Result<Tensor> {
        Shape::from((rows, columns)).checked_elements("tri", DType::I64)?;
        lower(rows, columns, k, device)?.to_dtype(dtype)
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn triangles_of_batches_leave_no_nan() -> Result<()> {
        let d = Device::cpu();
        let x = Tensor::full(f64::NAN, (2, 2, 3), DType::F32, &d)?.tril(-2)?;
        assert_eq!(x.to_vec::<f32>()?, [0.0; 12]);
        let x = Tensor::ones((3, 2), DType::U8, &d)?;
        for (k, lower) in [(-3, [0; 6]), (-1, [0, 0, 1, 0, 1, 1]), (1, [1; 6]), (i64::MAX, [1; 6]), (i64::MIN, [0; 6])] {
            assert_eq!(x.tril(k)?.to_vec::<u8>()?, lower);
            assert_eq!(Tensor::tri(3, 2, k, DType::U8, &d)?.to_vec::<u8>()?, lower);
            let upper = x.triu(k.saturating_add(1))?.to_vec::<u8>()?;
            let rest = lower.map(|v| 1 - v);
            assert!(k == i64::MAX || upper == rest, "{k}");
        }
        assert_eq!(Tensor::zeros((0, 3), DType::F32, &d)?.triu(0)?.dims(), [0, 3]);
        assert!(Tensor::zeros(3, DType::F32, &d)?.tril(0).is_err());
        Ok(())
    }
}
