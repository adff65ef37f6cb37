//! Elements put around a tensor. A constant: `dx` is the part of `dy` in the middle. Other modes read `x` by index, and `dx` sums up `dy` by that index.

use super::narrow::Slice;
use crate::op::{BackwardContext, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::ops::compare::check_holds;
use crate::saved::SavedTensors;
use crate::{DType, Error, Result, Scalar, Shape, Tensor, exec};
use kiln_kernels::copy::{Copy, Fill};
use kiln_kernels::{Arg, OutArg};
use smallvec::smallvec;

/// What [`Tensor::pad`] puts around the elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// One number.
    Constant(f64),
    /// The elements mirrored at the first and the last, which are not repeated; fewer than the dim has.
    Reflect,
    /// The first and the last element.
    Replicate,
    /// The elements from the other end on; at most as many as the dim has.
    Circular,
}

/// A number around `x`, which is the part `middle` of the result.
struct Constant {
    value: Scalar,
    middle: Slice,
}

impl Op for Constant {
    fn name(&self) -> &'static str {
        "pad"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let x = &inputs[0];
        let y = exec::fill_new("pad", &self.middle.from, x.dtype(), x.device(), |out, stream| {
            x.device().run(Fill { value: self.value, out }, stream)
        })?;
        let stream = x.device().stream();
        let read = x.storage().read(&stream)?;
        let mut token = y.storage().write_new(&stream)?;
        let part = self.middle.part(y.layout());
        let out = OutArg::new(&mut token, x.dtype(), &part);
        x.device().run(Copy { x: Arg::new(&read, x.dtype(), x.layout()), out }, &stream)?;
        drop(token);
        Ok(y.into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        Ok(smallvec![Some(g.with_layout(self.middle.part(g.layout())))])
    }
}

impl Tensor {
    /// Elements put around this tensor: `amounts` has two numbers a dim, before and after it, and begins with the **last** dim, as in PyTorch; dims not
    /// reached stay. A negative amount takes elements away.
    ///
    /// # Errors
    /// For an odd number of amounts, more than there are dims, or more elements than the mode or a dim has; for a number that an integer type does not hold.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, PadMode};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3], 3, &Device::cpu())?;
    /// assert_eq!(x.pad(&[1, 2], PadMode::Constant(0.0))?.to_vec::<i64>()?, [0, 1, 2, 3, 0, 0]);
    /// assert_eq!(x.pad(&[2, 1], PadMode::Reflect)?.to_vec::<i64>()?, [3, 2, 1, 2, 3, 2]);
    /// assert_eq!(x.pad(&[-1, 1], PadMode::Replicate)?.to_vec::<i64>()?, [2, 3, 3]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn pad(&self, amounts: &[i64], mode: PadMode) -> Result<Tensor> {
        let from = self.shape();
        if !amounts.len().is_multiple_of(2) || amounts.len() / 2 > from.rank() {
            let message = format!("{} amounts for shape {from}; two a dim are expected, the last dim first", amounts.len());
            return Err(Error::argument("pad", message));
        }
        // What is taken away goes first.
        let mut x = self.clone();
        let mut around = vec![(0, 0); from.rank()];
        for (k, pair) in amounts.chunks_exact(2).enumerate() {
            let (d, n) = (from.rank() - 1 - k, from.dims()[from.rank() - 1 - k]);
            let cut = |amount: i64| usize::try_from(amount.min(0).unsigned_abs()).unwrap_or(usize::MAX);
            let added = |amount: i64| usize::try_from(amount.max(0)).unwrap_or(usize::MAX);
            let left = n.checked_sub(cut(pair[0])).and_then(|rest| rest.checked_sub(cut(pair[1])));
            let Some(left) = left else {
                return Err(Error::argument("pad", format!("{pair:?} takes more away than dim {d} of shape {from} has")));
            };
            x = x.narrow(d, cut(pair[0]), left)?;
            around[d] = (added(pair[0]), added(pair[1]));
        }
        match mode {
            PadMode::Constant(value) => x.pad_constant(&around, value),
            _ => {
                for (d, &(before, after)) in around.iter().enumerate() {
                    if (before, after) != (0, 0) {
                        x = x.pad_by_index(d, before, after, mode)?;
                    }
                }
                Ok(x)
            }
        }
    }

    #[track_caller]
    fn pad_constant(&self, around: &[(usize, usize)], value: f64) -> Result<Tensor> {
        let value = Scalar::from(value);
        check_holds("pad", value, self.dtype())?;
        if around.iter().all(|&amounts| amounts == (0, 0)) {
            return Ok(self.clone());
        }
        let to = padded(self, around)?;
        let mut middle = Slice::whole("pad", to);
        for (d, &(before, _)) in around.iter().enumerate() {
            (middle.start[d], middle.len[d]) = (before, self.dims()[d]);
        }
        apply(Constant { value, middle }, &[self])
    }

    #[track_caller]
    fn pad_by_index(&self, dim: usize, before: usize, after: usize, mode: PadMode) -> Result<Tensor> {
        let n = self.dims()[dim];
        let most = match mode {
            PadMode::Reflect => n.saturating_sub(1),
            PadMode::Circular => n,
            _ if n > 0 => usize::MAX,
            _ => 0,
        };
        if before.max(after) > most {
            let message =
                format!("{before} and {after} elements around dim {dim} of shape {} are too many for {mode:?}", self.shape());
            return Err(Error::argument("pad", message));
        }
        let mut around = vec![(0, 0); self.rank()];
        around[dim] = (before, after);
        padded(self, &around)?;
        if mode == PadMode::Circular {
            return Tensor::cat(&[&self.narrow(dim, n - before, before)?, self, &self.narrow(dim, 0, after)?], dim);
        }
        let range = |start: i64, end: i64, step: i64| Tensor::arange(start, end, step, DType::I64, self.device());
        let (size, before, after) = (n as i64, before as i64, after as i64);
        let (head, tail) = match mode {
            PadMode::Reflect => (range(before, 0, -1)?, range(size - 2, size - 2 - after, -1)?),
            _ => {
                let same = |value: i64, len: i64| Tensor::full(value, len as usize, DType::I64, self.device());
                (same(0, before)?, same(size - 1, after)?)
            }
        };
        self.index_select(dim, &Tensor::cat(&[head, range(0, size, 1)?, tail], 0)?)
    }
}

/// The shape with so many elements before and after each dim.
fn padded(x: &Tensor, around: &[(usize, usize)]) -> Result<Shape> {
    let size = |(&n, &(before, after)): (&usize, &(usize, usize))| n.checked_add(before)?.checked_add(after);
    let dims = x.dims().iter().zip(around).map(size).collect::<Option<Vec<usize>>>();
    let to = Shape::from(dims.ok_or_else(|| Error::SizeOverflow { shape: x.shape(), dtype: x.dtype() })?);
    to.checked_elements("pad", x.dtype())?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::PadMode::*;
    use crate::{DType, Device, Result, Tensor};

    fn x() -> Result<Tensor> {
        Tensor::from_vec(vec![1i64, 2, 3, 4, 5, 6], (2, 3), &Device::cpu())
    }

    #[test]
    fn the_last_dim_comes_first() -> Result<()> {
        assert_eq!(x()?.pad(&[1, 0, 0, 1], Constant(9.0))?.to_vec2::<i64>()?, [[9, 1, 2, 3], [9, 4, 5, 6], [9; 4]]);
        assert_eq!(x()?.t()?.pad(&[0, 1], Replicate)?.to_vec2::<i64>()?, [[1, 4, 4], [2, 5, 5], [3, 6, 6]]);
        assert_eq!(x()?.pad(&[2, 1, 1, 0], Reflect)?.to_vec2::<i64>()?[0], [6, 5, 4, 5, 6, 5]);
        assert_eq!(x()?.pad(&[3, 1], Circular)?.to_vec2::<i64>()?[1], [4, 5, 6, 4, 5, 6, 4]);
        Ok(())
    }

    #[test]
    fn negative_amounts_take_away() -> Result<()> {
        assert_eq!(x()?.pad(&[-1, -1], Constant(0.0))?.to_vec2::<i64>()?, [[2], [5]]);
        assert_eq!(x()?.pad(&[-3, 1], Constant(7.0))?.to_vec2::<i64>()?, [[7], [7]]);
        assert!(x()?.pad(&[-2, -2], Constant(0.0)).is_err() && x()?.pad(&[i64::MIN, 0], Constant(0.0)).is_err());
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_an_error() -> Result<()> {
        assert!(x()?.pad(&[1], Constant(0.0)).is_err() && x()?.pad(&[0; 6], Constant(0.0)).is_err());
        assert!(x()?.pad(&[3, 0], Reflect).is_err() && x()?.pad(&[4, 0], Circular).is_err());
        assert!(x()?.narrow(1, 0, 0)?.pad(&[1, 0], Replicate).is_err());
        assert!(x()?.pad(&[1, 0], Constant(0.5)).unwrap_err().to_string().starts_with("pad"));
        assert!(x()?.pad(&[i64::MAX, i64::MAX], Constant(0.0)).is_err() && x()?.pad(&[i64::MAX, 0], Replicate).is_err());
        assert_eq!(
            Tensor::zeros((0, 2), DType::F32, &Device::cpu())?.pad(&[0, 0, 1, 1], Constant(1.0))?.to_vec::<f32>()?,
            [1.0; 4]
        );
        Ok(())
    }
}
