//! Trigonometry, activations, division, logic, bits and bounds against f64 and at the edges of types.

use crate::support::{FLOATS, broadcast, cases, close, layouts, read, spread, tensor, tolerance};
use kiln::{Backward, DType, Device, Error, Result, Tensor};

cases![
    more_functions_of_one_tensor_follow_f64,
    more_functions_of_two_tensors_broadcast_and_follow_f64,
    more_functions_of_three_tensors_follow_f64,
    remainders_have_the_signs_of_pytorch,
    integers_divided_by_nothing_are_nothing,
    shifts_by_too_much_leave_the_sign,
    logic_takes_every_type,
    bits_of_every_integer_type,
    what_is_not_finite_is_found_and_replaced,
    not_a_number_goes_through_or_is_passed_over,
    bounds_of_every_type,
    infinite_steps_stay_finite,
    gelu_far_out_has_a_slope,
    types_that_an_op_does_not_take,
];

type Unary = (&'static str, fn(&Tensor) -> Result<Tensor>, fn(f64) -> f64, (f64, f64));

const ANY: (f64, f64) = (-2.0, 2.0);
const INNER: (f64, f64) = (-0.9, 0.9);
const WIDE: (f64, f64) = (-5.0, 8.0);
const POSITIVE: (f64, f64) = (0.1, 4.0);

/// Name, op, what it computes, and the range of arguments.
const UNARY: [Unary; 34] = [
    ("tan", Tensor::tan, f64::tan, (-1.0, 1.0)),
    ("asin", Tensor::asin, f64::asin, INNER),
    ("acos", Tensor::acos, f64::acos, INNER),
    ("atan", Tensor::atan, f64::atan, ANY),
    ("sinh", Tensor::sinh, f64::sinh, ANY),
    ("cosh", Tensor::cosh, f64::cosh, ANY),
    ("asinh", Tensor::asinh, f64::asinh, ANY),
    ("acosh", Tensor::acosh, f64::acosh, (1.25, 4.0)),
    ("atanh", Tensor::atanh, f64::atanh, INNER),
    ("exp2", Tensor::exp2, f64::exp2, ANY),
    ("log2", Tensor::log2, f64::log2, POSITIVE),
    ("log10", Tensor::log10, f64::log10, POSITIVE),
    ("trunc", Tensor::trunc, f64::trunc, ANY),
    ("frac", Tensor::frac, f64::fract, ANY),
    ("mish", Tensor::mish, |x| x * x.exp().ln_1p().tanh(), ANY),
    ("logsigmoid", Tensor::logsigmoid, |x| -(-x).exp().ln_1p(), ANY),
    ("softsign", Tensor::softsign, |x| x / (1.0 + x.abs()), ANY),
    ("hardsigmoid", Tensor::hardsigmoid, |x| (x / 6.0 + 0.5).clamp(0.0, 1.0), WIDE),
    ("hardswish", Tensor::hardswish, |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0), WIDE),
    ("selu", Tensor::selu, |x| 1.0507009873554805 * if x > 0.0 { x } else { 1.6732632423543772 * x.exp_m1() }, ANY),
    ("elu", |x| x.elu(0.75), |x| if x > 0.0 { x } else { 0.75 * x.exp_m1() }, ANY),
    ("celu", |x| x.celu(0.75), |x| if x > 0.0 { x } else { 0.75 * (x / 0.75).exp_m1() }, ANY),
    ("softplus", |x| x.softplus(2.0, 20.0), |x| (2.0 * x).exp().ln_1p() / 2.0, ANY),
    ("softplus past its threshold", |x| x.softplus(2.0, -9.0), |x| x, ANY),
    ("hardtanh", |x| x.hardtanh(-0.5, 1.0), |x| x.clamp(-0.5, 1.0), ANY),
    ("relu6", Tensor::relu6, |x| x.clamp(0.0, 6.0), WIDE),
    ("threshold", |x| x.threshold(0.25, 3.0), |x| if x > 0.25 { x } else { 3.0 }, ANY),
    ("softshrink", |x| x.softshrink(0.5), |x| x.signum() * (x.abs() - 0.5).max(0.0), ANY),
    ("hardshrink", |x| x.hardshrink(0.5), |x| if x.abs() > 0.5 { x } else { 0.0 }, ANY),
    ("rpow", |x| x.rpow(1.5), |x| 1.5f64.powf(x), ANY),
    ("clamp_min", |x| x.clamp_min(-0.5), |x| x.max(-0.5), ANY),
    ("clamp_max", |x| x.clamp_max(0.5), |x| x.min(0.5), ANY),
    ("nan_to_num", |x| x.nan_to_num(7.0, None, None), |x| x, ANY),
    ("remainder by a number", |x| x.remainder(0.75), |x| x.rem_euclid(0.75), ANY),
];

fn more_functions_of_one_tensor_follow_f64(d: &Device) -> Result<()> {
    for dtype in FLOATS {
        for (name, op, exact, (low, high)) in UNARY {
            let x = tensor(&spread(77, 1, low, high), (7, 11), dtype, d)?;
            let wanted: Vec<f64> = read(&x)?.into_iter().map(exact).collect();
            for view in layouts(&x)? {
                close(&read(&op(&view)?)?, &wanted, tolerance(dtype, 1), &format!("{name} of {view:?}"));
            }
            assert_eq!(op(&Tensor::zeros((2, 0), dtype, d)?)?.dims(), [2, 0], "{name}");
            assert!(op(&x.narrow(0, 0, 1)?.narrow(1, 0, 1)?.reshape(())?)?.dims().is_empty(), "{name}");
        }
    }
    // From the tables of Abramowitz and Stegun, and far out, where 1 - erf would be 0.
    let x = tensor(&[0.5, 2.0, 9.0], 3, DType::F64, d)?;
    close(&read(&x.erfc()?)?, &[0.479_500_122_186_953_5, 0.004_677_734_981_047_266, 4.137_031_746_513_81e-37], 1e-12, "erfc");
    Ok(())
}

type Binary = (&'static str, fn(&Tensor, &Tensor) -> Result<Tensor>, fn(f64, f64) -> f64);

const BINARY: [Binary; 12] = [
    ("fmod", |a, b| a.fmod(b), |a, b| a % b),
    ("remainder", |a, b| a.remainder(b), |a, b| a - b * (a / b).floor()),
    ("remainder of a negative", |a, b| a.neg()?.remainder(b), |a, b| (-a).rem_euclid(b)),
    ("floor_divide", |a, b| a.floor_divide(b), |a, b| (a / b).floor()),
    ("atan2", |a, b| a.neg()?.atan2(&b.neg()?), |a, b| (-a).atan2(-b)),
    ("hypot", |a, b| a.hypot(b), f64::hypot),
    ("copysign", |a, b| a.copysign(&b.neg()?), |a, b| a.copysign(-b)),
    ("heaviside", |a, b| a.heaviside(b), |_, _| 1.0),
    ("fmax", Tensor::fmax, f64::max),
    ("fmin", Tensor::fmin, f64::min),
    ("xlogy", |a, b| a.xlogy(b), |a, b| a * b.ln()),
    ("logaddexp", Tensor::logaddexp, |a, b| (a.exp() + b.exp()).ln()),
];

fn more_functions_of_two_tensors_broadcast_and_follow_f64(d: &Device) -> Result<()> {
    let shapes: [(&[usize], &[usize], &[usize]); 5] = [
        (&[5, 6], &[5, 6], &[5, 6]),
        (&[2, 1, 4], &[3, 1], &[2, 3, 4]),
        (&[], &[5], &[5]),
        (&[2, 3, 4], &[4], &[2, 3, 4]),
        (&[3, 0], &[1], &[3, 0]),
    ];
    for (a_dims, b_dims, dims) in shapes {
        let (a, b) = (spread(a_dims.iter().product(), 1, 0.25, 4.0), spread(b_dims.iter().product(), 2, 0.25, 2.0));
        for dtype in FLOATS {
            let (a, b) = (tensor(&a, a_dims, dtype, d)?, tensor(&b, b_dims, dtype, d)?);
            let (a_wide, b_wide) = (broadcast(&read(&a)?, a_dims, dims), broadcast(&read(&b)?, b_dims, dims));
            for (name, op, exact) in BINARY {
                let wanted: Vec<f64> = a_wide.iter().zip(&b_wide).map(|(&a, &b)| exact(a, b)).collect();
                for (a, b) in layouts(&a)?.iter().zip(layouts(&b)?) {
                    close(&read(&op(a, &b)?)?, &wanted, tolerance(dtype, 1), &format!("{name} of {a:?} and {b:?}"));
                }
            }
        }
    }
    Ok(())
}

fn more_functions_of_three_tensors_follow_f64(d: &Device) -> Result<()> {
    let values = [spread(12, 1, -2.0, 2.0), spread(4, 2, 0.5, 1.0), spread(3, 3, 0.5, 2.0)];
    for dtype in FLOATS {
        let (x, y, z) =
            (tensor(&values[0], (3, 4), dtype, d)?, tensor(&values[1], 4, dtype, d)?, tensor(&values[2], (3, 1), dtype, d)?);
        let (xs, ys, zs) = (read(&x)?, broadcast(&read(&y)?, &[4], &[3, 4]), broadcast(&read(&z)?, &[3, 1], &[3, 4]));
        let wanted = |f: fn(f64, f64, f64) -> f64| (0..12).map(|i| f(xs[i], ys[i], zs[i])).collect::<Vec<_>>();
        for x in layouts(&x)? {
            close(&read(&x.addcdiv(&y, &z, 0.5)?)?, &wanted(|x, y, z| x + 0.5 * y / z), tolerance(dtype, 1), "addcdiv");
            close(&read(&x.lerp(&y, &z)?)?, &wanted(|x, y, z| x + z * (y - x)), tolerance(dtype, 1), "lerp");
            close(&read(&x.clamp(&y, &z)?)?, &wanted(|x, y, z| x.max(y).min(z)), tolerance(dtype, 1), "clamp");
        }
    }
    Ok(())
}

fn remainders_have_the_signs_of_pytorch(d: &Device) -> Result<()> {
    let (a, b) = ([7., -7., 7., -7., 6., -6.], [3., 3., -3., -3., 3., -3.]);
    for dtype in FLOATS.into_iter().chain([DType::I64]) {
        let (a, b) = (tensor(&a, 6, dtype, d)?, tensor(&b, 6, dtype, d)?);
        assert_eq!(read(&a.fmod(&b)?)?, [1., -1., 1., -1., 0., 0.], "{dtype}");
        assert_eq!(read(&a.remainder(&b)?)?, [1., 2., -2., -1., 0., 0.], "{dtype}");
        assert_eq!(read(&a.floor_divide(&b)?)?, [2., -3., -3., 2., 2., 2.], "{dtype}");
        assert_eq!(read(&(&a % &b)?)?, read(&a.remainder(&b)?)?);
    }
    // 0.1 goes into 1 nine times and a bit, although the rounded quotient is 10.
    let x = tensor(&[1.0], 1, DType::F64, d)?;
    assert_eq!(read(&x.floor_divide(0.1)?)?, [9.0]);
    assert_eq!(read(&x.floor_divide(0.0)?)?, [f64::INFINITY]);
    assert!(read(&x.remainder(0.0)?)?[0].is_nan() && read(&x.fmod(0.0)?)?[0].is_nan());
    Ok(())
}

fn integers_divided_by_nothing_are_nothing(d: &Device) -> Result<()> {
    for dtype in [DType::I64, DType::U32, DType::U8] {
        let x = tensor(&[0., 7.], 2, dtype, d)?;
        for y in [x.remainder(0)?, x.fmod(0)?, x.floor_divide(0)?] {
            assert_eq!(read(&y)?, [0., 0.], "{dtype}");
        }
        assert_eq!(read(&x.floor_divide(2)?)?, [0., 3.]);
    }
    let least = Tensor::from_slice(&[i64::MIN], 1, d)?;
    assert_eq!(least.floor_divide(-1)?.to_vec::<i64>()?, [i64::MIN], "it wraps");
    assert_eq!([least.remainder(-1)?.to_vec::<i64>()?, least.fmod(-1)?.to_vec::<i64>()?], [[0], [0]]);
    Ok(())
}

fn shifts_by_too_much_leave_the_sign(d: &Device) -> Result<()> {
    let (x, n) = (Tensor::from_slice(&[-5i64, -5, -5, 5, 5], 5, d)?, Tensor::from_slice(&[1i64, 64, -1, 63, 2], 5, d)?);
    assert_eq!(x.bitwise_left_shift(&n)?.to_vec::<i64>()?, [-10, 0, 0, i64::MIN, 20]);
    assert_eq!(x.bitwise_right_shift(&n)?.to_vec::<i64>()?, [-3, -1, -1, 0, 1]);
    let (x, n) = (Tensor::from_slice(&[200u8, 200, 200], 3, d)?, Tensor::from_slice(&[1u8, 8, 7], 3, d)?);
    assert_eq!(x.bitwise_left_shift(&n)?.to_vec::<u8>()?, [144, 0, 0]);
    assert_eq!(x.bitwise_right_shift(&n)?.to_vec::<u8>()?, [100, 0, 1]);
    let x = Tensor::from_slice(&[1u32 << 31], 1, d)?;
    assert_eq!([x.bitwise_right_shift(31)?.to_vec::<u32>()?, x.bitwise_right_shift(32)?.to_vec::<u32>()?], [[1], [0]]);
    Ok(())
}

fn logic_takes_every_type(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        let (a, b) = (tensor(&[0., 0., 2., 3.], (2, 2), dtype, d)?, tensor(&[0., 1.], 2, DType::U8, d)?);
        for a in layouts(&a)? {
            assert_eq!(a.logical_and(&b)?.to_vec::<u8>()?, [0, 0, 0, 1], "{dtype}");
            assert_eq!(b.logical_or(&a)?.to_vec::<u8>()?, [0, 1, 1, 1], "{dtype}");
            assert_eq!(a.logical_xor(&b)?.to_vec::<u8>()?, [0, 1, 1, 0], "{dtype}");
            assert_eq!(a.logical_not()?.to_vec::<u8>()?, [1, 1, 0, 0], "{dtype}");
        }
    }
    // A NaN is not 0, and masks carry no history.
    let x = tensor(&[f64::NAN, 0.0], 2, DType::F32, d)?.requires_grad()?;
    let y = x.logical_and(&x)?;
    assert_eq!(y.to_vec::<u8>()?, [1, 0]);
    assert!(!y.tracked());
    Ok(())
}

fn bits_of_every_integer_type(d: &Device) -> Result<()> {
    for dtype in [DType::I64, DType::U32, DType::U8] {
        let (a, b) = (tensor(&[12., 10.], (2, 1), dtype, d)?, tensor(&[10., 7.], 2, dtype, d)?);
        assert_eq!(read(&(&a & &b)?)?, [8., 4., 10., 2.], "{dtype}");
        assert_eq!(read(&(&a | &b)?)?, [14., 15., 10., 15.], "{dtype}");
        assert_eq!(read(&(&a ^ &b)?)?, [6., 11., 0., 13.], "{dtype}");
        assert_eq!(read(&a.bitwise_xor(1)?)?, [13., 11.], "{dtype}");
        assert_eq!(read(&a.bitwise_not()?.bitwise_not()?)?, [12., 10.], "{dtype}");
    }
    let x = Tensor::from_slice(&[i64::MAX, -1], 2, d)?;
    assert_eq!(x.bitwise_not()?.to_vec::<i64>()?, [i64::MIN, 0]);
    assert_eq!(x.bitwise_and((1i64 << 53) + 1)?.to_vec::<i64>()?, [(1 << 53) + 1; 2]);
    assert_eq!(tensor(&[1.], 1, DType::U8, d)?.bitwise_not()?.to_vec::<u8>()?, [254]);
    Ok(())
}

fn what_is_not_finite_is_found_and_replaced(d: &Device) -> Result<()> {
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, 0.0, -2.0];
    for (dtype, largest) in FLOATS.into_iter().zip([f64::MAX, f32::MAX.into(), half::f16::MAX.to_f64(), half::bf16::MAX.to_f64()])
    {
        let x = tensor(&values, (2, 3), dtype, d)?;
        for x in layouts(&x)? {
            assert_eq!(x.isnan()?.to_vec::<u8>()?, [1, 0, 0, 0, 0, 0], "{dtype}");
            assert_eq!(x.isinf()?.to_vec::<u8>()?, [0, 1, 1, 0, 0, 0], "{dtype}");
            assert_eq!(x.isfinite()?.to_vec::<u8>()?, [0, 0, 0, 1, 1, 1], "{dtype}");
            assert_eq!(read(&x.nan_to_num(0.5, None, None)?)?, [0.5, largest, -largest, 1.0, 0.0, -2.0], "{dtype}");
            assert_eq!(read(&x.nan_to_num(0.0, Some(3.0), Some(-4.0))?)?[..3], [0.0, 3.0, -4.0], "{dtype}");
        }
    }
    let x = tensor(&[0., 7.], 2, DType::I64, d)?;
    assert_eq!([x.isnan()?.to_vec::<u8>()?, x.isinf()?.to_vec::<u8>()?, x.isfinite()?.to_vec::<u8>()?], [[0, 0], [0, 0], [1, 1]]);
    assert_eq!(read(&x.nan_to_num(1.0, None, None)?)?, [0., 7.]);
    Ok(())
}

fn not_a_number_goes_through_or_is_passed_over(d: &Device) -> Result<()> {
    for dtype in FLOATS {
        let x = tensor(&[f64::NAN, 1.0], 2, dtype, d)?;
        let through = [
            x.tan()?,
            x.elu(1.0)?,
            x.selu()?,
            x.softplus(1.0, 20.0)?,
            x.hardtanh(-1.0, 1.0)?,
            x.hardswish()?,
            x.hardsigmoid()?,
            x.softshrink(0.5)?,
            x.mish()?,
            x.logsigmoid()?,
            x.clamp_min(0.0)?,
            x.clamp(&x.zeros_like()?, 2.0)?,
            x.remainder(2.0)?,
            x.floor_divide(2.0)?,
            x.logaddexp(&x)?,
        ];
        for y in through {
            assert!(read(&y)?[0].is_nan() && read(&y)?[1].is_finite(), "{y:?}: {:?}", read(&y)?);
        }
        let two = Tensor::full(2, (), dtype, d)?;
        assert_eq!([read(&x.fmax(&two)?)?, read(&two.fmin(&x)?)?], [[2.0, 2.0], [2.0, 1.0]]);
        assert_eq!(read(&x.heaviside(0.5)?)?, [0.0, 1.0]);
        assert_eq!(read(&x.zeros_like()?.xlogy(0.0)?)?, [0.0, 0.0]);
    }
    Ok(())
}

fn bounds_of_every_type(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        let x = tensor(&[0., 3., 9.], 3, dtype, d)?;
        let (low, high) = (tensor(&[1., 4., 1.], 3, dtype, d)?, tensor(&[5.], 1, dtype, d)?);
        assert_eq!(read(&x.clamp(&low, &high)?)?, [1., 4., 5.], "{dtype}");
        assert_eq!(read(&x.clamp(&low, 4)?)?, [1., 4., 4.], "{dtype}");
        assert_eq!(read(&x.clamp_min(&low)?)?, [1., 4., 9.], "{dtype}");
        assert_eq!(read(&x.clamp_max(4)?)?, [0., 3., 4.], "{dtype}");
        assert_eq!(read(&x.heaviside(&low)?)?, [1., 1., 1.], "{dtype}");
    }
    let big = (1i64 << 53) + 1;
    let x = Tensor::from_slice(&[0, big, i64::MAX], 3, d)?;
    assert_eq!(x.clamp(1, big)?.to_vec::<i64>()?, [1, big, big]);
    assert_eq!(x.clamp_min(big)?.to_vec::<i64>()?, [big, big, i64::MAX]);
    assert_eq!(x.affine(1, big)?.to_vec::<i64>()?[..2], [big, 2 * big]);
    Ok(())
}

/// Squares and exponentials on the way leave the range of f32, results do not.
fn infinite_steps_stay_finite(d: &Device) -> Result<()> {
    let x = tensor(&[3e30, -3e30, 1e3], 3, DType::F32, d)?;
    let each = |y: Tensor, wanted: [f64; 3]| -> Result<()> {
        close(&read(&y)?, &wanted, 1e-6, &format!("{y:?}"));
        Ok(())
    };
    each(x.hypot(&(&x * (4.0 / 3.0))?)?, [5e30, 5e30, 5e3 / 3.0])?;
    each(x.softplus(1.0, f64::INFINITY)?, [3e30, 0.0, 1e3])?;
    each(x.logsigmoid()?, [0.0, -3e30, 0.0])?;
    each(x.logaddexp(&x)?, [3e30, -3e30, 1e3 + 2f64.ln()])?;
    each(x.mish()?, [3e30, 0.0, 1e3])?;
    each(x.asinh()?, [70.869_312, -70.869_312, 7.600_902_7])?;
    let x = x.requires_grad()?;
    x.atan2(&x)?.sum_all()?.backward()?;
    let g = x.grad()?.expect("a gradient");
    assert!(read(&g)?.iter().all(|g| *g == 0.0), "{g:?}");
    Ok(())
}

fn gelu_far_out_has_a_slope(d: &Device) -> Result<()> {
    for f in [Tensor::gelu, Tensor::gelu_erf] {
        let x = tensor(&[1e38, -1e38, 2e19, -2e19, 30.0, -30.0], 6, DType::F32, d)?.requires_grad()?;
        (f(&x)? * 3.0)?.sum_all()?.backward()?;
        assert_eq!(read(&x.grad()?.expect("a gradient"))?, [3., 0., 3., 0., 3., 0.]);
    }
    Ok(())
}

fn types_that_an_op_does_not_take(d: &Device) -> Result<()> {
    let (x, long) = (Tensor::ones(2, DType::F32, d)?, Tensor::ones(2, DType::I64, d)?);
    let says = |result: Result<Tensor>, parts: &[&str]| {
        let text = result.expect_err("a type that the op does not take").to_string();
        parts.iter().for_each(|part| assert!(text.contains(part), "{part:?} is missing: {text}"));
    };
    says(x.bitwise_and(&x), &["bitwise_and", "f32", "integer"]);
    says(long.tan(), &["tan", "i64", "float"]);
    says(long.remainder(&x), &["remainder", "i64", "f32"]);
    says(long.fmod(0.5), &["fmod", "0.5", "i64"]);
    says(x.remainder(&Tensor::ones(3, DType::F32, d)?), &["remainder", "[2]", "[3]"]);
    assert!(matches!(x.celu(0.0), Err(Error::Argument { op: "celu", .. })));
    assert!(matches!(x.softplus(0.0, 20.0), Err(Error::Argument { op: "softplus", .. })));
    Ok(())
}
