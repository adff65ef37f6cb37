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
