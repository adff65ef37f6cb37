// Work on rows of contiguous elements. A row belongs to a group of GROUP threads (a warp, or a block); thread `lane` of it holds PACKS packs
// of VEC neighbours: pack k is at element (k * GROUP + lane) * VEC. VARIANT is VEC + (PACKS << 8) + (GROUP << 16).

[[maybe_unused]] constexpr int VEC = (VARIANT) & 255, PACKS = (VARIANT) >> 8 & 255, GROUP = (VARIANT) >> 16;
// Threads of a block, and rows that it works on at once.
[[maybe_unused]] constexpr int THREADS = GROUP == 32 ? 256 : GROUP, ROWS = THREADS / GROUP;

struct Sum { template<class C> static INLINE C join(C a, C b) { return a + b; } };
struct Max { template<class C> static INLINE C join(C a, C b) { return b > a ? b : a; } };

// Folds one value of each thread of a group, in a fixed order; every thread gets the result.
template<class Op, class C> INLINE C group_fold(C v) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = Op::join(v, (C)__shfl_xor_sync(0xFFFFFFFFu, v, o));
    if (GROUP > 32) {
        __shared__ C warps[GROUP / 32];
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
        __syncthreads();
        v = warps[0];
#pragma unroll
        for (int w = 1; w < GROUP / 32; ++w) v = Op::join(v, warps[w]);
        __syncthreads();
    }
    return v;
}

// The same of two sums at once.
template<class C> INLINE void group_sums(C& a, C& b) {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        a += (C)__shfl_xor_sync(0xFFFFFFFFu, a, o);
        b += (C)__shfl_xor_sync(0xFFFFFFFFu, b, o);
    }
    if (GROUP > 32) {
        __shared__ C warps[2][GROUP / 32];
        if (threadIdx.x % 32 == 0) {
            warps[0][threadIdx.x / 32] = a;
            warps[1][threadIdx.x / 32] = b;
        }
        __syncthreads();
        a = warps[0][0];
        b = warps[1][0];
#pragma unroll
        for (int w = 1; w < GROUP / 32; ++w) {
            a += warps[0][w];
            b += warps[1][w];
        }
        __syncthreads();
    }
}

// A thread's packs of a row, all on their way before the first is needed.
template<int P, int V, class T> INLINE void load_row(const T* row, u32 n, u32 lane, T (&raw)[P][V]) {
#pragma unroll
    for (int k = 0; k < P; ++k) {
        u32 i = (k * GROUP + lane) * V;
        if (i < n) load_pack<V>(row + i, raw[k]);
    }
}

// The largest value so far and the sum of exp(v - max) so far, of values that come one pack after another.
template<class C> struct ExpSum {
    C max = lowest<C>(), sum = 0;
    template<int N> INLINE void add(const C* v) {
        C top = max;
#pragma unroll
        for (int i = 0; i < N; ++i) top = Max::join(top, v[i]);
        if (top > max) {
            sum *= exp_of(max - top);
            max = top;
        }
#pragma unroll
        // -inf adds nothing, also before any finite value came; NaN adds NaN.
        for (int i = 0; i < N; ++i) sum += v[i] == lowest<C>() ? (C)0 : exp_of(v[i] - max);
    }
    // The same of all threads of a group.
    INLINE void fold() {
        C top = group_fold<Max>(max);
        // Only what is not zero is rescaled: a thread that saw no finite value has max -inf.
        sum = group_fold<Sum>(sum == (C)0 ? sum : sum * exp_of(max - top));
        max = top;
    }
};
