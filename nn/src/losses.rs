//! Losses, as functions; each is a method of [`Tensor`] too.

use kiln_tensor::{Result, Tensor};

/// Mean over rows of `-log softmax(logits)[target]`; logits `[rows, classes]`, targets `[rows]` of classes as i64 (probabilities are no
/// targets). [`Tensor::cross_entropy_with`] has more choices.
///
/// # Errors
/// Where shapes or types do not fit.
#[track_caller]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    logits.cross_entropy(targets)
}

/// Mean over all elements of `(x - target)^2`.
///
/// # Errors
/// Where shapes or types do not fit.
#[track_caller]
pub fn mse_loss(x: &Tensor, target: &Tensor) -> Result<Tensor> {
    x.mse_loss(target)
}
