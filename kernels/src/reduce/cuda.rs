//! CUDA launches. A reduction with few results and many elements runs in two phases: parts of each fold to the workspace, then those.

use super::plan::{Plan, Split, accumulator};
use super::{ArgReduce, Made, Reduce, ReduceMade, Reduction};
use crate::cuda::{Cuda, Launch, Source, Value, Variant, param};
use crate::host::{expect_dense, undefined};
use crate::rows::{PACK, ROWS, width};
use crate::{Arg, DType, KernelError, MAX_RANK, OutArg, Result};
use kiln_alloc::{Stream, Write};

const NAME: &str = "reduce";
const DIVIDE: &str = include_str!("../../cuda/divide.cuh");
const FOLD: &str = include_str!("../../cuda/fold.cuh");
pub(super) static ROW: Source =
    Source { name: "reduce_rows", texts: &[PACK, ROWS, DIVIDE, FOLD, include_str!("../../cuda/reduce_rows.cu")], fmad: true };
pub(super) static ANY: Source =
    Source { name: NAME, texts: &[PACK, DIVIDE, FOLD, include_str!("../../cuda/reduce.cu")], fmad: true };

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

pub(super) fn op_number(op: Reduction) -> u32 {
    match op {
        Reduction::Sum | Reduction::Mean => 0,
        Reduction::Max => 1,
        Reduction::Min => 2,
        Reduction::Product => 3,
    }
}

pub(super) fn made_number(op: Made) -> u32 {
    match op {
        Made::AbsSum => 4,
        Made::SquareSum => 5,
        Made::ExpSum => 6,
        Made::AbsMax => 7,
        Made::AbsMin => 8,
        Made::PowSum(_) => 9,
    }
}

/// A reduction as the kernels of a device know it.
struct Job {
    op: u32,
    /// What joins the parts of a split fold.
    join: u32,
    count: f64,
    accumulator: DType,
    shift: u64,
    power: f64,
}

/// Where a phase reads and writes.
struct Phase {
    op: u32,
    /// Number of elements, for the division at the end of a mean; -1 for none.
    count: f64,
    x: u64,
    out: u64,
    types: [DType; 2],
    /// Address of one f64 an output, or 0.
    shift: u64,
    power: f64,
}

pub(super) fn reduce(k: Reduce<'_>, cuda: &Cuda, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
    let plan = Plan::new(k.x.layout, k.dims);
    let dtype = k.x.dtype;
    if k.op == Reduction::Mean && !dtype.is_float() {
        return Err(undefined(NAME, dtype));
    }
    let (op, accumulator) = (op_number(k.op), accumulator(k.op, dtype, k.out.dtype));
    let count = if k.op == Reduction::Mean { plan.count as f64 } else { -1.0 };
    let job = Job { op, join: op, count, accumulator, shift: 0, power: 0.0 };
    phases(&job, &plan, &k.x, &k.out, cuda, stream, workspace)
}

pub(super) fn reduce_made(k: ReduceMade<'_>, cuda: &Cuda, stream: &Stream, workspace: Option<&mut Write<'_>>) -> Result<()> {
    let plan = Plan::new(k.x.layout, k.dims);
    if !k.x.dtype.is_float() {
        return Err(undefined(NAME, k.x.dtype));
    }
    if let Some(shift) = &k.shift {
        expect_dense(shift.layout, plan.outputs, NAME)?;
        if shift.dtype != DType::F64 {
            return Err(undefined(NAME, shift.dtype));
        }
    }
    let op = made_number(k.op);
    let join = if matches!(k.op, Made::AbsMax | Made::AbsMin) { op } else { 0 };
    let power = if let Made::PowSum(p) = k.op { p } else { 0.0 };
    let shift = k.shift.as_ref().map_or(0, Arg::address);
    let job = Job { op, join, count: -1.0, accumulator: k.op.accumulator(k.x.dtype), shift, power };
    phases(&job, &plan, &k.x, &k.out, cuda, stream, workspace)
}

/// Runs a reduction in one phase or two.
fn phases(
    job: &Job,
    plan: &Plan,
    x: &Arg<'_>,
    out: &OutArg<'_>,
    cuda: &Cuda,
    stream: &Stream,
    workspace: Option<&mut Write<'_>>,
) -> Result<()> {
    expect_dense(out.layout, plan.outputs, NAME)?;
    let sums = job.accumulator;
    if !(out.dtype == sums || out.dtype == x.dtype && x.dtype.is_float()) {
        return Err(undefined(NAME, out.dtype));
    }
    if plan.outputs == 0 {
        return Ok(());
    }
    let split = plan.split();
    let &Job { op, count, shift, power, .. } = job;
    if split.parts == 1 {
        let phase = Phase { op, count, x: x.address(), out: out.address(), types: [x.dtype, out.dtype], shift, power };
        return run(&phase, plan, split, cuda, stream);
    }
    let bytes = split.parts * plan.outputs * sums.size();
    let scratch = match workspace {
        Some(workspace) if workspace.bytes() >= bytes => workspace.address(),
        _ => return Err(KernelError::Library(format!("{NAME}: the workspace has fewer than {bytes} bytes"))),
    };
    let parts = Phase { op, count: -1.0, x: x.address(), out: scratch, types: [x.dtype, sums], shift, power };
    run(&parts, plan, split, cuda, stream)?;
    let rest = plan.second(split);
    let whole = Split { parts: 1, part: rest.count };
    let join = Phase { op: job.join, count, x: scratch, out: out.address(), types: [sums, out.dtype], shift: 0, power };
    run(&join, &rest, whole, cuda, stream)
}

/// Enqueues one phase.
fn run(phase: &Phase, plan: &Plan, split: Split, cuda: &Cuda, stream: &Stream) -> Result<()> {
    let &Phase { op, count, x, out, types, shift, power } = phase;
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
        let operands =
            [param(&x), param(&out), param(&kept), param(&outputs), param(&n), param(&parts), param(&part), param(&count)];
        let params = [&operands[..], &[param(&shift), param(&power)]].concat();
        // SAFETY: `reduce_rows(const T0* x, T1* out, Path kept, u64 rows, u64 n, u64 parts, u64 part, f64 count, const f64* shift, f64 power)`;
        // the operand's layout fits its block, the result was checked to have rows * parts elements, the shift to be 0 or of rows elements,
        // and the tokens live.
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
    let params = [&operands[..], &[param(&log_x), param(&fast), param(&shift), param(&power)]].concat();
    // SAFETY: `reduce(const T0* x, T1* out, Path kept, Path reduced, u64 outputs, u64 n, u64 part, f64 count, u32 log_x, u32 fast,
    // const f64* shift, f64 power)`; the shift is 0 or was checked to have outputs elements, the operand's layout fits its block, the result was checked to have outputs * parts elements, and the tokens live.
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
