//! The tape: what an op leaves behind for backward. A node holds its op, what the op saved, and edges to the nodes and leaves its inputs came
//! from, never tensors, so an activation nobody saved is freed the moment the user drops it.

use crate::op::{BackwardContext, Op};
use crate::saved::SavedTensors;
use crate::{DType, Device, Error, Result, Shape, Tensor, modes};
use kiln_alloc::{Category, Stream};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where a tensor came from.
#[derive(Clone)]
pub enum History {
    /// Nowhere: no gradient flows through it.
    None,
    /// It is a leaf that gathers a gradient.
    Leaf(Arc<Leaf>),
    /// It is output `.1` of node `.0`.
    Node(Arc<Node>, usize),
}

/// Where the gradient of a node's input goes.
#[derive(Clone)]
pub enum Edge {
    /// Nowhere: it is not computed.
    None,
    /// Into a leaf.
    Leaf(Arc<Leaf>),
    /// To output `.1` of node `.0`.
    Node(Arc<Node>, usize),
}

/// Shape, type and device of an output, for checking its gradient.
#[derive(Clone, Debug)]
pub struct OutputMeta {
    /// Shape.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

static SEQUENCE: AtomicU64 = AtomicU64::new(0);
static LIVE_NODES: AtomicUsize = AtomicUsize::new(0);

/// One recorded op.
pub struct Node {
    sequence: u64,
    op: Arc<dyn Op>,
    edges: SmallVec<[Edge; 3]>,
    outputs: SmallVec<[OutputMeta; 1]>,
    saved: Mutex<SavedTensors>,
    released: AtomicBool,
    device: Device,
    stream: Stream,
    location: &'static Location<'static>,
}

impl Node {
    pub(crate) fn new(
        op: Arc<dyn Op>,
        edges: SmallVec<[Edge; 3]>,
        outputs: SmallVec<[OutputMeta; 1]>,
        saved: SavedTensors,
        (device, stream): (Device, Stream),
        location: &'static Location<'static>,
    ) -> Node {
        LIVE_NODES.fetch_add(1, Ordering::Relaxed);
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        Node {
            sequence,
            op,
            edges,
            outputs,
            saved: Mutex::new(saved),
            released: AtomicBool::new(false),
            device,
            stream,
            location,
        }
    }

    /// Grows in the order of recording: a walk from the largest down meets every node after all its users.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
    /// Name of its op.
    pub fn name(&self) -> &'static str {
        self.op.name()
    }
    /// One edge for each input of the op; `Edge::None` where no gradient is wanted.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }
    /// Its outputs.
    pub fn outputs(&self) -> &[OutputMeta] {
        &self.outputs
    }
    /// The line of the user's that recorded it.
    pub fn location(&self) -> &'static Location<'static> {
        self.location
    }
    /// Nodes alive in this process.
    pub fn live_count() -> usize {
        LIVE_NODES.load(Ordering::Relaxed)
    }

    /// The gradients of the inputs, given those of the outputs. `wanted[i]` says which are computed; all others come back `None`.
    /// Without `retain` the saved tensors are released: a second call is an error. Runs on the stream of forward.
    pub fn backward(
        &self,
        grads: SmallVec<[Option<Tensor>; 1]>,
        wanted: &[bool],
        retain: bool,
    ) -> Result<SmallVec<[Option<Tensor>; 3]>> {
        let seen = if retain { self.released.load(Ordering::Acquire) } else { self.released.swap(true, Ordering::AcqRel) };
        if seen {
            return Err(Error::Autograd(format!(
                "backward through {} (recorded at {}) a second time: its saved tensors were released by the first; use `backward_retain` for all but the last",
                self.name(),
                self.location
            )));
        }
        let ctx = BackwardContext::new(self.op.name(), wanted, &self.edges, &self.outputs, &self.device);
        let run = |saved: &mut SavedTensors| {
            // What backward makes is reported at the line of forward: the user wrote no other.
            let backward = || self.device.with_stream(&self.stream, || self.op.backward(grads, saved, &ctx));
            modes::at(self.location, backward).map_err(|e| e.in_op(self.name()))
        };
        let result = if retain {
            let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
            saved.set_retain(true);
            run(&mut saved)?
        } else {
            let mut saved = std::mem::take(&mut *self.saved.lock().unwrap_or_else(PoisonError::into_inner));
            saved.set_retain(false);
            run(&mut saved)?
        };
        if result.len() != self.edges.len() {
            return Err(Error::Autograd(format!(
                "{} returned {} gradients for {} inputs",
                self.name(),
                result.len(),
                self.edges.len()
            )));
        }
        Ok(result)
    }
}

thread_local! {
    /// Edges of dropped nodes, freed one by one by the outermost drop: dropping a chain of any length needs no stack.
    static DROPPED: RefCell<(bool, Vec<Edge>)> = const { RefCell::new((false, Vec::new())) };
}

impl Drop for Node {
    fn drop(&mut self) {
        LIVE_NODES.fetch_sub(1, Ordering::Relaxed);
        let edges = std::mem::take(&mut self.edges);
        let outermost = DROPPED.try_with(|d| {
            let mut d = d.borrow_mut();
            d.1.extend(edges.into_iter().filter(|e| matches!(e, Edge::Node(..))));
            !std::mem::replace(&mut d.0, true)
        });
        if outermost == Ok(true) {
            while let Ok(Some(edge)) = DROPPED.try_with(|d| d.borrow_mut().1.pop()) {
                drop(edge);
            }
            let _ = DROPPED.try_with(|d| {
                let mut d = d.borrow_mut();
                d.0 = false;
                if d.1.capacity() > 4096 {
                    d.1 = Vec::new();
                }
            });
        }
    }
}

/// A leaf of the graph: gathers the gradients of backward calls until it is cleared.
pub struct Leaf {
    name: Option<String>,
    shape: Shape,
    dtype: DType,
    device: Device,
    state: Mutex<LeafState>,
}

#[derive(Default)]
struct LeafState {
    grad: Option<Tensor>,
    partial: bool,
}

impl Leaf {
    pub(crate) fn new(name: Option<String>, shape: Shape, dtype: DType, device: Device) -> Leaf {
        Leaf { name, shape, dtype, device, state: Mutex::new(LeafState::default()) }
    }
    fn state(&self) -> std::sync::MutexGuard<'_, LeafState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Its name, where it is a parameter.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }
    /// The gradient gathered so far.
    ///
    /// # Errors
    /// Where a backward failed midway and left it partial.
    pub fn grad(&self) -> Result<Option<Tensor>> {
        let state = self.state();
        if state.partial {
            return Err(Error::Autograd(format!(
                "the gradient of {} is partial, since a backward failed midway; call `zero_grad` and run it again",
                self.name.as_deref().unwrap_or("a leaf")
            )));
        }
        Ok(state.grad.clone())
    }
    /// Replaces the gradient (after clipping, say); `None` clears it and lifts the mark of a failed backward.
    ///
    /// # Errors
    /// Where shape, type or device differ from the leaf's.
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        if let Some(g) = &grad {
            self.check(g)?;
        }
        let old = std::mem::replace(&mut *self.state(), LeafState { grad, partial: false });
        drop(old);
        Ok(())
    }
    /// Drops the gradient and lifts the mark of a failed backward.
    pub fn clear_grad(&self) {
        drop(std::mem::take(&mut *self.state()));
    }
    /// Marks the gradient as partial: using it is an error until it is cleared.
    pub fn mark_partial(&self) {
        self.state().partial = true;
    }
    /// Adds to the gradient, in place where nobody else holds it. The result has memory of its own, counted under "gradients".
    pub fn accumulate(&self, grad: Tensor) -> Result<()> {
        self.check(&grad)?;
        let mut state = self.state();
        let sum = match state.grad.take() {
            None => own(grad)?,
            Some(sum) => crate::exec::add_into(sum, &grad).inspect_err(|_| state.partial = true)?,
        };
        sum.set_category(Category::Gradients);
        state.grad = Some(sum);
        Ok(())
    }
    fn check(&self, grad: &Tensor) -> Result<()> {
        if grad.dims() != self.shape.dims() || grad.dtype() != self.dtype || *grad.device() != self.device {
            return Err(Error::Autograd(format!(
                "a gradient of {:?} was given to {} of shape {}, type {} on {}",
                grad,
                self.name.as_deref().unwrap_or("a leaf"),
                self.shape,
                self.dtype,
                self.device
            )));
        }
        Ok(())
    }
}

/// `sum + grad`, in the memory of `sum` where nobody else holds it.
pub fn add_into(sum: Tensor, grad: &Tensor) -> Result<Tensor> {
    crate::exec::add_into(sum, grad)
}

/// The gradient in memory of its own, contiguous and as large as it has to be.
fn own(grad: Tensor) -> Result<Tensor> {
    let whole = grad.is_contiguous() && grad.storage().bytes() == grad.elem_count() * grad.dtype().size();
    if whole && grad.is_unique() { Ok(grad) } else { crate::exec::copy_of(&grad) }
}
