//! The gradient of every op in f32 on the device against the one in f64 on the host, for contiguous, transposed and sliced inputs.

use crate::support::{cases, close, layouts, read, spread, tensor, tolerance};
use kiln::tensor::{CrossEntropyConfig, Reduction};
use kiln::{Backward, DType, Device, IndexOp, Result, Tensor};

cases![
    gradients_of_functions_of_one_tensor,
    gradients_of_functions_of_several_tensors,
    gradients_of_views,
    gradients_of_no_elements,
    gradients_of_broadcast_operands_have_their_shapes,
];

type F = fn(&[Tensor]) -> Result<Tensor>;

/// Gradients of `Σ w·f(x..)` with respect to the leaves under the inputs, which lie in layout number `form`.
fn run(f: F, inputs: &[Vec<f64>], shapes: &[&[usize]], form: usize, dtype: DType, device: &Device) -> Result<Vec<Vec<f64>>> {
    let leaf = |(values, &shape): (&Vec<f64>, &&[usize])| tensor(values, shape, dtype, device)?.requires_grad();
    let leaves = inputs.iter().zip(shapes).map(leaf).collect::<Result<Vec<_>>>()?;
    let view = |x: &Tensor| Ok(layouts(x)?.into_iter().nth(form).unwrap_or_else(|| x.clone()));
    let y = f(&leaves.iter().map(view).collect::<Result<Vec<_>>>()?)?;
    let upstream = tensor(&spread(y.elem_count(), 99, 0.5, 1.5), y.shape(), y.dtype(), device)?;
    y.backward_with(&upstream)?;
    let gradient = |x: &Tensor| {
        let g = x.grad()?.expect("every input gets a gradient");
        assert_eq!(g.dims(), x.dims());
        read(&g)
    };
    leaves.iter().map(gradient).collect()
}

fn check(device: &Device, (lo, hi): (f64, f64), rows: &[(&str, &[&[usize]], F)]) -> Result<()> {
    for (name, shapes, f) in rows {
        // As f32 holds them, so that both sides start from the same numbers.
        let f32s =
            |(i, s): (usize, &&[usize])| spread(s.iter().product(), i + 1, lo, hi).iter().map(|&v| f64::from(v as f32)).collect();
        let inputs: Vec<Vec<f64>> = shapes.iter().enumerate().map(f32s).collect();
        for form in 0..3 {
            let wanted = run(*f, &inputs, shapes, form, DType::F64, &Device::cpu())?;
            let found = run(*f, &inputs, shapes, form, DType::F32, device)?;
            for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                close(found, wanted, tolerance(DType::F32, 64), &format!("{name}, input {i}, layout {form}"));
            }
        }
    }
    Ok(())
}

fn gradients_of_functions_of_one_tensor(d: &Device) -> Result<()> {
    const SHAPES: &[&[usize]] = &[&[4, 9]];
    let any: [(&str, F); 28] = [
        ("neg", |x| x[0].neg()),
        ("exp", |x| x[0].exp()),
        ("abs", |x| x[0].abs()),
        ("square", |x| x[0].square()),
        ("tanh", |x| x[0].tanh()),
        ("sigmoid", |x| x[0].sigmoid()),
        ("relu", |x| x[0].relu()),
        ("gelu", |x| x[0].gelu()),
        ("gelu_erf", |x| x[0].gelu_erf()),
        ("silu", |x| x[0].silu()),
        ("sin", |x| x[0].sin()),
        ("cos", |x| x[0].cos()),
        ("erf", |x| x[0].erf()),
        ("floor", |x| x[0].floor()),
        ("sign", |x| x[0].sign()),
        ("expm1", |x| x[0].expm1()),
        ("affine", |x| x[0].affine(1.5, 0.25)),
        ("clamp", |x| x[0].clamp(-0.5, 1.0)),
        ("leaky_relu", |x| x[0].leaky_relu(0.1)),
        ("softmax", |x| x[0].softmax(1)),
        ("softmax along columns", |x| x[0].softmax(0)),
        ("log_softmax", |x| x[0].log_softmax(-1)),
        ("layer_norm", |x| x[0].layer_norm(None, None, 1e-5)),
        ("sum", |x| x[0].sum([0])),
        ("mean", |x| x[0].mean_keepdim([1])),
        ("max_all", |x| x[0].max_all()),
        ("min", |x| x[0].min(1)),
        ("amax", |x| x[0].amax([0])),
    ];
    let positive: [(&str, F); 6] = [
        ("log", |x| x[0].log()),
        ("sqrt", |x| x[0].sqrt()),
        ("rsqrt", |x| x[0].rsqrt()),
        ("reciprocal", |x| x[0].reciprocal()),
        ("log1p", |x| x[0].log1p()),
        ("powf", |x| x[0].powf(2.5)),
    ];
    for (range, rows) in [((-2.0, 2.0), &any[..]), ((0.25, 2.0), &positive[..])] {
        let rows: Vec<(&str, &[&[usize]], F)> = rows.iter().map(|&(name, f)| (name, SHAPES, f)).collect();
        check(d, range, &rows)?;
    }
    Ok(())
}

fn gradients_of_functions_of_several_tensors(d: &Device) -> Result<()> {
    const BROADCAST: &[&[usize]] = &[&[3, 1, 4], &[2, 1]];
    check(
        d,
        (0.25, 2.0),
        &[
            ("add", BROADCAST, |x| &x[0] + &x[1]),
            ("sub", BROADCAST, |x| &x[0] - &x[1]),
            ("mul", BROADCAST, |x| &x[0] * &x[1]),
            ("div", BROADCAST, |x| &x[0] / &x[1]),
            ("pow", BROADCAST, |x| x[0].pow(&x[1])),
            ("maximum", BROADCAST, |x| x[0].maximum(&x[1])),
            ("minimum", BROADCAST, |x| x[0].minimum(&x[1])),
            ("squared_difference", BROADCAST, |x| x[0].squared_difference(&x[1])),
            ("lerp", BROADCAST, |x| x[0].lerp(&x[1], 0.3)),
            ("where_cond", BROADCAST, |x| x[0].gt(&x[1])?.where_cond(&x[0], &x[1])),
            ("addcmul", &[&[3, 4], &[4], &[3, 1]], |x| x[0].addcmul(&x[1], &x[2], 0.5)),
            ("mul_add", &[&[3, 4], &[4], &[3, 1]], |x| x[0].mul_add(&x[1], &x[2])),
            ("mse_loss", &[&[3, 4], &[3, 4]], |x| x[0].mse_loss(&x[1])),
        ],
    )?;
    check(
        d,
        (-2.0, 2.0),
        &[
            ("matmul", &[&[5, 7], &[7, 3]], |x| x[0].matmul(&x[1])),
            ("matmul of batches", &[&[2, 1, 5, 7], &[3, 7, 4]], |x| x[0].matmul(&x[1])),
            ("matmul by one matrix", &[&[2, 5, 7], &[7, 4]], |x| x[0].matmul(&x[1])),
            ("matmul by a vector", &[&[5, 7], &[7]], |x| x[0].matmul(&x[1])),
            ("linear", &[&[2, 3, 5], &[4, 5], &[4]], |x| x[0].linear(&x[1], Some(&x[2]))),
            ("linear, no bias", &[&[3, 5], &[4, 5]], |x| x[0].linear(&x[1], None)),
            ("layer_norm", &[&[2, 3, 6], &[6], &[6]], |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5)),
            ("cat", &[&[2, 3], &[2, 4]], |x| Tensor::cat(x, 1)),
            ("stack", &[&[2, 3], &[2, 3]], |x| Tensor::stack(x, 1)),
            ("cross_entropy", &[&[3, 5]], |x| x[0].cross_entropy(&Tensor::from_slice(&[4i64, 0, 2], 3, x[0].device())?)),
            ("cross_entropy by row", &[&[3, 5]], |x| {
                let target = Tensor::from_slice(&[4i64, -100, 2], 3, x[0].device())?;
                x[0].cross_entropy_with(&target, CrossEntropyConfig { reduction: Reduction::None, ..Default::default() })
            }),
            ("embedding", &[&[4, 3]], |x| x[0].embedding(&Tensor::from_slice(&[1i64, 3, 1, 1], (2, 2), x[0].device())?)),
            ("index_select", &[&[4, 3]], |x| x[0].index_select(1, &Tensor::from_slice(&[2i64, 0, 2, 2], 4, x[0].device())?)),
            ("masked_fill", &[&[4, 3]], |x| x[0].masked_fill(&x[0].lt(0.0)?, 5.0)),
        ],
    )
}

fn gradients_of_views(d: &Device) -> Result<()> {
    const SHAPE: &[&[usize]] = &[&[2, 3, 4]];
    check(
        d,
        (-2.0, 2.0),
        &[
            ("reshape", SHAPE, |x| x[0].reshape((4, 6))),
            ("permute", SHAPE, |x| x[0].permute([2, 0, 1])),
            ("transpose", SHAPE, |x| x[0].transpose(0, -1)),
            ("expand", SHAPE, |x| x[0].unsqueeze(1)?.expand((5, 2, 6, 3, 4))),
            ("narrow", SHAPE, |x| x[0].narrow(1, 1, 2)),
            ("index", SHAPE, |x| x[0].i((1, .., 1..3))),
            ("split", SHAPE, |x| x[0].split(&[1, 3], 2)?[1].exp()),
            ("flatten", SHAPE, |x| x[0].flatten(1, 2)),
            ("copy", SHAPE, |x| x[0].copy()),
            ("contiguous", SHAPE, |x| x[0].t()?.contiguous()),
            ("to_device", SHAPE, |x| x[0].to_device(&Device::cpu())?.square()?.to_device(x[0].device())),
        ],
    )
}

fn gradients_of_no_elements(d: &Device) -> Result<()> {
    check(
        d,
        (-2.0, 2.0),
        &[
            ("mul", &[&[0, 3], &[3]], |x| &x[0] * &x[1]),
            ("matmul", &[&[2, 0], &[0, 3]], |x| x[0].matmul(&x[1])),
            ("linear", &[&[0, 3], &[2, 3], &[2]], |x| x[0].linear(&x[1], Some(&x[2]))),
            ("softmax", &[&[0, 3]], |x| x[0].softmax(1)),
            ("layer_norm", &[&[0, 3], &[3], &[3]], |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5)),
            ("cat", &[&[0, 3], &[2, 3]], |x| Tensor::cat(x, 0)),
            ("sum", &[&[2, 0]], |x| x[0].sum([1])),
        ],
    )
}

/// 200 pairs of shapes of up to four dims of 0 to 3, which broadcast.
fn gradients_of_broadcast_operands_have_their_shapes(d: &Device) -> Result<()> {
    for pair in 0..200 {
        let draws: Vec<usize> = spread(20, pair, 0.0, 60.0).into_iter().map(|v| v as usize).collect();
        let full: Vec<usize> = draws[..4].iter().map(|v| v % 4).collect();
        // Each operand has the last dims of the full shape, some of them as 1.
        let operand = |draws: &[usize]| -> Vec<usize> {
            let rank = draws[0] % 5;
            (4 - rank..4).map(|i| if draws[1 + i].is_multiple_of(3) { 1 } else { full[i] }).collect()
        };
        let dims = [operand(&draws[4..9]), operand(&draws[9..14])];
        let shapes: [&[usize]; 2] = [&dims[0], &dims[1]];
        let inputs =
            [0, 1].map(|i| spread(shapes[i].iter().product(), i, 0.25, 2.0).iter().map(|&v| f64::from(v as f32)).collect());
        let f: F = |x| &x[0] * &x[1];
        let found = run(f, &inputs, &shapes, 0, DType::F32, d)?;
        let wanted = run(f, &inputs, &shapes, 0, DType::F64, &Device::cpu())?;
        for i in 0..2 {
            close(&found[i], &wanted[i], tolerance(DType::F32, 64), &format!("{:?} by {:?}, input {i}", dims[0], dims[1]));
        }
    }
    Ok(())
}
