//! The allocator on a real GPU; reported as ignored, with the reason, where there is none.

#[path = "cuda/moving.rs"]
mod moving;
#[path = "cuda/raw.rs"]
mod raw;

use kiln_alloc::sources::CudaSource;
use kiln_alloc::*;
use libtest_mimic::{Arguments, Failed, Trial};
use std::sync::Arc;

const MIB: usize = 1 << 20;

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

struct Gpu {
    source: Arc<dyn Source>,
    a: Allocator,
}

fn gpu() -> Result<Gpu> {
    let source: Arc<dyn Source> = Arc::new(CudaSource::new(0)?);
    Ok(Gpu { a: Allocator::new(source.clone(), AllocatorConfig::default())?, source })
}
fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i.wrapping_mul(31) ^ (i >> 9) ^ seed) as u8).collect()
}
fn take(a: &Allocator, bytes: usize, stream: &Stream) -> Result<Block> {
    a.allocate(bytes, stream, Category::Temporaries)
}
fn read_back(block: &Block, stream: &Stream) -> Result<Vec<u8>> {
    let mut back = vec![0; block.bytes()];
    download(&block.read(stream)?, 0, &mut back)?;
    Ok(back)
}
fn is_out_of_memory(result: &Result<Block>) -> bool {
    matches!(result, Err(AllocError::OutOfMemory(_)))
}

fn bytes_go_in_and_come_back() -> Outcome {
    let Gpu { a, .. } = gpu()?;
    let s = a.compute_stream();
    for bytes in [1, 513, 3 * MIB + 7, 40 * MIB] {
        let data = pattern(bytes, bytes);
        let (one, two) = (take(&a, bytes, s)?, take(&a, bytes + 5, s)?);
        upload(&data, &mut one.write(s)?, 0)?;
        copy(&one.read(s)?, 0, &mut two.write(s)?, 5, bytes)?;
        assert!(read_back(&two, s)?[5..] == data);
        assert!(one.read(s)?.as_slice().is_none());
    }
    Ok(())
}

/// C009: a read on a second stream of a block dropped right after the enqueue, its memory written anew at once.
fn a_read_elsewhere_sees_the_block_although_it_was_dropped() -> Outcome {
    let Gpu { a, .. } = gpu()?;
    let (s0, s1) = (a.compute_stream(), &a.new_stream()?);
    let bytes = MIB;
    let pinned = PinnedPool::new(Arc::new(CudaSource::new(0)?));
    for i in 0..1000usize {
        let mut fill = pinned.allocate(bytes)?;
        fill.as_mut_slice()?.fill(i as u8);
        let target = take(&a, bytes, s1)?;
        {
            let block = take(&a, bytes, s0)?;
            upload_pinned(&fill, bytes, &mut block.write(s0)?, 0)?;
            copy(&block.read(s1)?, 0, &mut target.write(s1)?, 0, bytes)?;
        }
        let next = take(&a, bytes, s0)?;
        let mut other = pinned.allocate(bytes)?;
        other.as_mut_slice()?.fill(!(i as u8));
        upload_pinned(&other, bytes, &mut next.write(s0)?, 0)?;
        assert!(read_back(&target, s1)?.iter().all(|b| *b == i as u8), "round {i}");
    }
    Ok(())
}

fn writes_and_reads_alternate_between_streams() -> Outcome {
    let Gpu { a, .. } = gpu()?;
    let streams = [a.compute_stream().clone(), a.new_stream()?, a.new_stream()?];
    let (block, scratch) = (take(&a, 4 * MIB, &streams[0])?, take(&a, 4 * MIB, &streams[0])?);
    for i in 0..500usize {
        let s = &streams[i % 3];
        upload(&vec![i as u8; 4 * MIB], &mut block.write(s)?, 0)?;
        copy(&block.read(&streams[(i + 1) % 3])?, 0, &mut scratch.write(&streams[(i + 1) % 3])?, 0, 4 * MIB)?;
        let mut ends = [0; 2];
        download(&scratch.read(&streams[(i + 2) % 3])?, 0, &mut ends[..1])?;
        download(&scratch.read(&streams[(i + 2) % 3])?, 4 * MIB - 1, &mut ends[1..])?;
        assert_eq!(ends, [i as u8; 2]);
    }
    Ok(())
}

/// C095: a page-locked source that is dropped and refilled right after the copy was enqueued.
fn page_locked_sources_outlive_their_copies() -> Outcome {
    let Gpu { a, source } = gpu()?;
    let pool = PinnedPool::new(source);
    let s = a.compute_stream();
    let bytes = 8 * MIB;
    let device = take(&a, bytes, s)?;
    for i in 0..1000usize {
        let value = (i % 251) as u8;
        let mut block = pool.allocate(bytes)?;
        block.as_mut_slice()?.fill(value);
        upload_pinned(&block, bytes, &mut device.write(s)?, 0)?;
        drop(block);
        pool.allocate(bytes)?.as_mut_slice()?.fill(255);
        assert!(read_back(&device, s)? == vec![value; bytes], "round {i}");
    }
    // One that its copy still reads and one for the fill after it, again and again.
    assert!(pool.reserved_bytes() <= 2 * bytes);
    // Filling the same block again waits for the copy.
    let mut block = pool.allocate(bytes)?;
    for i in 0..50u8 {
        block.as_mut_slice()?.fill(i);
        upload_pinned(&block, bytes, &mut device.write(s)?, 0)?;
        block.as_mut_slice()?.fill(255);
        assert!(read_back(&device, s)?.iter().all(|b| *b == i));
    }
    // A slice of page-locked memory given as plain bytes may be changed on return.
    block.as_mut_slice()?.fill(1);
    upload(block.as_slice(), &mut device.write(s)?, 0)?;
    block.as_mut_slice()?.fill(2);
    assert!(read_back(&device, s)?.iter().all(|b| *b == 1));
    Ok(())
}

/// C095: a ring of two page-locked buffers feeds a ring of device batches, each checked by its sum.
fn a_ring_of_two_page_locked_buffers_feeds_a_loop() -> Outcome {
    let Gpu { a, source } = gpu()?;
    let pool = PinnedPool::new(source);
    let (s, bytes) = (a.compute_stream(), MIB);
    let mut ring = [pool.allocate(bytes)?, pool.allocate(bytes)?];
    let sum =
        |data: &[u8]| data.chunks_exact(8).fold(0u64, |sum, c| sum.rotate_left(1) ^ u64::from_le_bytes(c.try_into().unwrap()));
    let mut waiting: Option<(Block, u64)> = None;
    for i in 0..1000usize {
        let block = &mut ring[i % 2];
        let data = block.as_mut_slice()?;
        data.fill(i as u8);
        data[i..][..8].copy_from_slice(&(i as u64).to_le_bytes());
        let wanted = sum(data);
        let batch = take(&a, bytes, s)?;
        upload_pinned(block, bytes, &mut batch.write(s)?, 0)?;
        // The batch before is looked at only now, with its buffer's successor already in flight.
        if let Some((before, wanted)) = waiting.replace((batch, wanted)) {
            assert_eq!(sum(&read_back(&before, s)?), wanted, "batch {}", i - 1);
        }
    }
    Ok(())
}

/// C097: a pageable source is ordered with work on any stream, and may be reused on return.
fn pageable_sources_are_ordered_with_their_stream() -> Outcome {
    let Gpu { a, .. } = gpu()?;
    for stream in [a.compute_stream(), &a.new_stream()?] {
        for round in 0..20usize {
            for bytes in [64 << 10, 256 << 10, MIB, 8 * MIB] {
                let (from, to) = (take(&a, bytes, stream)?, take(&a, bytes, stream)?);
                let mut data = pattern(bytes, round);
                let wanted = data.clone();
                upload(&data, &mut from.write(stream)?, 0)?;
                data.fill(0);
                copy(&from.read(stream)?, 0, &mut to.write(stream)?, 0, bytes)?;
                assert!(read_back(&to, stream)? == wanted, "{bytes} bytes, round {round}");
            }
        }
    }
    Ok(())
}

/// C011.
fn memory_of_a_loop_stays_flat() -> Outcome {
    let Gpu { a, .. } = gpu()?;
    let s = a.compute_stream();
    let calls = a.stats().driver_calls;
    for i in 0..2000 {
        let block = take(&a, 64 * MIB, s)?;
        upload(&[i as u8; 512], &mut block.write(s)?, 0)?;
    }
    assert_eq!(a.stats().reserved.peak, 64 * MIB);
    // 32 pages of 2 MiB, created and mapped, and one access call: all in the first round.
    assert_eq!(a.stats().driver_calls - calls, 65);
    Ok(())
}

/// C017: a limit, an error that says everything, and work that goes on.
fn out_of_memory_leaves_the_device_usable() -> Outcome {
    let Gpu { a, source } = gpu()?;
    let s = a.compute_stream();
    a.set_limit(Some(256 * MIB));
    let kept = take(&a, 200 * MIB, s)?;
    let refused = take(&a, 100 * MIB, s);
    assert!(is_out_of_memory(&refused));
    println!("{}", refused.unwrap_err());
    a.set_limit(None);
    // More than is free on the device, by the driver's own refusal.
    let refused = take(&a, source.memory_info()?.free + 100 * MIB, s);
    assert!(is_out_of_memory(&refused));
    assert_eq!(a.stats().reserved.current, 200 * MIB);
    let data = pattern(MIB, 3);
    let small = take(&a, MIB, s)?;
    upload(&data, &mut small.write(s)?, 0)?;
    assert!(read_back(&small, s)? == data);
    upload(&data, &mut kept.write(s)?, 100 * MIB)?;
    a.synchronize()?;
    Ok(())
}

fn an_emptied_cache_gives_memory_back() -> Outcome {
    let Gpu { a, source } = gpu()?;
    let s = a.compute_stream();
    let kept = take(&a, 4 * MIB, s)?;
    let data = pattern(4 * MIB, 9);
    upload(&data, &mut kept.write(s)?, 0)?;
    a.synchronize()?;
    let free = source.memory_info()?.free;
    drop(take(&a, 512 * MIB, s)?);
    assert!(source.memory_info()?.free + 512 * MIB <= free);
    a.empty_cache()?;
    assert!(source.memory_info()?.free + 8 * MIB >= free);
    assert_eq!(a.stats().reserved.current, 4 * MIB);
    assert!(read_back(&kept, s)? == data);
    Ok(())
}

/// Scenario 7: buffers dropped right after their work was enqueued, with the cache emptied in between.
fn emptying_the_cache_waits_for_work_in_flight() -> Outcome {
    let Gpu { a, source } = gpu()?;
    let pool = PinnedPool::new(source);
    let (s, other) = (a.compute_stream(), a.new_stream()?);
    let bytes = 2048 * 7168 * 4;
    let last = take(&a, bytes, s)?;
    for i in 0..200u8 {
        let mut fill = pool.allocate(bytes)?;
        fill.as_mut_slice()?[bytes - 1] = i;
        let block = take(&a, bytes, s)?;
        upload_pinned(&fill, bytes, &mut block.write(s)?, 0)?;
        copy(&block.read(&other)?, 0, &mut last.write(&other)?, 0, bytes)?;
        drop(block);
        if i % 3 == 0 {
            a.empty_cache()?;
        }
        let mut end = [0];
        download(&last.read(s)?, bytes - 1, &mut end)?;
        assert_eq!(end, [i]);
    }
    Ok(())
}

/// Scenario 1 and 3: pending memory is taken over with a wait on the device, and short-lived streams leave nothing behind.
fn memory_moves_between_streams() -> Outcome {
    let Gpu { a, .. } = gpu()?;
    for i in 0..100u8 {
        let s = a.new_stream()?;
        let (one, two) = (take(&a, 256 * MIB, &s)?, take(&a, 256 * MIB, &s)?);
        upload(&[i; 4096], &mut one.write(&s)?, 0)?;
        copy(&one.read(&s)?, 0, &mut two.write(&s)?, 256 * MIB - 4096, 4096)?;
        let mut end = [0];
        download(&two.read(a.compute_stream())?, 256 * MIB - 1, &mut end)?;
        assert_eq!(end, [i]);
    }
    // Two per cent ahead of need, in whole pages.
    assert!(a.stats().reserved.peak <= 524 * MIB, "{}", a.stats().reserved.peak);
    Ok(())
}

fn threads_share_the_device() -> Outcome {
    let Gpu { a, .. } = gpu()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u8)
            .map(|n| {
                let a = &a;
                scope.spawn(move || -> Result<()> {
                    let s = a.new_stream()?;
                    for i in 0..100usize {
                        let block = take(a, (1 + i % 7) * MIB, &s)?;
                        upload(&vec![n; block.bytes()], &mut block.write(&s)?, 0)?;
                        assert!(read_back(&block, &s)?.iter().all(|b| *b == n));
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread panicked"))
    })?;
    a.empty_cache()?;
    assert_eq!((a.stats().live_blocks, a.stats().reserved.current), (0, 0));
    Ok(())
}

fn the_driver_describes_the_device() -> Outcome {
    let info = driver::device_info(0)?;
    println!("{info:?}, driver {:?}", driver::version()?);
    assert!(info.total_memory > 0 && info.multiprocessors > 0 && info.virtual_memory && info.capability.0 >= 7);
    assert!(matches!(driver::device_info(driver::device_count()?), Err(SourceError::NoCuda(_))));
    driver::bind(0)?;
    let source = CudaSource::new(0)?;
    assert!(source.info().memory().starts_with("virtual memory, 2.00 MiB"));
    println!("{source:?}\n{}", gpu()?.a.memory_summary());
    Ok(())
}

fn main() {
    let missing = driver::probe().err();
    if let Some(why) = &missing {
        println!("ignored, since {why}");
    }
    let test = |name: &'static str, run: fn() -> Outcome| {
        Trial::test(name, move || run().map_err(|e| Failed::from(e.to_string()))).with_ignored_flag(missing.is_some())
    };
    let trials = vec![
        test("the_driver_describes_the_device", the_driver_describes_the_device),
        test("bytes_go_in_and_come_back", bytes_go_in_and_come_back),
        test("a_read_elsewhere_sees_the_block_although_it_was_dropped", a_read_elsewhere_sees_the_block_although_it_was_dropped),
        test("writes_and_reads_alternate_between_streams", writes_and_reads_alternate_between_streams),
        test("page_locked_sources_outlive_their_copies", page_locked_sources_outlive_their_copies),
        test("pageable_sources_are_ordered_with_their_stream", pageable_sources_are_ordered_with_their_stream),
        test("memory_of_a_loop_stays_flat", memory_of_a_loop_stays_flat),
        test("out_of_memory_leaves_the_device_usable", out_of_memory_leaves_the_device_usable),
        test("an_emptied_cache_gives_memory_back", an_emptied_cache_gives_memory_back),
        test("emptying_the_cache_waits_for_work_in_flight", emptying_the_cache_waits_for_work_in_flight),
        test("memory_moves_between_streams", memory_moves_between_streams),
        test("threads_share_the_device", threads_share_the_device),
        test("a_ring_of_two_page_locked_buffers_feeds_a_loop", a_ring_of_two_page_locked_buffers_feeds_a_loop),
        test("plain_memory_is_allocated_copied_and_freed", raw::plain_memory_is_allocated_copied_and_freed),
        test("fills_happen_in_stream_order", raw::fills_happen_in_stream_order),
        test("exportable_handles_can_be_exported_and_used", raw::exportable_handles_can_be_exported_and_used),
        test("free_pages_move_while_work_is_in_flight", moving::free_pages_move_while_work_is_in_flight),
        test("values_survive_when_everything_moves_under_a_limit", moving::values_survive_when_everything_moves_under_a_limit),
        test("values_survive_without_virtual_memory", moving::values_survive_without_virtual_memory),
        test("a_private_pool_keeps_its_addresses", moving::a_private_pool_keeps_its_addresses),
        test("freed_bytes_are_poisoned_on_request", moving::freed_bytes_are_poisoned_on_request),
        test("eight_threads_cross_streams", moving::eight_threads_cross_streams),
        test("peers_are_granted_access_or_refused", raw::peers_are_granted_access_or_refused),
    ];
    let mut arguments = Arguments::from_args();
    // The tests measure the device's free memory, so they run one by one.
    arguments.test_threads = Some(1);
    let conclusion = libtest_mimic::run(&arguments, trials);
    conclusion.exit();
}
