//! A block and its access tokens: the one choke point between a stream and an address.

use crate::{Category, Result, Stream, StreamId};
use std::marker::PhantomData;

/// A piece of device memory, given back to its allocator on drop. Never waits for the device, never panics in drop.
pub struct Block {}

impl Block {
    /// Bytes asked for.
    pub fn bytes(&self) -> usize {
        todo!()
    }
    /// A number no other block of this allocator has had.
    pub fn id(&self) -> u64 {
        todo!()
    }
    /// The stream it was allocated on.
    pub fn home(&self) -> StreamId {
        todo!()
    }
    /// What it is for.
    pub fn category(&self) -> Category {
        todo!()
    }
    /// Moves its bytes to another row of the report.
    pub fn set_category(&self, category: Category) {
        let _ = category;
        todo!()
    }
    /// Access for work enqueued on `stream` while the token lives. Later work of `stream` is ordered after the last
    /// write, whichever stream made it.
    ///
    /// # Errors
    /// `InUse` while a write token lives; `WrongDevice`.
    pub fn read<'a>(&'a self, stream: &'a Stream) -> Result<Read<'a>> {
        let _ = stream;
        todo!()
    }
    /// Exclusive access for work enqueued on `stream` while the token lives, ordered after all earlier uses.
    ///
    /// # Errors
    /// `InUse` while any token lives; `WrongDevice`.
    pub fn write<'a>(&'a self, stream: &'a Stream) -> Result<Write<'a>> {
        let _ = stream;
        todo!()
    }
}

/// Shared access to a block for work enqueued while it lives.
pub struct Read<'a> {
    _block: PhantomData<&'a Block>,
}

impl Read<'_> {
    /// Where the block lies in device memory. Valid for work enqueued on [`Read::stream`] while the token lives.
    pub fn address(&self) -> u64 {
        todo!()
    }
    /// Bytes asked for.
    pub fn bytes(&self) -> usize {
        todo!()
    }
    /// The stream the access is for.
    pub fn stream(&self) -> &Stream {
        todo!()
    }
    /// The bytes themselves, where the device is the host; `None` elsewhere.
    pub fn as_slice(&self) -> Option<&[u8]> {
        todo!()
    }
}

/// Exclusive access to a block for work enqueued while it lives.
pub struct Write<'a> {
    _block: PhantomData<&'a Block>,
}

impl Write<'_> {
    /// Where the block lies in device memory. Valid for work enqueued on [`Write::stream`] while the token lives.
    pub fn address(&self) -> u64 {
        todo!()
    }
    /// Bytes asked for.
    pub fn bytes(&self) -> usize {
        todo!()
    }
    /// The stream the access is for.
    pub fn stream(&self) -> &Stream {
        todo!()
    }
    /// The bytes themselves, where the device is the host; `None` elsewhere.
    pub fn as_slice(&self) -> Option<&[u8]> {
        todo!()
    }
    /// The bytes themselves, where the device is the host; `None` elsewhere.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        todo!()
    }
}
