//! Snapshots of an allocator: the memory that is mapped, what lies in it, and the history that led there.
//!
//! Both locks are held while the picture is taken, so no change is half done: pages are where the driver has them, and an address
//! that its page has left is not memory any more. A segment is a maximal run of mapped pages; in a zone that grows by segments
//! only, one of those. Names and stacks are looked up after the locks are given back.

use crate::core::{Core, lock};
use crate::history::{Clock, Event, Frames, What, entries};
use crate::snapshot::{Block, BlockState, Segment, SegmentType, Snapshot, Value};
use crate::stats::Pool;
use crate::table::State;
use crate::{Allocator, Zone};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;

impl Allocator {
    /// The memory now and, if [`record_history`](Allocator::record_history) was called, how it came about.
    ///
    /// Pages that streams share belong to stream 0. What an entry says of a block is what was asked for, as in PyTorch. Where
    /// another request took a part of a block that was still in use, the block's free is completed, and the rest is from then on an
    /// allocation of 0 bytes, whose free is not completed until the device is done with it.
    pub fn snapshot(&self) -> Snapshot {
        let picture = Picture::take(&self.core);
        let device = device_index(&self.core.info.name);
        let mut frames = Frames::default();
        let trace = entries(&picture.events, &picture.clock, &picture.paged, &mut frames);
        let segments = picture.segments(device, &mut frames);
        let mut device_traces = vec![Vec::new(); device];
        device_traces.push(trace);
        let limit = picture.limit.map_or(Value::None, |limit| Value::Int(i64::try_from(limit).unwrap_or(i64::MAX)));
        let allocator_settings = vec![
            ("policy".into(), Value::Str(self.core.policy.name().into())),
            ("limit".into(), limit),
            ("expandable_segments".into(), Value::Bool(segments.iter().any(|segment| segment.is_expandable))),
        ];
        Snapshot { segments, device_traces, allocator_settings, external_annotations: Vec::new() }
    }
    /// Writes a [`snapshot`](Allocator::snapshot) as a file that PyTorch's memory viewer opens.
    ///
    /// # Errors
    /// What creating or writing the file says.
    pub fn snapshot_to(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.snapshot().write_pickle(&mut File::create(path)?)
    }
}

/// The number in `cuda:N`; 0 for every other device.
fn device_index(name: &str) -> usize {
    name.strip_prefix("cuda:").and_then(|index| index.parse::<u8>().ok()).map_or(0, usize::from)
}

/// A piece of the block table.
struct Piece {
    range: Range<u64>,
    requested: usize,
    state: BlockState,
    site: Option<&'static Location<'static>>,
    owner: u32,
    region: u16,
}

/// What is read under the locks.
struct Picture {
    /// Mapped pages, by address.
    pages: Vec<Range<u64>>,
    /// Regions that are mapped page by page.
    paged: Vec<Range<u64>>,
    /// By address.
    pieces: Vec<Piece>,
    /// By region.
    pools: Vec<Pool>,
    events: Vec<Event>,
    clock: Clock,
    limit: Option<usize>,
}

/// A segment whose blocks are not filled in.
struct Span {
    range: Range<u64>,
    /// Index in `paged`.
    paged: Option<usize>,
}

impl Picture {
    fn take(core: &Core) -> Picture {
        let pages = lock(&core.slow);
        let mut shared = core.locked();
        core.poll(&mut shared);
        if let Some(history) = &mut shared.table.history {
            history.push(Event::new(history.now(), What::Snapshot, 0, 0, 0));
        }
        // Idle memory may be pending too, where the stream that had it ended.
        let pending: HashSet<u32> = shared.pending.iter().filter(|entry| entry.active).map(|entry| entry.index).collect();
        let table = &shared.table;
        let regions = 0..table.regions.len() as u16;
        let indices = regions.clone().flat_map(|region| table.in_order(region));
        let mut pieces: Vec<Piece> = indices
            .map(|index| (index, table.get(index)))
            .filter(|(_, record)| record.state != State::Hole)
            .map(|(index, record)| {
                // A piece that was found for a request, but is not handed out yet, asks for nothing.
                let state = match record.state {
                    State::Live if record.bytes > 0 => BlockState::ActiveAllocated,
                    State::Pending if pending.contains(&index) => BlockState::ActivePendingFree,
                    _ => BlockState::Inactive,
                };
                let active = state != BlockState::Inactive;
                Piece {
                    range: record.address..record.end(),
                    requested: if active { record.bytes } else { 0 },
                    state,
                    site: active.then_some(record.site),
                    owner: record.owner,
                    region: record.region,
                }
            })
            .collect();
        pieces.sort_by_key(|piece| piece.range.start);
        Picture {
            pages: pages.all().collect(),
            paged: regions.filter(|region| table.regions[*region as usize].paged).map(|region| pages.range(region)).collect(),
            pieces,
            pools: table.regions.iter().map(|region| region.pool).collect(),
            events: table.history.as_ref().map(|history| history.events()).unwrap_or_default(),
            clock: table.history.as_ref().map_or_else(Clock::new, |history| history.clock()),
            limit: table.counters.limit,
        }
    }

    fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for page in &self.pages {
            let paged = self.paged.iter().position(|range| range.contains(&page.start));
            match spans.last_mut() {
                Some(last) if paged.is_some() && last.paged == paged && last.range.end == page.start => last.range.end = page.end,
                _ => spans.push(Span { range: page.clone(), paged }),
            }
        }
        spans
    }

    fn segments(&self, device: usize, frames: &mut Frames) -> Vec<Segment> {
        // Whole stacks are in the history alone.
        let stacks: HashMap<u64, &Event> =
            self.events.iter().filter(|e| e.what == What::Alloc && e.stack.is_some()).map(|e| (e.address, e)).collect();
        let mut frames_of = |piece: &Piece| match (piece.site, stacks.get(&piece.range.start)) {
            (None, _) => Arc::default(),
            (Some(site), Some(event)) if event.site == Some(site) => frames.of(event.site, event.stack.as_deref()),
            (Some(site), _) => frames.site(site),
        };
        let mut segments = Vec::new();
        for Span { range, paged } in self.spans() {
            let from = self.pieces.partition_point(|piece| piece.range.end <= range.start);
            let inside = || self.pieces[from..].iter().take_while(|piece| piece.range.start < range.end);
            let (mut blocks, mut at) = (Vec::new(), range.start);
            let idle = |from: u64, to: u64| Block {
                address: from,
                size: to - from,
                requested_size: 0,
                state: BlockState::Inactive,
                frames: Arc::default(),
            };
            for piece in inside() {
                // Pages that the driver would not unmap may lie beside or half in a piece that nobody can have.
                let (start, end) = (piece.range.start.max(range.start), piece.range.end.min(range.end));
                if start > at {
                    blocks.push(idle(at, start));
                }
                let (requested_size, state, frames) = (piece.requested as u64, piece.state, frames_of(piece));
                blocks.push(Block { address: start, size: end - start, requested_size, state, frames });
                at = end;
            }
            if at < range.end {
                blocks.push(idle(at, range.end));
            }
            let sum =
                |states: &[BlockState], of: fn(&Block) -> u64| blocks.iter().filter(|b| states.contains(&b.state)).map(of).sum();
            let active = [BlockState::ActiveAllocated, BlockState::ActivePendingFree];
            let (region, owner) = inside().next().map_or((0, 0), |piece| (piece.region, piece.owner));
            let private = u64::from(region).saturating_sub(Zone::ALL.len() as u64 - 1);
            segments.push(Segment {
                device,
                address: range.start,
                total_size: range.end - range.start,
                allocated_size: sum(&active[..1], |b| b.size),
                active_size: sum(&active, |b| b.size),
                requested_size: sum(&active, |b| b.requested_size),
                stream: if paged.is_some() { 0 } else { i64::from(owner) },
                segment_type: match self.pools.get(usize::from(region)) {
                    Some(Pool::Small) => SegmentType::Small,
                    _ => SegmentType::Large,
                },
                segment_pool_id: (0, private),
                is_expandable: paged.is_some(),
                frames: Arc::default(),
                blocks,
            });
        }
        segments
    }
}
