//! What CPU kernels share: typed views of operands, float arithmetic over any element type, work split in fixed pieces.

use crate::{Arg, DType, Element, KernelError, Layout, OutArg, Result};
use half::{bf16, f16};
use rayon::prelude::*;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// Below this many elements of work a kernel stays on the calling thread.
pub(crate) const PARALLEL: usize = 1 << 16;

/// f32 or f64: what arithmetic is done in.
pub(crate) trait Real:
    Float<Acc = Self>
    + PartialOrd
    + Default
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
{
    /// The nearest value.
    fn of(value: f64) -> Self;
    /// The value as f64, exactly.
    fn wide(self) -> f64;
    /// e to the power of the value.
    fn exp(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
}

/// A floating-point element and the type it is computed in.
pub(crate) trait Float: Element {
    /// f64 for f64, else f32.
    type Acc: Real;
    /// The value, exactly.
    fn up(self) -> Self::Acc;
    /// The nearest value.
    fn down(value: Self::Acc) -> Self;
}

macro_rules! real {
    ($($t:ident),*) => {$(
        impl Real for $t {
            #[inline(always)]
            fn of(value: f64) -> $t { value as $t }
            #[inline(always)]
            fn wide(self) -> f64 { self as f64 }
            #[inline(always)]
            fn exp(self) -> $t { $t::exp(self) }
            #[inline(always)]
            fn sqrt(self) -> $t { $t::sqrt(self) }
        }
        impl Float for $t {
            type Acc = $t;
            #[inline(always)]
            fn up(self) -> $t { self }
            #[inline(always)]
            fn down(value: $t) -> $t { value }
        }
    )*};
}
real!(f32, f64);

macro_rules! half_float {
    ($($t:ident),*) => {$(
        impl Float for $t {
            type Acc = f32;
            #[inline(always)]
            fn up(self) -> f32 { self.to_f32() }
            #[inline(always)]
            fn down(value: f32) -> $t { $t::from_f32(value) }
        }
    )*};
}
half_float!(f16, bf16);

/// Runs `$body` with `$T` the Rust type of a float `$dtype`; an error of `$kernel` for other types.
macro_rules! with_float {
    ($dtype:expr, $kernel:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F16 => {
                type $T = half::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            dtype => Err($crate::KernelError::DType { kernel: $kernel, dtype }),
        }
    };
}
pub(crate) use with_float;

/// The error of a kernel that does not exist for `dtype`.
pub(crate) fn undefined(kernel: &'static str, dtype: DType) -> KernelError {
    KernelError::DType { kernel, dtype }
}

fn not_host(kernel: &'static str) -> KernelError {
    KernelError::Library(format!("{kernel}: an operand of a CPU kernel does not lie in host memory"))
}

/// Checks an operand that must be contiguous with `n` elements.
pub(crate) fn expect_dense(layout: &Layout, n: usize, kernel: &'static str) -> Result<()> {
    if layout.elements() == n && layout.is_contiguous() {
        return Ok(());
    }
    let (dims, strides) = (layout.dims(), layout.strides());
    Err(KernelError::Library(format!("{kernel}: dims {dims:?} with strides {strides:?} are not {n} contiguous elements")))
}

fn typed<'a, T: Element>(bytes: &'a [u8], layout: &Layout, kernel: &'static str) -> Result<&'a [T]> {
    if layout.elements() == 0 {
        return Ok(&[]);
    }
    let size = size_of::<T>();
    let bytes = bytes.get(layout.offset() * size..layout.extent() * size).ok_or_else(|| not_host(kernel))?;
    bytemuck::try_cast_slice(bytes).map_err(|_| not_host(kernel))
}

/// The elements of an operand of any layout, from its first to its last.
pub(crate) fn view<'a, T: Element>(arg: &Arg<'a>, kernel: &'static str) -> Result<&'a [T]> {
    if arg.dtype != T::DTYPE {
        return Err(undefined(kernel, arg.dtype));
    }
    typed(arg.token.as_slice().ok_or_else(|| not_host(kernel))?, arg.layout, kernel)
}

/// The `n` elements of a contiguous operand.
pub(crate) fn dense<'a, T: Element>(arg: &Arg<'a>, n: usize, kernel: &'static str) -> Result<&'a [T]> {
    expect_dense(arg.layout, n, kernel)?;
    view(arg, kernel)
}

/// The `n` elements of a contiguous result.
pub(crate) fn dense_mut<'b, T: Element>(out: &'b mut OutArg<'_>, n: usize, kernel: &'static str) -> Result<&'b mut [T]> {
    expect_dense(out.layout, n, kernel)?;
    if out.dtype != T::DTYPE {
        return Err(undefined(kernel, out.dtype));
    }
    if n == 0 {
        return Ok(&mut []);
    }
    let size = size_of::<T>();
    let range = out.layout.offset() * size..out.layout.extent() * size;
    let bytes = out.token.as_mut_slice().and_then(|b| b.get_mut(range)).ok_or_else(|| not_host(kernel))?;
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| not_host(kernel))
}

/// The least number of pieces a thread takes, given the elements of work in all of them.
pub(crate) fn min_pieces(work: usize) -> usize {
    if work < PARALLEL { usize::MAX } else { 1 }
}

/// Runs `f(first index, piece)` over pieces of `len` elements of `out`, on all threads where `work` elements are worth it.
pub(crate) fn for_pieces<T: Send>(out: &mut [T], len: usize, work: usize, f: impl Fn(usize, &mut [T]) + Sync + Send) {
    let len = len.max(1);
    out.par_chunks_mut(len).with_min_len(min_pieces(work)).enumerate().for_each(|(i, piece)| f(i * len, piece));
}

/// Sum of `f` over a slice in f64, by eight lanes, in an order that depends on the length alone.
#[inline(always)]
pub(crate) fn sum_wide<T: Copy>(x: &[T], f: impl Fn(T) -> f64) -> f64 {
    let mut lanes = [0.0; 8];
    let mut eights = x.chunks_exact(8);
    for eight in &mut eights {
        for (lane, &v) in lanes.iter_mut().zip(eight) {
            *lane += f(v);
        }
    }
    for (lane, &v) in lanes.iter_mut().zip(eights.remainder()) {
        *lane += f(v);
    }
    lanes.iter().sum()
}
