//! Sizes that overflow, and ranges.

use kiln_tensor::{DType, Device, Error, Result, Tensor};

#[test]
fn sizes_that_overflow_are_errors_before_anything_is_taken() {
    let device = Device::dry_run("1GiB").unwrap();
    let allocations = device.memory_stats().allocations;
    for dims in [&[2, 2, 1, 1 << 61][..], &[2; 64], &[1 << 62]] {
        let found = Tensor::zeros(dims, DType::F32, &device);
        assert!(matches!(found, Err(Error::SizeOverflow { .. })), "{dims:?}: {found:?}");
    }
    assert!(matches!(Tensor::zeros([1; 9], DType::F32, &device), Err(Error::Shape { op: "zeros", .. })));
    assert_eq!(device.memory_stats().allocations, allocations);
}

#[test]
fn an_empty_tensor_may_have_dims_of_any_size() -> Result<()> {
    let device = Device::cpu();
    for shape in [[0, 1 << 62, 1 << 62], [2, usize::MAX, 0], [1 << 61, 0, 1]] {
        let x = Tensor::zeros(shape, DType::F32, &device)?;
        assert_eq!((x.elem_count(), x.dims(), x.to_vec::<f32>()?), (0, &shape[..], vec![]));
        assert!(format!("{x} {x:?}").len() < 4000);
        // Products of some of its dims overflow, so ops refuse it.
        assert!(matches!(x.exp(), Err(Error::SizeOverflow { .. })));
        assert!(matches!(x.sum(0), Err(Error::SizeOverflow { .. })));
        assert!(matches!(x.t(), Err(Error::SizeOverflow { .. })));
    }
    Ok(())
}

#[test]
fn ops_take_empty_tensors_of_long_dims() -> Result<()> {
    for shape in [[2, 1 << 40, 0], [1 << 20, 0, 1 << 20], [0, 1 << 20, 1 << 20]] {
        let x = Tensor::zeros(shape, DType::F32, &Device::cpu())?;
        assert_eq!(x.softmax(-1)?.log_softmax(0)?.dims(), shape);
        assert_eq!(x.dropout(0.5)?.dims(), shape);
        assert_eq!(x.gt(0.0)?.where_cond(&x, &x)?.dims(), shape);
        assert_eq!(Tensor::cat(&[&x, &x], 1)?.elem_count(), 0);
    }
    Ok(())
}

#[test]
fn views_of_what_is_there_cannot_overflow() -> Result<()> {
    let x = Tensor::zeros(1, DType::F32, &Device::cpu())?;
    assert!(matches!(x.expand((1 << 40, 1 << 40)), Err(Error::SizeOverflow { .. })));
    assert!(x.reshape((1 << 40, 1 << 40)).is_err());
    Ok(())
}

#[test]
fn ranges_have_ceil_of_span_over_step_elements() -> Result<()> {
    let device = Device::cpu();
    for (start, end, step, n) in [(0., 1., 0.1, 10), (1., 1.3, 0.1, 4), (0.6, 0.9, 0.1, 4), (5., 0., -0.5, 10), (0., 0., 1., 0)] {
        let x = Tensor::arange(start, end, step, DType::F64, &device)?.to_vec1::<f64>()?;
        assert_eq!(x.len(), n, "{start}..{end} by {step}");
        assert!(x.iter().enumerate().all(|(i, v)| *v == start + i as f64 * step));
    }
    let big = (1i64 << 53) + 1;
    assert_eq!(Tensor::arange(big, big + 5, 2, DType::I64, &device)?.to_vec1::<i64>()?, [big, big + 2, big + 4]);
    assert_eq!(Tensor::arange(7, 0, -3, DType::U8, &device)?.to_vec1::<u8>()?, [7, 4, 1]);
    for (start, end, step) in [(0., 1., 0.), (0., 1., -1.), (0., f64::INFINITY, 1.), (f64::NAN, 1., 1.)] {
        assert!(matches!(Tensor::arange(start, end, step, DType::F32, &device), Err(Error::Argument { op: "arange", .. })));
    }
    Ok(())
}
