//! Pooled page-locked memory.

mod common;
use common::{GIB, MIB, allocator, late};
use kiln_alloc::sources::HostSource;
use kiln_alloc::*;
use std::sync::Arc;

fn host_pool() -> PinnedPool {
    PinnedPool::new(Arc::new(HostSource::new().unwrap()))
}

/// C005: sizes just above a power of two.
#[test]
fn odd_sizes_waste_at_most_five_percent() {
    let gpu = late(GIB);
    let pool = PinnedPool::new(gpu);
    let _blocks: Vec<PinnedBlock> = (0..9).map(|k| pool.allocate(((1 << k) + 1) * MIB).unwrap()).collect();
    assert!(pool.reserved_bytes() as f64 <= 1.05 * (520 * MIB) as f64, "{}", pool.reserved_bytes());
}

#[test]
fn blocks_are_zeroed_filled_and_used_again() {
    let pool = host_pool();
    let mut block = pool.allocate(10_000).unwrap();
    assert!(block.as_slice().iter().all(|b| *b == 0) && block.as_slice().len() == 10_000);
    block.as_mut_slice().unwrap().fill(3);
    let pointer = block.as_slice().as_ptr();
    drop(block);
    assert_eq!((pool.active_bytes(), pool.reserved_bytes()), (0, 12 << 10));
    assert_eq!(pool.allocate(9_000).unwrap().as_slice().as_ptr(), pointer);
    pool.trim();
    assert_eq!(pool.reserved_bytes(), 0);
    assert!(pool.allocate(0).unwrap().as_slice().is_empty());
    assert!(matches!(pool.allocate(usize::MAX), Err(AllocError::SizeOverflow(_))));
}

/// C095: a dropped source is not handed out again before its copy is done, and one slow copy holds up no other block.
#[test]
fn a_block_is_reused_only_after_its_copies() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let (slow, quick) = (a.new_stream().unwrap(), a.new_stream().unwrap());
    let pool = PinnedPool::new(gpu.clone());
    let device = a.allocate(MIB, &slow, Category::Inputs).unwrap();
    let copy_from = |stream: &Stream| {
        let block = pool.allocate(MIB).unwrap();
        upload_pinned(&block, MIB, &mut device.write(stream).unwrap(), 0).unwrap();
        block.as_slice().as_ptr()
    };
    let quick_one = copy_from(&quick);
    let slow_one = copy_from(&slow);
    gpu.finish(&quick);
    assert_eq!(pool.active_bytes(), MIB);
    assert_eq!(pool.allocate(MIB).unwrap().as_slice().as_ptr(), quick_one);
    pool.trim();
    assert_eq!(pool.reserved_bytes(), MIB);
    gpu.finish(&slow);
    assert_eq!(pool.allocate(MIB).unwrap().as_slice().as_ptr(), slow_one);
}

#[test]
fn filling_again_waits_for_the_copy() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    let mut block = PinnedPool::new(gpu.clone()).allocate(MIB).unwrap();
    let device = a.allocate(MIB, s, Category::Inputs).unwrap();
    upload_pinned(&block, MIB, &mut device.write(s).unwrap(), 0).unwrap();
    let copied = s.record().unwrap();
    assert!(!copied.is_complete().unwrap());
    block.as_mut_slice().unwrap();
    drop(block);
    let too_long = upload_pinned(&host_pool().allocate(8).unwrap(), 9, &mut device.write(s).unwrap(), 0);
    assert!(matches!(too_long, Err(AllocError::OutOfRange { bytes: 9, len: 8, .. })));
}

#[test]
fn counters_follow_every_block() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    let pool = PinnedPool::new(gpu.clone());
    let (one, two) = (pool.allocate(MIB).unwrap(), pool.allocate(3 * MIB).unwrap());
    let device = a.allocate(MIB, s, Category::Inputs).unwrap();
    upload_pinned(&one, MIB, &mut device.write(s).unwrap(), 0).unwrap();
    drop((one, two));
    // The copy is not done, so its source still counts as in use.
    assert_eq!(pool.stats().active_bytes.current, MIB as u64);
    gpu.finish(s);
    drop(pool.allocate(MIB - 1).unwrap());
    pool.trim_to(MIB);
    let stats = pool.stats();
    let mib = |n: u64| n * MIB as u64;
    assert_eq!(stats.allocations, Stat { current: 1, peak: 2, allocated: 2, freed: 1 });
    assert_eq!(stats.allocated_bytes, Stat { current: mib(1), peak: mib(4), allocated: mib(4), freed: mib(3) });
    assert_eq!(stats.active_requests, Stat { current: 0, peak: 2, allocated: 3, freed: 3 });
    assert_eq!(stats.active_bytes, Stat { current: 0, peak: mib(4), allocated: mib(5), freed: mib(5) });
    let map = stats.to_map();
    assert_eq!((map["num_host_alloc"], map["num_host_free"], map["allocated_bytes.peak"], map.len()), (2, 1, mib(4), 18));
    pool.reset_peak_stats();
    assert_eq!((pool.stats().allocations.peak, pool.stats().active_bytes.peak), (1, 0));
}

#[test]
fn a_limit_gives_idle_blocks_back_first_and_then_refuses() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    let pool = PinnedPool::new(gpu.clone());
    pool.set_limit(Some(8 * MIB));
    let kept = pool.allocate(2 * MIB).unwrap();
    drop(pool.allocate(4 * MIB).unwrap());
    // What cannot be served leaves the idle blocks alone.
    let refused = pool.allocate(7 * MIB).unwrap_err();
    let AllocError::PinnedLimit { requested, reserved, limit, .. } = refused else { panic!("{refused}") };
    assert_eq!((requested, reserved, limit), (7 * MIB, 6 * MIB, 8 * MIB));
    // Idle ones make room.
    let block = pool.allocate(6 * MIB).unwrap();
    assert_eq!(pool.reserved_bytes(), 8 * MIB);
    // One that a copy still reads does not, until the copy is done.
    let device = a.allocate(6 * MIB, s, Category::Inputs).unwrap();
    upload_pinned(&block, 6 * MIB, &mut device.write(s).unwrap(), 0).unwrap();
    drop(block);
    assert!(matches!(pool.allocate(5 * MIB), Err(AllocError::PinnedLimit { .. })));
    gpu.finish(s);
    drop(pool.allocate(5 * MIB).unwrap());
    // A lower limit takes idle blocks at once, and none in use.
    pool.set_limit(Some(MIB));
    assert_eq!((pool.reserved_bytes(), pool.active_bytes(), pool.limit()), (2 * MIB, 2 * MIB, Some(MIB)));
    drop(kept);
    pool.set_limit(None);
    assert!(pool.allocate(16 * MIB).is_ok());
}

#[test]
fn trimming_to_a_size_gives_back_as_little_as_it_takes() {
    let pool = host_pool();
    drop([1, 2, 4, 8].map(|n| pool.allocate(n * MIB).unwrap()));
    for (to, left) in [(20, 15), (14, 14), (11, 10), (1, 0)] {
        pool.trim_to(to * MIB);
        assert_eq!(pool.reserved_bytes(), left * MIB, "to {to}");
    }
}

#[test]
fn large_sizes_that_vary_a_little_share_a_block() {
    let pool = host_pool();
    for mib in [100, 97, 95, 90, 99] {
        drop(pool.allocate(mib * MIB).unwrap());
    }
    assert_eq!((pool.stats().num_host_alloc, pool.reserved_bytes()), (1, 100 * MIB));
    drop(pool.allocate(70 * MIB).unwrap());
    assert_eq!(pool.stats().num_host_alloc, 2);
}

#[test]
fn threads_share_a_pool_within_its_limit() {
    let pool = host_pool();
    pool.set_limit(Some(6 * MIB));
    std::thread::scope(|scope| {
        for n in 0..4u8 {
            let pool = &pool;
            scope.spawn(move || {
                for i in 0..200 {
                    match pool.allocate((1 + (i + n as usize) % 5) * (MIB / 2)) {
                        Ok(mut block) => {
                            block.as_mut_slice().unwrap().fill(n);
                            assert!(block.as_slice().iter().step_by(4096).all(|b| *b == n));
                        }
                        Err(error) => assert!(matches!(error, AllocError::PinnedLimit { .. }), "{error}"),
                    }
                }
            });
        }
    });
    let stats = pool.stats();
    assert!(stats.allocated_bytes.peak <= 6 << 20, "{stats:?}");
    assert_eq!((stats.active_requests.current, stats.active_bytes.current), (0, 0));
    assert_eq!(stats.num_host_alloc - stats.num_host_free, stats.allocations.current);
    pool.trim();
    assert_eq!(pool.stats().allocated_bytes.current, 0);
}
