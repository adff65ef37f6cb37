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
// ln(1 + e^x)
template<class R> INLINE R softplus(R x) { return max_nan(x, (R)0) + log1p(exp(-magnitude(x))); }

// What is left of a division whose quotient is cut toward 0, and the quotient rounded down; integers divided by 0 give 0.
INLINE f32 rem_trunc(f32 x, f32 y) { return fmodf(x, y); }
INLINE f64 rem_trunc(f64 x, f64 y) { return fmod(x, y); }
INLINE i64 rem_trunc(i64 x, i64 y) { return y == 0 || y == -1 ? 0 : x % y; }
INLINE u32 rem_trunc(u32 x, u32 y) { return y == 0 ? 0u : x % y; }
INLINE u8 rem_trunc(u8 x, u8 y) { return y == 0 ? (u8)0 : (u8)(x % y); }
// The remainder is exact; the rounded quotient may be an integer that the true one does not reach.
template<class R> INLINE R div_floor(R x, R y) {
    if (y == (R)0) return x / y;
    R rest = rem_trunc(x, y);
    bool down = rest != (R)0 && (rest < (R)0) != (y < (R)0);
    R quotient = (x - rest) / y - (down ? (R)1 : (R)0);
    return quotient == (R)0 ? copysign((R)0, x / y) : rint(quotient);
}
INLINE i64 div_floor(i64 x, i64 y) {
    if (y == 0) return 0;
    if (y == -1) return (i64)(0ull - (u64)x);
    return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
}
INLINE u32 div_floor(u32 x, u32 y) { return y == 0 ? 0u : x / y; }
INLINE u8 div_floor(u8 x, u8 y) { return y == 0 ? (u8)0 : (u8)(x / y); }
// As `rem_trunc`, with the sign of y.
INLINE C rem_floor(C x, C y) {
    C rest = rem_trunc(x, y), zero = lit(0.0);
    return rest != zero && (rest < zero) != (y < zero) ? (C)(rest + y) : rest;
}

// Integers alone. Shifts by a negative number, or by all bits and more, leave 0; to the right -1 of a negative number.
template<class T> INLINE T bit_not(T x) { return (T)~x; }
template<class T> INLINE bool shifts(T n) { return !(n < lit(0.0)) && (u64)n < 8 * sizeof(T); }
template<class T> INLINE T shift_left(T x, T n) { return shifts(n) ? (T)((u64)x << n) : (T)0; }
template<class T> INLINE T shift_right(T x, T n) { return shifts(n) ? (T)(x >> n) : x < lit(0.0) ? (T)-1 : (T)0; }
