//! Recorded traces on the simulated source: what each policy takes for them, and what a replay does with traces of any kind.

mod common;
use common::MIB;
use kiln_alloc::policies::{Paged, Torch};
use kiln_alloc::replay::{Replay, ReplayError, ReplayOptions, ReplayReport, min_budget, replay};
use kiln_alloc::sources::{HostSource, SimulatedSource};
use kiln_alloc::trace::{Event, Trace};
use kiln_alloc::*;
use std::path::Path;
use std::sync::Arc;

const GPT2: &str = "gpt2_varlen_ckpt";
const KV: &str = "kv_growth";
const LSTM: &str = "lstm_dynamic";
const RESNET: &str = "resnet50_multiscale";

fn recorded(name: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traces");
    Trace::read(folder.join(format!("{name}.trace.gz"))).unwrap()
}
fn gpu() -> Arc<SimulatedSource> {
    Arc::new(SimulatedSource::new("sim", 140 << 30))
}
fn on(source: Arc<dyn Source>, policy: impl Policy, limit: Option<usize>) -> Result<Allocator> {
    Allocator::new(source, AllocatorConfig { limit, ..AllocatorConfig::with_policy(policy) })
}
fn simulated(trace: &Trace, policy: impl Policy) -> ReplayReport {
    let report = replay(trace, &on(gpu(), policy, None).unwrap(), ReplayOptions::default()).unwrap();
    assert!(report.oom.is_none());
    assert_eq!((report.events, report.peak_live), (trace.len(), trace.peak_requested()));
    report
}

#[test]
fn recorded_training_takes_two_percent_more_than_it_needs() {
    let ratios = [GPT2, LSTM, RESNET].map(|name| simulated(&recorded(name), Paged::default()).ratio());
    assert!(ratios.iter().sum::<f64>() / 3.0 <= 1.02 && ratios.iter().all(|ratio| *ratio <= 1.05), "{ratios:?}");
}

#[test]
fn caches_that_grow_by_concatenation_take_eight_percent_more() {
    let report = simulated(&recorded(KV), Paged::default());
    assert!(report.ratio() <= 1.08, "{}", report.ratio());
}

#[test]
fn the_replica_of_pytorch_reserves_what_pytorch_reserved() {
    for (name, reserved) in [(GPT2, 11_876_171_776), (LSTM, 4_200_595_456), (KV, 633_339_904), (RESNET, 18_884_853_760)] {
        assert_eq!(simulated(&recorded(name), Torch).peak_reserved, reserved, "{name}");
    }
}

#[test]
fn recorded_traces_complete_in_little_more_than_they_need() {
    for (name, most) in [(GPT2, 1.012), (KV, 1.065), (LSTM, 1.003), (RESNET, 1.009)] {
        let trace = recorded(name);
        let budget = min_budget(&trace, |limit| on(gpu(), Paged::default(), limit)).unwrap();
        let ratio = budget as f64 / trace.peak_requested() as f64;
        assert!(ratio <= most, "{name}: {ratio}");
    }
}

#[test]
fn a_known_working_set_needs_no_driver() {
    assert_eq!(simulated(&recorded(LSTM), Paged::default()).late_driver_calls, 0);
}

#[test]
fn after_warm_up_the_driver_takes_ten_milliseconds_in_10_000_events_at_most() {
    for name in [GPT2, KV, LSTM, RESNET] {
        let (trace, source) = (recorded(name), gpu());
        let allocator = on(source.clone(), Paged::default(), None).unwrap();
        let mut replay = Replay::new(&trace, &allocator, ReplayOptions::default()).unwrap();
        let warm_up = replay.warm_up();
        replay.run_to(warm_up).unwrap();
        source.reset_driver_costs();
        replay.run_to(trace.len()).unwrap();
        let ms = source.driver_time().as_secs_f64() * 1e3 / (trace.len() - warm_up) as f64 * 1e4;
        assert!(ms <= 10.0, "{name}: {ms}");
    }
}

fn alloc(id: u64, bytes: usize, stream: u32) -> Event {
    Event::Alloc { id, bytes, stream, category: None }
}
fn free(id: u64) -> Event {
    Event::Free { id }
}
/// Blocks of 16 MiB, then larger ones where they were, on three streams; an id is used twice.
fn regrouped() -> Trace {
    let small = (0..8).flat_map(|id| [alloc(id, 16 * MIB, [0, 7, 9][id as usize % 3]), alloc(100 + id, 700, 0)]);
    let large = (0..4).map(|id| alloc(id, 32 * MIB, 7));
    Trace { events: small.chain((0..8).map(free)).chain(large).collect(), dropped: 0 }
}

#[test]
fn blocks_hold_their_values_on_every_stream() {
    let allocator = on(Arc::new(HostSource::new().unwrap()), Paged::default(), None).unwrap();
    let report = replay(&regrouped(), &allocator, ReplayOptions { check: true }).unwrap();
    assert_eq!((report.events, report.peak_live), (28, 128 * MIB + 8 * 700));
    assert_eq!(report.ns_per_event, None);
    assert_eq!(allocator.stats().live_blocks, 0);
}

#[test]
fn a_simulated_device_has_no_values_to_check() {
    let error = replay(&regrouped(), &on(gpu(), Paged::default(), None).unwrap(), ReplayOptions { check: true }).unwrap_err();
    assert!(matches!(error, ReplayError::Alloc(AllocError::Source(SourceError::Unsupported(_)))), "{error}");
}

#[test]
fn a_replay_ends_where_memory_runs_out() {
    let allocator = on(gpu(), Paged::default(), Some(100 * MIB)).unwrap();
    let report = replay(&regrouped(), &allocator, ReplayOptions::default()).unwrap();
    let oom = report.oom.unwrap();
    assert_eq!((oom.event, report.events, oom.report.requested), (12, 12, 16 * MIB));
    assert_eq!(report.peak_live, 96 * MIB + 6 * 700);
}

#[test]
fn the_smallest_budget_is_whole_pages() {
    let budget = min_budget(&regrouped(), |limit| on(gpu(), Paged::default(), limit)).unwrap();
    assert_eq!(budget, 130 * MIB);
    assert_eq!(min_budget(&Trace::default(), |limit| on(gpu(), Paged::default(), limit)).unwrap(), 0);
    let tiny = |limit| on(Arc::new(SimulatedSource::new("tiny", 64 * MIB)), Paged::default(), limit);
    assert!(matches!(min_budget(&regrouped(), tiny), Err(ReplayError::Alloc(AllocError::OutOfMemory(_)))));
}

#[test]
fn a_replay_stops_where_it_is_told() {
    let (trace, allocator) = (regrouped(), on(gpu(), Paged::default(), None).unwrap());
    let mut replay = Replay::new(&trace, &allocator, ReplayOptions::default()).unwrap();
    assert_eq!(replay.warm_up(), 16);
    replay.run_to(16).unwrap();
    assert_eq!(allocator.stats().live_blocks, 16);
    replay.run_to(3).unwrap();
    assert_eq!(replay.finish().unwrap().events, 28);
}

#[test]
fn a_report_is_one_line() {
    let trace = Trace { events: vec![alloc(0, 3 << 20, 0), free(0)], dropped: 0 };
    let report = replay(&trace, &on(gpu(), Paged::default(), None).unwrap(), ReplayOptions::default()).unwrap();
    let report = ReplayReport { ns_per_event: Some(41.7), driver_calls: 5, ..report };
    let expected =
        "2 events, 3.00 MiB live and 4.00 MiB reserved at most (ratio 1.3333), 5 driver calls, 0 stitches, 42 ns an event";
    assert_eq!(report.to_string(), expected);
}

#[test]
fn traces_that_contradict_themselves_are_refused() {
    let refused = |events: &[Event]| {
        let trace = Trace { events: events.to_vec(), dropped: 0 };
        let result = replay(&trace, &on(gpu(), Paged::default(), None).unwrap(), ReplayOptions::default());
        result.unwrap_err().to_string()
    };
    assert_eq!(refused(&[alloc(5, 1, 0), alloc(5, 1, 0)]), "event 1 allocates the live block 5");
    assert_eq!(refused(&[free(6)]), "event 0 frees the unknown block 6");
}
