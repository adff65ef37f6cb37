//! `a + b`, `a - b`, `a * b`, `a / b` and `-a` for tensors, and for a tensor with a number on either side. Each gives a `Result`: shapes may not fit.
//!
//! `x / s` is `x * (1 / s)`, so nothing has to be saved for its backward.

use crate::ops::compare::scalar_like;
use crate::{Error, Result, Tensor};
use std::ops::{Add, Div, Mul, Neg, Sub};

#[track_caller]
fn times(x: &Tensor, factor: f64, op: &'static str) -> Result<Tensor> {
    match x.dtype().is_float() || op == "mul" {
        true => x.affine(factor, 0.0),
        false => Err(Error::dtype(op, format!("not defined for {}; convert with `to_dtype`", x.dtype()))),
    }
}

macro_rules! operator {
    ($trait:ident $name:ident, $x:ident, $s:ident: right $right:expr, left $left:expr) => {
        operator!(@tensors $trait $name, &Tensor, &Tensor);
        operator!(@tensors $trait $name, &Tensor, Tensor);
        operator!(@tensors $trait $name, Tensor, &Tensor);
        operator!(@tensors $trait $name, Tensor, Tensor);
        operator!(@number $trait $name, &Tensor, $x, $s, $right, $left);
        operator!(@number $trait $name, Tensor, $x, $s, $right, $left);
    };
    (@tensors $trait:ident $name:ident, $a:ty, $b:ty) => {
        impl $trait<$b> for $a {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $name(self, other: $b) -> Result<Tensor> {
                Tensor::$name(&self, &other)
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

operator!(Add add, x, s: right x.affine(1.0, s), left x.affine(1.0, s));
operator!(Sub sub, x, s: right x.affine(1.0, -s), left x.affine(-1.0, s));
operator!(Mul mul, x, s: right times(x, s, "mul"), left times(x, s, "mul"));
operator!(Div div, x, s: right times(x, 1.0 / s, "div"), left scalar_like("div", s.into(), x)?.div(x));

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
    fn integers_take_whole_numbers_only() -> Result<()> {
        let x = Tensor::from_vec(vec![3i64, -4], 2, &Device::cpu())?;
        assert_eq!((&x * 2.0)?.to_vec::<i64>()?, [6, -8]);
        assert!((&x * 0.5).is_err() && (&x + 0.5).is_err() && (&x / 1.0).is_err() && (1.0 / &x).is_err());
        Ok(())
    }
}
