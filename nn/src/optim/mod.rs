//! Optimizers: parameters change in place, by one fused kernel each, and no history is recorded.

mod adam;
mod clip;
mod core;
mod sgd;

pub use adam::{Adam, AdamConfig, AdamW, AdamWConfig};
pub use clip::{clip_grad_norm, clip_grad_norm_unchecked};
pub use sgd::{Sgd, SgdConfig};

use crate::Parameter;
use kiln_tensor::{Result, Tensor};
use std::sync::atomic::{AtomicU64, Ordering};

/// Which optimizer: a number no other optimizer of the process has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OptimizerId(u64);

impl OptimizerId {
    /// A new one.
    #[allow(clippy::new_without_default)]
    pub fn new() -> OptimizerId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        OptimizerId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Changes parameters by their gradients.
pub trait Optimizer {
    /// Which optimizer it is, for a [`crate::GradScaler`] that serves several.
    fn id(&self) -> OptimizerId;
    /// The parameters it changes.
    fn parameters(&self) -> &[Parameter];
    /// The learning rate.
    fn lr(&self) -> f64;
    /// Sets the learning rate of the steps to come.
    ///
    /// # Errors
    /// What the device says.
    fn set_lr(&mut self, lr: f64) -> Result<()>;
    /// One step, unless `scaler`, the block of a loss scaler on the device, says that a gradient was not finite. Never waits for the device. Parameters
    /// without a gradient stay as they are.
    ///
    /// # Errors
    /// Where a gradient is partial, since a backward failed midway: nothing is changed then. Out of memory for the state, in the first step.
    fn step_with(&mut self, scaler: Option<&Tensor>) -> Result<()>;
    /// One step.
    ///
    /// # Errors
    /// As [`Optimizer::step_with`].
    fn step(&mut self) -> Result<()> {
        self.step_with(None)
    }
    /// Drops all gradients. Their memory goes back to the allocator, and a parameter that gets none until the next step is left alone by it.
    fn zero_grad(&mut self) {
        self.parameters().iter().for_each(Parameter::zero_grad);
    }
    /// Everything a resumed run needs, as copies: the learning rate under `lr`, and for each parameter that was ever stepped its state and its count of steps
    /// under `{name}.step`.
    ///
    /// # Errors
    /// Out of memory.
    fn state_dict(&self) -> Result<Vec<(String, Tensor)>>;
    /// Takes over a state that [`Optimizer::state_dict`] gave.
    ///
    /// # Errors
    /// Names that are unknown, and shapes or types that do not fit; the optimizer is unchanged then.
    fn load_state_dict(&mut self, state: &[(String, Tensor)]) -> Result<()>;
}
