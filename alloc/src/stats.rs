//! Counters of an allocator, all in bytes or calls.

use crate::Category;

/// Bytes of one category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CategoryStats {
    /// Live now.
    pub current: usize,
    /// The most that was live at once since the last reset.
    pub peak: usize,
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
}
