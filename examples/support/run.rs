//! Runs one setting after another on a device that holds nothing else, and compares them.

use super::cli::{Setting, Training};
use super::say::{note, out};
use super::table::{self, Row};
use kiln::{Category, Device, Error, Result};

/// What training under one setting gave.
#[derive(Default)]
pub struct Outcome {
    /// The loss of every micro-batch in order; empty on a dry run, which has none.
    pub curve: Vec<f32>,
    /// The last epoch's or step's loss.
    pub final_loss: Option<f64>,
    /// On the test set, where there is one.
    pub accuracy: Option<f64>,
    /// Milliseconds of every optimizer step.
    pub step_ms: Vec<f64>,
    /// Bytes reserved at the end of every epoch.
    pub reserved: Vec<usize>,
}

/// Trains under every setting that the flags ask for, and prints the table.
///
/// # Errors
/// What training says, and where memory is left allocated after it.
pub fn compare(
    flags: &Training,
    workload: &'static str,
    device: &Device,
    train: impl Fn(&Setting) -> Result<Outcome>,
) -> Result<()> {
    if flags.event_log.is_some() && flags.settings().len() != 1 {
        return Err(Error::argument(
            "--event-log",
            "holds the events of one setting: say --checkpoint off or on, without --compare",
        ));
    }
    let mut rows: Vec<(Setting, Row, Vec<f32>)> = Vec::new();
    for setting in flags.settings() {
        device.empty_cache()?;
        device.manual_seed(flags.place.seed);
        device.reset_peak_memory_stats();
        let outcome = train(&setting);
        // Everything the run made is dropped by now, after an error too.
        let left = device.memory_stats().allocated_outside_workspace();
        let outcome = outcome?;
        if left != 0 {
            return Err(Error::message(format!("{} left {left} bytes allocated outside workspace", setting.name())));
        }
        note(&format!("{}: every byte was given back (0 outside workspace)", setting.name()));
        say_reserved(&setting, &outcome.reserved);
        let plain = rows.iter().find(|(s, ..)| *s == Setting { checkpoint: false, ..setting } && setting.checkpoint);
        let equal = plain.filter(|_| !outcome.curve.is_empty()).map(|(.., curve)| bits(curve) == bits(&outcome.curve));
        let row = row(workload, device, &setting, &outcome, equal);
        if flags.json {
            out(&row.json());
        }
        rows.push((setting, row, outcome.curve));
    }
    if !flags.json {
        let rows: Vec<Row> = rows.iter().map(|(_, row, _)| row.clone()).collect();
        out(&format!("\n{}", table::text(&rows)));
    }
    for pair in rows.windows(2).filter(|pair| !pair[0].0.checkpoint && pair[1].0.checkpoint) {
        flags.say(&table::verdict(&pair[0].1, &pair[1].1));
    }
    Ok(())
}

fn row(workload: &'static str, device: &Device, setting: &Setting, outcome: &Outcome, bit_equal: Option<bool>) -> Row {
    let stats = device.memory_stats();
    Row {
        workload,
        mode: setting.name(),
        device: device.name().into(),
        accuracy: outcome.accuracy,
        final_loss: outcome.final_loss,
        step_ms: (!device.is_dry_run()).then(|| median(&outcome.step_ms)),
        peak_alloc: stats.allocated.peak,
        peak_activation: stats.category(Category::Activations).peak,
        peak_reserved: stats.reserved.peak,
        bit_equal,
    }
}

fn say_reserved(setting: &Setting, reserved: &[usize]) {
    let Some((first, later)) = reserved.split_first().filter(|(_, later)| !later.is_empty()) else { return };
    let name = setting.name();
    match later.iter().position(|bytes| bytes != first) {
        None => note(&format!("{name}: reserved memory was flat from epoch 2 on")),
        Some(i) => {
            eprintln!("{name}: reserved memory went from {first} bytes after epoch 1 to {} after epoch {}", later[i], i + 2)
        }
    }
}

fn bits(curve: &[f32]) -> Vec<u32> {
    curve.iter().map(|x| x.to_bits()).collect()
}

/// The middle one, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}
