// Quotient and rest; in 32 bits, which is several times faster, where they suffice.
INLINE void divide(u64 a, u64 b, u64* quotient, u64* rest) {
    if ((a | b) >> 32) {
        *quotient = a / b;
        *rest = a % b;
    } else {
        *quotient = (u32)a / (u32)b;
        *rest = (u32)a % (u32)b;
    }
}
