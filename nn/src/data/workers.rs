//! Threads that make batches. They live as long as the loader, and a panic in a dataset becomes the error of its batch.

use super::dataset::{BatchRequest, Dataset, HostTensor};
use super::order::Plan;
use crossbeam_channel::{Receiver, Sender, unbounded};
use kiln_alloc::PinnedPool;
use kiln_tensor::{Error, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A batch on the host.
pub(super) type HostBatch = (HostTensor, HostTensor);

/// All that one epoch's batches have in common.
pub(super) struct Recipe {
    pub(super) dataset: Arc<dyn Dataset>,
    pub(super) plan: Plan,
    pub(super) epoch: u64,
    pub(super) seed: u64,
    pub(super) pool: PinnedPool,
    /// Set when nobody waits for the epoch any more.
    pub(super) cancelled: AtomicBool,
}

impl Recipe {
    /// Makes a batch on this thread.
    pub(super) fn make(&self, number: usize) -> Result<HostBatch> {
        let request =
            BatchRequest { indices: self.plan.batch(number), epoch: self.epoch, seed: self.seed, pool: self.pool.clone() };
        catch_unwind(AssertUnwindSafe(|| self.dataset.batch(&request))).unwrap_or_else(|panic| {
            Err(Error::message(format!("the dataset panicked in batch {number} of epoch {}: {}", self.epoch, words(&panic))))
        })
    }
}

/// What a panic said.
fn words(panic: &Box<dyn Any + Send>) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)")
}

/// A batch that was made, and its number.
pub(super) type Reply = (usize, Result<HostBatch>);

/// A batch to make, and where it goes.
pub(super) struct Job {
    pub(super) recipe: Arc<Recipe>,
    pub(super) number: usize,
    pub(super) reply: Sender<Reply>,
}

pub(super) struct Workers {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads.
    pub(super) fn start(count: usize) -> Result<Workers> {
        let (jobs, queue) = unbounded();
        let mut workers = Workers { jobs: Some(jobs), threads: Vec::new() };
        for i in 0..count {
            let queue: Receiver<Job> = queue.clone();
            let thread = std::thread::Builder::new().name(format!("kiln-loader-{i}")).spawn(move || work(&queue));
            workers.threads.push(thread.map_err(|e| Error::message(format!("a loader thread could not be started: {e}")))?);
        }
        Ok(workers)
    }
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }
    pub(super) fn submit(&self, job: Job) {
        // The queue is open as long as this value lives.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }
}

fn work(queue: &Receiver<Job>) {
    for Job { recipe, number, reply } in queue {
        if !recipe.cancelled.load(Ordering::Acquire) {
            // Nobody listens any more where an epoch was left early.
            let _ = reply.send((number, recipe.make(number)));
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // With the queue closed each thread ends after the batch it is at; jobs still queued belong to epochs that were left.
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
