//! The scratch memory of matrix products: one block a stream, of one fixed size.
//!
//! A BLAS chooses among algorithms by the scratch it is given, so the size is fixed, and a report can count on it. The
//! block of a stream is taken at its first product and held, so that later products take nothing. A dry run keeps the
//! same books, and so counts the same bytes.

use crate::Result;
use kiln_alloc::{Allocator, Block, Category, Stream, StreamId, Write};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Bytes of scratch memory that a stream with a matrix product holds: 32 MiB.
pub const BLAS_WORKSPACE_BYTES: usize = 32 << 20;

/// So many streams hold scratch memory at once. A block keeps its stream alive, so without a bound each stream that a
/// program ever made would stay; whoever used theirs longest ago gives it back, and takes one anew when it is needed.
const MAX_STREAMS: usize = 8;

/// Scratch blocks by stream. Two streams never share one; two threads take turns.
pub struct BlasWorkspace {
    allocator: Allocator,
    /// The latest used last.
    blocks: Mutex<Vec<(StreamId, Block)>>,
}

impl BlasWorkspace {
    /// No blocks yet; they will come from `allocator`, under the category "workspace".
    pub fn new(allocator: &Allocator) -> BlasWorkspace {
        BlasWorkspace { allocator: allocator.clone(), blocks: Mutex::default() }
    }

    /// Runs `enqueue` with exclusive access to the block of `stream`, which is taken now if the stream has none.
    ///
    /// # Errors
    /// Out of memory; what `enqueue` returns.
    pub fn with<R>(&self, stream: &Stream, enqueue: impl FnOnce(&mut Write<'_>) -> Result<R>) -> Result<R> {
        // A panic of another thread leaves the list whole: it changes in single steps.
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = match blocks.iter().position(|(id, _)| *id == stream.id()) {
            Some(place) => blocks.remove(place),
            None => {
                if blocks.len() == MAX_STREAMS {
                    blocks.remove(0);
                }
                (stream.id(), self.allocator.allocate(BLAS_WORKSPACE_BYTES, stream, Category::Workspace)?)
            }
        };
        let (_, block) = {
            blocks.push(taken);
            &blocks[blocks.len() - 1]
        };
        enqueue(&mut block.write(stream)?)
    }

    /// Gives all blocks back to the allocator; a stream's next product takes one anew.
    pub fn release(&self) {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// As [`BlasWorkspace::release`] where no product is being enqueued, else nothing: it may be that very product that asks.
    pub fn release_idle(&self) {
        match self.blocks.try_lock() {
            Ok(mut blocks) => blocks.clear(),
            Err(TryLockError::Poisoned(blocks)) => blocks.into_inner().clear(),
            Err(TryLockError::WouldBlock) => {}
        }
    }
}
