//! The loop to copy: a small network that learns to read handwritten digits.

mod support;

use clap::Parser;
use kiln::eval;
use kiln::nn::{Gelu, Linear, Sequential};
use kiln::prelude::*;
use std::process::ExitCode;
use support::{cli, digits::Digits, say::out, score::accuracy, table::percent};

/// Trains a small network on handwritten digits: the loop to copy.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    place: cli::Place,
    /// Passes over the training set.
    #[arg(long, default_value_t = 10, value_parser = cli::positive)]
    epochs: usize,
}

fn train(args: &Args) -> Result<()> {
    let device = args.place.open()?;
    let (train, test) = Digits::load(None)?;

    let params = Params::new(&device);
    let hidden = Linear::new(64, 128, &params.at("hidden"))?;
    let model = Sequential::new().then(hidden).then(Gelu).then(Linear::new(128, 10, &params.at("head"))?);
    let mut optimizer = AdamW::new(params.trainable(), AdamWConfig { lr: 3e-3, ..Default::default() })?;
    let loader = DataLoader::new(train.dataset()?).batch_size(64).shuffle(args.place.seed).pin_memory(&device)?;

    for epoch in 1..=args.epochs {
        for batch in loader.epoch(epoch as u64) {
            let (x, y) = batch?; // already on the device: copied while the last step ran
            let loss = model.forward(&x)?.cross_entropy(&y)?;
            loss.backward()?;
            optimizer.step()?;
            optimizer.zero_grad();
        }
        let (x, y) = test.tensors(&device)?;
        let logits = eval(|| no_grad(|| model.forward(&x)))?; // dropout off, nothing kept for backward
        if let Some(accuracy) = accuracy(&logits, &y)? {
            out(&format!("epoch {epoch}: test accuracy {}", percent(Some(accuracy))));
        }
    }
    if device.is_dry_run() {
        out(&format!("a dry run of {} epochs: no losses and no accuracy", args.epochs));
    }
    out(&device.memory_summary());
    Ok(())
}

fn main() -> ExitCode {
    cli::exit_code(train(&Args::parse()))
}
