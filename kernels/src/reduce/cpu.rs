//! CPU code. Work is split in pieces that depend on the shape alone, so the number of threads never shows in a result.

use super::fold::{Extreme, FloatProduct, FloatSum, Fold, IntProduct, IntSum, Ordered, beats};
use super::plan::{Plan, offset};
use super::{ArgReduce, Reduce, Reduction};
use crate::host::{Float, Real, dense_mut, for_pieces, undefined, view, with_float};
use crate::{Arg, DType, Element, OutArg, Result};
use std::ops::Range;

const NAME: &str = "reduce";
/// Columns folded side by side.
const TILE: usize = 128;
/// Elements of one piece of a long fold.
const PIECE: usize = 1 << 16;

pub(super) fn reduce(k: Reduce<'_>) -> Result<()> {
    match k.x.dtype {
        DType::I64 => int::<i64>(k),
        DType::U32 => int::<u32>(k),
        DType::U8 => int::<u8>(k),
        float => with_float!(float, NAME, T => match k.out.dtype {
            DType::F32 if size_of::<T>() == 2 => floats::<T, f32>(k),
            DType::F64 => floats::<T, f64>(k),
            _ => floats::<T, T>(k),
        }),
    }
}

fn floats<T: Float + Ordered<Key = <T as Float>::Acc>, O: Float>(mut k: Reduce<'_>) -> Result<()> {
    let plan = Plan::new(k.x.layout, k.dims);
    let count = plan.count as f64;
    let round = |v: f64| O::down(O::Acc::of(v));
    match k.op {
        Reduction::Sum => run::<T, _, O>(&k.x, &mut k.out, &plan, &FloatSum, round),
        Reduction::Mean => run::<T, _, O>(&k.x, &mut k.out, &plan, &FloatSum, |sum| round(sum / count)),
        Reduction::Max => run::<T, _, O>(&k.x, &mut k.out, &plan, &Extreme::<T, false>::new(), |v| round(v.wide())),
        Reduction::Min => run::<T, _, O>(&k.x, &mut k.out, &plan, &Extreme::<T, true>::new(), |v| round(v.wide())),
        Reduction::Product => run::<T, _, O>(&k.x, &mut k.out, &plan, &FloatProduct, round),
    }
}

fn int<T: Ordered<Key = T>>(mut k: Reduce<'_>) -> Result<()> {
    let plan = Plan::new(k.x.layout, k.dims);
    match k.op {
        Reduction::Sum => run::<T, _, i64>(&k.x, &mut k.out, &plan, &IntSum, |v| v),
        Reduction::Product => run::<T, _, i64>(&k.x, &mut k.out, &plan, &IntProduct, |v| v),
        Reduction::Mean => Err(undefined(NAME, T::DTYPE)),
        Reduction::Max => run::<T, _, T>(&k.x, &mut k.out, &plan, &Extreme::<T, false>::new(), |v| v),
        Reduction::Min => run::<T, _, T>(&k.x, &mut k.out, &plan, &Extreme::<T, true>::new(), |v| v),
    }
}

/// Folds each output of a plan.
pub(super) fn run<T, F, O>(
    x: &Arg<'_>,
    out: &mut OutArg<'_>,
    plan: &Plan,
    fold: &F,
    finish: impl Fn(F::Acc) -> O + Sync + Send,
) -> Result<()>
where
    T: Element,
    F: Fold<T>,
    O: Element,
{
    let x = view::<T>(x, NAME)?;
    let out = dense_mut::<O>(out, plan.outputs, NAME)?;
    if out.is_empty() {
        return Ok(());
    }
    let (outputs, count, work) = (plan.outputs, plan.count, plan.outputs.saturating_mul(plan.count));
    let width = if plan.by_column() { plan.kept[plan.kept.len() - 1].0.min(TILE) } else { 1 };
    if outputs / width >= 64 || work < PIECE {
        let piece = (PIECE / 4 / count.max(1)).clamp(width, 4096);
        for_pieces(out, piece, work, |first, piece| {
            let mut accs: Vec<_> = (first..first + piece.len()).map(|output| fold.start(output)).collect();
            fold_outputs(fold, plan, x, first, 0..count, &mut accs);
            piece.iter_mut().zip(accs).for_each(|(o, acc)| *o = finish(acc));
        });
    } else {
        // Few outputs: the folds themselves are split, at most 64 times.
        let part = (PIECE / width).max(256).max(count.div_ceil(64));
        let mut accs: Vec<_> = (0..count.div_ceil(part) * outputs).map(|i| fold.start(i % outputs)).collect();
        for_pieces(&mut accs, outputs, work, |first, accs| {
            let start = first / outputs * part;
            fold_outputs(fold, plan, x, 0, start..count.min(start + part), accs);
        });
        for (i, o) in out.iter_mut().enumerate() {
            let parts = accs[i..].iter().step_by(outputs);
            *o = finish(parts.fold(fold.start(i), |a, &b| fold.join(a, b)));
        }
    }
    Ok(())
}

/// Folds elements `range` of each of the outputs from `first` on into `accs`.
fn fold_outputs<T: Copy, F: Fold<T>>(fold: &F, plan: &Plan, x: &[T], first: usize, range: Range<usize>, accs: &mut [F::Acc]) {
    if !plan.by_column() {
        for (i, acc) in accs.iter_mut().enumerate() {
            *acc = fold_row(fold, plan, first + i, &x[offset(&plan.kept, first + i).min(x.len())..], range.clone());
        }
        return;
    }
    let (size, stride) = plan.kept[plan.kept.len() - 1];
    let mut done = 0;
    while done < accs.len() {
        let width = (size - (first + done) % size).min(accs.len() - done).min(TILE);
        let base = offset(&plan.kept, first + done);
        let accs = &mut accs[done..done + width];
        for i in range.clone() {
            let x = &x[base + offset(&plan.reduced, i)..];
            if stride == 1 {
                accs.iter_mut().zip(x).for_each(|(acc, &v)| *acc = fold.step(*acc, v));
            } else {
                accs.iter_mut().enumerate().for_each(|(j, acc)| *acc = fold.step(*acc, x[j * stride]));
            }
        }
        done += width;
    }
}

/// Folds elements `range` of one output, which starts at `x`.
fn fold_row<T: Copy, F: Fold<T>>(fold: &F, plan: &Plan, output: usize, x: &[T], range: Range<usize>) -> F::Acc {
    let (&(size, stride), outer) = plan.reduced.split_last().expect("a plan has a reduced dim");
    let start = fold.start(output);
    let mut acc = start;
    let mut i = range.start;
    while i < range.end {
        let len = (size - i % size).min(range.end - i);
        let run = &x[offset(outer, i / size) + i % size * stride..];
        acc = fold.join(
            acc,
            if stride == 1 { fold_run(fold, start, &run[..len]) } else { fold_strided(fold, start, run, len, stride) },
        );
        i += len;
    }
    acc
}

/// Folds a run by eight lanes, which the compiler turns into vectors.
fn fold_run<T: Copy, F: Fold<T>>(fold: &F, start: F::Acc, run: &[T]) -> F::Acc {
    let mut lanes = [start; 8];
    let mut eights = run.chunks_exact(8);
    for eight in &mut eights {
        lanes.iter_mut().zip(eight).for_each(|(lane, &v)| *lane = fold.step(*lane, v));
    }
    lanes.iter_mut().zip(eights.remainder()).for_each(|(lane, &v)| *lane = fold.step(*lane, v));
    lanes.into_iter().fold(start, |a, b| fold.join(a, b))
}

fn fold_strided<T: Copy, F: Fold<T>>(fold: &F, start: F::Acc, run: &[T], len: usize, stride: usize) -> F::Acc {
    (0..len).fold(start, |acc, i| fold.step(acc, run[i * stride]))
}

pub(super) fn arg_reduce(k: ArgReduce<'_>) -> Result<()> {
    match k.x.dtype {
        DType::F64 => arg::<f64>(k),
        DType::F32 => arg::<f32>(k),
        DType::F16 => arg::<half::f16>(k),
        DType::BF16 => arg::<half::bf16>(k),
        DType::I64 => arg::<i64>(k),
        DType::U32 => arg::<u32>(k),
        DType::U8 => arg::<u8>(k),
    }
}

fn arg<T: Ordered>(k: ArgReduce<'_>) -> Result<()> {
    if k.min { arg_by::<T, true>(k) } else { arg_by::<T, false>(k) }
}

fn arg_by<T: Ordered, const MIN: bool>(mut k: ArgReduce<'_>) -> Result<()> {
    let plan = Plan::new(k.x.layout, 1 << k.dim);
    let x = view::<T>(&k.x, "arg_reduce")?;
    let out = dense_mut::<i64>(&mut k.out, plan.outputs, "arg_reduce")?;
    let stride = plan.reduced[0].1;
    let piece = (PIECE / 4 / plan.count.max(1)).clamp(1, 4096);
    for_pieces(out, piece, plan.outputs.saturating_mul(plan.count), |first, piece| {
        for (i, o) in piece.iter_mut().enumerate() {
            let base = offset(&plan.kept, first + i);
            let mut best = (0, if MIN { T::HIGHEST } else { T::LOWEST });
            for j in 0..plan.count {
                let key = x[base + j * stride].key();
                if j == 0 || beats::<T, MIN>(key, best.1) {
                    best = (j, key);
                }
            }
            *o = best.0 as i64;
        }
    });
    Ok(())
}
