//! A memory snapshot as PyTorch writes it: every segment and block, and what happened to them, in a pickle of plain types.
//!
//! [`Snapshot::write_pickle`] writes what PyTorch's memory viewer opens; [`Snapshot::read_pickle`] reads what PyTorch wrote, and
//! runs nothing: a pickle that asks for code is refused. [`Snapshot::check`] holds a snapshot to the rules that the viewer relies on.
//!
//! Fields have PyTorch's names. Addresses and sizes are in bytes. Stacks, names and categories are shared (`Arc`), here as in the file.

mod arena;
mod check;
mod decode;
mod machine;
mod opcode;
mod write;

pub use crate::trace::FormatError;
pub use check::Inconsistent;

use std::sync::Arc;

/// The state of the memory of all devices, and how it came about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The memory taken from the devices.
    pub segments: Vec<Segment>,
    /// What happened, in order, a list per device index. May begin in the middle of a run.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The settings of the allocator, by name.
    pub allocator_settings: Vec<(Arc<str>, Value)>,
    /// Marks that the program set in time; each a dictionary.
    pub external_annotations: Vec<Vec<(Arc<str>, Value)>>,
}

/// A range of memory taken from a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Device index.
    pub device: usize,
    /// First byte.
    pub address: u64,
    /// Length.
    pub total_size: u64,
    /// Bytes of blocks that are allocated.
    pub allocated_size: u64,
    /// Bytes of blocks that are allocated, or freed and still in use by the device.
    pub active_size: u64,
    /// Bytes that were asked for, of active blocks.
    pub requested_size: u64,
    /// The stream that owns it.
    pub stream: i64,
    /// Which pool it belongs to.
    pub segment_type: SegmentType,
    /// The private pool it belongs to (of a captured graph, say); (0, 0) for none.
    pub segment_pool_id: (u64, u64),
    /// Whether it grows and shrinks by mapping pages.
    pub is_expandable: bool,
    /// Where it was taken, innermost first.
    pub frames: Arc<[Frame]>,
    /// Its blocks in address order, which tile it.
    pub blocks: Vec<Block>,
}

/// The pool of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentType {
    /// For small blocks.
    Small,
    /// For large ones.
    Large,
}

/// A piece of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// First byte.
    pub address: u64,
    /// Length.
    pub size: u64,
    /// Bytes that were asked for.
    pub requested_size: u64,
    /// What it is doing.
    pub state: BlockState,
    /// Where it was allocated, innermost first.
    pub frames: Arc<[Frame]>,
}

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Someone owns it.
    ActiveAllocated,
    /// Freed, but the device may still use it.
    ActivePendingFree,
    /// Idle.
    Inactive,
}

/// A line of source code on a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Source file.
    pub filename: Arc<str>,
    /// Line number.
    pub line: i64,
    /// Function.
    pub name: Arc<str>,
}

/// Something that happened to a device's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEntry {
    /// What happened.
    pub action: Action,
    /// The address it happened to. For [`Action::Oom`] the bytes that the device has free, as in PyTorch (`device_free` in the file).
    pub addr: u64,
    /// Bytes: of a block those that were asked for, of a segment its length. Requests of 0 bytes have no address and no entry.
    pub size: u64,
    /// The stream it happened on.
    pub stream: i64,
    /// When, in microseconds since 1970.
    pub time_us: i64,
    /// Where, innermost first.
    pub frames: Arc<[Frame]>,
    /// What the memory is for. If any entry says so, one must say "unknown".
    pub category: Option<Arc<str>>,
}

/// What happened, by PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// Its owner gave it back.
    FreeRequested,
    /// The device is done with it.
    FreeCompleted,
    /// A segment was taken from the device.
    SegmentAlloc,
    /// It was given back.
    SegmentFree,
    /// Pages were mapped to a segment.
    SegmentMap,
    /// They were unmapped.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// An allocation failed.
    Oom,
}

/// A value of plain types, as settings hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    None,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string.
    Str(Arc<str>),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A dictionary, in the order of the file.
    Dict(Vec<(Value, Value)>),
}

impl Snapshot {
    /// The device whose trace is longest; the lowest of equals.
    pub fn busiest_device(&self) -> usize {
        let longest = self.device_traces.iter().map(Vec::len).max().unwrap_or(0);
        let from_trace = self.device_traces.iter().position(|t| t.len() == longest && longest > 0);
        from_trace.or(self.segments.iter().map(|s| s.device).min()).unwrap_or(0)
    }
}

impl SegmentType {
    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            SegmentType::Small => "small",
            SegmentType::Large => "large",
        }
    }
}

impl BlockState {
    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        }
    }
}

impl Action {
    /// Every action.
    pub const ALL: [Action; 9] = [
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::SegmentAlloc,
        Action::SegmentFree,
        Action::SegmentMap,
        Action::SegmentUnmap,
        Action::Snapshot,
        Action::Oom,
    ];

    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Snapshot => "snapshot",
            Action::Oom => "oom",
        }
    }
}
