//! Reading files.

use super::header::{Entry, read};
use super::{PIECE, error};
use crate::{Parameter, Params};
use kiln_tensor::{Device, Result, Tensor, modes};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Reads a safetensors file into the parameters under the path of `params`. Strict: names, shapes and types must be those of the parameters, and nothing is
/// changed unless all fit.
///
/// # Errors
/// [`kiln_tensor::Error::File`], listing every name that is missing or unexpected and every shape or type that differs, or what is wrong with the file.
pub fn load_safetensors(path: impl AsRef<Path>, params: &Params) -> Result<()> {
    let path = path.as_ref();
    let mut file = open(path)?;
    let entries = read(path, &mut file)?;
    let params = params.trainable();
    let wanted: HashMap<&str, &Parameter> = params.iter().map(|p| (p.name(), p)).collect();
    let given: HashMap<&str, &Entry> = entries.iter().map(|e| (e.name.as_str(), e)).collect();
    let missing: Vec<&str> = params.iter().map(|p| p.name()).filter(|name| !given.contains_key(name)).collect();
    let unexpected: Vec<&str> = entries.iter().map(|e| e.name.as_str()).filter(|name| !wanted.contains_key(name)).collect();
    let differs = |p: &&Parameter| given.get(p.name()).is_some_and(|e| e.info.shape != p.dims() || e.dtype() != Some(p.dtype()));
    let differing = params.iter().filter(differs).map(|p| {
        let entry = given[p.name()];
        format!(
            "{} has shape {} and type {}, in the file {:?} and {}",
            p.name(),
            p.shape(),
            p.dtype(),
            entry.info.shape,
            entry.info.dtype
        )
    });
    let mut faults: Vec<String> = Vec::new();
    if !missing.is_empty() {
        faults.push(format!("missing: {}", missing.join(", ")));
    }
    if !unexpected.is_empty() {
        faults.push(format!("unexpected: {}", unexpected.join(", ")));
    }
    faults.extend(differing);
    if !faults.is_empty() {
        return Err(error(path, faults.join("; ")));
    }
    for entry in &entries {
        fill(path, &mut file, entry, wanted[entry.name.as_str()].tensor())?;
    }
    Ok(())
}

/// All tensors of a safetensors file with their names, on a device, in the order of the file.
///
/// # Errors
/// As [`load_safetensors`]; for a type that tensors do not have.
pub fn load_tensors(path: impl AsRef<Path>, device: &Device) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    let mut file = open(path)?;
    let mut tensors = Vec::new();
    for entry in read(path, &mut file)? {
        let Some(dtype) = entry.dtype() else {
            return Err(error(path, format!("tensor {} has type {}, which tensors do not have", entry.name, entry.info.dtype)));
        };
        let tensor = modes::no_grad(|| Tensor::zeros(entry.info.shape.as_slice(), dtype, device))?;
        fill(path, &mut file, &entry, &tensor)?;
        tensors.push((entry.name, tensor));
    }
    Ok(tensors)
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|e| error(path, e))
}

/// Copies the bytes of an entry into a contiguous tensor of as many bytes.
fn fill(path: &Path, file: &mut File, entry: &Entry, tensor: &Tensor) -> Result<()> {
    let io = |e: std::io::Error| error(path, e);
    file.seek(SeekFrom::Start(entry.start)).map_err(io)?;
    let stream = tensor.device().stream();
    let mut token = tensor.storage().write(&stream, "load_safetensors")?;
    let (start, bytes) = (tensor.layout().offset() * tensor.dtype().size(), entry.bytes());
    let mut piece = vec![0; PIECE.min(bytes)];
    for done in (0..bytes).step_by(PIECE) {
        let piece = &mut piece[..PIECE.min(bytes - done)];
        file.read_exact(piece).map_err(io)?;
        kiln_alloc::upload(piece, &mut token, start + done)?;
    }
    Ok(())
}
