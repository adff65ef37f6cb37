//! Drivers that lie: broken on purpose around a simulated GPU, which must catch what comes of it.

use kiln_alloc::sources::SimulatedSource;
use kiln_alloc::*;
use std::sync::{Arc, Mutex};

type Result<T> = std::result::Result<T, SourceError>;

/// What the driver does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lie {
    Nothing,
    /// `stream_wait` is swallowed.
    NoStreamWait,
    /// Queries and waits on the host say that all is done, at once.
    AllDone,
    /// `reserve` hands the first range out again.
    OneRange,
    /// `create` hands every handle out twice.
    OneHandle,
}

pub struct Lying {
    pub gpu: Arc<SimulatedSource>,
    pub lie: Lie,
    /// What was handed out once.
    range: Mutex<Option<u64>>,
    handle: Mutex<Option<Handle>>,
}

impl Lying {
    pub fn new(gpu: Arc<SimulatedSource>, lie: Lie) -> Arc<Lying> {
        Arc::new(Lying { gpu, lie, range: Mutex::default(), handle: Mutex::default() })
    }
}

// SAFETY: its lies are about streams of a device with no memory; host memory is the simulated GPU's.
unsafe impl Source for Lying {
    fn info(&self) -> &SourceInfo {
        self.gpu.info()
    }
    fn memory_info(&self) -> Result<MemoryInfo> {
        self.gpu.memory_info()
    }
    fn reserve(&self, bytes: usize) -> Result<u64> {
        let mut first = self.range.lock().unwrap();
        if let (Lie::OneRange, Some(address)) = (self.lie, *first) {
            return Ok(address);
        }
        let address = self.gpu.reserve(bytes)?;
        *first = Some(address);
        Ok(address)
    }
    unsafe fn release_range(&self, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: the contract is the same.
        unsafe { self.gpu.release_range(address, bytes) }
    }
    fn create(&self, bytes: usize) -> Result<Handle> {
        let mut last = self.handle.lock().unwrap();
        if let (Lie::OneHandle, Some(handle)) = (self.lie, last.take()) {
            return Ok(handle);
        }
        let handle = self.gpu.create(bytes)?;
        *last = Some(handle);
        Ok(handle)
    }
    fn destroy(&self, handle: Handle) -> Result<()> {
        self.gpu.destroy(handle)
    }
    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()> {
        self.gpu.map(address, bytes, handle)
    }
    fn set_access(&self, address: u64, bytes: usize) -> Result<()> {
        self.gpu.set_access(address, bytes)
    }
    unsafe fn unmap(&self, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: the contract is the same.
        unsafe { self.gpu.unmap(address, bytes) }
    }
    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.gpu.allocate(bytes)
    }
    fn free(&self, address: u64, bytes: usize) -> Result<()> {
        self.gpu.free(address, bytes)
    }
    fn new_stream(&self) -> Result<RawStream> {
        self.gpu.new_stream()
    }
    fn destroy_stream(&self, stream: RawStream) {
        self.gpu.destroy_stream(stream)
    }
    fn synchronize(&self, stream: RawStream) -> Result<()> {
        if self.lie == Lie::AllDone { Ok(()) } else { self.gpu.synchronize(stream) }
    }
    fn record(&self, stream: RawStream) -> Result<RawEvent> {
        self.gpu.record(stream)
    }
    fn is_complete(&self, event: RawEvent) -> Result<bool> {
        if self.lie == Lie::AllDone { Ok(true) } else { self.gpu.is_complete(event) }
    }
    fn wait_event(&self, event: RawEvent) -> Result<()> {
        if self.lie == Lie::AllDone { Ok(()) } else { self.gpu.wait_event(event) }
    }
    fn stream_wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        if self.lie == Lie::NoStreamWait { Ok(()) } else { self.gpu.stream_wait(stream, event) }
    }
    fn destroy_event(&self, event: RawEvent) {
        self.gpu.destroy_event(event)
    }
    fn host_alloc(&self, bytes: usize) -> Result<*mut u8> {
        self.gpu.host_alloc(bytes)
    }
    unsafe fn host_free(&self, pointer: *mut u8, bytes: usize) {
        // SAFETY: the contract is the same.
        unsafe { self.gpu.host_free(pointer, bytes) };
    }
    unsafe fn copy_in(&self, dst: u64, src: *const u8, bytes: usize, stream: RawStream) -> Result<()> {
        // SAFETY: the contract is the same.
        unsafe { self.gpu.copy_in(dst, src, bytes, stream) }
    }
    unsafe fn copy_out(&self, dst: *mut u8, src: u64, bytes: usize, stream: RawStream) -> Result<()> {
        // SAFETY: the contract is the same.
        unsafe { self.gpu.copy_out(dst, src, bytes, stream) }
    }
    unsafe fn copy_device(&self, dst: u64, src: u64, bytes: usize, stream: RawStream) -> Result<()> {
        // SAFETY: the contract is the same.
        unsafe { self.gpu.copy_device(dst, src, bytes, stream) }
    }
    unsafe fn fill(&self, dst: u64, value: u8, bytes: usize, stream: RawStream) -> Result<()> {
        // SAFETY: the contract is the same.
        unsafe { self.gpu.fill(dst, value, bytes, stream) }
    }
}
