//! The functions that expressions of the table may call, in Rust. `cuda/elementwise.cu` has the same names for CUDA.

use std::num::Wrapping;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A type that expressions are computed in: f32, f64 or a wrapping integer.
pub(crate) trait Num:
    bytemuck::Pod + Send + Sync + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self>
{
    /// A constant or parameter. Integers take whole numbers; negative ones wrap.
    fn lit(value: f64) -> Self;
    /// The absolute value.
    fn magnitude(self) -> Self;
}

/// f32 or f64.
pub(crate) trait Real: Num + Div<Output = Self> {
    fn exp(self) -> Self;
    fn expm1(self) -> Self;
    fn log(self) -> Self;
    fn log1p(self) -> Self;
    fn sqrt(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn round_even(self) -> Self;
    fn pow(self, y: Self) -> Self;
}

macro_rules! real {
    ($t:ident, $erf:path) => {
        impl Num for $t {
            #[inline(always)]
            fn lit(value: f64) -> $t {
                value as $t
            }
            #[inline(always)]
            fn magnitude(self) -> $t {
                self.abs()
            }
        }
#[rustfmt::skip]
        impl Real for $t {
            #[inline(always)] fn exp(self) -> $t { self.exp() }
            #[inline(always)] fn expm1(self) -> $t { self.exp_m1() }
            #[inline(always)] fn log(self) -> $t { self.ln() }
            #[inline(always)] fn log1p(self) -> $t { self.ln_1p() }
            #[inline(always)] fn sqrt(self) -> $t { self.sqrt() }
            #[inline(always)] fn sin(self) -> $t { self.sin() }
            #[inline(always)] fn cos(self) -> $t { self.cos() }
            #[inline(always)] fn tanh(self) -> $t { self.tanh() }
            #[inline(always)] fn erf(self) -> $t { $erf(self) }
            #[inline(always)] fn floor(self) -> $t { self.floor() }
            #[inline(always)] fn ceil(self) -> $t { self.ceil() }
            #[inline(always)] fn round_even(self) -> $t { self.round_ties_even() }
            #[inline(always)] fn pow(self, y: $t) -> $t { self.powf(y) }
        }
    };
}
real!(f32, libm::erff);
real!(f64, libm::erf);

macro_rules! integer {
    ($t:ident, $v:ident => $magnitude:expr) => {
        impl Num for Wrapping<$t> {
            #[inline(always)]
            fn lit(value: f64) -> Self {
                Wrapping(value as i64 as $t)
            }
            #[inline(always)]
            fn magnitude(self) -> Self {
                let $v = self.0;
                Wrapping($magnitude)
            }
        }
    };
}
integer!(i64, v => v.wrapping_abs());
integer!(u32, v => v);
integer!(u8, v => v);

macro_rules! functions {
    ($($bound:ident $name:ident($($x:ident),*) = $body:expr;)*) => {$(
        #[inline(always)]
        pub(crate) fn $name<T: $bound>($($x: T),*) -> T {
            $body
        }
    )*};
}
functions! {
    Num magnitude(x) = x.magnitude();
    Num select_gt(a, b, t, f) = if a > b { t } else { f };
    Num select_lt(a, b, t, f) = if a < b { t } else { f };
    Num select_le(a, b, t, f) = if a <= b { t } else { f };
    Num select_ge(a, b, t, f) = if a >= b { t } else { f };
    Num select_eq(a, b, t, f) = if a == b { t } else { f };
    Num max_nan(x, y) = if x > y || !is_self(x) { x } else { y };
    Num min_nan(x, y) = if x < y || !is_self(x) { x } else { y };
    Real exp(x) = x.exp();
    Real expm1(x) = x.expm1();
    Real log(x) = x.log();
    Real log1p(x) = x.log1p();
    Real sqrt(x) = x.sqrt();
    Real sin(x) = x.sin();
    Real cos(x) = x.cos();
    Real tanh(x) = x.tanh();
    Real erf(x) = x.erf();
    Real floor(x) = x.floor();
    Real ceil(x) = x.ceil();
    Real round_even(x) = x.round_even();
    Real pow(x, y) = x.pow(y);
    Real sigmoid(x) = T::lit(1.0) / (T::lit(1.0) + (-x).exp());
}

/// Equal to itself: false for a NaN alone.
#[inline(always)]
#[allow(clippy::eq_op)]
fn is_self<T: Num>(x: T) -> bool {
    x == x
}
