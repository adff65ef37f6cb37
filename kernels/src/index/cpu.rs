//! CPU code. Every index is checked before anything is written.

use super::{IndexAdd, IndexSelect, split};
use crate::host::{dense, dense_mut, for_pieces};
use crate::{Arg, DType, Element, KernelError, Result};
use half::{bf16, f16};

const PIECE: usize = 1 << 14;

/// The indices, each checked to be inside a dim of `size`.
pub(crate) fn indices(arg: &Arg<'_>, size: usize, kernel: &'static str) -> Result<Vec<usize>> {
    let n = arg.layout.elements();
    let check = |value: i64| match usize::try_from(value) {
        Ok(i) if i < size => Ok(i),
        _ => Err(KernelError::Index { kernel, value, size }),
    };
    match arg.dtype {
        DType::U32 => dense::<u32>(arg, n, kernel)?.iter().map(|&i| check(i as i64)).collect(),
        _ => dense::<i64>(arg, n, kernel)?.iter().map(|&i| check(i)).collect(),
    }
}

pub(super) fn index_select(k: IndexSelect<'_>) -> Result<()> {
    match k.x.dtype {
        DType::F64 => select::<f64>(k),
        DType::F32 => select::<f32>(k),
        DType::F16 => select::<f16>(k),
        DType::BF16 => select::<bf16>(k),
        DType::I64 => select::<i64>(k),
        DType::U32 => select::<u32>(k),
        DType::U8 => select::<u8>(k),
    }
}

fn select<T: Element>(mut k: IndexSelect<'_>) -> Result<()> {
    const NAME: &str = "index_select";
    let (outer, size, inner) = split(k.x.layout, k.dim, NAME)?;
    let index = indices(&k.index, size, NAME)?;
    let x = dense::<T>(&k.x, outer * size * inner, NAME)?;
    let out = dense_mut::<T>(&mut k.out, outer * index.len() * inner, NAME)?;
    let (work, rows) = (out.len(), (PIECE / inner.max(1)).max(1));
    for_pieces(out, rows * inner, work, |first, piece| {
        for (r, out) in piece.chunks_exact_mut(inner).enumerate() {
            let row = first / inner + r;
            let from = (row / index.len() * size + index[row % index.len()]) * inner;
            out.copy_from_slice(&x[from..from + inner]);
        }
    });
    Ok(())
}

pub(super) fn index_add(k: IndexAdd<'_>) -> Result<()> {
    match k.src.dtype {
        DType::F64 => add::<f64, f64>(k, |a, v| a + v),
        DType::F32 => add::<f32, f32>(k, |a, v| a + v),
        DType::F16 => add::<f16, f32>(k, |a, v| a + v.to_f32()),
        DType::BF16 => add::<bf16, f32>(k, |a, v| a + v.to_f32()),
        DType::I64 => add::<i64, i64>(k, i64::wrapping_add),
        DType::U32 => add::<u32, u32>(k, u32::wrapping_add),
        DType::U8 => add::<u8, u8>(k, u8::wrapping_add),
    }
}

fn add<T: Element, A: Element>(mut k: IndexAdd<'_>, plus: impl Fn(A, T) -> A + Sync + Send) -> Result<()> {
    const NAME: &str = "index_add";
    // With no elements to add to, the dim may still be longer than any list of its places.
    if k.out.layout.elements() == 0 {
        return Ok(());
    }
    let (outer, size, inner) = split(k.out.layout, k.dim, NAME)?;
    let index = indices(&k.index, size, NAME)?;
    let src = dense::<T>(&k.src, outer * index.len() * inner, NAME)?;
    let out = dense_mut::<A>(&mut k.out, outer * size * inner, NAME)?;
    let (starts, sources) = group(&index, size);
    let rows = (PIECE / inner.max(1)).max(1);
    for_pieces(out, rows * inner, src.len(), |first, piece| {
        for (r, out) in piece.chunks_exact_mut(inner).enumerate() {
            let (o, to) = ((first / inner + r) / size, (first / inner + r) % size);
            for &j in &sources[starts[to]..starts[to + 1]] {
                let src = &src[(o * index.len() + j) * inner..][..inner];
                out.iter_mut().zip(src).for_each(|(a, &v)| *a = plus(*a, v));
            }
        }
    });
    Ok(())
}

/// Positions in `index` grouped by their value, in order within a group: those of `i` are `sources[starts[i]..starts[i + 1]]`.
fn group(index: &[usize], size: usize) -> (Vec<usize>, Vec<usize>) {
    let mut starts = vec![0; size + 1];
    index.iter().for_each(|&i| starts[i + 1] += 1);
    for i in 0..size {
        starts[i + 1] += starts[i];
    }
    let (mut next, mut sources) = (starts.clone(), vec![0; index.len()]);
    for (j, &i) in index.iter().enumerate() {
        sources[next[i]] = j;
        next[i] += 1;
    }
    (starts, sources)
}
