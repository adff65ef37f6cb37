//! A CUDA device's memory: pages of virtual memory where the device has it, else whole allocations by `cuMemAlloc`.
//!
//! Streams, events, copies and page-locked memory are the same for both. The difference: pages can be moved and given back while
//! kernels run, whereas `cuMemFree` first waits for all work of the device, so a plain source gives memory back seldom.

mod pages;

use crate::driver::{self, Context, check};
use crate::{Handle, MemoryInfo, RawEvent, RawStream, Source, SourceError, SourceInfo, SourceKind};
use cudarc::driver::sys;
use pages::Pages;
use std::ffi::{c_uint, c_void};
use std::sync::{Mutex, PoisonError};

type Result<T> = std::result::Result<T, SourceError>;

/// Plain allocations are multiples of this many bytes: the driver backs them with pages of this size anyway.
const PLAIN_GRANULARITY: usize = 2 << 20;
const NO_PAGES: SourceError = SourceError::Unsupported("memory of this CUDA source is allocated whole, not as pages");
const NO_WHOLE: SourceError = SourceError::Unsupported("memory of this CUDA source is mapped as pages, not allocated whole");

/// How a [`CudaSource`] takes memory from its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CudaMemory {
    /// Virtual memory where the device has it, else plain allocations.
    #[default]
    Auto,
    /// Virtual memory: `reserve`, `create`, `map` and their kin.
    Virtual,
    /// `cuMemAlloc` and `cuMemFree`: `allocate` and `free`.
    Plain,
}

/// How a [`CudaSource`] is set up. The default is what [`CudaSource::new`] uses.
#[derive(Clone, Debug, Default)]
pub struct CudaOptions {
    /// How memory is taken from the device.
    pub memory: CudaMemory,
    /// Ordinals of other devices that may read and write the memory. Needs virtual memory.
    pub peers: Vec<usize>,
    /// Whether other processes may open physical handles, passed to them as POSIX file descriptors. Needs virtual memory.
    pub exportable: bool,
}

/// A CUDA device's memory.
pub struct CudaSource {
    info: SourceInfo,
    context: Context,
    /// `None`: plain allocations.
    pages: Option<Pages>,
    /// Events to use again: making one costs more than recording it.
    events: Mutex<Vec<RawEvent>>,
}

fn stream_of(stream: RawStream) -> sys::CUstream {
    stream.0 as usize as sys::CUstream
}
fn event_of(event: RawEvent) -> sys::CUevent {
    event.0 as usize as sys::CUevent
}

impl CudaSource {
    /// The memory of device `ordinal`; says why where there is none. [`SourceInfo::memory`] says how it is taken.
    ///
    /// # Errors
    /// `NoCuda` with no driver or no such device; what the driver says.
    pub fn new(ordinal: usize) -> Result<CudaSource> {
        CudaSource::with(ordinal, CudaOptions::default())
    }
    /// The memory of device `ordinal`, taken as `options` say.
    ///
    /// # Errors
    /// As for [`CudaSource::new`]; `Unsupported` where the device lacks what the options need; `NoPeerAccess` where a peer cannot
    /// reach the device's memory.
    pub fn with(ordinal: usize, options: CudaOptions) -> Result<CudaSource> {
        let facts = driver::device_info(ordinal)?;
        let virtual_memory = match options.memory {
            CudaMemory::Auto => facts.virtual_memory,
            CudaMemory::Virtual if !facts.virtual_memory => {
                return Err(SourceError::Unsupported("this CUDA device does not support virtual memory management"));
            }
            CudaMemory::Virtual => true,
            CudaMemory::Plain => false,
        };
        if !virtual_memory && (options.exportable || !options.peers.is_empty()) {
            return Err(SourceError::Unsupported("only virtual memory of a CUDA device is opened to peers or exported"));
        }
        let context = Context::of(ordinal)?;
        context.bind()?;
        let pages = virtual_memory.then(|| Pages::new(ordinal, &options.peers, options.exportable)).transpose()?;
        let info = SourceInfo {
            name: format!("cuda:{ordinal}"),
            kind: SourceKind::Cuda,
            granularity: pages.as_ref().map_or(PLAIN_GRANULARITY, |pages| pages.granularity),
            capacity: facts.total_memory,
            virtual_memory,
        };
        Ok(CudaSource { info, context, pages, events: Mutex::default() })
    }

    /// Virtual memory, with the context current.
    fn pages(&self) -> Result<&Pages> {
        let pages = self.pages.as_ref().ok_or(NO_PAGES)?;
        self.context.bind()?;
        Ok(pages)
    }
    fn events(&self) -> std::sync::MutexGuard<'_, Vec<RawEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: it is no host source, and the driver gives page-locked memory to nobody else.
unsafe impl Source for CudaSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }
    fn memory_info(&self) -> Result<MemoryInfo> {
        self.context.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the out pointers are valid, and the context is current.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(MemoryInfo { free, total })
    }

    fn reserve(&self, bytes: usize) -> Result<u64> {
        self.pages()?.reserve(bytes)
    }
    unsafe fn release_range(&self, address: u64, bytes: usize) -> Result<()> {
        self.pages()?.release_range(address, bytes)
    }
    fn create(&self, bytes: usize) -> Result<Handle> {
        self.pages()?.create(bytes)
    }
    fn destroy(&self, handle: Handle) -> Result<()> {
        self.pages()?.destroy(handle)
    }
    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()> {
        self.pages()?.map(address, bytes, handle)
    }
    fn set_access(&self, address: u64, bytes: usize) -> Result<()> {
        self.pages()?.set_access(address, bytes)
    }
    unsafe fn unmap(&self, address: u64, bytes: usize) -> Result<()> {
        self.pages()?.unmap(address, bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        if self.pages.is_some() {
            return Err(NO_WHOLE);
        }
        self.context.bind()?;
        let mut address = 0;
        // SAFETY: the out pointer is valid, and the context is current.
        check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, bytes) })?;
        Ok(address)
    }
    fn free(&self, address: u64, _bytes: usize) -> Result<()> {
        if self.pages.is_some() {
            return Err(NO_WHOLE);
        }
        self.context.bind()?;
        // SAFETY: the caller gives back what `allocate` returned. The driver waits for all work of the device first.
        check("cuMemFree", unsafe { sys::cuMemFree_v2(address) })
    }

    fn new_stream(&self) -> Result<RawStream> {
        self.context.bind()?;
        let mut stream: sys::CUstream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the out pointer is valid, and the context is current.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        Ok(RawStream(stream as usize as u64))
    }
    fn destroy_stream(&self, stream: RawStream) {
        if self.context.bind().is_ok() {
            // SAFETY: its owner destroys a stream once, as the last to name it. An error is an older one of the device.
            let _ = unsafe { sys::cuStreamDestroy_v2(stream_of(stream)) };
        }
    }
    fn synchronize(&self, stream: RawStream) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream_of(stream)) })
    }
    fn record(&self, stream: RawStream) -> Result<RawEvent> {
        self.context.bind()?;
        let pooled = self.events().pop();
        let event = match pooled {
            Some(event) => event,
            None => {
                let mut event: sys::CUevent = std::ptr::null_mut();
                let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
                // SAFETY: the out pointer is valid, and the context is current.
                check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags) })?;
                RawEvent(event as usize as u64)
            }
        };
        // SAFETY: both handles are alive and of this context.
        let recorded = check("cuEventRecord", unsafe { sys::cuEventRecord(event_of(event), stream_of(stream)) });
        if recorded.is_err() {
            self.destroy_event(event);
        }
        recorded.map(|()| event)
    }
    fn is_complete(&self, event: RawEvent) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(event_of(event)) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check("cuEventQuery", result).map(|()| true),
        }
    }
    fn wait_event(&self, event: RawEvent) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the event is alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(event_of(event)) })
    }
    fn stream_wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both handles are alive.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream_of(stream), event_of(event), 0) })
    }
    fn destroy_event(&self, event: RawEvent) {
        // A wait already enqueued keeps the record it was made for, so the event may be recorded again.
        self.events().push(event);
    }

    fn host_alloc(&self, bytes: usize) -> Result<*mut u8> {
        self.context.bind()?;
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: the out pointer is valid. No flags: write-combined memory is slow to read.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut pointer, bytes, 0) })?;
        Ok(pointer.cast())
    }
    unsafe fn host_free(&self, pointer: *mut u8, _bytes: usize) {
        if self.context.bind().is_ok() {
            // SAFETY: by contract it came from `host_alloc` and has no user. An error is an older one of the device.
            let _ = unsafe { sys::cuMemFreeHost(pointer.cast()) };
        }
    }

    fn is_page_locked(&self, pointer: *const u8) -> bool {
        let mut kind: c_uint = 0;
        let mut which = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        let mut place: *mut c_void = (&raw mut kind).cast();
        // The plural form: an address the driver does not know is no error there, and leaves 0.
        // SAFETY: one attribute, an unsigned int, and one place for it; the driver only looks the address up.
        let known = self.context.bind().is_ok()
            && unsafe { sys::cuPointerGetAttributes(1, &mut which, &mut place, pointer as u64) } == sys::CUresult::CUDA_SUCCESS;
        known && kind != 0
    }
    unsafe fn copy_in(&self, dst: u64, src: *const u8, bytes: usize, stream: RawStream) -> Result<()> {
        self.context.bind()?;
        // SAFETY: by contract the ranges are valid. From pageable memory the driver returns once it has taken the bytes into a
        // buffer of its own, so that may be reused; the copy to the device is in stream order.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(dst, src.cast(), bytes, stream_of(stream)) };
        check("cuMemcpyHtoDAsync", result)
    }
    unsafe fn copy_out(&self, dst: *mut u8, src: u64, bytes: usize, stream: RawStream) -> Result<()> {
        self.context.bind()?;
        // SAFETY: by contract the ranges are valid, and the copy is waited for below.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(dst.cast(), src, bytes, stream_of(stream)) };
        let copied = check("cuMemcpyDtoHAsync", result);
        // Waits even after an error: the driver must be done with the caller's memory.
        let waited = self.synchronize(stream);
        copied.and(waited)
    }
    unsafe fn copy_device(&self, dst: u64, src: u64, bytes: usize, stream: RawStream) -> Result<()> {
        self.context.bind()?;
        // SAFETY: by contract the ranges are valid and do not overlap.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(dst, src, bytes, stream_of(stream)) };
        check("cuMemcpyDtoDAsync", result)
    }
    unsafe fn fill(&self, dst: u64, value: u8, bytes: usize, stream: RawStream) -> Result<()> {
        self.context.bind()?;
        // SAFETY: by contract the range is valid.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(dst, value, bytes, stream_of(stream)) })
    }
}

impl Drop for CudaSource {
    fn drop(&mut self) {
        if self.context.bind().is_err() {
            return;
        }
        for event in std::mem::take(&mut *self.events()) {
            // SAFETY: a pooled event has no user. An error is an older one of the device.
            let _ = unsafe { sys::cuEventDestroy_v2(event_of(event)) };
        }
    }
}

impl std::fmt::Debug for CudaSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaSource({}, {})", self.info.name, self.info.memory())
    }
}
