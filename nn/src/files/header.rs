//! The header of a file, read and checked.

use super::{TYPES, error};
use kiln_tensor::{DType, Result};
use safetensors::tensor::TensorInfo;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The longest header that is read.
const LONGEST: u64 = 100_000_000;

/// A tensor of a file, whose bytes are known to lie inside the file.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) info: TensorInfo,
    /// Where its bytes begin, counted from the start of the file.
    pub(super) start: u64,
}

impl Entry {
    pub(super) fn bytes(&self) -> usize {
        self.info.data_offsets.1 - self.info.data_offsets.0
    }
    /// Its type, where tensors have such.
    pub(super) fn dtype(&self) -> Option<DType> {
        TYPES.iter().find(|(_, file, _)| *file == self.info.dtype).map(|(dtype, ..)| *dtype)
    }
}

/// The tensors of a file, in the order of their bytes.
pub(super) fn read(path: &Path, file: &mut File) -> Result<Vec<Entry>> {
    let io = |e: std::io::Error| error(path, e);
    let length = file.metadata().map_err(io)?.len();
    let mut prefix = [0; 8];
    if length < 8 {
        return Err(error(path, format!("{length} bytes are too few for a safetensors file")));
    }
    file.read_exact(&mut prefix).map_err(io)?;
    let header = u64::from_le_bytes(prefix);
    if header > LONGEST || header > length - 8 {
        return Err(error(path, format!("a header of {header} bytes does not fit a file of {length} bytes (at most {LONGEST})")));
    }
    let mut text = vec![0; header as usize];
    file.read_exact(&mut text).map_err(io)?;
    let text = std::str::from_utf8(&text).map_err(|e| error(path, format!("the header is not UTF-8: {e}")))?;
    let Named(mut tensors) = serde_json::from_str(text).map_err(|e| error(path, format!("the header is wrong: {e}")))?;
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    check(&tensors, length - 8 - header).map_err(|message| error(path, message))?;
    let entry = |(name, info): (String, TensorInfo)| Entry { name, start: 8 + header + info.data_offsets.0 as u64, info };
    Ok(tensors.into_iter().map(entry).collect())
}

/// Tensors must lie one after the other, as long as their shapes say, up to the end of the file.
fn check(tensors: &[(String, TensorInfo)], data: u64) -> Result<(), String> {
    let mut end = 0;
    for (name, info) in tensors {
        let (from, to) = info.data_offsets;
        if from != end || to < from {
            return Err(format!("tensor {name} lies at bytes {from}..{to}, where it must begin at {end}"));
        }
        let empty = info.shape.contains(&0);
        let bits = info.shape.iter().try_fold(info.dtype.bitsize(), |n, &d| if empty { Some(0) } else { n.checked_mul(d) });
        let bits = bits.ok_or_else(|| format!("the shape {:?} of tensor {name} is larger than any file", info.shape))?;
        if !bits.is_multiple_of(8) || bits / 8 != to - from {
            return Err(format!(
                "tensor {name} of shape {:?} and type {} takes {} bytes, got {}",
                info.shape,
                info.dtype,
                bits.div_ceil(8),
                to - from
            ));
        }
        end = to;
    }
    if end as u64 == data { Ok(()) } else { Err(format!("the tensors take {end} bytes, the file has {data} after its header")) }
}

/// Tensors by name, with no name twice.
struct Named(Vec<(String, TensorInfo)>);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Named;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named, A::Error> {
                let (mut seen, mut tensors) = (HashSet::new(), Vec::new());
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom(format!("{name} stands there twice")));
                    }
                    if name == "__metadata__" {
                        map.next_value::<HashMap<String, String>>()?;
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                Ok(Named(tensors))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}
