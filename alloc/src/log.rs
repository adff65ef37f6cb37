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
