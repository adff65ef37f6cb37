//! Any order of allocations, uses, frees and streams: nothing overlaps, nothing is lost, in-flight work is kept apart.

mod common;
use common::{MIB, adversarial, allocator, late};
use kiln_alloc::sources::SimulatedSource;
use kiln_alloc::*;
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Step {
    Alloc { stream: usize, bytes: usize },
    Free(usize),
    Use { block: usize, stream: usize, write: bool },
    Forget { block: usize, stream: usize },
    Finish(usize),
    NewStream(usize),
    Synchronize,
    EmptyCache,
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![0..4usize, 1..5000usize, 1..3 * MIB, (1..12usize).prop_map(|n| n * MIB)]
}
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..3usize, size()).prop_map(|(stream, bytes)| Step::Alloc { stream, bytes }),
        6 => any::<usize>().prop_map(Step::Free),
        8 => (any::<usize>(), 0..3usize, any::<bool>()).prop_map(|(block, stream, write)| Step::Use { block, stream, write }),
        1 => (any::<usize>(), 0..3usize).prop_map(|(block, stream)| Step::Forget { block, stream }),
        3 => (0..3usize).prop_map(Step::Finish),
        1 => (0..2usize).prop_map(Step::NewStream),
        1 => Just(Step::Synchronize),
        1 => Just(Step::EmptyCache),
    ];
    prop::collection::vec(step, 1..150)
}

fn check(a: &Allocator, live: &[Block]) {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for block in live.iter().filter(|b| b.bytes() > 0) {
        let address = block.read(a.compute_stream()).unwrap().address();
        ranges.push((address, address + block.bytes() as u64));
    }
    ranges.sort();
    assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0), "blocks overlap: {ranges:?}");
    counted(a, live);
}
fn counted(a: &Allocator, live: &[Block]) {
    let stats = a.stats();
    assert_eq!(stats.allocated.current, live.iter().map(|b| b.bytes().next_multiple_of(512)).sum::<usize>());
    assert_eq!(stats.requested.current, live.iter().map(|b| b.bytes()).sum::<usize>());
    assert_eq!(stats.categories.iter().map(|c| c.current).sum::<usize>(), stats.allocated.current);
    assert_eq!(stats.live_blocks, live.len());
    assert!(stats.reserved.current >= stats.allocated.current + stats.pending);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// The simulated GPU sees to it that conflicting uses are ordered, that values are right and that nothing is unmapped in use.
    #[test]
    fn streams_never_see_each_others_memory(steps in steps(), seed in any::<Option<u64>>()) {
        let gpu = seed.map_or_else(|| late(48 * MIB), |seed| adversarial(48 * MIB, seed));
        let a = allocator(&gpu);
        let mut streams = vec![a.compute_stream().clone(), a.new_stream().unwrap(), a.new_stream().unwrap()];
        let mut live: Vec<Block> = Vec::new();
        let mut forgotten = Vec::new();
        for step in steps {
            match step {
                Step::Alloc { stream, bytes } => match a.allocate(bytes, &streams[stream], Category::Temporaries) {
                    Ok(block) => {
                        if bytes > 0 {
                            gpu.touch(&block, &streams[stream], true).unwrap();
                        }
                        live.push(block);
                    }
                    Err(AllocError::OutOfMemory(report)) => {
                        let OomReport { reserved, allocated, rounded_up, pending, idle, .. } = *report;
                        prop_assert_eq!(reserved, allocated + rounded_up + pending + idle);
                    }
                    Err(error) => panic!("{error}"),
                },
                Step::Free(at) if !live.is_empty() => drop(live.swap_remove(at % live.len())),
                Step::Use { block, stream, write } if !live.is_empty() => {
                    let block = &live[block % live.len()];
                    if block.bytes() > 0 {
                        gpu.touch(block, &streams[stream], write && !forgotten.contains(&block.id())).unwrap();
                    }
                }
                Step::Forget { block, stream } if !live.is_empty() => {
                    let block = &live[block % live.len()];
                    std::mem::forget(block.read(&streams[stream]).unwrap());
                    forgotten.push(block.id());
                }
                Step::Finish(stream) => gpu.finish(&streams[stream]),
                Step::NewStream(at) => {
                    streams.remove(at + 1);
                    streams.push(a.new_stream().unwrap());
                }
                Step::Synchronize => a.synchronize().unwrap(),
                Step::EmptyCache => a.empty_cache().unwrap(),
                _ => {}
            }
            counted(&a, &live);
        }
        live.clear();
        a.empty_cache().unwrap();
        prop_assert_eq!(a.stats().reserved.current, 0);
        gpu.finish_all();
        prop_assert_eq!(gpu.breaches(), []);
        // Forgotten tokens keep the handles of their streams, no more.
        if forgotten.is_empty() {
            drop(streams);
            drop(a);
            prop_assert!(gpu.is_pristine());
        }
    }

    #[test]
    fn live_blocks_never_overlap_and_freed_ones_become_one(sizes in prop::collection::vec((size(), any::<usize>(), any::<bool>()), 1..200)) {
        let source = Arc::new(SimulatedSource::new("dry-run", 4096 * MIB));
        let a = Allocator::new(source.clone(), AllocatorConfig::default()).unwrap();
        let mut live: Vec<Block> = Vec::new();
        for (bytes, at, free) in sizes {
            live.push(a.allocate(bytes, a.compute_stream(), Category::Activations).unwrap());
            if free {
                live.swap_remove(at % live.len());
            }
            check(&a, &live);
        }
        live.clear();
        // One idle piece a zone, unless pages left a hole when they moved; and all of them serve one request, with no page more.
        let stats = a.stats();
        let pieces = [stats.inactive_split.small_pool.current, stats.inactive_split.large_pool.current];
        prop_assert!(stats.stitches > 0 || pieces.iter().all(|pieces| *pieces <= 1), "{:?}", pieces);
        let reserved = stats.reserved.current;
        prop_assert_eq!(stats.inactive_split_bytes.all.current as usize, reserved);
        a.set_limit(Some(reserved));
        drop(a.allocate(reserved, a.compute_stream(), Category::Activations).unwrap());
        let after = a.stats();
        prop_assert_eq!((after.reserved.current, after.num_device_alloc, after.retries), (reserved, stats.num_device_alloc, 0));
        drop(a);
        prop_assert!(source.is_pristine());
    }

    #[test]
    fn a_device_with_faults_stays_consistent(sizes in prop::collection::vec((size(), any::<usize>(), 0..40u64), 1..80)) {
        let source = Arc::new(SimulatedSource::new("dry-run", 24 * MIB));
        let a = Allocator::new(source.clone(), AllocatorConfig::default()).unwrap();
        let mut live: Vec<Block> = Vec::new();
        for (bytes, at, fault) in sizes {
            source.fail_call(fault);
            if let Ok(block) = a.allocate(bytes, a.compute_stream(), Category::Activations) {
                live.push(block);
            }
            if at % 3 == 0 && !live.is_empty() {
                live.swap_remove(at % live.len());
            }
            check(&a, &live);
            let reserved = a.stats().reserved.current;
            prop_assert_eq!(source.bytes_taken(), (reserved, reserved));
        }
        source.fail_call(0);
        prop_assert_eq!(source.breaches(), []);
        live.clear();
        drop(a.allocate(24 * MIB, a.compute_stream(), Category::Activations).unwrap());
        drop(a);
        prop_assert!(source.is_pristine());
    }
}
