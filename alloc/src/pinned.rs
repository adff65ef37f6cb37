//! Pooled page-locked host memory: eight size classes per power of two, reused only after its copies are done.

use crate::core::lock;
use crate::mark::Mark;
use crate::size::round_up;
use crate::stream::OPEN;
use crate::{AllocError, Result, Source, Stream};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

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
    idle: BTreeMap<usize, Vec<Memory>>,
    waiting: Vec<(Memory, Marks)>,
    reserved: usize,
    active: usize,
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

impl PoolState {
    /// Makes blocks idle whose copies are done; each is asked, so a slow one holds up none of the others.
    fn poll(&mut self) {
        let PoolState { idle, waiting, active, .. } = self;
        waiting.retain_mut(|(memory, marks)| {
            // An event that cannot be asked is not done.
            marks.retain(|mark| !mark.is_complete().unwrap_or(false));
            if marks.is_empty() {
                *active -= memory.size;
                idle.entry(memory.size).or_default().push(*memory);
            }
            !marks.is_empty()
        });
    }
}

impl Pool {
    fn free_idle(&self, state: &mut PoolState) {
        for memory in std::mem::take(&mut state.idle).into_values().flatten() {
            state.reserved -= memory.size;
            // SAFETY: the memory came from this source with this size, and idle memory has no user.
            unsafe { self.source.host_free(memory.pointer, memory.size) };
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
        // The device may still read these: wait, and if that fails leave them to the process.
        for (memory, marks) in std::mem::take(&mut state.waiting) {
            if marks.iter().all(|mark| mark.wait().is_ok()) {
                state.idle.entry(memory.size).or_default().push(memory);
            }
        }
        self.free_idle(&mut state);
    }
}

impl PinnedPool {
    /// A pool over a source; on a device with no use for page-locking its memory is plain host memory.
    pub fn new(source: Arc<dyn Source>) -> PinnedPool {
        PinnedPool { inner: Arc::new(Pool { source, state: Mutex::default() }) }
    }
    /// A block of `bytes` host bytes, zeroed when it is first taken from the system.
    ///
    /// # Errors
    /// `SizeOverflow`; what the source says when it has no more, with everything idle given back.
    pub fn allocate(&self, bytes: usize) -> Result<PinnedBlock> {
        let size = class(bytes).ok_or(AllocError::SizeOverflow(bytes as u128))?;
        let pool = &self.inner;
        let mut state = lock(&pool.state);
        state.poll();
        let memory = match state.idle.get_mut(&size).and_then(Vec::pop) {
            Some(memory) => memory,
            None => {
                let pointer = pool.source.host_alloc(size).or_else(|_| {
                    pool.free_idle(&mut state);
                    pool.source.host_alloc(size)
                })?;
                // SAFETY: the source just gave these bytes to this pool alone.
                unsafe { pointer.write_bytes(0, size) };
                state.reserved += size;
                Memory { pointer, size }
            }
        };
        state.active += size;
        drop(state);
        Ok(PinnedBlock { pool: pool.clone(), memory, bytes, marks: Mutex::default() })
    }
    /// Bytes held from the system, in use or idle.
    pub fn reserved_bytes(&self) -> usize {
        lock(&self.inner.state).reserved
    }
    /// Bytes in use or waiting for a copy to end.
    pub fn active_bytes(&self) -> usize {
        let mut state = lock(&self.inner.state);
        state.poll();
        state.active
    }
    /// Gives idle blocks back to the system.
    pub fn trim(&self) {
        let mut state = lock(&self.inner.state);
        state.poll();
        self.inner.free_idle(&mut state);
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
        if marks.is_empty() {
            state.active -= self.memory.size;
            state.idle.entry(self.memory.size).or_default().push(self.memory);
        } else {
            state.waiting.push((self.memory, marks));
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
