//! Reading results back. Each read waits for the device, and a dry run has nothing to read.

use kiln::{Result, Tensor};

/// Losses as numbers; none on a dry run.
pub fn read(losses: &[Tensor]) -> Result<Vec<f32>> {
    losses.iter().filter(|loss| !loss.device().is_dry_run()).map(|loss| loss.to_scalar()).collect()
}

/// How many of `[n, 10]` logits are largest at their label; unknown on a dry run.
pub fn count_right(logits: &Tensor, labels: &Tensor) -> Result<Option<usize>> {
    if logits.device().is_dry_run() {
        return Ok(None);
    }
    let guess = |row: &Vec<f32>| row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(-1, |(i, _)| i as i64);
    let (rows, labels) = (logits.to_vec2::<f32>()?, labels.to_vec1::<i64>()?);
    Ok(Some(rows.iter().zip(&labels).filter(|(row, label)| guess(row) == **label).count()))
}

/// The share of logits that are largest at their label; unknown on a dry run.
pub fn accuracy(logits: &Tensor, labels: &Tensor) -> Result<Option<f64>> {
    Ok(count_right(logits, labels)?.map(|right| right as f64 / labels.elem_count() as f64))
}
