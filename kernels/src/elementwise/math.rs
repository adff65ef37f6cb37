//! The functions that expressions of the table may call, in Rust. `cuda/elementwise.cu` has the same names for CUDA.

use std::num::Wrapping;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Sub};

/// A type that expressions are computed in: f32, f64 or a wrapping integer.
pub(crate) trait Num:
    bytemuck::Pod + Send + Sync + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Neg<Output = Self>
{
    /// A constant or parameter. Integers take whole numbers; negative ones wrap.
    fn lit(value: f64) -> Self;
    /// The absolute value.
    fn magnitude(self) -> Self;
    /// What is left of a division whose quotient is cut toward 0: it has the sign of `self`. For integers 0 where `y` is 0.
    fn rem_trunc(self, y: Self) -> Self;
    /// The quotient rounded down. For integers 0 where `y` is 0.
    fn div_floor(self, y: Self) -> Self;
}

/// A wrapping integer.
pub(crate) trait Int: Num + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> {
    fn bit_not(self) -> Self;
    /// `self * 2^n`; 0 where `n` is negative or no smaller than the number of bits.
    fn shift_left(self, n: Self) -> Self;
    /// `self / 2^n` rounded down; for other `n` what is left once all bits are out: -1 for negative numbers, else 0.
    fn shift_right(self, n: Self) -> Self;
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
    fn tan(self) -> Self;
    fn asin(self) -> Self;
    fn acos(self) -> Self;
    fn atan(self) -> Self;
    fn sinh(self) -> Self;
    fn cosh(self) -> Self;
    fn asinh(self) -> Self;
    fn acosh(self) -> Self;
    fn atanh(self) -> Self;
    fn atan2(self, x: Self) -> Self;
    fn hypot(self, y: Self) -> Self;
    fn exp2(self) -> Self;
    fn log2(self) -> Self;
    fn log10(self) -> Self;
    fn erfc(self) -> Self;
    fn trunc(self) -> Self;
    fn copysign(self, y: Self) -> Self;
}

macro_rules! real {
    ($t:ident, $erf:path, $erfc:path, $asinh:path, $acosh:path, $atanh:path) => {
        impl Num for $t {
            #[inline(always)]
            fn lit(value: f64) -> $t {
                value as $t
            }
            #[inline(always)]
            fn magnitude(self) -> $t {
                self.abs()
            }
            #[inline(always)]
            fn rem_trunc(self, y: $t) -> $t {
                self % y
            }
            #[inline(always)]
            fn div_floor(self, y: $t) -> $t {
                // Through the remainder, which is exact: the rounded quotient may be an integer that the true one does not reach.
                let rest = self % y;
                let down = rest != 0.0 && (rest < 0.0) != (y < 0.0);
                let quotient = (self - rest) / y - if down { 1.0 } else { 0.0 };
                match quotient {
                    _ if y == 0.0 => self / y,
                    0.0 => 0.0.copysign(self / y),
                    quotient => quotient.round_ties_even(),
                }
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
            #[inline(always)] fn tan(self) -> $t { self.tan() }
            #[inline(always)] fn asin(self) -> $t { self.asin() }
            #[inline(always)] fn acos(self) -> $t { self.acos() }
            #[inline(always)] fn atan(self) -> $t { self.atan() }
            #[inline(always)] fn sinh(self) -> $t { self.sinh() }
            #[inline(always)] fn cosh(self) -> $t { self.cosh() }
            #[inline(always)] fn asinh(self) -> $t { $asinh(self) }
            #[inline(always)] fn acosh(self) -> $t { $acosh(self) }
            #[inline(always)] fn atanh(self) -> $t { $atanh(self) }
            #[inline(always)] fn atan2(self, x: $t) -> $t { self.atan2(x) }
            #[inline(always)] fn hypot(self, y: $t) -> $t { self.hypot(y) }
            #[inline(always)] fn exp2(self) -> $t { self.exp2() }
            #[inline(always)] fn log2(self) -> $t { self.log2() }
            #[inline(always)] fn log10(self) -> $t { self.log10() }
            #[inline(always)] fn erfc(self) -> $t { $erfc(self) }
            #[inline(always)] fn trunc(self) -> $t { self.trunc() }
            #[inline(always)] fn copysign(self, y: $t) -> $t { self.copysign(y) }
        }
    };
}
real!(f32, libm::erff, libm::erfcf, libm::asinhf, libm::acoshf, libm::atanhf);
real!(f64, libm::erf, libm::erfc, libm::asinh, libm::acosh, libm::atanh);

macro_rules! integer {
    ($t:ident, $v:ident => $magnitude:expr, $d:ident => $floor:expr) => {
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
            #[inline(always)]
            fn rem_trunc(self, y: Self) -> Self {
                Wrapping(if y.0 == 0 { 0 } else { self.0.wrapping_rem(y.0) })
            }
            #[inline(always)]
            fn div_floor(self, y: Self) -> Self {
                let ($v, $d) = (self.0, y.0);
                Wrapping(if $d == 0 { 0 } else { $floor })
            }
        }
        impl Int for Wrapping<$t> {
            #[inline(always)]
            fn bit_not(self) -> Self {
                !self
            }
            #[inline(always)]
            fn shift_left(self, n: Self) -> Self {
                Wrapping(u32::try_from(n.0).ok().and_then(|n| self.0.checked_shl(n)).unwrap_or(0))
            }
            #[inline(always)]
            fn shift_right(self, n: Self) -> Self {
                let shifted = u32::try_from(n.0).ok().and_then(|n| self.0.checked_shr(n));
                shifted.map_or(if self < Self::lit(0.0) { Self::lit(-1.0) } else { Self::lit(0.0) }, Wrapping)
            }
        }
    };
}
integer!(i64, v => v.wrapping_abs(), d => v.wrapping_div(d) - (v.wrapping_rem(d) != 0 && (v < 0) != (d < 0)) as i64);
integer!(u32, v => v, d => v / d);
integer!(u8, v => v, d => v / d);

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
    // ln(1 + e^x)
    Real softplus(x) = max_nan(x, T::lit(0.0)) + (-x.magnitude()).exp().log1p();
    Real tan(x) = x.tan();
    Real asin(x) = x.asin();
    Real acos(x) = x.acos();
    Real atan(x) = x.atan();
    Real sinh(x) = x.sinh();
    Real cosh(x) = x.cosh();
    Real asinh(x) = x.asinh();
    Real acosh(x) = x.acosh();
    Real atanh(x) = x.atanh();
    Real atan2(y, x) = y.atan2(x);
    Real hypot(x, y) = x.hypot(y);
    Real exp2(x) = x.exp2();
    Real log2(x) = x.log2();
    Real log10(x) = x.log10();
    Real erfc(x) = x.erfc();
    Real trunc(x) = x.trunc();
    Real copysign(x, y) = x.copysign(y);
    Num rem_trunc(x, y) = x.rem_trunc(y);
    Num div_floor(x, y) = x.div_floor(y);
    // As `rem_trunc`, with the sign of `y`: what is left of a division rounded down.
    Num rem_floor(x, y) = {
        let (rest, zero) = (x.rem_trunc(y), T::lit(0.0));
        if rest != zero && (rest < zero) != (y < zero) { rest + y } else { rest }
    };
    Int bit_not(x) = x.bit_not();
    Int shift_left(x, n) = x.shift_left(n);
    Int shift_right(x, n) = x.shift_right(n);
}

/// Equal to itself: false for a NaN alone.
#[inline(always)]
#[allow(clippy::eq_op)]
fn is_self<T: Num>(x: T) -> bool {
    x == x
}
