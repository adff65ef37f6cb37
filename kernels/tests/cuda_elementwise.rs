//! Elementwise rows, copies, comparisons and random numbers on a CUDA device against the CPU, where there is a device; else each is
//! reported as ignored.

mod pointwise;
mod support;

use kiln_kernels::elementwise::{Row, row, rows, table};
use kiln_kernels::{DType, Layout, Scalar};
use libtest_mimic::{Arguments, Failed, Trial};
use pointwise::*;
use std::sync::OnceLock;
use support::{Data, Device, FLOATS, close, numbers, tolerance};

fn devices() -> [&'static Device; 2] {
    static DEVICES: OnceLock<[Device; 2]> = OnceLock::new();
    let [cpu, cuda] = DEVICES.get_or_init(|| [Device::cpu(), Device::cuda()]);
    [cpu, cuda]
}

/// Compares what `f` gives on the CPU and on CUDA: bit for bit where `tolerance` is 0, NaN equal to NaN.
#[track_caller]
fn same(tolerance: f64, what: &str, f: impl Fn(&Device) -> kiln_kernels::Result<Vec<f64>>) {
    let [cpu, cuda] = devices().map(|d| f(d).unwrap_or_else(|e| panic!("{what}: {e}")));
    if tolerance > 0.0 {
        return close(&cuda, &cpu, tolerance, what);
    }
    let wrong = cuda.iter().zip(&cpu).position(|(a, b)| a != b && !(a.is_nan() && b.is_nan()));
    assert!(
        cuda.len() == cpu.len() && wrong.is_none(),
        "{what}: [{wrong:?}] is {:?}, not {:?}",
        wrong.map(|i| cuda[i]),
        wrong.map(|i| cpu[i])
    );
}

/// How far apart the same row may be on the two: not at all where its arithmetic is exact on both.
fn row_tolerance(row: &Row, dtype: DType) -> f64 {
    const CALLS: [&str; 22] = [
        "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sigmoid", "gelu", "silu", "erf", "pow", "rpow", "rsqrt",
        "softplus", "mish", "elu", "celu", "selu", "hypot", "xlogy",
    ];
    let exact = !CALLS.iter().any(|call| row.name.starts_with(call)) || !dtype.is_float();
    if exact { 0.0 } else { tolerance(dtype, 1) }
}

fn rows_of_a_type(dtype: DType) -> Result<(), Failed> {
    for row in rows().iter().filter(|row| row.takes(dtype)) {
        for dims in [vec![70_003], vec![5]] {
            same(row_tolerance(row, dtype), &format!("{} {dtype} {dims:?}", row.name), |d| {
                let layout = Layout::contiguous(&dims);
                let inputs: Vec<Data> = (0..row.inputs as u64).map(|i| operand(d, dtype, &layout, i, domain(row)).0).collect();
                map(d, row, params(row), &inputs.iter().collect::<Vec<_>>())
            });
        }
    }
    Ok(())
}

fn layouts_of_rows() -> Result<(), Failed> {
    for name in ["identity", "add", "mul_add", "addcmul_backward_y"] {
        for dtype in DType::ALL.into_iter().filter(|&t| row(name).takes(t)) {
            for shift in 0..layouts().len() {
                same(0.0, &format!("{name} {dtype} from layout {shift}"), |d| {
                    let layout = |i: usize| layouts()[(shift + i * 3) % layouts().len()].clone();
                    let inputs: Vec<Data> =
                        (0..row(name).inputs).map(|i| operand(d, dtype, &layout(i), i as u64, |v| v).0).collect();
                    map(d, row(name), [2.0, 3.0], &inputs.iter().collect::<Vec<_>>())
                });
            }
        }
    }
    Ok(())
}

fn rows_in_place() -> Result<(), Failed> {
    for dtype in DType::ALL {
        for layout in distinct() {
            same(0.0, &format!("{dtype} {layout:?}"), |d| {
                let (x, y) = (operand(d, dtype, &layout, 1, |v| v).0, operand(d, dtype, &layouts()[4], 2, |v| v).0);
                map_in_place(d, &table::SUB, [0.0; 2], &x, &[&y])
            });
        }
    }
    Ok(())
}

/// Layouts whose elements are distinct.
fn distinct() -> Vec<Layout> {
    layouts().into_iter().filter(|l| !l.strides().contains(&0)).collect()
}

fn edges() -> Result<(), Failed> {
    for dims in shapes() {
        let n = dims.iter().product();
        same(0.0, &format!("{dims:?}"), |d| {
            let x = d.dense(DType::F32, &dims, &numbers(DType::F32, n, 1));
            let mut all = map(d, &table::ADD, [0.0; 2], &[&x, &x])?;
            all.extend(map_in_place(d, &table::NEG, [0.0; 2], &x, &[])?);
            all.extend(copy(d, &x, &d.fresh(DType::F16, &dims))?);
            all.extend(fill(d, Scalar::Float(1.5), &d.fresh(DType::BF16, &dims))?);
            Ok(all)
        });
    }
    Ok(())
}

/// Numbers at the edges of types: ties, overflow, subnormals, NaN.
fn hard(from: DType) -> Vec<f64> {
    let mut values = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        255.0,
        256.0,
        257.0,
        259.0,
        300.0,
        2049.0,
        65504.0,
        65519.996,
        65520.0,
        65536.0,
        1.00390625,
        1.01171875,
        1.00390626,
        314.0 / 100.0,
        0.2691408770292272,
        3.4e38,
        4294967295.0,
        4294967296.0,
        1099511627776.0,
        1103806595073.0,
        9e18,
        1e19,
        -3.99,
        -1e30,
        1e-5,
        6e-8,
        3e-8,
        1e-40,
        1e-46,
        1e300,
    ];
    if from.is_float() {
        values.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    }
    support::rounded(from, &values)
}

fn conversions() -> Result<(), Failed> {
    for (from, to) in DType::ALL.iter().flat_map(|&a| DType::ALL.map(|b| (a, b))) {
        same(0.0, &format!("{from} to {to}"), |d| {
            let x = hard(from);
            copy(d, &d.dense(from, &[x.len()], &x), &d.fresh(to, &[x.len()]))
        });
        for (i, layout) in layouts().iter().enumerate() {
            let out = &distinct()[i % distinct().len()];
            same(0.0, &format!("{from} {layout:?} to {to} {out:?}"), |d| {
                let x = operand(d, from, layout, 1, |v| v * 3.0).0;
                copy(d, &x, &d.strided(to, out.clone(), &vec![9.0; out.elements()]))
            });
        }
    }
    Ok(())
}

fn fills_and_ranges() -> Result<(), Failed> {
    for dtype in DType::ALL {
        for layout in distinct() {
            same(0.0, &format!("fill {dtype} {layout:?}"), |d| {
                fill(d, Scalar::Float(5.7), &d.strided(dtype, layout.clone(), &vec![9.0; layout.elements()]))
            });
        }
        same(0.0, &format!("arange {dtype}"), |d| arange(d, 0.6.into(), 0.1.into(), dtype, 70_003));
        same(0.0, &format!("arange of integers {dtype}"), |d| arange(d, 250_i64.into(), (-3_i64).into(), dtype, 1001));
        same(0.0, &format!("eye {dtype}"), |d| eye(d, dtype, &[70, 33]));
    }
    Ok(())
}

fn comparisons() -> Result<(), Failed> {
    for dtype in DType::ALL {
        for shift in 0..layouts().len() {
            let layout = |i: usize| layouts()[(shift + 3 * i) % layouts().len()].clone();
            let few = |v: f64| (v.abs() * 2.0).floor().min(3.0);
            for op in COMPARISONS {
                same(0.0, &format!("{op:?} {dtype} from layout {shift}"), |d| {
                    compare(d, op, &operand(d, dtype, &layout(0), 1, few).0, &operand(d, dtype, &layout(1), 2, few).0)
                });
            }
            same(0.0, &format!("select {dtype} from layout {shift}"), |d| {
                let mask = operand(d, DType::U8, &layout(0), 1, |v| v % 3.0).0;
                select(d, &mask, &operand(d, dtype, &layout(1), 2, |v| v).0, &operand(d, dtype, &layout(2), 3, |v| v).0)
            });
        }
    }
    Ok(())
}

fn random_bits() -> Result<(), Failed> {
    let key = (0x1234_5678_9ABC_DEF0, u32::MAX as u64 - 3);
    for n in [0, 1, 6, 70_003] {
        for dtype in FLOATS {
            same(0.0, &format!("uniform {dtype} {n}"), |d| uniform(d, dtype, n, key, -1.0, 2.0));
            for p in [0.0, 0.3, 1.0] {
                same(0.0, &format!("dropout {dtype} {n} {p}"), |d| {
                    dropout(d, &d.dense(dtype, &[n], &numbers(dtype, n, 1)), p, key)
                });
            }
        }
        same(0.0, &format!("rand_int {n}"), |d| rand_int(d, n, key, -5, 7));
        same(0.0, &format!("rand_int of all words {n}"), |d| rand_int(d, n, key, i64::MAX - (1 << 32), i64::MAX));
    }
    for dtype in FLOATS {
        same(tolerance(dtype, 1), &format!("normal {dtype}"), |d| normal(d, dtype, 70_003, key, 1.0, 2.0));
    }
    Ok(())
}

fn transposes() -> Result<(), Failed> {
    for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
        for (dims, strides) in [([1, 33, 100], [0, 1, 33]), ([3, 100, 64], [6400, 1, 100]), ([64, 7, 65], [1, 64 * 65, 64])] {
            let layout = Layout::new(&dims, &strides, 2);
            same(0.0, &format!("{dtype} {layout:?}"), |d| {
                copy(d, &operand(d, dtype, &layout, 1, |v| v).0, &d.fresh(dtype, &dims))
            });
        }
    }
    Ok(())
}

type Check = fn() -> Result<(), Failed>;

fn main() {
    let missing = kiln_alloc::driver::probe().inspect_err(|reason| println!("ignored: {reason}")).is_err();
    let mut trials: Vec<Trial> =
        DType::ALL.map(|dtype| Trial::test(format!("rows over {dtype}"), move || rows_of_a_type(dtype))).into_iter().collect();
    let more = [
        ("rows over any layouts", layouts_of_rows as Check),
        ("rows in place", rows_in_place),
        ("shapes at the edges", edges),
        ("conversions between all types and layouts", conversions),
        ("fills, ranges and eye", fills_and_ranges),
        ("comparisons and selection", comparisons),
        ("random bits", random_bits),
        ("transposed copies", transposes),
    ];
    trials.extend(more.map(|(name, f)| Trial::test(name, f)));
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(missing)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
