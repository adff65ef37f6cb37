//! Whether a snapshot agrees with itself: PyTorch's viewer walks each trace back from the final state, undoing every entry, and has no
//! answer to an entry that cannot have led there. Here that is an error with the place.

use super::*;
use std::collections::BTreeMap;

/// The first thing in a snapshot that does not agree with the rest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inconsistent {
    /// An address that a viewer, whose numbers are floats, could not tell from its neighbours.
    #[error("segment {segment} reaches beyond address 2^53")]
    Address {
        /// Index of the segment.
        segment: usize,
    },
    /// Blocks leave a gap in their segment, overlap or reach out of it.
    #[error("the blocks of segment {segment} do not tile it at block {block}")]
    Tiling {
        /// Index of the segment.
        segment: usize,
        /// Index of the block where it fails; the number of blocks if they end too soon.
        block: usize,
    },
    /// A sum over the blocks is not what the segment says.
    #[error("segment {segment} has `{field}` {says}, but its blocks have {blocks}")]
    Sum {
        /// Index of the segment.
        segment: usize,
        /// The field.
        field: &'static str,
        /// Its value.
        says: u64,
        /// The sum over the blocks.
        blocks: u64,
    },
    /// Two segments of a device overlap.
    #[error("segment {segment} overlaps another one of its device")]
    Overlap {
        /// Index of the segment.
        segment: usize,
    },
    /// Some entry has a category, and none has the category "unknown", which viewers look up.
    #[error("entries have categories, but none has the category \"unknown\"")]
    Category,
    /// An entry cannot have led to the state after it.
    #[error("entry {entry} of device {device} is `{action}`, {what}")]
    Action {
        /// Device index.
        device: usize,
        /// Index of the entry.
        entry: usize,
        /// PyTorch's name of its action.
        action: &'static str,
        /// Why it cannot be.
        what: &'static str,
    },
}

const ADDRESSES: u64 = 1 << 53;

impl Snapshot {
    /// Checks that blocks tile their segments and add up to what these say, that segments lie apart and below 2^53, that walking
    /// each trace back from the final state finds every block and segment where its entry says, and the rule of categories.
    /// A trace may begin in the middle of a run.
    pub fn check(&self) -> Result<(), Inconsistent> {
        for (index, segment) in self.segments.iter().enumerate() {
            check_segment(index, segment)?;
        }
        let mut entries = self.device_traces.iter().flatten().filter_map(|e| e.category.as_deref()).peekable();
        if entries.peek().is_some() && !entries.any(|c| c == "unknown") {
            return Err(Inconsistent::Category);
        }
        let mut states: BTreeMap<usize, State> = BTreeMap::new();
        for (index, segment) in self.segments.iter().enumerate() {
            let state = states.entry(segment.device).or_default();
            state.add(segment).map_err(|_| Inconsistent::Overlap { segment: index })?;
        }
        for (device, trace) in self.device_traces.iter().enumerate() {
            let mut state = states.remove(&device).unwrap_or_default();
            for (entry, e) in trace.iter().enumerate().rev() {
                let wrong = |what| Inconsistent::Action { device, entry, action: e.action.name(), what };
                state.undo(e).map_err(wrong)?;
            }
        }
        Ok(())
    }
}

fn check_segment(index: usize, segment: &Segment) -> Result<(), Inconsistent> {
    let end = segment.address.checked_add(segment.total_size).filter(|end| *end <= ADDRESSES);
    let end = end.ok_or(Inconsistent::Address { segment: index })?;
    let mut at = segment.address;
    for (block, b) in segment.blocks.iter().enumerate() {
        // An idle block may remember what an earlier owner of its bytes asked for.
        let fits = b.state == BlockState::Inactive || b.requested_size <= b.size;
        if b.address != at || b.size == 0 || b.size > end - at || !fits {
            return Err(Inconsistent::Tiling { segment: index, block });
        }
        at += b.size;
    }
    if at != end {
        return Err(Inconsistent::Tiling { segment: index, block: segment.blocks.len() });
    }
    let owned = segment.blocks.iter().filter(|b| b.state == BlockState::ActiveAllocated);
    let used = segment.blocks.iter().filter(|b| b.state != BlockState::Inactive);
    for (field, says, blocks) in [
        ("allocated_size", segment.allocated_size, owned.map(|b| b.size).sum()),
        ("active_size", segment.active_size, used.clone().map(|b| b.size).sum()),
        ("requested_size", segment.requested_size, used.map(|b| b.requested_size).sum()),
    ] {
        if says != blocks {
            return Err(Inconsistent::Sum { segment: index, field, says, blocks });
        }
    }
    Ok(())
}

struct Range {
    end: u64,
    stream: i64,
}

struct Live {
    size: u64,
    pending: bool,
}

/// The memory of one device at some point of its trace, by address.
#[derive(Default)]
struct State {
    segments: BTreeMap<u64, Range>,
    blocks: BTreeMap<u64, Live>,
}

type Step = Result<(), &'static str>;

impl State {
    fn add(&mut self, segment: &Segment) -> Step {
        self.insert_segment(segment.address, segment.address + segment.total_size, segment.stream)?;
        for block in segment.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
            let pending = block.state == BlockState::ActivePendingFree;
            self.blocks.insert(block.address, Live { size: block.requested_size, pending });
        }
        Ok(())
    }

    fn undo(&mut self, entry: &TraceEntry) -> Step {
        let (addr, size) = (entry.addr, entry.size);
        let end = addr.checked_add(size).filter(|end| *end <= ADDRESSES);
        let end = match entry.action {
            Action::Snapshot | Action::Oom => return Ok(()),
            _ => end.ok_or("which reaches beyond address 2^53")?,
        };
        match entry.action {
            Action::Alloc => {
                let block = self.blocks.remove(&addr).ok_or("but no block is live at its address after it")?;
                match (block.pending, block.size == size) {
                    (true, _) => Err("but its block is pending after it, with no free requested"),
                    (_, false) => Err("but its block holds another size after it"),
                    _ => Ok(()),
                }
            }
            Action::FreeRequested => match self.blocks.get_mut(&addr) {
                Some(block) if block.pending && block.size == size => {
                    block.pending = false;
                    Ok(())
                }
                Some(block) if block.pending => Err("but its block holds another size after it"),
                Some(_) => Err("but its block is still allocated after it"),
                None => Err("but the free is not completed after it, and the block is gone"),
            },
            Action::FreeCompleted => {
                if !self.segment_of(addr, end) {
                    return Err("but no segment holds its block");
                }
                if self.block_in(addr, end.max(addr + 1)) {
                    return Err("but a block is live there after it");
                }
                self.blocks.insert(addr, Live { size, pending: true });
                Ok(())
            }
            Action::SegmentFree => self.insert_segment(addr, end, entry.stream),
            Action::SegmentUnmap => self.unmap(addr, end, entry.stream),
            Action::SegmentAlloc => {
                if self.segments.get(&addr).is_none_or(|s| s.end != end) {
                    return Err("but no such segment is there after it");
                }
                self.no_block_in(addr, end)?;
                self.segments.remove(&addr);
                Ok(())
            }
            Action::SegmentMap => self.map(addr, end),
            Action::Snapshot | Action::Oom => Ok(()),
        }
    }

    fn insert_segment(&mut self, start: u64, end: u64, stream: i64) -> Step {
        let before = self.segments.range(..=start).next_back();
        let after = self.segments.range(start..).next();
        if before.is_some_and(|(at, s)| s.end > start || *at == start) || after.is_some_and(|(at, _)| *at < end) {
            return Err("but a segment is there after it");
        }
        self.segments.insert(start, Range { end, stream });
        Ok(())
    }

    /// Undoes an unmap: the pages join the neighbours of their stream.
    fn unmap(&mut self, mut start: u64, mut end: u64, stream: i64) -> Step {
        self.insert_segment(start, end, stream)?;
        if let Some((&at, before)) = self.segments.range(..start).next_back()
            && before.end == start
            && before.stream == stream
        {
            self.segments.remove(&start);
            start = at;
        }
        if let Some(after) = self.segments.get(&end)
            && after.stream == stream
        {
            let old = end;
            end = after.end;
            self.segments.remove(&old);
        }
        self.segments.insert(start, Range { end, stream });
        Ok(())
    }

    /// Undoes a map: the pages leave their segment, which may fall into two.
    fn map(&mut self, start: u64, end: u64) -> Step {
        let holder = self.segments.range(..=start).next_back().filter(|(_, s)| s.end >= end);
        let (at, stream, old_end) =
            holder.map(|(at, s)| (*at, s.stream, s.end)).ok_or("but no segment holds its pages after it")?;
        self.no_block_in(start, end)?;
        self.segments.remove(&at);
        if at < start {
            self.segments.insert(at, Range { end: start, stream });
        }
        if end < old_end {
            self.segments.insert(end, Range { end: old_end, stream });
        }
        Ok(())
    }

    fn segment_of(&self, start: u64, end: u64) -> bool {
        self.segments.range(..=start).next_back().is_some_and(|(_, s)| s.end >= end && s.end > start)
    }
    fn block_in(&self, start: u64, end: u64) -> bool {
        let last = self.blocks.range(..end).next_back();
        last.is_some_and(|(at, b)| *at >= start || at + b.size > start)
    }
    fn no_block_in(&self, start: u64, end: u64) -> Step {
        if self.block_in(start, end) { Err("but a block is live in it, allocated before") } else { Ok(()) }
    }
}
