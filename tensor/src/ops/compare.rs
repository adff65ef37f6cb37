//! `y = x <op> other` as a mask of u8, 0 or 1. Masks are piecewise constant: they carry no history.

use crate::op::{Autocast, BackwardContext, Derivative, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, Error, Result, Scalar, Tensor, exec};
use kiln_kernels::Arg;
use kiln_kernels::compare::{self, Comparison};

struct Compare(Comparison);

impl Op for Compare {
    fn name(&self) -> &'static str {
        match self.0 {
            Comparison::Eq => "eq",
            Comparison::Ne => "ne",
            Comparison::Lt => "lt",
            Comparison::Le => "le",
            Comparison::Gt => "gt",
            Comparison::Ge => "ge",
        }
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (name, a, b) = (self.name(), &inputs[0], &inputs[1]);
        if a.dtype() != b.dtype() {
            let message = format!("operands have types {} and {}; convert one with `to_dtype`", a.dtype(), b.dtype());
            return Err(Error::dtype(name, message));
        }
        let shape = a.shape().broadcast(&b.shape(), name)?;
        let (a_view, b_view) = (exec::broadcast_view(name, a, &shape)?, exec::broadcast_view(name, b, &shape)?);
        let mask = exec::fill_new(name, &shape, DType::U8, a.device(), |out, stream| {
            let (a_token, b_token) = (a.storage().read(stream)?, b.storage().read(stream)?);
            let (x, y) = (Arg::new(&a_token, a.dtype(), &a_view), Arg::new(&b_token, b.dtype(), &b_view));
            a.device().run(compare::Compare { op: self.0, a: x, b: y, out }, stream)
        })?;
        Ok(mask.into())
    }
    fn backward(&self, _: OutputGrads, _: &mut SavedTensors, _: &BackwardContext<'_>) -> Result<InputGrads> {
        Err(Error::NoDerivative { op: self.name() })
    }
    fn derivative(&self) -> Derivative {
        Derivative::Discrete
    }
    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }
}

/// The other operand of a comparison, remainder or the like: a tensor, or a number.
pub trait TensorOrScalar {
    /// As a tensor next to `left`.
    fn beside(self, op: &'static str, left: &Tensor) -> Result<Tensor>;
    /// The number, where it is one.
    fn number(&self) -> Option<Scalar> {
        None
    }
}

impl TensorOrScalar for &Tensor {
    fn beside(self, _: &'static str, _: &Tensor) -> Result<Tensor> {
        Ok(self.clone())
    }
}

macro_rules! scalars {
    ($($t:ty),*) => {$(
        impl TensorOrScalar for $t {
            fn beside(self, op: &'static str, left: &Tensor) -> Result<Tensor> {
                scalar_like(op, self.into(), left)
            }
            fn number(&self) -> Option<Scalar> {
                Some((*self).into())
            }
        }
    )*};
}
scalars!(f64, f32, i64, i32, u32, u8, usize, Scalar);

/// A number as a tensor with no dims in the type and place of `like`.
///
/// # Errors
/// Where `like` has an integer type that does not hold it.
pub(crate) fn scalar_like(op: &'static str, value: Scalar, like: &Tensor) -> Result<Tensor> {
    check_holds(op, value, like.dtype())?;
    Tensor::full(value, (), like.dtype(), like.device())
}

/// The first number past i64.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;

/// An error where an integer type does not hold a number.
pub(crate) fn check_holds(op: &'static str, value: Scalar, dtype: DType) -> Result<()> {
    let (low, high) = match dtype {
        DType::U8 => (0, u8::MAX as i64),
        DType::U32 => (0, u32::MAX as i64),
        DType::I64 => (i64::MIN, i64::MAX),
        _ => return Ok(()),
    };
    let whole = matches!(value, Scalar::Int(_)) || value.to_f64().fract() == 0.0 && (-TWO_63..TWO_63).contains(&value.to_f64());
    if whole && (low..=high).contains(&value.to_i64()) {
        return Ok(());
    }
    Err(Error::argument(op, format!("{} is no {dtype}; convert the tensor with `to_dtype`", value.to_f64())))
}

macro_rules! comparison {
    ($($(#[$doc:meta])* $name:ident = $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// The other side is a tensor of the same element type, which broadcasts, or a number. The result is a u8 mask of 0 and 1.
            #[track_caller]
            pub fn $name(&self, other: impl TensorOrScalar) -> Result<Tensor> {
                apply(Compare(Comparison::$op), &[self, &other.beside(stringify!($name), self)?])
            }
        )*}
    };
}

comparison! {
    /// Where elements are equal; NaN is equal to nothing.
    eq = Eq;
    /// Where elements differ.
    ne = Ne;
    /// Where elements are less.
    lt = Lt;
    /// Where elements are less or equal.
    le = Le;
    /// Where elements are greater.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![-1f32, 0.0, 2.0], 3, &Device::cpu())?;
    /// assert_eq!(x.gt(0.0)?.to_vec::<u8>()?, [0, 0, 1]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    gt = Gt;
    /// Where elements are greater or equal.
    ge = Ge;
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn compares_with_broadcasting() -> Result<()> {
        let device = Device::cpu();
        let a = Tensor::from_vec(vec![1f32, 2., f32::NAN], (3, 1), &device)?;
        let b = Tensor::from_vec(vec![1f32, 3.], 2, &device)?;
        assert_eq!(a.eq(&b)?.to_vec2::<u8>()?, [[1, 0], [0, 0], [0, 0]]);
        assert_eq!(a.ne(&b)?.to_vec2::<u8>()?, [[0, 1], [1, 1], [1, 1]]);
        assert_eq!(a.lt(&b)?.to_vec2::<u8>()?, [[0, 1], [0, 1], [0, 0]]);
        assert_eq!(a.ge(&b)?.to_vec2::<u8>()?, [[1, 0], [1, 0], [0, 0]]);
        Ok(())
    }

    #[test]
    fn compares_with_numbers() -> Result<()> {
        let x = Tensor::from_vec(vec![1i64, 2, 3], 3, &Device::cpu())?;
        assert_eq!(x.le(2)?.to_vec::<u8>()?, [1, 1, 0]);
        assert_eq!(x.gt(2.0)?.to_vec::<u8>()?, [0, 0, 1]);
        Ok(())
    }

    #[test]
    fn a_number_the_type_does_not_hold_is_an_error() -> Result<()> {
        let x = Tensor::zeros(3, DType::U8, &Device::cpu())?;
        assert!(x.lt(0.5).is_err() && x.eq(-1).is_err() && x.eq(256).is_err() && x.eq(f64::NAN).is_err());
        assert!(x.to_dtype(DType::I64)?.lt(1e19).is_err());
        Ok(())
    }

    #[test]
    fn masks_have_no_history() -> Result<()> {
        let x = Tensor::zeros(3, DType::F32, &Device::cpu())?.requires_grad()?;
        assert!(!x.ge(0.0)?.tracked());
        Ok(())
    }
}
