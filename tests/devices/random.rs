//! Random numbers are a function of seed and position: the same on every device.

use crate::support::{bits, cases, close, gradient, leaf, read};
use kiln::{Backward, DType, Device, Error, Result, Tensor, eval};

cases![
    uniform_numbers_and_masks_are_those_of_the_host,
    normal_numbers_are_near_those_of_the_host,
    a_seed_starts_anew_and_a_state_resumes,
    distributions_have_their_moments,
    dropout_at_its_limits,
    evaluation_draws_nothing,
];

type Program<'a> = dyn Fn(&Device) -> Result<Tensor> + 'a;

/// What a program draws on a device from a seed.
fn draws(device: &Device, f: impl Fn(&Device) -> Result<Tensor>) -> Result<Tensor> {
    let state = device.generator_state();
    device.manual_seed(1234);
    // Not at the start of the generator.
    Tensor::rand(3, DType::F32, device)?;
    let drawn = f(device)?.to_device(&Device::cpu());
    device.set_generator_state(state);
    drawn
}

fn uniform_numbers_and_masks_are_those_of_the_host(d: &Device) -> Result<()> {
    let host = Device::cpu();
    for n in [1, 3, 4, 1000, 70_001] {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let programs: [&Program; 3] =
                [&|d| Tensor::rand(n, dtype, d), &|d| Tensor::rand_range(-0.1, 0.1, (n, 1), dtype, d), &|d| {
                    Tensor::full(1.5, n, dtype, d)?.dropout(0.3)
                }];
            for (i, program) in programs.iter().enumerate() {
                assert!(bits(&draws(d, program)?)? == bits(&draws(&host, program)?)?, "program {i} of {n} {dtype}");
            }
        }
        let whole = |d: &Device| Tensor::randint(-5, 1 << 31, n, d);
        assert!(draws(d, whole)?.to_vec::<i64>()? == draws(&host, whole)?.to_vec::<i64>()?);
        let mask = |d: &Device| Tensor::ones((n, 2), DType::F32, d)?.t()?.dropout(0.5);
        assert!(bits(&draws(d, mask)?)? == bits(&draws(&host, mask)?)?);
    }
    Ok(())
}

fn normal_numbers_are_near_those_of_the_host(d: &Device) -> Result<()> {
    for (dtype, near) in [(DType::F32, 1e-6), (DType::F64, 1e-6), (DType::F16, 1e-3), (DType::BF16, 1e-2)] {
        let program = |d: &Device| Tensor::normal(1.0, 2.0, (123, 457), dtype, d);
        close(&read(&draws(d, program)?)?, &read(&draws(&Device::cpu(), program)?)?, near, &format!("normal {dtype}"));
    }
    Ok(())
}

fn a_seed_starts_anew_and_a_state_resumes(d: &Device) -> Result<()> {
    let draw = || Tensor::rand(100, DType::F32, d).and_then(|t| t.to_vec::<f32>());
    d.manual_seed(7);
    let first = draw()?;
    let state = d.generator_state();
    let second = draw()?;
    assert_ne!(first, second);
    d.set_generator_state(state);
    assert_eq!(draw()?, second);
    d.manual_seed(7);
    assert_eq!(draw()?, first);
    d.manual_seed(8);
    assert_ne!(draw()?, first);
    Ok(())
}

fn distributions_have_their_moments(d: &Device) -> Result<()> {
    let n = 100_000;
    let x = read(&Tensor::rand(n, DType::F32, d)?)?;
    assert!(x.iter().all(|v| (0.0..1.0).contains(v)) && (x.iter().sum::<f64>() / n as f64 - 0.5).abs() < 0.005);
    let x = read(&Tensor::randn(n, DType::F32, d)?)?;
    let (mean, square) = (x.iter().sum::<f64>() / n as f64, x.iter().map(|v| v * v).sum::<f64>() / n as f64);
    assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.03, "{mean} {square}");
    let x = Tensor::randint(-3, 4, n, d)?.to_vec::<i64>()?;
    for v in -3..4 {
        let share = x.iter().filter(|&&u| u == v).count() as f64 / n as f64;
        assert!((share - 1.0 / 7.0).abs() < 0.01, "{v}: {share}");
    }
    assert!(x.iter().all(|v| (-3..4).contains(v)));
    Ok(())
}

fn dropout_at_its_limits(d: &Device) -> Result<()> {
    let x = leaf(&[1., -2., f64::INFINITY, 3.], 4, d)?;
    let y = x.dropout(1.0)?;
    assert_eq!(read(&y)?, [0.0; 4]);
    y.sum_all()?.backward()?;
    assert_eq!(gradient(&x)?, [0.0; 4]);
    assert_eq!(bits(&x.dropout(0.0)?)?, bits(&x)?);
    for p in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(x.dropout(p), Err(Error::Argument { op: "dropout", .. })));
    }
    Ok(())
}

fn evaluation_draws_nothing(d: &Device) -> Result<()> {
    let x = leaf(&[1., 2., 3., 4.], 4, d)?;
    let state = d.generator_state();
    assert_eq!(bits(&eval(|| x.dropout(0.5))?)?, bits(&x)?);
    assert_eq!(bits(&x.dropout(0.0)?)?, bits(&x)?);
    assert_eq!(d.generator_state(), state);
    x.dropout(0.5)?;
    assert_ne!(d.generator_state(), state);
    Ok(())
}
