//! Taking memory that other work may still use: on the device, by making the new stream wait (step 2 of the ladder), or on the
//! host, by waiting until everything idle and pending is done (step 4). Called under the slow mutex.

use crate::core::{Core, Shared, lock};
use crate::mark::{Mark, Pending, Wait};
use crate::size::least_rest;
use crate::stream::{OPEN, StreamInner};
use crate::table::State;
use crate::{Result, SourceError};
use std::sync::{Arc, MutexGuard};

/// A wait with its stream kept alive. Lists of these are declared before a lock guard, so that the end of a stream, which takes
/// the short lock, never happens under it.
enum Held {
    Mark(Arc<Mark>),
    Stream(Arc<StreamInner>),
}

impl Core {
    /// The best idle block of another stream, else the best pending one; `stream` waits on the device for whatever may still use
    /// it.
    pub(crate) fn steal(&self, size: usize, stream: &Arc<StreamInner>) -> Result<Option<u32>> {
        let mut held = Vec::new();
        let mut shared = lock(&self.shared);
        let found = shared.steal_idle(size, stream.id, &mut held).or_else(|| {
            debug_assert!(held.is_empty());
            shared.steal_pending(size, stream.id, &mut held)
        });
        drop(shared);
        let Some(index) = found else { return Ok(None) };
        let failed = held.iter().find_map(|wait| match wait {
            Held::Mark(mark) => self.source.stream_wait(stream.raw, mark.raw).err(),
            Held::Stream(other) => stream.wait_for(other, OPEN).err(),
        });
        let mut shared = lock(&self.shared);
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

    /// Waits until the device is done with everything idle or pending, and returns it merged and held, owned by `to`, with the
    /// short lock taken: what is freed meanwhile is not among it.
    pub(crate) fn settle(&self, to: u32) -> Result<(MutexGuard<'_, Shared>, Vec<u32>)> {
        {
            let mut shared = lock(&self.shared);
            shared.table.counters.num_sync_all_streams += 1;
            shared.set_aside();
        }
        loop {
            let mut held = Vec::new();
            let ending = lock(&self.shared).waits_aside(&mut held);
            let waited = held.iter().try_for_each(|wait| match wait {
                Held::Mark(mark) => mark.wait(),
                Held::Stream(stream) => self.source.synchronize(stream.raw),
            });
            let idle: Vec<u64> =
                held.iter().filter_map(|w| if let Held::Stream(s) = w { Some(s.serial) } else { None }).collect();
            // Streams may end here, so this comes before the lock.
            drop(held);
            let mut shared = lock(&self.shared);
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
            let shared = lock(&self.shared);
            held.extend(shared.streams.iter().flatten().filter_map(|(_, stream)| stream.upgrade()).map(Held::Stream));
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
    fn stream(&self, id: u32) -> Option<Arc<StreamInner>> {
        self.streams.get(id as usize)?.as_ref()?.1.upgrade()
    }

    fn steal_idle(&mut self, size: usize, thief: u32, held: &mut Vec<Held>) -> Option<u32> {
        let others = (0..self.table.owners()).filter(|owner| *owner != thief);
        let found = others.filter_map(|owner| self.table.find(size, owner));
        let (index, _) = found.min_by_key(|(index, _)| {
            let record = self.table.get(*index);
            (record.size, record.address)
        })?;
        held.push(Held::Stream(self.stream(self.table.get(index).owner)?));
        self.table.claim(index, size);
        Some(index)
    }

    fn steal_pending(&mut self, size: usize, thief: u32, held: &mut Vec<Held>) -> Option<u32> {
        let table = &self.table;
        let fits = self.pending.iter().enumerate().filter(|(_, e)| table.get(e.index).size >= size && !e.is_lost());
        let (at, _) = fits.min_by_key(|(_, e)| (table.get(e.index).size, table.get(e.index).address))?;
        let index = self.pending[at].index;
        let owner = table.get(index).owner;
        if owner != thief {
            held.push(Held::Stream(self.stream(owner)?));
        }
        for wait in &self.pending[at].waits {
            match wait {
                Wait::Mark(mark) => held.push(Held::Mark(mark.clone())),
                Wait::Stream(_, stream) => held.push(Held::Stream(stream.upgrade()?)),
                Wait::Never => return None,
            }
        }
        let entry = self.pending.remove(at);
        // What is left over stays pending, and counted.
        if self.table.get(index).size - size >= least_rest(size) {
            let rest = self.table.split(index, size);
            if let Some(pool) = entry.pool {
                self.table.counters.pending_split(pool);
            }
            self.pending.push(Pending { pool: entry.pool, ..Pending::new(rest, entry.waits) });
        }
        self.table.settled(index, entry.pool);
        self.table.set(index, State::Live);
        Some(index)
    }

    /// Puts every idle and pending block aside, each waiting for its owner as well.
    fn set_aside(&mut self) {
        for owner in 0..self.table.owners() {
            for index in self.table.idle_of(owner) {
                self.table.hold(index);
                self.table.set(index, State::Pending);
                self.pending.push(Pending::new(index, []));
            }
        }
        for entry in &mut self.pending {
            let owner = self.table.get(entry.index).owner;
            if let Some((serial, stream)) = &self.streams[owner as usize] {
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
                self.table.settled(entry.index, entry.pool);
                clear.push(entry.index);
            }
            !entry.aside
        });
        clear.sort_by_key(|index| self.table.get(*index).address);
        let mut merged: Vec<u32> = Vec::new();
        for index in clear {
            self.table.set(index, State::Held);
            self.table.set_owner(index, to);
            match merged.last() {
                Some(last) if self.table.get(*last).next == index => self.table.merge(*last),
                _ => merged.push(index),
            }
        }
        merged
    }
}
