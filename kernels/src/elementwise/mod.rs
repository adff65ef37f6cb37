//! Elementwise arithmetic: every op is a row of one table (`table.rs`), whose expression serves the CPU as code and CUDA as text.

use crate::{Arg, OutArg};

mod cpu;
mod cuda;
mod table;

pub use table::{Gradient, Row, Saves, row, rows};

/// `out[i] = row(x[i], y[i], ..; p, q)`. Inputs have the element type of `out` and any layouts with its dims (broadcasts have stride 0).
/// 16-bit floats are computed in f32 and rounded once.
pub struct Map<'a> {
    /// The row.
    pub row: &'static Row,
    /// Its scalar parameters `p` and `q`.
    pub params: [f64; 2],
    /// As many inputs as the row takes.
    pub inputs: &'a [Arg<'a>],
    /// Contiguous.
    pub out: OutArg<'a>,
}

/// `x[i] = row(x[i], y[i], ..; p, q)`: the first input is overwritten; any layout with distinct elements.
pub struct MapInPlace<'a> {
    /// The row.
    pub row: &'static Row,
    /// Its scalar parameters `p` and `q`.
    pub params: [f64; 2],
    /// First input and destination.
    pub x: OutArg<'a>,
    /// The other inputs, same dims; of the type of `x`.
    pub others: &'a [Arg<'a>],
}

impl crate::Kernel for Map<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::map(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::map(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for MapInPlace<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::map_in_place(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::map_in_place(self, cuda, stream, workspace)
    }
}
