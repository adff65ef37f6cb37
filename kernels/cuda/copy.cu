// Copies and fills as maps: T0 is the destination's type, T1 the source's.

#ifdef T1
struct Convert {
    INLINE Convert(f64, f64) {}
    INLINE T0 operator()(T1 v) const { return cast<T0>(v); }
};
#endif

// Bits as they are.
struct Move {
    INLINE Move(f64, f64) {}
    INLINE T0 operator()(T0 v) const { return v; }
};

template<class T> INLINE T of_bits(u64 bits) { return (T)bits; }
template<> INLINE f16 of_bits<f16>(u64 bits) { return f16{(u16)bits}; }
template<> INLINE bf16 of_bits<bf16>(u64 bits) { return bf16{(u16)bits}; }

// One value, whose bits are those of the first parameter, from the lowest.
struct Constant {
    T0 value;
    INLINE Constant(f64 bits, f64) : value(of_bits<T0>((u64)__double_as_longlong(bits))) {}
    INLINE T0 operator()() const { return value; }
};
