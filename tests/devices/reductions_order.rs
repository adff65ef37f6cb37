//! Running sums and products, and sorting.

use crate::support::{FLOATS, cases, close, gradient, layouts, leaf, numbers, read, tensor, tolerance};
use kiln::prelude::*;
use kiln::{DType, Device, Result, Tensor};

cases![
    running_sums_and_products_follow_f64,
    running_sums_of_integers_are_exact,
    running_products_have_gradients_with_zeros,
    sorting_is_stable_in_any_layout_and_type,
    long_rows_are_sorted,
    not_a_number_is_the_largest,
    the_first_few_and_one_of_them,
    gradients_go_back_to_where_elements_came_from,
    sorting_nothing_and_too_little,
];

/// Applies `f` to each lane along `dim`; lanes may change their length.
fn lanes(values: &[f64], dims: &[usize], dim: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let (n, inner) = (dims[dim], dims[dim + 1..].iter().product::<usize>());
    let outer: usize = dims[..dim].iter().product();
    let all: Vec<Vec<f64>> = (0..outer * inner)
        .map(|l| f(&(0..n).map(|j| values[(l / inner * n + j) * inner + l % inner]).collect::<Vec<_>>()))
        .collect();
    let m = all.first().map_or(0, Vec::len);
    (0..outer * m * inner).map(|i| all[i / (m * inner) * inner + i % inner][i / inner % m]).collect()
}

fn running(v: &[f64], op: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let mut acc = None;
    v.iter().map(|&x| *acc.insert(acc.map_or(x, |a| op(a, x)))).collect()
}

/// Where the sorted elements of a lane are; a stable order with NaN last (first where descending).
fn order(v: &[f64], descending: bool) -> Vec<usize> {
    let mut at: Vec<usize> = (0..v.len()).collect();
    let key = |i: usize| if v[i].is_nan() { f64::INFINITY } else { v[i] };
    at.sort_by(|&a, &b| {
        let by = key(a).partial_cmp(&key(b)).expect("numbers");
        if descending { by.reverse() } else { by }
    });
    at
}

fn running_sums_and_products_follow_f64(d: &Device) -> Result<()> {
    for dims in [&[3, 5, 40][..], &[9, 1030], &[5000], &[2500, 3], &[1, 1], &[2, 0, 3]] {
        for dtype in FLOATS {
            let sizes: usize = dims.iter().product();
            let values: Vec<f64> = numbers(sizes, 2).into_iter().map(|v| v.abs() + 0.1).collect();
            let x = tensor(&values, dims, dtype, d)?;
            let near_one = tensor(&values.iter().map(|v| ((v - 1.1) / 64.0).exp()).collect::<Vec<_>>(), dims, dtype, d)?;
            for dim in 0..dims.len() {
                let sums = lanes(&read(&x)?, dims, dim, |v| running(v, |a, b| a + b));
                let products = lanes(&read(&near_one)?, dims, dim, |v| running(v, |a, b| a * b));
                for (x, near_one) in layouts(&x)?.iter().zip(layouts(&near_one)?) {
                    let what = format!("dim {dim} of {x:?}");
                    close(&read(&x.cumsum(dim)?)?, &sums, tolerance(dtype, dims[dim]), &format!("cumsum {what}"));
                    close(&read(&near_one.cumprod(dim)?)?, &products, tolerance(dtype, dims[dim]), &format!("cumprod {what}"));
                }
            }
        }
    }
    let row = tensor(&[1., 2., 3.], 3, DType::F32, d)?.expand((2, 3))?;
    assert_eq!((read(&row.cumsum(0)?)?, row.cumsum(-1)?.dims()), (vec![1., 2., 3., 2., 4., 6.], &[2, 3][..]));
    assert!(row.cumsum(2).is_err() && Tensor::scalar(1f32, d)?.cumsum(0).is_err());
    Ok(())
}

fn running_sums_of_integers_are_exact(d: &Device) -> Result<()> {
    for dtype in [DType::U8, DType::U32, DType::I64] {
        let x = Tensor::full(200, 3000, dtype, d)?.cumsum(0)?;
        let wanted: Vec<i64> = (1..=3000).map(|i| 200 * i).collect();
        assert_eq!((x.dtype(), x.to_vec::<i64>()?), (DType::I64, wanted));
        assert_eq!(tensor(&[100., 100., 3.], 3, dtype, d)?.cumprod(0)?.to_vec::<i64>()?, [100, 10_000, 30_000]);
    }
    Ok(())
}

fn running_products_have_gradients_with_zeros(d: &Device) -> Result<()> {
    // y = [2, 0, 0, 0]: dx_0 = 1 + 0, dx_1 = 2 + 6 + 24, behind the zero nothing counts.
    let x = leaf(&[2., 0., 3., 4.], 4, d)?;
    x.cumprod(0)?.sum(())?.backward()?;
    assert_eq!(gradient(&x)?, [1., 32., 0., 0.]);
    let x = leaf(&[0., 0., 3.], (3, 1), d)?.expand((3, 2))?.contiguous()?.detach().requires_grad()?;
    x.cumprod(0)?.sum(())?.backward()?;
    assert_eq!(gradient(&x)?, [1., 1., 0., 0., 0., 0.]);
    let x = Tensor::ones((2, 3000), DType::F32, d)?.requires_grad()?;
    x.cumprod(1)?.sum(())?.backward()?;
    assert_eq!(gradient(&x)?, (0..6000).map(|i| f64::from(3000 - i % 3000)).collect::<Vec<_>>());
    Ok(())
}

fn check_sort(x: &Tensor, values: &[f64], dim: usize) -> Result<()> {
    for descending in [false, true] {
        let what = format!("dim {dim} of {x:?}, descending: {descending}");
        let (sorted, indices) = x.sort(dim, descending)?;
        let places = lanes(values, x.dims(), dim, |v| order(v, descending).into_iter().map(|i| i as f64).collect());
        let wanted = lanes(values, x.dims(), dim, |v| order(v, descending).into_iter().map(|i| v[i]).collect());
        assert!(read(&indices)? == places, "indices of {what}");
        assert!(read(&sorted)? == wanted, "values of {what}");
        assert_eq!(read(&x.argsort(dim, descending)?)?, places, "{what}");
        assert_eq!((sorted.dtype(), sorted.dims()), (x.dtype(), x.dims()));
    }
    Ok(())
}

fn sorting_is_stable_in_any_layout_and_type(d: &Device) -> Result<()> {
    for dims in [&[3, 5, 40][..], &[7, 300], &[2, 700], &[64], &[1, 1], &[3, 0, 2]] {
        for dtype in DType::ALL {
            // Few different numbers: many are equal. Negative ones where the type has them.
            let low = if matches!(dtype, DType::U8 | DType::U32) { 0.0 } else { -9.0 };
            let values: Vec<f64> = numbers(dims.iter().product(), 4).into_iter().map(|v| (v * 4.0).round() + 9.0 + low).collect();
            let x = tensor(&values, dims, dtype, d)?;
            for view in layouts(&x)? {
                (0..dims.len()).try_for_each(|dim| check_sort(&view, &values, dim))?;
            }
        }
    }
    Ok(())
}

fn long_rows_are_sorted(d: &Device) -> Result<()> {
    for dims in [[3, 2048], [3, 2049], [2, 5000], [1, 70_001]] {
        for dtype in [DType::F32, DType::F64, DType::I64, DType::F16] {
            let x = tensor(&numbers(dims.iter().product(), 8).iter().map(|v| v * 1000.0).collect::<Vec<_>>(), dims, dtype, d)?;
            check_sort(&x, &read(&x)?, 1)?;
            let (values, indices) = x.topk(7, 1, true)?;
            let (sorted, places) = x.sort(1, true)?;
            assert_eq!(read(&values)?, read(&sorted.narrow(1, 0, 7)?)?);
            assert_eq!(read(&indices)?, read(&places.narrow(1, 0, 7)?)?);
        }
    }
    let large = [i64::MAX, i64::MIN, 0, -1, (1 << 53) + 1, 1 << 53];
    let sorted = Tensor::from_slice(&large, 6, d)?.sort(0, false)?.0.to_vec::<i64>()?;
    assert_eq!(sorted, [i64::MIN, -1, 0, 1 << 53, (1 << 53) + 1, i64::MAX]);
    Ok(())
}

fn not_a_number_is_the_largest(d: &Device) -> Result<()> {
    const INF: f64 = f64::INFINITY;
    for dtype in FLOATS {
        let x = tensor(&[f64::NAN, INF, 0., -0., -INF, -f64::NAN, 1.], 7, dtype, d)?;
        assert_eq!(x.argsort(0, false)?.to_vec::<i64>()?, [4, 2, 3, 6, 1, 0, 5], "{dtype}");
        assert_eq!(x.argsort(0, true)?.to_vec::<i64>()?, [0, 5, 1, 6, 2, 3, 4], "{dtype}");
        assert!(read(&x.topk(1, 0, true)?.0)?[0].is_nan());
    }
    Ok(())
}

fn the_first_few_and_one_of_them(d: &Device) -> Result<()> {
    let x = tensor(&[3., 1., 4., 1., 5., 9., 2., 6., 5., 3., 5., 8.], (2, 6), DType::F32, d)?;
    for x in layouts(&x)? {
        let (values, indices) = x.topk(3, -1, true)?;
        assert_eq!((read(&values)?, read(&indices)?), (vec![9., 5., 4., 8., 6., 5.], vec![5., 4., 2., 5., 1., 2.]));
        let (values, indices) = x.topk(1, 0, false)?;
        assert_eq!((read(&values)?, values.dims()), (vec![2., 1., 4., 1., 5., 8.], &[1, 6][..]));
        assert_eq!(read(&indices)?, [1., 0., 0., 0., 0., 1.]);
        let (values, indices) = x.kthvalue(2, 1)?;
        assert_eq!((read(&values)?, read(&indices)?), (vec![1., 3.], vec![3., 3.]));
    }
    Ok(())
}

fn gradients_go_back_to_where_elements_came_from(d: &Device) -> Result<()> {
    let weights = |n: usize| tensor(&(1..=n).map(|i| i as f64).collect::<Vec<_>>(), n, DType::F32, d);
    let x = leaf(&[3., 1., 3., 2.], 4, d)?;
    (x.sort(0, false)?.0 * weights(4)?)?.sum(())?.backward()?;
    assert_eq!(gradient(&x)?, [3., 1., 4., 2.]);
    let x = leaf(&[3., 1., 3., 2.], 4, d)?;
    (x.topk(2, 0, true)?.0 * weights(2)?)?.sum(())?.backward()?;
    assert_eq!(gradient(&x)?, [1., 0., 2., 0.]);
    let x = leaf(&[3., 1., 3., 2.], (2, 2), d)?;
    x.kthvalue(2, 0)?.0.sum(())?.backward()?;
    assert_eq!(gradient(&x)?, [0., 0., 1., 1.]);
    assert!(!x.argsort(0, false)?.tracked() && !x.sort(0, false)?.1.tracked());
    Ok(())
}

fn sorting_nothing_and_too_little(d: &Device) -> Result<()> {
    let x = Tensor::zeros((2, 0), DType::F32, d)?;
    assert_eq!((x.sort(1, false)?.0.dims(), x.sort(0, true)?.1.dims()), (&[2, 0][..], &[2, 0][..]));
    let (values, indices) = Tensor::ones((2, 3), DType::F32, d)?.topk(0, 1, true)?;
    assert_eq!((values.dims(), indices.dims()), (&[2, 0][..], &[2, 0][..]));
    let e = x.topk(1, 1, true).expect_err("an error").to_string();
    assert!(e.starts_with("topk") && e.contains("[2, 0]"), "{e}");
    assert!(x.kthvalue(1, 1).is_err() && x.kthvalue(0, 0).is_err() && x.sort(2, false).is_err());
    Ok(())
}
