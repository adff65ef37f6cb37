//! Activations: rows of the elementwise table, floats only but for `relu`. At kinks gradients are PyTorch's.

use super::elementwise::{elementwise, unary};
use crate::{Error, Result, Tensor};

unary! {
    /// `1 / (1 + e^-x)`.
    sigmoid = "sigmoid";
    /// `max(x, 0)`; the gradient at 0 is 0.
    relu = "relu";
    /// GELU in its tanh approximation: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))` (Hendrycks and Gimpel, 2016).
    gelu = "gelu";
    /// GELU exactly: `x/2 (1 + erf(x / sqrt(2)))`.
    gelu_erf = "gelu_erf";
    /// `x * sigmoid(x)`.
    silu = "silu";
    /// `x * tanh(ln(1 + e^x))` (Misra, 2019).
    mish = "mish";
    /// `ln(sigmoid(x))`, without leaving the range on the way.
    logsigmoid = "logsigmoid";
    /// `x / (1 + |x|)`.
    softsign = "softsign";
    /// `min(max(x + 3, 0), 6) / 6`; the gradient is 0 at -3 and 3.
    hardsigmoid = "hardsigmoid";
    /// `x * min(max(x + 3, 0), 6) / 6` (Howard et al., 2019); the gradient is 0 at -3 and 1 at 3.
    hardswish = "hardswish";
    /// `s x` where positive, `s a (e^x - 1)` elsewhere, s = 1.0507.. and a = 1.6733.. (Klambauer et al., 2017).
    selu = "selu";
}

impl Tensor {
    /// `x` where positive, `slope * x` elsewhere.
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Result<Tensor> {
        elementwise("leaky_relu", [slope, 0.0], &[self])
    }
    /// `x` where positive, `alpha (e^x - 1)` elsewhere; the gradient at 0 is `alpha`.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![f64::NEG_INFINITY, 0.0, 2.0], 3, &Device::cpu())?;
    /// assert_eq!(x.elu(1.0)?.to_vec::<f64>()?, [-1.0, 0.0, 2.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        elementwise("elu", [alpha, 0.0], &[self])
    }
    /// `x` where positive, `alpha (e^(x / alpha) - 1)` elsewhere (Barron, 2017): its slope has no jump.
    ///
    /// # Errors
    /// For an `alpha` of 0.
    #[track_caller]
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        if alpha == 0.0 {
            return Err(Error::argument("celu", "alpha is 0, and x is divided by it"));
        }
        elementwise("celu", [alpha, 0.0], &[self])
    }
    /// `ln(1 + e^(beta x)) / beta`, and `x` itself where `beta x > threshold`. PyTorch's values are 1 and 20.
    ///
    /// # Errors
    /// For a `beta` of 0.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![0f64, 30.0], 2, &Device::cpu())?;
    /// assert_eq!(x.softplus(1.0, 20.0)?.to_vec::<f64>()?, [2f64.ln(), 30.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn softplus(&self, beta: f64, threshold: f64) -> Result<Tensor> {
        if beta == 0.0 {
            return Err(Error::argument("softplus", "beta is 0, and the logarithm is divided by it"));
        }
        elementwise("softplus", [beta, threshold], &[self])
    }
    /// `min(max(x, low), high)`; unlike that of `clamp` the gradient is 0 at the bounds too.
    #[track_caller]
    pub fn hardtanh(&self, low: f64, high: f64) -> Result<Tensor> {
        elementwise("hardtanh", [low, high], &[self])
    }
    /// `min(max(x, 0), 6)`; the gradient is 0 at 0 and 6.
    #[track_caller]
    pub fn relu6(&self) -> Result<Tensor> {
        elementwise("hardtanh", [0.0, 6.0], &[self])
    }
    /// `x` above `threshold`, `value` elsewhere; the gradient is 0 there.
    #[track_caller]
    pub fn threshold(&self, threshold: f64, value: f64) -> Result<Tensor> {
        elementwise("threshold", [threshold, value], &[self])
    }
    /// `x - lambda` above `lambda`, `x + lambda` below `-lambda`, 0 between; the gradient is 0 there, bounds included.
    #[track_caller]
    pub fn softshrink(&self, lambda: f64) -> Result<Tensor> {
        elementwise("softshrink", [lambda, 0.0], &[self])
    }
    /// `x` above `lambda` and below `-lambda`, 0 between; the gradient is 0 there, bounds included.
    #[track_caller]
    pub fn hardshrink(&self, lambda: f64) -> Result<Tensor> {
        elementwise("hardshrink", [lambda, 0.0], &[self])
    }
}
