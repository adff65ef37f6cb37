//! Moving and making elements: copies between layouts and element types, fills, ranges.

use crate::{Arg, KernelError, OutArg, Result, Scalar};

mod cpu;
mod cuda;
mod transpose;

pub(crate) use cuda::sources;

/// `out[i] = cast(x[i])` over any two layouts of the same dims and any two element types. Floats round to nearest even;
/// float to integer truncates toward zero; NaN becomes 0.
pub struct Copy<'a> {
    /// Source.
    pub x: Arg<'a>,
    /// Destination; any layout with distinct elements.
    pub out: OutArg<'a>,
}

/// `out[i] = value`, any layout.
pub struct Fill<'a> {
    /// The value, converted to the element type.
    pub value: Scalar,
    /// Destination.
    pub out: OutArg<'a>,
}

/// `out[i] = start + i * step`, contiguous: computed in f64 for floats and in i64 for integers, then converted.
pub struct Arange<'a> {
    /// Value of the first element.
    pub start: Scalar,
    /// Difference of neighbours.
    pub step: Scalar,
    /// Destination, contiguous.
    pub out: OutArg<'a>,
}

/// `out[i][j] = i == j`, contiguous, two dims.
pub struct Eye<'a> {
    /// Destination, contiguous, two dims.
    pub out: OutArg<'a>,
}

/// Columns of the destination, at least 1.
fn check_eye(k: &Eye<'_>) -> Result<usize> {
    match k.out.layout.dims() {
        [_, columns] => Ok((*columns).max(1)),
        dims => Err(KernelError::Operand(format!("eye takes two dims and got {dims:?}"))),
    }
}

impl crate::Kernel for Copy<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::copy(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::copy(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for Fill<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::fill(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::fill(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for Arange<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::arange(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::arange(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for Eye<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::eye(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::eye(self, cuda, stream, workspace)
    }
}
