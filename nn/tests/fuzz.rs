//! Readers of files against a hundred thousand damaged ones: an error that names the file, or tensors no larger than it; never a panic, never a wait.

use kiln_nn::load_tensors;
use kiln_tensor::{Device, Error, Result, Tensor};
use std::path::{Path, PathBuf};

/// Inputs for each reader.
const INPUTS: u64 = 50_000;

/// A generator of its own for each input (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// A damaged copy: a few bytes changed, cut out, doubled, put in from a list of nasty pieces, or the end cut off.
fn damaged(seed: &[u8], pieces: &[&str], draw: &mut Draw) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + draw.below(4) {
        let at = draw.below(bytes.len());
        let end = (at + draw.below(12)).min(bytes.len());
        match draw.below(6) {
            0 if !bytes.is_empty() => bytes[at] = draw.next() as u8,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << draw.below(8),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            4 => {
                let piece = pieces[draw.below(pieces.len())].bytes();
                bytes.splice(at..end, piece);
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Feeds damaged copies of `seeds` to a reader, on a few threads; `read` gives the bytes of what it read.
fn feed(name: &str, seeds: &[Vec<u8>], pieces: &[&str], read: fn(&Path) -> Result<usize>) {
    const THREADS: u64 = 4;
    let work = |thread: u64| {
        let path: PathBuf = std::env::temp_dir().join(format!("kiln-fuzz-{}-{thread}-{name}", std::process::id()));
        let (mut good, mut bad) = (0, 0);
        for input in (thread..INPUTS).step_by(THREADS as usize) {
            let mut draw = Draw(input);
            let bytes = damaged(&seeds[input as usize % seeds.len()], pieces, &mut draw);
            std::fs::write(&path, &bytes).expect("a file is written");
            match read(&path) {
                Ok(size) => {
                    assert!(size <= bytes.len(), "input {input}: {size} bytes from {}", bytes.len());
                    good += 1;
                }
                Err(Error::File { .. }) => bad += 1,
                Err(other) => panic!("input {input}: {other}"),
            }
        }
        let _ = std::fs::remove_file(&path);
        (good, bad)
    };
    let counts: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || work(t))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    let (good, bad) = counts.iter().fold((0, 0), |(g, b), (more_good, more_bad)| (g + more_good, b + more_bad));
    assert_eq!(good + bad, INPUTS);
    assert!(good > 100 && bad > INPUTS / 2, "{good} were read, {bad} refused");
}

fn size(x: &Tensor) -> usize {
    x.elem_count() * x.dtype().size()
}

#[test]
fn damaged_safetensors_files() {
    let file = |header: &str, data: usize| [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![7; data]].concat();
    let seeds = [
        file(r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 8),
        file(
            r#"{"__metadata__":{"format":"pt"},"a.b":{"dtype":"I64","shape":[2,1],"data_offsets":[0,16]},"c":{"dtype":"BF16","shape":[],"data_offsets":[16,18]}}"#,
            18,
        ),
        file(r#"{"e":{"dtype":"U8","shape":[0,4],"data_offsets":[0,0]},"f":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#, 3),
        file("{}", 0),
    ];
    let pieces =
        ["9223372036854775807", "-1", "[", "]", "{", "\"x\":", "0", "null", "1e999", "\\u0000", "[1,1,1,1,1,1,1,1,1]", "\u{ff}"];
    feed("x.safetensors", &seeds, &pieces, |path| Ok(load_tensors(path, &Device::cpu())?.iter().map(|(_, x)| size(x)).sum()));
}

#[test]
fn damaged_npy_files() {
    let file = |version: u8, header: &str, data: usize| {
        let length = (header.len() as u32).to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length[..] };
        [b"\x93NUMPY", &[version, 0][..], length, header.as_bytes(), &vec![7; data]].concat()
    };
    let seeds = [
        file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n", 8),
        file(2, "{'descr': '<i8', 'fortran_order': True, 'shape': (1, 2), }\n", 16),
        file(3, "{'descr': '|u1', 'fortran_order': False, 'shape': (), }\n", 1),
        file(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 7), }\n", 0),
    ];
    let pieces = [
        "9223372036854775807",
        "-1",
        "(",
        ")",
        "{",
        "'",
        "\"",
        "True",
        ",",
        "99999999999999999999",
        "1, 1, 1, 1, 1, 1, 1, 1,",
        "\u{ff}",
    ];
    feed("x.npy", &seeds, &pieces, |path| Ok(size(&Tensor::load_npy(path, &Device::cpu())?)));
}
