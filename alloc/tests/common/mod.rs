//! What the tests share: a simulated GPU whose streams run late, and drivers that lie about it.
#![allow(dead_code)]

pub mod lying;

use kiln_alloc::sources::{Schedule, SimulatedConfig, SimulatedSource};
use kiln_alloc::*;
use std::sync::Arc;

pub const MIB: usize = 1 << 20;
pub const GIB: usize = 1 << 30;

/// A GPU whose work runs only when the host waits for it or the test says so.
pub fn late(capacity: usize) -> Arc<SimulatedSource> {
    Arc::new(SimulatedSource::late("late", capacity))
}
/// A GPU whose work also runs when an adversary with this seed lets it.
pub fn adversarial(capacity: usize, seed: u64) -> Arc<SimulatedSource> {
    let schedule = Schedule::Adversarial(seed);
    Arc::new(SimulatedSource::with_config(SimulatedConfig { schedule, ..SimulatedConfig::new("adversarial", capacity) }))
}
pub fn allocator(source: &Arc<impl Source>) -> Allocator {
    Allocator::new(source.clone(), AllocatorConfig::default()).unwrap()
}
/// A small generator of pseudo-random numbers.
pub fn random(seed: u64) -> impl FnMut() -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize
    }
}

pub fn unmap(source: &dyn Source, address: u64, bytes: usize) -> Result<(), SourceError> {
    // SAFETY: a simulated device has no memory that anything could refer to.
    unsafe { source.unmap(address, bytes) }
}
pub fn release_range(source: &dyn Source, address: u64, bytes: usize) -> Result<(), SourceError> {
    // SAFETY: as above.
    unsafe { source.release_range(address, bytes) }
}
