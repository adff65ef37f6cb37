//! Safetensors files, from and to any device.

use crate::support::{bits, cases};
use kiln::nn::{Init, Linear, Params, load_safetensors, load_tensors, save_safetensors, save_tensors};
use kiln::{DType, Device, Error, Result, Tensor};
use std::path::PathBuf;

cases![parameters_survive_a_round_trip, every_type_survives, a_load_that_does_not_fit_changes_nothing, hostile_files_are_refused];

/// A file of its own for each case and device, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, d: &Device) -> Scratch {
        let device = d.name().replace(':', "-");
        Scratch(std::env::temp_dir().join(format!("kiln-devices-{}-{device}-{name}.safetensors", std::process::id())))
    }
    fn with(name: &str, d: &Device, bytes: &[u8]) -> Result<Scratch> {
        let scratch = Scratch::new(name, d);
        std::fs::write(&scratch.0, bytes).map_err(|e| Error::message(e.to_string()))?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn parameters_survive_a_round_trip(d: &Device) -> Result<()> {
    let scratch = Scratch::new("round-trip", d);
    let make = |d: &Device| -> Result<Params> {
        let params = Params::new(d);
        Linear::new(3, 2, &params.at("fc"))?;
        params.with_dtype(DType::BF16).create("half", (5, 1), Init::Normal(1.0))?;
        params.create("none", (0, 4), Init::Zeros)?;
        Ok(params)
    };
    let (here, host, again) = (make(d)?, make(&Device::cpu())?, make(d)?);
    save_safetensors(&scratch.0, &here)?;
    load_safetensors(&scratch.0, &host)?;
    load_safetensors(&scratch.0, &again)?;
    for ((a, b), c) in here.trainable().iter().zip(host.trainable()).zip(again.trainable()) {
        assert!(bits(a)? == bits(&b)? && bits(a)? == bits(&c)?, "{}", a.name());
    }
    Ok(())
}

fn every_type_survives(d: &Device) -> Result<()> {
    let scratch = Scratch::new("types", d);
    let tensors = DType::ALL.iter().map(|&t| Ok((t.name().to_owned(), Tensor::arange(0, 6, 1, t, d)?.reshape((2, 3))?.t()?)));
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    save_tensors(&scratch.0, &tensors)?;
    let loaded = load_tensors(&scratch.0, d)?;
    assert_eq!(loaded.len(), tensors.len());
    for (name, x) in &tensors {
        let (_, y) = loaded.iter().find(|(n, _)| n == name).expect("the name is there");
        assert_eq!((y.dims(), y.dtype(), y.device(), bits(y)?), (x.dims(), x.dtype(), d, bits(x)?));
    }
    Ok(())
}

fn a_load_that_does_not_fit_changes_nothing(d: &Device) -> Result<()> {
    let scratch = Scratch::new("strict", d);
    let saved = Params::new(d);
    saved.create("a", 2, Init::Zeros)?;
    saved.create("extra", 1, Init::Zeros)?;
    save_safetensors(&scratch.0, &saved)?;
    let params = Params::new(d);
    let a = params.create("a", 2, Init::Ones)?;
    params.create("lost", 1, Init::Ones)?;
    let e = load_safetensors(&scratch.0, &params).unwrap_err().to_string();
    assert!(e.contains("lost") && e.contains("extra"), "{e}");
    assert_eq!(a.to_vec::<f32>()?, [1.0, 1.0]);
    Ok(())
}

/// A file with this header and so many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
}

fn hostile_files_are_refused(d: &Device) -> Result<()> {
    let short = file(r#"{"w":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}}"#, 4);
    let scratch = Scratch::with("short", d, &short)?;
    let e = load_tensors(&scratch.0, d).unwrap_err().to_string();
    assert!(e.contains('w') && e.contains("4000000 bytes, got 4"), "{e}");

    let one =
        |shape: &str, offsets: &str| file(&format!(r#"{{"x":{{"dtype":"U8","shape":{shape},"data_offsets":{offsets}}}}}"#), 8);
    let prefix = |n: u64| [&n.to_le_bytes()[..], &[b'{'; 100]].concat();
    let bad = [
        Vec::new(),
        prefix(1 << 63),
        prefix(u64::MAX),
        prefix(101),
        prefix(0),
        one("[8]", "[]"),
        one("[8]", "[8]"),
        one("[8]", "[8,4]"),
        one("[9]", "[0,9]"),
        one("[4]", "[0,4]"),
        one("[9223372036854775807,3]", "[0,8]"),
        file(r#"{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}"#, 8),
        file(r#"{"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#, 8),
        file(&"[".repeat(100_000), 0),
        [&4u64.to_le_bytes()[..], &[b'{', 0xff, 0xfe, b'}']].concat(),
    ];
    let before = d.memory_stats().allocations;
    for (i, bytes) in bad.iter().enumerate() {
        let scratch = Scratch::with(&format!("hostile-{i}"), d, bytes)?;
        assert!(matches!(load_tensors(&scratch.0, d), Err(Error::File { .. })), "file {i}");
    }
    assert_eq!(d.memory_stats().allocations, before);
    Ok(())
}
