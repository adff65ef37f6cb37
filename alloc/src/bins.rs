//! Segregated bins: 32 steps per power of two, each a list of idle blocks, found through a bitmap.
//!
//! With n = size / 512: for n < 32 the bin is n; above, with e = ⌊log₂ n⌋, it is 32·(e − 4) + (the five bits of n below its
//! highest). So a bin's sizes differ by less than 1/32, and every block of a higher bin fits.

use crate::size::ALIGN;
use crate::table::{NONE, Record};

/// Bins for sizes below 2^57 bytes, more than any address range.
const BINS: usize = 32 * 45;
const WORDS: usize = BINS.div_ceil(64);
/// How many blocks of one bin are looked at for a better fit.
const LOOK: usize = 32;

/// The idle blocks of one stream.
pub(crate) struct Bins {
    heads: Box<[u32; BINS]>,
    /// One bit a bin that holds a block.
    full: [u64; WORDS],
    /// One bit a word of `full` that is not zero.
    words: u64,
}

/// The bin of blocks of `size` bytes, a multiple of 512.
#[inline]
pub(crate) fn bin_of(size: usize) -> usize {
    let n = size / ALIGN;
    if n < 32 {
        return n;
    }
    let e = n.ilog2() as usize;
    32 * (e - 4) + ((n >> (e - 5)) & 31)
}

impl Bins {
    pub(crate) fn new() -> Bins {
        Bins { heads: Box::new([NONE; BINS]), full: [0; WORDS], words: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, records: &mut [Record], index: u32) {
        let bin = bin_of(records[index as usize].size);
        let head = self.heads[bin];
        if head != NONE {
            records[head as usize].bin_prev = index;
        }
        let record = &mut records[index as usize];
        (record.bin_prev, record.bin_next, record.bin) = (NONE, head, bin as u16);
        self.heads[bin] = index;
        self.full[bin / 64] |= 1 << (bin % 64);
        self.words |= 1 << (bin / 64);
    }

    #[inline]
    pub(crate) fn remove(&mut self, records: &mut [Record], index: u32) {
        let Record { bin, bin_prev, bin_next, .. } = records[index as usize];
        if bin_next != NONE {
            records[bin_next as usize].bin_prev = bin_prev;
        }
        if bin_prev != NONE {
            records[bin_prev as usize].bin_next = bin_next;
            return;
        }
        let bin = usize::from(bin);
        self.heads[bin] = bin_next;
        if bin_next == NONE {
            self.full[bin / 64] &= !(1 << (bin % 64));
            if self.full[bin / 64] == 0 {
                self.words &= !(1 << (bin / 64));
            }
        }
    }

    /// Puts a block into the bin of its size.
    #[inline]
    pub(crate) fn move_over(&mut self, records: &mut [Record], index: u32) {
        self.remove(records, index);
        self.push(records, index);
    }

    /// A block of at least `size` bytes: one of exactly that size, else the best seen in its bin, else the best seen in the
    /// next bin that holds any. Ties go to the lowest address.
    #[inline]
    pub(crate) fn find(&self, records: &[Record], size: usize) -> Option<u32> {
        let bin = bin_of(size);
        let near = self.best_in(records, bin, size, LOOK);
        // Last the rest of its own bin, which is long only where sizes are many and nearly equal.
        near.or_else(|| match self.next_full(bin + 1) {
            Some(larger) => self.best_in(records, larger, size, LOOK),
            None => self.best_in(records, bin, size, usize::MAX),
        })
    }

    /// The largest block.
    pub(crate) fn largest(&self, records: &[Record]) -> usize {
        let Some(word) = (63u32).checked_sub(self.words.leading_zeros()) else { return 0 };
        let bin = word as usize * 64 + 63 - self.full[word as usize].leading_zeros() as usize;
        self.list(records, bin).map(|index| records[index as usize].size).max().unwrap_or(0)
    }

    /// Every block, in no order.
    pub(crate) fn all(&self, records: &[Record]) -> Vec<u32> {
        (0..BINS).filter(|bin| self.heads[*bin] != NONE).flat_map(|bin| self.list(records, bin)).collect()
    }

    fn list<'a>(&'a self, records: &'a [Record], bin: usize) -> impl Iterator<Item = u32> + 'a {
        let some = |index: u32| (index != NONE).then_some(index);
        std::iter::successors(some(self.heads[bin]), move |index| some(records[*index as usize].bin_next))
    }

    #[inline]
    fn best_in(&self, records: &[Record], bin: usize, size: usize, look: usize) -> Option<u32> {
        let mut best: Option<(usize, u64, u32)> = None;
        for index in self.list(records, bin).take(look) {
            let record = &records[index as usize];
            if record.size == size {
                return Some(index);
            }
            let this = (record.size, record.address, index);
            if record.size > size && best.is_none_or(|b| this < b) {
                best = Some(this);
            }
        }
        best.map(|(_, _, index)| index)
    }

    #[inline]
    fn next_full(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let here = self.full.get(word)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let later = self.words.checked_shr(word as u32 + 1)?;
        if later == 0 {
            return None;
        }
        let word = word + 1 + later.trailing_zeros() as usize;
        Some(word * 64 + self.full[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_grow_with_size_and_differ_by_less_than_a_32nd() {
        let mut last = 0;
        for n in 1..100_000usize {
            let bin = bin_of(n * ALIGN);
            assert!(bin == last || bin == last + 1);
            last = bin;
        }
        for e in 5..45u32 {
            let n = 1usize << e;
            assert_eq!(bin_of(n * ALIGN), bin_of((n + (n >> 5) - 1) * ALIGN));
            assert_eq!(bin_of(n * ALIGN) + 1, bin_of((n + (n >> 5)) * ALIGN));
        }
        assert!(bin_of(1 << 56) < BINS);
    }
}
