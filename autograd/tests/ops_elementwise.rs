//! Gradients of every row of the elementwise table, through the methods of `Tensor`.

mod support;

use kiln_autograd::Backward;
use kiln_tensor::{DType, Device, Result, Tensor};
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
    ("tan", 1, (-1., 1.), |x| x[0].tan()),
    ("asin", 1, (-0.9, 0.9), |x| x[0].asin()),
    ("acos", 1, (-0.9, 0.9), |x| x[0].acos()),
    ("atan", 1, (-2., 2.), |x| x[0].atan()),
    ("sinh", 1, (-2., 2.), |x| x[0].sinh()),
    ("cosh", 1, (-2., 2.), |x| x[0].cosh()),
    ("asinh", 1, (-2., 2.), |x| x[0].asinh()),
    ("acosh", 1, (1.25, 3.), |x| x[0].acosh()),
    ("atanh", 1, (-0.9, 0.9), |x| x[0].atanh()),
    ("exp2", 1, (-2., 2.), |x| x[0].exp2()),
    ("log2", 1, (0.5, 3.), |x| x[0].log2()),
    ("log10", 1, (0.5, 3.), |x| x[0].log10()),
    ("erfc", 1, (-2., 2.), |x| x[0].erfc()),
    ("trunc", 1, (-2., 2.), |x| x[0].trunc()),
    ("frac", 1, (-2., 2.), |x| x[0].frac()),
    ("mish", 1, (-2., 2.), |x| x[0].mish()),
    ("logsigmoid", 1, (-2., 2.), |x| x[0].logsigmoid()),
    ("softsign", 1, (-2., 2.), |x| x[0].softsign()),
    ("hardsigmoid", 1, (-5., 5.), |x| x[0].hardsigmoid()),
    ("hardswish", 1, (-5., 5.), |x| x[0].hardswish()),
    ("selu", 1, (-2., 2.), |x| x[0].selu()),
    ("elu", 1, (-2., 2.), |x| x[0].elu(0.75)),
    ("celu", 1, (-2., 2.), |x| x[0].celu(0.75)),
    ("softplus", 1, (-2., 2.), |x| x[0].softplus(1.5, 2.0)),
    ("hardtanh", 1, (-2., 2.), |x| x[0].hardtanh(-0.5, 1.0)),
    ("hardtanh", 1, (-3., 9.), |x| x[0].relu6()),
    ("threshold", 1, (-2., 2.), |x| x[0].threshold(0.25, 3.0)),
    ("softshrink", 1, (-2., 2.), |x| x[0].softshrink(0.5)),
    ("hardshrink", 1, (-2., 2.), |x| x[0].hardshrink(0.5)),
    ("rpow", 1, (-2., 2.), |x| x[0].rpow(1.5)),
    ("clamp", 1, (-2., 2.), |x| x[0].clamp_min(-0.5)),
    ("clamp", 1, (-2., 2.), |x| x[0].clamp_max(0.5)),
    ("nan_to_num", 1, (-2., 2.), |x| x[0].nan_to_num(0.0, None, None)),
    ("fmod", 2, (0.5, 3.), |x| x[0].neg()?.fmod(&x[1])),
    ("remainder", 2, (0.5, 3.), |x| x[0].neg()?.remainder(&x[1])),
    ("floor_divide", 2, (0.5, 3.), |x| x[0].floor_divide(&x[1])),
    ("atan2", 2, (-2., 2.), |x| x[0].atan2(&x[1])),
    ("hypot", 2, (-2., 2.), |x| x[0].hypot(&x[1])),
    ("copysign", 2, (-2., 2.), |x| x[0].copysign(&x[1])),
    ("heaviside", 2, (-2., 2.), |x| x[0].heaviside(&x[1])),
    ("fmax", 2, (-2., 2.), |x| x[0].fmax(&x[1])),
    ("fmin", 2, (-2., 2.), |x| x[0].fmin(&x[1])),
    ("xlogy", 2, (0.5, 2.), |x| x[0].xlogy(&x[1])),
    ("logaddexp", 2, (-2., 2.), |x| x[0].logaddexp(&x[1])),
    ("addcdiv", 3, (0.5, 2.), |x| x[0].addcdiv(&x[1], &x[2], -0.5)),
    ("lerp_tensor", 3, (-2., 2.), |x| x[0].lerp(&x[1], &x[2])),
    ("clamp_tensor", 3, (-2., 2.), |x| x[0].clamp(&x[1], &x[2])),
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
        let t = Tensor::zeros(3, DType::F64, &device)?.requires_grad()?;
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

/// The gradient of `f` at a number, for an upstream gradient of `g`.
fn slope(f: impl Fn(&Tensor) -> Result<Tensor>, x: f64, g: f64, dtype: DType) -> Result<f64> {
    let x = Tensor::scalar(x, &Device::cpu())?.to_dtype(dtype)?.requires_grad()?;
    f(&x)?.backward_with(&Tensor::scalar(g, &Device::cpu())?.to_dtype(dtype)?)?;
    x.grad()?.expect("a gradient").to_dtype(DType::F64)?.to_scalar()
}

#[test]
fn kinks_of_activations_have_the_gradients_of_pytorch() -> Result<()> {
    type F = fn(&Tensor) -> Result<Tensor>;
    let cases: [(F, f64, f64); 16] = [
        (|x| x.elu(0.5), 0.0, 0.5),
        (|x| x.celu(0.5), 0.0, 1.0),
        (|x| x.hardtanh(-1.0, 1.0), -1.0, 0.0),
        (|x| x.hardtanh(-1.0, 1.0), 1.0, 0.0),
        (|x| x.clamp(-1.0, 1.0), 1.0, 1.0),
        (|x| x.clamp_min(0.0), 0.0, 1.0),
        (|x| x.relu6(), 0.0, 0.0),
        (|x| x.relu6(), 6.0, 0.0),
        (|x| x.hardsigmoid(), 3.0, 0.0),
        (|x| x.hardswish(), -3.0, 0.0),
        (|x| x.hardswish(), 3.0, 1.0),
        (|x| x.softshrink(0.5), 0.5, 0.0),
        (|x| x.hardshrink(0.5), -0.5, 0.0),
        (|x| x.threshold(0.5, 9.0), 0.5, 0.0),
        (|x| x.hypot(0.0), 0.0, 0.0),
        (|x| x.nan_to_num(0.0, None, None), f64::INFINITY, 0.0),
    ];
    for (i, (f, x, wanted)) in cases.into_iter().enumerate() {
        assert_eq!(slope(f, x, 1.0, DType::F64)?, wanted, "case {i}");
    }
    Ok(())
}

#[test]
fn gelu_far_out_has_the_gradient_of_its_asymptote() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for f in [Tensor::gelu, Tensor::gelu_erf] {
            for x in [60.0, 2e19, 1e38, f64::INFINITY] {
                assert_eq!([slope(f, x, 3.0, dtype)?, slope(f, -x, 3.0, dtype)?], [3.0, 0.0], "{dtype} {x}");
            }
        }
    }
    Ok(())
}

#[test]
fn no_upstream_gradient_is_no_gradient() -> Result<()> {
    type F = fn(&Tensor) -> Result<Tensor>;
    let infinite: [(F, f64); 9] = [
        (|x| x.asin(), 1.0),
        (|x| x.acosh(), 1.0),
        (|x| x.atanh(), 1.0),
        (|x| x.log2(), 0.0),
        (|x| x.sinh(), 1e4),
        (|x| x.exp2(), 1e4),
        (|x| x.tan(), f64::NAN),
        (|x| x.fmod(0.0), 1.0),
        (|x| x.addcdiv(x, x, 1.0), 0.0),
    ];
    for (i, (f, x)) in infinite.into_iter().enumerate() {
        assert_eq!(slope(f, x, 0.0, DType::F64)?, 0.0, "case {i}");
    }
    Ok(())
}

#[test]
fn a_clamp_between_tensors_gives_the_bounds_what_it_takes_from_them() -> Result<()> {
    let device = Device::cpu();
    let leaf = |v: [f64; 4]| Tensor::from_slice(&v, 4, &device)?.requires_grad();
    // Below, at the lower bound, above, and with bounds in the wrong order.
    let (x, low, high) = (leaf([-2., 0., 3., 1.])?, leaf([0., 0., 0., 5.])?, leaf([1., 1., 1., 2.])?);
    let y = x.clamp(&low, &high)?;
    assert_eq!(y.to_vec::<f64>()?, [0., 0., 1., 2.]);
    y.sum_all()?.backward()?;
    let gradient = |t: &Tensor| t.grad()?.expect("a gradient").to_vec::<f64>();
    assert_eq!([gradient(&x)?, gradient(&low)?, gradient(&high)?], [[0., 1., 0., 0.], [1., 0., 0., 0.], [0., 0., 1., 1.]]);
    Ok(())
}

#[test]
fn only_what_a_wanted_gradient_reads_is_saved() -> Result<()> {
    let device = Device::cpu();
    let x = Tensor::ones(1000, DType::F32, &device)?.requires_grad()?;
    let constant = Tensor::ones(1000, DType::F32, &device)?;
    let h = x.affine(2.0, 0.0)?;
    let y = h.mul(&constant)?;
    let category = |t: &Tensor| t.storage().category();
    assert_eq!(category(&constant), kiln_alloc::Category::Activations);
    assert_eq!(category(&h), kiln_alloc::Category::Temporaries);
    y.sum_all()?.backward()?;
    assert_eq!(x.grad()?.expect("a gradient").to_vec::<f32>()?, vec![2.; 1000]);
    Ok(())
}
