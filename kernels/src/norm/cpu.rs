//! CPU code: one row after another with statistics in f64; weight gradients by fixed groups of rows.

use super::shape::shape;
use super::{LayerNorm, LayerNormBackward, NAME};
use crate::host::{Float, Real, dense, dense_mut, for_pieces, min_pieces, sum_wide, with_float};
use crate::{Arg, DType, OutArg, Result};
use rayon::prelude::*;

/// Any float vector, as f64.
fn widen(arg: &Option<Arg<'_>>, n: usize, missing: f64) -> Result<Vec<f64>> {
    match arg {
        None => Ok(vec![missing; n]),
        Some(arg) => with_float!(arg.dtype, NAME, T => Ok(dense::<T>(arg, n, NAME)?.iter().map(|v| v.up().wide()).collect())),
    }
}

pub(super) fn layer_norm(k: LayerNorm<'_>) -> Result<()> {
    with_float!(k.x.dtype, NAME, T => match k.out.dtype {
        DType::F32 if size_of::<T>() == 2 => forward::<T, f32>(k),
        _ => forward::<T, T>(k),
    })
}

fn forward<T: Float, O: Float>(mut k: LayerNorm<'_>) -> Result<()> {
    let (rows, n) = shape(&k.x)?;
    let x = dense::<T>(&k.x, rows * n, NAME)?;
    let (weight, bias) = (widen(&k.weight, n, 1.0)?, widen(&k.bias, n, 0.0)?);
    let out = dense_mut::<O>(&mut k.out, rows * n, NAME)?;
    let mean = dense_mut::<T::Acc>(&mut k.mean, rows, NAME)?;
    let rstd = dense_mut::<T::Acc>(&mut k.rstd, rows, NAME)?;
    if n == 0 {
        mean.fill(T::Acc::of(f64::NAN));
        rstd.fill(T::Acc::of(f64::NAN));
        return Ok(());
    }
    let numbers = mean.par_iter_mut().zip(rstd.par_iter_mut());
    out.par_chunks_mut(n).zip(x.par_chunks(n)).zip(numbers).with_min_len(min_pieces(x.len())).for_each(
        |((out, x), (mean, rstd))| {
            let center = sum_wide(x, |v| v.up().wide()) / n as f64;
            let var = sum_wide(x, |v| (v.up().wide() - center).powi(2)) / n as f64;
            let scale = 1.0 / (var + k.eps).sqrt();
            (*mean, *rstd) = (T::Acc::of(center), T::Acc::of(scale));
            for (i, (o, v)) in out.iter_mut().zip(x).enumerate() {
                *o = O::down(O::Acc::of((v.up().wide() - center) * scale * weight[i] + bias[i]));
            }
        },
    );
    Ok(())
}

pub(super) fn layer_norm_backward(k: LayerNormBackward<'_>) -> Result<()> {
    with_float!(k.x.dtype, NAME, T => match k.g.dtype {
        DType::F32 if size_of::<T>() == 2 => backward::<T, f32>(k),
        _ => backward::<T, T>(k),
    })
}

fn backward<T: Float, G: Float>(mut k: LayerNormBackward<'_>) -> Result<()> {
    let (rows, n) = shape(&k.x)?;
    let x = dense::<T>(&k.x, rows * n, NAME)?;
    let g = dense::<G>(&k.g, rows * n, NAME)?;
    let mean = dense::<T::Acc>(&k.mean, rows, NAME)?;
    let rstd = dense::<T::Acc>(&k.rstd, rows, NAME)?;
    let weight = widen(&k.weight, n, 1.0)?;
    let pair = |i: usize, row: usize| {
        let h = (x[i].up().wide() - mean[row].wide()) * rstd[row].wide();
        (g[i].up().wide(), h)
    };
    if let Some(dx) = &mut k.dx {
        let dx = dense_mut::<T>(dx, rows * n, NAME)?;
        for_pieces(dx, n, x.len(), |first, dx| {
            let row = first / n;
            let (mut c1, mut c2) = (0.0, 0.0);
            for (i, w) in weight.iter().enumerate() {
                let (g, h) = pair(first + i, row);
                c1 += g * w;
                c2 += g * w * h;
            }
            let (c1, c2) = (c1 / n as f64, c2 / n as f64);
            for (i, (o, w)) in dx.iter_mut().zip(&weight).enumerate() {
                let (g, h) = pair(first + i, row);
                *o = T::down(T::Acc::of(rstd[row].wide() * (g * w - c1 - h * c2)));
            }
        });
    }
    if k.dweight.is_none() && k.dbias.is_none() {
        return Ok(());
    }
    // At most 64 groups of rows, each with sums of its own that are then added up in order.
    let group = rows.div_ceil(64).max(16);
    let mut sums = vec![(0.0, 0.0); rows.div_ceil(group) * n];
    for_pieces(&mut sums, n, x.len(), |first, sums| {
        let start = first / n.max(1) * group;
        for row in start..rows.min(start + group) {
            for (i, sum) in sums.iter_mut().enumerate() {
                let (g, h) = pair(row * n + i, row);
                *sum = (sum.0 + g * h, sum.1 + g);
            }
        }
    });
    store(k.dweight, &column_sums(&sums, n, |s| s.0))?;
    store(k.dbias, &column_sums(&sums, n, |s| s.1))
}

fn column_sums(sums: &[(f64, f64)], n: usize, part: impl Fn(&(f64, f64)) -> f64) -> Vec<f64> {
    (0..n).map(|i| sums[i.min(sums.len())..].iter().step_by(n).map(&part).sum()).collect()
}

fn store(out: Option<OutArg<'_>>, values: &[f64]) -> Result<()> {
    let Some(mut out) = out else { return Ok(()) };
    with_float!(out.dtype, NAME, T => {
        let out = dense_mut::<T>(&mut out, values.len(), NAME)?;
        out.iter_mut().zip(values).for_each(|(o, &v)| *o = T::down(<T as Float>::Acc::of(v)));
        Ok(())
    })
}
