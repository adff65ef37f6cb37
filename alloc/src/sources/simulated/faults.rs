//! Planned failures: a call that fails has no effect.

use super::costs::DriverCall;
use crate::SourceError;
use crate::core::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which calls a plan counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    Any,
    TakesMemory,
    Kind(DriverCall),
    /// `create` and `allocate`, which then find the device full.
    Full,
}

impl Counted {
    fn counts(self, call: DriverCall) -> bool {
        match self {
            Counted::Any => true,
            Counted::TakesMemory => call.takes_memory(),
            Counted::Kind(kind) => kind == call,
            Counted::Full => matches!(call, DriverCall::Create | DriverCall::Allocate),
        }
    }
}

#[derive(Default)]
pub(super) struct Faults {
    /// Whether there is anything to look at.
    armed: AtomicBool,
    plans: Mutex<Plans>,
}

#[derive(Default)]
struct Plans {
    /// Calls until one fails.
    left: Vec<(Counted, u64)>,
    broken: bool,
}

impl Faults {
    /// The `k`-th counted call from now fails; 0 lifts that plan.
    pub(super) fn plan(&self, counted: Counted, k: u64) {
        let mut plans = lock(&self.plans);
        plans.left.retain(|(other, _)| *other != counted);
        if k > 0 {
            plans.left.push((counted, k));
        }
        self.armed.store(plans.broken || !plans.left.is_empty(), Ordering::Release);
    }
    pub(super) fn set_broken(&self, broken: bool) {
        let mut plans = lock(&self.plans);
        plans.broken = broken;
        self.armed.store(broken || !plans.left.is_empty(), Ordering::Release);
    }

    /// Counts a call; fails if its turn has come.
    pub(super) fn check(&self, call: DriverCall) -> Result<(), SourceError> {
        if !self.armed.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut plans = lock(&self.plans);
        let failure = |code, message: &str| Err(SourceError::Driver { call: call.name(), code, message: message.into() });
        if plans.broken && call.asks_streams() {
            return failure(700, "the device is broken");
        }
        let mut due = None;
        plans.left.retain_mut(|(counted, left)| {
            *left -= u64::from(counted.counts(call));
            if *left == 0 {
                due = due.or(Some(*counted));
            }
            *left > 0
        });
        match due {
            None => Ok(()),
            Some(Counted::Full) => Err(SourceError::OutOfMemory),
            Some(_) => failure(999, "a planned failure"),
        }
    }
}
