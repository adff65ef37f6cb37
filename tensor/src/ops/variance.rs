//! `var = sum of (x - mean)^2 over dims / (n - correction)` and `std = sqrt(var)`, in two passes with mean and sum in f64 and no temporary.
//! `dx = 2 (x - mean) / (n - correction) dvar + dmean / n`, and `dvar = dstd / (2 std)`, 0 where `std` is 0.

use super::extremum::zero;
use super::sum::{check_float, count, drop_dims, reduce, reduce_made, result_type};
use crate::op::{BackwardContext, InputGrads, Keep, Op, OutputGrads, Outputs, apply_multi};
use crate::saved::SavedTensors;
use crate::{DType, DimList, Error, Result, Tensor, exec};
use kiln_kernels::elementwise::row;
use kiln_kernels::reduce::{Made, Reduction};
use smallvec::smallvec;

/// Variance (or its root) and mean over the dims of a mask; reduced dims stay with size 1.
struct Variance {
    name: &'static str,
    root: bool,
    mask: u32,
    /// Elements of a result.
    n: f64,
    /// `n - correction`, at least 0.
    freedom: f64,
    from: DType,
    to: DType,
}

impl Op for Variance {
    fn name(&self) -> &'static str {
        self.name
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let x = &inputs[0];
        let mean = reduce(self.name, Reduction::Mean, x, self.mask, DType::F64)?;
        let squares = reduce_made(self.name, Made::SquareSum, x, self.mask, Some(&mean), DType::F64)?;
        let var = squares.div(&Tensor::full(self.freedom, (), DType::F64, x.device())?)?;
        let result = if self.root { var.sqrt()? } else { var };
        Ok(Outputs { results: smallvec![result.to_dtype(self.to)?, mean.to_dtype(self.to)?], extra: smallvec![] })
    }
    fn save(&self, inputs: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        keep.tensor(&inputs[0])?;
        keep.tensor(&outputs.results[1])?;
        if self.root { keep.tensor(&outputs.results[0]) } else { Ok(()) }
    }
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let mut grads = grads.into_iter();
        let (g_var, g_mean) = (grads.next().flatten(), grads.next().flatten());
        let (x, mean) = (saved.take(0)?, saved.take(1)?.to_dtype(self.from)?);
        let g_var = ctx.output(g_var, 0)?.to_dtype(DType::F64)?;
        let g_var = if self.root {
            let std = saved.take(2)?.to_dtype(DType::F64)?;
            std.eq(0.0)?.where_cond(&zero(&g_var)?, &g_var.div(&std.affine(2.0, 0.0)?)?)?
        } else {
            g_var
        };
        let freedom = Tensor::full(self.freedom, (), DType::F64, x.device())?;
        let scale = g_var.div(&freedom)?.to_dtype(self.from)?;
        let dx = exec::map(self.name, row("sq_diff_backward_x"), [0.0; 2], &[&x, &mean, &scale], &x.shape())?;
        drop(x);
        Ok(smallvec![Some(match g_mean {
            Some(g) => exec::add_into(dx, &g.to_dtype(self.from)?.affine(1.0 / self.n, 0.0)?)?,
            None => dx,
        })])
    }
}

impl Tensor {
    #[track_caller]
    fn variance(&self, name: &'static str, root: bool, mask: u32, correction: f64) -> Result<(Tensor, Tensor)> {
        check_float(name, self)?;
        if !(correction >= 0.0 && correction.is_finite()) {
            return Err(Error::argument(name, format!("a correction of {correction} is no finite number of at least 0")));
        }
        let (n, from) = (count(self, mask), self.dtype());
        let op = Variance { name, root, mask, n, freedom: (n - correction).max(0.0), from, to: result_type(from) };
        let mut results = apply_multi(op, &[self])?.into_iter();
        match (results.next(), results.next()) {
            (Some(var), Some(mean)) => Ok((var, mean)),
            _ => Err(Error::message("a variance without its mean")),
        }
    }
}

macro_rules! variances {
    ($root:literal $what:literal $one:ident $one_keepdim:ident $both:ident) => {
        impl Tensor {
            #[doc = concat!("The ", $what, " over dims, which vanish; `()` means all. The sum of squares is divided by `n - correction`: 1 for an ")]
            /// unbiased variance, 0 for that of the elements alone. NaN where `n - correction` is 0 and of nothing. Floats only; stable for any offset:
            /// mean and squares are added up in f64 in two passes, and nothing of the size of the input is made.
            ///
            /// # Errors
            /// For integers, and for a correction below 0.
            ///
            /// ```
            /// # use kiln_tensor::{Tensor, Device};
            /// let x = Tensor::from_vec(vec![1f64, 2., 3., 4.], 4, &Device::cpu())?;
            /// assert_eq!(x.var((), 0.0)?.to_scalar::<f64>()?, 1.25);
            /// assert_eq!(x.std((), 0.0)?.to_scalar::<f64>()?, 1.25f64.sqrt());
            /// # Ok::<(), kiln_tensor::Error>(())
            /// ```
            #[track_caller]
            pub fn $one(&self, dims: impl DimList, correction: f64) -> Result<Tensor> {
                Ok(self.$both(dims, correction)?.0)
            }
            #[doc = concat!("The ", $what, " over dims, which stay with size 1; see [`Tensor::", stringify!($one), "`].")]
            #[track_caller]
            pub fn $one_keepdim(&self, dims: impl DimList, correction: f64) -> Result<Tensor> {
                Ok(self.variance(stringify!($one), $root, dims.mask(stringify!($one), &self.shape())?, correction)?.0)
            }
            #[doc = concat!("The ", $what, " and the mean over dims, which vanish; see [`Tensor::", stringify!($one), "`].")]
            #[track_caller]
            pub fn $both(&self, dims: impl DimList, correction: f64) -> Result<(Tensor, Tensor)> {
                let mask = dims.mask(stringify!($one), &self.shape())?;
                let (one, mean) = self.variance(stringify!($one), $root, mask, correction)?;
                Ok((drop_dims(&one, mask)?, drop_dims(&mean, mask)?))
            }
        }
    };
}
variances!(false "variance" var var_keepdim var_mean);
variances!(true "standard deviation" std std_keepdim std_mean);
