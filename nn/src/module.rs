//! `Module`: a function of one tensor; sequences of modules, and their checkpointing.

use kiln_tensor::{Result, Tensor, modes};
use std::panic::Location;
use std::sync::Arc;

/// A function of a tensor, usually with parameters inside. Closures are modules.
pub trait Module: Send + Sync {
    /// Applies it.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
    /// Whether it is a single layer, with no lines inside that a reader would look for: its memory is then reported at the line that put
    /// it into a [`Sequential`] or a [`checkpoint`]. That of a model is reported at the model's own lines.
    fn is_layer(&self) -> bool {
        false
    }
}

impl<F: Fn(&Tensor) -> Result<Tensor> + Send + Sync> Module for F {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self(x)
    }
}

impl<M: Module + ?Sized> Module for Arc<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (**self).forward(x)
    }
    fn is_layer(&self) -> bool {
        (**self).is_layer()
    }
}

/// Applies `module` and keeps none of its activations: backward runs it again to get them.
///
/// # Errors
/// As [`kiln_autograd::checkpoint_fn`].
///
/// ```
/// # use kiln_nn::{Linear, Params, checkpoint};
/// # use kiln_tensor::{Device, DType, Tensor};
/// let device = Device::cpu();
/// let layer = Linear::new(4, 4, &Params::new(&device))?;
/// let y = checkpoint(&layer, &Tensor::ones((2, 4), DType::F32, &device)?)?;
/// assert_eq!(y.dims(), [2, 4]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[track_caller]
pub fn checkpoint<M: Module + Clone + 'static>(module: &M, x: &Tensor) -> Result<Tensor> {
    let placed = Placed { module: module.clone(), site: Location::caller() };
    kiln_autograd::checkpoint_fn(&[x], move |inputs| placed.forward(&inputs[0]))
}

/// A module, and the line that put it where it is.
struct Placed<M> {
    module: M,
    site: &'static Location<'static>,
}

impl<M: Module> Module for Placed<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self.module.is_layer() {
            true => modes::at(self.site, || self.module.forward(x)),
            false => self.module.forward(x),
        }
    }
}

/// Modules one after the other. A clone shares them.
#[derive(Clone, Default)]
pub struct Sequential(pub Vec<Arc<dyn Module>>);

impl Sequential {
    /// No modules: the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }
    /// With one more module at the end.
    #[must_use]
    #[track_caller]
    pub fn then(mut self, module: impl Module + 'static) -> Sequential {
        self.0.push(Arc::new(Placed { module, site: Location::caller() }));
        self
    }
    /// How many modules there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Module for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.iter().try_fold(x.clone(), |x, module| module.forward(&x))
    }
}
