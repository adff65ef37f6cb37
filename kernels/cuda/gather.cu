// Reading and writing by an index for each element along the middle dim of [outer, size, inner]. T0: the index, [outer, n, inner]. Elements
// are moved as VARIANT bytes. An index out of range is noted and clamped.

#if VARIANT == 8
typedef u64 Unit;
#elif VARIANT == 4
typedef u32 Unit;
#elif VARIANT == 2
typedef u16 Unit;
#else
typedef u8 Unit;
#endif

// Where the element that index `u` names lies in [outer, size, inner].
INLINE u64 named(const T0* index, u64 u, u64 n, i64 size, u64 inner, ErrorWord* error, u32 kernel) {
    u64 row, i, o, j;
    divide(u, inner, &row, &i);
    divide(row, n, &o, &j);
    i64 at = (i64)index[u];
    if (at < 0 || at >= size) {
        report_index(error, kernel, at, size);
        at = at < 0 ? 0 : size - 1;
    }
    return (o * size + at) * inner + i;
}

// out[o][j][i] = x[o][index[o][j][i]][i], for `count` elements.
extern "C" __global__ void __launch_bounds__(256)
gather(const Unit* x, const T0* index, Unit* out, u64 count, u64 n, i64 size, u64 inner, ErrorWord* error, u32 kernel) {
    for (u64 u = blockIdx.x * 256ull + threadIdx.x; u < count; u += gridDim.x * 256ull)
        out[u] = x[named(index, u, n, size, inner, error, kernel)];
}

// out[o][index[o][j][i]][i] = src[o][j][i] where the last of equal indices wins: `last` has a number for each element of `out`, that of the
// last element written there, counted from 1.
extern "C" __global__ void __launch_bounds__(256) scatter_clear(u32* last, u64 elements) {
    for (u64 u = blockIdx.x * 256ull + threadIdx.x; u < elements; u += gridDim.x * 256ull) last[u] = 0;
}
extern "C" __global__ void __launch_bounds__(256)
scatter_last(const T0* index, u32* last, u64 count, u64 n, i64 size, u64 inner, ErrorWord* error, u32 kernel) {
    for (u64 u = blockIdx.x * 256ull + threadIdx.x; u < count; u += gridDim.x * 256ull)
        atomicMax(&last[named(index, u, n, size, inner, error, kernel)], (u32)u + 1);
}
extern "C" __global__ void __launch_bounds__(256)
scatter_write(const Unit* src, const T0* index, const u32* last, Unit* out, u64 count, u64 n, i64 size, u64 inner, ErrorWord* error, u32 kernel) {
    for (u64 u = blockIdx.x * 256ull + threadIdx.x; u < count; u += gridDim.x * 256ull) {
        u64 to = named(index, u, n, size, inner, error, kernel);
        if (last[to] == (u32)u + 1) out[to] = src[u];
    }
}
