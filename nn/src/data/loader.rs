//! `DataLoader`: settings, and the threads that stay between epochs.

use super::dataset::Dataset;
use super::epoch::Epoch;
use super::order::{Plan, shuffled};
use super::workers::{Recipe, Workers};
use kiln_tensor::{Device, Error, Result};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

type Sampler = Arc<dyn Fn(u64) -> Vec<Vec<usize>> + Send + Sync>;

/// Makes batches of a dataset and brings them to a device, each copied while the step before it runs.
///
/// Without further settings: batches of one sample, in order, on the host, made on the thread that asks. Order and random numbers depend on seed and epoch
/// alone, not on the number of workers.
///
/// ```
/// # use kiln_nn::{DataLoader, TensorDataset};
/// # use kiln_tensor::Device;
/// let dataset = TensorDataset::new((0..10).map(|i| i as f32).collect(), 10, vec![0i64; 10], 10)?;
/// let loader = DataLoader::new(dataset).batch_size(4).shuffle(42).workers(2).pin_memory(&Device::cpu())?;
/// let sizes: Vec<usize> = loader.epoch(0).map(|batch| batch.map(|(x, _)| x.elem_count())).collect::<Result<_, _>>()?;
/// assert_eq!(sizes, [4, 4, 2]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
pub struct DataLoader {
    dataset: Arc<dyn Dataset>,
    batch_size: usize,
    shuffle: bool,
    seed: u64,
    drop_last: bool,
    sampler: Option<Sampler>,
    device: Device,
    worker_count: usize,
    workers: Mutex<Option<Arc<Workers>>>,
}

impl DataLoader {
    /// Over a dataset.
    pub fn new(dataset: impl Dataset) -> DataLoader {
        DataLoader {
            dataset: Arc::new(dataset),
            batch_size: 1,
            shuffle: false,
            seed: 0,
            drop_last: false,
            sampler: None,
            device: Device::cpu(),
            worker_count: 0,
            workers: Mutex::new(None),
        }
    }
    /// Samples in a batch, at least 1.
    #[must_use]
    pub fn batch_size(self, samples: usize) -> DataLoader {
        DataLoader { batch_size: samples, ..self }
    }
    /// Another order in each epoch, from this seed.
    #[must_use]
    pub fn shuffle(self, seed: u64) -> DataLoader {
        DataLoader { shuffle: true, seed, ..self }
    }
    /// The seed of what datasets draw for a sample, for loaders that do not shuffle.
    #[must_use]
    pub fn seed(self, seed: u64) -> DataLoader {
        DataLoader { seed, ..self }
    }
    /// Threads that make batches ahead; with 0 the consumer makes them itself.
    #[must_use]
    pub fn workers(self, count: usize) -> DataLoader {
        DataLoader { worker_count: count, workers: Mutex::new(None), ..self }
    }
    /// Leaves out the last batch of an epoch where it is smaller than the others.
    #[must_use]
    pub fn drop_last(self, drop: bool) -> DataLoader {
        DataLoader { drop_last: drop, ..self }
    }
    /// The batches of each epoch as lists of samples, in place of batch size and shuffling: for sequences grouped by length, or samples drawn by weight.
    #[must_use]
    pub fn sampler(self, batches: impl Fn(u64) -> Vec<Vec<usize>> + Send + Sync + 'static) -> DataLoader {
        DataLoader { sampler: Some(Arc::new(batches)), ..self }
    }
    /// Batches arrive on `device`, from page-locked memory over a stream of their own.
    ///
    /// # Errors
    /// Where the stream cannot be made.
    pub fn pin_memory(self, device: &Device) -> Result<DataLoader> {
        device.copy_stream()?;
        Ok(DataLoader { device: device.clone(), ..self })
    }

    /// Batches in an epoch, where batch size and dataset say so (no sampler is set).
    pub fn batches(&self) -> usize {
        let (n, size) = (self.dataset.len(), self.batch_size.max(1));
        if self.drop_last { n / size } else { n.div_ceil(size) }
    }
    /// The batches of an epoch, in order.
    pub fn epoch(&self, epoch: u64) -> Epoch {
        self.epoch_from(epoch, 0)
    }
    /// The batches of an epoch from number `first` on, as a resumed run wants them: the same as the uninterrupted epoch gives.
    pub fn epoch_from(&self, epoch: u64, first: usize) -> Epoch {
        let prepared = self.plan(epoch).and_then(|plan| Ok((plan, self.threads()?)));
        let (plan, workers, failed) = match prepared {
            Ok((plan, workers)) => (plan, workers, None),
            Err(error) => (Plan::listed(Vec::new()), None, Some(error)),
        };
        let recipe = Recipe {
            dataset: self.dataset.clone(),
            plan,
            epoch,
            seed: self.seed,
            pool: self.device.pinned_pool().clone(),
            cancelled: AtomicBool::new(false),
        };
        Epoch::new(Arc::new(recipe), workers, self.device.clone(), first, failed)
    }

    fn plan(&self, epoch: u64) -> Result<Plan> {
        let samples = self.dataset.len();
        if let Some(sampler) = &self.sampler {
            let plan = Plan::listed(sampler(epoch));
            return match plan.out_of_range(samples) {
                Some(i) => Err(Error::argument("loader", format!("the sampler asks for sample {i} of {samples}"))),
                None => Ok(plan),
            };
        }
        if self.batch_size == 0 {
            return Err(Error::argument("loader", "a batch has at least one sample, not 0"));
        }
        let order = if self.shuffle { shuffled(samples, self.seed, epoch) } else { (0..samples).collect() };
        Ok(Plan::even(order, self.batch_size, self.drop_last))
    }

    fn threads(&self) -> Result<Option<Arc<Workers>>> {
        if self.worker_count == 0 {
            return Ok(None);
        }
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        if workers.is_none() {
            *workers = Some(Arc::new(Workers::start(self.worker_count)?));
        }
        Ok(workers.clone())
    }
}
