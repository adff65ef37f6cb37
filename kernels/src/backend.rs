//! Who runs a kernel: the CPU, a CUDA device, or nobody (a dry run).

use crate::Result;
use crate::cuda::Cuda;
use kiln_alloc::{Stream, Write};
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
}

/// What runs the kernels of a device.
#[derive(Clone)]
pub enum Backend {
    /// Host code, done on return.
    Cpu,
    /// CUDA kernels in stream order.
    Cuda(Arc<Cuda>),
    /// Nothing: a dry run takes memory and computes nothing.
    Dry,
}

impl Backend {
    /// Runs (or enqueues) a kernel. `workspace` has at least [`Kernel::workspace_bytes`] where that is not 0.
    pub fn run(&self, kernel: impl Kernel, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
        match self {
            Backend::Cpu => kernel.cpu(),
            Backend::Cuda(cuda) => kernel.cuda(cuda, stream, workspace),
            Backend::Dry => Ok(()),
        }
    }
    /// Whether workspaces are wanted: on CUDA, and on dry runs so that these count the same bytes.
    pub fn wants_workspace(&self) -> bool {
        !matches!(self, Backend::Cpu)
    }
}
