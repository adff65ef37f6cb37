//! The walk over the tape, from the newest node to the oldest.

use kiln_alloc::Category;
use kiln_tensor::op::OutputGrads;
use kiln_tensor::tape::{Edge, Leaf, Node};
use kiln_tensor::{Error, Result, Tensor, modes};
use smallvec::{SmallVec, smallvec};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// A node waiting for its turn; the newest first.
struct Waiting(Arc<Node>);

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.0.sequence() == other.0.sequence()
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        self.0.sequence().cmp(&other.0.sequence())
    }
}

/// What a walk does where gradients end.
pub(crate) trait Sink {
    /// A gradient arrived at a leaf.
    fn leaf(&mut self, leaf: &Arc<Leaf>, grad: Tensor) -> Result<()>;
    /// The gradients of a node's outputs are complete.
    fn node(&mut self, _node: &Arc<Node>, _grads: &OutputGrads) {}
    /// Whether the gradient along an edge is wanted.
    fn wants(&self, edge: &Edge) -> bool {
        !matches!(edge, Edge::None)
    }
}

/// Gradients on their way.
struct Walk<'a, S> {
    sink: &'a mut S,
    heap: BinaryHeap<Waiting>,
    grads: HashMap<u64, OutputGrads>,
}

impl<S: Sink> Walk<'_, S> {
    /// Sends a gradient along an edge: the first one moves, later ones are added in place.
    fn send(&mut self, edge: &Edge, grad: Tensor) -> Result<()> {
        match edge {
            Edge::None => Ok(()),
            Edge::Leaf(leaf) => self.sink.leaf(leaf, grad),
            Edge::Node(node, index) => {
                let slots = self.grads.entry(node.sequence()).or_insert_with(|| {
                    self.heap.push(Waiting(node.clone()));
                    smallvec![None; node.outputs().len()]
                });
                slots[*index] = Some(match slots[*index].take() {
                    None => grad,
                    Some(sum) => kiln_tensor::tape::add_into(sum, &grad)?,
                });
                Ok(())
            }
        }
    }
}

/// Sends `grad` from `root` down the tape. Runs with history, autocast and save policies off.
pub(crate) fn walk<S: Sink>(root: &Edge, grad: Tensor, retain: bool, sink: &mut S) -> Result<()> {
    let plain = |m: &mut modes::Modes| {
        *m = modes::Modes {
            grad: false,
            category: Category::Temporaries,
            training: m.training,
            streams: m.streams.clone(),
            ..Default::default()
        }
    };
    modes::scope(plain, || {
        let mut walk = Walk { sink, heap: BinaryHeap::new(), grads: HashMap::new() };
        walk.send(root, grad)?;
        while let Some(Waiting(node)) = walk.heap.pop() {
            let Some(grads) = walk.grads.remove(&node.sequence()) else { continue };
            walk.sink.node(&node, &grads);
            let wanted: SmallVec<[bool; 4]> = node.edges().iter().map(|e| walk.sink.wants(e)).collect();
            if !wanted.contains(&true) {
                continue;
            }
            let results = node.backward(grads, &wanted, retain)?;
            for ((edge, grad), wanted) in node.edges().iter().zip(results).zip(wanted) {
                let Some(grad) = grad else { continue };
                if wanted {
                    check(&node, edge, &grad)?;
                    // A history (an op of the user's own may have turned gradients on) would keep its graph alive in a leaf.
                    let grad = if grad.tracked() { grad.detach() } else { grad };
                    modes::at(node.location(), || walk.send(edge, grad))?;
                }
            }
        }
        Ok(())
    })
}

/// A gradient has the shape and type of what it belongs to: ops of the user's own may get this wrong.
fn check(node: &Node, edge: &Edge, grad: &Tensor) -> Result<()> {
    if let Edge::Node(input, index) = edge {
        let meta = &input.outputs()[*index];
        if grad.dims() != meta.shape.dims() || grad.dtype() != meta.dtype {
            return Err(Error::Autograd(format!(
                "backward of {} (recorded at {}) gave a gradient of shape {} and type {} for an input of shape {} and type {}",
                node.name(),
                node.location(),
                grad.shape(),
                grad.dtype(),
                meta.shape,
                meta.dtype
            )));
        }
    }
    Ok(())
}
