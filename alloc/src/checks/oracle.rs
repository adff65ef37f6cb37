//! Whether a request was refused although something would have served it.
//!
//! It is right to refuse r bytes, rounded as the policy rounds, only if no idle or pending piece that the request may have is as
//! large; and if, wherever the zone could grow (at its tail or in a hole, with the idle memory beside it), more pages are missing
//! than are idle as a whole anywhere, or may still be taken from the device within the limit.

use crate::core::{Core, lock};
use crate::sources::SimulatedSource;
use crate::table::{Record, State};
use crate::{Growth, Search, Source};

/// What the request was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) size: usize,
    pub(super) region: u16,
    pub(super) stream: u32,
}

/// Why the refusal was wrong, if it was.
pub(super) fn objection(core: &Core, gpu: &SimulatedSource, refused: Refused) -> Option<String> {
    let Refused { size, region, stream } = refused;
    let pages = lock(&core.slow);
    let shared = core.locked();
    let private = shared.table.regions[region as usize].pinned;
    let shares = core.policy.shares_streams() && !private;
    let mine = |r: &Record| r.region == region && (shares || r.owner == stream);
    let tail = |r: &Record| shared.table.last(region) != crate::table::NONE && r.end() == shared.table.top(region);
    let reachable = |r: &Record| mine(r) && (core.policy.search() == Search::BestFit || tail(r));
    // In use until an event is as good, unless a capture must not wait.
    let free = |r: &Record| r.state == State::Idle || (r.state == State::Pending && !private);
    if let Some(piece) = shared.pieces().find(|r| reachable(r) && free(r) && r.size >= size) {
        return Some(format!("{piece:?} would serve"));
    }

    let granularity = pages.granularity();
    let budget = shared.table.counters.limit.map_or(usize::MAX, |limit| limit.saturating_sub(pages.mapped));
    let device = gpu.memory_info().map_or(0, |memory| memory.free);
    let fresh = budget.min(device) / granularity * granularity;
    let movable = |r: &&Record| !private && free(r) && !shared.table.regions[r.region as usize].pinned;
    let whole_pages = |r: &Record| pages.whole_pages(r.address, r.end(), usize::MAX, usize::MAX).map_or(0, |(_, bytes)| bytes);
    // Idle memory beside the place stays where it is, so its pages do not move there.
    let room = |beside: [Option<&Record>; 2]| {
        let others = shared.pieces().filter(movable).filter(|r| beside.iter().flatten().all(|b| b.address != r.address));
        fresh + others.map(whole_pages).sum::<usize>()
    };
    let records: Vec<Record> = shared.table.in_order(region).into_iter().map(|index| *shared.table.get(index)).collect();
    let idle = |at: Option<usize>| at.and_then(|at| records.get(at)).filter(|r| r.state == State::Idle && mine(r));
    let missing = |beside: Option<&Record>| size.saturating_sub(beside.map_or(0, |r| r.size)).next_multiple_of(granularity);
    let segment = match core.policy.growth(size) {
        // Taken as a whole, by its own size if need be, and joined with nothing.
        _ if !core.info.virtual_memory => Some(missing(None)),
        Growth::Segments(segment) => Some(segment.max(size).next_multiple_of(granularity)),
        Growth::Pages { .. } => None,
    };
    if let Some(segment) = segment {
        // Its pages are as large as it is, and do not move.
        return (segment <= fresh).then(|| format!("a segment of {segment} would do: there are {fresh}"));
    }
    let last = idle(records.len().checked_sub(1));
    if missing(last) <= room([last, None]) {
        return Some(format!("the tail lacks {}, and there are {}", missing(last), room([last, None])));
    }
    for (at, hole) in records.iter().enumerate().filter(|(_, r)| r.state == State::Hole) {
        let (before, after) = (idle(at.checked_sub(1)), idle(Some(at + 1)));
        let bytes = |r: Option<&Record>| r.map_or(0, |r| r.size);
        let one_side = |side| missing(side) <= hole.size && missing(side) <= room([side, None]);
        let whole = bytes(before) + hole.size + bytes(after) >= size && hole.size <= room([before, after]);
        if whole || one_side(before) || one_side(after) {
            return Some(format!("the hole {hole:?} would do"));
        }
    }
    None
}
