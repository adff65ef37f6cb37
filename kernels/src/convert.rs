//! Conversions between element types, each rounded once to nearest even; `cuda/common.cuh` has the same for CUDA. Float to integer truncates
//! toward zero, saturates, and makes NaN 0; integers wrap among themselves.

use half::{bf16, f16};

/// f32 that is right after one more rounding to 16 bits: cut, with the last bit set where anything was cut off ("round to odd", Boldo and
/// Melquiond: "Emulation of FMA and correctly rounded sums", 2008).
fn odd_f64(v: f64) -> f32 {
    let nearest = v as f32;
    if nearest as f64 == v || v.is_nan() {
        return nearest;
    }
    // Overflow gives infinity, whose lower neighbour is the largest f32, odd already.
    let cut = if (nearest as f64).abs() > v.abs() { nearest.to_bits() - 1 } else { nearest.to_bits() };
    f32::from_bits(cut | 1)
}

/// The same for an integer.
fn odd_i64(v: i64) -> f32 {
    let magnitude = v.unsigned_abs();
    let cut = 40_u32.saturating_sub(magnitude.leading_zeros());
    let top = magnitude >> cut;
    let odd = top | (top << cut != magnitude) as u64;
    let value = odd as f32 * (1_u64 << cut) as f32;
    if v < 0 { -value } else { value }
}

/// Conversion to another element type.
pub(crate) trait Cast<To>: Copy {
    /// The nearest value.
    fn cast(self) -> To;
}

macro_rules! cast {
    ($($from:ident: $($to:ident = |$v:ident| $e:expr),+;)*) => {$($(
        impl Cast<$to> for $from {
            #[inline(always)]
            fn cast(self) -> $to {
                let $v = self;
                $e
            }
        }
    )+)*};
}
macro_rules! plain {
    ($($from:ident)*) => {$(
        cast! { $from: f64 = |v| v as f64, f32 = |v| v as f32, i64 = |v| v as i64, u32 = |v| v as u32, u8 = |v| v as u8; }
    )*};
}
macro_rules! from_half {
    ($($from:ident)*) => {$(
        cast! { $from: f64 = |v| v.to_f32() as f64, f32 = |v| v.to_f32(), i64 = |v| v.to_f32() as i64, u32 = |v| v.to_f32() as u32, u8 = |v| v.to_f32() as u8; }
    )*};
}
macro_rules! to_half {
    ($($to:ident)*) => {$(
        cast! { f64: $to = |v| $to::from_f32(odd_f64(v)); }
        cast! { f32: $to = |v| $to::from_f32(v); }
        cast! { i64: $to = |v| $to::from_f32(odd_i64(v)); }
        cast! { u32: $to = |v| $to::from_f32(odd_i64(v as i64)); }
        cast! { u8: $to = |v| $to::from_f32(v as f32); }
    )*};
}
plain!(f64 f32 i64 u32 u8);
from_half!(f16 bf16);
to_half!(f16 bf16);
cast! {
    f16: f16 = |v| v, bf16 = |v| bf16::from_f32(v.to_f32());
    bf16: bf16 = |v| v, f16 = |v| f16::from_f32(v.to_f32());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to<T, U>(v: T) -> U
    where
        T: Cast<U>,
    {
        v.cast()
    }

    #[test]
    fn f16_overflows_where_ieee_says() {
        let bits = |v: f32| to::<f32, f16>(v).to_bits();
        assert_eq!([65504.0, 65_519.996, 65520.0, 65536.0].map(bits), [0x7BFF, 0x7BFF, 0x7C00, 0x7C00]);
        let bits = |v: f64| to::<f64, f16>(v).to_bits();
        assert_eq!([65504.0, 65_519.999_999, 65520.0, 65536.0].map(bits), [0x7BFF, 0x7BFF, 0x7C00, 0x7C00]);
    }

    #[test]
    fn bf16_rounds_to_nearest_even() {
        let bits = |v: f32| to::<f32, bf16>(v).to_bits();
        let values = [0.269_140_88, 314.0 / 100.0, 1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, 3.4e38];
        assert_eq!(values.map(bits), [0x3E8A, 0x4049, 0x3F80, 0x3F82, 0x7F80]);
        for (n, rounded) in [(257, 256.0), (259, 260.0), (-257, -256.0)] {
            assert_eq!(to::<i64, bf16>(n).to_f32(), rounded);
            assert_eq!(to::<f32, bf16>(n as f32).to_f32(), rounded);
            assert_eq!(to::<u32, bf16>(n.unsigned_abs() as u32).to_f32(), rounded.abs());
        }
    }

    #[test]
    fn a_value_is_rounded_once() {
        // Just above the middle of two neighbours, by less than f32 can tell.
        assert_eq!(to::<f64, bf16>(1.003_906_25 + 1e-12).to_bits(), 0x3F81);
        assert_eq!(to::<f64, f16>(1.0 + 2f64.powi(-11) + 1e-12).to_bits(), 0x3C01);
        assert_eq!(to::<i64, bf16>((1 << 40) + (1 << 32) + 1).to_f32(), (1u64 << 40) as f32 + (1u64 << 33) as f32);
        assert_eq!(to::<i64, bf16>(i64::MIN).to_f32(), i64::MIN as f32);
        assert_eq!(to::<i64, f32>((1 << 53) + 1), 9_007_199_254_740_992.0);
    }

    #[test]
    fn floats_saturate_into_integers_and_nan_is_zero() {
        assert_eq!([f32::NAN, -1.5, 3.99, 300.0, f32::INFINITY].map(to::<f32, u8>), [0, 0, 3, 255, 255]);
        assert_eq!([f64::NAN, -3.99, 1e30, -1e30].map(to::<f64, i64>), [0, -3, i64::MAX, i64::MIN]);
        assert_eq!([f16::NAN, f16::INFINITY].map(to::<f16, u32>), [0, u32::MAX]);
        assert_eq!(to::<i64, u8>(-1), 255);
    }
}
