//! `y = sum of x over dims`, and the mean; `dx = dy` (over the count), spread over the dims.

use crate::op::{BackwardContext, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, DimList, Error, Layout, Result, Shape, Tensor, exec, modes};
use kiln_kernels::Arg;
use kiln_kernels::reduce::{Made, Reduce, ReduceMade, Reduction};
use smallvec::smallvec;

/// A sum or mean over the dims of a mask; reduced dims stay with size 1.
struct Fold {
    op: Reduction,
    mask: u32,
    input: Shape,
    from: DType,
    to: DType,
}

impl Op for Fold {
    fn name(&self) -> &'static str {
        if self.op == Reduction::Mean { "mean" } else { "sum" }
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(reduce(self.name(), self.op, &inputs[0], self.mask, self.to)?.into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let mut g = ctx.only(grads)?.to_dtype(self.from)?;
        if self.op == Reduction::Mean {
            let count: f64 =
                self.input.dims().iter().enumerate().filter(|(d, _)| self.mask >> d & 1 == 1).map(|(_, &n)| n as f64).product();
            g = g.affine(1.0 / count, 0.0)?;
        }
        // One number serves a whole row: the spread gradient is a view with stride 0.
        let spread =
            g.layout().broadcast_to(self.input.dims()).ok_or_else(|| Error::shape(self.name(), "gradient does not broadcast"))?;
        Ok(smallvec![Some(g.with_layout(spread))])
    }
}

/// Reduces the dims of `mask`; they stay with size 1.
pub(crate) fn reduce(op: &'static str, reduction: Reduction, x: &Tensor, mask: u32, to: DType) -> Result<Tensor> {
    let dims = kept(x, mask);
    if x.elem_count() == 0 {
        // Nothing is folded; the product of the other dims may overflow.
        let of_nothing = match reduction {
            Reduction::Mean => f64::NAN,
            Reduction::Product => 1.0,
            _ => 0.0,
        };
        return Tensor::full(of_nothing, dims, to, x.device());
    }
    exec::fill_new(op, &dims, to, x.device(), |out, stream| {
        let token = x.storage().read(stream)?;
        x.device().run(Reduce { op: reduction, x: Arg::new(&token, x.dtype(), x.layout()), dims: mask, out }, stream)
    })
}

/// Folds what is made of each element over the dims of `mask`, which stay with size 1; `shift` has one f64 number a result.
#[track_caller]
pub(crate) fn reduce_made(
    op: &'static str,
    made: Made,
    x: &Tensor,
    mask: u32,
    shift: Option<&Tensor>,
    to: DType,
) -> Result<Tensor> {
    let shape = kept(x, mask);
    if x.elem_count() == 0 {
        return Tensor::zeros(shape, to, x.device());
    }
    exec::fill_new(op, &shape, to, x.device(), |out, stream| {
        let token = x.storage().read(stream)?;
        let shift_token = shift.map(|s| s.storage().read(stream)).transpose()?;
        let shift = shift.zip(shift_token.as_ref()).map(|(s, token)| Arg::new(token, s.dtype(), s.layout()));
        x.device().run(ReduceMade { op: made, x: Arg::new(&token, x.dtype(), x.layout()), dims: mask, shift, out }, stream)
    })
}

/// The shape with the dims of `mask` at size 1.
pub(crate) fn kept(x: &Tensor, mask: u32) -> Shape {
    x.dims().iter().enumerate().map(|(d, &n)| if mask >> d & 1 == 1 { 1 } else { n }).collect::<Vec<_>>().into()
}

/// Number of elements in the dims of `mask`, which are what one result is made of.
pub(crate) fn count(x: &Tensor, mask: u32) -> f64 {
    x.dims().iter().enumerate().filter(|(d, _)| mask >> d & 1 == 1).map(|(_, &n)| n as f64).product()
}

/// The type of the result of a reduction: under autocast it leaves the 16-bit type, where it would overflow.
pub(crate) fn result_type(from: DType) -> DType {
    if modes::with(|m| m.autocast.is_some()) { from.accumulator() } else { from }
}

/// An error where a reduction takes floats alone.
pub(crate) fn check_float(op: &'static str, x: &Tensor) -> Result<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    Err(Error::dtype(op, format!("not defined for {}; convert to a float type with `to_dtype`", x.dtype())))
}

/// The tensor without the dims of `mask`, which have size 1.
#[track_caller]
pub(crate) fn drop_dims(x: &Tensor, mask: u32) -> Result<Tensor> {
    let dims: Vec<usize> = x.dims().iter().enumerate().filter(|(d, _)| mask >> d & 1 == 0).map(|(_, &n)| n).collect();
    x.reshape(dims)
}

impl Tensor {
    #[track_caller]
    fn fold(&self, op: Reduction, mask: u32) -> Result<Tensor> {
        let from = self.dtype();
        let to = match (op, from) {
            (Reduction::Mean, d) if !d.is_float() => {
                return Err(Error::dtype("mean", format!("not defined for {d}; convert with `to_dtype`")));
            }
            (_, DType::U8 | DType::U32) => DType::I64,
            (_, d) => result_type(d),
        };
        apply(Fold { op, mask, input: self.shape(), from, to }, &[self])
    }
    /// The sum of all elements, with no dims. Sums of u8 and u32 are i64.
    #[track_caller]
    pub fn sum_all(&self) -> Result<Tensor> {
        let mask = ().mask("sum", &self.shape())?;
        drop_dims(&self.fold(Reduction::Sum, mask)?, mask)
    }
    /// The mean of all elements, with no dims; NaN of nothing.
    #[track_caller]
    pub fn mean_all(&self) -> Result<Tensor> {
        let mask = ().mask("mean", &self.shape())?;
        drop_dims(&self.fold(Reduction::Mean, mask)?, mask)
    }
    /// The sum over dims, which vanish. `()` means all.
    #[track_caller]
    pub fn sum(&self, dims: impl DimList) -> Result<Tensor> {
        let mask = dims.mask("sum", &self.shape())?;
        drop_dims(&self.fold(Reduction::Sum, mask)?, mask)
    }
    /// The sum over dims, which stay with size 1.
    #[track_caller]
    pub fn sum_keepdim(&self, dims: impl DimList) -> Result<Tensor> {
        self.fold(Reduction::Sum, dims.mask("sum", &self.shape())?)
    }
    /// The mean over dims, which vanish. `()` means all.
    #[track_caller]
    pub fn mean(&self, dims: impl DimList) -> Result<Tensor> {
        let mask = dims.mask("mean", &self.shape())?;
        drop_dims(&self.fold(Reduction::Mean, mask)?, mask)
    }
    /// The mean over dims, which stay with size 1.
    #[track_caller]
    pub fn mean_keepdim(&self, dims: impl DimList) -> Result<Tensor> {
        self.fold(Reduction::Mean, dims.mask("mean", &self.shape())?)
    }

    /// Summed over the dims in which `shape` was broadcast to this one: the gradient of a broadcast.
    pub(crate) fn sum_to(&self, shape: &Shape) -> Result<Tensor> {
        if self.dims() == shape.dims() {
            return Ok(self.clone());
        }
        let lead = self.rank() - shape.rank();
        let spread = |d: usize| d < lead || (shape.dims()[d - lead] == 1 && self.dims()[d] != 1);
        let mask = (0..self.rank()).filter(|&d| spread(d)).fold(0u32, |m, d| m | 1 << d);
        let folded = if mask == 0 { self.clone() } else { reduce("sum", Reduction::Sum, self, mask, self.dtype())? };
        Ok(folded.with_layout(Layout::contiguous(shape.dims())))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Device, Tensor};

    #[test]
    fn sums_over_any_dims() -> crate::Result<()> {
        let x = Tensor::from_vec((0..6).map(|v| v as f32).collect(), (2, 3), &Device::cpu())?;
        assert_eq!(x.sum([0])?.to_vec::<f32>()?, [3., 5., 7.]);
        assert_eq!(x.sum([-1])?.to_vec::<f32>()?, [3., 12.]);
        assert_eq!(x.sum(-1)?.to_vec::<f32>()?, [3., 12.]);
        assert_eq!(x.sum(())?.to_scalar::<f32>()?, 15.);
        assert_eq!(x.sum_keepdim([0, 1])?.dims(), [1, 1]);
        assert_eq!(x.mean_all()?.to_scalar::<f32>()?, 2.5);
        Ok(())
    }
}
