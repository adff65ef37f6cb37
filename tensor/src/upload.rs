//! Tensors from page-locked host memory, copied without waiting.

use crate::{DType, Device, Error, Result, Shape, Tensor, exec, modes};
use kiln_alloc::{PinnedBlock, Stream};

impl Tensor {
    /// The first elements of a page-locked block, row-major, copied to `device` on `stream`. Returns before the copy is done: ops on any stream wait for it, and
    /// the block is not changed or reused before then. The memory belongs to `stream`.
    ///
    /// # Errors
    /// Where the block is shorter than the shape says; out of memory; what the device says.
    #[track_caller]
    pub fn from_pinned(
        block: &PinnedBlock,
        shape: impl Into<Shape>,
        dtype: DType,
        device: &Device,
        stream: &Stream,
    ) -> Result<Tensor> {
        const NAME: &str = "from_pinned";
        let shape = shape.into();
        let bytes = shape.checked_elements(NAME, dtype)? * dtype.size();
        let given = block.as_slice().len();
        if given < bytes {
            return Err(Error::shape(NAME, format!("shape {shape} of {dtype} takes {bytes} bytes, the block has {given}")));
        }
        let out =
            modes::here(|| device.with_stream(stream, || exec::empty(NAME, &shape, dtype, device))).map_err(|e| e.in_op(NAME))?;
        kiln_alloc::upload_pinned(block, bytes, &mut out.storage().write_new(stream)?, 0)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_the_front_of_a_block() -> Result<()> {
        let device = Device::cpu();
        let mut block = device.pinned_pool().allocate(16)?;
        block.as_mut_slice()?[..8].copy_from_slice(bytemuck::cast_slice(&[1f32, 2.0]));
        let x = Tensor::from_pinned(&block, 2, DType::F32, &device, device.copy_stream()?)?;
        assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
        assert!(Tensor::from_pinned(&block, 5, DType::F32, &device, device.copy_stream()?).is_err());
        Ok(())
    }
}
