//! `h' = tanh(x·W_ihᵀ + b_ih + h·W_hhᵀ + b_hh)`.

use super::cell::{Cell, Gates, zeros};
use super::rnn_block::rnn_block;
use crate::Params;
use kiln_tensor::{DType, Device, Error, Result, Tensor, modes};

/// The cell of a plain recurrent network. Its state is `h`.
#[derive(Clone, Debug)]
pub struct RnnCell {
    gates: Gates,
}

impl RnnCell {
    /// A cell from `[batch, inputs]` and `[batch, hidden]` to `[batch, hidden]`.
    ///
    /// # Errors
    /// Where the path is taken; out of memory.
    #[track_caller]
    pub fn new(inputs: usize, hidden: usize, params: &Params) -> Result<RnnCell> {
        RnnCell::create(inputs, hidden, params, "")
    }
    /// One step from `x` and `h`.
    ///
    /// # Errors
    /// Where shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, h: &Tensor) -> Result<Tensor> {
        modes::here(|| self.step(&self.project(x)?, h))
    }
}

impl Cell for RnnCell {
    type State = Tensor;

    #[track_caller]
    fn create(inputs: usize, hidden: usize, params: &Params, suffix: &str) -> Result<RnnCell> {
        Ok(RnnCell { gates: Gates::create(1, inputs, hidden, params, suffix)? })
    }
    fn sizes(&self) -> (usize, usize) {
        self.gates.sizes()
    }
    fn project(&self, x: &Tensor) -> Result<Tensor> {
        self.gates.project_with_both(x)
    }
    fn step(&self, projected: &Tensor, h: &Tensor) -> Result<Tensor> {
        projected.add(&h.linear(&self.gates.weight_hh, None)?)?.tanh()
    }
    /// One op for all steps, see `rnn_block`.
    fn steps(&self, projected: &Tensor, h: Tensor, _: bool) -> Result<(Vec<Tensor>, Tensor)> {
        let (outputs, last) = rnn_block(projected, &h, &self.gates.weight_hh)?;
        Ok((vec![outputs.flatten(0, -2)?], last))
    }
    fn output(h: &Tensor) -> &Tensor {
        h
    }
    fn tensors(h: &Tensor) -> Vec<Tensor> {
        vec![h.clone()]
    }
    fn state(tensors: &[Tensor]) -> Result<Tensor> {
        tensors.first().cloned().ok_or_else(|| Error::argument("rnn", "a state is one tensor"))
    }
    fn zero_state(&self, dims: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
        zeros(dims, self.sizes().1, dtype, device)
    }
}
