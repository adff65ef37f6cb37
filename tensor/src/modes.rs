//! The modes of a thread: read by ops from here, set for the length of a closure, restored on return, error and panic.

use crate::random::RandomTrace;
use crate::saved::SavePolicy;
use crate::{DType, DeviceId};
use kiln_alloc::{Category, Stream};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What ops on this thread consult.
#[derive(Clone)]
pub struct Modes {
    /// Whether ops record history.
    pub grad: bool,
    /// Whether layers such as dropout act as in training.
    pub training: bool,
    /// The 16-bit type of the matmul family, while autocast is on.
    pub autocast: Option<DType>,
    /// Where tensors saved for backward go; `None` keeps them as they are.
    pub saved: Option<Arc<dyn SavePolicy>>,
    /// Records or replays the positions drawn from generators; `None` draws from the device's generator.
    pub random: Option<Arc<RandomTrace>>,
    /// What new memory is for.
    pub category: Category,
    /// Current streams, for devices where it is not the compute stream.
    pub streams: SmallVec<[(DeviceId, Stream); 1]>,
    /// Set when a recomputation has all it needs: later ops return an internal error that ends it.
    pub stop: Option<Arc<AtomicBool>>,
    /// The line that new memory and recorded ops belong to; `None` between ops, where it is the line of the next call.
    pub site: Option<&'static Location<'static>>,
}

impl Default for Modes {
    fn default() -> Modes {
        Modes {
            grad: true,
            training: true,
            autocast: None,
            saved: None,
            random: None,
            category: Category::Temporaries,
            streams: SmallVec::new(),
            stop: None,
            site: None,
        }
    }
}

thread_local! {
    static MODES: RefCell<Modes> = RefCell::new(Modes::default());
}

/// Reads the modes of this thread. The closure must not call ops.
pub fn with<R>(f: impl FnOnce(&Modes) -> R) -> R {
    MODES.with(|m| f(&m.borrow()))
}

/// A copy of the modes of this thread.
pub fn current() -> Modes {
    with(Modes::clone)
}

struct Restore(Option<Modes>);

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(modes) = self.0.take() {
            // The old value is dropped outside the borrow: a policy's drop may run code of its own.
            let old = MODES.with(|m| std::mem::replace(&mut *m.borrow_mut(), modes));
            drop(old);
        }
    }
}

/// Runs `f` with changed modes; the old ones come back when it returns, fails or panics.
pub fn scope<R>(change: impl FnOnce(&mut Modes), f: impl FnOnce() -> R) -> R {
    let before = current();
    let mut inside = before.clone();
    change(&mut inside);
    let _restore = Restore(Some(before));
    MODES.with(|m| *m.borrow_mut() = inside);
    f()
}

/// Runs `f` with history off, for the forward of an op: like [`no_grad`] without a copy of the modes.
pub(crate) fn unrecorded<R>(f: impl FnOnce() -> R) -> R {
    struct On(bool);
    impl Drop for On {
        fn drop(&mut self) {
            MODES.with(|m| m.borrow_mut().grad = self.0);
        }
    }
    let _on = On(MODES.with(|m| std::mem::replace(&mut m.borrow_mut().grad, false)));
    f()
}

/// Runs `f` for the line that called this: memory taken in it is reported there. Inside another such call it belongs to that one's
/// line, so what an op is made of is reported where the op was asked for. Like [`scope`] without a copy of the modes.
#[track_caller]
pub fn here<R>(f: impl FnOnce() -> R) -> R {
    at(Location::caller(), f)
}

/// As [`here`], for the line `site`.
pub fn at<R>(site: &'static Location<'static>, f: impl FnOnce() -> R) -> R {
    struct Outer(Option<&'static Location<'static>>);
    impl Drop for Outer {
        fn drop(&mut self) {
            MODES.with(|m| m.borrow_mut().site = self.0);
        }
    }
    let _outer = Outer(MODES.with(|m| {
        let mut m = m.borrow_mut();
        let outer = m.site;
        m.site = outer.or(Some(site));
        outer
    }));
    f()
}

/// The line that new memory belongs to now: that of the op in progress, else the caller's.
#[track_caller]
pub fn site() -> &'static Location<'static> {
    with(|m| m.site).unwrap_or(Location::caller())
}

/// Runs `f` with history off: nothing is recorded or saved.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    scope(|m| m.grad = false, f)
}

/// Runs `f` with history on, also inside [`no_grad`].
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    scope(|m| m.grad = true, f)
}

/// Runs `f` in evaluation mode: dropout is the identity.
pub fn eval<R>(f: impl FnOnce() -> R) -> R {
    scope(|m| m.training = false, f)
}

/// Runs `f` in training mode, also inside [`eval`].
pub fn train<R>(f: impl FnOnce() -> R) -> R {
    scope(|m| m.training = true, f)
}

/// Runs `f` with new memory counted under a category.
pub fn with_category<R>(category: Category, f: impl FnOnce() -> R) -> R {
    scope(|m| m.category = category, f)
}

/// Whether ops record history on this thread.
pub fn is_grad_enabled() -> bool {
    with(|m| m.grad)
}

/// Whether this thread is in training mode.
pub fn is_training() -> bool {
    with(|m| m.training)
}
