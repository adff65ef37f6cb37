//! Coordinates: evenly spaced numbers, and grids of them.

use crate::{DType, Device, Error, Result, Shape, Tensor};

/// How [`Tensor::meshgrid`] orders dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Indexing {
    /// Dim `i` belongs to tensor `i`: rows first, as matrices are.
    #[default]
    Ij,
    /// The first two dims exchanged: columns first, as plots are.
    Xy,
}

impl Tensor {
    /// `steps` numbers from `start` to `end`, both among them, evenly spaced; one number is `start`. Computed in f64 from the nearer end, so the last one is
    /// `end` itself.
    ///
    /// # Errors
    /// Where an end is not finite, or memory runs out.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType};
    /// assert_eq!(Tensor::linspace(0.0, 1.0, 5, DType::F32, &Device::cpu())?.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn linspace(start: f64, end: f64, steps: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        let step = if steps > 1 { end / (steps - 1) as f64 - start / (steps - 1) as f64 } else { 0.0 };
        if !(start.is_finite() && end.is_finite()) {
            return Err(Error::argument("linspace", format!("{start} to {end} is no range of finite length")));
        }
        Shape::from(steps).checked_elements("linspace", DType::F64)?;
        // Two halves, each an arange from its end.
        let back = steps / 2;
        let front = Tensor::arange(0, steps - back, 1, DType::F64, device)?.affine(step, start)?;
        if back == 0 {
            return front.to_dtype(dtype);
        }
        let back = Tensor::arange(back as i64 - 1, -1, -1, DType::F64, device)?.affine(-step, end)?;
        Tensor::cat(&[front, back], 0)?.to_dtype(dtype)
    }

    /// Coordinates of the points of a grid: of `n` tensors of one dim (or none) as many of `n` dims, views that repeat each along the dims of the others.
    ///
    /// # Errors
    /// Where there are none, or one has more dims.
    ///
    /// ```
    /// # use kiln_tensor::{Tensor, Device, DType, Indexing};
    /// let x = Tensor::arange(0, 2, 1, DType::I64, &Device::cpu())?;
    /// let grid = Tensor::meshgrid(&[&x, &x], Indexing::Ij)?;
    /// assert_eq!(grid[0].to_vec2::<i64>()?, [[0, 0], [1, 1]]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn meshgrid<T: AsRef<Tensor>>(tensors: &[T], indexing: Indexing) -> Result<Vec<Tensor>> {
        if tensors.is_empty() {
            return Err(Error::argument("meshgrid", "there is nothing to make a grid of"));
        }
        if let Some(t) = tensors.iter().map(AsRef::as_ref).find(|t| t.rank() > 1) {
            return Err(Error::shape("meshgrid", format!("shape {} has more than one dim", t.shape())));
        }
        let sizes: Vec<usize> = tensors.iter().map(|t| t.as_ref().elem_count()).collect();
        let mut grid = Vec::with_capacity(tensors.len());
        // A loop: in a closure the caller's line would be lost.
        for (d, t) in tensors.iter().enumerate() {
            let mut dims = vec![1; sizes.len()];
            dims[d] = sizes[d];
            let whole = t.as_ref().reshape(dims)?.expand(&sizes)?;
            grid.push(if indexing == Indexing::Xy && sizes.len() > 1 { whole.transpose(0, 1)? } else { whole });
        }
        Ok(grid)
    }
}

#[cfg(test)]
mod tests {
    use super::Indexing;
    use crate::{DType, Device, Result, Tensor};

    #[test]
    fn both_ends_are_exact() -> Result<()> {
        let d = Device::cpu();
        for steps in [1usize, 2, 3, 10, 49, 1000] {
            let x = Tensor::linspace(-0.3, 0.7, steps, DType::F64, &d)?.to_vec::<f64>()?;
            assert_eq!((x.len(), x[0]), (steps, -0.3));
            assert!(steps == 1 || x[steps - 1] == 0.7);
            assert!(x.windows(2).all(|w| w[0] < w[1]));
        }
        assert_eq!(Tensor::linspace(0.0, 10.0, 3, DType::I64, &d)?.to_vec::<i64>()?, [0, 5, 10]);
        assert_eq!(Tensor::linspace(0.0, 1.0, 0, DType::F32, &d)?.dims(), [0]);
        assert!(Tensor::linspace(0.0, f64::INFINITY, 3, DType::F32, &d).is_err());
        assert_eq!(Tensor::linspace(-f64::MAX, f64::MAX, 3, DType::F64, &d)?.to_vec::<f64>()?, [-f64::MAX, 0.0, f64::MAX]);
        Ok(())
    }

    #[test]
    fn grids_of_any_size_and_order() -> Result<()> {
        let d = Device::cpu();
        let x = Tensor::from_vec(vec![1i64, 2, 3], 3, &d)?;
        let y = Tensor::scalar(7i64, &d)?;
        let xy = Tensor::meshgrid(&[&x, &y], Indexing::Xy)?;
        assert_eq!(xy[0].to_vec2::<i64>()?, [[1, 2, 3]]);
        assert_eq!(xy[1].to_vec2::<i64>()?, [[7, 7, 7]]);
        assert_eq!(Tensor::meshgrid(&[&x], Indexing::Xy)?[0].dims(), [3]);
        assert!(Tensor::meshgrid::<Tensor>(&[], Indexing::Ij).is_err());
        assert!(Tensor::meshgrid(&[&xy[0]], Indexing::Ij).is_err());
        Ok(())
    }
}
