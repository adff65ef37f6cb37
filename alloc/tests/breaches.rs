//! Every broken rule of memory and order is caught by the simulated GPU, and what is allowed passes.

mod common;
use common::lying::{Lie, Lying};
use common::{GIB, MIB, allocator, late};
use kiln_alloc::sources::{BreachKind, Schedule, SimulatedConfig, SimulatedSource, Work};
use kiln_alloc::*;
use std::sync::Arc;

const PAGE: usize = 2 * MIB;

/// A GPU driven by hand: a range of eight pages, and two streams.
struct Bench {
    gpu: SimulatedSource,
    base: u64,
    streams: [RawStream; 2],
}

impl Bench {
    fn new() -> Bench {
        let gpu = SimulatedSource::late("bench", 64 * MIB);
        let base = gpu.reserve(8 * PAGE).unwrap();
        let streams = [0, 1].map(|_| gpu.new_stream().unwrap());
        Bench { gpu, base, streams }
    }
    fn at(&self, page: usize) -> u64 {
        self.base + (page * PAGE) as u64
    }
    fn map(&self, page: usize, handle: Handle) {
        self.gpu.map(self.at(page), PAGE, handle).unwrap();
        self.gpu.set_access(self.at(page), PAGE).unwrap();
    }
    fn mapped(&self, page: usize) -> Handle {
        let handle = self.gpu.create(PAGE).unwrap();
        self.map(page, handle);
        handle
    }
    fn unmap(&self, page: usize) {
        common::unmap(&self.gpu, self.at(page), PAGE).unwrap();
    }
    fn work(&self, stream: usize, page: usize, block: u64, write: bool) {
        let stream = self.streams[stream];
        self.gpu.enqueue(Work { stream, address: self.at(page), bytes: PAGE, block: Some(block), write });
    }
    fn write(&self, stream: usize, page: usize, block: u64) {
        self.work(stream, page, block, true);
    }
    fn read(&self, stream: usize, page: usize, block: u64) {
        self.work(stream, page, block, false);
    }
    fn finish(&self, stream: usize) {
        self.gpu.synchronize(self.streams[stream]).unwrap();
    }
    /// Makes one stream wait for what is on the other now.
    fn wait(&self, stream: usize, other: usize) {
        let event = self.gpu.record(self.streams[other]).unwrap();
        self.gpu.stream_wait(self.streams[stream], event).unwrap();
        self.gpu.destroy_event(event);
    }
    /// The breaches by now, all work having run.
    fn breaches(&self) -> Vec<BreachKind> {
        self.gpu.finish_all();
        self.gpu.take_breaches().iter().map(|breach| breach.kind).collect()
    }
}

#[test]
fn work_on_unmapped_addresses_is_caught() {
    let b = Bench::new();
    b.write(0, 0, 1);
    assert_eq!(b.breaches(), [BreachKind::NotMapped]);
    let handle = b.gpu.create(PAGE).unwrap();
    b.gpu.map(b.at(0), PAGE, handle).unwrap();
    b.write(0, 0, 1);
    assert_eq!(b.breaches(), [BreachKind::NoAccess, BreachKind::NoAccess]);
    b.gpu.set_access(b.at(0), PAGE).unwrap();
    b.write(0, 0, 1);
    // Two pages of work, one page of memory.
    b.gpu.enqueue(Work { stream: b.streams[0], address: b.at(0), bytes: PAGE + 1, block: Some(1), write: false });
    assert_eq!(b.breaches(), [BreachKind::NotMapped]);
}

#[test]
fn unmapping_before_the_work_has_run_is_caught_and_after_it_is_fine() {
    let b = Bench::new();
    b.mapped(0);
    b.write(0, 0, 1);
    b.unmap(0);
    let [unmapped, ran] = [BreachKind::UnmappedInUse, BreachKind::NotMapped];
    let text = b.gpu.breaches()[0].to_string();
    for part in ["unmapped", "block 1", "stream 0", &format!("{:#x}", b.at(0))] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(b.breaches(), [unmapped, ran]);
    b.mapped(1);
    b.write(0, 1, 2);
    b.finish(0);
    b.unmap(1);
    assert_eq!(b.breaches(), []);
}

#[test]
fn another_page_at_the_address_of_enqueued_work_is_caught() {
    let b = Bench::new();
    b.mapped(0);
    b.write(0, 0, 1);
    b.unmap(0);
    b.mapped(0);
    assert_eq!(b.breaches(), [BreachKind::UnmappedInUse, BreachKind::Moved]);
}

#[test]
fn streams_that_do_not_wait_are_caught_and_those_that_do_pass() {
    let uses = [(true, true), (true, false), (false, true)];
    for (first, second) in uses {
        let b = Bench::new();
        b.mapped(0);
        b.work(0, 0, 1, first);
        b.wait(1, 0);
        b.work(1, 0, 1, second);
        b.work(1, 0, 1, second);
        assert_eq!(b.gpu.breaches(), []);
        b.work(0, 0, 1, first);
        assert_eq!(b.breaches()[0], BreachKind::Unordered);
    }
    // A wait for what was enqueued before does not cover what comes after.
    for (first, second) in uses {
        let b = Bench::new();
        b.mapped(0);
        b.wait(1, 0);
        b.work(0, 0, 1, first);
        b.work(1, 0, 1, second);
        assert_eq!(b.breaches()[0], BreachKind::Unordered);
    }
}

#[test]
fn reads_of_one_block_need_no_order_but_reads_of_two_do() {
    let b = Bench::new();
    b.mapped(0);
    b.read(0, 0, 1);
    b.read(1, 0, 1);
    assert_eq!(b.gpu.breaches(), []);
    b.read(1, 0, 2);
    assert_eq!(b.breaches(), [BreachKind::Unordered]);
}

#[test]
fn waits_pass_on_from_stream_to_stream() {
    let b = Bench::new();
    b.mapped(0);
    let third = b.gpu.new_stream().unwrap();
    b.write(0, 0, 1);
    b.wait(1, 0);
    let event = b.gpu.record(b.streams[1]).unwrap();
    b.gpu.stream_wait(third, event).unwrap();
    b.gpu.enqueue(Work { stream: third, address: b.at(0), bytes: 8, block: Some(1), write: true });
    // A stream that ends runs on.
    b.gpu.destroy_stream(third);
    assert!(!b.gpu.is_complete(event).unwrap());
    assert_eq!(b.breaches(), []);
    assert!(b.gpu.is_complete(event).unwrap());
}

#[test]
fn a_page_at_two_addresses_is_one_page() {
    let b = Bench::new();
    let handle = b.mapped(0);
    b.map(3, handle);
    b.write(0, 0, 1);
    // In stream order, as when memory moves.
    b.write(0, 3, 2);
    b.wait(1, 0);
    b.write(1, 3, 2);
    assert_eq!(b.gpu.breaches(), []);
    b.write(0, 0, 3);
    let breach = b.gpu.breaches()[0].clone();
    assert_eq!(breach.kind, BreachKind::UnorderedAlias);
    for part in ["block 3", "block 2", &format!("{:#x}", b.at(0)), &format!("{:#x}", b.at(3))] {
        assert!(breach.message.contains(part), "{part} in {breach}");
    }
    b.gpu.finish_all();
    b.gpu.take_breaches();
    // The old address goes when its own users are done; the new one's may run on.
    b.write(0, 3, 4);
    b.unmap(0);
    assert_eq!(b.breaches(), []);
}

#[test]
fn one_page_for_two_living_blocks_is_caught() {
    let b = Bench::new();
    let handle = b.mapped(0);
    b.map(1, handle);
    b.write(0, 0, 1);
    b.write(0, 1, 2);
    assert_eq!(b.gpu.breaches(), []);
    // Had block 1 been freed before block 2 came, nobody could use it now.
    b.read(0, 0, 1);
    assert_eq!(b.breaches(), [BreachKind::HandedOutTwice]);
}

#[test]
fn one_block_with_a_page_at_two_addresses_is_caught() {
    let b = Bench::new();
    let handle = b.mapped(0);
    b.map(1, handle);
    b.gpu.enqueue(Work { stream: b.streams[0], address: b.at(0), bytes: 2 * PAGE, block: Some(1), write: false });
    assert_eq!(b.breaches(), [BreachKind::TwoAddresses]);
}

#[test]
fn memory_reused_too_early_shows_as_a_wrong_value() {
    let b = Bench::new();
    b.mapped(0);
    b.write(0, 0, 1);
    b.wait(1, 0);
    b.read(1, 0, 1);
    // Block 1 is freed and reused although stream 1 has not read it.
    b.write(0, 0, 2);
    b.finish(0);
    b.finish(1);
    assert_eq!(b.breaches(), [BreachKind::Unordered, BreachKind::WrongValue]);
}

#[test]
fn a_pinned_page_that_moves_is_caught() {
    let b = Bench::new();
    let handle = b.mapped(0);
    b.gpu.pin(b.at(0) + 512, 1024);
    b.map(1, handle);
    b.unmap(0);
    assert_eq!(b.breaches(), [BreachKind::PinnedMoved; 2]);
    b.gpu.unpin(b.at(1), PAGE);
    b.map(0, handle);
    assert_eq!(b.breaches(), []);
}

#[test]
fn copies_are_work_too() {
    let b = Bench::new();
    b.mapped(0);
    b.mapped(1);
    let bytes = [0u8; 64];
    // SAFETY: a simulated device touches no memory.
    unsafe {
        b.gpu.copy_in(b.at(0), bytes.as_ptr(), 64, b.streams[0]).unwrap();
        b.gpu.copy_device(b.at(1), b.at(0), 64, b.streams[0]).unwrap();
    }
    b.read(0, 1, 1);
    assert_eq!(b.gpu.breaches(), []);
    // SAFETY: as above.
    unsafe { b.gpu.copy_in(b.at(1), bytes.as_ptr(), 64, b.streams[1]) }.unwrap();
    assert_eq!(b.gpu.breaches()[0].kind, BreachKind::Unordered);
    b.gpu.take_breaches();
}

#[test]
fn freeing_an_allocation_in_use_is_caught_and_waits() {
    let config = SimulatedConfig { virtual_memory: false, schedule: Schedule::ByHand, ..SimulatedConfig::new("whole", GIB) };
    let gpu = SimulatedSource::with_config(config);
    let stream = gpu.new_stream().unwrap();
    let [a, b] = [0, 1].map(|_| gpu.allocate(MIB).unwrap());
    let write = |address, bytes| gpu.enqueue(Work { stream, address, bytes, block: Some(1), write: true });
    write(a, MIB);
    gpu.free(b, MIB).unwrap();
    assert_eq!(gpu.breaches(), []);
    gpu.free(a, MIB).unwrap();
    gpu.finish_all();
    assert_eq!(gpu.take_breaches()[0].kind, BreachKind::FreedInUse);
    // Two allocations never become one.
    let [a, b] = [0, 1].map(|_| gpu.allocate(MIB).unwrap());
    assert!(b > a + MIB as u64);
    write(a, MIB + 1);
    assert_eq!(gpu.take_breaches()[0].kind, BreachKind::NotMapped);
}

#[test]
#[should_panic(expected = "rules of bench were broken")]
fn a_breach_that_nobody_took_is_told_at_the_end() {
    Bench::new().write(0, 0, 1);
}

/// A block that another stream writes is read, freed and reused by its own, and its memory goes back while work is in flight.
fn exercise(lie: Lie, schedule: Schedule) -> Vec<BreachKind> {
    let gpu = Arc::new(SimulatedSource::with_config(SimulatedConfig { schedule, ..SimulatedConfig::new("gpu", 64 * MIB) }));
    let a = allocator(&Lying::new(gpu.clone(), lie));
    let (s0, s1) = (a.compute_stream(), &a.new_stream().unwrap());
    let take = || a.allocate(8 * MIB, s0, Category::Temporaries).unwrap();
    let block = take();
    gpu.touch(&block, s0, true).unwrap();
    gpu.touch(&block, s1, true).unwrap();
    gpu.touch(&block, s0, false).unwrap();
    gpu.touch(&block, s1, true).unwrap();
    drop(block);
    gpu.touch(&take(), s0, true).unwrap();
    a.empty_cache().unwrap();
    gpu.finish_all();
    gpu.take_breaches().iter().map(|breach| breach.kind).collect()
}

#[test]
fn a_driver_that_swallows_waits_is_caught_and_an_honest_one_is_clean() {
    for schedule in [Schedule::ByHand, Schedule::Adversarial(7)] {
        assert_eq!(exercise(Lie::Nothing, schedule), []);
        assert!(exercise(Lie::NoStreamWait, schedule).contains(&BreachKind::Unordered));
    }
}

#[test]
fn a_driver_that_claims_all_is_done_is_caught() {
    let breaches = exercise(Lie::AllDone, Schedule::ByHand);
    for kind in [BreachKind::Unordered, BreachKind::UnmappedInUse, BreachKind::NotMapped] {
        assert!(breaches.contains(&kind), "{kind:?} in {breaches:?}");
    }
}

/// Two blocks of two zones, both alive and used.
fn two_zones(lie: Lie) -> Vec<BreachKind> {
    let gpu = late(64 * MIB);
    let a = allocator(&Lying::new(gpu.clone(), lie));
    let take = |category| a.allocate(2 * MIB, a.compute_stream(), category);
    let blocks: Vec<Block> = [Category::Parameters, Category::Gradients].into_iter().filter_map(|c| take(c).ok()).collect();
    for write in [true, false] {
        blocks.iter().for_each(|block| gpu.touch(block, a.compute_stream(), write).unwrap());
    }
    gpu.finish_all();
    let kinds = gpu.take_breaches().iter().map(|breach| breach.kind).collect();
    drop((blocks, a));
    gpu.take_breaches();
    kinds
}

/// Were the allocator itself to hand a range or a page out twice, it would show in the same way.
#[test]
fn ranges_and_pages_handed_out_twice_are_caught() {
    assert_eq!(two_zones(Lie::Nothing), []);
    assert_eq!(two_zones(Lie::OneRange)[0], BreachKind::InvalidCall);
    assert_eq!(two_zones(Lie::OneHandle)[0], BreachKind::HandedOutTwice);
}

#[test]
fn memory_given_back_while_only_its_own_stream_works_is_caught() {
    for (lie, clean) in [(Lie::Nothing, true), (Lie::AllDone, false)] {
        let gpu = late(64 * MIB);
        let a = allocator(&Lying::new(gpu.clone(), lie));
        gpu.touch(&a.allocate(8 * MIB, a.compute_stream(), Category::Temporaries).unwrap(), a.compute_stream(), true).unwrap();
        a.empty_cache().unwrap();
        gpu.finish_all();
        assert_eq!(gpu.take_breaches().is_empty(), clean);
    }
}
