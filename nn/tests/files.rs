//! Safetensors files, good and hostile.

use kiln_nn::{Init, Linear, Params, load_safetensors, load_tensors, save_safetensors, save_tensors};
use kiln_tensor::{DType, Device, Error, Result, Tensor};
use std::path::PathBuf;

/// A file of its own for each test, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("kiln-{}-{name}.safetensors", std::process::id())))
    }
    fn with(name: &str, bytes: &[u8]) -> Scratch {
        let scratch = Scratch::new(name);
        std::fs::write(&scratch.0, bytes).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A file with this header and so many bytes of data.
fn file(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
}

#[test]
fn parameters_survive_a_round_trip() -> Result<()> {
    let scratch = Scratch::new("round-trip");
    let make = || -> Result<Params> {
        let params = Params::new(&Device::cpu());
        Linear::new(3, 2, &params.at("fc"))?;
        params.with_dtype(DType::F16).create("half", 3, Init::Normal(1.0))?;
        params.with_dtype(DType::F64).create("wide", (), Init::Normal(1.0))?;
        params.create("none", (0, 4), Init::Zeros)?;
        Ok(params)
    };
    let (from, to) = (make()?, make()?);
    save_safetensors(&scratch.0, &from)?;
    load_safetensors(&scratch.0, &to)?;
    for (a, b) in from.trainable().iter().zip(to.trainable()) {
        assert_eq!(a.to_dtype(DType::F64)?.to_vec::<f64>()?, b.to_dtype(DType::F64)?.to_vec::<f64>()?);
    }
    Ok(())
}

#[test]
fn files_are_what_the_safetensors_crate_reads() -> Result<()> {
    let scratch = Scratch::new("crate");
    let x = Tensor::from_vec(vec![1f32, 2.0, 3.0, 4.0], (2, 2), &Device::cpu())?;
    let mask = Tensor::from_vec(vec![7u8], 1, &Device::cpu())?;
    save_tensors(&scratch.0, &[("mask \"a\"".into(), mask), ("x.t".into(), x.t()?)])?;
    let bytes = std::fs::read(&scratch.0).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("mask \"a\"").unwrap().data(), [7]);
    let values: Vec<u8> = [1f32, 3.0, 2.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(file.tensor("x.t").unwrap().data(), values);
    assert_eq!(load_tensors(&scratch.0, &Device::cpu())?[0].0, "x.t");
    Ok(())
}

#[test]
fn names_shapes_and_types_must_fit_and_nothing_changes_otherwise() -> Result<()> {
    let scratch = Scratch::new("strict");
    let saved = Params::new(&Device::cpu());
    saved.create("a", 2, Init::Zeros)?;
    saved.create("b", 2, Init::Zeros)?;
    saved.with_dtype(DType::F64).create("c", 1, Init::Zeros)?;
    saved.create("extra", 1, Init::Zeros)?;
    save_safetensors(&scratch.0, &saved)?;
    let params = Params::new(&Device::cpu());
    let a = params.create("a", 2, Init::Ones)?;
    params.create("b", 3, Init::Ones)?;
    params.create("c", 1, Init::Ones)?;
    params.create("lost", 1, Init::Ones)?;
    let e = load_safetensors(&scratch.0, &params).unwrap_err().to_string();
    for part in ["missing: lost", "unexpected: extra", "b has shape [3]", "c has shape [1] and type f32", "F64", "strict"] {
        assert!(e.contains(part), "{part}: {e}");
    }
    assert_eq!(a.to_vec::<f32>()?, [1.0, 1.0]);
    Ok(())
}

#[test]
fn what_cannot_be_written_or_read_is_an_error() -> Result<()> {
    let x = Tensor::zeros(1, DType::F32, &Device::cpu())?;
    assert!(matches!(save_tensors("/nowhere/at/all", &[("x".into(), x.clone())]), Err(Error::File { .. })));
    assert!(save_tensors(Scratch::new("twice").0.clone(), &[("x".into(), x.clone()), ("x".into(), x)]).is_err());
    assert!(matches!(load_tensors("/nowhere/at/all", &Device::cpu()), Err(Error::File { .. })));
    let dry = Params::new(&Device::dry_run("1GiB")?);
    dry.create("x", 1, Init::Zeros)?;
    let scratch = Scratch::new("dry");
    assert!(matches!(save_safetensors(&scratch.0, &dry), Err(Error::DryRun { .. })));
    assert!(!scratch.0.exists());
    Ok(())
}

#[test]
fn a_shape_that_its_bytes_do_not_fill_is_named() {
    let scratch = Scratch::with("short", &file(r#"{"w":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}}"#, 4));
    let e = load_tensors(&scratch.0, &Device::cpu()).unwrap_err().to_string();
    assert!(e.contains("tensor w") && e.contains("4000000 bytes, got 4"), "{e}");
}

#[test]
fn hostile_headers_are_refused() {
    let entry = |shape: &str, offsets: &str| format!(r#"{{"dtype":"U8","shape":{shape},"data_offsets":{offsets}}}"#);
    let one = |shape: &str, offsets: &str| file(&format!(r#"{{"x":{}}}"#, entry(shape, offsets)), 8);
    let two = |a: &str, b: &str| file(&format!(r#"{{"x":{},"y":{}}}"#, entry("[4]", a), entry("[4]", b)), 8);
    let prefix = |n: u64| [&n.to_le_bytes()[..], &[b'{'; 100]].concat();
    let bad = [
        Vec::new(),
        vec![0; 7],
        prefix(1 << 63),
        prefix(u64::MAX),
        prefix(101),
        prefix(0),
        file("{}", 1),
        one("[8]", "[]"),
        one("[8]", "[8]"),
        one("[8]", "[8,4]"),
        one("[8]", "[8,0]"),
        one("[9]", "[0,9]"),
        one("[4]", "[0,4]"),
        one("[8]", "[-1,7]"),
        one("[9223372036854775807,3]", "[0,8]"),
        one("[18446744073709551616]", "[0,8]"),
        two("[0,4]", "[2,6]"),
        two("[0,4]", "[5,9]"),
        two("[4,8]", "[4,8]"),
        file(&format!(r#"{{"x":{0},"x":{0}}}"#, entry("[8]", "[0,8]")), 8),
        file(r#"{"x":{"dtype":"F7","shape":[8],"data_offsets":[0,8]}}"#, 8),
        file(r#"{"__metadata__":{"a":1}}"#, 0),
        file(&"[".repeat(100_000), 0),
        file(&format!(r#"{{"x":{}"#, r#"{"a":"#.repeat(50_000)), 0),
        [&4u64.to_le_bytes()[..], &[b'{', 0xff, 0xfe, b'}']].concat(),
    ];
    for (i, bytes) in bad.iter().enumerate() {
        let scratch = Scratch::with(&format!("hostile-{i}"), bytes);
        assert!(matches!(load_tensors(&scratch.0, &Device::cpu()), Err(Error::File { .. })), "case {i}");
    }
}

#[test]
fn an_empty_tensor_may_have_any_shape() -> Result<()> {
    let header = r#"{"x":{"dtype":"F32","shape":[4611686018427387904,0],"data_offsets":[0,0]}}"#;
    let scratch = Scratch::with("empty", &file(header, 0));
    assert_eq!(load_tensors(&scratch.0, &Device::cpu())?[0].1.elem_count(), 0);
    Ok(())
}

#[test]
fn saving_replaces_files_and_nothing_else() -> Result<()> {
    let x = Tensor::ones(1, DType::F32, &Device::cpu())?;
    let scratch = Scratch::new("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&scratch.0).unwrap();
    assert!(matches!(save_tensors(&scratch.0, &[("x".into(), x)]), Err(Error::File { .. })));
    assert!(!std::fs::symlink_metadata(&scratch.0).unwrap().is_file());
    Ok(())
}

#[test]
fn a_name_that_files_keep_for_themselves_is_an_error() -> Result<()> {
    let scratch = Scratch::new("reserved");
    let x = Tensor::ones(1, DType::F32, &Device::cpu())?;
    assert!(save_tensors(&scratch.0, &[("__metadata__".into(), x)]).is_err() && !scratch.0.exists());
    Ok(())
}
