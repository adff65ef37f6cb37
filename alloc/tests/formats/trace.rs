//! Traces of every format.

use crate::sample::*;
use flate2::{Compression, write::GzEncoder};
use kiln_alloc::snapshot::{Action, Snapshot, TraceEntry};
use kiln_alloc::trace::*;
use kiln_alloc::{Category, LogEvent, StreamId};
use std::io::Write;

fn alloc(id: u64, bytes: usize, stream: u32) -> Event {
    Event::Alloc { id, bytes, stream, category: None }
}
fn free(id: u64) -> Event {
    Event::Free { id }
}
fn parse(text: &str) -> Trace {
    Trace::parse(text.as_bytes()).unwrap()
}
fn complaint(bytes: &[u8]) -> String {
    Trace::parse(bytes).unwrap_err().to_string()
}
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let events = [
        LogEvent::Free { id: u64::MAX },
        LogEvent::Alloc { id: 0, bytes: 0, stream: StreamId(0), category: Category::Inputs },
        LogEvent::Alloc { id: 1, bytes: 7 << 30, stream: StreamId(3), category: Category::OptimizerState },
        LogEvent::Free { id: 0 },
    ];
    let trace = Trace::from_events(&events);
    assert_eq!((trace.len(), trace.peak_requested()), (3, 7 << 30));
    let mut text = Vec::new();
    trace.write(&mut text).unwrap();
    assert_eq!(std::str::from_utf8(&text).unwrap(), "a 0 0 0 inputs\na 1 7516192768 3 optimizer state\nf 0\n");
    assert_eq!((trace.dropped, Trace::parse(&text).unwrap().dropped), (1, 0));
    assert_eq!(Trace::parse(&text).unwrap().events, trace.events);
    assert_eq!(Trace::parse(&gzip(&text)).unwrap().events, trace.events);
}

#[test]
fn ids_may_be_used_again_and_unknown_frees_are_dropped() {
    let trace = parse("f 9\na 1 100 0\n\nf 1\r\nf 1\na 1 0 2\n");
    assert_eq!(trace.events, [alloc(1, 100, 0), free(1), alloc(1, 0, 2)]);
    assert_eq!((trace.peak_requested(), trace.dropped), (100, 2));
    assert_eq!(parse("op,id,size,stream,t_us\nfree,-1,9,0,4\nfree,7,9,0,4\n").dropped, 2);
    assert!(parse("").is_empty());
}

#[test]
fn seeds_of_a_csv_file_come_first() {
    let trace = parse(
        "op,id,size,stream,t_us\nsegment_alloc,-1,67108864,0,1\nalloc,1,100,0,2\nseed,0,50,4,-1\nfree_req,0,50,4,3\nfree,0,50,4,3\n\
         free,-1,9,0,4\nfree,0,50,4,5\nalloc,0,0,0,6\n",
    );
    assert_eq!(trace.events, [alloc(0, 50, 4), alloc(1, 100, 0), free(0), alloc(0, 0, 0)]);
    assert_eq!(trace.peak_requested(), 150);
}

#[test]
fn a_snapshot_becomes_the_traffic_behind_it() {
    let trace = Trace::from_snapshot(&sample(), 0).unwrap();
    let parameters = Event::Alloc { id: 1, bytes: 10_000_000, stream: 0, category: Some(Category::Parameters) };
    // What is freed first was live at the start, and so was the block that is live at the end and never allocated.
    let early = [alloc(0, 5_000_000, 0), alloc(4, 100, 1)];
    let rest = [free(0), parameters, alloc(2, 3_000_000, 0), alloc(3, 4_000_000, 0), free(2), free(3)];
    assert_eq!(trace.events, [&early[..], &rest].concat());
    assert_eq!(Trace::parse(&pickled(&sample())).unwrap(), trace);
    assert_eq!(Trace::read(data("protocol2.pickle")).unwrap(), trace);
    assert!(Trace::from_snapshot(&sample(), 7).unwrap().is_empty());
}

#[test]
fn a_snapshot_without_traces_is_what_is_live() {
    let trace = Trace::read(data("python2.pickle")).unwrap();
    assert_eq!(trace.events, [alloc(0, 1_000_000, 0)]);
}

#[test]
fn a_trace_cut_short_anywhere_frees_each_block_once() {
    let whole = Trace::from_snapshot(&sample(), 0).unwrap();
    for from in 0..=sample().device_traces[0].len() {
        let mut snapshot = sample();
        snapshot.device_traces[0].drain(..from);
        let trace = Trace::from_snapshot(&snapshot, 0).unwrap();
        let live = |t: &Trace| t.events.iter().map(|e| if let Event::Alloc { .. } = e { 1 } else { -1 }).sum::<i32>();
        assert_eq!(live(&trace), live(&whole), "from entry {from}");
    }
}

#[test]
fn a_completion_alone_frees() {
    let trace = vec![
        entry(Action::FreeCompleted, A, 10, 0),
        entry(Action::FreeCompleted, A, 10, 0),
        entry(Action::Alloc, A, 20, 0),
        entry(Action::FreeCompleted, A, 20, 0),
        TraceEntry { stream: 5, ..entry(Action::Alloc, A, 30, 0) },
        entry(Action::FreeRequested, A, 30, 0),
        entry(Action::FreeRequested, A, 30, 0),
    ];
    let snapshot = Snapshot { device_traces: vec![vec![], trace], ..Snapshot::default() };
    assert_eq!(snapshot.busiest_device(), 1);
    let trace = Trace::from_snapshot(&snapshot, 1).unwrap();
    assert_eq!(trace.events, [alloc(0, 10, 0), free(0), alloc(1, 20, 0), free(1), alloc(2, 30, 1), free(2)]);
}

#[test]
fn a_file_of_another_kind_is_told_the_formats() {
    for bytes in [&b"hello\n"[..], b"PK\x03\x04\0\0", b"(dp0\nS'segments'\n", &gzip(b"{}")] {
        assert!(matches!(Trace::parse(bytes), Err(FormatError::NoTrace)), "{bytes:?}");
    }
    let message = complaint(b"hello");
    assert!(["a ID BYTES STREAM", "op,id,size", "a pickle"].iter().all(|format| message.contains(format)), "{message}");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (text, message) in [
        ("f 1\nhello\n", "line 2 is neither `a ID BYTES STREAM [CATEGORY]` nor `f ID`"),
        ("a 1 2 3\n\nb 1\n", "line 3 is neither `a ID BYTES STREAM [CATEGORY]` nor `f ID`"),
        ("a\n", "line 1 has no id"),
        ("a 1 -2 0\n", "line 1 has a size that is no number of bytes"),
        ("a 1 99999999999999999999 0\n", "line 1 has a size that is no number of bytes"),
        ("a 1\n", "line 1 has no size in bytes"),
        ("a 1 2\n", "line 1 has no stream number"),
        ("a 1 2 0 dreams\n", "line 1 has an unknown category"),
        ("f 1 2\n", "line 1 has words after the id"),
        ("a 1 2 0\na 1 2 0\n", "line 2 allocates block 1, which is live"),
        ("op,what\n", "line 1 is not the header `op,id,size,stream,t_us`"),
        ("op,id,size,stream,t_us\nalloc,-1,2,0,0\n", "line 2 has an id that is no number from 0 on"),
        ("op,id,size,stream,t_us\nfree,-2,2,0,0\n", "line 2 has an id that is no number from 0 on"),
        ("op,id,size,stream,t_us\ndance,1,2,0,0\n", "line 2 has an unknown op"),
        ("op,id,size,stream,t_us\nalloc,1,2,0,0\nseed,1,2,0,0\n", "line 2 allocates block 1, which is live"),
    ] {
        assert_eq!(complaint(text.as_bytes()), message, "{text}");
    }
    let twice = vec![entry(Action::Alloc, A, 1, 0); 2];
    let error = Trace::from_snapshot(&Snapshot { device_traces: vec![twice], ..Snapshot::default() }, 0).unwrap_err();
    assert_eq!(error.to_string(), "trace entry 1 allocates block 139637976727552, which is live");
    assert!(matches!(Trace::read(data("none")), Err(FormatError::Io(_))));
}

#[test]
fn gzip_that_is_damaged_or_a_bomb_is_an_error() {
    let good = gzip(b"a 0 1 0\n");
    assert!(matches!(Trace::parse(&good[..good.len() - 1]), Err(FormatError::Gzip { .. })));
    assert!(matches!(Trace::parse(&[&good[..], b"x"].concat()), Err(FormatError::Gzip { position: 8, .. })));
    assert!(matches!(Trace::parse(&gzip(&vec![b'\n'; 16 << 20])), Err(FormatError::TooLarge { .. })));
}

#[test]
fn recorded_traces_have_the_peaks_that_were_recorded() {
    for (name, events, peak) in [
        ("gpt2_varlen_ckpt", 103_996, 6_077_203_712),
        ("lstm_dynamic", 168_583, 2_236_604_240),
        ("kv_growth", 666_721, 467_198_464),
        ("resnet50_multiscale", 33_557, 14_797_721_232),
    ] {
        let trace = Trace::read(data(&format!("traces/{name}.trace.gz"))).unwrap();
        assert_eq!((trace.len(), trace.peak_requested()), (events, peak), "{name}");
    }
}
