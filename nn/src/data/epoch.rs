//! `Epoch`: batches in order, each on the device before it is asked for.

use super::accumulate::Accumulate;
use super::workers::{HostBatch, Job, Recipe, Reply, Workers};
use crossbeam_channel::{Receiver, Sender, unbounded};
use kiln_alloc::Category;
use kiln_tensor::{Device, Error, Result, Tensor, modes};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Batches made ahead for each worker.
const AHEAD: usize = 2;

/// An inputs-and-targets pair on the device.
pub(super) type Batch = (Tensor, Tensor);

/// The batches of one epoch, as `Result<(inputs, targets)>`. When a batch is handed out, the copy of the next one is on its way already; leaving early is
/// fine at any point.
pub struct Epoch {
    recipe: Arc<Recipe>,
    workers: Option<Arc<Workers>>,
    device: Device,
    /// The batch handed out next.
    position: usize,
    /// The next batch to be given to a worker.
    submitted: usize,
    /// Batches that were made out of turn.
    made: BTreeMap<usize, Result<HostBatch>>,
    replies: (Sender<Reply>, Receiver<Reply>),
    /// The batch at `position`, where its copy has begun.
    ahead: Option<Result<Batch>>,
    failed: Option<Error>,
}

impl Epoch {
    pub(super) fn new(
        recipe: Arc<Recipe>,
        workers: Option<Arc<Workers>>,
        device: Device,
        first: usize,
        failed: Option<Error>,
    ) -> Epoch {
        Epoch {
            recipe,
            workers,
            device,
            position: first,
            submitted: first,
            made: BTreeMap::new(),
            replies: unbounded(),
            ahead: None,
            failed,
        }
    }
    /// Batches of the whole epoch.
    pub fn batches(&self) -> usize {
        self.recipe.plan.len()
    }
    /// The number of the batch that comes next: with the epoch's number all that a resumed run needs.
    pub fn position(&self) -> usize {
        self.position
    }
    /// Groups of `micro_batches` batches (the last may have fewer), each for one optimizer step; at least 1.
    pub fn accumulate(self, micro_batches: usize) -> Accumulate {
        Accumulate::new(self, micro_batches.max(1))
    }
    /// How much a batch counts among the micro-batches of its step.
    pub(super) fn weight(&self, number: usize) -> f64 {
        self.recipe.dataset.weight(self.recipe.plan.batch(number))
    }
    /// Whether the epoch could not begin.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    fn load(&mut self, number: usize) -> Result<Batch> {
        let (x, y) = self.host_batch(number)?;
        let copy = self.device.copy_stream()?;
        // The blocks belong to the copy stream: reusing one waits for the step that read it last, not for all earlier steps.
        let upload = |t: &super::HostTensor| Tensor::from_pinned(&t.block, &t.shape, t.dtype, &self.device, copy);
        modes::with_category(Category::Inputs, || Ok((upload(&x)?, upload(&y)?)))
    }

    fn host_batch(&mut self, number: usize) -> Result<HostBatch> {
        let Some(workers) = &self.workers else { return self.recipe.make(number) };
        let until = (number + 1 + AHEAD * workers.count()).min(self.recipe.plan.len());
        while self.submitted < until {
            workers.submit(Job { recipe: self.recipe.clone(), number: self.submitted, reply: self.replies.0.clone() });
            self.submitted += 1;
        }
        loop {
            if let Some(batch) = self.made.remove(&number) {
                return batch;
            }
            match self.replies.1.recv() {
                Ok((i, batch)) => self.made.insert(i, batch),
                Err(_) => return Err(Error::message("the loader's threads have ended")),
            };
        }
    }
}

impl Iterator for Epoch {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        if self.position >= self.batches() {
            return None;
        }
        let batch = match self.ahead.take() {
            Some(batch) => batch,
            None => self.load(self.position),
        };
        self.position += 1;
        let batch = batch.and_then(|(x, y)| {
            // Before the next copy begins: the step then waits for this batch's copy only, and runs while the next one is under way.
            let stream = self.device.stream();
            drop((x.storage().read(&stream)?, y.storage().read(&stream)?));
            Ok((x, y))
        });
        if batch.is_ok() && self.position < self.batches() {
            self.ahead = Some(self.load(self.position));
        }
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.batches().saturating_sub(self.position) + usize::from(self.failed.is_some());
        (left, Some(left))
    }
}

impl ExactSizeIterator for Epoch {}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.recipe.cancelled.store(true, Ordering::Release);
    }
}
