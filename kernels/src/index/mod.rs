//! Reading and adding by index along one dim. On CUDA an index out of range is clamped and sets the device error word; on
//! the CPU it is an error at once.

use crate::{Arg, KernelError, Layout, OutArg, Result};

mod cpu;
mod cuda;
mod scratch;

pub(crate) use cpu::indices;
pub(crate) use cuda::{ADD, Sums, add_by_key, sources};
pub(crate) use scratch::Scratch;

/// Sizes before, of, and after `dim`.
fn split(layout: &Layout, dim: usize, kernel: &'static str) -> Result<(usize, usize, usize)> {
    let dims = layout.dims();
    match dims.get(dim) {
        Some(&size) => Ok((dims[..dim].iter().product(), size, dims[dim + 1..].iter().product())),
        None => Err(KernelError::Library(format!("{kernel}: dim {dim} of dims {dims:?}"))),
    }
}

/// `out[o][j][i] = x[o][index[j]][i]` for x seen as `[outer, size, inner]`.
pub struct IndexSelect<'a> {
    /// Source, contiguous, any element type.
    pub x: Arg<'a>,
    /// The dim that is indexed.
    pub dim: usize,
    /// Indices, contiguous, one dim, i64 or u32.
    pub index: Arg<'a>,
    /// Contiguous: dims of `x` with `dim` replaced by the number of indices.
    pub out: OutArg<'a>,
}

/// `out[o][index[j]][i] += src[o][j][i]`, added up in index order (same result every run), in f32 or wider: `out` is f32 where
/// `src` is a 16-bit float, else of the type of `src`. `out` has been filled before.
pub struct IndexAdd<'a> {
    /// What is added, contiguous.
    pub src: Arg<'a>,
    /// The dim that is indexed.
    pub dim: usize,
    /// Indices, contiguous, one dim, i64 or u32.
    pub index: Arg<'a>,
    /// Contiguous.
    pub out: OutArg<'a>,
}

impl crate::Kernel for IndexSelect<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::index_select(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::index_select(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for IndexAdd<'_> {
    fn workspace_bytes(&self) -> usize {
        let columns = split(self.out.layout, self.dim, "index_add").map_or(0, |(outer, _, inner)| outer * inner);
        Scratch::new(self.index.layout.elements(), columns, self.out.dtype).bytes
    }
    fn cpu(self) -> crate::Result<()> {
        cpu::index_add(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::index_add(self, cuda, stream, workspace)
    }
}
