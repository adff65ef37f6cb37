//! Counters of a pinned pool: what it holds, what is in use, and how often it went to the system.

use crate::Stat;
use std::collections::BTreeMap;

/// A snapshot of a pinned pool's counters, named as PyTorch names them. Bytes are those of whole blocks, after rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemoryStats {
    /// Blocks held from the system, in use or idle.
    pub allocations: Stat,
    /// Their bytes.
    pub allocated_bytes: Stat,
    /// Blocks in use, or waiting for a copy to end.
    pub active_requests: Stat,
    /// Their bytes.
    pub active_bytes: Stat,
    /// Times memory was page-locked.
    pub num_host_alloc: u64,
    /// Times it was given back.
    pub num_host_free: u64,
}

impl HostMemoryStats {
    /// As a flat map: `allocations.current`, `active_bytes.peak`, `num_host_alloc`.
    pub fn to_map(&self) -> BTreeMap<String, u64> {
        let stats = [
            ("allocations", self.allocations),
            ("allocated_bytes", self.allocated_bytes),
            ("active_requests", self.active_requests),
            ("active_bytes", self.active_bytes),
        ];
        let mut map = BTreeMap::new();
        for (name, stat) in stats {
            map.insert(format!("{name}.current"), stat.current);
            map.insert(format!("{name}.peak"), stat.peak);
            map.insert(format!("{name}.allocated"), stat.allocated);
            map.insert(format!("{name}.freed"), stat.freed);
        }
        map.insert("num_host_alloc".into(), self.num_host_alloc);
        map.insert("num_host_free".into(), self.num_host_free);
        map
    }

    /// A block came from the system.
    pub(crate) fn took(&mut self, size: usize) {
        self.allocations.increase(1);
        self.allocated_bytes.increase(size as u64);
        self.num_host_alloc += 1;
    }
    /// A block goes back to the system.
    pub(crate) fn gave_back(&mut self, size: usize) {
        self.allocations.decrease(1);
        self.allocated_bytes.decrease(size as u64);
        self.num_host_free += 1;
    }
    /// A block was handed out.
    pub(crate) fn handed_out(&mut self, size: usize) {
        self.active_requests.increase(1);
        self.active_bytes.increase(size as u64);
    }
    /// A block is idle again.
    pub(crate) fn came_back(&mut self, size: usize) {
        self.active_requests.decrease(1);
        self.active_bytes.decrease(size as u64);
    }
    /// Sets every peak to the current value.
    pub(crate) fn reset_peaks(&mut self) {
        for stat in [&mut self.allocations, &mut self.allocated_bytes, &mut self.active_requests, &mut self.active_bytes] {
            stat.reset_peak();
        }
    }
}
