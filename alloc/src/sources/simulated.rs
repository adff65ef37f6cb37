//! Addresses with nothing behind them: a device of any capacity for dry runs and tests.
//!
//! It keeps the books of a real driver: a page is mapped once, inside a reserved range, from a handle that exists; memory runs
//! out at the capacity; what breaks these rules is an error. Work on its streams is done at once.

use super::host;
use crate::{Handle, MemoryInfo, RawEvent, RawStream, Source, SourceError, SourceInfo, SourceKind};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Result<T> = std::result::Result<T, SourceError>;

const GRANULARITY: usize = 2 << 20;
/// Where its addresses begin: as on a GPU, far from null and below 2^53.
const BASE: u64 = 0x7000_0000_0000;
const NO_VALUES: &str = "values cannot be read on a dry-run device: it computes nothing";

/// A simulated device.
pub struct SimulatedSource {
    info: SourceInfo,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Reserved ranges by address.
    ranges: BTreeMap<u64, usize>,
    end: u64,
    /// Bytes of each handle, and whether it is mapped.
    handles: HashMap<u64, (usize, bool)>,
    next_handle: u64,
    used: usize,
    /// Mapped pages by address: their size, handle, and whether they may be accessed.
    mapped: BTreeMap<u64, (usize, u64, bool)>,
    /// Calls until one fails.
    fail_in: Option<u64>,
}

/// A breach of the driver's rules.
fn broken(call: &'static str, message: &str) -> SourceError {
    SourceError::Driver { call, code: 1, message: message.into() }
}

impl State {
    /// Counts a call that takes memory; fails if its turn has come.
    fn tick(&mut self, call: &'static str) -> Result<()> {
        let Some(left) = &mut self.fail_in else { return Ok(()) };
        *left -= 1;
        if *left > 0 {
            return Ok(());
        }
        self.fail_in = None;
        Err(SourceError::Driver { call, code: 999, message: "a planned failure".into() })
    }

    /// The mapped pages that tile a range exactly.
    fn tiles(&self, call: &'static str, address: u64, bytes: usize) -> Result<Vec<u64>> {
        let mut at = address;
        let end = address + bytes as u64;
        let mut pages = Vec::new();
        while at < end {
            let (size, _, _) = self.mapped.get(&at).ok_or_else(|| broken(call, "the range is not made of whole mapped pages"))?;
            pages.push(at);
            at += *size as u64;
        }
        if at == end { Ok(pages) } else { Err(broken(call, "the range ends inside a page")) }
    }
}

impl SimulatedSource {
    /// A device named `name` of `capacity` bytes.
    pub fn new(name: impl Into<String>, capacity: usize) -> SimulatedSource {
        let info = SourceInfo {
            name: name.into(),
            kind: SourceKind::Simulated,
            granularity: GRANULARITY,
            capacity,
            virtual_memory: true,
        };
        SimulatedSource { info, state: Mutex::new(State { end: BASE, ..State::default() }) }
    }

    /// Makes the `k`-th call from now that takes or maps memory fail, counted from 1; 0 lifts the plan. For tests.
    pub fn fail_call(&self, k: u64) {
        self.state().fail_in = (k > 0).then_some(k);
    }
    /// Bytes of physical memory taken, and bytes mapped. For tests.
    pub fn bytes_taken(&self) -> (usize, usize) {
        let state = self.state();
        (state.used, state.mapped.values().map(|(size, _, _)| size).sum())
    }
    /// Whether no memory is taken and no address reserved. For tests.
    pub fn is_pristine(&self) -> bool {
        let state = self.state();
        state.handles.is_empty() && state.mapped.is_empty() && state.ranges.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for SimulatedSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }
    fn memory_info(&self) -> Result<MemoryInfo> {
        Ok(MemoryInfo { free: self.info.capacity - self.state().used, total: self.info.capacity })
    }

    fn reserve(&self, bytes: usize) -> Result<u64> {
        let mut state = self.state();
        let address = state.end;
        // As on a GPU, no more than 47 bits of addresses.
        state.end = address.checked_add(bytes as u64).filter(|end| *end < BASE + (1 << 47)).ok_or(SourceError::OutOfMemory)?;
        state.ranges.insert(address, bytes);
        Ok(address)
    }
    fn release_range(&self, address: u64, bytes: usize) -> Result<()> {
        let mut state = self.state();
        if state.mapped.range(address..address + bytes as u64).next().is_some() {
            return Err(broken("release_range", "something is mapped in the range"));
        }
        match state.ranges.remove(&address) {
            Some(len) if len == bytes => Ok(()),
            _ => Err(broken("release_range", "no such range")),
        }
    }
    fn create(&self, bytes: usize) -> Result<Handle> {
        let mut state = self.state();
        state.tick("create")?;
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(broken("create", "the size is no multiple of the granularity"));
        }
        if self.info.capacity - state.used < bytes {
            return Err(SourceError::OutOfMemory);
        }
        state.used += bytes;
        state.next_handle += 1;
        let handle = state.next_handle;
        state.handles.insert(handle, (bytes, false));
        Ok(Handle(handle))
    }
    fn destroy(&self, handle: Handle) -> Result<()> {
        let mut state = self.state();
        let (bytes, mapped) = *state.handles.get(&handle.0).ok_or_else(|| broken("destroy", "no such handle"))?;
        if mapped {
            return Err(broken("destroy", "the handle is still mapped"));
        }
        state.handles.remove(&handle.0);
        state.used -= bytes;
        Ok(())
    }
    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()> {
        let mut state = self.state();
        state.tick("map")?;
        let end = address + bytes as u64;
        if state.handles.get(&handle.0) != Some(&(bytes, false)) {
            return Err(broken("map", "the handle is not of this size, or mapped elsewhere"));
        }
        if state.ranges.range(..=address).next_back().is_none_or(|(from, len)| end > from + *len as u64) {
            return Err(broken("map", "the range is not reserved"));
        }
        let before = state.mapped.range(..end).next_back();
        if before.is_some_and(|(at, (size, _, _))| at + *size as u64 > address) {
            return Err(broken("map", "something is mapped there"));
        }
        state.mapped.insert(address, (bytes, handle.0, false));
        state.handles.insert(handle.0, (bytes, true));
        Ok(())
    }
    fn set_access(&self, address: u64, bytes: usize) -> Result<()> {
        let mut state = self.state();
        state.tick("set_access")?;
        for page in state.tiles("set_access", address, bytes)? {
            state.mapped.entry(page).and_modify(|(_, _, access)| *access = true);
        }
        Ok(())
    }
    fn unmap(&self, address: u64, bytes: usize) -> Result<()> {
        let mut state = self.state();
        for page in state.tiles("unmap", address, bytes)? {
            let handle = state.mapped.remove(&page).map(|(_, handle, _)| handle);
            if let Some((_, mapped)) = handle.and_then(|handle| state.handles.get_mut(&handle)) {
                *mapped = false;
            }
        }
        Ok(())
    }

    fn new_stream(&self) -> Result<RawStream> {
        Ok(RawStream(0))
    }
    fn destroy_stream(&self, _stream: RawStream) {}
    fn synchronize(&self, _stream: RawStream) -> Result<()> {
        Ok(())
    }
    fn record(&self, _stream: RawStream) -> Result<RawEvent> {
        Ok(RawEvent(0))
    }
    fn is_complete(&self, _event: RawEvent) -> Result<bool> {
        Ok(true)
    }
    fn wait_event(&self, _event: RawEvent) -> Result<()> {
        Ok(())
    }
    fn stream_wait(&self, _stream: RawStream, _event: RawEvent) -> Result<()> {
        Ok(())
    }
    fn destroy_event(&self, _event: RawEvent) {}

    fn host_alloc(&self, bytes: usize) -> Result<*mut u8> {
        host::alloc(bytes)
    }
    unsafe fn host_free(&self, pointer: *mut u8, bytes: usize) {
        // SAFETY: the contract is the same.
        unsafe { host::free(pointer, bytes) };
    }

    unsafe fn copy_in(&self, _dst: u64, _src: *const u8, _bytes: usize, _stream: RawStream) -> Result<()> {
        Ok(())
    }
    unsafe fn copy_out(&self, _dst: *mut u8, _src: u64, _bytes: usize, _stream: RawStream) -> Result<()> {
        Err(SourceError::Unsupported(NO_VALUES))
    }
    unsafe fn copy_device(&self, _dst: u64, _src: u64, _bytes: usize, _stream: RawStream) -> Result<()> {
        Ok(())
    }
    unsafe fn fill(&self, _dst: u64, _value: u8, _bytes: usize, _stream: RawStream) -> Result<()> {
        Ok(())
    }
}
