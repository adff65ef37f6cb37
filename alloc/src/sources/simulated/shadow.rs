//! What is known of each byte of a handle: who used it last, what the last write left, and which uses have not run. By physical
//! byte, not by address, since a page may be seen at two.
//!
//! Blocks are numbered in the order in which they were handed out. So if an older block is used after a younger one used the
//! same bytes, both were alive at once.

use super::breach::{BreachKind, Breaches};
use super::queues::Queues;
use super::ranges::RangeMap;
use super::work::Work;

/// Enqueued work on a part of a handle.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub(super) work: Work,
    pub(super) position: u64,
    pub(super) from: usize,
    pub(super) to: usize,
    /// Where it sees the first of these bytes.
    pub(super) address: u64,
}

impl Use {
    fn overlaps(&self, other: &Use) -> bool {
        self.from < other.to && other.from < self.to
    }
    /// Whether what is ordered after this use is ordered after `other` too, once this one is.
    fn stands_for(&self, other: &Use) -> bool {
        let covers = self.from <= other.from && other.to <= self.to;
        let same = self.work.stream == other.work.stream && self.work.block == other.work.block && self.address == other.address;
        covers && (self.work.write || (same && !other.work.write))
    }
}

/// The stamp that a read is to find in `[from, to)`.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    from: usize,
    to: usize,
    stamp: u64,
}

/// Who used bytes last, and the stamp of the last write enqueued by it; 0 where it wrote nothing.
#[derive(Clone, Copy)]
struct Claim {
    block: Option<u64>,
    stamp: u64,
}

#[derive(Default)]
pub(super) struct Shadow {
    claims: RangeMap<Claim>,
    /// Stamps of the writes that have run.
    values: RangeMap<u64>,
    /// Unfinished uses.
    uses: Vec<Use>,
}

impl Shadow {
    /// Notes a use as it is enqueued; returns what it is to find when it runs, if it reads.
    pub(super) fn enqueue(&mut self, used: Use, stamp: u64, queues: &Queues, breaches: &mut Breaches) -> Vec<Expected> {
        self.order(&used, queues, breaches);
        self.claim(&used, stamp, breaches)
    }

    /// Every conflicting use must have run or be waited for.
    fn order(&mut self, used: &Use, queues: &Queues, breaches: &mut Breaches) {
        let work = used.work;
        self.uses.retain(|other| {
            if queues.is_done(other.work.stream.0, other.position) {
                return false;
            }
            let foreign = matches!((other.work.block, work.block), (Some(a), Some(b)) if a != b);
            let conflict = other.overlaps(used) && (foreign || other.work.write || work.write);
            if conflict && !queues.ordered(work.stream, other.work.stream.0, other.position) {
                let here = used.address + used.from.max(other.from) as u64 - used.from as u64;
                let there = other.address + used.from.max(other.from) as u64 - other.from as u64;
                let kind = if here == there { BreachKind::Unordered } else { BreachKind::UnorderedAlias };
                let alias =
                    if here == there { String::new() } else { format!(", whose byte at {there:#x} is the one at {here:#x}") };
                breaches.add(kind, format!("{work} does not wait for {}{alias}", other.work));
            }
            !used.stands_for(other)
        });
        self.uses.push(*used);
    }

    fn claim(&mut self, used: &Use, stamp: u64, breaches: &mut Breaches) -> Vec<Expected> {
        let Use { work, from, to, .. } = *used;
        let before: Vec<_> = self.claims.within(from, to).collect();
        if let Some((at, _, claim)) = before.iter().find(|(_, _, claim)| claim.block > work.block && work.block.is_some()) {
            let (block, at) = (claim.block.unwrap_or(0), used.address + (at - from) as u64);
            breaches.add(BreachKind::HandedOutTwice, format!("{work} is enqueued after the younger block {block} used {at:#x}"));
        }
        // A copy does not know its block: it leaves the owner as it is, and what it wrote counts for whoever comes next.
        let kept = |claim: &Claim| work.block.is_none() || claim.block.is_none() || claim.block == work.block;
        if work.write {
            self.claims.set(from, to, Claim { block: work.block, stamp });
        } else if work.block.is_some() {
            self.claims.set(from, to, Claim { block: work.block, stamp: 0 });
        }
        let mut expected = Vec::new();
        for (from, to, claim) in before.into_iter().filter(|(_, _, claim)| kept(claim)) {
            let stamp = if work.write { stamp } else { claim.stamp };
            self.claims.set(from, to, Claim { block: work.block.or(claim.block), stamp });
            if !work.write && stamp > 0 {
                expected.push(Expected { from, to, stamp });
            }
        }
        expected
    }

    /// A write runs.
    pub(super) fn write(&mut self, from: usize, to: usize, stamp: u64) {
        self.values.set(from, to, stamp);
    }
    /// The first byte that does not hold what was expected.
    pub(super) fn wrong(&self, expected: &[Expected]) -> Option<usize> {
        expected.iter().find_map(|e| {
            let mut right = e.from;
            for (from, to, stamp) in self.values.within(e.from, e.to) {
                if from > right || stamp != e.stamp {
                    break;
                }
                right = to;
            }
            (right < e.to).then_some(right)
        })
    }
}
