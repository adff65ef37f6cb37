//! Compiled code on disk, one file for each (source, options, compiler version). A file that is damaged counts as missing; where no
//! file can be written, work goes on without.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// First bytes of a file, before the checksum of what follows.
const MAGIC: &[u8; 8] = b"kiln-cu1";
const HEADER: usize = MAGIC.len() + 16;

/// The name of an entry.
pub(super) type Key = u128;

/// FNV-1a over 128 bits.
fn hash(start: u128, bytes: &[u8]) -> u128 {
    bytes.iter().fold(start, |h, &b| (h ^ b as u128).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B))
}
const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;

/// The entry of a text compiled with these options (architecture included) by this version of the compiler.
pub(super) fn key(text: &str, options: &[String], version: (i32, i32)) -> Key {
    let head = format!("{version:?}{options:?}");
    hash(hash(BASIS, head.as_bytes()), text.as_bytes())
}

/// The folder: `$KILN_CACHE_DIR`, else `$XDG_CACHE_HOME/kiln`, else `~/.cache/kiln`, else one in the system's temporary folder.
fn folder() -> PathBuf {
    let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    var("KILN_CACHE_DIR")
        .or_else(|| var("XDG_CACHE_HOME").map(|d| d.join("kiln")))
        .or_else(|| var("HOME").map(|d| d.join(".cache").join("kiln")))
        .unwrap_or_else(|| std::env::temp_dir().join("kiln-cache"))
}

fn file(key: Key) -> PathBuf {
    folder().join(format!("{key:032x}.bin"))
}

/// What is stored under a key, if it is whole.
pub(super) fn load(key: Key) -> Option<Vec<u8>> {
    unpack(fs::read(file(key)).ok()?)
}

fn unpack(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let whole = bytes.len() > HEADER
        && bytes.starts_with(MAGIC)
        && bytes[MAGIC.len()..HEADER] == hash(BASIS, &bytes[HEADER..]).to_le_bytes();
    whole.then(|| bytes.split_off(HEADER))
}

/// Stores under a key, so that no reader ever sees half a file.
pub(super) fn store(key: Key, image: &[u8]) {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let path = file(key);
    let unique = format!("{}-{}.tmp", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    let draft = path.with_extension(unique);
    let bytes = [MAGIC, &hash(BASIS, image).to_le_bytes()[..], image].concat();
    let written = fs::create_dir_all(folder()).and_then(|()| fs::write(&draft, bytes)).and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        // The next process compiles again; nothing else is lost.
        let _ = fs::remove_file(&draft);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_counts_as_missing() {
        let image = b"machine code".to_vec();
        let mut bytes = [MAGIC, &hash(BASIS, &image).to_le_bytes()[..], &image].concat();
        assert_eq!(unpack(bytes.clone()), Some(image));
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(unpack(bytes.clone()), None);
        bytes.truncate(10);
        assert_eq!(unpack(bytes), None);
    }

    #[test]
    fn keys_tell_text_options_and_versions_apart() {
        let options = |o: &str| vec![o.to_owned()];
        let keys = [
            key("a", &options("x"), (13, 0)),
            key("b", &options("x"), (13, 0)),
            key("a", &options("y"), (13, 0)),
            key("a", &options("x"), (13, 1)),
        ];
        for (i, k) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(k));
        }
    }
}
