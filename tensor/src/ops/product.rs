//! `a @ b` over tensors without history: what `matmul`, `linear` and their gradients come to.
//!
//! Batch dims are merged into one where strides allow. Where operands broadcast in different dims (`[2, 1, m, k] @ [1, 3, k, n]`) no single stride
//! walks both: the outer dims are a loop of kernel calls, and nothing is repeated in memory.

use crate::{DType, Error, Layout, Result, Shape, Tensor, exec};
use kiln_kernels::matmul::MatMul;
use kiln_kernels::{Arg, OutArg};
use std::sync::atomic::{AtomicBool, Ordering};

static ALLOW_TF32: AtomicBool = AtomicBool::new(false);

/// Whether f32 matrix products may use TF32 (10 bits of fraction) on the tensor cores of a CUDA device.
pub fn allow_tf32() -> bool {
    ALLOW_TF32.load(Ordering::Relaxed)
}

/// Lets f32 matrix products of this process use TF32 on the tensor cores of a CUDA device: several times faster, with 10 bits of fraction in place
/// of 23. Off at first.
pub fn set_allow_tf32(allow: bool) {
    ALLOW_TF32.store(allow, Ordering::Relaxed);
}

/// `a @ b` in new contiguous memory, in the type `to` (that of the operands, or f32 for 16-bit ones).
///
/// `a` is `[.., m, k]`, `b` is `[.., k, n]`; the dims in front broadcast. 16-bit products are added up in f32.
pub(crate) fn product(op: &'static str, a: &Tensor, b: &Tensor, to: DType) -> Result<Tensor> {
    check_types(op, a, b)?;
    let shape = product_shape(op, &a.shape(), &b.shape())?;
    let out = exec::empty(op, &shape, to, a.device())?;
    if out.elem_count() == 0 {
        return Ok(out);
    }
    let (a, b) = (operand(a)?, operand(b)?);
    let (m, n, k) = (shape.dims()[shape.rank() - 2], shape.dims()[shape.rank() - 1], a.dims()[a.rank() - 1]);
    let batch = &shape.dims()[..shape.rank() - 2];
    let (a_batch, a_row, a_col) = strides(&a, batch);
    let (b_batch, b_row, b_col) = strides(&b, batch);
    let mut loops = merged(batch, &a_batch, &b_batch);
    let (size, a_step, b_step) = loops.pop().unwrap_or((1, 0, 0));

    let (device, stream) = (a.device(), a.device().stream());
    let (a_token, b_token) = (a.storage().read(&stream)?, b.storage().read(&stream)?);
    let mut token = out.storage().write_new(&stream)?;
    for call in 0..loops.iter().map(|l| l.0).product() {
        let (a_skip, b_skip) = skips(&loops, call);
        let a_layout = Layout::new(&[size, m, k], &[a_step, a_row, a_col], a.layout().offset() + a_skip);
        let b_layout = Layout::new(&[size, k, n], &[b_step, b_row, b_col], b.layout().offset() + b_skip);
        let out_layout = Layout::new(&[size, m, n], &[m * n, n, 1], call * size * m * n);
        let kernel = MatMul {
            a: Arg::new(&a_token, a.dtype(), &a_layout),
            b: Arg::new(&b_token, b.dtype(), &b_layout),
            out: OutArg::new(&mut token, to, &out_layout),
            alpha: 1.0,
            beta: 0.0,
            tf32: allow_tf32(),
        };
        device.run(kernel, &stream)?;
    }
    drop(token);
    Ok(out)
}

/// Refuses operands that are not floats of one type.
pub(crate) fn check_types(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dtype() != b.dtype() {
        let message = format!("operands have types {} and {}; convert one with `to_dtype`", a.dtype(), b.dtype());
        return Err(Error::dtype(op, message));
    }
    if !a.dtype().is_float() {
        return Err(Error::dtype(op, format!("not defined for {}; convert to a float type with `to_dtype`", a.dtype())));
    }
    Ok(())
}

/// The shape of a product.
fn product_shape(op: &'static str, a: &Shape, b: &Shape) -> Result<Shape> {
    let wrong = || Error::shape(op, format!("shapes {a} and {b} do not multiply"));
    let ([a_batch @ .., m, k], [b_batch @ .., b_k, n]) = (a.dims(), b.dims()) else { return Err(wrong()) };
    if k != b_k {
        return Err(wrong());
    }
    let batch = Shape::from(a_batch).broadcast(&Shape::from(b_batch), op).map_err(|_| wrong())?;
    Ok(Shape::from([batch.dims(), &[*m, *n]].concat()))
}

/// A tensor of matrices that kernels take as it is: itself, or a copy, repeated matrices once.
pub(crate) fn operand(t: &Tensor) -> Result<Tensor> {
    let (batch, matrix) = t.dims().split_at(t.rank() - 2);
    let (steps, row, col) = strides(t, batch);
    if t.elem_count() == 0 || (MatMul::takes(matrix[0], matrix[1], row, col) && one_walk(batch, &steps)) {
        return Ok(t.detach());
    }
    let once: Vec<usize> = t
        .dims()
        .iter()
        .zip(t.layout().strides())
        .enumerate()
        .map(|(i, (&d, &s))| if s == 0 && i < batch.len() { 1 } else { d })
        .collect();
    let copy = exec::copy_of(&t.with_layout(Layout::new(&once, t.layout().strides(), t.layout().offset())))?;
    let repeated =
        copy.layout().broadcast_to(t.dims()).ok_or_else(|| Error::shape("matmul", "a repeated operand does not broadcast"))?;
    Ok(copy.with_layout(repeated))
}

/// Whether the batch dims that are not repeated can be walked with one stride.
fn one_walk(batch: &[usize], steps: &[usize]) -> bool {
    let real: (Vec<usize>, Vec<usize>) = batch.iter().zip(steps).filter(|(_, s)| **s != 0).map(|(&d, &s)| (d, s)).unzip();
    merged(&real.0, &real.1, &real.1).len() <= 1
}

/// Strides of `t` broadcast to the dims `batch` in front: of those, of the rows, of the columns.
fn strides(t: &Tensor, batch: &[usize]) -> (Vec<usize>, usize, usize) {
    let (own, strides) = (t.rank() - 2, t.layout().strides());
    let lead = batch.len() - own;
    let step = |d: usize| if d < lead || t.dims()[d - lead] == 1 { 0 } else { strides[d - lead] };
    ((0..batch.len()).map(step).collect(), strides[own], strides[own + 1])
}

/// The batch dims as few loops: size, and the strides of both operands. Neighbours merge where one stride walks both of them, in both operands.
fn merged(batch: &[usize], a: &[usize], b: &[usize]) -> Vec<(usize, usize, usize)> {
    let mut loops: Vec<(usize, usize, usize)> = Vec::new();
    for ((&d, &a), &b) in batch.iter().zip(a).zip(b).filter(|((d, _), _)| **d != 1) {
        match loops.last_mut() {
            Some(outer) if outer.1 == a * d && outer.2 == b * d => *outer = (outer.0 * d, a, b),
            _ => loops.push((d, a, b)),
        }
    }
    loops
}

/// How far call number `call` of the loops lies into each operand.
fn skips(loops: &[(usize, usize, usize)], call: usize) -> (usize, usize) {
    let mut rest = call;
    loops.iter().rev().fold((0, 0), |(a, b), &(size, a_step, b_step)| {
        let i = rest % size;
        rest /= size;
        (a + i * a_step, b + i * b_step)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_dims_merge_where_one_stride_walks_both_operands() {
        assert_eq!(merged(&[2, 3], &[30, 10], &[60, 20]), [(6, 10, 20)]);
        assert_eq!(merged(&[2, 1, 3], &[30, 0, 10], &[0, 0, 0]), [(6, 10, 0)]);
        assert_eq!(merged(&[2, 3], &[10, 0], &[0, 20]), [(2, 10, 0), (3, 0, 20)]);
        assert_eq!(skips(&[(2, 10, 0), (3, 0, 20)], 5), (10, 40));
    }

    #[test]
    fn operands_are_copied_only_where_kernels_cannot_read_them() -> Result<()> {
        let x = Tensor::zeros((4, 3, 2, 5), DType::F32, &crate::Device::cpu())?;
        let shares = |t: &Tensor| Ok::<_, Error>(t.storage().id() == operand(t)?.storage().id());
        assert!(shares(&x)? && shares(&x.t()?)?);
        assert!(!shares(&x.transpose(0, 1)?)? && !shares(&x.transpose(1, 3)?)?);
        let repeated = Tensor::zeros((1, 2, 5), DType::F32, &crate::Device::cpu())?.expand((7, 2, 5))?;
        assert!(shares(&repeated)?);
        let one = operand(&Tensor::zeros((), DType::F32, &crate::Device::cpu())?.expand((7, 2, 5))?)?;
        assert_eq!((one.dims(), one.storage().bytes()), (&[7, 2, 5][..], 40));
        Ok(())
    }
}
