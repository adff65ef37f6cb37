//! `y = x[.., start..start + len, ..]` as a view; `dx` is zeros with `dy` in that place. And a dim cut into pieces, whose gradients meet in one copy.

use super::cat::{Piece, assemble};
use crate::op::{BackwardContext, InputGrads, Op, OutputGrads, Outputs, apply, apply_multi};
use crate::saved::SavedTensors;
use crate::{Dim, Error, Layout, Result, Shape, Tensor, exec};
use kiln_kernels::copy::{Copy, Fill};
use kiln_kernels::{Arg, Dims, OutArg};
use smallvec::smallvec;

/// The part of a tensor that positions `start[d]`, `start[d] + step[d]`, .. take of each dim, `len[d]` of them; dims of the mask `drop` have length 1 and vanish.
pub(crate) struct Slice {
    pub(crate) name: &'static str,
    pub(crate) from: Shape,
    pub(crate) start: Dims,
    pub(crate) len: Dims,
    pub(crate) step: Dims,
    pub(crate) drop: u32,
}

impl Slice {
    /// All of a tensor.
    pub(crate) fn whole(name: &'static str, from: Shape) -> Slice {
        let rank = from.rank();
        Slice { name, start: smallvec![0; rank], len: from.dims().into(), step: smallvec![1; rank], from, drop: 0 }
    }
    /// Where the elements of the part lie in a tensor of this layout.
    pub(crate) fn part(&self, layout: &Layout) -> Layout {
        // Nothing is read of an empty part, and its offset need not exist.
        let offset = |(i, s): (&usize, &usize)| i * s;
        let offset: usize = if self.len.contains(&0) { 0 } else { self.start.iter().zip(layout.strides()).map(offset).sum() };
        let kept = || (0..self.len.len()).filter(|&d| self.drop >> d & 1 == 0);
        let dims: Dims = kept().map(|d| self.len[d]).collect();
        let strides: Dims = kept().map(|d| layout.strides()[d].saturating_mul(self.step[d])).collect();
        Layout::new(&dims, &strides, layout.offset() + offset)
    }
}

/// Zeros of shape `from` with `g` in the part that `part` finds in their layout: the gradient of views that repeat no element.
pub(super) fn in_zeros(op: &'static str, from: &Shape, g: &Tensor, part: impl FnOnce(&Layout) -> Layout) -> Result<Tensor> {
    let out = exec::empty(op, from, g.dtype(), g.device())?;
    let stream = g.device().stream();
    let (token, part) = (g.storage().read(&stream)?, part(out.layout()));
    let mut write = out.storage().write_new(&stream)?;
    if part.elements() < out.elem_count() {
        g.device().run(Fill { value: 0i64.into(), out: OutArg::new(&mut write, g.dtype(), out.layout()) }, &stream)?;
    }
    let x = Arg::new(&token, g.dtype(), g.layout());
    g.device().run(Copy { x, out: OutArg::new(&mut write, g.dtype(), &part) }, &stream)?;
    drop(write);
    Ok(out)
}

impl Op for Slice {
    fn name(&self) -> &'static str {
        self.name
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(inputs[0].with_layout(self.part(inputs[0].layout())).into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok(smallvec![Some(in_zeros(self.name, &self.from, &ctx.only(grads)?, |layout| self.part(layout))?)])
    }
}

/// A dim cut into pieces. The gradients of all pieces make one tensor: no piece gets a buffer of the whole size.
struct Split {
    dim: usize,
    sizes: Vec<usize>,
    from: Shape,
}

impl Op for Split {
    fn name(&self) -> &'static str {
        "split"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let layout = inputs[0].layout();
        let mut start = 0;
        let piece = |&len: &usize| {
            let mut dims: Dims = layout.dims().into();
            dims[self.dim] = len;
            let offset = if dims.contains(&0) { 0 } else { start * layout.strides()[self.dim] };
            start += len;
            inputs[0].with_layout(Layout::new(&dims, layout.strides(), layout.offset() + offset))
        };
        Ok(Outputs { results: self.sizes.iter().map(piece).collect(), ..Default::default() })
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, _: &BackwardContext<'_>) -> Result<InputGrads> {
        let Some(some) = grads.iter().flatten().next() else { return Ok(smallvec![None]) };
        let pieces: Vec<Piece<'_>> =
            grads.iter().zip(&self.sizes).map(|(g, &len)| g.as_ref().map_or(Piece::Zeros(len), Piece::Of)).collect();
        Ok(smallvec![Some(assemble("split", &self.from, some.dtype(), some.device(), self.dim, &pieces)?)])
    }
}

impl Tensor {
    /// `len` elements of `dim` from `start` on, all of the other dims. Shares memory; in backward the gradient lies between zeros.
    ///
    /// # Errors
    /// Where `start + len` exceeds the size of the dim.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4, 5, 6], (2, 3), &Device::cpu())?;
    /// assert_eq!(x.narrow(-1, 1, 2)?.to_vec2::<i64>()?, [[2, 3], [5, 6]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn narrow(&self, dim: impl Dim, start: usize, len: usize) -> Result<Tensor> {
        let from = self.shape();
        let dim = dim.resolve("narrow", &from)?;
        let size = self.dims()[dim];
        if start.checked_add(len).is_none_or(|end| end > size) {
            let message = format!("{len} elements from {start} on are out of range for dim {dim} of shape {from}");
            return Err(Error::shape("narrow", message));
        }
        if len == size {
            return Ok(self.clone());
        }
        let mut op = Slice::whole("narrow", from);
        (op.start[dim], op.len[dim]) = (start, len);
        apply(op, &[self])
    }

    /// The pieces of `dim` of the given sizes, in order. They share memory; in backward their gradients are put together in one copy, zeros where a piece led to
    /// nothing.
    ///
    /// # Errors
    /// Where the sizes do not add up to the size of the dim.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4, 5], 5, &Device::cpu())?;
    /// let parts = x.split(&[2, 3], 0)?;
    /// assert_eq!(parts[1].to_vec::<i64>()?, [3, 4, 5]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn split(&self, sizes: &[usize], dim: impl Dim) -> Result<Vec<Tensor>> {
        let from = self.shape();
        let dim = dim.resolve("split", &from)?;
        let total = sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        if total != Some(self.dims()[dim]) || sizes.is_empty() {
            return Err(Error::shape("split", format!("sizes {sizes:?} do not add up to dim {dim} of shape {from}")));
        }
        let results = apply_multi(Split { dim, sizes: sizes.to_vec(), from }, &[self])?;
        Ok(results.into_vec())
    }

    /// `dim` in `n` pieces as equal as can be, longer ones first (always `n` of them; some are empty where the dim is shorter). As [`Tensor::split`].
    ///
    /// # Errors
    /// Where `n` is 0.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4, 5], 5, &Device::cpu())?;
    /// assert_eq!(x.chunk(2, 0)?[0].to_vec::<i64>()?, [1, 2, 3]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn chunk(&self, n: usize, dim: impl Dim) -> Result<Vec<Tensor>> {
        let dim = dim.resolve("chunk", &self.shape())?;
        if n == 0 {
            return Err(Error::argument("chunk", format!("shape {} cannot be cut into 0 pieces", self.shape())));
        }
        let size = self.dims()[dim];
        let sizes: Vec<usize> = (0..n).map(|i| size / n + usize::from(i < size % n)).collect();
        self.split(&sizes, dim)
    }

    /// The slices along `dim`, without it, in order. They share memory; in backward their gradients are put together in one copy.
    ///
    /// # Errors
    /// For a dim out of range.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.unbind(1)?[1].to_vec::<i64>()?, [2, 4]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn unbind(&self, dim: impl Dim) -> Result<Vec<Tensor>> {
        let dim = dim.resolve("unbind", &self.shape())?;
        if self.elem_count() == 0 && self.dims()[dim] > 0 {
            self.shape().checked_elements("unbind", self.dtype())?;
        }
        if self.dims()[dim] == 0 {
            return Ok(Vec::new());
        }
        let mut slices = self.split(&vec![1; self.dims()[dim]], dim)?;
        // A loop: in a closure the caller's line would be lost.
        for slice in &mut slices {
            *slice = slice.squeeze(dim)?;
        }
        Ok(slices)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Device, Result, Tensor};

    fn x() -> Result<Tensor> {
        Tensor::from_vec((0..12).collect::<Vec<i64>>(), (3, 4), &Device::cpu())
    }

    #[test]
    fn narrows_share_memory_and_stack_up() -> Result<()> {
        let part = x()?.narrow(0, 1, 2)?.narrow(1, 1, 2)?;
        assert_eq!(part.to_vec2::<i64>()?, [[5, 6], [9, 10]]);
        assert_eq!(part.t()?.to_vec2::<i64>()?, [[5, 9], [6, 10]]);
        assert_eq!(x()?.narrow(1, 4, 0)?.dims(), [3, 0]);
        Ok(())
    }

    #[test]
    fn narrow_out_of_range_names_op_and_shape() -> Result<()> {
        let e = x()?.narrow(1, 2, 3).unwrap_err().to_string();
        assert!(e.starts_with("narrow") && e.contains("[3, 4]"), "{e}");
        assert!(x()?.narrow(1, usize::MAX, 2).is_err());
        Ok(())
    }

    #[test]
    fn chunks_are_as_equal_as_can_be() -> Result<()> {
        let sizes = |n| -> Result<Vec<usize>> { Ok(x()?.chunk(n, 1)?.iter().map(|t| t.dims()[1]).collect()) };
        assert_eq!(sizes(2)?, [2, 2]);
        assert_eq!(sizes(3)?, [2, 1, 1]);
        assert_eq!(sizes(5)?, [1, 1, 1, 1, 0]);
        assert!(x()?.chunk(0, 1).is_err());
        Ok(())
    }

    #[test]
    fn split_sizes_must_add_up() -> Result<()> {
        let parts = x()?.split(&[1, 0, 3], -1)?;
        assert_eq!(parts[2].to_vec2::<i64>()?, [[1, 2, 3], [5, 6, 7], [9, 10, 11]]);
        assert!(x()?.split(&[1, 2], 1).is_err());
        assert!(x()?.split(&[], 1).is_err());
        Ok(())
    }
}
