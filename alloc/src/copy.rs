//! Copies between host and device, and fills, in stream order.

use crate::{AllocError, PinnedBlock, Read, Result, Write};

/// The address of `bytes` bytes at `offset` in a block of `len` bytes at `address`.
fn place(address: u64, len: usize, offset: usize, bytes: usize) -> Result<u64> {
    match offset.checked_add(bytes) {
        Some(end) if end <= len => Ok(address + offset as u64),
        _ => Err(AllocError::OutOfRange { bytes, offset, len }),
    }
}

/// Copies host bytes into a block at `offset` bytes; `src` may be reused on return. From page-locked memory this waits for the
/// copy; [`upload_pinned`] does not.
///
/// # Errors
/// `OutOfRange`; what the driver says.
pub fn upload(src: &[u8], dst: &mut Write<'_>, offset: usize) -> Result<()> {
    let to = place(dst.address(), dst.bytes(), offset, src.len())?;
    if src.is_empty() {
        return Ok(());
    }
    let stream = dst.stream();
    let source = &stream.inner.core.source;
    // SAFETY: the range lies in the block, for which the caller holds the only token; `src` is readable, and if it is page-locked
    // the copy is waited for below.
    unsafe { source.copy_in(to, src.as_ptr(), src.len(), stream.raw()) }?;
    if source.is_page_locked(src.as_ptr()) || source.is_page_locked(&src[src.len() - 1]) {
        source.synchronize(stream.raw())?;
    }
    Ok(())
}

/// Copies the first `bytes` bytes of page-locked memory into a block at `offset` bytes, without waiting: the pinned block is not
/// changed or reused before the copy is done.
///
/// # Errors
/// `OutOfRange` for either side; what the driver says.
pub fn upload_pinned(src: &PinnedBlock, bytes: usize, dst: &mut Write<'_>, offset: usize) -> Result<()> {
    let to = place(dst.address(), dst.bytes(), offset, bytes)?;
    let from = src.as_slice();
    if bytes > from.len() {
        return Err(AllocError::OutOfRange { bytes, offset: 0, len: from.len() });
    }
    if bytes == 0 {
        return Ok(());
    }
    let stream = dst.stream();
    // SAFETY: both ranges are as in `upload`; the pinned block is recorded below, so neither a later fill nor its reuse changes
    // the bytes before the copy is done.
    let copied = unsafe { stream.inner.core.source.copy_in(to, from.as_ptr(), bytes, stream.raw()) };
    // Recorded even after an error, which may be an older one of the device.
    src.record(stream)?;
    Ok(copied?)
}

/// Copies bytes of a block, from `offset`, to the host and waits for them. An `Unsupported` source error on a simulated device.
///
/// # Errors
/// `OutOfRange`; what the driver says.
pub fn download(src: &Read<'_>, offset: usize, dst: &mut [u8]) -> Result<()> {
    let from = place(src.address(), src.bytes(), offset, dst.len())?;
    if dst.is_empty() {
        return Ok(());
    }
    let stream = src.stream();
    // SAFETY: the range lies in the block, whose read token is held; `dst` is writable, and the call returns when it is written.
    Ok(unsafe { stream.inner.core.source.copy_out(dst.as_mut_ptr(), from, dst.len(), stream.raw()) }?)
}

/// Sets `bytes` bytes of a block, from `offset`, to `value`, in stream order.
///
/// # Errors
/// `OutOfRange`; what the driver says.
pub fn fill(dst: &mut Write<'_>, value: u8, offset: usize, bytes: usize) -> Result<()> {
    let to = place(dst.address(), dst.bytes(), offset, bytes)?;
    if bytes == 0 {
        return Ok(());
    }
    let stream = dst.stream();
    // SAFETY: the range lies in the block, for which the caller holds the only token.
    Ok(unsafe { stream.inner.core.source.fill(to, value, bytes, stream.raw()) }?)
}

/// Copies `bytes` bytes between two blocks of one device, in stream order of `dst`.
///
/// # Errors
/// `OutOfRange` for either side; `WrongDevice`; what the driver says.
pub fn copy(src: &Read<'_>, src_offset: usize, dst: &mut Write<'_>, dst_offset: usize, bytes: usize) -> Result<()> {
    let from = place(src.address(), src.bytes(), src_offset, bytes)?;
    let to = place(dst.address(), dst.bytes(), dst_offset, bytes)?;
    let stream = dst.stream();
    // The caller's token may be for another stream, and this one does the reading.
    let _read = src.block().read(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: both ranges lie in their blocks, whose tokens for this stream are held; a block being written has no read token, so
    // the two differ and cannot overlap.
    Ok(unsafe { stream.inner.core.source.copy_device(to, from, bytes, stream.raw()) }?)
}
