//! What a policy decides: how a request is rounded, which blocks share pages, when a block is cut, and how memory grows.
//!
//! A policy is decisions alone. One mechanism (the block table, streams, pages, stitching) carries them out for every policy, so a
//! policy of one's own is a few lines, and whatever it decides, no two blocks overlap and no byte is lost.

use crate::Category;

/// Blocks of one zone lie in one range of addresses and share pages; blocks of two zones never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zone {
    /// Small blocks, so that they do not pin pages that large ones need.
    Small,
    /// Large blocks that come and go.
    Large,
    /// Blocks that live as long as the model.
    Persistent,
}

impl Zone {
    /// Every zone, in the order of their numbers.
    pub const ALL: [Zone; 3] = [Zone::Small, Zone::Large, Zone::Persistent];
}

/// Which idle block serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// The one that was freed last, if it has exactly the size, as it mostly has; else as `BestFit`.
    LastThenBestFit,
    /// One of exactly the size, else the smallest that is large enough; the lowest address on ties.
    BestFit,
    /// Only the one at the end of the zone: memory is handed out upwards and comes back when everything above it is free.
    Tail,
}

/// How memory is taken from the device when no idle block fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Growth {
    /// A zone grows by the pages that are missing. Free pages from elsewhere are moved there instead as far as new ones would take
    /// reserved bytes above this multiple of the peak of requested bytes. On a device with no virtual memory, as
    /// `Segments(20 MiB)`.
    Pages {
        /// 1.0 moves free pages before any growth, infinity only when the device or the limit has no more.
        stitch_above: f64,
    },
    /// A segment of this many bytes (the block's size, if that is more) is taken as one piece, never merged with another, and
    /// given back as one.
    Segments(usize),
}

/// The decisions of an allocator. The methods are pure; all sizes are in bytes.
///
/// A policy that is another one but for its rounding is a [`RoundUp`](crate::policies::RoundUp) with a function. One that decides
/// more for itself has two methods to write, and the rest have defaults:
///
/// ```
/// use kiln_alloc::{Allocator, AllocatorConfig, Category, Growth, Policy, Zone, sources::SimulatedSource};
/// use std::sync::Arc;
///
/// /// Everything in one zone, in multiples of 64 KiB.
/// struct Coarse;
///
/// impl Policy for Coarse {
///     fn name(&self) -> &str {
///         "coarse"
///     }
///     fn block_size(&self, bytes: usize) -> usize {
///         bytes.next_multiple_of(64 << 10)
///     }
///     fn zone(&self, _size: usize, _category: Category) -> Zone {
///         Zone::Large
///     }
///     fn keeps_rest(&self, _size: usize, rest: usize) -> bool {
///         rest >= 64 << 10
///     }
///     fn growth(&self, _size: usize) -> Growth {
///         Growth::Pages { stitch_above: 1.1 }
///     }
/// }
///
/// # fn main() -> kiln_alloc::Result<()> {
/// let source = Arc::new(SimulatedSource::new("a dry run", 1 << 30));
/// let allocator = Allocator::new(source, AllocatorConfig::with_policy(Coarse))?;
/// let _block = allocator.allocate(1000, allocator.compute_stream(), Category::Inputs)?;
/// assert_eq!(allocator.stats().active_bytes.all.current, 64 << 10);
/// # Ok(())
/// # }
/// ```
pub trait Policy: Send + Sync + 'static {
    /// Its name in reports.
    fn name(&self) -> &str;
    /// The size of a block for a request of `bytes` > 0. Rounded up to 512 by the allocator, and never less than `bytes`.
    fn block_size(&self, bytes: usize) -> usize {
        bytes
    }
    /// Where a block of this size lies.
    fn zone(&self, size: usize, category: Category) -> Zone {
        let _ = category;
        if size <= SMALL { Zone::Small } else { Zone::Large }
    }
    /// Whether what is left over when a block of `size` bytes is cut becomes a block of its own.
    fn keeps_rest(&self, size: usize, rest: usize) -> bool;
    /// Which idle block serves a request.
    fn search(&self) -> Search {
        Search::LastThenBestFit
    }
    /// How memory grows for a block of `size` bytes.
    fn growth(&self, size: usize) -> Growth;
    /// Whether a stream may take idle or pending blocks of another one over, waiting for it on the device.
    fn shares_streams(&self) -> bool {
        true
    }
}

/// Up to this size a block is small.
pub(crate) const SMALL: usize = 1 << 20;
