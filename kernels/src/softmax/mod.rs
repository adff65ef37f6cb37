//! Softmax and log-softmax over the middle dim of `[outer, n, inner]`, and their gradients. Computed in f32 (f64 for f64), stable for any finite
//! input. A row of only -inf gives NaN, as in PyTorch.

use crate::{Arg, OutArg};

mod cpu;
mod cuda;

pub(crate) use cuda::sources;

/// `y = exp(x - max) / sum(exp(x - max))`, or its logarithm `x - max - ln(sum)`.
pub struct Softmax<'a> {
    /// The logarithm instead.
    pub log: bool,
    /// Contiguous, any float type.
    pub x: Arg<'a>,
    /// Product of the dims before the one normalised.
    pub outer: usize,
    /// Size of the dim normalised.
    pub n: usize,
    /// Product of the dims after it.
    pub inner: usize,
    /// Contiguous, type of `x` or f32.
    pub out: OutArg<'a>,
}

/// Softmax: `dx = y * (g - sum(g * y))`. Log: `dx = g - exp(y) * sum(g)`.
pub struct SoftmaxBackward<'a> {
    /// The logarithm instead.
    pub log: bool,
    /// Result of the forward pass, contiguous.
    pub y: Arg<'a>,
    /// Upstream gradient, contiguous, type of `y`.
    pub g: Arg<'a>,
    /// As in forward.
    pub outer: usize,
    /// As in forward.
    pub n: usize,
    /// As in forward.
    pub inner: usize,
    /// Contiguous, any float type.
    pub dx: OutArg<'a>,
}

impl crate::Kernel for Softmax<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::softmax(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::softmax(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for SoftmaxBackward<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::softmax_backward(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::softmax_backward(self, cuda, stream, workspace)
    }
}
