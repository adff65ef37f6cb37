//! The short lock: a flag that is spun on. Taking and giving it is one atomic exchange, half of what a mutex costs, and that is a good
//! part of an allocation. What it guards is held for tens of nanoseconds and never over a call that can wait.
//!
//! The flag has cache lines of its own: those who wait read it alone, and leave the data to the holder. They look ever less often, so
//! that a holder that comes again soon finds data and flag still at hand: taking turns at each call would move both every time.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// Pauses between two looks: at first, and at most. From then on the thread gives its turn away, as the holder may be off the processor.
const FIRST: u32 = 4;
const MOST: u32 = 256;

pub(crate) struct Short<T> {
    flag: Flag,
    value: UnsafeCell<T>,
}

/// Two lines, since processors fetch them in pairs.
#[repr(align(128))]
struct Flag(AtomicBool);

// SAFETY: the flag lets one thread at a time reach the value.
unsafe impl<T: Send> Sync for Short<T> {}

impl<T> Short<T> {
    pub(crate) fn new(value: T) -> Short<T> {
        Short { flag: Flag(AtomicBool::new(false)), value: UnsafeCell::new(value) }
    }
    /// Takes the lock. A panic elsewhere does not spread, since every critical section leaves its data whole.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if self.flag.0.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        Guard { lock: self, _here: PhantomData }
    }
    #[cold]
    fn wait(&self) {
        let mut pauses = FIRST;
        loop {
            (0..pauses).for_each(|_| std::hint::spin_loop());
            if pauses < MOST {
                pauses *= 2;
            } else {
                std::thread::yield_now();
            }
            let free = !self.flag.0.load(Ordering::Relaxed);
            if free && self.flag.0.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Access while it lives.
pub(crate) struct Guard<'a, T> {
    lock: &'a Short<T>,
    /// Stays on its thread: the value need not be `Sync`.
    _here: PhantomData<*const ()>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the flag, so nobody else reaches the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    /// The store is the last access to the lock: whoever takes it next may free it.
    #[inline]
    fn drop(&mut self) {
        self.lock.flag.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        let sum = Short::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| *sum.lock() += 1));
            }
        });
        assert_eq!(*sum.lock(), 80_000);
    }
}
