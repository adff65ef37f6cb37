//! The memory sources: [`HostSource`], [`CudaSource`], [`SimulatedSource`].

mod cuda;
mod host;
mod simulated;

pub use cuda::{CudaMemory, CudaOptions, CudaSource};
pub use host::HostSource;
pub use simulated::{Breach, BreachKind, DriverCall, Schedule, SimulatedConfig, SimulatedSource, Work};
