//! A simulated GPU: addresses with nothing behind them, for dry runs, replays and tests.
//!
//! It keeps the books of a real driver: pages are mapped inside reserved ranges, from handles that exist, also at several
//! addresses at once; memory runs out at the capacity; each call costs what it cost on an H200. Its streams run at once, or late,
//! as a test or an adversary decides. Then work enqueued on it is checked by physical byte: its order by vector clocks, its values
//! by a shadow of who wrote what. Broken rules are collected as [`Breach`]es. Not simulated: peers, exports and contexts.

mod adversary;
mod breach;
mod config;
mod costs;
mod faults;
mod memory;
mod queues;
mod ranges;
mod shadow;
mod space;
mod state;
mod work;

pub use breach::{Breach, BreachKind};
pub use config::{Schedule, SimulatedConfig};
pub use costs::DriverCall;
pub use work::Work;

use super::host;
use crate::core::lock;
use crate::{Block, Handle, MemoryInfo, RawEvent, RawStream, Source, SourceError, SourceInfo, SourceKind, Stream};
use costs::Meter;
use faults::{Counted, Faults};
use memory::GRANULARITY;
use state::State;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

type Result<T> = std::result::Result<T, SourceError>;

const NO_VALUES: &str = "values cannot be read on a dry-run device: it computes nothing";
const NO_PAGES: &str = "this source hands out whole allocations, not pages";
const NO_ALLOCATIONS: &str = "this source hands out pages, not whole allocations";

/// A simulated device.
///
/// Dropping one that [`new`](SimulatedSource::new) did not make panics if breaches were not taken, so that none goes unnoticed.
pub struct SimulatedSource {
    info: SourceInfo,
    at_once: bool,
    /// Whether breaches that nobody took are told at the end.
    strict: bool,
    meter: Meter,
    faults: Faults,
    state: Mutex<State>,
}

impl SimulatedSource {
    /// A device named `name` of `capacity` bytes, whose streams run at once. For dry runs: it collects breaches but never panics.
    pub fn new(name: impl Into<String>, capacity: usize) -> SimulatedSource {
        let mut source = SimulatedSource::with_config(SimulatedConfig::new(name, capacity));
        source.strict = false;
        source
    }
    /// A device of `capacity` bytes whose streams run when the host waits for them or a test says so.
    pub fn late(name: impl Into<String>, capacity: usize) -> SimulatedSource {
        SimulatedSource::with_config(SimulatedConfig { schedule: Schedule::ByHand, ..SimulatedConfig::new(name, capacity) })
    }
    /// A device set up in any way.
    pub fn with_config(config: SimulatedConfig) -> SimulatedSource {
        let info = SourceInfo {
            name: config.name.clone(),
            kind: SourceKind::Simulated,
            granularity: GRANULARITY,
            capacity: config.capacity,
            virtual_memory: config.virtual_memory,
        };
        let (at_once, state) = (config.schedule == Schedule::AtOnce, Mutex::new(State::new(&config)));
        SimulatedSource { info, at_once, strict: true, meter: Meter::default(), faults: Faults::default(), state }
    }

    /// Enqueues a use of a whole block, through a token of it.
    ///
    /// # Errors
    /// What taking the token says. A broken rule is a breach, not an error.
    pub fn touch(&self, block: &Block, stream: &Stream, write: bool) -> crate::Result<()> {
        let work = |address| Work { stream: stream.raw(), address, bytes: block.bytes(), block: Some(block.id()), write };
        // The token lives until the work is enqueued.
        if write {
            let token = block.write(stream)?;
            self.enqueue(work(token.address()));
        } else {
            let token = block.read(stream)?;
            self.enqueue(work(token.address()));
        }
        Ok(())
    }
    /// Enqueues work of any kind. A broken rule is a breach.
    pub fn enqueue(&self, work: Work) {
        let mut state = lock(&self.state);
        state.let_run();
        state.enqueue(work);
    }
    /// Runs everything enqueued on a stream so far, and what it waits for.
    pub fn finish(&self, stream: &Stream) {
        // A stream of another device has nothing to run here.
        let _ = lock(&self.state).finish(stream.raw());
    }
    /// Runs everything enqueued so far.
    pub fn finish_all(&self) {
        lock(&self.state).finish_all();
    }
    /// Makes the pages of a range unmovable, as a captured graph or a communicator does: to map one of them again or to unmap it
    /// is a breach until they are unpinned as often.
    pub fn pin(&self, address: u64, bytes: usize) {
        lock(&self.state).memory.pin(address, bytes, true);
    }
    /// Takes back one [`SimulatedSource::pin`] of the range.
    pub fn unpin(&self, address: u64, bytes: usize) {
        lock(&self.state).memory.pin(address, bytes, false);
    }

    /// The broken rules so far, the first 64 of them.
    pub fn breaches(&self) -> Vec<Breach> {
        lock(&self.state).breaches.all().to_vec()
    }
    /// The broken rules so far; forgets them.
    pub fn take_breaches(&self) -> Vec<Breach> {
        lock(&self.state).breaches.take()
    }
    /// Panics if a rule was broken, and says which. For tests.
    pub fn assert_clean(&self) {
        let text = lock(&self.state).breaches.text();
        assert!(text.is_empty(), "rules of {} were broken:{text}", self.info.name);
    }

    /// Makes the `k`-th call from now that takes or maps memory fail, counted from 1; 0 lifts the plan. So with the other plans.
    pub fn fail_call(&self, k: u64) {
        self.faults.plan(Counted::TakesMemory, k);
    }
    /// Makes the `k`-th call of any kind fail.
    pub fn fail_any(&self, k: u64) {
        self.faults.plan(Counted::Any, k);
    }
    /// Makes the `k`-th call of one kind fail.
    pub fn fail_nth(&self, call: DriverCall, k: u64) {
        self.faults.plan(Counted::Kind(call), k);
    }
    /// Makes the `k`-th create or allocate find the device full.
    pub fn run_out(&self, k: u64) {
        self.faults.plan(Counted::Full, k);
    }
    /// Makes every call that marks a stream, asks for a mark or waits fail from now on, or work again.
    pub fn set_broken(&self, broken: bool) {
        self.faults.set_broken(broken);
    }

    /// What the calls so far would have taken on an H200. Waiting for an operation counts as 5 µs.
    pub fn driver_time(&self) -> Duration {
        self.meter.time()
    }
    /// How many calls of a kind there were.
    pub fn driver_calls(&self, call: DriverCall) -> u64 {
        self.meter.calls(call)
    }
    /// Sets the time and the counts of calls to zero.
    pub fn reset_driver_costs(&self) {
        self.meter.reset();
    }

    /// Bytes of physical memory taken, and bytes mapped; bytes mapped at two addresses count twice.
    pub fn bytes_taken(&self) -> (usize, usize) {
        let memory = &lock(&self.state).memory;
        (memory.used, memory.mapped_bytes)
    }
    /// Whether no memory is taken and no address reserved.
    pub fn is_pristine(&self) -> bool {
        lock(&self.state).memory.is_pristine()
    }

    /// Counts a call, fails it if planned, and lets work run.
    fn call(&self, call: DriverCall, bytes: usize) -> Result<MutexGuard<'_, State>> {
        self.meter.call(call, bytes);
        self.faults.check(call)?;
        let mut state = lock(&self.state);
        state.let_run();
        Ok(state)
    }
    /// As `call`, where pages exist.
    fn pages(&self, call: DriverCall, bytes: usize) -> Result<MutexGuard<'_, State>> {
        if self.info.virtual_memory { self.call(call, bytes) } else { Err(SourceError::Unsupported(NO_PAGES)) }
    }
    /// As `call`, where whole allocations exist.
    fn whole(&self, call: DriverCall, bytes: usize) -> Result<MutexGuard<'_, State>> {
        if self.info.virtual_memory { Err(SourceError::Unsupported(NO_ALLOCATIONS)) } else { self.call(call, bytes) }
    }
    /// As `call`, for what is always done where streams run at once; `None` there.
    fn streams(&self, call: DriverCall) -> Result<Option<MutexGuard<'_, State>>> {
        if !self.at_once {
            return self.call(call, 0).map(Some);
        }
        self.meter.call(call, 0);
        self.faults.check(call)?;
        Ok(None)
    }
    fn copy(&self, address: u64, bytes: usize, stream: RawStream, write: bool) {
        if !self.at_once {
            self.enqueue(Work { stream, address, bytes, block: None, write });
        }
    }
}

impl Drop for SimulatedSource {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.finish_all();
        if self.strict && !std::thread::panicking() {
            self.assert_clean();
        }
    }
}

// SAFETY: it is no host source, and `host_alloc` asks the system's allocator.
unsafe impl Source for SimulatedSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }
    fn memory_info(&self) -> Result<MemoryInfo> {
        Ok(MemoryInfo { free: lock(&self.state).memory.free(), total: self.info.capacity })
    }

    fn reserve(&self, bytes: usize) -> Result<u64> {
        let mut state = self.pages(DriverCall::Reserve, bytes)?;
        let result = state.memory.reserve(bytes);
        state.note(result)
    }
    unsafe fn release_range(&self, address: u64, bytes: usize) -> Result<()> {
        let mut state = self.pages(DriverCall::ReleaseRange, bytes)?;
        let result = state.memory.release_range(address, bytes);
        state.note(result)
    }
    fn create(&self, bytes: usize) -> Result<Handle> {
        let mut state = self.pages(DriverCall::Create, bytes)?;
        let result = state.memory.create(bytes);
        state.note(result).map(Handle)
    }
    fn destroy(&self, handle: Handle) -> Result<()> {
        let mut state = self.pages(DriverCall::Destroy, 0)?;
        let result = state.memory.destroy(handle.0);
        state.note(result)
    }
    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()> {
        let mut state = self.pages(DriverCall::Map, bytes)?;
        let result = state.map(address, bytes, handle.0);
        state.note(result)
    }
    fn set_access(&self, address: u64, bytes: usize) -> Result<()> {
        let mut state = self.pages(DriverCall::SetAccess, bytes)?;
        let result = state.memory.set_access(address, bytes);
        self.meter.more_handles(DriverCall::SetAccess, state.note(result)?);
        Ok(())
    }
    unsafe fn unmap(&self, address: u64, bytes: usize) -> Result<()> {
        let mut state = self.pages(DriverCall::Unmap, bytes)?;
        let result = state.unmap(address, bytes);
        self.meter.more_handles(DriverCall::Unmap, state.note(result)?);
        Ok(())
    }
    fn allocate(&self, bytes: usize) -> Result<u64> {
        let mut state = self.whole(DriverCall::Allocate, bytes)?;
        let result = state.memory.allocate(bytes);
        state.note(result)
    }
    fn free(&self, address: u64, bytes: usize) -> Result<()> {
        let mut state = self.whole(DriverCall::Free, bytes)?;
        let result = state.free(address, bytes);
        self.meter.waited(state.note(result)?);
        Ok(())
    }

    fn new_stream(&self) -> Result<RawStream> {
        Ok(self.streams(DriverCall::NewStream)?.map_or(RawStream(0), |mut state| state.queues.new_stream()))
    }
    fn destroy_stream(&self, stream: RawStream) {
        let mut state = lock(&self.state);
        if !self.at_once && !state.queues.destroy_stream(stream) {
            state.breaches.add(BreachKind::InvalidCall, "a stream was destroyed twice");
        }
    }
    fn synchronize(&self, stream: RawStream) -> Result<()> {
        let Some(mut state) = self.streams(DriverCall::Synchronize)? else { return Ok(()) };
        let result = state.finish(stream);
        self.meter.waited(state.note(result)?);
        Ok(())
    }
    fn record(&self, stream: RawStream) -> Result<RawEvent> {
        let Some(mut state) = self.streams(DriverCall::Record)? else { return Ok(RawEvent(0)) };
        let result = state.record(stream);
        state.note(result)
    }
    fn is_complete(&self, event: RawEvent) -> Result<bool> {
        let Some(mut state) = self.streams(DriverCall::IsComplete)? else { return Ok(true) };
        let result = state.is_complete(event);
        state.note(result)
    }
    fn wait_event(&self, event: RawEvent) -> Result<()> {
        let Some(mut state) = self.streams(DriverCall::WaitEvent)? else { return Ok(()) };
        let result = state.wait_event(event);
        self.meter.waited(state.note(result)?);
        Ok(())
    }
    fn stream_wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        let Some(mut state) = self.streams(DriverCall::StreamWait)? else { return Ok(()) };
        let result = state.stream_wait(stream, event);
        state.note(result)
    }
    fn destroy_event(&self, event: RawEvent) {
        if !self.at_once {
            let mut state = lock(&self.state);
            if !state.queues.destroy_event(event) {
                state.breaches.add(BreachKind::InvalidCall, "an event was destroyed twice");
            }
        }
    }

    fn host_alloc(&self, bytes: usize) -> Result<*mut u8> {
        self.meter.call(DriverCall::HostAlloc, bytes);
        self.faults.check(DriverCall::HostAlloc)?;
        host::alloc(bytes)
    }
    unsafe fn host_free(&self, pointer: *mut u8, bytes: usize) {
        self.meter.call(DriverCall::HostFree, bytes);
        // SAFETY: the contract is the same.
        unsafe { host::free(pointer, bytes) };
    }

    unsafe fn copy_in(&self, dst: u64, _src: *const u8, bytes: usize, stream: RawStream) -> Result<()> {
        self.copy(dst, bytes, stream, true);
        Ok(())
    }
    unsafe fn copy_out(&self, _dst: *mut u8, _src: u64, _bytes: usize, _stream: RawStream) -> Result<()> {
        Err(SourceError::Unsupported(NO_VALUES))
    }
    unsafe fn copy_device(&self, dst: u64, src: u64, bytes: usize, stream: RawStream) -> Result<()> {
        self.copy(src, bytes, stream, false);
        self.copy(dst, bytes, stream, true);
        Ok(())
    }
    unsafe fn fill(&self, dst: u64, _value: u8, bytes: usize, stream: RawStream) -> Result<()> {
        self.copy(dst, bytes, stream, true);
        Ok(())
    }
}
