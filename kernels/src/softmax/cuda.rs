//! CUDA launches.

use super::{Softmax, SoftmaxBackward};
use crate::cuda::{Cuda, Launch, Source, SourceText, Variant, param};
use crate::host::{expect_dense, undefined};
use crate::rows::{PACK, ROWS, Rows, width};
use crate::{DType, Result};
use kiln_alloc::{Stream, Write};

const NAME: &str = "softmax";
static SOFTMAX: Source = Source { name: NAME, texts: &[PACK, ROWS, include_str!("../../cuda/softmax.cu")], fmad: true };
const GROUPS: [usize; 3] = [32, 256, 1024];
/// Blocks of a grid, at most; kernels loop.
const BLOCKS: usize = i32::MAX as usize;

/// Elements a thread may hold: fewer of 8 bytes, and fewer where it holds two operands.
fn most(dtype: DType, operands: usize) -> usize {
    32 / operands / if dtype == DType::F64 { 2 } else { 1 }
}

pub(super) fn softmax(k: Softmax<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let (types, n) = ([k.x.dtype, k.out.dtype], k.n);
    if !types[0].is_float() || !(types[1] == types[0] || types[1] == DType::F32 && types[0].size() == 2) {
        return Err(undefined(NAME, types[0]));
    }
    expect_dense(k.x.layout, k.outer * n * k.inner, NAME)?;
    expect_dense(k.out.layout, k.outer * n * k.inner, NAME)?;
    if k.outer * n * k.inner == 0 {
        return Ok(());
    }
    let (x, out, log) = (k.x.address(), k.out.address(), k.log as u32);
    if k.inner > 1 {
        let (columns, n, inner) = ((k.outer * k.inner) as u64, n as u64, k.inner as u64);
        let f = cuda.function(&SOFTMAX, Rows::walked(1, 256).variant(&types), "softmax_columns")?;
        let params = [param(&x), param(&out), param(&columns), param(&n), param(&inner), param(&log)];
        // SAFETY: `softmax_columns(const T0* x, T1* out, u64 columns, u64 n, u64 inner, u32 log)`; both operands were checked to have
        // columns * n elements, and their tokens live.
        return unsafe { cuda.launch(f, Launch::blocks((columns as usize).div_ceil(32), 256), stream, &params) };
    }
    let (vec, rows) = (width(n, &[(x, types[0]), (out, types[1])]), k.outer as u64);
    if let Some(shape) = Rows::held(n, vec, &GROUPS, most(types[0], 1)) {
        let (f, n) = (cuda.function(&SOFTMAX, shape.variant(&types), "softmax_rows")?, n as u32);
        let params = [param(&x), param(&out), param(&rows), param(&n), param(&log)];
        // SAFETY: `softmax_rows(const T0* x, T1* out, u64 rows, u32 n, u32 log)`; checked to have rows * n elements; the tokens live.
        return unsafe { cuda.launch(f, shape.launch(k.outer, BLOCKS), stream, &params) };
    }
    let (shape, n) = (Rows::walked(vec, 1024), n as u64);
    let f = cuda.function(&SOFTMAX, shape.variant(&types), "softmax_long")?;
    let params = [param(&x), param(&out), param(&rows), param(&n), param(&log)];
    // SAFETY: `softmax_long(const T0* x, T1* out, u64 rows, u64 n, u32 log)`; checked to have rows * n elements; the tokens live.
    unsafe { cuda.launch(f, shape.launch(k.outer, BLOCKS), stream, &params) }
}

pub(super) fn softmax_backward(k: SoftmaxBackward<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let (types, n) = ([k.y.dtype, k.dx.dtype], k.n);
    if let Some(&dtype) = [k.y.dtype, k.dx.dtype].iter().find(|t| !t.is_float()) {
        return Err(undefined(NAME, dtype));
    }
    if k.g.dtype != k.y.dtype {
        return Err(undefined(NAME, k.g.dtype));
    }
    for layout in [k.y.layout, k.g.layout, k.dx.layout] {
        expect_dense(layout, k.outer * n * k.inner, NAME)?;
    }
    if k.outer * n * k.inner == 0 {
        return Ok(());
    }
    let (y, g, dx, log) = (k.y.address(), k.g.address(), k.dx.address(), k.log as u32);
    if k.inner > 1 {
        let (columns, n, inner) = ((k.outer * k.inner) as u64, n as u64, k.inner as u64);
        let f = cuda.function(&SOFTMAX, Rows::walked(1, 256).variant(&types), "softmax_backward_columns")?;
        let params = [param(&y), param(&g), param(&dx), param(&columns), param(&n), param(&inner), param(&log)];
        // SAFETY: `softmax_backward_columns(const T0* y, const T0* g, T1* dx, u64 columns, u64 n, u64 inner, u32 log)`; the operands
        // were checked to have columns * n elements, and their tokens live.
        return unsafe { cuda.launch(f, Launch::blocks((columns as usize).div_ceil(32), 256), stream, &params) };
    }
    let (vec, rows) = (width(n, &[(y, types[0]), (g, types[0]), (dx, types[1])]), k.outer as u64);
    if let Some(shape) = Rows::held(n, vec, &GROUPS, most(types[0], 2)) {
        let (f, n) = (cuda.function(&SOFTMAX, shape.variant(&types), "softmax_backward_rows")?, n as u32);
        let params = [param(&y), param(&g), param(&dx), param(&rows), param(&n), param(&log)];
        // SAFETY: `softmax_backward_rows(const T0* y, const T0* g, T1* dx, u64 rows, u32 n, u32 log)`; the operands were checked to
        // have rows * n elements, and their tokens live.
        return unsafe { cuda.launch(f, shape.launch(k.outer, BLOCKS), stream, &params) };
    }
    let (shape, n) = (Rows::walked(vec, 1024), n as u64);
    let f = cuda.function(&SOFTMAX, shape.variant(&types), "softmax_backward_long")?;
    let params = [param(&y), param(&g), param(&dx), param(&rows), param(&n), param(&log)];
    // SAFETY: `softmax_backward_long(const T0* y, const T0* g, T1* dx, u64 rows, u64 n, u32 log)`; the operands were checked to have
    // rows * n elements, and their tokens live.
    unsafe { cuda.launch(f, shape.launch(k.outer, BLOCKS), stream, &params) }
}

/// The sources of this family, for checking that they compile.
pub(crate) fn sources() -> Vec<SourceText> {
    use DType::*;
    let shapes = [Rows { vec: 1, packs: 3, group: 32 }, Rows { vec: 2, packs: 4, group: 256 }, Rows::walked(1, 1024)];
    let types = [[F64, F64], [F32, F32], [F16, F16], [BF16, BF16], [F16, F32], [BF16, F32], [F32, BF16], [F32, F16], [F32, F64]];
    let variants = shapes.iter().flat_map(|shape| types.iter().map(|types| shape.variant(types)));
    variants.map(|variant: Variant| SOFTMAX.listed(variant, "")).collect()
}
