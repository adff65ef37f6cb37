//! What a device offers: the seam between the allocator's policy and a driver.
//!
//! Every call is thin and unlocked; the allocator owns order and bookkeeping. Addresses are plain numbers here, so
//! policies are tested on a simulated source that has no memory at all.

use crate::SourceError;
use crate::size::human;

type Result<T> = std::result::Result<T, SourceError>;

/// A physical allocation that can be mapped at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);
/// A queue of device work as the driver names it; 0 where a device runs everything at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawStream(pub u64);
/// A point in a queue as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawEvent(pub u64);

/// The kind of a memory source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// Memory of the host; work on its streams is done when the call returns.
    Host,
    /// A CUDA device.
    Cuda,
    /// Addresses with nothing behind them.
    Simulated,
}

/// Facts about a source.
#[derive(Clone, Debug)]
pub struct SourceInfo {
    /// As in `cuda:0`, `cpu`, `dry-run:141GiB`.
    pub name: String,
    /// What it is.
    pub kind: SourceKind,
    /// Handles are created and mapped in multiples of this many bytes.
    pub granularity: usize,
    /// All bytes of the device.
    pub capacity: usize,
    /// Whether addresses and physical memory are two things, so that pages can be moved: `reserve`, `create`, `map` and their
    /// kin work. Where not, `allocate` and `free` do.
    pub virtual_memory: bool,
}

impl SourceInfo {
    /// How memory is taken from the device, for people: "virtual memory, 2.00 MiB pages", "cuMemAlloc".
    pub fn memory(&self) -> String {
        match (self.virtual_memory, self.kind) {
            (true, _) => format!("virtual memory, {} pages", human(self.granularity)),
            (false, SourceKind::Cuda) => "cuMemAlloc".into(),
            (false, _) => "whole allocations".into(),
        }
    }
}

/// Free and total bytes as the driver counts them.
#[derive(Clone, Copy, Debug)]
pub struct MemoryInfo {
    /// Bytes the driver could still give.
    pub free: usize,
    /// All bytes of the device.
    pub total: usize,
}

/// What a device offers.
///
/// The unsafe methods touch memory, or take it away: their callers hold tokens of the blocks concerned, or know that nothing refers to it.
///
/// # Safety
/// Safe code reads and writes what a source hands out: through slices of blocks where its kind is [`SourceKind::Host`], and of page-locked
/// memory everywhere. So mapped addresses of a host source, and what `host_alloc` returns, must be memory of this process that nobody else
/// uses, initialised in the first case, until they are unmapped or freed.
pub unsafe trait Source: Send + Sync + 'static {
    /// Facts that never change.
    fn info(&self) -> &SourceInfo;
    /// Free and total bytes now.
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// Reserves a range of addresses, with nothing mapped.
    fn reserve(&self, bytes: usize) -> Result<u64>;
    /// Gives a reserved range back; nothing may be mapped in it.
    ///
    /// # Safety
    /// Nothing refers to the range any more.
    unsafe fn release_range(&self, address: u64, bytes: usize) -> Result<()>;
    /// Takes physical memory from the device.
    fn create(&self, bytes: usize) -> Result<Handle>;
    /// Gives physical memory back once its last mapping is gone.
    fn destroy(&self, handle: Handle) -> Result<()>;
    /// Maps a handle at an address inside a reserved range. A handle may be mapped at several addresses at once.
    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()>;
    /// Allows the device to read and write a mapped range.
    fn set_access(&self, address: u64, bytes: usize) -> Result<()>;
    /// Unmaps whole handles. The device must have finished with the range.
    ///
    /// # Safety
    /// Nothing refers to the range any more.
    unsafe fn unmap(&self, address: u64, bytes: usize) -> Result<()>;

    /// Takes memory at an address of the driver's choosing, on a source with no virtual memory.
    fn allocate(&self, bytes: usize) -> Result<u64> {
        let _ = bytes;
        Err(SourceError::Unsupported("this source hands out pages, not whole allocations"))
    }
    /// Gives memory of `allocate` back. The device must have finished with it.
    fn free(&self, address: u64, bytes: usize) -> Result<()> {
        let _ = (address, bytes);
        Err(SourceError::Unsupported("this source hands out pages, not whole allocations"))
    }

    /// A new queue of work.
    fn new_stream(&self) -> Result<RawStream>;
    /// Destroys a queue; its work goes on to the end.
    fn destroy_stream(&self, stream: RawStream);
    /// Waits on the host until all work in the queue is done.
    fn synchronize(&self, stream: RawStream) -> Result<()>;
    /// Marks the current end of a queue.
    fn record(&self, stream: RawStream) -> Result<RawEvent>;
    /// Whether all work before the mark is done.
    fn is_complete(&self, event: RawEvent) -> Result<bool>;
    /// Waits on the host for the mark.
    fn wait_event(&self, event: RawEvent) -> Result<()>;
    /// Makes later work of `stream` wait on the device for the mark.
    fn stream_wait(&self, stream: RawStream, event: RawEvent) -> Result<()>;
    /// Gives a mark back.
    fn destroy_event(&self, event: RawEvent);

    /// Page-locked host memory, or plain host memory where the device has no use for page-locking.
    fn host_alloc(&self, bytes: usize) -> Result<*mut u8>;
    /// Gives host memory back.
    ///
    /// # Safety
    /// `pointer` came from `host_alloc(bytes)` of this source, and nothing uses it any more.
    unsafe fn host_free(&self, pointer: *mut u8, bytes: usize);

    /// Whether host memory at `pointer` is page-locked, so that a copy from it may still read it after `copy_in` returned.
    fn is_page_locked(&self, pointer: *const u8) -> bool {
        let _ = pointer;
        false
    }
    /// Copies host bytes to the device in stream order. From pageable memory the source may be reused on return.
    ///
    /// # Safety
    /// `src` is readable and `dst` mapped for `bytes`; page-locked `src` stays unchanged until the copy is done.
    unsafe fn copy_in(&self, dst: u64, src: *const u8, bytes: usize, stream: RawStream) -> Result<()>;
    /// Copies device bytes to the host and waits for them.
    ///
    /// # Safety
    /// `src` is mapped and `dst` writable for `bytes`.
    unsafe fn copy_out(&self, dst: *mut u8, src: u64, bytes: usize, stream: RawStream) -> Result<()>;
    /// Copies device bytes to device bytes in stream order.
    ///
    /// # Safety
    /// Both ranges are mapped for `bytes` and do not overlap.
    unsafe fn copy_device(&self, dst: u64, src: u64, bytes: usize, stream: RawStream) -> Result<()>;
    /// Sets device bytes to `value` in stream order.
    ///
    /// # Safety
    /// `dst` is mapped for `bytes`.
    unsafe fn fill(&self, dst: u64, value: u8, bytes: usize, stream: RawStream) -> Result<()>;
}
