//! What once broke the allocator.

mod common;
use common::{GIB, MIB, allocator, late};
use kiln_alloc::policies::RoundUp;
use kiln_alloc::sources::{DriverCall, SimulatedConfig, SimulatedSource};
use kiln_alloc::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn take(a: &Allocator, bytes: usize) -> Result<Block> {
    a.allocate(bytes, a.compute_stream(), Category::Temporaries)
}

/// More blocks of nearly its size than a request looks at.
#[test]
fn a_fitting_block_is_found_behind_forty_smaller_ones_of_its_bin() {
    let a = allocator(&Arc::new(SimulatedSource::new("full", 64 * MIB)));
    let good = take(&a, MIB + 512).unwrap();
    let mut kept = vec![take(&a, 8192).unwrap()];
    let mut others = Vec::new();
    for _ in 0..40 {
        others.push(take(&a, MIB).unwrap());
        kept.push(take(&a, 8192).unwrap());
    }
    kept.push(take(&a, a.stats().largest_free).unwrap());
    a.set_limit(Some(a.stats().reserved.current));
    drop((good, others));
    take(&a, MIB + 512).unwrap();
}

/// Two faults: a stitch fails, and what it mapped cannot be unmapped at once.
#[test]
fn an_address_that_could_not_be_unmapped_is_not_used_until_it_is() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let mut blocks: Vec<Option<Block>> = (0..4).map(|_| take(&a, 16 * MIB).ok()).collect();
    (blocks[0], blocks[2]) = (None, None);
    gpu.fail_nth(DriverCall::SetAccess, 1);
    gpu.fail_nth(DriverCall::Unmap, 1);
    assert!(take(&a, 32 * MIB).is_err());
    (0..3).for_each(|_| drop(take(&a, 32 * MIB).unwrap()));
    drop(blocks);
    a.empty_cache().unwrap();
    drop(a);
    assert!(gpu.is_pristine());
    gpu.assert_clean();
}

#[test]
fn pages_that_could_not_go_back_at_once_go_later() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    gpu.run_out(20);
    gpu.fail_nth(DriverCall::Unmap, 1);
    drop(take(&a, 60 * MIB));
    // What the driver said about it comes out once.
    let _ = a.empty_cache();
    a.empty_cache().unwrap();
    assert_eq!((a.stats().reserved.current, gpu.bytes_taken()), (0, (0, 0)));
    let block = take(&a, 60 * MIB).unwrap();
    gpu.fail_nth(DriverCall::Destroy, 1);
    drop(block);
    let _ = a.empty_cache();
    a.empty_cache().unwrap();
    drop(take(&a, 64 * MIB).unwrap());
}

#[test]
fn there_are_only_so_many_private_pools() {
    let config = SimulatedConfig { virtual_memory: false, ..SimulatedConfig::new("plain", 64 * MIB) };
    let a = allocator(&Arc::new(SimulatedSource::with_config(config)));
    let pools: Vec<PrivatePool> = (0..70_000).map_while(|_| a.private_pool().ok()).collect();
    assert_eq!(pools.len(), 65_532);
    let (ours, theirs) = (take(&a, 1000).unwrap(), pools[65_531].allocate(1000, a.compute_stream(), Category::Inputs).unwrap());
    assert!(a.private_pool().is_err());
    drop((ours, theirs, pools));
    a.empty_cache().unwrap();
    assert_eq!(a.stats().reserved.current, 0);
    a.private_pool().unwrap();
}

/// Panics at its n-th decision about a rest.
struct Touchy(AtomicUsize);

impl Policy for Touchy {
    fn name(&self) -> &str {
        "touchy"
    }
    fn keeps_rest(&self, _size: usize, _rest: usize) -> bool {
        assert!(self.0.fetch_sub(1, Ordering::Relaxed) != 1, "enough");
        true
    }
    fn growth(&self, _size: usize) -> Growth {
        Growth::Pages { stitch_above: 1.0 }
    }
}

#[test]
fn a_policy_that_panics_loses_no_memory() {
    for n in 1..8 {
        let gpu = late(64 * MIB);
        let a = Allocator::new(gpu.clone(), AllocatorConfig::with_policy(Touchy(AtomicUsize::new(n)))).unwrap();
        let other = a.new_stream().unwrap();
        let attempt = std::panic::AssertUnwindSafe(|| {
            let mut blocks: Vec<Option<Block>> = (0..4).map(|_| take(&a, 16 * MIB).ok()).collect();
            blocks.iter().flatten().for_each(|block| gpu.touch(block, &other, true).unwrap());
            (blocks[0], blocks[2]) = (None, None);
            drop(take(&a, 10 * MIB + 5000).unwrap());
            gpu.finish_all();
            drop(take(&a, 31 * MIB).unwrap());
        });
        let _ = std::panic::catch_unwind(attempt);
        gpu.finish_all();
        a.empty_cache().unwrap();
        assert!(a.stats().reserved.current <= 32 * MIB, "{n}: {:?}", a.stats().reserved);
        assert_eq!((a.stats().live_blocks, a.stats().pending), (0, 0), "{n}");
        gpu.assert_clean();
    }
}

#[test]
fn a_hook_that_asks_another_allocator_finds_that_ones_hooks() {
    let (ours, theirs) = (allocator(&late(64 * MIB)), allocator(&late(64 * MIB)));
    let cache = Arc::new(std::sync::Mutex::new(take(&theirs, 60 * MIB).ok()));
    let held = cache.clone();
    let give: Arc<ReclaimHook> = Arc::new(move |_| drop(held.lock().unwrap().take()));
    theirs.add_reclaim_hook(&give);
    let moved = Arc::new(std::sync::Mutex::new(take(&ours, 60 * MIB).ok()));
    let (target, source) = (theirs.clone(), moved.clone());
    let offload: Arc<ReclaimHook> = Arc::new(move |_| {
        drop(take(&target, 60 * MIB).unwrap());
        drop(source.lock().unwrap().take());
    });
    ours.add_reclaim_hook(&offload);
    take(&ours, 32 * MIB).unwrap();
    assert!(cache.lock().unwrap().is_none());
}

#[test]
fn sizes_and_devices_beyond_reason_are_refused() {
    let config = SimulatedConfig { virtual_memory: false, addresses: u64::MAX, ..SimulatedConfig::new("huge", 1 << 60) };
    let a = allocator(&Arc::new(SimulatedSource::with_config(config)));
    assert!(matches!(take(&a, 1 << 58), Err(AllocError::OutOfMemory(_))));
    let a = Allocator::new(late(GIB), AllocatorConfig::with_policy(RoundUp::new(policies::Torch, 4.0))).unwrap();
    assert!(take(&a, isize::MAX as usize).is_err());
    assert!(Allocator::new(Arc::new(SimulatedSource::new("all", usize::MAX)), AllocatorConfig::default()).is_err());
}
