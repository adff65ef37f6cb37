// Comparisons and selection as maps.

// T0 is u8, T1 the type compared.
#define COMPARISON(NAME, OP) \
    struct NAME { \
        INLINE NAME(f64, f64) {} \
        INLINE T0 operator()(T1 a, T1 b) const { return cast<T0>((u8)(widen(a) OP widen(b))); } \
    };
COMPARISON(Eq, ==)
COMPARISON(Ne, !=)
COMPARISON(Lt, <)
COMPARISON(Le, <=)
COMPARISON(Gt, >)
COMPARISON(Ge, >=)

// T0 has the size of the elements; bits are moved as they are.
struct Select {
    INLINE Select(f64, f64) {}
    INLINE T0 operator()(u8 mask, T0 a, T0 b) const { return mask != 0 ? a : b; }
};
