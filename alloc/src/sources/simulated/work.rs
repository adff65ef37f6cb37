//! Operations: what a kernel does to bytes, checked when it is enqueued and again when it runs.

use super::breach::{BreachKind, Breaches};
use super::memory::Memory;
use super::queues::Queues;
use super::shadow::{Expected, Use};
use crate::RawStream;
use std::collections::HashSet;
use std::fmt;

/// Work that reads or writes every byte of a range, as a kernel would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The queue it is enqueued on.
    pub stream: RawStream,
    /// Its first byte.
    pub address: u64,
    /// How many bytes.
    pub bytes: usize,
    /// The block that owns the bytes, where known. Younger blocks have larger ids.
    pub block: Option<u64>,
    /// Whether it writes.
    pub write: bool,
}

impl Work {
    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes as u64)
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = if self.write { "write" } else { "read" };
        write!(f, "the {does} of ")?;
        match self.block {
            Some(block) => write!(f, "block {block}")?,
            None => write!(f, "a copy")?,
        }
        write!(f, " at {:#x}..{:#x} on stream {}", self.address, self.end(), self.stream.0)
    }
}

/// Enqueued work, and the bytes that its addresses stood for.
pub(super) struct Operation {
    pub(super) work: Work,
    stamp: u64,
    pieces: Vec<Piece>,
}

/// A part of the range that lies in one page.
struct Piece {
    page: u64,
    handle: u64,
    from: usize,
    to: usize,
    expected: Vec<Expected>,
}

impl Operation {
    /// Checks work as it is enqueued at `position`. Each has a stamp of its own, the value that it writes.
    pub(super) fn enqueue(work: Work, stamp: u64, memory: &mut Memory, queues: &Queues, breaches: &mut Breaches) -> Operation {
        let position = queues.next(work.stream);
        let mut operation = Operation { work, stamp, pieces: Vec::new() };
        let (mut at, mut seen) = (work.address, HashSet::new());
        while at < work.end() {
            let Some((page, mapping)) = memory.page_at(at) else {
                breaches.add(BreachKind::NotMapped, format!("{work} is enqueued although nothing is mapped at {at:#x}"));
                break;
            };
            if !mapping.access {
                breaches.add(BreachKind::NoAccess, format!("{work} is enqueued although the page at {page:#x} has no access"));
            }
            let handle = mapping.handle;
            if !seen.insert(handle) {
                breaches.add(BreachKind::TwoAddresses, format!("{work} sees one page twice, the second time at {page:#x}"));
            }
            let until = work.end().min(page + mapping.bytes as u64);
            let (from, to) = ((at - page) as usize, (until - page) as usize);
            operation.pieces.push(Piece { page, handle, from, to, expected: Vec::new() });
            at = until;
        }
        for piece in &mut operation.pieces {
            if let Some(mapping) = memory.mapped.get_mut(&piece.page) {
                mapping.users += 1;
            }
            let Some(physical) = memory.handles.get_mut(&piece.handle) else { continue };
            let used = Use { work, position, from: piece.from, to: piece.to, address: piece.page + piece.from as u64 };
            piece.expected = physical.shadow.enqueue(used, stamp, queues, breaches);
        }
        operation
    }

    /// Runs it: its pages must still be where they were, and hold what was expected. The first page that does not is told of.
    pub(super) fn run(self, memory: &mut Memory, breaches: &mut Breaches) {
        let work = self.work;
        let mut wrong = None;
        for piece in &self.pieces {
            let found = piece.run(&work, self.stamp, memory);
            wrong = wrong.or(found);
        }
        if let Some((kind, at)) = wrong {
            let found = match kind {
                BreachKind::NotMapped => "nothing mapped any more",
                BreachKind::Moved => "another page",
                BreachKind::NoAccess => "a page without access",
                _ => "the value of another write, or none,",
            };
            breaches.add(kind, format!("{work} runs and finds {found} at {at:#x}"));
        }
    }
}

impl Piece {
    /// What is wrong with it, and at which address.
    fn run(&self, work: &Work, stamp: u64, memory: &mut Memory) -> Option<(BreachKind, u64)> {
        let Some(mapping) = memory.mapped.get_mut(&self.page) else { return Some((BreachKind::NotMapped, self.page)) };
        if mapping.handle != self.handle {
            return Some((BreachKind::Moved, self.page));
        }
        mapping.users = mapping.users.saturating_sub(1);
        if !mapping.access {
            return Some((BreachKind::NoAccess, self.page));
        }
        let shadow = &mut memory.handles.get_mut(&self.handle)?.shadow;
        if work.write {
            shadow.write(self.from, self.to, stamp);
            return None;
        }
        shadow.wrong(&self.expected).map(|at| (BreachKind::WrongValue, self.page + at as u64))
    }
}
