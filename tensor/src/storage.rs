//! Storage: a block on a device, shared by the tensors that view it.

use crate::{DType, Device, Result};
use kiln_alloc::{Block, Category, Read, Stream, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Memory shared by tensors: a block, a version that grows with every in-place change, and copies of it in other element types.
pub struct Storage {
    id: u64,
    block: Block,
    device: Device,
    version: AtomicU64,
    last_writer: Mutex<&'static str>,
    /// Whether a leaf was made over it: while gradients are on, such memory is not changed in place through any handle.
    leaf: AtomicBool,
    /// How many saved tensors hold it: on the first save a temporary becomes an activation, on the last release it turns back.
    saves: AtomicUsize,
    /// Casts of this storage at a version, for autocast. They die with it, with the version they were made from, and where memory runs out.
    casts: Mutex<Vec<(DType, u64, Arc<Storage>)>>,
    /// Whether its device knows that it may hold casts.
    listed: AtomicBool,
}

impl Storage {
    pub(crate) fn new(block: Block, device: Device) -> Storage {
        Storage {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            block,
            device,
            version: AtomicU64::new(0),
            last_writer: Mutex::new("nothing"),
            leaf: AtomicBool::new(false),
            saves: AtomicUsize::new(0),
            casts: Mutex::new(Vec::new()),
            listed: AtomicBool::new(false),
        }
    }

    /// A number no other storage has had.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// Bytes asked for.
    pub fn bytes(&self) -> usize {
        self.block.bytes()
    }
    /// The device it lies on.
    pub fn device(&self) -> &Device {
        &self.device
    }
    /// What it is for.
    pub fn category(&self) -> Category {
        self.block.category()
    }
    /// Moves its bytes to another row of the memory report.
    pub fn set_category(&self, category: Category) {
        self.block.set_category(category);
    }
    /// Grows with every in-place change.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
    /// The op that changed it last.
    pub fn last_writer(&self) -> &'static str {
        *self.last_writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a leaf was ever made over this memory.
    pub(crate) fn is_leaf(&self) -> bool {
        self.leaf.load(Ordering::Acquire)
    }
    pub(crate) fn mark_leaf(&self) {
        self.leaf.store(true, Ordering::Release);
    }

    /// Access for reading on a stream.
    pub fn read<'a>(&'a self, stream: &'a Stream) -> Result<Read<'a>> {
        Ok(self.block.read(stream)?)
    }
    /// Exclusive access for an in-place change by `writer` on a stream. The version grows and cached casts are dropped.
    pub fn write<'a>(&'a self, stream: &'a Stream, writer: &'static str) -> Result<Write<'a>> {
        let token = self.block.write(stream)?;
        self.version.fetch_add(1, Ordering::AcqRel);
        *self.last_writer.lock().unwrap_or_else(PoisonError::into_inner) = writer;
        self.casts.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(token)
    }
    /// Exclusive access for filling a new storage: no change of version.
    pub(crate) fn write_new<'a>(&'a self, stream: &'a Stream) -> Result<Write<'a>> {
        Ok(self.block.write(stream)?)
    }

    pub(crate) fn cached_cast(&self, dtype: DType) -> Option<Arc<Storage>> {
        let version = self.version();
        let casts = self.casts.lock().unwrap_or_else(PoisonError::into_inner);
        casts.iter().find(|(d, v, _)| *d == dtype && *v == version).map(|(_, _, s)| s.clone())
    }
    pub(crate) fn cache_cast(self: &Arc<Storage>, dtype: DType, version: u64, storage: Arc<Storage>) {
        let mut casts = self.casts.lock().unwrap_or_else(PoisonError::into_inner);
        casts.retain(|(d, v, _)| *d != dtype && *v == version);
        casts.push((dtype, version, storage));
        drop(casts);
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.device.casts().list(self);
        }
    }
    /// Drops the casts. Those that a tensor holds stay with it.
    pub(crate) fn drop_casts(&self) {
        let casts = std::mem::take(&mut *self.casts.lock().unwrap_or_else(PoisonError::into_inner));
        drop(casts);
    }

    pub(crate) fn note_save(&self) {
        if self.saves.fetch_add(1, Ordering::AcqRel) == 0 && self.category() == Category::Temporaries {
            self.set_category(Category::Activations);
        }
    }
    pub(crate) fn note_release(&self) {
        if self.saves.fetch_sub(1, Ordering::AcqRel) == 1 && self.category() == Category::Activations {
            self.set_category(Category::Temporaries);
        }
    }
}
