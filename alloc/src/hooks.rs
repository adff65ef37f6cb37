//! Reclaim hooks: those who hold memory that they can do without are asked for it before a request fails.

use crate::core::lock;
use std::cell::Cell;
use std::sync::{Arc, Mutex, Weak};

/// Called with the bytes that are missing; drops what its owner can do without. May allocate and free.
pub type ReclaimHook = dyn Fn(usize) + Send + Sync;

/// Hooks in the order they were added. They are held weakly: a hook ends with its owner.
#[derive(Default)]
pub(crate) struct Hooks(Mutex<Vec<Weak<ReclaimHook>>>);

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a hook, whose own requests ask nobody.
pub(crate) fn running() -> bool {
    RUNNING.get()
}

/// Says that the hooks are over, after a panic in one of them too.
struct Over;

impl Drop for Over {
    fn drop(&mut self) {
        RUNNING.set(false);
    }
}

impl Hooks {
    pub(crate) fn add(&self, hook: &Arc<ReclaimHook>) {
        lock(&self.0).push(Arc::downgrade(hook));
    }
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
    pub(crate) fn run(&self, bytes: usize) {
        let hooks: Vec<Arc<ReclaimHook>> = {
            let mut hooks = lock(&self.0);
            hooks.retain(|hook| hook.strong_count() > 0);
            hooks.iter().filter_map(Weak::upgrade).collect()
        };
        RUNNING.set(true);
        let _over = Over;
        hooks.iter().for_each(|hook| hook(bytes));
    }
}
