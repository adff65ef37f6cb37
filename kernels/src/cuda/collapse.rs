//! Several layouts over the same dims with as few dims as possible, and what kernels need to find elements in them.

use super::Value;
use super::map::{OPERANDS, Operand};
use crate::MAX_RANK;

/// Dims, outermost first, and the strides of each operand.
#[derive(Debug, PartialEq)]
pub(super) struct Collapsed {
    pub rank: usize,
    pub sizes: [usize; MAX_RANK],
    pub strides: [[usize; MAX_RANK]; OPERANDS],
    operands: usize,
}

impl Collapsed {
    /// Drops dims of size 1, orders the others by the strides of the first operand, and joins neighbours that lie as one in all operands.
    pub fn new(operands: &[Operand<'_>]) -> Collapsed {
        let first = operands[0].layout;
        let mut order: smallvec::SmallVec<[usize; MAX_RANK]> = (0..first.rank()).filter(|&d| first.dims()[d] != 1).collect();
        if !first.is_contiguous() {
            order.sort_by_key(|&d| std::cmp::Reverse(first.strides()[d]));
        }
        let mut c = Collapsed { rank: 0, sizes: [1; MAX_RANK], strides: [[0; MAX_RANK]; OPERANDS], operands: operands.len() };
        for d in order {
            let (size, stride) = (first.dims()[d], |k: usize| operands[k].layout.strides()[d]);
            let joins = c.rank > 0 && (0..operands.len()).all(|k| c.strides[k][c.rank - 1] == stride(k) * size);
            if joins {
                c.sizes[c.rank - 1] *= size;
            } else {
                c.sizes[c.rank] = size;
                c.rank += 1;
            }
            (0..operands.len()).for_each(|k| c.strides[k][c.rank - 1] = stride(k));
        }
        c.rank = c.rank.max(1);
        c
    }

    /// Whether all indices fit 31 bits.
    pub fn is_narrow(&self, operands: &[Operand<'_>]) -> bool {
        operands.iter().all(|o| o.layout.elements().max(o.layout.extent() - o.layout.offset()) < 1 << 31)
    }

    /// Whether packs of `pack` elements never cross a row and are aligned: the last dim has stride 1, or 0 in inputs. `aligned(k, strided)`
    /// says so of the first element of operand `k`, `strided` where its last stride is 1.
    pub fn has_packed_rows(&self, pack: usize, aligned: impl Fn(usize, bool) -> bool) -> bool {
        let last = self.rank - 1;
        let outer_aligned = |k: usize| self.strides[k][..last].iter().all(|s| s.is_multiple_of(pack));
        pack > 1
            && self.sizes[last].is_multiple_of(pack)
            && self.strides[0][last] == 1
            && (0..self.operands).all(|k| match self.strides[k][last] {
                0 => aligned(k, false),
                1 => outer_aligned(k) && aligned(k, true),
                _ => false,
            })
    }

    /// As kernels take it; every number fits `I`.
    pub fn meta<I: Index>(&self) -> Meta<I> {
        let mut meta = Meta {
            rank: I::of(self.rank),
            sizes: self.sizes.map(I::of),
            magic: [0; MAX_RANK],
            shift: [0; MAX_RANK],
            strides: self.strides.map(|s| s.map(I::of)),
        };
        for (d, &size) in self.sizes.iter().enumerate().filter(|(_, size)| **size < 1 << 31) {
            (meta.magic[d], meta.shift[d]) = magic(size as u32);
        }
        meta
    }
}

/// Division by a number of 31 bits as a multiplication: `i / size == (umulhi(i, magic) + i) >> shift` for `i < 2^31`
/// (Granlund, Montgomery: "Division by invariant integers using multiplication", 1994).
fn magic(size: u32) -> (u32, u32) {
    let shift = size.next_power_of_two().trailing_zeros();
    let magic = ((1_u64 << 32) * ((1_u64 << shift) - size as u64)) / size as u64 + 1;
    (magic as u32, shift)
}

/// u32 or u64.
pub(super) trait Index: Copy {
    fn of(value: usize) -> Self;
}
impl Index for u32 {
    fn of(value: usize) -> u32 {
        value as u32
    }
}
impl Index for u64 {
    fn of(value: usize) -> u64 {
        value as u64
    }
}

/// Laid out as `Meta` in `map.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Meta<I> {
    rank: I,
    sizes: [I; MAX_RANK],
    magic: [u32; MAX_RANK],
    shift: [u32; MAX_RANK],
    strides: [[I; MAX_RANK]; OPERANDS],
}
// SAFETY: numbers only, laid out as its namesake in `map.cuh`.
unsafe impl Value for Meta<u32> {}
// SAFETY: likewise.
unsafe impl Value for Meta<u64> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Layout};

    fn collapsed(layouts: &[Layout]) -> Collapsed {
        let operands: Vec<_> = layouts.iter().map(|layout| Operand { address: 0, dtype: DType::F32, layout }).collect();
        Collapsed::new(&operands)
    }

    #[test]
    fn dims_that_lie_as_one_are_one() {
        let plain = Layout::contiguous(&[2, 1, 3, 4]);
        let c = collapsed(&[plain.clone(), plain]);
        assert_eq!((c.rank, c.sizes[0], c.strides[0][0]), (1, 24, 1));
    }

    #[test]
    fn a_broadcast_row_keeps_two_dims() {
        let row = Layout::contiguous(&[8]).broadcast_to(&[2, 3, 8]).unwrap();
        let c = collapsed(&[Layout::contiguous(&[2, 3, 8]), row]);
        assert_eq!((c.rank, &c.sizes[..2], &c.strides[1][..2]), (2, &[6, 8][..], &[0, 1][..]));
        assert!(c.has_packed_rows(4, |_, _| true));
        assert!(!c.has_packed_rows(16, |_, _| true));
        assert!(!c.has_packed_rows(4, |k, _| k != 1));
    }

    #[test]
    fn operands_transposed_alike_become_contiguous() {
        let transposed = Layout::new(&[3, 5], &[1, 3], 0);
        let c = collapsed(&[transposed.clone(), transposed]);
        assert_eq!((c.rank, c.sizes[0], c.strides[0][0]), (1, 15, 1));
    }

    #[test]
    fn a_scalar_has_one_dim() {
        let c = collapsed(&[Layout::contiguous(&[]), Layout::contiguous(&[])]);
        assert_eq!((c.rank, c.sizes[0]), (1, 1));
    }

    #[test]
    fn division_by_multiplication_is_exact() {
        let sizes = [1, 2, 3, 5, 7, 10, 1000, 1 << 20, (1 << 31) - 1, 641, 6_700_417];
        for size in sizes {
            let (magic, shift) = magic(size);
            for i in [0, 1, size - 1, size, size.saturating_add(1), 12_345_678, (1 << 31) - 1, (1 << 31) - 2]
                .map(|i| i.min((1 << 31) - 1))
            {
                let high = ((i as u64 * magic as u64) >> 32) as u32;
                assert_eq!((high + i) >> shift, i / size, "{i} / {size}");
            }
        }
    }
}
