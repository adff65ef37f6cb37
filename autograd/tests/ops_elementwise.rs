//! Gradients of every row of the elementwise table, through the methods of `Tensor`.

mod support;

use kiln_autograd::Backward;
use kiln_tensor::{Device, Result, Tensor};
use support::{check_in, check_values, devices};

type Function = fn(&[Tensor]) -> Result<Tensor>;

/// Row, inputs, the range of their values, and the method. Kinks lie outside the values, which are multiples of the golden ratio.
const ROWS: &[(&str, usize, (f64, f64), Function)] = &[
    ("neg", 1, (-2., 2.), |x| x[0].neg()),
    ("abs", 1, (-2., 2.), |x| x[0].abs()),
    ("sign", 1, (-2., 2.), |x| x[0].sign()),
    ("square", 1, (-2., 2.), |x| x[0].square()),
    ("reciprocal", 1, (0.5, 2.), |x| x[0].reciprocal()),
    ("sqrt", 1, (0.5, 2.), |x| x[0].sqrt()),
    ("rsqrt", 1, (0.5, 2.), |x| x[0].rsqrt()),
    ("exp", 1, (-2., 2.), |x| x[0].exp()),
    ("expm1", 1, (-2., 2.), |x| x[0].expm1()),
    ("log", 1, (0.5, 3.), |x| x[0].log()),
    ("log1p", 1, (-0.5, 2.), |x| x[0].log1p()),
    ("sin", 1, (-2., 2.), |x| x[0].sin()),
    ("cos", 1, (-2., 2.), |x| x[0].cos()),
    ("tanh", 1, (-2., 2.), |x| x[0].tanh()),
    ("sigmoid", 1, (-2., 2.), |x| x[0].sigmoid()),
    ("erf", 1, (-2., 2.), |x| x[0].erf()),
    ("floor", 1, (-2., 2.), |x| x[0].floor()),
    ("ceil", 1, (-2., 2.), |x| x[0].ceil()),
    ("round", 1, (-2., 2.), |x| x[0].round()),
    ("relu", 1, (-2., 2.), |x| x[0].relu()),
    ("silu", 1, (-2., 2.), |x| x[0].silu()),
    ("gelu", 1, (-2., 2.), |x| x[0].gelu()),
    ("gelu_erf", 1, (-2., 2.), |x| x[0].gelu_erf()),
    ("affine", 1, (-2., 2.), |x| x[0].affine(-1.5, 0.25)),
    ("pow_scalar", 1, (0.5, 2.), |x| x[0].powf(2.5)),
    ("clamp", 1, (-2., 2.), |x| x[0].clamp(-0.5, 1.0)),
    ("leaky_relu", 1, (-2., 2.), |x| x[0].leaky_relu(0.1)),
    ("add", 2, (-2., 2.), |x| x[0].add(&x[1])),
    ("sub", 2, (-2., 2.), |x| x[0].sub(&x[1])),
    ("mul", 2, (-2., 2.), |x| x[0].mul(&x[1])),
    ("div", 2, (0.5, 2.), |x| x[0].div(&x[1])),
    ("pow", 2, (0.5, 2.), |x| x[0].pow(&x[1])),
    ("maximum", 2, (-2., 2.), |x| x[0].maximum(&x[1])),
    ("minimum", 2, (-2., 2.), |x| x[0].minimum(&x[1])),
    ("sq_diff", 2, (-2., 2.), |x| x[0].squared_difference(&x[1])),
    ("lerp", 2, (-2., 2.), |x| x[0].lerp(&x[1], 0.3)),
    ("add_scaled", 2, (-2., 2.), |x| x[0].add_scaled(&x[1], -0.5)),
    ("addcmul", 3, (-2., 2.), |x| x[0].addcmul(&x[1], &x[2], -0.5)),
    ("mul_add", 3, (-2., 2.), |x| x[0].mul_add(&x[1], &x[2])),
];

/// Shapes for each number of inputs: plain, broadcast both ways, without elements, without dims.
fn shapes(inputs: usize) -> Vec<Vec<&'static [usize]>> {
    let all: [[&[usize]; 3]; 4] =
        [[&[2, 3], &[2, 3], &[2, 3]], [&[2, 1, 2], &[3, 1], &[1]], [&[2, 0], &[1], &[2, 1]], [&[], &[2], &[2, 2]]];
    all.iter().map(|s| s[..inputs].to_vec()).collect()
}

#[test]
fn every_row_has_the_gradient_of_its_expression() {
    for &(_, inputs, (lo, hi), f) in ROWS {
        shapes(inputs).iter().for_each(|shapes| check_in(lo, hi, shapes, f));
    }
}

#[test]
fn no_row_is_left_out() {
    let rows = kiln_kernels::elementwise::rows().iter().filter(|row| row.gradient.is_some());
    let missing: Vec<&str> = rows.map(|row| row.name).filter(|name| !ROWS.iter().any(|r| r.0 == *name)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn powers_of_two_tensors_take_their_own_operands() -> Result<()> {
    for device in devices() {
        let number = |v: f64| Tensor::scalar(v, &device);
        let (x, y) = (number(2.)?.requires_grad()?, number(3.)?.requires_grad()?);
        let grad = |t: &Tensor| t.grad()?.expect("a gradient").to_scalar::<f64>();
        x.pow(&number(3.)?)?.backward()?;
        assert_eq!(grad(&x)?, 12.);
        number(2.)?.pow(&y)?.backward()?;
        assert!((grad(&y)? - 5.545177444).abs() < 1e-8);
        let x = number(2.)?.requires_grad()?;
        x.pow(&x)?.backward()?;
        assert!((grad(&x)? - 6.772588722).abs() < 1e-8);
    }
    Ok(())
}

#[test]
fn a_power_of_zero_has_gradient_zero_through_a_root() -> Result<()> {
    for device in devices() {
        let x = Tensor::scalar(1f64, &device)?.requires_grad()?;
        let y = x.affine(1.0, -1.0)?.powf(0.0)?.sqrt()?;
        assert_eq!(y.to_scalar::<f64>()?, 1.0);
        y.backward()?;
        assert_eq!(x.grad()?.expect("a gradient").to_scalar::<f64>()?, 0.0);
    }
    Ok(())
}

#[test]
fn equal_operands_of_maximum_share_the_gradient() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![1f32, 2.], 2, &device)?.requires_grad()?;
        let y = Tensor::from_vec(vec![1f32, 3.], 2, &device)?.requires_grad()?;
        x.maximum(&y)?.sum_all()?.backward()?;
        assert_eq!(x.grad()?.expect("x").to_vec::<f32>()?, [0.5, 0.]);
        assert_eq!(y.grad()?.expect("y").to_vec::<f32>()?, [0.5, 1.]);
    }
    Ok(())
}

#[test]
fn a_clipped_tensor_of_zeros_has_the_gradient_of_the_identity() -> Result<()> {
    for device in devices() {
        // t * min(1, max / |t|): the norm of zeros must not divide.
        let t = Tensor::zeros(3, kiln_tensor::DType::F64, &device)?.requires_grad()?;
        let scale = t.square()?.sum_all()?.clamp(1e-12, f64::INFINITY)?.rsqrt()?.clamp(0.0, 1.0)?;
        let y = t.mul(&scale)?;
        assert_eq!(y.to_vec::<f64>()?, [0.; 3]);
        y.sum_all()?.backward()?;
        assert_eq!(t.grad()?.expect("a gradient").to_vec::<f64>()?, [1.; 3]);
    }
    Ok(())
}

#[test]
fn a_broadcast_regression_has_the_gradients_of_its_operands() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![1f64, 2., 3., 4., 5., 6.], (2, 3), &device)?;
        let w = Tensor::from_vec(vec![1f64, 0., -1.], (3, 1), &device)?.requires_grad()?;
        let b = Tensor::from_vec(vec![10f64, 20., 30.], (1, 3), &device)?.requires_grad()?;
        let label = Tensor::from_vec(vec![1f64, 2.], (2, 1), &device)?;
        let loss = x.matmul(&w)?.add(&b)?.sub(&label)?.square()?.sum_all()?;
        assert_eq!(loss.to_scalar::<f64>()?, 2035.);
        loss.backward()?;
        assert_eq!(w.grad()?.expect("w").to_vec2::<f64>()?, [[486.], [684.], [882.]]);
        assert_eq!(b.grad()?.expect("b").to_vec2::<f64>()?, [[26., 66., 106.]]);
    }
    Ok(())
}

#[test]
fn kinks_have_the_gradients_of_pytorch() {
    check_values(&[(&[-3.0, 0.25], &[2])], |x| x[0].relu());
    let at_zero = |f: fn(&Tensor) -> Result<Tensor>| -> Result<f64> {
        let x = Tensor::scalar(0f64, &Device::cpu())?.requires_grad()?;
        f(&x)?.backward()?;
        x.grad()?.expect("a gradient").to_scalar()
    };
    assert_eq!(at_zero(Tensor::relu).unwrap(), 0.);
    assert_eq!(at_zero(Tensor::abs).unwrap(), 0.);
}

#[test]
fn only_what_a_wanted_gradient_reads_is_saved() -> Result<()> {
    let device = Device::cpu();
    let x = Tensor::ones(1000, kiln_tensor::DType::F32, &device)?.requires_grad()?;
    let constant = Tensor::ones(1000, kiln_tensor::DType::F32, &device)?;
    let h = x.affine(2.0, 0.0)?;
    let y = h.mul(&constant)?;
    let category = |t: &Tensor| t.storage().category();
    assert_eq!(category(&constant), kiln_alloc::Category::Activations);
    assert_eq!(category(&h), kiln_alloc::Category::Temporaries);
    y.sum_all()?.backward()?;
    assert_eq!(x.grad()?.expect("a gradient").to_vec::<f32>()?, vec![2.; 1000]);
    Ok(())
}
