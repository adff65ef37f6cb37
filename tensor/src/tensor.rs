//! `Tensor`: a view of a storage, immutable, with or without history.

use crate::tape::{Edge, History, Leaf, Node};
use crate::{DType, Device, Error, Layout, Result, Shape, Storage};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// A tensor: elements of one type on one device, seen through a layout. Immutable and reference-counted: a clone is a handle.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

struct Inner {
    storage: Arc<Storage>,
    layout: Layout,
    dtype: DType,
    history: History,
}

impl Tensor {
    pub(crate) fn from_parts(storage: Arc<Storage>, layout: Layout, dtype: DType, history: History) -> Tensor {
        Tensor(Arc::new(Inner { storage, layout, dtype, history }))
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        Shape::from(self.0.layout.dims())
    }
    /// The sizes of its dims.
    pub fn dims(&self) -> &[usize] {
        self.0.layout.dims()
    }
    /// The size of one dim.
    pub fn dim(&self, dim: impl crate::Dim) -> Result<usize> {
        Ok(self.dims()[dim.resolve("dim", &self.shape())?])
    }
    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.0.layout.rank()
    }
    /// Number of elements.
    pub fn elem_count(&self) -> usize {
        self.0.layout.elements()
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    /// The device it lies on.
    pub fn device(&self) -> &Device {
        self.0.storage.device()
    }
    /// Where its elements lie in its storage.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }
    /// The memory it views.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.0.storage
    }
    /// Whether its elements lie row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.0.layout.is_contiguous()
    }
    /// What ops it came from.
    pub fn history(&self) -> &History {
        &self.0.history
    }

    /// The only dim's size; an error for another rank.
    pub fn dims1(&self) -> Result<usize> {
        self.dims_exact::<1>().map(|[a]| a)
    }
    /// The sizes of two dims; an error for another rank.
    pub fn dims2(&self) -> Result<(usize, usize)> {
        self.dims_exact::<2>().map(|[a, b]| (a, b))
    }
    /// The sizes of three dims; an error for another rank.
    pub fn dims3(&self) -> Result<(usize, usize, usize)> {
        self.dims_exact::<3>().map(|[a, b, c]| (a, b, c))
    }
    /// The sizes of four dims; an error for another rank.
    pub fn dims4(&self) -> Result<(usize, usize, usize, usize)> {
        self.dims_exact::<4>().map(|[a, b, c, d]| (a, b, c, d))
    }
    fn dims_exact<const N: usize>(&self) -> Result<[usize; N]> {
        self.dims().try_into().map_err(|_| Error::shape("dims", format!("expected {N} dims, got shape {}", self.shape())))
    }

    /// Whether gradients flow to it or through it.
    pub fn tracked(&self) -> bool {
        !matches!(self.0.history, History::None)
    }
    /// The same values with no history: gradients stop here.
    pub fn detach(&self) -> Tensor {
        match self.0.history {
            History::None => self.clone(),
            _ => self.with_history(History::None),
        }
    }
    /// A leaf that gathers a gradient in backward, over the same values.
    ///
    /// # Errors
    /// For a type that has no gradients.
    pub fn requires_grad(&self) -> Result<Tensor> {
        self.leaf(None)
    }
    /// A named leaf.
    pub(crate) fn leaf(&self, name: Option<String>) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(Error::dtype("requires_grad", format!("a tensor of type {} has no gradient", self.dtype())));
        }
        self.storage().mark_leaf();
        let leaf = Leaf::new(name, self.shape(), self.dtype(), self.device().clone());
        Ok(self.with_history(History::Leaf(Arc::new(leaf))))
    }
    /// A leaf over the same values under a name, as parameters are.
    pub fn named_leaf(&self, name: impl Into<String>) -> Result<Tensor> {
        self.leaf(Some(name.into()))
    }
    /// The gradient gathered so far, where this is a leaf. An error where a backward failed midway and left it partial.
    pub fn grad(&self) -> Result<Option<Tensor>> {
        match &self.0.history {
            History::Leaf(leaf) => leaf.grad(),
            _ => Ok(None),
        }
    }

    /// Clears the gradient, and the mark of a backward that failed midway, where this is a leaf.
    pub fn zero_grad(&self) {
        if let History::Leaf(leaf) = &self.0.history {
            leaf.clear_grad();
        }
    }

    pub(crate) fn with_history(&self, history: History) -> Tensor {
        Tensor::from_parts(self.0.storage.clone(), self.0.layout.clone(), self.0.dtype, history)
    }
    pub(crate) fn with_layout(&self, layout: Layout) -> Tensor {
        Tensor::from_parts(self.0.storage.clone(), layout, self.0.dtype, History::None)
    }
    pub(crate) fn edge(&self) -> Edge {
        match &self.0.history {
            History::None => Edge::None,
            History::Leaf(leaf) => Edge::Leaf(leaf.clone()),
            History::Node(node, index) => Edge::Node(node.clone(), *index),
        }
    }
    /// Whether nobody else holds these elements: an op of backward may then add into them.
    pub(crate) fn is_unique(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && Arc::strong_count(&self.0.storage) == 1
    }
    /// The node that made it, and which of its outputs it is.
    pub fn node(&self) -> Option<(&Arc<Node>, usize)> {
        match &self.0.history {
            History::Node(node, index) => Some((node, *index)),
            _ => None,
        }
    }
    /// Moves its bytes to another row of the memory report.
    pub fn set_category(&self, category: kiln_alloc::Category) {
        self.0.storage.set_category(category);
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor[{}, {}, {}]", self.shape(), self.dtype(), self.device())
    }
}

/// A short list of tensors.
pub type Tensors = SmallVec<[Tensor; 2]>;
