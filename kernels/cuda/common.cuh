// What every CUDA source starts with: element types, their conversions, and the device error word. No toolkit header is included.
//
// A 16-bit float is stored as its bits and computed with as f32. Conversions round to nearest even, once, from whatever type; float to
// integer truncates toward zero, saturates, and makes NaN 0; integers wrap among themselves. The CPU code does the same.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef float f32;
typedef double f64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };

#define INLINE __device__ __forceinline__

// The type a kernel computes in.
template<class T> struct ComputeOf { typedef T type; };
template<> struct ComputeOf<f16> { typedef f32 type; };
template<> struct ComputeOf<bf16> { typedef f32 type; };
template<class T> using compute_t = typename ComputeOf<T>::type;

// Exact widening to the compute type.
template<class T> INLINE T widen(T v) { return v; }
INLINE f32 widen(f16 v) { f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits)); return r; }
INLINE f32 widen(bf16 v) { return __uint_as_float((u32)v.bits << 16); }

// f32 that is right after one more rounding to 16 bits: cut, with the last bit set where anything was cut off ("round to odd").
INLINE f32 odd_f32(f64 v) {
    f32 r = __double2float_rz(v);
    if ((f64)r != v && v == v) r = __uint_as_float(__float_as_uint(r) | 1u);
    return r;
}
INLINE f32 odd_f32(i64 v) {
    u64 m = v < 0 ? 0ull - (u64)v : (u64)v;
    int cut = 40 - __clzll((i64)m);
    if (cut <= 0) return (f32)v;
    u64 top = m >> cut;
    if ((top << cut) != m) top |= 1;
    f32 r = (f32)(u32)top * __uint_as_float((u32)(cut + 127) << 23);
    return v < 0 ? -r : r;
}

INLINE f16 f16_of(f32 v) { f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v)); return r; }
INLINE bf16 bf16_of(f32 v) {
    bf16 r;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
#else
    u32 b = __float_as_uint(v);
    r.bits = v == v ? (u16)((b + 0x7FFFu + ((b >> 16) & 1u)) >> 16) : (u16)0x7FFF;
#endif
    return r;
}

template<class F> INLINE i64 i64_of_float(F v) {
    if (!(v == v)) return 0;
    if (v >= (F)9223372036854775808.0) return 0x7FFFFFFFFFFFFFFFll;
    if (v <= (F)-9223372036854775808.0) return (i64)0x8000000000000000ull;
    return (i64)v;
}
template<class F> INLINE u32 u32_of_float(F v) { return !(v > (F)0) ? 0u : v >= (F)4294967296.0 ? 0xFFFFFFFFu : (u32)v; }
template<class F> INLINE u8 u8_of_float(F v) { return !(v > (F)0) ? (u8)0 : v >= (F)255 ? (u8)255 : (u8)(u32)v; }

// cast<To>(v): any element or compute type to any element type.
template<class To> struct CastTo { template<class V> static INLINE To from(V v) { return (To)v; } };
template<> struct CastTo<f16> {
    static INLINE f16 from(f64 v) { return f16_of(odd_f32(v)); }
    static INLINE f16 from(f32 v) { return f16_of(v); }
    static INLINE f16 from(i64 v) { return f16_of(odd_f32(v)); }
    static INLINE f16 from(u32 v) { return f16_of(odd_f32((i64)v)); }
    static INLINE f16 from(u8 v) { return f16_of((f32)v); }
};
template<> struct CastTo<bf16> {
    static INLINE bf16 from(f64 v) { return bf16_of(odd_f32(v)); }
    static INLINE bf16 from(f32 v) { return bf16_of(v); }
    static INLINE bf16 from(i64 v) { return bf16_of(odd_f32(v)); }
    static INLINE bf16 from(u32 v) { return bf16_of(odd_f32((i64)v)); }
    static INLINE bf16 from(u8 v) { return bf16_of((f32)v); }
};
template<> struct CastTo<i64> {
    static INLINE i64 from(f64 v) { return i64_of_float(v); }
    static INLINE i64 from(f32 v) { return i64_of_float(v); }
    template<class V> static INLINE i64 from(V v) { return (i64)v; }
};
template<> struct CastTo<u32> {
    static INLINE u32 from(f64 v) { return u32_of_float(v); }
    static INLINE u32 from(f32 v) { return u32_of_float(v); }
    template<class V> static INLINE u32 from(V v) { return (u32)v; }
};
template<> struct CastTo<u8> {
    static INLINE u8 from(f64 v) { return u8_of_float(v); }
    static INLINE u8 from(f32 v) { return u8_of_float(v); }
    template<class V> static INLINE u8 from(V v) { return (u8)v; }
};
template<class To, class From> INLINE To cast(From v) { return CastTo<To>::from(widen(v)); }

// N neighbours, moved by one load or store where they are aligned to their whole size.
template<class T, int N> struct alignas(sizeof(T) * N) Pack { T v[N]; };

// The error word of the device: the first index out of range since the host last looked. Laid out as `ErrorWord` in `error_word.rs`.
struct ErrorWord { u32 flag; u32 kernel; i64 value; i64 size; };
INLINE void report_index(ErrorWord* e, u32 kernel, i64 value, i64 size) {
    if (atomicCAS(&e->flag, 0u, 1u) == 0u) {
        e->kernel = kernel;
        e->value = value;
        e->size = size;
    }
}
