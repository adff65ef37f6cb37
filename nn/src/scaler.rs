//! Loss scaling for f16 (Micikevicius et al., 2017): the loss is multiplied by a scale so that small gradients survive, gradients are divided by it before
//! the step, a step whose gradients are not finite is skipped, and the scale follows.
//!
//! Scale, count of clean steps and found-inf lie in a block on the device, and the kernels of a step read them there: nothing waits for the device.

use crate::{Optimizer, OptimizerId, Parameter};
use kiln_alloc::Category;
use kiln_kernels::OutArg;
use kiln_kernels::optim::{SCALER, Unscale, UpdateScale};
use kiln_tensor::{DType, Device, Error, Result, Tensor, modes};
use std::collections::HashMap;

const NAME: &str = "scaler";

/// Settings of a [`GradScaler`]; the defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradScalerConfig {
    /// The scale at first.
    pub scale: f32,
    /// Factor after `interval` clean steps.
    pub growth: f64,
    /// Factor after a step whose gradients were not finite.
    pub backoff: f64,
    /// Clean steps between growths.
    pub interval: u32,
}

impl Default for GradScalerConfig {
    fn default() -> GradScalerConfig {
        GradScalerConfig { scale: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000 }
    }
}

/// What a resumed run needs of a scaler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalerState {
    /// The scale.
    pub scale: f32,
    /// Clean steps since it last changed.
    pub clean_steps: u32,
}

/// Where one optimizer stands between two updates.
struct Progress {
    /// The block its gradients were checked into.
    block: Tensor,
    stepped: bool,
}

/// Scales losses and their gradients.
///
/// ```
/// # use kiln_nn::{GradScaler, Init, Optimizer, Params, Sgd, SgdConfig};
/// # use kiln_tensor::Device;
/// # use kiln_autograd::Backward;
/// let params = Params::new(&Device::cpu());
/// let w = params.create("w", 3, Init::Ones)?;
/// let mut optimizer = Sgd::new(params.trainable(), SgdConfig { lr: 0.1, ..Default::default() })?;
/// let mut scaler = GradScaler::default();
/// scaler.scale(&w.sum_all()?)?.backward()?;
/// scaler.step(&mut optimizer)?;
/// scaler.update()?;
/// optimizer.zero_grad();
/// assert_eq!(w.to_vec::<f32>()?, [0.9; 3]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
pub struct GradScaler {
    enabled: bool,
    config: GradScalerConfig,
    /// The state at the time the block is made, which is when the first loss tells the device.
    initial: ScalerState,
    block: Option<Tensor>,
    /// The scale of this step, by itself: a graph may hold on to it while the block changes.
    factor: Option<Tensor>,
    progress: HashMap<OptimizerId, Progress>,
}

impl Default for GradScaler {
    fn default() -> GradScaler {
        let config = GradScalerConfig::default();
        GradScaler { enabled: true, config, initial: initial(&config), block: None, factor: None, progress: HashMap::new() }
    }
}

fn initial(config: &GradScalerConfig) -> ScalerState {
    ScalerState { scale: config.scale, clean_steps: 0 }
}

impl GradScaler {
    /// With other settings.
    ///
    /// # Errors
    /// Where one is out of its range.
    pub fn new(config: GradScalerConfig) -> Result<GradScaler> {
        let GradScalerConfig { scale, growth, backoff, interval } = config;
        if !(scale > 0.0
            && scale.is_finite()
            && growth >= 1.0
            && growth.is_finite()
            && backoff > 0.0
            && backoff <= 1.0
            && interval > 0)
        {
            return Err(Error::argument(NAME, format!("a setting is out of its range: {config:?}")));
        }
        Ok(GradScaler { config, initial: initial(&config), ..Default::default() })
    }
    /// The same loop without scaling: with `false` every method but [`GradScaler::step`], which steps the optimizer, does nothing.
    #[must_use]
    pub fn enabled(self, enabled: bool) -> GradScaler {
        GradScaler { enabled, ..self }
    }
    /// Whether it scales.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// `loss` times the scale, in f32 or f64.
    ///
    /// # Errors
    /// Where the loss lies on another device than earlier ones.
    #[track_caller]
    pub fn scale(&mut self, loss: &Tensor) -> Result<Tensor> {
        if !self.enabled {
            return Ok(loss.clone());
        }
        self.make_block(loss.device())?;
        let Some(block) = &self.block else { return Err(Error::message("the scaler has no block")) };
        if block.device() != loss.device() {
            let message =
                format!("the loss lies on {}, earlier ones on {}; take a scaler for each device", loss.device(), block.device());
            return Err(Error::Device { op: NAME, message });
        }
        let factor = match &self.factor {
            Some(factor) => factor.clone(),
            None => as_workspace(|| block.narrow(0, 0, 1)?.copy()?.reshape(()))?,
        };
        self.factor = Some(factor.clone());
        let wide = loss.dtype().accumulator();
        loss.to_dtype(wide)?.mul(&factor.to_dtype(wide)?)
    }

    /// Divides the gradients of an optimizer by the scale, for work on them before the step (clipping, say). [`GradScaler::step`] does it otherwise.
    ///
    /// # Errors
    /// Where it was done since the last update, no loss was scaled, a gradient is partial, or a parameter is of a 16-bit type: its gradient has no range left
    /// to be checked, so keep parameters in f32 and let autocast do the casting. Gradients are unchanged then.
    /// Where the division itself fails, gradients count as partial until they are cleared.
    pub fn unscale(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        self.scaled_block("unscale")?;
        match self.progress.get(&optimizer.id()) {
            Some(Progress { stepped: true, .. }) => Err(Error::argument(NAME, "unscale after step: call update first")),
            Some(_) => Err(Error::argument(NAME, "unscale was called already since the last update")),
            None => self.unscale_gradients(optimizer),
        }
    }

    fn unscale_gradients(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        let grads = gradients(optimizer.parameters())?;
        let block = self.scaled_block("unscale")?;
        // One optimizer works on the block itself; each further one on a copy without found-inf, so that one may skip and another step.
        let block = if self.progress.is_empty() {
            block.clone()
        } else {
            as_workspace(|| {
                let found = Tensor::zeros(1, DType::F32, block.device())?;
                Tensor::cat(&[block.narrow(0, 0, SCALER - 1)?, found], 0)
            })?
        };
        if let Err(error) = grads.iter().try_for_each(|grad| unscale(grad, &block)) {
            // Some gradients are divided and some are not, and nobody can tell which.
            optimizer.parameters().iter().for_each(Parameter::mark_partial);
            return Err(error);
        }
        self.progress.insert(optimizer.id(), Progress { block, stepped: false });
        Ok(())
    }

    /// Unscales the gradients, unless that was done, and steps the optimizer; on the device nothing happens where a gradient is not finite.
    ///
    /// # Errors
    /// Where it was done since the last update, no loss was scaled, and as [`GradScaler::unscale`] and the optimizer's step.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) -> Result<()> {
        if !self.enabled {
            return optimizer.step();
        }
        self.scaled_block("step")?;
        match self.progress.get(&optimizer.id()) {
            Some(Progress { stepped: true, .. }) => {
                return Err(Error::argument(NAME, "step was called already since the last update"));
            }
            Some(_) => {}
            None => self.unscale_gradients(optimizer)?,
        }
        let Some(progress) = self.progress.get_mut(&optimizer.id()) else {
            return Err(Error::message("the optimizer was not unscaled"));
        };
        optimizer.step_with(Some(&progress.block))?;
        progress.stepped = true;
        Ok(())
    }

    /// Adapts the scale to what the steps since the last update found.
    ///
    /// # Errors
    /// Where no loss was scaled since the last update.
    pub fn update(&mut self) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let mut block = self.scaled_block("update")?.clone();
        let own = block.storage().id();
        for other in self.progress.values().map(|p| &p.block).filter(|b| b.storage().id() != own) {
            // Scale and count are equal in both: only found-inf can grow.
            block = as_workspace(|| block.maximum(other))?;
        }
        let (device, stream) = (block.device().clone(), block.device().stream());
        let GradScalerConfig { growth, backoff, interval, .. } = self.config;
        let mut token = block.storage().write(&stream, "update")?;
        let scaler = OutArg::new(&mut token, DType::F32, block.layout());
        device.run(UpdateScale { scaler, growth, backoff, interval }, &stream)?;
        drop(token);
        (self.block, self.factor) = (Some(block), None);
        self.progress.clear();
        Ok(())
    }

    /// The scale now; 1 where scaling is off. Waits for the device.
    pub fn get_scale(&self) -> Result<f32> {
        Ok(if self.enabled { self.state()?.scale } else { 1.0 })
    }
    /// What a resumed run needs. Waits for the device.
    pub fn state(&self) -> Result<ScalerState> {
        let Some(block) = &self.block else { return Ok(self.initial) };
        let values = block.to_vec::<f32>()?;
        Ok(ScalerState { scale: values[0], clean_steps: values[1] as u32 })
    }
    /// Takes over a state, between an update and the next loss.
    ///
    /// # Errors
    /// Where the scale is not a finite number above 0, or a loss was scaled since the last update.
    pub fn load_state(&mut self, state: ScalerState) -> Result<()> {
        if !(state.scale > 0.0 && state.scale.is_finite()) {
            return Err(Error::argument(NAME, format!("a scale of {} is not finite and above 0", state.scale)));
        }
        if self.factor.is_some() {
            return Err(Error::argument(NAME, "a state was loaded in the middle of a step: call update first"));
        }
        (self.initial, self.block) = (state, None);
        Ok(())
    }

    fn make_block(&mut self, device: &Device) -> Result<()> {
        if self.block.is_none() {
            let values = [self.initial.scale, self.initial.clean_steps as f32, 0.0];
            self.block = Some(as_workspace(|| Tensor::from_slice(&values, SCALER, device))?);
        }
        Ok(())
    }
    /// The block, where a loss was scaled since the last update.
    fn scaled_block(&self, call: &str) -> Result<&Tensor> {
        match (&self.block, &self.factor) {
            (Some(block), Some(_)) => Ok(block),
            _ => Err(Error::argument(NAME, format!("{call} before any loss was scaled"))),
        }
    }
}

/// A few bytes that belong to no model: without history, counted as workspace.
fn as_workspace<R>(f: impl FnOnce() -> R) -> R {
    let plain = |m: &mut modes::Modes| {
        let (category, site) = (Category::Workspace, m.site);
        *m = modes::Modes { grad: false, category, site, streams: m.streams.clone(), ..Default::default() };
    };
    modes::scope(plain, f)
}

/// Divides a gradient by the scale of a block, which notes where it is not finite.
fn unscale(grad: &Tensor, block: &Tensor) -> Result<()> {
    let (device, stream) = (grad.device(), grad.device().stream());
    let mut g = grad.storage().write(&stream, "unscale")?;
    let mut scaler = block.storage().write(&stream, "unscale")?;
    let g = OutArg::new(&mut g, grad.dtype(), grad.layout());
    device.run(Unscale { g, scaler: OutArg::new(&mut scaler, DType::F32, block.layout()) }, &stream)
}

/// The gradients of parameters that can be unscaled.
fn gradients(params: &[Parameter]) -> Result<Vec<Tensor>> {
    let mut grads = Vec::new();
    for param in params {
        let Some(grad) = param.grad()? else { continue };
        if !matches!(grad.dtype(), DType::F32 | DType::F64) {
            let message =
                format!("parameter {} is {}: loss scaling wants f32 parameters, cast by autocast", param.name(), param.dtype());
            return Err(Error::dtype(NAME, message));
        }
        grads.push(grad);
    }
    Ok(grads)
}
