//! When a copy is best done in tiles: both sides have a dim of stride 1, but not the same one.

use crate::MAX_RANK;
use crate::cuda::Value;
use crate::cuda::map::Operand;

/// The side of a tile: of the smaller matrices, and of those that fill larger ones.
const TILE: usize = 32;
const LARGE_TILE: usize = 64;

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
    /// And the number of the variant.
    pub fn new(x: &Operand<'_>, out: &Operand<'_>) -> Option<(Transpose, u32)> {
        let dims = out.layout.dims();
        let (xs, os) = (x.layout.strides(), out.layout.strides());
        let unit = |strides: &[usize]| (0..dims.len()).rev().find(|&d| dims[d] > 1 && strides[d] == 1);
        let (row, column) = (unit(xs)?, unit(os)?);
        if row == column || dims[row] < TILE / 2 || dims[column] < TILE / 2 {
            return None;
        }
        let size = x.dtype.size();
        let tile = if size <= 4 && dims[row].min(dims[column]) >= LARGE_TILE { LARGE_TILE } else { TILE };
        // Packs of up to 16 bytes, of four elements at most, that start aligned on both sides.
        let moved = (0..dims.len()).filter(|d| dims[*d] > 1);
        let starts =
            moved.flat_map(|d| [(xs[d], d == row), (os[d], d == column)]).filter(|(_, unit)| !unit).map(|(stride, _)| stride);
        let steps: Vec<usize> = starts.chain([dims[row], dims[column]]).collect();
        let fits = |vec: &usize| {
            let aligned = |address: u64| address.is_multiple_of((vec * size) as u64);
            vec * size <= 16 && steps.iter().all(|step| step.is_multiple_of(*vec)) && aligned(x.address) && aligned(out.address)
        };
        let vec = [4, 2].into_iter().find(fits).unwrap_or(1);
        let mut t = Transpose {
            x: x.address,
            out: out.address,
            rows: dims[row] as i64,
            columns: dims[column] as i64,
            x_column: xs[column] as i64,
            out_row: os[row] as i64,
            row_tiles: u32::try_from(dims[row].div_ceil(tile)).ok()?,
            column_tiles: u32::try_from(dims[column].div_ceil(tile)).ok()?,
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
        (t.blocks() <= i32::MAX as usize).then_some((t, (vec | tile << 8) as u32))
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

    /// Blocks, elements of a pack, and the side of a tile.
    fn tiles(x: &Layout) -> Option<(usize, u32, u32)> {
        let out = Layout::contiguous(x.dims());
        let operand = |layout| Operand { address: 0, dtype: DType::F32, layout };
        Transpose::new(&operand(x), &operand(&out)).map(|(t, variant)| (t.blocks(), variant & 255, variant >> 8))
    }

    #[test]
    fn matrices_that_change_their_unit_stride_are_tiled() {
        assert_eq!(tiles(&Layout::new(&[40, 100], &[1, 40], 0)), Some((2 * 4, 4, 32)));
        assert_eq!(tiles(&Layout::new(&[3, 40, 100], &[4000, 1, 40], 0)), Some((3 * 2 * 4, 4, 32)));
        assert_eq!(tiles(&Layout::new(&[96, 100], &[1, 97], 0)), Some((2 * 2, 1, 64)));
        assert_eq!(tiles(&Layout::new(&[96, 102], &[1, 98], 0)), Some((2 * 2, 2, 64)));
        assert_eq!(tiles(&Layout::new(&[40, 100], &[200, 1], 0)), None);
        assert_eq!(tiles(&Layout::new(&[4, 100], &[1, 4], 0)), None);
    }
}
