//! What CUDA kernels share: the compiled modules of a device, launches, cuBLAS handles, the device error word.
//!
//! A family embeds its CUDA C++ in a `Source`, asks for a kernel by source, `Variant` (its element types) and entry, and launches it:
//!
//! ```ignore
//! static SOFTMAX: Source = Source { name: "softmax", texts: &[include_str!("../../cuda/softmax.cu")], fmad: true };
//! let f = cuda.function(&SOFTMAX, Variant::types(&[x.dtype]), "softmax_rows")?;
//! let (x, out, n) = (x.address(), out.address(), n as u64);
//! // SAFETY: the kernel is `void softmax_rows(const T0* x, T0* out, u64 n)`; the tokens of both operands live until it is enqueued.
//! unsafe { cuda.launch(f, Launch::blocks(rows, 256), stream, &[param(&x), param(&out), param(&n)]) }
//! ```

mod cache;
mod collapse;
mod compile;
mod error_word;

mod launch;
mod library;
mod source;

pub(crate) mod blas;
pub(crate) mod map;

pub use library::{LibraryInfo, libraries};
pub use source::{SourceText, all_sources};

pub(crate) use error_word::{BYTES as ERROR_WORD_BYTES, Checked};
pub(crate) use launch::{Function, Launch, Value, param};
pub(crate) use source::{Source, Variant};

use crate::Result;
use kiln_alloc::{AllocError, Allocator, driver};

/// The kernels of one CUDA device.
pub struct Cuda {
    ordinal: usize,
    /// Streaming multiprocessors, for sizing grids.
    pub(crate) multiprocessors: u32,
    target: compile::Target,
    functions: launch::Functions,
    error_word: error_word::ErrorWord,
    pub(crate) blas: blas::Blas,
}

impl Cuda {
    /// Opens NVRTC and cuBLAS for device `ordinal`; says what is missing and how to get it. Small device-internal buffers (the error
    /// word) are taken from `allocator` under the category "workspace".
    pub fn new(ordinal: usize, allocator: &Allocator) -> Result<Cuda> {
        let info = driver::device_info(ordinal).map_err(AllocError::from)?;
        library::DRIVER.require()?;
        let target = compile::Target::new(info.capability)?;
        Ok(Cuda {
            ordinal,
            multiprocessors: info.multiprocessors,
            target,
            functions: launch::Functions::default(),
            error_word: error_word::ErrorWord::new(allocator)?,
            blas: blas::Blas::new(ordinal, allocator)?,
        })
    }

    /// Makes the device's context current on this thread.
    pub(crate) fn bind(&self) -> Result<()> {
        Ok(driver::bind(self.ordinal).map_err(AllocError::from)?)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Modules are unloaded next, once no kernel runs any more. Without a context that fails, and nothing is lost.
        if driver::bind(self.ordinal).is_ok() {
            launch::synchronize();
        }
    }
}
