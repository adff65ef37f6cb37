//! Events in PyTorch's words: one becomes one or two entries of a trace.

use super::{Clock, Event, Frames, What};
use crate::Category;
use crate::snapshot::{Action, TraceEntry};
use std::ops::Range;
use std::sync::Arc;

/// The category of the entry that ends a trace: viewers look it up for everything that has none.
const UNKNOWN: &str = "unknown";

/// The entries of a device's trace. `paged` are the addresses that are mapped page by page; elsewhere a segment is one piece.
pub(crate) fn entries(events: &[Event], clock: &Clock, paged: &[Range<u64>], frames: &mut Frames) -> Vec<TraceEntry> {
    let categories: Vec<Arc<str>> = Category::ALL.iter().map(|category| category.name().into()).collect();
    let unknown: Arc<str> = UNKNOWN.into();
    let mut entries = Vec::with_capacity(events.len() * 2);
    for event in events {
        let in_pages = paged.iter().any(|range| range.contains(&event.address));
        let actions: &[Action] = match event.what {
            What::Alloc => &[Action::Alloc],
            What::Free => &[Action::FreeRequested, Action::FreeCompleted],
            What::FreeRequested => &[Action::FreeRequested],
            What::FreeCompleted => &[Action::FreeCompleted],
            // An allocation of no bytes, freed and not completed: what holds a part of a block that is gone as a whole.
            What::Rest => &[Action::Alloc, Action::FreeRequested],
            What::Mapped if in_pages => &[Action::SegmentMap],
            What::Mapped => &[Action::SegmentAlloc],
            What::Unmapped if in_pages => &[Action::SegmentUnmap],
            What::Unmapped => &[Action::SegmentFree],
            What::Oom => &[Action::Oom],
            What::Snapshot => &[Action::Snapshot],
        };
        let category = match event.what {
            What::Snapshot => Some(unknown.clone()),
            _ => event.category.map(|category| categories[category as usize].clone()),
        };
        let pages = matches!(event.what, What::Mapped | What::Unmapped) && in_pages;
        let stack = frames.of(event.site, event.stack.as_deref());
        entries.extend(actions.iter().map(|action| TraceEntry {
            action: *action,
            addr: event.address,
            size: event.bytes as u64,
            // Streams share pages, so these belong to none.
            stream: if pages { 0 } else { i64::from(event.stream) },
            time_us: clock.time_us(event.time),
            frames: stack.clone(),
            category: category.clone(),
        }));
    }
    entries
}
