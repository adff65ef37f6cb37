//! Errors of this crate, each one sentence; out of memory carries a report.

use crate::{Category, StreamId};

/// What went wrong in a memory source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The device has no memory left for the request.
    #[error("the device is out of memory")]
    OutOfMemory,
    /// The source cannot do this (reading values of a simulated device, say).
    #[error("{0}")]
    Unsupported(&'static str),
    /// A driver call failed.
    #[error("{call} failed: {code} ({message})")]
    Driver {
        /// The name of the driver call.
        call: &'static str,
        /// Its status code.
        code: u32,
        /// The driver's words for the code.
        message: String,
    },
    /// A device was to be opened to a peer that cannot reach its memory directly.
    #[error("CUDA device {peer} cannot reach the memory of device {device} directly")]
    NoPeerAccess {
        /// Ordinal of the device.
        device: usize,
        /// Ordinal of the peer.
        peer: usize,
    },
    /// No usable CUDA on this machine, and why.
    #[error("{0}")]
    NoCuda(String),
}

/// An error of the allocator.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AllocError {
    /// No set of free pages could serve the request.
    #[error("{0}")]
    OutOfMemory(Box<OomReport>),
    /// The size does not fit the address space.
    #[error("a size of {0} bytes is more than any device can address")]
    SizeOverflow(u128),
    /// A block is being written while it is used, or the other way round.
    #[error("block {block} cannot be {wanted} now: {holder} holds it, whose token is still alive")]
    InUse {
        /// Id of the block.
        block: u64,
        /// "read" or "written".
        wanted: &'static str,
        /// "a reader" or "a writer".
        holder: &'static str,
    },
    /// A block was used on a stream of another allocator.
    #[error("a block of {block} was used on a stream of {}", another(block, stream))]
    WrongDevice {
        /// The device of the block.
        block: String,
        /// The device of the stream; another allocator of the same one, if the names are equal.
        stream: String,
    },
    /// A block was asked for on a stream of another allocator.
    #[error("a stream of {stream} was given to {} allocator of {allocator}", if stream == allocator { "another" } else { "an" })]
    WrongStream {
        /// The device of the allocator.
        allocator: String,
        /// The device of the stream; another allocator of the same one, if the names are equal.
        stream: String,
    },
    /// A limit was to be a fraction that is none.
    #[error("a limit of {0} times the device's memory is not within 0 and 1")]
    LimitFraction(f64),
    /// The range of a copy does not fit the block.
    #[error("a copy of {bytes} bytes at offset {offset} does not fit a block of {len} bytes")]
    OutOfRange {
        /// Bytes asked for.
        bytes: usize,
        /// Byte offset in the block.
        offset: usize,
        /// Length of the block in bytes.
        len: usize,
    },
    /// A pool of page-locked memory is at its limit, and what is idle there would not make room. Sizes in bytes.
    #[error(
        "{requested} more bytes of page-locked memory, a block of {size}, do not fit: {reserved} of at most {limit} are reserved"
    )]
    PinnedLimit {
        /// Bytes asked for.
        requested: usize,
        /// Bytes of the block they need.
        size: usize,
        /// Bytes the pool holds, in use or idle.
        reserved: usize,
        /// The pool's limit.
        limit: usize,
    },
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// A device's name in a sentence that has named `first`.
fn another(first: &str, name: &str) -> String {
    if first == name { format!("another allocator of {name}") } else { name.into() }
}

/// Where every byte was when an allocation failed. Sizes in bytes; `reserved` is the sum of `allocated`, `rounded_up`, `pending` and
/// `idle`.
#[derive(Clone, Debug)]
pub struct OomReport {
    /// The device, as `cuda:0`.
    pub device: String,
    /// Bytes asked for.
    pub requested: usize,
    /// Bytes of the block they need, as the policy rounds them.
    pub size: usize,
    /// The line that asked.
    pub site: String,
    /// Bytes in live blocks: requests rounded up to 512.
    pub allocated: usize,
    /// What these blocks take beyond that, since the policy rounds sizes up or leaves small rests with their blocks.
    pub rounded_up: usize,
    /// Bytes taken from the device.
    pub reserved: usize,
    /// Bytes in idle blocks.
    pub idle: usize,
    /// The largest idle block.
    pub largest_free: usize,
    /// Bytes of the idle pages that are idle as a whole, and so could be moved or given back.
    pub free_pages: usize,
    /// Bytes of blocks that the device may still be using.
    pub pending: usize,
    /// Those bytes by the stream that the blocks were allocated on, largest first.
    pub pending_by_stream: Vec<(StreamId, usize)>,
    /// The limit on reserved bytes.
    pub limit: Option<usize>,
    /// Bytes of a page, if memory comes in pages.
    pub page: Option<usize>,
    /// Free bytes of the device as its driver counts them.
    pub driver_free: usize,
    /// All bytes of the device.
    pub driver_total: usize,
    /// Live bytes by category, largest first.
    pub categories: Vec<(Category, usize)>,
    /// Live bytes by the source line that asked for them, largest first, where lines are recorded.
    pub top_sites: Vec<(String, usize)>,
    /// The steps that were tried, in order.
    pub steps: Vec<&'static str>,
}
