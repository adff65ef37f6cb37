//! Sums, means, views and casts.

mod support;

use kiln_autograd::Backward;
use kiln_tensor::{DType, Result, Tensor};
use support::{check, devices};

#[test]
fn sums_and_means_over_any_dims() {
    let shapes: [&[usize]; 3] = [&[2, 3, 2], &[2, 0, 3], &[1, 4, 1]];
    for shape in shapes {
        check(&[shape], |x| x[0].sum_all());
        check(&[shape], |x| x[0].sum([0, 2]));
        check(&[shape], |x| x[0].sum_keepdim([-2]));
    }
    check(&[&[2, 3, 2]], |x| x[0].mean_all());
    check(&[&[2, 3, 2]], |x| x[0].mean([1]));
    check(&[&[2, 3, 2]], |x| x[0].mean_keepdim([0, 1]));
    check(&[&[]], |x| x[0].sum_all());
}

#[test]
fn views_of_every_kind() {
    check(&[&[2, 3, 2]], |x| x[0].reshape((3, 4)));
    check(&[&[2, 3, 2]], |x| x[0].transpose(0, 2)?.reshape((4, 3)));
    check(&[&[2, 3, 2]], |x| x[0].permute([2, 0, 1]));
    check(&[&[2, 1]], |x| x[0].expand((3, 2, 4)));
    check(&[&[2, 3]], |x| x[0].unsqueeze(1)?.squeeze(1)?.flatten_all());
    check(&[&[2, 3]], |x| x[0].t()?.contiguous()?.copy());
    check(&[&[2, 0]], |x| x[0].t()?.expand((3, 0, 2)));
}

#[test]
fn repeated_elements_gather_their_gradients() -> Result<()> {
    for device in devices() {
        let weights = |n: i64, shape: &[usize]| Tensor::arange(0, n, 1, DType::F32, &device)?.reshape(shape);
        let v = Tensor::from_vec(vec![1f32, 2.], 2, &device)?.requires_grad()?;
        v.expand((3, 2))?.reshape(6)?.backward_with(&weights(6, &[6])?)?;
        assert_eq!(v.grad()?.expect("v").to_vec::<f32>()?, [6., 9.]);
        let x = Tensor::zeros((3, 1), DType::F32, &device)?.requires_grad()?;
        x.expand((3, 3))?.narrow(0, 0, 2)?.backward_with(&weights(6, &[2, 3])?.affine(1.0, 1.0)?)?;
        assert_eq!(x.grad()?.expect("x").to_vec::<f32>()?, [6., 15., 0.]);
    }
    Ok(())
}

#[test]
fn long_sums_in_sixteen_bits() -> Result<()> {
    for device in devices() {
        let ones = |n: usize| Tensor::ones(n, DType::F16, &device);
        let wide = |t: Tensor| t.to_dtype(DType::F32)?.to_scalar::<f32>();
        assert_eq!(wide(ones(70000)?.sum_all()?)?, f32::INFINITY);
        assert_eq!(kiln_autograd::autocast(DType::F16, || ones(70000)?.sum_all())?.to_scalar::<f32>()?, 70000.);
        assert_eq!(wide(ones(70000)?.mean_all()?)?, 1.);
        assert_eq!(wide(ones(32768)?.sum_all()?)?, 32768.);
        assert_eq!(wide(ones(1000)?.affine(100.0, 0.0)?.mean_all()?)?, 100.);
    }
    Ok(())
}

#[test]
fn casts_bring_the_gradient_back_in_the_first_type() -> Result<()> {
    for device in devices() {
        let x = Tensor::ones(3, DType::F32, &device)?.requires_grad()?;
        x.to_dtype(DType::BF16)?.to_dtype(DType::F64)?.sum_all()?.backward()?;
        let grad = x.grad()?.expect("a gradient");
        assert_eq!((grad.dtype(), grad.to_vec::<f32>()?), (DType::F32, vec![1.; 3]));
        assert!(!x.to_dtype(DType::I64)?.tracked());
    }
    Ok(())
}
