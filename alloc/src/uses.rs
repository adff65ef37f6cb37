//! Who uses a block besides its own stream: the last write, and every other use since, one entry a stream.
//!
//! A use is open (tick [`OPEN`]) while its token lives and gets its stream's next tick when the token drops. A token that is
//! forgotten stays open, so a wait for it always takes a fresh event.

use crate::SourceError;
use crate::mark::Wait;
use crate::stream::{OPEN, StreamInner};
use smallvec::SmallVec;
use std::sync::Arc;

struct Use {
    stream: Arc<StreamInner>,
    tick: u64,
    /// Tokens alive.
    open: u32,
}

/// The uses of one block. Made when a second stream first touches it.
pub(crate) struct Uses {
    writer: Use,
    /// Readers since the last write; each already waits for it.
    readers: SmallVec<[Use; 2]>,
}

impl Uses {
    /// What its own stream did so far was not noted: it counts as one open write.
    pub(crate) fn new(home: Arc<StreamInner>) -> Uses {
        Uses { writer: Use { stream: home, tick: OPEN, open: 0 }, readers: SmallVec::new() }
    }

    /// Orders a read by `stream` after the last write, and notes it as open.
    pub(crate) fn read(&mut self, stream: &Arc<StreamInner>) -> Result<(), SourceError> {
        if let Some(reader) = self.readers.iter_mut().find(|r| r.stream.serial == stream.serial) {
            (reader.tick, reader.open) = (OPEN, reader.open + 1);
            return Ok(());
        }
        stream.wait_for(&self.writer.stream, self.writer.tick)?;
        self.readers.push(Use { stream: stream.clone(), tick: OPEN, open: 1 });
        Ok(())
    }

    /// Orders a write by `stream` after every use, and notes it as open.
    pub(crate) fn write(&mut self, stream: &Arc<StreamInner>) -> Result<(), SourceError> {
        // A reader among them already waits for the last write, but a second wait costs less than telling them apart.
        stream.wait_for(&self.writer.stream, self.writer.tick)?;
        for reader in &self.readers {
            stream.wait_for(&reader.stream, reader.tick)?;
        }
        self.readers.clear();
        self.writer = Use { stream: stream.clone(), tick: OPEN, open: 1 };
        Ok(())
    }

    /// Ends a read by `stream`.
    pub(crate) fn end_read(&mut self, stream: &StreamInner) {
        if let Some(reader) = self.readers.iter_mut().find(|r| r.stream.serial == stream.serial) {
            reader.open -= 1;
            if reader.open == 0 {
                reader.tick = stream.next_tick();
            }
        }
    }
    /// Ends the write.
    pub(crate) fn end_write(&mut self) {
        self.writer.tick = self.writer.stream.next_tick();
    }

    /// Makes later work of `stream` wait for every use.
    pub(crate) fn order_after_all(&self, stream: &StreamInner) -> Result<(), SourceError> {
        std::iter::once(&self.writer).chain(&self.readers).try_for_each(|used| stream.wait_for(&used.stream, used.tick))
    }

    /// What the block waits for when it is freed: one mark for every stream but its own. A stream that cannot be marked must
    /// become idle instead, and its error is returned as well.
    pub(crate) fn waits(&self, home: &StreamInner) -> (SmallVec<[Wait; 2]>, Option<SourceError>) {
        let mut waits = SmallVec::new();
        let mut failed = None;
        for used in std::iter::once(&self.writer).chain(&self.readers).filter(|u| u.stream.serial != home.serial) {
            match used.stream.mark_covering(used.tick) {
                Ok(mark) => waits.push(Wait::Mark(mark)),
                Err(error) => {
                    waits.push(Wait::Stream(used.stream.serial, Arc::downgrade(&used.stream)));
                    failed = Some(error);
                }
            }
        }
        (waits, failed)
    }
}
