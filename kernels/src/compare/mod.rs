//! Comparisons and selection: results and conditions are masks of u8, 0 or 1.

use crate::{Arg, OutArg};

mod cpu;
mod cuda;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Equal (NaN is equal to nothing).
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

/// `out[i] = a[i] <op> b[i]`. Operands have one element type, any layouts, and the dims of `out` (broadcasts have stride 0).
pub struct Compare<'a> {
    /// Which.
    pub op: Comparison,
    /// Left operand.
    pub a: Arg<'a>,
    /// Right operand.
    pub b: Arg<'a>,
    /// u8, contiguous.
    pub out: OutArg<'a>,
}

/// `out[i] = mask[i] != 0 ? a[i] : b[i]`. Any layouts with the dims of `out`; `a`, `b` and `out` have one element type.
pub struct Select<'a> {
    /// u8.
    pub mask: Arg<'a>,
    /// Taken where the mask is not 0.
    pub a: Arg<'a>,
    /// Taken where it is 0.
    pub b: Arg<'a>,
    /// Contiguous.
    pub out: OutArg<'a>,
}

impl crate::Kernel for Compare<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::compare(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::compare(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for Select<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::select(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::select(self, cuda, stream, workspace)
    }
}
