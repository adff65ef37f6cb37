//! Trains a recurrent network on sequences of changing length by backpropagation through time, with and without checkpointing, and compares memory,
//! time and loss.
//!
//! A sequence is a run of one to eight handwritten digits, read a row of eight pixels at a time: 8 to 64 steps. The label is the last digit. Backward
//! needs the activations of every time step; with checkpointing a chunk of steps keeps only the state it started from, and backward runs it again.

mod support;

use clap::{Parser, ValueEnum};
use kiln::nn::{Cell, Gru, Linear, Lstm, Recurrent, Rnn};
use kiln::prelude::*;
use kiln::{Error, eval};
use std::cell::RefCell;
use std::collections::HashSet;
use std::process::ExitCode;
use support::cli::{Setting, Training, exit_code, positive, rate};
use support::digits::{CLASSES, Digits};
use support::log::Log;
use support::measure::{Repeats, measure};
use support::run::{Outcome, compare};
use support::score::count_right;
use support::sequences::{self, LONGEST, ROW};
use support::trainer::{self, Trainer, micro_batches};

/// Trains a recurrent network on sequences of changing length, with and without checkpointing, and compares memory, time and loss.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    training: Training,
    /// Examples of one optimizer step [default: 64]
    #[arg(long, value_parser = positive)]
    batch: Option<usize>,
    /// Learning rate of Adam at first; it falls to 0 in a straight line [default: 0.008; with --synthetic 0.0001, and it stays]
    #[arg(long, value_parser = rate)]
    lr: Option<f64>,
    /// The recurrence [default: gru; with --synthetic rnn]
    #[arg(long, value_enum)]
    cell: Option<Kind>,
    /// Size of the state [default: 64; with --synthetic 512]
    #[arg(long, value_parser = positive)]
    hidden: Option<usize>,
    /// Time steps of one checkpoint, rounded up to a multiple of 8 [default: 8; with --synthetic 32]
    #[arg(long, value_parser = positive)]
    chunk: Option<usize>,
}

/// A tanh RNN, a GRU or an LSTM.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Rnn,
    Gru,
    Lstm,
}

/// Time steps of each sequence of an epoch with --synthetic: 20 uniform numbers from 64 to 511, drawn once (Python's `random.Random(7)`).
const LENGTHS: [usize; 20] = [229, 141, 266, 397, 88, 101, 484, 338, 112, 251, 362, 93, 323, 173, 83, 108, 286, 278, 99, 187];

/// A recurrence and a linear head on its last state.
struct Network {
    recurrence: Recurrence,
    head: Linear,
}

enum Recurrence {
    Rnn(Rnn),
    Gru(Gru),
    Lstm(Lstm),
}

impl Network {
    fn new(args: &Args, inputs: usize, checkpointed: bool, params: &Params) -> Result<Network> {
        let (hidden, path) = (args.hidden(), params.at("rnn"));
        // Without checkpoints the whole sequence is one piece that is never run again.
        let chunk = checkpointed.then(|| args.chunk());
        let recurrence = match args.cell.unwrap_or(if args.training.synthetic { Kind::Rnn } else { Kind::Gru }) {
            Kind::Rnn => Recurrence::Rnn(every(Rnn::new(inputs, hidden, &path)?, chunk)),
            Kind::Gru => Recurrence::Gru(every(Gru::new(inputs, hidden, &path)?, chunk)),
            Kind::Lstm => Recurrence::Lstm(every(Lstm::new(inputs, hidden, &path)?, chunk)),
        };
        Ok(Network { recurrence, head: Linear::new(hidden, CLASSES, &params.at("head"))? })
    }

    /// `[steps, batch, inputs]` to `[batch, 10]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = match &self.recurrence {
            Recurrence::Rnn(rnn) => rnn.last(x, None)?,
            Recurrence::Gru(gru) => gru.last(x, None)?,
            Recurrence::Lstm(lstm) => lstm.last(x, None)?.0,
        };
        self.head.forward(&h)
    }
}

fn every<C: Cell>(recurrence: Recurrent<C>, chunk: Option<usize>) -> Recurrent<C> {
    match chunk {
        Some(steps) => recurrence.checkpoint_every(steps),
        None => recurrence,
    }
}

impl Args {
    fn or(&self, given: Option<usize>, digits: usize, synthetic: usize) -> usize {
        given.unwrap_or(if self.training.synthetic { synthetic } else { digits })
    }
    fn hidden(&self) -> usize {
        self.or(self.hidden, 64, 512)
    }
    fn chunk(&self) -> usize {
        self.or(self.chunk, 8, 32)
    }
    fn batch(&self) -> usize {
        self.or(self.batch, 64, 64)
    }
}

/// Trains on runs of digits under one setting.
fn train(args: &Args, device: &Device, (train, test): &(Digits, Digits), setting: &Setting) -> Result<Outcome> {
    let flags = &args.training;
    let params = Params::new(device);
    let model = Network::new(args, ROW, setting.checkpoint, &params)?;
    let lr = args.lr.unwrap_or(8e-3);
    let mut trainer = Trainer::new(&params, setting, lr)?;
    let batch = args.batch();
    let parts = setting.accumulate;
    let loader = sequences::loader(train, batch, parts, flags.place.seed, device)?;
    let test_loader = sequences::loader(test, batch, 1, 0, device)?;

    let epochs = flags.epochs;
    let mut log = Log::new(flags, setting);
    for epoch in 0..epochs {
        trainer.set_lr(lr * (1.0 - epoch as f64 / epochs as f64))?;
        log.start(epoch, train.len().div_ceil(batch));
        let lengths = RefCell::new(HashSet::new());
        for group in loader.epoch(epoch as u64).accumulate(parts) {
            log.step(trainer.step(group, |(x, y)| {
                lengths.borrow_mut().insert(x.dims()[0]);
                model.forward(x)?.cross_entropy(y)
            })?);
        }
        assert!(lengths.borrow().len() >= LONGEST, "an epoch has sequences of all lengths");
        let mut right = Some(0);
        for batch in test_loader.epoch(0) {
            let (x, y) = batch?;
            let logits = no_grad(|| eval(|| model.forward(&x)))?;
            right = count_right(&logits, &y)?.zip(right).map(|(a, b)| a + b);
        }
        log.end(epoch, device, right.map(|n| n as f64 / test.len() as f64))?;
    }
    Ok(log.outcome(trainer.step_ms()))
}

/// Times epochs over random sequences under one setting.
fn synthetic(args: &Args, device: &Device, setting: &Setting) -> Result<Outcome> {
    const INPUTS: usize = 128;
    let params = Params::new(device);
    let model = Network::new(args, INPUTS, setting.checkpoint, &params)?;
    let mut trainer = Trainer::new(&params, setting, args.lr.unwrap_or(1e-4))?;
    let longest = LENGTHS.into_iter().max().unwrap_or(0);
    let data = trainer::inputs(|| Tensor::randn((longest, args.batch(), INPUTS), DType::F32, device))?;
    let y = trainer::inputs(|| Tensor::randint(0, CLASSES as i64, args.batch(), device))?;
    measure(device, &args.training, Repeats { warm_up: 1, timed: 3, updates: LENGTHS.len() }, || {
        let mut losses = Vec::new();
        for length in LENGTHS {
            let parts = micro_batches(&data.narrow(0, 0, length)?, 1, &y, setting.accumulate);
            losses.extend(trainer.step(parts, |(x, y)| model.forward(x)?.cross_entropy(y))?);
        }
        Ok(losses)
    })
}

fn start(args: &Args) -> Result<()> {
    let flags = &args.training;
    flags.check_batch(args.batch())?;
    let device = flags.place.open()?;
    if flags.synthetic {
        return compare(flags, "rnn_epoch", &device, |setting| synthetic(args, &device, setting));
    }
    let digits = Digits::load(flags.data.as_deref())?;
    let batches = digits.0.len().div_ceil(args.batch());
    if batches < LONGEST {
        let (digits, batch) = (digits.0.len(), args.batch());
        let message = format!(
            "{digits} digits in batches of {batch} are {batches} steps, too few for {LONGEST} lengths; take smaller batches"
        );
        return Err(Error::argument("--batch", message));
    }
    compare(flags, "rnn", &device, |setting| train(args, &device, &digits, setting))
}

fn main() -> ExitCode {
    exit_code(start(&Args::parse()))
}
