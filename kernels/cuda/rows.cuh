// Work on rows of contiguous elements. A row belongs to a group of GROUP threads (a warp, or a block); thread `lane` of it holds PACKS packs
// of VEC neighbours: pack k is at element (k * GROUP + lane) * VEC. VARIANT is VEC + (PACKS << 8) + (GROUP << 16).

constexpr int VEC = (VARIANT) & 255, PACKS = (VARIANT) >> 8 & 255, GROUP = (VARIANT) >> 16;
// Threads of a block, and rows that it works on at once.
constexpr int THREADS = GROUP == 32 ? 256 : GROUP, ROWS = THREADS / GROUP;

INLINE f32 exp_of(f32 v) { return expf(v); }
INLINE f64 exp_of(f64 v) { return exp(v); }
INLINE f32 log_of(f32 v) { return logf(v); }
INLINE f64 log_of(f64 v) { return log(v); }
INLINE f32 rsqrt_of(f32 v) { return 1.0f / sqrtf(v); }
INLINE f64 rsqrt_of(f64 v) { return 1.0 / sqrt(v); }
template<class C> INLINE C lowest() { return (C)-__int_as_float(0x7F800000); }

// Loads and stores of N neighbours in pieces of at most 16 bytes, to which the address is aligned.
template<int N, class T> INLINE void load_pack(const T* p, T (&v)[N]) {
    constexpr int PIECE = N * sizeof(T) > 16 ? 16 / sizeof(T) : N;
#pragma unroll
    for (int i = 0; i < N; i += PIECE) {
        Pack<T, PIECE> piece = *(const Pack<T, PIECE>*)(p + i);
#pragma unroll
        for (int j = 0; j < PIECE; ++j) v[i + j] = piece.v[j];
    }
}
template<int N, class T> INLINE void store_pack(T* p, const T (&v)[N]) {
    constexpr int PIECE = N * sizeof(T) > 16 ? 16 / sizeof(T) : N;
#pragma unroll
    for (int i = 0; i < N; i += PIECE) {
        Pack<T, PIECE> piece;
#pragma unroll
        for (int j = 0; j < PIECE; ++j) piece.v[j] = v[i + j];
        *(Pack<T, PIECE>*)(p + i) = piece;
    }
}

// A pack widened, and rounded back.
template<int N, class T, class C> INLINE void load_wide(const T* p, C* v) {
    T raw[N];
    load_pack<N>(p, raw);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = (C)widen(raw[i]);
}
template<int N, class T, class C> INLINE void store_wide(T* p, const C* v) {
    T raw[N];
#pragma unroll
    for (int i = 0; i < N; ++i) raw[i] = cast<T>(v[i]);
    store_pack<N>(p, raw);
}

struct Sum { template<class C> static INLINE C join(C a, C b) { return a + b; } };
struct Max { template<class C> static INLINE C join(C a, C b) { return b > a ? b : a; } };

// Folds one value of each thread of a group, in a fixed order; every thread gets the result.
template<class Op, class C> INLINE C group_fold(C v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = Op::join(v, __shfl_xor_sync(0xFFFFFFFFu, v, o));
    if (GROUP > 32) {
        __shared__ C warps[GROUP / 32];
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
        __syncthreads();
        v = warps[0];
#pragma unroll
        for (int w = 1; w < GROUP / 32; ++w) v = Op::join(v, warps[w]);
        __syncthreads();
    }
    return v;
}

// The largest value so far and the sum of exp(v - max) so far, of values that come one pack after another.
template<class C> struct ExpSum {
    C max = lowest<C>(), sum = 0;
    template<int N> INLINE void add(const C* v) {
        C top = max;
#pragma unroll
        for (int i = 0; i < N; ++i) top = Max::join(top, v[i]);
        if (top > max) {
            sum *= exp_of(max - top);
            max = top;
        }
#pragma unroll
        // -inf adds nothing, also before any finite value came; NaN adds NaN.
        for (int i = 0; i < N; ++i) sum += v[i] == lowest<C>() ? (C)0 : exp_of(v[i] - max);
    }
    // The same of all threads of a group.
    INLINE void fold() {
        C top = group_fold<Max>(max);
        // Only what is not zero is rescaled: a thread that saw no finite value has max -inf.
        sum = group_fold<Sum>(sum == (C)0 ? sum : sum * exp_of(max - top));
        max = top;
    }
};
