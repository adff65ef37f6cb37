//! CUDA virtual memory: a range of addresses is reserved once, and physical handles are mapped into it.

use crate::driver::{self, Context, check};
use crate::{Handle, MemoryInfo, RawEvent, RawStream, Source, SourceError, SourceInfo, SourceKind};
use cudarc::driver::sys;
use std::ffi::{c_uint, c_void};
use std::sync::{Mutex, PoisonError};

type Result<T> = std::result::Result<T, SourceError>;

/// A CUDA device's memory, through its virtual memory calls.
pub struct CudaSource {
    info: SourceInfo,
    context: Context,
    location: sys::CUmemLocation,
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
    /// The memory of device `ordinal`; says why where there is none.
    ///
    /// # Errors
    /// `NoCuda` with no driver or no such device; `Unsupported` where the device has no virtual memory management.
    pub fn new(ordinal: usize) -> Result<CudaSource> {
        let facts = driver::device_info(ordinal)?;
        if !facts.virtual_memory {
            return Err(SourceError::Unsupported("this CUDA device does not support virtual memory management"));
        }
        let context = Context::of(ordinal)?;
        context.bind()?;
        // SAFETY: a C struct of numbers, for which zeros are valid.
        let mut location: sys::CUmemLocation = unsafe { std::mem::zeroed() };
        location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        location.id = ordinal as i32;
        let mut granularity = 0;
        let recommended = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        check("cuMemGetAllocationGranularity", {
            // SAFETY: both pointers are valid.
            unsafe { sys::cuMemGetAllocationGranularity(&mut granularity, &properties(location), recommended) }
        })?;
        let info = SourceInfo {
            name: format!("cuda:{ordinal}"),
            kind: SourceKind::Cuda,
            granularity,
            capacity: facts.total_memory,
            virtual_memory: true,
        };
        Ok(CudaSource { info, context, location, events: Mutex::default() })
    }

    fn events(&self) -> std::sync::MutexGuard<'_, Vec<RawEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plain device memory at a location.
fn properties(location: sys::CUmemLocation) -> sys::CUmemAllocationProp {
    // SAFETY: a C struct of numbers and pointers, for which zeros are valid.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = location;
    properties
}

impl Source for CudaSource {
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
        self.context.bind()?;
        let mut address = 0;
        // SAFETY: the out pointer is valid.
        check("cuMemAddressReserve", unsafe { sys::cuMemAddressReserve(&mut address, bytes, self.info.granularity, 0, 0) })?;
        Ok(address)
    }
    fn release_range(&self, address: u64, bytes: usize) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the caller gives back a range it reserved; the driver refuses one with something mapped.
        check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(address, bytes) })
    }
    fn create(&self, bytes: usize) -> Result<Handle> {
        self.context.bind()?;
        let mut handle = 0;
        // SAFETY: both pointers are valid.
        check("cuMemCreate", unsafe { sys::cuMemCreate(&mut handle, bytes, &properties(self.location), 0) })?;
        Ok(Handle(handle))
    }
    fn destroy(&self, handle: Handle) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the handle came from `create`; the driver keeps its memory until the last mapping is gone.
        check("cuMemRelease", unsafe { sys::cuMemRelease(handle.0) })
    }
    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the driver checks that the range is reserved and free.
        check("cuMemMap", unsafe { sys::cuMemMap(address, bytes, 0, handle.0, 0) })
    }
    fn set_access(&self, address: u64, bytes: usize) -> Result<()> {
        self.context.bind()?;
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location: self.location, flags };
        // SAFETY: one description is passed, and the driver checks that the range is mapped.
        check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(address, bytes, &access, 1) })
    }
    fn unmap(&self, address: u64, bytes: usize) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the allocator unmaps only what no block covers and the device has finished with.
        check("cuMemUnmap", unsafe { sys::cuMemUnmap(address, bytes) })
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
        write!(f, "CudaSource({})", self.info.name)
    }
}
