//! Ops are values; [`apply`] is the one door through which every op enters, a user's own too.
//!
//! `apply` casts inputs where autocast is on, computes, and where an input wants a gradient asks the op what backward will read and records a node.

use crate::saved::{Saved, SavedTensors};
use crate::tape::{Edge, History, Node, OutputMeta};
use crate::tensor::Tensors;
use crate::{Device, Error, Result, Tensor, autocast, modes};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Gradients of an op's inputs, `None` where none is wanted.
pub type InputGrads = SmallVec<[Option<Tensor>; 3]>;
/// Gradients of an op's outputs, `None` where an output led to nothing.
pub type OutputGrads = SmallVec<[Option<Tensor>; 1]>;

/// Whether an op has a derivative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivative {
    /// Backward gives it.
    Defined,
    /// The outputs are piecewise constant (comparisons, indices): they carry no history.
    Discrete,
    /// There is none: calling the op on a tensor that wants a gradient is an error.
    Missing,
}

/// What autocast does to an op's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autocast {
    /// Nothing: the op takes any mix it can.
    Keep,
    /// f32 inputs are cast to the 16-bit type (the matmul family).
    Low,
    /// 16-bit inputs are cast to f32 (exp, log, powers).
    Full,
    /// Inputs of different float types are cast to the widest (binary ops).
    Widest,
}

/// What an op computed.
#[derive(Default)]
pub struct Outputs {
    /// The results, given to the caller.
    pub results: Tensors,
    /// Values only backward reads (statistics of a row, say).
    pub extra: Tensors,
}

impl From<Tensor> for Outputs {
    fn from(result: Tensor) -> Outputs {
        Outputs { results: SmallVec::from_iter([result]), extra: SmallVec::new() }
    }
}

/// An operation: immutable once made, so that it can be run again.
///
/// `forward` computes; `save` names what `backward` will read and nothing else; `backward` gives the gradients.
pub trait Op: Send + Sync + 'static {
    /// The name in messages, as `matmul`.
    fn name(&self) -> &'static str;
    /// Computes the outputs. Runs with history off.
    fn forward(&self, inputs: &[Tensor]) -> Result<Outputs>;
    /// Hands what backward will read to `keep`, in the order in which backward counts them.
    fn save(&self, inputs: &[Tensor], outputs: &Outputs, keep: &mut Keep<'_>) -> Result<()> {
        let _ = (inputs, outputs, keep);
        Ok(())
    }
    /// The gradients of the inputs; those not in `ctx.needs` stay `None`. Takes each saved tensor at most once.
    fn backward(&self, grads: OutputGrads, saved: &mut SavedTensors, ctx: &BackwardContext<'_>) -> Result<InputGrads>;
    /// Whether it has a derivative.
    fn derivative(&self) -> Derivative {
        Derivative::Defined
    }
    /// What autocast does to its inputs.
    fn autocast(&self) -> Autocast {
        Autocast::Keep
    }
}

/// Takes what an op saves for backward.
pub struct Keep<'a> {
    op: &'static str,
    needs: &'a [bool],
    saved: SavedTensors,
}

impl Keep<'_> {
    /// Whether input `i` wants a gradient.
    pub fn needs(&self, i: usize) -> bool {
        self.needs[i]
    }
    /// Saves a tensor.
    pub fn tensor(&mut self, tensor: &Tensor) -> Result<()> {
        self.saved.push(Saved::new(self.op, tensor)?);
        Ok(())
    }
}

/// What a backward is told.
pub struct BackwardContext<'a> {
    op: &'static str,
    needs: &'a [bool],
    edges: &'a [Edge],
    outputs: &'a [OutputMeta],
    device: &'a Device,
}

impl<'a> BackwardContext<'a> {
    pub(crate) fn new(
        op: &'static str,
        needs: &'a [bool],
        edges: &'a [Edge],
        outputs: &'a [OutputMeta],
        device: &'a Device,
    ) -> Self {
        BackwardContext { op, needs, edges, outputs, device }
    }
    /// Name of the op.
    pub fn op(&self) -> &'static str {
        self.op
    }
    /// Whether the gradient of input `i` is wanted now.
    pub fn needs(&self, i: usize) -> bool {
        self.needs[i]
    }
    /// Whether input `i` wanted a gradient when the op was recorded: what [`Keep::needs`] said, and so what was saved.
    pub fn recorded(&self, i: usize) -> bool {
        !matches!(self.edges[i], Edge::None)
    }
    /// The gradient of the only output.
    pub fn only(&self, grads: OutputGrads) -> Result<Tensor> {
        self.output(grads.into_iter().next().flatten(), 0)
    }
    /// The gradient of output `i`, zeros where it led to nothing.
    pub fn output(&self, grad: Option<Tensor>, i: usize) -> Result<Tensor> {
        match grad {
            Some(g) => Ok(g),
            None => Tensor::zeros(&self.outputs[i].shape, self.outputs[i].dtype, self.device),
        }
    }
}

/// Applies an op with one result.
///
/// # Errors
/// What the op says; operands on different devices; [`Error::NoDerivative`].
#[track_caller]
pub fn apply(op: impl Op, inputs: &[&Tensor]) -> Result<Tensor> {
    let mut results = apply_multi(op, inputs)?;
    match (results.pop(), results.is_empty()) {
        (Some(result), true) => Ok(result),
        _ => Err(Error::message("an op applied for one result gave another number of them")),
    }
}

/// Applies an op with any number of results.
#[track_caller]
pub fn apply_multi(op: impl Op, inputs: &[&Tensor]) -> Result<Tensors> {
    modes::here(|| apply_here(op, inputs))
}

fn apply_here(op: impl Op, inputs: &[&Tensor]) -> Result<Tensors> {
    let name = op.name();
    let (grad, casting) = modes::with(|m| match &m.stop {
        Some(stop) if stop.load(Ordering::Acquire) => Err(Error::EarlyStop),
        _ => Ok((m.grad, m.autocast)),
    })?;
    if let Some(other) = inputs.iter().skip(1).find(|t| t.device() != inputs[0].device()) {
        let message = format!("operands lie on {} and {}; move one with `to_device`", inputs[0].device(), other.device());
        return Err(Error::Device { op: name, message });
    }
    // A tensor without elements may have dims whose products overflow; no op takes it.
    for empty in inputs.iter().filter(|t| t.elem_count() == 0) {
        empty.shape().checked_elements(name, empty.dtype())?;
    }
    let inputs: SmallVec<[Tensor; 3]> = match casting {
        Some(low) => autocast::cast_inputs(op.autocast(), low, inputs).map_err(|e| e.in_op(name))?,
        None => inputs.iter().map(|&t| t.clone()).collect(),
    };
    let needs: SmallVec<[bool; 3]> = inputs.iter().map(|t| grad && t.tracked()).collect();
    // The node of this op is the whole history: ops that an op is made of leave none, and save nothing.
    let outputs = modes::unrecorded(|| op.forward(&inputs)).map_err(|e| e.in_op(name))?;
    if !needs.contains(&true) {
        return Ok(outputs.results);
    }
    match op.derivative() {
        Derivative::Defined => {}
        Derivative::Discrete => return Ok(outputs.results),
        Derivative::Missing => return Err(Error::NoDerivative { op: name }),
    }
    if let Some(policy) = modes::with(|m| m.saved.clone()) {
        policy.used(name, &inputs)?;
    }
    let mut keep = Keep { op: name, needs: &needs, saved: SavedTensors::default() };
    op.save(&inputs, &outputs, &mut keep).map_err(|e| e.in_op(name))?;
    let saved = keep.saved;
    let edges = inputs.iter().zip(&needs).map(|(t, &needed)| if needed { t.edge() } else { Edge::None }).collect();
    let metas = outputs.results.iter().map(|t| OutputMeta { shape: t.shape(), dtype: t.dtype() }).collect();
    let device = inputs[0].device().clone();
    let stream = device.stream();
    let node = Arc::new(Node::new(Arc::new(op), edges, metas, saved, (device, stream), modes::site()));
    let wrap = |(i, t): (usize, Tensor)| if t.dtype().is_float() { t.with_history(History::Node(node.clone(), i)) } else { t };
    Ok(outputs.results.into_iter().enumerate().map(wrap).collect())
}
