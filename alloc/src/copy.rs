//! Copies between host and device, in stream order.

use crate::{PinnedBlock, Read, Result, Write};

/// Copies host bytes into a block at `offset` bytes; `src` may be reused on return.
pub fn upload(src: &[u8], dst: &mut Write<'_>, offset: usize) -> Result<()> {
    let _ = (src, dst, offset);
    todo!()
}
/// Copies the first `bytes` bytes of page-locked memory into a block at `offset` bytes, without waiting: the pinned block is not reused before
/// the copy is done.
pub fn upload_pinned(src: &PinnedBlock, bytes: usize, dst: &mut Write<'_>, offset: usize) -> Result<()> {
    let _ = (src, bytes, dst, offset);
    todo!()
}
/// Copies bytes of a block, from `offset`, to the host and waits for them. An `Unsupported` source error on a simulated device.
pub fn download(src: &Read<'_>, offset: usize, dst: &mut [u8]) -> Result<()> {
    let _ = (src, offset, dst);
    todo!()
}
/// Copies `bytes` bytes between two blocks of one device, in stream order of `dst`.
pub fn copy(src: &Read<'_>, src_offset: usize, dst: &mut Write<'_>, dst_offset: usize, bytes: usize) -> Result<()> {
    let _ = (src, src_offset, dst, dst_offset, bytes);
    todo!()
}
