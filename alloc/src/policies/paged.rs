//! The default: three zones of pages that grow by what is missing, and move free pages before they grow.

use crate::policy::SMALL;
use crate::size::ALIGN;
use crate::{Category, Growth, Policy, Zone};

/// The rest of a large block under this many bytes stays with it.
const LARGE_REST: usize = 4 << 10;
/// Up to this size blocks share the pages of small ones.
const TINY: usize = 4 << 10;

/// Blocks packed to the last 512 bytes (those above 1 MiB keep a rest under 4 KiB) into zones of pages. Free pages are stitched
/// before reserved bytes pass 1.02 × the peak of requested ones: replays of recorded training stay within 1.02 on average.
#[derive(Clone, Copy, Debug)]
pub struct Paged {
    /// See [`Growth::Pages`].
    pub stitch_above: f64,
}

impl Default for Paged {
    fn default() -> Paged {
        Paged { stitch_above: 1.02 }
    }
}

impl Policy for Paged {
    fn name(&self) -> &str {
        "paged"
    }
    #[inline]
    fn zone(&self, size: usize, category: Category) -> Zone {
        match category {
            Category::Parameters | Category::OptimizerState => Zone::Persistent,
            _ if size <= TINY => Zone::Small,
            _ => Zone::Large,
        }
    }
    #[inline]
    fn keeps_rest(&self, size: usize, rest: usize) -> bool {
        rest >= if size <= SMALL { ALIGN } else { LARGE_REST }
    }
    fn growth(&self, _size: usize) -> Growth {
        Growth::Pages { stitch_above: self.stitch_above }
    }
}
