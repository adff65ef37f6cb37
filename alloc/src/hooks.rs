//! Reclaim hooks: those who hold memory that they can do without are asked for it before a request fails.

use crate::core::lock;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, Weak};

/// Called with the bytes that are missing; drops what its owner can do without. May allocate and free.
pub type ReclaimHook = dyn Fn(usize) + Send + Sync;

/// Hooks in the order they were added. They are held weakly: a hook ends with its owner.
#[derive(Default)]
pub(crate) struct Hooks(Mutex<Vec<Weak<ReclaimHook>>>);

thread_local! {
    /// The allocators whose hooks this thread is in.
    static RUNNING: RefCell<Vec<*const Hooks>> = const { RefCell::new(Vec::new()) };
}

/// Says that the hooks are over, after a panic in one of them too.
struct Over;

impl Drop for Over {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(|running| running.pop());
    }
}

impl Hooks {
    pub(crate) fn add(&self, hook: &Arc<ReclaimHook>) {
        let mut hooks = lock(&self.0);
        hooks.retain(|hook| hook.strong_count() > 0);
        hooks.push(Arc::downgrade(hook));
    }
    /// Whether anybody can be asked: not by a request that one of them makes.
    pub(crate) fn can_run(&self) -> bool {
        let running = RUNNING.with_borrow(|running| running.contains(&std::ptr::from_ref(self)));
        !running && lock(&self.0).iter().any(|hook| hook.strong_count() > 0)
    }
    pub(crate) fn run(&self, bytes: usize) {
        let hooks: Vec<Arc<ReclaimHook>> = {
            let mut hooks = lock(&self.0);
            hooks.retain(|hook| hook.strong_count() > 0);
            hooks.iter().filter_map(Weak::upgrade).collect()
        };
        RUNNING.with_borrow_mut(|running| running.push(self));
        let _over = Over;
        hooks.iter().for_each(|hook| hook(bytes));
    }
}
