//! Views share memory, whatever is made of them.

use crate::support::{cases, f32s, read};
use kiln::{DType, Device, IndexOp, Result, Tensor};

cases![
    views_share_memory,
    views_of_views_find_their_elements,
    pieces_come_apart_and_together,
    a_reshape_that_needs_a_copy_makes_one
];

fn x(d: &Device) -> Result<Tensor> {
    f32s(&(0..24).map(f64::from).collect::<Vec<_>>(), (2, 3, 4), d)
}

fn views_share_memory(d: &Device) -> Result<()> {
    let x = x(d)?;
    let before = d.memory_stats().allocations;
    let views = [
        x.t()?,
        x.permute([2, 0, 1])?,
        x.narrow(1, 1, 2)?,
        x.reshape((6, 4))?,
        x.unsqueeze(0)?,
        x.i((1, .., 2))?,
        x.expand((5, 2, 3, 4))?,
        x.detach(),
    ];
    for view in &views {
        assert_eq!(view.storage().id(), x.storage().id());
    }
    assert_eq!(d.memory_stats().allocations, before);
    x.fill_(3)?;
    for view in &views {
        assert!(read(view)?.into_iter().all(|v| v == 3.0));
    }
    Ok(())
}

fn views_of_views_find_their_elements(d: &Device) -> Result<()> {
    let x = x(d)?;
    let y = x.transpose(0, 2)?.i((1..3, .., 1))?;
    assert_eq!(y.to_vec2::<f32>()?, [[13., 17., 21.], [14., 18., 22.]]);
    assert_eq!((&y * 2.0)?.to_vec2::<f32>()?, [[26., 34., 42.], [28., 36., 44.]]);
    assert_eq!(y.t()?.sum([0])?.to_vec::<f32>()?, [51., 54.]);
    assert_eq!(x.narrow(2, 1, 1)?.expand((2, 3, 4))?.i((1, 2))?.to_vec::<f32>()?, [21.; 4]);
    assert_eq!(x.i((-1, -1, -1))?.to_scalar::<f32>()?, 23.0);
    assert_eq!(x.t()?.contiguous()?.flatten_all()?.to_vec::<f32>()?[..4], [0., 4., 8., 1.]);
    Ok(())
}

fn pieces_come_apart_and_together(d: &Device) -> Result<()> {
    let x = x(d)?;
    for dim in 0..3 {
        let n = x.dims()[dim];
        let pieces = x.split(&[1, n - 1], dim)?;
        assert_eq!(read(&Tensor::cat(&pieces, dim)?)?, read(&x)?);
        let chunks = x.chunk(2, dim)?;
        assert_eq!(read(&Tensor::cat(&chunks, dim)?)?, read(&x)?);
        let rows = (0..n).map(|i| x.narrow(dim, i, 1)?.squeeze(dim)).collect::<Result<Vec<_>>>()?;
        assert_eq!(read(&Tensor::stack(&rows, dim)?)?, read(&x)?);
    }
    for dtype in DType::ALL {
        let y = x.i((0, 0..2, 0..2))?.to_dtype(dtype)?;
        assert_eq!(read(&Tensor::cat(&[y.t()?, y.clone()], 0)?)?, [0., 4., 1., 5., 0., 1., 4., 5.], "{dtype}");
    }
    Ok(())
}

fn a_reshape_that_needs_a_copy_makes_one(d: &Device) -> Result<()> {
    let x = x(d)?;
    let y = x.transpose(1, 2)?.reshape((2, 12))?;
    assert_ne!(y.storage().id(), x.storage().id());
    assert_eq!(y.i(0)?.to_vec::<f32>()?, [0., 4., 8., 1., 5., 9., 2., 6., 10., 3., 7., 11.]);
    Ok(())
}
