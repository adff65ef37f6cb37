// Folds of a reduction. OP: 0 sum, 1 largest, 2 smallest. T0: elements, T1: results.
// A is the type of a running value: sums of integers in i64, of 16-bit floats in f32.

constexpr int OP = (VARIANT) >> 8 & 255;

template<class T> struct SumOf { typedef compute_t<T> type; };
template<> struct SumOf<u8> { typedef i64 type; };
template<> struct SumOf<u32> { typedef i64 type; };
template<bool SUMS, class T> struct AccOf { typedef compute_t<T> type; };
template<class T> struct AccOf<true, T> { typedef typename SumOf<T>::type type; };
typedef typename AccOf<OP == 0, T0>::type A;

template<class C> struct Limits { static INLINE C low() { return lowest<C>(); } static INLINE C high() { return -lowest<C>(); } };
template<> struct Limits<i64> {
    static INLINE i64 low() { return (i64)0x8000000000000000ull; }
    static INLINE i64 high() { return 0x7FFFFFFFFFFFFFFFll; }
};
template<> struct Limits<u32> { static INLINE u32 low() { return 0; } static INLINE u32 high() { return 0xFFFFFFFFu; } };
template<> struct Limits<u8> { static INLINE u8 low() { return 0; } static INLINE u8 high() { return 255; } };

struct Fold {
    template<class C> static INLINE C start() { return OP == 0 ? (C)0 : OP == 1 ? Limits<C>::low() : Limits<C>::high(); }
    // NaN wins over numbers, and the first of equals stays.
    template<class C> static INLINE bool beats(C b, C a) { return (OP == 1 ? b > a : b < a) || (b != b && a == a); }
    template<class C> static INLINE C join(C a, C b) { return OP == 0 ? (C)(a + b) : beats(b, a) ? b : a; }
};

// The result of a running value; a mean has a count of at least 0.
INLINE T1 finish(A v, f64 count) { return cast<T1>(count >= 0.0 ? (A)(v / (A)count) : v); }

// A way through elements: dims, outermost first.
struct Path { u64 rank, sizes[8], strides[8]; };
INLINE u64 place(const Path& p, u64 i) {
    if (p.rank == 1) return i * p.strides[0];
    u64 at = 0;
#pragma unroll
    for (int d = 7; d >= 0; --d) {
        if (d >= p.rank) continue;
        u64 rest;
        divide(i, p.sizes[d], &i, &rest);
        at += rest * p.strides[d];
    }
    return at;
}
