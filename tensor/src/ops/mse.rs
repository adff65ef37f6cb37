//! `mean((x - y)^2)`; `dx = 2 (x - y) / count`, `dy = -dx`.

use crate::{DType, Error, Result, Tensor, modes};

/// Inside autocast a 16-bit operand in f32.
#[track_caller]
fn wide(t: &Tensor) -> Result<Tensor> {
    match t.dtype() {
        DType::F16 | DType::BF16 if modes::with(|m| m.autocast.is_some()) => t.to_dtype(DType::F32),
        _ => Ok(t.clone()),
    }
}

impl Tensor {
    /// The mean of `(x - y)^2` over all elements, with no dims; NaN of nothing. Inside autocast 16-bit operands are squared and summed in f32.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1f32, 2.0], 2, &Device::cpu())?;
    /// let y = Tensor::from_vec(vec![3f32, 2.0], 2, &Device::cpu())?;
    /// assert_eq!(x.mse_loss(&y)?.to_scalar::<f32>()?, 2.0);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where the shapes differ: a loss does not broadcast. Where the types are not floats of one kind.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor) -> Result<Tensor> {
        if self.dims() != target.dims() {
            return Err(Error::shape("mse_loss", format!("shapes {} and {} differ", self.shape(), target.shape())));
        }
        if !self.dtype().is_float() {
            return Err(Error::dtype(
                "mse_loss",
                format!("not defined for {}; convert to a float type with `to_dtype`", self.dtype()),
            ));
        }
        wide(self)?.squared_difference(&wide(target)?)?.mean_all()
    }
}
