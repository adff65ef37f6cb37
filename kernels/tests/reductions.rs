//! Reductions on the CPU against sums in f64.

mod support;

use kiln_kernels::reduce::Reduction::{self, *};
use kiln_kernels::{DType, KernelError, Layout};
use support::calls::{arg_reduce, reduce};
use support::{Device, FLOATS, close, numbers, rounded, tolerance};

/// Reduces row-major `values` of `dims` over the dims whose bits are set.
fn reference(op: Reduction, dims: &[usize], values: &[f64], reduced: u32) -> Vec<f64> {
    let size = |keep: bool| dims.iter().enumerate().filter(|(d, _)| (reduced >> d & 1 == 0) == keep).map(|(_, s)| s).product();
    let mut out = vec![Vec::new(); size(true)];
    for (i, &v) in values.iter().enumerate() {
        let (mut rest, mut at, mut width) = (i, 0, 1);
        for d in (0..dims.len()).rev() {
            if reduced >> d & 1 == 0 {
                at += rest % dims[d] * width;
                width *= dims[d];
            }
            rest /= dims[d];
        }
        out[at].push(v);
    }
    let fold = |v: &Vec<f64>| match op {
        Sum => v.iter().sum::<f64>(),
        Product => v.iter().product(),
        Mean => v.iter().sum::<f64>() / v.len() as f64,
        Max => v.iter().copied().fold(f64::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a }),
        Min => v.iter().copied().fold(f64::INFINITY, |a, b| if b < a || b.is_nan() { b } else { a }),
    };
    out.iter().map(fold).collect()
}

fn layouts() -> Vec<Layout> {
    vec![
        Layout::contiguous(&[3, 4, 5]),
        Layout::new(&[5, 3, 4], &[1, 20, 5], 3),
        Layout::new(&[4, 6, 3], &[40, 2, 13], 1),
        Layout::new(&[3, 1, 200], &[200, 7, 1], 0),
        Layout::contiguous(&[700, 33]),
        Layout::contiguous(&[2, 20_000]),
    ]
}

#[test]
fn any_dims_of_any_layout_in_any_float_type() {
    let d = Device::cpu();
    for layout in layouts() {
        for dtype in FLOATS {
            let values = numbers(dtype, layout.elements(), 1);
            let x = d.strided(dtype, layout.clone(), &values);
            for (reduced, op) in (0..1 << layout.rank()).flat_map(|r| [Sum, Mean, Max, Min].map(|op| (r, op))) {
                let wanted = reference(op, layout.dims(), &values, reduced);
                let out = reduce(&d, op, &x, reduced, dtype).unwrap();
                close(
                    &out,
                    &wanted,
                    tolerance(dtype, values.len() / wanted.len()),
                    &format!("{op:?} {reduced:b} {dtype} {layout:?}"),
                );
            }
        }
    }
}

#[test]
fn broadcast_elements_count_each_time() {
    let d = Device::cpu();
    let x = d.dense(DType::F32, &[3], &[1.0, 2.0, 3.0]);
    let wide = support::Data { layout: x.layout.broadcast_to(&[4, 3]).unwrap(), ..x };
    assert_eq!(reduce(&d, Sum, &wide, 0b01, DType::F32).unwrap(), [4.0, 8.0, 12.0]);
    assert_eq!(reduce(&d, Sum, &wide, 0b11, DType::F32).unwrap(), [24.0]);
}

#[test]
fn sums_of_integers_are_wide_and_extremes_keep_their_type() {
    let d = Device::cpu();
    let values = numbers(DType::U8, 5000, 2);
    for dtype in [DType::I64, DType::U32, DType::U8] {
        let x = d.dense(dtype, &[50, 100], &values);
        for reduced in [0b01, 0b10, 0b11] {
            for (op, out) in [(Sum, DType::I64), (Max, dtype), (Min, dtype)] {
                assert_eq!(reduce(&d, op, &x, reduced, out).unwrap(), reference(op, &[50, 100], &values, reduced));
            }
        }
        assert!(matches!(reduce(&d, Mean, &x, 0b11, dtype), Err(KernelError::DType { .. })));
    }
}

#[test]
fn sixteen_bit_sums_do_not_stick() {
    let d = Device::cpu();
    let all = |dtype, n: usize, value: f64, op, out| {
        let x = d.dense(dtype, &[n], &vec![value; n]);
        reduce(&d, op, &x, 1, out).unwrap()[0]
    };
    assert_eq!(all(DType::F16, 70_000, 1.0, Sum, DType::F16), f64::INFINITY);
    assert_eq!(all(DType::F16, 70_000, 1.0, Sum, DType::F32), 70_000.0);
    assert_eq!(all(DType::F16, 70_000, 1.0, Mean, DType::F16), 1.0);
    assert_eq!(all(DType::F16, 32_768, 1.0, Sum, DType::F16), 32_768.0);
    assert_eq!(all(DType::F16, 1000, 100.0, Mean, DType::F16), 100.0);
    assert_eq!(all(DType::BF16, 70_000, 1.0, Mean, DType::BF16), 1.0);
}

#[test]
fn long_sums_stay_exact_enough() {
    let d = Device::cpu();
    let tenth = rounded(DType::F32, &[0.1])[0];
    for dims in [[1, 1 << 20], [1 << 20, 1], [1 << 14, 64]] {
        let n = dims[0] * dims[1];
        let x = d.dense(DType::F32, &dims, &vec![tenth; n]);
        let out = reduce(&d, Sum, &x, 0b11, DType::F32).unwrap();
        close(&out, &[tenth * n as f64], 1e-7, "sum of tenths");
    }
}

#[test]
fn nan_wins_over_every_number() {
    let d = Device::cpu();
    for dtype in FLOATS {
        let x = d.dense(dtype, &[2, 4], &[1.0, f64::NAN, f64::INFINITY, -3.0, -f64::INFINITY, 2.0, 0.0, 1.0]);
        for (op, second) in [(Max, 2.0), (Min, -f64::INFINITY)] {
            close(&reduce(&d, op, &x, 0b10, dtype).unwrap(), &[f64::NAN, second], 0.0, "rows");
            assert!(reduce(&d, op, &x, 0b01, dtype).unwrap()[1].is_nan());
            assert!(reduce(&d, op, &x, 0b11, dtype).unwrap()[0].is_nan());
        }
        assert_eq!(arg_reduce(&d, false, &x, 1).unwrap(), [1.0, 1.0]);
        assert_eq!(arg_reduce(&d, true, &x, 1).unwrap(), [1.0, 0.0]);
    }
}

#[test]
fn nothing_sums_to_zero_and_has_no_mean() {
    let d = Device::cpu();
    let x = d.dense(DType::F32, &[2, 0, 3], &[]);
    assert_eq!(reduce(&d, Sum, &x, 0b010, DType::F32).unwrap(), [0.0; 6]);
    assert!(reduce(&d, Mean, &x, 0b111, DType::F32).unwrap()[0].is_nan());
    assert_eq!(reduce(&d, Sum, &x, 0b101, DType::F32).unwrap(), []);
    assert_eq!(reduce(&d, Max, &x, 0b100, DType::F32).unwrap(), []);
}

#[test]
fn the_first_of_equals_is_the_index() {
    let d = Device::cpu();
    for dtype in DType::ALL {
        let x = d.dense(dtype, &[2, 4], &[3.0, 1.0, 3.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(arg_reduce(&d, false, &x, 1).unwrap(), [0.0, 0.0]);
        assert_eq!(arg_reduce(&d, true, &x, 1).unwrap(), [1.0, 0.0]);
        assert_eq!(arg_reduce(&d, true, &x, 0).unwrap(), [1.0, 1.0, 1.0, 1.0]);
    }
}

#[test]
fn the_number_of_threads_does_not_show() {
    let values = numbers(DType::F32, 1 << 18, 3);
    let run = |threads: usize, dims: [usize; 2], reduced| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let d = Device::cpu();
        let x = d.dense(DType::F32, &dims, &values);
        pool.install(|| reduce(&d, Sum, &x, reduced, DType::F32).unwrap())
    };
    for (dims, reduced) in [([1, 1 << 18], 0b10), ([1 << 12, 1 << 6], 0b01), ([1 << 9, 1 << 9], 0b10)] {
        assert_eq!(run(1, dims, reduced), run(5, dims, reduced));
    }
}
