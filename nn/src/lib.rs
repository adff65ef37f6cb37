//! What a training loop is made of: [`Params`] and layers, optimizers, [`GradScaler`], [`DataLoader`], files.
//!
//! A layer is a [`Module`] made of [`Parameter`]s that [`Params`] creates and names; every layer is a cheap clone, so that a checkpointed closure can own
//! one. Optimizers change parameters in place by one fused kernel each and record no history.

mod data;
mod files;
mod layers;
mod losses;
mod module;
mod optim;
mod parameter;
mod params;
mod recurrent;
mod scaler;

pub use data::{Accumulate, BatchRequest, DataLoader, Dataset, Epoch, Group, HostTensor, TensorDataset};
pub use files::{load_safetensors, load_tensors, save_safetensors, save_tensors};
pub use layers::{Dropout, Embedding, Gelu, LayerNorm, Linear, Relu, Tanh};
pub use losses::{cross_entropy, mse_loss};
pub use module::{Module, Sequential, checkpoint};
pub use optim::{
    Adam, AdamConfig, AdamW, AdamWConfig, Optimizer, OptimizerId, Sgd, SgdConfig, clip_grad_norm, clip_grad_norm_unchecked,
};
pub use parameter::Parameter;
pub use params::{Init, Params};
pub use recurrent::{Cell, Gru, GruCell, Lstm, LstmCell, Recurrent, Rnn, RnnCell};
pub use scaler::{GradScaler, GradScalerConfig, ScalerState};
