//! From a snapshot to a trace: addresses become ids, and what was live before the first entry is found out.

use super::{Builder, FormatError, Trace};
use crate::Category;
use crate::snapshot::{Action, BlockState, Snapshot, TraceEntry};
use std::collections::{BTreeMap, HashMap};

/// What the walk knows of an address.
enum Seen {
    Live(u64),
    /// Its block is freed in the trace already: whatever else is said of that free frees nothing more.
    Freed,
}

/// A block that the trace never allocates.
struct Early {
    id: u64,
    bytes: u64,
    stream: i64,
}

/// Small numbers for the handles of streams.
struct Streams(HashMap<i64, u32>);

impl Streams {
    fn number(&mut self, stream: i64) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(stream).or_insert(next)
    }
}

enum Step {
    Alloc { entry: usize, id: u64 },
    Free { id: u64 },
}

pub(super) fn replay(snapshot: &Snapshot, device: usize) -> Result<Trace, FormatError> {
    let entries: &[TraceEntry] = snapshot.device_traces.get(device).map_or(&[], Vec::as_slice);
    let mut seen: HashMap<u64, Seen> = HashMap::new();
    // By address and the number of the step that freed it: that says which of two is meant should the file contradict itself.
    let mut early: BTreeMap<(u64, usize), Early> = BTreeMap::new();
    let mut steps = Vec::new();
    let mut ids = 0..;
    let mut id = || ids.next().unwrap_or(u64::MAX);
    // Nobody asked for a block of 0 bytes: such an entry holds what is left of a freed one.
    for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.size > 0) {
        match entry.action {
            Action::Alloc => match seen.get(&entry.addr) {
                Some(Seen::Live(_)) => {
                    return Err(FormatError::DoubleAlloc { place: "trace entry", position: at, id: entry.addr });
                }
                _ => {
                    let id = id();
                    seen.insert(entry.addr, Seen::Live(id));
                    steps.push(Step::Alloc { entry: at, id });
                }
            },
            Action::FreeRequested | Action::FreeCompleted => {
                let id = match seen.insert(entry.addr, Seen::Freed) {
                    Some(Seen::Freed) => continue,
                    Some(Seen::Live(id)) => id,
                    None => {
                        let id = id();
                        early.insert((entry.addr, at), Early { id, bytes: entry.size, stream: entry.stream });
                        id
                    }
                };
                steps.push(Step::Free { id });
            }
            _ => {}
        }
    }
    for segment in snapshot.segments.iter().filter(|s| s.device == device) {
        for block in segment.blocks.iter().filter(|b| b.state == BlockState::ActiveAllocated) {
            if !matches!(seen.get(&block.address), Some(Seen::Live(_))) {
                early.insert(
                    (block.address, entries.len()),
                    Early { id: id(), bytes: block.requested_size, stream: segment.stream },
                );
            }
        }
    }
    let mut streams = Streams(HashMap::from([(0, 0)]));
    let mut builder = Builder::default();
    for (_, block) in early {
        builder.alloc(block.id, bytes(block.bytes), streams.number(block.stream), None);
    }
    for step in steps {
        match step {
            Step::Alloc { entry, id } => {
                let entry = &entries[entry];
                let category = entry.category.as_deref().and_then(|name| Category::ALL.into_iter().find(|c| c.name() == name));
                builder.alloc(id, bytes(entry.size), streams.number(entry.stream), category);
            }
            Step::Free { id } => builder.free(id),
        }
    }
    Ok(builder.finish())
}

/// A size of a file as one of this machine; what does not fit cannot be allocated here anyway.
fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
