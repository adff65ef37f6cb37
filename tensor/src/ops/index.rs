//! `y[o, j, i] = x[o, index[j], i]` along one dim, for an index of any shape. `dx[o, k, i]` is the sum of `dy[o, j, i]` over the `j` with
//! `index[j] = k`, added up in index order in f32 or wider and rounded once.

use crate::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, Dim, Error, Layout, Result, Shape, Tensor, exec};
use kiln_kernels::index::{IndexAdd, IndexSelect};
use kiln_kernels::{Arg, OutArg};
use smallvec::smallvec;

/// Inputs: the source, and the index; its dims replace `dim`.
struct Select {
    name: &'static str,
    dim: usize,
    from: Shape,
    out: Shape,
}

impl Select {
    /// The shape with the index as one dim, as kernels see it.
    fn flat(&self, indices: usize) -> Shape {
        let mut shape = self.from.clone();
        shape.0[self.dim] = indices;
        shape
    }
}

impl Op for Select {
    fn name(&self) -> &'static str {
        self.name
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (x, index) = (exec::contiguous(&inputs[0])?, exec::contiguous(&inputs[1])?.flatten_all()?);
        let y = exec::fill_new(self.name, &self.flat(index.elem_count()), x.dtype(), x.device(), |out, stream| {
            let (xs, ids) = (x.storage().read(stream)?, index.storage().read(stream)?);
            let (xs, index) = (Arg::new(&xs, x.dtype(), x.layout()), Arg::new(&ids, index.dtype(), index.layout()));
            x.device().run(IndexSelect { x: xs, dim: self.dim, index, out }, stream)
        })?;
        Ok(y.with_layout(Layout::contiguous(self.out.dims())).into())
    }
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&inputs[1])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let index = saved.take(0)?.flatten_all()?;
        let g = ctx.only(grads)?.reshape(self.flat(index.elem_count()))?;
        let dx = Tensor::zeros(&self.from, g.dtype().accumulator(), g.device())?;
        add_slices(&dx, self.dim, &index, &g)?;
        Ok(smallvec![Some(dx.to_dtype(g.dtype())?), None])
    }
}

/// Adds the slices of `src` to `out`, which is new, contiguous and of the type that `src` adds up in.
pub(super) fn add_slices(out: &Tensor, dim: usize, index: &Tensor, src: &Tensor) -> Result<()> {
    let (src, index) = (exec::contiguous(src)?, exec::contiguous(index)?);
    let stream = src.device().stream();
    let (values, ids) = (src.storage().read(&stream)?, index.storage().read(&stream)?);
    let mut token = out.storage().write_new(&stream)?;
    let kernel = IndexAdd {
        src: Arg::new(&values, src.dtype(), src.layout()),
        dim,
        index: Arg::new(&ids, index.dtype(), index.layout()),
        out: OutArg::new(&mut token, out.dtype(), out.layout()),
    };
    src.device().run(kernel, &stream)
}

/// An error where `index` has no type of indices, or no index is in range.
pub(super) fn check(op: &'static str, dim: usize, x: &Tensor, index: &Tensor) -> Result<()> {
    if !matches!(index.dtype(), DType::I64 | DType::U32) {
        return Err(Error::dtype(op, format!("indices are i64 or u32, not {}; convert with `to_dtype`", index.dtype())));
    }
    if x.dims()[dim] == 0 && index.elem_count() > 0 {
        return Err(Error::argument(op, format!("dim {dim} of shape {} is empty: no index is in range", x.shape())));
    }
    Ok(())
}

impl Tensor {
    /// The elements along `dim` at the places that `index` lists: `dim` gets the size of `index`, which has one dim and type i64 or u32.
    ///
    /// # Errors
    /// For an index of another rank or type. An index out of range is an error at once on the CPU; on CUDA at the next read-back, see
    /// [`Device::synchronize`](crate::Device::synchronize).
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4, 5, 6], (2, 3), &Device::cpu())?;
    /// let index = Tensor::from_vec(vec![2i64, 0], 2, &Device::cpu())?;
    /// assert_eq!(x.index_select(1, &index)?.to_vec2::<i64>()?, [[3, 1], [6, 4]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn index_select(&self, dim: impl Dim, index: &Tensor) -> Result<Tensor> {
        let dim = dim.resolve("index_select", &self.shape())?;
        if index.rank() != 1 {
            return Err(Error::shape("index_select", format!("the index has shape {}; one dim is expected", index.shape())));
        }
        self.select_along("index_select", dim, index)
    }

    /// The rows of this table `[rows, width]` that `ids` (i64 or u32, any shape) names: shape `[..ids, width]`.
    ///
    /// # Errors
    /// Where this is no matrix; for ids of another type. An id out of range as in [`Tensor::index_select`].
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let table = Tensor::from_vec(vec![0f32, 0., 1., 1., 2., 2.], (3, 2), &Device::cpu())?;
    /// let ids = Tensor::from_vec(vec![2i64, 1, 1, 0], (2, 2), &Device::cpu())?;
    /// assert_eq!(table.embedding(&ids)?.dims(), [2, 2, 2]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn embedding(&self, ids: &Tensor) -> Result<Tensor> {
        if self.rank() != 2 {
            return Err(Error::shape("embedding", format!("the table has shape {}; [rows, width] is expected", self.shape())));
        }
        self.select_along("embedding", 0, ids)
    }

    #[track_caller]
    fn select_along(&self, name: &'static str, dim: usize, index: &Tensor) -> Result<Tensor> {
        check(name, dim, self, index)?;
        let mut out = self.dims()[..dim].to_vec();
        out.extend(index.dims());
        out.extend(&self.dims()[dim + 1..]);
        let out = Shape::from(out);
        out.checked_elements(name, self.dtype())?;
        apply(Select { name, dim, from: self.shape(), out }, &[self, index])
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn selects_from_views_in_any_order() -> Result<()> {
        let device = Device::cpu();
        let x = Tensor::from_vec((0..6).map(f64::from).collect(), (2, 3), &device)?;
        let index = Tensor::from_vec(vec![1u32, 9, 1, 9, 0, 9], (3, 2), &device)?.narrow(1, 0, 1)?.squeeze(1)?;
        assert_eq!(x.t()?.index_select(-1, &index)?.to_vec2::<f64>()?, [[3., 3., 0.], [4., 4., 1.], [5., 5., 2.]]);
        let ids = Tensor::zeros((2, 0), DType::I64, &device)?;
        assert_eq!(x.embedding(&ids)?.dims(), [2, 0, 3]);
        Ok(())
    }

    #[test]
    fn an_index_out_of_range_names_op_and_value() -> Result<()> {
        let device = Device::cpu();
        let x = Tensor::zeros((2, 3), DType::F32, &device)?;
        for bad in [-1i64, 2] {
            let e = x.embedding(&Tensor::from_vec(vec![bad], 1, &device)?).unwrap_err().to_string();
            assert!(e.starts_with("embedding") && e.contains(&bad.to_string()), "{e}");
        }
        assert!(x.index_select(0, &Tensor::zeros(1, DType::F32, &device)?).is_err());
        assert!(x.index_select(0, &Tensor::zeros((1, 1), DType::I64, &device)?).is_err());
        assert!(x.narrow(0, 0, 0)?.index_select(0, &Tensor::zeros(1, DType::I64, &device)?).is_err());
        Ok(())
    }
}
