//! Reductions, softmax, layer norm, cross entropy, indexing and optimizers on a CUDA device against the CPU, where there is one; else each
//! case is reported as ignored.

mod support;

use kiln_kernels::copy::Fill;
use kiln_kernels::reduce::Reduction::*;
use kiln_kernels::softmax::Softmax;
use kiln_kernels::{DType, KernelError, Layout, Result};
use libtest_mimic::{Arguments, Trial};
use std::sync::OnceLock;
use support::calls::*;
use support::{Data, Device, FLOATS, close, numbers, tolerance};

/// The CPU and the CUDA device.
fn devices() -> &'static [Device; 2] {
    static DEVICES: OnceLock<[Device; 2]> = OnceLock::new();
    DEVICES.get_or_init(|| [Device::cpu(), Device::cuda()])
}

/// Runs a case on both devices, on CUDA twice: equal bits there, and near the CPU's results.
fn same<const N: usize>(what: &str, near: [f64; N], run: impl Fn(&Device) -> Result<[Vec<f64>; N]>) {
    let [cpu, cuda] = devices();
    let wanted = run(cpu).unwrap();
    let first = run(cuda).unwrap_or_else(|e| panic!("{what}: {e}"));
    let bits = |results: &[Vec<f64>; N]| results.each_ref().map(|r| r.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
    assert!(bits(&run(cuda).unwrap()) == bits(&first), "{what}: two runs differ");
    for i in 0..N {
        close(&first[i], &wanted[i], near[i], &format!("{what}, result {i}"));
    }
}

fn reductions() {
    let layouts = [
        Layout::contiguous(&[1]),
        Layout::contiguous(&[3, 4, 5]),
        Layout::new(&[5, 3, 4], &[1, 20, 5], 3),
        Layout::new(&[4, 6, 3], &[40, 2, 13], 1),
        Layout::new(&[4, 3, 64], &[192, 64, 1], 1),
        Layout::contiguous(&[7, 8192]),
        Layout::contiguous(&[5000, 129]),
        Layout::contiguous(&[3001, 3]),
        Layout::contiguous(&[16, 5, 700]),
        Layout::contiguous(&[3, 100_001]),
        Layout::new(&[2, 300, 500], &[0, 500, 1], 0),
        Layout::contiguous(&[2, 0, 3]),
        Layout::contiguous(&[]),
    ];
    for (layout, dtype) in layouts.iter().flat_map(|l| DType::ALL.map(|t| (l, t))) {
        // Every type on some layouts, three of them on all: each pair is compiled anew.
        if layout.rank() != 3 && matches!(dtype, DType::F64 | DType::F16 | DType::U32) {
            continue;
        }
        let values = numbers(dtype, layout.elements(), 1);
        for (reduced, op) in (0..1 << layout.rank()).flat_map(|r| [Sum, Mean, Max, Min].map(|op| (r, op))) {
            let count: usize = (0..layout.rank()).filter(|d| reduced >> d & 1 == 1).map(|d| layout.dims()[d]).product();
            if op == Mean && !dtype.is_float() || count == 0 && matches!(op, Max | Min) {
                continue;
            }
            let out = if op == Sum && !dtype.is_float() { DType::I64 } else { dtype };
            same(&format!("{op:?} {reduced:b} {dtype} {layout:?}"), [tolerance(out, count)], |d| {
                Ok([reduce(d, op, &d.strided(dtype, layout.clone(), &values), reduced, out)?])
            });
        }
        for dim in (0..layout.rank()).filter(|&dim| layout.dims()[dim] > 0) {
            for min in [false, true] {
                same(&format!("index {min} {dim} {dtype} {layout:?}"), [0.0], |d| {
                    Ok([arg_reduce(d, min, &d.strided(dtype, layout.clone(), &values), dim)?])
                });
            }
        }
    }
}

fn special_reductions() {
    let ones = vec![1.0; 70_000];
    for (op, out) in [(Sum, DType::F16), (Sum, DType::F32), (Mean, DType::F16)] {
        same("70000 ones", [0.0], |d| Ok([reduce(d, op, &d.dense(DType::F16, &[70_000], &ones), 1, out)?]));
    }
    let tenths = vec![0.1; 1 << 22];
    for (dims, reduced) in [([1, 1 << 22], 0b10), ([1 << 12, 1 << 10], 0b01), ([1 << 22, 1], 0b11), ([64, 1 << 16], 0b10)] {
        same("tenths", [tolerance(DType::F32, (1 << 22) / if reduced == 0b11 { 1 } else { dims[1 - reduced / 2] })], |d| {
            Ok([reduce(d, Sum, &d.dense(DType::F32, &dims, &tenths), reduced as u32, DType::F32)?])
        });
    }
    let mut values = numbers(DType::F32, 60_000, 1);
    (values[7], values[40_000]) = (f64::NAN, f64::NAN);
    for (op, reduced) in [Max, Min].into_iter().flat_map(|op| [0b01, 0b10, 0b11].map(|r| (op, r))) {
        same("NaN", [1e-7], |d| Ok([reduce(d, op, &d.dense(DType::F32, &[3, 20_000], &values), reduced, DType::F32)?]));
    }
    for dim in [0, 1] {
        same("index of NaN", [0.0], |d| Ok([arg_reduce(d, false, &d.dense(DType::F32, &[3, 20_000], &values), dim)?]));
    }
}

fn softmaxes() {
    let rows = [
        [3, 1, 1],
        [1, 7, 1],
        [9, 33, 1],
        [5, 1000, 1],
        [2, 1024, 1],
        [2, 8192, 1],
        [1, 8191, 1],
        [2, 32_768, 1],
        [2, 50_257, 1],
    ];
    let columns = [[2, 7, 9], [1, 21, 333], [3, 130, 2], [1, 1, 40], [0, 4, 1], [2, 0, 3], [1, 5000, 3]];
    for shape in rows.into_iter().chain(columns) {
        for (dtype, log) in FLOATS.into_iter().flat_map(|t| [(t, false), (t, true)]) {
            let (what, n) = (format!("{shape:?} {dtype} log {log}"), shape.iter().product());
            let near = |t: DType| tolerance(t, shape[1]).max(tolerance(dtype, shape[1]));
            let x = numbers(dtype, n, 1);
            for out in [dtype, DType::F32].into_iter().filter(|t| *t == dtype || dtype.size() == 2) {
                same(&what, [near(out)], |d| Ok([softmax(d, log, &d.dense(dtype, &shape, &x), shape, out)?]));
            }
            let y = softmax(&devices()[0], log, &devices()[0].dense(dtype, &shape, &x), shape, dtype).unwrap();
            let g = numbers(dtype, n, 2);
            for to in FLOATS.into_iter().filter(|&t| t == dtype || [[5, 1000, 1], [2, 7, 9]].contains(&shape)) {
                let near = near(to).max(if log { 1e-5 } else { 0.0 });
                same(&format!("{what} backward to {to}"), [near], |d| {
                    Ok([softmax_backward(d, log, &d.dense(dtype, &shape, &y), &d.dense(dtype, &shape, &g), shape, to)?])
                });
            }
        }
    }
}

fn special_softmaxes() {
    let low = f64::NEG_INFINITY;
    for (n, inner) in [(40, 1), (40_000, 1), (40, 3)] {
        // A row of -inf alone, one with a single finite number at its end, one with a NaN, one with numbers far apart.
        let mut x = vec![low; 4 * n * inner];
        x[(2 * n - 1) * inner] = 3.0;
        x[2 * n * inner..3 * n * inner].fill(1.0);
        x[(2 * n + n / 2) * inner] = f64::NAN;
        x[3 * n * inner..].fill(-40.114464);
        x[3 * n * inner] = 94.696907;
        for log in [false, true] {
            same(&format!("special {n} {inner} {log}"), [1e-6], |d| {
                Ok([softmax(d, log, &d.dense(DType::F32, &[4, n, inner], &x), [4, n, inner], DType::F32)?])
            });
        }
    }
}

fn layer_norms() {
    let shapes = [
        (1, 1),
        (3, 4),
        (7, 33),
        (300, 8),
        (2, 768),
        (1000, 100),
        (5, 1024),
        (3, 1000),
        (4, 3000),
        (3, 8192),
        (2, 8191),
        (2, 40_000),
        (600, 10_000),
        (0, 5),
    ];
    for (rows, n) in shapes {
        for (dtype, wide) in FLOATS.into_iter().flat_map(|t| [(t, t), (t, DType::F32)]) {
            let mixed = wide != dtype && !matches!(n, 8 | 768 | 40_000);
            if mixed || rows * n > 1_000_000 && dtype != DType::F32 {
                continue;
            }
            let (what, sums) = (format!("{rows} x {n} {dtype} {wide}"), dtype.accumulator());
            let [x, g] = [1, 2].map(|seed| numbers(dtype, rows * n, seed));
            let [weight, bias] = [3, 4].map(|seed| numbers(wide, n, seed));
            let vectors = |d: &Device| [&weight, &bias].map(|v| d.dense(wide, &[n], v));
            let near = tolerance(sums, n);
            same(&what, [tolerance(dtype, n), near.max(1e-4), near], |d| {
                let [w, b] = vectors(d);
                layer_norm(d, &d.dense(dtype, &[rows, n], &x), Some(&w), Some(&b), 1e-5, dtype)
            });
            let cpu = &devices()[0];
            let [_, mean, rstd] = layer_norm(cpu, &cpu.dense(dtype, &[rows, n], &x), None, None, 1e-5, dtype).unwrap();
            for wanted in [[true; 3], [true, false, false], [false, true, false], [false, false, true]] {
                let row_sums = tolerance(wide, rows.max(1)).max(2.0 * near);
                same(&format!("{what} backward {wanted:?}"), [tolerance(dtype, n).max(2.0 * near), row_sums, row_sums], |d| {
                    let [w, _] = vectors(d);
                    let [mean, rstd] = [&mean, &rstd].map(|v| d.dense(sums, &[rows], v));
                    let (x, g) = (d.dense(dtype, &[rows, n], &x), d.dense(dtype, &[rows, n], &g));
                    layer_norm_backward(d, &x, Some(&w).filter(|_| wanted[0]), [&mean, &rstd, &g], wide, wanted)
                });
            }
        }
    }
}

fn special_layer_norms() {
    let mut one_differs = vec![256.0; 10_240];
    one_differs[77] = 255.0;
    for values in [vec![40000.0, 40001.0, 40002.0, 40003.0], vec![1234.0; 256], one_differs] {
        let near = [1e-6, 1e-6, 1e-6];
        same("cancellation", near, |d| {
            layer_norm(d, &d.dense(DType::F32, &[1, values.len()], &values), None, None, 1e-5, DType::F32)
        });
    }
    // f16 activations with f32 results, and an upstream gradient in f32.
    let (x, g) = (numbers(DType::F16, 3000, 1), numbers(DType::F32, 3000, 2));
    same("wide", [1e-5; 3], |d| layer_norm(d, &d.dense(DType::F16, &[10, 300], &x), None, None, 1e-5, DType::F32));
    same("wide gradient", [1e-3, 1e-5, 1e-5], |d| {
        let [mean, rstd] = [0.1, 0.9].map(|v| d.dense(DType::F32, &[10], &[v; 10]));
        let (x, g) = (d.dense(DType::F16, &[10, 300], &x), d.dense(DType::F32, &[10, 300], &g));
        layer_norm_backward(d, &x, None, [&mean, &rstd, &g], DType::F32, [true; 3])
    });
}

fn cross_entropies() {
    for (rows, classes) in [(1, 1), (5, 10), (3, 5001), (300, 3), (2, 50_257), (4, 1024), (0, 4)] {
        for dtype in FLOATS {
            let (what, wide) = (format!("{rows} x {classes} {dtype}"), dtype.accumulator());
            let (x, g) = (numbers(dtype, rows * classes, 1), numbers(wide, rows, 2));
            let target: Vec<f64> = (0..rows).map(|r| if r % 5 == 4 { -100.0 } else { ((r * 7 + 3) % classes) as f64 }).collect();
            let near = tolerance(wide, classes);
            let both = |d: &Device| (d.dense(dtype, &[rows, classes], &x), d.dense(DType::I64, &[rows], &target));
            same(&what, [near; 3], |d| cross_entropy(d, &both(d).0, &both(d).1, -100));
            let cpu = &devices()[0];
            let [_, lse, _] = cross_entropy(cpu, &both(cpu).0, &both(cpu).1, -100).unwrap();
            for stride in [0, 1] {
                same(&format!("{what} backward {stride}"), [tolerance(dtype, classes)], |d| {
                    let (x, t) = both(d);
                    let g = Data { layout: Layout::new(&[rows], &[stride], 0), ..d.dense(wide, &[rows], &g) };
                    Ok([cross_entropy_backward(d, &x, &t, -100, &d.dense(wide, &[rows], &lse), &g)?])
                });
            }
        }
    }
}

fn indexing() {
    for (shape, dim, n) in [
        ([2, 3, 4], 0, 1),
        ([2, 3, 4], 1, 5),
        ([3, 5, 1], 2, 2),
        ([7, 1000, 3], 1, 3000),
        ([1, 300, 64], 1, 5000),
        ([4, 2, 0], 1, 3),
        ([1, 70_000, 2], 1, 70),
    ] {
        let (outer, size): (usize, usize) = (shape[..dim].iter().product(), shape[dim]);
        let inner: usize = shape[dim + 1..].iter().product();
        // Half of the indices are equal, so that runs span many chunks.
        let index: Vec<f64> =
            numbers(DType::I64, n, 3).iter().enumerate().map(|(j, v)| ((j % 2 * (j * j + *v as usize)) % size) as f64).collect();
        let mut src_dims = shape;
        src_dims[dim] = n;
        for (dtype, index_type) in DType::ALL.into_iter().flat_map(|t| [(t, DType::I64), (t, DType::U32)]) {
            let (what, wide) = (format!("{shape:?} {dim} {n} {dtype} {index_type}"), dtype.accumulator());
            let x = numbers(dtype, outer * size * inner, 1);
            same(&format!("select {what}"), [0.0], |d| {
                Ok([index_select(d, &d.dense(dtype, &shape, &x), dim, &d.dense(index_type, &[n], &index))?])
            });
            let (src, out) = (numbers(dtype, outer * n * inner, 2), numbers(wide, outer * size * inner, 4));
            same(&format!("add {what}"), [tolerance(wide, n)], |d| {
                let (src, out) = (d.dense(dtype, &src_dims, &src), d.dense(wide, &shape, &out));
                Ok([index_add(d, &src, dim, &d.dense(index_type, &[n], &index), &out)?])
            });
        }
    }
    let (ones, hundredths) = (vec![1.0; 1000], vec![0.01; 12_500]);
    same("1000 ones", [0.0], |d| {
        let index = d.dense(DType::I64, &[1000], &[0.0; 1000]);
        Ok([index_add(d, &d.dense(DType::BF16, &[1000, 1], &ones), 0, &index, &d.dense(DType::F32, &[1, 1], &[0.0]))?])
    });
    same("12500 hundredths", [1e-6], |d| {
        let index = d.dense(DType::I64, &[12_500], &[0.0; 12_500]);
        Ok([index_add(d, &d.dense(DType::F16, &[12_500, 1], &hundredths), 0, &index, &d.dense(DType::F32, &[1, 1], &[1.0]))?])
    });
}

/// The error word is one of a device, so this case has a device of its own.
fn indices_out_of_range() {
    let d = Device::cuda();
    let cuda = d.cuda.as_ref().unwrap();
    let x = d.dense(DType::F32, &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for bad in [3.0, -1.0] {
        let told = |kernel: &str| {
            let error = cuda.check_errors().unwrap_err();
            assert!(
                matches!(error, KernelError::Index { kernel: k, value, size: 3 } if k == kernel && value as f64 == bad),
                "{error}"
            );
            cuda.check_errors().unwrap();
        };
        let index = d.dense(DType::I64, &[2], &[0.0, bad]);
        let clamped = if bad > 0.0 { [5.0, 6.0] } else { [1.0, 2.0] };
        assert_eq!(index_select(&d, &x, 0, &index).unwrap()[2..], clamped);
        told("index_select");
        index_add(&d, &d.dense(DType::F32, &[2, 2], &[0.0; 4]), 0, &index, &x).unwrap();
        told("index_add");
        let logits = d.dense(DType::F32, &[2, 3], &[0.0; 6]);
        cross_entropy(&d, &logits, &index, -100).unwrap();
        told("cross_entropy");
    }
}

fn optimizers() {
    for (n, dtype, g_type) in
        [1, 7, 8192, 100_001].into_iter().flat_map(|n| FLOATS.into_iter().flat_map(move |p| FLOATS.map(|g| (n, p, g))))
    {
        let (what, wide) = (format!("{n} {dtype} {g_type}"), dtype.accumulator());
        let (p, g) = (numbers(dtype, n, 1), numbers(g_type, n, 2));
        let near = [tolerance(dtype, 1), tolerance(wide, 1), tolerance(wide, 1)];
        for decay in [(0.1, true), (0.1, false)] {
            same(&format!("adam {what} {decay:?}"), near, |d| {
                let [m, v] = [(); 2].map(|()| d.dense(wide, &[n], &vec![0.0; n]));
                let (p, g, hyper) =
                    (d.dense(dtype, &[n], &p), d.dense(g_type, &[n], &g), d.dense(DType::F64, &[2], &[0.01, 0.0]));
                (0..3).try_for_each(|_| adam(d, &p, &g, [&m, &v], &hyper, None, decay).map(drop))?;
                Ok([d.read(&p), d.read(&m), d.read(&v)])
            });
        }
        for (momentum, nesterov) in [(0.0, false), (0.9, false), (0.9, true)] {
            same(&format!("sgd {what} {momentum} {nesterov}"), [near[0], near[1]], |d| {
                let buffer = d.dense(wide, &[n], &vec![0.0; n]);
                let (p, g, hyper) =
                    (d.dense(dtype, &[n], &p), d.dense(g_type, &[n], &g), d.dense(DType::F64, &[2], &[0.01, 0.0]));
                let config = SgdConfig { momentum, nesterov, dampening: 0.0, weight_decay: 0.1 };
                (0..3)
                    .try_for_each(|_| sgd(d, &p, &g, Some(&buffer).filter(|_| momentum > 0.0), &hyper, None, config).map(drop))?;
                Ok([d.read(&p), d.read(&buffer)])
            });
        }
    }
}

fn loss_scaling() {
    for (dtype, bad) in [(DType::F32, 1.0), (DType::F32, f64::INFINITY), (DType::F64, f64::NAN)] {
        let mut g = numbers(dtype, 50_001, 1);
        g[50_000] = bad;
        same(&format!("scaling {dtype} {bad}"), [1e-7, 0.0, 0.0, 1e-7, 0.0], |d| {
            let (scaler, g) = (d.dense(DType::F32, &[3], &[3.0, 0.0, 0.0]), d.dense(dtype, &[50_001], &g));
            let unscaled = unscale(d, &g, &scaler)?;
            let found = d.read(&scaler);
            let (p, hyper) = (d.dense(DType::F32, &[1], &[1.0]), d.dense(DType::F64, &[2], &[0.1, 0.0]));
            sgd(d, &p, &d.dense(DType::F32, &[1], &[1.0]), None, &hyper, Some(&scaler), SgdConfig::default())?;
            Ok([unscaled, found, update_scale(d, &scaler, 1)?, d.read(&p), d.read(&hyper)])
        });
    }
    for (start, interval) in [(2f64.powi(127), 1), (8.0, 2)] {
        same("scale", [0.0], |d| {
            let scaler = d.dense(DType::F32, &[3], &[start, 0.0, 0.0]);
            Ok([[(); 3].map(|()| update_scale(d, &scaler, interval).unwrap()).concat()])
        });
    }
}

/// More than 2^31 elements, of which the last row is looked at.
fn large_tensors() {
    let (d, dims) = (Device::cuda(), [2_097_153, 1024]);
    let (x, out) = (d.blank(DType::F16, &dims), d.blank(DType::F16, &dims));
    d.run(Fill { value: 1.5.into(), out: x.out(&mut x.block.write(d.stream()).unwrap()) }).unwrap();
    let (x_token, mut out_token) = (x.block.read(d.stream()).unwrap(), out.block.write(d.stream()).unwrap());
    d.run(Softmax { log: false, x: x.arg(&x_token), outer: dims[0], n: dims[1], inner: 1, out: out.out(&mut out_token) })
        .unwrap();
    drop((x_token, out_token));
    let last = Data { layout: Layout::new(&[1024], &[1], (dims[0] - 1) * 1024), ..out };
    close(&[d.read(&last).iter().sum()], &[1.0], 1e-3, "last row");
    let all = reduce(&d, Sum, &x, 0b11, DType::F32).unwrap();
    close(&all, &[1.5 * (dims[0] * dims[1]) as f64], 1e-6, "sum of all");
    let columns = reduce(&d, Sum, &x, 0b01, DType::F32).unwrap();
    close(&columns, &[1.5 * dims[0] as f64; 1024], 1e-6, "sums of columns");
}

fn main() {
    let missing = kiln_alloc::driver::probe().inspect_err(|reason| println!("ignored: {reason}")).is_err();
    let cases: [(&str, fn()); 12] = [
        ("reductions", reductions),
        ("reductions of special values", special_reductions),
        ("softmax", softmaxes),
        ("softmax of special values", special_softmaxes),
        ("layer norm", layer_norms),
        ("layer norm of special values", special_layer_norms),
        ("cross entropy", cross_entropies),
        ("indexing", indexing),
        ("indices out of range", indices_out_of_range),
        ("optimizers", optimizers),
        ("loss scaling", loss_scaling),
        ("large tensors", large_tensors),
    ];
    let memory = if missing { 0 } else { kiln_alloc::driver::device_info(0).unwrap().total_memory };
    let trial = |(name, case): (&str, fn())| {
        let ignored = missing || name == "large tensors" && memory < 12 << 30;
        let run = move || {
            case();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(ignored)
    };
    libtest_mimic::run(&Arguments::from_args(), cases.into_iter().map(trial).collect()).exit();
}
