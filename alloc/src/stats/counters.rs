//! Counting, on the path of every allocation and free: adds and comparisons on one struct, with no map, no division and no lock
//! of its own.
//!
//! A metric is one cache line: what there is now and what was ever added, by pool, and three peaks. What was freed is their
//! difference, so a free makes one store a metric. Everything else is worked out when a snapshot is asked for.

use super::{CategoryStats, MemoryStats, PoolStats};
use crate::size::ALIGN;
use crate::{Category, Stat};

/// Which of PyTorch's two pools a block and its pages are counted in: small is the zone of small blocks, large are all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Small = 0,
    Large = 1,
}

/// Index of both pools together, in `Tally::peak`.
const ALL: usize = 2;

/// One metric, by pool.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Tally {
    current: [u64; 2],
    /// All that was ever added.
    added: [u64; 2],
    peak: [u64; 3],
}

impl Tally {
    #[inline(always)]
    fn rise(&mut self, pool: Pool, amount: u64) -> u64 {
        let pool = pool as usize;
        self.current[pool] += amount;
        self.added[pool] += amount;
        // Branches that are rarely taken cost less than stores that are always made.
        if self.current[pool] > self.peak[pool] {
            self.peak[pool] = self.current[pool];
        }
        let all = self.current[0] + self.current[1];
        if all > self.peak[ALL] {
            self.peak[ALL] = all;
        }
        all
    }
    #[inline(always)]
    fn fall(&mut self, pool: Pool, amount: u64) {
        self.current[pool as usize] -= amount;
    }
    fn reset_peaks(&mut self) {
        self.peak = [self.current[0], self.current[1], self.current[0] + self.current[1]];
    }
    /// The columns, with totals counted from `base`.
    fn stats(&self, base: &Tally) -> PoolStats {
        let freed = |tally: &Tally, pool: usize| tally.added[pool] - tally.current[pool];
        let [small_pool, large_pool] = [0, 1].map(|pool| Stat {
            current: self.current[pool],
            peak: self.peak[pool],
            allocated: self.added[pool] - base.added[pool],
            freed: freed(self, pool) - freed(base, pool),
        });
        let all = Stat {
            current: small_pool.current + large_pool.current,
            peak: self.peak[ALL],
            allocated: small_pool.allocated + large_pool.allocated,
            freed: small_pool.freed + large_pool.freed,
        };
        PoolStats { all, small_pool, large_pool }
    }
}

#[derive(Clone, Copy, Default)]
struct Tallies {
    allocation: Tally,
    allocated_bytes: Tally,
    requested_bytes: Tally,
    active: Tally,
    active_bytes: Tally,
    inactive_split: Tally,
    inactive_split_bytes: Tally,
    segment: Tally,
    reserved_bytes: Tally,
}

/// What an allocator counts; kept under its short lock. A block that is handed out is `allocated`. When its user drops it, it is
/// `freed`; when no stream uses it any more, `settled`: mostly both at once.
#[derive(Default)]
pub(crate) struct Counters {
    now: Tallies,
    /// By `Category as usize`. There is one row more than categories, so that a mask takes the place of a bounds check.
    categories: [CategoryStats; 8],
    /// Blocks handed out, and pieces taken from the device, of at least this many bytes count as oversize.
    pub(crate) oversize_limit: Option<usize>,
    pub(crate) num_alloc_retries: u64,
    pub(crate) num_ooms: u64,
    pub(crate) num_sync_all_streams: u64,
    pub(crate) num_device_alloc: u64,
    pub(crate) num_device_free: u64,
    pub(crate) stitches: u64,
    pub(crate) stitched_bytes: u64,
    pub(crate) steals: u64,
    /// The peak of requested bytes that growth is measured against; lowered only when memory is given back.
    pub(crate) high_water: usize,
    pub(crate) driver_calls: u64,
    /// The limit on reserved bytes.
    pub(crate) limit: Option<usize>,
    oversize_allocations: Stat,
    oversize_segments: Stat,
    /// The tallies when totals were last reset.
    base: Tallies,
}

/// A request as `allocated_bytes` and the categories count it.
#[inline(always)]
fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

impl Counters {
    #[inline(always)]
    fn row(&mut self, category: u8) -> &mut CategoryStats {
        &mut self.categories[usize::from(category & 7)]
    }

    /// Counts a block of `size` bytes handed out for a request of `bytes`.
    #[inline(always)]
    pub(crate) fn allocated(&mut self, bytes: usize, size: usize, pool: Pool, category: Category) {
        self.now.allocation.rise(pool, 1);
        self.now.allocated_bytes.rise(pool, rounded(bytes) as u64);
        let requested = self.now.requested_bytes.rise(pool, bytes as u64) as usize;
        if requested > self.high_water {
            self.high_water = requested;
        }
        self.now.active.rise(pool, 1);
        self.now.active_bytes.rise(pool, size as u64);
        self.row(category as u8).add(rounded(bytes));
        if self.oversize_limit.is_some_and(|limit| size >= limit) {
            self.oversize_allocations.increase(1);
        }
    }
    /// Counts a block freed and handed out again for a request like the last: nothing but what was ever added changes.
    #[inline(always)]
    pub(crate) fn repeated(&mut self, bytes: usize, size: usize, pool: Pool) {
        let pool = pool as usize;
        self.now.allocation.added[pool] += 1;
        self.now.allocated_bytes.added[pool] += rounded(bytes) as u64;
        self.now.requested_bytes.added[pool] += bytes as u64;
        self.now.active.added[pool] += 1;
        self.now.active_bytes.added[pool] += size as u64;
    }
    /// Counts a block that its user dropped; as it was `allocated`.
    #[inline]
    pub(crate) fn freed(&mut self, bytes: usize, size: usize, pool: Pool, category: u8) {
        self.now.allocation.fall(pool, 1);
        self.now.allocated_bytes.fall(pool, rounded(bytes) as u64);
        self.now.requested_bytes.fall(pool, bytes as u64);
        self.row(category).current -= rounded(bytes);
        if self.oversize_limit.is_some_and(|limit| size >= limit) {
            self.oversize_allocations.decrease(1);
        }
    }
    /// Counts a freed block of `size` bytes that no stream uses any more, or that another request takes over.
    #[inline]
    pub(crate) fn settled(&mut self, size: usize, pool: Pool) {
        self.now.active.fall(pool, 1);
        self.now.active_bytes.fall(pool, size as u64);
    }
    /// `freed` and `settled` in one.
    #[inline]
    pub(crate) fn freed_and_settled(&mut self, bytes: usize, size: usize, pool: Pool, category: u8) {
        self.freed(bytes, size, pool, category);
        self.settled(size, pool);
    }
    /// Counts a freed block, not settled yet, that became two; each is settled for itself.
    pub(crate) fn pending_split(&mut self, pool: Pool) {
        self.now.active.rise(pool, 1);
    }
    /// Counts an idle block put into a bin.
    #[inline]
    pub(crate) fn idle_pushed(&mut self, size: usize, pool: Pool) {
        self.now.inactive_split.rise(pool, 1);
        self.now.inactive_split_bytes.rise(pool, size as u64);
    }
    /// Counts an idle block taken out of its bin, as it was pushed.
    #[inline]
    pub(crate) fn idle_popped(&mut self, size: usize, pool: Pool) {
        self.now.inactive_split.fall(pool, 1);
        self.now.inactive_split_bytes.fall(pool, size as u64);
    }
    /// Counts an idle block that became larger or smaller.
    #[inline]
    pub(crate) fn idle_resized(&mut self, from: usize, to: usize, pool: Pool) {
        if to > from {
            self.now.inactive_split_bytes.rise(pool, (to - from) as u64);
        } else {
            self.now.inactive_split_bytes.fall(pool, (from - to) as u64);
        }
    }
    /// Counts pieces taken from the device, then pieces given back; of one size each.
    pub(crate) fn segments_changed(&mut self, pool: Pool, taken_bytes: usize, taken: u64, given_bytes: usize, given: u64) {
        self.now.segment.rise(pool, taken);
        self.now.reserved_bytes.rise(pool, taken_bytes as u64);
        self.now.segment.fall(pool, given);
        self.now.reserved_bytes.fall(pool, given_bytes as u64);
        self.num_device_alloc += taken;
        self.num_device_free += given;
        if let Some(limit) = self.oversize_limit {
            let oversize = |bytes: usize, count: u64| if count > 0 && bytes as u64 / count >= limit as u64 { count } else { 0 };
            self.oversize_segments.increase(oversize(taken_bytes, taken));
            self.oversize_segments.decrease(oversize(given_bytes, given));
        }
    }
    /// Counts pieces that went over from one pool to the other.
    pub(crate) fn segments_moved(&mut self, from: Pool, to: Pool, bytes: usize, count: u64) {
        self.now.segment.fall(from, count);
        self.now.reserved_bytes.fall(from, bytes as u64);
        self.now.segment.rise(to, count);
        self.now.reserved_bytes.rise(to, bytes as u64);
    }
    /// Bytes asked for that are live now.
    #[inline]
    pub(crate) fn requested(&self) -> usize {
        self.now.requested_bytes.current.iter().sum::<u64>() as usize
    }
    /// Moves a live block to another row.
    pub(crate) fn recategorize(&mut self, bytes: usize, from: u8, to: Category) {
        self.row(from).current -= rounded(bytes);
        self.row(to as u8).add(rounded(bytes));
    }

    /// Sets every peak to the current value.
    pub(crate) fn reset_peaks(&mut self) {
        let Tallies { allocation, allocated_bytes, requested_bytes, active, active_bytes, .. } = &mut self.now;
        [allocation, allocated_bytes, requested_bytes, active, active_bytes].into_iter().for_each(Tally::reset_peaks);
        let Tallies { inactive_split, inactive_split_bytes, segment, reserved_bytes, .. } = &mut self.now;
        [inactive_split, inactive_split_bytes, segment, reserved_bytes].into_iter().for_each(Tally::reset_peaks);
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
        self.categories.iter_mut().for_each(|row| row.peak = row.current);
    }
    /// Starts PyTorch's totals and counters of events anew; current values, peaks and Kiln's own counters stay.
    pub(crate) fn reset_accumulated(&mut self) {
        self.base = self.now;
        for stat in [&mut self.oversize_allocations, &mut self.oversize_segments] {
            (stat.allocated, stat.freed) = (0, 0);
        }
        (self.num_alloc_retries, self.num_ooms, self.num_sync_all_streams) = (0, 0, 0);
        (self.num_device_alloc, self.num_device_free) = (0, 0);
    }

    /// The counters as the public sees them. What only the block table knows (pending bytes, the largest idle block, whole idle
    /// pages) is zero.
    pub(crate) fn snapshot(&self) -> MemoryStats {
        let (now, base) = (&self.now, &self.base);
        let allocation = now.allocation.stats(&base.allocation);
        let allocated_bytes = now.allocated_bytes.stats(&base.allocated_bytes);
        let requested_bytes = now.requested_bytes.stats(&base.requested_bytes);
        let reserved_bytes = now.reserved_bytes.stats(&base.reserved_bytes);
        MemoryStats {
            allocation,
            allocated_bytes,
            requested_bytes,
            active: now.active.stats(&base.active),
            active_bytes: now.active_bytes.stats(&base.active_bytes),
            inactive_split: now.inactive_split.stats(&base.inactive_split),
            inactive_split_bytes: now.inactive_split_bytes.stats(&base.inactive_split_bytes),
            segment: now.segment.stats(&base.segment),
            reserved_bytes,
            oversize_allocations: self.oversize_allocations,
            oversize_segments: self.oversize_segments,
            oversize_limit: self.oversize_limit,
            num_sync_all_streams: self.num_sync_all_streams,
            num_device_alloc: self.num_device_alloc,
            num_device_free: self.num_device_free,
            retries: self.num_alloc_retries,
            ooms: self.num_ooms,
            allocated: CategoryStats::of(allocated_bytes.all),
            requested: CategoryStats::of(requested_bytes.all),
            reserved: CategoryStats::of(reserved_bytes.all),
            categories: Category::ALL.map(|category| self.categories[category as usize]),
            allocations: now.allocation.added.iter().sum(),
            live_blocks: allocation.all.current as usize,
            pending: 0,
            largest_free: 0,
            free_pages: 0,
            stitches: self.stitches,
            stitched_bytes: self.stitched_bytes,
            steals: self.steals,
            driver_calls: self.driver_calls,
            limit: self.limit,
        }
    }
}

#[cfg(test)]
mod tests;
