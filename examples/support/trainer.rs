//! One optimizer step over the micro-batches of a batch, in mixed precision where asked for.

use super::cli::Setting;
use kiln::Category;
use kiln::prelude::*;
use kiln::tensor::modes;
use std::time::Instant;

/// An optimizer, a loss scaler that is on in f16, and a clock.
pub struct Trainer {
    device: Device,
    optimizer: AdamW,
    scaler: GradScaler,
    dtype: DType,
    step_ms: Vec<f64>,
}

impl Trainer {
    /// Adam over the parameters.
    pub fn new(params: &Params, setting: &Setting, lr: f64) -> Result<Trainer> {
        let dtype = setting.amp.dtype();
        Ok(Trainer {
            device: params.device().clone(),
            optimizer: AdamW::new(params.trainable(), AdamWConfig { lr, weight_decay: 0.0, ..Default::default() })?,
            scaler: GradScaler::default().enabled(dtype == DType::F16),
            dtype,
            step_ms: Vec::new(),
        })
    }

    /// Forward and backward over weighted micro-batches, then one update. Returns their weighted losses, still on the device.
    pub fn step<B>(
        &mut self,
        parts: impl IntoIterator<Item = (f64, Result<B>)>,
        loss_of: impl Fn(&B) -> Result<Tensor>,
    ) -> Result<Vec<Tensor>> {
        let start = Instant::now();
        let mut losses = Vec::new();
        for (weight, part) in parts {
            let part = part?;
            let mut loss = autocast(self.dtype, || loss_of(&part))?;
            if weight != 1.0 {
                loss = loss.affine(weight, 0.0)?;
            }
            losses.push(loss.detach());
            self.scaler.scale(&loss)?.backward()?;
        }
        self.scaler.step(&mut self.optimizer)?;
        self.scaler.update()?;
        self.optimizer.zero_grad();
        self.device.synchronize()?;
        self.step_ms.push(start.elapsed().as_secs_f64() * 1e3);
        Ok(losses)
    }

    /// Sets the learning rate of the steps to come.
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        self.optimizer.set_lr(lr)
    }

    /// Milliseconds of every step.
    pub fn step_ms(self) -> Vec<f64> {
        self.step_ms
    }
}

/// Cuts a batch along `dim` into micro-batches, each weighted by its share of the examples.
pub fn micro_batches(x: &Tensor, dim: usize, y: &Tensor, parts: usize) -> Vec<(f64, Result<(Tensor, Tensor)>)> {
    let n = y.elem_count();
    let parts = parts.min(n);
    let bounds = (0..parts).map(|i| (i * n / parts, (i + 1) * n / parts));
    let cut = |start: usize, len: usize| Ok((x.narrow(dim, start, len)?, y.narrow(0, start, len)?));
    bounds.map(|(start, end)| ((end - start) as f64 / n as f64, cut(start, end - start))).collect()
}

/// Makes tensors that count as inputs in the memory report.
pub fn inputs<R>(make: impl FnOnce() -> R) -> R {
    modes::with_category(Category::Inputs, make)
}
