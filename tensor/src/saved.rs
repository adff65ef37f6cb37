//! The one door for tensors that backward will read. Where they go is a mode of the thread, never chosen inside an op.

use crate::tape::History;
use crate::{DType, Error, Layout, Result, Shape, Storage, Tensor, modes};
use smallvec::SmallVec;
use std::sync::Arc;

/// Where saved tensors go while this policy is a mode of the thread.
pub trait SavePolicy: Send + Sync {
    /// Takes charge of a tensor that `op` saves. The tensor has no history.
    fn save(&self, op: &'static str, tensor: &Tensor) -> Result<Box<dyn SavedSlot>>;
    /// Told the inputs of every op that is recorded, before it saves.
    fn used(&self, op: &'static str, inputs: &[Tensor]) -> Result<()> {
        let _ = (op, inputs);
        Ok(())
    }
}

/// What a policy leaves in a node in place of a tensor.
pub trait SavedSlot: Send + Sync {
    /// The tensor back. With `retain` the slot can be asked again.
    fn unpack(&mut self, retain: bool) -> Result<Tensor>;
}

/// A tensor saved for backward.
pub enum Saved {
    /// As it is.
    Kept(Kept),
    /// In the care of a policy.
    Slot(Box<dyn SavedSlot>),
    /// Given back already.
    Taken,
}

impl Saved {
    /// Saves a tensor the way the thread's policy says.
    pub fn new(op: &'static str, tensor: &Tensor) -> Result<Saved> {
        match modes::with(|m| m.saved.clone()) {
            None => Ok(Saved::Kept(Kept::new(op, tensor))),
            // The policy runs with no policy on: what it does to pack a tensor is not itself saved through it.
            Some(policy) => Ok(Saved::Slot(policy.save(op, &tensor.detach())?)),
        }
    }
    /// The tensor back; without `retain` only once, and the memory goes as soon as the caller drops it.
    pub fn take(&mut self, retain: bool) -> Result<Tensor> {
        if let (true, Saved::Kept(kept)) = (retain, &*self) {
            return kept.tensor();
        }
        if let (true, Saved::Slot(slot)) = (retain, &mut *self) {
            return slot.unpack(true);
        }
        match std::mem::replace(self, Saved::Taken) {
            Saved::Kept(kept) => kept.tensor(),
            Saved::Slot(mut slot) => slot.unpack(false),
            Saved::Taken => Err(Error::Autograd("a saved tensor was asked for twice".into())),
        }
    }
}

/// A handle that notices changes in place, and labels what it holds as activation.
pub struct Kept {
    storage: Arc<Storage>,
    layout: Layout,
    dtype: DType,
    version: u64,
    op: &'static str,
}

impl Kept {
    /// Holds a tensor as `op` saved it.
    pub fn new(op: &'static str, tensor: &Tensor) -> Kept {
        let storage = tensor.storage().clone();
        storage.note_save();
        let version = storage.version();
        Kept { storage, layout: tensor.layout().clone(), dtype: tensor.dtype(), version, op }
    }
    /// The tensor, or an error where it was changed in place since.
    pub fn tensor(&self) -> Result<Tensor> {
        let found = self.storage.version();
        if found != self.version {
            return Err(Error::SavedChanged {
                saved_by: self.op,
                changed_by: self.storage.last_writer(),
                shape: Shape::from(self.layout.dims()),
                expected: self.version,
                found,
            });
        }
        Ok(Tensor::from_parts(self.storage.clone(), self.layout.clone(), self.dtype, History::None))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.storage.note_release();
    }
}

/// What a node saved, in the order of saving.
#[derive(Default)]
pub struct SavedTensors {
    slots: SmallVec<[Saved; 3]>,
    retain: bool,
}

impl SavedTensors {
    pub(crate) fn push(&mut self, saved: Saved) {
        self.slots.push(saved);
    }
    pub(crate) fn set_retain(&mut self, retain: bool) {
        self.retain = retain;
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
    /// Tensor number `index`, moved out (or its handle cloned in a backward that retains the graph): take each once, as late as possible, and
    /// drop it as early as possible.
    pub fn take(&mut self, index: usize) -> Result<Tensor> {
        let retain = self.retain;
        match self.slots.get_mut(index) {
            Some(saved) => saved.take(retain),
            None => Err(Error::Autograd(format!("saved tensor {index} does not exist: {} were saved", self.slots.len()))),
        }
    }
}
