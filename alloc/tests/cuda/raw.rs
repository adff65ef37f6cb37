//! The CUDA source by itself, with no allocator above: pages and plain allocations, fills, exports, peers.

use super::{MIB, Outcome, pattern};
use cudarc::driver::sys;
use kiln_alloc::sources::{CudaMemory, CudaOptions, CudaSource};
use kiln_alloc::*;

fn source(memory: CudaMemory) -> Result<CudaSource> {
    Ok(CudaSource::with(0, CudaOptions { memory, ..CudaOptions::default() })?)
}
/// Mapped memory of a source with virtual memory, or an allocation of a plain one.
fn raw_memory(source: &CudaSource, bytes: usize) -> Result<(u64, Option<Handle>)> {
    if !source.info().virtual_memory {
        return Ok((source.allocate(bytes)?, None));
    }
    let (address, handle) = (source.reserve(bytes)?, source.create(bytes)?);
    source.map(address, bytes, handle)?;
    source.set_access(address, bytes)?;
    Ok((address, Some(handle)))
}
fn unmap(source: &CudaSource, address: u64, bytes: usize) -> std::result::Result<(), SourceError> {
    // SAFETY: nothing on the host refers to device memory.
    unsafe { source.unmap(address, bytes) }
}
fn release_range(source: &CudaSource, address: u64, bytes: usize) -> std::result::Result<(), SourceError> {
    // SAFETY: as above.
    unsafe { source.release_range(address, bytes) }
}
fn free_raw(source: &CudaSource, bytes: usize, (address, handle): (u64, Option<Handle>)) -> Result<()> {
    let Some(handle) = handle else { return Ok(source.free(address, bytes)?) };
    unmap(source, address, bytes)?;
    source.destroy(handle)?;
    Ok(release_range(source, address, bytes)?)
}

pub fn plain_memory_is_allocated_copied_and_freed() -> Outcome {
    let source = source(CudaMemory::Plain)?;
    assert_eq!((source.info().memory().as_str(), source.info().virtual_memory), ("cuMemAlloc", false));
    assert!(matches!(source.reserve(2 * MIB), Err(SourceError::Unsupported(_))));
    assert!(matches!(source.create(2 * MIB), Err(SourceError::Unsupported(_))));
    let s = source.new_stream()?;
    let free = source.memory_info()?.free;
    for bytes in [2 * MIB, 6 * MIB, 256 * MIB] {
        let data = pattern(bytes, bytes);
        let mut back = vec![0; bytes];
        let (one, two) = (source.allocate(bytes)?, source.allocate(bytes)?);
        assert!(one.is_multiple_of(512) && two.is_multiple_of(512) && one.abs_diff(two) >= bytes as u64);
        // SAFETY: both allocations and both host buffers have this size.
        unsafe {
            source.copy_in(one, data.as_ptr(), bytes, s)?;
            source.copy_device(two, one, bytes, s)?;
            source.copy_out(back.as_mut_ptr(), two, bytes, s)?;
        }
        assert!(back == data);
        source.free(one, bytes)?;
        source.free(two, bytes)?;
    }
    assert!(source.memory_info()?.free + 8 * MIB >= free);
    // More than there is: a typed refusal, and the device goes on.
    assert_eq!(source.allocate(source.info().capacity + MIB), Err(SourceError::OutOfMemory));
    let again = source.allocate(2 * MIB)?;
    source.free(again, 2 * MIB)?;
    source.destroy_stream(s);
    Ok(())
}

pub fn fills_happen_in_stream_order() -> Outcome {
    for memory in [CudaMemory::Virtual, CudaMemory::Plain] {
        let source = source(memory)?;
        let s = source.new_stream()?;
        let bytes = 64 * MIB;
        let (from, to) = (raw_memory(&source, bytes)?, raw_memory(&source, bytes)?);
        let mut back = vec![0; bytes];
        for round in 0..20u8 {
            // SAFETY: both pieces of device memory and the host buffer have this size.
            unsafe {
                source.fill(from.0, round, bytes, s)?;
                source.copy_device(to.0, from.0, bytes, s)?;
                source.fill(from.0, 255, bytes, s)?;
                source.fill(to.0 + 1, 128 + round, 3, s)?;
                source.copy_out(back.as_mut_ptr(), to.0, bytes, s)?;
            }
            assert_eq!(back[..5], [round, 128 + round, 128 + round, 128 + round, round]);
            assert!(back[5..] == vec![round; bytes - 5], "{memory:?}, round {round}");
        }
        free_raw(&source, bytes, from)?;
        free_raw(&source, bytes, to)?;
        source.destroy_stream(s);
    }
    Ok(())
}

pub fn exportable_handles_can_be_exported_and_used() -> Outcome {
    let export = |handle: Handle| {
        let mut file = -1;
        let kind = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: the handle is alive, and a descriptor is what this kind writes. The process closes it at its end.
        let result = unsafe { sys::cuMemExportToShareableHandle((&raw mut file).cast(), handle.0, kind, 0) };
        (result == sys::CUresult::CUDA_SUCCESS).then_some(file)
    };
    for exportable in [true, false] {
        let source = CudaSource::with(0, CudaOptions { exportable, ..CudaOptions::default() })?;
        let bytes = source.info().granularity;
        let memory = raw_memory(&source, bytes)?;
        assert_eq!(memory.1.and_then(export).is_some_and(|file| file >= 0), exportable);
        let s = source.new_stream()?;
        let mut back = [0; 64];
        // SAFETY: the memory is larger than the host buffer.
        unsafe {
            source.fill(memory.0, 7, bytes, s)?;
            source.copy_out(back.as_mut_ptr(), memory.0, back.len(), s)?;
        }
        assert_eq!(back, [7; 64]);
        free_raw(&source, bytes, memory)?;
        source.destroy_stream(s);
    }
    Ok(())
}

pub fn peers_are_granted_access_or_refused() -> Outcome {
    let count = driver::device_count()?;
    let with = |peers, memory| CudaSource::with(0, CudaOptions { peers, memory, ..CudaOptions::default() });
    assert!(matches!(with(vec![count], CudaMemory::Auto), Err(SourceError::NoCuda(_))));
    assert!(matches!(with(vec![0], CudaMemory::Plain), Err(SourceError::Unsupported(_))));
    // The device itself is no peer of its own; others either can reach it, or the error says so.
    for peer in 0..count {
        match with(vec![0, peer], CudaMemory::Virtual) {
            Ok(source) => {
                let bytes = source.info().granularity;
                free_raw(&source, bytes, raw_memory(&source, bytes)?)?;
            }
            Err(error) => assert_eq!(error, SourceError::NoPeerAccess { device: 0, peer }),
        }
    }
    Ok(())
}
