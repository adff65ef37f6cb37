//! The counters as one flat map, with the keys of `torch.cuda.memory_stats()`, and Kiln's own under names that it does not have.

use crate::{Category, MemoryStats, PoolStats, Stat};
use std::collections::BTreeMap;

impl MemoryStats {
    /// Every counter by name, as in `allocated_bytes.large_pool.peak` or `num_ooms`: the keys of `torch.cuda.memory_stats()`
    /// with their meaning there, but for `allocated_bytes`: PyTorch counts the blocks that serve live requests, here the
    /// requests rounded up to 512 bytes are counted, and `active_bytes` counts blocks, as there. Besides them
    /// `category_bytes.<category>.{current,peak}`, `pending_bytes`, `largest_free_bytes`, `free_page_bytes`, `num_stitches`,
    /// `stitched_bytes`, `num_steals`, `num_driver_calls`, and `limit_bytes` if there is one. Where no limit is set,
    /// `max_split_size` is `u64::MAX`.
    pub fn to_map(&self) -> BTreeMap<String, u64> {
        let mut map = BTreeMap::new();
        for (name, metric) in self.metrics() {
            for (pool, stat) in [("all", metric.all), ("small_pool", metric.small_pool), ("large_pool", metric.large_pool)] {
                put(&mut map, &format!("{name}.{pool}"), stat);
            }
        }
        put(&mut map, "oversize_allocations", self.oversize_allocations);
        put(&mut map, "oversize_segments", self.oversize_segments);
        for category in Category::ALL {
            let (key, row) = (category.name().replace(' ', "_"), self.category(category));
            map.insert(format!("category_bytes.{key}.current"), row.current as u64);
            map.insert(format!("category_bytes.{key}.peak"), row.peak as u64);
        }
        let single = [
            ("num_alloc_retries", self.retries),
            ("num_ooms", self.ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("max_split_size", self.oversize_limit.map_or(u64::MAX, |limit| limit as u64)),
            ("pending_bytes", self.pending as u64),
            ("largest_free_bytes", self.largest_free as u64),
            ("free_page_bytes", self.free_pages as u64),
            ("num_stitches", self.stitches),
            ("stitched_bytes", self.stitched_bytes),
            ("num_steals", self.steals),
            ("num_driver_calls", self.driver_calls),
        ];
        map.extend(single.map(|(key, value)| (key.to_string(), value)));
        map.extend(self.limit.map(|limit| ("limit_bytes".to_string(), limit as u64)));
        map
    }

    fn metrics(&self) -> [(&'static str, &PoolStats); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }
}

fn put(map: &mut BTreeMap<String, u64>, name: &str, stat: Stat) {
    let columns = [("current", stat.current), ("peak", stat.peak), ("allocated", stat.allocated), ("freed", stat.freed)];
    map.extend(columns.map(|(column, value)| (format!("{name}.{column}"), value)));
}
