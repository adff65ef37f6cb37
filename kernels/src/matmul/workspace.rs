//! The scratch memory of matrix products: one block a stream, of one fixed size.
//!
//! A BLAS chooses among algorithms by the scratch it is given, so the size is fixed, and a report can count on it. The
//! block of a stream is taken at its first product and held, so that later products take nothing. A dry run keeps the
//! same books, and so counts the same bytes.

use crate::Result;
use kiln_alloc::{Allocator, Block, Category, Stream, StreamId, Write};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

/// Bytes of scratch memory that each stream with a matrix product holds: 32 MiB.
pub const BLAS_WORKSPACE_BYTES: usize = 32 << 20;

/// Scratch blocks by stream. Two streams never share one; two threads take turns.
pub struct BlasWorkspace {
    allocator: Allocator,
    blocks: Mutex<HashMap<StreamId, Block>>,
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
        // A panic of another thread leaves the map whole: blocks are inserted in one step.
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let block = match blocks.entry(stream.id()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.allocator.allocate(BLAS_WORKSPACE_BYTES, stream, Category::Workspace)?),
        };
        enqueue(&mut block.write(stream)?)
    }

    /// Gives all blocks back to the allocator; a stream's next product takes one anew.
    pub fn release(&self) {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
