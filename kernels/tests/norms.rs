//! Softmax, layer norm and cross entropy on the CPU against their formulas in f64.

mod support;

use kiln_kernels::{DType, KernelError, Layout};
use support::calls::{cross_entropy, cross_entropy_backward, layer_norm, layer_norm_backward, softmax, softmax_backward};
use support::{Data, Device, FLOATS, close, numbers, rounded, tolerance};

/// Calls `f` with the places of each lane of `[outer, n, inner]`.
fn lanes([outer, n, inner]: [usize; 3], mut f: impl FnMut(Vec<usize>)) {
    for column in 0..outer * inner {
        f((0..n).map(|j| (column / inner * n + j) * inner + column % inner).collect());
    }
}

fn softmax_reference(log: bool, shape: [usize; 3], x: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    lanes(shape, |lane| {
        let max = lane.iter().map(|&i| x[i]).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = lane.iter().map(|&i| (x[i] - max).exp()).sum();
        lane.iter().for_each(|&i| y[i] = if log { x[i] - max - sum.ln() } else { (x[i] - max).exp() / sum });
    });
    y
}

fn softmax_slope(log: bool, shape: [usize; 3], y: &[f64], g: &[f64]) -> Vec<f64> {
    let mut dx = vec![0.0; y.len()];
    lanes(shape, |lane| {
        let sum: f64 = lane.iter().map(|&i| if log { g[i] } else { g[i] * y[i] }).sum();
        lane.iter().for_each(|&i| dx[i] = if log { g[i] - y[i].exp() * sum } else { y[i] * (g[i] - sum) });
    });
    dx
}

#[test]
fn softmax_and_its_gradient_over_any_dim() {
    let d = Device::cpu();
    for shape in [[3, 5, 1], [1, 1, 1], [4, 1000, 1], [2, 7, 9], [1, 21, 70], [3, 130, 2], [0, 4, 1], [2, 0, 3]] {
        for (dtype, log) in FLOATS.into_iter().flat_map(|t| [(t, false), (t, true)]) {
            let what = format!("{shape:?} {dtype} log {log}");
            let n = shape.iter().product();
            let values = numbers(dtype, n, 1);
            let x = d.dense(dtype, &shape, &values);
            let wanted = softmax_reference(log, shape, &values);
            close(&softmax(&d, log, &x, shape, dtype).unwrap(), &wanted, tolerance(dtype, 1), &what);
            let (y_values, g_values) = (rounded(dtype, &wanted), numbers(dtype, n, 2));
            let (y, g) = (d.dense(dtype, &shape, &y_values), d.dense(dtype, &shape, &g_values));
            let slope = softmax_slope(log, shape, &y_values, &g_values);
            for to in FLOATS {
                let dx = softmax_backward(&d, log, &y, &g, shape, to).unwrap();
                close(&dx, &slope, tolerance(to, 1).max(tolerance(dtype, 1)), &format!("{what} to {to}"));
            }
        }
    }
}

#[test]
fn softmax_of_sixteen_bits_can_stay_wide() {
    let d = Device::cpu();
    let values = numbers(DType::F16, 60, 3);
    let x = d.dense(DType::F16, &[4, 15], &values);
    let wide = softmax(&d, false, &x, [4, 15, 1], DType::F32).unwrap();
    close(&wide, &softmax_reference(false, [4, 15, 1], &values), 1e-6, "f16 to f32");
}

#[test]
fn log_softmax_stays_finite_over_a_wide_range() {
    let d = Device::cpu();
    let x = d.dense(DType::F32, &[2], &[-40.114464, 94.696907]);
    let y = softmax(&d, true, &x, [1, 2, 1], DType::F32).unwrap();
    close(&y, &[-134.81137, 0.0], 1e-6, "row");
    let column = [-40.114464, 94.696907].map(|v| [v; 35]).concat();
    let x = d.dense(DType::F32, &[1, 2, 5, 7], &column);
    let y = softmax(&d, true, &x, [1, 2, 35], DType::F32).unwrap();
    close(&y, &[-134.81137, 0.0].map(|v| [v; 35]).concat(), 1e-6, "columns");
}

#[test]
fn a_row_of_minus_infinity_is_nan_and_one_infinity_less_is_not() {
    let d = Device::cpu();
    let low = f64::NEG_INFINITY;
    for shape in [[2, 2, 1], [1, 2, 2]] {
        let x = d.dense(DType::F32, &[2, 2], &[low, low, low, 1.0]);
        let y = softmax(&d, false, &x, shape, DType::F32).unwrap();
        let (dead, live) = if shape[2] == 1 { ([0, 1], [2, 3]) } else { ([0, 2], [1, 3]) };
        assert!(dead.iter().all(|&i| y[i].is_nan()));
        assert_eq!(live.map(|i| y[i]), [0.0, 1.0]);
    }
}

struct NormCase {
    x: Vec<f64>,
    weight: Vec<f64>,
    bias: Vec<f64>,
    g: Vec<f64>,
    n: usize,
}

impl NormCase {
    fn new(dtype: DType, wide: DType, rows: usize, n: usize) -> NormCase {
        let [weight, bias] = [1, 2].map(|seed| numbers(wide, n, seed));
        NormCase { x: numbers(dtype, rows * n, 3), weight, bias, g: numbers(dtype, rows * n, 4), n }
    }
    /// Output, mean, reciprocal deviation.
    fn forward(&self, eps: f64) -> [Vec<f64>; 3] {
        let [mut y, mut mean, mut rstd] = [(); 3].map(|()| Vec::new());
        for row in self.x.chunks(self.n) {
            let m = row.iter().sum::<f64>() / self.n as f64;
            let r = 1.0 / (row.iter().map(|v| (v - m).powi(2)).sum::<f64>() / self.n as f64 + eps).sqrt();
            y.extend(row.iter().enumerate().map(|(i, v)| (v - m) * r * self.weight[i] + self.bias[i]));
            mean.push(m);
            rstd.push(r);
        }
        [y, mean, rstd]
    }
    /// Gradients of input, weight and bias.
    fn backward(&self, eps: f64) -> [Vec<f64>; 3] {
        let [_, mean, rstd] = self.forward(eps);
        let (mut dx, mut dw, mut db) = (Vec::new(), vec![0.0; self.n], vec![0.0; self.n]);
        for (row, (x, g)) in self.x.chunks(self.n).zip(self.g.chunks(self.n)).enumerate() {
            let h: Vec<f64> = x.iter().map(|v| (v - mean[row]) * rstd[row]).collect();
            let s: Vec<f64> = g.iter().zip(&self.weight).map(|(g, w)| g * w).collect();
            let c1 = s.iter().sum::<f64>() / self.n as f64;
            let c2 = s.iter().zip(&h).map(|(s, h)| s * h).sum::<f64>() / self.n as f64;
            dx.extend(s.iter().zip(&h).map(|(s, h)| rstd[row] * (s - c1 - h * c2)));
            for i in 0..self.n {
                dw[i] += g[i] * h[i];
                db[i] += g[i];
            }
        }
        [dx, dw, db]
    }
}

#[test]
fn layer_norm_and_its_gradients_in_every_type() {
    let d = Device::cpu();
    for (rows, n) in [(1, 4), (7, 33), (200, 8), (3, 3000), (0, 5)] {
        for (dtype, wide) in FLOATS.into_iter().flat_map(|t| [(t, t), (t, DType::F32)]) {
            let what = format!("{rows} x {n} {dtype} {wide}");
            let case = NormCase::new(dtype, wide, rows, n);
            let x = d.dense(dtype, &[rows, n], &case.x);
            let (weight, bias) = (d.dense(wide, &[n], &case.weight), d.dense(wide, &[n], &case.bias));
            let [y, mean, rstd] = case.forward(1e-5);
            let out = layer_norm(&d, &x, Some(&weight), Some(&bias), 1e-5, dtype).unwrap();
            let near = tolerance(dtype.accumulator(), 1);
            close(&out[0], &y, tolerance(dtype, 1), &what);
            close(&out[1], &mean, near, &what);
            close(&out[2], &rstd, near, &what);
            let [mean, rstd] = [mean, rstd].map(|v| d.dense(dtype.accumulator(), &[rows], &v));
            let g = d.dense(dtype, &[rows, n], &case.g);
            let grads = layer_norm_backward(&d, &x, Some(&weight), [&mean, &rstd, &g], wide, [true; 3]).unwrap();
            for (i, (out, wanted)) in grads.iter().zip(case.backward(1e-5)).enumerate() {
                let to = if i == 0 { dtype } else { wide };
                close(out, &wanted, tolerance(to, rows.max(1)).max(near), &format!("{what} gradient {i}"));
            }
        }
    }
}

#[test]
fn layer_norm_of_large_and_of_equal_numbers_does_not_cancel() {
    let d = Device::cpu();
    let norm = |values: &[f64]| {
        let x = d.dense(DType::F32, &[1, values.len()], values);
        layer_norm(&d, &x, None, None, 1e-5, DType::F32).unwrap()[0].clone()
    };
    close(&norm(&[40000.0, 40001.0, 40002.0, 40003.0]), &[-1.341635, -0.447212, 0.447212, 1.341635], 1e-6, "large");
    assert_eq!(norm(&[1234.0; 256]), [0.0; 256]);
    let mut values = vec![256.0; 10_240];
    values[77] = 255.0;
    let out = norm(&values);
    close(&[out[0], out[77]], &[0.00941238, -96.373404], 1e-6, "one differs");
}

#[test]
fn layer_norm_gradients_of_rank_three() {
    let d = Device::cpu();
    let x: Vec<f64> = (0..16).map(f64::from).collect();
    let x = d.dense(DType::F32, &[2, 2, 4], &x);
    let [_, mean, rstd] = layer_norm(&d, &x, None, None, 1e-5, DType::F32).unwrap();
    let [mean, rstd] = [mean, rstd].map(|v| d.dense(DType::F32, &[4], &v));
    let g = d.dense(DType::F32, &[2, 2, 4], &[1.0, 0.0, 0.0, 0.0].repeat(4));
    let [dx, dw, db] = layer_norm_backward(&d, &x, None, [&mean, &rstd, &g], DType::F32, [true; 3]).unwrap();
    close(&dx, &[0.268330304, -0.357768372, -0.089443435, 0.178881503].repeat(4), 1e-6, "input");
    close(&dw, &[-5.366541680, 0.0, 0.0, 0.0], 1e-6, "weight");
    assert_eq!(db, [4.0, 0.0, 0.0, 0.0]);
}

#[test]
fn only_wanted_gradients_are_written() {
    let d = Device::cpu();
    let x = d.dense(DType::F32, &[2, 3], &numbers(DType::F32, 6, 1));
    let ones = d.dense(DType::F32, &[2], &[1.0, 1.0]);
    for wanted in [[true, false, false], [false, true, false], [false, false, true]] {
        let grads = layer_norm_backward(&d, &x, None, [&ones, &ones, &x], DType::F32, wanted).unwrap();
        assert_eq!(grads.map(|g| g.iter().any(|&v| v != 99.0)), wanted);
    }
}

fn loss_case(d: &Device, dtype: DType, rows: usize, classes: usize) -> (Vec<f64>, Data, Vec<usize>, Data) {
    let logits = numbers(dtype, rows * classes, 1);
    let target: Vec<usize> = (0..rows).map(|r| (r * 7 + 3) % classes).collect();
    let target_data = d.dense(DType::I64, &[rows], &target.iter().map(|&t| t as f64).collect::<Vec<_>>());
    let data = d.dense(dtype, &[rows, classes], &logits);
    (logits, data, target, target_data)
}

#[test]
fn cross_entropy_and_its_gradient() {
    let d = Device::cpu();
    for (rows, classes) in [(1, 1), (5, 10), (3, 5001), (300, 3), (0, 4)] {
        for dtype in FLOATS {
            let what = format!("{rows} x {classes} {dtype}");
            let (logits, x, target, t) = loss_case(&d, dtype, rows, classes);
            let logs = softmax_reference(true, [rows, classes, 1], &logits);
            let [loss, lse, counted] = cross_entropy(&d, &x, &t, -100).unwrap();
            let wanted: Vec<f64> = target.iter().enumerate().map(|(r, &t)| -logs[r * classes + t]).collect();
            let wide = dtype.accumulator();
            close(&loss, &wanted, tolerance(wide, 1), &what);
            assert_eq!(counted, vec![1.0; rows]);
            let g_values = numbers(wide, rows, 2);
            let (lse, g) = (d.dense(wide, &[rows], &lse), d.dense(wide, &[rows], &g_values));
            let dx = cross_entropy_backward(&d, &x, &t, -100, &lse, &g).unwrap();
            let slope = |i: usize| (logs[i].exp() - (i % classes == target[i / classes]) as u8 as f64) * g_values[i / classes];
            let wanted: Vec<f64> = (0..logits.len()).map(slope).collect();
            if classes > 1 {
                close(&dx, &wanted, tolerance(dtype, 1), &what);
            }
        }
    }
}

#[test]
fn cross_entropy_of_equal_logits() {
    let d = Device::cpu();
    let (x, t) = (d.dense(DType::F32, &[2, 2], &[0.0; 4]), d.dense(DType::I64, &[2], &[0.0, 1.0]));
    let [loss, lse, _] = cross_entropy(&d, &x, &t, -100).unwrap();
    close(&loss, &[std::f64::consts::LN_2; 2], 1e-7, "loss");
    // The upstream gradient of a mean over two rows is one number, seen twice.
    let g = Data { layout: Layout::new(&[2], &[0], 0), ..d.dense(DType::F32, &[1], &[0.5]) };
    let lse = d.dense(DType::F32, &[2], &lse);
    close(&cross_entropy_backward(&d, &x, &t, -100, &lse, &g).unwrap(), &[-0.25, 0.25, 0.25, -0.25], 1e-7, "gradient");
}

#[test]
fn ignored_rows_count_nothing_and_other_targets_must_be_classes() {
    let d = Device::cpu();
    let x = d.dense(DType::F32, &[2, 3], &[1.0, f64::NAN, 3.0, 1.0, 2.0, 3.0]);
    let t = d.dense(DType::I64, &[2], &[-1.0, 2.0]);
    let [loss, lse, counted] = cross_entropy(&d, &x, &t, -1).unwrap();
    assert_eq!((loss[0], counted), (0.0, vec![0.0, 1.0]));
    let (lse, g) = (d.dense(DType::F32, &[2], &lse), d.dense(DType::F32, &[2], &[f64::INFINITY, 1.0]));
    assert_eq!(cross_entropy_backward(&d, &x, &t, -1, &lse, &g).unwrap()[..3], [0.0; 3]);
    for bad in [3.0, -1.0] {
        let t = d.dense(DType::I64, &[2], &[0.0, bad]);
        let error = cross_entropy(&d, &x, &t, -100).unwrap_err();
        assert!(matches!(error, KernelError::Index { kernel: "cross_entropy", value, size: 3 } if value as f64 == bad));
    }
}
