//! Stable sorting of rows, and putting sorted rows back. NaN is larger than every number, and -0 equals 0.

use crate::{Arg, DType, KernelError, OutArg, Result};

mod cpu;
mod cuda;

pub(crate) use cuda::sources;

/// Sorts each row `[rows, n]` and gives the elements `skip..skip + take` of the sorted row: their indices, and their values where wanted.
pub struct Sort<'a> {
    /// The largest first; equal elements stay in order either way.
    pub descending: bool,
    /// Contiguous, any type.
    pub x: Arg<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub n: usize,
    /// Sorted elements left out in front.
    pub skip: usize,
    /// Sorted elements given.
    pub take: usize,
    /// Contiguous `[rows, take]`, type of `x`.
    pub values: Option<OutArg<'a>>,
    /// Contiguous `[rows, take]`, i64.
    pub indices: OutArg<'a>,
}

/// `out[row][index[row][j]] = g[row][j]`; the other elements of `out` stay as they are.
pub struct Put<'a> {
    /// Contiguous `[rows, take]`.
    pub g: Arg<'a>,
    /// Contiguous `[rows, take]`, i64: different ones in each row, each less than `n`, as [`Sort`] gives them.
    pub index: Arg<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row of `out`.
    pub n: usize,
    /// Elements of a row of `g`.
    pub take: usize,
    /// Contiguous `[rows, n]`, type of `g`.
    pub out: OutArg<'a>,
}

/// An error where results are not of a sorted row, or positions in a row need more than 32 bits.
fn check(k: &Sort<'_>) -> Result<()> {
    if k.n > u32::MAX as usize || k.skip.saturating_add(k.take) > k.n {
        let (skip, take, n) = (k.skip, k.take, k.n);
        return Err(KernelError::Operand(format!("sort: {take} elements from {skip} on of rows of {n}")));
    }
    Ok(())
}

/// Whether an index is one.
fn check_index(dtype: DType) -> Result<()> {
    if dtype == DType::I64 { Ok(()) } else { Err(crate::host::undefined("sort", dtype)) }
}

impl crate::Kernel for Sort<'_> {
    fn workspace_bytes(&self) -> usize {
        cuda::Scratch::of(self).bytes
    }
    fn cpu(self) -> crate::Result<()> {
        cpu::sort(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::sort(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for Put<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::put(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        _: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::put(self, cuda, stream)
    }
}
