//! Mutated and hostile files: a result or a typed error, in memory that the size of the file bounds.

use crate::memory::peak_of;
use crate::sample::*;
use kiln_alloc::snapshot::*;
use kiln_alloc::trace::*;

/// xorshift64: the same inputs on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }
    /// A few changes: bytes set, bits flipped, pieces cut, moved and repeated.
    fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(out.len());
            let piece = at..(at + self.below(64)).min(out.len());
            match self.below(6) {
                0 if !out.is_empty() => out[at] = self.below(256) as u8,
                1 if !out.is_empty() => out[at] ^= 1 << self.below(8),
                2 => out.truncate(at),
                3 => _ = out.drain(piece),
                4 => {
                    let copy = out[piece].to_vec();
                    let to = self.below(out.len());
                    out.splice(to..to, copy);
                }
                _ => out.insert(at, b"(.012]})tudels\x85\x86\x94\xffh"[self.below(18)]),
            }
        }
        out
    }
}

const FACTOR: usize = 64;
/// Hash tables and the inflater's window, whatever the size.
const FIXED: usize = 128 << 10;

fn bounded(bytes: &[u8]) {
    let (_, peak) = peak_of(|| {
        if let Ok(trace) = Trace::parse(bytes) {
            trace.peak_requested();
        }
    });
    assert!(peak <= FACTOR * bytes.len() + FIXED, "{peak} bytes for a file of {}", bytes.len());
}

#[test]
fn mutated_pickles_are_read_or_refused() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut seeds: Vec<Vec<u8>> = (2..=5).map(|p| std::fs::read(data(&format!("protocol{p}.pickle"))).unwrap()).collect();
    seeds.push(std::fs::read(data("python2.pickle")).unwrap());
    seeds.push(pickled(&sample()));
    let mut read = 0;
    for _ in 0..60_000 {
        let seed = random.below(seeds.len());
        let bytes = random.mutate(&seeds[seed]);
        let (snapshot, peak) = peak_of(|| Snapshot::read_pickle(&bytes));
        assert!(peak <= FACTOR * bytes.len() + FIXED, "{peak} bytes for a file of {}", bytes.len());
        if let Ok(snapshot) = snapshot {
            read += 1;
            _ = snapshot.check();
            _ = Trace::from_snapshot(&snapshot, snapshot.busiest_device());
            assert_eq!(format!("{:?}", Snapshot::read_pickle(&pickled(&snapshot)).unwrap()), format!("{snapshot:?}"));
        }
    }
    assert!(read > 1_000, "only {read} were read");
}

#[test]
fn mutated_traces_are_read_or_refused() {
    let mut random = Random(0xdead_beef_cafe_f00d);
    let log = "a 0 512 0\na 1 0 1 optimizer state\nf 0\na 0 7 0 inputs\nf 1\n";
    let csv = "op,id,size,stream,t_us\nseed,0,50,4,-1\nalloc,1,100,0,2\nfree_req,0,50,4,3\nfree,0,50,4,3\nfree,-1,9,0,4\n";
    let gzip = std::fs::read(data("traces/resnet50_multiscale.trace.gz")).unwrap();
    for _ in 0..20_000 {
        bounded(&random.mutate(log.as_bytes()));
        bounded(&random.mutate(csv.as_bytes()));
    }
    for _ in 0..200 {
        _ = Trace::parse(&random.mutate(&gzip[..4096]));
    }
}

#[test]
fn pickles_made_to_exhaust_memory_or_time_do_not() {
    const N: usize = 300_000;
    let repeat = |head: &[u8], piece: &[u8], tail: &[u8]| [b"\x80\x04", head, &piece.repeat(N), tail].concat();
    let cases = [
        repeat(b"", b"]", b"."),
        repeat(b"", b"(", b"."),
        repeat(b"N", b"2", b"."),
        repeat(b"N", b"\x94", b"."),
        repeat(b"N", b"\x85", b"."),
        repeat(b"N", b"2\x86", b"."),
        repeat(b"N", b"]\x94Na", b"."),
        repeat(b"", b"}NNs", b"."),
        repeat(b"", b"K\x01", b"."),
        repeat(b"]", b"]a", b"."),
        // Lists within lists, as deep as the file is long.
        repeat(b"", b"]", &[&b"a".repeat(N - 1)[..], b"."].concat()),
        // Every level holds the one below twice.
        [b"\x80\x04}(\x8c\x08segments]\x8c\x12allocator_settings}(\x8c\x01k]", &b"2\x86".repeat(60)[..], b"uu."].concat(),
        // One segment, many times over, and it has many blocks.
        {
            let blocks = b"\x8c\x06blocks](".to_vec();
            let blocks =
                [blocks, b"}(\x8c\x04sizeK\x01\x8c\x05state\x8c\x08inactiveu\x94".to_vec(), b"h\x00".repeat(N), b"e".to_vec()]
                    .concat();
            [b"\x80\x04](}(\x8c\x07addressK\x01", &blocks[..], b"u\x94", &b"h\x01".repeat(N)[..], b"e."].concat()
        },
        // A large dictionary as every entry of a trace.
        {
            let wide = [b"}(", &b"NN".repeat(N)[..], b"u\x94"].concat();
            [b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces]](", &wide[..], &b"h\x00".repeat(N), b"eau."].concat()
        },
    ];
    for bytes in &cases {
        let start = std::time::Instant::now();
        bounded(bytes);
        assert!(start.elapsed().as_secs() < 20);
    }
}
