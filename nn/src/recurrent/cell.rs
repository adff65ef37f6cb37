//! `Cell`: one step of a recurrent network, and the parameters all cells have.

use crate::{Init, Parameter, Params};
use kiln_tensor::{DType, Device, Result, Tensor, modes};

/// One step of a recurrent network, split in what depends on the input alone and the rest, so that a sequence projects many inputs at once.
///
/// Steps work on any leading dims: `[batch, ..]`, or `[1, batch, ..]` inside a sequence.
pub trait Cell: Clone + Send + Sync + 'static {
    /// What a step hands to the next.
    type State: Clone + Send;

    /// A cell whose parameter names end in `suffix`: `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`.
    ///
    /// # Errors
    /// Where the path is taken; out of memory.
    #[track_caller]
    fn create(inputs: usize, hidden: usize, params: &Params, suffix: &str) -> Result<Self>;
    /// Size of the input and of the state.
    fn sizes(&self) -> (usize, usize);
    /// What a step needs of its input: `[.., inputs]` becomes `[.., gates]`.
    fn project(&self, x: &Tensor) -> Result<Tensor>;
    /// One step from a projected input.
    fn step(&self, projected: &Tensor, state: &Self::State) -> Result<Self::State>;
    /// What the step gives to the layer above.
    fn output(state: &Self::State) -> &Tensor;
    /// The tensors of a state.
    fn tensors(state: &Self::State) -> Vec<Tensor>;
    /// A state from tensors in the order of [`Cell::tensors`]; fewer than it has give an error.
    fn state(tensors: &[Tensor]) -> Result<Self::State>;
    /// The state before the first step: zeros of `dims` followed by the size of the state.
    fn zero_state(&self, dims: &[usize], dtype: DType, device: &Device) -> Result<Self::State>;

    /// Steps over projected inputs `[time, batch, gates]`: the outputs where `keep` asks for them, in pieces `[steps * batch, hidden]` in order of time, and
    /// the last state.
    fn steps(&self, projected: &Tensor, mut state: Self::State, keep: bool) -> Result<(Vec<Tensor>, Self::State)> {
        let mut outputs = Vec::new();
        for x in projected.split(&vec![1; projected.dims()[0]], 0)? {
            state = self.step(&x, &state)?;
            if keep {
                // A node of its own, older than the next step's: gradients meet in one order, whether a checkpoint ends here or not.
                outputs.push(Self::output(&state).flatten(0, -2)?);
            }
        }
        Ok((outputs, state))
    }
}

/// The parameters of a cell with `gates` gates, all uniform within `1 / sqrt(hidden)` as PyTorch's.
#[derive(Clone, Debug)]
pub(crate) struct Gates {
    pub(crate) weight_ih: Parameter,
    pub(crate) weight_hh: Parameter,
    pub(crate) bias_ih: Parameter,
    pub(crate) bias_hh: Parameter,
}

impl Gates {
    #[track_caller]
    pub(crate) fn create(gates: usize, inputs: usize, hidden: usize, params: &Params, suffix: &str) -> Result<Gates> {
        let init = Init::fan_in(hidden);
        let make = |name: &str, dims: &[usize]| params.create(&format!("{name}{suffix}"), dims, init);
        modes::here(|| {
            Ok(Gates {
                weight_ih: make("weight_ih", &[gates * hidden, inputs])?,
                weight_hh: make("weight_hh", &[gates * hidden, hidden])?,
                bias_ih: make("bias_ih", &[gates * hidden])?,
                bias_hh: make("bias_hh", &[gates * hidden])?,
            })
        })
    }
    /// Size of the input and of the state.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.weight_ih.dims()[1], self.weight_hh.dims()[1])
    }
    /// `x·W_ihᵀ + b_ih + b_hh`: both biases at once, where nothing comes between them.
    pub(crate) fn project_with_both(&self, x: &Tensor) -> Result<Tensor> {
        x.linear(&self.weight_ih, Some(&self.bias_ih.add(&self.bias_hh)?))
    }
}

/// `dims` followed by `hidden`.
pub(crate) fn zeros(dims: &[usize], hidden: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    Tensor::zeros([dims, &[hidden]].concat(), dtype, device)
}
