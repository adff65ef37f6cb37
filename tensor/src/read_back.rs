//! Reading values back. Each call waits for the device: the loss of every step read is a step that cannot overlap the next.

use crate::{Element, Error, Result, Tensor, exec};

/// Empty rows are listed up to this many.
const MAX_EMPTY_LISTS: usize = 1 << 20;

impl Tensor {
    /// All elements, row-major. Waits for the device.
    ///
    /// # Errors
    /// Where `T` is not the element type; on a dry-run device, which has no values; where an index was out of range in earlier work.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            let message = format!("elements are {}, not {}; convert with `to_dtype`", self.dtype(), T::DTYPE);
            return Err(Error::dtype("to_vec", message));
        }
        if self.device().is_dry_run() {
            return Err(Error::DryRun { op: "to_vec" });
        }
        let x = exec::contiguous(self)?;
        let mut data = vec![T::zeroed(); x.elem_count()];
        let stream = x.device().stream();
        let bytes = bytemuck::cast_slice_mut(&mut data);
        kiln_alloc::download(&x.storage().read(&stream)?, x.layout().offset() * T::DTYPE.size(), bytes)?;
        x.device().check_errors()?;
        Ok(data)
    }
    /// The elements of a tensor with one dim.
    pub fn to_vec1<T: Element>(&self) -> Result<Vec<T>> {
        self.dims1()?;
        self.to_vec()
    }
    /// The rows of a tensor with two dims.
    pub fn to_vec2<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        let (rows, cols) = self.dims2()?;
        self.check_listed("to_vec2", rows)?;
        let all = self.to_vec::<T>()?;
        Ok((0..rows).map(|r| all[r * cols..(r + 1) * cols].to_vec()).collect())
    }
    /// The matrices of a tensor with three dims.
    pub fn to_vec3<T: Element>(&self) -> Result<Vec<Vec<Vec<T>>>> {
        let (n, rows, cols) = self.dims3()?;
        self.check_listed("to_vec3", n.saturating_mul(rows))?;
        let all = self.to_vec::<T>()?;
        let row = |i: usize, r: usize| all[(i * rows + r) * cols..(i * rows + r + 1) * cols].to_vec();
        Ok((0..n).map(|i| (0..rows).map(|r| row(i, r)).collect()).collect())
    }
    /// An error for more lists than elements of a tensor that has none: each list takes memory, be it empty.
    fn check_listed(&self, op: &'static str, lists: usize) -> Result<()> {
        if self.elem_count() == 0 && lists > MAX_EMPTY_LISTS {
            let message = format!("shape {} has no elements, but too many dims to list; use `to_vec`", self.shape());
            return Err(Error::shape(op, message));
        }
        Ok(())
    }
    /// The only element.
    ///
    /// # Errors
    /// Where there is not exactly one, and as [`Tensor::to_vec`].
    pub fn to_scalar<T: Element>(&self) -> Result<T> {
        if self.elem_count() != 1 {
            return Err(Error::shape("to_scalar", format!("shape {} has {} elements, not one", self.shape(), self.elem_count())));
        }
        Ok(self.to_vec::<T>()?[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Device};

    #[test]
    fn empty_rows_without_end_are_an_error() -> Result<()> {
        let empty = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::cpu());
        assert_eq!(empty(&[3, 0])?.to_vec2::<f32>()?, vec![vec![0f32; 0]; 3]);
        assert!(empty(&[1 << 40, 0])?.to_vec2::<f32>().is_err());
        assert!(empty(&[2, 1 << 40, 0])?.to_vec3::<f32>().is_err());
        Ok(())
    }
}
