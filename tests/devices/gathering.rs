//! Reading, writing and adding by an index for each element; selection by masks.

use crate::support::{cases, each_close, layouts, numbers, read, tensor};
use kiln::{DType, Device, Error, Result, Tensor};

cases![
    gather_reads_along_any_dim_from_any_layout,
    an_index_may_cover_the_front_of_other_dims,
    scatter_writes_and_the_last_of_equal_indices_wins,
    scatter_add_adds_up_in_order_in_every_type,
    sums_are_the_same_every_time,
    slices_are_added_by_an_index_of_one_dim,
    sixteen_bit_sums_do_not_stick,
    nothing_to_do_is_fine,
    an_index_out_of_range_is_told_with_op_and_value,
    masks_select,
    nonzero_lists_places,
    classes_become_rows,
];

/// `[2, 3, 4]` numbers 0 to 23 and where an index of the same shape into `dim` leads: `(o * size + index) * inner + i`.
fn wanted(dim: usize, index: &[usize]) -> Vec<f64> {
    let (size, inner) = ([2, 3, 4][dim], [12, 4, 1][dim]);
    index.iter().enumerate().map(|(u, at)| ((u / inner / size * size + at) * inner + u % inner) as f64).collect()
}

fn gather_reads_along_any_dim_from_any_layout(d: &Device) -> Result<()> {
    let values: Vec<f64> = (0..24).map(f64::from).collect();
    for dtype in DType::ALL {
        for x in layouts(&tensor(&values, (2, 3, 4), dtype, d)?)? {
            for dim in 0..3 {
                let index: Vec<usize> = (0..24).map(|u| u * 7 % [2, 3, 4][dim]).collect();
                let as_f64: Vec<f64> = index.iter().map(|&i| i as f64).collect();
                for id_type in [DType::I64, DType::U32] {
                    let ids = tensor(&as_f64, (2, 3, 4), id_type, d)?;
                    for ids in layouts(&ids)? {
                        assert_eq!(read(&x.gather(dim, &ids)?)?, wanted(dim, &index), "{dtype}, dim {dim}");
                    }
                }
            }
        }
    }
    Ok(())
}

fn an_index_may_cover_the_front_of_other_dims(d: &Device) -> Result<()> {
    let x = tensor(&[0., 1., 2., 3., 4., 5.], (2, 3), DType::I64, d)?;
    let ids = tensor(&[2., 0., 1., 1.], (1, 4), DType::I64, d)?;
    assert_eq!(x.gather(1, &ids)?.to_vec2::<i64>()?, [[2, 0, 1, 1]]);
    let src = tensor(&[7., 8., 9., 10.], (2, 2), DType::I64, d)?;
    let ids = tensor(&[1., 1.], (1, 2), DType::I64, d)?;
    assert_eq!(x.scatter(0, &ids, &src)?.to_vec2::<i64>()?, [[0, 1, 2], [7, 8, 5]]);
    assert_eq!(x.scatter_add(0, &ids, &src)?.to_vec2::<i64>()?, [[0, 1, 2], [10, 12, 5]]);
    assert_eq!(x.take_along_dim(&tensor(&[2., 0.], (1, 2), DType::I64, d)?, 1)?.to_vec2::<i64>()?, [[2, 0], [5, 3]]);
    Ok(())
}

fn scatter_writes_and_the_last_of_equal_indices_wins(d: &Device) -> Result<()> {
    let n = 10_000;
    let index: Vec<f64> = (0..n).map(|j| (j * j % 37) as f64).collect();
    let src: Vec<f64> = (0..n).map(|j| (j % 251) as f64).collect();
    let mut last = [200.0; 40];
    (0..n).for_each(|j| last[index[j] as usize] = src[j]);
    for dtype in DType::ALL {
        let src = tensor(&src, n, dtype, d)?;
        let ids = tensor(&index, n, DType::U32, d)?;
        let x = Tensor::full(200, 40, dtype, d)?;
        assert_eq!(read(&x.scatter(0, &ids, &src)?)?, last, "{dtype}");
        assert_eq!(read(&x)?, [200.0; 40]);
    }
    for x in layouts(&tensor(&[0.; 6], (2, 3), DType::F32, d)?)? {
        for src in layouts(&tensor(&[1., 2., 3., 4.], (2, 2), DType::F32, d)?)? {
            let ids = tensor(&[2., 0., 1., 1.], (2, 2), DType::I64, d)?;
            assert_eq!(x.scatter(1, &ids, &src)?.to_vec2::<f32>()?, [[2., 0., 1.], [0., 4., 0.]]);
            assert_eq!(x.scatter_value(-1, &ids, 5)?.to_vec2::<f32>()?, [[5., 0., 5.], [0., 5., 0.]]);
        }
    }
    Ok(())
}

fn scatter_add_adds_up_in_order_in_every_type(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        let x = tensor(&[1.; 12], (2, 3, 2), dtype, d)?;
        let src = tensor(&(1..13).map(f64::from).collect::<Vec<_>>(), (2, 3, 2), dtype, d)?;
        let ids = tensor(&[0., 2., 0., 2., 1., 1., 2., 2., 2., 2., 2., 0.], (2, 3, 2), DType::I64, d)?;
        let sums = [5., 1., 6., 7., 1., 7., 1., 13., 1., 1., 28., 19.];
        for (x, src) in layouts(&x)?.iter().zip(layouts(&src)?) {
            assert_eq!(read(&x.scatter_add(1, &ids, &src)?)?, sums, "{dtype}");
        }
    }
    let x = Tensor::zeros((2, 5), DType::F32, d)?;
    let ids = tensor(&[0., 4., 4., 4.], (2, 2), DType::I64, d)?;
    let sums = x.scatter_add(1, &ids, &Tensor::ones((2, 2), DType::F32, d)?)?;
    assert_eq!(sums.to_vec2::<f32>()?, [[1., 0., 0., 0., 1.], [0., 0., 0., 0., 2.]]);
    Ok(())
}

fn sums_are_the_same_every_time(d: &Device) -> Result<()> {
    let (n, size) = (100_000, 301);
    let src = numbers(n, 3);
    let index: Vec<usize> = (0..n).map(|j| j * 7919 % 1013 % size).collect();
    let mut wanted = vec![0.0; size];
    (0..n).for_each(|j| wanted[index[j]] += f64::from(src[j] as f32));
    let ids = tensor(&index.iter().map(|&i| i as f64).collect::<Vec<_>>(), n, DType::I64, d)?;
    let src = tensor(&src, n, DType::F32, d)?;
    let sum = || Tensor::zeros(size, DType::F32, d)?.scatter_add(0, &ids, &src)?.to_vec::<f32>();
    let first = sum()?;
    for (found, wanted) in first.iter().zip(&wanted) {
        assert!((f64::from(*found) - wanted).abs() < 1e-3, "{found} is not {wanted}");
    }
    for _ in 0..5 {
        assert!(sum()?.iter().zip(&first).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    Ok(())
}

fn slices_are_added_by_an_index_of_one_dim(d: &Device) -> Result<()> {
    let ids = tensor(&[2., 2., 0.], 3, DType::U32, d)?;
    for dtype in DType::ALL {
        let x = tensor(&[1.; 6], (3, 2), dtype, d)?;
        let src = tensor(&[1., 2., 3., 4., 5., 6.], (3, 2), dtype, d)?;
        for (x, src) in layouts(&x)?.iter().zip(layouts(&src)?) {
            assert_eq!(read(&x.index_add(0, &ids, &src)?)?, [6., 7., 1., 1., 5., 7.], "{dtype}");
            assert_eq!(read(&x.t()?.index_add(-1, &ids, &src.t()?)?)?, [6., 1., 5., 7., 1., 7.], "{dtype}");
        }
    }
    Ok(())
}

fn sixteen_bit_sums_do_not_stick(d: &Device) -> Result<()> {
    let ids = Tensor::zeros((12_500, 1), DType::I64, d)?;
    let src = Tensor::full(0.01, (12_500, 1), DType::F16, d)?;
    let ones = Tensor::ones((1, 1), DType::F16, d)?;
    each_close(&read(&ones.scatter_add(0, &ids, &src)?)?, &[126.0], 1e-3);
    each_close(&read(&ones.index_add(0, &ids.flatten_all()?, &src)?)?, &[126.0], 1e-3);
    let many = Tensor::ones((1000, 1), DType::BF16, d)?;
    let sum = Tensor::zeros((1, 1), DType::BF16, d)?.scatter_add(0, &ids.narrow(0, 0, 1000)?, &many)?;
    assert_eq!(read(&sum)?, [1000.0]);
    Ok(())
}

fn nothing_to_do_is_fine(d: &Device) -> Result<()> {
    let x = tensor(&[1., 2., 3., 4.], (2, 2), DType::F32, d)?;
    let (none, nothing) = (Tensor::zeros((2, 0), DType::I64, d)?, Tensor::zeros((2, 0), DType::F32, d)?);
    assert_eq!(x.gather(1, &none)?.dims(), [2, 0]);
    assert_eq!(read(&x.scatter(1, &none, &nothing)?)?, [1., 2., 3., 4.]);
    assert_eq!(read(&x.scatter_add(1, &none, &nothing)?)?, [1., 2., 3., 4.]);
    assert_eq!(nothing.gather(1, &none)?.dims(), [2, 0]);
    assert_eq!(read(&x.index_add(1, &Tensor::zeros(0, DType::I64, d)?, &nothing)?)?, [1., 2., 3., 4.]);
    let none = Tensor::zeros((0, 2), DType::I64, d)?;
    assert_eq!(x.narrow(0, 0, 0)?.gather(0, &none)?.dims(), [0, 2]);
    Ok(())
}

/// What an op does with an index out of range: an error at once, or at the next read-back.
fn fault(d: &Device, f: impl Fn() -> Result<Tensor>) -> String {
    let e = f().and_then(|y| read(&y)).expect_err("an index out of range");
    assert!(d.synchronize().is_ok(), "told once");
    e.to_string()
}

fn an_index_out_of_range_is_told_with_op_and_value(d: &Device) -> Result<()> {
    let x = tensor(&[1., 2., 3., 4.], (2, 2), DType::F32, d)?;
    for bad in [-1.0, 2.0, 1e15] {
        let ids = tensor(&[0., bad], (2, 1), DType::I64, d)?;
        let src = x.narrow(1, 0, 1)?;
        let faults = [
            ("gather", fault(d, || x.gather(1, &ids))),
            ("scatter", fault(d, || x.scatter(1, &ids, &src))),
            ("scatter_add", fault(d, || x.scatter_add(1, &ids, &src))),
            ("index_add", fault(d, || x.index_add(0, &ids.flatten_all()?, &x))),
            ("scatter", fault(d, || ids.one_hot(2, DType::F32))),
        ];
        for (op, e) in faults {
            assert!(e.contains(op) && e.contains(&format!("{bad}")), "{op}, {bad}: {e}");
        }
    }
    assert_eq!(read(&x)?, [1., 2., 3., 4.]);
    Ok(())
}

fn masks_select(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        for x in layouts(&tensor(&[1., 2., 3., 4., 5., 6.], (2, 3), dtype, d)?)? {
            assert_eq!(read(&x.masked_select(&x.gt(2)?)?)?, [3., 4., 5., 6.], "{dtype}");
            assert_eq!(read(&x.masked_select(&tensor(&[1., 0., 2.], 3, DType::U8, d)?)?)?, [1., 3., 4., 6.]);
            assert_eq!(x.masked_select(&x.gt(9)?)?.dims(), [0]);
        }
    }
    Ok(())
}

fn nonzero_lists_places(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        for x in layouts(&tensor(&[0., 2., 0., 4., 5., 0.], (2, 3), dtype, d)?)? {
            assert_eq!(x.nonzero()?.to_vec2::<i64>()?, [[0, 1], [1, 0], [1, 1]], "{dtype}");
        }
    }
    let dry = Device::dry_run("1GiB")?;
    assert!(matches!(Tensor::ones(2, DType::F32, &dry)?.nonzero(), Err(Error::DryRun { op: "nonzero" })));
    Ok(())
}

fn classes_become_rows(d: &Device) -> Result<()> {
    for id_type in [DType::I64, DType::U32] {
        let classes = tensor(&[2., 0., 1., 1.], (2, 2), id_type, d)?;
        for dtype in DType::ALL {
            let rows = classes.t()?.one_hot(3, dtype)?;
            assert_eq!(rows.dtype(), dtype);
            assert_eq!(read(&rows)?, [0., 0., 1., 0., 1., 0., 1., 0., 0., 0., 1., 0.]);
        }
    }
    Ok(())
}
