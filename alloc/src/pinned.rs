//! Pooled page-locked host memory: eight size classes per power of two, reused only after its copies are done.

use crate::{Result, Source, Stream};
use std::sync::Arc;

/// A pool of page-locked host memory of one device. Cheap to clone.
#[derive(Clone)]
pub struct PinnedPool {}

impl PinnedPool {
    /// A pool over a source; on a device with no use for page-locking its memory is plain host memory.
    pub fn new(source: Arc<dyn Source>) -> PinnedPool {
        let _ = source;
        todo!()
    }
    /// A block of `bytes` host bytes, zeroed when it is first taken from the system.
    pub fn allocate(&self, bytes: usize) -> Result<PinnedBlock> {
        let _ = bytes;
        todo!()
    }
    /// Bytes held from the system, in use or idle.
    pub fn reserved_bytes(&self) -> usize {
        todo!()
    }
    /// Bytes in use or waiting for a copy to end.
    pub fn active_bytes(&self) -> usize {
        todo!()
    }
    /// Gives idle blocks back to the system.
    pub fn trim(&self) {
        todo!()
    }
}

/// A piece of page-locked host memory. Goes back to its pool on drop, and is reused once its copies are done.
pub struct PinnedBlock {}

impl PinnedBlock {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        todo!()
    }
    /// The bytes, for filling. Waits for copies that still read them.
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8]> {
        todo!()
    }
    /// Notes that work enqueued so far on `stream` uses the block.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        let _ = stream;
        todo!()
    }
}
