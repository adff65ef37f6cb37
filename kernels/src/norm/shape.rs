//! How rows of a layer norm are shared among CUDA threads. What the scratch memory depends on is decided by dims alone, so that a
//! dry run asks for the same.

use super::LayerNormBackward;
use crate::rows::Rows;
use crate::{Arg, KernelError, Result};

/// Elements a thread holds in backward, where it keeps two operands and two sums of each.
const HELD: usize = 8;
/// Groups of threads in backward.
pub(super) const GROUPS: [usize; 5] = [32, 128, 256, 512, 1024];

/// Rows and columns of an operand `[rows, n]`: `n` is its last dim.
pub(super) fn shape(x: &Arg<'_>) -> Result<(usize, usize)> {
    match x.layout.dims().split_last() {
        Some((&n, dims)) => Ok((dims.iter().product(), n)),
        None => Err(KernelError::Library("layer_norm: the input has no dims".to_owned())),
    }
}

/// How backward holds rows of `n`; `None` where they are too long. All widths that divide [`HELD`] give the same groups.
pub(super) fn held(n: usize, vec: usize) -> Option<Rows> {
    Rows::held(n, HELD, &GROUPS, HELD).map(|rows| Rows { vec, packs: HELD / vec, ..rows })
}

/// Lines of sums over rows that the first phase of backward leaves; each is a block's.
pub(super) fn lines(rows: usize, n: usize) -> usize {
    match held(n, 1) {
        Some(shape) => rows.div_ceil(shape.per_block()).min(if shape.group <= 256 { 528 } else { 264 }),
        None => rows.min(64),
    }
}

/// Bytes of all lines of both gradients.
pub(super) fn workspace_bytes(k: &LayerNormBackward<'_>) -> usize {
    let wanted = k.dweight.is_some() as usize + k.dbias.is_some() as usize;
    shape(&k.x).map_or(0, |(rows, n)| wanted * lines(rows, n) * n * k.mean.dtype.size())
}
