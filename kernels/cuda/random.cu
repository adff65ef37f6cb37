// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011): a thread takes one block of four words
// and makes four elements of type T0 from it. The CPU makes the same bits.

typedef compute_t<T0> C;

struct Words { u32 at[4]; };

INLINE Words philox(u64 seed, u64 counter) {
    u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = 0, c3 = 0;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        if (round > 0) {
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        u64 a = (u64)0xD2511F53u * c0, b = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(b >> 32) ^ c1 ^ k0;
        c1 = (u32)b;
        c2 = (u32)(a >> 32) ^ c3 ^ k1;
        c3 = (u32)a;
    }
    return Words{{c0, c1, c2, c3}};
}

// In [0, 1), exact.
INLINE C unit(u32 word) { return (C)(word >> 8) * (C)5.9604644775390625e-8; }

// Stores the elements of a block that exist, four at once where they are aligned.
template<class T> INLINE void store(T* out, u64 first, u64 n, const Pack<T, 4>& four) {
    if (first + 4 <= n && (u64)out % sizeof(four) == 0) {
        *reinterpret_cast<Pack<T, 4>*>(out + first) = four;
        return;
    }
    for (int j = 0; j < 4 && first + j < n; ++j) out[first + j] = four.v[j];
}

#define BLOCK_OF_FOUR \
    u64 block = (u64)blockIdx.x * blockDim.x + threadIdx.x, first = block * 4; \
    if (first >= n) return; \
    Words words = philox(seed, offset + block)

// Where the value rounds to `hi`, the uniform goes down by `step`; and where this rounds to `hi` too, the value is `lo`.
extern "C" __global__ void uniform(T0* out, u64 n, u64 seed, u64 offset, f64 lo, f64 hi, f64 range, f64 step) {
    BLOCK_OF_FOUR;
    Pack<T0, 4> r;
    for (int j = 0; j < 4; ++j) {
        C u = unit(words.at[j]);
        r.v[j] = cast<T0>((C)lo + (C)range * u);
        if (widen(r.v[j]) >= (C)hi) r.v[j] = cast<T0>((C)lo + (C)range * (u > (C)step ? u - (C)step : (C)0));
        if (widen(r.v[j]) >= (C)hi) r.v[j] = cast<T0>((C)lo);
    }
    store(out, first, n, r);
}

extern "C" __global__ void normal(T0* out, u64 n, u64 seed, u64 offset, f64 mean, f64 std) {
    BLOCK_OF_FOUR;
    Pack<T0, 4> r;
    for (int pair = 0; pair < 4; pair += 2) {
        C u = (C)1 - unit(words.at[pair]), angle = (C)6.283185307179586 * ((C)1 - unit(words.at[pair + 1]));
        C radius = sqrt((C)-2 * log(u)), sine, cosine;
        sincos(angle, &sine, &cosine);
        r.v[pair] = cast<T0>((C)mean + (C)std * (radius * cosine));
        r.v[pair + 1] = cast<T0>((C)mean + (C)std * (radius * sine));
    }
    store(out, first, n, r);
}

extern "C" __global__ void rand_int(i64* out, u64 n, u64 seed, u64 offset, i64 lo, u64 range) {
    BLOCK_OF_FOUR;
    Pack<i64, 4> r;
    for (int j = 0; j < 4; ++j) r.v[j] = (i64)((u64)lo + words.at[j] % range);
    for (int j = 0; j < 4 && first + j < n; ++j) out[first + j] = r.v[j];
}

// Drops where uniform < p, which is `word >> 8 < below`; keeps x / (1 - p).
extern "C" __global__ void dropout(const T0* x, T0* out, u64 n, u64 seed, u64 offset, u32 below, f64 keep) {
    BLOCK_OF_FOUR;
    Pack<T0, 4> r;
    bool whole = first + 4 <= n && (u64)x % sizeof(r) == 0;
    if (whole) r = *reinterpret_cast<const Pack<T0, 4>*>(x + first);
    for (int j = 0; j < 4; ++j) {
        if (!whole && first + j < n) r.v[j] = x[first + j];
        r.v[j] = words.at[j] >> 8 >= below ? cast<T0>(widen(r.v[j]) / (C)keep) : cast<T0>((C)0);
    }
    store(out, first, n, r);
}
