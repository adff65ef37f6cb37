//! Statistics as the public sees them: names, formulas, the table.

mod common;
use common::{MIB, allocator, late};
use kiln_alloc::sources::{HostSource, SimulatedSource};
use kiln_alloc::*;
use std::collections::BTreeSet;
use std::sync::Arc;

fn simulated(bytes: usize) -> Allocator {
    Allocator::new(Arc::new(SimulatedSource::new("dry-run", bytes)), AllocatorConfig::default()).unwrap()
}
fn take(a: &Allocator, bytes: usize) -> Block {
    a.allocate(bytes, a.compute_stream(), Category::Temporaries).unwrap()
}

#[test]
fn the_map_has_every_key_of_pytorch() {
    let a = simulated(64 * MIB);
    let (small, large) = (take(&a, 1000), take(&a, 3 * MIB));
    drop((small, take(&a, MIB)));
    let map = a.stats().to_map();
    let metrics = [
        "allocation",
        "segment",
        "active",
        "inactive_split",
        "allocated_bytes",
        "reserved_bytes",
        "active_bytes",
        "inactive_split_bytes",
        "requested_bytes",
    ];
    let mut names: Vec<String> = vec!["oversize_allocations".into(), "oversize_segments".into()];
    for metric in metrics {
        names.extend(["all", "small_pool", "large_pool"].map(|pool| format!("{metric}.{pool}")));
    }
    let mut keys: BTreeSet<String> = names
        .iter()
        .flat_map(|name| ["current", "peak", "allocated", "freed"].map(|column| format!("{name}.{column}")))
        .collect();
    let events =
        ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size"];
    keys.extend(events.map(String::from));
    let missing: Vec<_> = keys.iter().filter(|key| !map.contains_key(*key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // Kiln's own.
    let ours: BTreeSet<&str> = map.keys().filter(|key| !keys.contains(*key)).map(String::as_str).collect();
    let single = ["pending_bytes", "largest_free_bytes", "free_page_bytes", "num_stitches", "stitched_bytes", "num_steals"];
    let categories = ["parameters", "gradients", "optimizer_state", "activations", "temporaries", "inputs", "workspace"];
    let rows: Vec<String> =
        categories.iter().flat_map(|c| ["current", "peak"].map(|column| format!("category_bytes.{c}.{column}"))).collect();
    let mut expected: BTreeSet<&str> = rows.iter().map(String::as_str).chain(single).collect();
    expected.insert("num_driver_calls");
    assert_eq!(ours, expected);
    assert_eq!(
        (map["allocation.all.allocated"], map["allocation.small_pool.freed"], map["allocation.large_pool.current"]),
        (3, 1, 1)
    );
    // Only what lies in the zone of small blocks counts as small.
    assert_eq!((map["allocated_bytes.small_pool.peak"], map["allocated_bytes.large_pool.peak"]), (1024, 4 * MIB as u64));
    assert_eq!((map["requested_bytes.all.current"], map["max_split_size"]), (large.bytes() as u64, u64::MAX));
    a.set_limit(Some(MIB));
    assert_eq!(a.stats().to_map()["limit_bytes"], MIB as u64);
}

#[test]
fn reserved_bytes_are_active_or_idle() {
    let a = simulated(64 * MIB);
    let blocks: Vec<Block> = [5000, 3 * MIB, 700, 9 * MIB].map(|bytes| take(&a, bytes)).into();
    let check = |live: u64| {
        let stats = a.stats();
        let (active, idle) = (stats.active_bytes.all.current, stats.inactive_split_bytes.all.current);
        assert_eq!(active + idle, stats.reserved_bytes.all.current);
        assert_eq!((stats.allocation.all.current, stats.active.all.current), (live, live));
    };
    let mut live = 4;
    check(live);
    for block in blocks {
        drop(block);
        live -= 1;
        check(live);
    }
    a.empty_cache().unwrap();
    let stats = a.stats();
    assert_eq!((stats.reserved_bytes.all.current, stats.segment.all.current, stats.inactive_split.all.current), (0, 0, 0));
    assert_eq!(stats.reserved_bytes.all.allocated, stats.reserved_bytes.all.freed);
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (stats.segment.all.allocated, stats.segment.all.freed));
    assert_eq!(stats.num_sync_all_streams, 1);
}

#[test]
fn a_freed_block_stays_active_until_no_stream_uses_it() {
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let (s0, s1) = (a.compute_stream(), &a.new_stream().unwrap());
    let blocks = [64 * MIB, 40 * MIB].map(|bytes| {
        let block = a.allocate(bytes, s0, Category::Temporaries).unwrap();
        gpu.touch(&block, s1, true).unwrap();
        drop(block);
        let stats = a.stats();
        assert_eq!(
            (stats.allocation.all.current, stats.allocated_bytes.all.current, stats.requested_bytes.all.current),
            (0, 0, 0)
        );
        // The second is cut from the first, and its rest is as active.
        (stats.active.all.current, stats.active_bytes.all.current as usize, stats.steals)
    });
    assert_eq!(blocks, [(1, 64 * MIB, 0), (2, 64 * MIB, 1)]);
    gpu.finish(s1);
    let stats = a.stats();
    assert_eq!((stats.active.all.current, stats.active_bytes.all.current, stats.steals), (0, 0, 1));
    assert_eq!((stats.inactive_split.all.current, stats.inactive_split_bytes.all.current), (1, 64 << 20));
}

#[test]
fn totals_begin_anew_when_they_are_reset() {
    let a = simulated(64 * MIB);
    let block = take(&a, 2 * MIB);
    assert!(a.allocate(65 * MIB, a.compute_stream(), Category::Inputs).is_err());
    a.reset_accumulated_stats();
    let stats = a.stats();
    let bytes = 2 << 20;
    assert_eq!(stats.allocated_bytes.large_pool, Stat { current: bytes, peak: bytes, allocated: 0, freed: 0 });
    assert_eq!((stats.ooms, stats.allocations), (0, 1));
    drop(block);
    assert_eq!(a.stats().allocated_bytes.all, Stat { current: 0, peak: bytes, allocated: 0, freed: bytes });
}

#[test]
fn fragmentation_is_zero_with_nothing_idle_and_in_one_block() {
    let mut stats = MemoryStats::default();
    assert_eq!(stats.fragmentation(), 0.0);
    stats.inactive_split_bytes.all.current = 8 << 20;
    stats.largest_free = 8 << 20;
    assert_eq!(stats.fragmentation(), 0.0);
    stats.largest_free = 2 << 20;
    assert_eq!(stats.fragmentation(), 0.75);
}

#[test]
fn ratios_of_nothing_are_one_and_of_waste_alone_infinite() {
    let mut stats = MemoryStats::default();
    assert_eq!((stats.reserved_to_live(), stats.peak_ratio()), (1.0, 1.0));
    stats.reserved = CategoryStats { current: 2 * MIB, peak: 4 * MIB };
    assert_eq!((stats.reserved_to_live(), stats.peak_ratio()), (f64::INFINITY, f64::INFINITY));
    stats.allocated.current = MIB;
    stats.requested.peak = 3 * MIB;
    assert_eq!((stats.reserved_to_live(), stats.peak_ratio()), (2.0, 4.0 / 3.0));
}

#[test]
fn fragmentation_counts_what_lies_between_live_blocks() {
    let a = simulated(64 * MIB);
    let mut blocks: Vec<Block> = (0..4).map(|_| take(&a, 4 * MIB)).collect();
    blocks.remove(2);
    blocks.remove(0);
    let stats = a.stats();
    assert_eq!((stats.fragmentation(), stats.reserved_to_live(), stats.peak_ratio()), (0.5, 2.0, 1.0));
}

#[test]
fn the_summary_is_the_table_pytorch_users_know() {
    let a = simulated(64 * MIB);
    let _large = take(&a, 3 * MIB);
    drop(take(&a, 1000));
    let text = a.memory_summary();
    let rows = [
        " OOMs: 0 ",
        "| Metric                   |    Cur Usage |   Peak Usage |    Tot Alloc |    Tot Freed |",
        "| Allocated memory         |     3.00 MiB |     3.00 MiB |     3.00 MiB |     1.00 KiB |",
        "|       from large pool    |     3.00 MiB |     3.00 MiB |     3.00 MiB |          0 B |",
        "|       from small pool    |          0 B |     1.00 KiB |     1.00 KiB |     1.00 KiB |",
        "| Active memory            |     3.00 MiB |",
        "| Requested memory         |     3.00 MiB |",
        "| Reserved memory          |     6.00 MiB |     6.00 MiB |     6.00 MiB |          0 B |",
        "| Non-releasable memory    |     3.00 MiB |",
        "| Allocations              |            1 |            2 |            2 |            1 |",
        "| Active allocs            |            1 |",
        "| Reserved segments        |            3 |            3 |            3 |            0 |",
        "| Non-releasable allocs    |            2 |            2 |",
        "| Oversize allocations     |            0 |",
        "| Oversize segments        |            0 |",
        "| temporaries              |     3.00 MiB |     3.00 MiB |              |              |",
        "| Largest idle block       |     2.00 MiB |",
        "| Limit                    |         none |",
        "| 1 - largest / idle       |       33.3 % |",
        "| Reserved / allocated     |        2.000 |",
        "| Driver calls             |            8 |",
    ];
    let short = a.memory_summary_abbreviated();
    for row in rows {
        assert!(text.contains(row), "{row} in\n{text}");
        assert!(short.contains(row) != row.contains("from"), "{row} in\n{short}");
    }
    let width = text.lines().next().unwrap().len();
    assert!(width <= 100 && text.lines().chain(short.lines()).all(|line| line.chars().count() == width), "{text}");
    // Two rows of pools and a rule for each of nine metrics.
    assert_eq!((text.lines().count() - short.lines().count(), short.contains("pool")), (27, false));
}

#[test]
fn the_host_has_no_gpu_rows() {
    let a = Allocator::new(Arc::new(HostSource::new().unwrap()), AllocatorConfig::default()).unwrap();
    let text = a.memory_summary();
    assert!(text.contains("Reserved memory") && !text.contains("GPU"), "{text}");
}

#[test]
fn an_out_of_memory_report_names_streams_lines_and_whole_pages() {
    let report = OomReport {
        device: "cuda:0".into(),
        requested: 30 * MIB,
        size: 33 * MIB,
        site: "src/train.rs:7".into(),
        allocated: 40 * MIB,
        rounded_up: 3 * MIB,
        reserved: 64 * MIB,
        idle: 9 * MIB,
        largest_free: 6 * MIB,
        free_pages: 8 * MIB,
        pending: 12 * MIB,
        pending_by_stream: vec![(StreamId(3), 10 * MIB), (StreamId(0), 2 * MIB)],
        limit: Some(64 * MIB),
        page: Some(2 * MIB),
        driver_free: MIB,
        driver_total: 80 * MIB,
        categories: vec![(Category::OptimizerState, 40 * MIB)],
        top_sites: vec![("src/model.rs:12".into(), 25 * MIB)],
        steps: vec!["looked", "grew"],
    };
    let text = report.to_string();
    let expected = "\
cuda:0 is out of memory: 30.00 MiB (33.00 MiB as a block) more were asked for at src/train.rs:7
  live               40.00 MiB
    optimizer state  40.00 MiB
  live, by line
                     25.00 MiB  src/model.rs:12
  rounded up          3.00 MiB
  reserved           64.00 MiB
  idle                9.00 MiB, the largest range 6.00 MiB
    whole pages       8.00 MiB
  pending            12.00 MiB
    stream 3         10.00 MiB
    stream 0          2.00 MiB
  limit              64.00 MiB
  free on device      1.00 MiB of 80.00 MiB
  tried           looked
                  grew";
    assert_eq!(text, expected);
}
