//! A scheduler that runs work as late as it can get away with, and then sometimes much at once.

/// A generator of choices (splitmix64).
pub(super) struct Adversary(u64);

impl Adversary {
    /// So much waiting work is let go, whatever the dice say, so that long runs need little memory.
    pub(super) const MOST: usize = 4096;

    pub(super) fn new(seed: u64) -> Adversary {
        Adversary(seed)
    }
    /// A number below `n`; 0 where `n` is.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
    /// How many entries may run now: mostly none, now and then a few, seldom a burst.
    pub(super) fn steps(&mut self, waiting: usize) -> usize {
        match self.below(24) {
            _ if waiting > Self::MOST => waiting / 2,
            0 => self.below(64),
            1..=3 => 1 + self.below(3),
            _ => 0,
        }
    }
}
