//! What an allocator counts, as a snapshot: every metric under PyTorch's name, and Kiln's own rows besides.
//!
//! `counters` counts, on the path of every allocation; a snapshot is made of it on request.

mod counters;
mod map;

pub(crate) use counters::{Counters, Pool};

use crate::core::Shared;
use crate::history::Event;
use crate::pages::Pages;
use crate::table::{Record, State};
use crate::{Category, Stat};

/// Bytes of one category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CategoryStats {
    /// Live now.
    pub current: usize,
    /// The most that was live at once since the last reset.
    pub peak: usize,
}

impl CategoryStats {
    fn of(stat: Stat) -> CategoryStats {
        CategoryStats { current: stat.current as usize, peak: stat.peak as usize }
    }
    #[inline]
    fn add(&mut self, bytes: usize) {
        self.current += bytes;
        // A branch that is rarely taken costs less than a store that is always made.
        if self.current > self.peak {
            self.peak = self.current;
        }
    }
}

/// One metric by pool. The small pool is the zone in which the policy puts small blocks; all other zones are the large one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Both pools together; its peak is that of the sum.
    pub all: Stat,
    /// Small blocks, and what was taken from the device for them.
    pub small_pool: Stat,
    /// All others, and what was taken from the device for them.
    pub large_pool: Stat,
}

/// A snapshot of an allocator's counters; sizes in bytes.
///
/// Metrics bear the names of `torch.cuda.memory_stats()`, and mean the same but for `allocated_bytes`. Their totals, and the
/// counters that say so, begin anew when accumulated statistics are reset; peaks when peaks are.
#[derive(Clone, Debug, Default)]
pub struct MemoryStats {
    /// Live blocks.
    pub allocation: PoolStats,
    /// In live blocks: requests rounded up to 512 bytes, whatever block served them, so it is the same on every device. PyTorch's
    /// counts the blocks, whole; so does `active_bytes`, here and there.
    pub allocated_bytes: PoolStats,
    /// In live blocks, as asked for.
    pub requested_bytes: PoolStats,
    /// Blocks that are live, or freed while another stream may still be using them.
    pub active: PoolStats,
    /// In those blocks, whole: with a rest that was too small to be split off.
    pub active_bytes: PoolStats,
    /// Idle blocks. Each is a piece of an arena, so each counts as split.
    pub inactive_split: PoolStats,
    /// In idle blocks.
    pub inactive_split_bytes: PoolStats,
    /// Pieces of memory taken from the device: pages in a zone of pages, else segments; whole allocations where the device has no
    /// virtual memory.
    pub segment: PoolStats,
    /// Taken from the device.
    pub reserved_bytes: PoolStats,
    /// Blocks handed out of at least [`MemoryStats::oversize_limit`] bytes.
    pub oversize_allocations: Stat,
    /// Pieces taken from the device of at least [`MemoryStats::oversize_limit`] bytes.
    pub oversize_segments: Stat,
    /// From this size on a block counts as oversize; where it is `None`, as by default, none does.
    pub oversize_limit: Option<usize>,
    /// Times all streams were waited for, since the last reset.
    pub num_sync_all_streams: u64,
    /// Pieces taken from the device since the last reset.
    pub num_device_alloc: u64,
    /// Pieces given back to the device since the last reset.
    pub num_device_free: u64,
    /// Times the cache was emptied to serve a request, since the last reset: PyTorch's `num_alloc_retries`.
    pub retries: u64,
    /// Requests refused since the last reset: PyTorch's `num_ooms`.
    pub ooms: u64,

    /// `allocated_bytes.all`, current and peak.
    pub allocated: CategoryStats,
    /// `requested_bytes.all`, current and peak.
    pub requested: CategoryStats,
    /// `reserved_bytes.all`, current and peak.
    pub reserved: CategoryStats,
    /// Live bytes, rounded as in `allocated_bytes`, by category, in the order of [`Category::ALL`].
    pub categories: [CategoryStats; 7],
    /// Allocations since the device was made.
    pub allocations: u64,
    /// Live blocks.
    pub live_blocks: usize,
    /// Bytes that are free but wait for the device to be done with them.
    pub pending: usize,
    /// The largest idle block.
    pub largest_free: usize,
    /// Bytes of the idle pages that are idle as a whole: what could be moved, or given back at once.
    pub free_pages: usize,
    /// Times free pages were mapped at a new address to serve a request.
    pub stitches: u64,
    /// Bytes of the pages mapped so.
    pub stitched_bytes: u64,
    /// Blocks that one stream took over from another, or from work in progress.
    pub steals: u64,
    /// Driver calls that took, gave or moved memory.
    pub driver_calls: u64,
    /// The limit on reserved bytes.
    pub limit: Option<usize>,
}

impl MemoryStats {
    /// The row of one category.
    pub fn category(&self, category: Category) -> CategoryStats {
        self.categories[category as usize]
    }
    /// Live bytes outside [`Category::Workspace`].
    pub fn allocated_outside_workspace(&self) -> usize {
        self.allocated.current - self.category(Category::Workspace).current
    }
    /// 1 − largest idle block ÷ idle bytes: 0 while all idle memory is one block, or there is none; near 1 when it is dust.
    pub fn fragmentation(&self) -> f64 {
        match self.inactive_split_bytes.all.current {
            0 => 0.0,
            idle => 1.0 - self.largest_free as f64 / idle as f64,
        }
    }
    /// Reserved ÷ live bytes now: 1 when nothing is wasted, or nothing is reserved; infinite when nothing is live.
    pub fn reserved_to_live(&self) -> f64 {
        ratio(self.reserved.current, self.allocated.current)
    }
    /// Peak reserved ÷ peak requested bytes: what a run took from the device over what it needed. The extremes as above.
    pub fn peak_ratio(&self) -> f64 {
        ratio(self.reserved.peak, self.requested.peak)
    }
}

fn ratio(whole: usize, part: usize) -> f64 {
    if whole == part { 1.0 } else { whole as f64 / part as f64 }
}

impl Shared {
    /// The counters with what only the block table and the pages know.
    pub(crate) fn stats(&mut self, pages: &Pages) -> MemoryStats {
        let pending = self.pending.iter().map(|entry| self.table.get(entry.index).size).sum();
        let idle = self.pieces().filter(|piece| piece.state == State::Idle);
        let whole = |piece: &Record| pages.whole_pages(piece.address, piece.end(), usize::MAX, usize::MAX);
        let free_pages = idle.filter_map(whole).map(|(_, bytes)| bytes).sum();
        MemoryStats { largest_free: self.table.largest_idle(), pending, free_pages, ..self.table.counters.snapshot() }
    }
    /// Counts what the driver gave or took, and what moved, since the last time; the history keeps it.
    pub(crate) fn note_pages(&mut self, pages: &mut Pages) {
        for (what, address, bytes) in pages.moves.drain(..) {
            if let Some(history) = &mut self.table.history {
                let now = history.now();
                history.push(Event::new(now, what, address, bytes, pages.asker));
            }
        }
        let counters = &mut self.table.counters;
        counters.driver_calls = pages.calls;
        for (pool, change) in [Pool::Small, Pool::Large].into_iter().zip(std::mem::take(&mut pages.changes)) {
            // Moves first: they leave the sum as it is.
            let other = if pool == Pool::Small { Pool::Large } else { Pool::Small };
            counters.segments_moved(other, pool, change.moved_here.0, change.moved_here.1);
            counters.segments_changed(pool, change.taken.0, change.taken.1, change.given.0, change.given.1);
        }
    }
}
