//! `y = x_0 | x_1 | ..` side by side along a dim; `dx_i` is the view of `dy` in its place.

use crate::op::{Autocast, BackwardContext, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, Device, Dim, Error, Layout, Result, Shape, Tensor, exec};
use kiln_kernels::copy::{Copy, Fill};
use kiln_kernels::{Arg, OutArg};

/// What lies in one place along a dim.
pub(crate) enum Piece<'a> {
    Of(&'a Tensor),
    /// So many zeros along the dim.
    Zeros(usize),
}

/// A new tensor of `shape` from pieces that fill `dim`: each byte is written once.
pub(crate) fn assemble(
    op: &'static str,
    shape: &Shape,
    dtype: DType,
    device: &Device,
    dim: usize,
    pieces: &[Piece<'_>],
) -> Result<Tensor> {
    let out = exec::empty(op, shape, dtype, device)?;
    // The places of nothing need not exist.
    if out.elem_count() == 0 {
        return Ok(out);
    }
    let (stream, strides) = (device.stream(), out.layout().strides());
    let mut token = out.storage().write_new(&stream)?;
    let mut start = 0;
    for piece in pieces {
        let len = match piece {
            Piece::Of(t) => t.dims()[dim],
            Piece::Zeros(len) => *len,
        };
        let mut dims = shape.clone();
        dims.0[dim] = len;
        let layout = Layout::new(dims.dims(), strides, start * strides[dim]);
        start += len;
        if layout.elements() == 0 {
            continue;
        }
        let out = OutArg::new(&mut token, dtype, &layout);
        match piece {
            Piece::Of(t) => {
                let read = t.storage().read(&stream)?;
                device.run(Copy { x: Arg::new(&read, t.dtype(), t.layout()), out }, &stream)?;
            }
            Piece::Zeros(_) => device.run(Fill { value: 0i64.into(), out }, &stream)?,
        }
    }
    drop(token);
    Ok(out)
}

struct Cat {
    dim: usize,
    sizes: Vec<usize>,
    shape: Shape,
}

impl Op for Cat {
    fn name(&self) -> &'static str {
        "cat"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let dtype = inputs[0].dtype();
        if let Some(other) = inputs.iter().find(|t| t.dtype() != dtype) {
            let message = format!("operands have types {dtype} and {}; convert one with `to_dtype`", other.dtype());
            return Err(Error::dtype("cat", message));
        }
        let pieces: Vec<Piece<'_>> = inputs.iter().map(Piece::Of).collect();
        Ok(assemble("cat", &self.shape, dtype, inputs[0].device(), self.dim, &pieces)?.into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        let mut start = 0;
        let piece = |(i, &len): (usize, &usize)| {
            let from = start;
            start += len;
            if ctx.needs(i) { g.narrow(self.dim, from, len).map(Some) } else { Ok(None) }
        };
        self.sizes.iter().enumerate().map(piece).collect()
    }
    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }
}

impl AsRef<Tensor> for Tensor {
    fn as_ref(&self) -> &Tensor {
        self
    }
}

impl Tensor {
    /// Tensors side by side along a dim of theirs; all other dims and the element type are equal.
    ///
    /// # Errors
    /// Where there are none, or shapes or types differ.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let a = Tensor::from_vec(vec![1i64, 2], (2, 1), &Device::cpu())?;
    /// let b = Tensor::from_vec(vec![3i64, 4], (2, 1), &Device::cpu())?;
    /// assert_eq!(Tensor::cat(&[&a, &b], 1)?.to_vec2::<i64>()?, [[1, 3], [2, 4]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn cat<T: AsRef<Tensor>>(tensors: &[T], dim: impl Dim) -> Result<Tensor> {
        let tensors: Vec<&Tensor> = tensors.iter().map(|t| t.as_ref()).collect();
        let Some(first) = tensors.first() else {
            return Err(Error::argument("cat", "there is nothing to put together"));
        };
        let mut shape = first.shape();
        let dim = dim.resolve("cat", &shape)?;
        let differ = |t: &Tensor| t.rank() != first.rank() || (0..t.rank()).any(|d| d != dim && t.dims()[d] != first.dims()[d]);
        if let Some(other) = tensors.iter().find(|t| differ(t)) {
            let message = format!("shapes {} and {} differ outside of dim {dim}", first.shape(), other.shape());
            return Err(Error::shape("cat", message));
        }
        let sizes: Vec<usize> = tensors.iter().map(|t| t.dims()[dim]).collect();
        let total = sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        shape.0[dim] = total.ok_or_else(|| Error::SizeOverflow { shape: first.shape(), dtype: first.dtype() })?;
        apply(Cat { dim, sizes, shape }, &tensors)
    }

    /// Tensors of one shape side by side along a new dim, which may be the rank (or -1: after the last).
    ///
    /// # Errors
    /// As [`Tensor::cat`].
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let a = Tensor::from_vec(vec![1i64, 2], 2, &Device::cpu())?;
    /// assert_eq!(Tensor::stack(&[&a, &a], 0)?.to_vec2::<i64>()?, [[1, 2], [1, 2]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn stack<T: AsRef<Tensor>>(tensors: &[T], dim: impl Dim) -> Result<Tensor> {
        let tensors: Vec<&Tensor> = tensors.iter().map(|t| t.as_ref()).collect();
        let Some(first) = tensors.first() else {
            return Err(Error::argument("stack", "there is nothing to put together"));
        };
        if let Some(other) = tensors.iter().find(|t| t.dims() != first.dims()) {
            return Err(Error::shape("stack", format!("shapes {} and {} differ", first.shape(), other.shape())));
        }
        let mut wider = Vec::with_capacity(tensors.len());
        // A loop: in a closure the caller's line would be lost.
        for t in tensors {
            wider.push(t.unsqueeze(dim)?);
        }
        Tensor::cat(&wider, dim)
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn puts_views_side_by_side() -> Result<()> {
        let x = Tensor::from_vec((0..6).collect::<Vec<i64>>(), (2, 3), &Device::cpu())?;
        let y = Tensor::cat(&[x.t()?, x.narrow(0, 1, 1)?.expand((3, 3))?.narrow(1, 0, 2)?], 0)?;
        assert_eq!(y.to_vec2::<i64>()?, [[0, 3], [1, 4], [2, 5], [3, 4], [3, 4], [3, 4]]);
        let empty = Tensor::zeros((2, 0), DType::I64, &Device::cpu())?;
        assert_eq!(Tensor::cat(&[&empty, &x, &empty], 1)?.to_vec::<i64>()?, [0, 1, 2, 3, 4, 5]);
        assert_eq!(Tensor::stack(&[&x, &x], -1)?.dims(), [2, 3, 2]);
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_an_error() -> Result<()> {
        let device = Device::cpu();
        let x = Tensor::zeros((2, 3), DType::F32, &device)?;
        let e = Tensor::cat(&[&x, &Tensor::zeros((3, 3), DType::F32, &device)?], 1).unwrap_err().to_string();
        assert!(e.contains("[2, 3]") && e.contains("[3, 3]"), "{e}");
        assert!(Tensor::cat(&[&x, &x.to_dtype(DType::F64)?], 1).is_err());
        assert!(Tensor::cat::<Tensor>(&[], 0).is_err());
        assert!(Tensor::stack(&[&x, &x.t()?], 0).is_err());
        Ok(())
    }
}
