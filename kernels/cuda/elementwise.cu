// Elementwise rows over elements of type T0. The row's functor is generated after this text from its expression in `table.rs`; here are the
// functions that expressions may call, with the names of `math.rs`.

typedef compute_t<T0> C;

// A constant or parameter; integers take whole numbers, and negative ones wrap.
template<class T> struct Lit { static INLINE T of(f64 v) { return (T)i64_of_float(v); } };
template<> struct Lit<f32> { static INLINE f32 of(f64 v) { return (f32)v; } };
template<> struct Lit<f64> { static INLINE f64 of(f64 v) { return v; } };
INLINE C lit(f64 v) { return Lit<C>::of(v); }

INLINE f32 magnitude(f32 x) { return fabsf(x); }
INLINE f64 magnitude(f64 x) { return fabs(x); }
INLINE i64 magnitude(i64 x) { return x < 0 ? (i64)(0ull - (u64)x) : x; }
INLINE u32 magnitude(u32 x) { return x; }
INLINE u8 magnitude(u8 x) { return x; }

INLINE C select_gt(C a, C b, C t, C f) { return a > b ? t : f; }
INLINE C select_lt(C a, C b, C t, C f) { return a < b ? t : f; }
INLINE C select_le(C a, C b, C t, C f) { return a <= b ? t : f; }
INLINE C select_ge(C a, C b, C t, C f) { return a >= b ? t : f; }
INLINE C select_eq(C a, C b, C t, C f) { return a == b ? t : f; }
INLINE C max_nan(C x, C y) { return x > y || !(x == x) ? x : y; }
INLINE C min_nan(C x, C y) { return x < y || !(x == x) ? x : y; }
template<class R> INLINE R round_even(R x) { return rint(x); }
template<class R> INLINE R sigmoid(R x) { return (R)1 / ((R)1 + exp(-x)); }
