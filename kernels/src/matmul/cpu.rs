//! Products on the CPU, by the `gemm` crate.
//!
//! It cuts the result into tiles of fixed size and adds up each along `k` on one thread, so that the number of threads
//! changes who computes a tile and never how.

use super::product::Product;
use super::{MatMul, cpu_half};
use crate::host::{dense_mut, view};
use crate::{DType, Element, Result, Scalar};
use gemm::Parallelism;
use half::{bf16, f16};
use rayon::prelude::*;

/// Multiply-adds below which waking other threads costs more than they save (some 20 µs of work on one).
const PARALLEL_WORK: usize = 1 << 20;

pub(super) fn mat_mul(call: MatMul<'_>) -> Result<()> {
    match (call.a.dtype, call.out.dtype) {
        (DType::F64, _) => batch(call, multiply::<f64>, scale::<f64>),
        (DType::F32, _) => batch(call, multiply::<f32>, scale::<f32>),
        (DType::F16, DType::F32) => batch(call, cpu_half::multiply::<f16, f32>, scale::<f32>),
        (DType::F16, _) => batch(call, cpu_half::multiply::<f16, f16>, scale::<f16>),
        (_, DType::F32) => batch(call, cpu_half::multiply::<bf16, f32>, scale::<f32>),
        _ => batch(call, cpu_half::multiply::<bf16, bf16>, scale::<bf16>),
    }
}

/// A matrix in a slice: its first element, and strides in elements.
#[derive(Clone, Copy)]
pub(super) struct View<'a, T> {
    pub data: &'a [T],
    pub row: usize,
    pub col: usize,
}

impl<'a, T> View<'a, T> {
    /// The part that starts at a row and a column.
    pub fn from(self, row: usize, col: usize) -> View<'a, T> {
        View { data: &self.data[row * self.row + col * self.col..], ..self }
    }
    /// Whether `rows` × `cols` elements lie within the slice.
    fn holds(&self, rows: usize, cols: usize) -> bool {
        rows == 0 || cols == 0 || (rows - 1) * self.row + (cols - 1) * self.col < self.data.len()
    }
}

/// Sizes of one product, and its factors.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: f64,
    pub beta: f64,
    pub parallelism: Parallelism,
}

/// Calls `multiply` for each matrix of the batch.
fn batch<T: Element, O: Element>(
    mut call: MatMul<'_>,
    multiply: impl Fn(Job, View<'_, T>, View<'_, T>, &mut [O]) + Sync,
    scale: impl Fn(f64, &mut [O]),
) -> Result<()> {
    let p = Product::new(&call)?;
    let (count, size) = (p.batch * p.m * p.n, p.m * p.n);
    let (a, b) = (view::<T>(&call.a, "matmul")?, view::<T>(&call.b, "matmul")?);
    let out = dense_mut::<O>(&mut call.out, count, "matmul")?;
    if p.k == 0 || out.is_empty() {
        scale(call.beta, out);
        return Ok(());
    }

    let work = p.m.saturating_mul(p.n).saturating_mul(p.k);
    let one_by_one = p.batch == 1 || work >= PARALLEL_WORK;
    let parallelism = if one_by_one && work >= PARALLEL_WORK { Parallelism::Rayon(0) } else { Parallelism::None };
    let job = Job { m: p.m, n: p.n, k: p.k, alpha: call.alpha, beta: call.beta, parallelism };
    let run = |(i, out): (usize, &mut [O])| {
        let a = View { data: &a[i * p.a.batch..], row: p.a.row, col: p.a.col };
        let b = View { data: &b[i * p.b.batch..], row: p.b.row, col: p.b.col };
        multiply(job, a, b, out)
    };
    if one_by_one || work.saturating_mul(p.batch) < PARALLEL_WORK {
        out.chunks_mut(size).enumerate().for_each(run);
    } else {
        out.par_chunks_mut(size).enumerate().for_each(run);
    }
    Ok(())
}

/// `out = alpha * a @ b + beta * out` for f32 and f64, `out` row-major and contiguous.
pub(super) fn multiply<T: Element>(job: Job, a: View<'_, T>, b: View<'_, T>, out: &mut [T]) {
    let Job { m, n, k, .. } = job;
    assert!(a.holds(m, k) && b.holds(k, n) && out.len() >= m * n, "the operands of a product lie within their blocks");
    let factor = |x: f64| T::from_scalar(Scalar::Float(x));
    // SAFETY: the assert above holds each operand within its slice, strides are not negative, and `out` overlaps neither
    // as it is borrowed mutably. `gemm` calls `alpha` what multiplies the old result, and reads it only where told to.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n as isize,
            job.beta != 0.0,
            a.data.as_ptr(),
            a.col as isize,
            a.row as isize,
            b.data.as_ptr(),
            b.col as isize,
            b.row as isize,
            factor(job.beta),
            factor(job.alpha),
            false,
            false,
            false,
            job.parallelism,
        )
    }
}

/// `out = beta * out`, which is all there is to do where a product adds up nothing; zeros for `beta == 0`, whatever was there.
fn scale<T: Element>(beta: f64, out: &mut [T]) {
    let times = |x: T| if beta == 0.0 { 0.0 } else { beta * x.to_scalar().to_f64() };
    out.iter_mut().for_each(|x| *x = T::from_scalar(Scalar::Float(times(*x))));
}
