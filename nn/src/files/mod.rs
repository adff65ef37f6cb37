//! Tensors in safetensors files: 8 bytes with the length of a JSON header, the header, then the elements of all tensors without gaps, little-endian.
//!
//! A file is material from outside: every number in it is checked against the length of the file before it is used, and no more memory is taken than that.

mod header;
mod load;
mod save;

pub use load::{load_safetensors, load_tensors};
pub use save::{save_safetensors, save_tensors};

use kiln_tensor::{DType, Error};
use safetensors::Dtype;
use std::path::Path;

/// Bytes that pass through the host at a time.
const PIECE: usize = 32 << 20;

fn error(path: &Path, message: impl ToString) -> Error {
    Error::File { path: path.display().to_string(), message: message.to_string() }
}

/// The names files use.
const TYPES: [(DType, Dtype, &str); 7] = [
    (DType::F64, Dtype::F64, "F64"),
    (DType::F32, Dtype::F32, "F32"),
    (DType::F16, Dtype::F16, "F16"),
    (DType::BF16, Dtype::BF16, "BF16"),
    (DType::I64, Dtype::I64, "I64"),
    (DType::U32, Dtype::U32, "U32"),
    (DType::U8, Dtype::U8, "U8"),
];
