//! A program's world: a late device, an allocator, streams, private pools and blocks, and the dice that decide what happens.

use super::audit::audit;
use super::oracle::{Refused, objection};
use crate::sources::{Schedule, SimulatedConfig, SimulatedSource};
use crate::{AllocError, Allocator, AllocatorConfig, Block, Category, Policy, PrivatePool, SourceError, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const MIB: usize = 1 << 20;

/// A generator of choices (splitmix64).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number below `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
    /// Mostly small sizes, some of many pages, a few of nothing at all.
    fn size(&mut self) -> usize {
        match self.below(16) {
            0 => self.below(4),
            1..=5 => 1 + self.below(5000),
            6..=9 => 1 + self.below(3 * MIB),
            10..=12 => (1 + self.below(6)) * MIB,
            _ => 1 + self.below(14 * MIB),
        }
    }
}

pub(super) struct World {
    pub(super) gpu: Arc<SimulatedSource>,
    pub(super) a: Allocator,
    pub(super) dice: Dice,
    streams: Vec<Stream>,
    pools: Vec<PrivatePool>,
    live: Vec<Block>,
    /// Ranges in use, by address.
    ranges: BTreeMap<u64, (u64, usize)>,
    capacity: usize,
    faults: Faults,
    pub(super) refused: usize,
}

/// Which driver calls are made to fail.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Faults {
    None,
    /// Those that take or map memory: whatever they were part of is undone exactly.
    Taking,
    /// Any. What could not be destroyed is lost, so the driver's books are not compared.
    Any,
}

pub(super) struct Setup {
    pub(super) seed: u64,
    pub(super) capacity: usize,
    pub(super) virtual_memory: bool,
    pub(super) faults: Faults,
    pub(super) policy: Box<dyn Policy>,
}

impl World {
    pub(super) fn new(setup: Setup) -> World {
        let Setup { seed, capacity, virtual_memory, faults, policy } = setup;
        let schedule = if seed % 3 == 0 { Schedule::ByHand } else { Schedule::Adversarial(seed) };
        // What is lost to failing calls must not fill the device: with two failures at once, more may be lost.
        let device = if faults == Faults::Any { 64 * capacity } else { capacity };
        let config = SimulatedConfig { schedule, virtual_memory, ..SimulatedConfig::new("world", device) };
        let gpu = Arc::new(SimulatedSource::with_config(config));
        let a = Allocator::new(gpu.clone(), AllocatorConfig { policy, ..AllocatorConfig::default() }).unwrap();
        let streams = vec![a.compute_stream().clone(), a.new_stream().unwrap(), a.new_stream().unwrap()];
        let (pools, live, ranges) = Default::default();
        let world = World { gpu, a, dice: Dice(seed), streams, pools, live, ranges, capacity, faults, refused: 0 };
        world.a.set_limit(world.widest());
        world
    }

    /// One step of the program.
    pub(super) fn step(&mut self) {
        // Not every plan comes true: most steps make few calls.
        let k = self.dice.below(40) as u64;
        match self.faults {
            Faults::None => {}
            Faults::Taking => self.gpu.fail_call(k),
            Faults::Any => self.gpu.fail_any(k),
        }
        match self.dice.below(100) {
            0..36 => self.allocate(),
            36..62 => self.free(),
            62..84 => self.touch(),
            84..90 => self.gpu.finish(&self.streams[self.dice.below(3)]),
            90..92 => {
                let at = 1 + self.dice.below(2);
                if let Some(stream) = self.unless_planned(self.a.new_stream()) {
                    self.streams[at] = stream;
                }
            }
            92 if self.pools.len() < 2 => self.pools.extend(self.a.private_pool()),
            92 => drop(self.pools.swap_remove(self.dice.below(2))),
            93 => drop(self.unless_planned(self.a.synchronize())),
            94 => drop(self.unless_planned(self.a.empty_cache())),
            95 => {
                let to = self.dice.below(self.capacity);
                self.unless_planned(self.a.trim(to));
            }
            96 => {
                let limit = self.dice.below(self.capacity);
                self.a.set_limit(if limit > self.capacity / 4 { Some(limit) } else { self.widest() });
            }
            _ => {
                for _ in 0..self.dice.below(8) {
                    self.free();
                }
            }
        }
        self.gpu.fail_call(0);
        self.gpu.fail_any(0);
    }

    fn allocate(&mut self) {
        let (bytes, at) = (self.dice.size(), self.dice.below(3));
        let category = Category::ALL[self.dice.below(7)];
        let pool = (!self.pools.is_empty() && self.dice.below(8) == 0).then(|| self.dice.below(self.pools.len()));
        let stream = &self.streams[at];
        let result = match pool {
            Some(pool) => self.pools[pool].allocate(bytes, stream, category),
            None => self.a.allocate(bytes, stream, category),
        };
        match result {
            Ok(block) => {
                if bytes > 0 {
                    let Some(token) = self.unless_planned(block.read(stream)) else { return };
                    let address = token.address();
                    drop(token);
                    let before = self.ranges.range(..address + bytes as u64).next_back();
                    assert!(before.is_none_or(|(at, (_, len))| at + *len as u64 <= address), "two blocks at {address:#x}");
                    self.ranges.insert(address, (block.id(), bytes));
                    self.unless_planned(self.gpu.touch(&block, stream, true));
                }
                self.live.push(block);
            }
            Err(AllocError::OutOfMemory(report)) => {
                self.refused += 1;
                if self.faults != Faults::None {
                    return;
                }
                let core = &self.a.core;
                let size = core.block_size(bytes).unwrap();
                let region = pool.map_or(core.policy.zone(size, category) as u16, |pool| self.pools[pool].region());
                let refused = Refused { size, region, stream: stream.id().0 };
                if let Some(objection) = objection(core, &self.gpu, refused) {
                    panic!("{refused:?} of {bytes} bytes was refused although {objection}\n{report}");
                }
            }
            Err(error) => drop(self.unless_planned::<Block>(Err(error))),
        }
    }
    fn free(&mut self) {
        if !self.live.is_empty() {
            let block = self.live.swap_remove(self.dice.below(self.live.len()));
            self.ranges.retain(|_, (id, _)| *id != block.id());
        }
    }
    fn touch(&mut self) {
        if !self.live.is_empty() {
            let block = &self.live[self.dice.below(self.live.len())];
            let stream = &self.streams[self.dice.below(3)];
            let write = self.dice.below(2) == 0;
            self.unless_planned(self.gpu.touch(block, stream, write));
        }
    }

    /// The limit where none is set.
    fn widest(&self) -> Option<usize> {
        (self.faults == Faults::Any).then_some(self.capacity)
    }
    /// Panics on an error that nobody planned.
    fn unless_planned<T>(&self, result: crate::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(AllocError::Source(SourceError::Driver { code: 999, .. })) if self.faults != Faults::None => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) fn audit(&self) {
        let empty = self.live.iter().filter(|block| block.bytes() == 0).count();
        audit(&self.a, (self.faults != Faults::Any).then_some(&*self.gpu), empty);
    }

    /// Everything goes, and nothing is left.
    pub(super) fn end(mut self) {
        self.live.clear();
        self.pools.clear();
        let gpu = self.gpu.clone();
        if self.faults == Faults::Any {
            // An error that a drop left comes first. What the driver would not take back is left to the process.
            drop(self.a.empty_cache());
            self.a.empty_cache().unwrap();
            self.audit();
            drop(self);
            gpu.finish_all();
            return gpu.assert_clean();
        }
        self.a.empty_cache().unwrap();
        let stats = self.a.stats();
        assert_eq!((stats.reserved.current, stats.allocated.current, stats.pending), (0, 0, 0));
        self.audit();
        drop(self);
        gpu.finish_all();
        gpu.assert_clean();
        assert!(gpu.is_pristine());
    }
}
