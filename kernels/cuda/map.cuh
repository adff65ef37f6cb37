// One output element from the elements of up to four inputs at the same place, over any layouts. A functor `F` says what is computed:
// constructed from two parameters, called with stored values, one for each input.

// Addresses of the output and the inputs.
struct Pointers { u64 at[5]; };

// Dims and strides, in elements, of output and inputs; dims that lie as one in all of them are one. Laid out as `Meta` in `map.rs`.
// `magic` and `shift` divide by a size: for i < 2^31, i / size = (umulhi(i, magic) + i) >> shift.
template<class I> struct Meta {
    I rank;
    I sizes[8];
    u32 magic[8];
    u32 shift[8];
    I strides[5][8];
};

INLINE u32 divide(u32 i, const Meta<u32>& m, int d) { return (__umulhi(i, m.magic[d]) + i) >> m.shift[d]; }
INLINE u64 divide(u64 i, const Meta<u64>& m, int d) { return i / m.sizes[d]; }

// Offsets of element `i` in K operands.
template<int K, class I> INLINE void offsets(const Meta<I>& m, I i, I (&at)[K]) {
#pragma unroll
    for (int k = 0; k < K; ++k) at[k] = 0;
#pragma unroll
    for (int d = 7; d > 0; --d) {
        if (d >= m.rank) continue;
        I q = divide(i, m, d), r = i - q * m.sizes[d];
        i = q;
#pragma unroll
        for (int k = 0; k < K; ++k) at[k] += r * m.strides[k][d];
    }
#pragma unroll
    for (int k = 0; k < K; ++k) at[k] += i * m.strides[k][0];
}

template<class T> INLINE T at(const Pointers& p, int k, u64 i) { return reinterpret_cast<const T*>(p.at[k])[i]; }
template<class T, int V> INLINE Pack<T, V> pack_at(const Pointers& p, int k, u64 i) {
    return *reinterpret_cast<const Pack<T, V>*>(reinterpret_cast<const T*>(p.at[k]) + i);
}
// V neighbours, or one value for all of them where the stride is 0.
template<class T, int V, class I> INLINE Pack<T, V> inner_at(const Pointers& p, int k, u64 i, I stride) {
    if (stride) return pack_at<T, V>(p, k, i);
    Pack<T, V> r;
    T v = at<T>(p, k, i);
#pragma unroll
    for (int j = 0; j < V; ++j) r.v[j] = v;
    return r;
}

constexpr int most(int a, int b) { return a > b ? a : b; }

// N inputs of types A, B, C, D (those beyond N are ignored).
template<class F, class Out, int N, class A, class B = A, class C = A, class D = A> struct Map {
    // Elements that fill 16 bytes of the widest operand.
    static constexpr int V = 16 / most(most(sizeof(Out), sizeof(A)), most(most(sizeof(B), sizeof(C)), sizeof(D)));
    // Packs a thread has in flight.
    static constexpr int U = N > 2 ? 1 : 2;

    static INLINE Out call(const F& f, A a, B b, C c, D d) {
        if constexpr (N == 0) return f();
        else if constexpr (N == 1) return f(a);
        else if constexpr (N == 2) return f(a, b);
        else if constexpr (N == 3) return f(a, b, c);
        else return f(a, b, c, d);
    }

    // All operands contiguous and aligned to 16 bytes.
    static INLINE void vector(const Pointers& p, u64 n, const F& f) {
        u64 tile = (u64)blockIdx.x * (blockDim.x * V * U);
        if (tile + blockDim.x * V * U > n) {
            for (u64 i = tile + threadIdx.x; i < n; i += blockDim.x) one(p, f, i, i, i, i, i);
            return;
        }
        Pack<A, V> a[U]{};
        Pack<B, V> b[U]{};
        Pack<C, V> c[U]{};
        Pack<D, V> d[U]{};
#pragma unroll
        for (int u = 0; u < U; ++u) {
            u64 i = tile + (u64)(u * blockDim.x + threadIdx.x) * V;
            if constexpr (N > 0) a[u] = pack_at<A, V>(p, 1, i);
            if constexpr (N > 1) b[u] = pack_at<B, V>(p, 2, i);
            if constexpr (N > 2) c[u] = pack_at<C, V>(p, 3, i);
            if constexpr (N > 3) d[u] = pack_at<D, V>(p, 4, i);
        }
#pragma unroll
        for (int u = 0; u < U; ++u) store(p, f, tile + (u64)(u * blockDim.x + threadIdx.x) * V, a[u], b[u], c[u], d[u]);
    }

    // Any layouts whose last dim has stride 1, or 0 in inputs, and a size that V divides; 32-bit indices.
    static INLINE void inner(const Meta<u32>& m, const Pointers& p, u64 n, const F& f) {
        u32 i = (blockIdx.x * blockDim.x + threadIdx.x) * V;
        if (i >= n) return;
        u32 o[N + 1];
        offsets(m, i, o);
        int last = m.rank - 1;
        Pack<A, V> a{};
        Pack<B, V> b{};
        Pack<C, V> c{};
        Pack<D, V> d{};
        if constexpr (N > 0) a = inner_at<A, V>(p, 1, o[1], m.strides[1][last]);
        if constexpr (N > 1) b = inner_at<B, V>(p, 2, o[2], m.strides[2][last]);
        if constexpr (N > 2) c = inner_at<C, V>(p, 3, o[3], m.strides[3][last]);
        if constexpr (N > 3) d = inner_at<D, V>(p, 4, o[4], m.strides[4][last]);
        store(p, f, o[0], a, b, c, d);
    }

    // Any layouts.
    template<class I> static INLINE void strided(const Meta<I>& m, const Pointers& p, u64 n, const F& f) {
        u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        I o[N + 1];
        offsets(m, (I)i, o);
        one(p, f, o[0], o[N > 0 ? 1 : 0], o[N > 1 ? 2 : 0], o[N > 2 ? 3 : 0], o[N > 3 ? 4 : 0]);
    }

private:
    static INLINE void one(const Pointers& p, const F& f, u64 o, u64 ia, u64 ib, u64 ic, u64 id) {
        A a{};
        B b{};
        C c{};
        D d{};
        if constexpr (N > 0) a = at<A>(p, 1, ia);
        if constexpr (N > 1) b = at<B>(p, 2, ib);
        if constexpr (N > 2) c = at<C>(p, 3, ic);
        if constexpr (N > 3) d = at<D>(p, 4, id);
        reinterpret_cast<Out*>(p.at[0])[o] = call(f, a, b, c, d);
    }
    static INLINE void store(const Pointers& p, const F& f, u64 o, const Pack<A, V>& a, const Pack<B, V>& b, const Pack<C, V>& c, const Pack<D, V>& d) {
        Pack<Out, V> r;
#pragma unroll
        for (int j = 0; j < V; ++j) r.v[j] = call(f, a.v[j], b.v[j], c.v[j], d.v[j]);
        *reinterpret_cast<Pack<Out, V>*>(reinterpret_cast<Out*>(p.at[0]) + o) = r;
    }
};

// Kernels over a map: name of the kernel, then what `Map` takes.
#define MAP_VECTOR(NAME, ...) \
    extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ Pointers p, u64 n, f64 x, f64 y) { \
        Map<__VA_ARGS__>::vector(p, n, FUNCTOR(__VA_ARGS__, )(x, y)); \
    }
#define MAP_INNER(NAME, ...) \
    extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ Pointers p, u64 n, f64 x, f64 y, const __grid_constant__ Meta<u32> m) { \
        Map<__VA_ARGS__>::inner(m, p, n, FUNCTOR(__VA_ARGS__, )(x, y)); \
    }
#define MAP_STRIDED(NAME, ...) \
    extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ Pointers p, u64 n, f64 x, f64 y, const __grid_constant__ Meta<u32> m) { \
        Map<__VA_ARGS__>::strided(m, p, n, FUNCTOR(__VA_ARGS__, )(x, y)); \
    }
#define MAP_WIDE(NAME, ...) \
    extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ Pointers p, u64 n, f64 x, f64 y, const __grid_constant__ Meta<u64> m) { \
        Map<__VA_ARGS__>::strided(m, p, n, FUNCTOR(__VA_ARGS__, )(x, y)); \
    }
#define FUNCTOR(F, ...) F
