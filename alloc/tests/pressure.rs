//! Memory that is nearly full: reuse, growth, giving back, and the report when nothing helps.

mod common;
use common::{GIB, MIB, allocator, late};
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

/// C001: long-lived pieces of what was one huge block do not keep it from being served again.
#[test]
fn a_huge_block_is_served_again_although_pieces_of_it_live() {
    let (_, a) = simulated(GIB);
    let mut seed = 7u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    let mut kept: Vec<Block> = Vec::new();
    for _ in 0..50 {
        drop(take(&a, 600 * MIB).unwrap());
        kept.clear();
        let mut small: Vec<Block> = (0..30).map(|_| take(&a, 10 * MIB).unwrap()).collect();
        kept.extend((0..3).map(|_| small.swap_remove(random() % small.len())));
    }
    let peak = a.stats();
    assert!(peak.allocated.peak <= 630 * MIB && peak.reserved.peak <= GIB);
    a.empty_cache().unwrap();
    assert!(a.stats().reserved.current as f64 <= 1.15 * a.stats().allocated.current as f64);
}

/// C011.
#[test]
fn memory_of_a_loop_stays_flat() {
    let (_, a) = simulated(141 * GIB);
    for _ in 0..2000 {
        take(&a, 64 * MIB).unwrap();
    }
    assert_eq!(a.stats().reserved.peak, 64 * MIB);
}

/// Scenario 4: freed neighbours merge.
#[test]
fn freed_blocks_serve_requests_of_twice_their_size() {
    let (_, a) = simulated(GIB);
    drop((0..8).map(|_| take(&a, 16 * MIB).unwrap()).collect::<Vec<_>>());
    let calls = a.stats().driver_calls;
    let _large: Vec<Block> = (0..4).map(|_| take(&a, 32 * MIB).unwrap()).collect();
    assert_eq!(a.stats().driver_calls, calls);
    assert!(a.stats().reserved.peak <= 131 * MIB);
}

/// Scenario 4, under a full budget: two idle blocks that do not touch serve one request.
#[test]
fn scattered_idle_memory_serves_a_request_of_their_sum() {
    let (_, a) = simulated(64 * MIB);
    let mut blocks: Vec<Block> = (0..4).map(|_| take(&a, 16 * MIB).unwrap()).collect();
    blocks.remove(2);
    blocks.remove(0);
    let _whole = take(&a, 32 * MIB).unwrap();
    assert_eq!((a.stats().reserved.peak, a.stats().retries, a.stats().stitched_bytes), (64 * MIB, 0, 32 * MIB as u64));
    out_of_memory(take(&a, 512));
}

/// Scenario 5, a thousandth of its size.
#[test]
fn a_large_temporary_returns_although_activations_were_cut_from_it() {
    let (_, a) = simulated(GIB);
    a.set_limit(Some(1000 * MIB));
    drop(take(&a, 900 * MIB).unwrap());
    let _activations: Vec<Block> = (0..6).map(|_| take(&a, 16 * MIB).unwrap()).collect();
    take(&a, 900 * MIB).unwrap();
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
fn a_request_larger_than_the_device_leaves_the_cache_alone() {
    let (_, a) = simulated(64 * MIB);
    drop(take(&a, 32 * MIB).unwrap());
    out_of_memory(take(&a, 65 * MIB));
    assert_eq!(a.stats().reserved.current, 32 * MIB);
}

/// Scenario 6.
#[test]
fn a_failing_driver_call_is_rolled_back_exactly() {
    for k in 1.. {
        let (source, a) = simulated(GIB);
        let kept = take(&a, 3 * MIB).unwrap();
        drop(take(&a, 8 * MIB).unwrap());
        a.empty_cache().unwrap();
        let (before, taken) = (a.stats(), source.bytes_taken());
        source.fail_call(k);
        let result = take(&a, 20 * MIB);
        source.fail_call(0);
        let Err(error) = result else {
            // 10 pages: as many creates and maps, one set access.
            assert_eq!(k, 22);
            break;
        };
        assert!(matches!(error, AllocError::Source(SourceError::Driver { code: 999, .. })), "{error}");
        source.assert_clean();
        let after = a.stats();
        assert_eq!((after.reserved.current, source.bytes_taken()), (before.reserved.current, taken), "call {k}");
        assert_eq!((after.allocated.current, after.largest_free), (before.allocated.current, before.largest_free));
        drop((take(&a, 20 * MIB).unwrap(), kept));
        a.empty_cache().unwrap();
        assert_eq!(source.bytes_taken(), (0, 0));
        drop(a);
        assert!(source.is_pristine());
    }
}

/// Scenario 6, where growth joins idle memory on the left.
#[test]
fn a_failing_extension_leaves_the_idle_tail_idle() {
    for k in 1..=4 {
        let (source, a) = simulated(GIB);
        drop(take(&a, 8 * MIB).unwrap());
        source.fail_call(k);
        assert!(take(&a, 12 * MIB).is_err());
        source.fail_call(0);
        assert_eq!((a.stats().largest_free, a.stats().reserved.current), (8 * MIB, 8 * MIB));
        take(&a, 12 * MIB).unwrap();
        assert_eq!(a.stats().reserved.current, 12 * MIB);
    }
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

/// Scenario 8.
#[test]
fn changing_batches_settle_within_five_percent_and_without_driver_calls() {
    let (_, a) = simulated(141 * GIB);
    let weights: Vec<Block> = (0..24).map(|_| take(&a, 16 * MIB).unwrap()).collect();
    let step = |batch: usize| {
        let mut saved = Vec::new();
        for _ in 0..24 {
            let hidden = take(&a, batch * 64 * 1024).unwrap();
            saved.push(take(&a, batch * 256 * 1024).unwrap());
            saved.push(hidden);
        }
        while let Some(activation) = saved.pop() {
            take(&a, activation.bytes()).unwrap();
        }
    };
    step(64);
    let calls = a.stats().driver_calls;
    (0..1000).for_each(|i| step(1 + (i * 37) % 64));
    let stats = a.stats();
    assert_eq!(stats.driver_calls, calls);
    assert!(stats.reserved.peak as f64 <= 1.05 * stats.allocated.peak as f64, "{}", a.memory_summary());
    drop(weights);
}
