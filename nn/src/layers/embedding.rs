//! `y[..] = weight[ids[..]]`.

use crate::{Init, Module, Parameter, Params};
use kiln_tensor::{Result, Tensor};

/// A table of `count` rows of `width` numbers, looked up by index: ids of any shape give `[ids.., width]`. Rows start normal with deviation 1.
#[derive(Clone, Debug)]
pub struct Embedding {
    weight: Parameter,
}

impl Embedding {
    /// A new table.
    ///
    /// # Errors
    /// Where the path is taken; out of memory.
    #[track_caller]
    pub fn new(count: usize, width: usize, params: &Params) -> Result<Embedding> {
        Ok(Embedding { weight: params.create("weight", (count, width), Init::Normal(1.0))? })
    }
    /// The table, `[count, width]`.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }
}

impl Module for Embedding {
    #[track_caller]
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.weight.embedding(ids)
    }
    fn is_layer(&self) -> bool {
        true
    }
}
