//! What goes into a pickle comes out of it, in Rust and in Python.

use crate::sample::*;
use kiln_alloc::snapshot::*;
use std::io::Write;
use std::process::{Command, Stdio};

/// Feeds a script; `None`, with a word about it, where there is no Python.
fn python(script: &str, input: &[u8]) -> Option<Vec<u8>> {
    let spawned = Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        eprintln!("skipped: there is no python3 here; the committed pickles stand in for it");
        return None;
    };
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the script failed");
    Some(output.stdout)
}

#[test]
fn a_snapshot_is_read_as_it_was_written() {
    let snapshot = sample();
    assert_eq!(Snapshot::read_pickle(&pickled(&snapshot)).unwrap(), snapshot);
    let empty = Snapshot::default();
    assert_eq!(Snapshot::read_pickle(&pickled(&empty)).unwrap(), empty);
}

#[test]
fn pickles_of_python_are_read_at_every_protocol() {
    for protocol in 2..=5 {
        let bytes = std::fs::read(data(&format!("protocol{protocol}.pickle"))).unwrap();
        assert_eq!(Snapshot::read_pickle(&bytes).unwrap(), sample(), "protocol {protocol}");
    }
}

#[test]
fn python_reads_what_is_written_and_writes_what_is_read() {
    for protocol in 2..=5 {
        let script = format!(
            "import pickle, sys\ns = pickle.load(sys.stdin.buffer)\n\
             assert s['segments'][0]['segment_pool_id'] == (0, 0) and s['device_traces'][0][10]['device_free'] == 12345\n\
             assert s['segments'][0]['blocks'][0]['frames'] is s['device_traces'][0][2]['frames']\n\
             pickle.dump(s, sys.stdout.buffer, {protocol})"
        );
        let Some(back) = python(&script, &pickled(&sample())) else { return };
        assert_eq!(Snapshot::read_pickle(&back).unwrap(), sample(), "protocol {protocol}");
    }
}

#[test]
fn only_opcodes_that_the_viewer_knows_are_written() {
    let mut snapshot = sample();
    // Many streams and strings, so that the memo outgrows one byte.
    for stream in (0..300).chain(0..300) {
        let category = Some(format!("category {stream}").into());
        snapshot.device_traces[1].push(TraceEntry {
            stream,
            category,
            ..entry(Action::Snapshot, 0, 1 << (stream % 64), -stream)
        });
    }
    assert_eq!(Snapshot::read_pickle(&pickled(&snapshot)).unwrap(), snapshot);
    let script = "import pickletools, sys\nprint(*sorted({op.name for op, _, _ in pickletools.genops(sys.stdin.buffer.read())}))";
    let Some(opcodes) = python(script, &pickled(&snapshot)) else { return };
    assert_eq!(
        String::from_utf8(opcodes).unwrap().trim(),
        "APPENDS BINFLOAT BINGET BININT BININT1 BININT2 EMPTY_DICT EMPTY_LIST LONG1 LONG_BINGET MARK MEMOIZE NEWFALSE NEWTRUE NONE \
         PROTO SETITEMS SHORT_BINUNICODE STOP TUPLE TUPLE2"
    );
}

#[test]
fn integers_of_every_width_survive() {
    let mut snapshot = sample();
    let edges =
        [0, 1, 0xff, 0x100, 0xffff, 0x1_0000, 0x7fff_ffff, 0x8000_0000, 1 << 39, 1 << 47, i64::MAX as u64, 1 << 63, u64::MAX];
    for edge in edges {
        let signed = edge as i64;
        for stream in [signed, signed.wrapping_neg(), signed.wrapping_neg().wrapping_sub(1)] {
            snapshot.device_traces[1].push(TraceEntry { stream, ..entry(Action::Alloc, edge, edge, !stream) });
        }
    }
    assert_eq!(Snapshot::read_pickle(&pickled(&snapshot)).unwrap(), snapshot);
}

#[test]
fn shared_stacks_are_written_once() {
    let mut snapshot = sample();
    let before = pickled(&snapshot).len();
    let again = snapshot.device_traces[0][2].clone();
    snapshot.device_traces[0].extend(std::iter::repeat_n(again, 1000));
    let entry = (pickled(&snapshot).len() - before) / 1000;
    assert!(entry <= 60, "{entry} bytes an entry");
    let read = Snapshot::read_pickle(&pickled(&snapshot)).unwrap();
    let stack = |i: usize| read.device_traces[0][i].frames.as_ptr();
    assert_eq!(stack(2), stack(1000));
}

#[test]
fn a_bare_list_of_old_segments_is_read() {
    let bytes = std::fs::read(data("python2.pickle")).unwrap();
    let snapshot = Snapshot::read_pickle(&bytes).unwrap();
    snapshot.check().unwrap();
    let [segment] = &snapshot.segments[..] else { panic!("one segment") };
    assert_eq!((segment.allocated_size, segment.active_size, segment.requested_size), (MIB, MIB + 512, 1_000_512));
    assert_eq!(segment.blocks[0].requested_size, 1_000_000);
    assert_eq!(&*segment.blocks[0].frames[0].filename, "a.py");
    assert_eq!(segment.blocks[1], block(A + MIB, 512, 512, BlockState::ActivePendingFree));
    assert_eq!(segment.blocks[2].address, A + MIB + 512);
}
