//! Kiln: tensors and training loops in Rust, where memory is a first-class citizen.
//!
//! Device storage comes from Kiln's own caching allocator; autograd keeps only what backward needs and can recompute the rest; batches reach the device
//! through page-locked memory while the last step still runs; and every byte is accounted for. The same program runs on an NVIDIA GPU or on the CPU.
//!
//! ```
//! use kiln::nn::Linear;
//! use kiln::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let device = Device::cuda_or_cpu(0);
//! let params = Params::new(&device);
//! let layer = Linear::new(4, 2, &params.at("fc"))?;
//! let x = Tensor::randn((8, 4), DType::F32, &device)?;
//! let loss = layer.forward(&x)?.square()?.mean_all()?;
//! loss.backward()?;
//! assert!(params.trainable()[0].grad()?.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! The layers of the library, each a crate that knows only those before it: [`alloc`] (bytes and their order), [`kernels`] (arithmetic), [`tensor`] (ops and
//! the tape), [`autograd`] (walking it), [`nn`] (training).

pub use kiln_alloc as alloc;
pub use kiln_autograd as autograd;
pub use kiln_kernels as kernels;
pub use kiln_nn as nn;
pub use kiln_tensor as tensor;

pub use kiln_alloc::{Category, MemoryStats};
pub use kiln_autograd::{Backward, autocast, checkpoint_fn, enable_grad, eval, grad, no_grad, train};
pub use kiln_tensor::{DType, Device, Error, IndexOp, Result, Shape, Tensor};

/// What a training loop needs.
pub mod prelude {
    pub use kiln_autograd::{Backward, autocast, no_grad};
    pub use kiln_nn::{AdamW, AdamWConfig, DataLoader, GradScaler, Module, Optimizer, Params, checkpoint};
    pub use kiln_tensor::{DType, Device, Result, Tensor};
}
