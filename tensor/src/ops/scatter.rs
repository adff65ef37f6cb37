//! `y = x` with `y[i, index[i, j, k], k] = src[i, j, k]` (`scatter`) or `+=` (`scatter_add`), along one dim; and whole slices added by an index of one
//! dim (`index_add`).
//!
//! `scatter`: of equal indices the last one wins, on every device. `dx` is `dy` with zeros where something was written; `dsrc` is `dy` at the index
//! where the element won, and 0 where a later one took its place. `scatter_add`, `index_add`: sums in index order, in f32 or wider, rounded once;
//! `dx = dy`, and `dsrc` is `dy` at the index.

use super::gather::{add_to, check, front, read};
use super::index;
use crate::op::{Autocast, BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::ops::compare::scalar_like;
use crate::saved::SavedTensors;
use crate::{DType, Dim, Error, Result, Scalar, Tensor, exec};
use kiln_kernels::scatter;
use kiln_kernels::{Arg, OutArg};
use smallvec::smallvec;

fn same_types(op: &'static str, x: &Tensor, src: &Tensor) -> Result<()> {
    if x.dtype() == src.dtype() {
        return Ok(());
    }
    Err(Error::dtype(op, format!("operands have types {} and {}; convert one with `to_dtype`", x.dtype(), src.dtype())))
}

/// Inputs: what is written to, the index, and what is written, which has the dims of the index.
struct Scatter {
    dim: usize,
}

/// Writes `src` into a copy of `x`.
fn written(dim: usize, x: &Tensor, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    let (out, src, index) = (exec::copy_of(x)?, exec::contiguous(src)?, exec::contiguous(index)?);
    // The index may cover the front of `x` alone: the part is written on its own, and put in its place.
    let covered = front(&out, &index, Some(dim))?;
    let part = exec::contiguous(&covered)?;
    let stream = src.device().stream();
    let (values, ids) = (src.storage().read(&stream)?, index.storage().read(&stream)?);
    let mut token = part.storage().write_new(&stream)?;
    let kernel = scatter::Scatter {
        src: Arg::new(&values, src.dtype(), src.layout()),
        dim,
        index: Arg::new(&ids, index.dtype(), index.layout()),
        out: OutArg::new(&mut token, part.dtype(), part.layout()),
    };
    src.device().run(kernel, &stream)?;
    drop(token);
    put_back(&out, &covered, &part)?;
    Ok(out)
}

/// Copies `part` to where `covered`, a view of `out`, lies, unless it is that.
fn put_back(out: &Tensor, covered: &Tensor, part: &Tensor) -> Result<()> {
    if part.storage().id() == out.storage().id() {
        return Ok(());
    }
    let stream = out.device().stream();
    let read = part.storage().read(&stream)?;
    let mut token = out.storage().write_new(&stream)?;
    let x = Arg::new(&read, part.dtype(), part.layout());
    out.device().run(kiln_kernels::copy::Copy { x, out: OutArg::new(&mut token, out.dtype(), covered.layout()) }, &stream)
}

impl Op for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        same_types("scatter", &inputs[0], &inputs[2])?;
        Ok(written(self.dim, &inputs[0], &inputs[1], &inputs[2])?.into())
    }
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&inputs[1])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let (g, index) = (ctx.only(grads)?, saved.take(0)?);
        let zero = Tensor::zeros((), g.dtype(), g.device())?;
        let mut result: InputGrads = smallvec![None, None, None];
        if ctx.needs(0) {
            result[0] = Some(written(self.dim, &g, &index, &zero.expand(index.shape())?)?);
        }
        if ctx.needs(2) {
            // Each place gets the number of the last element written there; those that find another number were written over.
            let numbers = Tensor::arange(0, index.elem_count(), 1, DType::I64, g.device())?.reshape(index.shape())?;
            let part = front(&g, &index, Some(self.dim))?;
            let last = written(self.dim, &Tensor::zeros(part.shape(), DType::I64, g.device())?, &index, &numbers)?;
            let won = read("scatter", self.dim, &last, &index)?.eq(&numbers)?;
            result[2] = Some(won.where_cond(&read("scatter", self.dim, &part, &index)?, &zero)?);
        }
        Ok(result)
    }
    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }
}

/// Inputs as those of `Scatter`.
struct Add {
    dim: usize,
}

impl Op for Add {
    fn name(&self) -> &'static str {
        "scatter_add"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (x, index, src) = (&inputs[0], &inputs[1], &inputs[2]);
        same_types("scatter_add", x, src)?;
        let out = exec::copy_as("scatter_add", x, x.dtype().accumulator())?;
        let covered = front(&out, index, Some(self.dim))?;
        let part = exec::contiguous(&covered)?;
        add_to(&part, self.dim, index, src)?;
        put_back(&out, &covered, &part)?;
        Ok(out.to_dtype(x.dtype())?.into())
    }
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        if keep.needs(2) { keep.tensor(&inputs[1]) } else { Ok(()) }
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        let mut result: InputGrads = smallvec![None, None, None];
        if ctx.needs(2) {
            let index = saved.take(0)?;
            result[2] = Some(read("scatter_add", self.dim, &front(&g, &index, Some(self.dim))?, &index)?);
        }
        if ctx.needs(0) {
            result[0] = Some(g);
        }
        Ok(result)
    }
    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }
}

/// Inputs: what is added to, an index of one dim, and what is added.
struct AddSlices {
    dim: usize,
}

impl Op for AddSlices {
    fn name(&self) -> &'static str {
        "index_add"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let (x, ids, src) = (&inputs[0], &inputs[1], &inputs[2]);
        same_types("index_add", x, src)?;
        let out = exec::copy_as("index_add", x, x.dtype().accumulator())?;
        index::add_slices(&out, self.dim, ids, src)?;
        Ok(out.to_dtype(x.dtype())?.into())
    }
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        if keep.needs(2) { keep.tensor(&inputs[1]) } else { Ok(()) }
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        let mut result: InputGrads = smallvec![None, None, None];
        if ctx.needs(2) {
            result[2] = Some(g.index_select(self.dim, &saved.take(0)?)?);
        }
        if ctx.needs(0) {
            result[0] = Some(g);
        }
        Ok(result)
    }
    fn autocast(&self) -> Autocast {
        Autocast::Widest
    }
}

impl Tensor {
    /// The front of `src` that the index covers, once all is checked.
    #[track_caller]
    fn scattered(&self, op: &'static str, dim: usize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        check(op, dim, self, index)?;
        if src.rank() != index.rank() || (0..src.rank()).any(|d| index.dims()[d] > src.dims()[d]) {
            let message = format!("an index of shape {} is larger than the source of shape {}", index.shape(), src.shape());
            return Err(Error::shape(op, message));
        }
        front(src, index, None)
    }

    /// This tensor with elements of `src` written along `dim` at the places of `index` (i64 or u32): `y[i, index[i, j, k], k] = src[i, j, k]` for `dim` 1.
    /// Where an index stands there more than once the last one wins, and those before it get a gradient of 0.
    ///
    /// All have one rank; the index is at most as large as `src` in every dim, and as this tensor in every dim but `dim`.
    ///
    /// # Errors
    /// For shapes and types that do not fit. An index out of range as in [`Tensor::gather`].
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// let x = Tensor::zeros((2, 3), DType::I64, &Device::cpu())?;
    /// let index = Tensor::from_vec(vec![2i64, 0], (2, 1), &Device::cpu())?;
    /// let src = Tensor::from_vec(vec![5i64, 6], (2, 1), &Device::cpu())?;
    /// assert_eq!(x.scatter(1, &index, &src)?.to_vec2::<i64>()?, [[0, 0, 5], [6, 0, 0]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter(&self, dim: impl Dim, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        let dim = dim.resolve("scatter", &self.shape())?;
        let src = self.scattered("scatter", dim, index, src)?;
        apply(Scatter { dim }, &[self, index, &src])
    }

    /// As [`Tensor::scatter`] with one number for all.
    ///
    /// # Errors
    /// As [`Tensor::scatter`]; for a number that an integer type does not hold.
    #[track_caller]
    pub fn scatter_value(&self, dim: impl Dim, index: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let value = scalar_like("scatter_value", value.into(), self)?;
        self.scatter(dim, index, &value.expand(index.shape())?)
    }

    /// This tensor with elements of `src` added along `dim` at the places of `index` (i64 or u32): `y[i, index[i, j, k], k] += src[i, j, k]` for `dim` 1.
    /// Shapes as in [`Tensor::scatter`]. Elements of one place are added up in order, the same on every run and device, in f32 or wider.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// let x = Tensor::zeros((1, 3), DType::F32, &Device::cpu())?;
    /// let index = Tensor::from_vec(vec![2i64, 2], (1, 2), &Device::cpu())?;
    /// let src = Tensor::from_vec(vec![5f32, 6.0], (1, 2), &Device::cpu())?;
    /// assert_eq!(x.scatter_add(1, &index, &src)?.to_vec2::<f32>()?, [[0.0, 0.0, 11.0]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn scatter_add(&self, dim: impl Dim, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        let dim = dim.resolve("scatter_add", &self.shape())?;
        let src = self.scattered("scatter_add", dim, index, src)?;
        apply(Add { dim }, &[self, index, &src])
    }

    /// This tensor with the slices of `src` along `dim` added to those that `index` (one dim, i64 or u32) names. `src` has as many slices as there are
    /// indices and the other dims of this tensor. Added up as in [`Tensor::scatter_add`].
    ///
    /// # Errors
    /// For shapes and types that do not fit. An index out of range as in [`Tensor::gather`].
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// let x = Tensor::zeros((2, 2), DType::F32, &Device::cpu())?;
    /// let rows = Tensor::from_vec(vec![1f32, 2., 3., 4.], (2, 2), &Device::cpu())?;
    /// let index = Tensor::from_vec(vec![1i64, 1], 2, &Device::cpu())?;
    /// assert_eq!(x.index_add(0, &index, &rows)?.to_vec2::<f32>()?, [[0.0, 0.0], [4.0, 6.0]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn index_add(&self, dim: impl Dim, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        const NAME: &str = "index_add";
        let dim = dim.resolve(NAME, &self.shape())?;
        index::check(NAME, dim, self, index)?;
        let mut wanted = self.shape();
        wanted.0[dim] = index.elem_count();
        if index.rank() != 1 || src.shape() != wanted {
            let message = format!(
                "an index of shape {} and a source of shape {} do not fit dim {dim} of shape {}",
                index.shape(),
                src.shape(),
                self.shape()
            );
            return Err(Error::shape(NAME, message));
        }
        apply(AddSlices { dim }, &[self, index, src])
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn what_does_not_fit_is_an_error() -> Result<()> {
        let d = Device::cpu();
        let x = Tensor::zeros((2, 3), DType::F32, &d)?;
        let ids = |shape: &[usize]| Tensor::zeros(shape, DType::I64, &d);
        let src = |shape: &[usize]| Tensor::ones(shape, DType::F32, &d);
        assert!(x.scatter(1, &ids(&[3, 1])?, &src(&[3, 1])?).is_err(), "larger than the target");
        let e = x.scatter_add(1, &ids(&[2, 2])?, &src(&[2, 1])?).unwrap_err().to_string();
        assert!(e.starts_with("scatter_add") && e.contains("[2, 2]") && e.contains("[2, 1]"), "{e}");
        assert!(x.scatter(1, &ids(&[2, 1])?, &src(&[2, 1])?.to_dtype(DType::F64)?).is_err());
        assert!(x.index_add(0, &ids(&[2])?, &src(&[1, 3])?).is_err());
        assert!(x.index_add(0, &ids(&[2, 1])?, &src(&[2, 3])?).is_err());
        for bad in [-1i64, 3] {
            let index = Tensor::from_vec(vec![bad], (1, 1), &d)?;
            assert!(x.scatter(1, &index, &src(&[1, 1])?).unwrap_err().to_string().contains(&bad.to_string()));
            assert!(x.scatter_add(1, &index, &src(&[1, 1])?).is_err());
        }
        Ok(())
    }
}
