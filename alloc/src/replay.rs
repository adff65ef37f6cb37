//! Replays a trace on an allocator: the traffic of a real program as a benchmark of any policy over any source.
//!
//! Before the clock runs, ids become slots and stream numbers become streams, so that nothing but the calls of the allocator is on
//! it. [`replay`] runs a trace to its end and reports; [`Replay`] stops where the caller wants to look; [`min_budget`] finds the
//! smallest limit in which a trace completes. Each is meant for an allocator that nobody else uses meanwhile.

mod check;
mod plan;

use crate::size::human;
use crate::trace::Trace;
use crate::{AllocError, Allocator, Block, MemoryStats, OomReport, Result, SourceKind, Stream};
use plan::{Plan, Step};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a trace is replayed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions {
    /// Fill every block with a value of its own when it is allocated, and look for the value before it is freed: at the start, at
    /// the end, and once in every 2 MiB. Nothing is timed then. Needs a device with values, so not a simulated one.
    pub check: bool,
}

/// Why a replay could not go on. That memory ran out is a result, not an error: see [`ReplayReport::oom`].
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace contradicts itself; one that was read never does.
    #[error("event {event} {what} block {id}")]
    Trace {
        /// Index of the event.
        event: usize,
        /// "allocates the live" or "frees the unknown".
        what: &'static str,
        /// The id.
        id: u64,
    },
    /// A block held a byte that was not its own.
    #[error("block {block} held {found:#04x} instead of {wanted:#04x} at byte {offset} when event {event} freed it")]
    Damaged {
        /// Index of the event that frees it; the number of events for one that is never freed.
        event: usize,
        /// [`Block::id`].
        block: u64,
        /// Bytes from the start of the block.
        offset: usize,
        /// The value it was filled with.
        wanted: u8,
        /// The value found.
        found: u8,
    },
    /// The allocator or its device failed.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}

/// Where memory ran out.
#[derive(Clone, Debug)]
pub struct ReplayOom {
    /// Index of the event that was refused; the replay ended there.
    pub event: usize,
    /// Where every byte was.
    pub report: Box<OomReport>,
}

/// What a replay came to; sizes in bytes.
#[derive(Clone, Debug)]
pub struct ReplayReport {
    /// Events that were replayed.
    pub events: usize,
    /// The most bytes live at once, as asked for.
    pub peak_live: usize,
    /// The most bytes taken from the device at once.
    pub peak_reserved: usize,
    /// [`MemoryStats::fragmentation`] after the last event.
    pub fragmentation: f64,
    /// The worst of about a hundred looks, evenly spaced.
    pub worst_fragmentation: f64,
    /// Nanoseconds of the host an event, the driver's calls among them; `None` where blocks were checked or nothing ran.
    pub ns_per_event: Option<f64>,
    /// Driver calls that took, gave or moved memory.
    pub driver_calls: u64,
    /// Those in the last tenth of the trace: 0 where the working set was known by then.
    pub late_driver_calls: u64,
    /// Times free pages were mapped at a new address.
    pub stitches: u64,
    /// Where memory ran out, if it did.
    pub oom: Option<ReplayOom>,
}

impl ReplayReport {
    /// Peak reserved ÷ peak live bytes.
    pub fn ratio(&self) -> f64 {
        if self.peak_live == self.peak_reserved { 1.0 } else { self.peak_reserved as f64 / self.peak_live as f64 }
    }
}

/// One line, for people.
impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (live, reserved) = (human(self.peak_live), human(self.peak_reserved));
        write!(f, "{} events, {live} live and {reserved} reserved at most (ratio {:.4})", self.events, self.ratio())?;
        write!(f, ", {} driver calls, {} stitches", self.driver_calls, self.stitches)?;
        self.ns_per_event.map_or(Ok(()), |ns| write!(f, ", {ns:.0} ns an event"))?;
        if self.oom.is_some() { f.write_str("; then memory ran out") } else { Ok(()) }
    }
}

/// Replays a whole trace.
///
/// # Errors
/// As [`Replay::new`] and [`Replay::run_to`].
pub fn replay(trace: &Trace, allocator: &Allocator, options: ReplayOptions) -> Result<ReplayReport, ReplayError> {
    Replay::new(trace, allocator, options)?.finish()
}

/// A replay in progress. Blocks that are live when it is dropped are freed.
pub struct Replay {
    plan: Arc<Plan>,
    allocator: Allocator,
    streams: Vec<Stream>,
    slots: Vec<Option<Block>>,
    check: bool,
    /// Index of the next event.
    at: usize,
    time: Duration,
    start: MemoryStats,
    /// Driver calls before the last tenth.
    early_calls: Option<u64>,
    worst_fragmentation: f64,
    oom: Option<ReplayOom>,
}

/// A replay looks at the counters this many times.
const LOOKS: usize = 100;

impl Replay {
    /// Gets ready: makes a stream for each number in the trace (0 is the compute stream), and resets the allocator's peaks.
    ///
    /// # Errors
    /// A trace that contradicts itself; a check on a simulated device; what the driver says.
    pub fn new(trace: &Trace, allocator: &Allocator, options: ReplayOptions) -> Result<Replay, ReplayError> {
        Replay::of(Arc::new(Plan::of(trace)?), allocator, options)
    }
    fn of(plan: Arc<Plan>, allocator: &Allocator, options: ReplayOptions) -> Result<Replay, ReplayError> {
        if options.check && allocator.info().kind == SourceKind::Simulated {
            return Err(AllocError::Source(check::NO_VALUES).into());
        }
        let stream = |number: &u32| if *number == 0 { Ok(allocator.compute_stream().clone()) } else { allocator.new_stream() };
        let streams = plan.streams.iter().map(stream).collect::<Result<_>>()?;
        let slots = std::iter::repeat_with(|| None).take(plan.slots).collect();
        allocator.reset_peak_stats();
        Ok(Replay {
            plan,
            allocator: allocator.clone(),
            streams,
            slots,
            check: options.check,
            at: 0,
            time: Duration::ZERO,
            start: allocator.stats(),
            early_calls: None,
            worst_fragmentation: 0.0,
            oom: None,
        })
    }

    /// The number of events up to and with the one at which the peak of requested bytes is first reached: the end of warm-up.
    pub fn warm_up(&self) -> usize {
        self.plan.warm_up
    }

    /// Replays up to event `end`; all of them, if there are fewer. Does nothing once memory has run out.
    ///
    /// # Errors
    /// A damaged block; every error of the allocator but out of memory.
    pub fn run_to(&mut self, end: usize) -> Result<(), ReplayError> {
        let events = self.plan.steps.len();
        let (look, last_tenth) = (events.div_ceil(LOOKS).max(1), events - events / 10);
        while self.at < end.min(events) && self.oom.is_none() {
            let mut stop = (self.at / look + 1) * look;
            if self.at < last_tenth {
                stop = stop.min(last_tenth);
            } else if self.early_calls.is_none() {
                self.early_calls = Some(self.allocator.stats().driver_calls);
            }
            self.run_piece(stop.min(end).min(events))?;
            self.worst_fragmentation = self.worst_fragmentation.max(self.allocator.stats().fragmentation());
        }
        Ok(())
    }

    /// Replays up to `end` with the clock running.
    fn run_piece(&mut self, end: usize) -> Result<(), ReplayError> {
        let plan = self.plan.clone();
        let steps = &plan.steps[self.at..end];
        let began = Instant::now();
        let (done, result) = if self.check { self.checked(steps) } else { self.bare(steps) };
        self.time += began.elapsed();
        self.at += done;
        match result {
            Err(ReplayError::Alloc(AllocError::OutOfMemory(report))) => {
                self.oom = Some(ReplayOom { event: self.at, report });
                Ok(())
            }
            other => other,
        }
    }

    /// The calls of the allocator and nothing else; how many steps were done.
    fn bare(&mut self, steps: &[Step]) -> (usize, Result<(), ReplayError>) {
        for (i, step) in steps.iter().enumerate() {
            match *step {
                Step::Alloc { slot, stream, bytes, category } => {
                    match self.allocator.allocate(bytes, &self.streams[stream as usize], category) {
                        Ok(block) => self.slots[slot as usize] = Some(block),
                        Err(error) => return (i, Err(error.into())),
                    }
                }
                Step::Free { slot } => self.slots[slot as usize] = None,
            }
        }
        (steps.len(), Ok(()))
    }

    /// As `bare`, with every block filled and looked at.
    fn checked(&mut self, steps: &[Step]) -> (usize, Result<(), ReplayError>) {
        for (i, step) in steps.iter().enumerate() {
            if let Err(error) = self.checked_step(self.at + i, step) {
                return (i, Err(error));
            }
        }
        (steps.len(), Ok(()))
    }
    fn checked_step(&mut self, event: usize, step: &Step) -> Result<(), ReplayError> {
        match *step {
            Step::Alloc { slot, stream, bytes, category } => {
                let stream = &self.streams[stream as usize];
                let block = self.allocator.allocate(bytes, stream, category)?;
                check::mark(&block, stream)?;
                self.slots[slot as usize] = Some(block);
            }
            Step::Free { slot } => {
                if let Some(block) = self.slots[slot as usize].take() {
                    check::verify(&block, &self.streams, event)?;
                }
            }
        }
        Ok(())
    }

    /// Replays the rest and reports. Blocks that the trace never frees are checked, too.
    ///
    /// # Errors
    /// As [`Replay::run_to`].
    pub fn finish(mut self) -> Result<ReplayReport, ReplayError> {
        self.run_to(usize::MAX)?;
        let stats = self.allocator.stats();
        if self.check {
            self.slots.iter().flatten().try_for_each(|block| check::verify(block, &self.streams, self.at))?;
        }
        Ok(ReplayReport {
            events: self.at,
            peak_live: stats.requested.peak,
            peak_reserved: stats.reserved.peak,
            fragmentation: stats.fragmentation(),
            worst_fragmentation: self.worst_fragmentation,
            ns_per_event: (!self.check && self.at > 0).then(|| self.time.as_nanos() as f64 / self.at as f64),
            driver_calls: stats.driver_calls - self.start.driver_calls,
            late_driver_calls: self.early_calls.map_or(0, |early| stats.driver_calls - early),
            stitches: stats.stitches - self.start.stitches,
            oom: self.oom,
        })
    }
}

/// The smallest limit in bytes, in units of the source's granularity, in which a trace completes, by bisection between its peak
/// of live bytes and what it reserves with no limit. `make` makes a fresh allocator with this limit; the one before is gone then.
/// A limit a little above may still fail, since other decisions lead to other gaps: the trace completes in the one returned.
///
/// # Errors
/// `OutOfMemory` if the trace does not complete even with no limit; else as [`replay`].
pub fn min_budget(trace: &Trace, make: impl Fn(Option<usize>) -> Result<Allocator>) -> Result<usize, ReplayError> {
    let plan = Arc::new(Plan::of(trace)?);
    let run = |limit: Option<usize>| -> Result<_, ReplayError> {
        let allocator = make(limit)?;
        let report = Replay::of(plan.clone(), &allocator, ReplayOptions::default())?.finish()?;
        Ok((report, allocator.info().granularity))
    };
    let (report, unit) = run(None)?;
    if let Some(oom) = report.oom {
        return Err(AllocError::OutOfMemory(oom.report).into());
    }
    let mut enough = report.peak_reserved.div_ceil(unit);
    let mut too_little = plan.peak.div_ceil(unit).saturating_sub(1);
    while enough > too_little + 1 {
        let middle = too_little + (enough - too_little) / 2;
        if run(Some(middle * unit))?.0.oom.is_none() {
            enough = middle;
        } else {
            too_little = middle;
        }
    }
    Ok(enough * unit)
}
