//! What drops do when things go wrong: they never panic, never wait, and never free early.

mod common;
use common::{GIB, MIB, allocator, late};
use kiln_alloc::sources::SimulatedSource;
use kiln_alloc::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn blocks_used_elsewhere(gpu: &SimulatedSource, a: &Allocator, stream: &Stream) -> Vec<Block> {
    let blocks: Vec<Block> = (0..100).map(|_| a.allocate(MIB, a.compute_stream(), Category::Temporaries).unwrap()).collect();
    blocks.iter().for_each(|block| gpu.touch(block, stream, true).unwrap());
    blocks
}

/// C013.
#[test]
fn drops_after_a_device_error_do_not_panic_and_the_error_comes_up_next() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let s = a.new_stream().unwrap();
    for unwinding in [false, true] {
        let blocks = blocks_used_elsewhere(&gpu, &a, &s);
        // A newer use than any event covers, so that each drop must record one.
        gpu.set_broken(true);
        if unwinding {
            let result = catch_unwind(AssertUnwindSafe(move || {
                let _blocks = blocks;
                std::panic::panic_any("unwinding");
            }));
            assert_eq!(*result.unwrap_err().downcast_ref::<&str>().unwrap(), "unwinding");
        } else {
            drop(blocks);
        }
        gpu.set_broken(false);
        let next = a.allocate(MIB, a.compute_stream(), Category::Temporaries);
        assert!(matches!(next, Err(AllocError::Source(SourceError::Driver { code: 700, .. }))), "{next:?}");
        // Told once; then everything works and nothing is lost.
        a.allocate(MIB, a.compute_stream(), Category::Temporaries).unwrap();
        a.empty_cache().unwrap();
        assert_eq!(a.stats().reserved.current, 0);
    }
}

#[test]
fn a_stream_that_ends_after_a_device_error_keeps_its_blocks_from_reuse() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let s = a.new_stream().unwrap();
    gpu.touch(&a.allocate(64 * MIB, &s, Category::Temporaries).unwrap(), &s, true).unwrap();
    gpu.set_broken(true);
    drop(s);
    gpu.set_broken(false);
    assert!(matches!(a.empty_cache(), Err(AllocError::Source(_))));
    let more = a.allocate(64 * MIB, a.compute_stream(), Category::Temporaries);
    assert!(matches!(more, Err(AllocError::OutOfMemory(_))));
    gpu.assert_clean();
}

#[test]
fn a_forgotten_token_never_frees_early() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let s = a.new_stream().unwrap();
    let block = a.allocate(64 * MIB, a.compute_stream(), Category::Temporaries).unwrap();
    // An earlier use that an event already covers must not stand for the forgotten one.
    gpu.touch(&block, &s, false).unwrap();
    let _covers = s.record().unwrap();
    gpu.finish(&s);
    std::mem::forget(block.read(&s).unwrap());
    assert!(matches!(block.write(&s), Err(AllocError::InUse { .. })));
    gpu.touch(&block, &s, false).unwrap();
    drop(block);
    assert_eq!(a.stats().pending, 64 * MIB);
    gpu.touch(&a.allocate(64 * MIB, a.compute_stream(), Category::Temporaries).unwrap(), a.compute_stream(), true).unwrap();
}

#[test]
fn a_block_whose_event_cannot_be_asked_stays_pending() {
    let gpu = late(GIB);
    let a = allocator(&gpu);
    let s = a.new_stream().unwrap();
    let blocks = blocks_used_elsewhere(&gpu, &a, &s);
    let _covers = s.record().unwrap();
    gpu.set_broken(true);
    drop(blocks);
    gpu.set_broken(false);
    assert_eq!(a.stats().pending, 100 * MIB);
    gpu.finish(&s);
    assert_eq!(a.stats().pending, 0);
}

#[test]
fn a_read_back_of_a_block_dropped_right_after_the_enqueue_is_right() {
    let a = Allocator::new(std::sync::Arc::new(sources::HostSource::new().unwrap()), AllocatorConfig::default()).unwrap();
    let s = a.new_stream().unwrap();
    for i in 0..1000u32 {
        let block = a.allocate(4096, a.compute_stream(), Category::Temporaries).unwrap();
        upload(&i.to_le_bytes(), &mut block.write(a.compute_stream()).unwrap(), 0).unwrap();
        let target = a.allocate(4, &s, Category::Temporaries).unwrap();
        copy(&block.read(&s).unwrap(), 0, &mut target.write(&s).unwrap(), 0, 4).unwrap();
        drop(block);
        let next = a.allocate(4096, a.compute_stream(), Category::Temporaries).unwrap();
        upload(&[255; 4096], &mut next.write(a.compute_stream()).unwrap(), 0).unwrap();
        let mut back = [0; 4];
        download(&target.read(&s).unwrap(), 0, &mut back).unwrap();
        assert_eq!(u32::from_le_bytes(back), i);
    }
}
