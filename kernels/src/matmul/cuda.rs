//! Products on CUDA, by cuBLAS.
//!
//! cuBLAS is column-major, and a row-major matrix is a column-major one transposed: `out = a @ b` is asked for as
//! `outᵀ = bᵀ @ aᵀ`, so that the operands change places and nothing is copied.

use super::MatMul;
use super::product::{Matrices, Product};
use crate::cuda::Cuda;
use crate::cuda::blas::{Gemm, Operand};
use crate::{Kernel, Result, Scalar};
use kiln_alloc::{Stream, Write};

pub(super) fn mat_mul(call: MatMul<'_>, cuda: &Cuda, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
    let p = Product::new(&call)?;
    let elements = call.out.layout.elements();
    let (address, dtype) = (call.out.address(), call.out.dtype);
    if !call.calls_blas() {
        return match call.beta {
            0.0 => crate::copy::Fill { value: Scalar::Float(0.0), out: call.out }.cuda(cuda, stream, workspace),
            _ => Ok(()),
        };
    }
    if p.k == 0 {
        return cuda.blas.scale(stream, call.beta, address, elements, dtype);
    }
    let gemm = Gemm {
        batch: p.batch,
        m: p.n,
        n: p.m,
        k: p.k,
        a: operand(call.b.address(), p.b, p.k, p.n),
        b: operand(call.a.address(), p.a, p.m, p.k),
        c: address,
        input: call.a.dtype,
        output: dtype,
        tf32: call.tf32,
        alpha: call.alpha,
        beta: call.beta,
    };
    cuda.blas.gemm(stream, &gemm)
}

/// The transpose of a matrix of `rows` × `cols`, as cuBLAS sees it.
fn operand(address: u64, of: Matrices, rows: usize, cols: usize) -> Operand {
    let row_major = (of.col == 1 || cols == 1) && (of.row >= cols || rows == 1);
    // The leading dim must reach over a whole line even where there is one line only, and its stride means nothing.
    let ld = if row_major { of.row.max(cols) } else { of.col.max(rows) };
    Operand { address, transposed: !row_major, ld, stride: of.batch }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(row: usize, col: usize, rows: usize, cols: usize) -> (bool, usize) {
        let operand = operand(0, Matrices { batch: 0, row, col }, rows, cols);
        (operand.transposed, operand.ld)
    }

    #[test]
    fn row_major_is_column_major_transposed() {
        assert_eq!(seen(5, 1, 3, 5), (false, 5));
        assert_eq!(seen(9, 1, 3, 5), (false, 9));
        assert_eq!(seen(1, 3, 3, 5), (true, 3));
        assert_eq!(seen(1, 8, 3, 5), (true, 8));
    }

    #[test]
    fn strides_of_single_rows_and_columns_mean_nothing() {
        assert_eq!(seen(0, 1, 1, 5), (false, 5));
        assert_eq!(seen(1, 0, 5, 1), (false, 1));
        assert_eq!(seen(7, 3, 5, 1), (false, 7));
        assert_eq!(seen(2, 4, 1, 5), (true, 4));
        assert_eq!(seen(0, 0, 1, 1), (false, 1));
    }
}
