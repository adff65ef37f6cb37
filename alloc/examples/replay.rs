//! Replays allocation traces on any policy and source, and says what they took:
//! `cargo run --release -p kiln-alloc --example replay -- alloc/tests/data/traces/*.trace.gz --min-budget`.

use clap::{Parser, ValueEnum};
use kiln_alloc::policies::{Bump, Paged, RoundUp, Torch};
use kiln_alloc::replay::{Replay, ReplayError, ReplayOom, ReplayOptions, ReplayReport, min_budget};
use kiln_alloc::sources::{CudaMemory, CudaOptions, CudaSource, HostSource, SimulatedSource};
use kiln_alloc::{Allocator, AllocatorConfig, Policy, Source, SourceError, trace::Trace};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

const COLUMNS: &str = "\
Columns:
  live MiB      the most that the trace had live at once, as asked for: no allocator can reserve less
  reserved MiB  the most that was taken from the device
  ratio         reserved / live
  budget MiB    the smallest limit in which the trace completes (--min-budget)
  ratio         budget / live
  ns/event      time of the host for an event, the driver's calls among it; - with --check
  calls         calls of the driver that took, gave or moved memory
  late          those in the last tenth of the trace: 0 where the working set was known by then
  stitches      times that free pages were mapped at a new address
  driver ms     what all calls would have taken on an H200 (--source sim)
  ms/10k warm   the same for 10,000 events, of those after the trace first had its most live at once

Exits with 1 where a trace could not be read or replayed, with 2 where the options are wrong, and with 3 where memory ran out.";

/// Replays allocation traces and says what they took.
///
/// Reads logs of this crate, CSV, and PyTorch's memory snapshots, gzipped or not.
#[derive(Parser)]
#[command(version, after_long_help = COLUMNS)]
struct Args {
    /// Traces to replay.
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// paged, torch, bump or round-up[:FACTOR].
    #[arg(long, default_value = "paged", value_parser = policy_name)]
    policy: String,
    /// Where the memory comes from.
    #[arg(long, value_enum, default_value_t)]
    source: From,
    /// Reserve at most this much: 13GiB, 512MiB or bytes.
    #[arg(long, value_parser = bytes)]
    budget: Option<usize>,
    /// Also find the smallest budget in which the trace completes.
    #[arg(long)]
    min_budget: bool,
    /// Fill every block and look for its values before it is freed; nothing is timed then. Not on the simulated source.
    #[arg(long)]
    check: bool,
    /// Print a JSON object a trace.
    #[arg(long)]
    json: bool,
    /// Memory of the simulated device.
    #[arg(long, value_parser = bytes, default_value = "140GiB")]
    capacity: usize,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum From {
    /// A simulated GPU, which also says what its driver calls would have cost.
    #[default]
    Sim,
    /// Virtual memory of CUDA device 0.
    Cuda,
    /// `cuMemAlloc` on CUDA device 0.
    CudaPlain,
    Host,
}

/// A number of bytes, with or without a unit.
fn bytes(text: &str) -> Result<usize, String> {
    let units = [("GiB", 1usize << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1), ("", 1)];
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1));
    let value: f64 = number.trim().parse().map_err(|_| format!("{text} is not a size such as 13GiB, 512MiB or 4096"))?;
    if value >= 0.0 && value.is_finite() { Ok((value * unit as f64) as usize) } else { Err("a size is not negative".into()) }
}

/// The exit status where memory ran out.
const RAN_OUT: u8 = 3;

/// A policy by its name.
fn policy(name: &str) -> Result<Box<dyn Policy>, String> {
    let round_up = |factor: f64| Box::new(RoundUp::new(Paged::default(), factor));
    Ok(match (name, name.strip_prefix("round-up:")) {
        ("paged", _) => Box::new(Paged::default()),
        ("torch", _) => Box::new(Torch),
        ("bump", _) => Box::new(Bump),
        ("round-up", _) => round_up(1.2),
        (_, Some(factor)) => match factor.parse::<f64>() {
            Ok(factor) if factor >= 1.0 && factor.is_finite() => round_up(factor),
            _ => return Err(format!("{factor} is no factor to round up by: a number from 1 on")),
        },
        _ => return Err("there are paged, torch, bump and round-up[:FACTOR]".into()),
    })
}
fn policy_name(name: &str) -> Result<String, String> {
    policy(name).map(|_| name.into())
}

/// One trace's line.
#[derive(Serialize)]
struct Row {
    trace: String,
    policy: String,
    source: String,
    peak_live: usize,
    peak_reserved: usize,
    ratio: f64,
    min_budget: Option<usize>,
    min_budget_ratio: Option<f64>,
    ns_per_event: Option<f64>,
    driver_calls: u64,
    oom: bool,
    /// Index of the event that was refused.
    oom_event: Option<usize>,
    events: usize,
    /// Frees of unknown blocks, which were left out.
    dropped_frees: usize,
    /// Driver calls in the last tenth of the trace.
    late_driver_calls: u64,
    stitches: u64,
    /// At the end of the trace, and the worst of a hundred looks.
    fragmentation: f64,
    worst_fragmentation: f64,
    /// What all driver calls would have taken on an H200, by the simulated source.
    driver_time_ms: Option<f64>,
    /// The same by 10,000 events, of the events after the one at which the peak of requested bytes was first reached.
    driver_ms_per_10k_events: Option<f64>,
}

/// A device, and its other face if it is simulated.
type Device = (Arc<dyn Source>, Option<Arc<SimulatedSource>>);

impl Args {
    fn device(&self) -> Result<Device, SourceError> {
        let cuda = |memory| CudaSource::with(0, CudaOptions { memory, ..CudaOptions::default() });
        Ok(match self.source {
            From::Sim => {
                let simulated = Arc::new(SimulatedSource::new("sim", self.capacity));
                (simulated.clone(), Some(simulated))
            }
            From::Cuda => (Arc::new(cuda(CudaMemory::Virtual)?), None),
            From::CudaPlain => (Arc::new(cuda(CudaMemory::Plain)?), None),
            From::Host => (Arc::new(HostSource::new()?), None),
        })
    }

    fn allocator(&self, device: &Device, limit: Option<usize>) -> kiln_alloc::Result<Allocator> {
        let policy = policy(&self.policy).unwrap_or_else(|_| Box::new(Paged::default()));
        Allocator::new(device.0.clone(), AllocatorConfig { limit, policy, ..AllocatorConfig::default() })
    }

    /// Replays one trace: its row, and the report if memory ran out.
    fn run(&self, path: &PathBuf) -> Result<(Row, Option<ReplayOom>), Box<dyn std::error::Error>> {
        let trace = Trace::read(path)?;
        if trace.is_empty() {
            return Err("the trace is empty".into());
        }
        let device = self.device().map_err(kiln_alloc::AllocError::from)?;
        let driver_ms = || device.1.as_ref().map(|simulated| simulated.driver_time().as_secs_f64() * 1e3);
        let allocator = self.allocator(&device, self.budget)?;
        let mut replay = Replay::new(&trace, &allocator, ReplayOptions { check: self.check })?;
        let warm_up = replay.warm_up();
        let start = driver_ms();
        replay.run_to(warm_up)?;
        let warm = driver_ms();
        replay.run_to(usize::MAX)?;
        let end = driver_ms();
        let report: ReplayReport = replay.finish()?;
        drop(allocator);
        let smallest = match self.min_budget {
            true => match min_budget(&trace, |limit| self.allocator(&device, limit)) {
                // Not even with all of the device.
                Err(ReplayError::Alloc(kiln_alloc::AllocError::OutOfMemory(_))) => None,
                other => Some(other?),
            },
            false => None,
        };
        let late = report.events.saturating_sub(warm_up);
        let row = Row {
            trace: path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            policy: self.policy.clone(),
            source: self.source.to_possible_value().map_or_else(String::new, |value| value.get_name().into()),
            peak_live: report.peak_live,
            peak_reserved: report.peak_reserved,
            ratio: round(report.ratio(), 4),
            min_budget: smallest,
            min_budget_ratio: smallest.map(|budget| round(budget as f64 / report.peak_live.max(1) as f64, 4)),
            ns_per_event: report.ns_per_event.map(|ns| round(ns, 1)),
            driver_calls: report.driver_calls,
            oom: report.oom.is_some(),
            oom_event: report.oom.as_ref().map(|oom| oom.event),
            events: report.events,
            dropped_frees: trace.dropped,
            late_driver_calls: report.late_driver_calls,
            stitches: report.stitches,
            fragmentation: round(report.fragmentation, 4),
            worst_fragmentation: round(report.worst_fragmentation, 4),
            driver_time_ms: end.zip(start).map(|(end, start)| round(end - start, 3)),
            driver_ms_per_10k_events: end
                .zip(warm)
                .filter(|_| late > 0)
                .map(|(end, warm)| round((end - warm) / late as f64 * 1e4, 3)),
        };
        Ok((row, report.oom))
    }
}

fn round(value: f64, digits: i32) -> f64 {
    let unit = 10f64.powi(digits);
    (value * unit).round() / unit
}

const HEAD: [&str; 11] = [
    "live MiB",
    "reserved MiB",
    "ratio",
    "budget MiB",
    "ratio",
    "ns/event",
    "calls",
    "late",
    "stitches",
    "driver ms",
    "ms/10k warm",
];

impl Row {
    fn print(&self) {
        let mib = |bytes: usize| format!("{:.1}", bytes as f64 / (1 << 20) as f64);
        let some = |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
        line(
            &self.trace,
            [
                mib(self.peak_live),
                mib(self.peak_reserved),
                format!("{:.4}", self.ratio),
                self.min_budget.map_or("-".into(), mib),
                some(self.min_budget_ratio, 4),
                some(self.ns_per_event, 0),
                self.driver_calls.to_string(),
                self.late_driver_calls.to_string(),
                self.stitches.to_string(),
                some(self.driver_time_ms, 1),
                some(self.driver_ms_per_10k_events, 2),
            ],
        );
    }
}

fn line(name: &str, columns: [impl std::fmt::Display; 11]) {
    let columns: String = columns.iter().map(|column| format!(" {column:>12}")).collect();
    println!("{name:<34}{columns}");
}

fn main() -> ExitCode {
    let args = Args::parse();
    let (mut failed, mut ran_out, mut headed) = (false, false, args.json);
    for path in &args.traces {
        let (row, oom) = match args.run(path) {
            Ok(done) => done,
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                failed = true;
                continue;
            }
        };
        ran_out |= oom.is_some();
        if args.json {
            match serde_json::to_string(&row) {
                Ok(text) => println!("{text}"),
                Err(error) => {
                    eprintln!("{}: {error}", path.display());
                    failed = true;
                }
            }
            continue;
        }
        if !headed {
            println!("policy {}, checked: {}", args.policy, if args.check { "yes" } else { "no" });
            line("trace", HEAD);
            headed = true;
        }
        row.print();
        if row.dropped_frees > 0 {
            let frees = if row.dropped_frees == 1 { "free" } else { "frees" };
            println!("  dropped {} {frees} of blocks from before the trace", row.dropped_frees);
        }
        if let Some(oom) = oom {
            println!("\nAfter {} of its events:\n{}\n", oom.event, oom.report);
        }
    }
    match (failed, ran_out) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(RAN_OUT),
        (false, false) => ExitCode::SUCCESS,
    }
}
