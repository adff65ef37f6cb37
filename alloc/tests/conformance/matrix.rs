//! What the suite runs over: policies, sources and settings.

use crate::common::{MIB, random};
use kiln_alloc::policies::{Bump, Paged, RoundUp, Torch};
use kiln_alloc::sources::{HostSource, Schedule, SimulatedConfig, SimulatedSource};
use kiln_alloc::*;
use std::collections::HashSet;
use std::sync::Arc;

/// A policy as a user would write it: powers of two in segments of 4 MiB, cut where a quarter or more is left, each stream for
/// itself.
struct PowersOfTwo;

impl Policy for PowersOfTwo {
    fn name(&self) -> &str {
        "powers of two"
    }
    fn block_size(&self, bytes: usize) -> usize {
        bytes.next_power_of_two()
    }
    fn zone(&self, _size: usize, category: Category) -> Zone {
        if category == Category::Parameters { Zone::Persistent } else { Zone::Large }
    }
    fn keeps_rest(&self, size: usize, rest: usize) -> bool {
        rest >= size / 4
    }
    fn growth(&self, _size: usize) -> Growth {
        Growth::Segments(4 * MIB)
    }
    fn shares_streams(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Who {
    Paged,
    StitchFirst,
    RoundUp,
    Torch,
    Bump,
    Own,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Where {
    AtOnce,
    Late,
    Adversarial,
    WholeAllocations,
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    Plain,
    Logged,
    Limited,
    Poisoned,
}

/// One column of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub who: Who,
    pub place: Where,
    pub how: How,
}

pub fn all() -> Vec<Setup> {
    let mut setups = Vec::new();
    for who in [Who::Paged, Who::StitchFirst, Who::RoundUp, Who::Torch, Who::Bump, Who::Own] {
        for place in [Where::AtOnce, Where::Late, Where::Adversarial, Where::WholeAllocations, Where::Host] {
            setups.extend([How::Plain, How::Logged, How::Limited, How::Poisoned].map(|how| Setup { who, place, how }));
        }
    }
    setups
}

/// Bytes of the simulated device, and the limit where one is set.
pub const CAPACITY: usize = 256 * MIB;
const LIMIT: usize = 160 * MIB;

/// A device, and its allocator set up.
pub struct Bench {
    /// `None` on the host.
    pub gpu: Option<Arc<SimulatedSource>>,
    pub a: Allocator,
    logged: bool,
}

impl Setup {
    /// As in `torch/late/poisoned`.
    pub fn name(&self) -> String {
        let lower = |name: String| name.to_lowercase();
        [lower(format!("{:?}", self.who)), lower(format!("{:?}", self.place)), lower(format!("{:?}", self.how))].join("/")
    }
    pub fn bench(&self) -> Bench {
        let policy: Box<dyn Policy> = match self.who {
            Who::Paged => Box::new(Paged::default()),
            Who::StitchFirst => Box::new(Paged { stitch_above: 1.0 }),
            Who::RoundUp => Box::new(RoundUp::new(Paged::default(), 1.2)),
            Who::Torch => Box::new(Torch),
            Who::Bump => Box::new(Bump),
            Who::Own => Box::new(PowersOfTwo),
        };
        let limit = (self.how == How::Limited).then_some(LIMIT);
        let config = AllocatorConfig { limit, policy, poison: self.how == How::Poisoned };
        let schedule = match self.place {
            Where::AtOnce => Schedule::AtOnce,
            Where::Late | Where::WholeAllocations => Schedule::ByHand,
            Where::Adversarial | Where::Host => Schedule::Adversarial(7),
        };
        let virtual_memory = self.place != Where::WholeAllocations;
        let gpu =
            SimulatedSource::with_config(SimulatedConfig { schedule, virtual_memory, ..SimulatedConfig::new("gpu", CAPACITY) });
        let gpu = (self.place != Where::Host).then(|| Arc::new(gpu));
        let source: Arc<dyn Source> = match &gpu {
            Some(gpu) => gpu.clone(),
            None => Arc::new(HostSource::new().unwrap()),
        };
        let a = Allocator::new(source, config).unwrap();
        let logged = self.how == How::Logged;
        if logged {
            a.start_log();
        }
        Bench { gpu, a, logged }
    }
}

impl Bench {
    pub fn take(&self, bytes: usize) -> Result<Block> {
        self.a.allocate(bytes, self.a.compute_stream(), Category::Temporaries)
    }
    /// Work on a whole block: simulated, or a fill with a byte of its number, or a look at it.
    pub fn touch(&self, block: &Block, stream: &Stream, write: bool) {
        if block.bytes() == 0 {
            return;
        }
        match &self.gpu {
            Some(gpu) => gpu.touch(block, stream, write).unwrap(),
            None if write => block.write(stream).unwrap().as_mut_slice().unwrap().fill(block.id() as u8),
            None => assert!(block.read(stream).unwrap().as_slice().unwrap().iter().all(|byte| *byte == block.id() as u8)),
        }
    }
    /// The device comes to the end of its work.
    pub fn finish(&self) {
        self.gpu.iter().for_each(|gpu| gpu.finish_all());
    }
    /// `steps` random steps: allocations on two streams, frees, and uses on both; after each, `check` sees what lives.
    pub fn program(&self, seed: u64, steps: usize, mut check: impl FnMut(&[Block])) {
        let streams = [self.a.compute_stream().clone(), self.a.new_stream().unwrap()];
        let (mut random, mut live) = (random(seed), Vec::<Block>::new());
        let size = |random: &mut dyn FnMut() -> usize| match random() % 8 {
            0 => 0,
            1..=3 => random() % 6000,
            4..=6 => random() % MIB,
            _ => random() % (6 * MIB),
        };
        for _ in 0..steps {
            let stream = &streams[random() % 2];
            match random() % 8 {
                0..=3 => match self.a.allocate(size(&mut random), stream, Category::ALL[random() % 7]) {
                    Ok(block) => {
                        self.touch(&block, stream, true);
                        live.push(block);
                    }
                    Err(AllocError::OutOfMemory(_)) => {}
                    Err(error) => panic!("{error}"),
                },
                4..=5 if !live.is_empty() => drop(live.swap_remove(random() % live.len())),
                6 if !live.is_empty() => self.touch(&live[random() % live.len()], stream, random() % 2 == 0),
                _ => {}
            }
            check(&live);
        }
    }
    /// Everything goes back, and no rule was broken. The log, where there is one, tells of every block.
    pub fn end(self) {
        let Bench { gpu, a, logged } = self;
        if logged {
            told(&a.take_log(), a.stats().allocations);
        }
        a.empty_cache().unwrap();
        let stats = a.stats();
        assert_eq!((stats.reserved.current, stats.live_blocks, stats.pending), (0, 0, 0));
        drop(a);
        let Some(gpu) = gpu else { return };
        gpu.finish_all();
        gpu.assert_clean();
        assert_eq!(gpu.bytes_taken(), (0, 0));
        assert!(gpu.is_pristine());
    }
}

/// Each block is allocated once and freed once, and afterwards.
fn told(log: &[LogEvent], allocations: u64) {
    let (mut open, mut count) = (HashSet::new(), 0);
    for event in log {
        match event {
            LogEvent::Alloc { id, .. } => {
                count += 1;
                assert!(open.insert(*id));
            }
            LogEvent::Free { id } => assert!(open.remove(id)),
        }
    }
    assert_eq!((open.len(), count), (0, allocations));
}
