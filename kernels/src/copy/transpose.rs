//! When a copy is best done in tiles: both sides have a dim of stride 1, but not the same one.

use crate::MAX_RANK;
use crate::cuda::Value;
use crate::cuda::map::Operand;

const TILE: usize = 32;

/// Laid out as its namesake in `transpose.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Transpose {
    x: u64,
    out: u64,
    rows: i64,
    columns: i64,
    x_column: i64,
    out_row: i64,
    row_tiles: u32,
    column_tiles: u32,
    rank: u32,
    padding: u32,
    sizes: [i64; MAX_RANK],
    x_strides: [i64; MAX_RANK],
    out_strides: [i64; MAX_RANK],
}
// SAFETY: numbers only, laid out as its namesake in `transpose.cu`.
unsafe impl Value for Transpose {}

impl Transpose {
    /// `None` where tiles would not help: no two such dims, or matrices too small to fill a good part of a tile.
    pub fn new(x: &Operand<'_>, out: &Operand<'_>) -> Option<Transpose> {
        let dims = out.layout.dims();
        let (xs, os) = (x.layout.strides(), out.layout.strides());
        let unit = |strides: &[usize]| (0..dims.len()).rev().find(|&d| dims[d] > 1 && strides[d] == 1);
        let (row, column) = (unit(xs)?, unit(os)?);
        if row == column || dims[row] < TILE / 2 || dims[column] < TILE / 2 {
            return None;
        }
        let mut t = Transpose {
            x: x.address,
            out: out.address,
            rows: dims[row] as i64,
            columns: dims[column] as i64,
            x_column: xs[column] as i64,
            out_row: os[row] as i64,
            row_tiles: u32::try_from(dims[row].div_ceil(TILE)).ok()?,
            column_tiles: u32::try_from(dims[column].div_ceil(TILE)).ok()?,
            rank: 0,
            padding: 0,
            sizes: [1; MAX_RANK],
            x_strides: [0; MAX_RANK],
            out_strides: [0; MAX_RANK],
        };
        for d in (0..dims.len()).filter(|&d| d != row && d != column) {
            let i = t.rank as usize;
            (t.sizes[i], t.x_strides[i], t.out_strides[i]) = (dims[d] as i64, xs[d] as i64, os[d] as i64);
            t.rank += 1;
        }
        (t.blocks() <= i32::MAX as usize).then_some(t)
    }

    /// Tiles in all matrices.
    pub fn blocks(&self) -> usize {
        let matrices: usize = self.sizes[..self.rank as usize].iter().map(|&s| s as usize).product();
        matrices.saturating_mul(self.row_tiles as usize).saturating_mul(self.column_tiles as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Layout};

    fn tiles(x: &Layout) -> Option<usize> {
        let out = Layout::contiguous(x.dims());
        let operand = |layout| Operand { address: 0, dtype: DType::F32, layout };
        Transpose::new(&operand(x), &operand(&out)).map(|t| t.blocks())
    }

    #[test]
    fn matrices_that_change_their_unit_stride_are_tiled() {
        assert_eq!(tiles(&Layout::new(&[40, 100], &[1, 40], 0)), Some(2 * 4));
        assert_eq!(tiles(&Layout::new(&[3, 40, 100], &[4000, 1, 40], 0)), Some(3 * 2 * 4));
        assert_eq!(tiles(&Layout::new(&[40, 100], &[200, 1], 0)), None);
        assert_eq!(tiles(&Layout::new(&[4, 100], &[1, 4], 0)), None);
    }
}
