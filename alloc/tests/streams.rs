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

/// Scenario 1 and C003: the block that another stream still uses is the only one left.
#[test]
fn a_block_still_in_use_elsewhere_serves_the_next_request_at_the_first_call() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let (s0, s1) = (a.compute_stream(), &a.new_stream().unwrap());
    let block = a.allocate(64 * MIB, s0, Category::Temporaries).unwrap();
    gpu.touch(&block, s1, true).unwrap();
    drop(block);
    assert_eq!(a.stats().pending, 64 * MIB);
    for stream in [s0, s1] {
        let again = a.allocate(64 * MIB, stream, Category::Temporaries).unwrap();
        gpu.touch(&again, stream, true).unwrap();
    }
    assert_eq!(a.stats().retries, 0);
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
