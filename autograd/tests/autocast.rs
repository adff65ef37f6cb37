//! Autocast: which types ops compute in, and that cached casts never go stale.

mod support;

use kiln_autograd::{Backward, autocast, checkpoint_fn, no_grad};
use kiln_tensor::{DType, Device, Result, Tensor};
use support::devices;

fn ones(dims: (usize, usize), device: &Device) -> Result<Tensor> {
    Tensor::ones(dims, DType::F32, device)
}
fn values(t: &Tensor) -> Result<Vec<f32>> {
    let grad = t.grad()?.expect("a gradient");
    assert_eq!(grad.dtype(), t.dtype());
    grad.to_dtype(DType::F32)?.to_vec()
}

#[test]
fn a_cast_made_without_history_does_not_hide_the_weight() -> Result<()> {
    for device in devices() {
        for swapped in [false, true] {
            let (x, w) = (ones((2, 2), &device)?, ones((2, 2), &device)?.requires_grad()?);
            let loss = autocast(DType::BF16, || {
                if swapped {
                    let y = x.matmul(&w)?;
                    no_grad(|| x.matmul(&w))?;
                    return y.sum_all();
                }
                no_grad(|| x.matmul(&w))?;
                x.matmul(&w)?.sum_all()
            })?;
            loss.backward()?;
            assert_eq!(values(&w)?, [2.; 4]);
        }
    }
    Ok(())
}

#[test]
fn families_compute_in_their_types() -> Result<()> {
    for device in devices() {
        let (x, w) = (ones((2, 2), &device)?, ones((2, 2), &device)?);
        let low = x.to_dtype(DType::F16)?;
        autocast(DType::F16, || {
            assert_eq!(x.matmul(&w)?.dtype(), DType::F16);
            assert_eq!(x.linear(&w, Some(&Tensor::ones(2, DType::F32, &device)?))?.dtype(), DType::F16);
            assert_eq!(low.exp()?.dtype(), DType::F32);
            assert_eq!(low.sum_all()?.dtype(), DType::F32);
            assert_eq!(low.add(&x)?.dtype(), DType::F32);
            assert_eq!(low.relu()?.dtype(), DType::F16);
            assert_eq!(low.layer_norm(None, None, 1e-5)?.dtype(), DType::F16);
            let wide = x.to_dtype(DType::F64)?;
            assert_eq!(wide.matmul(&wide)?.dtype(), DType::F64);
            assert_eq!(autocast(DType::F32, || x.matmul(&w))?.dtype(), DType::F32);
            Ok(())
        })?;
        assert_eq!(x.matmul(&w)?.dtype(), DType::F32);
        assert!(autocast(DType::I64, || Ok(())).is_err());
    }
    Ok(())
}

#[test]
fn gradients_come_back_in_the_type_of_the_leaf() -> Result<()> {
    for device in devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
            let x = ones((2, 2), &device)?.to_dtype(dtype)?.requires_grad()?;
            autocast(DType::F16, || x.exp()?.matmul(&x.exp()?)?.sum_all())?.backward()?;
            values(&x)?;
        }
    }
    Ok(())
}

#[test]
fn a_changed_weight_is_cast_anew_and_micro_batches_share_one_cast() -> Result<()> {
    for device in devices() {
        let (x, w) = (ones((1, 1), &device)?, ones((1, 1), &device)?.requires_grad()?);
        let forward = || autocast(DType::BF16, || x.matmul(&w)?.sum_all());
        let (first, second) = (forward()?, forward()?);
        first.backward()?;
        second.backward()?;
        assert_eq!(values(&w)?, [2.]);
        no_grad(|| w.fill_(3.0))?;
        assert_eq!(forward()?.to_scalar::<f32>()?, 3.);
    }
    Ok(())
}

#[test]
fn a_checkpoint_recomputes_in_the_types_of_forward() -> Result<()> {
    for device in devices() {
        let sine = Tensor::arange(0, 16, 1, DType::F32, &device)?.sin()?.reshape((4, 4))?;
        let gradients = |through_checkpoint: bool| -> Result<Vec<Vec<f32>>> {
            let (x, a, b) = (sine.requires_grad()?, sine.t()?.copy()?.requires_grad()?, sine.affine(0.5, 0.1)?.requires_grad()?);
            let (a2, b2) = (a.clone(), b.clone());
            let block = move |xs: &[Tensor]| {
                let h = xs[0].linear(&a2, None)?.relu()?;
                assert_eq!(h.dtype(), DType::BF16);
                let exact = autocast(DType::F32, || xs[0].matmul(&b2))?;
                assert_eq!(exact.dtype(), DType::F32);
                h.linear(&b2, None)?.add(&exact)
            };
            let y = autocast(DType::BF16, || {
                if through_checkpoint { checkpoint_fn(&[&x], block) } else { block(std::slice::from_ref(&x)) }
            })?;
            y.sum_all()?.backward()?;
            [&x, &a, &b].into_iter().map(values).collect()
        };
        assert_eq!(gradients(true)?, gradients(false)?);
    }
    Ok(())
}
