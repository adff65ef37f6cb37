//! Larger blocks than asked for, so that requests that grow a little still fit.

use crate::core::MOST;
use crate::{Category, Growth, Policy, Search, Zone};

/// How many bytes are taken for a request: a factor (`f64`; below 1, or no number, it counts as 1), or a function of one's own.
/// The allocator sees to it that no block is smaller than its request.
pub trait Rounding: Send + Sync + 'static {
    /// The size for a request of `bytes` > 0.
    fn round(&self, bytes: usize) -> usize;
}

impl Rounding for f64 {
    fn round(&self, bytes: usize) -> usize {
        // A float to integer cast saturates, and the allocator refuses what no device can have.
        (bytes as f64 * self.max(1.0)) as usize
    }
}

impl<F: Fn(usize) -> usize + Send + Sync + 'static> Rounding for F {
    fn round(&self, bytes: usize) -> usize {
        self(bytes)
    }
}

/// Another policy, with every request rounded up first. With the factor 1.2, a block may be used again for a request up to 20 %
/// larger.
///
/// ```
/// use kiln_alloc::policies::{Paged, RoundUp};
/// use kiln_alloc::{Allocator, AllocatorConfig, Category, sources::SimulatedSource};
/// use std::sync::Arc;
///
/// # fn main() -> kiln_alloc::Result<()> {
/// // The default policy, but for powers of two.
/// let policy = RoundUp::new(Paged::default(), |bytes: usize| bytes.next_power_of_two());
/// let source = Arc::new(SimulatedSource::new("a dry run", 1 << 30));
/// let allocator = Allocator::new(source, AllocatorConfig::with_policy(policy))?;
/// let _block = allocator.allocate(5 << 20, allocator.compute_stream(), Category::Activations)?;
/// assert_eq!(allocator.stats().active_bytes.all.current, 8 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RoundUp<P, R = f64> {
    inner: P,
    rounding: R,
}

impl<P: Policy, R: Rounding> RoundUp<P, R> {
    /// `inner`, for requests of the size that `rounding` makes of them.
    pub fn new(inner: P, rounding: R) -> RoundUp<P, R> {
        RoundUp { inner, rounding }
    }
}

impl<P: Policy, R: Rounding> Policy for RoundUp<P, R> {
    fn name(&self) -> &str {
        "round-up"
    }
    fn block_size(&self, bytes: usize) -> usize {
        // What is more than any device has stays so, and far from where the inner policy's arithmetic overflows.
        self.inner.block_size(self.rounding.round(bytes).max(bytes).min(MOST))
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
