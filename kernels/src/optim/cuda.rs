//! CUDA launches.

use super::{Adam, Advance, HYPER, SCALER, Sgd, Unscale, UpdateScale};
use crate::cuda::{Cuda, Launch, Source, SourceText, Variant, param};
use crate::host::{expect_dense, undefined};
use crate::rows::{PACK, width};
use crate::{Arg, DType, Layout, Result};
use kiln_alloc::{Stream, Write};

static OPTIM: Source = Source { name: "optim", texts: &[PACK, include_str!("../../cuda/optim.cu")], fmad: true };
/// The variant of kernels that take no operand of a type of choice.
const FIXED: Variant = Variant::new(&[DType::F32, DType::F32], 1);

/// Fails unless an operand, given by type and layout, has `n` contiguous elements of type `wanted`.
fn expect(dtype: DType, layout: &Layout, n: usize, wanted: DType, kernel: &'static str) -> Result<()> {
    expect_dense(layout, n, kernel)?;
    if dtype == wanted { Ok(()) } else { Err(undefined(kernel, dtype)) }
}

/// The scaler's block, 0 where there is none.
fn scaler_address(scaler: &Option<Arg<'_>>, kernel: &'static str) -> Result<u64> {
    match scaler {
        Some(scaler) => expect(scaler.dtype, scaler.layout, SCALER, DType::F32, kernel).map(|()| scaler.address()),
        None => Ok(0),
    }
}

/// Blocks of 256 threads that take `vec` elements at a time, eight blocks a multiprocessor at most.
fn launch(n: usize, vec: usize, cuda: &Cuda) -> Launch {
    Launch::blocks(n.div_ceil(256 * vec).min(8 * cuda.multiprocessors as usize), 256)
}

pub(super) fn advance(k: Advance<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    const NAME: &str = "advance";
    expect(k.hyper.dtype, k.hyper.layout, HYPER, DType::F64, NAME)?;
    let (hyper, scaler) = (k.hyper.address(), scaler_address(&k.scaler, NAME)?);
    let f = cuda.function(&OPTIM, FIXED, "advance")?;
    // SAFETY: `advance(f64* hyper, const f32* scaler)`; both blocks were checked for type and length, and the tokens live.
    unsafe { cuda.launch(f, Launch::blocks(1, 1), stream, &[param(&hyper), param(&scaler)]) }
}

pub(super) fn sgd(k: Sgd<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    const NAME: &str = "sgd";
    let (n, types) = (k.p.layout.elements(), [k.p.dtype, k.g.dtype]);
    if let Some(&dtype) = types.iter().find(|t| !t.is_float()) {
        return Err(undefined(NAME, dtype));
    }
    let wide = types[0].accumulator();
    expect(k.p.dtype, k.p.layout, n, types[0], NAME)?;
    expect(k.g.dtype, k.g.layout, n, types[1], NAME)?;
    expect(k.hyper.dtype, k.hyper.layout, HYPER, DType::F64, NAME)?;
    let buffer = match &k.momentum_buffer {
        Some(buffer) => expect(buffer.dtype, buffer.layout, n, wide, NAME).map(|()| buffer.address())?,
        None => 0,
    };
    if n == 0 {
        return Ok(());
    }
    let (p, g, hyper, scaler) = (k.p.address(), k.g.address(), k.hyper.address(), scaler_address(&k.scaler, NAME)?);
    let vec = width(n, &[(buffer, wide), (p, types[0]), (g, types[1])]);
    let f = cuda.function(&OPTIM, Variant::new(&types, vec as u32), "sgd")?;
    let (count, nesterov) = (n as u64, k.nesterov as u32);
    let operands = [param(&p), param(&g), param(&buffer), param(&hyper), param(&scaler), param(&count)];
    let numbers = [param(&k.momentum), param(&k.dampening), param(&k.weight_decay), param(&nesterov)];
    // SAFETY: `sgd(T0* p, const T1* g, C* buffer, const f64* hyper, const f32* scaler, u64 n, f64 momentum, f64 dampening,
    // f64 weight_decay, u32 nesterov)`; operands were checked for type and number of elements, and the tokens live.
    unsafe { cuda.launch(f, launch(n, vec, cuda), stream, &[&operands[..], &numbers].concat()) }
}

pub(super) fn adam(k: Adam<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    const NAME: &str = "adam";
    let (n, types) = (k.p.layout.elements(), [k.p.dtype, k.g.dtype]);
    if let Some(&dtype) = types.iter().find(|t| !t.is_float()) {
        return Err(undefined(NAME, dtype));
    }
    let wide = types[0].accumulator();
    expect(k.p.dtype, k.p.layout, n, types[0], NAME)?;
    expect(k.g.dtype, k.g.layout, n, types[1], NAME)?;
    expect(k.m.dtype, k.m.layout, n, wide, NAME)?;
    expect(k.v.dtype, k.v.layout, n, wide, NAME)?;
    expect(k.hyper.dtype, k.hyper.layout, HYPER, DType::F64, NAME)?;
    if n == 0 {
        return Ok(());
    }
    let (p, g, m, v) = (k.p.address(), k.g.address(), k.m.address(), k.v.address());
    let (hyper, scaler) = (k.hyper.address(), scaler_address(&k.scaler, NAME)?);
    let vec = width(n, &[(m, wide), (v, wide), (p, types[0]), (g, types[1])]);
    let f = cuda.function(&OPTIM, Variant::new(&types, vec as u32), "adam")?;
    let (count, decoupled) = (n as u64, k.decoupled as u32);
    let operands = [param(&p), param(&g), param(&m), param(&v), param(&hyper), param(&scaler), param(&count)];
    let numbers = [param(&k.beta1), param(&k.beta2), param(&k.eps), param(&k.weight_decay), param(&decoupled)];
    // SAFETY: `adam(T0* p, const T1* g, C* m, C* v, const f64* hyper, const f32* scaler, u64 n, f64 beta1, f64 beta2, f64 eps,
    // f64 weight_decay, u32 decoupled)`; operands were checked for type and number of elements, and the tokens live.
    unsafe { cuda.launch(f, launch(n, vec, cuda), stream, &[&operands[..], &numbers].concat()) }
}

pub(super) fn unscale(k: Unscale<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    const NAME: &str = "unscale";
    let (n, dtype) = (k.g.layout.elements(), k.g.dtype);
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(undefined(NAME, dtype));
    }
    expect(dtype, k.g.layout, n, dtype, NAME)?;
    expect(k.scaler.dtype, k.scaler.layout, SCALER, DType::F32, NAME)?;
    if n == 0 {
        return Ok(());
    }
    let (g, scaler, count) = (k.g.address(), k.scaler.address(), n as u64);
    let vec = width(n, &[(g, dtype)]);
    let f = cuda.function(&OPTIM, Variant::new(&[dtype, dtype], vec as u32), "unscale")?;
    // SAFETY: `unscale(T0* g, f32* scaler, u64 n)`; both were checked for type and number of elements, and the tokens live.
    unsafe { cuda.launch(f, launch(n, vec, cuda), stream, &[param(&g), param(&scaler), param(&count)]) }
}

pub(super) fn update_scale(k: UpdateScale<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    const NAME: &str = "update_scale";
    expect(k.scaler.dtype, k.scaler.layout, SCALER, DType::F32, NAME)?;
    let scaler = k.scaler.address();
    let f = cuda.function(&OPTIM, FIXED, "update_scale")?;
    let params = [param(&scaler), param(&k.growth), param(&k.backoff), param(&k.interval)];
    // SAFETY: `update_scale(f32* scaler, f64 growth, f64 backoff, u32 interval)`; the block was checked, and its token lives.
    unsafe { cuda.launch(f, Launch::blocks(1, 1), stream, &params) }
}

/// The sources of this family, for checking that they compile.
pub(crate) fn sources() -> Vec<SourceText> {
    const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];
    let types = FLOATS.iter().flat_map(|&p| FLOATS.iter().map(move |&g| [p, g]));
    types.flat_map(|types| [1, 2, 4].map(|vec| OPTIM.listed(Variant::new(&types, vec), ""))).collect()
}
