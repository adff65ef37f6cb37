//! The snapshot that `data/make_pickles.py` writes, in Rust.

use kiln_alloc::snapshot::*;
use std::path::PathBuf;
use std::sync::Arc;

pub const MIB: u64 = 1 << 20;
pub const A: u64 = 0x7f00_0000_0000;
pub const B: u64 = 0x7f10_0000_0000;
pub const C: u64 = 0x7f20_0000_0000;
pub const D: u64 = 0x7f30_0000_0000;

pub fn data(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", name].iter().collect()
}

pub fn entry(action: Action, addr: u64, size: u64, time_us: i64) -> TraceEntry {
    TraceEntry { action, addr, size, stream: 0, time_us, frames: Arc::new([]), category: None }
}
pub fn block(address: u64, size: u64, requested_size: u64, state: BlockState) -> Block {
    Block { address, size, requested_size, state, frames: Arc::new([]) }
}

pub fn sample() -> Snapshot {
    use Action::*;
    let frame = |filename: &str, line, name: &str| Frame { filename: filename.into(), line, name: name.into() };
    let stack: Arc<[Frame]> = vec![frame("/home/usér/model.py", 17, "forward"), frame("train.py", 70000, "main")].into();
    let segment = Segment {
        device: 0,
        address: A,
        total_size: 20 * MIB,
        allocated_size: 10 * MIB,
        active_size: 14 * MIB,
        requested_size: 14_000_000,
        stream: 0,
        segment_type: SegmentType::Large,
        segment_pool_id: (0, 0),
        is_expandable: false,
        frames: Arc::new([]),
        blocks: vec![
            Block { frames: stack.clone(), ..block(A, 10 * MIB, 10_000_000, BlockState::ActiveAllocated) },
            Block { frames: stack.clone(), ..block(A + 10 * MIB, 4 * MIB, 4_000_000, BlockState::ActivePendingFree) },
            block(A + 14 * MIB, 6 * MIB, 0, BlockState::Inactive),
        ],
    };
    let small = Segment {
        address: B,
        total_size: 2 * MIB,
        allocated_size: 512,
        active_size: 512,
        requested_size: 100,
        stream: 94_000_000_000_007,
        segment_type: SegmentType::Small,
        blocks: vec![block(B, 512, 100, BlockState::ActiveAllocated), block(B + 512, 2 * MIB - 512, 0, BlockState::Inactive)],
        ..segment.clone()
    };
    let expandable = Segment {
        address: C,
        total_size: 4 * MIB,
        allocated_size: 0,
        active_size: 0,
        requested_size: 0,
        is_expandable: true,
        blocks: vec![block(C, 4 * MIB, 3_000_000, BlockState::Inactive)],
        ..segment.clone()
    };
    let trace = vec![
        entry(FreeRequested, A, 5_000_000, 1_700_000_000_000_000),
        entry(FreeCompleted, A, 5_000_000, 1_700_000_000_000_001),
        TraceEntry {
            frames: stack.clone(),
            category: Some("parameters".into()),
            ..entry(Alloc, A, 10_000_000, 1_700_000_000_000_002)
        },
        entry(SegmentMap, C, 2 * MIB, 3),
        entry(SegmentMap, C + 2 * MIB, 2 * MIB, 4),
        TraceEntry { category: Some("unknown".into()), ..entry(Alloc, C, 3_000_000, 5) },
        TraceEntry { frames: stack, ..entry(Alloc, A + 10 * MIB, 4_000_000, 6) },
        entry(FreeRequested, C, 3_000_000, 7),
        entry(FreeCompleted, C, 3_000_000, 8),
        entry(FreeRequested, A + 10 * MIB, 4_000_000, 9),
        entry(Oom, 12345, 1 << 40, 10),
        TraceEntry { stream: -1, ..entry(SegmentAlloc, D, 2 * MIB, 11) },
        TraceEntry { stream: -1, ..entry(SegmentFree, D, 2 * MIB, 12) },
        entry(SegmentUnmap, C + 4 * MIB, 2 * MIB, 13),
        entry(Action::Snapshot, 0, 0, 14),
    ];
    let int = Value::Int;
    let text = |s: &str| Value::Str(s.into());
    kiln_alloc::snapshot::Snapshot {
        segments: vec![segment, small, expandable],
        device_traces: vec![trace, Vec::new()],
        allocator_settings: vec![
            ("PYTORCH_CUDA_ALLOC_CONF".into(), text("")),
            ("max_split_size".into(), int(-1)),
            ("garbage_collection_threshold".into(), Value::Float(0.25)),
            ("expandable_segments".into(), Value::Bool(true)),
            ("roundup_power2_divisions".into(), Value::Dict(vec![(text("1"), int(0)), (text("2"), int(0))])),
            ("nothing".into(), Value::None),
            ("kinds".into(), Value::List(vec![int(1), Value::Tuple(vec![int(2), int(3), int(4), int(5)]), Value::Bool(false)])),
        ],
        external_annotations: vec![vec![
            ("name".into(), text("step")),
            ("stage".into(), text("START")),
            ("device".into(), int(0)),
            ("time_us".into(), int(5)),
        ]],
    }
}

pub fn pickled(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = Vec::new();
    snapshot.write_pickle(&mut out).unwrap();
    out
}
