//! Private pools: memory of a captured graph, which nobody else has and which stays where it is.

mod common;
use common::{MIB, allocator, late};
use kiln_alloc::sources::{DriverCall, HostSource, SimulatedConfig, SimulatedSource};
use kiln_alloc::*;
use std::sync::Arc;

const T: Category = Category::Temporaries;

fn address(block: &Block, s: &Stream) -> u64 {
    block.read(s).unwrap().address()
}

#[test]
fn a_pool_and_the_rest_never_serve_each_other() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    let [one, two] = [(); 2].map(|()| a.private_pool().unwrap());
    drop(a.allocate(8 * MIB, s, T).unwrap());
    let captured = one.allocate(8 * MIB, s, T).unwrap();
    drop(two.allocate(8 * MIB, s, T).unwrap());
    assert_eq!((one.reserved_bytes(), two.reserved_bytes(), a.stats().reserved.current), (8 * MIB, 8 * MIB, 24 * MIB));
    let at = address(&captured, s);
    drop(captured);
    let [outside, inside] = [a.allocate(8 * MIB, s, T).unwrap(), one.allocate(8 * MIB, s, T).unwrap()];
    assert_ne!(address(&outside, s), at);
    assert_eq!((address(&inside, s), a.stats().reserved.current), (at, 24 * MIB));
}

#[test]
fn a_capture_waits_for_nothing_and_moves_nothing() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let (s, other) = (a.compute_stream(), a.new_stream().unwrap());
    let pool = a.private_pool().unwrap();
    // Pending memory, idle memory, and pages that are about to leave an address: each would tempt an ordinary request.
    let mut blocks: Vec<Block> = (0..4).map(|_| a.allocate(12 * MIB, s, T).unwrap()).collect();
    blocks.iter().for_each(|block| gpu.touch(block, s, true).unwrap());
    blocks.remove(2);
    blocks.remove(0);
    a.set_limit(Some(48 * MIB));
    let moved = a.allocate(24 * MIB, s, T).unwrap();
    gpu.touch(&moved, &other, true).unwrap();
    drop(moved);
    a.set_limit(None);
    gpu.reset_driver_costs();
    let _captured: Vec<Block> = (0..4).map(|_| pool.allocate(4 * MIB, s, T).unwrap()).collect();
    assert!(matches!(pool.allocate(4 * MIB, s, T), Err(AllocError::OutOfMemory(_))));
    use DriverCall::*;
    for call in [Synchronize, WaitEvent, StreamWait, Record, Unmap, Destroy] {
        assert_eq!(gpu.driver_calls(call), 0, "{call:?}");
    }
    assert_eq!(pool.reserved_bytes(), 16 * MIB);
    // Outside the capture the same memory is there for the asking.
    a.allocate(24 * MIB, s, T).unwrap();
}

#[test]
fn a_pool_grows_within_the_limit() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let pool = a.private_pool().unwrap();
    a.set_limit(Some(10 * MIB));
    let _kept = pool.allocate(10 * MIB, a.compute_stream(), T).unwrap();
    match pool.allocate(2 * MIB, a.compute_stream(), T) {
        Err(AllocError::OutOfMemory(report)) => assert!(report.steps.iter().any(|step| step.contains("private pool"))),
        other => panic!("{other:?}"),
    }
    assert_eq!(a.stats().reserved.current, 10 * MIB);
}

#[test]
fn a_dropped_pool_serves_everybody_once_its_blocks_are_gone() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    let pool = a.private_pool().unwrap();
    let outlives = pool.allocate(32 * MIB, s, T).unwrap();
    gpu.touch(&outlives, s, true).unwrap();
    drop(pool.allocate(16 * MIB, s, T).unwrap());
    drop(pool);
    // Half of it moves into a block of its own; what lives stays.
    let large = a.allocate(32 * MIB, s, T).unwrap();
    gpu.touch(&large, s, true).unwrap();
    gpu.touch(&outlives, s, false).unwrap();
    drop((large, outlives));
    gpu.touch(&a.allocate(64 * MIB, s, T).unwrap(), s, true).unwrap();
    assert_eq!(a.stats().ooms, 0);
}

#[test]
fn a_later_pool_has_the_addresses_of_one_that_is_gone() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    let at = |pool: &PrivatePool| address(&pool.allocate(4 * MIB, s, T).unwrap(), s);
    let pool = a.private_pool().unwrap();
    let first = at(&pool);
    drop(pool);
    // Its memory is still there, so the next one lies elsewhere.
    let second = a.private_pool().unwrap();
    assert_ne!(at(&second), first);
    a.empty_cache().unwrap();
    let third = a.private_pool().unwrap();
    assert_eq!(at(&third), first);
    for _ in 0..100 {
        let pool = a.private_pool().unwrap();
        at(&pool);
        drop(pool);
        a.empty_cache().unwrap();
    }
    assert_eq!(a.stats().reserved.current, 8 * MIB);
    drop((second, third));
    drop(a);
    assert!(gpu.is_pristine());
}

#[test]
fn pools_work_without_virtual_memory_and_on_the_host() {
    let whole = SimulatedSource::with_config(SimulatedConfig { virtual_memory: false, ..SimulatedConfig::new("gpu", 256 * MIB) });
    let sources: [Arc<dyn Source>; 2] = [Arc::new(whole), Arc::new(HostSource::new().unwrap())];
    for source in sources {
        let a = Allocator::new(source, AllocatorConfig::default()).unwrap();
        let s = a.compute_stream();
        let pool = a.private_pool().unwrap();
        let block = pool.allocate(3 * MIB, s, T).unwrap();
        let at = address(&block, s);
        drop(block);
        a.empty_cache().unwrap();
        assert!(pool.reserved_bytes() >= 3 * MIB);
        assert_eq!(address(&pool.allocate(3 * MIB, s, T).unwrap(), s), at);
        drop(pool);
        a.empty_cache().unwrap();
        assert_eq!(a.stats().reserved.current, 0);
    }
}
