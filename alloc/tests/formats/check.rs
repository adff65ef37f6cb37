//! A snapshot that a viewer could not walk back through is found out, at the place.

use crate::sample::*;
use kiln_alloc::snapshot::*;

/// The complaint about the sample after a change.
fn complaint(change: impl FnOnce(&mut Snapshot)) -> String {
    let mut snapshot = sample();
    change(&mut snapshot);
    snapshot.check().unwrap_err().to_string()
}

#[test]
fn a_snapshot_that_agrees_with_itself_passes() {
    sample().check().unwrap();
    Snapshot::default().check().unwrap();
}

#[test]
fn a_trace_may_begin_anywhere() {
    for from in 0..sample().device_traces[0].len() {
        let mut snapshot = sample();
        snapshot.device_traces[0].drain(..from);
        snapshot.device_traces[0].iter_mut().for_each(|e| e.category = None);
        snapshot.check().unwrap();
    }
}

#[test]
fn a_trace_that_leaves_out_an_entry_is_found_out() {
    for (entry, message) in [
        (2, "entry 1 of device 0 is `free_completed`, but a block is live there after it"),
        (5, "entry 4 of device 0 is `segment_map`, but a block is live in it, allocated before"),
        (7, "entry 5 of device 0 is `alloc`, but its block is pending after it, with no free requested"),
        (8, "entry 7 of device 0 is `free_requested`, but the free is not completed after it, and the block is gone"),
        (9, "entry 6 of device 0 is `alloc`, but its block is pending after it, with no free requested"),
        (12, "entry 11 of device 0 is `segment_alloc`, but no such segment is there after it"),
    ] {
        let mut snapshot = sample();
        snapshot.device_traces[0].iter_mut().for_each(|e| e.category = None);
        snapshot.device_traces[0].remove(entry);
        assert_eq!(snapshot.check().unwrap_err().to_string(), message, "without entry {entry}");
    }
}

#[test]
fn an_action_must_fit_the_state_after_it() {
    let push = |action, addr, size| complaint(|s| s.device_traces[0].push(entry(action, addr, size, 15)));
    assert!(push(Action::Alloc, D, 512).contains("no block is live at its address"));
    assert!(push(Action::Alloc, A, 512).contains("another size"));
    assert!(push(Action::FreeRequested, A, 10_000_000).contains("still allocated"));
    assert!(push(Action::FreeRequested, D, 512).contains("not completed"));
    assert!(push(Action::FreeCompleted, D, 512).contains("no segment holds"));
    assert!(push(Action::FreeCompleted, A + MIB, 512).contains("a block is live there"));
    assert!(push(Action::SegmentFree, A + 19 * MIB, 2 * MIB).contains("a segment is there"));
    assert!(push(Action::SegmentUnmap, C, 2 * MIB).contains("a segment is there"));
    assert!(push(Action::SegmentAlloc, C, 2 * MIB).contains("no such segment"));
    assert!(push(Action::SegmentAlloc, B, 2 * MIB).contains("a block is live in it"));
    assert!(push(Action::SegmentMap, C + 2 * MIB, 4 * MIB).contains("no segment holds its pages"));
    assert!(push(Action::SegmentMap, A, 2 * MIB).contains("a block is live in it"));
    assert!(push(Action::Alloc, 1 << 53, 512).contains("beyond address 2^53"));
    assert!(push(Action::Alloc, u64::MAX, u64::MAX).contains("beyond address 2^53"));
}

#[test]
fn pages_of_an_expandable_segment_may_come_from_its_middle() {
    let mut snapshot = sample();
    snapshot.device_traces[0] = vec![
        entry(Action::SegmentMap, C + MIB, MIB, 0),
        entry(Action::SegmentUnmap, C - MIB, MIB, 1),
        entry(Action::SegmentMap, C, MIB, 2),
        entry(Action::SegmentMap, C + 2 * MIB, 2 * MIB, 3),
    ];
    snapshot.check().unwrap();
}

#[test]
fn segments_lie_apart_and_are_tiled_by_their_blocks() {
    assert_eq!(complaint(|s| s.segments[0].address = (1 << 53) - 1), "segment 0 reaches beyond address 2^53");
    assert_eq!(complaint(|s| s.segments[0].total_size = u64::MAX), "segment 0 reaches beyond address 2^53");
    assert_eq!(complaint(|s| s.segments[0].blocks[1].address += 1), "the blocks of segment 0 do not tile it at block 1");
    assert_eq!(complaint(|s| s.segments[0].blocks[1].size -= 1), "the blocks of segment 0 do not tile it at block 2");
    assert_eq!(complaint(|s| s.segments[0].blocks[2].size += 1), "the blocks of segment 0 do not tile it at block 2");
    assert_eq!(complaint(|s| s.segments[0].blocks[0].requested_size <<= 1), "the blocks of segment 0 do not tile it at block 0");
    assert_eq!(complaint(|s| _ = s.segments[0].blocks.pop()), "the blocks of segment 0 do not tile it at block 2");
    assert_eq!(complaint(|s| s.segments[1].active_size = 1), "segment 1 has `active_size` 1, but its blocks have 512");
    assert_eq!(complaint(|s| s.segments.push(s.segments[0].clone())), "segment 3 overlaps another one of its device");
    let mut elsewhere = sample();
    elsewhere.segments.push(Segment { device: usize::MAX, ..elsewhere.segments[0].clone() });
    elsewhere.check().unwrap();
}

#[test]
fn where_entries_have_categories_one_is_unknown() {
    assert_eq!(
        complaint(|s| s.device_traces[0][5].category = Some("inputs".into())),
        "entries have categories, but none has the category \"unknown\""
    );
}
