//! Making tensors, reading them back, and conversion between element types.

use crate::support::{cases, read, tensor};
use half::{bf16, f16};
use kiln::{DType, Device, Error, Result, Tensor};

cases![
    every_type_is_made_and_read_back,
    rust_types_come_back_as_they_went,
    every_pair_of_types_converts_as_on_the_host,
    f16_overflows_where_ieee_says,
    bf16_rounds_to_nearest_even,
    floats_saturate_into_integers,
    ranges_count_in_f64_from_the_given_numbers,
    sizes_that_overflow_are_errors_before_any_allocation,
    tensors_of_no_elements_are_values,
];

fn every_type_is_made_and_read_back(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        let x = Tensor::arange(0, 6, 1, dtype, d)?.reshape((2, 3))?;
        assert_eq!((x.dims(), x.dtype(), x.device()), (&[2, 3][..], dtype, d));
        assert_eq!(read(&x)?, [0., 1., 2., 3., 4., 5.]);
        assert_eq!(read(&Tensor::zeros(3, dtype, d)?)?, [0.; 3]);
        assert_eq!(read(&x.ones_like()?)?, [1.; 6]);
        assert_eq!(read(&Tensor::full(7, (1, 2), dtype, d)?)?, [7.; 2]);
        assert_eq!(read(&Tensor::eye(2, dtype, d)?)?, [1., 0., 0., 1.]);
        assert_eq!(read(&x.to_device(&Device::cpu())?.t()?.to_device(d)?)?, [0., 3., 1., 4., 2., 5.]);
    }
    Ok(())
}

fn rust_types_come_back_as_they_went(d: &Device) -> Result<()> {
    let halves = [f16::MIN, f16::EPSILON, f16::INFINITY];
    assert_eq!(Tensor::from_slice(&halves, 3, d)?.to_vec::<f16>()?, halves);
    let brains = [bf16::MIN, bf16::EPSILON, bf16::INFINITY];
    assert_eq!(Tensor::from_slice(&brains, 3, d)?.to_vec::<bf16>()?, brains);
    let longs = [i64::MIN, -1, i64::MAX];
    assert_eq!(Tensor::from_slice(&longs, (3, 1), d)?.to_vec2::<i64>()?, [[i64::MIN], [-1], [i64::MAX]]);
    assert_eq!(Tensor::from_vec(vec![u32::MAX, 0], 2, d)?.to_vec1::<u32>()?, [u32::MAX, 0]);
    assert_eq!(Tensor::scalar(200u8, d)?.to_scalar::<u8>()?, 200);
    assert!(Tensor::scalar(f32::NAN, d)?.to_scalar::<f32>()?.is_nan());
    assert!(matches!(Tensor::scalar(1f32, d)?.to_vec::<f64>(), Err(Error::DType { op: "to_vec", .. })));
    Ok(())
}

fn every_pair_of_types_converts_as_on_the_host(d: &Device) -> Result<()> {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        3.999,
        127.5,
        255.0,
        256.0,
        257.0,
        259.0,
        65504.0,
        65520.0,
        1e10,
        -1e10,
        4294967296.0,
        9007199254740993.0,
        3.4e38,
        1e300,
        1e-8,
        6e-8,
        1e-40,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.269_140_877_029_227_2,
        1.003_906_25,
        1.0 + 1e-12,
    ];
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    for from in DType::ALL {
        let (here, there) = (tensor(&values, values.len(), from, &Device::cpu())?, tensor(&values, values.len(), from, d)?);
        for to in DType::ALL {
            let (wanted, found) = (read(&here.to_dtype(to)?)?, read(&there.to_dtype(to)?)?);
            for i in 0..values.len() {
                assert!(
                    same(found[i], wanted[i]),
                    "{} from {from} to {to}: {} and {} on the host",
                    values[i],
                    found[i],
                    wanted[i]
                );
            }
        }
    }
    Ok(())
}

fn f16_overflows_where_ieee_says(d: &Device) -> Result<()> {
    for from in [DType::F32, DType::F64] {
        let x = tensor(&[65504.0, 65519.996, 65520.0, 65536.0, -65520.0], 5, from, d)?.to_dtype(DType::F16)?;
        assert_eq!(
            x.to_vec::<f16>()?.into_iter().map(f16::to_bits).collect::<Vec<_>>(),
            [0x7BFF, 0x7BFF, 0x7C00, 0x7C00, 0xFC00]
        );
    }
    Ok(())
}

fn bf16_rounds_to_nearest_even(d: &Device) -> Result<()> {
    let x = tensor(&[0.269_140_877_029_227_2, 314.0 / 100.0, 1.003_906_25, 1.011_718_75, 3.4e38], 5, DType::F32, d)?
        .to_dtype(DType::BF16)?;
    assert_eq!(x.to_vec::<bf16>()?.into_iter().map(bf16::to_bits).collect::<Vec<_>>(), [0x3E8A, 0x4049, 0x3F80, 0x3F82, 0x7F80]);
    for from in [DType::F64, DType::F32, DType::I64, DType::U32] {
        assert_eq!(read(&tensor(&[257.0, 259.0], 2, from, d)?.to_dtype(DType::BF16)?)?, [256.0, 260.0], "{from}");
    }
    Ok(())
}

fn floats_saturate_into_integers(d: &Device) -> Result<()> {
    let x = Tensor::from_slice(&[f32::NAN, -1.5, 3.99, 300.0, f32::INFINITY], 5, d)?;
    assert_eq!(x.to_dtype(DType::U8)?.to_vec::<u8>()?, [0, 0, 3, 255, 255]);
    assert_eq!(x.to_dtype(DType::U32)?.to_vec::<u32>()?, [0, 0, 3, 300, u32::MAX]);
    assert_eq!(x.to_dtype(DType::I64)?.to_vec::<i64>()?, [0, -1, 3, 300, i64::MAX]);
    Ok(())
}

fn ranges_count_in_f64_from_the_given_numbers(d: &Device) -> Result<()> {
    for (start, end, step, n) in
        [(0.0, 1.0, 0.1, 10), (1.0, 1.3, 0.1, 4), (0.6, 0.9, 0.1, 4), (5.0, 0.0, -0.5, 10), (0.0, 0.0, 1.0, 0)]
    {
        let x = Tensor::arange(start, end, step, DType::F64, d)?.to_vec::<f64>()?;
        assert_eq!(x, (0..n).map(|i| start + f64::from(i) * step).collect::<Vec<_>>());
        assert_eq!(Tensor::arange(start, end, step, DType::F32, d)?.elem_count(), x.len());
    }
    let large = (1i64 << 53) + 1;
    assert_eq!(Tensor::arange(large, large + 5, 2, DType::I64, d)?.to_vec::<i64>()?, [large, large + 2, large + 4]);
    assert!(Tensor::arange(0, 5, 0, DType::I64, d).is_err() && Tensor::arange(0.0, f64::NAN, 1.0, DType::F32, d).is_err());
    Ok(())
}

fn sizes_that_overflow_are_errors_before_any_allocation(d: &Device) -> Result<()> {
    let before = d.memory_stats().allocations;
    for shape in [vec![2, 2, 1, 1 << 61], vec![2; 64], vec![1 << 62], vec![usize::MAX]] {
        let e = Tensor::zeros(&shape, DType::F32, d).unwrap_err();
        assert!(matches!(e, Error::SizeOverflow { .. }), "{e}");
        assert!(matches!(Tensor::randn(&shape, DType::F32, d), Err(Error::SizeOverflow { .. })));
    }
    let small = Tensor::zeros(1, DType::U8, d)?;
    assert!(matches!(small.expand((1usize << 62, 4)), Err(Error::SizeOverflow { .. })));
    assert_eq!(d.memory_stats().allocations, before + 1);
    assert_eq!(Tensor::zeros((0, 1 << 62, 1 << 62), DType::F32, d)?.elem_count(), 0);
    Ok(())
}

fn tensors_of_no_elements_are_values(d: &Device) -> Result<()> {
    let empty = Tensor::zeros((2, 0, 3), DType::F32, d)?;
    assert_eq!((read(&empty)?, read(&empty.exp()?)?), (vec![], vec![]));
    assert_eq!(empty.add(&Tensor::ones((1, 3), DType::F32, d)?)?.dims(), [2, 0, 3]);
    assert_eq!(read(&empty.sum([1])?)?, [0.0; 6]);
    assert!(empty.mean_all()?.to_scalar::<f32>()?.is_nan());
    assert_eq!(empty.softmax(-1)?.dims(), [2, 0, 3]);
    assert_eq!(empty.to_dtype(DType::I64)?.to_vec::<i64>()?, [0; 0]);
    assert_eq!(Tensor::cat(&[&empty, &Tensor::ones((2, 1, 3), DType::F32, d)?], 1)?.dims(), [2, 1, 3]);
    Ok(())
}
