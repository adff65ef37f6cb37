//! Memory and queues together: what a call does to both.

use super::adversary::Adversary;
use super::breach::{BreachKind, Breaches};
use super::config::{Schedule, SimulatedConfig};
use super::memory::{Memory, invalid};
use super::queues::{Entry, Next, Queues};
use super::work::{Operation, Work};
use crate::{RawEvent, RawStream, SourceError};

type Result<T> = std::result::Result<T, SourceError>;

pub(super) struct State {
    pub(super) memory: Memory,
    pub(super) queues: Queues,
    pub(super) breaches: Breaches,
    adversary: Option<Adversary>,
    at_once: bool,
    stamp: u64,
}

impl State {
    pub(super) fn new(config: &SimulatedConfig) -> State {
        let adversary = if let Schedule::Adversarial(seed) = config.schedule { Some(Adversary::new(seed)) } else { None };
        State {
            memory: Memory::new(config.capacity, config.addresses, config.virtual_memory),
            queues: Queues::default(),
            breaches: Breaches::default(),
            adversary,
            at_once: config.schedule == Schedule::AtOnce,
            stamp: 0,
        }
    }
    /// Notes a call that a driver refuses.
    pub(super) fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(SourceError::Driver { call, code: 1, message }) = &result {
            self.breaches.add(BreachKind::InvalidCall, format!("{call} was called wrongly: {message}"));
        }
        result
    }

    /// Lets the adversary run what it likes.
    pub(super) fn let_run(&mut self) {
        let Some(adversary) = &mut self.adversary else { return };
        for _ in 0..adversary.steps(self.queues.waiting) {
            let busy = self.queues.busy();
            if busy.is_empty() {
                return;
            }
            let stream = busy[adversary.below(busy.len())];
            if matches!(self.queues.next_towards(stream, u64::MAX), Next::Run)
                && let Some(operation) = self.queues.pop(stream)
            {
                operation.run(&mut self.memory, &mut self.breaches);
            }
        }
    }
    /// Runs a stream up to a position, and of other streams what it waits for; returns how many operations ran.
    pub(super) fn run_to(&mut self, stream: u64, position: u64) -> usize {
        let (mut goals, mut ran) = (vec![(stream, position)], 0);
        while let Some((stream, position)) = goals.last().copied() {
            match self.queues.next_towards(stream, position) {
                Next::Nothing => drop(goals.pop()),
                Next::Other(other, until) => goals.push((other, until)),
                Next::Run => {
                    if let Some(operation) = self.queues.pop(stream) {
                        operation.run(&mut self.memory, &mut self.breaches);
                        ran += 1;
                    }
                }
            }
        }
        ran
    }
    /// Runs a stream to its end.
    pub(super) fn finish(&mut self, stream: RawStream) -> Result<usize> {
        if self.at_once {
            return Ok(0);
        }
        let end = self.queues.end(stream).ok_or_else(|| invalid("synchronize", "there is no such stream"))?;
        Ok(self.run_to(stream.0, end))
    }
    pub(super) fn finish_all(&mut self) {
        for stream in self.queues.busy() {
            if let Some(end) = self.queues.end(RawStream(stream)) {
                self.run_to(stream, end);
            }
        }
    }

    pub(super) fn enqueue(&mut self, work: Work) {
        if work.bytes == 0 {
            return;
        }
        if !self.at_once && !self.queues.takes(work.stream) {
            return self.breaches.add(BreachKind::InvalidCall, format!("{work} is enqueued on a stream that does not exist"));
        }
        self.stamp += 1;
        let operation = Operation::enqueue(work, self.stamp, &mut self.memory, &self.queues, &mut self.breaches);
        if self.at_once {
            operation.run(&mut self.memory, &mut self.breaches);
        } else {
            self.queues.push(work.stream, Entry::Operation(Box::new(operation)));
        }
    }

    pub(super) fn map(&mut self, address: u64, bytes: usize, handle: u64) -> Result<()> {
        if self.memory.map(address, bytes, handle)? {
            self.breaches.add(BreachKind::PinnedMoved, format!("a pinned page was mapped a second time, at {address:#x}"));
        }
        Ok(())
    }
    /// Unmaps pages as a driver does: at once, whoever uses them. Returns how many there were.
    pub(super) fn unmap(&mut self, address: u64, bytes: usize) -> Result<usize> {
        let pages = self.memory.tiles("unmap", address, bytes)?;
        for page in &pages {
            self.check_unused(*page, BreachKind::UnmappedInUse, "unmapped");
            let handle = self.memory.mapped.get(page).map(|mapping| mapping.handle);
            if handle.and_then(|handle| self.memory.handles.get(&handle)).is_some_and(|physical| physical.pins > 0) {
                self.breaches.add(BreachKind::PinnedMoved, format!("a pinned page was unmapped at {page:#x}"));
            }
            self.memory.unmap_page(*page);
        }
        Ok(pages.len())
    }
    /// Frees a whole allocation, after waiting for what uses it, as a driver does; returns how many operations were waited for.
    pub(super) fn free(&mut self, address: u64, bytes: usize) -> Result<usize> {
        self.check_unused(address, BreachKind::FreedInUse, "freed");
        let users: Vec<RawStream> =
            self.queues.users(address, address.saturating_add(bytes as u64)).map(|operation| operation.work.stream).collect();
        let mut ran = 0;
        for stream in users {
            // One that has ended and run out meanwhile is gone.
            ran += self.queues.end(stream).map_or(0, |end| self.run_to(stream.0, end));
        }
        self.memory.free_whole(address, bytes)?;
        Ok(ran)
    }
    fn check_unused(&mut self, page: u64, kind: BreachKind, done: &str) {
        let Some(mapping) = self.memory.mapped.get(&page).filter(|mapping| mapping.users > 0) else { return };
        if let Some(user) = self.queues.users(page, page + mapping.bytes as u64).next() {
            self.breaches.add(kind, format!("the range at {page:#x} was {done} before {} has run", user.work));
        }
    }

    pub(super) fn record(&mut self, stream: RawStream) -> Result<RawEvent> {
        if self.at_once {
            return Ok(RawEvent(0));
        }
        self.queues.record(stream).ok_or_else(|| invalid("record", "there is no such stream"))
    }
    pub(super) fn is_complete(&self, event: RawEvent) -> Result<bool> {
        let (stream, position) = self.place("is_complete", event)?;
        Ok(self.queues.is_done(stream, position))
    }
    pub(super) fn wait_event(&mut self, event: RawEvent) -> Result<usize> {
        let (stream, position) = self.place("wait_event", event)?;
        Ok(self.run_to(stream, position))
    }
    fn place(&self, call: &'static str, event: RawEvent) -> Result<(u64, u64)> {
        self.queues.place(event).ok_or_else(|| invalid(call, "there is no such event"))
    }
    pub(super) fn stream_wait(&mut self, stream: RawStream, event: RawEvent) -> Result<()> {
        if self.queues.wait(stream, event) { Ok(()) } else { Err(invalid("stream_wait", "there is no such stream or event")) }
    }
}
