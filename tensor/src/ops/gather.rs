//! `y[i, j, k] = x[i, index[i, j, k], k]` along one dim. `dx[i, l, k]` is the sum of `dy[i, j, k]` over the `j` with `index[i, j, k] = l`, added up
//! in index order in f32 or wider and rounded once.

use crate::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{DType, Dim, Error, Result, Shape, Tensor, exec};
use kiln_kernels::scatter::{self, ScatterAdd};
use kiln_kernels::{Arg, OutArg};
use smallvec::smallvec;

/// Inputs: the source, and the index, which has its dims but for `dim`.
struct Gather {
    name: &'static str,
    dim: usize,
    from: Shape,
}

/// `x` by contiguous operands that fit.
pub(super) fn read(op: &'static str, dim: usize, x: &Tensor, index: &Tensor) -> Result<Tensor> {
    let (x, index) = (exec::contiguous(x)?, exec::contiguous(index)?);
    exec::fill_new(op, &index.shape(), x.dtype(), x.device(), |out, stream| {
        let (xs, ids) = (x.storage().read(stream)?, index.storage().read(stream)?);
        let (xs, index) = (Arg::new(&xs, x.dtype(), x.layout()), Arg::new(&ids, index.dtype(), index.layout()));
        x.device().run(scatter::Gather { x: xs, dim, index, out }, stream)
    })
}

/// Adds `src` to `out`, which is new, contiguous and of the type that `src` adds up in.
pub(super) fn add_to(out: &Tensor, dim: usize, index: &Tensor, src: &Tensor) -> Result<()> {
    let (src, index) = (exec::contiguous(src)?, exec::contiguous(index)?);
    let stream = src.device().stream();
    let (values, ids) = (src.storage().read(&stream)?, index.storage().read(&stream)?);
    let mut token = out.storage().write_new(&stream)?;
    let kernel = ScatterAdd {
        src: Arg::new(&values, src.dtype(), src.layout()),
        dim,
        index: Arg::new(&ids, index.dtype(), index.layout()),
        out: OutArg::new(&mut token, out.dtype(), out.layout()),
    };
    src.device().run(kernel, &stream)
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        self.name
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(read(self.name, self.dim, &inputs[0], &inputs[1])?.into())
    }
    fn save(&self, inputs: &[Tensor], _: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&inputs[1])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let (g, index) = (ctx.only(grads)?, saved.take(0)?);
        let dx = Tensor::zeros(&self.from, g.dtype().accumulator(), g.device())?;
        add_to(&dx, self.dim, &index, &g)?;
        Ok(smallvec![Some(dx.to_dtype(g.dtype())?), None])
    }
}

/// An error where `index` has no type of indices, another rank than `x`, or dims other than `dim` larger than those of `x`; or where no index is in range.
pub(super) fn check(op: &'static str, dim: usize, x: &Tensor, index: &Tensor) -> Result<()> {
    if !matches!(index.dtype(), DType::I64 | DType::U32) {
        return Err(Error::dtype(op, format!("indices are i64 or u32, not {}; convert with `to_dtype`", index.dtype())));
    }
    let fits = index.rank() == x.rank() && (0..x.rank()).all(|d| d == dim || index.dims()[d] <= x.dims()[d]);
    if !fits {
        let message = format!("an index of shape {} does not fit shape {} outside of dim {dim}", index.shape(), x.shape());
        return Err(Error::shape(op, message));
    }
    if x.dims()[dim] == 0 && index.elem_count() > 0 {
        return Err(Error::argument(op, format!("dim {dim} of shape {} is empty: no index is in range", x.shape())));
    }
    Ok(())
}

/// The front of each dim of `x` but `dim`, as long as that of `like`.
#[track_caller]
pub(super) fn front(x: &Tensor, like: &Tensor, dim: Option<usize>) -> Result<Tensor> {
    let mut part = x.clone();
    // A loop: in a closure the caller's line would be lost.
    for d in 0..x.rank() {
        if Some(d) != dim {
            part = part.narrow(d, 0, like.dims()[d])?;
        }
    }
    Ok(part)
}

impl Tensor {
    /// Elements along `dim` by an index for each: `y[i, j, k] = x[i, index[i, j, k], k]` for `dim` 1. The result has the shape of `index` (i64 or u32),
    /// whose other dims are at most as large as those of this tensor.
    ///
    /// # Errors
    /// For an index of another rank, type or of larger dims. An index out of range (negative ones are) is an error at once on the CPU; on CUDA at the
    /// next read-back, see [`Device::synchronize`](crate::Device::synchronize).
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4], (2, 2), &Device::cpu())?;
    /// let index = Tensor::from_vec(vec![0i64, 0, 1, 0], (2, 2), &Device::cpu())?;
    /// assert_eq!(x.gather(1, &index)?.to_vec2::<i64>()?, [[1, 1], [4, 3]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn gather(&self, dim: impl Dim, index: &Tensor) -> Result<Tensor> {
        let dim = dim.resolve("gather", &self.shape())?;
        check("gather", dim, self, index)?;
        let x = front(self, index, Some(dim))?;
        apply(Gather { name: "gather", dim, from: x.shape() }, &[&x, index])
    }

    /// As [`Tensor::gather`], but all dims other than `dim` broadcast. The index of [`argmax`](Tensor::argmax) with its dim kept takes the largest elements.
    ///
    /// # Errors
    /// Where the other dims do not broadcast, and as [`Tensor::gather`].
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4, 5, 6], (2, 3), &Device::cpu())?;
    /// let index = Tensor::from_vec(vec![2i64, 0], (1, 2), &Device::cpu())?;
    /// assert_eq!(x.take_along_dim(&index, 1)?.to_vec2::<i64>()?, [[3, 1], [6, 4]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn take_along_dim(&self, index: &Tensor, dim: impl Dim) -> Result<Tensor> {
        const NAME: &str = "take_along_dim";
        let dim = dim.resolve(NAME, &self.shape())?;
        if index.rank() != self.rank() {
            let message = format!("an index of shape {} has another rank than shape {}", index.shape(), self.shape());
            return Err(Error::shape(NAME, message));
        }
        let (mut xs, mut ids) = (self.shape(), index.shape());
        (xs.0[dim], ids.0[dim]) = (1, 1);
        let common = xs.broadcast(&ids, NAME)?;
        (xs, ids) = (common.clone(), common);
        (xs.0[dim], ids.0[dim]) = (self.dims()[dim], index.dims()[dim]);
        let (x, index) = (self.expand(&xs)?, index.expand(&ids)?);
        check(NAME, dim, &x, &index)?;
        apply(Gather { name: NAME, dim, from: xs }, &[&x, &index])
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
        let e = x.gather(1, &ids(&[3, 1])?).unwrap_err().to_string();
        assert!(e.starts_with("gather") && e.contains("[3, 1]") && e.contains("[2, 3]"), "{e}");
        assert!(x.gather(1, &ids(&[2])?).is_err());
        assert!(x.gather(2, &ids(&[2, 3])?).is_err());
        assert!(x.gather(1, &Tensor::zeros((2, 1), DType::F32, &d)?).is_err());
        assert!(x.narrow(1, 0, 0)?.gather(1, &ids(&[2, 1])?).is_err());
        assert!(x.take_along_dim(&ids(&[3, 1])?, 1).is_err());
        for bad in [-1i64, 3] {
            let e = x.gather(1, &Tensor::from_vec(vec![bad], (1, 1), &d)?).unwrap_err().to_string();
            assert!(e.starts_with("gather") && e.contains(&bad.to_string()), "{e}");
        }
        Ok(())
    }
}
