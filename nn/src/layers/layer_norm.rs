//! `y = (x - mean) / sqrt(var + eps) * weight + bias` over the last dim.

use crate::{Init, Module, Parameter, Params};
use kiln_tensor::{Result, Tensor};

/// Layer normalisation over the last dim, of size `size`; `weight` starts as ones, `bias` as zeros.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    weight: Parameter,
    bias: Parameter,
    eps: f64,
}

impl LayerNorm {
    /// With PyTorch's `eps` of 1e-5.
    ///
    /// # Errors
    /// Where the path is taken; out of memory.
    #[track_caller]
    pub fn new(size: usize, params: &Params) -> Result<LayerNorm> {
        let weight = params.create("weight", size, Init::Ones)?;
        let bias = params.create("bias", size, Init::Zeros)?;
        Ok(LayerNorm { weight, bias, eps: 1e-5 })
    }
    /// With another number added to the variance.
    #[must_use]
    pub fn eps(self, eps: f64) -> LayerNorm {
        LayerNorm { eps, ..self }
    }
    /// The factor of each element, `[size]`.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }
    /// What is added to each element, `[size]`.
    pub fn bias(&self) -> &Parameter {
        &self.bias
    }
}

impl Module for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(Some(&self.weight), Some(&self.bias), self.eps)
    }
    fn is_layer(&self) -> bool {
        true
    }
}
