//! Elementwise kernels, copies, comparisons and random numbers as functions of operands, and what they are tested on.

#![allow(dead_code, reason = "each test program uses a part")]

use crate::support::{Data, Device, numbers};
use kiln_kernels::compare::{Compare, Comparison, Select};
use kiln_kernels::copy::{Arange, Copy, Eye, Fill};
use kiln_kernels::elementwise::{Map, MapInPlace, Row};
use kiln_kernels::random::{Dropout, Normal, RandInt, Uniform};
use kiln_kernels::{Arg, DType, Layout, Result, Scalar};

pub const COMPARISONS: [Comparison; 6] =
    [Comparison::Eq, Comparison::Ne, Comparison::Lt, Comparison::Le, Comparison::Gt, Comparison::Ge];

/// `out = row(inputs)`, contiguous, with the dims of the first input.
pub fn map(d: &Device, row: &'static Row, params: [f64; 2], inputs: &[&Data]) -> Result<Vec<f64>> {
    let out = d.fresh(inputs[0].dtype, inputs[0].layout.dims());
    let tokens = inputs.iter().map(|x| Ok(x.block.read(d.stream())?)).collect::<Result<Vec<_>>>()?;
    let args: Vec<Arg<'_>> = inputs.iter().zip(&tokens).map(|(x, token)| x.arg(token)).collect();
    d.run(Map { row, params, inputs: &args, out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(&out))
}

/// `x = row(x, others)`.
pub fn map_in_place(d: &Device, row: &'static Row, params: [f64; 2], x: &Data, others: &[&Data]) -> Result<Vec<f64>> {
    let tokens = others.iter().map(|x| Ok(x.block.read(d.stream())?)).collect::<Result<Vec<_>>>()?;
    let args: Vec<Arg<'_>> = others.iter().zip(&tokens).map(|(x, token)| x.arg(token)).collect();
    d.run(MapInPlace { row, params, x: x.out(&mut x.block.write(d.stream())?), others: &args })?;
    Ok(d.read(x))
}

/// Copies to a destination of any type and layout.
pub fn copy(d: &Device, x: &Data, out: &Data) -> Result<Vec<f64>> {
    d.run(Copy { x: x.arg(&x.block.read(d.stream())?), out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(out))
}

pub fn fill(d: &Device, value: Scalar, out: &Data) -> Result<Vec<f64>> {
    d.run(Fill { value, out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(out))
}

pub fn arange(d: &Device, start: Scalar, step: Scalar, dtype: DType, n: usize) -> Result<Vec<f64>> {
    let out = d.fresh(dtype, &[n]);
    d.run(Arange { start, step, out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(&out))
}

pub fn eye(d: &Device, dtype: DType, dims: &[usize]) -> Result<Vec<f64>> {
    let out = d.fresh(dtype, dims);
    d.run(Eye { out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(&out))
}

pub fn compare(d: &Device, op: Comparison, a: &Data, b: &Data) -> Result<Vec<f64>> {
    let out = d.fresh(DType::U8, a.layout.dims());
    let (a_token, b_token) = (a.block.read(d.stream())?, b.block.read(d.stream())?);
    d.run(Compare { op, a: a.arg(&a_token), b: b.arg(&b_token), out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(&out))
}

pub fn select(d: &Device, mask: &Data, a: &Data, b: &Data) -> Result<Vec<f64>> {
    let out = d.fresh(a.dtype, a.layout.dims());
    d.run(Select {
        mask: mask.arg(&mask.block.read(d.stream())?),
        a: a.arg(&a.block.read(d.stream())?),
        b: b.arg(&b.block.read(d.stream())?),
        out: out.out(&mut out.block.write(d.stream())?),
    })?;
    Ok(d.read(&out))
}

pub fn uniform(d: &Device, dtype: DType, n: usize, (seed, offset): (u64, u64), lo: f64, hi: f64) -> Result<Vec<f64>> {
    let out = d.fresh(dtype, &[n]);
    d.run(Uniform { seed, offset, lo, hi, out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(&out))
}

pub fn normal(d: &Device, dtype: DType, n: usize, (seed, offset): (u64, u64), mean: f64, std: f64) -> Result<Vec<f64>> {
    let out = d.fresh(dtype, &[n]);
    d.run(Normal { seed, offset, mean, std, out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(&out))
}

pub fn rand_int(d: &Device, n: usize, (seed, offset): (u64, u64), lo: i64, hi: i64) -> Result<Vec<f64>> {
    let out = d.fresh(DType::I64, &[n]);
    d.run(RandInt { seed, offset, lo, hi, out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(&out))
}

pub fn dropout(d: &Device, x: &Data, p: f64, (seed, offset): (u64, u64)) -> Result<Vec<f64>> {
    let out = d.fresh(x.dtype, x.layout.dims());
    let token = x.block.read(d.stream())?;
    d.run(Dropout { x: x.arg(&token), p, seed, offset, out: out.out(&mut out.block.write(d.stream())?) })?;
    Ok(d.read(&out))
}

/// Layouts of one shape: contiguous, aligned or not, transposed, broadcast, with gaps.
pub fn layouts() -> Vec<Layout> {
    let dims = [3, 20, 48];
    vec![
        Layout::contiguous(&dims),
        Layout::new(&dims, &[960, 48, 1], 1),
        Layout::new(&dims, &[1, 3, 60], 0),
        Layout::new(&dims, &[960, 1, 20], 0),
        Layout::new(&dims, &[0, 0, 1], 16),
        Layout::new(&dims, &[0, 48, 1], 0),
        Layout::new(&dims, &[20, 1, 0], 0),
        Layout::new(&dims, &[0, 0, 0], 5),
        Layout::new(&dims, &[1280, 64, 1], 32),
        Layout::new(&dims, &[4000, 99, 2], 3),
    ]
}

/// Shapes at the edges: nothing, one number, less than a pack, more than a block of threads, with dims of size 1.
pub fn shapes() -> Vec<Vec<usize>> {
    vec![vec![], vec![0], vec![3, 0, 2], vec![1], vec![7], vec![1, 5, 1], vec![70_003], vec![256, 2, 512]]
}

/// An operand of any layout, broadcast ones too, and its elements in row-major order.
pub fn operand(d: &Device, dtype: DType, layout: &Layout, seed: u64, domain: fn(f64) -> f64) -> (Data, Vec<f64>) {
    let all: Vec<f64> = numbers(dtype, layout.extent(), seed).into_iter().map(domain).collect();
    let whole = d.dense(dtype, &[all.len()], &all);
    let data = Data { block: whole.block, dtype, layout: layout.clone() };
    let values = d.read(&data);
    (data, values)
}

/// Where the inputs of a row may lie: logarithms, roots, quotients and powers want positive ones, inverses those of their functions.
pub fn domain(row: &Row) -> fn(f64) -> f64 {
    const POSITIVE: [&str; 13] = [
        "log",
        "sqrt",
        "rsqrt",
        "pow",
        "reciprocal",
        "div",
        "fmod",
        "remainder",
        "floor_divide",
        "xlogy",
        "addcdiv",
        "atan2",
        "hypot",
    ];
    let starts = |name: &&str| row.name.starts_with(*name);
    if ["tan", "asin", "acos", "atanh"].iter().any(|name| starts(name) && !row.name.starts_with("acosh") && row.name != "tanh") {
        |v| v * 0.4
    } else if row.name.starts_with("acosh") {
        |v| v.abs() + 1.25
    } else if ["logsigmoid", "logaddexp", "logical"].iter().any(starts) || !POSITIVE.iter().any(starts) {
        |v| v
    } else {
        |v| v.abs() + 0.25
    }
}

/// Parameters with which every row makes sense, for integers too.
pub fn params(row: &Row) -> [f64; 2] {
    match row.name {
        name if name.starts_with("clamp") || name.starts_with("hardtanh") => [-1.0, 1.0],
        name if name.contains("shrink") || name.starts_with("threshold") => [0.5, 1.0],
        name if name.starts_with("pow_scalar") => [3.0, 0.0],
        _ => [2.0, 3.0],
    }
}
