//! The allocator on the host: bytes, tokens, reuse, zero sizes.

use kiln_alloc::sources::{HostSource, SimulatedSource};
use kiln_alloc::*;
use std::sync::Arc;

fn host() -> Allocator {
    Allocator::new(Arc::new(HostSource::new().unwrap()), AllocatorConfig::default()).unwrap()
}

#[test]
fn bytes_go_in_and_come_back() {
    let a = host();
    let s = a.compute_stream();
    let data: Vec<u8> = (0..10_000).map(|i| i as u8).collect();
    let block = a.allocate(data.len() + 8, s, Category::Inputs).unwrap();
    upload(&data, &mut block.write(s).unwrap(), 8).unwrap();
    let other = a.allocate(data.len(), s, Category::Inputs).unwrap();
    copy(&block.read(s).unwrap(), 8, &mut other.write(s).unwrap(), 0, data.len()).unwrap();
    let mut back = vec![0; data.len()];
    download(&other.read(s).unwrap(), 0, &mut back).unwrap();
    assert_eq!(back, data);
    assert_eq!(other.read(s).unwrap().as_slice().unwrap(), data);
    assert_eq!(other.read(s).unwrap().address() % 512, 0);
}

#[test]
fn tokens_follow_the_aliasing_rules() {
    let a = host();
    let s = a.compute_stream();
    let block = a.allocate(100, s, Category::Temporaries).unwrap();
    let one = block.read(s).unwrap();
    let two = block.read(s).unwrap();
    assert!(matches!(block.write(s), Err(AllocError::InUse { wanted: "written", holder: "a reader", .. })));
    drop((one, two));
    let write = block.write(s).unwrap();
    assert!(matches!(block.read(s), Err(AllocError::InUse { wanted: "read", holder: "a writer", .. })));
    assert!(matches!(block.write(s), Err(AllocError::InUse { .. })));
    drop(write);
    block.read(s).unwrap();
}

#[test]
fn a_freed_block_serves_the_next_request_of_its_size() {
    let a = host();
    let s = a.compute_stream();
    let block = a.allocate(3 << 20, s, Category::Temporaries).unwrap();
    let address = block.read(s).unwrap().address();
    drop(block);
    let calls = a.stats().driver_calls;
    let again = a.allocate(3 << 20, s, Category::Temporaries).unwrap();
    assert_eq!(again.read(s).unwrap().address(), address);
    assert_eq!(a.stats().driver_calls, calls);
}

#[test]
fn zero_bytes_take_no_memory() {
    let a = host();
    let s = a.compute_stream();
    let block = a.allocate(0, s, Category::Temporaries).unwrap();
    assert_eq!(a.stats().reserved.current, 0);
    let mut token = block.write(s).unwrap();
    assert_ne!(token.address(), 0);
    assert_eq!(token.as_mut_slice().unwrap(), &[]);
    upload(&[], &mut token, 0).unwrap();
    assert!(matches!(upload(&[1], &mut token, 0), Err(AllocError::OutOfRange { bytes: 1, offset: 0, len: 0 })));
}

/// C015: a size that wraps when it is rounded is refused before anything is taken.
#[test]
fn sizes_no_device_can_address_are_refused() {
    let a = host();
    let s = a.compute_stream();
    for bytes in [usize::MAX, usize::MAX - 511, (isize::MAX as usize) + 1] {
        assert!(matches!(a.allocate(bytes, s, Category::Inputs), Err(AllocError::SizeOverflow(b)) if b == bytes as u128));
    }
    assert!(matches!(a.allocate(1 << 62, s, Category::Inputs), Err(AllocError::OutOfMemory(_))));
    assert_eq!(a.stats().reserved.peak, 0);
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let (a, b) = (host(), host());
    let block = a.allocate(8, a.compute_stream(), Category::Inputs).unwrap();
    let used = block.read(b.compute_stream()).map(drop).unwrap_err();
    assert_eq!(used.to_string(), "a block of cpu was used on a stream of another allocator of cpu");
    let given = a.allocate(8, b.compute_stream(), Category::Inputs).unwrap_err();
    assert_eq!(given.to_string(), "a stream of cpu was given to another allocator of cpu");
    let gpu = SimulatedSource::new("gpu", 1 << 30);
    let gpu = Allocator::new(Arc::new(gpu), AllocatorConfig::default()).unwrap();
    let used = block.read(gpu.compute_stream()).map(drop).unwrap_err();
    assert_eq!(used.to_string(), "a block of cpu was used on a stream of gpu");
    let given = gpu.allocate(8, b.compute_stream(), Category::Inputs).unwrap_err();
    assert_eq!(given.to_string(), "a stream of cpu was given to an allocator of gpu");
}

#[test]
fn statistics_count_requests_rounded_to_512_bytes() {
    let a = host();
    let s = a.compute_stream();
    let block = a.allocate(1000, s, Category::Temporaries).unwrap();
    let small = a.allocate(1, s, Category::Inputs).unwrap();
    let stats = a.stats();
    assert_eq!((stats.allocated.current, stats.requested.current, stats.live_blocks), (1536, 1001, 2));
    block.set_category(Category::Activations);
    let stats = a.stats();
    assert_eq!(stats.category(Category::Temporaries), CategoryStats { current: 0, peak: 1024 });
    assert_eq!(stats.category(Category::Activations), CategoryStats { current: 1024, peak: 1024 });
    drop((block, small));
    a.reset_peak_stats();
    let stats = a.stats();
    assert_eq!((stats.allocated.peak, stats.live_blocks, stats.allocations), (0, 0, 2));
    assert_eq!(stats.largest_free, stats.reserved.current);
}

#[test]
fn the_log_numbers_blocks_from_its_start() {
    let a = host();
    let s = a.compute_stream();
    let old = a.allocate(8, s, Category::Inputs).unwrap();
    a.start_log();
    let new = a.allocate(0, s, Category::Gradients).unwrap();
    drop((old, new));
    let event = LogEvent::Alloc { id: 0, bytes: 0, stream: StreamId(0), category: Category::Gradients };
    assert_eq!(a.take_log(), [event, LogEvent::Free { id: u64::MAX }, LogEvent::Free { id: 0 }]);
    assert_eq!(a.take_log(), []);
}

#[test]
fn an_emptied_cache_gives_idle_memory_back_and_keeps_live_bytes() {
    let a = host();
    let s = a.compute_stream();
    let keep = a.allocate(5 << 20, s, Category::Parameters).unwrap();
    keep.write(s).unwrap().as_mut_slice().unwrap().fill(7);
    drop(a.allocate(64 << 20, s, Category::Temporaries).unwrap());
    a.empty_cache().unwrap();
    assert_eq!(a.stats().reserved.current, 6 << 20);
    assert!(keep.read(s).unwrap().as_slice().unwrap().iter().all(|b| *b == 7));
    drop(keep);
    a.empty_cache().unwrap();
    assert_eq!(a.stats().reserved.current, 0);
    a.allocate(1, s, Category::Temporaries).unwrap();
}

#[test]
fn the_summary_names_every_category() {
    let a = host();
    let _block = a.allocate(3 << 19, a.compute_stream(), Category::Activations).unwrap();
    let text = a.memory_summary();
    assert!(Category::ALL.iter().all(|c| text.contains(c.name())));
    assert!(text.contains("1.50 MiB"), "{text}");
}
