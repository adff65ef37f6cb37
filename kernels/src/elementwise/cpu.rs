//! CPU code: rows are computed over chunks, f32 and f64 straight from their operands where these are contiguous, 16-bit floats by way of f32.

use super::row::{Eval, MAX_INPUTS};
use super::{Map, MapInPlace, Row, check};
use crate::host::{for_pieces, undefined};
use crate::walk::{CHUNK, Input, PIECE, Walk, chunks, output, room};
use crate::{Arg, DType, KernelError, OutArg, Result};
use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::num::Wrapping;

/// What is between a chunk of elements and the arithmetic over it.
trait Stored: Pod + Send + Sync {
    /// The type computed in.
    type Compute: Pod;
    /// Elements as the arithmetic wants them, by way of `buffer` where the types differ.
    fn load<'b>(elements: &'b [Self], buffer: &'b mut Vec<Self::Compute>) -> &'b [Self::Compute];
    /// Computes into `out`, by way of `buffer` where the types differ.
    fn store(out: &mut [Self], buffer: &mut Vec<Self::Compute>, compute: impl FnOnce(&mut [Self::Compute]));
}

macro_rules! direct {
    ($($t:ty),*) => {$(
        impl Stored for $t {
            type Compute = $t;
            fn load<'b>(elements: &'b [$t], _: &'b mut Vec<$t>) -> &'b [$t] {
                elements
            }
            fn store(out: &mut [$t], _: &mut Vec<$t>, compute: impl FnOnce(&mut [$t])) {
                compute(out)
            }
        }
    )*};
}
direct!(f64, f32, Wrapping<i64>, Wrapping<u32>, Wrapping<u8>);

macro_rules! through_f32 {
    ($($t:ty),*) => {$(
        impl Stored for $t {
            type Compute = f32;
            fn load<'b>(elements: &'b [$t], buffer: &'b mut Vec<f32>) -> &'b [f32] {
                let buffer = room(buffer, elements.len());
                elements.convert_to_f32_slice(buffer);
                buffer
            }
            fn store(out: &mut [$t], buffer: &mut Vec<f32>, compute: impl FnOnce(&mut [f32])) {
                let buffer = room(buffer, out.len());
                compute(buffer);
                out.convert_from_f32_slice(buffer);
            }
        }
    )*};
}
through_f32!(f16, bf16);

/// Space for one chunk of each input and of the output, before and after conversion; taken only where it is needed.
struct Buffers<T: Stored> {
    elements: [Vec<T>; MAX_INPUTS],
    computed: [Vec<T::Compute>; MAX_INPUTS],
    result: Vec<T::Compute>,
}

impl<T: Stored> Buffers<T> {
    fn new() -> Buffers<T> {
        Buffers { elements: Default::default(), computed: Default::default(), result: Vec::new() }
    }

    /// One chunk: elements `start..` of the inputs, after `first` where the destination's old values come first.
    fn run(
        &mut self,
        eval: Eval<T::Compute>,
        params: [f64; 2],
        inputs: &[Input<'_, T>],
        first: Option<&[T]>,
        start: usize,
        out: &mut [T],
    ) {
        let mut slices: [&[T::Compute]; MAX_INPUTS] = [&[]; MAX_INPUTS];
        let mut places = self.elements.iter_mut().zip(&mut self.computed).zip(&mut slices);
        if let Some((first, ((_, computed), slice))) = first.and_then(|first| Some((first, places.next()?))) {
            *slice = T::load(first, computed);
        }
        for (input, ((elements, computed), slice)) in inputs.iter().zip(places) {
            *slice = T::load(input.chunk(start, out.len(), elements), computed);
        }
        T::store(out, &mut self.result, |out| eval(out, slices, params));
    }
}

fn inputs_of<'a, T: Pod>(args: &[Arg<'a>]) -> Result<Vec<Input<'a, T>>> {
    args.iter().map(Input::new).collect()
}

fn map_as<T: Stored>(eval: Eval<T::Compute>, params: [f64; 2], args: &[Arg<'_>], mut out: OutArg<'_>) -> Result<()> {
    let inputs = inputs_of::<T>(args)?;
    let out = output::<T>(&mut out)?;
    let work = out.len();
    for_pieces(out, PIECE, work, |start, piece| {
        let mut buffers = Buffers::new();
        for (i, out) in piece.chunks_mut(CHUNK).enumerate() {
            buffers.run(eval, params, &inputs, None, start + i * CHUNK, out);
        }
    });
    Ok(())
}

fn in_place_as<T: Stored>(eval: Eval<T::Compute>, params: [f64; 2], others: &[Arg<'_>], mut x: OutArg<'_>) -> Result<()> {
    let inputs = inputs_of::<T>(others)?;
    let (n, layout) = (x.layout.elements(), x.layout);
    let x = output::<T>(&mut x)?;
    if layout.is_contiguous() {
        for_pieces(x, PIECE, n, |start, piece| {
            let (mut buffers, mut old) = (Buffers::new(), Vec::new());
            for (i, x) in piece.chunks_mut(CHUNK).enumerate() {
                let old = room(&mut old, x.len());
                old.copy_from_slice(x);
                buffers.run(eval, params, &inputs, Some(old), start + i * CHUNK, x);
            }
        });
        return Ok(());
    }
    let (walk, mut buffers) = (Walk::new(layout), Buffers::new());
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for (start, len) in chunks(0, n) {
        let (old, new) = (room(&mut old, len), room(&mut new, len));
        walk.gather(x, start, old);
        buffers.run(eval, params, &inputs, Some(old), start, new);
        walk.scatter(x, start, new);
    }
    Ok(())
}

/// Picks the row's code for an element type.
macro_rules! by_dtype {
    ($row:expr, $dtype:expr, $run:ident($($arg:expr),*)) => {{
        let (row, dtype): (&Row, DType) = ($row, $dtype);
        match (dtype, &row.evals.floats, &row.evals.integers) {
            (DType::F64, Some(evals), _) => $run::<f64>(evals.f64, $($arg),*),
            (DType::F32, Some(evals), _) => $run::<f32>(evals.f32, $($arg),*),
            (DType::F16, Some(evals), _) => $run::<f16>(evals.f32, $($arg),*),
            (DType::BF16, Some(evals), _) => $run::<bf16>(evals.f32, $($arg),*),
            (DType::I64, _, Some(evals)) => $run::<Wrapping<i64>>(evals.i64, $($arg),*),
            (DType::U32, _, Some(evals)) => $run::<Wrapping<u32>>(evals.u32, $($arg),*),
            (DType::U8, _, Some(evals)) => $run::<Wrapping<u8>>(evals.u8, $($arg),*),
            _ => Err(undefined(row.name, dtype)) as Result<(), KernelError>,
        }
    }};
}

pub(super) fn map(k: Map<'_>) -> Result<()> {
    let params = check(k.row, k.params, k.inputs, false, &k.out)?;
    if k.out.layout.elements() == 0 {
        return Ok(());
    }
    by_dtype!(k.row, k.out.dtype, map_as(params, k.inputs, k.out))
}

pub(super) fn map_in_place(k: MapInPlace<'_>) -> Result<()> {
    let params = check(k.row, k.params, k.others, true, &k.x)?;
    if k.x.layout.elements() == 0 {
        return Ok(());
    }
    by_dtype!(k.row, k.x.dtype, in_place_as(params, k.others, k.x))
}
