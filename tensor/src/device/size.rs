//! Sizes as people write them.

use crate::{Error, Result};

/// Bytes from "141GiB", "64MiB", "512KiB", "10GB" or a plain number.
pub fn parse_bytes(text: &str) -> Result<usize> {
    let bad = || Error::argument("size", format!("{text:?} is no size; write as 80GiB, 512MiB or a number of bytes"));
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| bad())?;
    let unit: f64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kib" | "k" => 1024.0,
        "mib" | "m" => 1024.0 * 1024.0,
        "gib" | "g" => 1024.0 * 1024.0 * 1024.0,
        "tib" | "t" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(bad()),
    };
    let bytes = number * unit;
    if !(1.0..9e15).contains(&bytes) {
        return Err(bad());
    }
    Ok(bytes as usize)
}
