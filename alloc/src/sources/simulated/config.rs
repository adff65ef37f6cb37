//! What a simulated device is like.

/// When enqueued work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// When it is enqueued.
    AtOnce,
    /// When the host waits for it, or a test says so.
    ByHand,
    /// Also at driver calls, as a generator with this seed decides: mostly late, sometimes much at a time, in any order that
    /// streams and their waits allow. Equal calls give equal runs.
    Adversarial(u64),
}

/// How a simulated device is set up.
#[derive(Clone, Debug)]
pub struct SimulatedConfig {
    /// Its name, in reports.
    pub name: String,
    /// Bytes of physical memory.
    pub capacity: usize,
    /// Bytes of addresses; as many as a GPU's 47 bits by default.
    pub addresses: u64,
    /// Whether pages can be mapped and moved; else it hands out whole allocations.
    pub virtual_memory: bool,
    /// When enqueued work runs.
    pub schedule: Schedule,
}

impl SimulatedConfig {
    /// A device with virtual memory, whose streams run at once.
    pub fn new(name: impl Into<String>, capacity: usize) -> SimulatedConfig {
        SimulatedConfig { name: name.into(), capacity, addresses: 1 << 47, virtual_memory: true, schedule: Schedule::AtOnce }
    }
}
