//! Addresses: finite, handed out upwards, and given out again only when the end is reached, so that a stale address is not
//! soon a valid one.

use std::collections::BTreeMap;

/// Where addresses begin: as on a GPU, far from null and below 2^53.
const BASE: u64 = 0x7000_0000_0000;

pub(super) struct Space {
    taken: BTreeMap<u64, u64>,
    next: u64,
    end: u64,
    align: u64,
    /// Bytes kept free between two ranges.
    gap: u64,
}

impl Space {
    pub(super) fn new(bytes: u64, align: u64, gap: u64) -> Space {
        Space { taken: BTreeMap::new(), next: BASE, end: BASE.saturating_add(bytes), align, gap }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// A range of `bytes` bytes; `None` when there is no such range left.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let fits = |at: u64, until: u64| at.checked_add(bytes)?.checked_add(self.gap).filter(|end| *end <= until);
        let at = match fits(self.next, self.end) {
            Some(_) => self.next,
            None => {
                let starts = self.taken.keys().copied().chain([self.end]);
                let ends = self.taken.iter().map(|(at, len)| (at + len + self.gap).next_multiple_of(self.align));
                [BASE].into_iter().chain(ends).zip(starts).find(|(from, until)| fits(*from, *until).is_some())?.0
            }
        };
        self.taken.insert(at, bytes);
        self.next = self.next.max((at + bytes + self.gap).next_multiple_of(self.align));
        Some(at)
    }
    /// Gives exactly one range back; whether there is such a range.
    pub(super) fn give(&mut self, at: u64, bytes: u64) -> bool {
        let found = self.taken.get(&at) == Some(&bytes);
        if found {
            self.taken.remove(&at);
        }
        found
    }
    /// Whether `[from, to)` lies in one range.
    pub(super) fn contains(&self, from: u64, to: u64) -> bool {
        self.taken.range(..=from).next_back().is_some_and(|(at, len)| to <= at + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_keep_their_gap_and_come_back_only_at_the_end() {
        let mut space = Space::new(5120, 512, 512);
        let [a, b] = [0, 1].map(|_| space.take(1000).unwrap());
        assert!(b >= a + 1512 && b.is_multiple_of(512));
        assert!(space.give(a, 1000) && !space.give(a, 1000) && !space.give(b, 999));
        assert_eq!(space.take(600), Some(b + 1536));
        assert_eq!(space.take(1000), Some(a));
        assert_eq!(space.take(1), None);
        assert!(space.contains(a, a + 1000) && !space.contains(a, a + 1001));
    }
}
