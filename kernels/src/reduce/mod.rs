//! Reductions over any set of dims. Same result for any number of threads and on every run.

use crate::{Arg, OutArg};

mod cpu;
mod cuda;
mod fold;
mod plan;

pub(crate) use cuda::sources;

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
}

/// `out = op over the reduced dims of x`. Sums and means of 16-bit floats accumulate in f32 (f32 in f32 by blocks, so that the error stays
/// within `4 * 2^-24 * sqrt(K)`), then round to the type of `out`. The number of reduced elements is at least 1 for max and min.
pub struct Reduce<'a> {
    /// What.
    pub op: Reduction,
    /// Source, any layout. Floats, or i64/u32/u8 for sum, max and min (sums of u8 and u32 go to an i64 `out`).
    pub x: Arg<'a>,
    /// Bit `d` set: dim `d` is reduced.
    pub dims: u32,
    /// Contiguous, the kept dims of `x` in order (reduced dims gone or of size 1). Type of `x`, or f32 for a 16-bit float `x`.
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

impl crate::Kernel for Reduce<'_> {
    fn workspace_bytes(&self) -> usize {
        let plan = plan::Plan::new(self.x.layout, self.dims);
        match plan.split().parts {
            1 => 0,
            parts => parts * plan.outputs * plan::accumulator(self.op, self.x.dtype).size(),
        }
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
