//! Optimizers and clipping: known trajectories, and steps that change nothing.

use crate::support::{cases, each_close, f32s, gradient, read, tensor};
use kiln::nn::{
    Adam, AdamConfig, AdamW, AdamWConfig, Optimizer, Parameter, Sgd, SgdConfig, clip_grad_norm, clip_grad_norm_unchecked,
};
use kiln::{DType, Device, Error, Result};

cases![
    trajectories_are_the_known_ones,
    half_parameters_keep_their_state_in_f32,
    clipping_is_by_the_global_norm,
    gradients_that_are_not_finite_are_an_error,
    large_parameters_step_as_small_ones_do,
    a_run_resumes_from_its_state,
];

fn param(name: &str, values: &[f64], d: &Device) -> Result<Parameter> {
    Parameter::new(name, &f32s(values, values.len(), d)?)
}

fn set_grad(p: &Parameter, values: &[f64]) -> Result<()> {
    p.set_grad(&tensor(values, p.dims(), p.dtype(), p.device())?)
}

/// The values of one number, 1 at first, stepped with gradients 0.5, -0.25, 0.125.
fn trajectory<O: Optimizer>(d: &Device, make: impl FnOnce(Vec<Parameter>) -> Result<O>) -> Result<Vec<f64>> {
    let p = param("p", &[1.0], d)?;
    let mut optimizer = make(vec![p.clone()])?;
    [0.5, -0.25, 0.125]
        .iter()
        .map(|&g| {
            set_grad(&p, &[g])?;
            optimizer.step()?;
            Ok(read(&p)?[0])
        })
        .collect()
}

fn trajectories_are_the_known_ones(d: &Device) -> Result<()> {
    let adamw = AdamWConfig { lr: 0.1, weight_decay: 0.1, ..Default::default() };
    each_close(&trajectory(d, |p| AdamW::new(p, adamw))?, &[0.890000002, 0.854466298688, 0.811878721910], 1e-6);
    let adam = AdamConfig { lr: 0.1, weight_decay: 0.1, ..Default::default() };
    each_close(&trajectory(d, |p| Adam::new(p, adam))?, &[0.900000001667, 0.854441367462, 0.800569472086], 1e-6);
    let sgd = SgdConfig { lr: 0.1, ..Default::default() };
    each_close(&trajectory(d, |p| Sgd::new(p, sgd))?, &[0.95, 0.975, 0.9625], 1e-6);
    let nesterov = SgdConfig { momentum: 0.9, nesterov: true, ..sgd };
    each_close(&trajectory(d, |p| Sgd::new(p, nesterov))?, &[0.905, 0.912, 0.87205], 1e-6);
    Ok(())
}

fn half_parameters_keep_their_state_in_f32(d: &Device) -> Result<()> {
    for dtype in [DType::F16, DType::BF16] {
        let p = Parameter::new("p", &tensor(&[1., -2., 0.5], 3, dtype, d)?)?;
        let mut adam = Adam::new(vec![p.clone()], Default::default())?;
        for _ in 0..3 {
            set_grad(&p, &[0.; 3])?;
            adam.step()?;
        }
        assert_eq!(read(&p)?, [1., -2., 0.5]);
        assert!(adam.state_dict()?.iter().filter(|(name, _)| name.contains("exp_avg")).all(|(_, t)| t.dtype() == DType::F32));
    }
    Ok(())
}

fn clipping_is_by_the_global_norm(d: &Device) -> Result<()> {
    let p = [param("a", &[0.], d)?, param("b", &[0.], d)?, param("none", &[0.], d)?];
    set_grad(&p[0], &[3.])?;
    set_grad(&p[1], &[4.])?;
    each_close(&[clip_grad_norm(&p, 1.0)?], &[5.0], 1e-6);
    each_close(&[gradient(&p[0])?, gradient(&p[1])?].concat(), &[0.59999988, 0.79999984], 1e-6);
    clip_grad_norm(&p, 10.0)?;
    each_close(&gradient(&p[0])?, &[0.59999988], 1e-6);
    let p = [param("a", &[0.; 2], d)?, param("b", &[0.; 2], d)?];
    for (g, norm) in [(1e20, 2e20), (1e-30, 2e-30), (0.0, 0.0)] {
        p.iter().try_for_each(|p| set_grad(p, &[g; 2]))?;
        each_close(&[clip_grad_norm(&p, 1.0)?], &[norm], 1e-6);
    }
    assert_eq!(gradient(&p[0])?, [0.; 2]);
    Ok(())
}

fn gradients_that_are_not_finite_are_an_error(d: &Device) -> Result<()> {
    let p = [param("good", &[0.], d)?, param("bad", &[0.], d)?];
    for bad in [f64::INFINITY, f64::NAN] {
        set_grad(&p[0], &[1.])?;
        set_grad(&p[1], &[bad])?;
        let e = clip_grad_norm(&p, 0.5).unwrap_err().to_string();
        assert!(e.contains("bad"), "{e}");
        assert!(!read(&clip_grad_norm_unchecked(&p, 0.5)?)?[0].is_finite());
        assert_eq!(gradient(&p[0])?, [1.]);
    }
    Ok(())
}

fn large_parameters_step_as_small_ones_do(d: &Device) -> Result<()> {
    let n = 100_003;
    let (large, small) = (param("large", &vec![1.; n], d)?, param("small", &[1.], d)?);
    let make = |p: &Parameter| AdamW::new(vec![p.clone()], AdamWConfig { lr: 0.1, ..Default::default() });
    let (mut a, mut b) = (make(&large)?, make(&small)?);
    for g in [0.5, -0.25, 0.125] {
        set_grad(&large, &vec![g; n])?;
        set_grad(&small, &[g])?;
        a.step()?;
        b.step()?;
    }
    let wanted = read(&small)?[0];
    assert!(read(&large)?.iter().all(|&v| v == wanted));
    Ok(())
}

fn a_run_resumes_from_its_state(d: &Device) -> Result<()> {
    let p = param("p", &[1., 2.], d)?;
    let mut adam = AdamW::new(vec![p.clone()], Default::default())?;
    set_grad(&p, &[0.5, -1.])?;
    adam.step()?;
    let resumed = param("p", &read(&p)?, d)?;
    let mut again = AdamW::new(vec![resumed.clone()], AdamWConfig { lr: 7.0, ..Default::default() })?;
    again.load_state_dict(&adam.state_dict()?)?;
    for (p, optimizer) in [(&p, &mut adam), (&resumed, &mut again)] {
        set_grad(p, &[-0.25, 3.])?;
        optimizer.step()?;
    }
    assert_eq!(read(&p)?, read(&resumed)?);
    let e = again.load_state_dict(&[("q.step".into(), f32s(&[1.], (), d)?)]).unwrap_err();
    assert!(
        matches!(e, Error::Argument { .. } | Error::Shape { .. } | Error::Message(_)) && e.to_string().contains("q.step"),
        "{e}"
    );
    Ok(())
}
