//! What CUDA kernels share: the compiled modules of a device, launches, cuBLAS handles, the device error word.

use crate::Result;
use kiln_alloc::Allocator;

/// The kernels of one CUDA device.
pub struct Cuda {}

impl Cuda {
    /// Opens NVRTC and cuBLAS for device `ordinal`; says what is missing and how to get it. Small device-internal buffers (the error
    /// word) are taken from `allocator` under the category "workspace".
    pub fn new(ordinal: usize, allocator: &Allocator) -> Result<Cuda> {
        let _ = (ordinal, allocator);
        todo!()
    }
    /// Reads and clears the error word that index kernels set; `Err(Index)` where one was out of range. Waits for the device.
    pub fn check_errors(&self) -> Result<()> {
        todo!()
    }
}
