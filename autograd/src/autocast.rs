//! Mixed precision by scope.

use kiln_tensor::{DType, Error, Result, modes};

/// Runs `f` with the matmul family in a 16-bit type: matmuls, linear layers and cells cast their f32 inputs to `dtype` and accumulate in f32;
/// exponentials, logarithms and powers run in f32; softmax, norms, losses and sums compute in f32 inside. A weight is cast once for each version of
/// it. Gradients of parameters stay f32; in F16 small ones vanish unless the loss is scaled (`GradScaler`). `DType::F32` turns autocast off for the
/// length of `f`. The mode is restored on return, error and panic, and a checkpoint recomputes under the mode of its forward.
///
/// # Errors
/// For a type other than F16, BF16 and F32, and what `f` returns.
pub fn autocast<R>(dtype: DType, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let low = match dtype {
        DType::F16 | DType::BF16 => Some(dtype),
        DType::F32 => None,
        other => {
            return Err(Error::dtype(
                "autocast",
                format!("{other} is no type for mixed precision; use f16, bf16, or f32 to turn it off"),
            ));
        }
    };
    modes::scope(|m| m.autocast = low, f)
}
