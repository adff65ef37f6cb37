//! Classes as rows that are 1 at the class and 0 elsewhere. Classes are whole numbers: there is no gradient.

use crate::{DType, Error, Result, Shape, Tensor};

impl Tensor {
    /// For classes of any shape (i64 or u32) a last dim of `classes` numbers of type `dtype`: 1 at the class, 0 elsewhere. (PyTorch gives i64; a float type is
    /// what a loss takes.)
    ///
    /// # Errors
    /// For classes of another type. A class out of range as in [`Tensor::gather`].
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// let classes = Tensor::from_vec(vec![2i64, 0], 2, &Device::cpu())?;
    /// assert_eq!(classes.one_hot(3, DType::U8)?.to_vec2::<u8>()?, [[0, 0, 1], [1, 0, 0]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Result<Tensor> {
        if !matches!(self.dtype(), DType::I64 | DType::U32) {
            let message = format!("classes are i64 or u32, not {}; convert with `to_dtype`", self.dtype());
            return Err(Error::dtype("one_hot", message));
        }
        let mut shape = self.shape();
        shape.0.push(classes);
        Shape::checked_elements(&shape, "one_hot", dtype)?;
        Tensor::zeros(shape, dtype, self.device())?.scatter_value(-1, &self.unsqueeze(-1)?, 1)
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn classes_of_any_shape() -> Result<()> {
        let d = Device::cpu();
        let x = Tensor::from_vec(vec![0u32, 1, 1, 0], (2, 2), &d)?.t()?;
        assert_eq!(x.one_hot(2, DType::F32)?.to_vec3::<f32>()?, [[[1., 0.], [0., 1.]], [[0., 1.], [1., 0.]]]);
        assert_eq!(Tensor::scalar(1i64, &d)?.one_hot(3, DType::I64)?.to_vec1::<i64>()?, [0, 1, 0]);
        assert_eq!(Tensor::zeros(0, DType::I64, &d)?.one_hot(0, DType::F64)?.dims(), [0, 0]);
        assert!(x.one_hot(1, DType::F32).is_err() && x.one_hot(0, DType::F32).is_err());
        assert!(Tensor::zeros(1, DType::F32, &d)?.one_hot(2, DType::F32).is_err());
        Ok(())
    }
}
