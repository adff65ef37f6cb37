//! A trace made ready to run: ids become slots that are used again, stream numbers become small indices.

use super::ReplayError;
use crate::Category;
use crate::trace::{Event, Trace};
use std::collections::HashMap;

/// An event with nothing left to look up.
pub(super) enum Step {
    Alloc { slot: u32, stream: u32, bytes: usize, category: Category },
    Free { slot: u32 },
}

pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// The most blocks live at once.
    pub(super) slots: usize,
    /// The trace's stream numbers, by index.
    pub(super) streams: Vec<u32>,
    /// The most bytes live at once.
    pub(super) peak: usize,
    /// Steps until that many are.
    pub(super) warm_up: usize,
}

impl Plan {
    pub(super) fn of(trace: &Trace) -> Result<Plan, ReplayError> {
        let mut plan = Plan { steps: Vec::with_capacity(trace.len()), slots: 0, streams: Vec::new(), peak: 0, warm_up: 0 };
        let (mut live, mut streams, mut free) = (HashMap::new(), HashMap::new(), Vec::new());
        let mut now = 0usize;
        for (event, step) in trace.events.iter().enumerate() {
            match *step {
                Event::Alloc { id, bytes, stream, category } => {
                    let slot = free.pop().unwrap_or(plan.slots as u32);
                    plan.slots = plan.slots.max(slot as usize + 1);
                    if live.insert(id, (slot, bytes)).is_some() {
                        return Err(ReplayError::Trace { event, what: "allocates the live", id });
                    }
                    let stream = *streams.entry(stream).or_insert_with(|| {
                        plan.streams.push(stream);
                        plan.streams.len() as u32 - 1
                    });
                    let category = category.unwrap_or(Category::Temporaries);
                    plan.steps.push(Step::Alloc { slot, stream, bytes, category });
                    now = now.saturating_add(bytes);
                    if now > plan.peak {
                        (plan.peak, plan.warm_up) = (now, event + 1);
                    }
                }
                Event::Free { id } => {
                    let Some((slot, bytes)) = live.remove(&id) else {
                        return Err(ReplayError::Trace { event, what: "frees the unknown", id });
                    };
                    free.push(slot);
                    plan.steps.push(Step::Free { slot });
                    now = now.saturating_sub(bytes);
                }
            }
        }
        Ok(plan)
    }
}
