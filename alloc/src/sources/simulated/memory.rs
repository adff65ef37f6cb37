//! The books of a driver: which addresses are reserved, which handles exist, and which is mapped where. A call that breaks them
//! is an error and changes nothing.

use super::shadow::Shadow;
use super::space::Space;
use crate::SourceError;
use std::collections::{BTreeMap, HashMap};

type Result<T> = std::result::Result<T, SourceError>;

pub(super) const GRANULARITY: usize = 2 << 20;
/// Whole allocations begin at multiples of this.
const ALIGN: usize = 512;

/// A handle seen at an address.
pub(super) struct Mapping {
    pub(super) bytes: usize,
    pub(super) handle: u64,
    pub(super) access: bool,
    /// Enqueued operations that use it.
    pub(super) users: usize,
}

/// A piece of the device's memory.
#[derive(Default)]
pub(super) struct Physical {
    pub(super) bytes: usize,
    pub(super) mappings: usize,
    pub(super) pins: usize,
    pub(super) shadow: Shadow,
}

pub(super) struct Memory {
    capacity: usize,
    pub(super) space: Space,
    pub(super) handles: HashMap<u64, Physical>,
    next_handle: u64,
    pub(super) used: usize,
    /// By address.
    pub(super) mapped: BTreeMap<u64, Mapping>,
    pub(super) mapped_bytes: usize,
}

/// A call that a driver refuses.
pub(super) fn invalid(call: &'static str, message: &str) -> SourceError {
    SourceError::Driver { call, code: 1, message: message.into() }
}

impl Memory {
    pub(super) fn new(capacity: usize, addresses: u64, virtual_memory: bool) -> Memory {
        let (align, gap) = if virtual_memory { (GRANULARITY, 0) } else { (ALIGN, ALIGN) };
        let space = Space::new(addresses, align as u64, gap as u64);
        let (handles, mapped) = (HashMap::new(), BTreeMap::new());
        Memory { capacity, space, handles, next_handle: 0, used: 0, mapped, mapped_bytes: 0 }
    }
    pub(super) fn free(&self) -> usize {
        self.capacity - self.used
    }
    pub(super) fn is_pristine(&self) -> bool {
        self.handles.is_empty() && self.mapped.is_empty() && self.space.is_empty()
    }

    pub(super) fn reserve(&mut self, bytes: usize) -> Result<u64> {
        if bytes == 0 {
            return Err(invalid("reserve", "the range is empty"));
        }
        self.space.take(bytes as u64).ok_or(SourceError::OutOfMemory)
    }
    pub(super) fn release_range(&mut self, address: u64, bytes: usize) -> Result<()> {
        if self.mapped.range(address..address.saturating_add(bytes as u64)).next().is_some() {
            return Err(invalid("release_range", "something is mapped in the range"));
        }
        if self.space.give(address, bytes as u64) { Ok(()) } else { Err(invalid("release_range", "no such range")) }
    }
    pub(super) fn create(&mut self, bytes: usize) -> Result<u64> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(invalid("create", "the size is no multiple of the granularity"));
        }
        self.take(bytes)
    }
    fn take(&mut self, bytes: usize) -> Result<u64> {
        if self.free() < bytes {
            return Err(SourceError::OutOfMemory);
        }
        self.used += bytes;
        self.next_handle += 1;
        self.handles.insert(self.next_handle, Physical { bytes, ..Physical::default() });
        Ok(self.next_handle)
    }
    pub(super) fn destroy(&mut self, handle: u64) -> Result<()> {
        let Some(physical) = self.handles.get(&handle) else { return Err(invalid("destroy", "no such handle")) };
        if physical.mappings > 0 {
            return Err(invalid("destroy", "the handle is still mapped"));
        }
        self.used -= physical.bytes;
        self.handles.remove(&handle);
        Ok(())
    }
    /// Returns whether the handle is pinned.
    pub(super) fn map(&mut self, address: u64, bytes: usize, handle: u64) -> Result<bool> {
        let end = address.saturating_add(bytes as u64);
        let known = self.handles.get_mut(&handle).filter(|physical| physical.bytes == bytes);
        let Some(physical) = known else { return Err(invalid("map", "there is no handle of this size")) };
        if !self.space.contains(address, end) {
            return Err(invalid("map", "the range is not reserved"));
        }
        if self.mapped.range(..end).next_back().is_some_and(|(at, page)| at + page.bytes as u64 > address) {
            return Err(invalid("map", "something is mapped there"));
        }
        physical.mappings += 1;
        self.mapped_bytes += bytes;
        self.mapped.insert(address, Mapping { bytes, handle, access: false, users: 0 });
        Ok(physical.pins > 0)
    }
    /// Returns how many pages there were.
    pub(super) fn set_access(&mut self, address: u64, bytes: usize) -> Result<usize> {
        let pages = self.tiles("set_access", address, bytes)?;
        for (_, page) in self.mapped.range_mut(address..address + bytes as u64) {
            page.access = true;
        }
        Ok(pages.len())
    }
    /// Takes a page out. There is one there.
    pub(super) fn unmap_page(&mut self, address: u64) {
        let Some(page) = self.mapped.remove(&address) else { return };
        self.mapped_bytes -= page.bytes;
        if let Some(physical) = self.handles.get_mut(&page.handle) {
            physical.mappings -= 1;
        }
    }
    /// Addresses of the mapped pages that tile a range exactly.
    pub(super) fn tiles(&self, call: &'static str, address: u64, bytes: usize) -> Result<Vec<u64>> {
        let mut at = address;
        let end = address.saturating_add(bytes as u64);
        let mut pages = Vec::new();
        while at < end {
            let page = self.mapped.get(&at).ok_or_else(|| invalid(call, "the range is not made of whole mapped pages"))?;
            pages.push(at);
            at += page.bytes as u64;
        }
        if at == end { Ok(pages) } else { Err(invalid(call, "the range ends inside a page")) }
    }

    /// A whole allocation: one handle, mapped for good at an address where nothing touches it.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<u64> {
        let whole = bytes.checked_next_multiple_of(ALIGN).ok_or(SourceError::OutOfMemory)?;
        if bytes == 0 {
            return Err(invalid("allocate", "the size is zero"));
        }
        if self.free() < whole {
            return Err(SourceError::OutOfMemory);
        }
        let address = self.space.take(bytes as u64).ok_or(SourceError::OutOfMemory)?;
        let handle = self.take(whole)?;
        if let Some(physical) = self.handles.get_mut(&handle) {
            physical.mappings = 1;
        }
        self.mapped.insert(address, Mapping { bytes, handle, access: true, users: 0 });
        self.mapped_bytes += bytes;
        Ok(address)
    }
    /// Gives a whole allocation back.
    pub(super) fn free_whole(&mut self, address: u64, bytes: usize) -> Result<()> {
        let page = self.mapped.get(&address).filter(|page| page.bytes == bytes);
        let Some(handle) = page.map(|page| page.handle) else { return Err(invalid("free", "there is no such allocation")) };
        self.unmap_page(address);
        self.space.give(address, bytes as u64);
        self.destroy(handle)
    }

    /// The page that holds an address.
    pub(super) fn page_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (at, page) = self.mapped.range(..=address).next_back()?;
        (address < at + page.bytes as u64).then_some((*at, page))
    }
    /// Adds to the pins of every handle seen in a range, or takes one off.
    pub(super) fn pin(&mut self, address: u64, bytes: usize, add: bool) {
        let end = address.saturating_add(bytes as u64);
        let from = self.page_at(address).map_or(address, |(at, _)| at);
        for page in self.mapped.range(from..end).map(|(_, page)| page.handle) {
            if let Some(physical) = self.handles.get_mut(&page) {
                physical.pins = if add { physical.pins + 1 } else { physical.pins.saturating_sub(1) };
            }
        }
    }
}
