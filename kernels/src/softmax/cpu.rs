//! CPU code: rows (`inner == 1`) through a scratch row; other shapes in two passes, first the numbers of each column, then
//! the elements. Sums are kept in f64.

use super::{Softmax, SoftmaxBackward};
use crate::host::{Float, Real, dense, dense_mut, for_pieces, min_pieces, sum_wide, undefined, with_float};
use crate::{DType, Result};
use rayon::prelude::*;

const NAME: &str = "softmax";
/// Columns walked side by side.
const TILE: usize = 64;

pub(super) fn softmax(k: Softmax<'_>) -> Result<()> {
    with_float!(k.x.dtype, NAME, T => match k.out.dtype {
        DType::F32 if size_of::<T>() == 2 => forward::<T, f32>(k),
        _ => forward::<T, T>(k),
    })
}

pub(super) fn softmax_backward(k: SoftmaxBackward<'_>) -> Result<()> {
    with_float!(k.y.dtype, NAME, T => match k.dx.dtype {
        DType::F64 => backward::<T, f64>(k),
        DType::F32 => backward::<T, f32>(k),
        DType::F16 => backward::<T, half::f16>(k),
        DType::BF16 => backward::<T, half::bf16>(k),
        dtype => Err(undefined(NAME, dtype)),
    })
}

fn forward<T: Float, O: Float>(mut k: Softmax<'_>) -> Result<()> {
    let (n, inner, log) = (k.n, k.inner, k.log);
    let x = dense::<T>(&k.x, k.outer * n * inner, NAME)?;
    let out = dense_mut::<O>(&mut k.out, x.len(), NAME)?;
    if x.is_empty() {
        return Ok(());
    }
    let lowest = T::Acc::of(f64::NEG_INFINITY);
    // `exp` is taken once: of `x - max`, or of nothing but the sum for the logarithm.
    let finish = |v: T::Acc, max: T::Acc, sum: f64| {
        let v = v - max;
        O::down(O::Acc::of(if log { v.wide() - sum.ln() } else { v.exp().wide() / sum }))
    };
    if inner == 1 {
        out.par_chunks_mut(n).with_min_len(min_pieces(x.len())).zip(x.par_chunks(n)).for_each_init(Vec::new, |row, (out, x)| {
            row.clear();
            row.extend(x.iter().map(|v| v.up()));
            let max = row.iter().fold(lowest, |a, &b| if b > a { b } else { a });
            if log {
                let sum = sum_wide(row, |v: T::Acc| (v - max).exp().wide());
                out.iter_mut().zip(row).for_each(|(o, v)| *o = finish(*v, max, sum));
            } else {
                row.iter_mut().for_each(|v| *v = (*v - max).exp());
                let sum = sum_wide(row, |v: T::Acc| v.wide());
                out.iter_mut().zip(row).for_each(|(o, v)| *o = O::down(O::Acc::of(v.wide() / sum)));
            }
        });
        return Ok(());
    }
    let mut columns = vec![(lowest, 0.0); k.outer * inner];
    for_pieces(&mut columns, TILE, x.len(), |first, piece| {
        walk(n, inner, first, piece, |(max, _), i| {
            let v = x[i].up();
            *max = if v > *max { v } else { *max };
        });
        walk(n, inner, first, piece, |(max, sum), i| *sum += (x[i].up() - *max).exp().wide());
    });
    for_pieces(out, inner, x.len(), |first, out| {
        let columns = &columns[first / (n * inner) * inner..];
        for ((o, v), &(max, sum)) in out.iter_mut().zip(&x[first..]).zip(columns) {
            *o = finish(v.up(), max, sum);
        }
    });
    Ok(())
}

fn backward<T: Float, O: Float>(mut k: SoftmaxBackward<'_>) -> Result<()> {
    let (n, inner, log) = (k.n, k.inner, k.log);
    let y = dense::<T>(&k.y, k.outer * n * inner, NAME)?;
    let g = dense::<T>(&k.g, y.len(), NAME)?;
    let dx = dense_mut::<O>(&mut k.dx, y.len(), NAME)?;
    if y.is_empty() {
        return Ok(());
    }
    let term = |y: T, g: T| if log { g.up().wide() } else { y.up().wide() * g.up().wide() };
    let finish = |y: T, g: T, sum: f64| {
        let (y, g) = (y.up(), g.up().wide());
        O::down(O::Acc::of(if log { g - y.exp().wide() * sum } else { y.wide() * (g - sum) }))
    };
    if inner == 1 {
        dx.par_chunks_mut(n).with_min_len(min_pieces(y.len())).enumerate().for_each(|(row, dx)| {
            let (y, g) = (&y[row * n..][..n], &g[row * n..][..n]);
            let sum = y.iter().zip(g).fold(0.0, |sum, (&y, &g)| sum + term(y, g));
            dx.iter_mut().zip(y.iter().zip(g)).for_each(|(o, (&y, &g))| *o = finish(y, g, sum));
        });
        return Ok(());
    }
    let mut columns = vec![0.0; k.outer * inner];
    for_pieces(&mut columns, TILE, y.len(), |first, piece| {
        walk(n, inner, first, piece, |sum, i| *sum += term(y[i], g[i]));
    });
    for_pieces(dx, inner, y.len(), |first, dx| {
        let columns = &columns[first / (n * inner) * inner..];
        for (j, (o, &sum)) in dx.iter_mut().zip(columns).enumerate() {
            *o = finish(y[first + j], g[first + j], sum);
        }
    });
    Ok(())
}

/// Visits the elements of the columns from `first` on, one per slot, row after row: `f(slot, element index)`.
fn walk<S>(n: usize, inner: usize, first: usize, slots: &mut [S], mut f: impl FnMut(&mut S, usize)) {
    let mut done = 0;
    while done < slots.len() {
        let (outer, column) = ((first + done) / inner, (first + done) % inner);
        let width = (inner - column).min(slots.len() - done);
        for j in 0..n {
            let base = (outer * n + j) * inner + column;
            slots[done..done + width].iter_mut().enumerate().for_each(|(c, slot)| f(slot, base + c));
        }
        done += width;
    }
}
