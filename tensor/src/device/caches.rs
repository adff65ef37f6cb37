//! What a device holds only to be quicker, and gives up before a request for memory fails: casts of weights, and the scratch memory of
//! libraries.

use crate::Storage;
use kiln_alloc::ReclaimHook;
use kiln_kernels::Backend;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The storages that may hold casts of themselves for autocast.
#[derive(Default)]
pub(crate) struct Casts(Mutex<Listed>);

#[derive(Default)]
struct Listed {
    storages: Vec<Weak<Storage>>,
    /// At this length those that are gone are taken out.
    sweep_at: usize,
}

impl Casts {
    /// Adds a storage, once in its life.
    pub(crate) fn list(&self, storage: &Arc<Storage>) {
        let mut listed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.storages.len() >= listed.sweep_at {
            listed.storages.retain(|storage| storage.strong_count() > 0);
            listed.sweep_at = 2 * listed.storages.len() + 64;
        }
        listed.storages.push(Arc::downgrade(storage));
    }
    /// Drops all casts; autocast makes those it needs again.
    pub(super) fn drop_all(&self) {
        // Out of the lock first: the last handle of a storage may go here.
        let storages = self.0.lock().unwrap_or_else(PoisonError::into_inner).storages.clone();
        storages.iter().filter_map(Weak::upgrade).for_each(|storage| storage.drop_casts());
    }
}

/// What the allocator calls before it refuses a request. It may be called while a product is being enqueued.
pub(super) fn hook(casts: &Arc<Casts>, backend: &Backend) -> Arc<ReclaimHook> {
    let (casts, backend) = (casts.clone(), backend.clone());
    Arc::new(move |_| {
        casts.drop_all();
        backend.release_idle_workspaces();
    })
}
