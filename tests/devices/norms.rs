//! Softmax, its logarithm, and layer normalisation.

use crate::support::{FLOATS, cases, close, each_close, f32s, layouts, numbers, read, tensor, tolerance};
use kiln::{Backward, DType, Device, Result, Tensor};

cases![
    softmax_follows_f64,
    log_softmax_reaches_far,
    a_fully_masked_row_does_not_spoil_others,
    layer_norm_follows_f64,
    layer_norm_of_large_and_constant_rows,
    layer_norm_in_three_dims_has_the_known_gradients,
];

/// Softmax of `rows` rows.
fn softmax(values: &[f64], n: usize) -> Vec<f64> {
    let row = |row: &[f64]| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let e: Vec<f64> = row.iter().map(|v| (v - max).exp()).collect();
        let sum: f64 = e.iter().sum();
        e.into_iter().map(move |v| v / sum).collect::<Vec<_>>()
    };
    values.chunks(n).flat_map(row).collect()
}

fn softmax_follows_f64(d: &Device) -> Result<()> {
    for (rows, n) in [(1, 1), (5, 7), (3, 1000), (2, 5000)] {
        for dtype in FLOATS {
            let x = tensor(&numbers(rows * n, 1), (rows, n), dtype, d)?;
            let wanted = softmax(&read(&x)?, n);
            let logs: Vec<f64> = wanted.iter().map(|v| v.ln()).collect();
            for x in layouts(&x)? {
                close(&read(&x.softmax(1)?)?, &wanted, tolerance(dtype, n), &format!("softmax of {x:?}"));
                close(&read(&x.log_softmax(-1)?)?, &logs, tolerance(dtype, n), &format!("log of softmax of {x:?}"));
                // Along the first dim of the transposed matrix.
                close(&read(&x.t()?.softmax(0)?.t()?)?, &wanted, tolerance(dtype, n), &format!("softmax along columns of {x:?}"));
            }
        }
    }
    Ok(())
}

fn log_softmax_reaches_far(d: &Device) -> Result<()> {
    let far = [-40.114464, 94.696907];
    each_close(&read(&f32s(&far, 2, d)?.log_softmax(0)?)?, &[-134.81137, 0.0], 1e-6);
    // The same pair in a tensor of four dims, where the rows are columns in memory.
    let x = Tensor::full(far[0], (1, 21, 33, 50), DType::F32, d)?;
    x.narrow(1, 3, 1)?.fill_(far[1])?;
    let y = x.log_softmax(1)?;
    let wanted: Vec<f64> = (0..21 * 33 * 50).map(|i| if i / (33 * 50) == 3 { 0.0 } else { -134.81137 }).collect();
    close(&read(&y)?, &wanted, 1e-6, "log of softmax over channels");
    Ok(())
}

fn a_fully_masked_row_does_not_spoil_others(d: &Device) -> Result<()> {
    let low = f64::NEG_INFINITY;
    let x = f32s(&[low, low, low, 0.0, low, 0.0], (2, 3), d)?;
    let y = read(&x.softmax(1)?)?;
    assert_eq!(y[3..], [0.5, 0.0, 0.5]);
    assert!(y[..3].iter().all(|v| v.is_nan()) || y[..3] == [0.0; 3], "{y:?}");
    Ok(())
}

fn layer_norm_follows_f64(d: &Device) -> Result<()> {
    for (rows, n) in [(1, 1), (4, 3), (6, 768), (2, 5000)] {
        for dtype in FLOATS {
            let x = tensor(&numbers(rows * n, 1), (rows, n), dtype, d)?;
            let (w, b) = (tensor(&numbers(n, 2), n, dtype, d)?, tensor(&numbers(n, 3), n, dtype, d)?);
            let (weight, bias) = (read(&w)?, read(&b)?);
            let normalised: Vec<f64> = read(&x)?
                .chunks(n)
                .flat_map(|row| {
                    let mean = row.iter().sum::<f64>() / n as f64;
                    let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
                    row.iter().map(|v| (v - mean) / (var + 1e-5).sqrt()).collect::<Vec<_>>()
                })
                .collect();
            let wanted: Vec<f64> = normalised.iter().enumerate().map(|(i, v)| v * weight[i % n] + bias[i % n]).collect();
            for x in layouts(&x)? {
                close(&read(&x.layer_norm(Some(&w), Some(&b), 1e-5)?)?, &wanted, tolerance(dtype, n), &format!("{x:?}"));
                if n > 1 {
                    close(&read(&x.layer_norm(None, None, 1e-5)?)?, &normalised, tolerance(dtype, n), &format!("{x:?}, plain"));
                }
            }
        }
    }
    Ok(())
}

fn layer_norm_of_large_and_constant_rows(d: &Device) -> Result<()> {
    let x = f32s(&[40000., 40001., 40002., 40003.], (1, 4), d)?;
    each_close(&read(&x.layer_norm(None, None, 1e-5)?)?, &[-1.341635, -0.447212, 0.447212, 1.341635], 2e-6);
    assert_eq!(read(&Tensor::full(256, (1, 1234), DType::F32, d)?.layer_norm(None, None, 1e-5)?)?, [0.0; 1234]);
    let mut row = vec![256.0; 10_240];
    row[10_239] = 255.0;
    let y = read(&f32s(&row, (1, 10_240), d)?.layer_norm(None, None, 1e-5)?)?;
    each_close(&[y[0], y[10_239]], &[0.009_412_38, -96.373_404], 1e-5);
    Ok(())
}

fn layer_norm_in_three_dims_has_the_known_gradients(d: &Device) -> Result<()> {
    let x = f32s(&(0..16).map(f64::from).collect::<Vec<_>>(), (2, 2, 4), d)?.requires_grad()?;
    let (w, b) = (Tensor::ones(4, DType::F32, d)?.requires_grad()?, Tensor::zeros(4, DType::F32, d)?.requires_grad()?);
    let upstream = f32s(&[1., 0., 0., 0.].repeat(4), (2, 2, 4), d)?;
    x.layer_norm(Some(&w), Some(&b), 1e-5)?.backward_with(&upstream)?;
    let dx = [0.268330304, -0.357768372, -0.089443435, 0.178881503].repeat(4);
    each_close(&read(&x.grad()?.unwrap())?, &dx, 2e-6);
    close(&read(&w.grad()?.unwrap())?, &[-5.366541680, 0., 0., 0.], 1e-6, "weight");
    assert_eq!(read(&b.grad()?.unwrap())?, [4., 0., 0., 0.]);
    Ok(())
}
