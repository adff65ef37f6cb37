//! CPU code, over chunks that are contiguous or gathered.

use super::{Compare, Comparison, Select, check_compare, check_select};
use crate::host::for_pieces;
use crate::scalar::with_element;
use crate::walk::{CHUNK, Input, PIECE, output};
use crate::{Element, Result};
use bytemuck::Pod;

fn masks<T: PartialOrd>(op: Comparison, a: &[T], b: &[T], out: &mut [u8]) {
    let run = |out: &mut [u8], f: fn(&T, &T) -> bool| a.iter().zip(b).zip(out).for_each(|((a, b), o)| *o = f(a, b) as u8);
    match op {
        Comparison::Eq => run(out, T::eq),
        Comparison::Ne => run(out, T::ne),
        Comparison::Lt => run(out, T::lt),
        Comparison::Le => run(out, T::le),
        Comparison::Gt => run(out, T::gt),
        Comparison::Ge => run(out, T::ge),
    }
}

fn compare_as<T: Element + PartialOrd>(mut k: Compare<'_>) -> Result<()> {
    let (a, b) = (Input::<T>::new(&k.a)?, Input::<T>::new(&k.b)?);
    let out = output::<u8>(&mut k.out)?;
    let work = out.len();
    for_pieces(out, PIECE, work, |start, piece| {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (i, out) in piece.chunks_mut(CHUNK).enumerate() {
            let (start, len) = (start + i * CHUNK, out.len());
            masks(k.op, a.chunk(start, len, &mut left), b.chunk(start, len, &mut right), out);
        }
    });
    Ok(())
}

pub(super) fn compare(k: Compare<'_>) -> Result<()> {
    check_compare(&k)?;
    with_element!(k.a.dtype, T => compare_as::<T>(k))
}

fn select_as<T: Pod + Send + Sync>(mut k: Select<'_>) -> Result<()> {
    let (mask, a, b) = (Input::<u8>::new(&k.mask)?, Input::<T>::new(&k.a)?, Input::<T>::new(&k.b)?);
    let out = output::<T>(&mut k.out)?;
    let work = out.len();
    for_pieces(out, PIECE, work, |start, piece| {
        let (mut masks, mut left, mut right) = (Vec::new(), Vec::new(), Vec::new());
        for (i, out) in piece.chunks_mut(CHUNK).enumerate() {
            let (start, len) = (start + i * CHUNK, out.len());
            let (a, b) = (a.chunk(start, len, &mut left), b.chunk(start, len, &mut right));
            let mask = mask.chunk(start, len, &mut masks);
            out.iter_mut().zip(mask).zip(a.iter().zip(b)).for_each(|((o, &m), (&a, &b))| *o = if m != 0 { a } else { b });
        }
    });
    Ok(())
}

pub(super) fn select(k: Select<'_>) -> Result<()> {
    check_select(&k)?;
    match k.out.dtype.size() {
        1 => select_as::<u8>(k),
        2 => select_as::<u16>(k),
        4 => select_as::<u32>(k),
        _ => select_as::<u64>(k),
    }
}
