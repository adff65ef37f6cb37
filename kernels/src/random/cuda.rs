//! CUDA launches: a thread for each block of four elements.

use super::{Dropout, Normal, RandInt, Uniform, check_rand_int, drop_below, step};
use crate::arg::{expect, expect_contiguous};
use crate::cuda::{Cuda, Function, Launch, Source, SourceText, Variant, param};
use crate::{DType, KernelError, OutArg, Result};
use kiln_alloc::{Stream, Write};

static SOURCE: Source = Source { name: "random", texts: &[include_str!("../../cuda/random.cu")], fmad: false };
const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

/// The kernel, the number of elements and the launch; `None` for no elements.
fn prepare(entry: &'static str, dtype: DType, out: &OutArg<'_>, cuda: &Cuda) -> Result<Option<(Function, u64, Launch)>> {
    if !dtype.is_float() {
        return Err(KernelError::DType { kernel: entry, dtype });
    }
    expect_contiguous(entry, out)?;
    let n = out.layout.elements();
    if n == 0 {
        return Ok(None);
    }
    Ok(Some((cuda.function(&SOURCE, Variant::types(&[dtype]), entry)?, n as u64, Launch::threads(n.div_ceil(4), 256))))
}

pub(super) fn uniform(k: Uniform<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let Some((f, n, launch)) = prepare("uniform", k.out.dtype, &k.out, cuda)? else { return Ok(()) };
    let (out, range, step) = (k.out.address(), k.hi - k.lo, step(k.out.dtype));
    let bounds = [param(&k.lo), param(&k.hi), param(&range), param(&step)];
    // SAFETY: the kernel is `uniform(T0*, u64, u64, u64, f64, f64, f64, f64)`; the destination's token is alive.
    unsafe {
        cuda.launch(f, launch, stream, &[&[param(&out), param(&n), param(&k.seed), param(&k.offset)], &bounds[..]].concat())
    }
}

pub(super) fn normal(k: Normal<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let Some((f, n, launch)) = prepare("normal", k.out.dtype, &k.out, cuda)? else { return Ok(()) };
    let out = k.out.address();
    // SAFETY: the kernel is `normal(T0*, u64, u64, u64, f64, f64)`; the destination's token is alive.
    unsafe {
        cuda.launch(f, launch, stream, &[param(&out), param(&n), param(&k.seed), param(&k.offset), param(&k.mean), param(&k.std)])
    }
}

pub(super) fn rand_int(k: RandInt<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let range = check_rand_int(&k)?;
    // The source wants a float for `T0`; this kernel does not use it.
    let Some((f, n, launch)) = prepare("rand_int", DType::F32, &k.out, cuda)? else { return Ok(()) };
    let out = k.out.address();
    // SAFETY: the kernel is `rand_int(i64*, u64, u64, u64, i64, u64)`; the destination's token is alive.
    unsafe {
        cuda.launch(f, launch, stream, &[param(&out), param(&n), param(&k.seed), param(&k.offset), param(&k.lo), param(&range)])
    }
}

pub(super) fn dropout(k: Dropout<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    expect("dropout", &k.x, k.out.dtype, k.out.layout.dims())?;
    if !k.x.layout.is_contiguous() {
        let strides = k.x.layout.strides();
        return Err(KernelError::Operand(format!("dropout: the source must be contiguous; it has strides {strides:?}")));
    }
    let Some((f, n, launch)) = prepare("dropout", k.out.dtype, &k.out, cuda)? else { return Ok(()) };
    let (x, out, below, keep) = (k.x.address(), k.out.address(), drop_below(k.p), 1.0 - k.p);
    let head = [param(&x), param(&out), param(&n), param(&k.seed), param(&k.offset)];
    let [x, out, n, seed, offset] = head;
    // SAFETY: the kernel is `dropout(const T0*, T0*, u64, u64, u64, u32, f64)`; the operands' tokens are alive.
    unsafe { cuda.launch(f, launch, stream, &[x, out, n, seed, offset, param(&below), param(&keep)]) }
}

pub(crate) fn sources() -> Vec<SourceText> {
    FLOATS.map(|dtype| SOURCE.listed(Variant::types(&[dtype]), "")).to_vec()
}
