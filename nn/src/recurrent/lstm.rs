//! With `g = W_ih x + b_ih + W_hh h + b_hh` in four parts i, f, g, o: `c' = σ(f) c + σ(i) tanh(g)`, `h' = σ(o) tanh(c')`.

use super::cell::{Cell, Gates, zeros};
use crate::Params;
use kiln_tensor::{DType, Device, Error, Result, Tensor, modes};

/// The cell of a long short-term memory. Its state is `(h, c)`.
#[derive(Clone, Debug)]
pub struct LstmCell {
    gates: Gates,
}

impl LstmCell {
    /// A cell from `[batch, inputs]` and two `[batch, hidden]` to two `[batch, hidden]`.
    ///
    /// # Errors
    /// Where the path is taken; out of memory.
    #[track_caller]
    pub fn new(inputs: usize, hidden: usize, params: &Params) -> Result<LstmCell> {
        LstmCell::create(inputs, hidden, params, "")
    }
    /// One step from `x` and `(h, c)`.
    ///
    /// # Errors
    /// Where shapes do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: &(Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
        modes::here(|| self.step(&self.project(x)?, state))
    }
}

impl Cell for LstmCell {
    type State = (Tensor, Tensor);

    #[track_caller]
    fn create(inputs: usize, hidden: usize, params: &Params, suffix: &str) -> Result<LstmCell> {
        Ok(LstmCell { gates: Gates::create(4, inputs, hidden, params, suffix)? })
    }
    fn sizes(&self) -> (usize, usize) {
        self.gates.sizes()
    }
    fn project(&self, x: &Tensor) -> Result<Tensor> {
        self.gates.project_with_both(x)
    }
    fn step(&self, projected: &Tensor, (h, c): &(Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
        let n = self.sizes().1;
        let parts = projected.add(&h.linear(&self.gates.weight_hh, None)?)?.split(&[2 * n, n, n], -1)?;
        let input_forget = parts[0].sigmoid()?.split(&[n, n], -1)?;
        let c = input_forget[1].mul(c)?.add(&input_forget[0].mul(&parts[1].tanh()?)?)?;
        let h = parts[2].sigmoid()?.mul(&c.tanh()?)?;
        Ok((h, c))
    }
    fn output((h, _): &(Tensor, Tensor)) -> &Tensor {
        h
    }
    fn tensors((h, c): &(Tensor, Tensor)) -> Vec<Tensor> {
        vec![h.clone(), c.clone()]
    }
    fn state(tensors: &[Tensor]) -> Result<(Tensor, Tensor)> {
        match tensors {
            [h, c, ..] => Ok((h.clone(), c.clone())),
            _ => Err(Error::argument("lstm", "a state is two tensors")),
        }
    }
    fn zero_state(&self, dims: &[usize], dtype: DType, device: &Device) -> Result<(Tensor, Tensor)> {
        let make = || zeros(dims, self.sizes().1, dtype, device);
        Ok((make()?, make()?))
    }
}
