//! PyTorch's caching allocator with its default settings, for comparison. Its rules as of 2.11
//! (`c10/cuda/CUDACachingAllocator.cpp`): sizes rounded to 512 bytes; requests up to 1 MiB are cut from segments of 2 MiB, those
//! under 10 MiB from segments of 20 MiB, larger ones get a segment rounded up to 2 MiB; the smallest block that fits is taken
//! and cut if 512 bytes (small) or more than 1 MiB (large) are left; segments are never merged, and streams never share.

use crate::policy::SMALL;
use crate::size::ALIGN;
use crate::{Growth, Policy, Search};

const SMALL_SEGMENT: usize = 2 << 20;
const LARGE_SEGMENT: usize = 20 << 20;
const LARGE_FROM: usize = 10 << 20;
const ROUND: usize = 2 << 20;

/// PyTorch's rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Torch;

impl Policy for Torch {
    fn name(&self) -> &str {
        "torch"
    }
    fn keeps_rest(&self, size: usize, rest: usize) -> bool {
        if size <= SMALL { rest >= ALIGN } else { rest > SMALL }
    }
    fn search(&self) -> Search {
        Search::BestFit
    }
    fn growth(&self, size: usize) -> Growth {
        Growth::Segments(match size {
            _ if size <= SMALL => SMALL_SEGMENT,
            _ if size < LARGE_FROM => LARGE_SEGMENT,
            _ => size.checked_next_multiple_of(ROUND).unwrap_or(size),
        })
    }
    fn shares_streams(&self) -> bool {
        false
    }
}
