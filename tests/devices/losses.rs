//! Cross entropy and the mean squared error.

use crate::support::{FLOATS, cases, close, each_close, f32s, gradient, layouts, leaf, numbers, read, tensor, tolerance};
use kiln::tensor::{CrossEntropyConfig, Reduction};
use kiln::{Backward, DType, Device, Result, Tensor};

cases![
    cross_entropy_follows_f64,
    the_mean_counts_each_row_once,
    ignored_rows_count_nothing,
    far_logits_stay_finite,
    the_loss_of_halves_is_f32,
    mean_squared_error,
];

fn cross_entropy_follows_f64(d: &Device) -> Result<()> {
    for (rows, n) in [(1, 1), (4, 10), (3, 5000)] {
        let classes: Vec<i64> = (0..rows as i64).map(|i| i * 7 % n as i64).collect();
        let target = Tensor::from_slice(&classes, rows, d)?;
        for dtype in FLOATS {
            let x = tensor(&numbers(rows * n, 1), (rows, n), dtype, d)?;
            let losses: Vec<f64> = read(&x)?
                .chunks(n)
                .zip(&classes)
                .map(|(row, &c)| row.iter().map(|v| v.exp()).sum::<f64>().ln() - row[c as usize])
                .collect();
            let total: f64 = losses.iter().sum();
            for x in layouts(&x)? {
                let with =
                    |reduction| read(&x.cross_entropy_with(&target, CrossEntropyConfig { reduction, ..Default::default() })?);
                // A single class gives a loss of 0, with nothing to be relative to.
                let near = |found: Vec<f64>, wanted: &[f64]| match n {
                    1 => assert!(found.iter().all(|v| v.abs() < 1e-6)),
                    _ => close(
                        &found,
                        wanted,
                        tolerance(if dtype == DType::F64 { dtype } else { DType::F32 }, n),
                        &format!("{x:?}"),
                    ),
                };
                near(with(Reduction::None)?, &losses);
                near(with(Reduction::Sum)?, &[total]);
                near(with(Reduction::Mean)?, &[total / rows as f64]);
            }
        }
    }
    Ok(())
}

fn the_mean_counts_each_row_once(d: &Device) -> Result<()> {
    let x = leaf(&[0.0; 4], (2, 2), d)?;
    let loss = x.cross_entropy(&Tensor::from_slice(&[0i64, 1], 2, d)?)?;
    each_close(&read(&loss)?, &[std::f64::consts::LN_2], 1e-6);
    loss.backward()?;
    assert_eq!(gradient(&x)?, [-0.25, 0.25, 0.25, -0.25]);
    Ok(())
}

fn ignored_rows_count_nothing(d: &Device) -> Result<()> {
    let x = leaf(&[1., 2., 3., 4., 0., 0.], (3, 2), d)?;
    let target = Tensor::from_slice(&[-100i64, 0, 1], (3,), d)?;
    x.cross_entropy(&target)?.backward()?;
    let whole = gradient(&x)?;
    let rest = leaf(&[3., 4., 0., 0.], (2, 2), d)?;
    rest.cross_entropy(&Tensor::from_slice(&[0i64, 1], 2, d)?)?.backward()?;
    assert_eq!((whole[..2].to_vec(), &whole[2..]), (vec![0.0; 2], &gradient(&rest)?[..]));
    let config = CrossEntropyConfig { ignore_index: 0, ..Default::default() };
    let zeros = Tensor::zeros(3, DType::I64, d)?;
    assert!(x.detach().cross_entropy_with(&zeros, config)?.to_scalar::<f32>()?.is_nan());
    Ok(())
}

fn far_logits_stay_finite(d: &Device) -> Result<()> {
    let x = leaf(&[1e4, -1e4, 0.0, 88.0, 89.0, 90.0], (2, 3), d)?;
    let loss = x.cross_entropy(&Tensor::from_slice(&[1i64, 2], 2, d)?)?;
    each_close(&read(&loss)?, &[(2e4 + (1.0 + (-1f64).exp() + (-2f64).exp()).ln()) / 2.0], 1e-6);
    loss.backward()?;
    close(&gradient(&x)?[..3], &[0.5, -0.5, 0.0], 1e-6, "gradient");
    Ok(())
}

fn the_loss_of_halves_is_f32(d: &Device) -> Result<()> {
    let x = Tensor::zeros((4, 60_000), DType::F16, d)?.requires_grad()?;
    let loss = x.cross_entropy(&Tensor::zeros(4, DType::I64, d)?)?;
    assert_eq!(loss.dtype(), DType::F32);
    each_close(&read(&loss)?, &[60_000f64.ln()], 1e-6);
    loss.backward()?;
    let g = x.grad()?.unwrap();
    assert_eq!(g.dtype(), DType::F16);
    each_close(&read(&g)?[..1], &[-0.25], 1e-3);
    Ok(())
}

fn mean_squared_error(d: &Device) -> Result<()> {
    let (x, y) = (leaf(&[1., 2., 3., 4.], (2, 2), d)?, f32s(&[1., 0., 3., 8.], (2, 2), d)?);
    let loss = x.mse_loss(&y)?;
    assert_eq!(read(&loss)?, [5.0]);
    loss.backward()?;
    assert_eq!(gradient(&x)?, [0., 1., 0., -2.]);
    Ok(())
}
