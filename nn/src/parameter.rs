//! `Parameter`: a named leaf, over memory of its own.

use kiln_tensor::tape::{History, Leaf};
use kiln_tensor::{Error, Result, Tensor};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A tensor that training changes. It has a name, gathers gradients over backward calls until [`Parameter::zero_grad`], and is a [`Tensor`] wherever one
/// is wanted. A clone is the same parameter.
#[derive(Clone)]
pub struct Parameter {
    tensor: Tensor,
    leaf: Arc<Leaf>,
    name: Arc<str>,
}

impl Parameter {
    /// A parameter over the elements of `value`, whose memory it shares.
    ///
    /// # Errors
    /// For a type without gradients, and where the elements do not lie row-major without gaps.
    pub fn new(name: &str, value: &Tensor) -> Result<Parameter> {
        if !value.is_contiguous() {
            return Err(Error::shape(
                "parameter",
                format!("{name} is a view of shape {} with gaps; make it contiguous first", value.shape()),
            ));
        }
        let tensor = value.named_leaf(name)?;
        match tensor.history() {
            History::Leaf(leaf) => Ok(Parameter { leaf: leaf.clone(), name: name.into(), tensor: tensor.clone() }),
            _ => Err(Error::message("a named leaf has no leaf")),
        }
    }

    /// Its name, as in PyTorch's `state_dict`: `blocks.0.fc.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The tensor itself, for places that want one by name.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }
    /// The gradient gathered so far.
    ///
    /// # Errors
    /// Where a backward failed midway and left it partial.
    pub fn grad(&self) -> Result<Option<Tensor>> {
        self.leaf.grad()
    }
    /// Drops the gradient, and with it the mark of a failed backward.
    pub fn zero_grad(&self) {
        // No gradient fits any leaf, so this cannot fail.
        self.leaf.clear_grad();
    }
    /// Replaces the gradient by a copy of `grad`.
    ///
    /// # Errors
    /// Where shape, type or device differ from the parameter's.
    pub fn set_grad(&self, grad: &Tensor) -> Result<()> {
        // A copy, so that what later changes this gradient in place changes no other tensor.
        let own = kiln_tensor::modes::no_grad(|| grad.detach().copy())?;
        own.set_category(kiln_alloc::Category::Gradients);
        self.leaf.set_grad(Some(own))
    }
}

impl Parameter {
    /// Marks the gradient as partial: using it is an error until it is cleared.
    pub(crate) fn mark_partial(&self) {
        self.leaf.mark_partial();
    }
}

impl Deref for Parameter {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl AsRef<Tensor> for Parameter {
    fn as_ref(&self) -> &Tensor {
        &self.tensor
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parameter({}, {:?})", self.name, self.tensor)
    }
}
