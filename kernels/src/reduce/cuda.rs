//! CUDA launches. A reduction with few results and many elements runs in two phases: parts of each fold to the workspace, then those.

use super::plan::{Plan, Split, accumulator};
use super::{ArgReduce, Reduce, Reduction};
use crate::cuda::{Cuda, Launch, Source, SourceText, Value, Variant, param};
use crate::host::{expect_dense, undefined};
use crate::rows::{PACK, ROWS, width};
use crate::{DType, KernelError, MAX_RANK, Result};
use kiln_alloc::{Stream, Write};

const NAME: &str = "reduce";
const DIVIDE: &str = include_str!("../../cuda/divide.cuh");
const FOLD: &str = include_str!("../../cuda/fold.cuh");
static ROW: Source =
    Source { name: "reduce_rows", texts: &[PACK, ROWS, DIVIDE, FOLD, include_str!("../../cuda/reduce_rows.cu")], fmad: true };
static ANY: Source = Source { name: NAME, texts: &[PACK, DIVIDE, FOLD, include_str!("../../cuda/reduce.cu")], fmad: true };

/// Laid out as `Path` in `cuda/fold.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Path {
    rank: u64,
    sizes: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
}
// SAFETY: numbers only, laid out as its namesake in `fold.cuh`.
unsafe impl Value for Path {}

impl Path {
    fn new(dims: &[(usize, usize)]) -> Path {
        let mut path = Path { rank: dims.len().max(1) as u64, sizes: [1; MAX_RANK], strides: [0; MAX_RANK] };
        for (d, &(size, stride)) in dims.iter().enumerate() {
            (path.sizes[d], path.strides[d]) = (size as u64, stride as u64);
        }
        path
    }
}

fn op_number(op: Reduction) -> u32 {
    match op {
        Reduction::Sum | Reduction::Mean => 0,
        Reduction::Max => 1,
        Reduction::Min => 2,
    }
}

/// Where a phase reads and writes.
struct Phase {
    op: u32,
    /// Number of elements, for the division at the end of a mean; -1 for none.
    count: f64,
    x: u64,
    out: u64,
    types: [DType; 2],
}

pub(super) fn reduce(k: Reduce<'_>, cuda: &Cuda, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
    let plan = Plan::new(k.x.layout, k.dims);
    expect_dense(k.out.layout, plan.outputs, NAME)?;
    let (dtype, sums) = (k.x.dtype, accumulator(k.op, k.x.dtype));
    if k.op == Reduction::Mean && !dtype.is_float() {
        return Err(undefined(NAME, dtype));
    }
    if !(k.out.dtype == sums || k.out.dtype == dtype && dtype.is_float()) {
        return Err(undefined(NAME, k.out.dtype));
    }
    if plan.outputs == 0 {
        return Ok(());
    }
    let count = if k.op == Reduction::Mean { plan.count as f64 } else { -1.0 };
    let op = op_number(k.op);
    let split = plan.split();
    if split.parts == 1 {
        let phase = Phase { op, count, x: k.x.address(), out: k.out.address(), types: [dtype, k.out.dtype] };
        return run(&phase, &plan, split, cuda, stream);
    }
    let bytes = split.parts * plan.outputs * sums.size();
    let scratch = match workspace {
        Some(workspace) if workspace.bytes() >= bytes => workspace.address(),
        _ => return Err(KernelError::Library(format!("{NAME}: the workspace has fewer than {bytes} bytes"))),
    };
    run(&Phase { op, count: -1.0, x: k.x.address(), out: scratch, types: [dtype, sums] }, &plan, split, cuda, stream)?;
    let rest = plan.second(split);
    let whole = Split { parts: 1, part: rest.count };
    run(&Phase { op, count, x: scratch, out: k.out.address(), types: [sums, k.out.dtype] }, &rest, whole, cuda, stream)
}

/// Enqueues one phase.
fn run(phase: &Phase, plan: &Plan, split: Split, cuda: &Cuda, stream: &Stream) -> Result<()> {
    let &Phase { op, count, x, out, types } = phase;
    let (n, outputs, parts, part) = (plan.count as u64, plan.outputs as u64, split.parts as u64, split.part as u64);
    let kept = Path::new(&plan.kept);
    if plan.by_row() {
        let even = plan.kept.iter().map(|&(_, stride)| stride).chain([plan.count, split.part]);
        let vec = widest(x, types[0], even);
        let group = match split.part {
            0..=2048 => 32,
            2049..=65536 => 256,
            _ => 1024,
        };
        let f = cuda.function(&ROW, Variant::new(&types, vec | op << 8 | group << 16), "reduce_rows")?;
        let per_block = if group == 32 { 8 } else { 1 };
        let launch = Launch::blocks((plan.outputs * split.parts).div_ceil(per_block), group * per_block as u32);
        let params =
            [param(&x), param(&out), param(&kept), param(&outputs), param(&n), param(&parts), param(&part), param(&count)];
        // SAFETY: `reduce_rows(const T0* x, T1* out, Path kept, u64 rows, u64 n, u64 parts, u64 part, f64 count)`; the operand's layout fits
        // its block, the result was checked to have rows * parts elements, and the tokens live.
        return unsafe { cuda.launch(f, launch, stream, &params) };
    }
    let reduced = Path::new(&plan.reduced);
    let vec = match plan.kept.split_last() {
        Some((&(columns, 1), outer)) if plan.by_column() => {
            widest(x, types[0], outer.iter().chain(&plan.reduced).map(|&(_, stride)| stride).chain([columns]))
        }
        _ => 1,
    };
    let (across, fast) = plan.block(vec as usize);
    let f = cuda.function(&ANY, Variant::new(&types, vec | op << 8), "reduce")?;
    let (log_x, fast) = (across.trailing_zeros(), fast as u32);
    let blocks = plan.outputs.div_ceil(across * vec as usize).min(i32::MAX as usize) as u32;
    let launch = Launch { grid: [blocks, split.parts as u32, 1], block: 256, shared: 0 };
    let operands =
        [param(&x), param(&out), param(&kept), param(&reduced), param(&outputs), param(&n), param(&part), param(&count)];
    let params = [&operands[..], &[param(&log_x), param(&fast)]].concat();
    // SAFETY: `reduce(const T0* x, T1* out, Path kept, Path reduced, u64 outputs, u64 n, u64 part, f64 count, u32 log_x,
    // u32 fast)`; the operand's layout fits its block, the result was checked to have outputs * parts elements, and the tokens live.
    unsafe { cuda.launch(f, launch, stream, &params) }
}

/// The widest pack that starts aligned after any of the steps.
fn widest(x: u64, dtype: DType, steps: impl Iterator<Item = usize>) -> u32 {
    steps.fold(16, |vec, step| vec.min(width(step, &[(x, dtype)]))) as u32
}

pub(super) fn arg_reduce(k: ArgReduce<'_>, cuda: &Cuda, stream: &Stream, _: Option<&mut Write<'_>>) -> Result<()> {
    let plan = Plan::new(k.x.layout, 1 << k.dim);
    expect_dense(k.out.layout, plan.outputs, "arg_reduce")?;
    if k.out.dtype != DType::I64 {
        return Err(undefined("arg_reduce", k.out.dtype));
    }
    if plan.outputs * plan.count == 0 {
        return Ok(());
    }
    let (across, fast) = plan.block(1);
    let op = if k.min { 2 } else { 1 };
    let f = cuda.function(&ANY, Variant::new(&[k.x.dtype, DType::I64], 1 | op << 8), "arg_reduce")?;
    let (log_x, fast) = (across.trailing_zeros(), fast as u32);
    let (x, out, kept, stride) = (k.x.address(), k.out.address(), Path::new(&plan.kept), plan.reduced[0].1 as u64);
    let (outputs, n) = (plan.outputs as u64, plan.count as u64);
    let operands = [param(&x), param(&out), param(&kept), param(&stride), param(&outputs), param(&n)];
    let params = [&operands[..], &[param(&log_x), param(&fast)]].concat();
    // SAFETY: `arg_reduce(const T0* x, i64* out, Path kept, u64 stride, u64 outputs, u64 n, u32 log_x, u32 fast)`; the operand's
    // layout fits its block, the result was checked to have one element an output, and the tokens live.
    unsafe { cuda.launch(f, Launch::blocks(plan.outputs.div_ceil(across), 256), stream, &params) }
}

/// The sources of this family, for checking that they compile.
pub(crate) fn sources() -> Vec<SourceText> {
    let mut sources = Vec::new();
    for dtype in DType::ALL {
        for op in [Reduction::Sum, Reduction::Max, Reduction::Min] {
            let (sums, number) = (accumulator(op, dtype), op_number(op));
            let vec = 16 / dtype.size() as u32;
            let rows = |vec: u32, group: u32| ROW.listed(Variant::new(&[dtype, sums], vec | number << 8 | group << 16), "");
            let any = |to: DType, vec: u32| ANY.listed(Variant::new(&[dtype, to], vec | number << 8), "");
            sources.extend([rows(vec, 32), rows(1, 1024), any(sums, vec), any(sums, 1)]);
            sources.extend((number > 0 && sums != DType::I64).then(|| any(DType::I64, 1)));
        }
    }
    for dtype in [DType::F16, DType::BF16] {
        let round = |group: u32| Variant::new(&[DType::F32, dtype], 1 | group << 16);
        sources.extend([ROW.listed(round(256), ""), ANY.listed(round(0), "")]);
    }
    sources
}
