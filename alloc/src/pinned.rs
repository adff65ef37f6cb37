//! Pooled page-locked host memory: eight size classes per power of two, reused only after its copies are done.
//!
//! Page-locking and unlocking are slow and may wait for the device, so both happen outside the lock: a block can be handed out or
//! dropped meanwhile. Nothing here waits for a copy, save the end of the pool.

use crate::core::lock;
use crate::mark::Mark;
use crate::size::round_up;
use crate::stream::OPEN;
use crate::{AllocError, HostMemoryStats, Result, Source, Stream};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4 << 10;
/// Above this size, blocks are as large as asked for, in whole pages.
const EXACT_FROM: usize = 64 << 20;

/// The size of the block for `bytes` bytes: the next eighth of a power of two, in whole pages.
fn class(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(1);
    if bytes > EXACT_FROM {
        return round_up(bytes, PAGE).filter(|size| *size <= isize::MAX as usize);
    }
    let step = (bytes.next_power_of_two() / 16).max(PAGE);
    round_up(bytes, step)
}

/// A pool of page-locked host memory of one device. Cheap to clone.
#[derive(Clone)]
pub struct PinnedPool {
    inner: Arc<Pool>,
}

struct Pool {
    source: Arc<dyn Source>,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Blocks to hand out, by size; no list is empty.
    idle: BTreeMap<usize, Vec<Memory>>,
    waiting: Vec<(Memory, Marks)>,
    stats: HostMemoryStats,
    limit: Option<usize>,
    /// Bytes being taken from the system outside the lock.
    coming: usize,
}

/// The newest mark of each stream that reads a block.
type Marks = SmallVec<[Arc<Mark>; 1]>;

#[derive(Clone, Copy)]
struct Memory {
    pointer: *mut u8,
    size: usize,
}

// SAFETY: the pointer is to plain memory that the pool owns alone; a block hands it out under Rust's borrowing rules.
unsafe impl Send for Memory {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Memory {}

/// Puts a block with no user among the idle ones.
fn put_back(idle: &mut BTreeMap<usize, Vec<Memory>>, stats: &mut HostMemoryStats, memory: Memory) {
    stats.came_back(memory.size);
    idle.entry(memory.size).or_default().push(memory);
}

impl PoolState {
    /// Makes blocks idle whose copies are done; each is asked, so a slow one holds up none of the others.
    fn poll(&mut self) {
        let PoolState { idle, waiting, stats, .. } = self;
        waiting.retain_mut(|(memory, marks)| {
            // An event that cannot be asked is not done.
            marks.retain(|mark| !mark.is_complete().unwrap_or(false));
            if marks.is_empty() {
                put_back(idle, stats, *memory);
            }
            !marks.is_empty()
        });
    }
    fn reserved(&self) -> usize {
        self.stats.allocated_bytes.current as usize + self.coming
    }
    fn pop(&mut self, size: usize) -> Option<Memory> {
        let blocks = self.idle.get_mut(&size)?;
        let memory = blocks.pop();
        if blocks.is_empty() {
            self.idle.remove(&size);
        }
        memory
    }
    /// An idle block of this class; above the classes one that wastes no more than they do, since sizes there seldom repeat.
    fn take_idle(&mut self, size: usize) -> Option<Memory> {
        let most = if size > EXACT_FROM { size + size / 8 } else { size };
        let best = *self.idle.range(size..=most).next()?.0;
        self.pop(best)
    }
    /// Takes out idle blocks for the caller to give back, until at most `to` bytes are reserved or none is left.
    fn take_surplus(&mut self, to: usize) -> Vec<Memory> {
        let mut surplus = Vec::new();
        while let Some(over) = self.reserved().checked_sub(to).filter(|over| *over > 0) {
            // The smallest block that suffices, else the largest.
            let best = self.idle.range(over..).next().or_else(|| self.idle.last_key_value()).map(|(size, _)| *size);
            let Some(memory) = best.and_then(|size| self.pop(size)) else { break };
            self.stats.gave_back(memory.size);
            surplus.push(memory);
        }
        surplus
    }
    /// Makes room within the limit for a new block of `size` bytes; an error leaves the idle blocks alone.
    fn make_room(&mut self, requested: usize, size: usize) -> Result<Vec<Memory>> {
        let Some(limit) = self.limit else { return Ok(Vec::new()) };
        let reserved = self.reserved();
        let busy = self.stats.active_bytes.current as usize + self.coming;
        match limit.checked_sub(size) {
            Some(room) if busy <= room => Ok(self.take_surplus(room)),
            _ => Err(AllocError::PinnedLimit { requested, size, reserved, limit }),
        }
    }
}

impl Pool {
    fn give_back(&self, blocks: impl IntoIterator<Item = Memory>) {
        for memory in blocks {
            // SAFETY: the memory came from this source with this size, and idle memory, taken out of its list, has no user.
            unsafe { self.source.host_free(memory.pointer, memory.size) };
        }
    }
    /// New memory of the system; when it has no more, once all that is idle has gone back.
    fn take_from_system(&self, size: usize) -> Result<Memory> {
        let pointer = self.source.host_alloc(size).or_else(|_| {
            let idle = self.polled().take_surplus(0);
            self.give_back(idle);
            self.source.host_alloc(size)
        })?;
        // SAFETY: the source just gave these bytes to this pool alone.
        unsafe { pointer.write_bytes(0, size) };
        Ok(Memory { pointer, size })
    }
    fn polled(&self) -> MutexGuard<'_, PoolState> {
        let mut state = lock(&self.state);
        state.poll();
        state
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        // The device may still read these: wait, and if that fails leave them to the process.
        let waited = state.waiting.into_iter().filter(|(_, marks)| marks.iter().all(|mark| mark.wait().is_ok()));
        self.give_back(waited.map(|(memory, _)| memory));
        self.give_back(state.idle.into_values().flatten());
    }
}

impl PinnedPool {
    /// A pool over a source; on a device with no use for page-locking its memory is plain host memory.
    pub fn new(source: Arc<dyn Source>) -> PinnedPool {
        PinnedPool { inner: Arc::new(Pool { source, state: Mutex::default() }) }
    }
    /// A block of `bytes` host bytes, zeroed when it is first taken from the system. Never waits for a copy: a block that one
    /// still reads is not reused yet.
    ///
    /// # Errors
    /// `SizeOverflow`; `PinnedLimit` where the blocks in use and this one exceed the limit; what the source says when it has no
    /// more, with everything idle given back.
    pub fn allocate(&self, bytes: usize) -> Result<PinnedBlock> {
        let size = class(bytes).ok_or(AllocError::SizeOverflow(bytes as u128))?;
        let pool = &self.inner;
        let mut state = pool.polled();
        let memory = match state.take_idle(size) {
            Some(memory) => memory,
            None => {
                let surplus = state.make_room(bytes, size)?;
                state.coming += size;
                drop(state);
                pool.give_back(surplus);
                let taken = pool.take_from_system(size);
                state = lock(&pool.state);
                state.coming -= size;
                let memory = taken?;
                state.stats.took(size);
                memory
            }
        };
        state.stats.handed_out(memory.size);
        drop(state);
        Ok(PinnedBlock { pool: pool.clone(), memory, bytes, marks: Mutex::default() })
    }
    /// Bytes held from the system, in use or idle.
    pub fn reserved_bytes(&self) -> usize {
        lock(&self.inner.state).stats.allocated_bytes.current as usize
    }
    /// Bytes in use or waiting for a copy to end.
    pub fn active_bytes(&self) -> usize {
        self.inner.polled().stats.active_bytes.current as usize
    }
    /// The counters now.
    pub fn stats(&self) -> HostMemoryStats {
        self.inner.polled().stats
    }
    /// Sets every peak to the current value.
    pub fn reset_peak_stats(&self) {
        lock(&self.inner.state).stats.reset_peaks();
    }
    /// The limit on reserved bytes.
    pub fn limit(&self) -> Option<usize> {
        lock(&self.inner.state).limit
    }
    /// Limits reserved bytes from now on; `None` lifts it. Idle blocks above the limit are given back at once; blocks in use stay.
    pub fn set_limit(&self, limit: Option<usize>) {
        let mut state = self.inner.polled();
        state.limit = limit;
        let surplus = state.take_surplus(limit.unwrap_or(usize::MAX));
        drop(state);
        self.inner.give_back(surplus);
    }
    /// Gives idle blocks back to the system.
    pub fn trim(&self) {
        self.trim_to(0);
    }
    /// Gives idle blocks back to the system until at most `to` bytes are reserved, as few as that takes.
    pub fn trim_to(&self, to: usize) {
        let surplus = self.inner.polled().take_surplus(to);
        self.inner.give_back(surplus);
    }
}

impl std::fmt::Debug for PinnedPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedPool({}, {} bytes)", self.inner.source.info().name, self.reserved_bytes())
    }
}

/// A piece of page-locked host memory. Goes back to its pool on drop, and is reused once its copies are done.
pub struct PinnedBlock {
    pool: Arc<Pool>,
    memory: Memory,
    bytes: usize,
    marks: Mutex<Marks>,
}

impl PinnedBlock {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the block owns `size >= bytes` initialised bytes; copies of the device only read them, and writing takes
        // `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.pointer, self.bytes) }
    }
    /// The bytes, for filling. Waits for copies that still read them.
    ///
    /// # Errors
    /// What the driver says about such a copy.
    pub fn as_mut_slice(&mut self) -> Result<&mut [u8]> {
        let marks = self.marks.get_mut().unwrap_or_else(PoisonError::into_inner);
        marks.iter().try_for_each(|mark| mark.wait())?;
        marks.clear();
        // SAFETY: as in `as_slice`; the block is borrowed mutably and the copies that read it are done.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory.pointer, self.bytes) })
    }
    /// Notes that work enqueued so far on `stream` uses the block.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        let mark = match stream.inner.mark_covering(OPEN) {
            Ok(mark) => mark,
            // With no mark the only way to know is to wait here.
            Err(_) => return Ok(stream.inner.core.source.synchronize(stream.raw())?),
        };
        let mut marks = lock(&self.marks);
        // A newer mark of the same stream covers the older ones.
        marks.retain(|old| old.serial != mark.serial);
        marks.push(mark);
        Ok(())
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        let marks = std::mem::take(self.marks.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut state = lock(&self.pool.state);
        let PoolState { idle, waiting, stats, .. } = &mut *state;
        if marks.is_empty() {
            put_back(idle, stats, self.memory);
        } else {
            waiting.push((self.memory, marks));
        }
    }
}

impl std::fmt::Debug for PinnedBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedBlock({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_an_eighth_and_nothing_above_64_mib() {
        for bytes in (1..200).map(|i| i * 777_777) {
            let size = class(bytes).unwrap();
            let most = if bytes > EXACT_FROM { bytes + PAGE } else { bytes + (bytes / 8).max(PAGE) };
            assert!(size >= bytes && size <= most && size.is_multiple_of(PAGE), "{bytes} {size}");
        }
        assert_eq!(class(usize::MAX), None);
    }
}
