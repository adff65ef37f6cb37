//! Products: gradients against differences, values against sums by hand.

mod support;

use kiln_autograd::Backward;
use kiln_tensor::{DType, Device, Result, Tensor};
use support::{check, devices};

fn grad(t: &Tensor) -> Result<Tensor> {
    Ok(t.grad()?.expect("a gradient"))
}

#[test]
fn products_of_matrices_and_batches() {
    let pairs: &[[&[usize]; 2]] = &[
        [&[2, 3], &[3, 4]],
        [&[2, 2, 3], &[2, 3, 2]],
        [&[2, 2, 3], &[3, 2]],
        [&[2, 2, 3], &[1, 3, 2]],
        [&[2, 3], &[2, 3, 2]],
        [&[2, 1, 2, 3], &[1, 3, 3, 2]],
        [&[3, 2, 3], &[2, 1, 3, 2]],
    ];
    pairs.iter().for_each(|shapes| check(shapes, |x| x[0].matmul(&x[1])));
}

#[test]
fn products_with_tensors_of_one_dim() {
    let pairs: &[[&[usize]; 2]] = &[[&[3], &[3]], [&[3], &[3, 2]], [&[2, 3], &[3]], [&[2, 2, 3], &[3]], [&[3], &[2, 3, 2]]];
    pairs.iter().for_each(|shapes| check(shapes, |x| x[0].matmul(&x[1])));
}

#[test]
fn products_without_elements() {
    let pairs: &[[&[usize]; 2]] =
        &[[&[0, 3], &[3, 2]], [&[2, 0], &[0, 3]], [&[2, 3], &[3, 0]], [&[0, 2, 3], &[3, 2]], [&[0], &[0]]];
    pairs.iter().for_each(|shapes| check(shapes, |x| x[0].matmul(&x[1])));
}

#[test]
fn products_of_views() {
    check(&[&[2, 3, 2, 4], &[2, 4, 2, 3]], |x| x[0].transpose(1, 2)?.matmul(&x[1].transpose(1, 2)?));
    check(&[&[4, 3]], |x| x[0].t()?.matmul(&x[0]));
    check(&[&[2, 5, 4], &[3, 2]], |x| x[0].narrow(1, 1, 3)?.transpose(1, 2)?.matmul(&x[1]));
}

#[test]
fn linear_layers() {
    let shapes: &[[&[usize]; 3]] = &[
        [&[4, 3], &[2, 3], &[2]],
        [&[2, 2, 3], &[4, 3], &[4]],
        [&[3], &[2, 3], &[2]],
        [&[0, 3], &[2, 3], &[2]],
        [&[2, 0], &[3, 0], &[3]],
        [&[2, 3], &[0, 3], &[0]],
    ];
    for shapes in shapes {
        check(shapes, |x| x[0].linear(&x[1], Some(&x[2])));
        check(&shapes[..2], |x| x[0].linear(&x[1], None));
    }
    check(&[&[3, 2, 4], &[2, 4], &[2]], |x| x[0].transpose(0, 1)?.linear(&x[1], Some(&x[2])));
}

#[test]
fn a_matrix_times_its_transpose_gathers_both_gradients() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![1f64, 2., 3., 4.], (2, 2), &device)?.requires_grad()?;
        x.matmul(&x.t()?)?.sum_all()?.backward()?;
        assert_eq!(grad(&x)?.to_vec2::<f64>()?, [[8., 12.], [8., 12.]]);
        let one = Tensor::ones((1, 1), DType::F32, &device)?.requires_grad()?;
        one.matmul(&one.t()?)?.sum_all()?.backward()?;
        assert_eq!(grad(&one)?.to_vec::<f32>()?, [2.]);
    }
    Ok(())
}

#[test]
fn only_the_operand_of_the_other_gradient_is_saved() -> Result<()> {
    let device = Device::cpu();
    let weight = Tensor::ones((4, 4), DType::F32, &device)?.requires_grad()?;
    let constant = Tensor::ones((4, 4), DType::F32, &device)?;
    let x = Tensor::ones((4, 4), DType::F32, &device)?;
    let y = x.matmul(&weight)?;
    let z = y.matmul(&constant)?;
    assert_eq!(x.storage().category(), kiln_alloc::Category::Activations);
    assert_eq!(y.storage().category(), kiln_alloc::Category::Temporaries);
    z.sum_all()?.backward()?;
    assert_eq!(grad(&weight)?.to_vec::<f32>()?, [16.; 16]);
    Ok(())
}

#[test]
fn sixteen_bit_products_add_up_in_f32() -> Result<()> {
    for device in devices() {
        let ones = Tensor::ones((4096, 1), DType::BF16, &device)?;
        let x = ones.t()?.requires_grad()?;
        assert_eq!(x.matmul(&ones)?.to_dtype(DType::F32)?.to_vec::<f32>()?, [4096.]);
        let bias = Tensor::zeros(1, DType::F16, &device)?.requires_grad()?;
        let x = Tensor::zeros((4096, 1), DType::F16, &device)?;
        x.linear(&Tensor::zeros((1, 1), DType::F16, &device)?, Some(&bias))?.sum_all()?.backward()?;
        assert_eq!(grad(&bias)?.to_dtype(DType::F32)?.to_vec::<f32>()?, [4096.]);
    }
    Ok(())
}

#[test]
fn a_weight_used_by_a_batch_in_sixteen_bits_adds_up_in_f32() -> Result<()> {
    for device in devices() {
        let x = Tensor::ones((1, 1), DType::BF16, &device)?.requires_grad()?;
        let batch = Tensor::ones((1000, 1, 1), DType::BF16, &device)?;
        x.matmul(&batch)?.sum_all()?.backward()?;
        assert_eq!(grad(&x)?.to_dtype(DType::F32)?.to_vec::<f32>()?, [1000.]);
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_an_error_with_the_shapes() -> Result<()> {
    let zeros = |dims: &[usize], dtype| Tensor::zeros(dims, dtype, &Device::cpu());
    let text = |r: Result<Tensor>| r.expect_err("a misfit").to_string();
    let (a, b) = (zeros(&[2, 3], DType::F32)?, zeros(&[2, 3], DType::F32)?);
    assert_eq!(text(a.matmul(&b)), "matmul: shapes [2, 3] and [2, 3] do not multiply");
    assert!(text(zeros(&[2, 2, 3], DType::F32)?.matmul(&zeros(&[3, 3, 2], DType::F32)?)).contains("[2, 2, 3] and [3, 3, 2]"));
    assert!(zeros(&[], DType::F32)?.matmul(&a).is_err() && a.matmul(&zeros(&[], DType::F32)?).is_err());
    assert!(text(a.matmul(&zeros(&[3, 1], DType::F64)?)).contains("f32 and f64"));
    assert!(text(zeros(&[2, 3], DType::I64)?.matmul(&zeros(&[3, 1], DType::I64)?)).contains("i64"));
    assert!(text(a.linear(&zeros(&[4, 2], DType::F32)?, None)).contains("[4, 2]"));
    assert!(text(a.linear(&zeros(&[4, 3], DType::F32)?, Some(&zeros(&[3], DType::F32)?))).contains("bias of [3]"));
    assert!(a.linear(&zeros(&[4, 3], DType::F32)?, Some(&zeros(&[4], DType::F64)?)).is_err());
    assert!(a.linear(&zeros(&[3], DType::F32)?, None).is_err() && zeros(&[], DType::F32)?.linear(&a, None).is_err());
    Ok(())
}
