//! The device error word: index kernels cannot fail, so the first index out of range is noted in device memory and told later.

use super::Cuda;
use crate::{KernelError, Result};
use kiln_alloc::{Allocator, Block, Category, Read, Stream, download, upload};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Kernels that check indices; the number travels through the error word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Checked {
    IndexSelect = 1,
    IndexAdd = 2,
    CrossEntropy = 3,
    Gather = 4,
    Scatter = 5,
    ScatterAdd = 6,
}

impl Checked {
    fn name(number: u32) -> &'static str {
        const NAMES: [&str; 7] =
            ["an index kernel", "index_select", "index_add", "cross_entropy", "gather", "scatter", "scatter_add"];
        NAMES[if (number as usize) < NAMES.len() { number as usize } else { 0 }]
    }
}

/// Laid out as `ErrorWord` in `common.cuh`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Word {
    flag: u32,
    kernel: u32,
    value: i64,
    size: i64,
}
const WORD: usize = size_of::<Word>();
/// Bytes a device holds for it.
pub(crate) const BYTES: usize = WORD;

pub(super) struct ErrorWord {
    block: Block,
    stream: Stream,
    /// Whether a kernel that may set the word was launched since the last look.
    armed: AtomicBool,
    /// Kernels share the word (they write it atomically); the host takes it alone.
    lock: RwLock<()>,
}

/// Access to the error word for one launch.
pub(crate) struct ErrorToken<'a> {
    token: Read<'a>,
    _shared: RwLockReadGuard<'a, ()>,
}

impl ErrorToken<'_> {
    /// Device address of the word.
    pub(crate) fn address(&self) -> u64 {
        self.token.address()
    }
}

impl ErrorWord {
    pub(super) fn new(allocator: &Allocator) -> Result<ErrorWord> {
        let stream = allocator.compute_stream().clone();
        let block = allocator.allocate(WORD, &stream, Category::Workspace)?;
        let mut write = block.write(&stream)?;
        upload(&[0; WORD], &mut write, 0)?;
        drop(write);
        Ok(ErrorWord { block, stream, armed: AtomicBool::new(false), lock: RwLock::new(()) })
    }

    fn check(&self) -> Result<()> {
        if !self.armed.load(Ordering::Acquire) {
            return Ok(());
        }
        let _alone = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        self.armed.store(false, Ordering::Release);
        // The write token orders our stream after all launches that share the word, the read token then reads it.
        drop(self.block.write(&self.stream)?);
        let mut bytes = [0u8; WORD];
        download(&self.block.read(&self.stream)?, 0, &mut bytes)?;
        let word: Word = bytemuck::pod_read_unaligned(&bytes);
        if word.flag == 0 {
            return Ok(());
        }
        upload(&[0; WORD], &mut self.block.write(&self.stream)?, 0)?;
        Err(KernelError::Index { kernel: Checked::name(word.kernel), value: word.value, size: word.size.max(0) as usize })
    }
}

impl Cuda {
    /// Access to the error word for a kernel about to be launched on `stream`; hold it until the launch returned.
    pub(crate) fn error_word<'a>(&'a self, stream: &'a Stream) -> Result<ErrorToken<'a>> {
        let word = &self.error_word;
        let shared = word.lock.read().unwrap_or_else(PoisonError::into_inner);
        word.armed.store(true, Ordering::Release);
        Ok(ErrorToken { token: word.block.read(stream)?, _shared: shared })
    }

    /// Reads and clears the error word that index kernels set; `Err(Index)` where one was out of range since the last call. Waits for
    /// those kernels; costs nothing where there were none.
    pub fn check_errors(&self) -> Result<()> {
        self.error_word.check()
    }
}
