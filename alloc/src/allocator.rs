//! The caching allocator: one arena of addresses that grows at its tail, and the ladder a miss climbs.

use crate::{Block, Category, LogEvent, MemoryStats, Result, Source, SourceInfo, Stream};
use std::sync::Arc;

/// How an allocator is set up.
#[derive(Clone, Debug, Default)]
pub struct AllocatorConfig {
    /// At most this many bytes are taken from the device.
    pub limit: Option<usize>,
}

/// The caching allocator of one device. Cheap to clone; the device's memory goes back when the last clone, stream and
/// block are gone.
#[derive(Clone)]
pub struct Allocator {}

impl Allocator {
    /// An allocator over a source, with its compute stream (id 0).
    pub fn new(source: Arc<dyn Source>, config: AllocatorConfig) -> Result<Allocator> {
        let _ = (source, config);
        todo!()
    }
    /// Facts about the source.
    pub fn info(&self) -> &SourceInfo {
        todo!()
    }
    /// The stream made with the allocator, id 0.
    pub fn compute_stream(&self) -> &Stream {
        todo!()
    }
    /// A new stream. Ids are reused after the last clone of a stream is gone.
    pub fn new_stream(&self) -> Result<Stream> {
        todo!()
    }
    /// A block of `bytes` bytes for use on `stream`, aligned to 512 bytes, its contents undefined. Zero bytes take no memory.
    pub fn allocate(&self, bytes: usize, stream: &Stream, category: Category) -> Result<Block> {
        let _ = (bytes, stream, category);
        todo!()
    }
    /// Waits for pending blocks and gives all idle memory back to the device.
    pub fn empty_cache(&self) -> Result<()> {
        todo!()
    }
    /// Waits until all streams are idle.
    pub fn synchronize(&self) -> Result<()> {
        todo!()
    }
    /// Limits reserved bytes from now on; `None` lifts it. What is already reserved stays.
    pub fn set_limit(&self, limit: Option<usize>) {
        let _ = limit;
        todo!()
    }
    /// The counters now.
    pub fn stats(&self) -> MemoryStats {
        todo!()
    }
    /// Sets every peak to the current value.
    pub fn reset_peak_stats(&self) {
        todo!()
    }
    /// The counters as a table.
    pub fn memory_summary(&self) -> String {
        todo!()
    }
    /// Starts (or starts anew) recording events.
    pub fn start_log(&self) {
        todo!()
    }
    /// Stops recording and returns the events.
    pub fn take_log(&self) -> Vec<LogEvent> {
        todo!()
    }
    /// The source, for copies.
    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        todo!()
    }
}
