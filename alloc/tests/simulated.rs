//! The simulated GPU as a driver: its books, its failures, its costs and its schedules.

mod common;
use common::{GIB, MIB, adversarial, allocator, release_range, unmap};
use kiln_alloc::sources::{BreachKind, DriverCall, Schedule, SimulatedConfig, SimulatedSource, Work};
use kiln_alloc::*;
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 2 * MIB;

fn refused<T: std::fmt::Debug>(result: Result<T, SourceError>, gpu: &SimulatedSource) {
    assert!(matches!(result, Err(SourceError::Driver { code: 1, .. })), "{result:?}");
    assert_eq!(gpu.take_breaches().iter().map(|breach| breach.kind).collect::<Vec<_>>(), [BreachKind::InvalidCall]);
}

#[test]
fn a_handle_is_mapped_at_several_addresses_and_goes_after_the_last() {
    let gpu = SimulatedSource::late("gpu", 4 * MIB);
    let base = gpu.reserve(8 * PAGE).unwrap();
    let handle = gpu.create(PAGE).unwrap();
    let [a, b] = [base, base + 2 * PAGE as u64];
    gpu.map(a, PAGE, handle).unwrap();
    gpu.map(b, PAGE, handle).unwrap();
    assert_eq!(gpu.bytes_taken(), (PAGE, 2 * PAGE));
    for address in [a, b] {
        refused(gpu.destroy(handle), &gpu);
        unmap(&gpu, address, PAGE).unwrap();
    }
    gpu.destroy(handle).unwrap();
    release_range(&gpu, base, 8 * PAGE).unwrap();
    assert!(gpu.is_pristine());
}

#[test]
fn calls_that_break_the_books_are_refused_and_change_nothing() {
    let gpu = SimulatedSource::late("gpu", 8 * MIB);
    let base = gpu.reserve(4 * PAGE).unwrap();
    let handle = gpu.create(PAGE).unwrap();
    let large = gpu.create(2 * PAGE).unwrap();
    gpu.map(base, 2 * PAGE, large).unwrap();
    let before = gpu.bytes_taken();
    let page = PAGE as u64;
    refused(gpu.create(PAGE + 1), &gpu);
    refused(gpu.map(base + 4 * page, PAGE, handle), &gpu);
    refused(gpu.map(base + page, PAGE, handle), &gpu);
    refused(gpu.map(base + 2 * page, 2 * PAGE, handle), &gpu);
    refused(gpu.set_access(base + 2 * page, PAGE), &gpu);
    refused(unmap(&gpu, base, PAGE), &gpu);
    refused(release_range(&gpu, base, 4 * PAGE), &gpu);
    refused(release_range(&gpu, base + 2 * page, PAGE), &gpu);
    refused(gpu.destroy(Handle(77)), &gpu);
    refused(gpu.record(RawStream(9)), &gpu);
    assert_eq!(gpu.bytes_taken(), before);
    assert_eq!(gpu.create(2 * PAGE).unwrap_err(), SourceError::OutOfMemory);
    assert_eq!(gpu.allocate(512).unwrap_err().to_string(), "this source hands out pages, not whole allocations");
}

#[test]
fn addresses_run_out_and_come_back() {
    let gpu = SimulatedSource::with_config(SimulatedConfig { addresses: 8 * PAGE as u64, ..SimulatedConfig::new("gpu", GIB) });
    let [a, _b] = [0, 1].map(|_| gpu.reserve(4 * PAGE).unwrap());
    assert_eq!(gpu.reserve(PAGE), Err(SourceError::OutOfMemory));
    release_range(&gpu, a, 4 * PAGE).unwrap();
    assert_eq!(gpu.reserve(2 * PAGE), Ok(a));
}

#[test]
fn without_virtual_memory_it_hands_out_whole_allocations() {
    let gpu = SimulatedSource::with_config(SimulatedConfig { virtual_memory: false, ..SimulatedConfig::new("gpu", 8 * MIB) });
    assert!(!gpu.info().virtual_memory);
    assert!(matches!(gpu.reserve(PAGE), Err(SourceError::Unsupported(_))));
    assert!(matches!(gpu.create(PAGE), Err(SourceError::Unsupported(_))));
    let blocks: Vec<u64> = [MIB, 700, 3 * MIB].iter().map(|bytes| gpu.allocate(*bytes).unwrap()).collect();
    assert!(blocks.iter().all(|address| address % 512 == 0));
    assert_eq!(gpu.memory_info().unwrap().free, 4 * MIB - 1024);
    assert_eq!(gpu.allocate(4 * MIB), Err(SourceError::OutOfMemory));
    refused(gpu.free(blocks[0] + 512, MIB), &gpu);
    refused(gpu.free(blocks[0], MIB - 512), &gpu);
    blocks.iter().zip([MIB, 700, 3 * MIB]).for_each(|(address, bytes)| gpu.free(*address, bytes).unwrap());
    refused(gpu.free(blocks[0], MIB), &gpu);
    assert!(gpu.is_pristine());
}

/// One call of each kind, in the order of `DriverCall::ALL`, on a device that has what they need.
fn call(gpu: &SimulatedSource, call: DriverCall) -> Result<(), SourceError> {
    let paged = gpu.info().virtual_memory;
    let base = if paged { gpu.reserve(2 * PAGE)? } else { 0 };
    let handle = if paged { gpu.create(PAGE)? } else { Handle(0) };
    let address = if paged { 0 } else { gpu.allocate(MIB)? };
    let (stream, target) = (gpu.new_stream()?, base + PAGE as u64);
    let event = gpu.record(stream)?;
    if paged {
        gpu.map(target, PAGE, handle)?;
    }
    gpu.fail_nth(call, 1);
    let result = match call {
        DriverCall::Reserve => gpu.reserve(PAGE).map(drop),
        DriverCall::ReleaseRange => release_range(gpu, base, 2 * PAGE),
        DriverCall::Create => gpu.create(PAGE).map(drop),
        DriverCall::Destroy => gpu.destroy(handle),
        DriverCall::Map => gpu.map(base, PAGE, handle),
        DriverCall::SetAccess => gpu.set_access(target, PAGE),
        DriverCall::Unmap => unmap(gpu, target, PAGE),
        DriverCall::Allocate => gpu.allocate(MIB).map(drop),
        DriverCall::Free => gpu.free(address, MIB),
        DriverCall::NewStream => gpu.new_stream().map(drop),
        DriverCall::Synchronize => gpu.synchronize(stream),
        DriverCall::Record => gpu.record(stream).map(drop),
        DriverCall::IsComplete => gpu.is_complete(event).map(drop),
        DriverCall::WaitEvent => gpu.wait_event(event),
        DriverCall::StreamWait => gpu.stream_wait(stream, event),
        DriverCall::HostAlloc | DriverCall::HostFree => gpu.host_alloc(64).map(drop),
    };
    gpu.fail_nth(call, 0);
    result
}

#[test]
fn every_kind_of_call_fails_when_planned_and_only_then() {
    for kind in DriverCall::ALL.iter().copied().filter(|kind| *kind != DriverCall::HostFree) {
        let virtual_memory = !matches!(kind, DriverCall::Allocate | DriverCall::Free);
        let config = SimulatedConfig { virtual_memory, schedule: Schedule::ByHand, ..SimulatedConfig::new("gpu", GIB) };
        let gpu = SimulatedSource::with_config(config);
        let error = call(&gpu, kind).unwrap_err();
        assert_eq!(error, SourceError::Driver { call: kind.name(), code: 999, message: "a planned failure".into() });
        assert_eq!(gpu.breaches(), []);
    }
}

#[test]
fn plans_count_the_calls_that_they_name() {
    let gpu = SimulatedSource::late("gpu", GIB);
    let base = gpu.reserve(64 * PAGE).unwrap();
    gpu.run_out(2);
    let handle = gpu.create(PAGE).unwrap();
    assert_eq!(gpu.create(PAGE), Err(SourceError::OutOfMemory));
    gpu.create(PAGE).unwrap();
    gpu.fail_any(3);
    let stream = gpu.new_stream().unwrap();
    gpu.record(stream).unwrap();
    assert!(gpu.map(base, PAGE, handle).is_err());
    gpu.fail_call(2);
    gpu.record(stream).unwrap();
    gpu.map(base, PAGE, handle).unwrap();
    assert!(gpu.set_access(base, PAGE).is_err());
    gpu.set_access(base, PAGE).unwrap();
    gpu.set_broken(true);
    assert!(gpu.record(stream).is_err() && gpu.synchronize(stream).is_err());
    gpu.create(PAGE).unwrap();
    gpu.set_broken(false);
    gpu.record(stream).unwrap();
}

#[test]
fn costs_are_those_of_an_h200() {
    let gpu = SimulatedSource::late("gpu", GIB);
    let base = gpu.reserve(64 * PAGE).unwrap();
    gpu.reset_driver_costs();
    for page in 0..64 {
        let handle = gpu.create(PAGE).unwrap();
        gpu.map(base + (page * PAGE) as u64, PAGE, handle).unwrap();
    }
    gpu.set_access(base, 64 * PAGE).unwrap();
    // Access is paid by the handle, however it is asked for.
    assert_eq!(gpu.driver_time(), Duration::from_nanos(64 * (14_000 + 1_200 + 31_000)));
    assert_eq!([DriverCall::Create, DriverCall::SetAccess, DriverCall::Unmap].map(|call| gpu.driver_calls(call)), [64, 1, 0]);
    gpu.reset_driver_costs();
    unmap(&gpu, base, 64 * PAGE).unwrap();
    let stream = gpu.new_stream().unwrap();
    let event = gpu.record(stream).unwrap();
    gpu.is_complete(event).unwrap();
    assert_eq!(gpu.driver_time(), Duration::from_nanos(64 * 20_000 + 600));
    assert_eq!(gpu.driver_calls(DriverCall::Unmap), 1);
}

#[test]
fn waiting_for_work_costs_its_time() {
    let config = SimulatedConfig { virtual_memory: false, schedule: Schedule::ByHand, ..SimulatedConfig::new("gpu", GIB) };
    let gpu = SimulatedSource::with_config(config);
    let stream = gpu.new_stream().unwrap();
    let address = gpu.allocate(PAGE).unwrap();
    let write = || gpu.enqueue(Work { stream, address, bytes: PAGE, block: Some(1), write: true });
    (0..3).for_each(|_| write());
    gpu.synchronize(stream).unwrap();
    assert_eq!(gpu.driver_time(), Duration::from_micros(49 + 3 * 5));
    write();
    gpu.free(address, PAGE).unwrap();
    assert_eq!(gpu.driver_time(), Duration::from_micros(49 + 3 * 5 + 38 + 5));
    assert_eq!(gpu.take_breaches()[0].kind, BreachKind::FreedInUse);
}

/// Blocks passed between three streams, on a device whose adversary has this seed: which events are seen complete, and when.
fn seen(seed: u64) -> Vec<Vec<bool>> {
    let gpu = adversarial(GIB, seed);
    let a = allocator(&gpu);
    let streams = [a.new_stream().unwrap(), a.new_stream().unwrap(), a.new_stream().unwrap()];
    let block = a.allocate(8 * MIB, &streams[0], Category::Temporaries).unwrap();
    let mut events: Vec<Event> = Vec::new();
    let looks = (0..60).map(|i| {
        let own = a.allocate(MIB, &streams[i % 3], Category::Temporaries).unwrap();
        gpu.touch(&own, &streams[i % 3], true).unwrap();
        if i % 4 == 0 {
            gpu.touch(&block, &streams[i % 3], true).unwrap();
            events.push(streams[i % 3].record().unwrap());
        }
        // Each write of the block waits for the one before, so the events complete in order.
        let done: Vec<bool> = events.iter().rev().map(|event| event.is_complete().unwrap()).collect();
        assert!(done.is_sorted(), "{done:?}");
        done
    });
    looks.collect()
}

#[test]
fn an_adversary_follows_its_seed_and_the_order_of_streams() {
    let runs: Vec<_> = (0..20).map(seen).collect();
    assert!(runs.iter().enumerate().all(|(seed, run)| *run == seen(seed as u64)));
    assert!(runs.iter().any(|run| *run != runs[0]));
    // The newest event is seen both ways: work is late, but not for ever.
    let newest = || runs.iter().flatten().map(|done| done[0]);
    assert!(newest().any(|done| done) && newest().any(|done| !done));
}

#[test]
fn streams_that_run_at_once_are_checked_too() {
    let gpu = Arc::new(SimulatedSource::new("dry-run", GIB));
    let a = allocator(&gpu);
    let block = a.allocate(MIB, a.compute_stream(), Category::Temporaries).unwrap();
    gpu.touch(&block, &a.new_stream().unwrap(), true).unwrap();
    gpu.touch(&block, a.compute_stream(), false).unwrap();
    gpu.assert_clean();
    let address = block.read(a.compute_stream()).unwrap().address();
    unmap(&*gpu, address, PAGE).unwrap();
    gpu.touch(&block, a.compute_stream(), false).unwrap();
    assert_eq!(gpu.take_breaches()[0].kind, BreachKind::NotMapped);
}
