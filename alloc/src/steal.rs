//! Taking memory that other work may still use: on the device, by making the new stream wait (steps 2 and 4 of the ladder), or on
//! the host, by waiting until everything idle and pending is done (step 6). Called under the slow mutex.

use crate::core::{Core, Open, Shared};
use crate::ladder::Ask;
use crate::mark::{Mark, Pending, Wait};
use crate::short::Guard;
use crate::stream::{OPEN, StreamInner};
use crate::table::State;
use crate::{Result, SourceError};
use std::sync::Arc;

/// A wait with its stream kept alive. Lists of these are declared before a lock guard, so that the end of a stream, which takes
/// the short lock, never happens under it.
pub(crate) enum Held {
    Mark(Arc<Mark>),
    Stream(Arc<StreamInner>),
}

impl Held {
    pub(crate) fn is(&self, other: &Held) -> bool {
        match (self, other) {
            (Held::Mark(a), Held::Mark(b)) => Arc::ptr_eq(a, b),
            (Held::Stream(a), Held::Stream(b)) => a.serial == b.serial,
            _ => false,
        }
    }
}

impl Core {
    /// The best idle block of another stream, or with `pending` the best one that is still in use; `stream` waits on the device
    /// for whatever may still use it.
    pub(crate) fn steal(&self, ask: &Ask, stream: &Arc<StreamInner>, pending: bool) -> Result<Option<u32>> {
        let mut held = Vec::new();
        let mut shared = self.locked();
        let found = if pending {
            self.steal_pending(&mut shared, ask, stream.id, &mut held)
        } else {
            self.steal_idle(&mut shared, ask, stream.id, &mut held)
        };
        drop(shared);
        let Some(index) = found else { return Ok(None) };
        let failed = held.iter().find_map(|wait| match wait {
            Held::Mark(mark) => self.source.stream_wait(stream.raw, mark.raw).err(),
            Held::Stream(other) => stream.wait_for(other, OPEN).err(),
        });
        let mut shared = self.locked();
        let Some(error) = failed else {
            shared.table.set_owner(index, stream.id);
            shared.table.counters.steals += 1;
            return Ok(Some(index));
        };
        // Still waited for, but by whoever finds it next.
        shared.table.set(index, State::Pending);
        let waits = held.iter().map(|wait| match wait {
            Held::Mark(mark) => Wait::Mark(mark.clone()),
            Held::Stream(other) => Wait::Stream(other.serial, Arc::downgrade(other)),
        });
        shared.pending.push(Pending::new(index, waits));
        Err(error.into())
    }

    fn steal_idle(&self, shared: &mut Shared, ask: &Ask, thief: u32, held: &mut Vec<Held>) -> Option<u32> {
        let others = (0..shared.table.owners()).filter(|owner| *owner != thief);
        let found = others.filter_map(|owner| shared.table.find(ask.size, ask.region, owner, self.search));
        let index = found.min_by_key(|index| (shared.table.get(*index).size, shared.table.get(*index).address))?;
        held.push(Held::Stream(shared.stream(shared.table.get(index).owner)?));
        Some(self.claim(shared, index, ask.size))
    }

    fn steal_pending(&self, shared: &mut Shared, ask: &Ask, thief: u32, held: &mut Vec<Held>) -> Option<u32> {
        let table = &shared.table;
        let fits = shared.pending.iter().enumerate().filter(|(_, entry)| {
            let record = table.get(entry.index);
            record.size >= ask.size && record.region == ask.region && !entry.aside && !entry.is_lost()
        });
        let (at, _) = fits.min_by_key(|(_, e)| (table.get(e.index).size, table.get(e.index).address))?;
        let index = shared.pending[at].index;
        let owner = table.get(index).owner;
        if owner != thief {
            held.push(Held::Stream(shared.stream(owner)?));
        }
        for wait in &shared.pending[at].waits {
            match wait {
                Wait::Mark(mark) => held.push(Held::Mark(mark.clone())),
                Wait::Stream(_, stream) => held.push(Held::Stream(stream.upgrade()?)),
                Wait::Never => return None,
            }
        }
        // Before anything is taken out: a policy may panic.
        let cuts = self.cuts(shared.table.get(index).size, ask.size);
        let entry = shared.pending.remove(at);
        if cuts {
            let rest = shared.table.split(index, ask.size);
            if entry.active {
                shared.table.pending_split(index);
            }
            shared.pending.push(Pending { active: entry.active, ..Pending::new(rest, entry.waits) });
        }
        shared.table.settled(index, entry.active);
        shared.table.set(index, State::Live);
        Some(index)
    }

    /// Waits until the device is done with everything idle or pending, and returns it merged and held, owned by `to`, with the
    /// short lock taken: what is freed meanwhile is not among it.
    pub(crate) fn settle(&self, to: u32) -> Result<(Guard<'_, Shared>, Vec<u32>)> {
        {
            let mut shared = self.locked();
            shared.table.counters.num_sync_all_streams += 1;
            shared.set_aside();
        }
        loop {
            let mut held = Vec::new();
            let ending = self.locked().waits_aside(&mut held);
            let waited = held.iter().try_for_each(|wait| match wait {
                Held::Mark(mark) => mark.wait(),
                Held::Stream(stream) => self.source.synchronize(stream.raw),
            });
            let idle: Vec<u64> =
                held.iter().filter_map(|w| if let Held::Stream(s) = w { Some(s.serial) } else { None }).collect();
            // Streams may end here, so this comes before the lock.
            drop(held);
            let mut shared = self.locked();
            if let Err(error) = waited {
                shared.pending.iter_mut().for_each(|entry| entry.aside = false);
                return Err(error.into());
            }
            if shared.resolve_aside(&idle) {
                let clear = shared.clear_aside(to);
                return Ok((shared, clear));
            }
            drop(shared);
            if ending {
                // A stream is on its way to hand its blocks over; it needs only the short lock.
                std::thread::yield_now();
            }
        }
    }

    /// Waits until all streams are idle, those that have ended too.
    pub(crate) fn synchronize(&self) -> Result<(), SourceError> {
        let mut held = Vec::new();
        {
            let shared = self.locked();
            held.extend(shared.streams.iter().flatten().filter_map(|open| open.stream.upgrade()).map(Held::Stream));
            held.extend(shared.pending.iter().flat_map(|entry| &entry.waits).filter_map(|wait| match wait {
                Wait::Mark(mark) => Some(Held::Mark(mark.clone())),
                _ => None,
            }));
        }
        held.iter().try_for_each(|wait| match wait {
            Held::Mark(mark) => mark.wait(),
            Held::Stream(stream) => self.source.synchronize(stream.raw),
        })
    }
}

impl Shared {
    pub(crate) fn stream(&self, id: u32) -> Option<Arc<StreamInner>> {
        self.streams.get(id as usize)?.as_ref()?.stream.upgrade()
    }

    /// Puts every idle and pending block aside, each waiting for its owner as well.
    fn set_aside(&mut self) {
        for owner in 0..self.table.owners() {
            for index in self.table.all_idle_of(owner) {
                if self.table.is_pinned(index) {
                    continue;
                }
                self.table.hold(index);
                self.table.set(index, State::Pending);
                self.pending.push(Pending::new(index, []));
            }
        }
        for entry in &mut self.pending {
            let record = self.table.get(entry.index);
            if self.table.is_pinned(entry.index) {
                continue;
            }
            let owner = record.owner;
            if let Some(Open { serial, stream, .. }) = &self.streams[owner as usize] {
                entry.waits.push(Wait::Stream(*serial, stream.clone()));
            }
            entry.aside = true;
        }
    }

    /// What the blocks set aside wait for; whether one waits for a stream that is just ending.
    fn waits_aside(&self, held: &mut Vec<Held>) -> bool {
        let (mut seen, mut ending) = (Vec::new(), false);
        for wait in self.pending.iter().filter(|entry| entry.aside && !entry.is_lost()).flat_map(|entry| &entry.waits) {
            match wait {
                Wait::Mark(mark) if !mark.is_done() => held.push(Held::Mark(mark.clone())),
                Wait::Stream(serial, stream) if !seen.contains(serial) => match stream.upgrade() {
                    Some(stream) => {
                        seen.push(*serial);
                        held.push(Held::Stream(stream));
                    }
                    None => ending = true,
                },
                _ => {}
            }
        }
        ending
    }

    /// Strikes out what has been waited for; whether nothing is left. Blocks that are lost are let go.
    fn resolve_aside(&mut self, idle: &[u64]) -> bool {
        let mut resolved = true;
        for entry in self.pending.iter_mut().filter(|entry| entry.aside) {
            if entry.is_lost() {
                entry.aside = false;
                continue;
            }
            entry.waits.retain(|wait| match wait {
                Wait::Mark(mark) => !mark.is_done(),
                Wait::Stream(serial, _) => !idle.contains(serial),
                Wait::Never => true,
            });
            resolved &= entry.waits.is_empty();
        }
        resolved
    }

    /// Takes the blocks set aside off the pending list and merges neighbours among them.
    fn clear_aside(&mut self, to: u32) -> Vec<u32> {
        let mut clear = Vec::new();
        self.pending.retain(|entry| {
            if entry.aside {
                self.table.settled(entry.index, entry.active);
                clear.push(entry.index);
            }
            !entry.aside
        });
        clear.sort_by_key(|index| (self.table.get(*index).region, self.table.get(*index).address));
        let mut merged: Vec<u32> = Vec::new();
        for index in clear {
            self.table.set(index, State::Held);
            self.table.set_owner(index, to);
            match merged.last() {
                Some(last) if self.table.get(*last).next == index && !self.table.get(index).wall => self.table.merge(*last),
                _ => merged.push(index),
            }
        }
        merged
    }
}
