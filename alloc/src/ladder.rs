//! What a request does when no idle block of its own stream fits: one step after the other, each only if those before fail.
//!
//! 1. Look again: another thread may have freed or grown meanwhile.
//! 2. Take an idle block of another stream; the device makes this stream wait for it.
//! 3. Grow within the limit, by free pages moved there as far as new ones would take too much.
//! 4. Take a block that is still in use, with a wait on the device; else stitch the pages of such ones too, and grow by the rest.
//! 5. Ask those who hold memory that they can do without.
//! 6. Wait for all pending work, merge everything idle, look and stitch again.
//! 7. Give whole idle pages back to the device, and grow again.
//!
//! Only then, out of memory. All of it runs under the slow mutex, so that two threads never both conclude that memory is out. A
//! private pool only ever grows: during a capture nothing may wait or move.

use crate::core::{Core, MOST, lock};
use crate::pages::Pages;
use crate::stitch::{Donors, Means};
use crate::stream::StreamInner;
use crate::{AllocError, OomReport, Result, Search};
use std::panic::Location;
use std::sync::Arc;

const LOOK: &str = "looked through the stream's idle blocks";
const STEAL: &str = "looked for idle blocks of other streams";
const GROW: &str = "stitched free pages and asked the device for more, within the limit";
const PENDING: &str = "looked for blocks in use until an event, and stitched their pages";
const HOOKS: &str = "asked the holders of caches to give memory back";
const SETTLE: &str = "waited for pending work, merged everything idle and stitched again";
const GIVE: &str = "gave the cache back to the device and asked again";
const PRIVATE: &str = "grew the private pool, within the limit";
const TOO_LARGE: &str = "none: the request is larger than the device or the limit";

/// A request on its way down.
pub(crate) struct Ask {
    /// Bytes asked for.
    pub(crate) bytes: usize,
    /// Bytes of the block.
    pub(crate) size: usize,
    pub(crate) region: u16,
    /// The line that asked.
    pub(crate) site: &'static Location<'static>,
}

impl Core {
    /// Finds a block for a request, by the ladder.
    pub(crate) fn climb(&self, ask: &Ask, stream: &Arc<StreamInner>) -> Result<u32> {
        let mut pages = lock(&self.slow);
        let (limit, private) = {
            let shared = self.locked();
            (shared.table.counters.limit.unwrap_or(usize::MAX), shared.table.regions[ask.region as usize].pinned)
        };
        // What is already taken may be more than a limit that came later.
        if ask.size > self.info.capacity.min(MOST).min(limit.max(pages.mapped)) {
            drop(pages);
            return Err(self.out_of_memory(ask, vec![TOO_LARGE]));
        }
        if private {
            let found = self.extend(&mut pages, ask, stream, Means::new(Donors::Nobody, true))?;
            drop(pages);
            return found.ok_or_else(|| self.out_of_memory(ask, vec![LOOK, PRIVATE]));
        }
        self.retire(&mut pages, false);
        if let Some(index) = self.take(&mut self.locked(), ask, stream.id) {
            return Ok(index);
        }
        let shares = self.policy.shares_streams();
        let mut steps = vec![LOOK];
        if shares {
            steps.push(STEAL);
            if let Some(index) = self.steal(ask, stream, false)? {
                return Ok(index);
            }
        }
        let (idle, idle_freely) = (Means::new(Donors::Idle, false), Means::new(Donors::Idle, true));
        steps.push(GROW);
        if let Some(index) = self.extend(&mut pages, ask, stream, idle)? {
            return Ok(index);
        }
        if shares {
            steps.push(PENDING);
            if let Some(index) = self.steal(ask, stream, true)? {
                return Ok(index);
            }
        }
        let donors = if shares { Donors::Pending } else { Donors::Idle };
        if let Some(index) = self.extend(&mut pages, ask, stream, Means::new(donors, true))? {
            return Ok(index);
        }
        // The holders may allocate and free, so no lock is held meanwhile; a request of their own does not ask them again.
        if self.hooks.can_run() {
            steps.push(HOOKS);
            drop(pages);
            self.hooks.run(ask.size);
            pages = lock(&self.slow);
            if let Some(index) = self.extend(&mut pages, ask, stream, idle_freely)? {
                return Ok(index);
            }
        }
        self.locked().table.counters.num_alloc_retries += 1;
        steps.push(SETTLE);
        self.wait_and_merge(&mut pages, stream.id)?;
        if let Some(index) = self.extend(&mut pages, ask, stream, idle_freely)? {
            return Ok(index);
        }
        steps.push(GIVE);
        // First as much as the request needs; if that is not enough, everything.
        for need in [ask.size.saturating_add(pages.coarse()), usize::MAX] {
            self.reclaim(&mut pages, need, stream.id)?;
            if let Some(index) = self.extend(&mut pages, ask, stream, idle_freely)? {
                return Ok(index);
            }
        }
        // A policy that takes memory from the end alone: better from anywhere than not at all.
        if let Some(index) = self.take_by(Search::BestFit, &mut self.locked(), ask, stream.id) {
            return Ok(index);
        }
        drop(pages);
        Err(self.out_of_memory(ask, steps))
    }

    /// Waits for everything that is not live, and merges it as idle memory of one stream.
    fn wait_and_merge(&self, pages: &mut Pages, to: u32) -> Result<()> {
        let (mut shared, clear) = self.settle(to)?;
        clear.into_iter().for_each(|index| shared.table.release(index));
        drop(shared);
        self.retire(pages, true);
        Ok(())
    }

    /// The error with its report; counts it.
    fn out_of_memory(&self, ask: &Ask, steps: Vec<&'static str>) -> AllocError {
        let memory = self.source.memory_info();
        let (driver_free, driver_total) = memory.map_or((0, self.info.capacity), |m| (m.free, m.total));
        let pages = lock(&self.slow);
        let mut shared = self.locked();
        shared.table.counters.num_ooms += 1;
        let stats = shared.stats(&pages);
        let mut categories: Vec<_> = crate::Category::ALL.map(|c| (c, stats.category(c).current)).to_vec();
        categories.retain(|(_, bytes)| *bytes > 0);
        categories.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        AllocError::OutOfMemory(Box::new(OomReport {
            device: self.info.name.clone(),
            requested: ask.bytes,
            size: ask.size,
            site: format!("{}:{}", ask.site.file(), ask.site.line()),
            allocated: stats.allocated.current,
            rounded_up: shared.live_bytes().saturating_sub(stats.allocated.current),
            reserved: stats.reserved.current,
            idle: stats.inactive_split_bytes.all.current as usize,
            largest_free: stats.largest_free,
            free_pages: stats.free_pages,
            pending: stats.pending,
            pending_by_stream: shared.pending_by_stream(),
            limit: stats.limit,
            page: self.info.virtual_memory.then_some(self.info.granularity),
            driver_free,
            driver_total,
            categories,
            top_sites: shared.top_sites(),
            steps,
        }))
    }
}
