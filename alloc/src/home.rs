//! A block's hold on its stream.

use crate::stream::StreamInner;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

/// A pointer to a stream that a block keeps alive. It is counted in [`Open::blocks`](crate::core::Open) under the short lock, which a
/// block takes anyway, and not in the `Arc`, whose atomic counting would cost as much again.
pub(crate) struct Home(ManuallyDrop<Arc<StreamInner>>);

impl Home {
    /// # Safety
    /// A block of the stream was counted for it, and is not uncounted while it is used.
    #[inline(always)]
    pub(crate) unsafe fn new(stream: &Arc<StreamInner>) -> Home {
        // SAFETY: the copy is never dropped, so it counts for nothing; the stream's own handle in the block table outlives it, as the
        // caller says.
        Home(ManuallyDrop::new(unsafe { std::ptr::read(stream) }))
    }
}

impl Deref for Home {
    type Target = Arc<StreamInner>;
    #[inline(always)]
    fn deref(&self) -> &Arc<StreamInner> {
        &self.0
    }
}
