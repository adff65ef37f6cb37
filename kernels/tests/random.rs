//! Random numbers on the CPU: bits are those of Philox, wherever and however many are made at once.

mod pointwise;
mod support;

use kiln_kernels::random::{counters_for, philox};
use kiln_kernels::{DType, KernelError};
use pointwise::{dropout, normal, rand_int, uniform};
use support::{Data, Device, FLOATS, close, numbers, rounded, tolerance};

const KEY: (u64, u64) = (0x1234_5678_9ABC_DEF0, 40);

fn word(i: usize) -> u32 {
    philox(KEY.0, KEY.1 + i as u64 / 4)[i % 4]
}
fn unit(i: usize) -> f64 {
    (word(i) >> 8) as f64 / 2f64.powi(24)
}

#[test]
fn uniforms_are_24_bits_of_each_word() {
    let d = Device::cpu();
    for n in [0, 1, 6, 70_001] {
        let wanted: Vec<f64> = (0..n).map(|i| -1.0 + 3.0 * unit(i)).collect();
        for dtype in FLOATS {
            close(&uniform(&d, dtype, n, KEY, -1.0, 2.0).unwrap(), &wanted, tolerance(dtype, 1), "uniform");
        }
    }
    let exact: Vec<f64> = (0..1000).map(unit).collect();
    assert_eq!(uniform(&d, DType::F32, 1000, KEY, 0.0, 1.0).unwrap(), exact);
}

#[test]
fn uniforms_stay_below_their_bound_in_every_type() {
    let d = Device::cpu();
    for (dtype, (lo, hi)) in FLOATS.iter().flat_map(|&t| [(0.0, 1.0), (-3.0, -2.0), (100.0, 100.5)].map(|r| (t, r))) {
        let found = uniform(&d, dtype, 300_000, KEY, lo, hi).unwrap();
        assert!(found.iter().all(|v| (lo..hi).contains(v)), "{dtype} {lo}..{hi}");
    }
    // What rounds to 1 is the number before it.
    let found = uniform(&d, DType::BF16, 300_000, KEY, 0.0, 1.0).unwrap();
    assert_eq!(found.iter().copied().fold(0.0, f64::max), 1.0 - 2f64.powi(-8));
}

#[test]
fn a_call_goes_on_where_the_one_before_ended() {
    let d = Device::cpu();
    let whole = uniform(&d, DType::F32, 100, (7, 3), 0.0, 1.0).unwrap();
    let rest = uniform(&d, DType::F32, 60, (7, 3 + counters_for(40)), 0.0, 1.0).unwrap();
    assert_eq!(whole[40..], rest);
}

#[test]
fn normals_come_by_box_and_muller() {
    let d = Device::cpu();
    let one = |i: usize| {
        let (u0, u1) = (1.0 - unit(i / 2 * 2), 1.0 - unit(i / 2 * 2 + 1));
        let (sin, cos) = (std::f64::consts::TAU * u1).sin_cos();
        1.0 + 2.0 * (-2.0 * u0.ln()).sqrt() * [cos, sin][i % 2]
    };
    let wanted: Vec<f64> = (0..50_003).map(one).collect();
    for dtype in FLOATS {
        let found = normal(&d, dtype, wanted.len(), KEY, 1.0, 2.0).unwrap();
        close(&found, &wanted, tolerance(dtype, 1), "normal");
    }
    let (mean, n) = (wanted.iter().sum::<f64>() / wanted.len() as f64, wanted.len() as f64);
    let variance = wanted.iter().map(|z| (z - mean) * (z - mean)).sum::<f64>() / n;
    assert!((mean - 1.0).abs() < 0.05 && (variance - 4.0).abs() < 0.1, "mean {mean}, variance {variance}");
}

#[test]
fn integers_are_words_modulo_the_range() {
    let d = Device::cpu();
    let wanted: Vec<f64> = (0..1001).map(|i| -5.0 + (word(i) % 12) as f64).collect();
    assert_eq!(rand_int(&d, 1001, KEY, -5, 7).unwrap(), wanted);
    let all: Vec<f64> = (0..10).map(|i| word(i) as f64).collect();
    assert_eq!(rand_int(&d, 10, KEY, 0, 1 << 32).unwrap(), all);
    for (lo, hi) in [(3, 3), (3, 2), (0, (1 << 32) + 1), (i64::MIN, i64::MAX)] {
        assert!(matches!(rand_int(&d, 10, KEY, lo, hi).unwrap_err(), KernelError::Operand(_)));
    }
}

fn ones_to(d: &Device, dtype: DType, n: usize) -> (Data, Vec<f64>) {
    let x = numbers(dtype, n, 1);
    (d.dense(dtype, &[n], &x), x)
}

#[test]
fn dropout_keeps_where_the_uniform_reaches_p() {
    let d = Device::cpu();
    for (dtype, p) in FLOATS.iter().flat_map(|&t| [0.1, 0.25, 0.5].map(|p| (t, p))) {
        let (data, x) = ones_to(&d, dtype, 70_001);
        let wanted: Vec<f64> = x.iter().enumerate().map(|(i, x)| if unit(i) >= p { x / (1.0 - p) } else { 0.0 }).collect();
        let found = dropout(&d, &data, p, KEY).unwrap();
        close(&found, &wanted, tolerance(dtype, 1), &format!("{dtype} {p}"));
        assert!(found.iter().zip(&wanted).all(|(a, b)| (*a == 0.0) == (*b == 0.0)));
    }
}

#[test]
fn dropout_of_nothing_and_of_everything() {
    let d = Device::cpu();
    for dtype in FLOATS {
        let mut x = numbers(dtype, 100, 1);
        x[3] = f64::INFINITY;
        let data = d.dense(dtype, &[100], &x);
        assert_eq!(dropout(&d, &data, 0.0, KEY).unwrap(), rounded(dtype, &x));
        assert_eq!(dropout(&d, &data, 1.0, KEY).unwrap(), vec![0.0; 100]);
    }
}

#[test]
fn random_floats_want_a_float_type() {
    let d = Device::cpu();
    assert!(matches!(uniform(&d, DType::I64, 3, KEY, 0.0, 1.0).unwrap_err(), KernelError::DType { kernel: "uniform", .. }));
}
