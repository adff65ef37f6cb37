//! CPU code: one row after another; sums are kept in f64.

use super::{CrossEntropy, CrossEntropyBackward};
use crate::host::{Float, Real, dense, dense_mut, for_pieces, min_pieces, sum_wide, view, with_float};
use crate::{Arg, KernelError, Result};
use rayon::prelude::*;

const NAME: &str = "cross_entropy";

/// The targets and the number of classes, every target that counts checked to be one of them.
fn targets<'a>(logits: &Arg<'_>, target: &Arg<'a>, ignore: i64) -> Result<(&'a [i64], usize)> {
    let rows = target.layout.elements();
    let target = dense::<i64>(target, rows, NAME)?;
    let size = logits.layout.dims().last().copied().unwrap_or(0);
    match target.iter().find(|&&t| t != ignore && !usize::try_from(t).is_ok_and(|t| t < size)) {
        Some(&value) => Err(KernelError::Index { kernel: NAME, value, size }),
        None => Ok((target, size)),
    }
}

pub(super) fn cross_entropy(k: CrossEntropy<'_>) -> Result<()> {
    with_float!(k.logits.dtype, NAME, T => forward::<T>(k))
}

pub(super) fn cross_entropy_backward(k: CrossEntropyBackward<'_>) -> Result<()> {
    with_float!(k.logits.dtype, NAME, T => backward::<T>(k))
}

fn forward<T: Float>(mut k: CrossEntropy<'_>) -> Result<()> {
    let (target, classes) = targets(&k.logits, &k.target, k.ignore_index)?;
    let rows = target.len();
    let x = dense::<T>(&k.logits, rows * classes, NAME)?;
    let loss = dense_mut::<T::Acc>(&mut k.loss, rows, NAME)?;
    let lse = dense_mut::<T::Acc>(&mut k.lse, rows, NAME)?;
    let counted = dense_mut::<T::Acc>(&mut k.counted, rows, NAME)?;
    let results = loss.par_iter_mut().zip(lse).zip(counted).zip(target);
    results.enumerate().with_min_len(min_pieces(x.len())).for_each(|(row, (((loss, lse), counted), &t))| {
        let x = &x[row * classes..][..classes];
        let max = x.iter().fold(T::Acc::of(f64::NEG_INFINITY), |a, v| if v.up() > a { v.up() } else { a });
        let ln = sum_wide(x, |v| (v.up() - max).exp().wide()).ln();
        *lse = T::Acc::of(max.wide() + ln);
        // Only a target that counts is known to be an index.
        let counts = t != k.ignore_index;
        *loss = T::Acc::of(if counts { (max.wide() - x[t as usize].up().wide()) + ln } else { 0.0 });
        *counted = T::Acc::of(counts as u8 as f64);
    });
    Ok(())
}

fn backward<T: Float>(mut k: CrossEntropyBackward<'_>) -> Result<()> {
    let (target, classes) = targets(&k.logits, &k.target, k.ignore_index)?;
    let rows = target.len();
    let x = dense::<T>(&k.logits, rows * classes, NAME)?;
    let lse = dense::<T::Acc>(&k.lse, rows, NAME)?;
    let g = view::<T::Acc>(&k.g, NAME)?;
    let (&[g_rows], &[stride]) = (k.g.layout.dims(), k.g.layout.strides()) else {
        return Err(KernelError::Library(format!("{NAME}: the upstream gradient has dims {:?}", k.g.layout.dims())));
    };
    if g_rows != rows {
        return Err(KernelError::Library(format!("{NAME}: {g_rows} upstream gradients for {rows} rows")));
    }
    let dx = dense_mut::<T>(&mut k.dx, x.len(), NAME)?;
    for_pieces(dx, classes, x.len(), |first, dx| {
        let row = first / classes;
        if target[row] == k.ignore_index {
            return dx.fill(T::down(T::Acc::of(0.0)));
        }
        let g = g[row * stride];
        for (o, v) in dx.iter_mut().zip(&x[first..]) {
            *o = T::down((v.up() - lse[row]).exp() * g);
        }
        let t = target[row] as usize;
        dx[t] = T::down(((x[first + t].up() - lse[row]).exp() - T::Acc::of(1.0)) * g);
    });
    Ok(())
}
