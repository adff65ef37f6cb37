//! Collects events and knows which blocks are live, so that every trace obeys the same two rules.

use super::{Event, Trace};
use crate::Category;
use std::collections::HashSet;

#[derive(Default)]
pub(super) struct Builder {
    events: Vec<Event>,
    live: HashSet<u64>,
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
    /// Adds a free, unless the block is unknown.
    pub(super) fn free(&mut self, id: u64) {
        if self.live.remove(&id) {
            self.events.push(Event::Free { id });
        }
    }
    pub(super) fn finish(self) -> Trace {
        Trace { events: self.events }
    }
}
