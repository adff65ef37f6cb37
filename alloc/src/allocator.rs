//! The caching allocator: one arena of addresses that grows at its tail, and the ladder a miss climbs.

use crate::core::{Core, lock};
use crate::log::Log;
use crate::table::NONE;
use crate::{AllocError, Block, Category, LogEvent, MemoryStats, Result, Source, SourceInfo, Stream};
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
pub struct Allocator {
    core: Arc<Core>,
    compute: Stream,
}

impl Allocator {
    /// An allocator over a source, with its compute stream (id 0).
    ///
    /// # Errors
    /// What the source says when it cannot reserve addresses or make a stream.
    pub fn new(source: Arc<dyn Source>, config: AllocatorConfig) -> Result<Allocator> {
        let core = Core::new(source, config.limit)?;
        let compute = Stream { inner: core.open_stream()? };
        Ok(Allocator { core, compute })
    }
    /// Facts about the source.
    pub fn info(&self) -> &SourceInfo {
        &self.core.info
    }
    /// The stream made with the allocator, id 0.
    pub fn compute_stream(&self) -> &Stream {
        &self.compute
    }
    /// A new stream. Ids are reused after the last clone of a stream is gone.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new_stream(&self) -> Result<Stream> {
        self.core.check()?;
        Ok(Stream { inner: self.core.open_stream()? })
    }
    /// A block of `bytes` bytes for use on `stream`, aligned to 512 bytes, its contents undefined. Zero bytes take no memory.
    ///
    /// # Errors
    /// `OutOfMemory` with a report when no set of idle pages and no growth within the limit can serve it; `SizeOverflow`;
    /// `WrongDevice` if the stream is another allocator's; an error that an earlier drop could not return.
    pub fn allocate(&self, bytes: usize, stream: &Stream, category: Category) -> Result<Block> {
        let core = &*self.core;
        core.check()?;
        if !Arc::ptr_eq(&self.core, &stream.inner.core) {
            let (block, stream) = (core.info.name.clone(), stream.inner.core.info.name.clone());
            return Err(AllocError::WrongDevice { block, stream });
        }
        let size = Core::block_size(bytes)?;
        let home = stream.inner.clone();
        let mut shared = lock(&core.shared);
        let index = match size {
            0 => NONE,
            // More than any device has must not reach the bins.
            _ if size > core.info.capacity => {
                drop(shared);
                let index = core.climb(bytes, size, &home)?;
                shared = lock(&core.shared);
                index
            }
            _ => match core.take(&mut shared, size, home.id) {
                Some(index) => index,
                None => {
                    drop(shared);
                    let index = core.climb(bytes, size, &home)?;
                    shared = lock(&core.shared);
                    index
                }
            },
        };
        let (id, address) = shared.hand_out(index, bytes, home.id, category);
        drop(shared);
        let address = if index == NONE { core.base } else { address };
        Ok(Block::new(home, address, bytes, id, index, category))
    }
    /// Waits for pending blocks and gives all idle memory back to the device.
    ///
    /// # Errors
    /// What the driver says; the allocator stays usable.
    pub fn empty_cache(&self) -> Result<()> {
        self.core.check()?;
        let mut pages = lock(&self.core.slow);
        self.core.reclaim(&mut pages, usize::MAX, None, 0)?;
        Ok(())
    }
    /// Waits until all streams are idle.
    ///
    /// # Errors
    /// What the driver says.
    pub fn synchronize(&self) -> Result<()> {
        self.core.check()?;
        Ok(self.core.synchronize()?)
    }
    /// Limits reserved bytes from now on; `None` lifts it. What is already reserved stays.
    pub fn set_limit(&self, limit: Option<usize>) {
        lock(&self.core.shared).table.counters.limit = limit;
    }
    /// The counters now.
    pub fn stats(&self) -> MemoryStats {
        let mut shared = lock(&self.core.shared);
        self.core.poll(&mut shared);
        shared.stats()
    }
    /// Sets every peak to the current value.
    pub fn reset_peak_stats(&self) {
        lock(&self.core.shared).table.counters.reset_peaks();
    }
    /// Starts the running totals (`allocated` and `freed` of every metric) and PyTorch's counters of events anew.
    pub fn reset_accumulated_stats(&self) {
        lock(&self.core.shared).table.counters.reset_accumulated();
    }
    /// The counters as a table, each metric followed by its part in the large and in the small pool.
    pub fn memory_summary(&self) -> String {
        crate::report::summary(&self.core.info, &self.stats(), self.core.source.memory_info().ok(), false)
    }
    /// The counters as a shorter table: one row a metric.
    pub fn memory_summary_abbreviated(&self) -> String {
        crate::report::summary(&self.core.info, &self.stats(), self.core.source.memory_info().ok(), true)
    }
    /// Starts (or starts anew) recording events.
    pub fn start_log(&self) {
        let mut shared = lock(&self.core.shared);
        shared.log = Some(Log::new(shared.next_id));
    }
    /// Stops recording and returns the events.
    pub fn take_log(&self) -> Vec<LogEvent> {
        lock(&self.core.shared).log.take().map(Log::into_events).unwrap_or_default()
    }
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Allocator({})", self.core.info.name)
    }
}
