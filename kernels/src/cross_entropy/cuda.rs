//! CUDA launches.

use super::{CrossEntropy, CrossEntropyBackward};
use crate::cuda::{Checked, Cuda, Source, SourceText, param};
use crate::host::{expect_dense, undefined};
use crate::rows::{PACK, ROWS, Rows};
use crate::{Arg, DType, KernelError, Result};
use kiln_alloc::{Stream, Write};

const NAME: &str = "cross_entropy";
static CROSS_ENTROPY: Source =
    Source { name: NAME, texts: &[PACK, ROWS, include_str!("../../cuda/cross_entropy.cu")], fmad: true };
/// Blocks of a grid, at most; kernels loop.
const BLOCKS: usize = i32::MAX as usize;
/// Number of the kernel in the device error word.
const CHECKED: u32 = Checked::CrossEntropy as u32;

/// Rows and classes, logits and targets checked.
fn shape(logits: &Arg<'_>, target: &Arg<'_>) -> Result<(usize, usize)> {
    if !logits.dtype.is_float() {
        return Err(undefined(NAME, logits.dtype));
    }
    if target.dtype != DType::I64 {
        return Err(undefined(NAME, target.dtype));
    }
    let (rows, classes) = (target.layout.elements(), logits.layout.dims().last().copied().unwrap_or(0));
    expect_dense(target.layout, rows, NAME)?;
    expect_dense(logits.layout, rows * classes, NAME)?;
    Ok((rows, classes))
}

/// A warp for a short row, else a block.
fn rows_of(classes: usize) -> Rows {
    Rows::walked(
        1,
        match classes {
            0..=1024 => 32,
            1025..=16384 => 256,
            _ => 1024,
        },
    )
}

pub(super) fn cross_entropy(k: CrossEntropy<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let (rows, classes) = shape(&k.logits, &k.target)?;
    for out in [&k.loss, &k.lse, &k.counted] {
        expect_dense(out.layout, rows, NAME)?;
        if out.dtype != k.logits.dtype.accumulator() {
            return Err(undefined(NAME, out.dtype));
        }
    }
    if rows == 0 {
        return Ok(());
    }
    let shape = rows_of(classes);
    let f = cuda.function(&CROSS_ENTROPY, shape.variant(&[k.logits.dtype]), "cross_entropy")?;
    let error = cuda.error_word(stream)?;
    let (x, target, loss, lse) = (k.logits.address(), k.target.address(), k.loss.address(), k.lse.address());
    let (counted, rows_arg, classes, ignore) = (k.counted.address(), rows as u64, classes as u64, k.ignore_index);
    let (word, checked) = (error.address(), CHECKED);
    let operands = [param(&x), param(&target), param(&loss), param(&lse), param(&counted)];
    let params = [&operands[..], &[param(&rows_arg), param(&classes), param(&ignore), param(&word), param(&checked)]].concat();
    // SAFETY: `cross_entropy(const T0* x, const i64* target, C* loss, C* lse, C* counted, u64 rows, u64 classes, i64 ignore,
    // ErrorWord* error, u32 kernel)`; every operand was checked for its type and number of elements, and the tokens live.
    unsafe { cuda.launch(f, shape.launch(rows, BLOCKS), stream, &params) }
}

pub(super) fn cross_entropy_backward(
    k: CrossEntropyBackward<'_>,
    cuda: &Cuda,
    stream: &Stream,
    _: Option<&mut Write<'_>>,
) -> Result<()> {
    let (rows, classes) = shape(&k.logits, &k.target)?;
    let sums = k.logits.dtype.accumulator();
    expect_dense(k.lse.layout, rows, NAME)?;
    expect_dense(k.dx.layout, rows * classes, NAME)?;
    let types = [(k.lse.dtype, sums), (k.g.dtype, sums), (k.dx.dtype, k.logits.dtype)];
    if let Some(&(dtype, _)) = types.iter().find(|(given, wanted)| given != wanted) {
        return Err(undefined(NAME, dtype));
    }
    let g_stride = match (k.g.layout.dims(), k.g.layout.strides()) {
        (&[g_rows], &[stride]) if g_rows == rows => stride as u64,
        (dims, _) => return Err(KernelError::Library(format!("{NAME}: upstream gradients of dims {dims:?} for {rows} rows"))),
    };
    if rows * classes == 0 {
        return Ok(());
    }
    let shape = rows_of(classes);
    let f = cuda.function(&CROSS_ENTROPY, shape.variant(&[k.logits.dtype]), "cross_entropy_backward")?;
    let error = cuda.error_word(stream)?;
    let (x, target, lse, g, dx) = (k.logits.address(), k.target.address(), k.lse.address(), k.g.address(), k.dx.address());
    let (rows_arg, classes, ignore, word, checked) = (rows as u64, classes as u64, k.ignore_index, error.address(), CHECKED);
    let operands = [param(&x), param(&target), param(&lse), param(&g), param(&dx), param(&rows_arg), param(&classes)];
    let params = [&operands[..], &[param(&g_stride), param(&ignore), param(&word), param(&checked)]].concat();
    // SAFETY: `cross_entropy_backward(const T0* x, const i64* target, const C* lse, const C* g, T0* dx, u64 rows, u64 classes, u64 g_stride,
    // i64 ignore, ErrorWord* error, u32 kernel)`; every operand was checked for its type and number of elements, and the tokens live.
    unsafe { cuda.launch(f, shape.launch(rows, BLOCKS), stream, &params) }
}

/// The sources of this family, for checking that they compile.
pub(crate) fn sources() -> Vec<SourceText> {
    let shapes = [10, 2000, 50257].map(rows_of);
    let types = [DType::F64, DType::F32, DType::F16, DType::BF16];
    let variants = shapes.iter().flat_map(|shape| types.iter().map(|&t| shape.variant(&[t])));
    variants.map(|v| CROSS_ENTROPY.listed(v, "")).collect()
}
