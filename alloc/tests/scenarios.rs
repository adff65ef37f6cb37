//! The nine scenarios that the allocator must pass, on a simulated GPU. Scenario 6 where pages move is in `stitching.rs`, and
//! for every policy and source in `conformance`; the drops of scenario 9 after a device error and in a panic are in `drops.rs`.

mod common;
use common::{GIB, MIB, adversarial, allocator, late};
use kiln_alloc::sources::{DriverCall, SimulatedSource};
use kiln_alloc::*;
use std::sync::Arc;

fn simulated(capacity: usize) -> (Arc<SimulatedSource>, Allocator) {
    let source = Arc::new(SimulatedSource::new("dry-run", capacity));
    (source.clone(), Allocator::new(source, AllocatorConfig::default()).unwrap())
}
fn take(a: &Allocator, bytes: usize) -> Result<Block> {
    a.allocate(bytes, a.compute_stream(), Category::Temporaries)
}

/// Scenario 1.
#[test]
fn in_full_memory_a_block_in_use_elsewhere_serves_the_next_request_of_its_size_at_the_first_call() {
    let gpu = late(64 * GIB);
    let a = allocator(&gpu);
    let (s0, s1) = (a.compute_stream(), &a.new_stream().unwrap());
    let _weights: Vec<Block> = (0..15).map(|_| a.allocate(4 * GIB, s0, Category::Parameters).unwrap()).collect();
    let buffer = take(&a, 3 * GIB).unwrap();
    gpu.touch(&buffer, s0, true).unwrap();
    gpu.touch(&buffer, s1, false).unwrap();
    drop(buffer);
    gpu.reset_driver_costs();
    let again = take(&a, 3 * GIB).unwrap();
    gpu.touch(&again, s0, true).unwrap();
    let stats = a.stats();
    assert_eq!((stats.retries, stats.ooms, stats.steals), (0, 0, 1));
    // The device waits; the host does not.
    for call in [DriverCall::Synchronize, DriverCall::WaitEvent, DriverCall::Create, DriverCall::Unmap] {
        assert_eq!(gpu.driver_calls(call), 0, "{call:?}");
    }
}

/// Scenario 2.
#[test]
fn a_slow_stream_does_not_hold_up_blocks_of_a_quick_one() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let (s0, slow, quick) = (a.compute_stream(), &a.new_stream().unwrap(), &a.new_stream().unwrap());
    let [one, two] = [slow, quick].map(|stream| {
        let block = a.allocate(8 * MIB, s0, Category::Temporaries).unwrap();
        gpu.touch(&block, stream, true).unwrap();
        block
    });
    let address = two.read(quick).unwrap().address();
    drop((one, two));
    assert_eq!(a.stats().pending, 16 * MIB);
    gpu.finish(quick);
    assert_eq!(a.stats().pending, 8 * MIB);
    let again = a.allocate(8 * MIB, s0, Category::Temporaries).unwrap();
    assert_eq!(again.read(s0).unwrap().address(), address);
}

/// Scenario 3, also with the stream dropped before its blocks.
#[test]
fn short_lived_streams_leave_reserved_flat() {
    let gpu = late(4 * GIB);
    let a = allocator(&gpu);
    for round in 0..50 {
        let s = a.new_stream().unwrap();
        assert_eq!(s.id(), StreamId(1));
        let blocks = [0, 1].map(|_| a.allocate(GIB, &s, Category::Temporaries).unwrap());
        blocks.iter().for_each(|block| gpu.touch(block, &s, true).unwrap());
        if round % 2 == 0 {
            drop(s);
            drop(blocks);
        } else {
            drop(blocks);
            drop(s);
        }
    }
    let stats = a.stats();
    assert!(stats.reserved.peak <= stats.allocated.peak * 102 / 100, "{}", a.memory_summary());
    assert_eq!((stats.allocated.peak, stats.num_device_free), (2 * GIB, 0));
}

/// Scenario 4: freed neighbours merge.
#[test]
fn freed_blocks_serve_requests_of_twice_their_size() {
    let (_, a) = simulated(GIB);
    drop((0..8).map(|_| take(&a, 16 * MIB).unwrap()).collect::<Vec<_>>());
    let calls = a.stats().driver_calls;
    let _large: Vec<Block> = (0..4).map(|_| take(&a, 32 * MIB).unwrap()).collect();
    assert_eq!(a.stats().driver_calls, calls);
    assert!(a.stats().reserved.peak <= 131 * MIB);
}

/// Scenario 4, under a full budget: two idle blocks that do not touch serve one request.
#[test]
fn scattered_idle_memory_serves_a_request_of_their_sum() {
    let (_, a) = simulated(64 * MIB);
    let mut blocks: Vec<Block> = (0..4).map(|_| take(&a, 16 * MIB).unwrap()).collect();
    blocks.remove(2);
    blocks.remove(0);
    let _whole = take(&a, 32 * MIB).unwrap();
    assert_eq!((a.stats().reserved.peak, a.stats().retries, a.stats().stitched_bytes), (64 * MIB, 0, 32 * MIB as u64));
    assert!(matches!(take(&a, 512), Err(AllocError::OutOfMemory(_))));
}

/// Scenario 5; also with a block behind the temporary, so that it cannot grow where it was and its pages must move.
#[test]
fn a_huge_temporary_returns_although_activations_were_cut_from_it() {
    const GB: usize = 1_000_000_000;
    for behind in [false, true] {
        let (_, a) = simulated(80 * GIB);
        a.set_limit(Some(13 * GB));
        let temporary = take(&a, 116 * GB / 10).unwrap();
        let _behind = behind.then(|| take(&a, 16_000_000).unwrap());
        drop(temporary);
        let activations: Vec<Block> = (0..80).map(|_| take(&a, 16_000_000).unwrap()).collect();
        let again = take(&a, 116 * GB / 10).unwrap();
        let stats = a.stats();
        assert!(stats.reserved.peak <= 13 * GB && (stats.stitches > 0) == behind, "{}", a.memory_summary());
        assert_eq!((stats.retries, stats.ooms), (0, 0));
        drop((again, activations));
    }
}

/// Scenario 6.
#[test]
fn a_failing_driver_call_is_rolled_back_exactly() {
    for k in 1.. {
        let (source, a) = simulated(GIB);
        let kept = take(&a, 3 * MIB).unwrap();
        drop(take(&a, 8 * MIB).unwrap());
        a.empty_cache().unwrap();
        let (before, taken) = (a.stats(), source.bytes_taken());
        source.fail_call(k);
        let result = take(&a, 20 * MIB);
        source.fail_call(0);
        let Err(error) = result else {
            // 10 pages: as many creates and maps, one set access.
            assert_eq!(k, 22);
            break;
        };
        assert!(matches!(error, AllocError::Source(SourceError::Driver { code: 999, .. })), "{error}");
        source.assert_clean();
        let after = a.stats();
        assert_eq!((after.reserved.current, source.bytes_taken()), (before.reserved.current, taken), "call {k}");
        assert_eq!((after.allocated.current, after.largest_free), (before.allocated.current, before.largest_free));
        drop((take(&a, 20 * MIB).unwrap(), kept));
        a.empty_cache().unwrap();
        assert_eq!(source.bytes_taken(), (0, 0));
        drop(a);
        assert!(source.is_pristine());
    }
}

/// Scenario 6, where growth joins idle memory on the left.
#[test]
fn a_failing_extension_leaves_the_idle_tail_idle() {
    for k in 1..=4 {
        let (source, a) = simulated(GIB);
        drop(take(&a, 8 * MIB).unwrap());
        source.fail_call(k);
        assert!(take(&a, 12 * MIB).is_err());
        source.fail_call(0);
        assert_eq!((a.stats().largest_free, a.stats().reserved.current), (8 * MIB, 8 * MIB));
        take(&a, 12 * MIB).unwrap();
        assert_eq!(a.stats().reserved.current, 12 * MIB);
    }
}

/// Scenario 7.
#[test]
fn fills_of_blocks_dropped_right_after_their_launch_are_right_although_the_cache_is_emptied() {
    for gpu in [late(GIB), adversarial(GIB, 3), adversarial(GIB, 4)] {
        let a = allocator(&gpu);
        let (s, reader) = (a.compute_stream(), a.new_stream().unwrap());
        for i in 0..200 {
            let block = take(&a, 2048 * 7168 * 4).unwrap();
            gpu.touch(&block, s, true).unwrap();
            // What it reads is checked when it runs, long after the block is gone.
            gpu.touch(&block, if i % 2 == 0 { s } else { &reader }, false).unwrap();
            drop(block);
            if i % 7 == 0 {
                a.empty_cache().unwrap();
            }
        }
        assert!(a.stats().reserved.peak <= 3 * 2048 * 7168 * 4 + 6 * MIB, "{}", a.memory_summary());
        gpu.finish_all();
        gpu.assert_clean();
    }
}

/// The order in which a step's activations go.
#[derive(Clone, Copy, Debug)]
enum Order {
    LastFirst,
    FirstFirst,
    Overlapping,
}

/// Twenty-four layers whose activations grow with `batch`, freed while their gradients come and go.
fn step(a: &Allocator, batch: usize, order: Order) {
    let mut saved = Vec::new();
    for _ in 0..24 {
        let hidden = take(a, batch * 64 * 1024).unwrap();
        saved.push(take(a, batch * 256 * 1024).unwrap());
        take(a, batch * 100 * 1024).unwrap();
        saved.push(hidden);
    }
    let mut gradient = None;
    while !saved.is_empty() {
        let at = if matches!(order, Order::FirstFirst) { 0 } else { saved.len() - 1 };
        let next = take(a, saved.remove(at).bytes()).unwrap();
        if matches!(order, Order::Overlapping) {
            gradient = Some(next);
        }
    }
    drop(gradient);
}

/// Scenario 8. The working set is known when each of the 64 sizes has been seen once.
#[test]
fn changing_batches_stay_within_five_percent_and_settle_without_driver_calls() {
    for order in [Order::LastFirst, Order::FirstFirst, Order::Overlapping] {
        let (_, a) = simulated(141 * GIB);
        let _weights: Vec<Block> = (0..24).map(|_| take(&a, 16 * MIB).unwrap()).collect();
        (0..64).for_each(|i| step(&a, 1 + (i * 37) % 64, order));
        let calls = a.stats().driver_calls;
        (0..1000).for_each(|i| step(&a, 1 + (i * 37) % 64, order));
        let stats = a.stats();
        assert_eq!(stats.driver_calls, calls, "{order:?}");
        assert!(stats.peak_ratio() <= 1.05, "{order:?}\n{}", a.memory_summary());
    }
}

/// Scenario 8 under stitching before all growth: no byte to spare, so the largest step moves a page or two each time it comes.
#[test]
fn with_no_headroom_changing_batches_move_a_page_now_and_then() {
    let source = Arc::new(SimulatedSource::new("dry-run", 141 * GIB));
    let a = Allocator::new(source, AllocatorConfig::with_policy(policies::Paged { stitch_above: 1.0 })).unwrap();
    (0..64).for_each(|i| step(&a, 1 + (i * 37) % 64, Order::LastFirst));
    let calls = a.stats().driver_calls;
    (0..1024).for_each(|i| step(&a, 1 + (i * 37) % 64, Order::LastFirst));
    let stats = a.stats();
    assert!((stats.driver_calls - calls) / 16 <= 24, "{} in 16 rounds", stats.driver_calls - calls);
    assert!(stats.peak_ratio() <= 1.01, "{}", stats.peak_ratio());
}

/// Scenario 9 and C009.
#[test]
fn a_forgotten_block_leaks_itself_and_nothing_else() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    let block = a.allocate(4 * MIB, s, Category::Temporaries).unwrap();
    gpu.touch(&block, s, true).unwrap();
    std::mem::forget(block);
    let other = a.allocate(4 * MIB, s, Category::Temporaries).unwrap();
    gpu.touch(&other, s, true).unwrap();
    drop(other);
    a.empty_cache().unwrap();
    assert_eq!(a.stats().reserved.current, 4 * MIB);
    gpu.assert_clean();
}
