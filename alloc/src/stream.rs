//! Streams: ordered queues of device work, with a host counter that tells uses apart.

use crate::core::{Core, lock};
use crate::mark::Mark;
use crate::{RawStream, Result, SourceError, SourceKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Names a stream within its allocator; 0 is the compute stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// An ordered queue of device work. Cheap to clone; destroyed with the last clone and the last block that was allocated on it.
#[derive(Clone)]
pub struct Stream {
    pub(crate) inner: Arc<StreamInner>,
    /// Gone when the user has let go of every clone.
    _open: Arc<OpenHandle>,
}

/// The user's hold on a stream. When it goes, the stream ends with its last block.
struct OpenHandle(Arc<StreamInner>);

impl Drop for OpenHandle {
    fn drop(&mut self) {
        let mut shared = self.0.core.locked();
        self.0.closed.store(true, Ordering::Relaxed);
        let ended = shared.ended(self.0.id);
        drop(shared);
        // Not under the short lock, which the stream's end takes.
        drop(ended);
    }
}

/// The tick of a use that has not ended: no event recorded so far can cover it.
pub(crate) const OPEN: u64 = u64::MAX;

pub(crate) struct StreamInner {
    pub(crate) core: Arc<Core>,
    pub(crate) id: u32,
    pub(crate) raw: RawStream,
    pub(crate) kind: SourceKind,
    /// A number no other stream of this process has had, since ids are reused.
    pub(crate) serial: u64,
    /// Whether the user has let go of it. Changed under the short lock.
    closed: AtomicBool,
    /// Counts uses that ended; a use with tick t was enqueued before the counter reached t.
    tick: AtomicU64,
    /// The newest mark, and a tick it covers.
    newest: Mutex<Option<(u64, Arc<Mark>)>>,
}

impl StreamInner {
    pub(crate) fn new(core: Arc<Core>, id: u32, raw: RawStream) -> StreamInner {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let kind = core.info.kind;
        StreamInner {
            core,
            id,
            raw,
            kind,
            serial,
            closed: AtomicBool::new(false),
            tick: AtomicU64::new(0),
            newest: Mutex::new(None),
        }
    }

    /// Whether the user has let go of it, so that it ends with its last block. Asked under the short lock.
    #[inline(always)]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
    /// Ends a use whose work is enqueued by now; returns its tick.
    pub(crate) fn next_tick(&self) -> u64 {
        self.tick.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A mark after the use with this tick: the newest one where it covers the use, else one recorded now.
    pub(crate) fn mark_covering(&self, tick: u64) -> Result<Arc<Mark>, SourceError> {
        let mut newest = lock(&self.newest);
        if let Some((covered, mark)) = &*newest
            && *covered >= tick
        {
            return Ok(mark.clone());
        }
        // Read before recording: whatever ended by now is enqueued by now, so the mark covers it.
        let covered = self.tick.load(Ordering::Acquire);
        let raw = self.core.source.record(self.raw)?;
        let mark = Mark::new(self.core.source.clone(), raw, self.serial);
        *newest = Some((covered, mark.clone()));
        Ok(mark)
    }

    /// Makes later work of this stream wait for the use of `other` with this tick.
    pub(crate) fn wait_for(&self, other: &StreamInner, tick: u64) -> Result<(), SourceError> {
        if self.serial == other.serial {
            return Ok(());
        }
        self.core.source.stream_wait(self.raw, other.mark_covering(tick)?.raw)
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        let mark = self.mark_covering(OPEN);
        self.core.close_stream(self.id, self.serial, mark);
        self.core.source.destroy_stream(self.raw);
    }
}

impl Stream {
    pub(crate) fn new(inner: Arc<StreamInner>) -> Stream {
        Stream { _open: Arc::new(OpenHandle(inner.clone())), inner }
    }
    /// Its number on this device.
    pub fn id(&self) -> StreamId {
        StreamId(self.inner.id)
    }
    /// The driver's handle, for launching kernels; 0 on host and simulated devices.
    pub fn raw(&self) -> RawStream {
        self.inner.raw
    }
    /// What kind of device runs it.
    pub fn kind(&self) -> SourceKind {
        self.inner.kind
    }
    /// Waits on the host until all its work is done.
    pub fn synchronize(&self) -> Result<()> {
        let core = &self.inner.core;
        core.check()?;
        Ok(core.source.synchronize(self.inner.raw)?)
    }
    /// Marks the current end of the queue.
    pub fn record(&self) -> Result<Event> {
        self.inner.core.check()?;
        Ok(Event { mark: self.inner.mark_covering(OPEN)? })
    }
    /// Makes later work of this stream wait on the device for `event`. An event of another kind of device is waited for on the
    /// host.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let core = &self.inner.core;
        core.check()?;
        let theirs = event.mark.source();
        // CUDA knows its events by themselves; any other device only its own.
        let cuda = self.inner.kind == SourceKind::Cuda && theirs.info().kind == SourceKind::Cuda;
        if !cuda && !Arc::ptr_eq(theirs, &core.source) {
            return event.synchronize();
        }
        Ok(core.source.stream_wait(self.inner.raw, event.mark.raw)?)
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({}, {})", self.inner.core.info.name, self.inner.id)
    }
}

/// A point in a stream. Destroyed on drop.
pub struct Event {
    mark: Arc<Mark>,
}

impl Event {
    /// Whether all work before the point is done.
    pub fn is_complete(&self) -> Result<bool> {
        Ok(self.mark.is_complete()?)
    }
    /// Waits on the host for the point.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.mark.wait()?)
    }
}
