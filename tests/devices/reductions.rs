//! Sums, means and extrema.

use crate::support::{FLOATS, cases, close, layouts, numbers, read, tensor, tolerance};
use kiln::{DType, Device, Result, Tensor};

cases![
    sums_and_means_over_any_dims_follow_f64,
    extrema_and_their_places,
    not_a_number_wins_among_extrema,
    sixteen_bit_sums_do_not_stick,
    sums_of_integers_are_exact;
    cuda with 12 << 30 => more_than_2_to_the_31_elements
];

/// The sum over the dims of a mask, and how many elements each is of.
fn sums(values: &[f64], dims: &[usize], mask: u32) -> (Vec<f64>, usize) {
    let kept = |d: usize| mask >> d & 1 == 0;
    let count = (0..dims.len()).filter(|&d| !kept(d)).map(|d| dims[d]).product();
    let mut out = vec![0.0; (0..dims.len()).filter(|&d| kept(d)).map(|d| dims[d]).product()];
    for (flat, v) in values.iter().enumerate() {
        let (mut rest, mut at, mut stride) = (flat, 0, 1);
        for d in (0..dims.len()).rev() {
            if kept(d) {
                at += rest % dims[d] * stride;
                stride *= dims[d];
            }
            rest /= dims[d];
        }
        out[at] += v;
    }
    (out, count)
}

fn sums_and_means_over_any_dims_follow_f64(d: &Device) -> Result<()> {
    for dims in [&[3, 5, 40][..], &[700, 9], &[2, 3000], &[1, 1], &[2, 0, 3]] {
        for dtype in FLOATS {
            // Positive numbers: a sum that cancels has no relative error to speak of.
            let values: Vec<f64> = numbers(dims.iter().product(), 1).into_iter().map(|v| v.abs() + 0.1).collect();
            let x = tensor(&values, dims, dtype, d)?;
            let values = read(&x)?;
            for mask in 1..1u32 << dims.len() {
                let over: Vec<usize> = (0..dims.len()).filter(|d| mask >> d & 1 == 1).collect();
                let (sum, count) = sums(&values, dims, mask);
                let mean: Vec<f64> = sum.iter().map(|s| s / count as f64).collect();
                for view in layouts(&x)? {
                    let what = format!("over {over:?} of {view:?}");
                    close(&read(&view.sum(&over)?)?, &sum, tolerance(dtype, count), &format!("sum {what}"));
                    close(&read(&view.mean(&over)?)?, &mean, tolerance(dtype, count), &format!("mean {what}"));
                    assert_eq!(view.sum_keepdim(&over)?.rank(), dims.len());
                }
            }
        }
    }
    Ok(())
}

fn extrema_and_their_places(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        let x = tensor(&[3., 1., 3., 2., 5., 5., 0., 0., 0., 7., 1., 1.], (4, 3), dtype, d)?;
        for x in layouts(&x)? {
            let (values, places) = x.max_with_indices(1)?;
            assert_eq!((read(&values)?, places.to_vec::<i64>()?), (vec![3., 5., 0., 7.], vec![0, 1, 0, 0]), "{dtype}");
            assert_eq!(x.argmin(0)?.to_vec::<i64>()?, [2, 2, 2]);
            assert_eq!(x.argmax(0)?.to_vec::<i64>()?, [3, 1, 1]);
            assert_eq!((read(&x.max_all()?)?, read(&x.min_all()?)?), (vec![7.], vec![0.]));
            assert_eq!(read(&x.amax([0])?)?, [7., 5., 5.]);
            assert_eq!(x.amin_keepdim([1])?.dims(), [4, 1]);
        }
    }
    let long = Tensor::arange(0, 100_003, 1, DType::F32, d)?.sub(&Tensor::scalar(70_001f32, d)?)?.abs()?;
    assert_eq!(long.argmin(0)?.to_scalar::<i64>()?, 70_001);
    Ok(())
}

fn not_a_number_wins_among_extrema(d: &Device) -> Result<()> {
    for dtype in FLOATS {
        let x = tensor(&[1., f64::NAN, 3., 4., 5., 6.], (2, 3), dtype, d)?;
        assert!(read(&x.max(1)?)?[0].is_nan() && read(&x.min(1)?)?[0].is_nan() && read(&x.max_all()?)?[0].is_nan());
        assert_eq!(x.argmax(1)?.to_vec::<i64>()?, [1, 2], "{dtype}");
        assert_eq!(x.argmin(1)?.to_vec::<i64>()?, [1, 0], "{dtype}");
    }
    Ok(())
}

fn sixteen_bit_sums_do_not_stick(d: &Device) -> Result<()> {
    let ones = Tensor::ones(70_000, DType::F16, d)?;
    assert_eq!(read(&ones.sum_all()?)?, [f64::INFINITY]);
    assert_eq!(read(&ones.to_dtype(DType::F32)?.sum_all()?)?, [70_000.0]);
    assert_eq!(read(&ones.mean_all()?)?, [1.0]);
    assert_eq!(read(&ones.narrow(0, 0, 32_768)?.sum_all()?)?, [32_768.0]);
    assert_eq!(read(&Tensor::full(1000, 100, DType::F16, d)?.mean_all()?)?, [1000.0]);
    assert_eq!(read(&Tensor::full(100, 1000, DType::F16, d)?.mean_all()?)?, [100.0]);
    assert_eq!(read(&Tensor::ones((1000, 3), DType::BF16, d)?.sum([0])?)?, [1000.0; 3]);
    Ok(())
}

fn sums_of_integers_are_exact(d: &Device) -> Result<()> {
    assert_eq!(read(&Tensor::full(255, 70_000, DType::U8, d)?.sum_all()?)?, [255.0 * 70_000.0]);
    assert_eq!(read(&Tensor::full(u32::MAX, 1000, DType::U32, d)?.sum_all()?)?, [f64::from(u32::MAX) * 1000.0]);
    let large = (1i64 << 53) + 1;
    assert_eq!(Tensor::from_slice(&[large, 1], 2, d)?.sum_all()?.to_scalar::<i64>()?, large + 1);
    Ok(())
}

/// Takes 8.6 GB.
fn more_than_2_to_the_31_elements(d: &Device) -> Result<()> {
    let x = Tensor::full(1.5, (2_097_153, 1024), DType::F16, d)?;
    let last = |y: &Tensor| y.narrow(0, 2_097_152, 1)?.to_dtype(DType::F32);
    let y = x.softmax(-1)?;
    close(&read(&last(&y)?.sum_all()?)?, &[1.0], 1e-3, "the last row of softmax");
    drop(y);
    close(&read(&last(&(&x + 1.0)?)?)?, &[2.5; 1024], 0.0, "the last row of a sum");
    close(&read(&x.mean_all()?)?, &[1.5], 1e-6, "the mean");
    assert_eq!(read(&x.max(0)?)?, [1.5; 1024]);
    drop(x);
    d.empty_cache()
}
