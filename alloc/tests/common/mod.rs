//! A simulated GPU whose streams run late: work is done only when the test says so, and every breach of ordering is caught.
//!
//! Each stream has a vector clock: `clock[o]` is how far it waits for stream `o`. `done[o]` is how far `o` has run. Two uses of
//! one address conflict unless the later one waits for the earlier one or the earlier one is done.
#![allow(dead_code)]

use kiln_alloc::sources::SimulatedSource;
use kiln_alloc::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub const MIB: usize = 1 << 20;
pub const GIB: usize = 1 << 30;

type Result<T> = std::result::Result<T, SourceError>;
type Clock = Vec<u64>;

pub struct Gpu {
    pub memory: SimulatedSource,
    clocks: Mutex<Clocks>,
    /// Whether marking a stream, or asking for a mark, fails from now on.
    pub broken: AtomicBool,
}

#[derive(Default)]
struct Clocks {
    streams: Vec<Clock>,
    done: Clock,
    events: HashMap<u64, Clock>,
    next_event: u64,
    uses: Vec<Use>,
}

struct Use {
    from: u64,
    to: u64,
    stream: usize,
    count: u64,
    block: u64,
    write: bool,
}

fn join(a: &mut Clock, b: &Clock) {
    a.resize(a.len().max(b.len()), 0);
    a.iter_mut().zip(b).for_each(|(a, b)| *a = (*a).max(*b));
}

impl Clocks {
    fn advance(&mut self, stream: usize) -> u64 {
        let clock = &mut self.streams[stream];
        clock.resize(clock.len().max(stream + 1), 0);
        clock[stream] += 1;
        clock[stream]
    }
    fn finish(&mut self, clock: &Clock) {
        join(&mut self.done, clock);
        let done = &self.done;
        self.uses.retain(|u| done.get(u.stream).is_none_or(|d| *d < u.count));
    }
}

impl Gpu {
    pub fn new(capacity: usize) -> Arc<Gpu> {
        let memory = SimulatedSource::new("late", capacity);
        Arc::new(Gpu { memory, clocks: Mutex::default(), broken: AtomicBool::new(false) })
    }
    pub fn allocator(self: &Arc<Gpu>) -> Allocator {
        Allocator::new(self.clone(), AllocatorConfig::default()).unwrap()
    }
    fn clocks(&self) -> MutexGuard<'_, Clocks> {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Runs everything enqueued on a stream so far, with what it waits for.
    pub fn finish(&self, stream: &Stream) {
        let mut clocks = self.clocks();
        let clock = clocks.streams[stream.raw().0 as usize].clone();
        clocks.finish(&clock);
    }
    /// Enqueues a use of a block, which must not conflict with any other.
    pub fn touch(&self, block: &Block, stream: &Stream, write: bool) {
        let address = if write { block.write(stream).map(|t| t.address()) } else { block.read(stream).map(|t| t.address()) };
        let from = address.unwrap();
        let (to, at) = (from + block.bytes() as u64, stream.raw().0 as usize);
        let mut clocks = self.clocks();
        let count = clocks.advance(at);
        let clock = clocks.streams[at].clone();
        for u in clocks.uses.iter().filter(|u| u.from < to && from < u.to && (u.block != block.id() || u.write || write)) {
            let waits = clock.get(u.stream).is_some_and(|c| *c >= u.count);
            assert!(waits, "block {} on stream {at} conflicts with block {} on stream {}", block.id(), u.block, u.stream);
        }
        clocks.uses.push(Use { from, to, stream: at, count, block: block.id(), write });
    }
    fn check(&self) -> Result<()> {
        match self.broken.load(Ordering::Relaxed) {
            true => Err(SourceError::Driver { call: "record", code: 700, message: "the device is broken".into() }),
            false => Ok(()),
        }
    }
}

impl Source for Gpu {
    fn info(&self) -> &SourceInfo {
        self.memory.info()
    }
    fn memory_info(&self) -> Result<MemoryInfo> {
        self.memory.memory_info()
    }
    fn reserve(&self, bytes: usize) -> Result<u64> {
        self.memory.reserve(bytes)
    }
    fn release_range(&self, address: u64, bytes: usize) -> Result<()> {
        self.memory.release_range(address, bytes)
    }
    fn create(&self, bytes: usize) -> Result<Handle> {
        self.memory.create(bytes)
    }
    fn destroy(&self, handle: Handle) -> Result<()> {
        self.memory.destroy(handle)
    }
    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()> {
        self.memory.map(address, bytes, handle)
    }
    fn set_access(&self, address: u64, bytes: usize) -> Result<()> {
        self.memory.set_access(address, bytes)
    }
    fn unmap(&self, address: u64, bytes: usize) -> Result<()> {
        let end = address + bytes as u64;
        let clocks = self.clocks();
        let user = clocks.uses.iter().find(|u| u.from < end && address < u.to);
        assert!(user.is_none(), "unmapped while in use by block {}", user.unwrap().block);
        self.memory.unmap(address, bytes)
    }
    fn new_stream(&self) -> Result<RawStream> {
        let mut clocks = self.clocks();
        clocks.streams.push(Clock::new());
        Ok(RawStream(clocks.streams.len() as u64 - 1))
    }
    fn destroy_stream(&self, _stream: RawStream) {}
    fn synchronize(&self, stream: RawStream) -> Result<()> {
        self.check()?;
        let mut clocks = self.clocks();
        let clock = clocks.streams[stream.0 as usize].clone();
        clocks.finish(&clock);
        Ok(())
    }
    fn record(&self, stream: RawStream) -> Result<RawEvent> {
        self.check()?;
        let mut clocks = self.clocks();
        clocks.advance(stream.0 as usize);
        let clock = clocks.streams[stream.0 as usize].clone();
        clocks.next_event += 1;
        let event = clocks.next_event;
        clocks.events.insert(event, clock);
        Ok(RawEvent(event))
    }
    fn is_complete(&self, event: RawEvent) -> Result<bool> {
        self.check()?;
        let clocks = self.clocks();
        let clock = &clocks.events[&event.0];
        Ok(clock.iter().enumerate().all(|(o, c)| *c == 0 || clocks.done.get(o).is_some_and(|d| d >= c)))
    }
    fn wait_event(&self, event: RawEvent) -> Result<()> {
        self.check()?;
        let mut clocks = self.clocks();
        let clock = clocks.events[&event.0].clone();
        clocks.finish(&clock);
        Ok(())
    }
    fn stream_wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        self.check()?;
        let mut clocks = self.clocks();
        let clock = clocks.events[&event.0].clone();
        join(&mut clocks.streams[stream.0 as usize], &clock);
        Ok(())
    }
    fn destroy_event(&self, event: RawEvent) {
        assert!(self.clocks().events.remove(&event.0).is_some(), "an event was destroyed twice");
    }
    fn host_alloc(&self, bytes: usize) -> Result<*mut u8> {
        self.memory.host_alloc(bytes)
    }
    unsafe fn host_free(&self, pointer: *mut u8, bytes: usize) {
        // SAFETY: the contract is the same.
        unsafe { self.memory.host_free(pointer, bytes) };
    }
    unsafe fn copy_in(&self, dst: u64, src: *const u8, bytes: usize, stream: RawStream) -> Result<()> {
        self.clocks().advance(stream.0 as usize);
        // SAFETY: the contract is the same.
        unsafe { self.memory.copy_in(dst, src, bytes, stream) }
    }
    unsafe fn copy_out(&self, dst: *mut u8, src: u64, bytes: usize, stream: RawStream) -> Result<()> {
        // SAFETY: the contract is the same.
        unsafe { self.memory.copy_out(dst, src, bytes, stream) }
    }
    unsafe fn copy_device(&self, dst: u64, src: u64, bytes: usize, stream: RawStream) -> Result<()> {
        // SAFETY: the contract is the same.
        unsafe { self.memory.copy_device(dst, src, bytes, stream) }
    }
    unsafe fn fill(&self, dst: u64, value: u8, bytes: usize, stream: RawStream) -> Result<()> {
        self.clocks().advance(stream.0 as usize);
        // SAFETY: the contract is the same.
        unsafe { self.memory.fill(dst, value, bytes, stream) }
    }
}
