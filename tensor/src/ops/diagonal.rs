//! Diagonals of matrices as views, and matrices with a given diagonal: each is the other's gradient.

use super::narrow::in_zeros;
use crate::op::{BackwardContext, InputGrads, Op, OutputGrads, Outputs, apply};
use crate::saved::SavedTensors;
use crate::{Dim, Error, Layout, Result, Shape, Tensor};
use kiln_kernels::Dims;
use smallvec::smallvec;

/// The elements `(i, i + offset)` of two dims, `len` of them.
#[derive(Clone)]
struct Place {
    rows: usize,
    columns: usize,
    offset: isize,
    len: usize,
}

impl Place {
    /// The diagonal of a tensor of this shape.
    fn new(op: &'static str, shape: &Shape, offset: isize, rows: impl Dim, columns: impl Dim) -> Result<Place> {
        let (rows, columns) = (rows.resolve(op, shape)?, columns.resolve(op, shape)?);
        if rows == columns {
            return Err(Error::shape(op, format!("rows and columns are both dim {rows} of shape {shape}")));
        }
        let (down, right) = (offset.min(0).unsigned_abs(), offset.max(0).unsigned_abs());
        let len = shape.dims()[rows].saturating_sub(down).min(shape.dims()[columns].saturating_sub(right));
        Ok(Place { rows, columns, offset, len })
    }
    /// Where it lies: the other dims, then the diagonal.
    fn part(&self, layout: &Layout) -> Layout {
        let others = || (0..layout.rank()).filter(|&d| d != self.rows && d != self.columns);
        let mut dims: Dims = others().map(|d| layout.dims()[d]).collect();
        let mut strides: Dims = others().map(|d| layout.strides()[d]).collect();
        let (down, right) = (layout.strides()[self.rows], layout.strides()[self.columns]);
        dims.push(self.len);
        strides.push(down.saturating_add(right));
        // Nothing is read of an empty diagonal, and its offset need not exist.
        let start = if dims.contains(&0) { 0 } else { self.offset.unsigned_abs() * if self.offset < 0 { down } else { right } };
        Layout::new(&dims, &strides, layout.offset() + start)
    }
}

struct Diagonal {
    place: Place,
    from: Shape,
}

impl Op for Diagonal {
    fn name(&self) -> &'static str {
        "diagonal"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(inputs[0].with_layout(self.place.part(inputs[0].layout())).into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        Ok(smallvec![Some(in_zeros("diagonal", &self.from, &ctx.only(grads)?, |layout| self.place.part(layout))?)])
    }
}

struct Embed {
    place: Place,
    to: Shape,
}

impl Op for Embed {
    fn name(&self) -> &'static str {
        "diag_embed"
    }
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs> {
        Ok(in_zeros("diag_embed", &self.to, &inputs[0], |layout| self.place.part(layout))?.into())
    }
    fn backward(&self, grads: OutputGrads, _: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads> {
        let g = ctx.only(grads)?;
        Ok(smallvec![Some(g.with_layout(self.place.part(g.layout())))])
    }
}

impl Tensor {
    /// The elements `(i, i + offset)` of the dims `rows` and `columns`, which make way for a last dim. Shares memory; in backward the gradient lies between
    /// zeros.
    ///
    /// # Errors
    /// Where the two are one dim, or out of range. A diagonal that lies outside is empty.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2, 3, 4, 5, 6], (2, 3), &Device::cpu())?;
    /// assert_eq!(x.diagonal(0, 0, 1)?.to_vec::<i64>()?, [1, 5]);
    /// assert_eq!(x.diagonal(1, -2, -1)?.to_vec::<i64>()?, [2, 6]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn diagonal(&self, offset: isize, rows: impl Dim, columns: impl Dim) -> Result<Tensor> {
        let place = Place::new("diagonal", &self.shape(), offset, rows, columns)?;
        apply(Diagonal { place, from: self.shape() }, &[self])
    }

    /// Zeros with the last dim of this tensor as the diagonal `(i, i + offset)` of two new dims, at `rows` and `columns` of the result.
    ///
    /// # Errors
    /// For a tensor without dims; where the two are one dim, or out of range.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device};
    /// let x = Tensor::from_vec(vec![1i64, 2], 2, &Device::cpu())?;
    /// assert_eq!(x.diag_embed(0, -2, -1)?.to_vec2::<i64>()?, [[1, 0], [0, 2]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn diag_embed(&self, offset: isize, rows: impl Dim, columns: impl Dim) -> Result<Tensor> {
        const NAME: &str = "diag_embed";
        let from = self.shape();
        let Some((&n, others)) = from.dims().split_last() else {
            return Err(Error::shape(NAME, "a tensor without dims has no diagonal to give"));
        };
        let size = n.checked_add(offset.unsigned_abs());
        let size = size.ok_or_else(|| Error::SizeOverflow { shape: self.shape(), dtype: self.dtype() })?;
        let rank = Shape::from([others, &[size, size]].concat());
        let (rows, columns) = (rows.resolve(NAME, &rank)?, columns.resolve(NAME, &rank)?);
        let mut dims = others.to_vec();
        for at in [rows.min(columns), rows.max(columns)] {
            dims.insert(at.min(dims.len()), size);
        }
        let to = Shape::from(dims);
        let place = Place::new(NAME, &to, offset, rows, columns)?;
        apply(Embed { place, to }, &[self])
    }

    /// The diagonal `(i, i + offset)` of a matrix, as [`Tensor::diagonal`]; or of a vector the matrix with that diagonal, as [`Tensor::diag_embed`].
    ///
    /// # Errors
    /// For another rank.
    #[track_caller]
    pub fn diag(&self, offset: isize) -> Result<Tensor> {
        match self.rank() {
            1 => self.diag_embed(offset, 0, 1),
            2 => self.diagonal(offset, 0, 1),
            _ => Err(Error::shape("diag", format!("shape {} is neither a vector nor a matrix; use `diagonal`", self.shape()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn diagonals_above_and_below_and_outside() -> Result<()> {
        let x = Tensor::from_vec((0..24).collect::<Vec<i64>>(), (2, 3, 4), &Device::cpu())?;
        assert_eq!(x.diagonal(-1, 1, 2)?.to_vec2::<i64>()?, [[4, 9], [16, 21]]);
        assert_eq!(x.diagonal(2, 0, 2)?.to_vec2::<i64>()?, [[2, 15], [6, 19], [10, 23]]);
        assert_eq!(x.diagonal(1, 2, 0)?.to_vec2::<i64>()?, [[12], [16], [20]]);
        assert_eq!(x.diagonal(isize::MIN, 0, 1)?.dims(), [4, 0]);
        assert!(x.diagonal(0, 1, -2).is_err() && x.diag(0).is_err());
        Ok(())
    }

    #[test]
    fn embedding_is_the_way_back() -> Result<()> {
        let x = Tensor::from_vec(vec![1i64, 2, 3, 4], (2, 2), &Device::cpu())?;
        for (offset, rows, columns) in [(0, 0, 1), (1, 0, 2), (-2, 2, 1), (3, -1, -3)] {
            let y = x.diag_embed(offset, rows, columns)?;
            assert_eq!(y.diagonal(offset, rows, columns)?.to_vec::<i64>()?, [1, 2, 3, 4]);
            assert_eq!(y.sum_all()?.to_scalar::<i64>()?, 10);
        }
        assert_eq!(x.narrow(0, 0, 1)?.squeeze(0)?.diag(1)?.to_vec2::<i64>()?, [[0, 1, 0], [0, 0, 2], [0, 0, 0]]);
        assert!(Tensor::zeros((), DType::F32, &Device::cpu())?.diag_embed(0, 0, 1).is_err());
        assert!(x.diag_embed(0, 1, 1).is_err());
        Ok(())
    }
}
