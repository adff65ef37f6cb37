//! Counters of an allocator, all in bytes or calls.

use crate::Category;
use crate::core::Shared;
use crate::pages::Pages;
use crate::size::ALIGN;

/// Bytes of one category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CategoryStats {
    /// Live now.
    pub current: usize,
    /// The most that was live at once since the last reset.
    pub peak: usize,
}

impl CategoryStats {
    fn add(&mut self, bytes: usize) {
        self.set(self.current + bytes);
    }
    fn set(&mut self, bytes: usize) {
        self.current = bytes;
        self.peak = self.peak.max(bytes);
    }
}

/// A snapshot of an allocator's counters. Sizes are in bytes; "allocated" counts requests rounded up to 512 bytes,
/// whatever block served them, so it is the same on every device.
#[derive(Clone, Debug, Default)]
pub struct MemoryStats {
    /// In live blocks.
    pub allocated: CategoryStats,
    /// In live blocks, as asked for.
    pub requested: CategoryStats,
    /// Taken from the device.
    pub reserved: CategoryStats,
    /// By category, in the order of [`Category::ALL`].
    pub categories: [CategoryStats; 7],
    /// Allocations since the device was made.
    pub allocations: u64,
    /// Live blocks.
    pub live_blocks: usize,
    /// Driver calls that took or gave memory.
    pub driver_calls: u64,
    /// Times the cache was emptied to serve a request.
    pub retries: u64,
    /// Requests refused.
    pub ooms: u64,
    /// Times free pages were moved to serve a request.
    pub stitches: u64,
    /// Blocks taken over from another stream.
    pub steals: u64,
    /// The largest idle block.
    pub largest_free: usize,
    /// Bytes of freed blocks that another stream may still be using.
    pub pending: usize,
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

    /// Counts a block handed out for a request of `bytes`.
    pub(crate) fn add(&mut self, bytes: usize, category: Category) {
        let rounded = bytes.next_multiple_of(ALIGN);
        self.allocated.add(rounded);
        self.requested.add(bytes);
        self.categories[category as usize].add(rounded);
        self.allocations += 1;
        self.live_blocks += 1;
    }
    /// Counts a block given back.
    pub(crate) fn remove(&mut self, bytes: usize, category: u8) {
        let rounded = bytes.next_multiple_of(ALIGN);
        self.allocated.current -= rounded;
        self.requested.current -= bytes;
        self.categories[category as usize].current -= rounded;
        self.live_blocks -= 1;
    }
    /// Moves a block to another row.
    pub(crate) fn recategorize(&mut self, bytes: usize, from: u8, to: Category) {
        let rounded = bytes.next_multiple_of(ALIGN);
        self.categories[from as usize].current -= rounded;
        self.categories[to as usize].add(rounded);
    }
    /// Sets every peak to the current value.
    pub(crate) fn reset_peaks(&mut self) {
        for row in [&mut self.allocated, &mut self.requested, &mut self.reserved].into_iter().chain(&mut self.categories) {
            row.peak = row.current;
        }
    }
}

impl Shared {
    /// The counters with what only the block table knows.
    pub(crate) fn stats(&self) -> MemoryStats {
        let pending = self.pending.iter().map(|entry| self.table.get(entry.index).size).sum();
        MemoryStats { largest_free: self.table.largest_idle(), pending, ..self.stats.clone() }
    }
    /// Counts what the driver gave or took.
    pub(crate) fn note_pages(&mut self, pages: &Pages) {
        self.stats.reserved.set(pages.mapped);
        self.stats.driver_calls = pages.calls;
    }
}
