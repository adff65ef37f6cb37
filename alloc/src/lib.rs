//! Device memory, standing alone: where bytes come from, who holds them, and in which order the device touches them.
//!
//! * [`Source`]: what a device offers (addresses, physical handles, streams, events, copies): CUDA, host or simulated.
//! * [`Allocator`]: the caching allocator over one source; hands out [`Block`]s and takes them back when they drop.
//! * [`Stream`]: an ordered queue of device work. [`Block::read`] and [`Block::write`] are the only way to an address:
//!   they record the use and order streams that differ.
//! * [`PinnedPool`]: pooled page-locked host memory for copies that do not block.
//! * [`MemoryStats`]: every byte, by [`Category`].
//!
//! The states of a block, the rules of streams and the ladder of a miss are told as scenarios in this crate's README.
//!
//! ```
//! use kiln_alloc::{Allocator, AllocatorConfig, Category, download, sources::HostSource, upload};
//! use std::sync::Arc;
//!
//! # fn main() -> kiln_alloc::Result<()> {
//! let allocator = Allocator::new(Arc::new(HostSource::new()?), AllocatorConfig::default())?;
//! let stream = allocator.compute_stream();
//! let block = allocator.allocate(4, stream, Category::Inputs)?;
//! upload(&[1, 2, 3, 4], &mut block.write(stream)?, 0)?;
//! let mut back = [0; 4];
//! download(&block.read(stream)?, 0, &mut back)?;
//! assert_eq!(back, [1, 2, 3, 4]);
//! assert_eq!(allocator.stats().allocated.current, 512);
//! # Ok(())
//! # }
//! ```

mod allocator;
mod bins;
mod block;
mod capture;
mod category;
#[cfg(test)]
mod checks;
mod copy;
mod core;
mod error;
mod growth;
mod history;
mod home;
mod hooks;
mod host_stats;
mod ladder;
mod log;
mod mark;
mod pages;
mod pinned;
mod policy;
mod pool;
mod reclaim;
mod report;
mod short;
mod size;
mod source;
mod stat;
mod stats;
mod steal;
mod stitch;
mod stream;
mod survey;
mod table;
mod uses;

pub mod driver;
pub mod policies;
pub mod replay;
pub mod snapshot;
pub mod sources;
pub mod trace;

pub use allocator::{Allocator, AllocatorConfig};
pub use block::{Block, Read, Write};
pub use category::Category;
pub use copy::{copy, download, fill, upload, upload_pinned};
pub use error::{AllocError, OomReport, SourceError};
pub use history::HistoryConfig;
pub use hooks::ReclaimHook;
pub use host_stats::HostMemoryStats;
pub use log::LogEvent;
pub use pinned::{PinnedBlock, PinnedPool};
pub use policy::{Growth, Policy, Search, Zone};
pub use pool::PrivatePool;
pub use source::{Handle, MemoryInfo, RawEvent, RawStream, Source, SourceInfo, SourceKind};
pub use stat::Stat;
pub use stats::{CategoryStats, MemoryStats, PoolStats};
pub use stream::{Event, Stream, StreamId};

/// What the README shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The result of every fallible call of this crate.
pub type Result<T, E = AllocError> = std::result::Result<T, E>;
