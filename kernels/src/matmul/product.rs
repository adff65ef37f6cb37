//! The sizes and strides of a batch of products, folded into fewer and larger ones where memory allows.
//!
//! A batch `[batch, m, k] @ [k, n]` whose rows lie evenly across the batch is one product `[batch * m, k] @ [k, n]`: what
//! `Linear` over a sequence comes to, and much faster as one.

use super::MatMul;
use crate::arg::expect_contiguous;
use crate::{Arg, KernelError, Result};

/// A batch of matrices: distances between neighbours, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Matrices {
    /// From one matrix to the next; 0 where one serves the whole batch.
    pub batch: usize,
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
    pub col: usize,
}

/// `batch` products of `m` × `k` by `k` × `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Product {
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Matrices,
    pub b: Matrices,
}

impl Product {
    /// Reads the sizes off the operands.
    ///
    /// # Errors
    /// They contradict each other, or the contract of [`MatMul`].
    pub fn new(call: &MatMul<'_>) -> Result<Product> {
        let (a, b, out) = (call.a.layout.dims(), call.b.layout.dims(), call.out.layout.dims());
        let (batch, m, k, n) = match (a, b, out) {
            (&[batch, m, k], &[b_batch, b_k, n], &[out_batch, rows, cols])
                if batch == b_batch && batch == out_batch && k == b_k && m == rows && n == cols =>
            {
                (batch, m, k, n)
            }
            _ => return Err(KernelError::Operand(format!("matmul: {a:?} times {b:?} is not {out:?}"))),
        };
        expect_contiguous("matmul", &call.out)?;
        Ok(Product { batch, m, n, k, a: Matrices::new(&call.a)?, b: Matrices::new(&call.b)? }.folded())
    }

    /// One larger product in place of a batch, where `b` serves the whole batch and the rows of `a` lie evenly across it.
    fn folded(self) -> Product {
        // With a single row a matrix, the step from row to row is that from matrix to matrix.
        let row = if self.m == 1 { self.a.batch } else { self.a.row };
        let even = self.m == 1 || self.a.batch == self.m * row;
        let rows = self.batch * self.m;
        if self.batch > 1 && self.b.batch == 0 && even && MatMul::takes(rows, self.k, row, self.a.col) {
            Product { batch: 1, m: rows, a: Matrices { batch: 0, row, col: self.a.col }, ..self }
        } else {
            self
        }
    }
}

impl Matrices {
    /// Reads the strides off an operand of rank 3.
    fn new(operand: &Arg<'_>) -> Result<Matrices> {
        let (dims, strides) = (operand.layout.dims(), operand.layout.strides());
        if operand.layout.elements() != 0 && !MatMul::takes(dims[1], dims[2], strides[1], strides[2]) {
            let message = format!("matmul: no BLAS takes an operand of {dims:?} with strides {strides:?}");
            return Err(KernelError::Operand(message));
        }
        Ok(Matrices { batch: strides[0], row: strides[1], col: strides[2] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(batch: usize, m: usize, a: Matrices, b_batch: usize) -> Product {
        Product { batch, m, n: 2, k: 5, a, b: Matrices { batch: b_batch, row: 2, col: 1 } }
    }

    #[test]
    fn rows_that_run_on_across_the_batch_fold_into_one_product() {
        let folded = product(4, 3, Matrices { batch: 15, row: 5, col: 1 }, 0).folded();
        assert_eq!((folded.batch, folded.m, folded.a.row, folded.a.col), (1, 12, 5, 1));
    }

    #[test]
    fn single_rows_fold_by_the_batch_stride() {
        let folded = product(4, 1, Matrices { batch: 7, row: 99, col: 1 }, 0).folded();
        assert_eq!((folded.batch, folded.m, folded.a.row), (1, 4, 7));
    }

    #[test]
    fn a_batch_stays_one_where_rows_are_uneven_repeated_or_the_right_side_differs() {
        let even = Matrices { batch: 15, row: 5, col: 1 };
        for kept in [
            product(4, 3, Matrices { batch: 20, ..even }, 0),
            product(4, 3, Matrices { batch: 0, ..even }, 0),
            product(4, 1, Matrices { batch: 0, ..even }, 0),
            product(4, 3, even, 10),
        ] {
            assert_eq!(kept.folded(), kept);
        }
    }
}
