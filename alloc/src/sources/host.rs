//! Host memory: reserved lazily, given back page by page. Work on its streams is done when the call returns, so events are
//! numbers that mean nothing.

use crate::size::human;
use crate::{Handle, MemoryInfo, RawEvent, RawStream, Source, SourceError, SourceInfo, SourceKind};
use memmap2::{MmapOptions, MmapRaw};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

type Result<T> = std::result::Result<T, SourceError>;

const GRANULARITY: usize = 2 << 20;
/// What is assumed where the system does not say how much memory it has.
const ASSUMED: usize = 8 << 30;
/// Alignment of memory for copies: a page.
const PAGE: usize = 4096;

/// Memory of the host.
pub struct HostSource {
    info: SourceInfo,
    /// Reserved ranges: by their first aligned address, the mapping they lie in.
    ranges: Mutex<BTreeMap<u64, MmapRaw>>,
    taken: AtomicUsize,
}

/// A line of `/proc/meminfo`, in bytes.
fn meminfo(key: &str) -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

impl HostSource {
    /// All of the host's memory: `MemTotal` of `/proc/meminfo`, or 8 GiB where there is no such file.
    pub fn new() -> Result<HostSource> {
        let capacity = meminfo("MemTotal").unwrap_or(ASSUMED);
        let info =
            SourceInfo { name: "cpu".into(), kind: SourceKind::Host, granularity: GRANULARITY, capacity, virtual_memory: true };
        Ok(HostSource { info, ranges: Mutex::default(), taken: AtomicUsize::new(0) })
    }
}

fn layout(bytes: usize) -> Result<Layout> {
    Layout::from_size_align(bytes.max(1), PAGE).map_err(|_| SourceError::OutOfMemory)
}

/// Plain host memory, aligned to a page.
pub(super) fn alloc(bytes: usize) -> Result<*mut u8> {
    // SAFETY: the layout's size is not zero.
    let pointer = unsafe { std::alloc::alloc(layout(bytes)?) };
    if pointer.is_null() { Err(SourceError::OutOfMemory) } else { Ok(pointer) }
}

/// Gives it back.
///
/// # Safety
/// `pointer` came from `alloc(bytes)`, and nothing uses it any more.
pub(super) unsafe fn free(pointer: *mut u8, bytes: usize) {
    if let Ok(layout) = layout(bytes) {
        // SAFETY: by contract the pointer came from this layout.
        unsafe { std::alloc::dealloc(pointer, layout) };
    }
}

/// An error of the system, in its words.
fn system(call: &'static str, error: std::io::Error) -> SourceError {
    if error.kind() == std::io::ErrorKind::OutOfMemory {
        return SourceError::OutOfMemory;
    }
    SourceError::Driver { call, code: error.raw_os_error().unwrap_or(0) as u32, message: error.to_string() }
}

// SAFETY: blocks of different addresses lie in different pages of private mappings, which are zero at first, and `host_alloc` asks the system's
// allocator.
unsafe impl Source for HostSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }
    fn memory_info(&self) -> Result<MemoryInfo> {
        let taken = self.taken.load(Ordering::Relaxed);
        let free = meminfo("MemAvailable").unwrap_or(self.info.capacity.saturating_sub(taken));
        Ok(MemoryInfo { free, total: self.info.capacity })
    }

    fn reserve(&self, bytes: usize) -> Result<u64> {
        let len = bytes.checked_add(GRANULARITY).ok_or(SourceError::OutOfMemory)?;
        let map = MmapOptions::new().len(len).no_reserve_swap().map_anon().map_err(|error| system("mmap", error))?;
        let map = MmapRaw::from(map);
        let pointer = map.as_mut_ptr();
        // Aligned to a large page, so that the system may use them.
        let address = (pointer.expose_provenance() as u64).next_multiple_of(GRANULARITY as u64);
        #[cfg(target_os = "linux")]
        // Only advice: without large pages everything works, with more page faults.
        let _ = map.advise(memmap2::Advice::HugePage);
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).insert(address, map);
        Ok(address)
    }
    unsafe fn release_range(&self, address: u64, _bytes: usize) -> Result<()> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
        Ok(())
    }
    fn create(&self, bytes: usize) -> Result<Handle> {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.info.capacity);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| SourceError::OutOfMemory)?;
        // The handle says how much it stands for; pages of the range appear when they are first touched.
        Ok(Handle(bytes as u64))
    }
    fn destroy(&self, handle: Handle) -> Result<()> {
        self.taken.fetch_sub(handle.0 as usize, Ordering::Relaxed);
        Ok(())
    }
    fn map(&self, _address: u64, _bytes: usize, _handle: Handle) -> Result<()> {
        Ok(())
    }
    fn set_access(&self, _address: u64, _bytes: usize) -> Result<()> {
        Ok(())
    }
    unsafe fn unmap(&self, address: u64, bytes: usize) -> Result<()> {
        #[cfg(target_os = "linux")]
        {
            let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, map)) = ranges.range(..=address).next_back() {
                let offset = address as usize - map.as_mut_ptr().addr();
                // SAFETY: the allocator unmaps only ranges that no block covers, so nothing refers to these bytes; they read as
                // zeros when touched again.
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, bytes) }
                    .map_err(|error| system("madvise", error))?;
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (address, bytes);
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
        alloc(bytes)
    }
    unsafe fn host_free(&self, pointer: *mut u8, bytes: usize) {
        // SAFETY: the contract is the same.
        unsafe { free(pointer, bytes) };
    }

    unsafe fn copy_in(&self, dst: u64, src: *const u8, bytes: usize, _stream: RawStream) -> Result<()> {
        // SAFETY: by contract both ranges are valid; a block's bytes never overlap other host memory.
        unsafe { std::ptr::copy_nonoverlapping(src, std::ptr::with_exposed_provenance_mut(dst as usize), bytes) };
        Ok(())
    }
    unsafe fn copy_out(&self, dst: *mut u8, src: u64, bytes: usize, _stream: RawStream) -> Result<()> {
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::copy_nonoverlapping(std::ptr::with_exposed_provenance(src as usize), dst, bytes) };
        Ok(())
    }
    unsafe fn copy_device(&self, dst: u64, src: u64, bytes: usize, _stream: RawStream) -> Result<()> {
        let src = std::ptr::with_exposed_provenance::<u8>(src as usize);
        // SAFETY: by contract both ranges are valid and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(src, std::ptr::with_exposed_provenance_mut(dst as usize), bytes) };
        Ok(())
    }
    unsafe fn fill(&self, dst: u64, value: u8, bytes: usize, _stream: RawStream) -> Result<()> {
        // SAFETY: by contract the range is valid.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(dst as usize).write_bytes(value, bytes) };
        Ok(())
    }
}

impl std::fmt::Debug for HostSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostSource({})", human(self.info.capacity))
    }
}
