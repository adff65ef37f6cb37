//! What an allocator's clones, streams and blocks share: the block table and counters under one short lock, the pages under a
//! slow one, and errors that a drop could not return.
//!
//! Locks are taken in the order slow → a block's uses → a stream's newest mark → short; no driver call that waits is made under
//! the short one.

use crate::history::{Stack, What};
use crate::home::Home;
use crate::hooks::Hooks;
use crate::ladder::Ask;
use crate::log::Log;
use crate::mark::{Mark, Pending, Wait};
use crate::pages::Pages;
use crate::short::{Guard, Short};
use crate::size::{ALIGN, round_up};
use crate::stats::Pool;
use crate::stream::{Stream, StreamInner};
use crate::table::{NONE, Record, State, Table, Tag};
use crate::uses::Uses;
use crate::{
    AllocError, AllocatorConfig, Category, LogEvent, Policy, Result, Search, Source, SourceError, SourceInfo, SourceKind,
    StreamId, Zone,
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
    /// Taken by [`Core::locked`]; only the two shortest paths take it as it is.
    shared: Short<Shared>,
    pub(crate) slow: Mutex<Pages>,
    pub(crate) policy: Box<dyn Policy>,
    /// Of the policy, asked once.
    pub(crate) search: Search,
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
    pub(crate) streams: Vec<Option<Open>>,
    pub(crate) log: Option<Log>,
    /// Id of the next block.
    pub(crate) next_id: u64,
    /// The peak of requested bytes since memory was last given back, and stitches since it last rose.
    peak: usize,
    pub(crate) stitches_at_peak: u32,
    /// Private pools whose regions may be used again.
    pub(crate) free_regions: Vec<u16>,
}

/// A block for a request.
pub(crate) struct Found {
    pub(crate) home: Home,
    pub(crate) index: u32,
    pub(crate) address: u64,
    pub(crate) id: u64,
}

/// A block that its user dropped.
pub(crate) struct Freed {
    pub(crate) index: u32,
    pub(crate) address: u64,
    /// Bytes asked for.
    pub(crate) bytes: usize,
    pub(crate) id: u64,
    pub(crate) category: u8,
}

/// A stream that has not ended.
pub(crate) struct Open {
    pub(crate) serial: u64,
    pub(crate) stream: Weak<StreamInner>,
    /// Keeps it alive for its blocks. `None` once the user has let go of it and the last block is gone.
    pub(crate) handle: Option<Arc<StreamInner>>,
    /// Blocks that have it: those handed out, and the one whose free is not counted yet.
    pub(crate) blocks: usize,
}

/// More than any device has, and still far from where sizes overflow and bins end.
pub(crate) const MOST: usize = 1 << 56;

impl Shared {
    /// Counts and numbers a block that was just taken for `stream`.
    pub(crate) fn hand_out(&mut self, index: u32, stream: &Arc<StreamInner>, tag: Tag, stack: Option<Stack>) -> Found {
        let id = self.number();
        let home = self.hold_on(stream);
        if self.table.recording {
            self.log_alloc(id, stream.id, tag);
        }
        if index == NONE {
            self.table.counters.allocated(tag.bytes, 0, Pool::Small, tag.category);
            return Found { home, index, address: stream.core.base, id };
        }
        self.table.set_tag(index, tag);
        self.table.note(What::Alloc, index, stack);
        let Record { address, size, pool, .. } = *self.table.get(index);
        self.table.counters.allocated(tag.bytes, size, pool, tag.category);
        Found { home, index, address, id }
    }
    /// The id of a new block.
    #[inline(always)]
    pub(crate) fn number(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }
    #[cold]
    fn log_alloc(&mut self, id: u64, owner: u32, tag: Tag) {
        if let Some(log) = &mut self.log {
            log.push(LogEvent::Alloc { id: log.number(id), bytes: tag.bytes, stream: StreamId(owner), category: tag.category });
        }
    }
    #[cold]
    fn log_free(&mut self, id: u64) {
        if let Some(log) = &mut self.log {
            log.push(LogEvent::Free { id: log.number(id) });
        }
    }
    /// Says whether anybody writes events down; called when that changes.
    pub(crate) fn note_recording(&mut self) {
        let recording = self.log.is_some() || self.table.history.is_some();
        self.table.set_ways(recording, self.table.keeps_last);
    }
    /// Makes a block idle, and counts it.
    fn take_back(&mut self, freed: &Freed, stack: Option<Stack>) {
        let Freed { index, bytes, id, category, .. } = *freed;
        if self.table.recording {
            self.log_free(id);
        }
        if index == NONE {
            return self.table.counters.freed_and_settled(bytes, 0, Pool::Small, category);
        }
        let (size, pool) = (self.table.get(index).size, self.table.pool(index));
        self.table.note(What::Free, index, stack);
        self.table.counters.freed_and_settled(bytes, size, pool, category);
        if self.table.keeps_last {
            self.table.keep_last(index);
        } else {
            self.table.release(index);
        }
    }
    /// Makes a block pending, and counts it.
    fn wait_for(&mut self, freed: &Freed, waits: SmallVec<[Wait; 2]>, stack: Option<Stack>) {
        let Freed { index, bytes, id, category, .. } = *freed;
        self.log_free(id);
        let (size, pool) = (self.table.get(index).size, self.table.pool(index));
        self.table.note(What::FreeRequested, index, stack);
        self.table.counters.freed(bytes, size, pool, category);
        self.table.set(index, State::Pending);
        self.pending.push(Pending { active: true, ..Pending::new(index, waits) });
    }
    /// Counts a block that a stream has; `stream` stays alive until [`let_go`](Shared::let_go).
    #[inline(always)]
    fn hold_on(&mut self, stream: &Arc<StreamInner>) -> Home {
        if let Some(open) = &mut self.streams[stream.id as usize] {
            open.blocks += 1;
        }
        // SAFETY: just counted; a stream whose handle is at hand is open.
        unsafe { Home::new(stream) }
    }
    /// Counts the free of the block that was freed last, if that is still to be done.
    #[inline(always)]
    fn count_last(&mut self) {
        if let Some(owner) = self.table.count_last() {
            // Its stream is open: the user's letting go counts it first.
            if let Some(open) = &mut self.streams[owner as usize] {
                open.blocks -= 1;
            }
        }
    }
    /// Counts it no more; returns the stream's own handle if it ends by that.
    #[inline(always)]
    fn let_go(&mut self, stream: &StreamInner) -> Option<Arc<StreamInner>> {
        if let Some(open) = &mut self.streams[stream.id as usize] {
            open.blocks -= 1;
        }
        if stream.is_closed() { self.ended(stream.id) } else { None }
    }
    /// The own handle of a stream that its user has let go of, if no block has it. It is never dropped under the short lock.
    pub(crate) fn ended(&mut self, stream: u32) -> Option<Arc<StreamInner>> {
        let open = self.streams[stream as usize].as_mut()?;
        if open.blocks == 0 { open.handle.take() } else { None }
    }
    /// Forgets the peak: what was given back shall not be taken again before it is needed.
    pub(crate) fn lower_high_water(&mut self) {
        let current = self.table.counters.requested();
        (self.peak, self.table.counters.high_water, self.stitches_at_peak) = (current, current, 0);
    }
    /// The most bytes that were ever asked for at once, with `more` now.
    pub(crate) fn high_water(&mut self, more: usize) -> usize {
        let counters = &self.table.counters;
        let new = self.peak.max(counters.high_water).max(counters.requested().saturating_add(more));
        if new > self.peak {
            (self.peak, self.stitches_at_peak) = (new, 0);
        }
        self.peak
    }
}

impl Core {
    pub(crate) fn new(source: Arc<dyn Source>, config: AllocatorConfig) -> Result<Arc<Core>> {
        let info = source.info().clone();
        let mut pages = Pages::new(&*source);
        let mut table = Table::new();
        table.set_ways(false, config.policy.search() == Search::LastThenBestFit);
        let ranges: [Option<u64>; Zone::ALL.len()] = pages.add_ranges(&*source)?;
        let base = ranges[0];
        for (zone, range) in Zone::ALL.into_iter().zip(ranges) {
            table.add_region(range, if zone == Zone::Small { Pool::Small } else { Pool::Large }, false);
        }
        table.counters.limit = config.limit;
        let (pending, streams, free_regions) = Default::default();
        let shared = Shared { table, pending, streams, log: None, next_id: 0, peak: 0, stitches_at_peak: 0, free_regions };
        Ok(Arc::new(Core {
            source,
            info,
            shared: Short::new(shared),
            slow: Mutex::new(pages),
            search: config.policy.search(),
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
    /// Whether there is such an error.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
    /// Returns an error that a drop or a poll left, once.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if !self.has_failed() {
            return Ok(());
        }
        self.fail()
    }
    #[cold]
    fn fail(&self) -> Result<()> {
        let mut deferred = lock(&self.deferred);
        self.failed.store(false, Ordering::Release);
        deferred.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// A new stream, with the smallest free id.
    pub(crate) fn open_stream(self: &Arc<Core>) -> Result<Stream> {
        let raw = self.source.new_stream()?;
        let mut shared = self.locked();
        let id = shared.streams.iter().position(Option::is_none).unwrap_or(shared.streams.len());
        let inner = Arc::new(StreamInner::new(self.clone(), id as u32, raw));
        if id == shared.streams.len() {
            shared.streams.push(None);
        }
        let (serial, stream, handle) = (inner.serial, Arc::downgrade(&inner), Some(inner.clone()));
        shared.streams[id] = Some(Open { serial, stream, handle, blocks: 0 });
        shared.table.add_owner(id as u32);
        drop(shared);
        Ok(Stream::new(inner))
    }

    /// Hands the idle and pending blocks of a stream that ends to the compute stream, to be reused once its work is done.
    pub(crate) fn close_stream(&self, id: u32, serial: u64, mark: Result<Arc<Mark>, SourceError>) {
        let done = mark.as_ref().is_ok_and(|mark| self.info.kind != SourceKind::Cuda && mark.is_complete().unwrap_or(false));
        let wait = mark.map(Wait::Mark).unwrap_or_else(|error| {
            self.defer(Some(error));
            Wait::Never
        });
        let mut shared = self.locked();
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

    /// The short lock, with every free counted and all idle memory in the bins.
    #[inline]
    pub(crate) fn locked(&self) -> Guard<'_, Shared> {
        let mut shared = self.locked_for_request();
        shared.table.merge_last();
        shared
    }
    /// The short lock, with every free counted; the block that was freed last is at hand for [`take`](Core::take).
    #[inline]
    pub(crate) fn locked_for_request(&self) -> Guard<'_, Shared> {
        let mut shared = self.shared.lock();
        shared.count_last();
        shared
    }
    /// The block that was freed last, for a request like the one it served: the way of most requests. Else the short lock, as
    /// [`locked_for_request`](Core::locked_for_request).
    #[inline(always)]
    pub(crate) fn once_more(&self, stream: &Arc<StreamInner>, tag: &Tag) -> Result<Found, Guard<'_, Shared>> {
        let mut shared = self.shared.lock();
        if let Some((index, address)) = shared.table.reuse_last(stream.id, tag) {
            // SAFETY: its stream counts it still.
            let home = unsafe { Home::new(stream) };
            return Ok(Found { home, index, address, id: shared.number() });
        }
        shared.count_last();
        Err(shared)
    }
    /// Takes a block back. Never waits for the device.
    #[inline]
    pub(crate) fn free(home: &StreamInner, freed: &Freed, uses: Option<Box<Uses>>) {
        let core = &*home.core;
        if uses.is_some() || core.poison {
            return Core::free_used(home, freed, uses);
        }
        let stack = core.stack();
        let mut shared = core.shared.lock();
        shared.count_last();
        if home.is_closed() || !shared.table.keep_last_uncounted(freed.index) {
            shared.take_back(freed, stack);
            // From here to the end of the lock `home` is alive by `ended`, or by what still counts it; then nothing uses it.
            let ended = shared.let_go(home);
            drop(shared);
            drop(ended);
        }
    }
    /// As `free`, for a block that other streams used, or that is to be overwritten.
    #[cold]
    fn free_used(home: &StreamInner, freed: &Freed, uses: Option<Box<Uses>>) {
        let core = &home.core;
        let waits = match &uses {
            None => SmallVec::new(),
            Some(uses) => core.waits(home, uses),
        };
        if core.poison && freed.index != NONE {
            core.overwrite(home, freed, uses.as_deref());
        }
        let stack = core.stack();
        let mut shared = core.locked();
        if waits.is_empty() || freed.index == NONE {
            shared.take_back(freed, stack);
        } else {
            shared.wait_for(freed, waits, stack);
        }
        let ended = shared.let_go(home);
        drop(shared);
        // The last handle of a stream may go here, and its end takes the short lock.
        drop((uses, ended));
    }

    /// Fills a freed block with 0xFF after everything that uses it, in the order of its own stream. A failure waits for the next
    /// fallible call.
    fn overwrite(&self, home: &StreamInner, freed: &Freed, uses: Option<&Uses>) {
        let ordered = uses.map_or(Ok(()), |uses| uses.order_after_all(home));
        // SAFETY: the block is dropped but not given back yet, so these bytes are mapped and nobody else's.
        let filled = ordered.and_then(|()| unsafe { self.source.fill(freed.address, 0xFF, freed.bytes, home.raw) });
        self.defer(filled.err());
    }
    /// What a freed block waits for.
    fn waits(&self, home: &StreamInner, uses: &Uses) -> SmallVec<[Wait; 2]> {
        let (mut waits, failed) = uses.waits(home);
        self.defer(failed);
        if self.info.kind != SourceKind::Cuda {
            // Work on these devices is mostly done by now, and asking is cheap.
            waits.retain(|wait| !matches!(wait, Wait::Mark(mark) if mark.is_complete().unwrap_or(false)));
        }
        waits
    }

    pub(crate) fn recategorize(&self, index: u32, bytes: usize, cell: &AtomicU8, to: Category) {
        let mut shared = self.locked();
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
    #[inline(always)]
    pub(crate) fn take(&self, shared: &mut Shared, ask: &Ask, owner: u32) -> Option<u32> {
        if let Some(index) = shared.table.take_last(ask.size, ask.region, owner) {
            return Some(index);
        }
        self.take_by(self.search, shared, ask, owner)
    }
    /// As `take`, whatever the policy would rather have.
    #[inline]
    pub(crate) fn take_by(&self, search: Search, shared: &mut Shared, ask: &Ask, owner: u32) -> Option<u32> {
        let mut found = shared.table.find(ask.size, ask.region, owner, search);
        // A capture must not ask for events.
        if !shared.pending.is_empty() && !shared.table.regions[ask.region as usize].pinned {
            let exact = found.is_some_and(|index| shared.table.get(index).size == ask.size);
            if !exact && self.poll(shared) {
                found = shared.table.find(ask.size, ask.region, owner, search);
            }
        }
        let index = found?;
        Some(self.claim(shared, index, ask.size))
    }
    /// Makes an idle block live for `size` bytes; a rest that the policy keeps stays idle.
    #[inline]
    pub(crate) fn claim(&self, shared: &mut Shared, index: u32, size: usize) -> u32 {
        let table = &mut shared.table;
        if self.cuts(table.get(index).size, size) {
            return table.carve(index, size);
        }
        table.hold(index);
        table.set(index, State::Live);
        index
    }
    /// Makes a held block live for `size` bytes; a rest that the policy keeps becomes idle.
    pub(crate) fn cut(&self, shared: &mut Shared, index: u32, size: usize) {
        let cut = self.cuts(shared.table.get(index).size, size);
        shared.table.trim(index, size, cut);
    }
    #[inline]
    pub(crate) fn cuts(&self, whole: usize, size: usize) -> bool {
        whole > size && self.policy.keeps_rest(size, whole - size)
    }

    /// The size of a block for `bytes` > 0 bytes.
    #[inline]
    pub(crate) fn block_size(&self, bytes: usize) -> Result<usize> {
        // Refused here, so that a policy's own arithmetic need not watch for overflow.
        if bytes > isize::MAX as usize {
            return Err(AllocError::SizeOverflow(bytes as u128));
        }
        match round_up(self.policy.block_size(bytes).max(bytes), ALIGN) {
            Some(size) if size <= isize::MAX as usize => Ok(size),
            _ => Err(AllocError::SizeOverflow(bytes as u128)),
        }
    }
}

impl Drop for Core {
    /// The last handle is gone: waits for what the device still does, then gives all memory back.
    fn drop(&mut self) {
        let shared = self.shared.get_mut();
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
