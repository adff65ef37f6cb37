//! `loss.backward()`: gradients accumulate into the leaves.

use crate::walk::{Sink, walk};
use kiln_tensor::tape::{Edge, History, Leaf};
use kiln_tensor::{Error, Result, Tensor};
use std::sync::Arc;

/// Backward from a tensor into the leaves it came from.
pub trait Backward {
    /// Adds d(self)/d(leaf) to the gradient of every leaf, for a tensor of one element. What the graph saved is released as the walk passes.
    ///
    /// # Errors
    /// Where there is more than one element or no history; where the graph was released by an earlier call; what an op says. After an error the
    /// gradients it touched are marked partial: using them is an error until they are cleared.
    fn backward(&self) -> Result<()>;
    /// Like [`Backward::backward`], and keeps what the graph saved for another call.
    fn backward_retain(&self) -> Result<()>;
    /// Like [`Backward::backward`] for a tensor of any shape, from the gradient of something else with respect to it.
    fn backward_with(&self, grad: &Tensor) -> Result<()>;
}

impl Backward for Tensor {
    fn backward(&self) -> Result<()> {
        accumulate(self, one(self)?, false)
    }
    fn backward_retain(&self) -> Result<()> {
        accumulate(self, one(self)?, true)
    }
    fn backward_with(&self, grad: &Tensor) -> Result<()> {
        if grad.dims() != self.dims() || grad.dtype() != self.dtype() || grad.device() != self.device() {
            let message = format!("a gradient of {grad:?} does not fit {self:?}");
            return Err(Error::shape("backward_with", message));
        }
        accumulate(self, grad.detach(), false)
    }
}

/// The gradient a walk from a tensor of one element starts with.
pub(crate) fn one(tensor: &Tensor) -> Result<Tensor> {
    if tensor.elem_count() != 1 {
        let message = format!(
            "a tensor of shape {} has {} elements: reduce it to one, or use `backward_with`",
            tensor.shape(),
            tensor.elem_count()
        );
        return Err(Error::shape("backward", message));
    }
    kiln_tensor::modes::scope(|m| *m = Default::default(), || Tensor::ones(tensor.shape(), tensor.dtype(), tensor.device()))
}

/// The edge a walk starts on.
pub(crate) fn root(tensor: &Tensor) -> Result<Edge> {
    match tensor.history() {
        History::None => Err(Error::Autograd(
            "backward from a tensor with no history: no input of it wants a gradient, or it was made inside `no_grad` or by `detach`".into(),
        )),
        History::Leaf(leaf) => Ok(Edge::Leaf(leaf.clone())),
        History::Node(node, index) => Ok(Edge::Node(node.clone(), *index)),
    }
}

/// Adds into leaves, and marks those it touched where the walk does not come to its end (error or panic).
struct Accumulate {
    touched: Vec<Arc<Leaf>>,
    complete: bool,
}

impl Sink for Accumulate {
    fn leaf(&mut self, leaf: &Arc<Leaf>, grad: Tensor) -> Result<()> {
        self.touched.push(leaf.clone());
        leaf.accumulate(grad)
    }
}

impl Drop for Accumulate {
    fn drop(&mut self) {
        if !self.complete {
            self.touched.iter().for_each(|leaf| leaf.mark_partial());
        }
    }
}

fn accumulate(tensor: &Tensor, grad: Tensor, retain: bool) -> Result<()> {
    let root = root(tensor)?;
    let mut sink = Accumulate { touched: Vec::new(), complete: false };
    walk(&root, grad, retain, &mut sink)?;
    sink.complete = true;
    Ok(())
}
