//! Gradients of reading and writing by index, of windows, diagonals, triangles, padding and repetition.

mod support;

use kiln_autograd::Backward;
use kiln_tensor::{DType, Device, Error, Index, IndexOp, Indexing, PadMode, Result, Shape, Tensor};
use support::{check, devices};

fn ids(values: &[i64], shape: impl Into<Shape>, x: &Tensor) -> Result<Tensor> {
    Tensor::from_slice(values, shape, x.device())
}

#[test]
fn gather_and_take_along_dim() {
    check(&[&[2, 3]], |x| x[0].gather(1, &ids(&[2, 0, 0, 1, 1, 1, 1, 2], (2, 4), &x[0])?)?.square());
    check(&[&[3, 2]], |x| x[0].gather(0, &ids(&[2, 2, 0], (3, 1), &x[0])?)?.square());
    check(&[&[2, 3, 2]], |x| x[0].gather(-2, &ids(&[1, 1, 0, 2], (2, 2, 1), &x[0])?));
    check(&[&[2, 3]], |x| x[0].gather(0, &ids(&[], (0, 3), &x[0])?));
    check(&[&[2, 3]], |x| x[0].take_along_dim(&ids(&[2, 0, 2, 2], (1, 4), &x[0])?, 1)?.square());
    check(&[&[1, 3]], |x| x[0].take_along_dim(&ids(&[2, 0], (2, 1), &x[0])?, 1)?.square());
}

#[test]
fn scatter_and_scatter_add() {
    let index = |x: &Tensor| ids(&[2, 0, 2, 1, 1, 1], (2, 3), x);
    check(&[&[2, 4], &[2, 3]], |x| x[0].scatter(1, &index(&x[0])?, &x[1].square()?)?.square());
    check(&[&[2, 4], &[2, 3]], |x| x[0].scatter_add(1, &index(&x[0])?, &x[1].square()?)?.square());
    check(&[&[4, 3], &[3, 3]], |x| x[0].scatter(0, &ids(&[3, 1, 3, 0], (2, 2), &x[0])?, &x[1])?.square());
    check(&[&[4, 3], &[3, 3]], |x| x[0].scatter_add(0, &ids(&[3, 1, 3, 0], (2, 2), &x[0])?, &x[1])?.square());
    check(&[&[2, 4]], |x| x[0].scatter_value(1, &index(&x[0])?, 3)?.square());
    check(&[&[2, 4], &[2, 0]], |x| x[0].scatter_add(1, &ids(&[], (2, 0), &x[0])?, &x[1])?.square());
    check(&[&[2, 4], &[2, 0]], |x| x[0].scatter(1, &ids(&[], (2, 0), &x[0])?, &x[1])?.square());
}

#[test]
fn index_add() {
    check(&[&[3, 2], &[4, 2]], |x| x[0].index_add(0, &ids(&[1, 1, 2, 1], 4, &x[0])?, &x[1].square()?)?.square());
    check(&[&[2, 3], &[2, 2]], |x| x[0].index_add(-1, &ids(&[2, 0], 2, &x[0])?, &x[1])?.square());
    check(&[&[2, 3], &[2, 0]], |x| x[0].index_add(1, &ids(&[], 0, &x[0])?, &x[1])?.square());
}

#[test]
fn scatter_add_of_a_narrow_index_sends_the_upstream_back() -> Result<()> {
    for device in devices() {
        let x = Tensor::zeros((2, 5), DType::F64, &device)?.requires_grad()?;
        let values = Tensor::ones((2, 2), DType::F64, &device)?.requires_grad()?;
        let index = Tensor::from_vec(vec![0i64, 4, 4, 4], (2, 2), &device)?;
        let g = Tensor::arange(0, 10, 1, DType::F64, &device)?.reshape((2, 5))?;
        let y = x.scatter_add(1, &index, &values)?;
        assert_eq!(y.to_vec2::<f64>()?, [[1., 0., 0., 0., 1.], [0., 0., 0., 0., 2.]]);
        y.backward_with(&g)?;
        assert_eq!(values.grad()?.unwrap().to_vec2::<f64>()?, [[0., 4.], [9., 9.]]);
        assert_eq!(x.grad()?.unwrap().to_vec::<f64>()?, g.to_vec::<f64>()?);
    }
    Ok(())
}

#[test]
fn of_equal_indices_the_last_wins_and_has_the_gradient() -> Result<()> {
    for device in devices() {
        let values = Tensor::from_vec(vec![5f64, 7.0], 2, &device)?.requires_grad()?;
        let x = Tensor::zeros(3, DType::F64, &device)?.requires_grad()?;
        let y = x.scatter(0, &Tensor::from_vec(vec![1i64, 1], 2, &device)?, &values)?;
        assert_eq!(y.to_vec::<f64>()?, [0., 7., 0.]);
        y.sum_all()?.backward()?;
        assert_eq!(values.grad()?.unwrap().to_vec::<f64>()?, [0., 1.]);
        assert_eq!(x.grad()?.unwrap().to_vec::<f64>()?, [1., 0., 1.]);
    }
    Ok(())
}

#[test]
fn steps_ellipses_and_assigned_parts() {
    check(&[&[5, 3]], |x| x[0].i((Index::step(1.., 2), -2..))?.square());
    check(&[&[2, 3, 4]], |x| x[0].i((Index::Ellipsis, Index::step(.., 3)))?.square());
    check(&[&[2, 3, 4]], |x| x[0].i((0, Index::Ellipsis, -1))?.square());
    check(&[&[3, 4], &[2, 2]], |x| x[0].slice_assign((1.., Index::step(.., 2)), &x[1].square()?)?.square());
    check(&[&[3, 4], &[3, 1]], |x| x[0].slice_assign((.., 1..3), &x[1])?.square());
    check(&[&[3, 4], &[]], |x| x[0].slice_assign((1, 2), &x[1])?.square());
    check(&[&[3, 4], &[0]], |x| x[0].slice_assign((1, 2..2), &x[1])?.square());
}

#[test]
fn windows() {
    check(&[&[5]], |x| x[0].unfold(0, 3, 1)?.square());
    check(&[&[2, 7, 2]], |x| x[0].unfold(1, 3, 2)?.square());
    check(&[&[6, 2]], |x| x[0].unfold(0, 2, 3)?.square());
    check(&[&[4, 2]], |x| x[0].unfold(-1, 2, 5)?.square());
    check(&[&[0, 4]], |x| x[0].unfold(1, 2, 1));
}

#[test]
fn diagonals_and_triangles() {
    check(&[&[3, 4]], |x| x[0].diagonal(1, 0, 1)?.square());
    check(&[&[2, 3, 2]], |x| x[0].diagonal(-1, -1, 0)?.square());
    check(&[&[2, 3]], |x| x[0].diagonal(5, 0, 1));
    check(&[&[2, 3]], |x| x[0].diag_embed(-1, 0, -1)?.square());
    check(&[&[3]], |x| x[0].diag(2)?.square());
    check(&[&[0]], |x| x[0].diag(1)?.square());
    check(&[&[3, 4]], |x| x[0].tril(1)?.square());
    check(&[&[2, 3, 3]], |x| x[0].triu(-1)?.square());
}

#[test]
fn padding() {
    check(&[&[2, 3]], |x| x[0].pad(&[1, 2, 0, 1], PadMode::Constant(2.0))?.square());
    check(&[&[2, 4]], |x| x[0].pad(&[-1, 2], PadMode::Constant(0.0))?.square());
    check(&[&[3, 4]], |x| x[0].pad(&[3, 1, 2, 0], PadMode::Reflect)?.square());
    check(&[&[2, 3]], |x| x[0].pad(&[2, 1, 1, 1], PadMode::Replicate)?.square());
    check(&[&[2, 3]], |x| x[0].pad(&[3, 2], PadMode::Circular)?.square());
    check(&[&[0, 2]], |x| x[0].pad(&[0, 0, 1, 0], PadMode::Constant(1.0)));
}

#[test]
fn repetition_flips_and_rolls() {
    check(&[&[2, 3]], |x| x[0].repeat(&[2, 1, 3])?.square());
    check(&[&[2, 3]], |x| x[0].tile(&[2])?.square());
    check(&[&[2, 3]], |x| x[0].repeat_interleave(2, 0)?.square());
    check(&[&[2, 3]], |x| x[0].flip([0, 1])?.mul(&x[0]));
    check(&[&[2, 3]], |x| x[0].roll(&[1, -1], &[1, 0])?.mul(&x[0]));
    check(&[&[0, 3]], |x| x[0].repeat(&[2, 2])?.add(&x[0].flip(())?.repeat(&[2, 2])?));
    check(&[&[2], &[3]], |x| {
        let grid = Tensor::meshgrid(x, Indexing::Xy)?;
        grid[0].mul(&grid[1])
    });
}

#[test]
fn other_views() {
    check(&[&[2, 3, 2]], |x| x[0].movedim(0, -1)?.square());
    check(&[&[2, 6]], |x| x[0].unflatten(-1, (3, ()))?.swapaxes(0, 2)?.square());
    check(&[&[3, 2]], |x| {
        let rows = x[0].unbind(0)?;
        rows[0].mul(&rows[2])
    });
    check(&[&[3, 1], &[3, 2]], |x| x[0].expand_as(&x[1])?.mul(&x[1]));
}

#[test]
fn selected_elements_gather_their_gradients() -> Result<()> {
    for device in devices() {
        let x = Tensor::from_vec(vec![1f64, -2.0, 3.0], (3, 1), &device)?.requires_grad()?;
        let mask = Tensor::from_vec(vec![1u8, 0, 1, 1, 1, 0], (3, 2), &device)?;
        let y = x.masked_select(&mask)?;
        assert_eq!(y.to_vec::<f64>()?, [1., -2., -2., 3.]);
        y.square()?.sum_all()?.backward()?;
        assert_eq!(x.grad()?.unwrap().to_vec::<f64>()?, [2., -8., 6.]);
    }
    Ok(())
}

#[test]
fn low_precision_sums_do_not_stick() -> Result<()> {
    for device in devices() {
        let index = Tensor::zeros(1000, DType::I64, &device)?;
        let rows = Tensor::ones((1000, 1), DType::BF16, &device)?;
        let sum = Tensor::zeros((1, 1), DType::BF16, &device)?.index_add(0, &index, &rows)?;
        assert_eq!(sum.to_dtype(DType::F32)?.to_scalar::<f32>()?, 1000.0);
        let index = Tensor::zeros((12_500, 1), DType::I64, &device)?;
        let src = Tensor::full(0.01, (12_500, 1), DType::F16, &device)?;
        let sum = Tensor::ones((1, 1), DType::F16, &device)?.scatter_add(0, &index, &src)?;
        assert_eq!(sum.to_dtype(DType::F32)?.to_scalar::<f32>()?, 126.0);
    }
    Ok(())
}

#[test]
fn places_have_no_gradient() -> Result<()> {
    let x = Tensor::ones(2, DType::F32, &Device::cpu())?.requires_grad()?;
    assert!(!x.nonzero()?.tracked());
    assert!(matches!(x.one_hot(2, DType::F32), Err(Error::DType { .. })));
    Ok(())
}
