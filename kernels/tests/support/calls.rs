//! One function a kernel: operands go to the device, the kernel runs, results come back.

use super::{Data, Device};
use kiln_kernels::cross_entropy::{CrossEntropy, CrossEntropyBackward};
use kiln_kernels::index::{IndexAdd, IndexSelect};
use kiln_kernels::norm::{LayerNorm, LayerNormBackward};
use kiln_kernels::optim::{Adam, Advance, Sgd, Unscale, UpdateScale};
use kiln_kernels::reduce::{ArgReduce, Reduce, Reduction};
use kiln_kernels::softmax::{Softmax, SoftmaxBackward};
use kiln_kernels::{DType, Result};

fn kept(x: &Data, dims: u32) -> Vec<usize> {
    x.layout.dims().iter().enumerate().filter(|(d, _)| dims >> d & 1 == 0).map(|(_, &size)| size).collect()
}

pub fn reduce(d: &Device, op: Reduction, x: &Data, dims: u32, out: DType) -> Result<Vec<f64>> {
    let out = d.fresh(out, &kept(x, dims));
    d.run(Reduce { op, x: x.arg(&x.block.read(d.stream())?), dims, out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(&out))
}

pub fn arg_reduce(d: &Device, min: bool, x: &Data, dim: usize) -> Result<Vec<f64>> {
    let out = d.fresh(DType::I64, &kept(x, 1 << dim));
    d.run(ArgReduce { min, x: x.arg(&x.block.read(d.stream())?), dim, out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(&out))
}

pub fn softmax(d: &Device, log: bool, x: &Data, [outer, n, inner]: [usize; 3], out: DType) -> Result<Vec<f64>> {
    let out = d.fresh(out, x.layout.dims());
    let (x_token, mut out_token) = (x.block.read(d.stream())?, out.block.write(d.stream())?);
    d.run(Softmax { log, x: x.arg(&x_token), outer, n, inner, out: out.out(&mut out_token) })?;
    drop(out_token);
    Ok(d.read(&out))
}

pub fn softmax_backward(d: &Device, log: bool, y: &Data, g: &Data, [outer, n, inner]: [usize; 3], dx: DType) -> Result<Vec<f64>> {
    let dx = d.fresh(dx, y.layout.dims());
    let (y_token, g_token, mut dx_token) = (y.block.read(d.stream())?, g.block.read(d.stream())?, dx.block.write(d.stream())?);
    d.run(SoftmaxBackward { log, y: y.arg(&y_token), g: g.arg(&g_token), outer, n, inner, dx: dx.out(&mut dx_token) })?;
    drop(dx_token);
    Ok(d.read(&dx))
}

/// Output, mean and reciprocal deviation.
pub fn layer_norm(
    d: &Device,
    x: &Data,
    weight: Option<&Data>,
    bias: Option<&Data>,
    eps: f64,
    out: DType,
) -> Result<[Vec<f64>; 3]> {
    let (rows, wide) = (x.layout.elements() / x.layout.dims().last().unwrap().max(&1), x.dtype.accumulator());
    let (out, mean, rstd) = (d.fresh(out, x.layout.dims()), d.fresh(wide, &[rows]), d.fresh(wide, &[rows]));
    let weight_token = weight.map(|w| w.block.read(d.stream())).transpose()?;
    let bias_token = bias.map(|b| b.block.read(d.stream())).transpose()?;
    d.run(LayerNorm {
        x: x.arg(&x.block.read(d.stream())?),
        weight: weight.zip(weight_token.as_ref()).map(|(w, token)| w.arg(token)),
        bias: bias.zip(bias_token.as_ref()).map(|(b, token)| b.arg(token)),
        eps,
        out: out.out(&mut out.block.write(d.stream())?),
        mean: mean.out(&mut mean.block.write(d.stream())?),
        rstd: rstd.out(&mut rstd.block.write(d.stream())?),
    })?;
    Ok([d.read(&out), d.read(&mean), d.read(&rstd)])
}

/// Gradients of the input, the weight and the bias; those not wanted stay 99. `wide` is the type of the weight's.
pub fn layer_norm_backward(
    d: &Device,
    x: &Data,
    weight: Option<&Data>,
    [mean, rstd, g]: [&Data; 3],
    wide: DType,
    wanted: [bool; 3],
) -> Result<[Vec<f64>; 3]> {
    let n = x.layout.dims()[x.layout.rank() - 1];
    let (dx, dweight, dbias) = (d.fresh(x.dtype, x.layout.dims()), d.fresh(wide, &[n]), d.fresh(wide, &[n]));
    let weight_token = weight.map(|w| w.block.read(d.stream())).transpose()?;
    d.run(LayerNormBackward {
        x: x.arg(&x.block.read(d.stream())?),
        weight: weight.zip(weight_token.as_ref()).map(|(w, token)| w.arg(token)),
        mean: mean.arg(&mean.block.read(d.stream())?),
        rstd: rstd.arg(&rstd.block.read(d.stream())?),
        g: g.arg(&g.block.read(d.stream())?),
        dx: wanted[0].then_some(dx.out(&mut dx.block.write(d.stream())?)),
        dweight: wanted[1].then_some(dweight.out(&mut dweight.block.write(d.stream())?)),
        dbias: wanted[2].then_some(dbias.out(&mut dbias.block.write(d.stream())?)),
    })?;
    Ok([d.read(&dx), d.read(&dweight), d.read(&dbias)])
}

/// Loss, logsumexp and whether it counts, of each row.
pub fn cross_entropy(d: &Device, logits: &Data, target: &Data, ignore_index: i64) -> Result<[Vec<f64>; 3]> {
    let (rows, wide) = (target.layout.elements(), logits.dtype.accumulator());
    let [loss, lse, counted] = [(); 3].map(|()| d.fresh(wide, &[rows]));
    d.run(CrossEntropy {
        logits: logits.arg(&logits.block.read(d.stream())?),
        target: target.arg(&target.block.read(d.stream())?),
        ignore_index,
        loss: loss.out(&mut loss.block.write(d.stream())?),
        lse: lse.out(&mut lse.block.write(d.stream())?),
        counted: counted.out(&mut counted.block.write(d.stream())?),
    })?;
    Ok([d.read(&loss), d.read(&lse), d.read(&counted)])
}

pub fn cross_entropy_backward(
    d: &Device,
    logits: &Data,
    target: &Data,
    ignore_index: i64,
    lse: &Data,
    g: &Data,
) -> Result<Vec<f64>> {
    let dx = d.fresh(logits.dtype, logits.layout.dims());
    d.run(CrossEntropyBackward {
        logits: logits.arg(&logits.block.read(d.stream())?),
        target: target.arg(&target.block.read(d.stream())?),
        ignore_index,
        lse: lse.arg(&lse.block.read(d.stream())?),
        g: g.arg(&g.block.read(d.stream())?),
        dx: dx.out(&mut dx.block.write(d.stream())?),
    })?;
    Ok(d.read(&dx))
}

pub fn index_select(d: &Device, x: &Data, dim: usize, index: &Data) -> Result<Vec<f64>> {
    let mut dims = x.layout.dims().to_vec();
    dims[dim] = index.layout.elements();
    let out = d.fresh(x.dtype, &dims);
    d.run(IndexSelect {
        x: x.arg(&x.block.read(d.stream())?),
        dim,
        index: index.arg(&index.block.read(d.stream())?),
        out: out.out(&mut out.block.write(d.stream())?),
    })?;
    Ok(d.read(&out))
}

/// Adds to `out`, in place.
pub fn index_add(d: &Device, src: &Data, dim: usize, index: &Data, out: &Data) -> Result<Vec<f64>> {
    d.run(IndexAdd {
        src: src.arg(&src.block.read(d.stream())?),
        dim,
        index: index.arg(&index.block.read(d.stream())?),
        out: out.out(&mut out.block.write(d.stream())?),
    })?;
    Ok(d.read(out))
}

/// What does not change between steps.
#[derive(Clone, Copy, Default)]
pub struct SgdConfig {
    pub momentum: f64,
    pub dampening: f64,
    pub weight_decay: f64,
    pub nesterov: bool,
}

/// Counts a step, then takes it.
pub fn sgd(
    d: &Device,
    p: &Data,
    g: &Data,
    buffer: Option<&Data>,
    hyper: &Data,
    scaler: Option<&Data>,
    c: SgdConfig,
) -> Result<Vec<f64>> {
    advance(d, hyper, scaler)?;
    let scaler_token = scaler.map(|s| s.block.read(d.stream())).transpose()?;
    let mut buffer_token = buffer.map(|b| b.block.write(d.stream())).transpose()?;
    d.run(Sgd {
        p: p.out(&mut p.block.write(d.stream())?),
        g: g.arg(&g.block.read(d.stream())?),
        momentum_buffer: buffer.zip(buffer_token.as_mut()).map(|(b, token)| b.out(token)),
        hyper: hyper.arg(&hyper.block.read(d.stream())?),
        scaler: scaler.zip(scaler_token.as_ref()).map(|(s, token)| s.arg(token)),
        momentum: c.momentum,
        dampening: c.dampening,
        weight_decay: c.weight_decay,
        nesterov: c.nesterov,
    })?;
    Ok(d.read(p))
}

pub fn advance(d: &Device, hyper: &Data, scaler: Option<&Data>) -> Result<()> {
    let scaler_token = scaler.map(|s| s.block.read(d.stream())).transpose()?;
    d.run(Advance {
        hyper: hyper.out(&mut hyper.block.write(d.stream())?),
        scaler: scaler.zip(scaler_token.as_ref()).map(|(s, token)| s.arg(token)),
    })
}

/// Counts a step, then takes it, with PyTorch's defaults.
pub fn adam(
    d: &Device,
    p: &Data,
    g: &Data,
    [m, v]: [&Data; 2],
    hyper: &Data,
    scaler: Option<&Data>,
    decay: (f64, bool),
) -> Result<Vec<f64>> {
    advance(d, hyper, scaler)?;
    let scaler_token = scaler.map(|s| s.block.read(d.stream())).transpose()?;
    d.run(Adam {
        p: p.out(&mut p.block.write(d.stream())?),
        g: g.arg(&g.block.read(d.stream())?),
        m: m.out(&mut m.block.write(d.stream())?),
        v: v.out(&mut v.block.write(d.stream())?),
        hyper: hyper.arg(&hyper.block.read(d.stream())?),
        scaler: scaler.zip(scaler_token.as_ref()).map(|(s, token)| s.arg(token)),
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: decay.0,
        decoupled: decay.1,
    })?;
    Ok(d.read(p))
}

pub fn unscale(d: &Device, g: &Data, scaler: &Data) -> Result<Vec<f64>> {
    d.run(Unscale { g: g.out(&mut g.block.write(d.stream())?), scaler: scaler.out(&mut scaler.block.write(d.stream())?) })?;
    Ok(d.read(g))
}

/// Doubles or halves the scale.
pub fn update_scale(d: &Device, scaler: &Data, interval: u32) -> Result<Vec<f64>> {
    d.run(UpdateScale { scaler: scaler.out(&mut scaler.block.write(d.stream())?), growth: 2.0, backoff: 0.5, interval })?;
    Ok(d.read(scaler))
}
