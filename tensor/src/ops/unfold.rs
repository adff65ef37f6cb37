//! `y[.., w, .., j] = x[.., w * step + j, ..]`: windows of a dim as a view. `dx` at a place is the sum of `dy` over the windows that hold it, added up in
//! f32 or wider; where windows do not overlap it is a copy.
//!
//! There is no `as_strided`: arbitrary strides can name memory outside of the tensor or make elements overlap behind the back of gradients and in-place
//! methods. [`Tensor::unfold`], [`Tensor::diagonal`], [`Tensor::expand`] and `i(..)` with steps make the views that it is used for.

use super::index;
use super::narrow::in_zeros;
use crate::op::{BackwardContext, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, Dim, Error, Layout, Result, Shape, Tensor};
use kiln_kernels::Dims;
use smallvec::smallvec;

struct Unfold {
    dim: usize,
    windows: usize,
    size: usize,
    step: usize,
    from: Shape,
}

impl Unfold {
    fn view(&self, layout: &Layout) -> Layout {
        let (mut dims, mut strides): (Dims, Dims) = (layout.dims().into(), layout.strides().into());
        let stride = strides[self.dim];
        (dims[self.dim], strides[self.dim]) = (self.windows, stride.saturating_mul(self.step));
        dims.push(self.size);
        strides.push(stride);
        Layout::new(&dims, &strides, layout.offset())
    }
}

impl Op for Unfold {
    fn name(&self) -> &'static str {
        "unfold"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(inputs[0].with_layout(self.view(inputs[0].layout())).into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        if self.step >= self.size || self.windows <= 1 {
            return Ok(smallvec![Some(in_zeros("unfold", &self.from, &g, |layout| self.view(layout))?)]);
        }
        // The elements of all windows along the dim, and the place of each.
        let count = self.windows * self.size;
        let mut order: Dims = (0..self.from.rank()).collect();
        order.insert(self.dim + 1, self.from.rank());
        let order: Vec<usize> = order.into_vec();
        let mut flat = self.from.clone();
        flat.0[self.dim] = count;
        let src = g.permute(&order)?.reshape(flat)?;
        let starts = Tensor::arange(0, self.windows, 1, DType::I64, g.device())?.affine(self.step as f64, 0.0)?;
        let places = starts.unsqueeze(1)?.add(&Tensor::arange(0, self.size, 1, DType::I64, g.device())?)?;
        let dx = Tensor::zeros(&self.from, g.dtype().accumulator(), g.device())?;
        index::add_slices(&dx, self.dim, &places.reshape(count)?, &src)?;
        Ok(smallvec![Some(dx.to_dtype(g.dtype())?)])
    }
}

impl Tensor {
    /// Windows of `size` neighbours along `dim`, `step` apart: `dim` gets their number, `(n - size) / step + 1`, and a last dim of `size` is new. Shares memory.
    ///
    /// # Errors
    /// Where `step` is 0 or `size` is larger than the dim.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4, 5], 5, &Device::cpu())?;
    /// assert_eq!(x.unfold(0, 3, 2)?.to_vec2::<i64>()?, [[1, 2, 3], [3, 4, 5]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn unfold(&self, dim: impl Dim, size: usize, step: usize) -> Result<Tensor> {
        let from = self.shape();
        let dim = dim.resolve("unfold", &from)?;
        let n = self.dims()[dim];
        if step == 0 || size > n {
            let message = format!("windows of {size} in steps of {step} do not fit dim {dim} of shape {from}");
            return Err(Error::argument("unfold", message));
        }
        let windows = (n - size) / step + 1;
        let mut to = from.clone();
        to.0[dim] = windows;
        to.0.push(size);
        to.checked_elements("unfold", self.dtype())?;
        apply(Unfold { dim, windows, size, step, from }, &[self])
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn windows_of_inner_dims_share_memory() -> Result<()> {
        let x = Tensor::from_vec((0..12).collect::<Vec<i64>>(), (4, 3), &Device::cpu())?;
        let y = x.unfold(0, 2, 1)?;
        assert_eq!(y.dims(), [3, 3, 2]);
        assert_eq!(y.narrow(0, 2, 1)?.squeeze(0)?.to_vec2::<i64>()?, [[6, 9], [7, 10], [8, 11]]);
        assert_eq!(y.storage().id(), x.storage().id());
        assert_eq!(x.t()?.unfold(1, 4, 9)?.dims(), [3, 1, 4]);
        assert_eq!(x.unfold(0, 0, 1)?.dims(), [5, 3, 0]);
        Ok(())
    }

    #[test]
    fn windows_that_do_not_fit_are_an_error() -> Result<()> {
        let x = Tensor::zeros((4, 3), DType::F32, &Device::cpu())?;
        let e = x.unfold(1, 4, 1).unwrap_err().to_string();
        assert!(e.starts_with("unfold") && e.contains("[4, 3]"), "{e}");
        assert!(x.unfold(0, 2, 0).is_err() && x.unfold(2, 1, 1).is_err());
        Ok(())
    }
}
