//! CUDA launches: a block for each row, or a thread for each column.

use super::{ProductBackward, Running, Scan};
use crate::cuda::{Cuda, Launch, Source, SourceText, Variant, param};
use crate::host::{expect_dense, undefined};
use crate::{DType, Result};
use kiln_alloc::Stream;

const NAME: &str = "scan";
static SCAN: Source =
    Source { name: NAME, texts: &[include_str!("../../cuda/divide.cuh"), include_str!("../../cuda/scan.cu")], fmad: true };
/// The gradient of a product, after the numbers of [`Running`].
const BACKWARD: u32 = 2;

/// Addresses and sizes of a launch.
struct Walk {
    variant: Variant,
    x: u64,
    y: u64,
    g: u64,
    out: u64,
    sizes: [usize; 3],
    reverse: bool,
}

fn result_type(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::I64 }
}

pub(super) fn scan(k: Scan<'_>, cuda: &Cuda, stream: &Stream) -> Result<()> {
    let sizes @ [outer, n, inner] = [k.outer, k.n, k.inner];
    expect_dense(k.x.layout, outer * n * inner, NAME)?;
    expect_dense(k.out.layout, outer * n * inner, NAME)?;
    if k.out.dtype != result_type(k.x.dtype) {
        return Err(undefined(NAME, k.out.dtype));
    }
    let variant = Variant::new(&[k.x.dtype, k.out.dtype], if k.op == Running::Sum { 0 } else { 1 });
    let walk = Walk { variant, x: k.x.address(), y: 0, g: 0, out: k.out.address(), sizes, reverse: k.reverse };
    launch(&walk, cuda, stream)
}

pub(super) fn product_backward(k: ProductBackward<'_>, cuda: &Cuda, stream: &Stream) -> Result<()> {
    let sizes @ [outer, n, inner] = [k.outer, k.n, k.inner];
    for layout in [k.x.layout, k.y.layout, k.g.layout, k.dx.layout] {
        expect_dense(layout, outer * n * inner, NAME)?;
    }
    if let Some(&dtype) = [k.y.dtype, k.g.dtype, k.dx.dtype].iter().find(|&&t| t != k.x.dtype || !t.is_float()) {
        return Err(undefined(NAME, dtype));
    }
    let variant = Variant::new(&[k.x.dtype, k.dx.dtype], BACKWARD);
    let (x, y, g, out) = (k.x.address(), k.y.address(), k.g.address(), k.dx.address());
    launch(&Walk { variant, x, y, g, out, sizes, reverse: true }, cuda, stream)
}

fn launch(walk: &Walk, cuda: &Cuda, stream: &Stream) -> Result<()> {
    let [outer, n, inner] = walk.sizes;
    if outer * n * inner == 0 {
        return Ok(());
    }
    let (columns, n, inner, reverse) = ((outer * inner) as u64, n as u64, inner as u64, u32::from(walk.reverse));
    let operands = [param(&walk.x), param(&walk.y), param(&walk.g), param(&walk.out), param(&columns), param(&n)];
    if inner == 1 {
        let f = cuda.function(&SCAN, walk.variant, "scan_rows")?;
        let params = [&operands[..], &[param(&reverse)]].concat();
        // SAFETY: `scan_rows(const T0* x, const T0* y, const T0* g, T1* out, u64 rows, u64 n, u32 reverse)`; every operand that the variant
        // reads was checked to have rows * n elements, and the tokens live.
        return unsafe { cuda.launch(f, Launch::blocks(outer, 256), stream, &params) };
    }
    let f = cuda.function(&SCAN, walk.variant, "scan_columns")?;
    let params = [&operands[..], &[param(&inner), param(&reverse)]].concat();
    // SAFETY: `scan_columns(const T0* x, const T0* y, const T0* g, T1* out, u64 columns, u64 n, u64 inner, u32 reverse)`; likewise with
    // columns * n elements.
    unsafe { cuda.launch(f, Launch::threads(columns as usize, 256), stream, &params) }
}

/// The sources of this family, for checking that they compile.
pub(crate) fn sources() -> Vec<SourceText> {
    let all =
        DType::ALL.into_iter().flat_map(|t| [(t, 0), (t, 1), (t, BACKWARD)]).filter(|(t, op)| *op < BACKWARD || t.is_float());
    all.map(|(t, op)| SCAN.listed(Variant::new(&[t, result_type(t)], op), "")).collect()
}
