//! Sequences of changing length: runs of one to eight digits, read row by row; the label is the last digit.

use super::digits::{Digits, PIXELS, Shuffle};
use kiln::nn::{BatchRequest, DataLoader, Dataset, HostTensor};
use kiln::{Device, Result};

/// Pixels of a row: what the network sees in one time step.
pub const ROW: usize = 8;
/// Digits of the longest run.
pub const LONGEST: usize = 8;

/// Every digit as the last of a run of each length: sample `(run - 1) * digits + last`. The digits before the last are random, others in each epoch.
struct Runs(Digits);

impl Dataset for Runs {
    fn len(&self) -> usize {
        LONGEST * self.0.len()
    }

    /// `[steps, sequences, 8]` and `[sequences]`, of samples that have the same length.
    fn batch(&self, request: &BatchRequest<'_>) -> Result<(HostTensor, HostTensor)> {
        let (digits, samples) = (&self.0, request.indices());
        let run = samples.first().map_or(1, |sample| sample / digits.len() + 1);
        let mut x = request.tensor::<f32>((run * PIXELS / ROW, samples.len(), ROW))?;
        let rows = x.as_mut_slice::<f32>()?;
        let mut labels = Vec::new();
        for (sequence, &sample) in samples.iter().enumerate() {
            let mut random = Shuffle(request.sample_seed(sample));
            for position in 0..run {
                let digit = if position + 1 == run { sample % digits.len() } else { random.below(digits.len()) };
                for (r, row) in digits.pixels[digit].chunks(ROW).enumerate() {
                    let at = ((position * PIXELS / ROW + r) * samples.len() + sequence) * ROW;
                    rows[at..at + ROW].copy_from_slice(row);
                }
            }
            labels.push(digits.labels[sample % digits.len()]);
        }
        Ok((x, request.tensor_from(&labels, labels.len())?))
    }
}

/// Batches of runs on a device: in an epoch every digit is the last of one run, all runs of a batch have one length, and every eight batches have all eight.
/// A batch comes as `parts` micro-batches.
pub fn loader(digits: &Digits, batch: usize, parts: usize, seed: u64, device: &Device) -> Result<DataLoader> {
    let n = digits.len();
    let batches = move |epoch: u64| {
        let mut random = Shuffle(seed.wrapping_add(epoch << 32));
        let mut order: Vec<usize> = (0..n).collect();
        random.shuffle(&mut order);
        let mut runs = Vec::new();
        let mut batches = Vec::new();
        for digits in order.chunks(batch) {
            if runs.is_empty() {
                runs.extend(0..LONGEST);
                random.shuffle(&mut runs);
            }
            let run = runs.pop().unwrap_or(0);
            batches.extend(digits.chunks(batch.div_ceil(parts)).map(|part| part.iter().map(|digit| run * n + digit).collect()));
        }
        batches
    };
    DataLoader::new(Runs(digits.clone())).seed(seed).sampler(batches).workers(1).pin_memory(device)
}
