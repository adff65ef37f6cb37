//! Adam (Kingma and Ba, 2014) and AdamW (Loshchilov and Hutter, 2017). With `t` the steps of a parameter:
//! `m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²; p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)`.

use super::core::{Core, Work, scaler_arg};
use super::{Optimizer, OptimizerId};
use crate::Parameter;
use kiln_kernels::optim::Adam as Kernel;
use kiln_kernels::{Arg, OutArg};
use kiln_tensor::{DType, Error, Result, Tensor};

/// What both forms share.
#[derive(Clone, Copy)]
struct Settings {
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    decoupled: bool,
}

macro_rules! adam {
    ($(#[$doc:meta])* $name:ident, $(#[$config_doc:meta])* $config:ident, $label:literal, decay $decay:literal, decoupled $decoupled:literal) => {
        $(#[$config_doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $config {
            /// Learning rate.
            pub lr: f64,
            /// Decay of the first moment.
            pub beta1: f64,
            /// Decay of the second moment.
            pub beta2: f64,
            /// Added to the denominator.
            pub eps: f64,
            /// Strength of the weight decay.
            pub weight_decay: f64,
        }

        impl Default for $config {
            fn default() -> $config {
                $config { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: $decay }
            }
        }

        $(#[$doc])*
        pub struct $name {
            core: Core,
            settings: Settings,
        }

        impl $name {
            /// For `params`.
            ///
            /// # Errors
            /// Where a setting is out of its range, a parameter is listed twice, or two lie on different devices.
            #[track_caller]
            pub fn new(params: Vec<Parameter>, config: $config) -> Result<$name> {
                let $config { lr, beta1, beta2, eps, weight_decay } = config;
                let rates = (0.0..1.0).contains(&beta1) && (0.0..1.0).contains(&beta2);
                if !(rates && eps >= 0.0 && eps.is_finite() && weight_decay >= 0.0 && weight_decay.is_finite()) {
                    return Err(Error::argument($label, format!("a setting is out of its range: {config:?}")));
                }
                let settings = Settings { beta1, beta2, eps, weight_decay, decoupled: $decoupled };
                Ok($name { core: Core::new($label, params, lr, &["exp_avg", "exp_avg_sq"])?, settings })
            }
        }

        impl Optimizer for $name {
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
                let settings = self.settings;
                self.core.step(scaler, |work| update($label, &settings, work, scaler))
            }
            fn state_dict(&self) -> Result<Vec<(String, Tensor)>> {
                self.core.state_dict()
            }
            fn load_state_dict(&mut self, state: &[(String, Tensor)]) -> Result<()> {
                self.core.load_state_dict(state)
            }
        }
    };
}

adam! {
    /// Adam, with weight decay as an L2 penalty: `g += weight_decay p`.
    Adam,
    /// Settings of [`Adam`]; the defaults are PyTorch's.
    AdamConfig, "adam", decay 0.0, decoupled false
}

adam! {
    /// Adam with decoupled weight decay: `p -= lr weight_decay p` comes first.
    ///
    /// ```
    /// # use kiln_nn::{AdamW, AdamWConfig, Init, Optimizer, Params};
    /// # use kiln_tensor::Device;
    /// # use kiln_autograd::Backward;
    /// let params = Params::new(&Device::cpu());
    /// let w = params.create("w", 3, Init::Ones)?;
    /// let mut optimizer = AdamW::new(params.trainable(), AdamWConfig { lr: 1e-2, ..Default::default() })?;
    /// w.square()?.sum_all()?.backward()?;
    /// optimizer.step()?;
    /// optimizer.zero_grad();
    /// assert!(w.to_vec::<f32>()?[0] < 1.0);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    AdamW,
    /// Settings of [`AdamW`]; the defaults are PyTorch's.
    AdamWConfig, "adamw", decay 0.01, decoupled true
}

fn update(name: &'static str, settings: &Settings, work: Work<'_>, scaler: Option<&Tensor>) -> Result<()> {
    let Work { param, grad, parts, clock } = work;
    let [m, v] = parts else { return Err(Error::message("adam keeps two moments of each parameter")) };
    let (device, stream) = (param.device(), param.device().stream());
    let (g, hyper) = (grad.storage().read(&stream)?, clock.storage().read(&stream)?);
    let read = scaler.map(|s| s.storage().read(&stream)).transpose()?;
    let mut p = param.storage().write(&stream, name)?;
    let (mut m_token, mut v_token) = (m.storage().write(&stream, name)?, v.storage().write(&stream, name)?);
    let kernel = Kernel {
        p: OutArg::new(&mut p, param.dtype(), param.layout()),
        g: Arg::new(&g, grad.dtype(), grad.layout()),
        m: OutArg::new(&mut m_token, m.dtype(), m.layout()),
        v: OutArg::new(&mut v_token, v.dtype(), v.layout()),
        hyper: Arg::new(&hyper, DType::F64, clock.layout()),
        scaler: scaler_arg(scaler, read.as_ref()),
        beta1: settings.beta1,
        beta2: settings.beta2,
        eps: settings.eps,
        weight_decay: settings.weight_decay,
        decoupled: settings.decoupled,
    };
    device.run(kernel, &stream)
}
