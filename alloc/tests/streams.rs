//! Blocks used on several streams, on a device that runs late.

mod common;
use common::{GIB, MIB, allocator, late};
use kiln_alloc::*;

#[test]
fn one_stream_reuses_at_once_while_its_work_is_in_flight() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let s = a.compute_stream();
    for _ in 0..100 {
        gpu.touch(&a.allocate(64 * MIB, s, Category::Temporaries).unwrap(), s, true).unwrap();
    }
    assert_eq!(a.stats().reserved.peak, 64 * MIB);
}

#[test]
fn a_read_elsewhere_waits_for_the_write_and_a_write_for_every_read() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let (s0, s1, s2) = (a.compute_stream(), &a.new_stream().unwrap(), &a.new_stream().unwrap());
    let block = a.allocate(MIB, s0, Category::Temporaries).unwrap();
    for (stream, write) in [(s0, true), (s1, false), (s2, false), (s0, false), (s1, true), (s0, false), (s2, true), (s0, true)] {
        gpu.touch(&block, stream, write).unwrap();
    }
}

#[test]
fn memory_reused_from_its_own_stream_is_ordered_before_a_foreign_use() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let (s0, s1) = (a.compute_stream(), &a.new_stream().unwrap());
    gpu.touch(&a.allocate(MIB, s0, Category::Temporaries).unwrap(), s0, true).unwrap();
    gpu.touch(&a.allocate(MIB, s0, Category::Temporaries).unwrap(), s1, true).unwrap();
}

#[test]
fn a_pending_block_is_split_and_its_rest_still_waits() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let (s0, s1) = (a.compute_stream(), &a.new_stream().unwrap());
    let block = a.allocate(64 * MIB, s0, Category::Temporaries).unwrap();
    gpu.touch(&block, s1, true).unwrap();
    drop(block);
    let blocks: Vec<Block> = (0..4).map(|_| a.allocate(16 * MIB, s0, Category::Temporaries).unwrap()).collect();
    blocks.iter().for_each(|block| gpu.touch(block, s0, true).unwrap());
}

/// Its own stream's later reads count too when a third stream takes a block over.
#[test]
fn a_taken_over_block_waits_for_its_own_stream_as_well() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let (s0, s1, s2) = (a.compute_stream(), &a.new_stream().unwrap(), &a.new_stream().unwrap());
    let block = a.allocate(64 * MIB, s0, Category::Temporaries).unwrap();
    [(s0, true), (s1, false), (s0, false)].into_iter().for_each(|(stream, write)| gpu.touch(&block, stream, write).unwrap());
    drop(block);
    gpu.touch(&a.allocate(64 * MIB, s2, Category::Temporaries).unwrap(), s2, true).unwrap();
}

#[test]
fn a_pending_block_of_a_stream_that_ended_waits_for_that_stream_as_well() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let (home, other) = (a.new_stream().unwrap(), a.new_stream().unwrap());
    let block = a.allocate(64 * MIB, &home, Category::Temporaries).unwrap();
    [(&home, true), (&other, false), (&home, false)]
        .into_iter()
        .for_each(|(stream, write)| gpu.touch(&block, stream, write).unwrap());
    drop(block);
    drop(home);
    gpu.finish(&other);
    let s = a.compute_stream();
    gpu.touch(&a.allocate(64 * MIB, s, Category::Temporaries).unwrap(), s, true).unwrap();
}

#[test]
fn a_stream_lives_as_long_as_a_block_allocated_on_it() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let s = a.new_stream().unwrap();
    let block = a.allocate(MIB, &s, Category::Temporaries).unwrap();
    drop(s);
    assert_eq!(block.home(), StreamId(1));
    assert_eq!(a.new_stream().unwrap().id(), StreamId(2));
    drop(block);
    assert_eq!(a.new_stream().unwrap().id(), StreamId(1));
}

#[test]
fn events_order_streams() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let s = a.new_stream().unwrap();
    let block = a.allocate(MIB, &s, Category::Temporaries).unwrap();
    gpu.touch(&block, &s, true).unwrap();
    let event = s.record().unwrap();
    assert!(!event.is_complete().unwrap());
    a.compute_stream().wait(&event).unwrap();
    a.compute_stream().synchronize().unwrap();
    assert!(event.is_complete().unwrap());
}

#[test]
fn all_memory_goes_back_with_the_last_handle() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let s = a.new_stream().unwrap();
    let block = a.allocate(MIB, a.compute_stream(), Category::Temporaries).unwrap();
    gpu.touch(&block, &s, true).unwrap();
    drop(a);
    drop(s);
    assert!(!gpu.is_pristine());
    drop(block);
    assert!(gpu.is_pristine());
}
