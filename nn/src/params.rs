//! `Params`: makes parameters under a path, and lists them in the order of creation.

use crate::Parameter;
use kiln_alloc::Category;
use kiln_tensor::{DType, Device, Error, Result, Shape, Tensor, modes};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a new parameter is filled. Random numbers come from the device's generator, the same on every device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// Uniform in `[-bound, bound)`.
    Uniform(f64),
    /// Normal with mean 0 and this deviation.
    Normal(f64),
}

impl Init {
    /// PyTorch's default for linear layers and cells: uniform within `1 / sqrt(fan_in)`; 0 where nothing flows in.
    pub fn fan_in(fan_in: usize) -> Init {
        if fan_in == 0 { Init::Zeros } else { Init::Uniform(1.0 / (fan_in as f64).sqrt()) }
    }
}

/// The parameters of a model: a path, and the registry it shares with all paths under it. Cheap to clone.
///
/// ```
/// # use kiln_nn::{Linear, Params};
/// # use kiln_tensor::Device;
/// let params = Params::new(&Device::cpu());
/// let layer = Linear::new(2, 3, &params.at("blocks").at(0).at("fc"))?;
/// assert_eq!(params.trainable()[0].name(), "blocks.0.fc.weight");
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Clone)]
pub struct Params {
    device: Device,
    dtype: DType,
    path: String,
    all: Arc<Mutex<Vec<Parameter>>>,
}

impl Params {
    /// No parameters yet; new ones are f32 on `device`.
    pub fn new(device: &Device) -> Params {
        Params { device: device.clone(), dtype: DType::F32, path: String::new(), all: Arc::default() }
    }
    /// The same registry, with new parameters of another type.
    pub fn with_dtype(&self, dtype: DType) -> Params {
        Params { dtype, ..self.clone() }
    }
    /// The same registry one step down: names get `part` and a dot in front. A part may have dots of its own, or be a number.
    pub fn at(&self, part: impl ToString) -> Params {
        Params { path: self.full_name(&part.to_string()), ..self.clone() }
    }
    /// The device of new parameters.
    pub fn device(&self) -> &Device {
        &self.device
    }
    /// The type of new parameters.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// The path so far, as `blocks.0`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A new parameter under this path, counted as "parameters" in memory reports.
    ///
    /// # Errors
    /// Where the name is empty or taken; out of memory.
    #[track_caller]
    pub fn create(&self, name: &str, shape: impl Into<Shape>, init: Init) -> Result<Parameter> {
        let (shape, full, (device, dtype)) = (shape.into(), self.full_name(name), (&self.device, self.dtype));
        if name.is_empty() {
            return Err(Error::argument("params", "a parameter needs a name"));
        }
        let taken = |all: &[Parameter]| match all.iter().any(|p| p.name() == full) {
            true => Err(Error::argument(
                "params",
                format!("there is a parameter {full} already; give each layer a path of its own with `at`"),
            )),
            false => Ok(()),
        };
        taken(&self.lock())?;
        let (category, site) = (Category::Parameters, Some(modes::site()));
        let plain = |m: &mut modes::Modes| {
            *m = modes::Modes { grad: false, category, site, streams: m.streams.clone(), ..Default::default() }
        };
        let value = modes::scope(plain, || match init {
            Init::Zeros => Tensor::zeros(shape, dtype, device),
            Init::Ones => Tensor::ones(shape, dtype, device),
            Init::Uniform(bound) => Tensor::rand_range(-bound, bound, shape, dtype, device),
            Init::Normal(std) => Tensor::normal(0.0, std, shape, dtype, device),
        })?;
        let parameter = Parameter::new(&full, &value)?;
        let mut all = self.lock();
        taken(&all)?;
        all.push(parameter.clone());
        Ok(parameter)
    }

    /// The parameters under this path, in the order of creation.
    pub fn trainable(&self) -> Vec<Parameter> {
        let under =
            |p: &&Parameter| self.path.is_empty() || p.name().strip_prefix(&self.path).is_some_and(|rest| rest.starts_with('.'));
        self.lock().iter().filter(under).cloned().collect()
    }
    /// The parameters under this path with their full names, in the order of creation.
    pub fn named(&self) -> Vec<(String, Parameter)> {
        self.trainable().into_iter().map(|p| (p.name().to_owned(), p)).collect()
    }
    /// How many numbers the parameters under this path hold.
    pub fn parameter_count(&self) -> usize {
        self.trainable().iter().map(|p| p.elem_count()).sum()
    }

    fn full_name(&self, name: &str) -> String {
        match (self.path.as_str(), name) {
            ("", _) => name.to_owned(),
            (path, "") => path.to_owned(),
            (path, name) => format!("{path}.{name}"),
        }
    }
    fn lock(&self) -> MutexGuard<'_, Vec<Parameter>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
