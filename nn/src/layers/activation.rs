//! Activations as modules, for sequences.

use crate::Module;
use kiln_tensor::{Result, Tensor};

macro_rules! activation {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl Module for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$method()
            }
            fn is_layer(&self) -> bool {
                true
            }
        }
    )*};
}

activation! {
    /// `max(x, 0)`.
    Relu = relu;
    /// GELU, exactly: `x/2 (1 + erf(x / sqrt(2)))`, PyTorch's default; the approximation by tanh is `Tensor::gelu`.
    Gelu = gelu_erf;
    /// Hyperbolic tangent.
    Tanh = tanh;
}
