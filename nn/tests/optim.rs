//! Optimizers: values, state, memory.

use kiln_autograd::Backward;
use kiln_nn::{
    Adam, AdamConfig, AdamW, AdamWConfig, Optimizer, Parameter, Sgd, SgdConfig, clip_grad_norm, clip_grad_norm_unchecked,
};
use kiln_tensor::{DType, Device, Error, Result, Tensor};

fn params(values: &[&[f32]]) -> Result<Vec<Parameter>> {
    let device = Device::cpu();
    let make = |(i, v): (usize, &&[f32])| Parameter::new(&format!("p{i}"), &Tensor::from_slice(v, v.len(), &device)?);
    values.iter().enumerate().map(make).collect()
}

fn set_grad(p: &Parameter, grad: &[f32]) -> Result<()> {
    p.set_grad(&Tensor::from_slice(grad, p.dims(), &Device::cpu())?.to_dtype(p.dtype())?)
}

fn close(a: f32, b: f64) {
    assert!((a as f64 - b).abs() <= 1e-6 * b.abs(), "{a} {b}");
}

/// The values of one number stepped with gradients 0.5, -0.25, 0.125.
fn trajectory(optimizer: &mut dyn Optimizer) -> Result<Vec<f32>> {
    let p = optimizer.parameters()[0].clone();
    [0.5, -0.25, 0.125]
        .iter()
        .map(|&g| {
            set_grad(&p, &[g])?;
            optimizer.step()?;
            p.to_vec::<f32>().map(|v| v[0])
        })
        .collect()
}

#[test]
fn adamw_decays_before_the_step() -> Result<()> {
    let config = AdamWConfig { lr: 0.1, weight_decay: 0.1, ..Default::default() };
    let values = trajectory(&mut AdamW::new(params(&[&[1.0]])?, config)?)?;
    values.into_iter().zip([0.890000002, 0.854466298688, 0.811878721910]).for_each(|(a, b)| close(a, b));
    Ok(())
}

#[test]
fn adam_adds_weight_decay_to_the_gradient() -> Result<()> {
    let config = AdamConfig { lr: 0.1, weight_decay: 0.1, ..Default::default() };
    let values = trajectory(&mut Adam::new(params(&[&[1.0]])?, config)?)?;
    values.into_iter().zip([0.900000001667, 0.854441367462, 0.800569472086]).for_each(|(a, b)| close(a, b));
    Ok(())
}

#[test]
fn sgd_follows_pytorch() -> Result<()> {
    let run = |config| trajectory(&mut Sgd::new(params(&[&[1.0]])?, config)?);
    let plain = SgdConfig { lr: 0.1, ..Default::default() };
    run(plain)?.into_iter().zip([0.95, 0.975, 0.9625]).for_each(|(a, b)| close(a, b));
    // Buffers 0.5, 0.9 * 0.5 - 0.125 = 0.325, 0.9 * 0.325 + 0.0625 = 0.355: the first step is not dampened.
    let damped = SgdConfig { momentum: 0.9, dampening: 0.5, ..plain };
    run(damped)?.into_iter().zip([0.95, 0.9175, 0.882]).for_each(|(a, b)| close(a, b));
    // Steps g + 0.9 b with b = 0.5, 0.2, 0.305.
    let nesterov = SgdConfig { momentum: 0.9, nesterov: true, ..plain };
    run(nesterov)?.into_iter().zip([0.905, 0.912, 0.87205]).for_each(|(a, b)| close(a, b));
    Ok(())
}

#[test]
fn settings_out_of_range_are_errors() -> Result<()> {
    let p = || params(&[&[1.0]]);
    assert!(Sgd::new(p()?, SgdConfig { nesterov: true, ..Default::default() }).is_err());
    assert!(Sgd::new(p()?, SgdConfig { lr: f64::NAN, ..Default::default() }).is_err());
    assert!(Adam::new(p()?, AdamConfig { beta1: 1.0, ..Default::default() }).is_err());
    assert!(AdamW::new(p()?, Default::default())?.set_lr(-1.0).is_err());
    let twice = p()?[0].clone();
    assert!(Adam::new(vec![twice.clone(), twice], Default::default()).is_err());
    Ok(())
}

#[test]
fn half_parameters_keep_state_in_f32_and_stay_put_under_zero_gradients() -> Result<()> {
    let half = Tensor::from_slice(&[1f32, -2.0, 0.5], 3, &Device::cpu())?.to_dtype(DType::F16)?;
    let p = Parameter::new("p", &half)?;
    let mut adam = Adam::new(vec![p.clone()], Default::default())?;
    for _ in 0..3 {
        set_grad(&p, &[0.0; 3])?;
        adam.step()?;
    }
    assert_eq!(p.to_dtype(DType::F32)?.to_vec::<f32>()?, [1.0, -2.0, 0.5]);
    assert_eq!(adam.state_dict()?[1].1.dtype(), DType::F32);
    Ok(())
}

#[test]
fn a_parameter_without_gradient_is_left_alone() -> Result<()> {
    let p = params(&[&[1.0], &[1.0]])?;
    let mut adam = AdamW::new(p.clone(), AdamWConfig { lr: 0.1, weight_decay: 0.5, ..Default::default() })?;
    set_grad(&p[0], &[1.0])?;
    adam.step()?;
    assert_eq!(p[1].to_vec::<f32>()?, [1.0]);
    assert!(p[0].to_vec::<f32>()?[0] < 1.0);
    Ok(())
}

#[test]
fn a_late_parameter_is_stepped_as_if_alone() -> Result<()> {
    let config = AdamConfig { lr: 0.1, ..Default::default() };
    let alone = params(&[&[1.0]])?;
    let mut only = Adam::new(alone.clone(), config)?;
    let both = params(&[&[1.0], &[1.0]])?;
    let mut adam = Adam::new(both.clone(), config)?;
    for step in 0..6 {
        // The second parameter has gradients in steps 2, 3 and 5.
        adam.zero_grad();
        set_grad(&both[0], &[0.5])?;
        if [2, 3, 5].contains(&step) {
            set_grad(&both[1], &[step as f32])?;
            set_grad(&alone[0], &[step as f32])?;
            only.step()?;
        }
        adam.step()?;
        assert_eq!(both[1].to_vec::<f32>()?, alone[0].to_vec::<f32>()?, "step {step}");
    }
    Ok(())
}

#[test]
fn the_learning_rate_can_change_between_steps() -> Result<()> {
    let p = params(&[&[1.0]])?;
    let mut sgd = Sgd::new(p.clone(), SgdConfig { lr: 0.1, ..Default::default() })?;
    for (lr, expected) in [(0.1, 0.9), (0.05, 0.85), (0.025, 0.825)] {
        sgd.set_lr(lr)?;
        set_grad(&p[0], &[1.0])?;
        sgd.step()?;
        close(p[0].to_vec::<f32>()?[0], expected);
    }
    assert_eq!(sgd.lr(), 0.025);
    Ok(())
}

#[test]
fn a_run_resumes_from_saved_state() -> Result<()> {
    let config = AdamWConfig { lr: 0.1, ..Default::default() };
    let p = params(&[&[1.0], &[2.0]])?;
    let mut adam = AdamW::new(p.clone(), config)?;
    let step = |adam: &mut AdamW, grad: f32| -> Result<()> {
        let p = adam.parameters().to_vec();
        set_grad(&p[0], &[grad])?;
        adam.step()
    };
    step(&mut adam, 0.5)?;
    adam.set_lr(0.2)?;
    let (state, value) = (adam.state_dict()?, p[0].to_vec::<f32>()?);
    step(&mut adam, -0.25)?;
    let resumed = params(&[&value, &[2.0]])?;
    let mut again = AdamW::new(resumed.clone(), config)?;
    again.load_state_dict(&state)?;
    step(&mut again, -0.25)?;
    assert_eq!((again.lr(), resumed[0].to_vec::<f32>()?), (0.2, p[0].to_vec::<f32>()?));
    Ok(())
}

#[test]
fn state_that_does_not_fit_is_refused() -> Result<()> {
    let device = Device::cpu();
    let mut adam = Adam::new(params(&[&[1.0]])?, Default::default())?;
    let step = ("p0.step".to_owned(), Tensor::scalar(1f64, &device)?);
    let missing = adam.load_state_dict(std::slice::from_ref(&step)).unwrap_err().to_string();
    assert!(missing.contains("p0.exp_avg"), "{missing}");
    let unknown = adam.load_state_dict(&[("q.step".to_owned(), Tensor::scalar(1f64, &device)?)]).unwrap_err().to_string();
    assert!(unknown.contains("q.step"), "{unknown}");
    let wide = Tensor::zeros(2, DType::F32, &device)?;
    let all = [step, ("p0.exp_avg".to_owned(), wide.clone()), ("p0.exp_avg_sq".to_owned(), wide)];
    assert!(adam.load_state_dict(&all).unwrap_err().to_string().contains("[2]"));
    Ok(())
}

#[test]
fn a_step_records_no_history() -> Result<()> {
    let p = params(&[&[1.0]])?;
    let mut adam = AdamW::new(p.clone(), Default::default())?;
    set_grad(&p[0], &[1.0])?;
    adam.step()?;
    assert!(p[0].node().is_none());
    assert!(adam.state_dict()?.iter().all(|(_, t)| !t.tracked()));
    Ok(())
}

#[test]
fn a_step_before_backward_of_the_old_graph_is_noticed() -> Result<()> {
    let p = params(&[&[1.0]])?;
    let mut sgd = Sgd::new(p.clone(), Default::default())?;
    let loss = p[0].square()?.sum_all()?;
    set_grad(&p[0], &[1.0])?;
    sgd.step()?;
    assert!(matches!(loss.backward(), Err(Error::SavedChanged { changed_by: "sgd", .. })));
    sgd.zero_grad();
    Ok(())
}

#[test]
fn a_partial_gradient_is_refused_before_anything_changes() -> Result<()> {
    let p = params(&[&[1.0], &[1.0]])?;
    let mut sgd = Sgd::new(p.clone(), SgdConfig { lr: 0.1, ..Default::default() })?;
    set_grad(&p[0], &[1.0])?;
    // The gradient of the second arrives, then backward of the first fails.
    let broken = p[0].square()?;
    let loss = broken.add(&p[1])?.sum_all()?;
    broken.sum_all()?.backward()?;
    assert!(loss.backward().is_err());
    assert!(sgd.step().is_err());
    assert_eq!(p[0].to_vec::<f32>()?, [1.0]);
    sgd.zero_grad();
    sgd.step()
}

#[test]
fn clipping_scales_by_the_global_norm() -> Result<()> {
    let p = params(&[&[0.0], &[0.0], &[0.0]])?;
    set_grad(&p[0], &[3.0])?;
    set_grad(&p[1], &[4.0])?;
    close(clip_grad_norm(&p, 1.0)? as f32, 5.0);
    close(p[0].grad()?.unwrap().to_vec::<f32>()?[0], 0.59999988);
    close(p[1].grad()?.unwrap().to_vec::<f32>()?[0], 0.79999984);
    close(clip_grad_norm(&p, 10.0)? as f32, 1.0);
    close(p[0].grad()?.unwrap().to_vec::<f32>()?[0], 0.59999988);
    Ok(())
}

#[test]
fn huge_and_tiny_gradients_have_norms() -> Result<()> {
    let p = params(&[&[0.0; 2], &[0.0; 2]])?;
    for (g, norm) in [(1e20, 2e20), (1e-30, 2e-30), (0.0, 0.0)] {
        p.iter().try_for_each(|p| set_grad(p, &[g; 2]))?;
        close(clip_grad_norm(&p, 1.0)? as f32, norm);
    }
    assert_eq!(p[0].grad()?.unwrap().to_vec::<f32>()?, [0.0; 2]);
    Ok(())
}

#[test]
fn gradients_that_are_not_finite_are_an_error_and_untouched() -> Result<()> {
    let p = params(&[&[0.0], &[0.0]])?;
    for bad in [f32::INFINITY, f32::NAN] {
        set_grad(&p[0], &[1.0])?;
        set_grad(&p[1], &[bad])?;
        let e = clip_grad_norm(&p, 0.5).unwrap_err().to_string();
        assert!(e.contains("p1"), "{e}");
        assert!(!clip_grad_norm_unchecked(&p, 0.5)?.to_scalar::<f32>()?.is_finite());
        assert_eq!(p[0].grad()?.unwrap().to_vec::<f32>()?, [1.0]);
    }
    Ok(())
}

#[test]
fn parameters_on_two_devices_are_an_error() -> Result<()> {
    let there = Tensor::ones(1, DType::F32, &Device::dry_run("1GiB")?)?;
    let both = vec![params(&[&[1.0]])?.remove(0), Parameter::new("far", &there)?];
    let e = Sgd::new(both, SgdConfig::default()).err().expect("an error").to_string();
    assert!(e.contains("far") && e.contains("dry-run"), "{e}");
    Ok(())
}

#[test]
fn a_state_with_an_impossible_number_of_steps_is_an_error() -> Result<()> {
    let p = params(&[&[1.0]])?;
    set_grad(&p[0], &[1.0])?;
    let mut optimizer = Adam::new(p, AdamConfig::default())?;
    optimizer.step()?;
    for steps in [f64::NAN, f64::INFINITY, -1.0, 0.5] {
        let mut state = optimizer.state_dict()?;
        let at = state.iter().position(|(name, _)| name == "p0.step").expect("steps");
        state[at].1 = Tensor::full(steps, 1, DType::F64, &Device::cpu())?;
        assert!(optimizer.load_state_dict(&state).is_err(), "{steps}");
    }
    Ok(())
}
