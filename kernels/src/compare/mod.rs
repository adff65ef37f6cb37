//! Comparisons and selection: results and conditions are masks of u8, 0 or 1.

use crate::arg::{expect, expect_contiguous};
use crate::{Arg, DType, KernelError, OutArg, Result};

mod cpu;
mod cuda;

pub(crate) use cuda::sources;

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

fn check_compare(k: &Compare<'_>) -> Result<()> {
    let dims = k.out.layout.dims();
    expect("compare", &k.a, k.a.dtype, dims)?;
    expect("compare", &k.b, k.a.dtype, dims)?;
    check_mask("compare", k.out.dtype)?;
    expect_contiguous("compare", &k.out)
}

fn check_select(k: &Select<'_>) -> Result<()> {
    let dims = k.out.layout.dims();
    expect("select", &k.mask, DType::U8, dims)?;
    expect("select", &k.a, k.out.dtype, dims)?;
    expect("select", &k.b, k.out.dtype, dims)?;
    expect_contiguous("select", &k.out)
}

fn check_mask(kernel: &'static str, dtype: DType) -> Result<()> {
    if dtype == DType::U8 { Ok(()) } else { Err(KernelError::DType { kernel, dtype }) }
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
