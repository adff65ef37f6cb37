//! What a device says about its memory, and what can be asked of it. Methods bear the names of `torch.cuda` where it has such.

use super::Device;
use crate::{Error, Result};
use kiln_alloc::snapshot::Snapshot;
use kiln_alloc::{Allocator, HistoryConfig, HostMemoryStats, LogEvent, MemoryInfo, MemoryStats, PinnedPool};
use std::collections::BTreeMap;

impl Device {
    /// The allocator all its memory comes from.
    pub fn allocator(&self) -> &Allocator {
        &self.0.allocator
    }
    /// Pooled page-locked host memory for copies to it.
    pub fn pinned_pool(&self) -> &PinnedPool {
        &self.0.pinned
    }

    /// Limits the bytes the device takes from the system from now on.
    pub fn with_memory_limit(self, bytes: usize) -> Device {
        self.set_memory_limit(Some(bytes));
        self
    }
    /// Limits the bytes the device takes from the system from now on; `None` lifts the limit. What is taken already stays. Memory comes in
    /// pages (2 MiB on a GPU): what the limit leaves below one is not used.
    pub fn set_memory_limit(&self, bytes: Option<usize>) {
        self.0.allocator.set_limit(bytes);
    }
    /// The same as a fraction of the device's memory: PyTorch's `set_per_process_memory_fraction`.
    ///
    /// # Errors
    /// Where `fraction` is not within 0 and 1.
    pub fn set_memory_limit_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::argument("set_memory_limit_fraction", format!("{fraction} is not within 0 and 1")));
        }
        Ok(self.0.allocator.set_limit_fraction(fraction)?)
    }

    /// Bytes in live tensors and scratch memory, rounded up to 512 each.
    pub fn memory_allocated(&self) -> usize {
        self.memory_stats().allocated.current
    }
    /// The most of them at once, since the start or [`Device::reset_peak_memory_stats`].
    pub fn max_memory_allocated(&self) -> usize {
        self.memory_stats().allocated.peak
    }
    /// Bytes taken from the system, in use or idle.
    pub fn memory_reserved(&self) -> usize {
        self.memory_stats().reserved.current
    }
    /// The most of them at once, since the start or [`Device::reset_peak_memory_stats`].
    pub fn max_memory_reserved(&self) -> usize {
        self.memory_stats().reserved.peak
    }
    /// Free and total bytes as the driver counts them: PyTorch's `mem_get_info`. What is neither free nor [`Device::memory_reserved`] lies
    /// outside Kiln: other processes, the driver's context, compiled kernels.
    ///
    /// # Errors
    /// What the driver says.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        Ok(self.0.source.memory_info()?)
    }
    /// Everything that is counted: bytes by category, and every metric of `torch.cuda.memory_stats()`.
    pub fn memory_stats(&self) -> MemoryStats {
        self.0.allocator.stats()
    }
    /// The same by name, under PyTorch's keys: `allocated_bytes.all.peak`, `num_ooms`; and Kiln's own, as `category_bytes.activations.peak`.
    ///
    /// ```
    /// # use kiln_tensor::Device;
    /// let stats = Device::cpu().memory_stats_map();
    /// assert!(stats.contains_key("reserved_bytes.all.current") && stats["num_ooms"] == 0);
    /// ```
    pub fn memory_stats_map(&self) -> BTreeMap<String, u64> {
        self.memory_stats().to_map()
    }
    /// Live bytes by the line of the program that asked for them, as `src/model.rs:42`, largest first. What backward makes belongs to the
    /// line of forward, optimizer state to the line that made the optimizer.
    pub fn memory_by_line(&self) -> Vec<(String, usize)> {
        self.0.allocator.live_by_line()
    }
    /// Sets every peak to the current value.
    pub fn reset_peak_memory_stats(&self) {
        self.0.allocator.reset_peak_stats();
    }
    /// Starts the running totals (`allocated` and `freed` of every metric) and the counters of events anew.
    pub fn reset_accumulated_memory_stats(&self) {
        self.0.allocator.reset_accumulated_stats();
    }
    /// The memory report as a table, each metric followed by its part in large and in small blocks.
    pub fn memory_summary(&self) -> String {
        self.0.allocator.memory_summary()
    }
    /// The memory report as a shorter table, one row a metric.
    pub fn memory_summary_abbreviated(&self) -> String {
        self.0.allocator.memory_summary_abbreviated()
    }
    /// What the pool of page-locked host memory counts.
    pub fn host_memory_stats(&self) -> HostMemoryStats {
        self.0.pinned.stats()
    }
    /// Sets every peak of the page-locked pool to the current value.
    pub fn reset_peak_host_memory_stats(&self) {
        self.0.pinned.reset_peak_stats();
    }

    /// Takes `bytes` bytes from the system ahead of need, as one idle piece for the ops of the compute stream: one call to the driver
    /// where a step that grows would make many.
    ///
    /// # Errors
    /// Out of memory.
    #[track_caller]
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        Ok(self.0.allocator.reserve(bytes)?)
    }
    /// Gives idle memory back to the system, and with it what is held only to be quicker: casts of weights that autocast made, and the
    /// scratch memory of libraries. Waits for the device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn empty_cache(&self) -> Result<()> {
        self.trim(0)
    }
    /// As [`Device::empty_cache`], but only until at most `to` bytes are held: the rest stays for the next step.
    ///
    /// # Errors
    /// What the driver says.
    pub fn trim(&self, to: usize) -> Result<()> {
        if self.memory_reserved() > to {
            self.0.casts.drop_all();
            self.0.backend.release_workspaces();
        }
        Ok(self.0.allocator.trim(to)?)
    }

    /// Starts recording every allocation and free.
    pub fn start_event_log(&self) {
        self.0.allocator.start_log();
    }
    /// Stops recording and returns the events.
    pub fn take_event_log(&self) -> Vec<LogEvent> {
        self.0.allocator.take_log()
    }
    /// Keeps the last allocations, frees and driver calls in a ring, some 30 ns each; as `torch.cuda.memory._record_memory_history`.
    pub fn record_memory_history(&self, config: HistoryConfig) {
        self.0.allocator.record_history(config);
    }
    /// Stops keeping them, and forgets them.
    pub fn stop_memory_history(&self) {
        self.0.allocator.stop_history();
    }
    /// Every segment and block now, with the line that asked, and the history if one is kept: in PyTorch's terms.
    pub fn memory_snapshot(&self) -> Snapshot {
        self.0.allocator.snapshot()
    }
    /// Writes a [`memory_snapshot`](Device::memory_snapshot) as a pickle that <https://pytorch.org/memory_viz> and
    /// `python -m torch.cuda._memory_viz` open.
    ///
    /// # Errors
    /// What the system says about the file.
    pub fn dump_memory_snapshot(&self, path: impl AsRef<std::path::Path>) -> Result<()> {
        let path = path.as_ref();
        let failed = |error| Error::Argument { op: "dump_memory_snapshot", message: format!("{}: {error}", path.display()) };
        self.0.allocator.snapshot_to(path).map_err(failed)
    }
}
