//! The caching allocator's public handle: what a user asks, and how it is set up.

use crate::core::{Core, MOST, Shared, lock};
use crate::ladder::Ask;
use crate::log::Log;
use crate::policies::Paged;
use crate::short::Guard;
use crate::table::{NONE, Tag};
use crate::{
    AllocError, Block, Category, LogEvent, MemoryStats, Policy, PrivatePool, ReclaimHook, Result, Source, SourceInfo, Stream,
    Zone,
};
use std::panic::Location;
use std::sync::Arc;

/// How an allocator is set up.
pub struct AllocatorConfig {
    /// At most this many bytes are taken from the device, which gives whole pages (2 MiB on a GPU): what is left below one is
    /// not used.
    pub limit: Option<usize>,
    /// Where blocks lie and how memory grows; [`Paged`] unless another is chosen.
    pub policy: Box<dyn Policy>,
    /// Overwrite freed bytes with 0xFF (NaN in every float format), in stream order, so that a use after free shows.
    pub poison: bool,
}

impl Default for AllocatorConfig {
    fn default() -> AllocatorConfig {
        AllocatorConfig { limit: None, policy: Box::new(Paged::default()), poison: false }
    }
}

impl AllocatorConfig {
    /// The default with another policy.
    pub fn with_policy(policy: impl Policy) -> AllocatorConfig {
        AllocatorConfig { policy: Box::new(policy), ..AllocatorConfig::default() }
    }
}

impl std::fmt::Debug for AllocatorConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AllocatorConfig { limit, policy, poison } = self;
        f.debug_struct("AllocatorConfig").field("limit", limit).field("policy", &policy.name()).field("poison", poison).finish()
    }
}

/// The caching allocator of one device. Cheap to clone; the device's memory goes back when the last clone, stream and
/// block are gone.
#[derive(Clone)]
pub struct Allocator {
    pub(crate) core: Arc<Core>,
    compute: Stream,
}

impl Allocator {
    /// An allocator over a source, with its compute stream (id 0).
    ///
    /// # Errors
    /// What the source says when it cannot reserve addresses or make a stream.
    pub fn new(source: Arc<dyn Source>, config: AllocatorConfig) -> Result<Allocator> {
        let core = Core::new(source, config)?;
        let compute = core.open_stream()?;
        Ok(Allocator { core, compute })
    }
    /// Facts about the source.
    pub fn info(&self) -> &SourceInfo {
        &self.core.info
    }
    /// The policy it was made with.
    pub fn policy(&self) -> &dyn Policy {
        &*self.core.policy
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
        self.core.open_stream()
    }
    /// A block of `bytes` bytes for use on `stream`, aligned to 512 bytes, its contents undefined. Zero bytes take no memory.
    /// Reports name the line that called this.
    ///
    /// # Errors
    /// `OutOfMemory` with a report when no set of free pages and no growth within the limit can serve it; `SizeOverflow`;
    /// `WrongStream` if the stream is another allocator's; an error that an earlier drop could not return.
    #[track_caller]
    pub fn allocate(&self, bytes: usize, stream: &Stream, category: Category) -> Result<Block> {
        self.allocate_at(bytes, stream, category, Location::caller())
    }
    /// As [`allocate`](Allocator::allocate), for the line `site`.
    ///
    /// # Errors
    /// The same.
    pub fn allocate_at(
        &self,
        bytes: usize,
        stream: &Stream,
        category: Category,
        site: &'static Location<'static>,
    ) -> Result<Block> {
        self.core.check()?;
        self.check_stream(stream)?;
        let tag = Tag { bytes, site, category };
        match self.core.once_more(&stream.inner, &tag) {
            Ok(found) => Ok(Block::new(found, bytes, category)),
            Err(shared) => self.serve(shared, None, stream, tag),
        }
    }
    #[inline]
    pub(crate) fn check_stream(&self, stream: &Stream) -> Result<()> {
        if Arc::ptr_eq(&self.core, &stream.inner.core) {
            return Ok(());
        }
        let (allocator, stream) = (self.core.info.name.clone(), stream.inner.core.info.name.clone());
        Err(AllocError::WrongStream { allocator, stream })
    }
    /// A block in a region, or where the policy wants it.
    #[inline]
    pub(crate) fn serve(&self, shared: Guard<'_, Shared>, region: Option<u16>, stream: &Stream, tag: Tag) -> Result<Block> {
        let core = &*self.core;
        let Tag { bytes, site, category } = tag;
        let size = if bytes == 0 { 0 } else { core.block_size(bytes)? };
        let region = region.unwrap_or_else(|| core.policy.zone(size, category) as u16);
        let (shared, stack) = core.with_stack(shared);
        let (index, mut shared) = match self.find(shared, &Ask { bytes, size, region, site }, stream) {
            Ok(found) => found,
            Err(error) => {
                core.note_refusal(&error, tag, stream.inner.id, &stack);
                return Err(error);
            }
        };
        let found = shared.hand_out(index, &stream.inner, tag, stack);
        drop(shared);
        Ok(Block::new(found, bytes, category))
    }
    /// A live piece for a request, not counted yet, and the short lock.
    #[inline(always)]
    fn find<'a>(&'a self, mut shared: Guard<'a, Shared>, ask: &Ask, stream: &Stream) -> Result<(u32, Guard<'a, Shared>)> {
        let core = &*self.core;
        let found = match ask.size {
            0 => Some(NONE),
            // More than any device has must not reach the bins.
            size if size > core.info.capacity.min(MOST) => None,
            _ => core.take(&mut shared, ask, stream.inner.id),
        };
        if let Some(index) = found {
            return Ok((index, shared));
        }
        drop(shared);
        let index = core.climb(ask, &stream.inner)?;
        Ok((index, core.locked()))
    }
    /// A pool with pages of its own, which never move and serve nobody else: for the blocks of a captured graph.
    ///
    /// # Errors
    /// What the source says when it has no addresses left.
    pub fn private_pool(&self) -> Result<PrivatePool> {
        PrivatePool::new(self)
    }
    /// Takes `bytes` bytes from the device ahead of need, as one idle piece of the compute stream in the zone of large blocks, so
    /// that growing requests later find one range instead of many pieces.
    ///
    /// # Errors
    /// As [`allocate`](Allocator::allocate).
    #[track_caller]
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        self.core.check()?;
        if bytes > 0 {
            let ask = Ask { bytes, size: self.core.block_size(bytes)?, region: Zone::Large as u16, site: Location::caller() };
            let (index, mut shared) = self.find(self.core.locked(), &ask, &self.compute)?;
            shared.table.release(index);
        }
        Ok(())
    }
    /// Waits for pending blocks and gives all idle memory back to the device.
    ///
    /// # Errors
    /// What the driver says; the allocator stays usable.
    pub fn empty_cache(&self) -> Result<()> {
        self.trim(0)
    }
    /// Gives idle memory back until at most `to` bytes are reserved, or nothing whole is idle. Waits for pending blocks first.
    ///
    /// # Errors
    /// What the driver says; the allocator stays usable.
    pub fn trim(&self, to: usize) -> Result<()> {
        self.core.check()?;
        let mut pages = lock(&self.core.slow);
        match pages.mapped.saturating_sub(to) {
            0 => return Ok(()),
            need => self.core.reclaim(&mut pages, need, self.compute.inner.id)?,
        }
        self.core.locked().lower_high_water();
        Ok(())
    }
    /// Adds someone to ask for memory before a request fails. Held weakly.
    pub fn add_reclaim_hook(&self, hook: &Arc<ReclaimHook>) {
        self.core.hooks.add(hook);
    }
    /// Waits until all streams are idle.
    ///
    /// # Errors
    /// What the driver says.
    pub fn synchronize(&self) -> Result<()> {
        self.core.check()?;
        Ok(self.core.synchronize()?)
    }
    /// Limits reserved bytes from now on, to whole pages below `limit`; `None` lifts it. What is already reserved stays.
    pub fn set_limit(&self, limit: Option<usize>) {
        self.core.locked().table.counters.limit = limit;
    }
    /// Limits reserved bytes to a fraction of the device, as PyTorch's `set_per_process_memory_fraction`.
    ///
    /// # Errors
    /// `LimitFraction` where `fraction` is not within 0 and 1.
    pub fn set_limit_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocError::LimitFraction(fraction));
        }
        self.set_limit(Some((self.core.info.capacity as f64 * fraction) as usize));
        Ok(())
    }
    /// The counters now.
    pub fn stats(&self) -> MemoryStats {
        let pages = lock(&self.core.slow);
        let mut shared = self.core.locked();
        self.core.poll(&mut shared);
        shared.stats(&pages)
    }
    /// Live bytes by the source line that asked for them, largest first.
    pub fn live_by_line(&self) -> Vec<(String, usize)> {
        self.core.locked().by_site()
    }
    /// Sets every peak to the current value.
    pub fn reset_peak_stats(&self) {
        self.core.locked().table.counters.reset_peaks();
    }
    /// Starts the running totals (`allocated` and `freed` of every metric) and PyTorch's counters of events anew.
    pub fn reset_accumulated_stats(&self) {
        self.core.locked().table.counters.reset_accumulated();
    }
    /// The counters as a table, each metric followed by its part in the large and in the small pool.
    pub fn memory_summary(&self) -> String {
        crate::report::summary(&self.core, &self.stats(), false)
    }
    /// The counters as a shorter table: one row a metric.
    pub fn memory_summary_abbreviated(&self) -> String {
        crate::report::summary(&self.core, &self.stats(), true)
    }
    /// Starts (or starts anew) recording events.
    pub fn start_log(&self) {
        let mut shared = self.core.locked();
        shared.log = Some(Log::new(shared.next_id));
        shared.note_recording();
    }
    /// Stops recording and returns the events.
    pub fn take_log(&self) -> Vec<LogEvent> {
        let mut shared = self.core.locked();
        let log = shared.log.take();
        shared.note_recording();
        drop(shared);
        log.map(Log::into_events).unwrap_or_default()
    }
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Allocator({})", self.core.info.name)
    }
}
