//! Masks of u8, 0 and 1: logic over tensors of any type, in which all but 0 is true (NaN too), and questions to floats. Masks carry no history.

use crate::ops::elementwise::elementwise;
use crate::{DType, Result, Tensor};

/// A tensor as something that a row over integers may take for a mask.
#[track_caller]
fn mask_of(x: &Tensor) -> Result<Tensor> {
    if x.dtype() == DType::U8 { Ok(x.clone()) } else { x.ne(0) }
}

macro_rules! logic {
    ($($(#[$doc:meta])* $name:ident = $row:literal;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// Operands broadcast as in NumPy and may have any types; the result is a u8 mask of 0 and 1.
            #[track_caller]
            pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                elementwise($row, [0.0; 2], &[&mask_of(self)?, &mask_of(other)?])
            }
        )*}
    };
}

logic! {
    /// Where both are not 0.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![-1f32, 0.5, 2.0], 3, &Device::cpu())?;
    /// assert_eq!(x.gt(0.0)?.logical_and(&x.lt(1.0)?)?.to_vec::<u8>()?, [0, 1, 0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    logical_and = "logical_and";
    /// Where one of them or both are not 0.
    logical_or = "logical_or";
    /// Where exactly one of them is not 0.
    logical_xor = "logical_xor";
}

impl Tensor {
    /// Where elements are 0, as a u8 mask of 0 and 1.
    #[track_caller]
    pub fn logical_not(&self) -> Result<Tensor> {
        self.eq(0)
    }
    /// Where elements are NaN, as a u8 mask of 0 and 1; no integer is.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1f32, f32::NAN, f32::INFINITY], 3, &Device::cpu())?;
    /// assert_eq!(x.isnan()?.to_vec::<u8>()?, [0, 1, 0]);
    /// assert_eq!(x.isinf()?.to_vec::<u8>()?, [0, 0, 1]);
    /// assert_eq!(x.isfinite()?.to_vec::<u8>()?, [1, 0, 0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn isnan(&self) -> Result<Tensor> {
        self.ne(self)
    }
    /// Where elements are infinite, of either sign, as a u8 mask of 0 and 1; no integer is.
    #[track_caller]
    pub fn isinf(&self) -> Result<Tensor> {
        if self.dtype().is_float() { self.detach().abs()?.eq(f64::INFINITY) } else { self.ne(self) }
    }
    /// Where elements are neither NaN nor infinite, as a u8 mask of 0 and 1; all integers are.
    #[track_caller]
    pub fn isfinite(&self) -> Result<Tensor> {
        if self.dtype().is_float() { self.detach().abs()?.lt(f64::INFINITY) } else { self.eq(self) }
    }
}
