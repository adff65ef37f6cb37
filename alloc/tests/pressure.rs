//! Memory that is nearly full: reuse, growth, giving back, and the report when nothing helps.

mod common;
use common::{GIB, MIB, allocator, late};
use kiln_alloc::policies::{Paged, RoundUp};
use kiln_alloc::sources::SimulatedSource;
use kiln_alloc::*;
use std::sync::Arc;

fn simulated(capacity: usize) -> (Arc<SimulatedSource>, Allocator) {
    let source = Arc::new(SimulatedSource::new("dry-run", capacity));
    (source.clone(), Allocator::new(source, AllocatorConfig::default()).unwrap())
}
fn take(a: &Allocator, bytes: usize) -> Result<Block> {
    a.allocate(bytes, a.compute_stream(), Category::Temporaries)
}
fn out_of_memory(result: Result<Block>) -> Box<OomReport> {
    match result {
        Err(AllocError::OutOfMemory(report)) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_idle_tail_grows_by_what_is_missing_and_holes_are_filled_first() {
    let (_, a) = simulated(GIB);
    drop(take(&a, 30 * MIB).unwrap());
    let first = take(&a, 40 * MIB).unwrap();
    assert_eq!(a.stats().reserved.current, 40 * MIB);
    let end = take(&a, 2 * MIB).unwrap();
    let address = first.read(a.compute_stream()).unwrap().address();
    drop(first);
    a.empty_cache().unwrap();
    let again = take(&a, 40 * MIB).unwrap();
    assert_eq!(again.read(a.compute_stream()).unwrap().address(), address);
    drop(end);
}

#[test]
fn a_limit_holds_and_can_be_lifted() {
    let (_, a) = simulated(GIB);
    a.set_limit(Some(10 * MIB));
    let _kept = take(&a, 8 * MIB).unwrap();
    let report = out_of_memory(take(&a, 4 * MIB));
    assert_eq!((report.limit, report.reserved, report.requested), (Some(10 * MIB), 8 * MIB, 4 * MIB));
    // The cache goes before the limit is missed.
    drop(take(&a, 2 * MIB).unwrap());
    a.set_limit(None);
    take(&a, 100 * MIB).unwrap();
}

/// C017: what a report says, and that an error leaves nothing behind.
#[test]
fn out_of_memory_says_where_every_byte_is_and_leaves_the_allocator_usable() {
    let (_, a) = simulated(64 * MIB);
    let s = a.compute_stream();
    let weights = a.allocate(40 * MIB, s, Category::Parameters).unwrap();
    let _inputs = a.allocate(1000, s, Category::Inputs).unwrap();
    let report = out_of_memory(take(&a, 30 * MIB));
    assert_eq!(report.categories, [(Category::Parameters, 40 * MIB), (Category::Inputs, 1024)]);
    assert_eq!((report.allocated, report.reserved), (40 * MIB + 1024, 42 * MIB));
    assert_eq!((report.driver_free, report.driver_total), (22 * MIB, 64 * MIB));
    assert_eq!(report.largest_free, 2 * MIB - 1024);
    assert_eq!(report.top_sites.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [40 * MIB, 1000]);
    assert!(report.top_sites.iter().all(|(line, _)| line.contains("pressure.rs:")), "{report:?}");
    let text = AllocError::OutOfMemory(report).to_string();
    for part in ["dry-run is out of memory", "30.00 MiB", "parameters", "42.00 MiB", "gave the cache back"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    take(&a, 512).unwrap();
    drop(weights);
    take(&a, 60 * MIB).unwrap();
    assert_eq!(a.stats().ooms, 1);
}

#[test]
fn the_rows_of_the_report_add_up_whatever_the_policy_rounds() {
    let config = AllocatorConfig::with_policy(RoundUp::new(Paged::default(), 2.0));
    let a = Allocator::new(Arc::new(SimulatedSource::new("dry-run", 64 * MIB)), config).unwrap();
    let _live = take(&a, 10 * MIB).unwrap();
    drop(take(&a, 5 * MIB).unwrap());
    let report = out_of_memory(take(&a, 30 * MIB));
    assert_eq!((report.allocated, report.rounded_up, report.size), (10 * MIB, 10 * MIB, 60 * MIB));
    assert_eq!(report.reserved, report.allocated + report.rounded_up + report.pending + report.idle);
    let text = report.to_string();
    assert!(text.contains("30.00 MiB (60.00 MiB as a block) more") && text.contains("rounded up"), "{text}");
}

#[test]
fn a_limit_that_no_page_fits_is_explained() {
    let (_, a) = simulated(64 * MIB);
    let text = |limit: usize, bytes: usize| {
        a.set_limit(Some(limit));
        out_of_memory(take(&a, bytes)).to_string()
    };
    let pages = "memory comes in pages of 2.00 MiB";
    assert!(text(MIB, 1000).contains(pages) && text(MIB, 2 * MIB).contains(pages));
    assert!(text(5 * MIB, 5 * MIB).contains(pages));
    assert!(!text(4 * MIB, 5 * MIB).contains(pages));
    let _live = take(&a, 2 * MIB).unwrap();
    assert!(text(3 * MIB, MIB).contains(pages));
}

#[test]
fn a_limit_is_a_fraction_of_the_device() {
    let (_, a) = simulated(64 * MIB);
    a.set_limit_fraction(0.5).unwrap();
    for wrong in [-0.1, 1.5, f64::NAN] {
        assert!(matches!(a.set_limit_fraction(wrong), Err(AllocError::LimitFraction(_))), "{wrong}");
    }
    assert_eq!(a.stats().limit, Some(32 * MIB));
}

#[test]
fn a_request_larger_than_the_device_leaves_the_cache_alone() {
    let (_, a) = simulated(64 * MIB);
    drop(take(&a, 32 * MIB).unwrap());
    out_of_memory(take(&a, 65 * MIB));
    assert_eq!(a.stats().reserved.current, 32 * MIB);
}

/// C003: nothing is refused while pending memory, cached memory of other streams, or both would do.
#[test]
fn memory_is_out_only_after_pending_and_cached_blocks_were_tried() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let (s0, s1, s2) = (a.compute_stream(), &a.new_stream().unwrap(), &a.new_stream().unwrap());
    let blocks = [s0, s1, s2, s0].map(|s| {
        let block = a.allocate(16 * MIB, s, Category::Temporaries).unwrap();
        gpu.touch(&block, s, true).unwrap();
        block
    });
    gpu.touch(&blocks[3], s2, true).unwrap();
    drop(blocks);
    let whole = a.allocate(64 * MIB, s1, Category::Temporaries).unwrap();
    gpu.touch(&whole, s1, true).unwrap();
    let report = out_of_memory(a.allocate(2 * MIB, s0, Category::Temporaries));
    assert_eq!((report.allocated, report.pending), (64 * MIB, 0));
    for step in ["idle blocks of other streams", "stitched free pages", "in use until an event", "waited", "gave the cache back"]
    {
        assert!(report.steps.iter().any(|tried| tried.contains(step)), "{step} in {:?}", report.steps);
    }
}

#[test]
fn coarse_pages_begin_at_8_gib() {
    let (_, a) = simulated(64 * GIB);
    let _large = take(&a, 8 * GIB).unwrap();
    let before = a.stats();
    assert_eq!(before.segment.all.current as usize * 2 * MIB, before.reserved.current);
    let _more = take(&a, GIB).unwrap();
    let after = a.stats();
    let (pages, bytes) =
        (after.segment.all.current - before.segment.all.current, after.reserved.current - before.reserved.current);
    assert_eq!(pages as usize * 16 * MIB, bytes);
    // No room for a coarse page under the limit: a fine one serves.
    let limit = after.reserved.current + 2 * MIB;
    a.set_limit(Some(limit));
    let _rest = take(&a, after.largest_free).unwrap();
    let _fine = take(&a, 2 * MIB).unwrap();
    assert_eq!(a.stats().reserved.current, limit);
}
