//! Addresses with nothing behind them: a device of any capacity for dry runs and tests.

/// A simulated device.
pub struct SimulatedSource {}

impl SimulatedSource {
    /// A device named `name` of `capacity` bytes.
    pub fn new(name: impl Into<String>, capacity: usize) -> SimulatedSource {
        let _ = (name.into(), capacity);
        todo!()
    }
}
