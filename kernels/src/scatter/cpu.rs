//! CPU code. Every index is checked before anything is written.

use super::{Gather, Scatter, ScatterAdd, Sizes};
use crate::host::{dense, dense_mut, for_pieces};
use crate::index::indices;
use crate::{DType, Element, Result};
use half::{bf16, f16};

const PIECE: usize = 1 << 14;

/// Calls a function of one element type by that of an operand.
macro_rules! by_type {
    ($dtype:expr, $f:ident($k:expr)) => {
        match $dtype {
            DType::F64 => $f::<f64>($k),
            DType::F32 => $f::<f32>($k),
            DType::F16 => $f::<f16>($k),
            DType::BF16 => $f::<bf16>($k),
            DType::I64 => $f::<i64>($k),
            DType::U32 => $f::<u32>($k),
            DType::U8 => $f::<u8>($k),
        }
    };
}

pub(super) fn gather(k: Gather<'_>) -> Result<()> {
    by_type!(k.x.dtype, read(k))
}

fn read<T: Element>(mut k: Gather<'_>) -> Result<()> {
    const NAME: &str = "gather";
    let s = Sizes::new(k.x.layout.dims(), k.index.layout.dims(), k.dim, NAME)?;
    let index = indices(&k.index, s.size, NAME)?;
    let x = dense::<T>(&k.x, s.elements(), NAME)?;
    let out = dense_mut::<T>(&mut k.out, s.count(), NAME)?;
    let work = out.len();
    for_pieces(out, PIECE, work, |first, piece| {
        for (u, out) in (first..).zip(piece) {
            let (row, i) = (u / s.inner, u % s.inner);
            *out = x[(row / s.n * s.size + index[u]) * s.inner + i];
        }
    });
    Ok(())
}

pub(super) fn scatter(k: Scatter<'_>) -> Result<()> {
    by_type!(k.src.dtype, write(k))
}

fn write<T: Element>(k: Scatter<'_>) -> Result<()> {
    combine::<T, T>("scatter", ScatterAdd { src: k.src, dim: k.dim, index: k.index, out: k.out }, |_, v| v)
}

pub(super) fn scatter_add(k: ScatterAdd<'_>) -> Result<()> {
    const NAME: &str = "scatter_add";
    match k.src.dtype {
        DType::F64 => combine::<f64, f64>(NAME, k, |a, v| a + v),
        DType::F32 => combine::<f32, f32>(NAME, k, |a, v| a + v),
        DType::F16 => combine::<f16, f32>(NAME, k, |a, v| a + v.to_f32()),
        DType::BF16 => combine::<bf16, f32>(NAME, k, |a, v| a + v.to_f32()),
        DType::I64 => combine::<i64, i64>(NAME, k, i64::wrapping_add),
        DType::U32 => combine::<u32, u32>(NAME, k, u32::wrapping_add),
        DType::U8 => combine::<u8, u8>(NAME, k, u8::wrapping_add),
    }
}

/// `out[named] = f(out[named], src)` in index order; a thread has the whole of one `outer`.
fn combine<T: Element, A: Element>(name: &'static str, mut k: ScatterAdd<'_>, f: impl Fn(A, T) -> A + Sync + Send) -> Result<()> {
    let s = Sizes::new(k.out.layout.dims(), k.index.layout.dims(), k.dim, name)?;
    let index = indices(&k.index, s.size, name)?;
    let src = dense::<T>(&k.src, s.count(), name)?;
    let out = dense_mut::<A>(&mut k.out, s.elements(), name)?;
    let (len, each) = (s.size * s.inner, s.n * s.inner);
    for_pieces(out, len, src.len(), |first, piece| {
        let start = first / len * each;
        for (u, (&at, &v)) in index[start..start + each].iter().zip(&src[start..start + each]).enumerate() {
            let to = &mut piece[at * s.inner + u % s.inner];
            *to = f(*to, v);
        }
    });
    Ok(())
}
