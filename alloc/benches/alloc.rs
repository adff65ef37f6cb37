//! Times the allocator alone, and prints one JSON object a line: `cargo bench -p kiln-alloc`, or `-- --quick` for a short look.
//!
//! Pairs of `allocate` and drop of one size, churn over 512 live blocks of mixed sizes, threads, and use on a second stream: on
//! CUDA device 0 if there is one, else on the host; and always on the simulated source, which shows the bookkeeping alone.

use clap::Parser;
use kiln_alloc::sources::{CudaSource, HostSource, SimulatedSource};
use kiln_alloc::{Allocator, AllocatorConfig, Block, Category, HistoryConfig, Result, Source, Stream};
use serde::Serialize;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::time::Instant;

/// Times the allocator alone, and prints one JSON object a line.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// A twentieth of the rounds.
    #[arg(long)]
    quick: bool,
    /// Given by `cargo bench`; means nothing.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Runs of which the median counts.
const RUNS: usize = 7;
const LIVE: usize = 512;

/// What happens to a block, or around it.
#[derive(Clone, Copy)]
enum Mode {
    /// Allocate and drop.
    Bare,
    /// Each block is also used once, by a write token on its stream.
    Ticks,
    /// The log of allocations and frees is on, which forgets nothing.
    Log,
    /// The history is on: a ring of everything that happens, with times and lines.
    History,
}

impl Mode {
    const ALL: [Mode; 4] = [Mode::Bare, Mode::Ticks, Mode::Log, Mode::History];

    fn start(self, allocator: &Allocator) {
        match self {
            Mode::Log => allocator.start_log(),
            Mode::History => allocator.record_history(HistoryConfig::default()),
            Mode::Bare | Mode::Ticks => {}
        }
    }
    fn of(self, name: &'static str) -> String {
        name.to_string() + ["", "+ticks", "+log", "+history"][self as usize]
    }
}

#[derive(Serialize, Default)]
struct Row {
    workload: &'static str,
    source: String,
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_kib: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    /// Nanoseconds a pair of allocate and drop, on the thread that makes it.
    ns: f64,
    /// All threads together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs_per_s: Option<f64>,
    peak_alloc_mib: f64,
    peak_reserved_mib: f64,
}

impl Row {
    fn print(mut self, allocator: &Allocator) {
        let mib = |bytes: usize| (bytes as f64 / (1 << 20) as f64 * 10.0).round() / 10.0;
        let stats = allocator.stats();
        self.ns = (self.ns * 10.0).round() / 10.0;
        self.pairs_per_s = self.pairs_per_s.map(f64::round);
        (self.peak_alloc_mib, self.peak_reserved_mib) = (mib(stats.allocated.peak), mib(stats.reserved.peak));
        match serde_json::to_string(&self) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("{error}"),
        }
    }
}

/// Median nanoseconds of a round over several runs, after one to warm up.
fn median(rounds: usize, mut run: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    run(rounds / 10)?;
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        run(rounds)?;
        times.push(start.elapsed().as_nanos() as f64 / rounds as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

/// A device to measure, each time from a fresh state.
struct Bench {
    source: Arc<dyn Source>,
    /// Rounds a run.
    rounds: usize,
}

impl Bench {
    fn allocator(&self) -> Result<Allocator> {
        Allocator::new(self.source.clone(), AllocatorConfig::default())
    }
    fn row(&self, workload: &'static str, mode: String) -> Row {
        let source = self.source.info().name.clone();
        Row { workload, source, mode, ..Row::default() }
    }
    fn block(&self, allocator: &Allocator, stream: &Stream, bytes: usize, mode: Mode) -> Result<Block> {
        let block = allocator.allocate(bytes, stream, Category::Temporaries)?;
        if let Mode::Ticks = mode {
            drop(block.write(stream)?);
        }
        Ok(block)
    }

    /// Allocate and drop, over and over.
    fn pair(&self, bytes: usize, mode: Mode) -> Result<()> {
        let allocator = self.allocator()?;
        let stream = allocator.compute_stream();
        let ns = median(self.rounds, |rounds| {
            mode.start(&allocator);
            (0..rounds).try_for_each(|_| self.block(&allocator, stream, bytes, mode).map(drop))
        })?;
        Row { bytes: Some(bytes), ns, ..self.row("alloc_pair", mode.of("pair")) }.print(&allocator);
        Ok(())
    }

    /// One of 512 live blocks freed and one of another size taken, each round.
    fn churn(&self, max_kib: usize, mode: Mode) -> Result<()> {
        let allocator = self.allocator()?;
        let stream = allocator.compute_stream();
        let mut state = 88172645463325252u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        let most = max_kib * 1024;
        let mut live = Vec::new();
        for _ in 0..LIVE {
            live.push(Some(self.block(&allocator, stream, random() % most + 1, mode)?));
        }
        let ns = median(self.rounds, |rounds| {
            mode.start(&allocator);
            (0..rounds).try_for_each(|_| {
                let slot = random() % LIVE;
                live[slot] = None;
                live[slot] = Some(self.block(&allocator, stream, random() % most + 1, mode)?);
                Ok(())
            })
        })?;
        Row { max_kib: Some(max_kib), ns, ..self.row("alloc_churn", mode.of("churn")) }.print(&allocator);
        Ok(())
    }

    /// Pairs on several threads, each on a stream of its own.
    fn threads(&self, threads: usize) -> Result<()> {
        const BYTES: usize = 64 << 10;
        let allocator = self.allocator()?;
        let streams: Vec<Stream> = (0..threads).map(|_| allocator.new_stream()).collect::<Result<_>>()?;
        let ns = median(self.rounds / 2, |rounds| {
            let start = Barrier::new(threads);
            let run = |stream: &Stream| {
                start.wait();
                (0..rounds).try_for_each(|_| self.block(&allocator, stream, BYTES, Mode::Bare).map(drop))
            };
            std::thread::scope(|scope| {
                let running: Vec<_> = streams.iter().map(|stream| scope.spawn(|| run(stream))).collect();
                running.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })?;
        let (threads, pairs_per_s) = (Some(threads), Some(threads as f64 * 1e9 / ns));
        Row { bytes: Some(BYTES), threads, ns, pairs_per_s, ..self.row("alloc_threads", "pair".into()) }.print(&allocator);
        Ok(())
    }

    /// Allocated on one stream, read on another, dropped: an event each.
    fn cross_stream(&self) -> Result<()> {
        const BYTES: usize = 64 << 10;
        let allocator = self.allocator()?;
        let other = allocator.new_stream()?;
        let ns = median(self.rounds / 10, |rounds| {
            (0..rounds).try_for_each(|_| {
                let block = self.block(&allocator, allocator.compute_stream(), BYTES, Mode::Bare)?;
                drop(block.read(&other)?);
                Ok(())
            })
        })?;
        Row { bytes: Some(BYTES), ns, ..self.row("cross_stream", "pair+read".into()) }.print(&allocator);
        Ok(())
    }

    fn run(&self) -> Result<()> {
        for mode in Mode::ALL {
            [512, 64 << 10, 1 << 20, 64 << 20].into_iter().try_for_each(|bytes| self.pair(bytes, mode))?;
            [64, 1024, 16384].into_iter().try_for_each(|max_kib| self.churn(max_kib, mode))?;
        }
        [1, 2, 8].into_iter().try_for_each(|threads| self.threads(threads))?;
        self.cross_stream()
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let rounds = if args.quick { 10_000 } else { 200_000 };
    let device: Result<Arc<dyn Source>, _> = CudaSource::new(0).map(|cuda| Arc::new(cuda) as _);
    let device = device.or_else(|_| HostSource::new().map(|host| Arc::new(host) as _));
    let simulated: Arc<dyn Source> = Arc::new(SimulatedSource::new("sim", 140 << 30));
    let result = device
        .map_err(Into::into)
        .and_then(|device| [device, simulated].into_iter().try_for_each(|source| Bench { source, rounds }.run()));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
