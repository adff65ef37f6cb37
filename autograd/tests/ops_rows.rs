//! Ops over rows: softmax, layer norm, cross entropy, mean squared error, dropout.

mod support;

use approx::assert_relative_eq;
use kiln_autograd::{Backward, autocast, eval};
use kiln_tensor::random::{Position, RandomTrace};
use kiln_tensor::{CrossEntropyConfig, DType, Device, Reduction, Result, Tensor, modes};
use std::sync::Arc;
use support::{check, check_in, devices};

fn cpu() -> Device {
    Device::cpu()
}
fn grad(t: &Tensor) -> Result<Tensor> {
    Ok(t.grad()?.expect("a gradient"))
}
fn error(result: Result<Tensor>) -> String {
    result.expect_err("an error").to_string()
}

#[test]
fn softmax_over_any_dim() {
    let shapes: [&[usize]; 4] = [&[5], &[2, 4], &[2, 3, 4], &[2, 0]];
    for shape in shapes {
        for dim in 0..shape.len() {
            check(&[shape], |x| x[0].softmax(dim));
            check(&[shape], |x| x[0].log_softmax(dim));
        }
    }
}

#[test]
fn log_softmax_stays_finite_far_apart() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![-40.114464f32, 94.69691], 2, &device)?;
        let y = x.log_softmax(0)?.to_vec::<f32>()?;
        assert_relative_eq!(y[0], -134.81137, max_relative = 1e-6);
        assert_eq!(y[1], 0.);
        let x = x.reshape((1, 2, 1, 1))?.expand((1, 2, 33, 50))?;
        assert!(x.log_softmax(1)?.to_vec::<f32>()?.iter().all(|v| v.is_finite()));
    }
    Ok(())
}

#[test]
fn softmax_keeps_sixteen_bits_and_log_softmax_widens_in_autocast() -> Result<()> {
    for device in devices() {
        let x = Tensor::zeros((2, 3), DType::BF16, &device)?;
        let types = |x: &Tensor| Ok((x.softmax(-1)?.dtype(), x.log_softmax(-1)?.dtype()));
        assert_eq!(types(&x)?, (DType::BF16, DType::BF16));
        assert_eq!(autocast(DType::BF16, || types(&x))?, (DType::BF16, DType::F32));
        let leaf = x.requires_grad()?;
        autocast(DType::BF16, || leaf.log_softmax(-1)?.sum_all()?.backward())?;
        assert_eq!(grad(&leaf)?.dtype(), DType::BF16);
    }
    Ok(())
}

#[test]
fn layer_norm_with_and_without_weight_and_bias() {
    let shapes: [&[usize]; 4] = [&[4], &[3, 4], &[2, 2, 5], &[0, 3]];
    for shape in shapes {
        let n = &shape[shape.len() - 1..];
        check(&[shape], |x| x[0].layer_norm(None, None, 1e-5));
        check(&[shape, n], |x| x[0].layer_norm(Some(&x[1]), None, 1e-5));
        check(&[shape, n], |x| x[0].layer_norm(None, Some(&x[1]), 1e-5));
        check(&[shape, n, n], |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5));
    }
    check(&[&[2, 0], &[0], &[0]], |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5));
}

#[test]
fn layer_norm_of_three_dims() -> Result<()> {
    for device in devices() {
        let x = Tensor::arange(0, 16, 1, DType::F64, &device)?.reshape((2, 2, 4))?.requires_grad()?;
        let weight = Tensor::ones(4, DType::F64, &device)?.requires_grad()?;
        let bias = Tensor::zeros(4, DType::F64, &device)?.requires_grad()?;
        let first = Tensor::from_vec(vec![1f64, 0., 0., 0.], 4, &device)?.expand((2, 2, 4))?;
        x.layer_norm(Some(&weight), Some(&bias), 1e-5)?.backward_with(&first)?;
        for row in grad(&x)?.to_vec::<f64>()?.chunks(4) {
            let expected = [0.268330304, -0.357768372, -0.089443435, 0.178881503];
            row.iter().zip(expected).for_each(|(&found, expected)| assert_relative_eq!(found, expected, epsilon = 1e-8));
        }
        assert_relative_eq!(grad(&weight)?.to_vec::<f64>()?[..], [-5.366541680, 0., 0., 0.], epsilon = 1e-8);
        assert_eq!(grad(&bias)?.to_vec::<f64>()?, [4., 0., 0., 0.]);
    }
    Ok(())
}

#[test]
fn layer_norm_does_not_cancel() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![40000f32, 40001., 40002., 40003.], 4, &device)?;
        let y = x.layer_norm(None, None, 0.0)?.to_vec::<f32>()?;
        assert_relative_eq!(y[..], [-1.341635, -0.447212, 0.447212, 1.341635], epsilon = 1e-5);
        let constant = Tensor::full(1234.0, (2, 256), DType::F32, &device)?;
        assert_eq!(constant.layer_norm(None, None, 1e-5)?.to_vec::<f32>()?, [0.; 512]);
        let mut odd = vec![256f32; 10240];
        odd[7] = 255.;
        let y = Tensor::from_vec(odd, 10240, &device)?.layer_norm(None, None, 1e-5)?.to_vec::<f32>()?;
        assert_relative_eq!(y[0], 0.00941238, max_relative = 1e-5);
        assert_relative_eq!(y[7], -96.373404, max_relative = 1e-5);
    }
    Ok(())
}

#[test]
fn layer_norm_of_sixteen_bits_takes_an_f32_weight() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![1f32, 3., -2., 2.], (2, 2), &device)?.to_dtype(DType::F16)?.requires_grad()?;
        let weight = Tensor::ones(2, DType::F32, &device)?.requires_grad()?;
        let bias = Tensor::ones(2, DType::F32, &device)?.requires_grad()?;
        let y = autocast(DType::F16, || x.layer_norm(Some(&weight), Some(&bias), 0.0))?;
        assert_eq!(y.to_dtype(DType::F32)?.to_vec::<f32>()?, [0., 2., 0., 2.]);
        assert_eq!(y.dtype(), DType::F16);
        y.sum_all()?.backward()?;
        assert_eq!(
            (grad(&x)?.dtype(), grad(&weight)?.dtype(), grad(&bias)?.to_vec::<f32>()?),
            (DType::F16, DType::F32, vec![2., 2.])
        );
        let bias = bias.requires_grad()?;
        x.detach().layer_norm(Some(&weight.detach()), Some(&bias), 0.0)?.sum_all()?.backward()?;
        assert_eq!(grad(&bias)?.to_vec::<f32>()?, [2., 2.]);
    }
    Ok(())
}

#[test]
fn layer_norm_refuses_what_does_not_fit() -> Result<()> {
    let (x, short) = (Tensor::zeros((2, 4), DType::F32, &cpu())?, Tensor::zeros(3, DType::F32, &cpu())?);
    assert_eq!(
        error(x.layer_norm(Some(&short), None, 1e-5)),
        "layer_norm: weight and bias have shape [4] for an input of [2, 4], not [3]"
    );
    assert!(x.layer_norm(None, None, -1.0).is_err() && x.layer_norm(None, None, f64::NAN).is_err());
    assert!(x.to_dtype(DType::I64)?.layer_norm(None, None, 1e-5).is_err());
    assert!(Tensor::zeros((), DType::F32, &cpu())?.layer_norm(None, None, 1e-5).is_err());
    Ok(())
}

fn classes(values: &[i64], device: &Device) -> Result<Tensor> {
    Tensor::from_slice(values, values.len(), device)
}

#[test]
fn cross_entropy_reduced_in_every_way() {
    for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
        let config = CrossEntropyConfig { ignore_index: 1, reduction };
        check(&[&[4, 3]], |x| x[0].cross_entropy_with(&classes(&[0, 1, 2, 2], x[0].device())?, config));
        check(&[&[2, 2, 3]], |x| x[0].cross_entropy_with(&classes(&[0, 1, 2, 2], x[0].device())?.reshape((2, 2))?, config));
    }
    let sum = CrossEntropyConfig { reduction: Reduction::Sum, ..Default::default() };
    check(&[&[0, 3]], |x| x[0].cross_entropy_with(&classes(&[], x[0].device())?, sum));
    check(&[&[3]], |x| x[0].cross_entropy(&Tensor::scalar(1i64, x[0].device())?));
}

#[test]
fn cross_entropy_of_equal_logits() -> Result<()> {
    for device in devices() {
        let x = Tensor::zeros((2, 2), DType::F32, &device)?.requires_grad()?;
        let loss = x.cross_entropy(&classes(&[0, 1], &device)?)?;
        assert_relative_eq!(loss.to_scalar::<f32>()?, 2f32.ln(), max_relative = 1e-6);
        loss.backward()?;
        assert_eq!(grad(&x)?.to_vec2::<f32>()?, [[-0.25, 0.25], [0.25, -0.25]]);
    }
    Ok(())
}

#[test]
fn cross_entropy_ignores_padding_and_widens_sixteen_bits() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![1f32, 2., 5., -3.], (2, 2), &device)?.to_dtype(DType::BF16)?.requires_grad()?;
        let loss = x.cross_entropy(&classes(&[1, -100], &device)?)?;
        assert_relative_eq!(loss.to_scalar::<f32>()?, (1f32 + (-1f32).exp()).ln(), max_relative = 1e-6);
        loss.backward()?;
        assert_eq!(grad(&x)?.narrow(0, 1, 1)?.to_dtype(DType::F32)?.to_vec::<f32>()?, [0., 0.]);
        assert!(x.detach().cross_entropy(&classes(&[-100, -100], &device)?)?.to_scalar::<f32>()?.is_nan());
    }
    Ok(())
}

#[test]
fn cross_entropy_refuses_what_does_not_fit() -> Result<()> {
    let x = Tensor::zeros((2, 3), DType::F32, &cpu())?;
    assert_eq!(
        error(x.cross_entropy(&classes(&[0, 1, 2], &cpu())?)),
        "cross_entropy: a target of shape [3] does not fit logits of [2, 3]"
    );
    assert!(error(x.cross_entropy(&classes(&[0, 3], &cpu())?)).contains("index 3 is out of range for a dim of size 3"));
    assert!(error(x.cross_entropy(&classes(&[0, -1], &cpu())?)).contains("-1"));
    assert!(x.cross_entropy(&Tensor::zeros(2, DType::F32, &cpu())?).is_err());
    assert!(x.to_dtype(DType::I64)?.cross_entropy(&classes(&[0, 1], &cpu())?).is_err());
    assert!(Tensor::zeros((2, 0), DType::F32, &cpu())?.cross_entropy(&classes(&[0, 0], &cpu())?).is_err());
    Ok(())
}

#[test]
fn mean_squared_error() -> Result<()> {
    for device in devices() {
        check(&[&[2, 3], &[2, 3]], |x| x[0].mse_loss(&x[1]));
        let x = Tensor::full(400.0, 2, DType::F16, &device)?;
        let zero = x.zeros_like()?;
        assert_eq!(autocast(DType::F16, || x.mse_loss(&zero))?.to_scalar::<f32>()?, 160000.);
        assert!(error(x.mse_loss(&zero.reshape((2, 1))?)).contains("shapes [2] and [2, 1] differ"));
    }
    Ok(())
}

#[test]
fn dropout_masks_and_scales_by_position() {
    // Each call draws at the same position, so that all see one mask.
    let masked = |x: &[Tensor]| {
        let at = RandomTrace::replay(vec![Position { seed: 3, offset: 7 }]);
        modes::scope(|m| m.random = Some(Arc::new(at)), || x[0].dropout(0.4))
    };
    check_in(0.5, 2.0, &[&[3, 4]], masked);
    check_in(0.5, 2.0, &[&[0]], masked);
}

#[test]
fn dropout_at_its_limits() -> Result<()> {
    for device in devices() {
        let x = Tensor::full(f64::INFINITY, 5, DType::F32, &device)?.requires_grad()?;
        let y = x.dropout(1.0)?;
        assert_eq!(y.to_vec::<f32>()?, [0.; 5]);
        y.sum_all()?.backward()?;
        assert_eq!(grad(&x)?.to_vec::<f32>()?, [0.; 5]);
        let x = Tensor::from_vec(vec![0.1f32, -0.0], 2, &device)?;
        let bits = |t: Tensor| Ok::<_, kiln_tensor::Error>(t.to_vec::<f32>()?.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        assert_eq!(bits(x.dropout(0.0)?)?, bits(x.clone())?);
        for p in [-0.1, 1.1, f64::NAN] {
            assert!(error(x.dropout(p)).contains("is not within 0 and 1"));
        }
    }
    Ok(())
}

#[test]
fn dropout_in_evaluation_is_the_identity_and_draws_nothing() -> Result<()> {
    // A dry run has a generator of its own, which no other test moves.
    let device = Device::dry_run("1GiB")?;
    let x = Tensor::zeros(8, DType::F32, &device)?;
    let before = device.generator_state();
    let y = eval(|| x.dropout(0.5))?;
    assert_eq!((y.storage().id(), device.generator_state()), (x.storage().id(), before));
    x.dropout(0.5)?;
    assert_eq!(device.generator_state().offset, before.offset + 2);
    Ok(())
}
