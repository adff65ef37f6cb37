//! Circular and hyperbolic functions and their inverses: rows of the elementwise table, floats only, in radians.

use super::elementwise::{binary_or_number, unary};
use crate::ops::TensorOrScalar;
use crate::{Result, Tensor};

unary! {
    /// Sine.
    sin = "sin";
    /// Cosine.
    cos = "cos";
    /// Tangent.
    tan = "tan";
    /// Inverse of the sine, in [-pi/2, pi/2]; NaN outside [-1, 1]. The gradient is infinite at -1 and 1.
    asin = "asin";
    /// Inverse of the cosine, in [0, pi]; NaN outside [-1, 1]. The gradient is infinite at -1 and 1.
    acos = "acos";
    /// Inverse of the tangent, in [-pi/2, pi/2].
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![0f64, 1.0, f64::INFINITY], 3, &Device::cpu())?;
    /// let quarter = std::f64::consts::FRAC_PI_4;
    /// assert_eq!(x.atan()?.to_vec::<f64>()?, [0.0, quarter, 2.0 * quarter]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    atan = "atan";
    /// Hyperbolic sine.
    sinh = "sinh";
    /// Hyperbolic cosine.
    cosh = "cosh";
    /// Hyperbolic tangent.
    tanh = "tanh";
    /// Inverse of the hyperbolic sine.
    asinh = "asinh";
    /// Inverse of the hyperbolic cosine; NaN below 1.
    acosh = "acosh";
    /// Inverse of the hyperbolic tangent; infinite at -1 and 1, NaN beyond.
    atanh = "atanh";
}

binary_or_number! {
    /// The angle of the point `(other, x)`, in (-pi, pi]: `atan(x / other)` in the right quadrant. Floats only; gradients at the origin are 0.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let y = Tensor::from_vec(vec![0f64, 1.0], 2, &Device::cpu())?;
    /// assert_eq!(y.atan2(0.0)?.to_vec::<f64>()?, [0.0, std::f64::consts::FRAC_PI_2]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    atan2 = "atan2";
    /// `sqrt(x^2 + other^2)`, without leaving the range on the way. Floats only; gradients at the origin are 0 (PyTorch: NaN).
    hypot = "hypot";
}
