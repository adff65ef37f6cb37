//! The record of every allocation and free, for comparing runs and for replay.

use crate::{Category, StreamId};

/// One entry of the event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// A block was handed out.
    Alloc {
        /// Number of the block, counted from the start of the log.
        id: u64,
        /// Bytes asked for.
        bytes: usize,
        /// The stream it was asked for.
        stream: StreamId,
        /// What it is for.
        category: Category,
    },
    /// A block was given back. Blocks from before the log are numbered `u64::MAX`.
    Free {
        /// Number of the block.
        id: u64,
    },
}

/// A log in progress.
pub(crate) struct Log {
    /// Id of the first block it can hold.
    first: u64,
    events: Vec<LogEvent>,
}

impl Log {
    pub(crate) fn new(first: u64) -> Log {
        Log { first, events: Vec::new() }
    }
    /// A block's number in this log.
    pub(crate) fn number(&self, id: u64) -> u64 {
        id.checked_sub(self.first).unwrap_or(u64::MAX)
    }
    pub(crate) fn push(&mut self, event: LogEvent) {
        self.events.push(event);
    }
    pub(crate) fn into_events(self) -> Vec<LogEvent> {
        self.events
    }
}
