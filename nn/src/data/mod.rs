//! Batches from a dataset to the device: worker threads fill page-locked memory, a stream of its own copies it one batch ahead, and what comes out depends
//! on seed and epoch alone.

mod accumulate;
mod dataset;
mod epoch;
mod loader;
mod order;
mod workers;

pub use accumulate::{Accumulate, Group};
pub use dataset::{BatchRequest, Dataset, HostTensor, TensorDataset};
pub use epoch::Epoch;
pub use loader::DataLoader;
