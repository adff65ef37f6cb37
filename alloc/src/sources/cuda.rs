//! CUDA virtual memory.

use crate::SourceError;

/// A CUDA device's memory, through its virtual memory calls.
pub struct CudaSource {}

impl CudaSource {
    /// The memory of device `ordinal`; says why where there is none.
    pub fn new(ordinal: usize) -> Result<CudaSource, SourceError> {
        let _ = ordinal;
        todo!()
    }
}
