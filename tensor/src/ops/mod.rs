//! The ops, one file a family: the maths, forward, backward, and the methods of `Tensor` that apply them.

pub(crate) mod cast;
mod cat;
pub(crate) mod compare;
mod cross_entropy;
mod dropout;
mod elementwise;
mod extremum;
mod index;
mod layer_norm;
mod linear;
mod matmul;
mod mse;
pub(crate) mod narrow;
mod product;
mod select;
mod softmax;
mod sum;
mod to_device;
mod view;

pub use compare::TensorOrScalar;
pub use cross_entropy::{CrossEntropyConfig, Reduction};
pub use product::{allow_tf32, set_allow_tf32};
