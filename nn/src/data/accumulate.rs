//! Micro-batches of one optimizer step, exactly weighted: with `n_i` samples (or valid tokens) in micro-batch `i`, and a loss that is the mean over them,
//! `sum of n_i / n loss_i` is the mean over the whole group.

use super::epoch::{Batch, Epoch};
use kiln_tensor::Result;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Shared = Arc<Mutex<Epoch>>;

fn lock(epoch: &Shared) -> MutexGuard<'_, Epoch> {
    epoch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The groups of an epoch.
pub struct Accumulate {
    epoch: Shared,
    size: usize,
    next: usize,
}

impl Accumulate {
    pub(super) fn new(epoch: Epoch, size: usize) -> Accumulate {
        let next = epoch.position();
        Accumulate { epoch: Arc::new(Mutex::new(epoch)), size, next }
    }
}

impl Iterator for Accumulate {
    type Item = Group;

    fn next(&mut self) -> Option<Group> {
        let mut epoch = lock(&self.epoch);
        // What the last group left over is passed by.
        while epoch.position() < self.next {
            let _ = epoch.next()?;
        }
        if epoch.has_failed() {
            return Some(Group {
                epoch: self.epoch.clone(),
                range: self.next..self.next.saturating_add(1),
                weights: vec![1.0].into_iter(),
            });
        }
        let end = self.next.saturating_add(self.size).min(epoch.batches());
        if self.next >= end {
            return None;
        }
        let counts: Vec<f64> = (self.next..end).map(|i| epoch.weight(i)).collect();
        let total: f64 = counts.iter().sum();
        let share = |count: f64| if total == 0.0 { 0.0 } else { count / total };
        let group = Group {
            epoch: self.epoch.clone(),
            range: self.next..end,
            weights: counts.into_iter().map(share).collect::<Vec<_>>().into_iter(),
        };
        drop(epoch);
        self.next = end;
        Some(group)
    }
}

/// The micro-batches of one step, as `(weight, batch)`: backward from `loss * weight` for each, then step once. Weights of a group add up to 1.
pub struct Group {
    epoch: Shared,
    range: Range<usize>,
    weights: std::vec::IntoIter<f64>,
}

impl Iterator for Group {
    type Item = (f64, Result<Batch>);

    fn next(&mut self) -> Option<(f64, Result<Batch>)> {
        let number = self.range.next()?;
        let mut epoch = lock(&self.epoch);
        // A later group was begun: this one is over.
        if epoch.position() != number {
            return None;
        }
        Some((self.weights.next()?, epoch.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl ExactSizeIterator for Group {}
