//! Stochastic gradient descent with momentum.

use super::core::{Core, Work, scaler_arg};
use super::{Optimizer, OptimizerId};
use crate::Parameter;
use kiln_kernels::optim::Sgd as Kernel;
use kiln_kernels::{Arg, OutArg};
use kiln_tensor::{DType, Error, Result, Tensor};

/// Settings of [`Sgd`]; the defaults are PyTorch's, with a learning rate of 1e-3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdConfig {
    /// Learning rate.
    pub lr: f64,
    /// Factor of the momentum buffer; with 0 there is none.
    pub momentum: f64,
    /// Part of the gradient kept out of the buffer.
    pub dampening: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Nesterov's look-ahead; wants momentum and no dampening.
    pub nesterov: bool,
}

impl Default for SgdConfig {
    fn default() -> SgdConfig {
        SgdConfig { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false }
    }
}

/// `g += weight_decay p; b = momentum b + (1 - dampening) g` (`b = g` in the first step); `p -= lr b`, or `p -= lr (g + momentum b)` with Nesterov.
pub struct Sgd {
    core: Core,
    config: SgdConfig,
}

impl Sgd {
    /// For `params`.
    ///
    /// # Errors
    /// Where a setting is out of its range, a parameter is listed twice, or two lie on different devices.
    #[track_caller]
    pub fn new(params: Vec<Parameter>, config: SgdConfig) -> Result<Sgd> {
        let SgdConfig { lr, momentum, dampening, weight_decay, nesterov } = config;
        if !(momentum >= 0.0 && momentum.is_finite() && dampening.is_finite() && weight_decay >= 0.0 && weight_decay.is_finite())
        {
            return Err(Error::argument("sgd", format!("a setting is out of its range: {config:?}")));
        }
        if nesterov && (momentum == 0.0 || dampening != 0.0) {
            return Err(Error::argument("sgd", "nesterov wants momentum and no dampening"));
        }
        let parts: &[&str] = if momentum == 0.0 { &[] } else { &["momentum_buffer"] };
        Ok(Sgd { core: Core::new("sgd", params, lr, parts)?, config })
    }
}

impl Optimizer for Sgd {
    fn id(&self) -> OptimizerId {
        self.core.id
    }
    fn parameters(&self) -> &[Parameter] {
        &self.core.params
    }
    fn lr(&self) -> f64 {
        self.core.lr
    }
    fn set_lr(&mut self, lr: f64) -> Result<()> {
        self.core.set_lr(lr)
    }
    fn step_with(&mut self, scaler: Option<&Tensor>) -> Result<()> {
        let config = self.config;
        self.core.step(scaler, |work| update(&config, work, scaler))
    }
    fn state_dict(&self) -> Result<Vec<(String, Tensor)>> {
        self.core.state_dict()
    }
    fn load_state_dict(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        self.core.load_state_dict(state)
    }
}

fn update(config: &SgdConfig, work: Work<'_>, scaler: Option<&Tensor>) -> Result<()> {
    let Work { param, grad, parts, clock } = work;
    let (device, stream) = (param.device(), param.device().stream());
    let (g, hyper) = (grad.storage().read(&stream)?, clock.storage().read(&stream)?);
    let read = scaler.map(|s| s.storage().read(&stream)).transpose()?;
    let mut p = param.storage().write(&stream, "sgd")?;
    let mut buffer = parts.first().map(|b| b.storage().write(&stream, "sgd")).transpose()?;
    let kernel = Kernel {
        p: OutArg::new(&mut p, param.dtype(), param.layout()),
        g: Arg::new(&g, grad.dtype(), grad.layout()),
        momentum_buffer: buffer.as_mut().zip(parts.first()).map(|(token, b)| OutArg::new(token, b.dtype(), b.layout())),
        hyper: Arg::new(&hyper, DType::F64, clock.layout()),
        scaler: scaler_arg(scaler, read.as_ref()),
        momentum: config.momentum,
        dampening: config.dampening,
        weight_decay: config.weight_decay,
        nesterov: config.nesterov,
    };
    device.run(kernel, &stream)
}
