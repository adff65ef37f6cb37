//! `y = a` where the mask is not 0, `b` elsewhere. `da = dy` where the mask is not 0 and 0 elsewhere, `db` the other way round: gradients are selected,
//! never multiplied, so no NaN crosses over.

use crate::op::{Autocast, BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::ops::compare::scalar_like;
use crate::saved::SavedTensors;
use crate::{DType, Error, Result, Scalar, Shape, Tensor, exec};
use kiln_kernels::{Arg, compare};
use smallvec::smallvec;

struct Where {
    name: &'static str,
    a: Shape,
    b: Shape,
}

/// `a` where `mask` is not 0, `b` elsewhere, all broadcast to `shape`.
fn select(op: &'static str, mask: &Tensor, a: &Tensor, b: &Tensor, shape: &Shape) -> Result<Tensor> {
    let view = |t: &Tensor| exec::broadcast_view(op, t, shape);
    let (mask_view, a_view, b_view) = (view(mask)?, view(a)?, view(b)?);
    exec::fill_new(op, shape, a.dtype(), a.device(), |out, stream| {
        let (m, x, y) = (mask.storage().read(stream)?, a.storage().read(stream)?, b.storage().read(stream)?);
        let mask = Arg::new(&m, DType::U8, &mask_view);
        let (x, y) = (Arg::new(&x, a.dtype(), &a_view), Arg::new(&y, b.dtype(), &b_view));
        a.device().run(compare::Select { mask, a: x, b: y, out }, stream)
    })
}

impl Op for Where {
    fn name(&self) -> &'static str {
        self.name
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let [mask, a, b] = inputs else {
            return Err(Error::message("where_cond takes three inputs"));
        };
        if a.dtype() != b.dtype() {
            let message = format!("operands have types {} and {}; convert one with `to_dtype`", a.dtype(), b.dtype());
            return Err(Error::dtype(self.name, message));
        }
        let shape = mask.shape().broadcast(&a.shape(), self.name)?.broadcast(&b.shape(), self.name)?;
        Ok(select(self.name, mask, a, b, &shape)?.into())
    }
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&inputs[0])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let (g, mask) = (ctx.only(grads)?, saved.take(0)?);
        let zero = Tensor::zeros((), g.dtype(), g.device())?;
        let mut result: InputGrads = smallvec![None, None, None];
        if ctx.needs(1) {
            result[1] = Some(select(self.name, &mask, &g, &zero, &g.shape())?.sum_to(&self.a)?);
        }
        if ctx.needs(2) {
            result[2] = Some(select(self.name, &mask, &zero, &g, &g.shape())?.sum_to(&self.b)?);
        }
        Ok(result)
    }
    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }
}

fn check_mask(op: &'static str, mask: &Tensor) -> Result<()> {
    if mask.dtype() == DType::U8 {
        return Ok(());
    }
    Err(Error::dtype(op, format!("the mask has type {}; compare it with 0 (`mask.ne(0)`) to get a mask of u8", mask.dtype())))
}

impl Tensor {
    /// `on_true` where this mask (u8) is not 0, `on_false` elsewhere; all three broadcast. The side that is not taken gets a gradient of 0.
    ///
    /// # Errors
    /// For a mask of another type; where types differ or shapes do not broadcast.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![-1f32, 2.0], 2, &Device::cpu())?;
    /// let y = x.gt(0.0)?.where_cond(&x, &x.neg()?)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn where_cond(&self, on_true: &Tensor, on_false: &Tensor) -> Result<Tensor> {
        check_mask("where_cond", self)?;
        apply(Where { name: "where_cond", a: on_true.shape(), b: on_false.shape() }, &[self, on_true, on_false])
    }

    /// A number where the mask (u8, broadcasts to this shape) is not 0, these elements elsewhere. Masked elements get a gradient of 0.
    ///
    /// # Errors
    /// For a mask of another type, or whose shape does not broadcast to this one; for a number an integer type does not hold.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![-1f32, 2.0], 2, &Device::cpu())?;
    /// assert_eq!(x.masked_fill(&x.lt(0.0)?, f64::NEG_INFINITY)?.to_vec::<f32>()?, [f32::NEG_INFINITY, 2.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        check_mask("masked_fill", mask)?;
        exec::broadcast_view("masked_fill", mask, &self.shape())?;
        let value = scalar_like("masked_fill", value.into(), self)?;
        apply(Where { name: "masked_fill", a: Shape::default(), b: self.shape() }, &[mask, &value, self])
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn all_three_broadcast() -> Result<()> {
        let device = Device::cpu();
        let mask = Tensor::from_vec(vec![1u8, 0], (2, 1), &device)?;
        let (a, b) = (Tensor::from_vec(vec![1i64, 2, 3], 3, &device)?, Tensor::full(9, (), DType::I64, &device)?);
        assert_eq!(mask.where_cond(&a, &b)?.to_vec2::<i64>()?, [[1, 2, 3], [9, 9, 9]]);
        Ok(())
    }

    #[test]
    fn a_mask_must_not_widen_what_it_fills() -> Result<()> {
        let x = Tensor::zeros(3, DType::F32, &Device::cpu())?;
        let e = x.masked_fill(&Tensor::zeros((2, 3), DType::U8, &Device::cpu())?, 1.0).unwrap_err().to_string();
        assert!(e.contains("[2, 3]") && e.contains("masked_fill"), "{e}");
        assert!(x.masked_fill(&x, 1.0).is_err());
        assert!(x.ge(0.0)?.where_cond(&x, &x.to_dtype(DType::F64)?).is_err());
        Ok(())
    }
}
