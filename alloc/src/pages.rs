//! The pages of an arena: physical handles mapped into one reserved range. Driver calls only; called under the slow mutex.

use crate::{Handle, Source, SourceError, SourceKind};
use std::collections::BTreeMap;

/// Until an arena holds this many bytes its pages are small, since a page is the unit of giving back; beyond, fewer calls win.
const FINE_UNTIL: usize = 8 << 30;
const FINE: usize = 2 << 20;
const COARSE: usize = 16 << 20;
/// From this size on, the driver is asked for its free bytes before pages are taken.
const ASK_FIRST: usize = 256 << 20;

pub(crate) struct Pages {
    /// First address of the reserved range.
    pub(crate) base: u64,
    /// Length of the range.
    pub(crate) range: usize,
    /// Mapped pages by address.
    pages: BTreeMap<u64, (usize, Handle)>,
    granularity: usize,
    /// Bytes mapped.
    pub(crate) mapped: usize,
    /// Driver calls that took or gave memory.
    pub(crate) calls: u64,
}

impl Pages {
    /// Reserves addresses for an arena over `source`: many times the device's memory, since pages that come back from holes
    /// leave gaps behind, and less where that is refused.
    pub(crate) fn new(source: &dyn Source) -> Result<Pages, SourceError> {
        let info = source.info();
        let granularity = info.granularity.max(1);
        let whole = info.capacity.next_multiple_of(granularity).max(granularity);
        let mut last = SourceError::OutOfMemory;
        for times in [16, 4, 2, 1] {
            let Some(range) = whole.checked_mul(times) else { continue };
            match source.reserve(range) {
                Ok(base) => return Ok(Pages { base, range, pages: BTreeMap::new(), granularity, mapped: 0, calls: 0 }),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// How many pages are mapped.
    pub(crate) fn count(&self) -> usize {
        self.pages.len()
    }
    /// The smallest page.
    pub(crate) fn granularity(&self) -> usize {
        self.granularity
    }
    /// The size of a page taken now.
    pub(crate) fn page(&self) -> usize {
        let page = if self.mapped < FINE_UNTIL { FINE } else { COARSE };
        page.next_multiple_of(self.granularity)
    }
    /// The end of the reserved range.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.range as u64
    }

    /// Takes pages for `bytes` bytes and maps them at `at`; on an error everything is as before.
    pub(crate) fn map(&mut self, source: &dyn Source, at: u64, bytes: usize) -> Result<(), SourceError> {
        // A large request that the device cannot serve would cost thousands of calls there and back.
        if bytes >= ASK_FIRST && source.info().kind != SourceKind::Host && source.memory_info()?.free < bytes {
            return Err(SourceError::OutOfMemory);
        }
        let mut done = 0;
        let result = loop {
            if done == bytes {
                self.calls += 1;
                break source.set_access(at, bytes);
            }
            let (address, size) = (at + done as u64, self.page().min(bytes - done));
            match self.map_one(source, address, size) {
                Ok(()) => done += size,
                Err(error) => break Err(error),
            }
        };
        if result.is_err() && done > 0 {
            // The first error is the one to report; a page that cannot be unmapped now stays the driver's.
            let _ = self.unmap(source, at, done);
        }
        result
    }

    fn map_one(&mut self, source: &dyn Source, address: u64, size: usize) -> Result<(), SourceError> {
        self.calls += 1;
        let handle = source.create(size)?;
        self.calls += 1;
        if let Err(error) = source.map(address, size, handle) {
            self.calls += 1;
            // As above: the first error is the one to report.
            let _ = source.destroy(handle);
            return Err(error);
        }
        self.pages.insert(address, (size, handle));
        self.mapped += size;
        Ok(())
    }

    /// Unmaps whole pages and gives them back, one by one, as the driver wants it. Stops at a page that cannot be unmapped.
    pub(crate) fn unmap(&mut self, source: &dyn Source, at: u64, bytes: usize) -> Result<(), SourceError> {
        let run: Vec<(u64, usize, Handle)> =
            self.pages.range(at..at + bytes as u64).map(|(address, (size, handle))| (*address, *size, *handle)).collect();
        let mut result = Ok(());
        for (address, size, handle) in run {
            self.calls += 2;
            source.unmap(address, size)?;
            self.pages.remove(&address);
            self.mapped -= size;
            result = result.and(source.destroy(handle));
        }
        result
    }

    /// The largest run of whole pages in `[from, to)` that ends last, of about `need` bytes where there are more.
    pub(crate) fn whole_pages(&self, from: u64, to: u64, need: usize) -> Option<(u64, usize)> {
        let inside = |address: u64, size: usize| address >= from && address + size as u64 <= to;
        let mut run: Option<(u64, usize)> = None;
        for (address, (size, _)) in self.pages.range(from..to).rev().filter(|(address, (size, _))| inside(**address, *size)) {
            let bytes = run.map_or(0, |(_, bytes)| bytes);
            if bytes >= need {
                break;
            }
            run = Some((*address, bytes + size));
        }
        run
    }

    /// Gives everything back; the device must have finished.
    pub(crate) fn release_all(&mut self, source: &dyn Source) {
        let failed = self.unmap(source, self.base, self.range).is_err();
        // A range with something left in it cannot go back; there is nobody left to tell.
        if !failed {
            let _ = source.release_range(self.base, self.range);
        }
    }
}
