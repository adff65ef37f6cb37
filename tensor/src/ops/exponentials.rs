//! Exponentials, logarithms and the error function: rows of the elementwise table, floats only.

use super::elementwise::{binary, binary_or_number, unary};
use crate::ops::TensorOrScalar;
use crate::{Result, Tensor};

unary! {
    /// `e^x`.
    exp = "exp";
    /// `e^x - 1`, exact near 0.
    expm1 = "expm1";
    /// `2^x`.
    exp2 = "exp2";
    /// Natural logarithm.
    log = "log";
    /// `ln(1 + x)`, exact near 0.
    log1p = "log1p";
    /// Logarithm to base 2.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1f64, 8.0], 2, &Device::cpu())?;
    /// assert_eq!(x.log2()?.to_vec::<f64>()?, [0.0, 3.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    log2 = "log2";
    /// Logarithm to base 10.
    log10 = "log10";
    /// The error function `2 / sqrt(pi) * integral of e^-t^2 from 0 to x`.
    erf = "erf";
    /// `1 - erf(x)`, exact where that is near 0.
    erfc = "erfc";
}

binary! {
    /// `ln(e^x + e^y)`, without leaving the range on the way.
    logaddexp = "logaddexp";
}

binary_or_number! {
    /// `x ln(other)`, 0 where `x` is 0 and `other` no NaN.
    xlogy = "xlogy";
}
