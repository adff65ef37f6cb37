//! The pages of an arena: physical handles and the addresses they are mapped at. Driver calls only; called under the slow mutex.
//!
//! A page that moves is mapped at its new address first and *leaves* the old one later, once the device has finished with it.
//! Between, it has two addresses, of which no block has the old one.

use crate::history::What;
use crate::mark::Mark;
use crate::stats::Pool;
use crate::{Handle, Source, SourceError, SourceKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Until an allocator holds this many bytes its pages are small, since a page is the unit of movement; beyond, fewer calls win.
const FINE_UNTIL: usize = 8 << 30;
const FINE: usize = 2 << 20;
const COARSE: usize = 16 << 20;
/// From this size on, the driver is asked for its free bytes before pages are taken.
const ASK_FIRST: usize = 256 << 20;

type Result<T> = std::result::Result<T, SourceError>;

pub(crate) struct Pages {
    /// Reserved addresses of each region, (0, 0) where it has none.
    ranges: Vec<(u64, usize)>,
    /// Mapped pages by address.
    pages: BTreeMap<u64, Page>,
    leaving: Vec<Leaving>,
    /// What the last mapping that failed left behind, as parts of a [`Leaving`].
    residue: Vec<(u64, usize, bool)>,
    /// Handles that the driver would not take back; it is asked again.
    orphans: Vec<Handle>,
    granularity: usize,
    /// Bytes taken from the device.
    pub(crate) mapped: usize,
    /// Not counted yet, by pool.
    pub(crate) changes: [Change; 2],
    /// Ranges mapped and unmapped, for the history; not noted yet.
    pub(crate) moves: Vec<(What, u64, usize)>,
    /// Id of the stream that they are for.
    pub(crate) asker: u32,
    /// Driver calls that took, gave or moved memory.
    pub(crate) calls: u64,
}

/// A physical page, or a whole allocation.
#[derive(Clone, Copy)]
struct Page {
    bytes: usize,
    handle: Handle,
    pool: Pool,
}

/// Bytes and pages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Change {
    pub(crate) taken: (usize, u64),
    pub(crate) given: (usize, u64),
    /// From the other pool.
    pub(crate) moved_here: (usize, u64),
}

fn count(sum: &mut (usize, u64), bytes: usize) {
    *sum = (sum.0 + bytes, sum.1 + 1);
}

/// Pages to be mapped side by side at `at`: those that move there, then new ones.
pub(crate) struct Mapping<'a> {
    pub(crate) at: u64,
    /// Old addresses and sizes.
    pub(crate) moved: &'a [(u64, usize)],
    /// New bytes, in pages of `unit`.
    pub(crate) fresh: usize,
    pub(crate) unit: usize,
    pub(crate) pool: Pool,
}

/// A piece that nobody may use until its addresses are unmapped: its page has left them and the device may not have finished, or the
/// driver refused to undo a mapping.
struct Leaving {
    index: u32,
    /// Address, bytes, and whether the page goes back to the device with it.
    parts: Vec<(u64, usize, bool)>,
    marks: Vec<Arc<Mark>>,
}

impl Pages {
    pub(crate) fn new(source: &dyn Source) -> Pages {
        let granularity = source.info().granularity.max(1);
        let (ranges, pages, leaving, moves) = Default::default();
        let (residue, orphans) = Default::default();
        Pages {
            ranges,
            pages,
            leaving,
            residue,
            orphans,
            granularity,
            mapped: 0,
            changes: Default::default(),
            moves,
            asker: 0,
            calls: 0,
        }
    }

    /// Reserves addresses for the next `N` regions: many times the device's memory each, since pages that move leave gaps behind, and
    /// less where that is refused. `None` on a source that chooses addresses itself.
    pub(crate) fn add_ranges<const N: usize>(&mut self, source: &dyn Source) -> Result<[Option<u64>; N]> {
        let info = source.info();
        if !info.virtual_memory {
            self.ranges.extend([(0, 0); N]);
            return Ok([None; N]);
        }
        let whole =
            info.capacity.checked_next_multiple_of(self.granularity).ok_or(SourceError::OutOfMemory)?.max(self.granularity);
        let mut last = SourceError::OutOfMemory;
        for range in [16, 4, 2, 1].into_iter().filter_map(|times| whole.checked_mul(times)) {
            let mut bases = Vec::new();
            while bases.len() < N {
                match source.reserve(range) {
                    Ok(base) => bases.push(base),
                    Err(error) => {
                        last = error;
                        break;
                    }
                }
            }
            if let Ok(bases) = <[u64; N]>::try_from(bases.as_slice()) {
                self.ranges.extend(bases.map(|base| (base, range)));
                return Ok(bases.map(Some));
            }
            // Nothing is mapped there, so an error could only say that the addresses are lost.
            // SAFETY: the ranges were just reserved, and nothing was ever mapped there.
            bases.into_iter().for_each(|base| drop(unsafe { source.release_range(base, range) }));
        }
        Err(last)
    }

    /// The smallest page.
    pub(crate) fn granularity(&self) -> usize {
        self.granularity
    }
    /// The size of a page where few calls matter more than fit.
    pub(crate) fn coarse(&self) -> usize {
        let page = if self.mapped < FINE_UNTIL { FINE } else { COARSE };
        page.next_multiple_of(self.granularity)
    }
    /// The end of a region's addresses.
    pub(crate) fn end(&self, region: u16) -> u64 {
        let (base, bytes) = self.ranges[region as usize];
        base + bytes as u64
    }

    /// Carries a mapping out; pages that move keep their old addresses as well. On an error everything is as before, unless the
    /// driver refuses even that: then there is a residue.
    pub(crate) fn map(&mut self, source: &dyn Source, mapping: Mapping<'_>) -> Result<()> {
        let Mapping { at, moved, fresh, unit, pool } = mapping;
        // A large request that the device cannot serve would cost thousands of calls there and back.
        if fresh >= ASK_FIRST && source.info().kind != SourceKind::Host && source.memory_info()?.free < fresh {
            return Err(SourceError::OutOfMemory);
        }
        let from = at + moved.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>();
        let (mut done, mut aliases) = (0, Vec::new());
        let result = loop {
            // New pages first: they are what may fail.
            if done < fresh {
                let size = unit.min(fresh - done);
                match self.map_new(source, from + done as u64, size, pool) {
                    Ok(()) => done += size,
                    Err(error) => break Err(error),
                }
            } else if aliases.len() < moved.len() {
                let to = aliases.last().map_or(at, |(address, bytes, _, _)| address + *bytes as u64);
                let (old, bytes) = moved[aliases.len()];
                let handle = self.pages[&old].handle;
                self.calls += 1;
                match source.map(to, bytes, handle) {
                    Ok(()) => aliases.push((to, bytes, handle, old)),
                    Err(error) => break Err(error),
                }
            } else {
                self.calls += 1;
                break source.set_access(at, (from - at) as usize + fresh);
            }
        };
        if result.is_err() {
            // The first error is the one to report.
            let fresh: Vec<_> = self.list(from, done).map(|(address, bytes)| (address, bytes, true)).collect();
            let undo = aliases.iter().map(|(address, bytes, ..)| (*address, *bytes, false)).chain(fresh);
            // Only what stays is worth telling.
            let moves = self.moves.len();
            let residue: Vec<_> = undo.filter(|part| self.undo(source, *part).is_err()).collect();
            self.moves.truncate(moves);
            self.moves.extend(residue.iter().filter(|part| part.2).map(|(address, bytes, _)| (What::Mapped, *address, *bytes)));
            self.residue = residue;
            return result;
        }
        for (address, bytes, handle, old) in aliases {
            if self.pages.remove(&old).is_some_and(|page| page.pool != pool) {
                count(&mut self.changes[pool as usize].moved_here, bytes);
            }
            self.pages.insert(address, Page { bytes, handle, pool });
            self.moves.push((What::Unmapped, old, bytes));
        }
        self.moves.push((What::Mapped, at, (from - at) as usize + fresh));
        Ok(())
    }

    fn map_new(&mut self, source: &dyn Source, address: u64, size: usize, pool: Pool) -> Result<()> {
        self.calls += 1;
        let handle = source.create(size)?;
        self.calls += 1;
        if let Err(error) = source.map(address, size, handle) {
            self.calls += 1;
            // As above: the first error is the one to report.
            let _ = source.destroy(handle);
            return Err(error);
        }
        self.pages.insert(address, Page { bytes: size, handle, pool });
        self.mapped += size;
        count(&mut self.changes[pool as usize].taken, size);
        Ok(())
    }
    /// Takes a whole allocation from a source without virtual memory.
    pub(crate) fn allocate(&mut self, source: &dyn Source, bytes: usize, pool: Pool) -> Result<u64> {
        self.calls += 1;
        let address = source.allocate(bytes)?;
        self.pages.insert(address, Page { bytes, handle: Handle(address), pool });
        self.moves.push((What::Mapped, address, bytes));
        self.mapped += bytes;
        count(&mut self.changes[pool as usize].taken, bytes);
        Ok(address)
    }

    /// Notes that the piece `index`, whose pages have moved, is unmapped once `marks` are passed.
    pub(crate) fn leave(&mut self, index: u32, address: u64, bytes: usize, marks: Vec<Arc<Mark>>) {
        self.leaving.push(Leaving { index, parts: vec![(address, bytes, false)], marks });
    }
    /// Notes that the piece `index` waits until what a failed mapping left there is unmapped; whether anything was left.
    pub(crate) fn leave_residue(&mut self, index: u32) -> bool {
        let parts = std::mem::take(&mut self.residue);
        let left = !parts.is_empty();
        if left {
            self.leaving.push(Leaving { index, parts, marks: Vec::new() });
        }
        left
    }
    /// Unmaps one part, and gives its page back if it goes too.
    fn undo(&mut self, source: &dyn Source, (address, bytes, goes): (u64, usize, bool)) -> Result<()> {
        if goes {
            return self.unmap(source, address, bytes);
        }
        self.calls += 1;
        // SAFETY: no block has this address: its page has left it, or a mapping that failed is undone.
        unsafe { source.unmap(address, bytes) }
    }
    /// Whether pages still have an old address.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }
    /// Unmaps old addresses that the device has finished with, and returns their pieces; with `wait`, all of them. An address that
    /// cannot be unmapped stays on the list.
    pub(crate) fn retire(&mut self, source: &dyn Source, wait: bool) -> (Vec<u32>, Option<SourceError>) {
        let (mut gone, mut failed) = (Vec::new(), None);
        self.orphans.retain(|handle| source.destroy(*handle).is_err());
        for mut old in std::mem::take(&mut self.leaving) {
            let done = old.marks.iter().try_fold(true, |all, mark| {
                if wait { mark.wait().map(|()| all) } else { mark.is_complete().map(|done| all && done) }
            });
            match done {
                Ok(true) => old.parts.retain(|part| match self.undo(source, *part) {
                    Ok(()) => false,
                    Err(error) => {
                        failed = Some(error);
                        true
                    }
                }),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            if old.parts.is_empty() {
                gone.push(old.index);
            } else {
                self.leaving.push(old);
            }
        }
        (gone, failed)
    }

    /// Unmaps whole pages and gives them back, one by one, as the driver wants it. Stops at a page that cannot be unmapped.
    pub(crate) fn unmap(&mut self, source: &dyn Source, at: u64, bytes: usize) -> Result<()> {
        let run: Vec<(u64, Page)> = self.pages.range(at..at + bytes as u64).map(|(address, page)| (*address, *page)).collect();
        let mut result = Ok(());
        for (address, Page { bytes: size, handle, pool }) in run {
            let gone = if source.info().virtual_memory {
                self.calls += 2;
                // SAFETY: the callers give up pages of idle pieces, of mappings that failed, or when the last block is gone.
                unsafe { source.unmap(address, size) }?;
                source.destroy(handle).inspect_err(|_| self.orphans.push(handle))
            } else {
                self.calls += 1;
                source.free(address, size)?;
                Ok(())
            };
            self.pages.remove(&address);
            self.mapped -= size;
            match self.moves.last_mut() {
                Some((What::Unmapped, last, bytes)) if *last + *bytes as u64 == address => *bytes += size,
                _ => self.moves.push((What::Unmapped, address, size)),
            }
            count(&mut self.changes[pool as usize].given, size);
            result = result.and(gone);
        }
        result
    }

    /// The run of whole pages in `[from, to)` that ends last: of about `need` bytes where there are more, and of no more than
    /// `most`.
    pub(crate) fn whole_pages(&self, from: u64, to: u64, need: usize, most: usize) -> Option<(u64, usize)> {
        let inside = |address: u64, size: usize| address >= from && address + size as u64 <= to;
        let mut run: Option<(u64, usize)> = None;
        for (address, Page { bytes: size, .. }) in
            self.pages.range(from..to).rev().filter(|(address, page)| inside(**address, page.bytes))
        {
            let bytes = run.map_or(0, |(_, bytes)| bytes);
            if bytes >= need || bytes + size > most {
                break;
            }
            run = Some((*address, bytes + size));
        }
        run
    }
    /// Every page, by address.
    pub(crate) fn all(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        self.pages.iter().map(|(address, page)| *address..*address + page.bytes as u64)
    }
    /// The addresses of a region.
    pub(crate) fn range(&self, region: u16) -> std::ops::Range<u64> {
        let (base, bytes) = self.ranges[region as usize];
        base..base + bytes as u64
    }
    /// The pages of a run, by address.
    pub(crate) fn list(&self, at: u64, bytes: usize) -> impl Iterator<Item = (u64, usize)> {
        self.pages.range(at..at + bytes as u64).map(|(address, page)| (*address, page.bytes))
    }

    /// Whether a range has memory everywhere.
    #[cfg(test)]
    pub(crate) fn covers(&self, at: u64, bytes: usize) -> bool {
        let mut from = at;
        while from < at + bytes as u64 {
            let page = self.pages.range(..=from).next_back().map(|(address, page)| address + page.bytes as u64);
            match page.filter(|end| *end > from) {
                Some(end) => from = end,
                None => return false,
            }
        }
        true
    }
    /// Gives everything back; the device must have finished.
    pub(crate) fn release_all(&mut self, source: &dyn Source) {
        // A page with an address that could not be unmapped stays with the process, and so does its range.
        if self.retire(source, true).1.is_some() {
            return;
        }
        let everything = self.pages.keys().next().copied().zip(self.pages.iter().next_back());
        let unmapped = match everything {
            Some((first, (last, page))) => self.unmap(source, first, (last + page.bytes as u64 - first) as usize),
            None => Ok(()),
        };
        // A range with something left in it cannot go back; there is nobody left to tell.
        if unmapped.is_ok() {
            for region in 0..self.ranges.len() {
                let _ = self.release_range(source, region as u16);
            }
        }
    }
    /// Gives a region's addresses back; nothing may be mapped there.
    pub(crate) fn release_range(&mut self, source: &dyn Source, region: u16) -> Result<()> {
        let (base, bytes) = std::mem::take(&mut self.ranges[region as usize]);
        // SAFETY: the last block is gone, and everything is unmapped.
        if bytes == 0 { Ok(()) } else { unsafe { source.release_range(base, bytes) } }
    }
}
