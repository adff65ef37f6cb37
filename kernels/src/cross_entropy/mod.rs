//! Cross entropy of logits and class indices: `loss[r] = logsumexp(x[r]) - x[r][target[r]]`, 0 where the target is `ignore_index`.

use crate::{Arg, OutArg};

mod cpu;
mod cuda;

pub(crate) use cuda::sources;

/// The forward pass, one row after another, stable for any finite logits.
pub struct CrossEntropy<'a> {
    /// Logits, contiguous `[rows, classes]`, any float type; computed in f32 (f64 for f64).
    pub logits: Arg<'a>,
    /// Classes, contiguous `[rows]`, i64.
    pub target: Arg<'a>,
    /// Rows with this target count nothing.
    pub ignore_index: i64,
    /// Loss of each row, contiguous `[rows]`, f32 (f64 for f64 logits).
    pub loss: OutArg<'a>,
    /// logsumexp of each row, contiguous `[rows]`, same type as `loss`.
    pub lse: OutArg<'a>,
    /// 1 for each row that counts, 0 else, contiguous `[rows]`, same type as `loss`.
    pub counted: OutArg<'a>,
}

/// The backward pass: `dx[r][c] = (exp(x[r][c] - lse[r]) - (c == target[r])) * g[r]`, 0 for rows that don't count.
pub struct CrossEntropyBackward<'a> {
    /// Logits, as in forward.
    pub logits: Arg<'a>,
    /// Classes, as in forward.
    pub target: Arg<'a>,
    /// As in forward.
    pub ignore_index: i64,
    /// logsumexp of each row.
    pub lse: Arg<'a>,
    /// Upstream gradient of each row, dims `[rows]`, any stride (0 where it is one number), type of `lse`.
    pub g: Arg<'a>,
    /// Gradient of the logits, contiguous, type of `logits`.
    pub dx: OutArg<'a>,
}

impl crate::Kernel for CrossEntropy<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::cross_entropy(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::cross_entropy(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for CrossEntropyBackward<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::cross_entropy_backward(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::cross_entropy_backward(self, cuda, stream, workspace)
    }
}
