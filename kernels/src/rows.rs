//! How rows of contiguous elements are shared among the threads of a CUDA device; the twin of `cuda/rows.cuh`.

use crate::DType;
use crate::cuda::{Launch, Variant};

/// Text that sources over packs of neighbours begin with.
pub(crate) const PACK: &str = include_str!("../cuda/pack.cuh");
/// Text that sources over rows have next.
pub(crate) const ROWS: &str = include_str!("../cuda/rows.cuh");

/// A row belongs to `group` threads, each holding `packs` packs of `vec` neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Neighbours moved at once.
    pub vec: usize,
    /// Packs a thread holds in registers.
    pub packs: usize,
    /// Threads of a row: a warp, or all of a block.
    pub group: usize,
}

impl Rows {
    /// Rows of `n` elements kept in registers, at most `most` elements a thread; `None` where they are longer.
    pub fn held(n: usize, vec: usize, groups: &[usize], most: usize) -> Option<Rows> {
        let fits = |&group: &usize| {
            let packs = n.div_ceil(group * vec).max(1);
            (packs * vec <= most.max(vec)).then_some(Rows { vec, packs, group })
        };
        groups.iter().find_map(fits)
    }
    /// Rows of any length, walked by a block.
    pub fn walked(vec: usize, group: usize) -> Rows {
        Rows { vec, packs: 1, group }
    }
    /// What `VARIANT` is.
    pub fn variant(&self, types: &[DType]) -> Variant {
        Variant::new(types, (self.vec | self.packs << 8 | self.group << 16) as u32)
    }
    /// Rows that a block works on at once.
    pub fn per_block(&self) -> usize {
        if self.group == 32 { 8 } else { 1 }
    }
    /// A launch over `rows` rows, by at most `blocks` blocks.
    pub fn launch(&self, rows: usize, blocks: usize) -> Launch {
        Launch::blocks(rows.div_ceil(self.per_block()).min(blocks), (self.group * self.per_block()) as u32)
    }
}

/// How many neighbours can be moved at once in rows of `n` elements: 16 bytes of the first operand or less, so that every operand,
/// given by address and type, stays aligned.
pub(crate) fn width(n: usize, operands: &[(u64, DType)]) -> usize {
    let mut vec = 16 / operands[0].1.size();
    let aligned = |vec: usize| operands.iter().all(|&(a, dtype)| a % (vec * dtype.size()).min(16) as u64 == 0);
    while vec > 1 && !(n.is_multiple_of(vec) && aligned(vec)) {
        vec /= 2;
    }
    vec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_take_the_smallest_group_that_holds_them() {
        let held = |n, vec| Rows::held(n, vec, &[32, 256, 1024], 32).map(|r| (r.packs, r.group));
        assert_eq!(held(1, 1), Some((1, 32)));
        assert_eq!(held(1024, 8), Some((4, 32)));
        assert_eq!(held(1025, 1), Some((5, 256)));
        assert_eq!(held(8192, 4), Some((8, 256)));
        assert_eq!(held(32768, 8), Some((4, 1024)));
        assert_eq!(held(32769, 1), None);
    }

    #[test]
    fn width_keeps_every_operand_aligned() {
        assert_eq!(width(64, &[(512, DType::F32), (1024, DType::BF16)]), 4);
        assert_eq!(width(64, &[(512, DType::BF16), (1024, DType::F32)]), 8);
        assert_eq!(width(6, &[(512, DType::BF16)]), 2);
        assert_eq!(width(64, &[(512, DType::F32), (1028, DType::F32)]), 1);
        assert_eq!(width(64, &[(512, DType::F32), (1028, DType::BF16)]), 2);
    }
}
