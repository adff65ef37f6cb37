//! Reading and adding by index on the CPU.

mod support;

use kiln_kernels::{DType, KernelError};
use support::Device;
use support::calls::{index_add, index_select};

#[test]
fn select_reads_along_any_dim_in_every_type() {
    let d = Device::cpu();
    let values: Vec<f64> = (0..24).map(f64::from).collect();
    for (dtype, index_type) in DType::ALL.into_iter().flat_map(|t| [(t, DType::I64), (t, DType::U32)]) {
        let x = d.dense(dtype, &[2, 3, 4], &values);
        let index = d.dense(index_type, &[4], &[1.0, 1.0, 0.0, 1.0]);
        for dim in 0..3 {
            let inner: usize = [12, 4, 1][dim];
            let size = [2, 3, 4][dim];
            let wanted = (0..24 / size * 4).map(|i| {
                let (row, i) = (i / inner, i % inner);
                ((row / 4 * size + [1, 1, 0, 1][row % 4]) * inner + i) as f64
            });
            assert_eq!(index_select(&d, &x, dim, &index).unwrap(), wanted.collect::<Vec<_>>());
        }
    }
}

#[test]
fn add_meets_equal_indices_in_order() {
    let d = Device::cpu();
    for dtype in DType::ALL {
        let src = d.dense(dtype, &[2, 3, 2], &(1..13).map(f64::from).collect::<Vec<_>>());
        let out = d.dense(dtype.accumulator(), &[2, 2, 2], &[1.0; 8]);
        let index = d.dense(DType::I64, &[3], &[1.0, 1.0, 0.0]);
        assert_eq!(index_add(&d, &src, 1, &index, &out).unwrap(), [6.0, 7.0, 5.0, 7.0, 12.0, 13.0, 17.0, 19.0]);
    }
}

#[test]
fn sixteen_bit_sums_do_not_stick() {
    let d = Device::cpu();
    let ones = d.dense(DType::BF16, &[1000, 1], &[1.0; 1000]);
    let zeros = d.dense(DType::I64, &[1000], &[0.0; 1000]);
    let out = d.dense(DType::F32, &[2, 1], &[0.0; 2]);
    assert_eq!(index_add(&d, &ones, 0, &zeros, &out).unwrap(), [1000.0, 0.0]);
    let hundredths = d.dense(DType::F16, &[12_500, 1], &[0.01; 12_500]);
    let zeros = d.dense(DType::U32, &[12_500], &[0.0; 12_500]);
    let out = d.dense(DType::F32, &[1, 1], &[1.0]);
    let sum = index_add(&d, &hundredths, 0, &zeros, &out).unwrap()[0];
    assert_eq!(support::rounded(DType::F16, &[sum]), [126.0]);
}

#[test]
fn an_index_out_of_range_is_an_error_and_nothing_is_written() {
    let d = Device::cpu();
    let x = d.dense(DType::F32, &[3, 2], &[0.0; 6]);
    for bad in [3.0, -1.0] {
        let index = d.dense(DType::I64, &[2], &[0.0, bad]);
        let error = index_select(&d, &x, 0, &index).unwrap_err();
        assert!(matches!(error, KernelError::Index { kernel: "index_select", value, size: 3 } if value as f64 == bad));
        let src = d.dense(DType::F32, &[2, 2], &[1.0; 4]);
        assert!(matches!(index_add(&d, &src, 0, &index, &x), Err(KernelError::Index { kernel: "index_add", size: 3, .. })));
        assert_eq!(d.read(&x), [0.0; 6]);
    }
}

#[test]
fn no_indices_and_no_columns_are_fine() {
    let d = Device::cpu();
    let (x, none) = (d.dense(DType::F32, &[3, 2], &[5.0; 6]), d.dense(DType::I64, &[0], &[]));
    assert_eq!(index_select(&d, &x, 0, &none).unwrap(), []);
    assert_eq!(index_add(&d, &d.dense(DType::F32, &[0, 2], &[]), 0, &none, &x).unwrap(), [5.0; 6]);
    let (empty, one) = (d.dense(DType::F32, &[3, 0], &[]), d.dense(DType::I64, &[1], &[2.0]));
    assert_eq!(index_select(&d, &empty, 0, &one).unwrap(), []);
    assert_eq!(index_add(&d, &d.dense(DType::F32, &[1, 0], &[]), 0, &one, &empty).unwrap(), []);
}

#[test]
fn a_dim_longer_than_any_memory_is_fine_where_there_are_no_columns() {
    let d = Device::cpu();
    let (src, out) = (d.dense(DType::F32, &[2, 0], &[]), d.dense(DType::F32, &[usize::MAX, 0], &[]));
    let index = d.dense(DType::I64, &[2], &[1.0, 0.0]);
    assert!(index_add(&d, &src, 0, &index, &out).unwrap().is_empty());
}

#[test]
fn many_rows_are_added_on_many_threads() {
    let d = Device::cpu();
    let (n, size, inner) = (5000, 37, 20);
    let src = support::numbers(DType::F32, n * inner, 1);
    let index: Vec<f64> = (0..n).map(|j| (j * j % size) as f64).collect();
    let mut wanted = vec![0.0; size * inner];
    for j in 0..n {
        (0..inner).for_each(|i| wanted[index[j] as usize * inner + i] += src[j * inner + i]);
    }
    let out = d.dense(DType::F32, &[size, inner], &vec![0.0; size * inner]);
    let index = d.dense(DType::I64, &[n], &index);
    let sums = index_add(&d, &d.dense(DType::F32, &[n, inner], &src), 0, &index, &out).unwrap();
    support::close(&sums, &wanted, support::tolerance(DType::F32, n / size), "sums");
}
