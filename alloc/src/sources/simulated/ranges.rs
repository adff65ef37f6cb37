//! A value for each byte of a handle, stored by ranges.

use std::collections::BTreeMap;

/// Ranges do not overlap; bytes in no range have no value.
pub(super) struct RangeMap<V>(BTreeMap<usize, (usize, V)>);

impl<V> Default for RangeMap<V> {
    fn default() -> RangeMap<V> {
        RangeMap(BTreeMap::new())
    }
}

impl<V: Copy> RangeMap<V> {
    /// The parts of `[from, to)` with a value, in order.
    pub(super) fn within(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, usize, V)> + '_ {
        let first = self.0.range(..=from).next_back().map_or(from, |(start, _)| *start);
        let parts = self.0.range(first..to).filter(move |(_, (end, _))| *end > from);
        parts.map(move |(start, (end, value))| ((*start).max(from), (*end).min(to), *value))
    }
    /// Gives every byte of `[from, to)` a value.
    pub(super) fn set(&mut self, from: usize, to: usize, value: V) {
        for border in [from, to] {
            if let Some((start, (end, value))) = self.0.range(..border).next_back().map(|(s, e)| (*s, *e))
                && end > border
            {
                self.0.insert(start, (border, value));
                self.0.insert(border, (end, value));
            }
        }
        let inside: Vec<usize> = self.0.range(from..to).map(|(start, _)| *start).collect();
        inside.iter().for_each(|start| {
            self.0.remove(start);
        });
        self.0.insert(from, (to, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_values_cut_earlier_ones() {
        let mut map = RangeMap::default();
        map.set(0, 10, 'a');
        map.set(4, 6, 'b');
        map.set(9, 12, 'c');
        let all = |from, to| map.within(from, to).collect::<Vec<_>>();
        assert_eq!(all(0, 20), [(0, 4, 'a'), (4, 6, 'b'), (6, 9, 'a'), (9, 12, 'c')]);
        assert_eq!(all(5, 7), [(5, 6, 'b'), (6, 7, 'a')]);
        assert_eq!(all(12, 20), []);
    }
}
