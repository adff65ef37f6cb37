//! Products of 16-bit floats on the CPU: tiles are widened to f32, multiplied there, and rounded once at the end.
//!
//! Tiles have fixed sizes, so the result does not depend on the number of threads, and the scratch memory of a thread is
//! at most 3.5 MiB whatever the operands' size. Widening `b` again for each block of rows costs one conversion in
//! `ROWS` multiply-adds.

use super::cpu::{Job, View, multiply as multiply_f32};
use crate::Element;
use gemm::Parallelism;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

const ROWS: usize = 256;
const COLS: usize = 512;
const DEPTH: usize = 1024;

/// A float that f32 holds exactly.
pub(super) trait Narrow: Element {
    /// As f32, exactly. Both slices have one length.
    fn widen(from: &[Self], to: &mut [f32]);
    /// Rounded to nearest even. Both slices have one length.
    fn narrow(from: &[f32], to: &mut [Self]);
}

macro_rules! narrow {
    ($($t:ty),*) => {$(
        impl Narrow for $t {
            fn widen(from: &[Self], to: &mut [f32]) { from.convert_to_f32_slice(to) }
            fn narrow(from: &[f32], to: &mut [Self]) { to.convert_from_f32_slice(from) }
        }
    )*};
}
narrow!(f16, bf16);

impl Narrow for f32 {
    fn widen(from: &[Self], to: &mut [f32]) {
        to.copy_from_slice(from);
    }
    fn narrow(from: &[f32], to: &mut [Self]) {
        to.copy_from_slice(from);
    }
}

/// `out = alpha * a @ b + beta * out`, `out` row-major and contiguous.
pub(super) fn multiply<T: Narrow, O: Narrow>(job: Job, a: View<'_, T>, b: View<'_, T>, out: &mut [O]) {
    // Several blocks of rows are spread over threads; a single one leaves that to the f32 product within.
    if job.m <= ROWS || matches!(job.parallelism, Parallelism::None) {
        out.chunks_mut(ROWS * job.n).enumerate().for_each(|(i, rows)| row_block(job, a.from(i * ROWS, 0), b, rows));
    } else {
        let job = Job { parallelism: Parallelism::None, ..job };
        out.par_chunks_mut(ROWS * job.n).enumerate().for_each(|(i, rows)| row_block(job, a.from(i * ROWS, 0), b, rows));
    }
}

/// The rows of the result that `out` holds, one block of columns after the other.
fn row_block<T: Narrow, O: Narrow>(job: Job, a: View<'_, T>, b: View<'_, T>, out: &mut [O]) {
    let m = out.len() / job.n;
    let (mut tile, mut wide_a, mut wide_b, mut old) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for col in (0..job.n).step_by(COLS) {
        let n = COLS.min(job.n - col);
        tile.resize(m * n, 0.0);
        for depth in (0..job.k).step_by(DEPTH) {
            let k = DEPTH.min(job.k - depth);
            let a = widen(a.from(0, depth), m, k, &mut wide_a);
            let b = widen(b.from(depth, col), k, n, &mut wide_b);
            let step = Job { m, n, k, alpha: 1.0, beta: if depth == 0 { 0.0 } else { 1.0 }, ..job };
            multiply_f32(step, a, b, &mut tile);
        }
        for (sums, out) in tile.chunks_mut(n).zip(out.chunks_mut(job.n)) {
            let out = &mut out[col..col + n];
            combine(job.alpha as f32, job.beta as f32, sums, out, &mut old);
            O::narrow(sums, out);
        }
    }
}

/// `sums = alpha * sums + beta * out`.
fn combine<O: Narrow>(alpha: f32, beta: f32, sums: &mut [f32], out: &[O], old: &mut Vec<f32>) {
    if beta == 0.0 {
        sums.iter_mut().for_each(|s| *s *= alpha);
    } else {
        old.resize(out.len(), 0.0);
        O::widen(out, old);
        sums.iter_mut().zip(&*old).for_each(|(s, &o)| *s = alpha * *s + beta * o);
    }
}

/// Copies a part of a matrix as f32, densely, in the order in which it lies in memory.
fn widen<'a, T: Narrow>(from: View<'_, T>, rows: usize, cols: usize, to: &'a mut Vec<f32>) -> View<'a, f32> {
    to.resize(rows * cols, 0.0);
    // Runs are the rows of a row-major matrix, the columns of a column-major one.
    let by_row = from.col == 1 || cols == 1;
    let (length, step) = if by_row { (cols, from.row) } else { (rows, from.col) };
    for (i, run) in to.chunks_mut(length).enumerate() {
        T::widen(&from.data[i * step..][..length], run);
    }
    let (row, col) = if by_row { (cols, 1) } else { (1, rows) };
    View { data: to, row, col }
}
