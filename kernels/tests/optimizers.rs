//! Optimizer steps and loss scaling on the CPU against known values.

mod support;

use kiln_kernels::{DType, KernelError};
use support::calls::{SgdConfig, adam, advance, sgd, unscale, update_scale};
use support::{Data, Device, close};

fn hyper(d: &Device, lr: f64) -> Data {
    d.dense(DType::F64, &[2], &[lr, 0.0])
}

fn moments(d: &Device, dtype: DType, n: usize) -> [Data; 2] {
    [(); 2].map(|()| d.dense(dtype, &[n], &vec![0.0; n]))
}

#[test]
fn adam_takes_the_known_steps() {
    let d = Device::cpu();
    let coupled = [0.900000001667, 0.854441367462, 0.800569472086];
    let decoupled = [0.890000002, 0.854466298688, 0.811878721910];
    for (wanted, is_decoupled) in [(coupled, false), (decoupled, true)] {
        for (dtype, near) in [(DType::F64, 1e-9), (DType::F32, 1e-6)] {
            let (p, hyper, [m, v]) = (d.dense(dtype, &[1], &[1.0]), hyper(&d, 0.1), moments(&d, dtype, 1));
            for (g, wanted) in [0.5, -0.25, 0.125].into_iter().zip(wanted) {
                let g = d.dense(dtype, &[1], &[g]);
                let out = adam(&d, &p, &g, [&m, &v], &hyper, None, (0.1, is_decoupled)).unwrap();
                close(&out, &[wanted], near, &format!("{dtype} {is_decoupled}"));
            }
        }
    }
}

#[test]
fn zero_gradients_leave_half_parameters_alone() {
    let d = Device::cpu();
    for dtype in [DType::F16, DType::BF16] {
        let (p, hyper, [m, v]) = (d.dense(dtype, &[3], &[1.0, -2.0, 0.5]), hyper(&d, 0.1), moments(&d, DType::F32, 3));
        for g in [dtype, DType::F32, DType::F32] {
            let g = d.dense(g, &[3], &[0.0; 3]);
            assert_eq!(adam(&d, &p, &g, [&m, &v], &hyper, None, (0.0, true)).unwrap(), [1.0, -2.0, 0.5]);
        }
    }
}

#[test]
fn sgd_as_pytorch() {
    let d = Device::cpu();
    let run = |config: SgdConfig, dtype: DType| {
        let (p, hyper, buffer) = (d.dense(dtype, &[1], &[1.0]), hyper(&d, 0.1), d.dense(dtype, &[1], &[0.0]));
        let buffer = (config.momentum > 0.0).then_some(&buffer);
        [1.0, 2.0].map(|g| sgd(&d, &p, &d.dense(dtype, &[1], &[g]), buffer, &hyper, None, config).unwrap()[0])
    };
    let base = SgdConfig::default();
    let momentum = SgdConfig { momentum: 0.5, ..base };
    let cases = [
        (base, [0.9, 0.7]),
        (SgdConfig { weight_decay: 0.5, ..base }, [0.85, 0.6075]),
        (momentum, [0.9, 0.65]),
        (SgdConfig { dampening: 0.5, ..momentum }, [0.9, 0.75]),
        (SgdConfig { nesterov: true, ..momentum }, [0.85, 0.525]),
    ];
    for (config, wanted) in cases {
        close(&run(config, DType::F64), &wanted, 1e-12, "f64");
        close(&run(config, DType::F32), &wanted, 1e-6, "f32");
    }
}

#[test]
fn a_step_of_many_elements_equals_many_steps_of_one() {
    let d = Device::cpu();
    let n = 40_000;
    let (p, g) = (support::numbers(DType::F32, n, 1), support::numbers(DType::F32, n, 2));
    let step = |range: std::ops::Range<usize>| {
        let ([m, v], hyper) = (moments(&d, DType::F32, range.len()), hyper(&d, 0.01));
        let [p, g] = [&p, &g].map(|x| d.dense(DType::F32, &[range.len()], &x[range.clone()]));
        adam(&d, &p, &g, [&m, &v], &hyper, None, (0.01, true)).unwrap()
    };
    let all = step(0..n);
    for i in [0, 1, 16_383, 16_384, n - 1] {
        assert_eq!(step(i..i + 1), [all[i]]);
    }
}

#[test]
fn a_found_inf_stops_the_step() {
    let d = Device::cpu();
    let scaler = d.dense(DType::F32, &[3], &[4.0, 0.0, 1.0]);
    let (p, hyper, [m, v]) = (d.dense(DType::F32, &[1], &[1.0]), hyper(&d, 0.1), moments(&d, DType::F32, 1));
    let g = d.dense(DType::F32, &[1], &[f64::INFINITY]);
    assert_eq!(adam(&d, &p, &g, [&m, &v], &hyper, Some(&scaler), (0.1, true)).unwrap(), [1.0]);
    assert_eq!(sgd(&d, &p, &g, Some(&m), &hyper, Some(&scaler), SgdConfig::default()).unwrap(), [1.0]);
    assert_eq!((d.read(&m), d.read(&v), d.read(&hyper)), (vec![0.0], vec![0.0], vec![0.1, 0.0]));
    update_scale(&d, &scaler, 2000).unwrap();
    advance(&d, &hyper, Some(&scaler)).unwrap();
    assert_eq!(d.read(&hyper)[1], 1.0);
}

#[test]
fn unscale_divides_and_finds_inf_and_nan() {
    let d = Device::cpu();
    let scaler = d.dense(DType::F32, &[3], &[65536.0, 0.0, 0.0]);
    let out = unscale(&d, &d.dense(DType::F32, &[1], &[3e38]), &scaler).unwrap();
    close(&out, &[4.57763671875e33], 1e-6, "large");
    assert_eq!(d.read(&scaler)[2], 0.0);
    for (dtype, bad) in [(DType::F32, f64::INFINITY), (DType::F64, f64::NAN), (DType::F32, -f64::INFINITY)] {
        let scaler = d.dense(DType::F32, &[3], &[2.0, 0.0, 0.0]);
        let mut g = vec![1.0; 20_000];
        g[19_999] = bad;
        assert_eq!(unscale(&d, &d.dense(dtype, &[20_000], &g), &scaler).unwrap()[..2], [0.5, 0.5]);
        // The found-inf of one gradient stays for the next.
        unscale(&d, &d.dense(dtype, &[1], &[1.0]), &scaler).unwrap();
        assert_eq!(d.read(&scaler)[2], 1.0);
    }
    let half = d.dense(DType::F16, &[1], &[1.0]);
    assert!(matches!(unscale(&d, &half, &scaler), Err(KernelError::DType { dtype: DType::F16, .. })));
}

#[test]
fn the_scale_grows_backs_off_and_stays_finite() {
    let d = Device::cpu();
    let top = 2f64.powi(127);
    let scaler = d.dense(DType::F32, &[3], &[top, 0.0, 0.0]);
    assert_eq!(update_scale(&d, &scaler, 1).unwrap(), [top, 0.0, 0.0]);
    assert_eq!(update_scale(&d, &scaler, 1).unwrap(), [top, 0.0, 0.0]);
    let scaler = d.dense(DType::F32, &[3], &[8.0, 0.0, 0.0]);
    assert_eq!(update_scale(&d, &scaler, 2).unwrap(), [8.0, 1.0, 0.0]);
    assert_eq!(update_scale(&d, &scaler, 2).unwrap(), [16.0, 0.0, 0.0]);
    let scaler = d.dense(DType::F32, &[3], &[8.0, 1.0, 1.0]);
    assert_eq!(update_scale(&d, &scaler, 2).unwrap(), [4.0, 0.0, 0.0]);
}
