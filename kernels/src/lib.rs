//! Arithmetic over blocks of memory. A kernel is a value that names its operands and knows how to run on each backend;
//! it gets access tokens and layouts, never allocates, and knows nothing of gradients.
//!
//! A family is a folder: `mod.rs` says what it computes, `cpu.rs` and `cuda.rs` how; CUDA sources lie in `kernels/cuda`.

mod arg;
mod backend;
mod convert;
mod dtype;
mod error;
mod host;
mod layout;
mod rows;
mod scalar;
mod walk;

pub mod cuda;

pub mod compare;
pub mod copy;
pub mod cross_entropy;
pub mod elementwise;
pub mod index;
pub mod matmul;
pub mod norm;
pub mod optim;
pub mod random;
pub mod reduce;
pub mod scan;
pub mod scatter;
pub mod softmax;
pub mod sort;

pub use arg::{Arg, OutArg, OutToken};
pub use backend::{Backend, Dry, Kernel};
pub use dtype::DType;
pub use error::KernelError;
pub use layout::{Dims, Layout, MAX_RANK, Strides};
pub use scalar::{Element, Scalar};

/// The result of running a kernel.
pub type Result<T, E = KernelError> = std::result::Result<T, E>;
