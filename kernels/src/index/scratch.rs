//! The scratch memory of adding by index on CUDA; sizes depend on dims alone.

use crate::DType;

/// Keys that a block sorts, as in `cuda/sort.cuh`.
pub(super) const TILE: usize = 2048;
/// Sorted positions that a thread walks, as in `cuda/index_add.cu`.
pub(super) const CHUNK: usize = 64;

/// Byte offsets of the parts: two buffers of keys and of positions, digit counts of all tiles, the open ends of chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scratch {
    pub keys: [usize; 2],
    pub positions: [usize; 2],
    pub totals: usize,
    pub heads: usize,
    pub tails: usize,
    /// Bytes of them all.
    pub bytes: usize,
}

impl Scratch {
    /// For `n` keys, `columns` numbers for each, added up in type `sum`.
    pub fn new(n: usize, columns: usize, sum: DType) -> Scratch {
        if n * columns == 0 {
            return Scratch::default();
        }
        let mut bytes = 0;
        let mut take = |elements: usize, size: usize| {
            let at = bytes;
            bytes += (elements * size).next_multiple_of(16);
            at
        };
        let ends = n.div_ceil(CHUNK) * columns;
        let mut scratch = Scratch {
            keys: [take(n, 4), take(n, 4)],
            positions: [take(n, 4), take(n, 4)],
            totals: take(256 * n.div_ceil(TILE), 4),
            heads: take(ends, sum.size()),
            tails: take(ends, sum.size()),
            bytes: 0,
        };
        scratch.bytes = bytes;
        scratch
    }
}
