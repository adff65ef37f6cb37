//! Pages that move: who waits, when the old address goes, what stays, and what happens when a call fails on the way.

mod common;
use common::lying::{Lie, Lying};
use common::{MIB, adversarial, allocator, late, random};
use kiln_alloc::policies::Paged;
use kiln_alloc::sources::{BreachKind, DriverCall, Schedule, SimulatedConfig, SimulatedSource};
use kiln_alloc::*;
use std::sync::Arc;

const T: Category = Category::Temporaries;

/// 64 MiB in four blocks of stream `s`, each written; the first and the third are free again.
fn scattered(gpu: &SimulatedSource, a: &Allocator, s: &Stream) -> Vec<Block> {
    let mut blocks: Vec<Block> = (0..4).map(|_| a.allocate(16 * MIB, s, T).unwrap()).collect();
    blocks.iter().for_each(|block| gpu.touch(block, s, true).unwrap());
    blocks.remove(2);
    blocks.remove(0);
    blocks
}

/// Idle pages of one stream become a block of another.
fn across_streams(lie: Lie, schedule: Schedule) -> Vec<BreachKind> {
    let gpu = Arc::new(SimulatedSource::with_config(SimulatedConfig { schedule, ..SimulatedConfig::new("gpu", 64 * MIB) }));
    let a = allocator(&Lying::new(gpu.clone(), lie));
    let other = a.new_stream().unwrap();
    let kept = scattered(&gpu, &a, a.compute_stream());
    let whole = a.allocate(32 * MIB, &other, T).unwrap();
    assert_eq!((a.stats().stitches, a.stats().stitched_bytes), (1, 32 << 20));
    gpu.touch(&whole, &other, true).unwrap();
    kept.iter().for_each(|block| gpu.touch(block, a.compute_stream(), false).unwrap());
    gpu.finish_all();
    gpu.take_breaches().iter().map(|breach| breach.kind).collect()
}

/// R1.
#[test]
fn the_new_user_of_a_page_waits_for_the_old_one() {
    for schedule in [Schedule::ByHand, Schedule::Adversarial(1), Schedule::Adversarial(2)] {
        assert_eq!(across_streams(Lie::Nothing, schedule), []);
    }
    assert!(across_streams(Lie::NoStreamWait, Schedule::ByHand).contains(&BreachKind::UnorderedAlias));
}

/// R2.
#[test]
fn an_old_address_is_unmapped_only_when_the_device_has_finished_there() {
    assert!(across_streams(Lie::AllDone, Schedule::ByHand).contains(&BreachKind::UnmappedInUse));
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    let _kept = scattered(&gpu, &a, s);
    let whole = a.allocate(32 * MIB, s, T).unwrap();
    assert_eq!(gpu.bytes_taken(), (64 * MIB, 96 * MIB));
    gpu.touch(&whole, s, true).unwrap();
    assert!(a.allocate(2 * MIB, s, T).is_err());
    // Memory was out, so everything was waited for.
    assert_eq!(gpu.bytes_taken(), (64 * MIB, 64 * MIB));
}

#[test]
fn a_later_miss_unmaps_what_the_device_has_finished_with() {
    let gpu = late(96 * MIB);
    let a = allocator(&gpu);
    a.set_limit(Some(64 * MIB));
    let s = a.compute_stream();
    let _kept = scattered(&gpu, &a, s);
    let _whole = a.allocate(32 * MIB, s, T).unwrap();
    a.set_limit(None);
    let _more = a.allocate(2 * MIB, s, T).unwrap();
    assert_eq!(gpu.bytes_taken().1 - gpu.bytes_taken().0, 32 * MIB);
    gpu.finish_all();
    let _more = a.allocate(8 * MIB, s, T).unwrap();
    assert_eq!(gpu.bytes_taken().1, gpu.bytes_taken().0);
}

/// R3.
#[test]
fn pages_of_a_private_pool_never_move() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    let pool = a.private_pool().unwrap();
    let captured = pool.allocate(16 * MIB, s, T).unwrap();
    gpu.touch(&captured, s, true).unwrap();
    gpu.pin(captured.read(s).unwrap().address(), captured.bytes());
    let address = captured.read(s).unwrap().address();
    drop(captured);
    let kept = a.allocate(40 * MIB, s, T).unwrap();
    assert!(matches!(a.allocate(16 * MIB, s, T), Err(AllocError::OutOfMemory(_))));
    a.empty_cache().unwrap();
    assert_eq!(pool.reserved_bytes(), 16 * MIB);
    drop(kept);
    let again = pool.allocate(16 * MIB, s, T).unwrap();
    assert_eq!(again.read(s).unwrap().address(), address);
    gpu.unpin(address, 16 * MIB);
}

/// R4.
#[test]
fn no_block_sees_two_addresses_of_a_page() {
    for seed in 0..8 {
        let gpu = adversarial(64 * MIB, seed);
        let config = AllocatorConfig::with_policy(Paged { stitch_above: 1.0 });
        let a = Allocator::new(gpu.clone(), config).unwrap();
        let (s, mut random, mut live) = (a.compute_stream(), random(seed + 1), Vec::new());
        for _ in 0..400 {
            if let Ok(block) = a.allocate((1 + random() % 10) * MIB, s, T) {
                gpu.touch(&block, s, true).unwrap();
                live.push(block);
            }
            if random() % 8 > 2 && !live.is_empty() {
                let block = live.swap_remove(random() % live.len());
                gpu.touch(&block, s, false).unwrap();
            }
        }
        assert!(a.stats().stitches > 20, "{}", a.stats().stitches);
    }
}

/// What must be as before after a failure.
fn state(a: &Allocator, gpu: &SimulatedSource) -> impl PartialEq + std::fmt::Debug + use<> {
    let stats = a.stats();
    let idle = (stats.inactive_split.all.current, stats.inactive_split_bytes.all.current, stats.largest_free);
    (gpu.bytes_taken(), stats.reserved.current, stats.allocated, stats.active.all.current, idle, stats.pending, stats.stitches)
}

/// Scenario 6, where pages move and others are new.
#[test]
fn a_stitch_whose_call_fails_is_undone_exactly() {
    for k in 1.. {
        let gpu = late(80 * MIB);
        let a = allocator(&gpu);
        a.set_limit(Some(72 * MIB));
        let other = a.new_stream().unwrap();
        let kept = scattered(&gpu, &a, a.compute_stream());
        let before = state(&a, &gpu);
        gpu.fail_any(k);
        let result = a.allocate(38 * MIB, &other, T);
        gpu.fail_any(0);
        if let Ok(block) = result {
            // What failed after the pages had moved is told by the next call.
            if a.allocate(0, &other, T).is_ok() {
                // Three pages made and mapped, sixteen moved, and more.
                assert!(k > 3 + 3 + 16 + 1, "{k}");
                gpu.touch(&block, &other, true).unwrap();
                break;
            }
            gpu.touch(&block, &other, true).unwrap();
            continue;
        }
        assert!(matches!(result, Err(AllocError::Source(SourceError::Driver { code: 999, .. }))), "{result:?}");
        assert_eq!(state(&a, &gpu), before, "call {k}");
        gpu.touch(&a.allocate(38 * MIB, &other, T).unwrap(), &other, true).unwrap();
        drop((kept, other));
        a.empty_cache().unwrap();
        drop(a);
        assert!(gpu.is_pristine(), "call {k}");
    }
}

/// Scenario 6, where the device has no more memory than was thought.
#[test]
fn a_stitch_that_finds_the_device_full_is_undone_and_memory_is_out() {
    for k in 1..=3 {
        let gpu = late(80 * MIB);
        let a = allocator(&gpu);
        let kept = scattered(&gpu, &a, a.compute_stream());
        gpu.run_out(k);
        let block = a.allocate(38 * MIB, a.compute_stream(), T).unwrap();
        gpu.run_out(0);
        gpu.touch(&block, a.compute_stream(), true).unwrap();
        drop((kept, block));
        a.empty_cache().unwrap();
        drop(a);
        assert!(gpu.is_pristine());
    }
}

#[test]
fn an_old_address_that_cannot_be_unmapped_is_tried_again() {
    let gpu = late(96 * MIB);
    let a = allocator(&gpu);
    a.set_limit(Some(64 * MIB));
    let s = a.compute_stream();
    let kept = scattered(&gpu, &a, s);
    let whole = a.allocate(32 * MIB, s, T).unwrap();
    gpu.touch(&whole, s, true).unwrap();
    gpu.finish_all();
    a.set_limit(None);
    gpu.fail_nth(DriverCall::Unmap, 1);
    let more = a.allocate(2 * MIB, s, T).unwrap();
    gpu.touch(&more, s, true).unwrap_err();
    // Told once; then all goes on.
    gpu.touch(&more, s, true).unwrap();
    let _next = a.allocate(8 * MIB, s, T).unwrap();
    assert_eq!(gpu.bytes_taken().0, gpu.bytes_taken().1);
    drop((kept, whole, more, _next));
    a.empty_cache().unwrap();
    drop(a);
    assert!(gpu.is_pristine());
}

#[test]
fn pages_that_cannot_be_given_back_stay_usable() {
    for k in 1..=8 {
        let gpu = late(64 * MIB);
        let a = allocator(&gpu);
        drop(a.allocate(16 * MIB, a.compute_stream(), T).unwrap());
        gpu.fail_nth(DriverCall::Unmap, k);
        assert!(a.empty_cache().is_err());
        let left = a.stats();
        assert_eq!(left.reserved.current, 16 * MIB - (k as usize - 1) * 2 * MIB);
        assert_eq!((left.largest_free, gpu.bytes_taken().0), (left.reserved.current, left.reserved.current));
        let again = a.allocate(64 * MIB, a.compute_stream(), T).unwrap();
        gpu.touch(&again, a.compute_stream(), true).unwrap();
        drop(again);
        a.empty_cache().unwrap();
        drop(a);
        assert!(gpu.is_pristine());
    }
}

/// Blocks come and go in any order for a long time, under a limit of 64 MiB; returns the bytes that moved.
fn churn(addresses: u64, seed: u64, steps: usize) -> usize {
    let schedule = Schedule::Adversarial(seed);
    let gpu = SimulatedSource::with_config(SimulatedConfig { schedule, addresses, ..SimulatedConfig::new("gpu", 64 * MIB) });
    let gpu = Arc::new(gpu);
    let a = allocator(&gpu);
    let streams = [a.compute_stream().clone(), a.new_stream().unwrap()];
    let (mut random, mut live, mut bytes) = (random(seed), Vec::<Block>::new(), 0);
    for _ in 0..steps {
        let wanted = (1 + random() % 12) * MIB;
        while bytes + wanted > 40 * MIB {
            let gone = live.swap_remove(random() % live.len());
            bytes -= gone.bytes();
        }
        let s = &streams[random() % 2];
        let block = a.allocate(wanted, s, T).unwrap();
        gpu.touch(&block, s, true).unwrap();
        bytes += wanted;
        live.push(block);
    }
    let stats = a.stats();
    assert!(stats.reserved.peak <= 64 * MIB && stats.ooms == 0);
    stats.stitched_bytes as usize
}

#[test]
fn pages_may_move_for_ever() {
    assert!(churn(1 << 47, 1, 6000) > 10 * 64 * MIB);
}

/// Addresses for twice the memory and no more: holes are filled, and emptied where they are in the way.
#[test]
fn running_out_of_addresses_is_not_running_out_of_memory() {
    for seed in 0..4 {
        assert!(churn(7 * 64 * MIB as u64, seed, 3000) > 64 * MIB);
    }
}

#[test]
fn pages_of_small_blocks_serve_large_ones_and_are_counted_where_they_are() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    let small: Vec<Block> = (0..1500).map(|_| a.allocate(4000, s, T).unwrap()).collect();
    let before = a.stats();
    assert_eq!((before.reserved_bytes.small_pool.current, before.reserved_bytes.large_pool.current), (6 << 20, 0));
    drop(small);
    a.set_limit(Some(6 * MIB));
    let large = a.allocate(6 * MIB, s, T).unwrap();
    gpu.touch(&large, s, true).unwrap();
    let after = a.stats();
    assert_eq!((after.reserved_bytes.small_pool.current, after.reserved_bytes.large_pool.current), (0, 6 << 20));
    assert_eq!((after.segment.small_pool.current, after.segment.large_pool.current), (0, 3));
    assert_eq!((after.num_device_alloc, after.stitched_bytes, after.reserved.peak), (3, 6 << 20, 6 * MIB));
    drop(large);
    // And back.
    let _small: Vec<Block> = (0..1500).map(|_| a.allocate(4000, s, T).unwrap()).collect();
    assert_eq!(a.stats().reserved_bytes.small_pool.current, 6 << 20);
}
