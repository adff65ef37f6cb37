//! The CUDA driver: what is there, and thin calls that never panic.

use crate::SourceError;

/// A CUDA device as the driver describes it.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its number.
    pub ordinal: usize,
    /// As in "NVIDIA H200".
    pub name: String,
    /// Compute capability, as (9, 0).
    pub capability: (u32, u32),
    /// All bytes of the device.
    pub total_memory: usize,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Whether virtual memory management is supported.
    pub virtual_memory: bool,
}

/// Whether a usable CUDA driver with at least one device is here; says why not. Probed once.
pub fn probe() -> Result<(), SourceError> {
    todo!()
}
/// The driver's version, as (13, 0).
pub fn version() -> Result<(u32, u32), SourceError> {
    todo!()
}
/// How many devices there are.
pub fn device_count() -> Result<usize, SourceError> {
    todo!()
}
/// Facts about a device.
pub fn device_info(ordinal: usize) -> Result<DeviceInfo, SourceError> {
    let _ = ordinal;
    todo!()
}
/// Makes the device's primary context current on this thread. Kernels call it before launching.
pub fn bind(ordinal: usize) -> Result<(), SourceError> {
    let _ = ordinal;
    todo!()
}
