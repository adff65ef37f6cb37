//! `grad(&loss, &[&x])`: gradients of chosen tensors, with no leaf touched.

use crate::backward::{one, root};
use crate::walk::{Sink, walk};
use kiln_tensor::op::OutputGrads;
use kiln_tensor::tape::{Edge, History, Leaf, Node};
use kiln_tensor::{Error, Result, Tensor};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// d(output)/d(x) for each tensor of `wrt`, leaves or results of ops, for an `output` of one element. Leaves keep the gradients they have; only the part of the
/// graph that leads to `wrt` is walked, and released.
///
/// # Errors
/// Where `output` has more than one element or no history, or does not depend on a tensor of `wrt`.
pub fn grad(output: &Tensor, wrt: &[&Tensor]) -> Result<Vec<Tensor>> {
    let start = root(output)?;
    let mut sink = Collect::new(&start, wrt)?;
    if sink.wants(&start) {
        walk(&start, one(output)?, false, &mut sink)?;
    }
    wrt.iter()
        .zip(&sink.targets)
        .map(|(x, target)| {
            sink.found
                .get(target)
                .cloned()
                .ok_or_else(|| Error::Autograd(format!("the output does not depend on {x:?}, which `grad` was asked for")))
        })
        .collect()
}

/// A place where a gradient is wanted: a leaf by address, or an output of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Target {
    Leaf(usize),
    Output(u64, usize),
}

struct Collect {
    targets: Vec<Target>,
    leading: HashSet<u64>,
    found: HashMap<Target, Tensor>,
}

fn leaf_target(leaf: &Arc<Leaf>) -> Target {
    Target::Leaf(Arc::as_ptr(leaf) as usize)
}

impl Collect {
    fn new(start: &Edge, wrt: &[&Tensor]) -> Result<Collect> {
        let targets: Vec<Target> = wrt
            .iter()
            .map(|x| match x.history() {
                History::Leaf(leaf) => Ok(leaf_target(leaf)),
                History::Node(node, index) => Ok(Target::Output(node.sequence(), *index)),
                History::None => Err(Error::Autograd(format!(
                    "`grad` was asked for {x:?}, which has no history; make it a leaf with `requires_grad`"
                ))),
            })
            .collect::<Result<_>>()?;
        let mut collect = Collect { targets, leading: HashSet::new(), found: HashMap::new() };
        // Inputs of a node are older than it, so in order of age a node comes after all it depends on.
        let mut nodes = reachable(start);
        nodes.sort_by_key(|n| n.sequence());
        for node in nodes {
            if node.edges().iter().any(|e| collect.wants(e)) {
                collect.leading.insert(node.sequence());
            }
        }
        Ok(collect)
    }
}

fn reachable(start: &Edge) -> Vec<Arc<Node>> {
    let (mut seen, mut stack, mut nodes) = (HashSet::new(), vec![start.clone()], Vec::new());
    while let Some(edge) = stack.pop() {
        if let Edge::Node(node, _) = edge
            && seen.insert(node.sequence())
        {
            stack.extend(node.edges().iter().filter(|e| matches!(e, Edge::Node(..))).cloned());
            nodes.push(node);
        }
    }
    nodes
}

impl Sink for Collect {
    fn leaf(&mut self, leaf: &Arc<Leaf>, grad: Tensor) -> Result<()> {
        let target = leaf_target(leaf);
        let sum = match self.found.remove(&target) {
            None => grad,
            Some(sum) => kiln_tensor::tape::add_into(sum, &grad)?,
        };
        self.found.insert(target, sum);
        Ok(())
    }
    fn node(&mut self, node: &Arc<Node>, grads: &OutputGrads) {
        for (i, grad) in grads.iter().enumerate() {
            let target = Target::Output(node.sequence(), i);
            if let (Some(grad), true) = (grad, self.targets.contains(&target)) {
                self.found.insert(target, grad.clone());
            }
        }
    }
    fn wants(&self, edge: &Edge) -> bool {
        match edge {
            Edge::None => false,
            Edge::Leaf(leaf) => self.targets.contains(&leaf_target(leaf)),
            Edge::Node(node, index) => {
                self.leading.contains(&node.sequence()) || self.targets.contains(&Target::Output(node.sequence(), *index))
            }
        }
    }
}
