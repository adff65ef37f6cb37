//! Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).

/// The four words of block `counter` under `seed`.
pub fn philox(seed: u64, counter: u64) -> [u32; 4] {
    let mut c = [counter as u32, (counter >> 32) as u32, 0, 0];
    let mut k = [seed as u32, (seed >> 32) as u32];
    for round in 0..10 {
        if round > 0 {
            k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
        }
        let a = 0xD251_1F53_u64 * c[0] as u64;
        let b = 0xCD9E_8D57_u64 * c[2] as u64;
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
    }
    c
}

/// Counters that a call over `n` elements uses.
pub fn counters_for(n: usize) -> u64 {
    n.div_ceil(4) as u64
}

#[cfg(test)]
mod tests {
    use super::philox;

    #[test]
    fn known_answers() {
        // From the Random123 distribution's test vectors (philox4x32 10).
        assert_eq!(philox(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }
}
