//! Marks: shared events, and what a freed block waits for.

use crate::stream::StreamInner;
use crate::{RawEvent, Source, SourceError};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// A point in a stream, shared by every block that waits for it. The driver's event goes back with the last clone.
pub(crate) struct Mark {
    source: Arc<dyn Source>,
    pub(crate) raw: RawEvent,
    /// [`StreamInner::serial`] of its stream.
    pub(crate) serial: u64,
    done: AtomicBool,
}

impl Mark {
    pub(crate) fn new(source: Arc<dyn Source>, raw: RawEvent, serial: u64) -> Arc<Mark> {
        Arc::new(Mark { source, raw, serial, done: AtomicBool::new(false) })
    }
    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }
    pub(crate) fn is_complete(&self) -> Result<bool, SourceError> {
        let done = self.done.load(Ordering::Acquire) || self.source.is_complete(self.raw)?;
        if done {
            self.done.store(true, Ordering::Release);
        }
        Ok(done)
    }
    /// Whether it is known to be passed, with no look.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
    pub(crate) fn wait(&self) -> Result<(), SourceError> {
        if !self.done.load(Ordering::Acquire) {
            self.source.wait_event(self.raw)?;
            self.done.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.source.destroy_event(self.raw);
    }
}

/// What must happen before a freed block may be reused.
#[derive(Clone)]
pub(crate) enum Wait {
    /// The mark is passed.
    Mark(Arc<Mark>),
    /// The stream, by serial, has been idle once since; for this no event exists yet. Weak, since the allocator must not own its
    /// streams.
    Stream(u64, Weak<StreamInner>),
    /// Nothing will ever tell: the driver failed when the stream ended.
    Never,
}

/// A freed block that the device may still use, and until when.
pub(crate) struct Pending {
    pub(crate) index: u32,
    pub(crate) waits: SmallVec<[Wait; 2]>,
    /// Set aside by a thread that waits for it under the slow mutex; nobody else takes it.
    pub(crate) aside: bool,
    /// Whether it counts as active: it was live before it was pending, not idle.
    pub(crate) active: bool,
}

impl Pending {
    pub(crate) fn new(index: u32, waits: impl IntoIterator<Item = Wait>) -> Pending {
        Pending { index, waits: waits.into_iter().collect(), aside: false, active: false }
    }
    /// Whether it can never be reused.
    pub(crate) fn is_lost(&self) -> bool {
        self.waits.iter().any(|wait| matches!(wait, Wait::Never))
    }
    /// Whether nothing is left to wait for. Streams seen busy are remembered in `busy`: their later marks need no look. A query
    /// that fails counts as busy and leaves its error in `failed`.
    pub(crate) fn poll(&mut self, busy: &mut SmallVec<[u64; 4]>, failed: &mut Option<SourceError>) -> bool {
        if self.aside {
            return false;
        }
        self.waits.retain(|wait| {
            let Wait::Mark(mark) = wait else { return true };
            if busy.contains(&mark.serial) {
                return true;
            }
            let done = mark.is_complete().unwrap_or_else(|error| {
                *failed = Some(error);
                false
            });
            if !done {
                busy.push(mark.serial);
            }
            !done
        });
        self.waits.is_empty()
    }
}
