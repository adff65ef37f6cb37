//! Changes in place next to backward: never a wrong gradient.

mod support;

use kiln_autograd::{Backward, no_grad};
use kiln_tensor::{Error, Result, Tensor};
use support::devices;

#[test]
fn a_saved_tensor_that_changed_names_both_ops() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![1f32, 2.0], 2, &device)?.requires_grad()?;
        let loss = x.square()?.sum_all()?;
        no_grad(|| x.add_(&x.ones_like()?))?;
        match loss.backward() {
            Err(Error::SavedChanged { saved_by: "square", changed_by: "add_", .. }) => {}
            other => panic!("{other:?}"),
        }
        // What backward does not read may change.
        let loss = (&x * 3.0)?.sum_all()?;
        no_grad(|| x.zero_())?;
        loss.backward()?;
    }
    Ok(())
}

#[test]
fn a_change_through_a_view_is_noticed_too() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![1f32, 2.0], 2, &device)?.requires_grad()?;
        let loss = x.exp()?.mul(&x)?.sum_all()?;
        no_grad(|| x.narrow(0, 1, 1)?.fill_(0.0))?;
        assert!(matches!(loss.backward(), Err(Error::SavedChanged { .. })));
        assert!(x.grad().is_err() || x.grad()?.is_none(), "no wrong gradient is left behind");
    }
    Ok(())
}

#[test]
fn writing_a_tracked_value_into_a_region_is_an_error() -> Result<()> {
    for device in devices() {
        let source = Tensor::from_vec(vec![1f64, 2.0], 2, &device)?.requires_grad()?;
        let a = source.copy()?;
        let written = a.narrow(0, 0, 1)?.copy_(&a.narrow(0, 1, 1)?.sin()?);
        assert!(matches!(written, Err(Error::Autograd(_))));
        let plain = source.zeros_like()?;
        assert!(matches!(plain.copy_(&source), Err(Error::Autograd(_))));
        a.sum_all()?.backward()?;
        assert_eq!(source.grad()?.unwrap().to_vec::<f64>()?, [1., 1.]);
    }
    Ok(())
}

#[test]
fn a_step_in_place_between_two_backwards() -> Result<()> {
    for device in devices() {
        let w = Tensor::from_vec(vec![1f64, 2.0], 2, &device)?.requires_grad()?;
        for expected in [[2., 4.], [1., 2.]] {
            if let Some(grad) = w.grad()? {
                no_grad(|| w.add_scaled_(&grad, -0.25))?;
                grad.zero_()?;
            }
            w.square()?.sum_all()?.backward()?;
            assert_eq!(w.grad()?.unwrap().to_vec::<f64>()?, expected);
        }
    }
    Ok(())
}
