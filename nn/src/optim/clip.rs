//! Clipping by the global norm: with `n = sqrt(sum over all gradients of g²)`, `g *= min(1, max / (n + 1e-6))`.
//!
//! The sum is taken of `g / m`, `m` the largest `|g|` of all, so neither huge nor tiny gradients leave the range of f32.

use crate::Parameter;
use kiln_kernels::elementwise::{MapInPlace, row};
use kiln_kernels::{Arg, OutArg};
use kiln_tensor::{DType, Error, Result, Tensor, modes};

/// Elements that are squared at a time: bounds the scratch memory.
const PIECE: usize = 1 << 24;

/// Scales the gradients of `params` so that their global norm is at most `max`, and returns the norm before. Waits for the device; NaN on a dry-run device.
///
/// # Errors
/// Where the norm is not finite, naming the first parameter whose gradient is not; gradients are untouched then. Where a gradient is partial.
pub fn clip_grad_norm(params: &[Parameter], max: f64) -> Result<f64> {
    let norm = clip_grad_norm_unchecked(params, max)?;
    if norm.device().is_dry_run() {
        return Ok(f64::NAN);
    }
    let norm = norm.to_scalar::<f32>()? as f64;
    if norm.is_finite() {
        return Ok(norm);
    }
    for (param, grad) in gradients(params)? {
        if !largest(&grad)?.to_scalar::<f32>()?.is_finite() {
            return Err(Error::Autograd(format!("the gradient norm is {norm}: the gradient of {} is not finite", param.name())));
        }
    }
    Err(Error::Autograd(format!("the gradient norm is {norm}: it leaves the range of f32")))
}

/// Like [`clip_grad_norm`], without waiting for the device: the norm stays there, with no dims, in f32. Gradients are untouched where it is not finite, which
/// a [`crate::GradScaler`] that unscaled before has noticed.
///
/// # Errors
/// Where `max` is no number above 0, there are no parameters, or a gradient is partial.
pub fn clip_grad_norm_unchecked(params: &[Parameter], max: f64) -> Result<Tensor> {
    if max.is_nan() || max <= 0.0 {
        return Err(Error::argument("clip_grad_norm", format!("the largest norm must be above 0, not {max}")));
    }
    let Some(first) = params.first() else {
        return Err(Error::argument("clip_grad_norm", "there are no parameters"));
    };
    modes::no_grad(|| {
        let grads: Vec<Tensor> = gradients(params)?.into_iter().map(|(_, grad)| grad).collect();
        if grads.is_empty() {
            return Tensor::zeros((), DType::F32, first.device());
        }
        let norm = global_norm(&grads)?;
        let factor = norm.affine(1.0, 1e-6)?.reciprocal()?.affine(max, 0.0)?.clamp(0.0, 1.0)?;
        let factor = norm.lt(f64::INFINITY)?.where_cond(&factor, &factor.ones_like()?)?;
        grads.iter().try_for_each(|grad| scale(grad, &factor))?;
        Ok(norm)
    })
}

fn gradients(params: &[Parameter]) -> Result<Vec<(&Parameter, Tensor)>> {
    let mut grads = Vec::new();
    for param in params {
        if let Some(grad) = param.grad()?.filter(|g| g.elem_count() > 0) {
            grads.push((param, grad));
        }
    }
    Ok(grads)
}

/// The largest magnitude, in f32; NaN where any element is.
fn largest(grad: &Tensor) -> Result<Tensor> {
    grad.max_all()?.maximum(&grad.min_all()?.neg()?)?.to_dtype(DType::F32)
}

/// The norm over all gradients, in f32.
fn global_norm(grads: &[Tensor]) -> Result<Tensor> {
    let all = grads.iter().map(largest).collect::<Result<Vec<_>>>()?;
    let unit = Tensor::stack(&all, 0)?.max_all()?;
    // 0, inf and NaN are no units to measure in; with 1 the sum shows what they are.
    let usable = unit.gt(0.0)?.mul(&unit.lt(f64::INFINITY)?)?;
    let unit = usable.where_cond(&unit, &unit.ones_like()?)?;
    let mut sums = Vec::new();
    for grad in grads {
        let flat = grad.flatten_all()?;
        for start in (0..flat.elem_count()).step_by(PIECE) {
            let piece = flat.narrow(0, start, PIECE.min(flat.elem_count() - start))?;
            sums.push(piece.to_dtype(DType::F32)?.div(&unit)?.square()?.sum_all()?);
        }
    }
    Tensor::stack(&sums, 0)?.sum_all()?.sqrt()?.mul(&unit)
}

/// `grad *= factor`, in place.
fn scale(grad: &Tensor, factor: &Tensor) -> Result<()> {
    let factor = factor.to_dtype(grad.dtype())?;
    let (device, stream) = (grad.device(), grad.device().stream());
    let spread = factor.layout().broadcast_to(grad.dims()).ok_or_else(|| Error::message("one factor serves all elements"))?;
    let read = factor.storage().read(&stream)?;
    let mut token = grad.storage().write(&stream, "clip_grad_norm")?;
    let others = [Arg::new(&read, factor.dtype(), &spread)];
    let kernel = MapInPlace {
        row: row("mul"),
        params: [0.0; 2],
        x: OutArg::new(&mut token, grad.dtype(), grad.layout()),
        others: &others,
    };
    device.run(kernel, &stream)
}
