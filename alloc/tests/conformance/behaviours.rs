//! What every allocator does, one function each.

use crate::common::MIB;
use crate::matrix::{How, Setup, Where};
use kiln_alloc::*;

/// A behaviour, tried on a setup.
pub type Behaviour = fn(&Setup);

macro_rules! behaviours {
    ($($name:ident,)*) => {
        /// All of them, with their names.
        pub const ALL: &[(&str, Behaviour)] = &[$((stringify!($name), $name),)*];
    };
}

behaviours! {
    blocks_are_aligned_and_never_overlap,
    bytes_survive_what_happens_around_them,
    freed_memory_is_used_again,
    statistics_are_what_a_recount_finds,
    the_limit_is_never_passed,
    out_of_memory_leaves_everything_usable,
    an_emptied_cache_is_empty,
    trim_keeps_what_it_may,
    a_block_of_no_bytes_takes_none,
    the_order_of_drops_does_not_matter,
    every_failing_driver_call_is_rolled_back,
    a_block_in_use_elsewhere_is_reused_safely,
    equal_programs_give_equal_memory,
    what_no_device_has_is_refused,
    freed_bytes_are_overwritten_where_wanted,
}

fn blocks_are_aligned_and_never_overlap(setup: &Setup) {
    let bench = setup.bench();
    let s = bench.a.compute_stream().clone();
    bench.program(1, 150, |live| {
        let place = |block: &Block| (block.read(&s).unwrap().address(), block.bytes() as u64);
        let mut ranges: Vec<(u64, u64)> = live.iter().filter(|block| block.bytes() > 0).map(place).collect();
        ranges.sort();
        assert!(ranges.iter().all(|(at, _)| at.is_multiple_of(512)));
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{ranges:?}");
    });
    drop(s);
    bench.end();
}

fn bytes_survive_what_happens_around_them(setup: &Setup) {
    let bench = setup.bench();
    let (s0, s1) = (bench.a.compute_stream().clone(), bench.a.new_stream().unwrap());
    let mut kept: Vec<Block> = [700, 5000, 300_000, 3 * MIB, MIB].map(|bytes| bench.take(bytes).unwrap()).into();
    kept.iter().for_each(|block| bench.touch(block, &s0, true));
    for round in 0..4 {
        bench.program(round, 60, |_| {});
        if round == 2 {
            bench.a.empty_cache().unwrap();
        }
        kept.iter().for_each(|block| bench.touch(block, if round % 2 == 0 { &s1 } else { &s0 }, false));
    }
    kept.clear();
    drop((s0, s1));
    bench.end();
}

fn freed_memory_is_used_again(setup: &Setup) {
    let bench = setup.bench();
    let round = || {
        let blocks = [3 * MIB, 1000, 300_000, 3 * MIB, 9 * MIB, 512].map(|bytes| bench.take(bytes).unwrap());
        blocks.iter().for_each(|block| bench.touch(block, bench.a.compute_stream(), true));
    };
    round();
    let first = bench.a.stats();
    (0..20).for_each(|_| round());
    let stats = bench.a.stats();
    assert_eq!((stats.reserved, stats.driver_calls), (first.reserved, first.driver_calls));
    assert_eq!(stats.allocations, 21 * 6);
    bench.end();
}

fn statistics_are_what_a_recount_finds(setup: &Setup) {
    let bench = setup.bench();
    bench.program(3, 200, |live| {
        let stats = bench.a.stats();
        let sum = |of: &dyn Fn(&Block) -> usize| live.iter().map(of).sum::<usize>();
        let rounded = |block: &Block| block.bytes().next_multiple_of(512);
        assert_eq!((stats.live_blocks, stats.requested.current), (live.len(), sum(&Block::bytes)));
        assert_eq!(stats.allocated.current, sum(&rounded));
        for category in Category::ALL {
            let of = live.iter().filter(|block| block.category() == category).map(rounded).sum::<usize>();
            assert_eq!(stats.category(category).current, of, "{category:?}");
        }
        assert!(stats.active_bytes.all.current as usize >= stats.allocated.current + stats.pending);
        // Pages leave an old address only when the device is done with it; the memory is counted once.
        bench.gpu.iter().for_each(|gpu| assert_eq!(gpu.bytes_taken().0, stats.reserved.current));
    });
    bench.finish();
    let stats = bench.a.stats();
    assert_eq!(stats.active_bytes.all.current + stats.inactive_split_bytes.all.current, stats.reserved_bytes.all.current);
    assert_eq!((stats.live_blocks, stats.pending, stats.active.all.current), (0, 0, 0));
    bench.end();
}

fn the_limit_is_never_passed(setup: &Setup) {
    let bench = setup.bench();
    for limit in [24 * MIB, 45 * MIB + 512, 21 * MIB] {
        bench.a.empty_cache().unwrap();
        bench.a.set_limit(Some(limit));
        bench.a.reset_peak_stats();
        bench.program(limit as u64, 150, |_| assert!(bench.a.stats().reserved.peak <= limit));
    }
    bench.end();
}

fn out_of_memory_leaves_everything_usable(setup: &Setup) {
    let bench = setup.bench();
    bench.a.set_limit(Some(40 * MIB));
    let kept = bench.take(MIB).unwrap();
    bench.touch(&kept, bench.a.compute_stream(), true);
    for bytes in [50 * MIB, 39 * MIB + 1] {
        match bench.take(bytes) {
            Err(AllocError::OutOfMemory(report)) => {
                assert_eq!((report.requested, report.allocated, report.limit), (bytes, MIB, Some(40 * MIB)));
            }
            other => panic!("{other:?}"),
        }
        bench.touch(&kept, bench.a.compute_stream(), false);
        bench.touch(&bench.take(3 * MIB).unwrap(), bench.a.compute_stream(), true);
    }
    drop(kept);
    // Powers of two included.
    drop(bench.take(32 * MIB).unwrap());
    assert_eq!(bench.a.stats().ooms, 2);
    bench.end();
}

fn an_emptied_cache_is_empty(setup: &Setup) {
    let bench = setup.bench();
    for seed in 0..3 {
        bench.program(seed, 120, |_| {});
        bench.a.empty_cache().unwrap();
        assert_eq!(bench.a.stats().reserved.current, 0);
        bench.gpu.iter().for_each(|gpu| assert_eq!(gpu.bytes_taken(), (0, 0)));
    }
    bench.end();
}

fn trim_keeps_what_it_may(setup: &Setup) {
    let bench = setup.bench();
    drop([(); 6].map(|()| bench.take(8 * MIB).unwrap()));
    let before = bench.a.stats().reserved.current;
    bench.a.trim(before).unwrap();
    assert_eq!(bench.a.stats().reserved.current, before);
    bench.a.trim(20 * MIB).unwrap();
    let after = bench.a.stats().reserved.current;
    assert!(0 < after && after <= 20 * MIB, "{after}");
    bench.end();
}

fn a_block_of_no_bytes_takes_none(setup: &Setup) {
    let bench = setup.bench();
    let s = bench.a.compute_stream();
    let [one, two] = [0, 0].map(|bytes| bench.take(bytes).unwrap());
    assert_ne!(one.id(), two.id());
    assert_ne!(one.write(s).unwrap().address(), 0);
    let stats = bench.a.stats();
    assert_eq!((stats.live_blocks, stats.allocated.current, stats.reserved.current), (2, 0, 0));
    drop((one, two));
    assert_eq!(bench.a.stats().live_blocks, 0);
    bench.end();
}

fn the_order_of_drops_does_not_matter(setup: &Setup) {
    for order in ["asb", "abs", "sab", "sba", "bas", "bsa"] {
        let bench = setup.bench();
        let stream = bench.a.new_stream().unwrap();
        let blocks = [&stream, bench.a.compute_stream()].map(|s| {
            let block = bench.a.allocate(3 * MIB, s, Category::Temporaries).unwrap();
            [s, &stream, bench.a.compute_stream()].into_iter().for_each(|s| bench.touch(&block, s, true));
            block
        });
        let (mut a, mut s, mut b) = (Some(bench.a), Some(stream), Some(blocks));
        for what in order.chars() {
            match what {
                'a' => drop(a.take()),
                's' => drop(s.take()),
                _ => drop(b.take()),
            }
        }
        let Some(gpu) = bench.gpu else { continue };
        gpu.finish_all();
        gpu.assert_clean();
        assert!(gpu.is_pristine(), "{order}");
    }
}

fn every_failing_driver_call_is_rolled_back(setup: &Setup) {
    for k in 1.. {
        let bench = setup.bench();
        let Some(gpu) = bench.gpu.clone() else { return bench.end() };
        let kept = [2 * MIB, 512].map(|bytes| bench.take(bytes).unwrap());
        drop(bench.take(5 * MIB).unwrap());
        let before = (bench.a.stats(), gpu.bytes_taken());
        gpu.fail_call(k);
        let result = bench.take(40 * MIB);
        gpu.fail_call(0);
        if result.is_ok() {
            assert!(k > 1, "a request of this size takes memory from the device");
            drop((result, kept));
            return bench.end();
        }
        assert!(matches!(result, Err(AllocError::Source(SourceError::Driver { code: 999, .. }))), "{result:?}");
        let after = (bench.a.stats(), gpu.bytes_taken());
        let numbers = |stats: &MemoryStats| {
            let idle = (stats.inactive_split.all.current, stats.inactive_split_bytes.all.current, stats.largest_free);
            (stats.reserved.current, stats.allocated, stats.requested, stats.segment.all.current, idle)
        };
        assert_eq!((numbers(&after.0), after.1), (numbers(&before.0), before.1), "call {k}");
        drop(bench.take(40 * MIB).unwrap());
        drop(kept);
        bench.end();
    }
}

fn a_block_in_use_elsewhere_is_reused_safely(setup: &Setup) {
    let bench = setup.bench();
    // Real bytes are written one by one, so there are fewer of them.
    let bytes = if setup.place == Where::Host { 4 * MIB } else { 40 * MIB };
    bench.a.set_limit(Some(if setup.place == Where::Host { 40 * MIB } else { 80 * MIB }));
    let streams = [bench.a.compute_stream().clone(), bench.a.new_stream().unwrap(), bench.a.new_stream().unwrap()];
    for round in 0..12 {
        let (home, other) = (&streams[round % 3], &streams[(round + 1) % 3]);
        let block = bench.a.allocate(bytes, home, Category::Temporaries).unwrap();
        bench.touch(&block, home, true);
        bench.touch(&block, other, round % 2 == 0);
        drop(block);
        let again = bench.a.allocate(bytes, &streams[(round + 2) % 3], Category::Temporaries).unwrap();
        bench.touch(&again, &streams[(round + 2) % 3], true);
    }
    assert_eq!(bench.a.stats().ooms, 0);
    drop(streams);
    bench.end();
}

fn equal_programs_give_equal_memory(setup: &Setup) {
    let run = || {
        let bench = setup.bench();
        let mut trace = Vec::new();
        bench.program(11, 200, |_| {
            let stats = bench.a.stats();
            trace.push((stats.reserved.current, stats.largest_free, stats.driver_calls, stats.stitches, stats.steals));
        });
        bench.end();
        trace
    };
    assert_eq!(run(), run());
}

fn what_no_device_has_is_refused(setup: &Setup) {
    let bench = setup.bench();
    assert!(matches!(bench.take(usize::MAX), Err(AllocError::SizeOverflow(_))));
    // A policy may round it up beyond what can be addressed.
    assert!(matches!(bench.take(1 << 61), Err(AllocError::OutOfMemory(_) | AllocError::SizeOverflow(_))));
    assert_eq!((bench.a.stats().reserved.peak, bench.a.stats().driver_calls), (0, 0));
    if setup.place != Where::Host {
        assert!(matches!(bench.take(crate::matrix::CAPACITY + 1), Err(AllocError::OutOfMemory(_))));
    }
    bench.end();
}

fn freed_bytes_are_overwritten_where_wanted(setup: &Setup) {
    let bench = setup.bench();
    let (s, other) = (bench.a.compute_stream().clone(), bench.a.new_stream().unwrap());
    for bytes in [1, 5000, 300_000] {
        for user in [&s, &other] {
            let block = bench.take(bytes).unwrap();
            bench.touch(&block, &s, true);
            bench.touch(&block, user, true);
            drop(block);
            bench.finish();
            let again = bench.take(bytes).unwrap();
            if setup.place == Where::Host && setup.how == How::Poisoned {
                assert!(again.read(&s).unwrap().as_slice().unwrap().iter().all(|byte| *byte == 0xFF));
            }
            bench.touch(&again, &s, true);
            bench.touch(&again, user, false);
        }
    }
    drop((s, other));
    bench.end();
}
