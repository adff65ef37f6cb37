//! `Recurrent`: a cell along a sequence, with or without checkpoints.

use super::BLOCK;
use super::cell::Cell;
use crate::{Module, Params};
use kiln_autograd::checkpoint_fn;
use kiln_tensor::{Error, Result, Shape, Tensor, modes};

/// A cell applied along the first dim of `[time, batch, inputs]`. Parameters are named as those of PyTorch's `nn.RNN` and its like: `weight_ih_l0`, ..
///
/// ```
/// # use kiln_nn::{Lstm, Params};
/// # use kiln_tensor::{Device, DType, Tensor};
/// let device = Device::cpu();
/// let lstm = Lstm::new(3, 5, &Params::new(&device))?.checkpoint_every(16);
/// let x = Tensor::ones((40, 2, 3), DType::F32, &device)?;
/// let (outputs, (h, c)) = lstm.run(&x, None)?;
/// assert_eq!((outputs.dims(), h.dims(), c.dims()), (&[40, 2, 5][..], &[2, 5][..], &[2, 5][..]));
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recurrent<C> {
    cell: C,
    checkpoint: Option<usize>,
}

impl<C: Cell> Recurrent<C> {
    /// A cell from inputs of size `inputs` to a state of size `hidden`.
    ///
    /// # Errors
    /// Where the path is taken; out of memory.
    #[track_caller]
    pub fn new(inputs: usize, hidden: usize, params: &Params) -> Result<Recurrent<C>> {
        Ok(Recurrent { cell: C::create(inputs, hidden, params, "_l0")?, checkpoint: None })
    }
    /// Along sequences of a cell that exists.
    pub fn from_cell(cell: C) -> Recurrent<C> {
        Recurrent { cell, checkpoint: None }
    }
    /// Keeps nothing of the forward pass but the state after every `steps` steps; backward works each such part out again. `steps` is rounded up to
    /// whole blocks of 8, so that results are equal bit for bit to those without checkpoints. About `sqrt(2 * time)` takes the least memory.
    #[must_use]
    pub fn checkpoint_every(self, steps: usize) -> Recurrent<C> {
        Recurrent { checkpoint: Some(steps.max(1).next_multiple_of(BLOCK)), ..self }
    }
    /// The cell.
    pub fn cell(&self) -> &C {
        &self.cell
    }

    /// The outputs of all steps, `[time, batch, hidden]`, and the last state, from `state` or zeros.
    ///
    /// # Errors
    /// Where shapes do not fit, or there is no step.
    #[track_caller]
    pub fn run(&self, x: &Tensor, state: Option<&C::State>) -> Result<(Tensor, C::State)> {
        modes::here(|| {
            let (pieces, state) = self.work_through(x, state, true)?;
            let (time, batch, _) = x.dims3()?;
            Ok((joined(&pieces)?.reshape((time, batch, self.cell.sizes().1))?, state))
        })
    }
    /// The state after the last step, from `state` or zeros; outputs are not put together.
    ///
    /// # Errors
    /// As [`Recurrent::run`].
    #[track_caller]
    pub fn last(&self, x: &Tensor, state: Option<&C::State>) -> Result<C::State> {
        Ok(modes::here(|| self.work_through(x, state, false))?.1)
    }

    fn work_through(&self, x: &Tensor, state: Option<&C::State>, keep: bool) -> Result<(Vec<Tensor>, C::State)> {
        let (time, batch, inputs) = x.dims3()?;
        let (expected, hidden) = self.cell.sizes();
        if time == 0 || inputs != expected {
            let message = format!("an input of shape {} is not [time, batch, {expected}] with at least one step", x.shape());
            return Err(Error::shape("recurrent", message));
        }
        let given = match state {
            Some(state) => C::tensors(state).iter().map(|t| in_sequence(t, batch, hidden)).collect::<Result<Vec<_>>>()?,
            None => Vec::new(),
        };
        let (pieces, state) = match self.checkpoint {
            Some(steps) if modes::is_grad_enabled() => self.with_checkpoints(x, given, keep, steps)?,
            _ => blocks(&self.cell, x, &given, keep)?,
        };
        let last = C::tensors(&state).iter().map(|t| t.reshape((batch, hidden))).collect::<Result<Vec<_>>>()?;
        Ok((pieces, C::state(&last)?))
    }

    fn with_checkpoints(&self, x: &Tensor, mut state: Vec<Tensor>, keep: bool, steps: usize) -> Result<(Vec<Tensor>, C::State)> {
        let mut pieces = Vec::new();
        for chunk in parts(x, steps)? {
            let cell = self.cell.clone();
            let inputs: Vec<&Tensor> = std::iter::once(&chunk).chain(&state).collect();
            let (piece, last) = checkpoint_fn(&inputs, move |inputs| {
                let (pieces, last) = blocks(&cell, &inputs[0], &inputs[1..], keep)?;
                let piece = if keep { Some(joined(&pieces)?) } else { None };
                Ok((piece, C::tensors(&last).iter().map(alone).collect::<Result<Vec<_>>>()?))
            })?;
            pieces.extend(piece);
            state = last;
        }
        Ok((pieces, C::state(&state)?))
    }
}

/// A state of a user's as steps inside a sequence take it: `[1, batch, hidden]`.
fn in_sequence(t: &Tensor, batch: usize, hidden: usize) -> Result<Tensor> {
    if t.dims() != [batch, hidden] {
        let wanted = Shape::from((batch, hidden));
        return Err(Error::shape("recurrent", format!("a state of shape {} was given where {wanted} is expected", t.shape())));
    }
    t.reshape((1, batch, hidden))
}

/// Works through a sequence block by block, from zeros where `state` is empty.
fn blocks<C: Cell>(cell: &C, x: &Tensor, state: &[Tensor], keep: bool) -> Result<(Vec<Tensor>, C::State)> {
    let mut state = if state.is_empty() { None } else { Some(C::state(state)?) };
    let mut outputs = Vec::new();
    for block in parts(x, BLOCK)? {
        let projected = cell.project(&block)?;
        let from = match state.take() {
            Some(state) => state,
            None => cell.zero_state(&[1, x.dims()[1]], projected.dtype(), x.device())?,
        };
        let (pieces, last) = cell.steps(&projected, from, keep)?;
        if keep {
            outputs.extend(pieces);
        }
        state = Some(last);
    }
    state.map(|last| (outputs, last)).ok_or_else(|| Error::shape("recurrent", "a sequence of no steps"))
}

/// The tensor in memory of its own, so that a state kept for long does not keep the outputs it lies among.
fn alone(t: &Tensor) -> Result<Tensor> {
    if t.storage().bytes() > t.elem_count() * t.dtype().size() { t.copy() } else { Ok(t.clone()) }
}

/// The pieces one after the other; one alone as it is.
fn joined(pieces: &[Tensor]) -> Result<Tensor> {
    if let [piece] = pieces { Ok(piece.clone()) } else { Tensor::cat(pieces, 0) }
}

/// The sequence in parts of `steps` steps, the last one shorter.
fn parts(x: &Tensor, steps: usize) -> Result<Vec<Tensor>> {
    let time = x.dims()[0];
    if time <= steps {
        return Ok(vec![x.clone()]);
    }
    let sizes: Vec<usize> = (0..time.div_ceil(steps)).map(|i| steps.min(time - i * steps)).collect();
    x.split(&sizes, 0)
}

impl<C: Cell> Module for Recurrent<C> {
    /// The outputs of all steps, from zeros.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.run(x, None)?.0)
    }
    fn is_layer(&self) -> bool {
        true
    }
}
