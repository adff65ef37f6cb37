//! `y = (sum of |x|^p over dims)^(1/p)`, the number of elements that are not 0 for `p = 0`, the largest and smallest `|x|` for `p = inf` and `-inf`.
//! `dx = sign(x) (|x| / y)^(p - 1) dy`, 0 where `y` is 0; shared among the extremes for `p = inf` and `-inf`; 0 for `p = 0`.

use super::extremum::zero;
use super::sum::{check_float, drop_dims, reduce, reduce_made, result_type};
use crate::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, DimList, Error, Result, Shape, Tensor, exec};
use kiln_kernels::elementwise::row;
use kiln_kernels::reduce::{Made, Reduction};
use smallvec::smallvec;

/// The norm over the dims of a mask; reduced dims stay with size 1.
struct Norm {
    p: f64,
    mask: u32,
    shape: Shape,
    from: DType,
    to: DType,
}

impl Norm {
    /// A row of the elementwise table over `x`, the others broadcast.
    fn map(&self, name: &'static str, p: f64, inputs: &[&Tensor]) -> Result<Tensor> {
        exec::map("norm", row(name), [p, 0.0], inputs, &inputs[0].shape())
    }
    /// The upstream gradient in shares of the elements with the extreme magnitude, with their signs.
    fn shares(&self, x: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
        let (above, below) = (x.eq(y)?, x.eq(&y.neg()?)?);
        let count = |mask: &Tensor| reduce("norm", Reduction::Sum, mask, self.mask, DType::I64);
        let share = g.div(&count(&above)?.add(&count(&below)?)?.to_dtype(DType::F64)?)?;
        let share = y.eq(0.0)?.where_cond(&zero(g)?, &share)?.to_dtype(self.from)?;
        let negative = below.where_cond(&share.neg()?, &zero(&share)?)?;
        above.where_cond(&share, &negative)
    }
    /// `sign(x) (|x| / y)^(p - 1) g`.
    fn powers(&self, x: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
        let mut power = self.map("div", 0.0, &[x, y])?;
        power = self.map("abs", 0.0, &[&power])?;
        power = self.map("pow_scalar", self.p - 1.0, &[&power])?;
        if self.p < 1.0 {
            // An infinite slope at 0 counts as 0, as that of a magnitude does.
            power = x.eq(0.0)?.where_cond(&zero(&power)?, &power)?;
        }
        power = self.map("mul_backward_x", 0.0, &[&power, &power, g])?;
        self.map("abs_backward", 0.0, &[x, &power])
    }
}

impl Op for Norm {
    fn name(&self) -> &'static str {
        "norm"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (x, p) = (&inputs[0], self.p);
        let fold = |made, to| reduce_made("norm", made, x, self.mask, None, to);
        let y = if p == 0.0 {
            reduce("norm", Reduction::Sum, &x.ne(0.0)?, self.mask, DType::I64)?
        } else if p == f64::INFINITY {
            fold(Made::AbsMax, self.to)?
        } else if p == f64::NEG_INFINITY {
            fold(Made::AbsMin, self.to)?
        } else if p == 1.0 {
            fold(Made::AbsSum, DType::F64)?
        } else if p == 2.0 {
            fold(Made::SquareSum, DType::F64)?.sqrt()?
        } else {
            fold(Made::PowSum(p), DType::F64)?.powf(1.0 / p)?
        };
        Ok(y.to_dtype(self.to)?.into())
    }
    fn save(&self, inputs: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        if self.p != 0.0 {
            keep.tensor(&inputs[0])?;
            keep.tensor(&outputs.results[0])?;
        }
        Ok(())
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?.to_dtype(DType::F64)?;
        if self.p == 0.0 {
            return Ok(smallvec![Some(Tensor::zeros(&self.shape, self.from, g.device())?)]);
        }
        let (x, y) = (saved.take(0)?, saved.take(1)?);
        let narrow = |t: &Tensor| t.to_dtype(self.from);
        // Where the norm is 0 all gradients are.
        let masked = |t: &Tensor| y.eq(0.0)?.where_cond(&zero(t)?, t);
        let dx = if self.p == 1.0 {
            self.map("abs_backward", 0.0, &[&x, &narrow(&g)?])?
        } else if self.p == 2.0 {
            let scale = narrow(&masked(&g.div(&y.to_dtype(DType::F64)?)?)?)?;
            self.map("mul_backward_x", 0.0, &[&x, &x, &scale])?
        } else if self.p.is_infinite() {
            self.shares(&x, &narrow(&y)?, &g)?
        } else {
            self.powers(&x, &narrow(&y)?, &narrow(&masked(&g)?)?)?
        };
        Ok(smallvec![Some(dx)])
    }
}

impl Tensor {
    #[track_caller]
    fn norm_over(&self, p: f64, mask: u32) -> Result<Tensor> {
        check_float("norm", self)?;
        if p.is_nan() {
            return Err(Error::argument("norm", format!("there is no norm of order {p}")));
        }
        if p < 0.0 || p == f64::INFINITY {
            self.check_compared("norm", mask)?;
        }
        let from = self.dtype();
        apply(Norm { p, mask, shape: self.shape(), from, to: result_type(from) }, &[self])
    }
    /// The p-norm over dims, which vanish; `()` means all: `(sum of |x|^p)^(1/p)`. For `p = 0` the number of elements that are not 0, for infinity the
    /// largest magnitude, for minus infinity the smallest. Powers are added up in f64: squares of f32 elements neither overflow nor vanish. The
    /// gradient is 0 where the norm is.
    ///
    /// # Errors
    /// For integers; for a `p` of NaN; for nothing where `p` is negative or infinite.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![3e30f32, -4e30], 2, &Device::cpu())?;
    /// assert_eq!(x.norm(2.0, ())?.to_scalar::<f32>()?, 5e30);
    /// assert_eq!(x.norm(f64::INFINITY, -1)?.to_scalar::<f32>()?, 4e30);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[doc(alias = "vector_norm")]
    #[track_caller]
    pub fn norm(&self, p: f64, dims: impl DimList) -> Result<Tensor> {
        let mask = dims.mask("norm", &self.shape())?;
        drop_dims(&self.norm_over(p, mask)?, mask)
    }
    /// The p-norm over dims, which stay with size 1; see [`Tensor::norm`].
    #[track_caller]
    pub fn norm_keepdim(&self, p: f64, dims: impl DimList) -> Result<Tensor> {
        self.norm_over(p, dims.mask("norm", &self.shape())?)
    }
}
