//! Queues of work, and how far each waits for each other.
//!
//! The k-th entry of stream `s` has the position (s, k). A stream's clock says, for each stream, up to which position everything
//! later in this one waits; entries that have run are left out. So entry (s, k) is ordered before what is enqueued next on `t` if
//! it has run, or if t's clock says at least k for s.

use super::work::Operation;
use crate::{RawEvent, RawStream};
use std::collections::{BTreeMap, HashMap, VecDeque};

type Clock = BTreeMap<u64, u64>;

/// An entry of a queue.
pub(super) enum Entry {
    Operation(Box<Operation>),
    /// A mark, which is passed when all before it has run.
    Mark,
    /// Runs when the other stream has come to a position.
    Wait(u64, u64),
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    enqueued: u64,
    clock: Clock,
    /// Whether the stream was destroyed; the queue goes when it is empty.
    ended: bool,
}

impl Queue {
    fn done(&self) -> u64 {
        self.enqueued - self.entries.len() as u64
    }
}

struct Marked {
    stream: u64,
    position: u64,
    clock: Clock,
}

#[derive(Default)]
pub(super) struct Queues {
    queues: BTreeMap<u64, Queue>,
    next_stream: u64,
    events: HashMap<u64, Marked>,
    next_event: u64,
    /// Entries in all queues.
    pub(super) waiting: usize,
}

/// What keeps a stream from coming to a position.
pub(super) enum Next {
    Nothing,
    Run,
    Other(u64, u64),
}

impl Queues {
    pub(super) fn new_stream(&mut self) -> RawStream {
        self.queues.insert(self.next_stream, Queue::default());
        self.next_stream += 1;
        RawStream(self.next_stream - 1)
    }
    /// Whether there was such a stream.
    pub(super) fn destroy_stream(&mut self, stream: RawStream) -> bool {
        let Some(queue) = self.alive(stream) else { return false };
        queue.ended = true;
        self.drop_if_over(stream.0);
        true
    }
    fn drop_if_over(&mut self, stream: u64) {
        if self.queues.get(&stream).is_some_and(|queue| queue.ended && queue.entries.is_empty()) {
            self.queues.remove(&stream);
        }
    }
    fn alive(&mut self, stream: RawStream) -> Option<&mut Queue> {
        self.queues.get_mut(&stream.0).filter(|queue| !queue.ended)
    }
    fn done(&self, stream: u64) -> u64 {
        self.queues.get(&stream).map_or(u64::MAX, Queue::done)
    }
    fn prune(&self, clock: &mut Clock) {
        clock.retain(|stream, position| self.done(*stream) < *position);
    }

    /// Whether a stream can take work.
    pub(super) fn takes(&self, stream: RawStream) -> bool {
        self.queues.get(&stream.0).is_some_and(|queue| !queue.ended)
    }
    /// The position of the next entry.
    pub(super) fn next(&self, stream: RawStream) -> u64 {
        self.queues.get(&stream.0).map_or(0, |queue| queue.enqueued + 1)
    }
    /// Appends an entry to a stream that takes work.
    pub(super) fn push(&mut self, stream: RawStream, entry: Entry) {
        let Some(queue) = self.alive(stream) else { return };
        queue.enqueued += 1;
        queue.entries.push_back(entry);
        queue.clock.insert(stream.0, queue.enqueued);
        self.waiting += 1;
    }
    /// Whether the next entry of `stream` is ordered after a position of another.
    pub(super) fn ordered(&self, stream: RawStream, other: u64, position: u64) -> bool {
        let waits = self.queues.get(&stream.0).and_then(|queue| queue.clock.get(&other));
        self.is_done(other, position) || waits.is_some_and(|waits| *waits >= position)
    }
    pub(super) fn is_done(&self, stream: u64, position: u64) -> bool {
        self.done(stream) >= position
    }
    /// The end of a stream now.
    pub(super) fn end(&self, stream: RawStream) -> Option<u64> {
        self.queues.get(&stream.0).map(|queue| queue.enqueued)
    }

    /// Marks the end of a stream; `None` where it takes no work.
    pub(super) fn record(&mut self, stream: RawStream) -> Option<RawEvent> {
        self.push(stream, Entry::Mark);
        let queue = self.alive(stream)?;
        let (position, mut clock) = (queue.enqueued, std::mem::take(&mut queue.clock));
        self.prune(&mut clock);
        self.alive(stream)?.clock.clone_from(&clock);
        self.next_event += 1;
        self.events.insert(self.next_event, Marked { stream: stream.0, position, clock });
        Some(RawEvent(self.next_event))
    }
    /// Where an event was recorded.
    pub(super) fn place(&self, event: RawEvent) -> Option<(u64, u64)> {
        self.events.get(&event.0).map(|marked| (marked.stream, marked.position))
    }
    /// Makes a stream wait; whether both exist.
    pub(super) fn wait(&mut self, stream: RawStream, event: RawEvent) -> bool {
        let Some((other, position)) = self.place(event) else { return false };
        if !self.takes(stream) {
            return false;
        }
        self.push(stream, Entry::Wait(other, position));
        let Queues { queues, events, .. } = self;
        if let (Some(queue), Some(marked)) = (queues.get_mut(&stream.0), events.get(&event.0)) {
            for (other, position) in &marked.clock {
                let waits = queue.clock.entry(*other).or_default();
                *waits = (*waits).max(*position);
            }
        }
        true
    }
    /// Whether there was such an event.
    pub(super) fn destroy_event(&mut self, event: RawEvent) -> bool {
        self.events.remove(&event.0).is_some()
    }

    /// What keeps a stream from coming to a position now.
    pub(super) fn next_towards(&self, stream: u64, position: u64) -> Next {
        if self.is_done(stream, position) {
            return Next::Nothing;
        }
        match self.queues.get(&stream).and_then(|queue| queue.entries.front()) {
            Some(Entry::Wait(other, until)) if !self.is_done(*other, *until) => Next::Other(*other, *until),
            _ => Next::Run,
        }
    }
    /// Takes the first entry off; an operation is to be run.
    pub(super) fn pop(&mut self, stream: u64) -> Option<Box<Operation>> {
        let entry = self.queues.get_mut(&stream)?.entries.pop_front()?;
        self.waiting -= 1;
        self.drop_if_over(stream);
        if let Entry::Operation(operation) = entry { Some(operation) } else { None }
    }
    /// Streams with work, in order.
    pub(super) fn busy(&self) -> Vec<u64> {
        self.queues.iter().filter(|(_, queue)| !queue.entries.is_empty()).map(|(stream, _)| *stream).collect()
    }
    /// The enqueued operations that use a range of addresses.
    pub(super) fn users(&self, from: u64, to: u64) -> impl Iterator<Item = &Operation> {
        let entries = self.queues.values().flat_map(|queue| &queue.entries);
        let operations =
            entries.filter_map(|entry| if let Entry::Operation(operation) = entry { Some(&**operation) } else { None });
        operations.filter(move |operation| operation.work.address < to && from < operation.work.end())
    }
}
