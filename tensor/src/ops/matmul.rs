//! `C = A·B`, matrices or batches of them with NumPy broadcasting; `dA = dC·Bᵀ`, `dB = Aᵀ·dC`, added up over the batch dims that were broadcast.

use super::product::{operand, product};
use super::sum::reduce;
use crate::op::{Autocast, BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{Error, Layout, Result, Shape, Tensor};
use kiln_kernels::reduce::Reduction;
use smallvec::smallvec;

const NAME: &str = "matmul";

struct MatMul {
    a: Shape,
    b: Shape,
}

impl Op for MatMul {
    fn name(&self) -> &'static str {
        NAME
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(product(NAME, &inputs[0], &inputs[1], inputs[0].dtype())?.into())
    }
    /// Each operand is read for the gradient of the other alone.
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        if keep.needs(1) {
            keep.tensor(&inputs[0])?;
        }
        if keep.needs(0) {
            keep.tensor(&inputs[1])?;
        }
        Ok(())
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = operand(&ctx.only(grads)?)?;
        let da = match ctx.needs(0) {
            true => Some(left_gradient(&g, &saved.take(usize::from(ctx.recorded(1)))?, &self.a)?),
            false => None,
        };
        let db = match ctx.needs(1) {
            true => Some(right_gradient(&saved.take(0)?, &g, &self.b)?),
            false => None,
        };
        Ok(smallvec![da, db])
    }
    fn autocast(&self) -> Autocast {
        Autocast::Low
    }
}

/// `g·bᵀ`, added up to the shape of `a`.
fn left_gradient(g: &Tensor, b: &Tensor, shape: &Shape) -> Result<Tensor> {
    added_up(g, &b.t()?, shape)
}

/// `aᵀ·g`, added up to the shape of `b`. One matrix `b` for a whole batch of `a` is one product over all rows of the batch.
fn right_gradient(a: &Tensor, g: &Tensor, shape: &Shape) -> Result<Tensor> {
    let [batch @ .., k, n] = shape.dims() else { return Err(Error::shape(NAME, "an operand has lost its dims")) };
    if batch.iter().any(|&d| d != 1) {
        return added_up(&a.t()?, g, shape);
    }
    let lead = &g.dims()[..g.rank() - 1];
    let rows = |t: &Tensor, cols: usize| t.expand([lead, &[cols]].concat())?.reshape((lead.iter().product::<usize>(), cols));
    let db = product(NAME, &rows(a, *k)?.t()?, &rows(g, *n)?, a.dtype())?;
    Ok(db.with_layout(Layout::contiguous(shape.dims())))
}

/// `a·b`, added up over the batch dims in which it is larger than `shape`, in f32 or wider.
fn added_up(a: &Tensor, b: &Tensor, shape: &Shape) -> Result<Tensor> {
    let dtype = a.dtype();
    let batched = |t: &Tensor| Shape::from(&t.dims()[..t.rank() - 2]);
    let full = batched(a).broadcast(&batched(b), NAME)?;
    let own = &shape.dims()[..shape.rank() - 2];
    if full.dims() == own {
        return product(NAME, a, b, dtype);
    }
    let whole = product(NAME, a, b, dtype.accumulator())?;
    let lead = full.rank() - own.len();
    let mask = (0..full.rank()).filter(|&d| d < lead || own[d - lead] != full.dims()[d]).fold(0u32, |mask, d| mask | 1 << d);
    let sum = reduce(NAME, Reduction::Sum, &whole, mask, dtype.accumulator())?.to_dtype(dtype)?;
    Ok(sum.with_layout(Layout::contiguous(shape.dims())))
}

impl Tensor {
    /// The matrix product. `[.., m, k] @ [.., k, n]` is `[.., m, n]`: the dims in front broadcast. A tensor with one dim counts as a row on
    /// the left, as a column on the right, and that dim is gone from the result. 16-bit floats are added up in f32.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// let device = Device::cpu();
    /// let a = Tensor::from_vec(vec![1f32, 2.0, 3.0, 4.0], (2, 2), &device)?;
    /// let b = Tensor::from_vec(vec![1f32, 10.0], 2, &device)?;
    /// assert_eq!(a.matmul(&b)?.to_vec::<f32>()?, [21.0, 43.0]);
    /// assert_eq!(a.expand((5, 2, 2))?.matmul(&a)?.dims(), [5, 2, 2]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where `k` or the dims in front do not fit, an operand has no dims, or the types are not floats of one kind.
    #[track_caller]
    pub fn matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        let k = self.dims().last();
        let rhs_k = rhs.dims().get(rhs.rank().saturating_sub(2));
        if k.is_none() || rhs_k.is_none() || k != rhs_k {
            return Err(Error::shape(NAME, format!("shapes {} and {} do not multiply", self.shape(), rhs.shape())));
        }
        match (self.rank(), rhs.rank()) {
            (1, _) => self.unsqueeze(0)?.matmul(rhs)?.squeeze(if rhs.rank() == 1 { 0 } else { -2 }),
            (_, 1) => self.matmul(&rhs.unsqueeze(1)?)?.squeeze(-1),
            _ => apply(MatMul { a: self.shape(), b: rhs.shape() }, &[self, rhs]),
        }
    }
}
