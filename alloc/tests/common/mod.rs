//! What the tests share: a simulated GPU whose streams run late, and drivers that lie about it.
#![allow(dead_code)]

pub mod lying;

use kiln_alloc::sources::SimulatedSource;
use kiln_alloc::*;
use std::sync::Arc;

pub const MIB: usize = 1 << 20;
pub const GIB: usize = 1 << 30;

/// A GPU whose work runs only when the host waits for it or the test says so.
pub fn late(capacity: usize) -> Arc<SimulatedSource> {
    Arc::new(SimulatedSource::late("late", capacity))
}
pub fn allocator(source: &Arc<impl Source>) -> Allocator {
    Allocator::new(source.clone(), AllocatorConfig::default()).unwrap()
}
