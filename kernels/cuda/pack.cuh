// Packs of neighbours, and functions that exist for f32 and f64.

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
