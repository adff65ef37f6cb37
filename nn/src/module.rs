//! `Module`: a function of one tensor; sequences of modules, and their checkpointing.

use kiln_tensor::{Result, Tensor};
use std::sync::Arc;

/// A function of a tensor, usually with parameters inside. Closures are modules.
pub trait Module: Send + Sync {
    /// Applies it.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
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
    let module = module.clone();
    kiln_autograd::checkpoint_fn(&[x], move |inputs| module.forward(&inputs[0]))
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
    pub fn then(mut self, module: impl Module + 'static) -> Sequential {
        self.0.push(Arc::new(module));
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
