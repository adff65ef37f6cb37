//! `y = x·Wᵀ + b`.

use crate::{Init, Module, Parameter, Params};
use kiln_tensor::{Result, Tensor};

/// A linear layer from `[.., in]` to `[.., out]`; `weight` is `[out, in]`, `bias` `[out]`. Both start uniform within `1 / sqrt(in)`, as PyTorch's.
///
/// ```
/// # use kiln_nn::{Linear, Module, Params};
/// # use kiln_tensor::{Device, DType, Tensor};
/// let device = Device::cpu();
/// let layer = Linear::new(3, 2, &Params::new(&device).at("fc"))?;
/// assert_eq!(layer.forward(&Tensor::ones((5, 3), DType::F32, &device)?)?.dims(), [5, 2]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Parameter,
    bias: Option<Parameter>,
}

impl Linear {
    /// A layer with a bias.
    ///
    /// # Errors
    /// Where the path is taken; out of memory.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize, params: &Params) -> Result<Linear> {
        let weight = params.create("weight", (outputs, inputs), Init::fan_in(inputs))?;
        let bias = params.create("bias", outputs, Init::fan_in(inputs))?;
        Ok(Linear { weight, bias: Some(bias) })
    }
    /// A layer without a bias.
    ///
    /// # Errors
    /// As [`Linear::new`].
    #[track_caller]
    pub fn no_bias(inputs: usize, outputs: usize, params: &Params) -> Result<Linear> {
        Ok(Linear { weight: params.create("weight", (outputs, inputs), Init::fan_in(inputs))?, bias: None })
    }
    /// A layer over parameters that exist, as an output layer that shares the weight of an embedding.
    pub fn from_parts(weight: Parameter, bias: Option<Parameter>) -> Linear {
        Linear { weight, bias }
    }
    /// The weight, `[out, in]`.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }
    /// The bias, `[out]`.
    pub fn bias(&self) -> Option<&Parameter> {
        self.bias.as_ref()
    }
}

impl Module for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight, self.bias.as_deref())
    }
    fn is_layer(&self) -> bool {
        true
    }
}
