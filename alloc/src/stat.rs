//! One counted quantity, in PyTorch's four columns: what there is, the most there was, and both running totals.

/// A counted quantity, in bytes or things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// What there is now.
    pub current: u64,
    /// The most there was at once since the last reset of peaks.
    pub peak: u64,
    /// All that was added since totals were last reset.
    pub allocated: u64,
    /// All that was taken away since totals were last reset.
    pub freed: u64,
}

impl Stat {
    /// Adds `amount`.
    pub(crate) fn increase(&mut self, amount: u64) {
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }
    /// Takes `amount` away.
    pub(crate) fn decrease(&mut self, amount: u64) {
        self.current -= amount;
        self.freed += amount;
    }
    /// Sets the peak to the current value.
    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}
