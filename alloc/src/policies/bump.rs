//! A bump arena: blocks are handed out upwards, and memory comes back when everything above it is free.

use crate::{Category, Growth, Policy, Search, Zone};

/// One zone, handed out from its end: no search and no gaps within a phase that frees everything it allocates, and no reuse in
/// between. A step that ends with nothing live starts at the bottom again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bump;

impl Policy for Bump {
    fn name(&self) -> &str {
        "bump"
    }
    fn zone(&self, _size: usize, _category: Category) -> Zone {
        Zone::Large
    }
    fn keeps_rest(&self, _size: usize, _rest: usize) -> bool {
        true
    }
    fn search(&self) -> Search {
        Search::Tail
    }
    fn growth(&self, _size: usize) -> Growth {
        // Gaps are filled only by what falls free above them, so their pages are worth moving to the end only under a limit.
        Growth::Pages { stitch_above: f64::INFINITY }
    }
}
