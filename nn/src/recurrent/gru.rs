//! `r = σ(W_ir x + b_ir + W_hr h + b_hr)`, `z = σ(W_iz x + b_iz + W_hz h + b_hz)`, `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`,
//! `h' = (1 - z) n + z h`. Gates lie in the order r, z, n.

use super::cell::{Cell, Gates, zeros};
use crate::Params;
use kiln_tensor::{DType, Device, Error, Result, Tensor, modes};

/// The cell of a gated recurrent network. Its state is `h`.
#[derive(Clone, Debug)]
pub struct GruCell {
    gates: Gates,
}

impl GruCell {
    /// A cell from `[batch, inputs]` and `[batch, hidden]` to `[batch, hidden]`.
    ///
    /// # Errors
    /// Where the path is taken; out of memory.
    #[track_caller]
    pub fn new(inputs: usize, hidden: usize, params: &Params) -> Result<GruCell> {
        GruCell::create(inputs, hidden, params, "")
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

impl Cell for GruCell {
    type State = Tensor;

    #[track_caller]
    fn create(inputs: usize, hidden: usize, params: &Params, suffix: &str) -> Result<GruCell> {
        Ok(GruCell { gates: Gates::create(3, inputs, hidden, params, suffix)? })
    }
    fn sizes(&self) -> (usize, usize) {
        self.gates.sizes()
    }
    fn project(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.gates.weight_ih, Some(&self.gates.bias_ih))
    }
    fn step(&self, projected: &Tensor, h: &Tensor) -> Result<Tensor> {
        let n = self.sizes().1;
        let from_x = projected.split(&[2 * n, n], -1)?;
        let from_h = h.linear(&self.gates.weight_hh, Some(&self.gates.bias_hh))?.split(&[2 * n, n], -1)?;
        let rz = from_x[0].add(&from_h[0])?.sigmoid()?.split(&[n, n], -1)?;
        let new = from_x[1].add(&rz[0].mul(&from_h[1])?)?.tanh()?;
        // (1 - z) n + z h
        new.add(&rz[1].mul(&h.sub(&new)?)?)
    }
    fn output(h: &Tensor) -> &Tensor {
        h
    }
    fn tensors(h: &Tensor) -> Vec<Tensor> {
        vec![h.clone()]
    }
    fn state(tensors: &[Tensor]) -> Result<Tensor> {
        tensors.first().cloned().ok_or_else(|| Error::argument("gru", "a state is one tensor"))
    }
    fn zero_state(&self, dims: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
        zeros(dims, self.sizes().1, dtype, device)
    }
}
