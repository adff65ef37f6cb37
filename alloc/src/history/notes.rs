//! What the block table notes.

use super::{Event, Stack, What};
use crate::table::{Record, Table, Tag};

impl Table {
    /// Keeps what happens to a block, if a history is kept.
    #[inline]
    pub(crate) fn note(&mut self, what: What, index: u32, stack: Option<Stack>) {
        if self.recording {
            self.note_now(what, index, stack);
        }
    }
    // Apart, so that the paths of a block stay short where no history is kept.
    #[inline(never)]
    fn note_now(&mut self, what: What, index: u32, stack: Option<Stack>) {
        let Record { address, owner, bytes, site, category, .. } = *self.get(index);
        if let Some(history) = &mut self.history {
            // A drop does not know its line.
            let site = (what == What::Alloc).then_some(site);
            let category = Some(category);
            history.push(Event { site, stack, category, ..Event::new(history.now(), what, address, bytes, owner) });
        }
    }
    /// Counts a pending block that was just split from the next one; each is settled for itself. Nothing that was asked for has the
    /// parts' addresses, so the block is done with, and parts of no bytes take its place.
    pub(crate) fn pending_split(&mut self, index: u32) {
        self.counters.pending_split(self.pool(index));
        self.note(What::FreeCompleted, index, None);
        for part in [index, self.get(index).next] {
            self.set_tag(part, Tag { bytes: 0, ..self.get(part).tag() });
            self.note(What::Rest, part, None);
        }
    }
}
