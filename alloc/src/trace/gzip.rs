//! Inflates a file that may be hostile: never to more than a bound that grows with its size.

use super::FormatError;
use flate2::read::MultiGzDecoder;
use std::io::Read;

/// Traces shrink 5 to 10 times, very regular ones 100 times; deflate can do 1,000.
const RATIO: usize = 256;
const SLACK: usize = 1 << 20;
const MOST: usize = 2 << 30;

pub(super) fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

pub(super) fn inflate(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    let limit = bytes.len().saturating_mul(RATIO).saturating_add(SLACK).min(MOST);
    let mut out = Vec::new();
    // One byte beyond the limit tells a file that just fits from one that does not.
    let result = MultiGzDecoder::new(bytes).take(limit as u64 + 1).read_to_end(&mut out);
    if out.len() > limit {
        return Err(FormatError::TooLarge { limit });
    }
    match result {
        Ok(_) => Ok(out),
        Err(error) => Err(FormatError::Gzip { position: out.len(), message: error.to_string() }),
    }
}
