//! Histories and snapshots of an allocator: whatever a program did, they agree with each other, with the statistics and with the
//! reader that PyTorch's format has.

mod common;
use common::{MIB, allocator, late};
use kiln_alloc::policies::{Paged, Torch};
use kiln_alloc::snapshot::{Action, BlockState, Segment, Snapshot, TraceEntry};
use kiln_alloc::sources::{Schedule, SimulatedConfig, SimulatedSource};
use kiln_alloc::trace::Trace;
use kiln_alloc::*;
use proptest::prelude::*;
use std::sync::Arc;

fn entries(snapshot: &Snapshot) -> &[TraceEntry] {
    &snapshot.device_traces[0]
}
fn actions(snapshot: &Snapshot) -> Vec<Action> {
    entries(snapshot).iter().map(|entry| entry.action).collect()
}
fn sum(snapshot: &Snapshot, of: fn(&Segment) -> u64) -> usize {
    snapshot.segments.iter().map(of).sum::<u64>() as usize
}
fn pickled(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = Vec::new();
    snapshot.write_pickle(&mut out).unwrap();
    out
}
/// A history with room for everything.
fn record(a: &Allocator) {
    a.record_history(HistoryConfig::default());
}

/// Takes a snapshot, which must be consistent and say what the statistics say.
fn checked(a: &Allocator) -> Snapshot {
    let snapshot = a.snapshot();
    snapshot.check().unwrap_or_else(|error| panic!("{error}: {:#?}", entries(&snapshot)));
    let stats = a.stats();
    assert_eq!(sum(&snapshot, |s| s.total_size), stats.reserved.current);
    assert_eq!(sum(&snapshot, |s| s.active_size), stats.active_bytes.all.current as usize);
    let live = |of: fn(u64) -> u64| {
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|b| b.state == BlockState::ActiveAllocated).map(|b| of(b.requested_size)).sum::<u64>() as usize
    };
    assert_eq!(live(|bytes| bytes), stats.requested.current);
    assert_eq!(live(|bytes| bytes.next_multiple_of(512)), stats.allocated.current);
    assert!(sum(&snapshot, |s| s.allocated_size) >= stats.allocated.current);
    snapshot
}

#[derive(Clone, Debug)]
enum Step {
    Alloc { stream: usize, bytes: usize, private: bool },
    Free(usize),
    Use { block: usize, stream: usize },
    Finish(usize),
    NewStream,
    Pool,
    EmptyCache,
    Fail(u64),
    Take,
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![0..4usize, 1..5000usize, 1..3 * MIB, (1..12usize).prop_map(|n| n * MIB)]
}
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        9 => (0..3usize, size(), prop::bool::weighted(0.1)).prop_map(|(stream, bytes, private)| Step::Alloc { stream, bytes, private }),
        7 => any::<usize>().prop_map(Step::Free),
        6 => (any::<usize>(), 0..3usize).prop_map(|(block, stream)| Step::Use { block, stream }),
        2 => (0..3usize).prop_map(Step::Finish),
        1 => Just(Step::NewStream),
        1 => Just(Step::Pool),
        1 => Just(Step::EmptyCache),
        1 => (1..20u64).prop_map(Step::Fail),
        2 => Just(Step::Take),
    ];
    prop::collection::vec(step, 1..120)
}

/// Grows by segments or by pages, as the size has it.
struct Mixed;

impl Policy for Mixed {
    fn name(&self) -> &str {
        "mixed"
    }
    fn keeps_rest(&self, _size: usize, rest: usize) -> bool {
        rest >= 64 << 10
    }
    fn growth(&self, size: usize) -> Growth {
        if (size / MIB).is_multiple_of(2) { Growth::Segments(4 * MIB) } else { Growth::Pages { stitch_above: 1.0 } }
    }
}

fn policy(which: usize) -> Box<dyn Policy> {
    match which {
        0 => Box::new(Paged::default()),
        1 => Box::new(Torch),
        _ => Box::new(Mixed),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_agrees_with_itself_and_with_the_statistics_at_any_point(
        steps in steps(),
        at_once in any::<bool>(),
        virtual_memory in prop::bool::weighted(0.8),
        which in 0..3usize,
        capacity in prop_oneof![Just(1 << 20), 1..40usize],
    ) {
        let schedule = if at_once { Schedule::AtOnce } else { Schedule::ByHand };
        let gpu = SimulatedConfig { schedule, virtual_memory, ..SimulatedConfig::new("cuda:0", 40 * MIB) };
        let gpu = Arc::new(SimulatedSource::with_config(gpu));
        let a = Allocator::new(gpu.clone(), AllocatorConfig { policy: policy(which), ..AllocatorConfig::default() }).unwrap();
        a.record_history(HistoryConfig { capacity, stacks: false });
        a.start_log();
        let mut streams = vec![a.compute_stream().clone(), a.new_stream().unwrap(), a.new_stream().unwrap()];
        let mut pool = a.private_pool().unwrap();
        let mut live: Vec<Block> = Vec::new();
        for step in steps {
            match step {
                Step::Alloc { stream, bytes, private } => {
                    let (stream, category) = (&streams[stream], Category::ALL[bytes % 7]);
                    let got = if private { pool.allocate(bytes, stream, category) } else { a.allocate(bytes, stream, category) };
                    if let Ok(block) = got {
                        if bytes > 0 {
                            gpu.touch(&block, stream, true).unwrap();
                        }
                        live.push(block);
                    }
                }
                Step::Free(at) if !live.is_empty() => drop(live.swap_remove(at % live.len())),
                Step::Use { block, stream } if !live.is_empty() => {
                    let block = &live[block % live.len()];
                    if block.bytes() > 0 {
                        gpu.touch(block, &streams[stream], false).unwrap();
                    }
                }
                Step::Finish(stream) => gpu.finish(&streams[stream]),
                Step::NewStream => {
                    streams.remove(1);
                    streams.push(a.new_stream().unwrap());
                }
                Step::Pool => pool = a.private_pool().unwrap(),
                Step::EmptyCache => a.empty_cache().unwrap(),
                Step::Fail(k) => gpu.fail_call(k),
                Step::Take => _ = checked(&a),
                _ => {}
            }
        }
        let snapshot = checked(&a);
        prop_assert!(entries(&snapshot).len() <= 2 * capacity);
        prop_assert_eq!(&Snapshot::read_pickle(&pickled(&snapshot)).unwrap(), &snapshot);
        if capacity == 1 << 20 {
            let trace = Trace::from_snapshot(&snapshot, 0).unwrap();
            prop_assert_eq!(trace.peak_requested(), a.stats().requested.peak);
            let log = Trace::from_events(&a.take_log()).events;
            let bytes = |events: &[trace::Event]| -> Vec<usize> {
                let asked = events.iter().filter_map(|e| if let trace::Event::Alloc { bytes, .. } = e { Some(*bytes) } else { None });
                asked.filter(|bytes| *bytes > 0).collect()
            };
            prop_assert_eq!(bytes(&trace.events), bytes(&log));
        }
        gpu.finish_all();
        prop_assert_eq!(gpu.breaches(), []);
    }
}

#[test]
fn a_history_tells_a_run_in_pytorchs_words() {
    use Action::*;
    let gpu = Arc::new(SimulatedSource::new("cuda:2", 64 * MIB));
    let a = allocator(&gpu);
    record(&a);
    let line = line!() + 1;
    let block = a.allocate(3_000_000, a.compute_stream(), Category::Activations).unwrap();
    drop(block);
    a.empty_cache().unwrap();
    let snapshot = a.snapshot();
    assert_eq!(snapshot.device_traces.len(), 3);
    let entries = &snapshot.device_traces[2];
    let actions: Vec<Action> = entries.iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [SegmentMap, Alloc, FreeRequested, FreeCompleted, SegmentUnmap, Action::Snapshot]);
    let alloc = &entries[1];
    assert_eq!((alloc.size, alloc.stream, alloc.category.as_deref()), (3_000_000, 0, Some("activations")));
    assert_eq!((&*alloc.frames[0].filename, alloc.frames[0].line), (file!(), i64::from(line)));
    assert!(entries.windows(2).all(|pair| pair[0].time_us <= pair[1].time_us));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64;
    assert!((now - 60_000_000..=now).contains(&alloc.time_us));
    snapshot.check().unwrap();
}

#[test]
fn blocks_lie_in_their_segments_with_state_and_line() {
    use BlockState::*;
    let gpu = late(64 * MIB);
    let a = allocator(&gpu);
    let other = a.new_stream().unwrap();
    let blocks = [0; 3].map(|_| a.allocate(2 * MIB, a.compute_stream(), Category::Inputs).unwrap());
    let small = a.allocate(100, a.compute_stream(), Category::Inputs).unwrap();
    let [first, second, _third] = blocks;
    gpu.touch(&second, &other, true).unwrap();
    drop((first, second));
    let snapshot = checked(&a);
    let large = &snapshot.segments[1];
    assert_eq!(large.blocks.iter().map(|b| b.state).collect::<Vec<_>>(), [Inactive, ActivePendingFree, ActiveAllocated]);
    assert!(large.blocks[0].frames.is_empty() && &*large.blocks[2].frames[0].filename == file!());
    assert_eq!(snapshot.segments[0].segment_type, snapshot::SegmentType::Small);
    assert_eq!(snapshot.segments[0].requested_size, small.bytes() as u64);
    assert_eq!(snapshot.device_traces, [vec![]]);
    assert!(snapshot.allocator_settings.contains(&("policy".into(), snapshot::Value::Str("paged".into()))));
    gpu.finish_all();
}

#[test]
fn pages_that_move_are_unmapped_where_they_were_and_mapped_where_they_go() {
    let gpu = late(8 * MIB);
    let a = allocator(&gpu);
    record(&a);
    let mut blocks: Vec<Block> =
        (0..4).map(|_| a.allocate(2 * MIB, a.compute_stream(), Category::Temporaries).unwrap()).collect();
    blocks.remove(2);
    blocks.remove(0);
    let large = a.allocate(4 * MIB, a.compute_stream(), Category::Temporaries).unwrap();
    assert_eq!(a.stats().stitches, 1);
    let snapshot = checked(&a);
    let story = actions(&snapshot);
    assert_eq!(
        story[story.len() - 5..],
        [Action::SegmentUnmap, Action::SegmentUnmap, Action::SegmentMap, Action::Alloc, Action::Snapshot]
    );
    drop(large);
}

#[test]
fn a_policy_of_segments_and_a_device_without_pages_show_segments_not_pages() {
    use Action::*;
    for virtual_memory in [true, false] {
        let config = SimulatedConfig { virtual_memory, ..SimulatedConfig::new("plain", 64 * MIB) };
        let source = Arc::new(SimulatedSource::with_config(config));
        let a = Allocator::new(source, AllocatorConfig::with_policy(Torch)).unwrap();
        record(&a);
        drop(a.allocate(12 * MIB, a.compute_stream(), Category::Inputs).unwrap());
        let snapshot = checked(&a);
        assert!(!snapshot.segments[0].is_expandable);
        a.empty_cache().unwrap();
        let story = actions(&checked(&a));
        assert_eq!(story, [SegmentAlloc, Alloc, FreeRequested, FreeCompleted, Snapshot, SegmentFree, Snapshot]);
    }
}

#[test]
fn a_private_pool_has_segments_of_its_own() {
    let a = allocator(&late(64 * MIB));
    let (first, second) = (a.private_pool().unwrap(), a.private_pool().unwrap());
    let blocks = [&first, &second].map(|pool| pool.allocate(MIB, a.compute_stream(), Category::Workspace).unwrap());
    let ids: Vec<_> = checked(&a).segments.iter().map(|segment| segment.segment_pool_id).collect();
    assert_eq!(ids, [(0, 1), (0, 2)]);
    drop(blocks);
}

#[test]
fn a_refused_request_is_an_entry_with_what_the_device_had_free() {
    let a = allocator(&late(8 * MIB));
    record(&a);
    let _held = a.allocate(6 * MIB, a.compute_stream(), Category::Inputs).unwrap();
    a.allocate(4 * MIB, a.compute_stream(), Category::Gradients).unwrap_err();
    let snapshot = checked(&a);
    let oom = entries(&snapshot).iter().find(|entry| entry.action == Action::Oom).unwrap();
    assert_eq!((oom.size as usize, oom.addr as usize), (4 * MIB, 2 * MIB));
    assert_eq!((oom.category.as_deref(), &*oom.frames[0].filename), (Some("gradients"), file!()));
}

#[test]
fn a_full_ring_keeps_the_newest_and_a_new_history_starts_empty() {
    let a = allocator(&late(64 * MIB));
    a.record_history(HistoryConfig { capacity: 9, ..HistoryConfig::default() });
    let _live: Vec<Block> = (1..30).map(|n| a.allocate(n * 512, a.compute_stream(), Category::Inputs).unwrap()).collect();
    let snapshot = checked(&a);
    let sizes: Vec<u64> = entries(&snapshot)[..8].iter().map(|entry| entry.size).collect();
    assert_eq!(sizes, (22..30).map(|n| n * 512).collect::<Vec<_>>());
    record(&a);
    assert_eq!(actions(&checked(&a)), [Action::Snapshot]);
    a.stop_history();
    assert_eq!(actions(&checked(&a)), []);
}

#[inline(never)]
fn a_function_of_the_caller(a: &Allocator) -> Block {
    a.allocate(MIB, a.compute_stream(), Category::Inputs).unwrap()
}

#[test]
fn whole_stacks_name_the_functions_that_called() {
    let a = allocator(&late(64 * MIB));
    a.record_history(HistoryConfig { stacks: true, ..HistoryConfig::default() });
    let block = a_function_of_the_caller(&a);
    let snapshot = checked(&a);
    let alloc = entries(&snapshot).iter().find(|entry| entry.action == Action::Alloc).unwrap();
    assert!(alloc.frames[0].name.contains("a_function_of_the_caller"), "{:?}", alloc.frames);
    let live = snapshot.segments[0].blocks.iter().find(|b| b.state == BlockState::ActiveAllocated).unwrap();
    assert_eq!(live.frames, alloc.frames);
    drop(block);
    let snapshot = checked(&a);
    let free = entries(&snapshot).iter().find(|entry| entry.action == Action::FreeRequested).unwrap();
    assert!(free.frames.iter().take(2).any(|frame| frame.name.contains("whole_stacks")), "{:?}", free.frames);
}

#[test]
fn snapshots_are_whole_while_other_threads_allocate() {
    let a = allocator(&Arc::new(SimulatedSource::new("busy", 48 * MIB)));
    a.record_history(HistoryConfig { capacity: 4096, ..HistoryConfig::default() });
    std::thread::scope(|scope| {
        let workers = [3, 5, 7].map(|step| {
            let a = &a;
            scope.spawn(move || {
                let stream = a.new_stream().unwrap();
                for n in 0..2000 {
                    let held = a.allocate(n * step % 4000 * 4096 + 1, &stream, Category::Temporaries);
                    drop((a.allocate(n + 1, &stream, Category::Inputs), held));
                    if n % 16 == step {
                        a.empty_cache().unwrap();
                    }
                }
            })
        });
        while workers.iter().any(|worker| !worker.is_finished()) {
            a.snapshot().check().unwrap();
        }
    });
    checked(&a);
}

#[test]
fn python_reads_the_file() {
    let Ok(version) = std::process::Command::new("python3").arg("--version").output() else {
        eprintln!("no python3: nothing to ask");
        return;
    };
    assert!(version.status.success());
    let a = allocator(&late(64 * MIB));
    record(&a);
    let _live = a.allocate(3 * MIB, a.compute_stream(), Category::Parameters).unwrap();
    let path = std::env::temp_dir().join(format!("kiln-history-{}.pickle", std::process::id()));
    a.snapshot_to(&path).unwrap();
    let program = "import pickle, sys
s = pickle.load(open(sys.argv[1], 'rb'))
print([e['action'] for e in s['device_traces'][0]], s['segments'][0]['requested_size'], s['segments'][0]['segment_pool_id'])";
    let out = std::process::Command::new("python3").args(["-c", program]).arg(&path).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(said.trim(), "['segment_map', 'alloc', 'snapshot'] 3145728 (0, 0)", "{}", String::from_utf8_lossy(&out.stderr));
}
