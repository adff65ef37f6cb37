//! Matrix products, in batches, of any strides a BLAS can take.

use crate::{Arg, OutArg};

mod cpu;
mod cuda;
mod workspace;

pub use workspace::{BLAS_WORKSPACE_BYTES, BlasWorkspace};

/// `out = alpha * a @ b + beta * out` over a batch.
///
/// `a` is `[batch, m, k]`, `b` is `[batch, k, n]`, `out` is `[batch, m, n]` contiguous; all three have rank 3. Operands have any strides, 0 in
/// the batch dim where one matrix serves the whole batch. 16-bit floats are accumulated in f32. Types: `a` and `b` equal;
/// `out` of that type, or f32 for 16-bit operands. With `k == 0` the product is zeros.
/// A matrix no BLAS takes (neither of its two strides is 1, or overlapping rows) must not be passed: see [`MatMul::takes`].
pub struct MatMul<'a> {
    /// Left operand.
    pub a: Arg<'a>,
    /// Right operand.
    pub b: Arg<'a>,
    /// Result.
    pub out: OutArg<'a>,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of what `out` held before; 0 ignores it (NaN too).
    pub beta: f64,
    /// Lets f32 products use TF32 on the tensor cores of a CUDA device.
    pub tf32: bool,
}

impl MatMul<'_> {
    /// Whether a matrix of `rows` × `cols` with these strides (in elements) can be an operand without a copy.
    pub fn takes(rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> bool {
        (col_stride == 1 || cols <= 1) && (row_stride >= cols || rows <= 1)
            || (row_stride == 1 || rows <= 1) && (col_stride >= rows || cols <= 1)
    }

    /// Whether no product of elements is to be added up: no BLAS call, and no scratch memory.
    fn is_empty(&self) -> bool {
        self.a.layout.elements() == 0 || self.b.layout.elements() == 0
    }
}

impl crate::Kernel for MatMul<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::mat_mul(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::mat_mul(self, cuda, stream, workspace)
    }
    fn dry(self, dry: &crate::Dry, stream: &kiln_alloc::Stream) -> crate::Result<()> {
        if self.is_empty() { Ok(()) } else { dry.blas.with(stream, |_| Ok(())) }
    }
}
