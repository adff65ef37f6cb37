//! One metric as four numbers: now, at most, and all that came and went.

/// A metric of an allocator, in bytes or pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: u64,
    /// The most at once since the last reset.
    pub peak: u64,
    /// All that was ever added.
    pub allocated: u64,
    /// All that was ever taken away.
    pub freed: u64,
}

impl Stat {
    /// Adds to the metric.
    pub fn increase(&mut self, by: u64) {
        self.current += by;
        self.peak = self.peak.max(self.current);
        self.allocated += by;
    }
    /// Takes away from the metric.
    pub fn decrease(&mut self, by: u64) {
        self.current = self.current.saturating_sub(by);
        self.freed += by;
    }
    /// Sets the peak to the current value.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_keeps_its_peak_until_reset() {
        let mut stat = Stat::default();
        stat.increase(5);
        stat.decrease(3);
        stat.increase(1);
        assert_eq!(stat, Stat { current: 3, peak: 5, allocated: 6, freed: 3 });
        stat.reset_peak();
        assert_eq!(stat.peak, 3);
    }
}
