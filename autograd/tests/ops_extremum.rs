//! Largest and smallest elements: gradients, ties, and that discrete results carry no history.

mod support;

use kiln_autograd::Backward;
use kiln_tensor::{DType, Device, Result, Tensor};
use support::{check, check_values, devices};

fn leaf(values: &[f32], device: &Device) -> Result<Tensor> {
    Tensor::from_slice(values, values.len(), device)?.requires_grad()
}
fn grad(t: &Tensor) -> Result<Vec<f32>> {
    t.grad()?.expect("a gradient").to_dtype(DType::F32)?.to_vec()
}

/// Values far from each other along every dim, also where a form repeats a row or a column.
const APART: &[f64] = &[0.3, -1.2, 2.5, 1.1, 0.9, -0.4];

#[test]
fn extrema_over_dims_without_ties() {
    check_values(&[(APART, &[6])], |x| x[0].reshape((2, 3))?.amax([0, 1]));
    check_values(&[(APART, &[6])], |x| x[0].reshape((2, 3))?.amin([1]));
    check(&[&[2, 3]], |x| x[0].mul(&Tensor::arange(1, 7, 1, DType::F64, x[0].device())?.reshape((2, 3))?)?.amax_keepdim([0]));
    check(&[&[0, 3]], |x| x[0].amax([1]));
}

#[test]
fn extrema_along_a_dim() {
    check_values(&[(APART, &[6])], |x| x[0].reshape((2, 3))?.max(0));
    check_values(&[(APART, &[6])], |x| x[0].reshape((2, 3))?.t()?.min_keepdim(0));
    check_values(&[(APART, &[6])], |x| Ok(x[0].reshape((3, 2))?.max_with_indices(-1)?.0));
    check(&[&[0, 3]], |x| x[0].min(1));
}

#[test]
fn equals_share_the_gradient_over_dims() -> Result<()> {
    for device in devices() {
        let x = leaf(&[3., 3., 1.], &device)?;
        x.max_all()?.backward()?;
        assert_eq!(grad(&x)?, [0.5, 0.5, 0.]);
        let x = leaf(&[3., 1., 1., 1.], &device)?;
        x.min_all()?.backward()?;
        assert_eq!(grad(&x)?.iter().sum::<f32>(), 1.);
    }
    Ok(())
}

#[test]
fn many_equals_in_sixteen_bits_count_right() -> Result<()> {
    for device in devices() {
        let x = Tensor::zeros((2, 4096), DType::F16, &device)?.requires_grad()?;
        x.amax([1])?.backward_with(&Tensor::full(4096.0, 2, DType::F16, &device)?)?;
        assert_eq!(grad(&x)?, [1.; 8192]);
    }
    Ok(())
}

#[test]
fn the_first_of_equals_has_the_gradient_along_a_dim() -> Result<()> {
    for device in devices() {
        let x = leaf(&[3., 3., 1.], &device)?;
        x.max(0)?.backward()?;
        assert_eq!(grad(&x)?, [1., 0., 0.]);
        let x = leaf(&[3., 1., 1.], &device)?;
        x.min_with_indices(0)?.0.backward()?;
        assert_eq!(grad(&x)?, [0., 1., 0.]);
    }
    Ok(())
}

#[test]
fn indices_carry_no_history() -> Result<()> {
    for device in devices() {
        let x = leaf(&[3., 5., 1.], &device)?;
        assert!(!x.argmax(0)?.tracked() && !x.argmin(0)?.tracked() && !x.max_with_indices(0)?.1.tracked());
    }
    Ok(())
}
