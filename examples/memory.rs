//! Where the memory goes: a training step that does not fit, the report that says why, and the same step in less memory.

mod support;

use clap::Parser;
use kiln::alloc::HistoryConfig;
use kiln::nn::{Gelu, Linear, Sequential};
use kiln::prelude::*;
use kiln::{Category, Error};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use support::{cli, say::out};

/// Shows where the memory of a training step goes, and what to do when it does not suffice.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    place: cli::Place,
    /// Rows of the batch.
    #[arg(long, default_value_t = 4096, value_parser = cli::positive)]
    batch: usize,
    /// Write a snapshot for <https://pytorch.org/memory_viz> to this file, taken where memory is fullest.
    #[arg(long)]
    snapshot: Option<PathBuf>,
}

const WIDTH: usize = 256;
const MIB: f64 = (1 << 20) as f64;

fn model(params: &Params) -> Result<Vec<Sequential>> {
    let mut pieces = Vec::new();
    for i in 0..8 {
        let (a, b) = (params.at(2 * i), params.at(2 * i + 1));
        let (first, second) = (Linear::new(WIDTH, WIDTH, &a)?, Linear::new(WIDTH, WIDTH, &b)?);
        pieces.push(
            Sequential::new()
                .then(first) // reports name these lines
                .then(Gelu)
                .then(second)
                .then(Gelu),
        );
    }
    Ok(pieces)
}

fn step(model: &[Sequential], x: &Tensor, checkpointed: bool, snapshot: Option<&Path>) -> Result<()> {
    let mut h = x.clone();
    for piece in model {
        h = if checkpointed { checkpoint(piece, &h)? } else { piece.forward(&h)? };
    }
    let loss = h.square()?.mean_all()?;
    if checkpointed {
        print_places(x.device());
    }
    if let Some(path) = snapshot {
        x.device().dump_memory_snapshot(path)?;
    }
    loss.backward()
}

/// Live bytes by what they are for and by the line that asked for them.
fn print_places(device: &Device) {
    out("\nafter forward, by category and by line:");
    let stats = device.memory_stats();
    for category in Category::ALL.into_iter().filter(|c| stats.category(*c).current > 0) {
        out(&format!("{:>10.2} MiB  {}", stats.category(category).current as f64 / MIB, category.name()));
    }
    for (line, bytes) in device.memory_by_line().into_iter().take(5) {
        out(&format!("{:>10.2} MiB  {line}", bytes as f64 / MIB));
    }
}

fn run(args: &Args) -> Result<()> {
    let device = args.place.open()?;
    device.set_memory_limit(args.place.budget.or(Some(128 << 20)));
    device.reserve(64 << 20)?; // one piece ahead of need, instead of many as the first step grows
    if args.snapshot.is_some() {
        device.record_memory_history(HistoryConfig::default());
    }
    let params = Params::new(&device);
    let model = model(&params)?;
    let mut optimizer = AdamW::new(params.trainable(), AdamWConfig::default())?;
    let x = Tensor::randn((args.batch, WIDTH), DType::F32, &device)?;

    // Running out is an error like any other: what the step took is free again once its tensors are dropped.
    match step(&model, &x, false, None) {
        Err(Error::OutOfMemory { op, report }) => {
            out(&format!("the step did not fit, in {}:\n{report}", op.unwrap_or("no op")));
            let largest = report.categories.first().map_or("nothing", |(category, _)| category.name());
            out(&format!("\nmost of it is {largest}: the same again with checkpoints, which recompute them in backward"));
            optimizer.zero_grad(); // a backward that failed midway leaves partial gradients
        }
        other => other?,
    }
    device.reset_peak_memory_stats();
    step(&model, &x, true, args.snapshot.as_deref())?;
    optimizer.step()?;
    optimizer.zero_grad();
    out(&format!("\nthe step fits, in {:.2} MiB at most\n", device.max_memory_allocated() as f64 / MIB));
    out(&device.memory_summary_abbreviated());

    device.trim(32 << 20)?; // or `empty_cache`, which keeps nothing
    out(&format!("trimmed: {:.2} MiB are left in Kiln's hands", device.memory_reserved() as f64 / MIB));
    Ok(())
}

fn main() -> ExitCode {
    cli::exit_code(run(&Args::parse()))
}
