// Folds of a reduction. OP: 0 sum, 1 largest, 2 smallest, 3 product; of something made of each element, with a shift s of its output and a
// power p: 4 sum |x|, 5 sum (x - s)^2, 6 sum exp(x - s), 7 largest |x|, 8 smallest |x|, 9 sum |x|^p. T0: elements, T1: results.
// A is the type of a running value: sums and products of integers in i64, of 16-bit floats in f32, of made ones and those with an f64 result
// in f64.

constexpr int OP = (VARIANT) >> 8 & 255;
constexpr bool MADE_SUM = OP == 4 || OP == 5 || OP == 6 || OP == 9, SHIFTED = OP == 5 || OP == 6;
constexpr bool ADDS = OP == 0 || MADE_SUM, RISES = OP == 1 || OP == 7;

template<class T> struct SumOf { typedef compute_t<T> type; };
template<> struct SumOf<u8> { typedef i64 type; };
template<> struct SumOf<u32> { typedef i64 type; };
template<bool SUMS, class T, class R> struct AccOf { typedef compute_t<T> type; };
template<class T, class R> struct AccOf<true, T, R> { typedef typename SumOf<T>::type type; };
template<class T> struct AccOf<true, T, f64> { typedef f64 type; };
template<bool MADE, class Other> struct WideIf { typedef Other type; };
template<class Other> struct WideIf<true, Other> { typedef f64 type; };
typedef typename WideIf<MADE_SUM, typename AccOf<OP == 0 || OP == 3, T0, T1>::type>::type A;

// What an exponential of elements is computed in.
template<class T> struct ExpIn { typedef f32 type; };
template<> struct ExpIn<f64> { typedef f64 type; };

template<class C> struct Limits { static INLINE C low() { return lowest<C>(); } static INLINE C high() { return -lowest<C>(); } };
template<> struct Limits<i64> {
    static INLINE i64 low() { return (i64)0x8000000000000000ull; }
    static INLINE i64 high() { return 0x7FFFFFFFFFFFFFFFll; }
};
template<> struct Limits<u32> { static INLINE u32 low() { return 0; } static INLINE u32 high() { return 0xFFFFFFFFu; } };
template<> struct Limits<u8> { static INLINE u8 low() { return 0; } static INLINE u8 high() { return 255; } };

struct Fold {
    template<class C> static INLINE C start() {
        return ADDS || OP == 7 ? (C)0 : OP == 3 ? (C)1 : OP == 1 ? Limits<C>::low() : Limits<C>::high();
    }
    // NaN wins over numbers, and the first of equals stays.
    template<class C> static INLINE bool beats(C b, C a) { return (RISES ? b > a : b < a) || (b != b && a == a); }
    template<class C> static INLINE C join(C a, C b) { return ADDS ? (C)(a + b) : OP == 3 ? (C)(a * b) : beats(b, a) ? b : a; }
    // What an element adds to a fold.
    template<class C> static INLINE C made(C v, f64 s, f64 p) {
        if constexpr (OP == 4 || OP == 7 || OP == 8) return v < (C)0 ? -v : v;
        else if constexpr (OP == 5) return (C)((v - s) * (v - s));
        else if constexpr (OP == 6) return (C)exp_of((typename ExpIn<T0>::type)(v - s));
        else if constexpr (OP == 9) return (C)pow((f64)(v < (C)0 ? -v : v), p);
        else return v;
    }
    template<class C> static INLINE C step(C a, C v, f64 s, f64 p) { return join(a, made(v, s, p)); }
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
