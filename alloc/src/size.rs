//! Sizes: rounding, and how bytes are shown.

/// Every block starts and ends at a multiple of this many bytes.
pub(crate) const ALIGN: usize = 512;
/// `bytes` rounded up to a multiple of `to`; `None` on overflow.
pub(crate) fn round_up(bytes: usize, to: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(to)
}

/// Bytes for people: `512 B`, `1.50 GiB`.
pub(crate) fn human(bytes: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    // 1023.995 would round to 1024.00, so it moves on to the next unit.
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(512), "512 B");
        assert_eq!(human(1536), "1.50 KiB");
        assert_eq!(human((1 << 30) - 1), "1.00 GiB");
        assert_eq!(human(141 << 30), "141.00 GiB");
    }

    #[test]
    fn rounding_overflows_to_none() {
        assert_eq!(round_up(1, ALIGN), Some(512));
        assert_eq!(round_up(512, ALIGN), Some(512));
        assert_eq!(round_up(usize::MAX, ALIGN), None);
    }
}
