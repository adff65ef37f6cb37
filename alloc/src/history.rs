//! The history of an allocator: a ring of what happened last, kept under the short lock and told by a snapshot.
//!
//! An event is one look at the processor's clock and one store of 48 bytes; it allocates nothing while the ring does not grow, and names and
//! stacks are resolved only when a snapshot is taken. So it may stay on. The log ([`Allocator::start_log`]) is apart: it numbers
//! blocks from its start and never forgets, where the ring forgets by design.

mod entries;
mod frames;
mod notes;

pub(crate) use entries::entries;
pub(crate) use frames::Frames;

use crate::core::{Core, Shared};
use crate::short::Guard;
use crate::table::Tag;
use crate::{AllocError, Allocator, Category};
use std::backtrace::Backtrace;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

/// What a history keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// At most this many events, the newest ones, of 48 bytes each; the memory for them is taken as they come. A free of a block
    /// that nothing uses any more is one event, although a snapshot tells it in two entries.
    pub capacity: usize,
    /// Whether whole stacks are captured, not only the line that asked. A stack takes microseconds and a few KiB when it is
    /// captured, and some 100 µs when a snapshot resolves it: for short recordings.
    pub stacks: bool,
}

impl Default for HistoryConfig {
    /// 1,048,576 events, no stacks.
    fn default() -> HistoryConfig {
        HistoryConfig { capacity: 1 << 20, stacks: false }
    }
}

/// A stack whose names are not looked up yet.
pub(crate) type Stack = Arc<Backtrace>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Alloc,
    /// The owner freed it and nothing used it any more.
    Free,
    FreeRequested,
    FreeCompleted,
    /// A part of a pending block, of which another request took the rest.
    Rest,
    Mapped,
    Unmapped,
    /// The address is what the device had free.
    Oom,
    Snapshot,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// As [`Clock::now`].
    pub(crate) time: u64,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    pub(crate) site: Option<&'static Location<'static>>,
    pub(crate) stack: Option<Stack>,
    pub(crate) stream: u32,
    pub(crate) what: What,
    pub(crate) category: Option<Category>,
}

impl Event {
    /// One of a time, that says no more than what, where and how much.
    #[inline]
    pub(crate) fn new(time: u64, what: What, address: u64, bytes: usize, stream: u32) -> Event {
        Event { time, address, bytes, site: None, stack: None, stream, what, category: None }
    }
}

/// The clock of events, and what it shows in the world's time.
#[derive(Clone)]
pub(crate) struct Clock {
    clock: quanta::Clock,
    started: u64,
    /// Microseconds from 1970 to `started`.
    epoch_us: i64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let clock = quanta::Clock::new();
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Clock { started: clock.raw(), clock, epoch_us: epoch.as_micros() as i64 }
    }
    /// The time, in a unit of its own.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.clock.raw()
    }
    /// Microseconds from 1970 to `time`.
    pub(crate) fn time_us(&self, time: u64) -> i64 {
        self.epoch_us + (self.clock.delta_as_nanos(self.started, time) / 1000) as i64
    }
}

/// A history in progress.
pub(crate) struct History {
    events: Vec<Event>,
    capacity: usize,
    /// Where the oldest event is, and the next one goes, once the ring is full.
    oldest: usize,
    clock: Clock,
}

/// Events of the first allocation of the ring; it doubles from there.
const FIRST: usize = 1024;

impl History {
    pub(crate) fn new(capacity: usize) -> History {
        History { events: Vec::new(), capacity, oldest: 0, clock: Clock::new() }
    }

    /// The time of an event that happens now.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        if self.events.len() == self.events.capacity() {
            self.grow();
        }
        if self.events.len() < self.capacity {
            self.events.push(event);
        } else if let Some(oldest) = self.events.get_mut(self.oldest) {
            *oldest = event;
            self.oldest = if self.oldest + 1 < self.capacity { self.oldest + 1 } else { 0 };
        }
    }
    /// Makes room up to the capacity; where there is no memory for that, what there is becomes the capacity.
    fn grow(&mut self) {
        let len = self.events.len();
        let more = len.max(FIRST).min(self.capacity - len);
        if more > 0 && self.events.try_reserve_exact(more).is_err() {
            self.capacity = len;
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock.clone()
    }
    /// The events, oldest first.
    pub(crate) fn events(&self) -> Vec<Event> {
        let (newer, older) = self.events.split_at(self.oldest);
        older.iter().chain(newer).cloned().collect()
    }
}

#[cold]
#[inline(never)]
fn capture() -> Stack {
    Arc::new(Backtrace::force_capture())
}

impl Core {
    /// The stack of the caller where stacks are kept. Called outside the short lock.
    #[inline]
    pub(crate) fn stack(&self) -> Option<Stack> {
        self.stacks.load(Ordering::Relaxed).then(capture)
    }
    /// The stack of the caller where stacks are kept, with the short lock given back meanwhile.
    #[inline]
    pub(crate) fn with_stack<'a>(&'a self, shared: Guard<'a, Shared>) -> (Guard<'a, Shared>, Option<Stack>) {
        if !self.stacks.load(Ordering::Relaxed) {
            return (shared, None);
        }
        drop(shared);
        let stack = capture();
        (self.locked_for_request(), Some(stack))
    }
    /// Starts or stops a history; returns the one before, which is not dropped under the lock.
    fn set_history(&self, history: Option<Box<History>>) -> Option<Box<History>> {
        let mut shared = self.locked();
        let before = std::mem::replace(&mut shared.table.history, history);
        shared.note_recording();
        before
    }
    /// Keeps that a request was refused for want of memory, if a history is kept.
    pub(crate) fn note_refusal(&self, error: &AllocError, tag: Tag, stream: u32, stack: &Option<Stack>) {
        let AllocError::OutOfMemory(report) = error else { return };
        if let Some(history) = &mut self.locked().table.history {
            let (site, stack, category) = (Some(tag.site), stack.clone(), Some(tag.category));
            let event = Event::new(history.now(), What::Oom, report.driver_free as u64, tag.bytes, stream);
            history.push(Event { site, stack, category, ..event });
        }
    }
}

impl Allocator {
    /// Starts (or starts anew) to keep what happens: allocations, frees, pages mapped and unmapped, requests refused. A
    /// [`snapshot`](Allocator::snapshot) tells it.
    pub fn record_history(&self, config: HistoryConfig) {
        let history = Some(Box::new(History::new(config.capacity)));
        let before = self.core.set_history(history);
        self.core.stacks.store(config.stacks, Ordering::Relaxed);
        drop(before);
    }
    /// Stops it and lets go of what was kept.
    pub fn stop_history(&self) {
        self.core.stacks.store(false, Ordering::Relaxed);
        drop(self.core.set_history(None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_the_newest_events_in_order() {
        for capacity in [0, 1, 7, 1024, 1500] {
            let mut history = History::new(capacity);
            (0..5000).for_each(|n| history.push(Event::new(n, What::Alloc, n, 1, 0)));
            let kept: Vec<u64> = history.events().iter().map(|event| event.address).collect();
            assert_eq!(kept, (5000 - capacity as u64..5000).collect::<Vec<_>>());
            assert!(history.events().windows(2).all(|pair| pair[0].time <= pair[1].time));
        }
    }

    #[test]
    fn a_ring_of_any_capacity_takes_memory_as_events_come() {
        let mut history = History::new(usize::MAX);
        history.push(Event::new(0, What::Alloc, 1, 1, 0));
        assert_eq!(history.events.capacity(), FIRST);
        assert_eq!(size_of::<Event>(), 48);
    }
}
