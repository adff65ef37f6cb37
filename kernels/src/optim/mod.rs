//! Optimizer updates, in place; what changes between steps is read from device memory, so that a captured step can be replayed.
//!
//! An optimizer keeps a block of [`HYPER`] f64 numbers: `[0]` learning rate, `[1]` steps done (advanced by [`Advance`]).
//! A loss scaler keeps [`SCALER`] f32 numbers: `[0]` scale, `[1]` clean steps since the last change, `[2]` found-inf of this step (0 or 1).

use crate::{Arg, OutArg};

mod cpu;
mod cuda;

pub(crate) use cuda::sources;

/// Length of an optimizer's block, in f64 elements.
pub const HYPER: usize = 2;
/// Length of a loss scaler's block, in f32 elements.
pub const SCALER: usize = 3;

/// Counts a step: `hyper[1] += 1`, unless the scaler found an inf.
pub struct Advance<'a> {
    /// The optimizer's block.
    pub hyper: OutArg<'a>,
    /// The scaler's block, where one is used.
    pub scaler: Option<Arg<'a>>,
}

/// SGD with momentum, as PyTorch: `g += weight_decay * p; buf = momentum * buf + (1 - dampening) * g` (the first step sets `buf = g`);
/// `g = nesterov ? g + momentum * buf : buf; p -= lr * g`. Nothing happens where the scaler found an inf.
pub struct Sgd<'a> {
    /// Parameter, contiguous, any float type (math in f32, f64 for f64).
    pub p: OutArg<'a>,
    /// Gradient, contiguous, a float type.
    pub g: Arg<'a>,
    /// Momentum buffer, contiguous f32 (f64 for f64 parameters), zeros at first; `None` without momentum.
    pub momentum_buffer: Option<OutArg<'a>>,
    /// The optimizer's block, after [`Advance`] (so its step count is 1 in the first step).
    pub hyper: Arg<'a>,
    /// The scaler's block.
    pub scaler: Option<Arg<'a>>,
    /// Factor of the momentum buffer.
    pub momentum: f64,
    /// Part of the gradient kept out of the buffer.
    pub dampening: f64,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Nesterov's look-ahead.
    pub nesterov: bool,
}

/// Adam and AdamW, as PyTorch (no amsgrad): with `t` the step count,
/// decoupled: `p -= lr * weight_decay * p` first; else `g += weight_decay * p`; then
/// `m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²; p -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)`.
/// Bias corrections are computed in f64. Nothing happens where the scaler found an inf.
pub struct Adam<'a> {
    /// Parameter, contiguous, any float type (math in f32, f64 for f64).
    pub p: OutArg<'a>,
    /// Gradient, contiguous, a float type.
    pub g: Arg<'a>,
    /// First moment, contiguous f32 (f64 for f64 parameters).
    pub m: OutArg<'a>,
    /// Second moment, likewise.
    pub v: OutArg<'a>,
    /// The optimizer's block, after [`Advance`].
    pub hyper: Arg<'a>,
    /// The scaler's block.
    pub scaler: Option<Arg<'a>>,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// L2 penalty or decoupled decay.
    pub weight_decay: f64,
    /// Decay the weights themselves (AdamW) instead of adding to the gradient.
    pub decoupled: bool,
}

/// Multiplies a gradient by `1 / scale` (the reciprocal taken in f64, then f32) in place and sets found-inf where any element of it is inf or NaN.
pub struct Unscale<'a> {
    /// Gradient, contiguous, f32 or f64.
    pub g: OutArg<'a>,
    /// The scaler's block.
    pub scaler: OutArg<'a>,
}

/// After a step: with found-inf, `scale *= backoff` and the count is 0; else the count grows, and at `interval` the scale is multiplied
/// by `growth` (only where the product is finite) and the count is 0. Found-inf is cleared.
pub struct UpdateScale<'a> {
    /// The scaler's block.
    pub scaler: OutArg<'a>,
    /// Factor after `interval` clean steps.
    pub growth: f64,
    /// Factor after an overflow.
    pub backoff: f64,
    /// Clean steps between growths.
    pub interval: u32,
}

impl crate::Kernel for Advance<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::advance(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::advance(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for Sgd<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::sgd(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::sgd(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for Adam<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::adam(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::adam(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for Unscale<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::unscale(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::unscale(self, cuda, stream, workspace)
    }
}

impl crate::Kernel for UpdateScale<'_> {
    fn cpu(self) -> crate::Result<()> {
        cpu::update_scale(self)
    }
    fn cuda(
        self,
        cuda: &crate::cuda::Cuda,
        stream: &kiln_alloc::Stream,
        workspace: Option<&mut kiln_alloc::Write<'_>>,
    ) -> crate::Result<()> {
        cuda::update_scale(self, cuda, stream, workspace)
    }
}
