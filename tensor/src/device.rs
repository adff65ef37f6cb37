//! Devices: an allocator, a backend for kernels, streams and a random generator under one handle.

mod caches;
mod config;
mod memory;
mod size;

pub use config::DeviceConfig;
pub use size::parse_bytes;

use crate::random::{GeneratorState, Position};
use crate::{Error, Result, modes};
use caches::Casts;
use kiln_alloc::sources::{CudaSource, HostSource, SimulatedSource};
use kiln_alloc::{Allocator, Category, PinnedPool, ReclaimHook, Source, Stream};
use kiln_kernels::{Backend, Dry, Kernel};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Which device: equal for two handles of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceId {
    /// The host.
    Cpu,
    /// A CUDA device by ordinal.
    Cuda(usize),
    /// A dry run; each is a device of its own.
    Dry(usize),
}

/// A device. Cheap to clone; making one twice gives the same device.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    id: DeviceId,
    name: String,
    source: Arc<dyn Source>,
    allocator: Allocator,
    backend: Backend,
    copy_stream: OnceLock<Stream>,
    pinned: PinnedPool,
    casts: Arc<Casts>,
    /// The allocator holds it weakly.
    _hook: Arc<ReclaimHook>,
    generator: Mutex<GeneratorState>,
}

static DEVICES: Mutex<Option<HashMap<DeviceId, Device>>> = Mutex::new(None);
static NEXT_DRY: AtomicUsize = AtomicUsize::new(0);

impl Device {
    /// The host.
    ///
    /// # Panics
    /// Where the host refuses even to reserve addresses, which no program survives.
    pub fn cpu() -> Device {
        Device::registered(DeviceId::Cpu, Device::build_cpu, DeviceConfig::default())
            .expect("the host reserves addresses for tensors")
            .0
    }
    /// The host, set up as `config` says.
    ///
    /// # Errors
    /// Where the host is in use already: a device is set up once, before anything else asks for it.
    pub fn cpu_with(config: DeviceConfig) -> Result<Device> {
        Device::fresh(Device::registered(DeviceId::Cpu, Device::build_cpu, config)?)
    }

    /// CUDA device `ordinal`.
    ///
    /// # Errors
    /// What is missing (driver, device, NVRTC, cuBLAS) and how to get it.
    pub fn cuda(ordinal: usize) -> Result<Device> {
        Ok(Device::registered(DeviceId::Cuda(ordinal), |config| Device::build_cuda(ordinal, config), DeviceConfig::default())?.0)
    }
    /// CUDA device `ordinal`, set up as `config` says.
    ///
    /// # Errors
    /// As [`Device::cuda`]; where the device is in use already: it is set up once, before anything else asks for it.
    pub fn cuda_with(ordinal: usize, config: DeviceConfig) -> Result<Device> {
        Device::fresh(Device::registered(DeviceId::Cuda(ordinal), |config| Device::build_cuda(ordinal, config), config)?)
    }

    /// CUDA device `ordinal` where there is one, else the host. Ask [`Device::name`] which it is.
    pub fn cuda_or_cpu(ordinal: usize) -> Device {
        Device::cuda(ordinal).unwrap_or_else(|_| Device::cpu())
    }

    /// A device of `spec` bytes ("80GiB", "512MiB") that takes memory as a CUDA device would and computes nothing: run a training step on it to
    /// learn what the step needs. Values cannot be read from it.
    pub fn dry_run(spec: &str) -> Result<Device> {
        Device::dry_run_with(spec, DeviceConfig::default())
    }
    /// As [`Device::dry_run`], set up as `config` says: to learn what another policy would need, say.
    pub fn dry_run_with(spec: &str, config: DeviceConfig) -> Result<Device> {
        let capacity = parse_bytes(spec)?;
        let id = DeviceId::Dry(NEXT_DRY.fetch_add(1, Ordering::Relaxed));
        Device::build(id, Arc::new(SimulatedSource::new(format!("dry-run:{spec}"), capacity)), config)
    }

    /// A device by name: `cpu`, `cuda`, `cuda:N`, `auto` (`cuda:0` or else `cpu`), `dry-run:SIZE`.
    pub fn from_name(name: &str) -> Result<Device> {
        let unknown = || Error::Device {
            op: "device",
            message: format!("unknown device {name:?}; the devices are cpu, cuda:N, auto and dry-run:SIZE (as dry-run:80GiB)"),
        };
        match name.split_once(':') {
            None if name == "cpu" => Ok(Device::cpu()),
            None if name == "cuda" => Device::cuda(0),
            None if name == "auto" => Ok(Device::cuda_or_cpu(0)),
            Some(("cuda", n)) => Device::cuda(n.parse().map_err(|_| unknown())?),
            Some(("dry-run", size)) => Device::dry_run(size),
            _ => Err(unknown()),
        }
    }

    /// The device `id`, and whether it was made now.
    fn registered(
        id: DeviceId,
        build: impl FnOnce(DeviceConfig) -> Result<Device>,
        config: DeviceConfig,
    ) -> Result<(Device, bool)> {
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = devices.get_or_insert_with(HashMap::new);
        if let Some(device) = devices.get(&id) {
            return Ok((device.clone(), false));
        }
        let device = build(config)?;
        devices.insert(id, device.clone());
        Ok((device, true))
    }
    fn fresh((device, made_now): (Device, bool)) -> Result<Device> {
        if made_now {
            return Ok(device);
        }
        let message =
            format!("{device} is in use already, with the policy {:?}; set it up before", device.0.allocator.policy().name());
        Err(Error::Device { op: "device", message: message + " anything else asks for it" })
    }
    fn build_cpu(config: DeviceConfig) -> Result<Device> {
        Device::build(DeviceId::Cpu, Arc::new(HostSource::new()?), config)
    }
    fn build_cuda(ordinal: usize, config: DeviceConfig) -> Result<Device> {
        kiln_alloc::driver::probe()?;
        let count = kiln_alloc::driver::device_count()?;
        if ordinal >= count {
            let message = format!("cuda:{ordinal} does not exist: there {} here", plural(count));
            return Err(Error::Device { op: "device", message });
        }
        Device::build(DeviceId::Cuda(ordinal), Arc::new(CudaSource::with(ordinal, config.cuda_options())?), config)
    }

    fn build(id: DeviceId, source: Arc<dyn Source>, config: DeviceConfig) -> Result<Device> {
        let pinned = PinnedPool::new(source.clone());
        pinned.set_limit(config.pinned_limit);
        let allocator = Allocator::new(source.clone(), config.into_allocator())?;
        let backend = match id {
            DeviceId::Cpu => Backend::Cpu,
            DeviceId::Cuda(ordinal) => Backend::Cuda(Arc::new(kiln_kernels::cuda::Cuda::new(ordinal, &allocator)?)),
            DeviceId::Dry(_) => Backend::Dry(Arc::new(Dry::new(&allocator)?)),
        };
        let casts = Arc::<Casts>::default();
        let hook = caches::hook(&casts, &backend);
        allocator.add_reclaim_hook(&hook);
        Ok(Device(Arc::new(Inner {
            id,
            name: allocator.info().name.clone(),
            source,
            allocator,
            backend,
            copy_stream: OnceLock::new(),
            pinned,
            casts,
            _hook: hook,
            generator: Mutex::new(GeneratorState { seed: 0, offset: 0 }),
        })))
    }

    /// Which device it is.
    pub fn id(&self) -> DeviceId {
        self.0.id
    }
    /// As in `cpu`, `cuda:0`, `dry-run:80GiB`.
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// Whether it is the host.
    pub fn is_cpu(&self) -> bool {
        self.0.id == DeviceId::Cpu
    }
    /// Whether it is a CUDA device.
    pub fn is_cuda(&self) -> bool {
        matches!(self.0.id, DeviceId::Cuda(_))
    }
    /// Whether it computes nothing: values cannot be read.
    pub fn is_dry_run(&self) -> bool {
        matches!(self.0.id, DeviceId::Dry(_))
    }

    /// The storages whose casts it may drop.
    pub(crate) fn casts(&self) -> &Casts {
        &self.0.casts
    }
    /// Runs or enqueues a kernel on a stream, with the workspace it wants.
    #[track_caller]
    pub fn run(&self, kernel: impl Kernel, stream: &Stream) -> Result<()> {
        let bytes = if self.0.backend.wants_workspace() { kernel.workspace_bytes() } else { 0 };
        if bytes == 0 {
            return Ok(self.0.backend.run(kernel, stream, None)?);
        }
        let block = self.0.allocator.allocate_at(bytes, stream, Category::Workspace, modes::site())?;
        let mut workspace = block.write(stream)?;
        Ok(self.0.backend.run(kernel, stream, Some(&mut workspace))?)
    }

    /// The stream this thread's ops on this device go to.
    pub fn stream(&self) -> Stream {
        modes::with(|m| m.streams.iter().rev().find(|(id, _)| *id == self.0.id).map(|(_, s)| s.clone()))
            .unwrap_or_else(|| self.0.allocator.compute_stream().clone())
    }
    /// A new stream.
    pub fn new_stream(&self) -> Result<Stream> {
        Ok(self.0.allocator.new_stream()?)
    }
    /// The stream batches are copied on.
    pub fn copy_stream(&self) -> Result<&Stream> {
        if self.0.copy_stream.get().is_none() {
            let stream = self.new_stream()?;
            let _ = self.0.copy_stream.set(stream);
        }
        self.0.copy_stream.get().ok_or_else(|| Error::message("the copy stream was not made"))
    }
    /// Runs `f` with `stream` as this thread's current stream of this device.
    pub fn with_stream<R>(&self, stream: &Stream, f: impl FnOnce() -> R) -> R {
        modes::scope(|m| m.streams.push((self.0.id, stream.clone())), f)
    }
    /// Waits until all work on the device is done, and reports an index that was out of range in it.
    pub fn synchronize(&self) -> Result<()> {
        self.0.allocator.synchronize()?;
        self.check_errors()
    }
    /// Reports an index that was out of range in work enqueued so far. Waits for the device.
    pub(crate) fn check_errors(&self) -> Result<()> {
        match &self.0.backend {
            Backend::Cuda(cuda) => Ok(cuda.check_errors()?),
            _ => Ok(()),
        }
    }

    /// Seeds the device's generator and sets it to its start.
    pub fn manual_seed(&self, seed: u64) {
        *self.0.generator.lock().unwrap_or_else(PoisonError::into_inner) = GeneratorState { seed, offset: 0 };
    }
    /// The generator's state, for saving.
    pub fn generator_state(&self) -> GeneratorState {
        *self.0.generator.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Sets the generator's state, for resuming.
    pub fn set_generator_state(&self, state: GeneratorState) {
        *self.0.generator.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
    pub(crate) fn advance_generator(&self, elements: usize) -> Position {
        let mut state = self.0.generator.lock().unwrap_or_else(PoisonError::into_inner);
        let position = Position { seed: state.seed, offset: state.offset };
        state.offset = state.offset.wrapping_add(kiln_kernels::random::counters_for(elements));
        position
    }
}

fn plural(n: usize) -> String {
    if n == 1 { "is 1 CUDA device".into() } else { format!("are {n} CUDA devices") }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        self.0.id == other.0.id
    }
}
impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name)
    }
}
