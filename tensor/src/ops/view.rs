//! Views: other layouts of the same memory. The gradient of a view is the inverse view, or a sum where elements were repeated.

use crate::op::{BackwardContext, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{Dim, Error, Layout, Result, Shape, Tensor, exec};
use smallvec::{SmallVec, smallvec};

/// Same elements in the same order under other dims: a view where the layout allows, else a copy.
struct Reshape {
    from: Shape,
    to: Shape,
}

impl Op for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let x = &inputs[0];
        if let Some(strides) = reshaped_strides(x.layout(), self.to.dims()) {
            return Ok(x.with_layout(Layout::new(self.to.dims(), &strides, x.layout().offset())).into());
        }
        Ok(exec::copy_of(x)?.with_layout(Layout::contiguous(self.to.dims())).into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok(smallvec![Some(ctx.only(grads)?.reshape(&self.from)?)])
    }
}

/// Strides of the same elements under `dims`, where one layout can hold them.
fn reshaped_strides(layout: &Layout, dims: &[usize]) -> Option<SmallVec<[usize; 4]>> {
    let fresh = Layout::contiguous(dims);
    if layout.is_contiguous() {
        return Some(fresh.strides().into());
    }
    let old: Vec<(usize, usize)> =
        layout.dims().iter().copied().zip(layout.strides().iter().copied()).filter(|&(d, _)| d != 1).collect();
    let mut strides: SmallVec<[usize; 4]> = fresh.strides().into();
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < dims.len() {
        // Groups of old and new dims with one product; the old ones must be one run.
        let (i0, j0, mut have, mut want) = (i, j, 1, 1);
        loop {
            if have == want && have != 1 {
                break;
            }
            if have <= want && i < old.len() {
                have *= old[i].0;
                i += 1;
            } else if j < dims.len() {
                want *= dims[j];
                j += 1;
            } else {
                break;
            }
        }
        if old[i0..i].windows(2).any(|w| w[0].1 != w[1].1 * w[1].0) {
            return None;
        }
        let mut stride = old[i0..i].last().map_or(1, |&(_, s)| s);
        for k in (j0..j).rev() {
            strides[k] = stride;
            stride *= dims[k];
        }
    }
    Some(strides)
}

/// Dims in another order.
struct Permute {
    order: SmallVec<[usize; 4]>,
}

impl Op for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let l = inputs[0].layout();
        let dims: Vec<usize> = self.order.iter().map(|&d| l.dims()[d]).collect();
        let strides: Vec<usize> = self.order.iter().map(|&d| l.strides()[d]).collect();
        Ok(inputs[0].with_layout(Layout::new(&dims, &strides, l.offset())).into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let mut inverse: SmallVec<[usize; 4]> = smallvec![0; self.order.len()];
        self.order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
        Ok(smallvec![Some(ctx.only(grads)?.permute(&inverse)?)])
    }
}

/// Elements repeated along dims of size 1 or new dims in front.
struct Expand {
    from: Shape,
    to: Shape,
}

impl Op for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let x = &inputs[0];
        match x.layout().broadcast_to(self.to.dims()) {
            Some(layout) => Ok(x.with_layout(layout).into()),
            None => Err(Error::shape("expand", format!("shape {} does not broadcast to {}", x.shape(), self.to))),
        }
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok(smallvec![Some(ctx.only(grads)?.sum_to(&self.from)?)])
    }
}

/// The shape that [`Tensor::reshape`] takes: any shape, or a tuple with `()` in the place of one dim, which gets what the others leave over (PyTorch's -1).
pub trait ReshapeTo {
    /// The shape for so many elements.
    fn shape_for(self, op: &'static str, from: &Shape) -> Result<Shape>;
}

impl<S: Into<Shape>> ReshapeTo for S {
    fn shape_for(self, _: &'static str, _: &Shape) -> Result<Shape> {
        Ok(self.into())
    }
}

/// Dims around the one that gets what the others leave over of the elements of `from`.
fn fill_hole(op: &'static str, from: &Shape, before: &[usize], after: &[usize]) -> Result<Shape> {
    let others = before.iter().chain(after).try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n > 0);
    let elements = if from.dims().contains(&0) { 0 } else { from.dims().iter().product::<usize>() };
    match others {
        Some(others) if elements.is_multiple_of(others) => Ok(Shape::from([before, &[elements / others], after].concat())),
        _ => Err(Error::shape(op, format!("{elements} elements of shape {from} do not fill {before:?}, (), {after:?}"))),
    }
}

macro_rules! one_hole {
    ($t:ty: $($before:ident)* () $($after:ident)*) => {
        impl ReshapeTo for $t {
            #[allow(unused_parens)]
            fn shape_for(self, op: &'static str, from: &Shape) -> Result<Shape> {
                let ($($before,)* (), $($after),*) = self;
                fill_hole(op, from, &[$($before),*], &[$($after),*])
            }
        }
    };
}
one_hole!(((), usize): () b);
one_hole!((usize, ()): a ());
one_hole!(((), usize, usize): () b c);
one_hole!((usize, (), usize): a () c);
one_hole!((usize, usize, ()): a b ());
one_hole!(((), usize, usize, usize): () b c d);
one_hole!((usize, (), usize, usize): a () c d);
one_hole!((usize, usize, (), usize): a b () d);
one_hole!((usize, usize, usize, ()): a b c ());

impl Tensor {
    /// The same elements, row-major, under another shape with as many. Shares memory where the layout allows, else copies. A `()` in a tuple stands for the
    /// dim that the others leave over, PyTorch's -1.
    ///
    /// # Errors
    /// For a shape with another number of elements.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// let x = Tensor::zeros((2, 3, 4), DType::F32, &Device::cpu())?;
    /// assert_eq!(x.reshape((6, 4))?.dims(), [6, 4]);
    /// assert_eq!(x.reshape((2, ()))?.dims(), [2, 12]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn reshape(&self, shape: impl ReshapeTo) -> Result<Tensor> {
        let to = shape.shape_for("reshape", &self.shape())?;
        let n = to.checked_elements("reshape", self.dtype())?;
        if n != self.elem_count() {
            let message = format!("shape {} has {} elements, shape {to} has {n}", self.shape(), self.elem_count());
            return Err(Error::shape("reshape", message));
        }
        if to.dims() == self.dims() {
            return Ok(self.clone());
        }
        apply(Reshape { from: self.shape(), to }, &[self])
    }
    /// The dims in another order: dim `i` of the result is dim `order[i]` of this one. Shares memory.
    #[track_caller]
    pub fn permute<D: Dim>(&self, order: impl AsRef<[D]>) -> Result<Tensor> {
        let shape = self.shape();
        let order = order.as_ref().iter().map(|d| d.resolve("permute", &shape)).collect::<Result<SmallVec<[usize; 4]>>>()?;
        let mut seen = 0u32;
        order.iter().for_each(|&d| seen |= 1 << d);
        if order.len() != self.rank() || seen.count_ones() as usize != self.rank() {
            return Err(Error::shape("permute", format!("{:?} is no order of the dims of shape {shape}", order.as_slice())));
        }
        apply(Permute { order }, &[self])
    }
    /// Two dims exchanged. Shares memory.
    #[track_caller]
    pub fn transpose(&self, a: impl Dim, b: impl Dim) -> Result<Tensor> {
        let (a, b) = (a.resolve("transpose", &self.shape())?, b.resolve("transpose", &self.shape())?);
        let mut order: SmallVec<[usize; 4]> = (0..self.rank()).collect();
        order.swap(a, b);
        self.permute(&order)
    }
    /// PyTorch's other name for [`Tensor::transpose`].
    #[track_caller]
    pub fn swapaxes(&self, a: impl Dim, b: impl Dim) -> Result<Tensor> {
        self.transpose(a, b)
    }
    /// Dim `from` moved to place `to`; the others keep their order. Shares memory.
    ///
    /// # Errors
    /// For a dim out of range.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// let x = Tensor::zeros((2, 3, 4), DType::F32, &Device::cpu())?;
    /// assert_eq!(x.movedim(0, -1)?.dims(), [3, 4, 2]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn movedim(&self, from: impl Dim, to: impl Dim) -> Result<Tensor> {
        let (from, to) = (from.resolve("movedim", &self.shape())?, to.resolve("movedim", &self.shape())?);
        let mut order: SmallVec<[usize; 4]> = (0..self.rank()).filter(|&d| d != from).collect();
        order.insert(to, from);
        self.permute(&order)
    }
    /// The transpose of a matrix: the last two dims exchanged. Shares memory.
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        self.transpose(-2, -1)
    }
    /// Repeated to a shape, as in NumPy broadcasting, without using memory.
    #[track_caller]
    pub fn expand(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        let to = shape.into();
        to.checked_elements("expand", self.dtype())?;
        if to.dims() == self.dims() {
            return Ok(self.clone());
        }
        apply(Expand { from: self.shape(), to }, &[self])
    }
    /// Repeated to the shape of another tensor. As [`Tensor::expand`].
    #[track_caller]
    pub fn expand_as(&self, other: &Tensor) -> Result<Tensor> {
        self.expand(other.shape())
    }
    /// Candle's name for [`Tensor::expand`].
    #[track_caller]
    pub fn broadcast_as(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.expand(shape)
    }
    /// A new dim of size 1 at `dim`, which may be the rank (or -1: after the last).
    #[track_caller]
    pub fn unsqueeze(&self, dim: impl Dim) -> Result<Tensor> {
        let mut one_more = self.shape();
        one_more.0.push(1);
        let at = dim.resolve("unsqueeze", &one_more)?;
        let mut dims = self.dims().to_vec();
        dims.insert(at, 1);
        self.reshape(dims)
    }
    /// Without a dim of size 1; an error where it has another size.
    #[track_caller]
    pub fn squeeze(&self, dim: impl Dim) -> Result<Tensor> {
        let at = dim.resolve("squeeze", &self.shape())?;
        if self.dims()[at] != 1 {
            return Err(Error::shape(
                "squeeze",
                format!("dim {at} of shape {} has size {}, not 1", self.shape(), self.dims()[at]),
            ));
        }
        let mut dims = self.dims().to_vec();
        dims.remove(at);
        self.reshape(dims)
    }
    /// The dims from `first` to `last` as one.
    #[track_caller]
    pub fn flatten(&self, first: impl Dim, last: impl Dim) -> Result<Tensor> {
        let (a, b) = (first.resolve("flatten", &self.shape())?, last.resolve("flatten", &self.shape())?);
        if a > b {
            return Err(Error::shape("flatten", format!("dim {a} lies after dim {b}")));
        }
        let mut dims = self.dims()[..a].to_vec();
        // An empty tensor may have dims whose product overflows.
        let merged = self.dims()[a..=b].iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        dims.push(merged.ok_or_else(|| Error::SizeOverflow { shape: self.shape(), dtype: self.dtype() })?);
        dims.extend(&self.dims()[b + 1..]);
        self.reshape(dims)
    }
    /// One dim as several, whose product is its size.
    ///
    /// # Errors
    /// Where the sizes do not multiply to that of the dim.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// let x = Tensor::zeros((2, 12), DType::F32, &Device::cpu())?;
    /// assert_eq!(x.unflatten(1, (3, 4))?.dims(), [2, 3, 4]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn unflatten(&self, dim: impl Dim, sizes: impl ReshapeTo) -> Result<Tensor> {
        let shape = self.shape();
        let dim = dim.resolve("unflatten", &shape)?;
        let sizes = sizes.shape_for("unflatten", &Shape::from(shape.dims()[dim]))?;
        let product = sizes.dims().iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if product != Some(shape.dims()[dim]) {
            return Err(Error::shape("unflatten", format!("sizes {sizes} do not multiply to dim {dim} of shape {shape}")));
        }
        self.reshape([&shape.dims()[..dim], sizes.dims(), &shape.dims()[dim + 1..]].concat())
    }
    /// All elements in one dim.
    #[track_caller]
    pub fn flatten_all(&self) -> Result<Tensor> {
        self.reshape(self.elem_count())
    }
    /// The same elements lying row-major without gaps: itself where they do, else a copy.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() { Ok(self.clone()) } else { apply(CopyOp("contiguous"), &[self]) }
    }
    /// A copy in memory of its own.
    #[track_caller]
    pub fn copy(&self) -> Result<Tensor> {
        apply(CopyOp("copy"), &[self])
    }
}

struct CopyOp(&'static str);

impl Op for CopyOp {
    fn name(&self) -> &'static str {
        self.0
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(exec::copy_of(&inputs[0])?.into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, _: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok(grads.into_iter().collect())
    }
}
