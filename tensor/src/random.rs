//! Positions in a device's counter-based generator, and their replay.

use crate::{Device, Error, Result};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// A generator: a key, and the next unused counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratorState {
    /// The key.
    pub seed: u64,
    /// The next unused counter.
    pub offset: u64,
}

/// Where one random op starts: the same position gives the same bits on every device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The key.
    pub seed: u64,
    /// The first counter.
    pub offset: u64,
}

/// Writes down the positions that random ops draw while it is the mode of a thread, or gives earlier ones back in order.
///
/// A checkpoint records in forward and replays in recomputation, so masks are the same whatever other threads drew meanwhile.
pub struct RandomTrace {
    parent: Option<Arc<RandomTrace>>,
    replay: Option<Mutex<std::vec::IntoIter<Position>>>,
    log: Mutex<Vec<Position>>,
}

impl RandomTrace {
    /// Records what is drawn from `parent`, or from the device where there is none.
    pub fn record(parent: Option<Arc<RandomTrace>>) -> RandomTrace {
        RandomTrace { parent, replay: None, log: Mutex::new(Vec::new()) }
    }
    /// Gives recorded positions back.
    pub fn replay(positions: Vec<Position>) -> RandomTrace {
        RandomTrace { parent: None, replay: Some(Mutex::new(positions.into_iter())), log: Mutex::new(Vec::new()) }
    }
    /// What was recorded so far.
    pub fn positions(&self) -> Vec<Position> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn draw(&self, device: &Device, elements: usize) -> Result<Position> {
        if let Some(replay) = &self.replay {
            return replay.lock().unwrap_or_else(PoisonError::into_inner).next().ok_or_else(|| {
                Error::Checkpoint("the function drew more random numbers in recomputation than in forward".into())
            });
        }
        let position = match &self.parent {
            Some(parent) => parent.draw(device, elements)?,
            None => device.advance_generator(elements),
        };
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(position);
        Ok(position)
    }
}

/// The position for a random op over `elements` elements, by the modes of this thread.
pub fn draw(device: &Device, elements: usize) -> Result<Position> {
    let (trace, stop) = crate::modes::with(|m| (m.random.clone(), m.stop.clone()));
    // A recomputation that has what it needs ends here too: forward may not have come so far yet.
    if stop.is_some_and(|stop| stop.load(Ordering::Acquire)) {
        return Err(Error::EarlyStop);
    }
    match trace {
        Some(trace) => trace.draw(device, elements),
        None => Ok(device.advance_generator(elements)),
    }
}
