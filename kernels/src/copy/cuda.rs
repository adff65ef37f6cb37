//! CUDA launches.

use super::transpose::Transpose;
use super::{Arange, Copy, Eye, Fill, check_eye};
use crate::arg::{expect, expect_contiguous};
use crate::cuda::map::{Functor, Operand, all_kernels, bits_type, no_text};
use crate::cuda::{Cuda, Launch, Source, SourceText, Variant, param};
use crate::scalar::with_element;
use crate::{DType, Element, OutArg, Result, Scalar};
use kiln_alloc::{Stream, Write};

static SOURCE: Source =
    Source { name: "copy", texts: &[include_str!("../../cuda/map.cuh"), include_str!("../../cuda/copy.cu")], fmad: false };
static TRANSPOSE: Source =
    Source { name: "transpose", texts: &[crate::rows::PACK, include_str!("../../cuda/transpose.cu")], fmad: false };
static MAKE: Source = Source { name: "make", texts: &[include_str!("../../cuda/make.cu")], fmad: false };

const CONVERT: Functor<'static> = Functor { source: &SOURCE, id: 0, name: "Convert", text: no_text };
const MOVE: Functor<'static> = Functor { source: &SOURCE, id: 1, name: "Move", text: no_text };
const CONSTANT: Functor<'static> = Functor { source: &SOURCE, id: 2, name: "Constant", text: no_text };

pub(super) fn copy(k: Copy<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    expect("copy", &k.x, k.x.dtype, k.out.layout.dims())?;
    let (x, out) = (Operand::input(&k.x), Operand::output(&k.out));
    let bytes = k.x.layout.elements() * k.x.dtype.size();
    if bytes == 0 {
        return Ok(());
    }
    if k.x.dtype != k.out.dtype {
        // SAFETY: the operands' tokens are alive; a destination's layout has distinct elements.
        return unsafe { cuda.map(CONVERT, [0.0; 2], out, &[x], stream) };
    }
    if x.layout.is_contiguous() && out.layout.is_contiguous() {
        // SAFETY: both tokens are alive, and both blocks have the bytes (`Arg::new` checked that).
        return unsafe { cuda.copy_bytes(out.address, x.address, bytes, stream) };
    }
    let (x, out) = (x.bits(), out.bits());
    if let Some((transpose, variant)) = Transpose::new(&x, &out) {
        let f = cuda.function(&TRANSPOSE, Variant::new(&[x.dtype], variant), "transpose")?;
        let launch = Launch::blocks(transpose.blocks(), 256);
        // SAFETY: the kernel takes this struct; its strides are those of the operands, whose tokens are alive.
        return unsafe { cuda.launch(f, launch, stream, &[param(&transpose)]) };
    }
    // SAFETY: as above.
    unsafe { cuda.map(MOVE, [0.0; 2], out, &[x], stream) }
}

fn bits_of<T: Element>(value: Scalar) -> u64 {
    let mut bits = [0; 8];
    bits[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&T::from_scalar(value)));
    u64::from_le_bytes(bits)
}

pub(super) fn fill(k: Fill<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let bits = with_element!(k.out.dtype, T => bits_of::<T>(k.value));
    let out = Operand::output(&k.out).bits();
    // SAFETY: the token of the destination is alive; its layout has distinct elements.
    unsafe { cuda.map(CONSTANT, [f64::from_bits(bits), 0.0], out, &[], stream) }
}

/// The kernel `entry` of `make.cu`, the number of elements and the launch; `None` for no elements.
fn make(entry: &'static str, out: &OutArg<'_>, cuda: &Cuda) -> Result<Option<(crate::cuda::Function, u64, Launch)>> {
    expect_contiguous(entry, out)?;
    let n = out.layout.elements();
    if n == 0 {
        return Ok(None);
    }
    Ok(Some((cuda.function(&MAKE, Variant::types(&[out.dtype]), entry)?, n as u64, Launch::threads(n, 256))))
}

pub(super) fn arange(k: Arange<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let Some((f, n, launch)) = make("arange", &k.out, cuda)? else { return Ok(()) };
    let (out, start, step) = (k.out.address(), k.start.to_f64(), k.step.to_f64());
    let (whole_start, whole_step) = (k.start.to_i64(), k.step.to_i64());
    // SAFETY: the kernel is `arange(T0*, u64, f64, f64, i64, i64)`; the destination's token is alive.
    unsafe {
        cuda.launch(
            f,
            launch,
            stream,
            &[param(&out), param(&n), param(&start), param(&step), param(&whole_start), param(&whole_step)],
        )
    }
}

pub(super) fn eye(k: Eye<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let columns = check_eye(&k)? as u64;
    let Some((f, n, launch)) = make("eye", &k.out, cuda)? else { return Ok(()) };
    let out = k.out.address();
    // SAFETY: the kernel is `eye(T0*, u64, u64)`; the destination's token is alive.
    unsafe { cuda.launch(f, launch, stream, &[param(&out), param(&n), param(&columns)]) }
}

pub(crate) fn sources() -> Vec<SourceText> {
    let mut list = Vec::new();
    for to in DType::ALL {
        for from in DType::ALL.into_iter().filter(|from| *from != to) {
            list.push(SOURCE.listed(Variant::types(&[to, from]), &all_kernels("Convert", "convert", 1)));
        }
        list.push(MAKE.listed(Variant::types(&[to]), ""));
        if bits_type(to) == to {
            let text = all_kernels("Move", "move", 1) + &all_kernels("Constant", "constant", 0);
            list.push(SOURCE.listed(Variant::new(&[to, to], 1), &text));
            let (vec, tile) = if to.size() == 8 { (2, 32) } else { (4, 64) };
            list.extend([1 | 32 << 8, vec | tile << 8].map(|variant| TRANSPOSE.listed(Variant::new(&[to], variant), "")));
        }
    }
    list
}
