//! Products, variances, norms, logsumexp, counts and masked softmax over any dims.

use crate::support::{FLOATS, cases, close, gradient, layouts, leaf, numbers, read, tensor, tolerance};
use kiln::prelude::*;
use kiln::{DType, Device, Result, Tensor};

cases![
    reductions_over_any_dims_follow_f64,
    reductions_of_nothing,
    products_of_integers_are_exact,
    the_gradient_of_a_product_knows_zeros,
    a_large_offset_does_not_show_in_a_variance,
    the_variance_of_one_element_is_not_a_number,
    large_and_small_numbers_have_a_norm,
    the_gradient_of_a_norm_of_zeros_is_zero,
    counting_knows_not_a_number,
    logsumexp_at_its_limits,
    masked_rows_of_softmax_are_zero_and_so_are_their_gradients,
];

/// The elements that each result over the dims of a mask is made of.
fn groups(values: &[f64], dims: &[usize], mask: u32) -> Vec<Vec<f64>> {
    let kept = |d: &usize| mask >> d & 1 == 0;
    let mut out = vec![Vec::new(); (0..dims.len()).filter(kept).map(|d| dims[d]).product()];
    for (flat, &v) in values.iter().enumerate() {
        let (mut rest, mut at, mut stride) = (flat, 0, 1);
        for d in (0..dims.len()).rev() {
            if kept(&d) {
                at += rest % dims[d] * stride;
                stride *= dims[d];
            }
            rest /= dims[d];
        }
        out[at].push(v);
    }
    out
}

fn variance(v: &[f64], correction: f64) -> f64 {
    let mean = v.iter().sum::<f64>() / v.len() as f64;
    v.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (v.len() as f64 - correction).max(0.0)
}

fn norm(v: &[f64], p: f64) -> f64 {
    if p == 0.0 {
        v.iter().filter(|x| **x != 0.0).count() as f64
    } else if p.is_infinite() {
        v.iter().map(|x| x.abs()).reduce(if p > 0.0 { f64::max } else { f64::min }).unwrap_or(0.0)
    } else {
        v.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p)
    }
}

const ORDERS: [f64; 7] = [0.0, 1.0, 2.0, 3.0, 0.5, f64::INFINITY, f64::NEG_INFINITY];

fn reductions_over_any_dims_follow_f64(d: &Device) -> Result<()> {
    for dims in [&[3, 5, 40][..], &[700, 9], &[2, 20_000], &[4, 1]] {
        for dtype in FLOATS {
            // Near 1 in magnitude, so that a product of many fits any type.
            let sizes: usize = dims.iter().product();
            let values: Vec<f64> = numbers(sizes, 3).into_iter().map(|v| v.signum() * (v / 64.0).exp()).collect();
            let x = tensor(&values, dims, dtype, d)?;
            let values = read(&x)?;
            for mask in 1..1u32 << dims.len() {
                let over: Vec<usize> = (0..dims.len()).filter(|d| mask >> d & 1 == 1).collect();
                let groups = groups(&values, dims, mask);
                let count = groups[0].len();
                let wanted = |f: &dyn Fn(&[f64]) -> f64| groups.iter().map(|g| f(g)).collect::<Vec<_>>();
                for view in layouts(&x)? {
                    let check = |found: Tensor, f: &dyn Fn(&[f64]) -> f64, what: &str| -> Result<()> {
                        close(&read(&found)?, &wanted(f), tolerance(dtype, count), &format!("{what} over {over:?} of {view:?}"));
                        Ok(())
                    };
                    // A product of f32 factors has a relative error of K roundings on CUDA.
                    if count <= 64 {
                        check(view.prod(&over)?, &|v| v.iter().product(), "prod")?;
                    }
                    if count > 1 {
                        check(view.var(&over, 1.0)?, &|v| variance(v, 1.0), "var")?;
                    }
                    check(view.std(&over, 0.0)?, &|v| variance(v, 0.0).sqrt(), "std")?;
                    check(view.logsumexp(&over)?, &|v| v.iter().map(|x| x.exp()).sum::<f64>().ln(), "logsumexp")?;
                    for p in ORDERS {
                        // The power of a long sum is beyond f16.
                        if p != 0.5 || dtype != DType::F16 {
                            check(view.norm(p, &over)?, &|v| norm(v, p), &format!("norm {p}"))?;
                        }
                    }
                    assert_eq!(view.norm_keepdim(2.0, &over)?.rank(), dims.len());
                    let positive = view.gt(0.0)?;
                    let counts = |v: &[f64]| v.iter().filter(|x| **x > 0.0).count();
                    let is = |f: &dyn Fn(&[f64]) -> bool| groups.iter().map(|g| f64::from(u8::from(f(g)))).collect::<Vec<_>>();
                    assert_eq!(read(&positive.any(&over)?)?, is(&|v| counts(v) > 0));
                    assert_eq!(read(&positive.all(&over)?)?, is(&|v| counts(v) == v.len()));
                    assert_eq!(read(&positive.count_nonzero(&over)?)?, wanted(&|v| counts(v) as f64));
                }
            }
        }
    }
    Ok(())
}

fn reductions_of_nothing(d: &Device) -> Result<()> {
    let x = Tensor::zeros((2, 0), DType::F32, d)?;
    assert_eq!((read(&x.prod(1)?)?, x.prod(0)?.dims()), (vec![1.0; 2], &[0][..]));
    assert_eq!((read(&x.any(1)?)?, read(&x.all(1)?)?, read(&x.count_nonzero(())?)?), (vec![0.0; 2], vec![1.0; 2], vec![0.0]));
    assert!(read(&x.var(1, 0.0)?)?.iter().all(|v| v.is_nan()));
    assert_eq!((read(&x.norm(2.0, 1)?)?, read(&x.norm(0.0, 1)?)?), (vec![0.0; 2], vec![0.0; 2]));
    assert_eq!(read(&x.logsumexp(1)?)?, [f64::NEG_INFINITY; 2]);
    assert_eq!(x.norm(f64::INFINITY, 0)?.dims(), [0]);
    for p in [f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        let e = x.norm(p, 1).expect_err("an error").to_string();
        assert!(e.starts_with("norm") && e.contains("[2, 0]"), "{e}");
    }
    assert!(x.amax([1]).is_err() && x.norm(f64::NAN, 0).is_err() && x.var(0, -1.0).is_err());
    assert!(x.to_dtype(DType::I64)?.var(0, 1.0).is_err() && x.to_dtype(DType::I64)?.logsumexp(0).is_err());
    assert_eq!(read(&Tensor::scalar(-3f32, d)?.norm(2.0, ())?)?, [3.0]);
    Ok(())
}

fn products_of_integers_are_exact(d: &Device) -> Result<()> {
    for dtype in [DType::U8, DType::U32, DType::I64] {
        let x = tensor(&[200., 100., 3., 0., 7., 1.], (2, 3), dtype, d)?.prod(1)?;
        assert_eq!((x.dtype(), x.to_vec::<i64>()?), (DType::I64, vec![60_000, 0]));
    }
    Ok(())
}

fn the_gradient_of_a_product_knows_zeros(d: &Device) -> Result<()> {
    let cases: [(&[f64], &[f64]); 4] = [
        (&[2., 0., 3., 4.], &[0., 24., 0., 0.]),
        (&[0., 2., 3.], &[6., 0., 0.]),
        (&[0., 0., 3.], &[0.; 3]),
        (&[4., 0.], &[0., 4.]),
    ];
    for (values, wanted) in cases {
        let x = leaf(values, values.len(), d)?;
        x.prod(())?.backward()?;
        assert_eq!(gradient(&x)?, wanted);
    }
    let x = leaf(&[0.], 1, d)?;
    x.prod(0)?.backward()?;
    assert_eq!((gradient(&x)?, x.grad()?.map(|g| g.dims().to_vec())), (vec![1.], Some(vec![1])));
    let x = leaf(&[2., 0., 0., 0., 5., 3.], (2, 3), d)?;
    x.prod(0)?.sum(())?.backward()?;
    assert_eq!(gradient(&x)?, [0., 5., 3., 2., 0., 0.]);
    Ok(())
}

fn a_large_offset_does_not_show_in_a_variance(d: &Device) -> Result<()> {
    for dtype in [DType::F64, DType::F32] {
        // Steps of 64, which f32 holds near 1e8.
        let values: Vec<f64> = (0..5000).map(|i| 1e8 + f64::from(i * 37 % 101) * 64.0).collect();
        let wanted = variance(&values, 1.0);
        let x = tensor(&values, (2, 2500), dtype, d)?;
        close(&read(&x.var((), 1.0)?)?, &[wanted], 1e-6, "all");
        close(&read(&x.t()?.std([0, 1], 1.0)?)?, &[wanted.sqrt()], 1e-6, "transposed");
        let (var, mean) = x.var_mean(1, 0.0)?;
        close(&read(&var)?, &[variance(&values[..2500], 0.0), variance(&values[2500..], 0.0)], 1e-6, "rows");
        close(&read(&mean)?, &read(&x.mean(1)?)?, 1e-6, "means");
    }
    let constant = Tensor::full(1234.5, (300, 7), DType::F16, d)?;
    assert_eq!(read(&constant.var(0, 1.0)?)?, [0.0; 7]);
    Ok(())
}

fn the_variance_of_one_element_is_not_a_number(d: &Device) -> Result<()> {
    let x = leaf(&[5.], 1, d)?;
    let var = x.var((), 1.0)?;
    assert!(read(&var)?[0].is_nan());
    var.backward()?;
    assert!(gradient(&x)?[0].is_nan());
    assert_eq!(read(&x.var((), 0.0)?)?, [0.0]);
    let x = leaf(&[2., 2., 2.], 3, d)?;
    x.std((), 1.0)?.backward()?;
    assert_eq!(gradient(&x)?, [0.0; 3], "of a deviation of 0");
    Ok(())
}

fn large_and_small_numbers_have_a_norm(d: &Device) -> Result<()> {
    let norm = |v: f64, p: f64| read(&Tensor::full(v, (4, 1), DType::F32, d)?.norm(p, ())?);
    close(&norm(1e30, 2.0)?, &[2e30], 1e-6, "large");
    close(&norm(1e-30, 2.0)?, &[2e-30], 1e-6, "small");
    close(&norm(1e30, 3.0)?, &[4f64.cbrt() * 1e30], 1e-6, "large cubes");
    let x = leaf(&[1e30; 4], 4, d)?;
    x.norm(2.0, ())?.backward()?;
    assert_eq!(gradient(&x)?, [0.5; 4]);
    let x = leaf(&[1e30; 4], 4, d)?;
    x.norm(3.0, ())?.backward()?;
    close(&gradient(&x)?, &[4f64.powf(-2.0 / 3.0); 4], 1e-6, "gradient of large cubes");
    assert!(read(&tensor(&[1., f64::NAN], 2, DType::F32, d)?.norm(f64::INFINITY, ())?)?[0].is_nan());
    Ok(())
}

fn the_gradient_of_a_norm_of_zeros_is_zero(d: &Device) -> Result<()> {
    for p in ORDERS {
        let x = leaf(&[0.; 3], 3, d)?;
        x.norm(p, ())?.backward()?;
        assert_eq!(gradient(&x)?, [0.; 3], "{p}");
    }
    for (p, wanted) in [(f64::INFINITY, [0.5, -0.5, 0.0]), (f64::NEG_INFINITY, [0.0, 0.0, 1.0])] {
        let x = leaf(&[3., -3., 1.], 3, d)?;
        x.norm(p, 0)?.backward()?;
        assert_eq!(gradient(&x)?, wanted);
    }
    // The magnitude of 0 has no slope.
    let x = leaf(&[0., 0., 0., 0., 0.1996], 5, d)?;
    x.div(&x.norm_keepdim(1.0, 0)?)?.sum(())?.backward()?;
    close(&gradient(&x)?, &[5.010_020_04, 5.010_020_04, 5.010_020_04, 5.010_020_04, 0.0], 1e-6, "of x over its norm");
    Ok(())
}

fn counting_knows_not_a_number(d: &Device) -> Result<()> {
    for dtype in FLOATS {
        let x = tensor(&[0., f64::NAN, -0., 2.], (2, 2), dtype, d)?;
        assert_eq!(x.count_nonzero(1)?.to_vec::<i64>()?, [1, 1]);
        assert_eq!((x.any(())?.to_scalar::<u8>()?, x.all(())?.to_scalar::<u8>()?), (1, 0));
        assert_eq!(x.all_keepdim(0)?.to_vec2::<u8>()?, [[0, 1]]);
    }
    let x = leaf(&[1., 0.], 2, d)?;
    assert!(!x.any(0)?.tracked() && !x.count_nonzero(0)?.tracked());
    Ok(())
}

fn logsumexp_at_its_limits(d: &Device) -> Result<()> {
    const INF: f64 = f64::INFINITY;
    let x = leaf(&[-INF, -INF, INF, 1., 1000., 1000., f64::NAN, 0., -INF, 3.], (5, 2), d)?;
    let y = x.logsumexp(1)?;
    let found = read(&y)?;
    assert_eq!((found[0], found[1], found[4]), (-INF, INF, 3.0));
    close(&found[2..3], &[1000.0 + 2f64.ln()], 1e-6, "large");
    assert!(found[3].is_nan());
    y.sum(())?.backward()?;
    let g = gradient(&x)?;
    assert_eq!((g[0], g[1], g[3], g[8], g[9]), (0.0, 0.0, 0.0, 0.0, 1.0));
    assert!(g[2].is_nan());
    Ok(())
}

fn masked_rows_of_softmax_are_zero_and_so_are_their_gradients(d: &Device) -> Result<()> {
    let x = leaf(&numbers(12, 5), (4, 3), d)?;
    let mask = tensor(&[1., 1., 1., 0., 0., 0., 1., 0., 1., 0., 1., 0.], (4, 3), DType::U8, d)?;
    for (x, mask) in layouts(&x)?.iter().zip(layouts(&mask)?) {
        let y = read(&x.softmax_masked(&mask, -1)?)?;
        let (values, keep) = (read(x)?, read(&mask)?);
        let wanted: Vec<f64> = (0..12)
            .map(|i| {
                let row = i / 3 * 3..i / 3 * 3 + 3;
                let sum: f64 = row.map(|j| keep[j] * values[j].exp()).sum();
                if keep[i] == 0.0 { 0.0 } else { values[i].exp() / sum }
            })
            .collect();
        close(&y, &wanted, 1e-6, "softmax");
        assert_eq!((y[3], y[6 + 1]), (0.0, 0.0));
    }
    let weights = tensor(&numbers(12, 6), (4, 3), DType::F32, d)?;
    (x.softmax_masked(&mask, -1)? * weights)?.sum(())?.backward()?;
    let g = gradient(&x)?;
    assert!(g.iter().all(|g| g.is_finite()) && g[3..6] == [0.0; 3] && g[7] == 0.0, "{g:?}");
    let one = tensor(&[1., 0., 1.], 3, DType::U8, d)?;
    assert_eq!(read(&x.softmax_masked(&one, 1)?)?[4], 0.0, "a mask that broadcasts");
    assert!(x.softmax_masked(&x, 1).is_err() && one.softmax_masked(&one, 0).is_err());
    Ok(())
}
