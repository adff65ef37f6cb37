//! Rust types of elements, and scalars of any of them.

use crate::DType;
use crate::convert::Cast;
use half::{bf16, f16};

/// A Rust type that elements of a tensor can have.
pub trait Element: bytemuck::Pod + Send + Sync + PartialEq + std::fmt::Debug + 'static {
    /// Its element type.
    const DTYPE: DType;
    /// The value as a scalar, exactly.
    fn to_scalar(self) -> Scalar;
    /// The nearest value to a scalar: floats round to nearest even, integers truncate toward zero and wrap.
    fn from_scalar(value: Scalar) -> Self;
}

/// One number, exact for every element type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A float.
    Float(f64),
    /// An integer.
    Int(i64),
}

impl Scalar {
    /// As f64 (integers beyond 2^53 round).
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Float(v) => v,
            Scalar::Int(v) => v as f64,
        }
    }
    /// As i64 (floats truncate toward zero and saturate, NaN is 0).
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Float(v) => v as i64,
            Scalar::Int(v) => v,
        }
    }
}

macro_rules! from_number {
    ($($t:ty => $variant:ident as $as:ty),*) => {$(
        impl From<$t> for Scalar { fn from(v: $t) -> Scalar { Scalar::$variant(v as $as) } }
    )*};
}
from_number!(f64 => Float as f64, f32 => Float as f64, i64 => Int as i64, i32 => Int as i64, u32 => Int as i64, u8 => Int as i64, usize => Int as i64);

macro_rules! float_element {
    ($($t:ty, $dtype:ident, $to:expr, $from:expr);*) => {$(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            fn to_scalar(self) -> Scalar { Scalar::Float($to(self)) }
            fn from_scalar(value: Scalar) -> Self { $from(value) }
        }
    )*};
}
float_element!(
    f64, F64, |v: f64| v, |s: Scalar| s.to_f64();
    f32, F32, |v: f32| v as f64, |s: Scalar| match s { Scalar::Float(v) => v as f32, Scalar::Int(v) => v as f32 };
    f16, F16, |v: f16| v.to_f64(), |s: Scalar| match s { Scalar::Float(v) => v.cast(), Scalar::Int(v) => v.cast() };
    bf16, BF16, |v: bf16| v.to_f64(), |s: Scalar| match s { Scalar::Float(v) => v.cast(), Scalar::Int(v) => v.cast() }
);

macro_rules! int_element {
    ($($t:ty, $dtype:ident);*) => {$(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            fn to_scalar(self) -> Scalar { Scalar::Int(self as i64) }
            fn from_scalar(value: Scalar) -> Self { value.to_i64() as $t }
        }
    )*};
}
int_element!(i64, I64; u32, U32; u8, U8);

/// Runs `$body` with `$T` the Rust type of the element type `$dtype`.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F16 => {
                type $T = half::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            $crate::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::DType::U32 => {
                type $T = u32;
                $body
            }
            $crate::DType::U8 => {
                type $T = u8;
                $body
            }
        }
    };
}
pub(crate) use with_element;
