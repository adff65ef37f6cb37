//! The counters against a model that recounts everything from the list of live blocks after every step.

use super::*;
use proptest::prelude::*;

fn pool_of(bytes: usize) -> Pool {
    if bytes <= 1 << 20 { Pool::Small } else { Pool::Large }
}

#[derive(Clone, Copy)]
struct Live {
    bytes: usize,
    size: usize,
    category: Category,
}

/// What a naive observer would keep.
#[derive(Default)]
struct Model {
    live: Vec<Live>,
    pending: Vec<(usize, Pool)>,
    idle: Vec<(usize, Pool)>,
    taken: Vec<(usize, Pool)>,
    /// In the order of `metrics`.
    stats: [PoolStats; 9],
    categories: [CategoryStats; 7],
}

fn metrics(stats: &MemoryStats) -> [PoolStats; 9] {
    let s = stats.clone();
    let (split, split_bytes) = (s.inactive_split, s.inactive_split_bytes);
    [
        s.allocation,
        s.allocated_bytes,
        s.requested_bytes,
        s.active,
        s.active_bytes,
        split,
        split_bytes,
        s.segment,
        s.reserved_bytes,
    ]
}

impl Model {
    /// Every metric of one pool, recounted.
    fn recount(&self, pool: Pool) -> [u64; 9] {
        let mut now = [0; 9];
        let mut add = |at: usize, amount: usize| now[at] += amount as u64;
        for block in self.live.iter().filter(|block| pool_of(block.bytes) == pool) {
            let amounts = [1, block.bytes.div_ceil(512) * 512, block.bytes, 1, block.size];
            amounts.into_iter().enumerate().for_each(|(at, amount)| add(at, amount));
        }
        for (list, at) in [(&self.pending, 3), (&self.idle, 5), (&self.taken, 7)] {
            for (size, _) in list.iter().filter(|(_, p)| *p == pool) {
                add(at, 1);
                add(at + 1, *size);
            }
        }
        now
    }
    /// Looks at what a step changed.
    fn observe(&mut self) {
        let (small, large) = (self.recount(Pool::Small), self.recount(Pool::Large));
        for (at, stats) in self.stats.iter_mut().enumerate() {
            for (stat, now) in [(&mut stats.small_pool, small[at]), (&mut stats.large_pool, large[at])] {
                stat.increase(now.saturating_sub(stat.current));
                stat.decrease(stat.current.saturating_sub(now));
            }
            let all = small[at] + large[at];
            let (allocated, freed) = (|s: &Stat| s.allocated, |s: &Stat| s.freed);
            let sum = |of: fn(&Stat) -> u64, stats: &PoolStats| of(&stats.small_pool) + of(&stats.large_pool);
            stats.all =
                Stat { current: all, peak: stats.all.peak.max(all), allocated: sum(allocated, stats), freed: sum(freed, stats) };
        }
        for category in Category::ALL {
            let row = &mut self.categories[category as usize];
            let live = self.live.iter().filter(|block| block.category == category);
            row.current = live.map(|block| block.bytes.div_ceil(512) * 512).sum();
            row.peak = row.peak.max(row.current);
        }
    }
    fn reset_peaks(&mut self) {
        for stats in &mut self.stats {
            [&mut stats.all, &mut stats.small_pool, &mut stats.large_pool].into_iter().for_each(Stat::reset_peak);
        }
        self.categories.iter_mut().for_each(|row| row.peak = row.current);
    }
    fn reset_accumulated(&mut self) {
        for stats in &mut self.stats {
            for stat in [&mut stats.all, &mut stats.small_pool, &mut stats.large_pool] {
                (stat.allocated, stat.freed) = (0, 0);
            }
        }
    }

    /// One random step, on both.
    fn step(&mut self, counters: &mut Counters, what: u8, n: usize, m: usize) {
        let category = Category::ALL[m % 7];
        let pool = if n.is_multiple_of(2) { Pool::Small } else { Pool::Large };
        let pick = |list: usize| n % list.max(1);
        match what {
            0..=3 => {
                let bytes = if m.is_multiple_of(2) { n } else { n * 40 };
                let size = bytes.div_ceil(512) * 512 + m % 3 * 512;
                counters.allocated(bytes, size, pool_of(bytes), category);
                self.live.push(Live { bytes, size, category });
            }
            4..=6 if !self.live.is_empty() => {
                let Live { bytes, size, category } = self.live.swap_remove(pick(self.live.len()));
                if what == 4 {
                    counters.freed(bytes, size, pool_of(bytes), category as u8);
                    self.pending.push((size, pool_of(bytes)));
                } else {
                    counters.freed_and_settled(bytes, size, pool_of(bytes), category as u8);
                }
            }
            7 if !self.pending.is_empty() => {
                let (size, pool) = self.pending.swap_remove(pick(self.pending.len()));
                counters.settled(size, pool);
            }
            8 if !self.pending.is_empty() => {
                let (size, pool) = self.pending.swap_remove(pick(self.pending.len()));
                counters.pending_split(pool);
                self.pending.extend([(size / 2, pool), (size - size / 2, pool)]);
            }
            9 => {
                counters.idle_pushed(n, pool);
                self.idle.push((n, pool));
            }
            10 if !self.idle.is_empty() => {
                let (size, pool) = self.idle.swap_remove(pick(self.idle.len()));
                counters.idle_popped(size, pool);
            }
            11 => {
                counters.segments_changed(pool, n * 3, 3, 0, 0);
                self.taken.extend([(n, pool); 3]);
            }
            12 if !self.taken.is_empty() => {
                let (bytes, pool) = self.taken.swap_remove(pick(self.taken.len()));
                counters.segments_changed(pool, 0, 0, bytes, 1);
            }
            13 if !self.live.is_empty() => {
                let at = pick(self.live.len());
                let from = std::mem::replace(&mut self.live[at].category, category);
                counters.recategorize(self.live[at].bytes, from as u8, category);
            }
            14 => (counters.reset_peaks(), self.reset_peaks()).1,
            15 => (counters.reset_accumulated(), self.reset_accumulated()).1,
            _ => {}
        }
        self.observe();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counters_are_what_a_recount_finds(steps in prop::collection::vec((0..16u8, 0..1usize << 20, any::<u16>()), 1..150)) {
        let (mut counters, mut model) = (Counters::default(), Model::default());
        for (what, n, m) in steps {
            model.step(&mut counters, what, n, usize::from(m));
            let stats = counters.snapshot();
            prop_assert_eq!(metrics(&stats), model.stats);
            prop_assert_eq!(stats.categories, model.categories);
            prop_assert_eq!(stats.live_blocks, model.live.len());
            let (allocated, reserved) = (stats.allocated_bytes.all, stats.reserved_bytes.all);
            prop_assert_eq!((stats.allocated.current as u64, stats.allocated.peak as u64), (allocated.current, allocated.peak));
            prop_assert_eq!((stats.reserved.current as u64, stats.reserved.peak as u64), (reserved.current, reserved.peak));
        }
    }
}

#[test]
fn accumulated_statistics_begin_anew_and_current_values_stay() {
    let mut counters = Counters { num_ooms: 2, num_alloc_retries: 3, steals: 4, ..Counters::default() };
    counters.allocated(1000, 1024, Pool::Small, Category::Inputs);
    counters.segments_changed(Pool::Small, 4 << 20, 2, 2 << 20, 1);
    counters.reset_accumulated();
    counters.freed_and_settled(1000, 1024, Pool::Small, Category::Inputs as u8);
    let stats = counters.snapshot();
    assert_eq!(stats.allocated_bytes.all, Stat { current: 0, peak: 1024, allocated: 0, freed: 1024 });
    assert_eq!(stats.reserved_bytes.small_pool, Stat { current: 2 << 20, peak: 4 << 20, allocated: 0, freed: 0 });
    assert_eq!((stats.ooms, stats.retries, stats.num_device_alloc, stats.num_device_free), (0, 0, 0, 0));
    assert_eq!((stats.steals, stats.allocations), (4, 1));
}

#[test]
fn oversize_things_are_counted_from_the_limit_on() {
    let mut counters = Counters { oversize_limit: Some(4096), ..Counters::default() };
    for size in [3584, 4096, 8192] {
        counters.allocated(size, size, Pool::Small, Category::Inputs);
    }
    counters.freed_and_settled(8192, 8192, Pool::Small, Category::Inputs as u8);
    counters.segments_changed(Pool::Small, 3 * 2048, 3, 0, 0);
    counters.segments_changed(Pool::Small, 2 * 4096, 2, 3 * 2048, 3);
    counters.segments_changed(Pool::Small, 0, 0, 4096, 1);
    let stats = counters.snapshot();
    assert_eq!(stats.oversize_allocations, Stat { current: 1, peak: 2, allocated: 2, freed: 1 });
    assert_eq!(stats.oversize_segments, Stat { current: 1, peak: 2, allocated: 2, freed: 1 });
}
