// Scans along the middle dim of [outer, n, inner], from either end. T0: elements, T1: results. OP: 0 sum, 1 product, 2 gradient of the product.
//
// A state stands for a run of neighbours; `join` puts an earlier run and a later one together, in order.
//   sum, product: one number, in f64 or i64
//   gradient of y_i = x_0 .. x_i: dx_i = y_(i-1) S_i with S_i = g_i + x_(i+1) S_(i+1), from the back; a state is the map S -> b + a S

constexpr int OP = (VARIANT) & 255;
constexpr u32 ITEMS = 4, STEP = 256 * ITEMS;

template<class T> struct Wide { typedef f64 type; };
template<> struct Wide<i64> { typedef i64 type; };
template<> struct Wide<u32> { typedef i64 type; };
template<> struct Wide<u8> { typedef i64 type; };
typedef typename Wide<T0>::type A;

// A way along one row: element i is at `base + i * stride`.
struct Row { const T0 *x, *y, *g; T1* out; u64 base, stride, n; };

// `of`: the state of element i alone. `result`: that of element i, where this is the state of all up to it.
template<int Op> struct Scan;
template<> struct Scan<0> {
    A v;
    static INLINE Scan identity() { return {(A)0}; }
    static INLINE Scan join(Scan a, Scan b) { return {(A)(a.v + b.v)}; }
    static INLINE Scan of(const Row& r, u64 i) { return {(A)widen(r.x[r.base + i * r.stride])}; }
    INLINE A result(const Row&, u64) const { return v; }
    INLINE Scan up(u32 by) const { return {__shfl_up_sync(0xFFFFFFFFu, v, by)}; }
};
template<> struct Scan<1> {
    A v;
    static INLINE Scan identity() { return {(A)1}; }
    static INLINE Scan join(Scan a, Scan b) { return {(A)(a.v * b.v)}; }
    static INLINE Scan of(const Row& r, u64 i) { return {(A)widen(r.x[r.base + i * r.stride])}; }
    INLINE A result(const Row&, u64) const { return v; }
    INLINE Scan up(u32 by) const { return {__shfl_up_sync(0xFFFFFFFFu, v, by)}; }
};
template<> struct Scan<2> {
    A a, b;
    static INLINE Scan identity() { return {(A)1, (A)0}; }
    static INLINE Scan join(Scan first, Scan then) { return {(A)(then.a * first.a), (A)(then.b + then.a * first.b)}; }
    static INLINE Scan of(const Row& r, u64 i) {
        u64 at = r.base + i * r.stride;
        return {i + 1 < r.n ? (A)widen(r.x[at + r.stride]) : (A)0, (A)widen(r.g[at])};
    }
    INLINE A result(const Row& r, u64 i) const { return (i > 0 ? (A)widen(r.y[r.base + (i - 1) * r.stride]) : (A)1) * b; }
    INLINE Scan up(u32 by) const { return {__shfl_up_sync(0xFFFFFFFFu, a, by), __shfl_up_sync(0xFFFFFFFFu, b, by)}; }
};
typedef Scan<OP> State;

INLINE void finish(const Row& r, u64 i, State s) { r.out[r.base + i * r.stride] = cast<T1>(s.result(r, i)); }

// A block walks a row of neighbours, STEP elements at a time; each thread takes ITEMS of them.
extern "C" __global__ void __launch_bounds__(256)
scan_rows(const T0* x, const T0* y, const T0* g, T1* out, u64 rows, u64 n, u32 reverse) {
    __shared__ State warps[8];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        Row r = {x, y, g, out, row * n, 1, n};
        State carry = State::identity();
        for (u64 start = 0; start < n; start += STEP) {
            State own[ITEMS], sum = State::identity();
#pragma unroll
            for (u32 k = 0; k < ITEMS; ++k) {
                u64 i = start + threadIdx.x * ITEMS + k;
                own[k] = i < n ? State::of(r, reverse ? n - 1 - i : i) : State::identity();
                sum = State::join(sum, own[k]);
            }
#pragma unroll
            for (u32 by = 1; by < 32; by <<= 1) {
                State other = sum.up(by);
                if (lane >= by) sum = State::join(other, sum);
            }
            if (lane == 31) warps[warp] = sum;
            __syncthreads();
            State before = carry;
            for (u32 w = 0; w < 8; ++w) {
                if (w < warp) before = State::join(before, warps[w]);
                carry = State::join(carry, warps[w]);
            }
            State left = sum.up(1);
            if (lane > 0) before = State::join(before, left);
#pragma unroll
            for (u32 k = 0; k < ITEMS; ++k) {
                u64 i = start + threadIdx.x * ITEMS + k;
                before = State::join(before, own[k]);
                if (i < n) finish(r, reverse ? n - 1 - i : i, before);
            }
            __syncthreads();
        }
    }
}

// A thread walks a column.
extern "C" __global__ void __launch_bounds__(256)
scan_columns(const T0* x, const T0* y, const T0* g, T1* out, u64 columns, u64 n, u64 inner, u32 reverse) {
    for (u64 column = blockIdx.x * 256ull + threadIdx.x; column < columns; column += gridDim.x * 256ull) {
        u64 o, i;
        divide(column, inner, &o, &i);
        Row r = {x, y, g, out, o * n * inner + i, inner, n};
        State sum = State::identity();
        for (u64 j = 0; j < n; ++j) {
            u64 at = reverse ? n - 1 - j : j;
            sum = State::join(sum, State::of(r, at));
            finish(r, at, sum);
        }
    }
}
