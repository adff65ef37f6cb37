//! Tensors, the ops on them and the tape that ops leave behind.
//!
//! An op is a value in one file under [`ops`]; every op, a user's own too, enters through [`apply`]: it computes, and where an input
//! wants a gradient it records a [`tape::Node`]. How the tape is walked is no concern of this crate.

mod autocast;
mod create;
mod device;
mod display;
mod error;
mod exec;
mod in_place;
mod indexer;
mod npy;
mod operators;
mod read_back;
mod shape;
mod storage;
mod tensor;
mod upload;

pub mod modes;
pub mod op;
pub mod ops;
pub mod random;
pub mod saved;
pub mod tape;

pub use device::{Device, DeviceConfig, DeviceId, parse_bytes};
pub use error::{Error, Result};
pub use indexer::{Index, IndexOp};
pub use kiln_kernels::{DType, Element, Layout, Scalar};
pub use op::{Op, apply, apply_multi};
pub use ops::{CrossEntropyConfig, Indexing, PadMode, Reduction, ReshapeTo, allow_tf32, set_allow_tf32};
pub use shape::{Dim, DimList, Shape};
pub use storage::Storage;
pub use tensor::Tensor;
