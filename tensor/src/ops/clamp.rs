//! Bounds: `y = min(max(x, low), high)`, NaN where `x` or a bound is. `dx = dy` where `low <= x <= high`, else 0, and a bound that is a tensor gets
//! what `x` does not.

use super::elementwise::{elementwise, is_beyond_f64};
use crate::ops::TensorOrScalar;
use crate::ops::compare::scalar_like;
use crate::{DType, Result, Scalar, Tensor};

/// A bound as a tensor beside `x`: for a whole number beyond an integer type the nearest that it holds.
fn bound(op: &'static str, value: impl TensorOrScalar, x: &Tensor) -> Result<Tensor> {
    let (low, high) = match x.dtype() {
        DType::U8 => (0, u8::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::I64 => (i64::MIN, i64::MAX),
        _ => return value.beside(op, x),
    };
    match value.number() {
        Some(v) if v.to_f64().fract() == 0.0 || v.to_f64().is_infinite() => {
            scalar_like(op, Scalar::Int(v.to_i64().clamp(low, high)), x)
        }
        _ => value.beside(op, x),
    }
}

#[track_caller]
fn between(op: &'static str, x: &Tensor, low: impl TensorOrScalar, high: impl TensorOrScalar) -> Result<Tensor> {
    match (low.number(), high.number()) {
        (Some(l), Some(h)) if !(is_beyond_f64(l) || is_beyond_f64(h)) => elementwise("clamp", [l.to_f64(), h.to_f64()], &[x]),
        _ => elementwise("clamp_tensor", [0.0; 2], &[x, &bound(op, low, x)?, &bound(op, high, x)?]),
    }
}

impl Tensor {
    /// `min(max(x, low), high)`; the gradient is 0 outside. Bounds are numbers, or tensors of the same type, which broadcast and get the
    /// gradient where they are taken. Integers take whole numbers, which may lie beyond their type.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![-2f32, 0.5, 9.0], 3, &Device::cpu())?;
    /// assert_eq!(x.clamp(-1.0, 1.0)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// assert_eq!(x.clamp(-1.0, &x.affine(0.0, 3.0)?)?.to_vec::<f32>()?, [-1.0, 0.5, 3.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn clamp(&self, low: impl TensorOrScalar, high: impl TensorOrScalar) -> Result<Tensor> {
        between("clamp", self, low, high)
    }
    /// `max(x, low)`. Bounds and gradients as for [`Tensor::clamp`]; `maximum` shares the gradient of ties.
    #[track_caller]
    pub fn clamp_min(&self, low: impl TensorOrScalar) -> Result<Tensor> {
        between("clamp_min", self, low, f64::INFINITY)
    }
    /// `min(x, high)`. Bounds and gradients as for [`Tensor::clamp`]; `minimum` shares the gradient of ties.
    #[track_caller]
    pub fn clamp_max(&self, high: impl TensorOrScalar) -> Result<Tensor> {
        between("clamp_max", self, f64::NEG_INFINITY, high)
    }
    /// Finite numbers in place of NaN and the infinities: `nan`, and where no other is given the largest and the smallest number of the type.
    /// The gradient is 0 at what was replaced. Integers stay as they are.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![f32::NAN, f32::INFINITY, 1.0], 3, &Device::cpu())?;
    /// assert_eq!(x.nan_to_num(0.0, None, None)?.to_vec::<f32>()?, [0.0, f32::MAX, 1.0]);
    /// assert_eq!(x.nan_to_num(7.0, Some(5.0), None)?.to_vec::<f32>()?, [7.0, 5.0, 1.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn nan_to_num(&self, nan: f64, infinity: Option<f64>, negative_infinity: Option<f64>) -> Result<Tensor> {
        let largest = match self.dtype() {
            DType::F64 => f64::MAX,
            DType::F32 => f32::MAX.into(),
            DType::F16 => half::f16::MAX.into(),
            DType::BF16 => half::bf16::MAX.into(),
            _ => return Ok(self.clone()),
        };
        let ends = [infinity.unwrap_or(largest), negative_infinity.unwrap_or(-largest)];
        elementwise("nan_to_num", ends, &[self, &scalar_like("nan_to_num", nan.into(), self)?])
    }
}

#[cfg(test)]
mod tests {
    use crate::{Device, Result, Tensor};

    #[test]
    fn integers_beyond_f64_keep_their_last_bits() -> Result<()> {
        let big = (1i64 << 53) + 1;
        let x = Tensor::from_vec(vec![0, big - 1, big, big + 1, i64::MAX], 5, &Device::cpu())?;
        assert_eq!(x.clamp(big, big + 1)?.to_vec::<i64>()?, [big, big, big, big + 1, big + 1]);
        assert_eq!(x.clamp_max(big)?.to_vec::<i64>()?, [0, big - 1, big, big, big]);
        assert_eq!(x.clamp_min(i64::MAX)?.to_vec::<i64>()?, [i64::MAX; 5]);
        assert_eq!(x.affine(1, big)?.to_vec::<i64>()?[..2], [big, 2 * big - 1]);
        Ok(())
    }

    #[test]
    fn bounds_of_integers_may_lie_beyond_their_type() -> Result<()> {
        let x = Tensor::from_vec(vec![0u8, 200], 2, &Device::cpu())?;
        assert_eq!(x.clamp(-5, 300)?.to_vec::<u8>()?, [0, 200]);
        assert_eq!(x.clamp_max(i64::MAX)?.to_vec::<u8>()?, [0, 200]);
        assert_eq!(x.clamp(&x, 100)?.to_vec::<u8>()?, [0, 100]);
        assert!(x.clamp(&x, 0.5).is_err() && x.clamp(0.5, 1).is_err() && x.clamp(&x, f64::NAN).is_err());
        Ok(())
    }
}
