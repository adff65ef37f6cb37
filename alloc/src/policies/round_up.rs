//! Larger blocks than asked for, so that requests that grow a little still fit.

use crate::core::MOST;
use crate::{Category, Growth, Policy, Search, Zone};

/// Another policy, with every request rounded up by a factor: at 1.2, a block may be used again for a request up to 20 % larger.
#[derive(Clone, Copy, Debug)]
pub struct RoundUp<P> {
    inner: P,
    factor: f64,
}

impl<P: Policy> RoundUp<P> {
    /// `inner`, with sizes times `factor`; a factor below 1, or one that is no number, counts as 1.
    pub fn new(inner: P, factor: f64) -> RoundUp<P> {
        RoundUp { inner, factor: factor.max(1.0) }
    }
}

impl<P: Policy> Policy for RoundUp<P> {
    fn name(&self) -> &str {
        "round-up"
    }
    fn block_size(&self, bytes: usize) -> usize {
        // A float to integer cast saturates, and the allocator refuses what no device can have.
        self.inner.block_size(((bytes as f64 * self.factor) as usize).min(MOST))
    }
    fn zone(&self, size: usize, category: Category) -> Zone {
        self.inner.zone(size, category)
    }
    fn keeps_rest(&self, size: usize, rest: usize) -> bool {
        self.inner.keeps_rest(size, rest)
    }
    fn search(&self) -> Search {
        self.inner.search()
    }
    fn growth(&self, size: usize) -> Growth {
        self.inner.growth(size)
    }
    fn shares_streams(&self) -> bool {
        self.inner.shares_streams()
    }
}
