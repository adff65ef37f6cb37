//! Trains a deep MLP on handwritten digits twice, with and without checkpointing, and compares memory, time and loss.
//!
//! A block is Linear → LayerNorm → GELU → Dropout. Backward needs three tensors of it, each of batch × width; with checkpointing a segment of
//! blocks keeps only its input, and backward runs the segment again.

mod support;

use clap::Parser;
use kiln::eval;
use kiln::nn::{Dropout, LayerNorm, Linear};
use kiln::prelude::*;
use std::process::ExitCode;
use support::cli::{Setting, Training, exit_code, positive, rate};
use support::digits::{CLASSES, Digits, PIXELS};
use support::log::Log;
use support::measure::{Repeats, measure};
use support::run::{Outcome, compare};
use support::score::accuracy;
use support::trainer::{self, Trainer, micro_batches};

/// Trains a deep MLP on handwritten digits, with and without checkpointing, and compares memory, time and loss.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    training: Training,
    /// Examples of one optimizer step [default: 128; with --synthetic 32768]
    #[arg(long, value_parser = positive)]
    batch: Option<usize>,
    /// Learning rate of Adam at first; it falls to 0 in a straight line [default: 0.002; with --synthetic 0.0001, and it stays]
    #[arg(long, value_parser = rate)]
    lr: Option<f64>,
    /// Outputs of every block [default: 128; with --synthetic 2048]
    #[arg(long, value_parser = positive)]
    width: Option<usize>,
    /// Number of blocks [default: 12; with --synthetic 10]
    #[arg(long, value_parser = positive)]
    blocks: Option<usize>,
    /// Blocks of one checkpoint [default: 2; with --synthetic 1]
    #[arg(long, value_parser = positive)]
    segment: Option<usize>,
}

/// One block.
#[derive(Clone)]
struct Block {
    fc: Linear,
    norm: LayerNorm,
    dropout: Dropout,
}

impl Block {
    fn new(inputs: usize, width: usize, params: &Params) -> Result<Block> {
        Ok(Block {
            fc: Linear::new(inputs, width, &params.at("fc"))?,
            norm: LayerNorm::new(width, &params.at("norm"))?,
            dropout: Dropout::new(0.1)?,
        })
    }
}

/// Blocks that a checkpoint recomputes together.
#[derive(Clone)]
struct Segment(Vec<Block>);

impl Module for Segment {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.iter().try_fold(x.clone(), |x, block| block.dropout.forward(&block.norm.forward(&block.fc.forward(&x)?)?.gelu()?))
    }
}

/// All blocks and a linear head.
struct Mlp {
    segments: Vec<Segment>,
    head: Linear,
}

impl Mlp {
    fn new(args: &Args, inputs: usize, params: &Params) -> Result<Mlp> {
        let (width, blocks, segment) = (args.width(), args.blocks(), args.segment());
        let block = |i: usize| Block::new(if i == 0 { inputs } else { width }, width, &params.at("blocks").at(i));
        let blocks = (0..blocks).map(block).collect::<Result<Vec<_>>>()?;
        Ok(Mlp {
            segments: blocks.chunks(segment).map(|blocks| Segment(blocks.to_vec())).collect(),
            head: Linear::new(width, CLASSES, &params.at("head"))?,
        })
    }

    /// `[batch, inputs]` to `[batch, 10]`.
    fn forward(&self, x: &Tensor, checkpointed: bool) -> Result<Tensor> {
        let mut h = x.clone();
        for segment in &self.segments {
            h = if checkpointed { checkpoint(segment, &h)? } else { segment.forward(&h)? };
        }
        self.head.forward(&h)
    }
}

impl Args {
    fn or(&self, given: Option<usize>, digits: usize, synthetic: usize) -> usize {
        given.unwrap_or(if self.training.synthetic { synthetic } else { digits })
    }
    fn width(&self) -> usize {
        self.or(self.width, 128, 2048)
    }
    fn blocks(&self) -> usize {
        self.or(self.blocks, 12, 10)
    }
    fn segment(&self) -> usize {
        self.or(self.segment, 2, 1)
    }
    fn batch(&self) -> usize {
        self.or(self.batch, 128, 32768)
    }
}

/// Trains on the digits under one setting.
fn train(args: &Args, device: &Device, (train, test): &(Digits, Digits), setting: &Setting) -> Result<Outcome> {
    let flags = &args.training;
    let params = Params::new(device);
    let model = Mlp::new(args, PIXELS, &params)?;
    let lr = args.lr.unwrap_or(2e-3);
    let mut trainer = Trainer::new(&params, setting, lr)?;
    let parts = setting.accumulate;
    let loader = DataLoader::new(train.dataset()?)
        .batch_size(args.batch().div_ceil(parts))
        .shuffle(flags.place.seed)
        .workers(1)
        .pin_memory(device)?;
    let (test_x, test_y) = trainer::inputs(|| test.tensors(device))?;

    let epochs = flags.epochs;
    let mut log = Log::new(flags, setting);
    for epoch in 0..epochs {
        trainer.set_lr(lr * (1.0 - epoch as f64 / epochs as f64))?;
        log.start(epoch, train.len().div_ceil(args.batch()));
        for group in loader.epoch(epoch as u64).accumulate(parts) {
            log.step(trainer.step(group, |(x, y)| model.forward(x, setting.checkpoint)?.cross_entropy(y))?);
        }
        let logits = no_grad(|| eval(|| model.forward(&test_x, false)))?;
        log.end(epoch, device, accuracy(&logits, &test_y)?)?;
    }
    Ok(log.outcome(trainer.step_ms()))
}

/// Times steps on random inputs under one setting.
fn synthetic(args: &Args, device: &Device, setting: &Setting) -> Result<Outcome> {
    let params = Params::new(device);
    let model = Mlp::new(args, args.width(), &params)?;
    let mut trainer = Trainer::new(&params, setting, args.lr.unwrap_or(1e-4))?;
    let (batch, width) = (args.batch(), args.width());
    let x = trainer::inputs(|| Tensor::randn((batch, width), DType::F32, device))?;
    let y = trainer::inputs(|| Tensor::randint(0, CLASSES as i64, batch, device))?;
    measure(device, &args.training, Repeats { warm_up: 3, timed: 10, updates: 1 }, || {
        trainer
            .step(micro_batches(&x, 0, &y, setting.accumulate), |(x, y)| model.forward(x, setting.checkpoint)?.cross_entropy(y))
    })
}

fn start(args: &Args) -> Result<()> {
    let flags = &args.training;
    flags.check_batch(args.batch())?;
    let device = flags.place.open()?;
    if flags.synthetic {
        return compare(flags, "mlp10", &device, |setting| synthetic(args, &device, setting));
    }
    let digits = Digits::load(flags.data.as_deref())?;
    compare(flags, "mlp", &device, |setting| train(args, &device, &digits, setting))
}

fn main() -> ExitCode {
    exit_code(start(&Args::parse()))
}
