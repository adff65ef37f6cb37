//! Gradients of products, variances, norms, logsumexp, running sums and products, sorting and masked softmax.

mod support;

use kiln_tensor::{DType, Result, Tensor};
use support::{check, check_in, check_values};

const SHAPES: [&[usize]; 4] = [&[6], &[3, 4], &[2, 3, 4], &[2, 0]];

/// Checks over each dim, and over all dims.
#[track_caller]
fn over_dims(f: impl Fn(&Tensor, &[usize]) -> Result<Tensor>) {
    for shape in SHAPES {
        for dim in 0..shape.len() {
            check(&[shape], |x| f(&x[0], &[dim]));
        }
        check(&[shape], |x| f(&x[0], &[]));
    }
    check(&[&[2, 3, 2]], |x| f(&x[0], &[0, 2]));
}

#[test]
fn products() {
    over_dims(|x, dims| x.prod(dims));
    check(&[&[2, 3]], |x| x[0].prod_keepdim(-1));
    check_values(&[(&[2., 0., 3., 0., 0., 5.], &[2, 3])], |x| x[0].prod(1));
    check(&[&[]], |x| x[0].prod(()));
}

#[test]
fn variances_and_deviations() {
    let full = |x: &Tensor, dims: &[usize]| x.elem_count() > 0 && (dims.is_empty() || dims.iter().all(|&d| x.dims()[d] > 1));
    over_dims(|x, dims| if full(x, dims) { x.var(dims, 1.0) } else { x.sum(dims) });
    over_dims(|x, dims| if full(x, dims) { x.std(dims, 0.0) } else { x.sum(dims) });
    check(&[&[3, 4]], |x| x[0].var_keepdim(0, 0.0));
    check(&[&[3, 4]], |x| {
        let (var, mean) = x[0].var_mean(1, 1.0)?;
        var.mul(&mean)
    });
    check(&[&[3, 4]], |x| Ok(x[0].std_mean((), 1.0)?.1));
}

#[test]
fn norms() {
    for p in [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -1.0, f64::INFINITY, f64::NEG_INFINITY] {
        // Far from ties of magnitudes, where extremes have a kink.
        for dim in 0..2 {
            check_in(0.5, 2.0, &[&[3, 4]], |x| x[0].neg()?.norm(p, dim));
        }
        check_values(&[(&[0.7, -1.1, 1.9, -0.4, 0.5, 1.3], &[2, 3])], |x| x[0].norm(p, 1));
        check_values(&[(&[0.7, -1.1, 1.9, -0.4, 0.5, 1.3], &[2, 3])], |x| x[0].norm_keepdim(p, ()));
    }
    over_dims(|x, dims| x.norm(2.0, dims));
}

#[test]
fn logsumexp() {
    over_dims(|x, dims| x.logsumexp(dims));
    check(&[&[2, 3]], |x| x[0].logsumexp_keepdim(0));
}

#[test]
fn running_sums_and_products() {
    for shape in SHAPES {
        for dim in 0..shape.len() {
            check(&[shape], |x| x[0].cumsum(dim));
            check(&[shape], |x| x[0].cumprod(dim));
        }
    }
    check_values(&[(&[2., 0., 3., 0.5, 0., 5., 0., 1.], &[2, 4])], |x| x[0].cumprod(1));
    check_values(&[(&[2., 0., 3., 0.5, 0., 5., 0., 1.], &[4, 2])], |x| x[0].cumprod(0));
}

#[test]
fn sorted_elements() {
    // Equal elements of a broadcast input move together; the order of others stays within a step.
    const APART: &[f64] = &[0.3, -1.4, 1.7, 0.9, -0.6, -1.9];
    for dim in 0..2 {
        check_values(&[(APART, &[3, 2])], |x| Ok(x[0].sort(dim, false)?.0));
        check_values(&[(APART, &[3, 2])], |x| Ok(x[0].sort(dim, true)?.0));
        check_values(&[(APART, &[2, 3])], |x| Ok(x[0].topk(2, dim, true)?.0));
        check_values(&[(APART, &[2, 3])], |x| Ok(x[0].kthvalue(2, dim)?.0));
    }
    check(&[&[2, 0]], |x| Ok(x[0].sort(1, false)?.0));
}

#[test]
fn masked_softmax() {
    check(&[&[3, 4]], |x| {
        let mask = Tensor::from_slice(&[1u8, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0], (3, 4), x[0].device())?;
        x[0].softmax_masked(&mask, 1)
    });
    check(&[&[2, 3, 2]], |x| x[0].softmax_masked(&Tensor::ones((3, 1), DType::U8, x[0].device())?, 1));
}
