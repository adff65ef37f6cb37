//! The largest or smallest element. Over a set of dims the gradient is shared evenly among equals, `dx = (x == y) dy / count`; along one dim with an
//! index it goes to the element of that index, the first of equals. Either way it adds up to the upstream gradient.

use super::sum::{drop_dims, reduce};
use crate::op::{BackwardContext, Derivative, InputGrads, Keep, Op, OutputGrads, Outputs, apply, apply_multi};
use crate::saved::SavedTensors;
use crate::{DType, Dim, DimList, Error, Result, Shape, Tensor, exec};
use kiln_kernels::Arg;
use kiln_kernels::reduce::{ArgReduce, Reduction};
use smallvec::smallvec;

/// The largest or smallest over the dims of a mask; reduced dims stay with size 1.
struct Extremum {
    min: bool,
    mask: u32,
}

impl Op for Extremum {
    fn name(&self) -> &'static str {
        if self.min { "amin" } else { "amax" }
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(reduce(self.name(), reduction(self.min), &inputs[0], self.mask, inputs[0].dtype())?.into())
    }
    fn save(&self, inputs: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&inputs[0])?;
        keep.tensor(&outputs.results[0])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        let wide = g.dtype().accumulator();
        let equal = saved.take(0)?.eq(&saved.take(1)?)?;
        let count = reduce(self.name(), Reduction::Sum, &equal, self.mask, DType::I64)?.to_dtype(wide)?;
        let share = g.to_dtype(wide)?.div(&count)?.to_dtype(g.dtype())?;
        Ok(smallvec![Some(equal.where_cond(&share, &zero(&g)?)?)])
    }
}

/// The largest or smallest along one dim, and where it is; the dim stays with size 1.
struct Indexed {
    min: bool,
    dim: usize,
    size: usize,
}

impl Op for Indexed {
    fn name(&self) -> &'static str {
        if self.min { "min" } else { "max" }
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let values = reduce(self.name(), reduction(self.min), &inputs[0], 1 << self.dim, inputs[0].dtype())?;
        Ok(Outputs { results: smallvec![values, arg_reduce(self.name(), self.min, &inputs[0], self.dim)?], extra: smallvec![] })
    }
    fn save(&self, _: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&outputs.results[1])
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.output(grads.into_iter().next().flatten(), 0)?;
        let index = saved.take(0)?;
        let mut along = vec![1; g.rank()];
        along[self.dim] = self.size;
        let positions = Tensor::arange(0, self.size as i64, 1, DType::I64, g.device())?.reshape(along)?;
        Ok(smallvec![Some(index.eq(&positions)?.where_cond(&g, &zero(&g)?)?)])
    }
}

/// Where the largest or smallest along one dim is; the dim stays with size 1.
struct ArgExtremum {
    min: bool,
    dim: usize,
}

impl Op for ArgExtremum {
    fn name(&self) -> &'static str {
        if self.min { "argmin" } else { "argmax" }
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(arg_reduce(self.name(), self.min, &inputs[0], self.dim)?.into())
    }
    fn backward(&self, _: OutputGrads, _: &mut SavedTensors, _: &BackwardContext<'_>) -> Result<InputGrads> {
        Err(Error::NoDerivative { op: self.name() })
    }
    fn derivative(&self) -> Derivative {
        Derivative::Discrete
    }
}

fn reduction(min: bool) -> Reduction {
    if min { Reduction::Min } else { Reduction::Max }
}

pub(crate) fn zero(like: &Tensor) -> Result<Tensor> {
    Tensor::zeros((), like.dtype(), like.device())
}

fn arg_reduce(op: &'static str, min: bool, x: &Tensor, dim: usize) -> Result<Tensor> {
    let mut dims = x.dims().to_vec();
    dims[dim] = 1;
    exec::fill_new(op, &Shape::from(dims), DType::I64, x.device(), |out, stream| {
        let token = x.storage().read(stream)?;
        x.device().run(ArgReduce { min, x: Arg::new(&token, x.dtype(), x.layout()), dim, out }, stream)
    })
}

impl Tensor {
    /// An error where nothing is compared: the extremum of no elements is none.
    pub(crate) fn check_compared(&self, op: &'static str, mask: u32) -> Result<()> {
        match (0..self.rank()).find(|&d| mask >> d & 1 == 1 && self.dims()[d] == 0) {
            Some(d) => Err(Error::shape(op, format!("dim {d} of shape {} has no elements to compare", self.shape()))),
            None => Ok(()),
        }
    }
    #[track_caller]
    fn extremum(&self, min: bool, mask: u32) -> Result<Tensor> {
        let op = Extremum { min, mask };
        self.check_compared(op.name(), mask)?;
        apply(op, &[self])
    }
    #[track_caller]
    fn indexed(&self, min: bool, dim: impl Dim) -> Result<(Tensor, Tensor, u32)> {
        let name = if min { "min" } else { "max" };
        let dim = dim.resolve(name, &self.shape())?;
        self.check_compared(name, 1 << dim)?;
        let mut results = apply_multi(Indexed { min, dim, size: self.dims()[dim] }, &[self])?.into_iter();
        match (results.next(), results.next()) {
            (Some(values), Some(indices)) => Ok((values, indices, 1 << dim)),
            _ => Err(Error::message("an extremum without its index")),
        }
    }
    #[track_caller]
    fn arg_extremum(&self, min: bool, dim: impl Dim) -> Result<Tensor> {
        let name = if min { "argmin" } else { "argmax" };
        let dim = dim.resolve(name, &self.shape())?;
        self.check_compared(name, 1 << dim)?;
        drop_dims(&apply(ArgExtremum { min, dim }, &[self])?, 1 << dim)
    }
}

macro_rules! extrema {
    ($min:literal $adjective:literal $all:ident $over:ident $over_keepdim:ident $along:ident $along_keepdim:ident $with_indices:ident $arg:ident) => {
        impl Tensor {
            #[doc = concat!("The ", $adjective, " of all elements, with no dims; NaN where any is. Equals share the gradient evenly.")]
            #[track_caller]
            pub fn $all(&self) -> Result<Tensor> {
                self.$over(())
            }
            #[doc = concat!("The ", $adjective, " over dims, which vanish; NaN where any is. `()` means all. Equals share the gradient evenly.")]
            #[track_caller]
            pub fn $over(&self, dims: impl DimList) -> Result<Tensor> {
                let mask = dims.mask(stringify!($over), &self.shape())?;
                drop_dims(&self.extremum($min, mask)?, mask)
            }
            #[doc = concat!("The ", $adjective, " over dims, which stay with size 1.")]
            #[track_caller]
            pub fn $over_keepdim(&self, dims: impl DimList) -> Result<Tensor> {
                self.extremum($min, dims.mask(stringify!($over), &self.shape())?)
            }
            #[doc = concat!("The ", $adjective, " along a dim, which vanishes; a NaN wins. The gradient goes to the first of equals.")]
            #[track_caller]
            pub fn $along(&self, dim: impl Dim) -> Result<Tensor> {
                let (values, _, mask) = self.indexed($min, dim)?;
                drop_dims(&values, mask)
            }
            #[doc = concat!("The ", $adjective, " along a dim, which stays with size 1. The gradient goes to the first of equals.")]
            #[track_caller]
            pub fn $along_keepdim(&self, dim: impl Dim) -> Result<Tensor> {
                Ok(self.indexed($min, dim)?.0)
            }
            #[doc = concat!("The ", $adjective, " along a dim, which vanishes, and its index (i64): the first of equals, and a NaN wins.")]
            #[track_caller]
            pub fn $with_indices(&self, dim: impl Dim) -> Result<(Tensor, Tensor)> {
                let (values, indices, mask) = self.indexed($min, dim)?;
                Ok((drop_dims(&values, mask)?, drop_dims(&indices, mask)?))
            }
            #[doc = concat!("The index (i64) of the ", $adjective, " along a dim, which vanishes: the first of equals, and a NaN wins.")]
            #[track_caller]
            pub fn $arg(&self, dim: impl Dim) -> Result<Tensor> {
                self.arg_extremum($min, dim)
            }
        }
    };
}
extrema!(false "largest" max_all amax amax_keepdim max max_keepdim max_with_indices argmax);
extrema!(true "smallest" min_all amin amin_keepdim min min_keepdim min_with_indices argmin);

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    fn x() -> Result<Tensor> {
        Tensor::from_vec(vec![3f32, 1., 3., -2., 5., 5.], (2, 3), &Device::cpu())
    }

    #[test]
    fn values_and_indices_along_a_dim() -> Result<()> {
        let (values, indices) = x()?.max_with_indices(-1)?;
        assert_eq!((values.to_vec::<f32>()?, indices.to_vec::<i64>()?), (vec![3., 5.], vec![0, 1]));
        assert_eq!(x()?.t()?.min(1)?.to_vec::<f32>()?, [-2., 1., 3.]);
        assert_eq!(x()?.argmin(1)?.to_vec::<i64>()?, [1, 0]);
        assert_eq!(x()?.max_keepdim(0)?.dims(), [1, 3]);
        Ok(())
    }

    #[test]
    fn over_all_and_several_dims() -> Result<()> {
        assert_eq!(x()?.max_all()?.to_scalar::<f32>()?, 5.);
        assert_eq!(x()?.amin([0, 1])?.to_scalar::<f32>()?, -2.);
        assert_eq!(x()?.amax_keepdim([0])?.to_vec::<f32>()?, [3., 5., 5.]);
        assert_eq!(x()?.to_dtype(DType::U8)?.max_all()?.to_scalar::<u8>()?, 5);
        Ok(())
    }

    #[test]
    fn nothing_has_no_extremum_but_none_of_nothing_are_fine() -> Result<()> {
        let empty = Tensor::zeros((2, 0), DType::F32, &Device::cpu())?;
        assert!(empty.max_all().is_err() && empty.max(1).is_err() && empty.argmin(1).is_err());
        assert_eq!(empty.max(0)?.dims(), [0]);
        assert_eq!(empty.argmax(0)?.dims(), [0]);
        Ok(())
    }
}
