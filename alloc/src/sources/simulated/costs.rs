//! What driver calls cost, as measured on an H200: by handle, hardly by size, except for whole allocations and host memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MIB: f64 = (1 << 20) as f64;

macro_rules! calls {
    ($($kind:ident $name:literal,)*) => {
        /// A call of a driver.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DriverCall {
            $(#[doc = concat!("[`Source::", $name, "`](crate::Source::", $name, ")")] $kind,)*
        }

        impl DriverCall {
            /// All kinds of calls.
            pub const ALL: &[DriverCall] = &[$(DriverCall::$kind),*];

            /// Its name, as in errors.
            pub fn name(self) -> &'static str {
                match self { $(DriverCall::$kind => $name,)* }
            }
        }
    };
}

calls! {
    Reserve "reserve",
    ReleaseRange "release_range",
    Create "create",
    Destroy "destroy",
    Map "map",
    SetAccess "set_access",
    Unmap "unmap",
    Allocate "allocate",
    Free "free",
    NewStream "new_stream",
    Synchronize "synchronize",
    Record "record",
    IsComplete "is_complete",
    WaitEvent "wait_event",
    StreamWait "stream_wait",
    HostAlloc "host_alloc",
    HostFree "host_free",
}

impl DriverCall {
    /// Whether it takes or maps device memory.
    pub(super) fn takes_memory(self) -> bool {
        matches!(self, DriverCall::Create | DriverCall::Map | DriverCall::SetAccess | DriverCall::Allocate)
    }
    /// Whether it marks a stream, asks for a mark or waits.
    pub(super) fn asks_streams(self) -> bool {
        use DriverCall::*;
        matches!(self, Synchronize | Record | IsComplete | WaitEvent | StreamWait)
    }

    /// Microseconds, over `bytes` bytes in one handle.
    fn cost(self, bytes: usize) -> f64 {
        let by_size = |points: &[(f64, f64)]| between(points, bytes as f64 / MIB);
        match self {
            // Giving a range back was not measured; it is taken to cost what reserving does.
            DriverCall::Reserve | DriverCall::ReleaseRange => 23.0,
            DriverCall::Create => by_size(&[(2.0, 14.0), (64.0, 17.0), (512.0, 36.0)]),
            // From 14 up to 270 where the memory was just in use; moving pages in bulk adds up with 14.
            DriverCall::Destroy => 14.0,
            DriverCall::Map => 1.2,
            DriverCall::SetAccess => 31.0,
            DriverCall::Unmap => 20.0,
            DriverCall::Allocate => by_size(&[(2.0, 49.0), (20.0, 48.0), (256.0, 64.0), (2048.0, 230.0)]),
            DriverCall::Free => by_size(&[(2.0, 38.0), (20.0, 55.0), (256.0, 178.0), (2048.0, 1144.0)]),
            DriverCall::HostAlloc => by_size(&[(1.0, 1.7e3), (64.0, 35e3), (256.0, 141e3)]),
            DriverCall::HostFree => by_size(&[(1.0, 0.5e3), (64.0, 9e3), (256.0, 38e3)]),
            DriverCall::Record | DriverCall::IsComplete | DriverCall::StreamWait => 0.3,
            // What these cost is the work they wait for.
            DriverCall::Synchronize | DriverCall::WaitEvent | DriverCall::NewStream => 0.0,
        }
    }
}

/// What waiting for one simulated operation costs, µs. Nominal: a short kernel.
const OPERATION: f64 = 5.0;

/// Linear between the points, constant before them, and on along the last slope after them.
fn between(points: &[(f64, f64)], at: f64) -> f64 {
    let first = points[0];
    if at <= first.0 {
        return first.1;
    }
    let line = points.windows(2).find(|pair| at <= pair[1].0).unwrap_or(&points[points.len() - 2..]);
    line[0].1 + (at - line[0].0) * (line[1].1 - line[0].1) / (line[1].0 - line[0].0)
}

/// Counts calls and adds up their cost.
#[derive(Default)]
pub(super) struct Meter {
    calls: [AtomicU64; DriverCall::ALL.len()],
    nanos: AtomicU64,
}

impl Meter {
    fn add(&self, micros: f64) {
        self.nanos.fetch_add((micros * 1e3).round() as u64, Ordering::Relaxed);
    }
    /// A call over one range of `bytes` bytes.
    pub(super) fn call(&self, call: DriverCall, bytes: usize) {
        self.calls[call as usize].fetch_add(1, Ordering::Relaxed);
        self.add(call.cost(bytes));
    }
    /// The handles of a call beyond the first.
    pub(super) fn more_handles(&self, call: DriverCall, handles: usize) {
        self.add(call.cost(0) * handles.saturating_sub(1) as f64);
    }
    /// The host waited for this many operations.
    pub(super) fn waited(&self, operations: usize) {
        self.add(OPERATION * operations as f64);
    }
    pub(super) fn calls(&self, call: DriverCall) -> u64 {
        self.calls[call as usize].load(Ordering::Relaxed)
    }
    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
    pub(super) fn reset(&self) {
        self.calls.iter().chain([&self.nanos]).for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_between_the_measured_ones_lie_on_lines() {
        let cost = |call: DriverCall, mib: usize| call.cost(mib << 20);
        assert_eq!([1, 2, 33, 64].map(|mib| cost(DriverCall::Create, mib)), [14.0, 14.0, 15.5, 17.0]);
        assert_eq!(
            [2, 20, 138, 256, 2048, 3840].map(|mib| cost(DriverCall::Allocate, mib)),
            [49.0, 48.0, 56.0, 64.0, 230.0, 396.0]
        );
        assert!(DriverCall::ALL.iter().enumerate().all(|(i, call)| *call as usize == i && !call.name().is_empty()));
    }
}
