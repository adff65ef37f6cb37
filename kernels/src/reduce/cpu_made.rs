//! CPU code of folds over something made of each element: a fold's running value brings the shift of its output along.

use super::cpu::run;
use super::fold::Fold;
use super::plan::Plan;
use super::{Made, ReduceMade};
use crate::host::{Float, Real, dense, undefined, with_float};
use crate::{DType, Result};

const NAME: &str = "reduce_made";

/// The sum of `made(x, shift)` in f64, where shifts are given one an output or are 0.
struct Sum<'a, M> {
    shift: &'a [f64],
    made: M,
}

impl<T: Float, M: Fn(f64, f64) -> f64 + Sync> Fold<T> for Sum<'_, M> {
    /// The shift, and the sum.
    type Acc = (f64, f64);
    fn start(&self, output: usize) -> (f64, f64) {
        (self.shift.get(output).copied().unwrap_or(0.0), 0.0)
    }
    #[inline(always)]
    fn step(&self, (shift, sum): (f64, f64), x: T) -> (f64, f64) {
        (shift, sum + (self.made)(x.up().wide(), shift))
    }
    fn join(&self, a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
        (a.0, a.1 + b.1)
    }
}

/// The largest `|x|` (the smallest with `MIN`); a NaN wins.
struct AbsExtreme<const MIN: bool>;

impl<T: Float, const MIN: bool> Fold<T> for AbsExtreme<MIN> {
    type Acc = f64;
    fn start(&self, _: usize) -> f64 {
        if MIN { f64::INFINITY } else { 0.0 }
    }
    #[inline(always)]
    fn step(&self, acc: f64, x: T) -> f64 {
        Fold::<T>::join(self, acc, x.up().wide().abs())
    }
    #[inline(always)]
    fn join(&self, a: f64, b: f64) -> f64 {
        if (if MIN { b < a } else { b > a }) || b.is_nan() { b } else { a }
    }
}

pub(super) fn reduce(k: ReduceMade<'_>) -> Result<()> {
    with_float!(k.x.dtype, NAME, T => match k.out.dtype {
        DType::F64 => typed::<T, f64>(k),
        DType::F32 if size_of::<T>() == 2 => typed::<T, f32>(k),
        _ => typed::<T, T>(k),
    })
}

fn typed<T: Float, O: Float>(mut k: ReduceMade<'_>) -> Result<()> {
    if let Some(shift) = k.shift.as_ref().filter(|shift| shift.dtype != DType::F64) {
        return Err(undefined(NAME, shift.dtype));
    }
    let plan = Plan::new(k.x.layout, k.dims);
    let shift = k.shift.as_ref().map_or(Ok(&[][..]), |shift| dense::<f64>(shift, plan.outputs, NAME))?;
    let round = |v: f64| O::down(O::Acc::of(v));
    let total = |(_, sum): (f64, f64)| round(sum);
    match k.op {
        Made::AbsSum => run::<T, _, O>(&k.x, &mut k.out, &plan, &Sum { shift, made: |x: f64, _: f64| x.abs() }, total),
        Made::SquareSum => {
            run::<T, _, O>(&k.x, &mut k.out, &plan, &Sum { shift, made: |x: f64, s: f64| (x - s) * (x - s) }, total)
        }
        Made::ExpSum => {
            // In the precision of the elements, as on CUDA: f64 would only be slower.
            let made = |x: f64, s: f64| T::Acc::of(x - s).exp().wide();
            run::<T, _, O>(&k.x, &mut k.out, &plan, &Sum { shift, made }, total)
        }
        Made::PowSum(p) => {
            run::<T, _, O>(&k.x, &mut k.out, &plan, &Sum { shift, made: move |x: f64, _: f64| x.abs().powf(p) }, total)
        }
        Made::AbsMax => run::<T, _, O>(&k.x, &mut k.out, &plan, &AbsExtreme::<false>, round),
        Made::AbsMin => run::<T, _, O>(&k.x, &mut k.out, &plan, &AbsExtreme::<true>, round),
    }
}
