//! Gradient checkpointing as a policy for saved tensors.
//!
//! Forward records the same nodes as ever, with edges to the same leaves; only what ops save is left out: each saved tensor is an empty slot of the
//! checkpoint's frame. When backward asks for the first one, the function runs again under the modes and random positions of forward; what ops save now fills
//! the slots, in order; and when the last slot that is still wanted is full, the next op ends the run. So gradients are equal bit for bit, and shared
//! parameters, leaves inside the closure and untracked inputs need no special case.
//!
//! The inputs of a checkpoint are saved through the policy around it: a nested checkpoint's inputs are slots of the outer frame.

use kiln_tensor::modes::{self, Modes};
use kiln_tensor::random::RandomTrace;
use kiln_tensor::saved::{Kept, SavePolicy, Saved, SavedSlot};
use kiln_tensor::{DType, Device, Error, Result, Shape, Tensor};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Runs `f(inputs)` and keeps none of its activations: backward runs `f` again to get them. What `f` returns may be anything: a tensor, a tuple, a struct.
///
/// `f` must do the same work both times (same ops, shapes and types); it owns what it uses besides `inputs`, so layers are cloned into it. Dropout draws the
/// same mask, autocast and evaluation mode are those of forward.
///
/// # Errors
/// What `f` returns; in backward [`Error::Checkpoint`] where `f` does other work than it did in forward.
///
/// ```
/// # use kiln_tensor::{Tensor, Device};
/// # use kiln_autograd::{checkpoint_fn, Backward};
/// let x = Tensor::from_vec(vec![1f32, 2.0], 2, &Device::cpu())?.requires_grad()?;
/// let y = checkpoint_fn(&[&x], |xs| xs[0].exp()?.tanh())?;
/// y.sum_all()?.backward()?;
/// assert!(x.grad()?.is_some());
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[track_caller]
pub fn checkpoint_fn<R>(inputs: &[&Tensor], f: impl Fn(&[Tensor]) -> Result<R> + Send + Sync + 'static) -> Result<R> {
    let given: Vec<Tensor> = inputs.iter().map(|&t| t.clone()).collect();
    if !modes::is_grad_enabled() {
        return f(&given);
    }
    let held = given.iter().map(|t| Ok((Saved::new("checkpoint", t)?, t.tracked()))).collect::<Result<Vec<_>>>()?;
    let modes_now = modes::current();
    let trace = Arc::new(RandomTrace::record(modes_now.random.clone()));
    let f = Arc::new(f);
    let again = f.clone();
    let frame = Arc::new(Frame {
        function: Box::new(move |inputs| again(inputs).map(drop)),
        inputs: Mutex::new(held),
        modes: Modes { saved: None, random: None, stop: None, ..modes_now },
        trace: trace.clone(),
        complete: AtomicBool::new(false),
        running: Mutex::new(()),
        slots: Mutex::new(Vec::new()),
        versions: Mutex::default(),
    });
    let policy: Arc<dyn SavePolicy> = Arc::new(Empty(frame.clone()));
    let result = modes::scope(
        |m| {
            m.saved = Some(policy);
            m.random = Some(trace.clone());
        },
        || f(&given),
    );
    frame.complete();
    result
}

/// What ops saved in forward at one place, and its value once it was recomputed.
struct SlotState {
    op: &'static str,
    shape: Shape,
    dtype: DType,
    device: Device,
    wanted: bool,
    value: Option<Kept>,
}

/// A checkpointed function without its result.
type Function = dyn Fn(&[Tensor]) -> Result<()> + Send + Sync;

/// One call of a checkpointed function. Alive as long as a slot of it is.
struct Frame {
    function: Box<Function>,
    inputs: Mutex<Vec<(Saved, bool)>>,
    modes: Modes,
    /// The random positions that forward drew.
    trace: Arc<RandomTrace>,
    /// Whether forward is over. Before that, a backward inside the function may ask for tensors, and later slots will want another recomputation.
    complete: AtomicBool,
    /// Held for the length of a recomputation, so that two threads do not do it at once.
    running: Mutex<()>,
    slots: Mutex<Vec<SlotState>>,
    /// Versions of the storages that ops read in forward. What the function owns (weights) is the same memory in recomputation, and must hold the same.
    versions: Mutex<HashMap<u64, u64>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Frame {
    /// Notes the end of forward, and drops what a backward inside the function had recomputed.
    fn complete(&self) {
        self.complete.store(true, Ordering::Release);
        let values: Vec<Option<Kept>> = lock(&self.slots).iter_mut().map(|slot| slot.value.take()).collect();
        drop(values);
    }

    fn take_value(&self, index: usize) -> Result<Option<Tensor>> {
        let kept = lock(&self.slots)[index].value.take();
        kept.map(|k| k.tensor()).transpose()
    }

    fn unpack(self: &Arc<Frame>, index: usize, retain: bool) -> Result<Tensor> {
        if let Some(tensor) = self.take_value(index)? {
            return Ok(tensor);
        }
        // One recomputation at a time. The function's own backward, if it has one, finds its tensors in its nodes and does not come here again.
        let _running = lock(&self.running);
        if let Some(tensor) = self.take_value(index)? {
            return Ok(tensor);
        }
        self.recompute(retain || !self.complete.load(Ordering::Acquire))?;
        self.take_value(index)?.ok_or_else(|| {
            let slots = lock(&self.slots);
            Error::Checkpoint(format!(
                "the function saved fewer tensors in recomputation than in forward: number {index} ({}, shape {}, {}) is missing",
                slots[index].op, slots[index].shape, slots[index].dtype
            ))
        })
    }

    /// Runs the function again and fills the slots that are still wanted.
    fn recompute(self: &Arc<Frame>, retain: bool) -> Result<()> {
        let inputs = {
            let mut held = lock(&self.inputs);
            held.iter_mut()
                .map(|(saved, tracked)| {
                    let tensor = saved.take(retain)?;
                    if *tracked { tensor.requires_grad() } else { Ok(tensor) }
                })
                .collect::<Result<Vec<_>>>()?
        };
        let end = lock(&self.slots).iter().rposition(|s| s.wanted).map_or(0, |last| last + 1);
        let stop = Arc::new(AtomicBool::new(end == 0));
        let fill = Arc::new(Fill { frame: self.clone(), next: Mutex::new(0), end, stop: stop.clone() });
        let replay = Arc::new(RandomTrace::replay(self.trace.positions()));
        let inside = Modes { saved: Some(fill), random: Some(replay), stop: Some(stop), ..self.modes.clone() };
        match modes::scope(|m| *m = inside, || (self.function)(&inputs)) {
            Ok(()) | Err(Error::EarlyStop) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// The policy of forward: saved tensors become empty slots.
struct Empty(Arc<Frame>);

impl SavePolicy for Empty {
    fn save(&self, op: &'static str, tensor: &Tensor) -> Result<Box<dyn SavedSlot>> {
        let mut slots = lock(&self.0.slots);
        slots.push(SlotState {
            op,
            shape: tensor.shape(),
            dtype: tensor.dtype(),
            device: tensor.device().clone(),
            wanted: true,
            value: None,
        });
        Ok(Box::new(Slot { frame: self.0.clone(), index: slots.len() - 1 }))
    }
    fn used(&self, _: &'static str, inputs: &[Tensor]) -> Result<()> {
        let mut versions = lock(&self.0.versions);
        inputs.iter().for_each(|t| _ = versions.entry(t.storage().id()).or_insert(t.storage().version()));
        Ok(())
    }
}

struct Slot {
    frame: Arc<Frame>,
    index: usize,
}

impl SavedSlot for Slot {
    fn unpack(&mut self, retain: bool) -> Result<Tensor> {
        self.frame.unpack(self.index, retain)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let value = {
            let mut slots = lock(&self.frame.slots);
            slots[self.index].wanted = false;
            slots[self.index].value.take()
        };
        drop(value);
    }
}

/// The policy of recomputation: saved tensors fill the slots in order.
struct Fill {
    frame: Arc<Frame>,
    next: Mutex<usize>,
    end: usize,
    stop: Arc<AtomicBool>,
}

impl SavePolicy for Fill {
    fn save(&self, op: &'static str, tensor: &Tensor) -> Result<Box<dyn SavedSlot>> {
        let mut next = lock(&self.next);
        let index = *next;
        if index >= self.end {
            // Past the last slot that is wanted: the next op ends the run.
            return Ok(Box::new(Held(Kept::new(op, tensor))));
        }
        *next += 1;
        let mut slots = lock(&self.frame.slots);
        let slot = &mut slots[index];
        let same =
            slot.op == op && slot.shape == tensor.shape() && slot.dtype == tensor.dtype() && slot.device == *tensor.device();
        if !same {
            return Err(Error::Checkpoint(format!(
                "the function did other work in recomputation than in forward: saved tensor {index} was {} of {}, {}, {}, and is now {op} of {}, {}, {}",
                slot.op,
                slot.shape,
                slot.dtype,
                slot.device,
                tensor.shape(),
                tensor.dtype(),
                tensor.device()
            )));
        }
        if slot.wanted {
            slot.value = Some(Kept::new(op, tensor));
        }
        if *next == self.end {
            self.stop.store(true, Ordering::Release);
        }
        Ok(Box::new(Held(Kept::new(op, tensor))))
    }
    fn used(&self, op: &'static str, inputs: &[Tensor]) -> Result<()> {
        let versions = lock(&self.frame.versions);
        let changed = |t: &&Tensor| versions.get(&t.storage().id()).is_some_and(|&version| version != t.storage().version());
        match inputs.iter().find(changed) {
            None => Ok(()),
            Some(t) => Err(Error::Checkpoint(format!(
                "a {} tensor that {op} reads was changed in place by {} between forward and recomputation; change it after backward",
                t.shape(),
                t.storage().last_writer()
            ))),
        }
    }
}

/// What recomputation leaves in its nodes, for a backward inside the function.
struct Held(Kept);

impl SavedSlot for Held {
    fn unpack(&mut self, _: bool) -> Result<Tensor> {
        self.0.tensor()
    }
}
