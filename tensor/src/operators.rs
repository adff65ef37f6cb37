//! `a + b`, `a - b`, `a * b`, `a / b`, `a % b` and `-a` for tensors, and for a tensor with a number on either side; `a & b`, `a | b` and `a ^ b` for
//! the bits of integers and so for masks. Each gives a `Result`: shapes may not fit.
//!
//! `%` is `remainder`, Python's, not `fmod`, which is what Rust's `%` is for numbers.
//! `x / s` is `x * (1 / s)`, so nothing has to be saved for its backward.

use crate::ops::compare::scalar_like;
use crate::{Error, Result, Tensor};
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Rem, Sub};

#[track_caller]
fn times(x: &Tensor, factor: f64, op: &'static str) -> Result<Tensor> {
    match x.dtype().is_float() || op == "mul" {
        true => x.affine(factor, 0.0),
        false => Err(Error::dtype(op, format!("not defined for {}; convert with `to_dtype`", x.dtype()))),
    }
}

macro_rules! operator {
    ($trait:ident $name:ident as $method:ident) => {
        operator!(@tensors $trait $name $method, &Tensor, &Tensor);
        operator!(@tensors $trait $name $method, &Tensor, Tensor);
        operator!(@tensors $trait $name $method, Tensor, &Tensor);
        operator!(@tensors $trait $name $method, Tensor, Tensor);
    };
    ($trait:ident $name:ident as $method:ident, $x:ident, $s:ident: right $right:expr, left $left:expr) => {
        operator!($trait $name as $method);
        operator!(@number $trait $name, &Tensor, $x, $s, $right, $left);
        operator!(@number $trait $name, Tensor, $x, $s, $right, $left);
    };
    (@tensors $trait:ident $name:ident $method:ident, $a:ty, $b:ty) => {
        impl $trait<$b> for $a {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $name(self, other: $b) -> Result<Tensor> {
                let other: &Tensor = &other;
                Tensor::$method(&self, other)
            }
        }
    };
    (@number $trait:ident $name:ident, $t:ty, $x:ident, $s:ident, $right:expr, $left:expr) => {
        impl $trait<f64> for $t {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $name(self, $s: f64) -> Result<Tensor> {
                let $x: &Tensor = &self;
                $right
            }
        }
        impl $trait<$t> for f64 {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $name(self, x: $t) -> Result<Tensor> {
                let ($x, $s): (&Tensor, f64) = (&x, self);
                $left
            }
        }
    };
}

operator!(Add add as add, x, s: right x.affine(1.0, s), left x.affine(1.0, s));
operator!(Sub sub as sub, x, s: right x.affine(1.0, -s), left x.affine(-1.0, s));
operator!(Mul mul as mul, x, s: right times(x, s, "mul"), left times(x, s, "mul"));
operator!(Div div as div, x, s: right times(x, 1.0 / s, "div"), left scalar_like("div", s.into(), x)?.div(x));
operator!(Rem rem as remainder, x, s: right x.remainder(s), left scalar_like("remainder", s.into(), x)?.remainder(x));
operator!(BitAnd bitand as bitwise_and);
operator!(BitOr bitor as bitwise_or);
operator!(BitXor bitxor as bitwise_xor);

impl Neg for &Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}
impl Neg for Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Device, Result, Tensor};

    fn pair() -> Result<(Tensor, Tensor)> {
        let device = Device::cpu();
        Ok((Tensor::from_vec(vec![1f32, 2.0], 2, &device)?, Tensor::from_vec(vec![4f32], 1, &device)?))
    }

    #[test]
    fn tensors_meet_by_value_and_by_reference() -> Result<()> {
        let (a, b) = pair()?;
        assert_eq!((&a + &b)?.to_vec::<f32>()?, [5., 6.]);
        assert_eq!((&a - b.clone())?.to_vec::<f32>()?, [-3., -2.]);
        assert_eq!((a.clone() * &b)?.to_vec::<f32>()?, [4., 8.]);
        assert_eq!((a.clone() / b)?.to_vec::<f32>()?, [0.25, 0.5]);
        assert_eq!((-a)?.to_vec::<f32>()?, [-1., -2.]);
        Ok(())
    }

    #[test]
    fn numbers_stand_on_either_side() -> Result<()> {
        let (a, _) = pair()?;
        assert_eq!((&a + 1.0)?.to_vec::<f32>()?, [2., 3.]);
        assert_eq!((1.0 - &a)?.to_vec::<f32>()?, [0., -1.]);
        assert_eq!((&a - 1.0)?.to_vec::<f32>()?, [0., 1.]);
        assert_eq!((2.0 * &a)?.to_vec::<f32>()?, [2., 4.]);
        assert_eq!((&a / 2.0)?.to_vec::<f32>()?, [0.5, 1.]);
        assert_eq!((1.0 / a)?.to_vec::<f32>()?, [1., 0.5]);
        Ok(())
    }

    #[test]
    fn remainders_and_bits_have_operators() -> Result<()> {
        let (a, b) = (Tensor::from_vec(vec![7i64, -7], 2, &Device::cpu())?, Tensor::from_vec(vec![4i64], 1, &Device::cpu())?);
        assert_eq!((&a % &b)?.to_vec::<i64>()?, [3, 1]);
        assert_eq!((&a % 4.0)?.to_vec::<i64>()?, [3, 1]);
        assert_eq!((10.0 % &a)?.to_vec::<i64>()?, [3, -4]);
        assert_eq!((&a & &b)?.to_vec::<i64>()?, [4, 0]);
        assert_eq!((&a | &b)?.to_vec::<i64>()?, [7, -3]);
        assert_eq!((a ^ b)?.to_vec::<i64>()?, [3, -3]);
        Ok(())
    }

    #[test]
    fn integers_take_whole_numbers_only() -> Result<()> {
        let x = Tensor::from_vec(vec![3i64, -4], 2, &Device::cpu())?;
        assert_eq!((&x * 2.0)?.to_vec::<i64>()?, [6, -8]);
        assert!((&x * 0.5).is_err() && (&x + 0.5).is_err() && (&x / 1.0).is_err() && (1.0 / &x).is_err());
        Ok(())
    }
}
