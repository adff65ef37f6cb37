//! What an allocator's clones, streams and blocks share: the block table and counters under one short lock, the pages under a
//! slow one, and errors that a drop could not return.
//!
//! Locks are taken in the order slow → a block's uses → a stream's newest mark → short; no driver call that waits is made under
//! the short one.

use crate::history::{Stack, What};
use crate::hooks::Hooks;
use crate::ladder::Ask;
use crate::log::Log;
use crate::mark::{Mark, Pending, Wait};
use crate::pages::Pages;
use crate::size::{ALIGN, round_up};
use crate::stats::Pool;
use crate::stream::StreamInner;
use crate::table::{NONE, Record, State, Table, Tag};
use crate::uses::Uses;
use crate::{
    AllocError, AllocatorConfig, Category, LogEvent, Policy, Result, Source, SourceError, SourceInfo, SourceKind, StreamId, Zone,
};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Locks; a panic elsewhere does not spread, since every critical section leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Core {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) info: SourceInfo,
    pub(crate) shared: Mutex<Shared>,
    pub(crate) slow: Mutex<Pages>,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) hooks: Hooks,
    /// Freed bytes are overwritten.
    pub(crate) poison: bool,
    /// Where zero-byte blocks lie.
    pub(crate) base: u64,
    /// Whether a history with whole stacks is kept.
    pub(crate) stacks: AtomicBool,
    failed: AtomicBool,
    deferred: Mutex<Option<SourceError>>,
}

/// What the short lock guards.
pub(crate) struct Shared {
    pub(crate) table: Table,
    /// Freed blocks that are still waited for, oldest first.
    pub(crate) pending: Vec<Pending>,
    /// By id.
    pub(crate) streams: Vec<Option<(u64, Weak<StreamInner>)>>,
    pub(crate) log: Option<Log>,
    /// Id of the next block.
    pub(crate) next_id: u64,
    /// The peak of requested bytes, kept when the counters' peaks are reset.
    peak: usize,
    /// Private pools whose regions may be used again.
    pub(crate) free_regions: Vec<u16>,
}

impl Shared {
    /// Counts and numbers a block that was just taken; returns its id and address.
    pub(crate) fn hand_out(&mut self, index: u32, owner: u32, tag: Tag, stack: Option<Stack>) -> (u64, u64) {
        let id = self.next_id;
        self.next_id += 1;
        if let Some(log) = &mut self.log {
            log.push(LogEvent::Alloc { id: log.number(id), bytes: tag.bytes, stream: StreamId(owner), category: tag.category });
        }
        if index == NONE {
            self.table.counters.allocated(tag.bytes, 0, Pool::Small, tag.category);
            return (id, 0);
        }
        self.table.set_tag(index, tag);
        self.table.note(What::Alloc, index, stack);
        let Record { address, size, .. } = *self.table.get(index);
        let pool = self.table.pool(index);
        self.table.counters.allocated(tag.bytes, size, pool, tag.category);
        (id, address)
    }
    /// The most bytes that were ever asked for at once, with `more` now.
    pub(crate) fn high_water(&mut self, more: usize) -> usize {
        let (current, peak) = self.table.counters.requested();
        self.peak = self.peak.max(peak).max(current.saturating_add(more));
        self.peak
    }
}

impl Core {
    pub(crate) fn new(source: Arc<dyn Source>, config: AllocatorConfig) -> Result<Arc<Core>> {
        let info = source.info().clone();
        let mut pages = Pages::new(&*source);
        let mut table = Table::new();
        let mut base = None;
        for zone in Zone::ALL {
            let range = pages.add_range(&*source)?;
            base = base.or(range);
            table.add_region(range, if zone == Zone::Small { Pool::Small } else { Pool::Large }, false);
        }
        table.counters.limit = config.limit;
        let (pending, streams, free_regions) = Default::default();
        let shared = Shared { table, pending, streams, log: None, next_id: 0, peak: 0, free_regions };
        Ok(Arc::new(Core {
            source,
            info,
            shared: Mutex::new(shared),
            slow: Mutex::new(pages),
            policy: config.policy,
            hooks: Hooks::default(),
            poison: config.poison,
            base: base.unwrap_or(ALIGN as u64),
            stacks: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            deferred: Mutex::new(None),
        }))
    }

    /// Keeps an error for the next fallible call.
    pub(crate) fn defer(&self, error: Option<SourceError>) {
        if let Some(error) = error {
            *lock(&self.deferred) = Some(error);
            self.failed.store(true, Ordering::Release);
        }
    }
    /// Returns an error that a drop or a poll left, once.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut deferred = lock(&self.deferred);
        self.failed.store(false, Ordering::Release);
        deferred.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// A new stream, with the smallest free id.
    pub(crate) fn open_stream(self: &Arc<Core>) -> Result<Arc<StreamInner>> {
        let raw = self.source.new_stream()?;
        let mut shared = lock(&self.shared);
        let id = shared.streams.iter().position(Option::is_none).unwrap_or(shared.streams.len());
        let inner = Arc::new(StreamInner::new(self.clone(), id as u32, raw));
        if id == shared.streams.len() {
            shared.streams.push(None);
        }
        shared.streams[id] = Some((inner.serial, Arc::downgrade(&inner)));
        shared.table.add_owner(id as u32);
        Ok(inner)
    }

    /// Hands the idle and pending blocks of a stream that ends to the compute stream, to be reused once its work is done.
    pub(crate) fn close_stream(&self, id: u32, serial: u64, mark: Result<Arc<Mark>, SourceError>) {
        let done = mark.as_ref().is_ok_and(|mark| self.info.kind != SourceKind::Cuda && mark.is_complete().unwrap_or(false));
        let wait = mark.map(Wait::Mark).unwrap_or_else(|error| {
            self.defer(Some(error));
            Wait::Never
        });
        let mut shared = lock(&self.shared);
        let Shared { table, pending, streams, .. } = &mut *shared;
        for entry in pending.iter_mut() {
            let owned = table.get(entry.index).owner == id;
            let waits = entry.waits.len();
            entry.waits.retain(|wait| !matches!(wait, Wait::Stream(other, _) if *other == serial));
            if owned || entry.waits.len() < waits {
                entry.waits.push(wait.clone());
            }
            if owned {
                table.set_owner(entry.index, 0);
            }
        }
        for index in table.all_idle_of(id) {
            table.hold(index);
            table.set_owner(index, 0);
            if done {
                table.release(index);
            } else {
                table.set(index, State::Pending);
                pending.push(Pending::new(index, [wait.clone()]));
            }
        }
        streams[id as usize] = None;
    }

    /// Takes a block back. Never waits for the device.
    pub(crate) fn free(&self, index: u32, bytes: usize, id: u64, category: u8, home: &Arc<StreamInner>, uses: Option<Box<Uses>>) {
        let stack = self.stack();
        let mut waits = SmallVec::new();
        if let Some(uses) = &uses {
            let failed;
            (waits, failed) = uses.waits(home);
            self.defer(failed);
            if self.info.kind != SourceKind::Cuda {
                // Work on these devices is mostly done by now, and asking is cheap.
                waits.retain(|wait| !matches!(wait, Wait::Mark(mark) if mark.is_complete().unwrap_or(false)));
            }
        }
        let mut shared = lock(&self.shared);
        if let Some(log) = &mut shared.log {
            log.push(LogEvent::Free { id: log.number(id) });
        }
        if index == NONE {
            return shared.table.counters.freed_and_settled(bytes, 0, Pool::Small, category);
        }
        let (size, pool) = (shared.table.get(index).size, shared.table.pool(index));
        if waits.is_empty() {
            shared.table.note(What::Free, index, stack);
            shared.table.counters.freed_and_settled(bytes, size, pool, category);
            shared.table.release(index);
        } else {
            shared.table.note(What::FreeRequested, index, stack);
            shared.table.counters.freed(bytes, size, pool, category);
            shared.table.set(index, State::Pending);
            shared.pending.push(Pending { active: true, ..Pending::new(index, waits) });
        }
        drop(shared);
        // The last handle of a foreign stream may go here, and its end takes the short lock.
        drop(uses);
    }

    pub(crate) fn recategorize(&self, index: u32, bytes: usize, cell: &AtomicU8, to: Category) {
        let mut shared = lock(&self.shared);
        let from = cell.swap(to as u8, Ordering::Relaxed);
        if index != NONE {
            shared.table.set_category(index, to);
        }
        shared.table.counters.recategorize(bytes, from, to);
    }

    /// Makes finished pending blocks idle; whether there were any.
    pub(crate) fn poll(&self, shared: &mut Shared) -> bool {
        let (mut busy, mut failed) = (SmallVec::new(), None);
        let table = &mut shared.table;
        let before = shared.pending.len();
        shared.pending.retain_mut(|entry| {
            let done = entry.poll(&mut busy, &mut failed);
            if done {
                table.settled(entry.index, entry.active);
                table.release(entry.index);
            }
            !done
        });
        self.defer(failed);
        shared.pending.len() < before
    }

    /// An idle block of `owner`: of exactly this size at once, else after a look at what has finished.
    pub(crate) fn take(&self, shared: &mut Shared, ask: &Ask, owner: u32) -> Option<u32> {
        let search = self.policy.search();
        let mut found = shared.table.find(ask.size, ask.region, owner, search);
        if !shared.pending.is_empty() {
            let exact = found.is_some_and(|index| shared.table.get(index).size == ask.size);
            if !exact && self.poll(shared) {
                found = shared.table.find(ask.size, ask.region, owner, search);
            }
        }
        let index = found?;
        shared.table.hold(index);
        self.cut(shared, index, ask.size);
        Some(index)
    }
    /// Makes a held block live for `size` bytes; a rest that the policy keeps becomes idle.
    pub(crate) fn cut(&self, shared: &mut Shared, index: u32, size: usize) {
        let cut = self.cuts(shared.table.get(index).size, size);
        shared.table.trim(index, size, cut);
    }
    pub(crate) fn cuts(&self, whole: usize, size: usize) -> bool {
        whole > size && self.policy.keeps_rest(size, whole - size)
    }

    /// The size of a block for `bytes` > 0 bytes.
    pub(crate) fn block_size(&self, bytes: usize) -> Result<usize> {
        match round_up(self.policy.block_size(bytes).max(bytes), ALIGN) {
            Some(size) if size <= isize::MAX as usize => Ok(size),
            _ => Err(AllocError::SizeOverflow(bytes as u128)),
        }
    }
}

impl Drop for Core {
    /// The last handle is gone: waits for what the device still does, then gives all memory back.
    fn drop(&mut self) {
        let shared = self.shared.get_mut().unwrap_or_else(PoisonError::into_inner);
        for wait in shared.pending.iter().flat_map(|entry| &entry.waits) {
            let done = match wait {
                Wait::Mark(mark) => mark.wait().is_ok(),
                Wait::Stream(..) | Wait::Never => false,
            };
            // Nobody can say when the device is done with it: what cannot be unmapped safely stays with the process.
            if !done {
                return;
            }
        }
        self.slow.get_mut().unwrap_or_else(PoisonError::into_inner).release_all(&*self.source);
    }
}
