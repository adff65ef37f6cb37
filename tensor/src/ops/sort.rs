//! Sorted elements along a dim and where they were: all of them, the first few, or one. `dx[index_j] = dy_j`, 0 elsewhere. Always stable; NaN is
//! larger than every number.

use crate::op::{BackwardContext, Derivative, InputGrads, Keep, Op, OutputGrads, Outputs, apply, apply_multi};
use crate::saved::SavedTensors;
use crate::{DType, Dim, Error, Result, Shape, Tensor, exec};
use kiln_kernels::copy::Fill;
use kiln_kernels::sort::{Put, Sort as Kernel};
use kiln_kernels::{Arg, OutArg};
use smallvec::smallvec;

/// The elements `skip..skip + take` of each sorted row.
#[derive(Clone, Copy)]
struct Sort {
    name: &'static str,
    descending: bool,
    dim: usize,
    size: usize,
    skip: usize,
    take: usize,
    /// Indices alone.
    places: bool,
}

impl Sort {
    /// Rows in contiguous memory: the dim goes to the end.
    fn rows(&self, x: &Tensor) -> Result<Tensor> {
        exec::contiguous(&x.transpose(self.dim, -1)?)
    }
    /// Values (where wanted) and indices.
    fn sorted(&self, x: &Tensor) -> Result<(Option<Tensor>, Tensor)> {
        let x = self.rows(x)?;
        let mut dims = x.dims().to_vec();
        let rows = dims[..dims.len() - 1].iter().product();
        if let Some(last) = dims.last_mut() {
            *last = self.take;
        }
        let (shape, device) = (Shape::from(dims), x.device());
        let indices = exec::empty(self.name, &shape, DType::I64, device)?;
        let values = if self.places { None } else { Some(exec::empty(self.name, &shape, x.dtype(), device)?) };
        if indices.elem_count() > 0 {
            let stream = device.stream();
            let token = x.storage().read(&stream)?;
            let mut index_token = indices.storage().write_new(&stream)?;
            let mut value_token = values.as_ref().map(|v| v.storage().write_new(&stream)).transpose()?;
            let kernel = Kernel {
                descending: self.descending,
                x: Arg::new(&token, x.dtype(), x.layout()),
                rows,
                n: self.size,
                skip: self.skip,
                take: self.take,
                values: values.as_ref().zip(value_token.as_mut()).map(|(v, token)| OutArg::new(token, v.dtype(), v.layout())),
                indices: OutArg::new(&mut index_token, DType::I64, indices.layout()),
            };
            device.run(kernel, &stream)?;
        }
        let back = |t: Tensor| t.transpose(self.dim, -1);
        Ok((values.map(back).transpose()?, back(indices)?))
    }
    /// Zeros with the elements of `g` at the places of `index`.
    fn put(&self, g: &Tensor, index: &Tensor) -> Result<Tensor> {
        let (g, index) = (self.rows(g)?, self.rows(index)?);
        let mut dims = g.dims().to_vec();
        let rows = dims[..dims.len() - 1].iter().product();
        if let Some(last) = dims.last_mut() {
            *last = self.size;
        }
        let dx = exec::fill_new(self.name, &dims.into(), g.dtype(), g.device(), |out, stream| {
            g.device().run(Fill { value: 0i64.into(), out }, stream)
        })?;
        if g.elem_count() > 0 {
            let stream = g.device().stream();
            let (g_token, index_token) = (g.storage().read(&stream)?, index.storage().read(&stream)?);
            let mut out = dx.storage().write_new(&stream)?;
            let kernel = Put {
                g: Arg::new(&g_token, g.dtype(), g.layout()),
                index: Arg::new(&index_token, DType::I64, index.layout()),
                rows,
                n: self.size,
                take: self.take,
                out: OutArg::new(&mut out, dx.dtype(), dx.layout()),
            };
            g.device().run(kernel, &stream)?;
        }
        dx.transpose(self.dim, -1)
    }
}

impl Op for Sort {
    fn name(&self) -> &'static str {
        self.name
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (values, indices) = self.sorted(&inputs[0])?;
        Ok(Outputs { results: values.into_iter().chain([indices]).collect(), extra: smallvec![] })
    }
    fn save(&self, _: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&outputs.results[1])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.output(grads.into_iter().next().flatten(), 0)?;
        Ok(smallvec![Some(self.put(&g, &saved.take(0)?)?)])
    }
    fn derivative(&self) -> Derivative {
        if self.places { Derivative::Discrete } else { Derivative::Defined }
    }
}

impl Tensor {
    #[track_caller]
    fn sort_op(&self, op: Sort) -> Result<(Tensor, Tensor)> {
        let mut results = apply_multi(op, &[self])?.into_iter();
        match (results.next(), results.next()) {
            (Some(values), Some(indices)) => Ok((values, indices)),
            _ => Err(Error::message("sorted values without their places")),
        }
    }
    fn whole(&self, name: &'static str, dim: impl Dim, descending: bool) -> Result<Sort> {
        let dim = dim.resolve(name, &self.shape())?;
        let size = self.dims()[dim];
        if u32::try_from(size).is_err() {
            return Err(Error::shape(name, format!("dim {dim} of shape {} has more than 2^32 elements to sort", self.shape())));
        }
        Ok(Sort { name, descending, dim, size, skip: 0, take: size, places: false })
    }
    /// The elements in order along a dim, the largest first where `descending`, and the index (i64) each had. Equal elements stay in order (the sort
    /// is always stable), NaN is larger than every number, and -0 equals 0. Gradients go back to where the elements came from.
    ///
    /// # Errors
    /// For a dim that is not there.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![3f32, 1., 2.], 3, &Device::cpu())?;
    /// let (values, indices) = x.sort(-1, false)?;
    /// assert_eq!((values.to_vec::<f32>()?, indices.to_vec::<i64>()?), (vec![1., 2., 3.], vec![1, 2, 0]));
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn sort(&self, dim: impl Dim, descending: bool) -> Result<(Tensor, Tensor)> {
        self.sort_op(self.whole("sort", dim, descending)?)
    }
    /// The indices (i64) that sort a dim; see [`Tensor::sort`].
    #[track_caller]
    pub fn argsort(&self, dim: impl Dim, descending: bool) -> Result<Tensor> {
        apply(Sort { places: true, ..self.whole("argsort", dim, descending)? }, &[self])
    }
    /// The `k` largest elements along a dim (the smallest where not `largest`), best first, and their indices (i64). Of equals the first come first; a
    /// NaN is larger than every number.
    ///
    /// # Errors
    /// For a dim that is not there or has fewer than `k` elements.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![3f32, 1., 4., 4.], 4, &Device::cpu())?;
    /// let (values, indices) = x.topk(2, -1, true)?;
    /// assert_eq!((values.to_vec::<f32>()?, indices.to_vec::<i64>()?), (vec![4., 4.], vec![2, 3]));
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn topk(&self, k: usize, dim: impl Dim, largest: bool) -> Result<(Tensor, Tensor)> {
        let op = self.whole("topk", dim, largest)?;
        if k > op.size {
            return Err(Error::argument("topk", format!("dim {} of shape {} has no {k} elements", op.dim, self.shape())));
        }
        self.sort_op(Sort { take: k, ..op })
    }
    /// The `k`-th smallest element along a dim, which vanishes, counted from 1, and its index (i64): the first of equals where it is the first of them
    /// in order. A NaN is larger than every number.
    ///
    /// # Errors
    /// For a dim that is not there or has fewer than `k` elements, and for a `k` of 0.
    #[track_caller]
    pub fn kthvalue(&self, k: usize, dim: impl Dim) -> Result<(Tensor, Tensor)> {
        let op = self.whole("kthvalue", dim, false)?;
        if k == 0 || k > op.size {
            return Err(Error::argument("kthvalue", format!("dim {} of shape {} has no element {k}", op.dim, self.shape())));
        }
        let (values, indices) = self.sort_op(Sort { skip: k - 1, take: 1, ..op })?;
        Ok((values.squeeze(op.dim)?, indices.squeeze(op.dim)?))
    }
}
