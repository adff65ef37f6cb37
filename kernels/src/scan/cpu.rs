//! CPU code: threads share the outer dim; columns of one slab are walked side by side.

use super::{ProductBackward, Running, Scan};
use crate::host::{Float, Real, dense, dense_mut, for_pieces, with_float};
use crate::{DType, Element, Result};

const NAME: &str = "scan";

pub(super) fn scan(k: Scan<'_>) -> Result<()> {
    match k.x.dtype {
        DType::I64 => ints::<i64>(k),
        DType::U32 => ints::<u32>(k),
        DType::U8 => ints::<u8>(k),
        float => with_float!(float, NAME, T => floats::<T>(k)),
    }
}

fn floats<T: Float>(k: Scan<'_>) -> Result<()> {
    let (up, down) = (|v: T| v.up().wide(), |v: f64| T::down(T::Acc::of(v)));
    match k.op {
        Running::Sum => walk::<T, f64, T>(k, 0.0, |a, v| a + up(v), down),
        Running::Product => walk::<T, f64, T>(k, 1.0, |a, v| a * up(v), down),
    }
}

fn ints<T: Element>(k: Scan<'_>) -> Result<()> {
    let up = |v: T| v.to_scalar().to_i64();
    match k.op {
        Running::Sum => walk::<T, i64, i64>(k, 0, |a, v| a.wrapping_add(up(v)), |v| v),
        Running::Product => walk::<T, i64, i64>(k, 1, |a, v| a.wrapping_mul(up(v)), |v| v),
    }
}

/// The place of step `j` of `n`.
fn place(j: usize, n: usize, reverse: bool) -> usize {
    if reverse { n - 1 - j } else { j }
}

fn walk<T: Element, A: Copy + Send + Sync, O: Element>(
    mut k: Scan<'_>,
    start: A,
    step: impl Fn(A, T) -> A + Sync + Send,
    finish: impl Fn(A) -> O + Sync + Send,
) -> Result<()> {
    let (n, inner, reverse) = (k.n, k.inner, k.reverse);
    let x = dense::<T>(&k.x, k.outer * n * inner, NAME)?;
    let out = dense_mut::<O>(&mut k.out, x.len(), NAME)?;
    for_pieces(out, n * inner, x.len(), |first, slab| {
        let mut running = vec![start; inner];
        for j in 0..n {
            let at = place(j, n, reverse) * inner;
            let row = slab[at..at + inner].iter_mut().zip(&x[first + at..]);
            running.iter_mut().zip(row).for_each(|(a, (o, &v))| {
                *a = step(*a, v);
                *o = finish(*a);
            });
        }
    });
    Ok(())
}

pub(super) fn product_backward(k: ProductBackward<'_>) -> Result<()> {
    with_float!(k.x.dtype, NAME, T => backward::<T>(k))
}

fn backward<T: Float>(mut k: ProductBackward<'_>) -> Result<()> {
    let (n, inner) = (k.n, k.inner);
    let x = dense::<T>(&k.x, k.outer * n * inner, NAME)?;
    let (y, g) = (dense::<T>(&k.y, x.len(), NAME)?, dense::<T>(&k.g, x.len(), NAME)?);
    let dx = dense_mut::<T>(&mut k.dx, x.len(), NAME)?;
    for_pieces(dx, n * inner, x.len(), |first, slab| {
        let mut later = vec![0.0; inner];
        for j in (0..n).rev() {
            for (i, s) in later.iter_mut().enumerate() {
                let at = first + j * inner + i;
                let next = if j + 1 < n { x[at + inner].up().wide() * *s } else { 0.0 };
                *s = g[at].up().wide() + next;
                let before = if j > 0 { y[at - inner].up().wide() } else { 1.0 };
                slab[j * inner + i] = T::down(T::Acc::of(before * *s));
            }
        }
    });
    Ok(())
}
