//! A block and its access tokens: the one choke point between a stream and an address.
//!
//! A block has a reader–writer flag, so that tokens (and the host slices they give) follow Rust's aliasing rules, and a list of
//! the streams that use it, so that work is ordered. While only its own stream uses it, the list does not exist.

use crate::core::{Core, Found, Freed, lock};
use crate::home::Home;
use crate::stream::StreamInner;
use crate::table::NONE;
use crate::uses::Uses;
use crate::{AllocError, Category, Result, SourceKind, Stream, StreamId};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The flag of a block that is being written; smaller values count readers.
const WRITER: u32 = u32::MAX;

/// A piece of device memory, given back to its allocator on drop. Never waits for the device, never panics in drop.
pub struct Block {
    home: Home,
    address: u64,
    bytes: usize,
    id: u64,
    index: u32,
    flag: AtomicU32,
    category: AtomicU8,
    /// Whether another stream ever used it; `uses` exists from then on.
    shared: AtomicBool,
    uses: Mutex<Option<Box<Uses>>>,
}

impl Block {
    #[inline(always)]
    pub(crate) fn new(found: Found, bytes: usize, category: Category) -> Block {
        let Found { home, index, address, id } = found;
        Block {
            home,
            address,
            bytes,
            id,
            index,
            flag: AtomicU32::new(0),
            category: AtomicU8::new(category as u8),
            shared: AtomicBool::new(false),
            uses: Mutex::new(None),
        }
    }
    /// Bytes asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    /// A number no other block of this allocator has had.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// The stream it was allocated on.
    pub fn home(&self) -> StreamId {
        StreamId(self.home.id)
    }
    /// What it is for.
    pub fn category(&self) -> Category {
        Category::ALL[self.category.load(Ordering::Relaxed) as usize]
    }
    /// Moves its bytes to another row of the report.
    pub fn set_category(&self, category: Category) {
        self.home.core.recategorize(self.index, self.bytes, &self.category, category);
    }
    /// Access for work enqueued on `stream` while the token lives. Later work of `stream` is ordered after the last
    /// write, whichever stream made it.
    ///
    /// # Errors
    /// `InUse` while a write token lives; `WrongDevice`.
    #[inline]
    pub fn read<'a>(&'a self, stream: &'a Stream) -> Result<Read<'a>> {
        let readers = |flag: u32| (flag < WRITER - 1).then(|| flag + 1);
        if let Err(flag) = self.flag.fetch_update(Ordering::Acquire, Ordering::Relaxed, readers) {
            return self.refuse(stream, "read", flag);
        }
        if self.is_plain(stream) {
            return Ok(Read { block: self, stream, noted: false });
        }
        match self.order(stream, Uses::read) {
            Ok(noted) => Ok(Read { block: self, stream, noted }),
            Err(error) => {
                self.flag.fetch_sub(1, Ordering::Release);
                Err(error)
            }
        }
    }
    /// Exclusive access for work enqueued on `stream` while the token lives, ordered after all earlier uses.
    ///
    /// # Errors
    /// `InUse` while any token lives; `WrongDevice`.
    #[inline]
    pub fn write<'a>(&'a self, stream: &'a Stream) -> Result<Write<'a>> {
        if let Err(flag) = self.flag.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed) {
            return self.refuse(stream, "written", flag);
        }
        if self.is_plain(stream) {
            return Ok(Write { block: self, stream, noted: false });
        }
        match self.order(stream, Uses::write) {
            Ok(noted) => Ok(Write { block: self, stream, noted }),
            Err(error) => {
                self.flag.store(0, Ordering::Release);
                Err(error)
            }
        }
    }

    /// Whether a use needs no order and no note: its own stream is the only one that ever used the block. Asked with the flag
    /// taken, so that a write by another stream that came before is seen in `shared`.
    #[inline]
    fn is_plain(&self, stream: &Stream) -> bool {
        Arc::ptr_eq(&self.home, &stream.inner) && !self.shared.load(Ordering::Acquire) && !self.home.core.has_failed()
    }
    /// Orders a use and notes it; whether it was noted. Called with the flag taken.
    #[cold]
    fn order(&self, stream: &Stream, note: NoteUse) -> Result<bool> {
        self.check(stream)?;
        let home = Arc::ptr_eq(&self.home, &stream.inner);
        if self.index == NONE || (home && !self.shared.load(Ordering::Acquire)) {
            return Ok(false);
        }
        let mut uses = lock(&self.uses);
        self.shared.store(true, Ordering::Release);
        note(uses.get_or_insert_with(|| Box::new(Uses::new(Arc::clone(&self.home)))), &stream.inner)?;
        Ok(true)
    }
    #[cold]
    fn refuse<T>(&self, stream: &Stream, wanted: &'static str, flag: u32) -> Result<T> {
        self.check(stream)?;
        let holder = if flag == WRITER { "a writer" } else { "a reader" };
        Err(AllocError::InUse { block: self.id, wanted, holder })
    }
    fn check(&self, stream: &Stream) -> Result<()> {
        if !Arc::ptr_eq(&self.home.core, &stream.inner.core) {
            let name = |inner: &StreamInner| inner.core.info.name.clone();
            return Err(AllocError::WrongDevice { block: name(&self.home), stream: name(&stream.inner) });
        }
        self.home.core.check()
    }

    fn slice(&self, stream: &Stream) -> Option<(*mut u8, usize)> {
        if stream.kind() != SourceKind::Host {
            return None;
        }
        Some((std::ptr::with_exposed_provenance_mut(self.address as usize), self.bytes))
    }
}

type NoteUse = fn(&mut Uses, &Arc<StreamInner>) -> Result<(), crate::SourceError>;

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        let uses = match self.shared.get_mut() {
            false => None,
            true => self.uses.get_mut().unwrap_or_else(PoisonError::into_inner).take(),
        };
        let category = *self.category.get_mut();
        Core::free(
            &self.home,
            &Freed { index: self.index, address: self.address, bytes: self.bytes, id: self.id, category },
            uses,
        );
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, bytes, device, home) = (self.id, self.bytes, &self.home.core.info.name, self.home.id);
        write!(f, "Block({id}, {bytes} bytes, {device}, stream {home}, {})", self.category().name())
    }
}

/// Shared access to a block for work enqueued while it lives.
pub struct Read<'a> {
    block: &'a Block,
    stream: &'a Stream,
    noted: bool,
}

impl Read<'_> {
    /// Where the block lies in device memory. Valid for work enqueued on [`Read::stream`] while the token lives.
    pub fn address(&self) -> u64 {
        self.block.address
    }
    /// Bytes asked for.
    pub fn bytes(&self) -> usize {
        self.block.bytes
    }
    /// The stream the access is for.
    pub fn stream(&self) -> &Stream {
        self.stream
    }
    /// The bytes themselves, where the device is the host; `None` elsewhere.
    pub fn as_slice(&self) -> Option<&[u8]> {
        let (pointer, bytes) = self.block.slice(self.stream)?;
        // SAFETY: the block owns these mapped bytes (mapped memory is always initialised); while a read token lives, no write
        // token of the block exists, so nothing changes them.
        Some(unsafe { std::slice::from_raw_parts(pointer, bytes) })
    }
    pub(crate) fn block(&self) -> &Block {
        self.block
    }
}

impl Drop for Read<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.noted
            && let Some(uses) = lock(&self.block.uses).as_mut()
        {
            uses.end_read(&self.stream.inner);
        }
        self.block.flag.fetch_sub(1, Ordering::Release);
    }
}

/// Exclusive access to a block for work enqueued while it lives.
pub struct Write<'a> {
    block: &'a Block,
    stream: &'a Stream,
    noted: bool,
}

impl Write<'_> {
    /// Where the block lies in device memory. Valid for work enqueued on [`Write::stream`] while the token lives.
    pub fn address(&self) -> u64 {
        self.block.address
    }
    /// Bytes asked for.
    pub fn bytes(&self) -> usize {
        self.block.bytes
    }
    /// The stream the access is for.
    pub fn stream(&self) -> &Stream {
        self.stream
    }
    /// The bytes themselves, where the device is the host; `None` elsewhere.
    pub fn as_slice(&self) -> Option<&[u8]> {
        let (pointer, bytes) = self.block.slice(self.stream)?;
        // SAFETY: as in `Read`; this is the block's only token, and it is borrowed.
        Some(unsafe { std::slice::from_raw_parts(pointer, bytes) })
    }
    /// The bytes themselves, where the device is the host; `None` elsewhere.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        let (pointer, bytes) = self.block.slice(self.stream)?;
        // SAFETY: the block owns these mapped bytes, this is the block's only token, and it is borrowed mutably.
        Some(unsafe { std::slice::from_raw_parts_mut(pointer, bytes) })
    }
}

impl Drop for Write<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.noted
            && let Some(uses) = lock(&self.block.uses).as_mut()
        {
            uses.end_write();
        }
        self.block.flag.store(0, Ordering::Release);
    }
}
