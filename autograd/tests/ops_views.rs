//! Gradients of views, of putting together and taking apart, of selection and indexing.

mod support;

use kiln_autograd::{Backward, autocast, no_grad};
use kiln_tensor::{DType, Device, IndexOp, Result, Tensor};
use support::{check, check_contiguous, devices};

fn f64s(values: &[f64], device: &Device) -> Result<Tensor> {
    Tensor::from_slice(values, values.len(), device)
}
fn ids(values: &[i64], device: &Device) -> Result<Tensor> {
    Tensor::from_slice(values, values.len(), device)
}
/// The gradient of a leaf over `values` for the loss `sum f(x)`.
fn gradient(values: &[f64], device: &Device, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
    let x = f64s(values, device)?.requires_grad()?;
    f(&x)?.sum_all()?.backward()?;
    x.grad()?.unwrap().to_vec()
}

#[test]
fn narrow_and_index() {
    check(&[&[3, 4]], |x| x[0].narrow(1, 1, 2)?.square());
    check(&[&[3, 4]], |x| x[0].narrow(0, 0, 1)?.narrow(1, 3, 1));
    check(&[&[3, 4]], |x| x[0].narrow(1, 4, 0));
    check(&[&[3, 0]], |x| x[0].narrow(0, 1, 2));
    check(&[&[2, 3, 4]], |x| x[0].i((.., 1.., -1))?.square());
    check(&[&[2, 3, 4]], |x| x[0].i((1, 2, 3))?.square());
    check(&[&[2, 0, 4]], |x| x[0].i((0, .., 1..3)));
}

#[test]
fn split_and_chunk() {
    check(&[&[5, 2]], |x| {
        let parts = x[0].split(&[2, 3], 0)?;
        parts[1].mul(&parts[0].i(0..1)?)
    });
    check(&[&[2, 6]], |x| {
        let parts = x[0].chunk(3, -1)?;
        parts[0].mul(&parts[2])
    });
    check(&[&[0, 6]], |x| x[0].chunk(4, 1)?.remove(1).square());
}

#[test]
fn a_piece_that_led_to_nothing_has_a_gradient_of_zeros() -> Result<()> {
    for device in devices() {
        let x = f64s(&[1., 2., 3.], &device)?.requires_grad()?;
        let parts = x.split(&[1, 1, 1], 0)?;
        parts[1].affine(5.0, 0.0)?.sum_all()?.backward()?;
        assert_eq!(x.grad()?.unwrap().to_vec::<f64>()?, [0., 5., 0.]);
    }
    Ok(())
}

#[test]
fn cat_and_stack() {
    check(&[&[2, 3], &[2, 1]], |x| Tensor::cat(&[&x[0], &x[1], &x[0]], 1)?.square());
    check(&[&[2, 3], &[0, 3]], |x| Tensor::cat(x, 0));
    check(&[&[2, 3], &[2, 3]], |x| Tensor::stack(x, 1)?.square());
    check(&[&[2, 0], &[2, 0]], |x| Tensor::stack(x, -1));
}

#[test]
fn index_select_and_embedding() {
    check(&[&[3, 4]], |x| x[0].index_select(1, &ids(&[3, 0, 3, 3], x[0].device())?)?.square());
    check(&[&[3, 4]], |x| x[0].index_select(0, &ids(&[2], x[0].device())?));
    check(&[&[3, 0]], |x| x[0].index_select(0, &ids(&[2, 2], x[0].device())?));
    check(&[&[3, 4]], |x| x[0].embedding(&ids(&[1, 1, 2, 1, 0, 2], x[0].device())?.reshape((2, 3))?.t()?)?.square());
    check(&[&[3, 4]], |x| x[0].embedding(&ids(&[], x[0].device())?));
}

#[test]
fn gradients_of_an_embedding_add_up_in_f32() -> Result<()> {
    for device in devices() {
        for (dtype, n, each, total) in [(DType::BF16, 1000, 1.0, 1000.0), (DType::F16, 12_500, 0.01, 125.0)] {
            let table = Tensor::zeros((2, 1), dtype, &device)?.requires_grad()?;
            let y = table.embedding(&Tensor::zeros(n, DType::I64, &device)?)?;
            y.backward_with(&Tensor::full(each, y.shape(), dtype, &device)?)?;
            let grad = table.grad()?.unwrap().to_dtype(DType::F64)?.to_vec::<f64>()?;
            assert!((grad[0] / total - 1.0).abs() < 5e-3 && grad[1] == 0.0, "{dtype}: {grad:?}");
        }
    }
    Ok(())
}

#[test]
fn where_cond_and_masked_fill() {
    let mask = |x: &Tensor, values: &[u8]| Tensor::from_slice(values, (2, 3), x.device());
    check(&[&[2, 3], &[3]], |x| mask(&x[0], &[1, 0, 1, 0, 0, 2])?.where_cond(&x[0].square()?, &x[1]));
    check(&[&[2, 1], &[]], |x| mask(&x[0], &[1, 0, 1, 0, 0, 1])?.where_cond(&x[0], &x[1]));
    check(&[&[2, 3]], |x| x[0].masked_fill(&mask(&x[0], &[1, 0, 1, 0, 0, 1])?, 7.5)?.square());
    check(&[&[2, 3]], |x| x[0].square()?.masked_fill(&Tensor::from_slice(&[1u8, 0, 0], 3, x[0].device())?, 1));
    check(&[&[2, 0], &[2, 0]], |x| x[0].gt(&x[1])?.where_cond(&x[0], &x[1]));
}

#[test]
fn the_side_not_taken_sends_no_nan_back() -> Result<()> {
    for device in devices() {
        let half_or_root = |x: &Tensor| x.eq(0.0)?.where_cond(&(x / 2.0)?, &(x.sqrt()? + 1.0)?);
        assert_eq!(half_or_root(&f64s(&[16., 0.], &device)?)?.to_vec::<f64>()?, [5., 0.]);
        assert_eq!(gradient(&[16., 0.], &device, half_or_root)?, [0.125, 0.5]);

        let log2 = |x: &Tensor| x.log()? / std::f64::consts::LN_2;
        let found = gradient(&[0., 2., 3.], &device, |x| x.gt(2.0)?.where_cond(&log2(x)?, &(x * 2.0)?))?;
        assert_eq!(found[..2], [2., 2.]);
        assert!((found[2] - 0.480_898_347).abs() < 1e-9);

        assert_eq!(gradient(&[-1., -4.], &device, |x| x.gt(0.0)?.where_cond(&x.sqrt()?, x))?, [1., 1.]);

        let found = gradient(&[0., f64::INFINITY], &device, |x| x.lt(1.0)?.where_cond(&x.cos()?, &x.zeros_like()?))?;
        assert_eq!(found, [0., 0.]);
        assert!(found[0].is_sign_negative() && found[1].is_sign_positive());

        assert_eq!(gradient(&[-1., 4.], &device, |x| x.log()?.masked_fill(&x.lt(0.0)?, 0.0))?, [0., 0.25]);
        assert_eq!(gradient(&[1., 1000.], &device, |x| x.exp()?.square()?.masked_fill(&x.gt(9.0)?, 0.0))?[1], 0.0);
    }
    Ok(())
}

#[test]
fn expand_then_reshape() -> Result<()> {
    for device in devices() {
        let weights = Tensor::arange(0, 6, 1, DType::F64, &device)?;
        assert_eq!(gradient(&[1., 2.], &device, |v| v.expand((3, 2))?.reshape(6)?.mul(&weights))?, [6., 9.]);

        let weights = Tensor::from_vec(vec![1., 2., 3., 4., 5., 6.], (2, 3), &device)?;
        let found = gradient(&[1., 2., 3.], &device, |x| x.unsqueeze(1)?.expand((3, 3))?.narrow(0, 0, 2)?.mul(&weights))?;
        assert_eq!(found, [6., 15., 0.]);
    }
    Ok(())
}

#[test]
fn broadcast_add() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![1., 2., 3., 4., 5., 6.], (2, 3), &device)?;
        let w = Tensor::from_vec(vec![1., 0., -1.], (3, 1), &device)?.requires_grad()?;
        let b = Tensor::from_vec(vec![10., 20., 30.], (1, 3), &device)?.requires_grad()?;
        let label = Tensor::from_vec(vec![1., 2.], (2, 1), &device)?;
        let xw = x.mul(&w.t()?)?.sum_keepdim([1])?;
        let loss = xw.add(&b)?.sub(&label)?.square()?.sum_all()?;
        loss.backward()?;
        assert_eq!(loss.to_scalar::<f64>()?, 2035.0);
        assert_eq!(w.grad()?.unwrap().to_vec2::<f64>()?, [[486.], [684.], [882.]]);
        assert_eq!(b.grad()?.unwrap().to_vec2::<f64>()?, [[26., 66., 106.]]);
    }
    Ok(())
}

#[test]
fn gradients_of_broadcasting_pairs_have_the_shapes_of_their_operands() {
    // Both shapes are the common one with dims cut off in front or set to 1.
    let mut state = 42u64;
    let mut draw = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % n) as usize
    };
    for _ in 0..200 {
        let common: Vec<usize> = (0..draw(5)).map(|_| draw(4)).collect();
        let mut operand = || -> Vec<usize> {
            let cut = draw(common.len() as u64 + 1);
            common[cut..].iter().map(|&n| if draw(3) == 0 { 1 } else { n }).collect()
        };
        let (a, b) = (operand(), operand());
        check_contiguous(&[&a, &b], |x| x[0].mul(&x[1]));
    }
}

#[test]
fn an_upstream_of_stride_0_counts_as_ones() -> Result<()> {
    let ops: [fn(&Tensor) -> Result<Tensor>; 5] = [
        |x| x.narrow(1, 1, 2),
        |x| Tensor::cat(&[&x.square()?, x], 0),
        |x| x.index_select(1, &ids(&[2, 2, 0], x.device())?),
        |x| x.gt(0.5)?.where_cond(&x.exp()?, &x.sin()?),
        |x| Tensor::stack(&x.chunk(3, 1)?, 0),
    ];
    for device in devices() {
        for op in ops {
            let leaf = || Tensor::from_vec((0..12).map(|v| f64::from(v) / 7.0).collect(), (4, 3), &device)?.requires_grad();
            let (x, y) = (leaf()?, leaf()?);
            op(&x)?.sum_all()?.backward()?;
            let out = op(&y)?;
            out.backward_with(&out.ones_like()?)?;
            assert_eq!(x.grad()?.unwrap().to_vec::<f64>()?, y.grad()?.unwrap().to_vec::<f64>()?);
        }
    }
    Ok(())
}

#[test]
#[should_panic(expected = "Contiguous: gradient")]
fn the_check_finds_a_wrong_gradient() {
    check_contiguous(&[&[1]], |x| x[0].detach() * &x[0]);
}

#[test]
fn operators_with_numbers() {
    check(&[&[2, 3]], |x| 2.0 / (1.0 - (&x[0] * 0.25)?)?);
    check(&[&[2, 3], &[3]], |x| (-(&x[0] / 4.0)?)? - (&x[1] + 3.0)?);
}

#[test]
fn a_copy_to_another_device_leads_gradients_back() -> Result<()> {
    for device in devices() {
        let x = f64s(&[1., 2.], &Device::cpu())?.requires_grad()?;
        x.to_device(&device)?.square()?.sum_all()?.backward()?;
        let grad = x.grad()?.unwrap();
        assert_eq!((grad.device(), grad.to_vec::<f64>()?), (&Device::cpu(), vec![2., 4.]));
        let back = no_grad(|| x.i(1..)?.to_device(&device)?.to_device(&Device::cpu()))?;
        assert_eq!(back.to_vec::<f64>()?, [2.]);
    }
    Ok(())
}

#[test]
fn autocast_meets_at_the_wider_type() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![1f32, 2.0], 2, &device)?.requires_grad()?;
        let low = x.to_dtype(DType::F16)?;
        let (cat, selected) = autocast(DType::F16, || Ok((Tensor::cat(&[&x, &low], 0)?, x.gt(&low)?.where_cond(&low, &x)?)))?;
        assert_eq!((cat.dtype(), selected.dtype()), (DType::F32, DType::F32));
        cat.sum_all()?.add(&selected.sum_all()?)?.backward()?;
        assert_eq!(x.grad()?.unwrap().to_vec::<f32>()?, [3., 3.]);
        assert!(Tensor::cat(&[&x, &low], 0).is_err());
    }
    Ok(())
}
