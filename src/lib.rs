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
//! An op of your own is a value with a forward and a backward. `save` names what backward will read, so that nothing else stays in memory:
//!
//! ```
//! use kiln::prelude::*;
//! use kiln::tensor::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
//! use kiln::tensor::saved::SavedTensors;
//!
//! /// `y = x²`, `dx = 2 x dy`.
//! struct Square;
//!
//! impl Op for Square {
//!     fn name(&self) -> &'static str {
//!         "my_square"
//!     }
//!     fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
//!         Ok(inputs[0].mul(&inputs[0])?.into())
//!     }
//!     fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
//!         keep.tensor(&inputs[0])
//!     }
//!     fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
//!         let dx = ctx.only(grads)?.mul(&saved.take(0)?)?.affine(2.0, 0.0)?;
//!         Ok(InputGrads::from_iter([Some(dx)]))
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let x = Tensor::from_vec(vec![1f32, 2., 3.], 3, &Device::cpu())?.requires_grad()?;
//! let y = apply(Square, &[&x])?;
//! let dx = kiln::grad(&y.sum_all()?, &[&x])?;
//! assert_eq!(dx[0].to_vec1::<f32>()?, [2., 4., 6.]);
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
pub use kiln_tensor::{DType, Device, DeviceConfig, Error, Index, IndexOp, PadMode, Result, Shape, Tensor};

/// What a training loop needs.
pub mod prelude {
    pub use kiln_autograd::{Backward, autocast, no_grad};
    pub use kiln_nn::{AdamW, AdamWConfig, DataLoader, GradScaler, Module, Optimizer, Params, checkpoint};
    pub use kiln_tensor::{DType, Device, Result, Tensor};
}
