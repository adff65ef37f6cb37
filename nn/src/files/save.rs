//! Writing files.

use super::{PIECE, TYPES, error};
use crate::Params;
use kiln_tensor::{Error, Result, Tensor, modes};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes the parameters under the path of `params` to a safetensors file, named as in PyTorch's `state_dict`. The file appears whole or not at all: it is
/// written under another name beside `path`, then renamed.
///
/// # Errors
/// What the file system says; where `path` is a device, a pipe or a folder; on a dry-run device, which has no values.
pub fn save_safetensors(path: impl AsRef<Path>, params: &Params) -> Result<()> {
    let tensors: Vec<(String, Tensor)> = params.named().into_iter().map(|(name, p)| (name, p.tensor().clone())).collect();
    save_tensors(path, &tensors)
}

/// Writes named tensors (the state of an optimizer, say) to a safetensors file, as [`save_safetensors`].
///
/// # Errors
/// As [`save_safetensors`]; where a name stands there twice or is `__metadata__`.
pub fn save_tensors(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<()> {
    let path = path.as_ref();
    if tensors.iter().any(|(_, t)| t.device().is_dry_run()) {
        return Err(Error::DryRun { op: "save_tensors" });
    }
    // Wider types first keeps every tensor aligned to its element size.
    let mut order: Vec<&(String, Tensor)> = tensors.iter().collect();
    order.sort_by_key(|(_, t)| std::cmp::Reverse(t.dtype().size()));
    let mut names: Vec<&str> = order.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
        return Err(error(path, format!("two tensors are named {}", twice[0])));
    }
    if names.contains(&"__metadata__") {
        return Err(error(path, "no tensor can be named __metadata__, which means something else in such files"));
    }
    // Renaming a file onto a device or a pipe would replace it.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(error(path, "is there already, and no file"));
    }
    let Some(name) = path.file_name() else { return Err(error(path, "is no name of a file")) };
    let mut unfinished = name.to_owned();
    unfinished.push(format!(".{}.unfinished", std::process::id()));
    let unfinished = path.with_file_name(unfinished);
    let written = write(&unfinished, &order).and_then(|()| std::fs::rename(&unfinished, path).map_err(|e| error(path, e)));
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

fn write(path: &Path, tensors: &[&(String, Tensor)]) -> Result<()> {
    let io = |e: std::io::Error| error(path, e);
    let file = File::create(path).map_err(io)?;
    let mut out = BufWriter::new(&file);
    let header = header(tensors);
    out.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    out.write_all(header.as_bytes()).map_err(io)?;
    for (_, tensor) in tensors {
        let tensor = modes::no_grad(|| tensor.contiguous())?;
        let size = tensor.dtype().size();
        let (start, bytes, stream) = (tensor.layout().offset() * size, tensor.elem_count() * size, tensor.device().stream());
        let read = tensor.storage().read(&stream)?;
        let mut piece = vec![0; PIECE.min(bytes)];
        for done in (0..bytes).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(bytes - done)];
            kiln_alloc::download(&read, start + done, piece)?;
            out.write_all(piece).map_err(io)?;
        }
    }
    out.flush().map_err(io)?;
    drop(out);
    file.sync_all().map_err(io)
}

/// The header, padded to a multiple of 8 bytes.
fn header(tensors: &[&(String, Tensor)]) -> String {
    let mut text = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
    let mut end = 0;
    for (name, tensor) in tensors {
        let start = end;
        end += tensor.elem_count() * tensor.dtype().size();
        let dtype = TYPES.iter().find(|(d, ..)| *d == tensor.dtype()).map_or("", |(_, _, name)| name);
        let name = serde_json::Value::from(name.as_str());
        text += &format!(",{name}:{{\"dtype\":\"{dtype}\",\"shape\":{:?},\"data_offsets\":[{start},{end}]}}", tensor.dims());
    }
    text.push('}');
    let padded = text.len().next_multiple_of(8);
    text.extend(std::iter::repeat_n(' ', padded - text.len()));
    text
}
