//! What a request does when no idle block of its own stream fits: four steps, each only if the one before fails.
//!
//! 1. Look again: another thread may have freed or grown meanwhile.
//! 2. Take a block of another stream, or one still in use, and make the requesting stream wait for it on the device.
//! 3. Grow, within the limit and the device.
//! 4. Empty the cache: wait for pending work, merge everything idle, give whole idle pages back, and grow again.
//!
//! Only then, out of memory. All of it runs under the slow mutex, so that two threads never both conclude that memory is out.

use crate::core::{Core, lock};
use crate::growth::{Plan, Room};
use crate::pages::Pages;
use crate::stream::StreamInner;
use crate::table::State;
use crate::{AllocError, OomReport, Result, SourceError};
use std::sync::Arc;

const LOOK: &str = "looked through the stream's idle blocks";
const STEAL: &str = "looked for blocks of other streams and blocks in use until an event";
const GROW: &str = "asked the device for more, within the limit";
const RECLAIM: &str = "waited for pending work, emptied the cache and asked again";
const TOO_LARGE: &str = "none: the request is larger than the device or the limit";

impl Core {
    /// Finds a block of `size` bytes, for a request of `bytes`, by the ladder.
    pub(crate) fn climb(&self, bytes: usize, size: usize, stream: &Arc<StreamInner>) -> Result<u32> {
        let limit = lock(&self.shared).table.counters.limit.unwrap_or(usize::MAX);
        if size > self.info.capacity.min(limit) {
            return Err(self.out_of_memory(bytes, vec![TOO_LARGE]));
        }
        let mut pages = lock(&self.slow);
        if let Some(index) = self.take(&mut lock(&self.shared), size, stream.id) {
            return Ok(index);
        }
        if let Some(index) = self.steal(size, stream)? {
            return Ok(index);
        }
        let page = pages.page();
        if let Some(index) = self.grow(&mut pages, size, stream.id, page)? {
            return Ok(index);
        }
        lock(&self.shared).table.counters.num_alloc_retries += 1;
        // First give back as much as the request needs; if that is not enough, everything, and grow by the least.
        for (need, page) in [(size.saturating_add(page), page), (usize::MAX, pages.granularity())] {
            if let Some(index) = self.reclaim(&mut pages, need, Some(size), stream.id)? {
                return Ok(index);
            }
            if let Some(index) = self.grow(&mut pages, size, stream.id, page)? {
                return Ok(index);
            }
        }
        drop(pages);
        Err(self.out_of_memory(bytes, vec![LOOK, STEAL, GROW, RECLAIM]))
    }

    /// Step 3: extends the arena at its tail or in a hole by what is missing. `None` if the limit, the addresses or the device
    /// do not allow it.
    fn grow(&self, pages: &mut Pages, size: usize, owner: u32, page: usize) -> Result<Option<u32>> {
        let mut shared = lock(&self.shared);
        if let Some(index) = self.take(&mut shared, size, owner) {
            return Ok(Some(index));
        }
        let budget = shared.table.counters.limit.map_or(usize::MAX, |limit| limit.saturating_sub(pages.mapped));
        let room = Room { page, granularity: pages.granularity(), end: pages.end(), budget };
        let Some(plan) = Plan::best(&shared.table, size, owner, room) else { return Ok(None) };
        let grown = plan.hold(&mut shared.table, owner);
        drop(shared);
        let before = pages.mapped;
        let result = pages.map(&*self.source, grown.address, grown.bytes);
        let mut shared = lock(&self.shared);
        shared.note_pages(pages);
        match result {
            Ok(()) => Ok(Some(grown.join(&mut shared.table, size))),
            Err(error) => {
                grown.undo(&mut shared.table, pages.mapped > before);
                if error == SourceError::OutOfMemory { Ok(None) } else { Err(error.into()) }
            }
        }
    }

    /// Step 4: waits for everything that is not live, merges it, and gives up to about `need` bytes of whole pages back. If that
    /// brings a block for `size` bytes to light, takes it instead.
    pub(crate) fn reclaim(&self, pages: &mut Pages, need: usize, size: Option<usize>, owner: u32) -> Result<Option<u32>> {
        let (mut shared, mut clear) = self.settle(owner)?;
        let table = &mut shared.table;
        if let Some(size) = size {
            let fits = clear.iter().copied().filter(|index| table.get(*index).size >= size);
            if let Some(best) = fits.min_by_key(|index| (table.get(*index).size, table.get(*index).address)) {
                clear.iter().filter(|index| **index != best).for_each(|index| table.release(*index));
                table.trim(best, size);
                return Ok(Some(best));
            }
        }
        // Largest first, for the fewest calls.
        clear.sort_by_key(|index| std::cmp::Reverse(table.get(*index).size));
        let (mut runs, mut left) = (Vec::new(), need);
        for mut index in clear {
            let record = *table.get(index);
            let Some((at, bytes)) = pages.whole_pages(record.address, record.end(), left) else {
                table.release(index);
                continue;
            };
            left = left.saturating_sub(bytes);
            if at > record.address {
                let rest = table.split(index, (at - record.address) as usize);
                table.release(index);
                index = rest;
            }
            if table.get(index).size > bytes {
                let rest = table.split(index, bytes);
                table.release(rest);
            }
            table.set(index, State::Held);
            runs.push((index, at, bytes));
        }
        drop(shared);
        let mut failed = None;
        for (index, at, bytes) in runs {
            let before = pages.mapped;
            failed = failed.or(pages.unmap(&*self.source, at, bytes).err());
            let mut shared = lock(&self.shared);
            shared.note_pages(pages);
            match before - pages.mapped {
                0 => shared.table.release(index),
                gone if gone == bytes => shared.table.make_hole(index),
                // Some pages went and some did not: nobody may use the run again.
                _ => {}
            }
        }
        failed.map_or(Ok(None), |error| Err(error.into()))
    }

    /// The error with its report; counts it.
    fn out_of_memory(&self, requested: usize, steps: Vec<&'static str>) -> AllocError {
        let memory = self.source.memory_info();
        let (driver_free, driver_total) = memory.map_or((0, self.info.capacity), |m| (m.free, m.total));
        let mut shared = lock(&self.shared);
        shared.table.counters.num_ooms += 1;
        let stats = shared.stats();
        let mut categories: Vec<_> = crate::Category::ALL.map(|c| (c, stats.category(c).current)).to_vec();
        categories.retain(|(_, bytes)| *bytes > 0);
        categories.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        AllocError::OutOfMemory(Box::new(OomReport {
            device: self.info.name.clone(),
            requested,
            allocated: stats.allocated.current,
            reserved: stats.reserved.current,
            largest_free: stats.largest_free,
            free_pages: stats.free_pages,
            pending: stats.pending,
            pending_by_stream: Vec::new(),
            limit: stats.limit,
            driver_free,
            driver_total,
            categories,
            top_sites: Vec::new(),
            steps,
        }))
    }
}
