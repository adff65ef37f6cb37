//! Elementwise arithmetic: every op is a row of one table (`table.rs`), whose expression serves the CPU as code and CUDA as text.

use crate::{Arg, DType, KernelError, OutArg, Result};

mod cpu;
mod cuda;
mod math;
mod row;
pub mod table;

pub(crate) use cuda::sources;
pub use row::{Gradient, Row, Saves, row, rows};

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

/// Checks operands of a row against its destination, `in_place` where that is the first input too, and gives the parameters as the
/// arithmetic takes them.
fn check(row: &'static Row, params: [f64; 2], inputs: &[Arg<'_>], in_place: bool, out: &OutArg<'_>) -> Result<[f64; 2]> {
    let (kernel, dtype) = (row.name, out.dtype);
    if !row.takes(dtype) {
        return Err(KernelError::DType { kernel, dtype });
    }
    let given = inputs.len() + in_place as usize;
    if given != row.inputs {
        return Err(KernelError::Operand(format!("{kernel} takes {} inputs and got {given}", row.inputs)));
    }
    for x in inputs {
        crate::arg::expect(kernel, x, dtype, out.layout.dims())?;
    }
    if !in_place {
        crate::arg::expect_contiguous(kernel, out)?;
    }
    if dtype.is_float() { Ok(params) } else { whole(row, dtype, params) }
}

/// Parameters for integers: whole numbers, of which bounds may lie beyond the type.
fn whole(row: &'static Row, dtype: DType, params: [f64; 2]) -> Result<[f64; 2]> {
    let (kernel, bounds) = (row.name, row.name == table::CLAMP.name);
    let (low, high) = match dtype {
        DType::U8 => (0.0, u8::MAX as f64),
        DType::U32 => (0.0, u32::MAX as f64),
        _ => (i64::MIN as f64, i64::MAX as f64),
    };
    let one = |value: f64| match value {
        _ if bounds && !value.is_nan() && (value.is_infinite() || value.fract() == 0.0) => Ok(value.clamp(low, high)),
        _ if value.fract() == 0.0 && value.abs() <= i64::MAX as f64 => Ok(value),
        _ => Err(KernelError::Operand(format!("{kernel}: {value} is no whole number, and {dtype} has no others"))),
    };
    Ok([one(params[0])?, one(params[1])?])
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
