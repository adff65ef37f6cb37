//! Elementwise ops against f64, broadcasting, and the edges of types.

use crate::support::{FLOATS, broadcast, cases, close, layouts, numbers, read, spread, tensor, tolerance};
use kiln::{DType, Device, Result, Tensor};

cases![
    functions_of_one_tensor_follow_f64,
    functions_of_two_tensors_broadcast_and_follow_f64,
    functions_of_three_tensors_follow_f64,
    integers_wrap,
    sixteen_bit_floats_overflow_and_underflow_as_ieee_says,
    not_a_number_goes_through,
    comparisons_make_masks,
    where_takes_from_both_sides,
    changes_in_place_reach_every_view,
];

/// The error function by its series, which serves for small arguments.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

type Unary = (&'static str, fn(&Tensor) -> Result<Tensor>, fn(f64) -> f64, f64);

/// Name, op, what it computes, and the smallest argument.
const UNARY: [Unary; 28] = [
    ("neg", Tensor::neg, |x| -x, -2.0),
    ("exp", Tensor::exp, f64::exp, -2.0),
    ("log", Tensor::log, f64::ln, 0.1),
    ("sqrt", Tensor::sqrt, f64::sqrt, 0.0),
    ("rsqrt", Tensor::rsqrt, |x| 1.0 / x.sqrt(), 0.1),
    ("abs", Tensor::abs, f64::abs, -2.0),
    ("square", Tensor::square, |x| x * x, -2.0),
    ("reciprocal", Tensor::reciprocal, |x| 1.0 / x, 0.1),
    ("tanh", Tensor::tanh, f64::tanh, -2.0),
    ("sigmoid", Tensor::sigmoid, |x| 1.0 / (1.0 + (-x).exp()), -2.0),
    ("relu", Tensor::relu, |x| x.max(0.0), -2.0),
    ("gelu", Tensor::gelu, |x| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh()), -2.0),
    ("gelu_erf", Tensor::gelu_erf, |x| 0.5 * x * (1.0 + erf(x / 2f64.sqrt())), -2.0),
    ("silu", Tensor::silu, |x| x / (1.0 + (-x).exp()), -2.0),
    ("sin", Tensor::sin, f64::sin, -2.0),
    ("cos", Tensor::cos, f64::cos, -2.0),
    ("erf", Tensor::erf, erf, -2.0),
    ("floor", Tensor::floor, f64::floor, -2.0),
    ("ceil", Tensor::ceil, f64::ceil, -2.0),
    ("round", Tensor::round, f64::round_ties_even, -2.0),
    ("sign", Tensor::sign, f64::signum, -2.0),
    ("log1p", Tensor::log1p, f64::ln_1p, -0.9),
    ("expm1", Tensor::expm1, f64::exp_m1, -2.0),
    ("affine", |x| x.affine(1.5, -0.25), |x| 1.5 * x - 0.25, -2.0),
    ("powf", |x| x.powf(2.5), |x| x.powf(2.5), 0.1),
    ("clamp", |x| x.clamp(-0.5, 1.0), |x| x.clamp(-0.5, 1.0), -2.0),
    ("leaky_relu", |x| x.leaky_relu(0.125), |x| if x > 0.0 { x } else { 0.125 * x }, -2.0),
    ("operators", |x| 2.0 - (&(3.0 * x)? / 4.0)?, |x| 2.0 - 3.0 * x / 4.0, -2.0),
];

fn functions_of_one_tensor_follow_f64(d: &Device) -> Result<()> {
    for dtype in FLOATS {
        for (name, op, exact, low) in UNARY {
            let x = tensor(&spread(77, 1, low, 2.0), (7, 11), dtype, d)?;
            let wanted: Vec<f64> = read(&x)?.into_iter().map(exact).collect();
            for view in layouts(&x)? {
                close(&read(&op(&view)?)?, &wanted, tolerance(dtype, 1), &format!("{name} of {view:?}"));
            }
        }
    }
    Ok(())
}

type Binary = (&'static str, fn(&Tensor, &Tensor) -> Result<Tensor>, fn(f64, f64) -> f64);

const BINARY: [Binary; 9] = [
    ("add", |a, b| a + b, |a, b| a + b),
    ("sub", |a, b| a - b, |a, b| a - b),
    ("mul", |a, b| a * b, |a, b| a * b),
    ("div", |a, b| a / b, |a, b| a / b),
    ("pow", Tensor::pow, f64::powf),
    ("maximum", Tensor::maximum, f64::max),
    ("minimum", Tensor::minimum, f64::min),
    ("squared_difference", Tensor::squared_difference, |a, b| (a - b) * (a - b)),
    ("lerp", |a, b| a.lerp(b, 0.25), |a, b| a + 0.25 * (b - a)),
];

fn functions_of_two_tensors_broadcast_and_follow_f64(d: &Device) -> Result<()> {
    let shapes: [(&[usize], &[usize], &[usize]); 7] = [
        (&[5, 6], &[5, 6], &[5, 6]),
        (&[2, 3, 4], &[4], &[2, 3, 4]),
        (&[2, 1, 4], &[3, 1], &[2, 3, 4]),
        (&[], &[5], &[5]),
        (&[3, 1, 2, 1], &[2, 1, 3], &[3, 2, 2, 3]),
        (&[3, 0], &[1], &[3, 0]),
        (&[1, 70_000], &[2, 1], &[2, 70_000]),
    ];
    for (a_dims, b_dims, dims) in shapes {
        // Powers want a positive base.
        let a_values = spread(a_dims.iter().product(), 1, 0.25, 2.0);
        let b_values = spread(b_dims.iter().product(), 2, 0.25, 2.0);
        let large = dims.iter().product::<usize>() > 1000;
        for dtype in FLOATS.into_iter().filter(|&t| !large || t == DType::F32) {
            let (a, b) = (tensor(&a_values, a_dims, dtype, d)?, tensor(&b_values, b_dims, dtype, d)?);
            let (a_wide, b_wide) = (broadcast(&read(&a)?, a_dims, dims), broadcast(&read(&b)?, b_dims, dims));
            for (name, op, exact) in BINARY {
                let wanted: Vec<f64> = a_wide.iter().zip(&b_wide).map(|(&a, &b)| exact(a, b)).collect();
                for (a, b) in layouts(&a)?.iter().zip(layouts(&b)?) {
                    let y = op(a, &b)?;
                    assert_eq!(y.dims(), dims);
                    close(&read(&y)?, &wanted, tolerance(dtype, 1), &format!("{name} of {a:?} and {b:?}"));
                }
            }
        }
    }
    Ok(())
}

fn functions_of_three_tensors_follow_f64(d: &Device) -> Result<()> {
    let values = [numbers(12, 1), numbers(4, 2), numbers(3, 3)];
    let (x, y, z) = (
        tensor(&values[0], (3, 4), DType::F32, d)?,
        tensor(&values[1], 4, DType::F32, d)?,
        tensor(&values[2], (3, 1), DType::F32, d)?,
    );
    let (xs, ys, zs) = (read(&x)?, broadcast(&read(&y)?, &[4], &[3, 4]), broadcast(&read(&z)?, &[3, 1], &[3, 4]));
    let wanted = |f: fn(f64, f64, f64) -> f64| (0..12).map(|i| f(xs[i], ys[i], zs[i])).collect::<Vec<_>>();
    close(&read(&x.addcmul(&y, &z, 0.5)?)?, &wanted(|x, y, z| x + 0.5 * y * z), 1e-6, "addcmul");
    close(&read(&x.mul_add(&y, &z)?)?, &wanted(|x, y, z| x * y + z), 1e-6, "mul_add");
    Ok(())
}

fn integers_wrap(d: &Device) -> Result<()> {
    let bytes = |v: &[u8]| Tensor::from_slice(v, v.len(), d);
    assert_eq!((bytes(&[250, 3])? + bytes(&[10, 4])?)?.to_vec::<u8>()?, [4, 7]);
    assert_eq!((bytes(&[16, 3])? * bytes(&[16, 4])?)?.to_vec::<u8>()?, [0, 12]);
    let one = Tensor::scalar(1u32, d)?;
    assert_eq!((Tensor::zeros(1, DType::U32, d)? - &one)?.to_vec::<u32>()?, [u32::MAX]);
    let long = Tensor::from_slice(&[i64::MAX, -7], 2, d)?;
    assert_eq!((&long + 1.0)?.to_vec::<i64>()?, [i64::MIN, -6]);
    assert_eq!(long.maximum(&Tensor::zeros((), DType::I64, d)?)?.to_vec::<i64>()?, [i64::MAX, 0]);
    Ok(())
}

fn sixteen_bit_floats_overflow_and_underflow_as_ieee_says(d: &Device) -> Result<()> {
    let at = |values: &[f64], dtype| tensor(values, values.len(), dtype, d);
    let x = at(&[65504.0, -65504.0, 6e-8, 1.0], DType::F16)?;
    assert_eq!(read(&(&x + &x)?)?[..2], [f64::INFINITY, f64::NEG_INFINITY]);
    // Half of the smallest subnormal is a tie with 0; 1 + 2^-11 is one with 1.
    assert_eq!(read(&(&x * 0.5)?)?, [32752.0, -32752.0, 0.0, 0.5]);
    assert_eq!(read(&(&x + 2f64.powi(-11))?)?[3], 1.0);
    let x = at(&[3.38e38, -3.38e38, 1e-38], DType::BF16)?;
    assert_eq!(read(&(&x * 2.0)?)?[..2], [f64::INFINITY, f64::NEG_INFINITY]);
    assert!(read(&x)?[2] > 0.0 && read(&x.exp()?)? == [f64::INFINITY, 0.0, 1.0]);
    let x = at(&[-1e4, 1e4, 12.0], DType::F16)?;
    assert_eq!(read(&x.sigmoid()?)?[..2], [0.0, 1.0]);
    assert_eq!(read(&x.tanh()?)?[..2], [-1.0, 1.0]);
    assert_eq!(read(&x.exp()?)?[..2], [0.0, f64::INFINITY]);
    Ok(())
}

fn not_a_number_goes_through(d: &Device) -> Result<()> {
    for dtype in FLOATS {
        let x = tensor(&[f64::NAN, 1.0], 2, dtype, d)?;
        let zero = Tensor::zeros((), dtype, d)?;
        let results = [x.relu()?, x.maximum(&zero)?, zero.minimum(&x)?, x.clamp(-1.0, 1.0)?, x.abs()?, x.gelu()?, (&x * &zero)?];
        for y in results {
            assert!(read(&y)?[0].is_nan() && read(&y)?[1].is_finite(), "{y:?}: {:?}", read(&y)?);
        }
    }
    let infinite = tensor(&[f64::INFINITY, f64::NEG_INFINITY], 2, DType::F32, d)?;
    assert!(read(&infinite.sub(&infinite)?)?.into_iter().all(f64::is_nan));
    Ok(())
}

fn comparisons_make_masks(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        let (a, b) = (tensor(&[1., 2., 3., 1., 2., 3.], (2, 3), dtype, d)?, tensor(&[2., 1.], (2, 1), dtype, d)?);
        let masks = [a.eq(&b)?, a.ne(&b)?, a.lt(&b)?, a.le(&b)?, a.gt(&b)?, a.ge(&b)?];
        let wanted = [
            [0, 1, 0, 1, 0, 0],
            [1, 0, 1, 0, 1, 1],
            [1, 0, 0, 0, 0, 0],
            [1, 1, 0, 1, 0, 0],
            [0, 0, 1, 0, 1, 1],
            [0, 1, 1, 1, 1, 1],
        ];
        for (mask, wanted) in masks.iter().zip(wanted) {
            assert_eq!(mask.to_vec::<u8>()?, wanted, "{dtype}");
        }
        assert_eq!(a.t()?.gt(1)?.to_vec::<u8>()?, [0, 0, 1, 1, 1, 1]);
    }
    Ok(())
}

fn where_takes_from_both_sides(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        let mask = Tensor::from_slice(&[1u8, 0, 2], (3, 1), d)?;
        let (a, b) = (tensor(&[1., 2.], 2, dtype, d)?, tensor(&[9.], (1, 1), dtype, d)?);
        assert_eq!(read(&mask.where_cond(&a, &b)?)?, [1., 2., 9., 9., 1., 2.], "{dtype}");
        let x = tensor(&[1., 2., 3., 4., 5., 6.], (2, 3), dtype, d)?.t()?;
        assert_eq!(read(&x.masked_fill(&mask, 0)?)?, [0., 0., 2., 5., 0., 0.], "{dtype}");
    }
    Ok(())
}

fn changes_in_place_reach_every_view(d: &Device) -> Result<()> {
    let x = tensor(&[0., 1., 2., 3., 4., 5.], (2, 3), DType::F32, d)?;
    x.narrow(1, 1, 2)?.add_(&tensor(&[10., 20.], (2, 1), DType::F32, d)?)?;
    x.t()?.narrow(0, 0, 1)?.fill_(-1)?;
    assert_eq!(read(&x)?, [-1., 11., 12., -1., 24., 25.]);
    x.sub_(&x)?;
    x.copy_(&Tensor::from_slice(&[7i64, 8, 9], 3, d)?)?;
    x.add_scaled_(&x.ones_like()?, -0.5)?;
    x.mul_(&Tensor::scalar(2f32, d)?)?;
    assert_eq!(read(&x)?, [13., 15., 17., 13., 15., 17.]);
    Ok(())
}
