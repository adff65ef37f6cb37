//! Reductions over any set of dims. Same result for any number of threads and on every run.

use crate::{Arg, DType, Layout, OutArg};

mod cpu;
mod cpu_made;
mod cuda;
mod fold;
mod plan;
mod sources;

pub(crate) use sources::sources;

/// What a reduction computes over the elements it folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Sum; 0 of nothing.
    Sum,
    /// Sum over count; NaN of nothing.
    Mean,
    /// Largest; NaN where any element is NaN.
    Max,
    /// Smallest; NaN where any element is NaN.
    Min,
    /// Product; 1 of nothing.
    Product,
}

/// `out = op over the reduced dims of x`. Sums and means of 16-bit floats accumulate in f32 (f32 in f32 by blocks, so that the error stays
/// within `4 * 2^-24 * sqrt(K)`), then round to the type of `out`; those with an f64 `out` in f64. The number of reduced elements is at least 1
/// for max and min.
pub struct Reduce<'a> {
    /// What.
    pub op: Reduction,
    /// Source, any layout. Floats, or i64/u32/u8 for all but the mean (sums and products of u8 and u32 go to an i64 `out`).
    pub x: Arg<'a>,
    /// Bit `d` set: dim `d` is reduced.
    pub dims: u32,
    /// Contiguous, the kept dims of `x` in order (reduced dims gone or of size 1). Type of `x`, or f32 for a 16-bit float `x`, or f64 for a
    /// sum or mean of floats.
    pub out: OutArg<'a>,
}

/// What is made of each element before it is folded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Made {
    /// Sum of `|x|`.
    AbsSum,
    /// Sum of `(x - shift)^2`.
    SquareSum,
    /// Sum of `exp(x - shift)`.
    ExpSum,
    /// Sum of `|x|^p`.
    PowSum(f64),
    /// The largest `|x|`; a NaN wins.
    AbsMax,
    /// The smallest `|x|`; a NaN wins.
    AbsMin,
}

impl Made {
    /// The type of running values.
    fn accumulator(self, dtype: DType) -> DType {
        if matches!(self, Made::AbsMax | Made::AbsMin) { dtype.accumulator() } else { DType::F64 }
    }
}

/// `out = fold over the reduced dims of what is made of each element of x`, in one pass and with no temporary. Sums are kept in f64: squares of
/// f32 elements do not overflow.
pub struct ReduceMade<'a> {
    /// What.
    pub op: Made,
    /// Source, any layout, any float type.
    pub x: Arg<'a>,
    /// Bit `d` set: dim `d` is reduced.
    pub dims: u32,
    /// One f64 number an output, contiguous; 0 where it is missing.
    pub shift: Option<Arg<'a>>,
    /// Contiguous, the kept dims of `x` in order. Type of `x`, or f64 for a sum, f32 for an extreme of 16-bit floats.
    pub out: OutArg<'a>,
}

/// Index of the largest or smallest element along one dim; the first of equals; a NaN wins.
pub struct ArgReduce<'a> {
    /// Smallest instead of largest.
    pub min: bool,
    /// Source, any layout, any element type.
    pub x: Arg<'a>,
    /// The reduced dim, of size at least 1.
    pub dim: usize,
    /// Contiguous i64, the kept dims.
    pub out: OutArg<'a>,
}

/// Bytes of the parts of folds that are split.
fn scratch_bytes(layout: &Layout, dims: u32, accumulator: DType) -> usize {
    let plan = plan::Plan::new(layout, dims);
    match plan.split().parts {
        1 => 0,
        parts => parts * plan.outputs * accumulator.size(),
    }
}

impl crate::Kernel for Reduce<'_> {
    fn workspace_bytes(&self) -> usize {
        scratch_bytes(self.x.layout, self.dims, plan::accumulator(self.op, self.x.dtype, self.out.dtype))
    }
    fn cpu(self) -> crate::Result<()> {
        cpu::reduce(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::reduce(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for ReduceMade<'_> {
    fn workspace_bytes(&self) -> usize {
        scratch_bytes(self.x.layout, self.dims, self.op.accumulator(self.x.dtype))
    }
    fn cpu(self) -> crate::Result<()> {
        cpu_made::reduce(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::reduce_made(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for ArgReduce<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::arg_reduce(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::arg_reduce(self, cuda, stream, workspace)
    }
}
