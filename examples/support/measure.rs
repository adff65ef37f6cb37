//! Times steps on random inputs, and writes down what the allocator did in one.

use super::cli::Training;
use super::run::Outcome;
use super::score::read;
use kiln::alloc::LogEvent;
use kiln::{Device, Error, Result, Tensor};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

/// How often to run.
pub struct Repeats {
    /// Steps before the clock runs and the peaks count.
    pub warm_up: usize,
    /// Steps under the clock.
    pub timed: usize,
    /// Optimizer updates of one step.
    pub updates: usize,
}

/// Times a step, which returns its losses. The device is idle before and after each.
pub fn measure(
    device: &Device,
    flags: &Training,
    repeats: Repeats,
    mut step: impl FnMut() -> Result<Vec<Tensor>>,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for i in 0..repeats.warm_up + repeats.timed {
        let first = i == repeats.warm_up;
        if first {
            device.reset_peak_memory_stats();
        }
        let log = flags.event_log.as_deref().filter(|_| first);
        if log.is_some() {
            device.start_event_log();
        }
        let start = Instant::now();
        let losses = step()?;
        device.synchronize()?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        if let Some(path) = log {
            write_events(path, &device.take_event_log())?;
        }
        if i >= repeats.warm_up {
            outcome.step_ms.push(ms);
        }
        // Reading takes no memory of the device: a dry run, which has nothing to read, has the same events.
        let values = read(&losses)?;
        outcome.final_loss =
            (!values.is_empty()).then(|| values.iter().map(|&x| f64::from(x)).sum::<f64>() / repeats.updates as f64);
        outcome.curve.extend(values);
    }
    Ok(outcome)
}

fn write_events(path: &Path, events: &[LogEvent]) -> Result<()> {
    let mut text = String::new();
    for event in events {
        // Writing to a string does not fail.
        let _ = match event {
            LogEvent::Alloc { id, bytes, stream, category } => {
                writeln!(text, "alloc {id} {bytes} stream {} {}", stream.0, category.name())
            }
            LogEvent::Free { id } => writeln!(text, "free {id}"),
        };
    }
    std::fs::write(path, text).map_err(|e| Error::File { path: path.display().to_string(), message: e.to_string() })
}
