//! Streams: ordered queues of device work, with a host counter that tells uses apart.

use crate::{RawStream, Result, SourceKind};

/// Names a stream within its allocator; 0 is the compute stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

/// An ordered queue of device work. Cheap to clone; destroyed with the last clone.
#[derive(Clone)]
pub struct Stream {}

impl Stream {
    /// Its number on this device.
    pub fn id(&self) -> StreamId {
        todo!()
    }
    /// The driver's handle, for launching kernels; 0 on host and simulated devices.
    pub fn raw(&self) -> RawStream {
        todo!()
    }
    /// What kind of device runs it.
    pub fn kind(&self) -> SourceKind {
        todo!()
    }
    /// Waits on the host until all its work is done.
    pub fn synchronize(&self) -> Result<()> {
        todo!()
    }
    /// Marks the current end of the queue.
    pub fn record(&self) -> Result<Event> {
        todo!()
    }
    /// Makes later work of this stream wait on the device for `event`.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _ = event;
        todo!()
    }
}

/// A point in a stream. Destroyed on drop.
pub struct Event {}

impl Event {
    /// Whether all work before the point is done.
    pub fn is_complete(&self) -> Result<bool> {
        todo!()
    }
    /// Waits on the host for the point.
    pub fn synchronize(&self) -> Result<()> {
        todo!()
    }
}
