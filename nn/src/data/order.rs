//! Which samples make which batch, from counter-based random numbers: the same for any number of workers.

use kiln_kernels::random::philox;

/// The batches of an epoch: samples in order, and where each batch ends.
pub(super) struct Plan {
    order: Vec<usize>,
    ends: Vec<usize>,
}

impl Plan {
    /// Batches of `size` samples out of `order`; a shorter one at the end unless `drop_last`.
    pub(super) fn even(order: Vec<usize>, size: usize, drop_last: bool) -> Plan {
        let whole = order.len() / size;
        let mut ends: Vec<usize> = (1..=whole).map(|i| i * size).collect();
        if !drop_last && !order.len().is_multiple_of(size) {
            ends.push(order.len());
        }
        Plan { order, ends }
    }
    /// Batches as they were listed.
    pub(super) fn listed(batches: Vec<Vec<usize>>) -> Plan {
        let mut ends = Vec::with_capacity(batches.len());
        let mut end = 0;
        batches.iter().for_each(|batch| {
            end += batch.len();
            ends.push(end);
        });
        Plan { order: batches.concat(), ends }
    }
    /// How many batches there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
    /// The samples of a batch.
    pub(super) fn batch(&self, number: usize) -> &[usize] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.order[start..self.ends[number]]
    }
    /// A sample that `samples` samples do not have.
    pub(super) fn out_of_range(&self, samples: usize) -> Option<usize> {
        self.order.iter().copied().find(|&i| i >= samples)
    }
}

/// Keys of the two uses of an epoch's random numbers: order and samples.
fn keys(seed: u64, epoch: u64) -> [u64; 2] {
    let [a, b, c, d] = philox(seed, epoch);
    [(a as u64) << 32 | b as u64, (c as u64) << 32 | d as u64]
}

/// `0..n` shuffled (Fisher and Yates) by seed and epoch.
pub(super) fn shuffled(n: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let key = keys(seed, epoch)[0];
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        let [a, b, ..] = philox(key, i as u64);
        // 64 random bits times the range: the bias is below n / 2^64.
        let word = (a as u64) << 32 | b as u64;
        order.swap(i, ((word as u128 * (i as u128 + 1)) >> 64) as usize);
    }
    order
}

/// A seed for what is random about one sample in one epoch.
pub(super) fn sample_seed(seed: u64, epoch: u64, index: usize) -> u64 {
    let [a, b, ..] = philox(keys(seed, epoch)[1], index as u64);
    (a as u64) << 32 | b as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_is_a_permutation_of_its_own_for_each_epoch_and_seed() {
        let mut order = shuffled(1000, 42, 0);
        assert_eq!(order, shuffled(1000, 42, 0));
        assert_ne!(order, shuffled(1000, 42, 1));
        assert_ne!(order, shuffled(1000, 43, 0));
        order.sort_unstable();
        assert!(order.into_iter().eq(0..1000));
    }

    #[test]
    fn every_order_of_three_is_equally_likely() {
        let mut counts = std::collections::HashMap::new();
        (0..6000).for_each(|epoch| *counts.entry(shuffled(3, 1, epoch)).or_insert(0) += 1);
        assert!(counts.len() == 6 && counts.values().all(|n| (900..1100).contains(n)), "{counts:?}");
    }

    #[test]
    fn sample_seeds_have_no_duplicates() {
        let seeds: std::collections::HashSet<u64> = (0..4).flat_map(|e| (0..1024).map(move |i| sample_seed(7, e, i))).collect();
        assert_eq!(seeds.len(), 4096);
    }

    #[test]
    fn plans_keep_or_drop_the_last_partial_batch() {
        let sizes = |drop| -> Vec<usize> {
            let plan = Plan::even((0..10).collect(), 4, drop);
            (0..plan.len()).map(|i| plan.batch(i).len()).collect()
        };
        assert_eq!(sizes(false), [4, 4, 2]);
        assert_eq!(sizes(true), [4, 4]);
        assert_eq!(Plan::even(Vec::new(), 4, false).len(), 0);
        assert_eq!(Plan::listed(vec![vec![3], vec![], vec![1, 2]]).batch(2), [1, 2]);
    }
}
