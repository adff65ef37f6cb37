//! Modes of a thread: set by closures, restored on return, error and panic, unknown to other threads.

use crate::support::{cases, f32s, gradient, leaf, read};
use kiln::tensor::modes::{is_grad_enabled, is_training};
use kiln::{Backward, DType, Device, Error, Result, Tensor, autocast, enable_grad, eval, grad, no_grad, train};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

cases![
    a_panic_restores_every_mode,
    modes_do_not_cross_threads,
    enabled_gradients_survive_an_inner_grad,
    casts_of_autocast_are_new_for_every_use,
    autocast_casts_the_matmul_family_alone,
    autocast_follows_a_weight_that_changes,
];

fn a_panic_restores_every_mode(d: &Device) -> Result<()> {
    let stream = d.new_stream()?;
    let before = d.stream().id();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        no_grad(|| {
            eval(|| {
                d.with_stream(&stream, || {
                    assert!(!is_grad_enabled() && !is_training());
                    let _ = autocast::<()>(DType::F16, || resume_unwind(Box::new(())));
                })
            })
        })
    }));
    assert!(panicked.is_err() && is_grad_enabled() && is_training() && d.stream().id() == before);
    let failed: Result<()> = no_grad(|| Err(Error::message("early")));
    assert!(failed.is_err() && is_grad_enabled());
    let x = leaf(&[1.; 4], (2, 2), d)?;
    assert_eq!(x.matmul(&x)?.dtype(), DType::F32);
    Ok(())
}

fn modes_do_not_cross_threads(d: &Device) -> Result<()> {
    let x = leaf(&[1.], 1, d)?;
    let there =
        || std::thread::scope(|s| s.spawn(|| x.exp().map(|y| y.tracked() && is_training())).join().expect("the thread ends"));
    assert!(no_grad(|| eval(there))?);
    assert!(!no_grad(|| x.exp())?.tracked() && no_grad(|| enable_grad(|| x.exp()))?.tracked() && eval(|| train(is_training)));
    Ok(())
}

fn enabled_gradients_survive_an_inner_grad(d: &Device) -> Result<()> {
    let x = leaf(&[2.], 1, d)?;
    let inner = grad(&x.square()?.sum_all()?, &[&x])?;
    assert!(is_grad_enabled());
    (&x * &inner[0])?.sum_all()?.backward()?;
    assert_eq!(gradient(&x)?, [4.]);
    Ok(())
}

fn casts_of_autocast_are_new_for_every_use(d: &Device) -> Result<()> {
    for swapped in [false, true] {
        let (x, w) = (Tensor::ones((2, 2), DType::F32, d)?, leaf(&[1., 2., 3., 4.], (2, 2), d)?);
        autocast(DType::BF16, || {
            if !swapped {
                no_grad(|| x.matmul(&w))?;
            }
            let y = x.matmul(&w)?;
            if swapped {
                no_grad(|| x.matmul(&w))?;
            }
            y.sum_all()?.backward()?;
            x.matmul(&w)?.sum_all()?.backward()
        })?;
        assert_eq!(gradient(&w)?, [4.; 4]);
    }
    Ok(())
}

fn autocast_casts_the_matmul_family_alone(d: &Device) -> Result<()> {
    let (x, w) = (leaf(&[0.5; 4], (2, 2), d)?, leaf(&[1.; 4], (2, 2), d)?);
    for low in [DType::F16, DType::BF16] {
        autocast(low, || {
            let h = x.linear(&w, None)?;
            assert_eq!(
                (h.dtype(), x.matmul(&w)?.dtype(), h.exp()?.dtype(), (&h + &x)?.dtype()),
                (low, low, DType::F32, DType::F32)
            );
            assert_eq!(autocast(DType::F32, || x.matmul(&w))?.dtype(), DType::F32);
            assert_eq!(h.mse_loss(&h.detach())?.dtype(), DType::F32);
            h.relu()?.sum_all()?.to_dtype(DType::F32)?.backward()
        })?;
        assert_eq!(w.grad()?.unwrap().dtype(), DType::F32);
    }
    assert!(matches!(autocast(DType::U8, || Ok(())), Err(Error::DType { op: "autocast", .. })));
    assert_eq!(x.matmul(&w)?.dtype(), DType::F32);
    Ok(())
}

fn autocast_follows_a_weight_that_changes(d: &Device) -> Result<()> {
    let (x, w) = (f32s(&[1.], (1, 1), d)?, leaf(&[1.], (1, 1), d)?);
    autocast(DType::F16, || {
        assert_eq!(read(&x.matmul(&w)?)?, [1.]);
        no_grad(|| w.fill_(3))?;
        assert_eq!(read(&x.matmul(&w)?)?, [3.]);
        Ok(())
    })
}
