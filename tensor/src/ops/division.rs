//! Whole quotients and what is left of them: rows of the elementwise table. Floats as in PyTorch; an integer divided by 0 gives 0, and so does
//! what is left, on every device.

use super::elementwise::binary_or_number;
use crate::ops::TensorOrScalar;
use crate::{Result, Tensor};

binary_or_number! {
    /// `x - other * floor(x / other)`, Python's `%`: 0 or of the sign of `other`. Floats, and integers (0 where `other` is).
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![-3i64, 3], 2, &Device::cpu())?;
    /// assert_eq!(x.remainder(2)?.to_vec::<i64>()?, [1, 1]);
    /// assert_eq!(x.fmod(2)?.to_vec::<i64>()?, [-1, 1]);
    /// assert_eq!(x.floor_divide(2)?.to_vec::<i64>()?, [-2, 1]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    remainder = "remainder";
    /// `x - other * trunc(x / other)`, C's `fmod` and `%`: 0 or of the sign of `x`. Floats, and integers (0 where `other` is).
    fmod = "fmod";
    /// `x / other` rounded down. Floats, and integers (0 where `other` is). The gradient is 0.
    floor_divide = "floor_divide";
}
