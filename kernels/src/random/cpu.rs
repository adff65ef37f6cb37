//! CPU code: one Philox block for each four elements.

use super::{Dropout, Normal, RandInt, Uniform, check_rand_int, drop_below, philox, step};
use crate::arg::{expect, expect_contiguous};
use crate::host::{Float, Real, for_pieces, with_float};
use crate::walk::{Input, PIECE, output};
use crate::{Element, OutArg, Result};

/// Runs `f(four words, first index, up to four elements)` over a contiguous destination.
fn generate<T: Element>(
    kernel: &'static str,
    (seed, offset): (u64, u64),
    mut out: OutArg<'_>,
    f: impl Fn([u32; 4], usize, &mut [T]) + Sync + Send,
) -> Result<()> {
    expect_contiguous(kernel, &out)?;
    let out = output::<T>(&mut out)?;
    let work = out.len() * 4;
    for_pieces(out, PIECE, work, |start, piece| {
        for (i, four) in piece.chunks_mut(4).enumerate() {
            let first = start + i * 4;
            f(philox(seed, offset.wrapping_add(first as u64 / 4)), first, four);
        }
    });
    Ok(())
}

/// A word's uniform in [0, 1), exact in f32.
fn unit<R: Real>(word: u32) -> R {
    R::of((word >> 8) as f64 * 2f64.powi(-24))
}

fn uniform_as<T: Float>(k: Uniform<'_>) -> Result<()> {
    let (lo, hi, range, step) = (T::Acc::of(k.lo), T::Acc::of(k.hi), T::Acc::of(k.hi - k.lo), T::Acc::of(step(T::DTYPE)));
    let at = |u: T::Acc| T::down(lo + range * u);
    generate::<T>("uniform", (k.seed, k.offset), k.out, |words, _, four| {
        four.iter_mut().zip(words).for_each(|(o, word)| {
            let u = unit::<T::Acc>(word);
            *o = at(u);
            if o.up() >= hi {
                *o = at(if u > step { u - step } else { T::Acc::of(0.0) });
            }
            if o.up() >= hi {
                *o = T::down(lo);
            }
        });
    })
}

pub(super) fn uniform(k: Uniform<'_>) -> Result<()> {
    with_float!(k.out.dtype, "uniform", T => uniform_as::<T>(k))
}

/// What Box–Muller wants beyond [`Real`].
trait Angle: Real {
    fn log(self) -> Self;
    fn sin_cos(self) -> (Self, Self);
}
macro_rules! angle {
    ($($t:ident),*) => {$(
        impl Angle for $t {
            fn log(self) -> $t { self.ln() }
            fn sin_cos(self) -> ($t, $t) { $t::sin_cos(self) }
        }
    )*};
}
angle!(f32, f64);

fn normal_as<T: Float<Acc: Angle>>(k: Normal<'_>) -> Result<()> {
    let (mean, std) = (T::Acc::of(k.mean), T::Acc::of(k.std));
    generate::<T>("normal", (k.seed, k.offset), k.out, |words, _, four| {
        let u = words.map(|word| T::Acc::of(1.0) - unit(word));
        for (pair, two) in four.chunks_mut(2).enumerate() {
            let r = (T::Acc::of(-2.0) * u[2 * pair].log()).sqrt();
            let (sin, cos) = (T::Acc::of(std::f64::consts::TAU) * u[2 * pair + 1]).sin_cos();
            two.iter_mut().zip([cos, sin]).for_each(|(o, z)| *o = T::down(mean + std * (r * z)));
        }
    })
}

pub(super) fn normal(k: Normal<'_>) -> Result<()> {
    with_float!(k.out.dtype, "normal", T => normal_as::<T>(k))
}

pub(super) fn rand_int(k: RandInt<'_>) -> Result<()> {
    let range = check_rand_int(&k)?;
    generate::<i64>("rand_int", (k.seed, k.offset), k.out, |words, _, four| {
        four.iter_mut().zip(words).for_each(|(o, word)| *o = k.lo.wrapping_add((word as u64 % range) as i64));
    })
}

fn dropout_as<T: Float>(k: Dropout<'_>) -> Result<()> {
    let input = Input::<T>::new(&k.x)?;
    let (below, keep) = (drop_below(k.p), T::Acc::of(1.0 - k.p));
    generate::<T>("dropout", (k.seed, k.offset), k.out, |words, first, four| {
        let mut buffer = Vec::new();
        let x = input.chunk(first, four.len(), &mut buffer);
        for ((o, &x), word) in four.iter_mut().zip(x).zip(words) {
            *o = if word >> 8 >= below { T::down(x.up() / keep) } else { T::down(T::Acc::of(0.0)) };
        }
    })
}

pub(super) fn dropout(k: Dropout<'_>) -> Result<()> {
    expect("dropout", &k.x, k.out.dtype, k.out.layout.dims())?;
    with_float!(k.out.dtype, "dropout", T => dropout_as::<T>(k))
}
