//! Known-hard cases of allocators, streams and page-locked memory, by number. Others are where their subject is: C005 and the
//! reuse of C095 in `pinned.rs`, C009 and C013 in `drops.rs`, C015 in `basics.rs`, C017 in `pressure.rs`.

mod common;
use common::{GIB, MIB, adversarial, allocator, late, random};
use kiln_alloc::sources::{HostSource, SimulatedSource};
use kiln_alloc::*;
use std::sync::Arc;

fn take(a: &Allocator, bytes: usize) -> Block {
    a.allocate(bytes, a.compute_stream(), Category::Temporaries).unwrap()
}

/// C001: long-lived pieces of what was one huge block do not keep it from being served again.
#[test]
fn a_huge_block_is_served_again_although_pieces_of_it_live() {
    let a = allocator(&Arc::new(SimulatedSource::new("dry-run", GIB)));
    let (mut random, mut kept) = (random(7), Vec::<Block>::new());
    for _ in 0..50 {
        drop(take(&a, 600 * MIB));
        kept.clear();
        let mut small: Vec<Block> = (0..30).map(|_| take(&a, 10 * MIB)).collect();
        kept.extend((0..3).map(|_| small.swap_remove(random() % small.len())));
    }
    let peak = a.stats();
    assert!(peak.allocated.peak <= 630 * MIB && peak.peak_ratio() <= 1.15, "{}", a.memory_summary());
    assert_eq!((peak.retries, peak.ooms), (0, 0));
    a.empty_cache().unwrap();
    let after = a.stats();
    assert!(after.reserved_to_live() <= 1.15, "{}", after.reserved_to_live());
}

/// C003: the block that another stream still uses is the only one left.
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
    assert_eq!((a.stats().retries, a.stats().ooms), (0, 0));
}

/// C007: a collective on a third stream; its tensor is dropped after the wait was enqueued, and the compute stream writes the
/// next one. What it reads must be its own. Smaller, since values are checked by byte.
#[test]
fn a_collective_on_a_third_stream_does_not_reach_into_the_next_tensor() {
    for gpu in [late(GIB), adversarial(GIB, 1), adversarial(GIB, 2)] {
        let a = allocator(&gpu);
        let (s0, collective) = (a.compute_stream(), a.new_stream().unwrap());
        for waits in [true, false] {
            let tensor = take(&a, 4 * 64 * 4096 * 4);
            gpu.touch(&tensor, s0, true).unwrap();
            gpu.touch(&tensor, &collective, true).unwrap();
            if waits {
                s0.wait(&collective.record().unwrap()).unwrap();
            }
            drop(tensor);
            let next = take(&a, 4 * 64 * 4096 * 4);
            gpu.touch(&next, s0, true).unwrap();
            gpu.touch(&next, s0, false).unwrap();
        }
        gpu.finish_all();
        gpu.assert_clean();
    }
}

/// C011.
#[test]
fn memory_of_a_loop_stays_flat() {
    let gpu = late(141 * GIB);
    let a = allocator(&gpu);
    for _ in 0..2000 {
        gpu.touch(&take(&a, 64 * MIB), a.compute_stream(), true).unwrap();
    }
    let stats = a.stats();
    assert!(stats.reserved.peak <= 66 * MIB, "{}", stats.reserved.peak);
}

/// C017: an error does not stick: the next small request and the next use succeed.
#[test]
fn what_comes_after_memory_was_out_succeeds() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let kept = take(&a, 60 * MIB);
    for _ in 0..3 {
        let refused = a.allocate(8 * MIB, a.compute_stream(), Category::Temporaries);
        let Err(AllocError::OutOfMemory(report)) = refused else { panic!("{refused:?}") };
        assert_eq!((report.requested, report.allocated, report.reserved), (8 * MIB, 60 * MIB, 60 * MIB));
        assert_eq!((report.driver_free, report.largest_free), (4 * MIB, 0));
        gpu.touch(&take(&a, MIB), a.compute_stream(), true).unwrap();
        gpu.touch(&kept, a.compute_stream(), true).unwrap();
        a.empty_cache().unwrap();
    }
}

/// C095: two page-locked buffers in turn feed a thousand batches.
#[test]
fn a_ring_of_two_buffers_feeds_every_batch_right() {
    let source = Arc::new(HostSource::new().unwrap());
    let a = Allocator::new(source.clone(), AllocatorConfig::default()).unwrap();
    let pool = PinnedPool::new(source);
    let loader = a.new_stream().unwrap();
    let mut ring = [0, 1].map(|_| pool.allocate(4096).unwrap());
    for batch in 0..1000u32 {
        let buffer = &mut ring[batch as usize % 2];
        buffer.as_mut_slice().unwrap().fill(batch as u8);
        let block = a.allocate(4096, &loader, Category::Inputs).unwrap();
        upload_pinned(buffer, 4096, &mut block.write(&loader).unwrap(), 0).unwrap();
        let mut back = vec![0; 4096];
        download(&block.read(a.compute_stream()).unwrap(), 0, &mut back).unwrap();
        assert!(back.iter().all(|byte| *byte == batch as u8));
    }
}

/// C097: a copy from pageable memory is work of its stream, so a kernel on any stream sees the data.
#[test]
fn kernels_on_any_stream_see_what_was_copied_from_pageable_memory() {
    for gpu in [late(GIB), adversarial(GIB, 5), adversarial(GIB, 6)] {
        let a = allocator(&gpu);
        let streams = [a.compute_stream().clone(), a.new_stream().unwrap(), a.new_stream().unwrap()];
        for bytes in [64 << 10, 256 << 10, (256 << 10) + 1, MIB, 8 * MIB] {
            let data = vec![1; bytes];
            for copied in &streams {
                for used in &streams {
                    let block = a.allocate(bytes, &streams[0], Category::Inputs).unwrap();
                    upload(&data, &mut block.write(copied).unwrap(), 0).unwrap();
                    gpu.touch(&block, used, false).unwrap();
                    gpu.touch(&block, used, true).unwrap();
                }
            }
        }
        gpu.finish_all();
        gpu.assert_clean();
    }
}
