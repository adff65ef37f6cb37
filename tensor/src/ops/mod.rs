//! The ops, one file a family: the maths, forward, backward, and the methods of `Tensor` that apply them.

pub(crate) mod cast;
mod elementwise;
mod sum;
mod view;
