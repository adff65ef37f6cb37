//! Matrix products, in batches, of any strides a BLAS can take.

use crate::{Arg, KernelError, OutArg, Result};
use kiln_alloc::{Stream, Write};

mod cpu;
mod cpu_half;
mod cuda;
mod product;
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

    /// Whether a BLAS is needed, and so its scratch memory: not where nothing is added up and `out` stays or becomes zeros.
    fn calls_blas(&self) -> bool {
        let adds_up = self.a.layout.dims().last() != Some(&0);
        self.out.layout.elements() != 0 && (adds_up || (self.beta != 0.0 && self.beta != 1.0))
    }

    /// Refuses types the product does not exist for, on every backend alike.
    fn check_types(&self) -> Result<()> {
        let (a, b, out) = (self.a.dtype, self.b.dtype, self.out.dtype);
        let wrong = if !a.is_float() {
            a
        } else if b != a {
            b
        } else if out != a && out != a.accumulator() {
            out
        } else {
            return Ok(());
        };
        Err(KernelError::DType { kernel: "matmul", dtype: wrong })
    }
}

impl crate::Kernel for MatMul<'_> {
    fn cpu(self) -> Result<()> {
        self.check_types()?;
        cpu::mat_mul(self)
    }
    fn cuda(self, cuda: &crate::cuda::Cuda, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
        self.check_types()?;
        cuda::mat_mul(self, cuda, stream, workspace)
    }
    fn dry(self, dry: &crate::Dry, stream: &Stream) -> Result<()> {
        self.check_types()?;
        product::Product::new(&self)?;
        if self.calls_blas() { dry.blas.with(stream, |_| Ok(())) } else { Ok(()) }
    }
}
