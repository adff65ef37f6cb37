//! Reverse-mode automatic differentiation over the tape that ops leave: [`Backward`] and [`grad`], modes by closure, gradient
//! [`checkpoint_fn`], [`autocast`].
//!
//! The walk is a heap ordered by sequence number, so it needs no recursion and meets every node after all its users. Gradients are moved, then added in
//! place; what a node saved goes as soon as the node has run.

mod autocast;
mod backward;
mod checkpoint;
mod grad;
mod walk;

pub use autocast::autocast;
pub use backward::Backward;
pub use checkpoint::checkpoint_fn;
pub use grad::grad;
pub use kiln_tensor::modes::{enable_grad, eval, no_grad, train};
