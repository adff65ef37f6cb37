//! How a device is set up, decided when it is made.

use kiln_alloc::policies::Paged;
use kiln_alloc::sources::{CudaMemory, CudaOptions};
use kiln_alloc::{AllocatorConfig, Policy};

/// How a device takes and hands out memory.
///
/// ```
/// # use kiln_tensor::{DType, Device, DeviceConfig, Tensor};
/// # use kiln_alloc::policies::{Paged, RoundUp};
/// // Blocks of 1.2 times what is asked for, so that batches that grow a little fit where the last one lay.
/// let config = DeviceConfig { memory_limit: Some(1 << 30), ..DeviceConfig::with_policy(RoundUp::new(Paged::default(), 1.2)) };
/// let device = Device::dry_run_with("80GiB", config)?;
/// let x = Tensor::zeros(1 << 20, DType::F32, &device)?;
/// assert_eq!(device.memory_stats().limit, Some(1 << 30));
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
pub struct DeviceConfig {
    /// At most this many bytes are taken from the device; [`Device::set_memory_limit`](crate::Device::set_memory_limit) changes it later.
    /// Memory comes in pages (2 MiB on a GPU): what the limit leaves below one is not used.
    pub memory_limit: Option<usize>,
    /// Where blocks lie and how memory grows; [`Paged`] unless another is chosen.
    pub policy: Box<dyn Policy>,
    /// Overwrite freed bytes with 0xFF (NaN in every float type), so that a kernel that reads them shows.
    pub poison: bool,
    /// At most this many bytes of host memory are page-locked for copies to the device.
    pub pinned_limit: Option<usize>,
    /// Whether a CUDA device's memory is taken as pages of virtual memory, which can be moved together, or by `cuMemAlloc`. Of no
    /// meaning elsewhere.
    pub cuda_memory: CudaMemory,
}

impl Default for DeviceConfig {
    fn default() -> DeviceConfig {
        DeviceConfig::with_policy(Paged::default())
    }
}

impl DeviceConfig {
    /// The default with another policy.
    pub fn with_policy(policy: impl Policy) -> DeviceConfig {
        DeviceConfig {
            memory_limit: None,
            policy: Box::new(policy),
            poison: false,
            pinned_limit: None,
            cuda_memory: CudaMemory::default(),
        }
    }
    pub(super) fn cuda_options(&self) -> CudaOptions {
        CudaOptions { memory: self.cuda_memory, ..CudaOptions::default() }
    }
    pub(super) fn into_allocator(self) -> AllocatorConfig {
        AllocatorConfig { limit: self.memory_limit, policy: self.policy, poison: self.poison }
    }
}

impl std::fmt::Debug for DeviceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DeviceConfig { memory_limit, policy, poison, pinned_limit, cuda_memory } = self;
        f.debug_struct("DeviceConfig")
            .field("memory_limit", memory_limit)
            .field("policy", &policy.name())
            .field("poison", poison)
            .field("pinned_limit", pinned_limit)
            .field("cuda_memory", cuda_memory)
            .finish()
    }
}
