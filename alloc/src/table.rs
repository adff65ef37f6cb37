//! The block table: every piece of the arena in address order, in a slab addressed by `u32`.
//!
//! A piece is live, idle (in the bins of the stream that owns it), pending (freed, but the device may still use it), held (a
//! driver call is working on it) or a hole (addresses with nothing mapped). Neighbours of one owner that are both idle are one
//! block, always; so are neighbouring holes, and the arena never ends in a hole.

use crate::bins::Bins;
use crate::size::least_rest;
use crate::stats::{Counters, Pool};

/// No block.
pub(crate) const NONE: u32 = u32::MAX;

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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) address: u64,
    pub(crate) size: usize,
    /// Neighbours in address order.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Neighbours in a bin; `bin_next` also links free slots.
    pub(crate) bin_prev: u32,
    pub(crate) bin_next: u32,
    /// Id of the stream that may reuse it with no wait.
    pub(crate) owner: u32,
    pub(crate) state: State,
}

impl Record {
    pub(crate) fn end(&self) -> u64 {
        self.address + self.size as u64
    }
}

pub(crate) struct Table {
    records: Vec<Record>,
    unused: u32,
    last: u32,
    /// By stream id.
    bins: Vec<Bins>,
    pub(crate) holes: Vec<u32>,
    base: u64,
    pub(crate) counters: Counters,
}

impl Table {
    pub(crate) fn new(base: u64) -> Table {
        let (records, bins, holes) = (Vec::new(), Vec::new(), Vec::new());
        Table { records, unused: NONE, last: NONE, bins, holes, base, counters: Counters::default() }
    }

    pub(crate) fn get(&self, index: u32) -> &Record {
        &self.records[index as usize]
    }
    fn at(&mut self, index: u32) -> &mut Record {
        &mut self.records[index as usize]
    }
    pub(crate) fn set(&mut self, index: u32, state: State) {
        self.at(index).state = state;
    }
    pub(crate) fn set_owner(&mut self, index: u32, owner: u32) {
        self.at(index).owner = owner;
    }

    /// Makes room for the idle blocks of a stream.
    pub(crate) fn add_owner(&mut self, owner: u32) {
        while self.bins.len() <= owner as usize {
            self.bins.push(Bins::new());
        }
    }

    /// Where the arena ends.
    pub(crate) fn top(&self) -> u64 {
        if self.last == NONE { self.base } else { self.get(self.last).end() }
    }
    /// The last block, or `NONE`.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// An idle block of `owner` for `size` bytes; whether it fits exactly.
    pub(crate) fn find(&self, size: usize, owner: u32) -> Option<(u32, bool)> {
        let index = self.bins[owner as usize].find(&self.records, size)?;
        Some((index, self.get(index).size == size))
    }
    /// Takes an idle block for `size` bytes; a rest worth keeping stays idle with its owner.
    pub(crate) fn claim(&mut self, index: u32, size: usize) {
        self.hold(index);
        self.trim(index, size);
    }
    /// Makes a held block live for `size` bytes; a rest worth keeping becomes idle.
    pub(crate) fn trim(&mut self, index: u32, size: usize) {
        self.set(index, State::Live);
        if self.get(index).size - size >= least_rest(size) {
            let rest = self.split(index, size);
            self.release(rest);
        }
    }
    /// Takes an idle block out of its bin.
    pub(crate) fn hold(&mut self, index: u32) {
        self.unbin(index);
        self.set(index, State::Held);
    }
    /// Makes a block idle and merges it with idle neighbours of its owner.
    pub(crate) fn release(&mut self, mut index: u32) {
        let Record { prev, next, owner, .. } = *self.get(index);
        if self.is_idle(next, owner) {
            self.unbin(next);
            self.merge(index);
        }
        if self.is_idle(prev, owner) {
            self.unbin(prev);
            self.merge(prev);
            index = prev;
        }
        self.set(index, State::Idle);
        self.bins[owner as usize].push(&mut self.records, index);
        self.counters.idle_pushed(self.get(index).size, Pool::Large);
    }
    fn unbin(&mut self, index: u32) {
        let Record { size, owner, .. } = *self.get(index);
        self.bins[owner as usize].remove(&mut self.records, index);
        self.counters.idle_popped(size, Pool::Large);
    }
    /// Counts a pending block that is done, or taken over; `pool` is that of the request it last served.
    pub(crate) fn settled(&mut self, index: u32, pool: Option<Pool>) {
        if let Some(pool) = pool {
            self.counters.settled(self.get(index).size, pool);
        }
    }
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
            ..first
        });
        let this = self.at(index);
        (this.size, this.next) = (size, rest);
        if first.next == NONE {
            self.last = rest;
        } else {
            self.at(first.next).prev = rest;
        }
        rest
    }
    /// Merges a block with the next one; neither may be in a bin.
    pub(crate) fn merge(&mut self, index: u32) {
        let gone = self.get(index).next;
        let Record { size, next, .. } = *self.get(gone);
        let this = self.at(index);
        (this.size, this.next) = (this.size + size, next);
        if next == NONE {
            self.last = index;
        } else {
            self.at(next).prev = index;
        }
        self.forget(gone);
    }

    /// A held block of `size` bytes at the end of the arena.
    pub(crate) fn append(&mut self, size: usize, owner: u32) -> u32 {
        let (address, prev) = (self.top(), self.last);
        let index =
            self.insert(Record { address, size, prev, next: NONE, bin_prev: NONE, bin_next: NONE, owner, state: State::Held });
        if prev != NONE {
            self.at(prev).next = index;
        }
        self.last = index;
        index
    }
    /// Takes `size` bytes of a hole, from its start or its end, as a held block.
    pub(crate) fn fill(&mut self, hole: u32, size: usize, from_end: bool, owner: u32) -> u32 {
        let whole = self.get(hole).size;
        let index = match (whole == size, from_end) {
            (true, _) => {
                self.holes.retain(|h| *h != hole);
                hole
            }
            (false, true) => self.split(hole, whole - size),
            (false, false) => {
                let rest = self.split(hole, size);
                self.holes.retain(|h| *h != hole);
                self.holes.push(rest);
                hole
            }
        };
        self.set(index, State::Held);
        self.set_owner(index, owner);
        index
    }
    /// Makes a held block a hole, one with the holes beside it; at the end of the arena, takes it off.
    pub(crate) fn make_hole(&mut self, mut index: u32) {
        let Record { prev, next, .. } = *self.get(index);
        if next != NONE && self.get(next).state == State::Hole {
            self.holes.retain(|h| *h != next);
            self.merge(index);
        }
        if prev != NONE && self.get(prev).state == State::Hole {
            self.holes.retain(|h| *h != prev);
            self.merge(prev);
            index = prev;
        }
        if self.last != index {
            self.set(index, State::Hole);
            self.holes.push(index);
            return;
        }
        let prev = self.get(index).prev;
        if prev != NONE {
            self.at(prev).next = NONE;
        }
        self.last = prev;
        self.forget(index);
    }

    /// Every idle block of a stream, in no order.
    pub(crate) fn idle_of(&self, owner: u32) -> Vec<u32> {
        self.bins[owner as usize].all(&self.records)
    }
    /// How many streams may own blocks.
    pub(crate) fn owners(&self) -> u32 {
        self.bins.len() as u32
    }
    /// The largest idle block, in bytes.
    pub(crate) fn largest_idle(&self) -> usize {
        self.bins.iter().map(|bins| bins.largest(&self.records)).max().unwrap_or(0)
    }

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
    fn forget(&mut self, index: u32) {
        let unused = self.unused;
        let record = self.at(index);
        (record.state, record.bin_next) = (State::Unused, unused);
        self.unused = index;
    }

    /// The blocks in address order.
    #[cfg(test)]
    pub(crate) fn in_order(&self) -> Vec<Record> {
        let mut list: Vec<Record> =
            std::iter::successors((self.last != NONE).then_some(self.last), |i| Some(self.get(*i).prev).filter(|p| *p != NONE))
                .map(|i| *self.get(i))
                .collect();
        list.reverse();
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: usize = 2 << 20;

    /// What the header promises.
    fn check(table: &Table) {
        let records = table.in_order();
        assert_eq!(records.first().map_or(table.base, |r| r.address), table.base);
        assert!(records.windows(2).all(|w| w[0].end() == w[1].address));
        assert!(records.windows(2).all(|w| {
            let both = |state| w[0].state == state && w[1].state == state;
            !(both(State::Hole) || both(State::Idle) && w[0].owner == w[1].owner)
        }));
        assert!(records.last().is_none_or(|r| r.state != State::Hole));
        assert_eq!(records.iter().filter(|r| r.state == State::Hole).count(), table.holes.len());
        let idle: usize = (0..table.owners()).map(|owner| table.idle_of(owner).len()).sum();
        assert_eq!(records.iter().filter(|r| r.state == State::Idle).count(), idle);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn blocks_tile_the_arena_and_neighbours_are_merged(steps in prop::collection::vec((0..6u8, any::<u16>(), 0..2u32), 1..200)) {
            let mut table = Table::new(512);
            table.add_owner(1);
            let mut live = Vec::new();
            for (what, n, owner) in steps {
                let size = (usize::from(n) % 64 + 1) * 512;
                match what {
                    0 => live.push(table.append(UNIT, owner)),
                    1 if !live.is_empty() => table.release(live.swap_remove(usize::from(n) % live.len())),
                    2 if !live.is_empty() => table.make_hole(live.swap_remove(usize::from(n) % live.len())),
                    3 if !table.holes.is_empty() => {
                        let hole = table.holes[usize::from(n) % table.holes.len()];
                        live.push(table.fill(hole, size.min(table.get(hole).size), n % 2 == 0, owner));
                    }
                    _ => {
                        if let Some((index, _)) = table.find(size, owner) {
                            prop_assert!(table.get(index).size >= size);
                            table.claim(index, size);
                            live.push(index);
                        }
                    }
                }
                check(&table);
            }
            live.into_iter().for_each(|index| table.make_hole(index));
            (0..2).for_each(|owner| table.idle_of(owner).into_iter().for_each(|index| {
                table.hold(index);
                table.make_hole(index);
            }));
            prop_assert_eq!(table.top(), 512);
        }
    }
}
