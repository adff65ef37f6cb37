//! Host memory: reserved lazily, given back page by page.

use crate::SourceError;

/// Memory of the host.
pub struct HostSource {}

impl HostSource {
    /// All of the host's memory.
    pub fn new() -> Result<HostSource, SourceError> {
        todo!()
    }
}
