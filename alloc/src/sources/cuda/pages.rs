//! CUDA virtual memory: a range of addresses is reserved once, and physical handles are mapped into it.
//!
//! Neither setting access nor unmapping waits for running kernels; calls cost microseconds by count, hardly by size. A peer's
//! access is granted with the device's own, in the same call.

use super::Result;
use crate::driver::{self, check};
use crate::{Handle, SourceError};
use cudarc::driver::sys;

/// Virtual memory of one device. Its context must be current for every call.
pub(super) struct Pages {
    location: sys::CUmemLocation,
    exportable: bool,
    /// Who may read and write what is mapped: the device, then its peers.
    access: Vec<sys::CUmemAccessDesc>,
    /// Handles are created and mapped in multiples of this many bytes.
    pub(super) granularity: usize,
}

fn location(ordinal: usize) -> sys::CUmemLocation {
    // SAFETY: a C struct of numbers, for which zeros are valid.
    let mut location: sys::CUmemLocation = unsafe { std::mem::zeroed() };
    location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = ordinal as i32;
    location
}

impl Pages {
    /// # Errors
    /// `NoPeerAccess`; `Unsupported` where handles of this device cannot be exported; what the driver says.
    pub(super) fn new(ordinal: usize, peers: &[usize], exportable: bool) -> Result<Pages> {
        if exportable && !driver::exports_handles(ordinal)? {
            return Err(SourceError::Unsupported("this CUDA device cannot export memory as file descriptors"));
        }
        let mut accessing = vec![ordinal];
        for &peer in peers {
            if accessing.contains(&peer) {
                continue;
            }
            if !driver::can_access(peer, ordinal)? {
                return Err(SourceError::NoPeerAccess { device: ordinal, peer });
            }
            accessing.push(peer);
        }
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = accessing.iter().map(|&who| sys::CUmemAccessDesc { location: location(who), flags }).collect();
        let mut pages = Pages { location: location(ordinal), exportable, access, granularity: 0 };
        let recommended = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        check("cuMemGetAllocationGranularity", {
            // SAFETY: both pointers are valid.
            unsafe { sys::cuMemGetAllocationGranularity(&mut pages.granularity, &pages.properties(), recommended) }
        })?;
        Ok(pages)
    }

    /// Device memory at this device.
    fn properties(&self) -> sys::CUmemAllocationProp {
        // SAFETY: a C struct of numbers and pointers, for which zeros are valid.
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = self.location;
        if self.exportable {
            properties.requestedHandleTypes = sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        }
        properties
    }

    pub(super) fn reserve(&self, bytes: usize) -> Result<u64> {
        let mut address = 0;
        // SAFETY: the out pointer is valid.
        check("cuMemAddressReserve", unsafe { sys::cuMemAddressReserve(&mut address, bytes, self.granularity, 0, 0) })?;
        Ok(address)
    }
    pub(super) fn release_range(&self, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller gives back a range it reserved; the driver refuses one with something mapped.
        check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(address, bytes) })
    }
    pub(super) fn create(&self, bytes: usize) -> Result<Handle> {
        let mut handle = 0;
        // SAFETY: both pointers are valid.
        check("cuMemCreate", unsafe { sys::cuMemCreate(&mut handle, bytes, &self.properties(), 0) })?;
        Ok(Handle(handle))
    }
    pub(super) fn destroy(&self, handle: Handle) -> Result<()> {
        // SAFETY: the handle came from `create`; the driver keeps its memory until the last mapping is gone.
        check("cuMemRelease", unsafe { sys::cuMemRelease(handle.0) })
    }
    pub(super) fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()> {
        // SAFETY: the driver checks that the range is reserved and free.
        check("cuMemMap", unsafe { sys::cuMemMap(address, bytes, 0, handle.0, 0) })
    }
    pub(super) fn set_access(&self, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: the list and its length are valid, and the driver checks that the range is mapped.
        check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(address, bytes, self.access.as_ptr(), self.access.len()) })
    }
    pub(super) fn unmap(&self, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: the allocator unmaps only what no block covers and the device has finished with.
        check("cuMemUnmap", unsafe { sys::cuMemUnmap(address, bytes) })
    }
}
