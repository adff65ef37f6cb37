//! An allocation trace is a list of allocations and frees, whatever wrote it: a program's traffic, ready to be replayed.
//!
//! [`Trace::parse`] tells the format by the content, gzipped or not:
//!
//! | format | first bytes | one line, or entry |
//! | --- | --- | --- |
//! | log, what [`Trace::write`] writes | any other | `a ID BYTES STREAM [CATEGORY]`, `f ID` |
//! | CSV | `op,` | `op,id,size,stream,t_us` with `seed`, `alloc`, `free`; `free_req` and `segment_*` are passed over |
//! | PyTorch memory snapshot | `0x80` | see [`crate::snapshot`] |
//!
//! What was live before the recording began (`seed`; in a snapshot, what is freed or still live without having been allocated)
//! comes first, as allocations like any other. A free of an unknown block is dropped and counted, since recordings begin in the
//! middle of a run; an allocation under an id that is live is an error, since no replay could be right.

mod builder;
mod error;
mod gzip;
mod replay;
mod text;

pub use error::FormatError;

use crate::snapshot::Snapshot;
use crate::{Category, LogEvent};
use builder::Builder;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

/// One step of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A block is asked for.
    Alloc {
        /// Names the block until it is freed; may be used again after that.
        id: u64,
        /// Bytes asked for; may be 0.
        bytes: usize,
        /// The stream it is asked for; 0 is the compute stream.
        stream: u32,
        /// What it is for, where that is known.
        category: Option<Category>,
    },
    /// A block is given back.
    Free {
        /// The name of a live block.
        id: u64,
    },
}

/// Allocations and frees, in the order in which they happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The steps. In a trace that was read, every free names a live block, and no allocation does.
    pub events: Vec<Event>,
    /// Frees of unknown blocks that were left out when it was read.
    pub dropped: usize,
}

impl Trace {
    /// Reads a file of any format. Fails if it cannot be read, and as [`Trace::parse`] does.
    pub fn read(path: impl AsRef<Path>) -> Result<Trace, FormatError> {
        Trace::parse(&std::fs::read(path)?)
    }

    /// Reads the bytes of a file of any format. Of a snapshot of several devices it takes the one with the longest trace.
    ///
    /// Fails with the position of the first thing that is wrong. A gzipped file may be inflated to 1 MiB and 256 times its size,
    /// 2 GiB at most.
    pub fn parse(bytes: &[u8]) -> Result<Trace, FormatError> {
        if gzip::is_gzip(bytes) { Trace::parse_plain(&gzip::inflate(bytes)?) } else { Trace::parse_plain(bytes) }
    }

    fn parse_plain(bytes: &[u8]) -> Result<Trace, FormatError> {
        if bytes.first() == Some(&0x80) {
            let snapshot = Snapshot::read_pickle(bytes)?;
            Trace::from_snapshot(&snapshot, snapshot.busiest_device())
        } else if bytes.starts_with(b"op,") {
            text::parse_csv(bytes)
        } else if !text::is_log(bytes) {
            Err(FormatError::NoTrace)
        } else {
            text::parse_log(bytes)
        }
    }

    /// The traffic of one device of a snapshot: its trace, and what its segments hold.
    ///
    /// A block is freed where its free is requested; where only the completion is in the trace, there. A block that is freed
    /// before any allocation, or live at the end and never allocated, was live at the start: such come first, by address.
    /// Streams are numbered in the order in which they appear, and stream 0 stays 0.
    pub fn from_snapshot(snapshot: &Snapshot, device: usize) -> Result<Trace, FormatError> {
        replay::replay(snapshot, device)
    }

    /// The allocator's own log. Frees of blocks from before the log are dropped.
    pub fn from_events(events: &[LogEvent]) -> Trace {
        let mut builder = Builder::default();
        for event in events {
            match *event {
                // Ids of a log are never used twice.
                LogEvent::Alloc { id, bytes, stream, category, .. } => _ = builder.alloc(id, bytes, stream.0, Some(category)),
                LogEvent::Free { id, .. } => builder.free(id),
            }
        }
        builder.finish()
    }

    /// Writes the log format, uncompressed.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        text::write_log(&self.events, out)
    }

    /// The number of steps.
    pub fn len(&self) -> usize {
        self.events.len()
    }
    /// Whether there is no step.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The most bytes that are live at once: no allocator can reserve less.
    pub fn peak_requested(&self) -> usize {
        let (mut live, mut now, mut peak) = (HashMap::new(), 0usize, 0);
        for event in &self.events {
            match *event {
                Event::Alloc { id, bytes, .. } => {
                    live.insert(id, bytes);
                    now = now.saturating_add(bytes);
                    peak = peak.max(now);
                }
                Event::Free { id } => now = now.saturating_sub(live.remove(&id).unwrap_or(0)),
            }
        }
        peak
    }
}
