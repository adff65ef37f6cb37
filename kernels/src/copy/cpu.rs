//! CPU code: chunks are gathered, converted and scattered; copies of one type move bits.

use super::{Arange, Copy, Eye, Fill, check_eye};
use crate::arg::{expect, expect_contiguous};
use crate::convert::Cast;
use crate::host::for_pieces;
use crate::scalar::with_element;
use crate::walk::{CHUNK, Input, PIECE, Walk, chunks, output, room};
use crate::{Arg, Element, OutArg, Result, Scalar};
use bytemuck::Pod;

/// Runs `convert(source, destination)` over chunks of both.
fn convert_chunks<S: Pod + Send + Sync, D: Pod + Send>(
    x: &Arg<'_>,
    mut out: OutArg<'_>,
    convert: impl Fn(&[S], &mut [D]) + Sync + Send,
) -> Result<()> {
    let input = Input::<S>::new(x)?;
    let (n, layout) = (out.layout.elements(), out.layout);
    let out = output::<D>(&mut out)?;
    if layout.is_contiguous() {
        for_pieces(out, PIECE, n, |start, piece| {
            let mut buffer = Vec::new();
            for (i, out) in piece.chunks_mut(CHUNK).enumerate() {
                convert(input.chunk(start + i * CHUNK, out.len(), &mut buffer), out);
            }
        });
        return Ok(());
    }
    let (walk, mut buffer, mut converted) = (Walk::new(layout), Vec::new(), Vec::new());
    for (start, len) in chunks(0, n) {
        let converted = room(&mut converted, len);
        convert(input.chunk(start, len, &mut buffer), converted);
        walk.scatter(out, start, converted);
    }
    Ok(())
}

fn copy_bits<T: Pod + Send + Sync>(k: Copy<'_>) -> Result<()> {
    convert_chunks::<T, T>(&k.x, k.out, |x, out| out.copy_from_slice(x))
}

fn convert<S: Cast<D> + Element, D: Element>(k: Copy<'_>) -> Result<()> {
    convert_chunks::<S, D>(&k.x, k.out, |x, out| x.iter().zip(out).for_each(|(&v, o)| *o = v.cast()))
}

pub(super) fn copy(k: Copy<'_>) -> Result<()> {
    expect("copy", &k.x, k.x.dtype, k.out.layout.dims())?;
    if k.out.layout.elements() == 0 {
        return Ok(());
    }
    if k.x.dtype == k.out.dtype {
        return match k.x.dtype.size() {
            1 => copy_bits::<u8>(k),
            2 => copy_bits::<u16>(k),
            4 => copy_bits::<u32>(k),
            _ => copy_bits::<u64>(k),
        };
    }
    with_element!(k.x.dtype, S => with_element!(k.out.dtype, D => convert::<S, D>(k)))
}

fn fill_as<T: Element>(value: Scalar, mut out: OutArg<'_>) -> Result<()> {
    let (n, layout, value) = (out.layout.elements(), out.layout, T::from_scalar(value));
    let out = output::<T>(&mut out)?;
    if layout.is_contiguous() {
        for_pieces(out, PIECE, n, |_, piece| piece.fill(value));
        return Ok(());
    }
    let (walk, values) = (Walk::new(layout), [value; CHUNK]);
    chunks(0, n).for_each(|(start, len)| walk.scatter(out, start, &values[..len]));
    Ok(())
}

pub(super) fn fill(k: Fill<'_>) -> Result<()> {
    if k.out.layout.elements() == 0 {
        return Ok(());
    }
    with_element!(k.out.dtype, T => fill_as::<T>(k.value, k.out))
}

/// Runs `f(index)` for each element of a contiguous destination.
fn generate<T: Element>(kernel: &'static str, mut out: OutArg<'_>, f: impl Fn(usize) -> T + Sync + Send) -> Result<()> {
    expect_contiguous(kernel, &out)?;
    let out = output::<T>(&mut out)?;
    let n = out.len();
    for_pieces(out, PIECE, n, |start, piece| piece.iter_mut().enumerate().for_each(|(i, o)| *o = f(start + i)));
    Ok(())
}

fn arange_as<T: Element>(k: Arange<'_>) -> Result<()> {
    if T::DTYPE.is_float() {
        let (start, step) = (k.start.to_f64(), k.step.to_f64());
        return generate("arange", k.out, |i| T::from_scalar(Scalar::Float(start + i as f64 * step)));
    }
    let (start, step) = (k.start.to_i64(), k.step.to_i64());
    generate("arange", k.out, |i| T::from_scalar(Scalar::Int(start.wrapping_add((i as i64).wrapping_mul(step)))))
}

pub(super) fn arange(k: Arange<'_>) -> Result<()> {
    with_element!(k.out.dtype, T => arange_as::<T>(k))
}

fn eye_as<T: Element>(k: Eye<'_>) -> Result<()> {
    let columns = check_eye(&k)?;
    let [zero, one] = [0, 1].map(|v: i64| T::from_scalar(v.into()));
    generate("eye", k.out, |i| if i / columns == i % columns { one } else { zero })
}

pub(super) fn eye(k: Eye<'_>) -> Result<()> {
    with_element!(k.out.dtype, T => eye_as::<T>(k))
}
