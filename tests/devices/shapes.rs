//! Parts, windows, diagonals, triangles, padding, repetition: against a reference that computes places one by one.

use crate::support::{cases, layouts, read, tensor};
use kiln::tensor::{Index, Indexing, PadMode};
use kiln::{DType, Device, IndexOp, Result, Tensor};

cases![
    steps_and_ellipses_share_memory,
    parts_are_assigned,
    windows_share_memory,
    diagonals_there_and_back,
    triangles_of_every_type,
    padding_in_every_mode,
    repetition,
    flips_and_rolls,
    dims_move_split_and_merge,
    coordinates,
];

/// `[2, 3, 4]` numbers 0 to 23.
fn x(dtype: DType, d: &Device) -> Result<Tensor> {
    tensor(&(0..24).map(f64::from).collect::<Vec<_>>(), (2, 3, 4), dtype, d)
}

/// The numbers that `f` gives for places of a tensor of these dims, row-major.
fn table(dims: &[usize], f: impl Fn(&[usize]) -> f64) -> Vec<f64> {
    let at = |mut flat: usize| {
        let mut place = vec![0; dims.len()];
        for d in (0..dims.len()).rev() {
            (place[d], flat) = (flat % dims[d], flat / dims[d]);
        }
        place
    };
    (0..dims.iter().product()).map(|flat| f(&at(flat))).collect()
}

/// The element of [`x`] at a place.
fn element(i: usize, j: usize, k: usize) -> f64 {
    (i * 12 + j * 4 + k) as f64
}

fn steps_and_ellipses_share_memory(d: &Device) -> Result<()> {
    let x = x(DType::F32, d)?;
    let before = d.memory_stats().allocations;
    let parts = [x.i((.., Index::step(.., 2), Index::step(1.., 3)))?, x.i((Index::Ellipsis, -1))?, x.i((.., -2.., ..-1))?];
    assert!(parts.iter().all(|p| p.storage().id() == x.storage().id()));
    assert_eq!(d.memory_stats().allocations, before);
    assert_eq!(read(&parts[0])?, table(&[2, 2, 1], |p| element(p[0], 2 * p[1], 1 + 3 * p[2])));
    assert_eq!(read(&parts[1])?, table(&[2, 3], |p| element(p[0], p[1], 3)));
    assert_eq!(read(&parts[2])?, table(&[2, 2, 3], |p| element(p[0], 1 + p[1], p[2])));
    Ok(())
}

fn parts_are_assigned(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        for x in layouts(&x(dtype, d)?)? {
            let src = tensor(&[50., 60.], (2, 1, 1), dtype, d)?;
            let y = x.slice_assign((.., 1.., Index::step(.., 3)), &src)?;
            let wanted = |p: &[usize]| {
                if p[1] > 0 && p[2].is_multiple_of(3) { 50. + 10. * p[0] as f64 } else { element(p[0], p[1], p[2]) }
            };
            assert_eq!(read(&y)?, table(&[2, 3, 4], wanted), "{dtype}");
            assert_eq!(read(&x)?, table(&[2, 3, 4], |p| element(p[0], p[1], p[2])));
        }
    }
    let x = x(DType::F32, d)?;
    x.i((1, Index::Ellipsis, Index::step(.., 2)))?.fill_(-1)?;
    assert_eq!(read(&x)?[12..16], [-1., 13., -1., 15.]);
    Ok(())
}

fn windows_share_memory(d: &Device) -> Result<()> {
    for x in layouts(&x(DType::F32, d)?)? {
        let y = x.unfold(-1, 2, 2)?;
        assert_eq!(y.storage().id(), x.storage().id());
        assert_eq!(read(&y)?, table(&[2, 3, 2, 2], |p| element(p[0], p[1], 2 * p[2] + p[3])));
        let y = x.unfold(1, 2, 1)?;
        assert_eq!(read(&y)?, table(&[2, 2, 4, 2], |p| element(p[0], p[1] + p[3], p[2])));
        assert_eq!(read(&y.sum(-1)?)?, table(&[2, 2, 4], |p| element(p[0], p[1], p[2]) + element(p[0], p[1] + 1, p[2])));
    }
    Ok(())
}

fn diagonals_there_and_back(d: &Device) -> Result<()> {
    for x in layouts(&x(DType::F32, d)?)? {
        assert_eq!(read(&x.diagonal(1, 1, 2)?)?, table(&[2, 3], |p| element(p[0], p[1], p[1] + 1)));
        assert_eq!(read(&x.diagonal(-1, -1, 0)?)?, table(&[3, 2], |p| element(p[1], p[0], p[1] + 1)));
    }
    for dtype in DType::ALL {
        for x in layouts(&tensor(&[1., 2., 3., 4.], (2, 2), dtype, d)?)? {
            let wanted = |p: &[usize]| if p[2] == p[1] + 1 { (2 * p[0] + p[1] + 1) as f64 } else { 0.0 };
            assert_eq!(read(&x.diag_embed(1, -2, -1)?)?, table(&[2, 3, 3], wanted), "{dtype}");
        }
    }
    Ok(())
}

fn triangles_of_every_type(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        for x in layouts(&x(dtype, d)?)? {
            for k in [-5i64, -1, 0, 2, 9] {
                let below = |p: &[usize]| p[2] as i64 - p[1] as i64 <= k;
                let lower = table(&[2, 3, 4], |p| if below(p) { element(p[0], p[1], p[2]) } else { 0.0 });
                let upper = table(&[2, 3, 4], |p| if below(p) { 0.0 } else { element(p[0], p[1], p[2]) });
                assert_eq!(read(&x.tril(k)?)?, lower, "{dtype}, {k}");
                assert_eq!(read(&x.triu(k + 1)?)?, upper, "{dtype}, {k}");
            }
        }
    }
    let mask = Tensor::tri(3, 3, 0, DType::U8, d)?;
    assert_eq!(mask.to_vec2::<u8>()?, [[1, 0, 0], [1, 1, 0], [1, 1, 1]]);
    Ok(())
}

fn padding_in_every_mode(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        for x in layouts(&x(dtype, d)?)? {
            let padded = |mode| read(&x.pad(&[2, 1, 1, 0], mode)?);
            let source = |f: &dyn Fn(i64, i64) -> Option<i64>| {
                table(&[2, 4, 7], |p| match (f(p[1] as i64 - 1, 3), f(p[2] as i64 - 2, 4)) {
                    (Some(j), Some(k)) => element(p[0], j as usize, k as usize),
                    _ => 7.0,
                })
            };
            let mirrored = |i: i64, n: i64| {
                Some(if i < 0 {
                    -i
                } else if i < n {
                    i
                } else {
                    2 * n - 2 - i
                })
            };
            assert_eq!(padded(PadMode::Constant(7.0))?, source(&|i, n| (0..n).contains(&i).then_some(i)), "{dtype}");
            assert_eq!(padded(PadMode::Reflect)?, source(&mirrored), "{dtype}");
            assert_eq!(padded(PadMode::Replicate)?, source(&|i, n| Some(i.clamp(0, n - 1))), "{dtype}");
            assert_eq!(padded(PadMode::Circular)?, source(&|i, n| Some(i.rem_euclid(n))), "{dtype}");
        }
    }
    Ok(())
}

fn repetition(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        for x in layouts(&x(dtype, d)?)? {
            let y = x.repeat(&[2, 1, 2, 3])?;
            assert_eq!(y.dims(), [2, 2, 6, 12]);
            assert_eq!(read(&y)?, table(&[2, 2, 6, 12], |p| element(p[1], p[2] % 3, p[3] % 4)), "{dtype}");
            assert_eq!(read(&x.repeat_interleave(2, 1)?)?, table(&[2, 6, 4], |p| element(p[0], p[1] / 2, p[2])), "{dtype}");
        }
    }
    Ok(())
}

fn flips_and_rolls(d: &Device) -> Result<()> {
    for dtype in DType::ALL {
        for x in layouts(&x(dtype, d)?)? {
            assert_eq!(read(&x.flip([0, -1])?)?, table(&[2, 3, 4], |p| element(1 - p[0], p[1], 3 - p[2])), "{dtype}");
            let wanted = |p: &[usize]| element(p[0], (p[1] + 1) % 3, (p[2] + 2) % 4);
            assert_eq!(read(&x.roll(&[-1, 6], &[1, 2])?)?, table(&[2, 3, 4], wanted), "{dtype}");
        }
    }
    Ok(())
}

fn dims_move_split_and_merge(d: &Device) -> Result<()> {
    let x = x(DType::F32, d)?;
    assert_eq!(read(&x.movedim(-1, 0)?)?, table(&[4, 2, 3], |p| element(p[1], p[2], p[0])));
    assert_eq!(x.unflatten(-1, (2, ()))?.dims(), [2, 3, 2, 2]);
    assert_eq!(x.reshape(((), 4))?.dims(), [6, 4]);
    assert_eq!(x.reshape((2, (), 2, 2))?.dims(), [2, 3, 2, 2]);
    assert!(x.reshape((5, ())).is_err() && x.reshape((0, ())).is_err() && x.unflatten(1, (2, 2)).is_err());
    let slices = x.unbind(1)?;
    assert_eq!(read(&slices[2])?, table(&[2, 4], |p| element(p[0], 2, p[1])));
    assert!(x.narrow(1, 0, 0)?.unbind(1)?.is_empty());
    assert_eq!(x.i((.., 0..1))?.expand_as(&x)?.dims(), [2, 3, 4]);
    Ok(())
}

fn coordinates(d: &Device) -> Result<()> {
    let x = Tensor::linspace(-1.0, 1.0, 5, DType::F32, d)?;
    assert_eq!(x.to_vec::<f32>()?, [-1.0, -0.5, 0.0, 0.5, 1.0]);
    let grid = Tensor::meshgrid(&[&x, &Tensor::arange(0, 2, 1, DType::F32, d)?], Indexing::Ij)?;
    assert_eq!(read(&grid[0])?, table(&[5, 2], |p| p[0] as f64 / 2.0 - 1.0));
    assert_eq!(read(&grid[1])?, table(&[5, 2], |p| p[1] as f64));
    Ok(())
}
