//! Layer normalisation over the last dim: `y = (x - mean) * rstd * weight + bias`, `rstd = 1 / sqrt(var + eps)`, var biased.

use crate::{Arg, OutArg};

mod cpu;
mod cuda;
mod shape;

pub(crate) use cuda::sources;

const NAME: &str = "layer_norm";

/// The forward pass. Statistics are computed in two passes or by Welford's method (no cancellation), in f32 (f64 for f64).
pub struct LayerNorm<'a> {
    /// Contiguous `[rows, n]`, any float type.
    pub x: Arg<'a>,
    /// Contiguous `[n]`, any float type; 1 where missing.
    pub weight: Option<Arg<'a>>,
    /// Contiguous `[n]`, type of `weight`; 0 where missing.
    pub bias: Option<Arg<'a>>,
    /// Added to the variance.
    pub eps: f64,
    /// Contiguous `[rows, n]`, type of `x` or f32.
    pub out: OutArg<'a>,
    /// Contiguous `[rows]`, f32 (f64 for f64).
    pub mean: OutArg<'a>,
    /// Contiguous `[rows]`, type of `mean`.
    pub rstd: OutArg<'a>,
}

/// The backward pass; each result is computed only where it is wanted.
///
/// With `h = (x - mean) * rstd`, `s = g * weight`: `dx = rstd * (s - mean_n(s) - h * mean_n(s * h))`, `dweight = sum_rows(g * h)`,
/// `dbias = sum_rows(g)`. Row sums are added up in a fixed order (same result every run).
pub struct LayerNormBackward<'a> {
    /// Input of the forward pass, contiguous `[rows, n]`.
    pub x: Arg<'a>,
    /// Weight of the forward pass.
    pub weight: Option<Arg<'a>>,
    /// Mean of each row.
    pub mean: Arg<'a>,
    /// Reciprocal deviation of each row.
    pub rstd: Arg<'a>,
    /// Upstream gradient, contiguous `[rows, n]`, type of the forward `out`.
    pub g: Arg<'a>,
    /// Gradient of `x`, contiguous, type of `x`.
    pub dx: Option<OutArg<'a>>,
    /// Gradient of the weight, contiguous `[n]`, type of `weight`.
    pub dweight: Option<OutArg<'a>>,
    /// Gradient of the bias, contiguous `[n]`, type of `weight`.
    pub dbias: Option<OutArg<'a>>,
}

impl crate::Kernel for LayerNorm<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::layer_norm(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::layer_norm(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for LayerNormBackward<'_> {
    fn workspace_bytes(&self) -> usize {
        shape::workspace_bytes(self)
    }
    fn cpu(self) -> crate::Result<()> {
        cpu::layer_norm_backward(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::layer_norm_backward(self, cuda, stream, workspace)
    }
}
