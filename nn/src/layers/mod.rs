//! Layers: parameters and the op that uses them. A clone shares the parameters.

mod activation;
mod dropout;
mod embedding;
mod layer_norm;
mod linear;

pub use activation::{Gelu, Relu, Tanh};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
