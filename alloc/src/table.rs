//! The block table: every piece of every zone in address order, in one slab addressed by `u32`.
//!
//! A piece is live, idle (in the bins of the stream that owns it), pending (freed, but the device may still use it), held (a
//! driver call is working on it) or a hole (addresses with nothing mapped). Neighbours of one owner that are both idle are one
//! block, always, unless a wall stands between them: the edge of a segment. Neighbouring holes are one, and a zone never ends in a
//! hole.

use crate::bins::{Bins, bin_of};
use crate::history::{History, What};
use crate::stats::{Counters, Pool};
use crate::{Category, Search, Zone};
use std::panic::Location;

/// No block.
pub(crate) const NONE: u32 = u32::MAX;
/// The first region that is no zone but a private pool.
const POOLS: u16 = Zone::ALL.len() as u16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot is free.
    Unused,
    Live,
    Idle,
    Pending,
    Held,
    Hole,
}

/// One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Record {
    pub(crate) address: u64,
    pub(crate) size: usize,
    /// Bytes asked for; 0 while nobody has the block, and for the parts of a pending one.
    pub(crate) bytes: usize,
    /// The line that asked.
    pub(crate) site: &'static Location<'static>,
    /// Neighbours in address order.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Neighbours in a bin; `bin_next` also links free slots.
    pub(crate) bin_prev: u32,
    pub(crate) bin_next: u32,
    /// Id of the stream that may reuse it with no wait.
    pub(crate) owner: u32,
    pub(crate) region: u16,
    /// Of an idle block, where it is found.
    pub(crate) bin: u16,
    pub(crate) state: State,
    pub(crate) category: Category,
    /// What it is counted as.
    pub(crate) pool: Pool,
    /// Whether a segment begins here: it is never merged with what lies before.
    pub(crate) wall: bool,
}

const _: () = assert!(size_of::<Record>() == 64);

/// What the report says about a live or pending block: as in its [`Record`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub(crate) bytes: usize,
    pub(crate) site: &'static Location<'static>,
    pub(crate) category: Category,
}

impl Record {
    pub(crate) fn end(&self) -> u64 {
        self.address + self.size as u64
    }
    pub(crate) fn tag(&self) -> Tag {
        Tag { bytes: self.bytes, site: self.site, category: self.category }
    }
}

/// A range of addresses whose blocks share pages: a zone, or a private pool.
pub(crate) struct Region {
    base: u64,
    /// The last piece, or `NONE`.
    last: u32,
    /// The idle blocks of each stream, by its id.
    owners: Vec<Bins>,
    pub(crate) holes: Vec<u32>,
    /// Whether its pages stay where they are.
    pub(crate) pinned: bool,
    /// What its blocks are counted as.
    pub(crate) pool: Pool,
    /// Whether its pieces lie anywhere, with nothing in between that could be a hole.
    scattered: bool,
    /// Whether it ever grew by pages; else each piece that it took from the device is a segment.
    pub(crate) paged: bool,
}

pub(crate) struct Table {
    records: Vec<Record>,
    unused: u32,
    pub(crate) regions: Vec<Region>,
    owners: u32,
    nobody: Tag,
    /// Whether the block that was freed last is kept for a request of its size.
    pub(crate) keeps_last: bool,
    /// Whether its free may stay uncounted as long.
    counts_later: bool,
    /// That block, in the state of a live one, or `NONE`.
    last_freed: u32,
    last_counted: bool,
    /// Kept here, so that the bins can count.
    pub(crate) counters: Counters,
    /// Whether there is a log or a history: one look on the path of a block.
    pub(crate) recording: bool,
    /// Where it is kept, so that blocks can tell. Here for the same reason.
    pub(crate) history: Option<Box<History>>,
}

impl Table {
    pub(crate) fn new() -> Table {
        let nobody = Tag { bytes: 0, site: Location::caller(), category: Category::Temporaries };
        Table {
            records: Vec::new(),
            unused: NONE,
            regions: Vec::new(),
            owners: 0,
            nobody,
            keeps_last: true,
            counts_later: true,
            last_freed: NONE,
            last_counted: true,
            counters: Counters::default(),
            recording: false,
            history: None,
        }
    }

    /// Says whether events are written down, and what the policy wants; called when that changes.
    pub(crate) fn set_ways(&mut self, recording: bool, keeps_last: bool) {
        (self.recording, self.keeps_last) = (recording, keeps_last);
        // What is uncounted is neither told nor compared with limits.
        self.counts_later = keeps_last && !recording && self.counters.oversize_limit.is_none();
    }
    /// A new region, with its first address; `None` where pieces lie wherever the driver puts them.
    pub(crate) fn add_region(&mut self, base: Option<u64>, pool: Pool, pinned: bool) -> u16 {
        let owners = (0..self.owners).map(|_| Bins::new()).collect();
        let scattered = base.is_none();
        let (base, paged) = (base.unwrap_or(0), false);
        self.regions.push(Region { base, last: NONE, owners, holes: Vec::new(), pinned, pool, scattered, paged });
        (self.regions.len() - 1) as u16
    }
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Record {
        &self.records[index as usize]
    }
    #[inline]
    fn at(&mut self, index: u32) -> &mut Record {
        &mut self.records[index as usize]
    }
    #[inline]
    fn region(&self, region: u16) -> &Region {
        &self.regions[region as usize]
    }
    #[inline]
    pub(crate) fn set(&mut self, index: u32, state: State) {
        self.at(index).state = state;
    }
    pub(crate) fn set_owner(&mut self, index: u32, owner: u32) {
        self.at(index).owner = owner;
    }
    #[inline]
    pub(crate) fn set_tag(&mut self, index: u32, tag: Tag) {
        let record = self.at(index);
        (record.bytes, record.site, record.category) = (tag.bytes, tag.site, tag.category);
    }
    pub(crate) fn set_category(&mut self, index: u32, category: Category) {
        self.at(index).category = category;
    }

    /// Makes room for the idle blocks of a stream.
    pub(crate) fn add_owner(&mut self, owner: u32) {
        self.owners = self.owners.max(owner + 1);
        for region in &mut self.regions {
            region.owners.resize_with(self.owners as usize, Bins::new);
        }
    }

    /// Where a region ends.
    pub(crate) fn top(&self, region: u16) -> u64 {
        let region = self.region(region);
        if region.last == NONE { region.base } else { self.get(region.last).end() }
    }
    /// The last block of a region, or `NONE`.
    pub(crate) fn last(&self, region: u16) -> u32 {
        self.region(region).last
    }

    /// An idle block of `owner` for `size` bytes.
    #[inline]
    pub(crate) fn find(&self, size: usize, region: u16, owner: u32, search: Search) -> Option<u32> {
        let this = self.region(region);
        match search {
            Search::LastThenBestFit | Search::BestFit => this.owners[owner as usize].find(&self.records, size),
            Search::Tail => Some(this.last).filter(|last| self.is_idle(*last, owner) && self.get(*last).size >= size),
        }
    }
    /// Takes an idle block out of its bin.
    #[inline]
    pub(crate) fn hold(&mut self, index: u32) {
        self.unbin(index);
        self.set(index, State::Held);
    }
    /// Makes a held block live for `size` bytes; with `cut`, the rest becomes idle.
    pub(crate) fn trim(&mut self, index: u32, size: usize, cut: bool) {
        self.set(index, State::Live);
        if cut {
            let rest = self.split(index, size);
            self.release(rest);
        }
    }
    /// Cuts the first `size` bytes off an idle block, as a live one. The rest stays idle, mostly in the bin where it is.
    #[inline]
    pub(crate) fn carve(&mut self, index: u32, size: usize) -> u32 {
        let whole = *self.get(index);
        debug_assert!(0 < size && size < whole.size);
        let live = self.insert(Record { size, next: index, state: State::Live, ..whole });
        if whole.prev != NONE {
            self.at(whole.prev).next = live;
        }
        self.resize(index, whole.address + size as u64, whole.size - size);
        let rest = self.at(index);
        (rest.prev, rest.wall) = (live, false);
        live
    }
    /// Makes a block idle and merges it with idle neighbours of its owner.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        let Record { address, size, prev, next, owner, region, wall, .. } = *self.get(index);
        let before = !wall && self.is_idle(prev, owner);
        let after = self.is_idle(next, owner) && !self.get(next).wall;
        match (before, after) {
            (true, true) => {
                self.unbin(next);
                self.merge(index);
                self.resize(prev, self.get(prev).address, self.get(prev).size + self.get(index).size);
                self.join(prev, index);
            }
            (true, false) => {
                self.resize(prev, self.get(prev).address, self.get(prev).size + size);
                self.join(prev, index);
            }
            (false, true) => {
                self.resize(next, address, self.get(next).size + size);
                let this = self.at(next);
                (this.prev, this.wall) = (prev, wall);
                if prev != NONE {
                    self.at(prev).next = next;
                }
                self.forget(index);
            }
            (false, false) => {
                let this = self.at(index);
                (this.state, this.bytes) = (State::Idle, 0);
                let region = &mut self.regions[region as usize];
                region.owners[owner as usize].push(&mut self.records, index);
                self.counters.idle_pushed(size, region.pool);
            }
        }
    }
    /// Keeps a live block that nothing uses any more as the one that was freed last; the one before is counted. Its free may be counted
    /// already, and else stays uncounted where it can; whether it does.
    #[inline(always)]
    pub(crate) fn keep_last(&mut self, index: u32) {
        self.merge_last();
        (self.last_freed, self.last_counted) = (index, true);
    }
    /// As [`keep_last`](Table::keep_last), with a free that is not counted yet; whether it could.
    #[inline(always)]
    pub(crate) fn keep_last_uncounted(&mut self, index: u32) -> bool {
        if !self.counts_later || index == NONE {
            return false;
        }
        self.keep_last(index);
        self.last_counted = false;
        true
    }
    /// The block that was freed last, live again, if its free is not counted yet and `tag` asks for what it was: then every count stays
    /// as it is, but for what was ever added.
    #[inline(always)]
    pub(crate) fn reuse_last(&mut self, owner: u32, tag: &Tag) -> Option<(u32, u64)> {
        // `NONE` is beyond any record.
        let record = self.records.get_mut(self.last_freed as usize)?;
        let same = record.bytes == tag.bytes && record.category == tag.category && record.owner == owner;
        if !same || record.region >= POOLS || self.last_counted {
            return None;
        }
        record.site = tag.site;
        self.counters.repeated(tag.bytes, record.size, record.pool);
        let index = std::mem::replace(&mut self.last_freed, NONE);
        Some((index, record.address))
    }
    /// Counts the free of the block that was freed last, if that is still to be done; returns its stream.
    #[inline(always)]
    pub(crate) fn count_last(&mut self) -> Option<u32> {
        if self.last_freed == NONE || self.last_counted {
            return None;
        }
        let Record { size, pool, bytes, category, owner, .. } = *self.get(self.last_freed);
        self.counters.freed_and_settled(bytes, size, pool, category as u8);
        self.last_counted = true;
        Some(owner)
    }
    /// The block that was freed last, counted and live, if it has exactly this size; else it joins the others.
    #[inline(always)]
    pub(crate) fn take_last(&mut self, size: usize, region: u16, owner: u32) -> Option<u32> {
        let index = std::mem::replace(&mut self.last_freed, NONE);
        let record = self.records.get(index as usize)?;
        if record.size == size && record.region == region && record.owner == owner {
            return Some(index);
        }
        self.release(index);
        None
    }
    /// Makes the block that was freed last one of the others.
    #[inline(always)]
    pub(crate) fn merge_last(&mut self) {
        if self.last_freed != NONE {
            debug_assert!(self.last_counted);
            let index = std::mem::replace(&mut self.last_freed, NONE);
            self.release(index);
        }
    }
    /// Takes `gone`, whose bytes `index` has taken over, out of the order.
    #[inline]
    fn join(&mut self, index: u32, gone: u32) {
        let Record { next, region, .. } = *self.get(gone);
        self.at(index).next = next;
        if next == NONE {
            self.regions[region as usize].last = index;
        } else {
            self.at(next).prev = index;
        }
        self.forget(gone);
    }
    /// Gives an idle block other bounds, and another bin if it needs one.
    #[inline]
    fn resize(&mut self, index: u32, address: u64, size: usize) {
        let record = &mut self.records[index as usize];
        let (old, owner, region) = (record.size, record.owner, record.region);
        (record.address, record.size) = (address, size);
        let stays = usize::from(record.bin) == bin_of(size);
        let region = &mut self.regions[region as usize];
        self.counters.idle_resized(old, size, region.pool);
        if !stays {
            region.owners[owner as usize].move_over(&mut self.records, index);
        }
    }
    #[inline]
    fn unbin(&mut self, index: u32) {
        let Record { owner, region, size, .. } = *self.get(index);
        let region = &mut self.regions[region as usize];
        region.owners[owner as usize].remove(&mut self.records, index);
        self.counters.idle_popped(size, region.pool);
    }
    /// What a block is counted as.
    #[inline]
    pub(crate) fn pool(&self, index: u32) -> Pool {
        self.get(index).pool
    }
    /// Counts a pending block that is done, or taken over. A piece that was idle before it was pending counts no more.
    pub(crate) fn settled(&mut self, index: u32, active: bool) {
        if active {
            self.counters.settled(self.get(index).size, self.pool(index));
            self.note(What::FreeCompleted, index, None);
            self.at(index).bytes = 0;
        }
    }
    /// Whether its pages stay where they are.
    pub(crate) fn is_pinned(&self, index: u32) -> bool {
        self.region(self.get(index).region).pinned
    }
    #[inline]
    pub(crate) fn is_idle(&self, index: u32, owner: u32) -> bool {
        index != NONE && self.get(index).state == State::Idle && self.get(index).owner == owner
    }

    /// Cuts a block after `size` bytes; returns the second part, in the same state and of the same owner, in no bin.
    pub(crate) fn split(&mut self, index: u32, size: usize) -> u32 {
        let first = *self.get(index);
        debug_assert!(0 < size && size < first.size);
        let rest = self.insert(Record {
            address: first.address + size as u64,
            size: first.size - size,
            prev: index,
            bin_prev: NONE,
            bin_next: NONE,
            wall: false,
            ..first
        });
        let this = self.at(index);
        (this.size, this.next) = (size, rest);
        if first.next == NONE {
            self.regions[first.region as usize].last = rest;
        } else {
            self.at(first.next).prev = rest;
        }
        rest
    }
    /// Merges a block with the next one; neither may be in a bin.
    pub(crate) fn merge(&mut self, index: u32) {
        let gone = self.get(index).next;
        self.at(index).size += self.get(gone).size;
        self.join(index, gone);
    }

    /// A held block of `size` bytes at the end of a region.
    pub(crate) fn append(&mut self, size: usize, region: u16, owner: u32, wall: bool) -> u32 {
        self.append_at(self.top(region), size, region, owner, wall)
    }
    /// A held block at an address that the driver chose, last in its region.
    pub(crate) fn append_at(&mut self, address: u64, size: usize, region: u16, owner: u32, wall: bool) -> u32 {
        let prev = self.last(region);
        let Tag { bytes, site, category } = self.nobody;
        let index = self.insert(Record {
            address,
            size,
            prev,
            next: NONE,
            bin_prev: NONE,
            bin_next: NONE,
            owner,
            region,
            state: State::Held,
            bin: 0,
            pool: self.region(region).pool,
            wall,
            bytes,
            site,
            category,
        });
        if prev != NONE {
            self.at(prev).next = index;
        }
        self.regions[region as usize].last = index;
        index
    }
    /// Takes `size` bytes of a hole, from its start or its end, as a held block.
    pub(crate) fn fill(&mut self, hole: u32, size: usize, from_end: bool, owner: u32, wall: bool) -> u32 {
        let Record { size: whole, region, .. } = *self.get(hole);
        let index = match (whole == size, from_end) {
            (true, _) => {
                self.regions[region as usize].holes.retain(|h| *h != hole);
                hole
            }
            (false, true) => self.split(hole, whole - size),
            (false, false) => {
                let rest = self.split(hole, size);
                let holes = &mut self.regions[region as usize].holes;
                holes.retain(|h| *h != hole);
                holes.push(rest);
                hole
            }
        };
        self.set_tag(index, self.nobody);
        let this = self.at(index);
        (this.state, this.owner, this.wall) = (State::Held, owner, wall);
        index
    }
    /// Makes a held block a hole, one with the holes beside it; at the end of a region, takes it off. Where there are no holes it
    /// is forgotten.
    pub(crate) fn make_hole(&mut self, mut index: u32) {
        let Record { prev, next, region, .. } = *self.get(index);
        if self.region(region).scattered {
            return self.unlink(index);
        }
        self.at(index).wall = false;
        if next != NONE && self.get(next).state == State::Hole {
            self.regions[region as usize].holes.retain(|h| *h != next);
            self.merge(index);
        }
        if prev != NONE && self.get(prev).state == State::Hole {
            self.regions[region as usize].holes.retain(|h| *h != prev);
            self.merge(prev);
            index = prev;
        }
        if self.last(region) == index {
            return self.unlink(index);
        }
        self.set(index, State::Hole);
        self.regions[region as usize].holes.push(index);
    }
    fn unlink(&mut self, index: u32) {
        let Record { prev, next, region, .. } = *self.get(index);
        if prev != NONE {
            self.at(prev).next = next;
        }
        if next == NONE {
            self.regions[region as usize].last = prev;
        } else {
            self.at(next).prev = prev;
        }
        self.forget(index);
    }

    /// Whether a region has no pieces.
    pub(crate) fn is_empty(&self, region: u16) -> bool {
        self.region(region).last == NONE
    }
    /// Bytes of memory in a region.
    pub(crate) fn bytes_of(&self, region: u16) -> usize {
        let mapped = self.in_order(region).into_iter().map(|index| self.get(index)).filter(|record| record.state != State::Hole);
        mapped.map(|record| record.size).sum()
    }

    /// Every idle block of a stream in a region, in no order, once all is merged.
    pub(crate) fn idle_of(&self, region: u16, owner: u32) -> Vec<u32> {
        self.region(region).owners[owner as usize].all(&self.records)
    }
    /// Every idle block of a stream, in no order, once all is merged.
    pub(crate) fn all_idle_of(&self, owner: u32) -> Vec<u32> {
        (0..self.regions.len()).flat_map(|region| self.idle_of(region as u16, owner)).collect()
    }
    /// How many streams may own blocks.
    pub(crate) fn owners(&self) -> u32 {
        self.owners
    }
    /// The largest idle block, in bytes, once all is merged.
    pub(crate) fn largest_idle(&self) -> usize {
        let owners = self.regions.iter().flat_map(|region| &region.owners);
        owners.map(|owner| owner.largest(&self.records)).max().unwrap_or(0)
    }

    #[inline]
    fn insert(&mut self, record: Record) -> u32 {
        if self.unused == NONE {
            self.records.push(record);
            return (self.records.len() - 1) as u32;
        }
        let index = self.unused;
        self.unused = self.get(index).bin_next;
        *self.at(index) = record;
        index
    }
    #[inline]
    fn forget(&mut self, index: u32) {
        let unused = self.unused;
        let record = self.at(index);
        (record.state, record.bin_next) = (State::Unused, unused);
        self.unused = index;
    }

    /// The pieces of a region, in address order where it has one.
    pub(crate) fn in_order(&self, region: u16) -> Vec<u32> {
        let some = |index: u32| (index != NONE).then_some(index);
        let mut list: Vec<u32> = std::iter::successors(some(self.last(region)), |index| some(self.get(*index).prev)).collect();
        list.reverse();
        list
    }
}

#[cfg(test)]
mod tests;
