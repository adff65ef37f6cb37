//! Collects events and knows which blocks are live, so that every trace obeys the same two rules.

use super::{Event, Trace};
use crate::Category;
use std::collections::HashSet;

#[derive(Default)]
pub(super) struct Builder {
    events: Vec<Event>,
    live: HashSet<u64>,
    dropped: usize,
}

impl Builder {
    /// Adds an allocation; false, and nothing added, if the id is live.
    pub(super) fn alloc(&mut self, id: u64, bytes: usize, stream: u32, category: Option<Category>) -> bool {
        let new = self.live.insert(id);
        if new {
            self.events.push(Event::Alloc { id, bytes, stream, category });
        }
        new
    }
    /// Adds a free; of an unknown block, counts it.
    pub(super) fn free(&mut self, id: u64) {
        if self.live.remove(&id) {
            self.events.push(Event::Free { id });
        } else {
            self.dropped += 1;
        }
    }
    /// Counts the free of a block that has no id.
    pub(super) fn drop_free(&mut self) {
        self.dropped += 1;
    }
    pub(super) fn finish(self) -> Trace {
        Trace { events: self.events, dropped: self.dropped }
    }
}
