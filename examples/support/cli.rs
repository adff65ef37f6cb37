//! Flags of the examples.

use super::say::{note, out};
use clap::{Args, ValueEnum};
use kiln::tensor::parse_bytes;
use kiln::{DType, Device, Error, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs an example: an error of the library becomes a line on stderr and exit code 1.
pub fn exit_code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// What every example takes.
#[derive(Args, Clone)]
pub struct Place {
    /// Where to run: cpu, cuda:N, auto (cuda:0, or else cpu), or dry-run:SIZE, which takes memory as a GPU of that size and computes nothing.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// Seed of weights, order and dropout.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// The most memory to take from the device, as 64MiB or 2GiB.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub budget: Option<usize>,
}

impl Place {
    /// The device, seeded and limited.
    pub fn open(&self) -> Result<Device> {
        let device = Device::from_name(&self.device)?;
        device.set_memory_limit(self.budget);
        device.manual_seed(self.seed);
        Ok(device)
    }
}

/// What a training run takes.
#[derive(Args, Clone)]
pub struct Training {
    #[command(flatten)]
    pub place: Place,
    /// Passes over the training set.
    #[arg(long, default_value_t = 20, value_parser = positive)]
    pub epochs: usize,
    /// Mixed precision: the type of matrix products. f16 scales the loss.
    #[arg(long, value_enum, default_value_t = Amp::Off)]
    pub amp: Amp,
    /// Micro-batches that a batch is cut into; their gradients add up to one optimizer step.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    pub accumulate: usize,
    /// Recompute activations in backward instead of keeping them; `compare` trains both ways from one seed.
    #[arg(long, value_enum, default_value_t = Checkpoint::Compare)]
    pub checkpoint: Checkpoint,
    /// `all` runs every amp with and without checkpoints, in one batch and in micro-batches (N, or else 4).
    #[arg(long, value_enum, conflicts_with_all = ["checkpoint", "amp"])]
    pub compare: Option<Compare>,
    /// Another CSV of digits: 64 pixels from 0 to 16 a line, then the label.
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Measure steps on random inputs of fixed shapes instead of training on digits.
    #[arg(long, conflicts_with_all = ["data", "epochs"])]
    pub synthetic: bool,
    /// With --synthetic: write the allocator's events of the first timed step to a file, one a line.
    #[arg(long, value_name = "PATH", requires = "synthetic")]
    pub event_log: Option<PathBuf>,
    /// Print each row of the table as a line of JSON on stdout, and everything else on stderr.
    #[arg(long)]
    pub json: bool,
}

/// Matrix products in 16 bits or not.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Amp {
    Off,
    F16,
    Bf16,
}

impl Amp {
    /// The type that autocast is given; F32 is autocast off.
    pub fn dtype(self) -> DType {
        match self {
            Amp::Off => DType::F32,
            Amp::F16 => DType::F16,
            Amp::Bf16 => DType::BF16,
        }
    }
}

/// Whether activations are recomputed.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Checkpoint {
    Off,
    On,
    Compare,
}

/// What to run besides.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Compare {
    All,
}

/// One way to train: a row of the table.
#[derive(Clone, Copy, PartialEq)]
pub struct Setting {
    pub amp: Amp,
    pub checkpoint: bool,
    pub accumulate: usize,
}

impl Setting {
    /// As in `f16+ckpt+accum4`.
    pub fn name(&self) -> String {
        let checkpoint = if self.checkpoint { "+ckpt" } else { "" };
        let accumulate = if self.accumulate > 1 { format!("+accum{}", self.accumulate) } else { String::new() };
        format!("{}{checkpoint}{accumulate}", self.amp.dtype())
    }
}

impl Training {
    /// The settings asked for, each after the one it is compared with.
    pub fn settings(&self) -> Vec<Setting> {
        let all = self.compare == Some(Compare::All);
        let amps = if all { vec![Amp::Off, Amp::F16, Amp::Bf16] } else { vec![self.amp] };
        let parts = match (all, self.accumulate) {
            (false, n) => vec![n],
            (true, 1) => vec![1, 4],
            (true, n) => vec![1, n],
        };
        let checkpoints = match self.checkpoint {
            _ if all => vec![false, true],
            Checkpoint::Off => vec![false],
            Checkpoint::On => vec![true],
            Checkpoint::Compare => vec![false, true],
        };
        let mut settings = Vec::new();
        for &amp in &amps {
            for &accumulate in &parts {
                settings.extend(checkpoints.iter().map(|&checkpoint| Setting { amp, checkpoint, accumulate }));
            }
        }
        settings
    }

    /// Refuses more micro-batches than a batch has examples.
    pub fn check_batch(&self, batch: usize) -> Result<()> {
        match self.settings().iter().map(|setting| setting.accumulate).find(|&parts| parts > batch) {
            Some(parts) => {
                let message = format!(
                    "a batch of {batch} cannot be cut into {parts} micro-batches; take at most {batch}, or a larger --batch"
                );
                Err(Error::argument("--accumulate", message))
            }
            None => Ok(()),
        }
    }

    /// A line of narration: on stdout, or on stderr where stdout is for JSON.
    pub fn say(&self, line: &str) {
        if self.json { note(line) } else { out(line) }
    }
}

/// A whole number of at least 1.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n >= 1 => Ok(n),
        _ => Err("a whole number of at least 1 is wanted".into()),
    }
}

/// A finite number above 0.
pub fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x > 0.0 => Ok(x),
        _ => Err("a number above 0 is wanted".into()),
    }
}

fn bytes(text: &str) -> Result<usize, String> {
    parse_bytes(text).map_err(|e| e.to_string())
}
