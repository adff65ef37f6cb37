//! CUDA launches.

use super::shape::{held, lines, shape};
use super::{LayerNorm, LayerNormBackward, NAME};
use crate::cuda::{Cuda, Launch, Source, SourceText, param};
use crate::host::{expect_dense, undefined};
use crate::rows::{PACK, ROWS, Rows, width};
use crate::{DType, KernelError, Result};
use kiln_alloc::{Stream, Write};

static FORWARD: Source = Source { name: NAME, texts: &[PACK, ROWS, include_str!("../../cuda/norm.cu")], fmad: true };
static BACKWARD: Source = Source {
    name: "layer_norm_backward",
    texts: &[PACK, ROWS, include_str!("../../cuda/norm.cu"), include_str!("../../cuda/norm_backward.cu")],
    fmad: true,
};
/// Blocks of a grid, at most; kernels loop.
const BLOCKS: usize = i32::MAX as usize;

/// Fails unless `types` are the input's type, its own or f32 for a 16-bit input, and a float type.
fn check_types(types: [DType; 3]) -> Result<()> {
    let [x, other, weight] = types;
    let bad = |dtype| Err(undefined(NAME, dtype));
    match () {
        _ if !x.is_float() => bad(x),
        _ if other != x && !(other == DType::F32 && x.size() == 2) => bad(other),
        _ if !weight.is_float() => bad(weight),
        _ => Ok(()),
    }
}

/// Fails unless an operand has `n` contiguous elements of a type.
macro_rules! expect {
    ($operand:expr, $n:expr, $dtype:expr) => {{
        expect_dense($operand.layout, $n, NAME)?;
        if $operand.dtype != $dtype {
            return Err(undefined(NAME, $operand.dtype));
        }
        $operand.address()
    }};
}

/// The address of an operand that may be missing, checked; 0 where it is.
macro_rules! optional {
    ($operand:expr, $n:expr, $dtype:expr) => {
        match &$operand {
            Some(operand) => expect!(operand, $n, $dtype),
            None => 0,
        }
    };
}

pub(super) fn layer_norm(k: LayerNorm<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let (rows, n) = shape(&k.x)?;
    let types = [k.x.dtype, k.out.dtype, k.weight.or(k.bias).map_or(k.x.dtype, |w| w.dtype)];
    check_types(types)?;
    let (x, out) = (expect!(k.x, rows * n, types[0]), expect!(k.out, rows * n, types[1]));
    let (weight, bias) = (optional!(k.weight, n, types[2]), optional!(k.bias, n, types[2]));
    let (mean, rstd) = (expect!(k.mean, rows, types[0].accumulator()), expect!(k.rstd, rows, types[0].accumulator()));
    if rows == 0 {
        return Ok(());
    }
    let vec = width(n, &[(x, types[0]), (out, types[1]), (weight, types[2]), (bias, types[2])]);
    let (eps, rows_arg) = (k.eps, rows as u64);
    let most = if types[0] == DType::F64 { 16 } else { 32 };
    let params =
        |n| [param(&x), param(&weight), param(&bias), param(&out), param(&mean), param(&rstd), param(&rows_arg), n, param(&eps)];
    match Rows::held(n, vec, &[32, 256, 1024], most) {
        Some(shape) => {
            let (f, n) = (cuda.function(&FORWARD, shape.variant(&types), "layer_norm_rows")?, n as u32);
            // SAFETY: `layer_norm_rows(const T0* x, const T2* weight, const T2* bias, T1* out, C* mean, C* rstd, u64 rows, u32 n,
            // f64 eps)`; every operand was checked for its type and number of elements, and the tokens live.
            unsafe { cuda.launch(f, shape.launch(rows, BLOCKS), stream, &params(param(&n))) }
        }
        None => {
            let (shape, n) = (Rows::walked(vec, 1024), n as u64);
            let f = cuda.function(&FORWARD, shape.variant(&types), "layer_norm_long")?;
            // SAFETY: `layer_norm_long` has the parameters of `layer_norm_rows` with a u64 n; checked as above.
            unsafe { cuda.launch(f, shape.launch(rows, BLOCKS), stream, &params(param(&n))) }
        }
    }
}

pub(super) fn layer_norm_backward(
    k: LayerNormBackward<'_>,
    cuda: &Cuda,
    stream: &Stream,
    workspace: Option<&mut Write<'_>>,
) -> Result<()> {
    let (rows, n) = shape(&k.x)?;
    let results = k.dweight.as_ref().or(k.dbias.as_ref()).map(|w| w.dtype);
    let types = [k.x.dtype, k.g.dtype, k.weight.map(|w| w.dtype).or(results).unwrap_or(k.x.dtype)];
    check_types(types)?;
    let sums = types[0].accumulator();
    let (x, g) = (expect!(k.x, rows * n, types[0]), expect!(k.g, rows * n, types[1]));
    let (mean, rstd) = (expect!(k.mean, rows, sums), expect!(k.rstd, rows, sums));
    let weight = optional!(k.weight, n, types[2]);
    let dx = optional!(k.dx, rows * n, types[0]);
    let (dweight, dbias) = (optional!(k.dweight, n, types[2]), optional!(k.dbias, n, types[2]));
    if n == 0 {
        return Ok(());
    }
    let lines = lines(rows, n);
    let bytes = super::shape::workspace_bytes(&k);
    let scratch = match workspace {
        Some(workspace) if workspace.bytes() >= bytes => workspace.address(),
        _ if bytes == 0 => 0,
        _ => return Err(KernelError::Library(format!("{NAME}: the workspace has fewer than {bytes} bytes"))),
    };
    let dw = if dweight == 0 { 0 } else { scratch };
    let db = if dbias == 0 { 0 } else { scratch + if dw == 0 { 0 } else { (lines * n * sums.size()) as u64 } };
    let vec = width(n, &[(x, types[0]), (g, types[1]), (dx, types[0]), (weight, types[2])]).min(8);
    let (rows_arg, wide_n) = (rows as u64, n as u64);
    match held(n, vec) {
        _ if rows == 0 => {}
        Some(shape) => {
            let (f, n) = (cuda.function(&BACKWARD, shape.variant(&types), "layer_norm_backward_rows")?, n as u32);
            let inputs = [param(&x), param(&g), param(&weight), param(&mean), param(&rstd)];
            let params = [&inputs[..], &[param(&dx), param(&dw), param(&db), param(&rows_arg), param(&n)]].concat();
            // SAFETY: `layer_norm_backward_rows(const T0* x, const T1* g, const T2* weight, const C* mean, const C* rstd, T0* dx, C* dw,
            // C* db, u64 rows, u32 n)`; operands were checked for type and number of elements, the workspace for a line a block, and
            // the tokens live.
            unsafe { cuda.launch(f, shape.launch(rows, lines), stream, &params)? };
        }
        None => {
            let shape = Rows::walked(vec, 1024);
            if dx != 0 {
                let f = cuda.function(&BACKWARD, shape.variant(&types), "layer_norm_backward_long")?;
                let inputs = [param(&x), param(&g), param(&weight), param(&mean), param(&rstd)];
                let params = [&inputs[..], &[param(&dx), param(&rows_arg), param(&wide_n)]].concat();
                // SAFETY: `layer_norm_backward_long(const T0* x, const T1* g, const T2* weight, const C* mean, const C* rstd, T0* dx,
                // u64 rows, u64 n)`; checked as above.
                unsafe { cuda.launch(f, shape.launch(rows, BLOCKS), stream, &params)? };
            }
            if bytes > 0 {
                let f = cuda.function(&BACKWARD, shape.variant(&types), "layer_norm_backward_columns")?;
                let launch = Launch { grid: [n.div_ceil(256) as u32, lines as u32, 1], block: 256, shared: 0 };
                let params =
                    [param(&x), param(&g), param(&mean), param(&rstd), param(&dw), param(&db), param(&rows_arg), param(&wide_n)];
                // SAFETY: `layer_norm_backward_columns(const T0* x, const T1* g, const C* mean, const C* rstd, C* dw, C* db, u64 rows,
                // u64 n)`; checked as above, the workspace for gridDim.y lines.
                unsafe { cuda.launch(f, launch, stream, &params)? };
            }
        }
    }
    if dweight == 0 && dbias == 0 {
        return Ok(());
    }
    let f = cuda.function(&BACKWARD, Rows::walked(1, 1024).variant(&types), "layer_norm_sums")?;
    let launch = Launch { grid: [n.div_ceil(32) as u32, 2, 1], block: 512, shared: 0 };
    let lines = if rows == 0 { 0u32 } else { lines as u32 };
    let params = [param(&dw), param(&db), param(&dweight), param(&dbias), param(&lines), param(&wide_n)];
    // SAFETY: `layer_norm_sums(const C* dw, const C* db, T2* dweight, T2* dbias, u32 lines, u64 n)`; the workspace has `lines` lines of n for
    // each gradient that is wanted, and these were checked to have n elements.
    unsafe { cuda.launch(f, launch, stream, &params) }
}

/// The sources of this family, for checking that they compile.
pub(crate) fn sources() -> Vec<SourceText> {
    use DType::*;
    let types = [
        [F64, F64, F64],
        [F32, F32, F32],
        [F16, F16, F32],
        [BF16, BF16, BF16],
        [F16, F32, F32],
        [BF16, F32, F64],
        [F32, F32, BF16],
    ];
    let shapes =
        [Rows { vec: 1, packs: 3, group: 32 }, Rows { vec: 4, packs: 2, group: 256 }, Rows { vec: 8, packs: 1, group: 1024 }];
    let variants = shapes.iter().flat_map(|shape| types.iter().map(|types| shape.variant(types)));
    variants.flat_map(|v| [FORWARD.listed(v, ""), BACKWARD.listed(v, "")]).collect()
}
