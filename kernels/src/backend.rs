//! Who runs a kernel: the CPU, a CUDA device, or nobody (a dry run).

use crate::Result;
use crate::cuda::Cuda;
use crate::matmul::BlasWorkspace;
use kiln_alloc::{Allocator, Block, Category, Stream, Write};
use std::sync::Arc;

/// A computation over operands, ready to run.
pub trait Kernel {
    /// Scratch bytes the kernel wants on a CUDA device (a dry run asks for the same); none on the CPU.
    fn workspace_bytes(&self) -> usize {
        0
    }
    /// Runs it on the CPU; operands give host slices.
    fn cpu(self) -> Result<()>;
    /// Enqueues it on a CUDA stream.
    fn cuda(self, cuda: &Cuda, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()>;
    /// Takes the memory that [`Kernel::cuda`] would take and keep on its own, and computes nothing.
    fn dry(self, dry: &Dry, stream: &Stream) -> Result<()>
    where
        Self: Sized,
    {
        let _ = (dry, stream);
        Ok(())
    }
}

/// What kernels hold on a device that computes nothing.
pub struct Dry {
    pub(crate) blas: BlasWorkspace,
    /// What a CUDA device holds for its error word.
    _error_word: Block,
}

impl Dry {
    /// Takes memory from `allocator` where kernels on CUDA would, as they run.
    pub fn new(allocator: &Allocator) -> Result<Dry> {
        let word = allocator.allocate(crate::cuda::ERROR_WORD_BYTES, allocator.compute_stream(), Category::Workspace)?;
        Ok(Dry { blas: BlasWorkspace::new(allocator), _error_word: word })
    }
}

/// What runs the kernels of a device.
#[derive(Clone)]
pub enum Backend {
    /// Host code, done on return.
    Cpu,
    /// CUDA kernels in stream order.
    Cuda(Arc<Cuda>),
    /// Nothing: a dry run takes memory and computes nothing.
    Dry(Arc<Dry>),
}

impl Backend {
    /// Runs (or enqueues) a kernel. `workspace` has at least [`Kernel::workspace_bytes`] where that is not 0.
    pub fn run(&self, kernel: impl Kernel, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
        match self {
            Backend::Cpu => kernel.cpu(),
            Backend::Cuda(cuda) => kernel.cuda(cuda, stream, workspace),
            Backend::Dry(dry) => kernel.dry(dry, stream),
        }
    }
    /// Gives the scratch memory that libraries hold between calls back to the allocator; it is taken anew when needed.
    pub fn release_workspaces(&self) {
        match self {
            Backend::Cpu => {}
            Backend::Cuda(cuda) => cuda.blas.release_workspaces(),
            Backend::Dry(dry) => dry.blas.release(),
        }
    }
    /// As [`Backend::release_workspaces`], but takes nothing away while a product is being enqueued, and so may be called from within.
    pub fn release_idle_workspaces(&self) {
        match self {
            Backend::Cpu => {}
            Backend::Cuda(cuda) => cuda.blas.release_idle_workspaces(),
            Backend::Dry(dry) => dry.blas.release_idle(),
        }
    }
    /// Whether workspaces are wanted: on CUDA, and on dry runs so that these count the same bytes.
    pub fn wants_workspace(&self) -> bool {
        !matches!(self, Backend::Cpu)
    }
}
