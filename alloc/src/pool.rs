//! Private pools: pages that never move and serve nobody else, so that a captured graph may be replayed at the same addresses.

use crate::core::lock;
use crate::stats::Pool;
use crate::table::Tag;
use crate::{Allocator, Block, Category, Result, SourceError, Stream};
use std::panic::Location;

/// A pool with pages of its own. Dropped, its pages serve everybody as soon as its blocks are gone, and its addresses are used
/// again by a later pool.
pub struct PrivatePool {
    allocator: Allocator,
    region: u16,
}

impl PrivatePool {
    pub(crate) fn new(allocator: &Allocator) -> Result<PrivatePool> {
        let core = &allocator.core;
        core.check()?;
        let mut pages = lock(&core.slow);
        let mut shared = core.locked();
        let empty = shared.free_regions.iter().position(|region| shared.table.is_empty(*region));
        let region = match empty {
            Some(at) => {
                let region = shared.free_regions.swap_remove(at);
                shared.table.regions[region as usize].pinned = true;
                region
            }
            None => {
                if shared.table.regions.len() >= usize::from(u16::MAX) {
                    return Err(SourceError::Unsupported("an allocator has no more than 65,532 private pools").into());
                }
                drop(shared);
                let [range] = pages.add_ranges(&*core.source)?;
                core.locked().table.add_region(range, Pool::Large, true)
            }
        };
        Ok(PrivatePool { allocator: allocator.clone(), region })
    }
    /// A block of the pool for use on `stream`, as [`Allocator::allocate`]. A miss grows the pool by new pages, within the limit,
    /// and does nothing else: it waits for nothing and moves nothing, as a capture wants it.
    ///
    /// # Errors
    /// As [`Allocator::allocate`].
    #[track_caller]
    pub fn allocate(&self, bytes: usize, stream: &Stream, category: Category) -> Result<Block> {
        let core = &*self.allocator.core;
        core.check()?;
        self.allocator.check_stream(stream)?;
        self.allocator.serve(
            core.locked_for_request(),
            Some(self.region),
            stream,
            Tag { bytes, site: Location::caller(), category },
        )
    }
    #[cfg(test)]
    pub(crate) fn region(&self) -> u16 {
        self.region
    }
    /// Bytes that the pool holds.
    pub fn reserved_bytes(&self) -> usize {
        self.allocator.core.locked().table.bytes_of(self.region)
    }
}

impl Drop for PrivatePool {
    /// Lets the pages go; a block that still lives keeps its own.
    fn drop(&mut self) {
        let mut shared = self.allocator.core.locked();
        shared.table.regions[self.region as usize].pinned = false;
        shared.free_regions.push(self.region);
    }
}

impl std::fmt::Debug for PrivatePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrivatePool({:?}, {} bytes)", self.allocator, self.reserved_bytes())
    }
}
