//! Matrix products against f64: ‖out − ref‖ / ‖ref‖ within the bound for sums of `k` elements.

use crate::support::{FLOATS, broadcast, cases, close, layouts, numbers, read, tensor, tolerance};
use kiln::{DType, Device, Result, Tensor};

cases![
    products_of_all_shapes_and_types,
    batches_broadcast,
    operands_lie_in_any_layout,
    vectors_are_rows_and_columns,
    linear_is_a_product_with_a_bias,
    sums_are_kept_in_f32
];

/// `a·b` for matrices.
fn product(a: &[f64], b: &[f64], (m, k, n): (usize, usize, usize)) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for (row, a) in c.chunks_exact_mut(n.max(1)).zip(a.chunks_exact(k.max(1))) {
        for (&x, b) in a.iter().zip(b.chunks_exact(n.max(1))) {
            row.iter_mut().zip(b).for_each(|(c, y)| *c += x * y);
        }
    }
    c
}

fn products_of_all_shapes_and_types(d: &Device) -> Result<()> {
    for (m, k, n) in [(1, 1, 1), (3, 4, 5), (7, 1, 9), (2, 0, 3), (0, 4, 2), (3, 5, 0), (1, 300, 1), (64, 33, 17), (130, 257, 65)]
    {
        for dtype in FLOATS {
            let (a, b) = (tensor(&numbers(m * k, 1), (m, k), dtype, d)?, tensor(&numbers(k * n, 2), (k, n), dtype, d)?);
            let c = a.matmul(&b)?;
            assert_eq!((c.dims(), c.dtype()), (&[m, n][..], dtype));
            let wanted = product(&read(&a)?, &read(&b)?, (m, k, n));
            close(&read(&c)?, &wanted, tolerance(dtype, k), &format!("{a:?} by {b:?}"));
        }
    }
    Ok(())
}

fn batches_broadcast(d: &Device) -> Result<()> {
    type Dims = &'static [usize];
    let shapes: [(Dims, Dims, Dims); 4] = [
        (&[5, 3, 4], &[4, 2], &[5]),
        (&[3, 4], &[5, 4, 2], &[5]),
        (&[5, 1, 3, 4], &[2, 4, 6], &[5, 2]),
        (&[0, 3, 4], &[4, 2], &[0]),
    ];
    for (a_dims, b_dims, lead) in shapes {
        let (m, k, n) = (a_dims[a_dims.len() - 2], a_dims[a_dims.len() - 1], b_dims[b_dims.len() - 1]);
        let a = tensor(&numbers(a_dims.iter().product(), 1), a_dims, DType::F32, d)?;
        let b = tensor(&numbers(b_dims.iter().product(), 2), b_dims, DType::F32, d)?;
        let a_wide = broadcast(&read(&a)?, a_dims, &[lead, &[m, k]].concat());
        let b_wide = broadcast(&read(&b)?, b_dims, &[lead, &[k, n]].concat());
        let wanted: Vec<f64> =
            a_wide.chunks(m * k).zip(b_wide.chunks(k * n)).flat_map(|(a, b)| product(a, b, (m, k, n))).collect();
        let c = a.matmul(&b)?;
        assert_eq!(c.dims(), [lead, &[m, n]].concat());
        close(&read(&c)?, &wanted, tolerance(DType::F32, k), &format!("{a:?} by {b:?}"));
    }
    Ok(())
}

fn operands_lie_in_any_layout(d: &Device) -> Result<()> {
    for dtype in FLOATS {
        let (a, b) = (tensor(&numbers(2 * 9 * 12, 1), (2, 9, 12), dtype, d)?, tensor(&numbers(12 * 7, 2), (12, 7), dtype, d)?);
        let wanted: Vec<f64> = read(&a)?.chunks(9 * 12).flat_map(|m| product(m, &read(&b).unwrap(), (9, 12, 7))).collect();
        for a in layouts(&a)? {
            for b in layouts(&b)? {
                close(&read(&a.matmul(&b)?)?, &wanted, tolerance(dtype, 12), &format!("{:?} by {:?}", a.layout(), b.layout()));
            }
        }
        let row = tensor(&numbers(12, 3), (1, 12), dtype, d)?.expand((9, 12))?;
        let wanted = product(&broadcast(&read(&row.narrow(0, 0, 1)?)?, &[1, 12], &[9, 12]), &read(&b)?, (9, 12, 7));
        close(&read(&row.matmul(&b)?)?, &wanted, tolerance(dtype, 12), "a broadcast operand");
    }
    Ok(())
}

fn vectors_are_rows_and_columns(d: &Device) -> Result<()> {
    let (v, m) = (tensor(&[1., 2.], 2, DType::F32, d)?, tensor(&[1., 2., 3., 4.], (2, 2), DType::F32, d)?);
    assert_eq!(v.matmul(&m)?.to_vec1::<f32>()?, [7., 10.]);
    assert_eq!(m.matmul(&v)?.to_vec1::<f32>()?, [5., 11.]);
    assert_eq!(v.matmul(&v)?.to_scalar::<f32>()?, 5.0);
    assert_eq!(m.expand((3, 2, 2))?.matmul(&v)?.dims(), [3, 2]);
    Ok(())
}

fn linear_is_a_product_with_a_bias(d: &Device) -> Result<()> {
    for dtype in FLOATS {
        let (x, w) = (tensor(&numbers(2 * 3 * 5, 1), (2, 3, 5), dtype, d)?, tensor(&numbers(4 * 5, 2), (4, 5), dtype, d)?);
        let bias = tensor(&numbers(4, 3), 4, dtype, d)?;
        let plain = product(&read(&x)?, &read(&w.t()?)?, (6, 5, 4));
        let wanted: Vec<f64> = plain.iter().zip(broadcast(&read(&bias)?, &[4], &[6, 4])).map(|(y, b)| y + b).collect();
        for (x, w) in layouts(&x)?.iter().zip(layouts(&w)?) {
            close(&read(&x.linear(&w, Some(&bias))?)?, &wanted, tolerance(dtype, 5), "with a bias");
            close(&read(&x.linear(&w, None)?)?, &plain, tolerance(dtype, 5), "without");
        }
    }
    Ok(())
}

fn sums_are_kept_in_f32(d: &Device) -> Result<()> {
    for dtype in [DType::F16, DType::BF16] {
        let ones = |dims| Tensor::ones(dims, dtype, d);
        assert_eq!(read(&ones((1, 4096))?.matmul(&ones((4096, 1))?)?)?, [4096.0], "{dtype}");
    }
    Ok(())
}
