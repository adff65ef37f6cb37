//! Errors of kernels, each one sentence.

use crate::DType;
use kiln_alloc::AllocError;

/// Why a kernel did not run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel does not exist for this element type.
    #[error("{kernel} is not defined for {dtype}")]
    DType {
        /// Name of the kernel.
        kernel: &'static str,
        /// The element type it was given.
        dtype: DType,
    },
    /// An index lies outside its dim.
    #[error("{kernel}: index {value} is out of range for a dim of size {size}")]
    Index {
        /// Name of the kernel.
        kernel: &'static str,
        /// The index.
        value: i64,
        /// Size of the dim.
        size: usize,
    },
    /// The operands or parameters do not fit the kernel (a bug of the caller, who checks shapes and types first).
    #[error("{0}")]
    Operand(String),
    /// A CUDA library is missing or one of its calls failed.
    #[error("{0}")]
    Library(String),
    /// CUDA source did not compile (a bug of this crate; the log says where).
    #[error("compiling {name} for sm_{arch} failed:\n{log}")]
    Compile {
        /// Name of the source.
        name: String,
        /// Target, as 90.
        arch: u32,
        /// The compiler's log.
        log: String,
    },
    /// Memory or ordering failed.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}
