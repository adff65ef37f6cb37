//! Loss scaling: steps that are skipped, and a scale that stays finite.

use crate::support::{cases, f32s, gradient, read, tensor};
use kiln::nn::{GradScaler, GradScalerConfig, Optimizer, Parameter, Sgd, SgdConfig};
use kiln::{Backward, DType, Device, Error, Result, Tensor};

cases![
    the_scale_stays_finite_and_survives_saving,
    an_optimizer_without_gradients_steps_to_nowhere,
    half_parameters_are_refused_by_name,
    a_large_finite_gradient_is_no_overflow,
    an_infinite_gradient_skips_all_groups_of_its_optimizer,
];

fn param(name: &str, values: &[f64], d: &Device) -> Result<Parameter> {
    Parameter::new(name, &f32s(values, values.len(), d)?)
}

fn set_grad(p: &Parameter, values: &[f64]) -> Result<()> {
    p.set_grad(&f32s(values, p.dims(), p.device())?)
}

fn sgd(params: &[&Parameter]) -> Result<Sgd> {
    Sgd::new(params.iter().map(|&p| p.clone()).collect(), SgdConfig { lr: 1.0, ..Default::default() })
}

/// A scaler that has seen a loss, so that steps are allowed.
fn ready(config: GradScalerConfig, d: &Device) -> Result<GradScaler> {
    let mut scaler = GradScaler::new(config)?;
    scaler.scale(&Tensor::scalar(1f32, d)?)?;
    Ok(scaler)
}

fn the_scale_stays_finite_and_survives_saving(d: &Device) -> Result<()> {
    let largest = 2f32.powi(127);
    let mut scaler = ready(GradScalerConfig { scale: largest, interval: 1, ..Default::default() }, d)?;
    for _ in 0..2 {
        scaler.update()?;
        assert_eq!(scaler.get_scale()?, largest);
        scaler.scale(&Tensor::scalar(1f32, d)?)?;
    }
    scaler.update()?;
    let mut again = GradScaler::default();
    again.load_state(scaler.state()?)?;
    assert_eq!(again.scale(&Tensor::scalar(0.5f32, d)?)?.to_scalar::<f32>()?, 2f32.powi(126));
    assert_eq!(again.state()?, scaler.state()?);
    Ok(())
}

fn an_optimizer_without_gradients_steps_to_nowhere(d: &Device) -> Result<()> {
    let (a, b) = (param("a", &[1.], d)?, param("b", &[1.], d)?);
    let (mut idle, mut busy) = (sgd(&[&a])?, sgd(&[&b])?);
    let mut scaler = ready(GradScalerConfig { scale: 2.0, ..Default::default() }, d)?;
    set_grad(&b, &[2.])?;
    scaler.step(&mut idle)?;
    scaler.step(&mut busy)?;
    scaler.update()?;
    assert_eq!((read(&a)?, read(&b)?, scaler.get_scale()?), (vec![1.], vec![0.], 2.0));
    Ok(())
}

fn half_parameters_are_refused_by_name(d: &Device) -> Result<()> {
    let (half, wide) = (Parameter::new("half.weight", &tensor(&[0.], 1, DType::F16, d)?)?, param("wide", &[1.], d)?);
    half.set_grad(&half.ones_like()?)?;
    set_grad(&wide, &[1.])?;
    let (mut optimizer, mut scaler) = (sgd(&[&wide, &half])?, ready(Default::default(), d)?);
    let e = scaler.step(&mut optimizer).unwrap_err();
    assert!(matches!(e, Error::DType { .. }) && e.to_string().contains("half.weight is f16"), "{e}");
    assert_eq!((gradient(&wide)?, read(&wide)?), (vec![1.], vec![1.]));
    Ok(())
}

fn a_large_finite_gradient_is_no_overflow(d: &Device) -> Result<()> {
    let p = param("p", &[0.], d)?;
    let (mut optimizer, mut scaler) = (sgd(&[&p])?, ready(Default::default(), d)?);
    set_grad(&p, &[3e38])?;
    scaler.step(&mut optimizer)?;
    scaler.update()?;
    assert_eq!((p.to_vec::<f32>()?, scaler.get_scale()?), (vec![-4.577_636_7e33], 65536.0));
    Ok(())
}

fn an_infinite_gradient_skips_all_groups_of_its_optimizer(d: &Device) -> Result<()> {
    let (a, b, c) = (param("a", &[1.], d)?, param("b", &[1.], d)?, param("c", &[1.], d)?);
    for bad in [f64::INFINITY, f64::NAN] {
        let (mut first, mut second) = (sgd(&[&a, &b])?, sgd(&[&c])?);
        let mut scaler = ready(GradScalerConfig { scale: 4.0, ..Default::default() }, d)?;
        set_grad(&a, &[bad])?;
        set_grad(&b, &[4.])?;
        set_grad(&c, &[4.])?;
        let before = read(&c)?[0];
        scaler.step(&mut first)?;
        scaler.step(&mut second)?;
        scaler.update()?;
        assert_eq!((read(&a)?, read(&b)?, read(&c)?), (vec![1.], vec![1.], vec![before - 1.0]));
        assert_eq!(scaler.get_scale()?, 2.0);
        // The next step goes through.
        first.zero_grad();
        scaler.scale(&(&*a - &a.detach())?.sum_all()?)?.backward()?;
        assert_eq!(gradient(&a)?, [2.0]);
        scaler.unscale(&mut first)?;
        assert_eq!(gradient(&a)?, [1.0]);
        set_grad(&a, &[0.])?;
        scaler.step(&mut first)?;
        scaler.update()?;
    }
    Ok(())
}
