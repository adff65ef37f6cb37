//! Reading, writing and adding by an index for each element, along one dim. On CUDA an index out of range is clamped and sets the device error
//! word; on the CPU it is an error at once.

use crate::{Arg, KernelError, OutArg, Result};

mod cpu;
mod cuda;

pub(crate) use cuda::sources;

/// `out[o][j][i] = x[o][index[o][j][i]][i]` for x seen as `[outer, size, inner]`.
pub struct Gather<'a> {
    /// Source, contiguous, any element type; the dims of the index but for `dim`.
    pub x: Arg<'a>,
    /// The dim that is indexed.
    pub dim: usize,
    /// Indices, contiguous, i64 or u32.
    pub index: Arg<'a>,
    /// Contiguous: the dims of the index, the type of `x`.
    pub out: OutArg<'a>,
}

/// `out[o][index[o][j][i]][i] = src[o][j][i]`, where of equal indices the last wins. `out` has been filled before.
pub struct Scatter<'a> {
    /// What is written, contiguous, any element type; the dims of the index.
    pub src: Arg<'a>,
    /// The dim that is indexed.
    pub dim: usize,
    /// Indices, contiguous, i64 or u32.
    pub index: Arg<'a>,
    /// Contiguous: the dims of the index but for `dim`, the type of `src`.
    pub out: OutArg<'a>,
}

/// `out[o][index[o][j][i]][i] += src[o][j][i]`, added up in index order (same result every run), in f32 or wider: `out` is f32 where `src`
/// is a 16-bit float, else of the type of `src`. `out` has been filled before.
pub struct ScatterAdd<'a> {
    /// What is added, contiguous; the dims of the index.
    pub src: Arg<'a>,
    /// The dim that is indexed.
    pub dim: usize,
    /// Indices, contiguous, i64 or u32.
    pub index: Arg<'a>,
    /// Contiguous: the dims of the index but for `dim`.
    pub out: OutArg<'a>,
}

/// The indexed tensor as `[outer, size, inner]` and the index as `[outer, n, inner]`.
#[derive(Clone, Copy)]
struct Sizes {
    outer: usize,
    size: usize,
    n: usize,
    inner: usize,
}

impl Sizes {
    /// From the dims of the indexed tensor and of the index, which differ at `dim` alone.
    fn new(whole: &[usize], index: &[usize], dim: usize, kernel: &'static str) -> Result<Sizes> {
        let alike =
            whole.len() == index.len() && dim < whole.len() && (0..dim).chain(dim + 1..whole.len()).all(|d| whole[d] == index[d]);
        if !alike {
            return Err(KernelError::Operand(format!("{kernel}: an index of dims {index:?} for dim {dim} of {whole:?}")));
        }
        let outer = whole[..dim].iter().product();
        Ok(Sizes { outer, size: whole[dim], n: index[dim], inner: whole[dim + 1..].iter().product() })
    }
    /// Number of indices.
    fn count(&self) -> usize {
        self.outer * self.n * self.inner
    }
    /// Elements of the indexed tensor.
    fn elements(&self) -> usize {
        self.outer * self.size * self.inner
    }
}

impl crate::Kernel for Gather<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::gather(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        _: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::gather(self, cuda, stream)
    }
}

impl crate::Kernel for Scatter<'_> {
    fn workspace_bytes(&self) -> usize {
        if self.index.layout.elements() == 0 { 0 } else { self.out.layout.elements() * 4 }
    }
    fn cpu(self) -> crate::Result<()> {
        cpu::scatter(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::scatter(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for ScatterAdd<'_> {
    fn workspace_bytes(&self) -> usize {
        crate::index::Scratch::new(self.index.layout.elements(), 1, self.out.dtype).bytes
    }
    fn cpu(self) -> crate::Result<()> {
        cpu::scatter_add(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::scatter_add(self, cuda, stream, workspace)
    }
}
