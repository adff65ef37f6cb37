//! Loss scaling.

use kiln_autograd::Backward;
use kiln_nn::{GradScaler, GradScalerConfig, Optimizer, Parameter, ScalerState, Sgd, SgdConfig};
use kiln_tensor::{DType, Device, Error, Result, Tensor};

fn param(name: &str, values: &[f32]) -> Result<Parameter> {
    Parameter::new(name, &Tensor::from_slice(values, values.len(), &Device::cpu())?)
}

fn sgd(params: &[Parameter]) -> Result<Sgd> {
    Sgd::new(params.to_vec(), SgdConfig { lr: 1.0, ..Default::default() })
}

fn set_grad(p: &Parameter, grad: &[f32]) -> Result<()> {
    p.set_grad(&Tensor::from_slice(grad, p.dims(), &Device::cpu())?)
}

/// A scaler that has seen a loss, so that steps are allowed.
fn ready(config: GradScalerConfig) -> Result<GradScaler> {
    let mut scaler = GradScaler::new(config)?;
    scaler.scale(&Tensor::scalar(1f32, &Device::cpu())?)?;
    Ok(scaler)
}

#[test]
fn gradients_are_those_of_the_loss_itself() -> Result<()> {
    let p = param("p", &[2.0])?;
    let (mut optimizer, mut scaler) = (sgd(std::slice::from_ref(&p))?, GradScaler::default());
    scaler.scale(&p.square()?.sum_all()?)?.backward()?;
    assert_eq!(p.grad()?.unwrap().to_vec::<f32>()?, [4.0 * 65536.0]);
    scaler.unscale(&mut optimizer)?;
    assert_eq!(p.grad()?.unwrap().to_vec::<f32>()?, [4.0]);
    scaler.step(&mut optimizer)?;
    scaler.update()?;
    assert_eq!((p.to_vec::<f32>()?, scaler.get_scale()?), (vec![-2.0], 65536.0));
    Ok(())
}

#[test]
fn a_half_loss_is_scaled_in_f32() -> Result<()> {
    let mut scaler = GradScaler::default();
    let loss = Tensor::scalar(3f32, &Device::cpu())?.to_dtype(DType::F16)?;
    let scaled = scaler.scale(&loss)?;
    assert_eq!(scaled.to_vec::<f32>()?, [3.0 * 65536.0]);
    Ok(())
}

#[test]
fn an_infinite_gradient_skips_one_step_and_halves_the_scale() -> Result<()> {
    let p = [param("a", &[1.0])?, param("b", &[1.0])?];
    let (mut optimizer, mut scaler) = (sgd(&p)?, ready(Default::default())?);
    set_grad(&p[0], &[f32::INFINITY])?;
    set_grad(&p[1], &[1.0])?;
    scaler.step(&mut optimizer)?;
    scaler.update()?;
    assert_eq!((p[0].to_vec::<f32>()?, p[1].to_vec::<f32>()?), (vec![1.0], vec![1.0]));
    assert_eq!(scaler.get_scale()?, 32768.0);
    // The next step goes through.
    optimizer.zero_grad();
    scaler.scale(&p[0].sum_all()?)?.backward()?;
    scaler.step(&mut optimizer)?;
    scaler.update()?;
    assert_eq!((p[0].to_vec::<f32>()?, scaler.get_scale()?), (vec![0.0], 32768.0));
    Ok(())
}

#[test]
fn a_large_finite_gradient_is_no_overflow() -> Result<()> {
    let p = param("p", &[0.0])?;
    let (mut optimizer, mut scaler) = (sgd(std::slice::from_ref(&p))?, ready(Default::default())?);
    set_grad(&p, &[3e38])?;
    scaler.step(&mut optimizer)?;
    scaler.update()?;
    assert_eq!((p.to_vec::<f32>()?, scaler.get_scale()?), (vec![-4.577_636_7e33], 65536.0));
    Ok(())
}

#[test]
fn the_scale_grows_after_clean_steps_and_stays_finite() -> Result<()> {
    let steps = |scale: f32, interval, n: usize| -> Result<f32> {
        let mut scaler = GradScaler::new(GradScalerConfig { scale, interval, ..Default::default() })?;
        for _ in 0..n {
            scaler.scale(&Tensor::scalar(1f32, &Device::cpu())?)?;
            scaler.update()?;
            assert!(scaler.get_scale()?.is_finite());
        }
        scaler.get_scale()
    };
    assert_eq!(steps(4.0, 3, 2)?, 4.0);
    assert_eq!(steps(4.0, 3, 6)?, 16.0);
    let largest = 2f32.powi(127);
    assert_eq!((steps(largest, 1, 1)?, steps(largest, 1, 2)?), (largest, largest));
    Ok(())
}

#[test]
fn of_two_optimizers_only_the_one_with_an_overflow_skips() -> Result<()> {
    let (a, b) = (param("a", &[1.0])?, param("b", &[1.0])?);
    for bad_first in [true, false] {
        let (mut first, mut second) = (sgd(std::slice::from_ref(&a))?, sgd(std::slice::from_ref(&b))?);
        let mut scaler = ready(GradScalerConfig { scale: 1.0, ..Default::default() })?;
        set_grad(&a, &[if bad_first { f32::NAN } else { 1.0 }])?;
        set_grad(&b, &[if bad_first { 1.0 } else { f32::NAN }])?;
        let before = (a.to_vec::<f32>()?[0], b.to_vec::<f32>()?[0]);
        scaler.unscale(&mut first)?;
        scaler.unscale(&mut second)?;
        scaler.step(&mut first)?;
        scaler.step(&mut second)?;
        scaler.update()?;
        let after = (a.to_vec::<f32>()?[0], b.to_vec::<f32>()?[0]);
        assert_eq!(after, if bad_first { (before.0, before.1 - 1.0) } else { (before.0 - 1.0, before.1) });
        assert_eq!(scaler.get_scale()?, 0.5);
    }
    Ok(())
}

#[test]
fn an_optimizer_without_gradients_steps_to_nowhere() -> Result<()> {
    let (a, b) = (param("a", &[1.0])?, param("b", &[1.0])?);
    let (mut idle, mut busy) = (sgd(std::slice::from_ref(&a))?, sgd(std::slice::from_ref(&b))?);
    let mut scaler = ready(GradScalerConfig { scale: 2.0, ..Default::default() })?;
    set_grad(&b, &[2.0])?;
    scaler.step(&mut idle)?;
    scaler.step(&mut busy)?;
    scaler.update()?;
    assert_eq!((a.to_vec::<f32>()?, b.to_vec::<f32>()?, scaler.get_scale()?), (vec![1.0], vec![0.0], 2.0));
    Ok(())
}

#[test]
fn half_parameters_are_refused_by_name() -> Result<()> {
    let half = Parameter::new("half.weight", &Tensor::zeros(1, DType::F16, &Device::cpu())?)?;
    let wide = param("wide", &[1.0])?;
    wide.set_grad(&Tensor::ones(1, DType::F32, &Device::cpu())?)?;
    half.set_grad(&half.ones_like()?)?;
    let (mut optimizer, mut scaler) = (sgd(&[wide.clone(), half])?, ready(Default::default())?);
    let e = scaler.step(&mut optimizer).unwrap_err();
    assert!(matches!(e, Error::DType { .. }) && e.to_string().contains("half.weight is f16"), "{e}");
    assert_eq!(wide.grad()?.unwrap().to_vec::<f32>()?, [1.0]);
    Ok(())
}

#[test]
fn calls_out_of_order_are_errors() -> Result<()> {
    let p = param("p", &[1.0])?;
    let mut optimizer = sgd(std::slice::from_ref(&p))?;
    let mut scaler = GradScaler::default();
    assert!(scaler.step(&mut optimizer).is_err() && scaler.update().is_err() && scaler.unscale(&mut optimizer).is_err());
    let mut scaler = ready(Default::default())?;
    scaler.unscale(&mut optimizer)?;
    assert!(scaler.unscale(&mut optimizer).is_err());
    scaler.step(&mut optimizer)?;
    assert!(scaler.step(&mut optimizer).is_err() && scaler.unscale(&mut optimizer).is_err());
    scaler.update()?;
    assert!(scaler.update().is_err());
    Ok(())
}

#[test]
fn a_second_loss_may_wait_while_the_first_is_stepped() -> Result<()> {
    let (a, b) = (param("a", &[3.0])?, param("b", &[3.0])?);
    let (mut first, mut second) = (sgd(std::slice::from_ref(&a))?, sgd(std::slice::from_ref(&b))?);
    let mut scaler = GradScaler::default();
    let losses = (scaler.scale(&a.sum_all()?)?, scaler.scale(&b.sum_all()?)?);
    losses.0.backward()?;
    scaler.step(&mut first)?;
    losses.1.backward()?;
    scaler.step(&mut second)?;
    scaler.update()?;
    assert_eq!((a.to_vec::<f32>()?, b.to_vec::<f32>()?), (vec![2.0], vec![2.0]));
    Ok(())
}

#[test]
fn a_scaler_that_is_off_changes_nothing() -> Result<()> {
    let p = param("p", &[1.0])?;
    let (mut optimizer, mut scaler) = (sgd(std::slice::from_ref(&p))?, GradScaler::default().enabled(false));
    scaler.scale(&p.sum_all()?)?.backward()?;
    assert_eq!(p.grad()?.unwrap().to_vec::<f32>()?, [1.0]);
    scaler.unscale(&mut optimizer)?;
    scaler.step(&mut optimizer)?;
    scaler.update()?;
    assert_eq!((p.to_vec::<f32>()?, scaler.get_scale()?), (vec![0.0], 1.0));
    Ok(())
}

#[test]
fn state_survives_saving() -> Result<()> {
    let mut scaler = ready(GradScalerConfig { interval: 3, ..Default::default() })?;
    assert!(scaler.load_state(ScalerState { scale: 8.0, clean_steps: 0 }).is_err());
    scaler.update()?;
    let state = scaler.state()?;
    assert_eq!(state, ScalerState { scale: 65536.0, clean_steps: 1 });
    let mut again = GradScaler::new(GradScalerConfig { interval: 3, ..Default::default() })?;
    again.load_state(state)?;
    for _ in 0..2 {
        again.scale(&Tensor::scalar(1f32, &Device::cpu())?)?;
        again.update()?;
    }
    assert_eq!(again.get_scale()?, 131072.0);
    assert!(again.load_state(ScalerState { scale: f32::INFINITY, clean_steps: 0 }).is_err());
    Ok(())
}

#[test]
fn gradients_unscaled_in_part_are_not_stepped_with() -> Result<()> {
    let (p, q) = (param("p", &[0.0])?, param("q", &[0.0])?);
    let (mut optimizer, mut scaler) = (sgd(&[p.clone(), q.clone()])?, ready(GradScalerConfig::default())?);
    set_grad(&p, &[65536.0])?;
    set_grad(&q, &[65536.0])?;
    let grad = q.grad()?.unwrap();
    let stream = Device::cpu().stream();
    let reading = grad.storage().read(&stream)?;
    assert!(scaler.unscale(&mut optimizer).is_err());
    drop(reading);
    assert!(scaler.step(&mut optimizer).is_err());
    assert_eq!((p.to_vec::<f32>()?, q.to_vec::<f32>()?), (vec![0.0], vec![0.0]));
    // Cleared and computed again, they are good.
    optimizer.zero_grad();
    set_grad(&q, &[65536.0])?;
    scaler.step(&mut optimizer)?;
    assert_eq!(q.to_vec::<f32>()?, [-1.0]);
    Ok(())
}
