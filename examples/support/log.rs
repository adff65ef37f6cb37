//! What a training run on digits tells while it goes on.

use super::cli::{Setting, Training};
use super::run::Outcome;
use super::score::read;
use super::table::{number, percent};
use indicatif::{ProgressBar, ProgressStyle};
use kiln::{Device, Result, Tensor};

/// The record of a run.
pub struct Log<'a> {
    flags: &'a Training,
    name: String,
    bar: ProgressBar,
    /// Losses of this epoch, still on the device: reading each at once would make every step wait for the one before.
    pending: Vec<Tensor>,
    updates: usize,
    outcome: Outcome,
}

impl<'a> Log<'a> {
    /// Nothing yet.
    pub fn new(flags: &'a Training, setting: &Setting) -> Log<'a> {
        let name = setting.name();
        Log { flags, name, bar: ProgressBar::hidden(), pending: Vec::new(), updates: 0, outcome: Outcome::default() }
    }

    /// An epoch of `steps` begins: a progress bar on stderr, where that is a terminal.
    pub fn start(&mut self, epoch: usize, steps: usize) {
        let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}").unwrap_or_else(|_| ProgressStyle::default_bar());
        let message = format!("{}: epoch {}/{}", self.name, epoch + 1, self.flags.epochs);
        self.bar = ProgressBar::new(steps as u64).with_style(style).with_message(message);
    }

    /// The losses of one optimizer step.
    pub fn step(&mut self, losses: Vec<Tensor>) {
        self.pending.extend(losses);
        self.updates += 1;
        self.bar.inc(1);
    }

    /// The epoch is over: says its mean loss, the accuracy on the test set and what is reserved.
    pub fn end(&mut self, epoch: usize, device: &Device, accuracy: Option<f64>) -> Result<()> {
        self.bar.finish_and_clear();
        let losses = read(&self.pending)?;
        self.pending.clear();
        let updates = std::mem::take(&mut self.updates);
        let out = &mut self.outcome;
        out.final_loss = (!losses.is_empty()).then(|| losses.iter().map(|&x| f64::from(x)).sum::<f64>() / updates as f64);
        out.accuracy = accuracy;
        out.curve.extend(losses);
        out.reserved.push(device.memory_stats().reserved.current);
        if device.is_dry_run() {
            // Nothing to tell of each epoch.
            if epoch + 1 == self.flags.epochs {
                self.flags.say(&format!("{:<16} a dry run of {} epochs: no losses and no accuracy", self.name, epoch + 1));
            }
            return Ok(());
        }
        let (loss, accuracy) = (number(out.final_loss), percent(accuracy));
        self.flags.say(&format!(
            "{:<16} epoch {:>2}/{}  loss {loss}  test accuracy {accuracy}",
            self.name,
            epoch + 1,
            self.flags.epochs
        ));
        Ok(())
    }

    /// What the run gave.
    pub fn outcome(self, step_ms: Vec<f64>) -> Outcome {
        Outcome { step_ms, ..self.outcome }
    }
}
