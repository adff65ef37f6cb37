//! What is folded: sums and products of floats in f64, of integers in i64, extremes with NaN winning.

use crate::Element;
use crate::host::Float;
use half::{bf16, f16};
use std::marker::PhantomData;

/// A fold over elements of type `T`.
pub(super) trait Fold<T>: Sync {
    /// The running value.
    type Acc: Copy + Send + Sync;
    /// The value of nothing, for the fold of an output.
    fn start(&self, output: usize) -> Self::Acc;
    /// One more element.
    fn step(&self, acc: Self::Acc, x: T) -> Self::Acc;
    /// Two folds as one, the first of earlier elements.
    fn join(&self, a: Self::Acc, b: Self::Acc) -> Self::Acc;
}

/// Sum in f64: no sum of f32 or narrower elements loses a bit that its result could show.
pub(super) struct FloatSum;

impl<T: Float> Fold<T> for FloatSum {
    type Acc = f64;
    fn start(&self, _: usize) -> f64 {
        0.0
    }
    #[inline(always)]
    fn step(&self, acc: f64, x: T) -> f64 {
        use crate::host::Real;
        acc + x.up().wide()
    }
    fn join(&self, a: f64, b: f64) -> f64 {
        a + b
    }
}

/// Sum in i64, wrapping.
pub(super) struct IntSum;

impl<T: Ordered> Fold<T> for IntSum {
    type Acc = i64;
    fn start(&self, _: usize) -> i64 {
        0
    }
    #[inline(always)]
    fn step(&self, acc: i64, x: T) -> i64 {
        acc.wrapping_add(x.to_scalar().to_i64())
    }
    fn join(&self, a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }
}

/// Product in f64.
pub(super) struct FloatProduct;

impl<T: Float> Fold<T> for FloatProduct {
    type Acc = f64;
    fn start(&self, _: usize) -> f64 {
        1.0
    }
    #[inline(always)]
    fn step(&self, acc: f64, x: T) -> f64 {
        use crate::host::Real;
        acc * x.up().wide()
    }
    fn join(&self, a: f64, b: f64) -> f64 {
        a * b
    }
}

/// Product in i64, wrapping.
pub(super) struct IntProduct;

impl<T: Ordered> Fold<T> for IntProduct {
    type Acc = i64;
    fn start(&self, _: usize) -> i64 {
        1
    }
    #[inline(always)]
    fn step(&self, acc: i64, x: T) -> i64 {
        acc.wrapping_mul(x.to_scalar().to_i64())
    }
    fn join(&self, a: i64, b: i64) -> i64 {
        a.wrapping_mul(b)
    }
}

/// An element with an order; floats compare as f32 or f64.
pub(super) trait Ordered: Element {
    /// What is compared.
    type Key: Copy + PartialOrd + Send + Sync;
    /// No key is smaller.
    const LOWEST: Self::Key;
    /// No key is larger.
    const HIGHEST: Self::Key;
    /// The key of an element.
    fn key(self) -> Self::Key;
    /// Whether a key is NaN.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
    fn is_nan(key: Self::Key) -> bool {
        key != key
    }
}

macro_rules! ordered {
    ($($t:ty, $key:ty, $lowest:expr, $highest:expr, $to:expr);*) => {$(
        impl Ordered for $t {
            type Key = $key;
            const LOWEST: $key = $lowest;
            const HIGHEST: $key = $highest;
            #[inline(always)]
            fn key(self) -> $key { $to(self) }
        }
    )*};
}
ordered!(
    f64, f64, f64::NEG_INFINITY, f64::INFINITY, |v| v;
    f32, f32, f32::NEG_INFINITY, f32::INFINITY, |v| v;
    f16, f32, f32::NEG_INFINITY, f32::INFINITY, |v: f16| v.to_f32();
    bf16, f32, f32::NEG_INFINITY, f32::INFINITY, |v: bf16| v.to_f32();
    i64, i64, i64::MIN, i64::MAX, |v| v;
    u32, u32, u32::MIN, u32::MAX, |v| v;
    u8, u8, u8::MIN, u8::MAX, |v| v
);

/// The largest element (the smallest with `MIN`).
pub(super) struct Extreme<T, const MIN: bool>(PhantomData<T>);

impl<T, const MIN: bool> Extreme<T, MIN> {
    pub(super) fn new() -> Self {
        Extreme(PhantomData)
    }
}

impl<T: Ordered, const MIN: bool> Fold<T> for Extreme<T, MIN> {
    type Acc = T::Key;
    fn start(&self, _: usize) -> T::Key {
        if MIN { T::HIGHEST } else { T::LOWEST }
    }
    #[inline(always)]
    fn step(&self, acc: T::Key, x: T) -> T::Key {
        self.join(acc, x.key())
    }
    #[inline(always)]
    fn join(&self, a: T::Key, b: T::Key) -> T::Key {
        if beats::<T, MIN>(b, a) { b } else { a }
    }
}

/// Whether `b` replaces an earlier `a`: it is strictly better, or the first NaN.
#[inline(always)]
pub(super) fn beats<T: Ordered, const MIN: bool>(b: T::Key, a: T::Key) -> bool {
    (if MIN { b < a } else { b > a }) || (T::is_nan(b) && !T::is_nan(a))
}
