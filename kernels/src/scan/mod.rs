//! Running sums and products along the middle dim of `[outer, n, inner]`. Floats are kept in f64 and rounded once an element, integers in i64,
//! wrapping.

use crate::{Arg, OutArg};

mod cpu;
mod cuda;

pub(crate) use cuda::sources;

/// What runs along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Running {
    /// The sum so far.
    Sum,
    /// The product so far.
    Product,
}

/// `out_i = op of x_0 .. x_i` along a dim, or of `x_i .. x_(n-1)` in reverse.
pub struct Scan<'a> {
    /// What.
    pub op: Running,
    /// From the back.
    pub reverse: bool,
    /// Contiguous, any type.
    pub x: Arg<'a>,
    /// Product of the dims before the one walked.
    pub outer: usize,
    /// Size of the dim walked.
    pub n: usize,
    /// Product of the dims after it.
    pub inner: usize,
    /// Contiguous, the type of a float `x`, i64 for integers.
    pub out: OutArg<'a>,
}

/// The gradient of a running product `y`: `dx_i = y_(i-1) S_i` with `S_i = g_i + x_(i+1) S_(i+1)`. No division: zeros in `x` are like any number.
pub struct ProductBackward<'a> {
    /// Contiguous, any float type.
    pub x: Arg<'a>,
    /// Running product of `x`, contiguous, its type.
    pub y: Arg<'a>,
    /// Upstream gradient, contiguous, type of `x`.
    pub g: Arg<'a>,
    /// As in forward.
    pub outer: usize,
    /// As in forward.
    pub n: usize,
    /// As in forward.
    pub inner: usize,
    /// Contiguous, type of `x`.
    pub dx: OutArg<'a>,
}

impl crate::Kernel for Scan<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::scan(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        _: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::scan(self, cuda, stream)
    }
}

impl crate::Kernel for ProductBackward<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::product_backward(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        _: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::product_backward(self, cuda, stream)
    }
}
