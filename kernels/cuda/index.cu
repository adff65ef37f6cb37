// Reading by index along the middle dim of [outer, size, inner]. T0: the index. Rows are moved as units of 16, 8, 4, 2 or 1 bytes,
// VARIANT says how many. An index out of range is noted and clamped.

#if VARIANT == 16
typedef uint4 Unit;
#elif VARIANT == 8
typedef u64 Unit;
#elif VARIANT == 4
typedef u32 Unit;
#elif VARIANT == 2
typedef u16 Unit;
#else
typedef u8 Unit;
#endif

INLINE i64 checked(T0 index, i64 size, ErrorWord* error, u32 kernel) {
    i64 i = (i64)index;
    if (i >= 0 && i < size) return i;
    report_index(error, kernel, i, size);
    return i < 0 ? 0 : size - 1;
}

// out[o][j][i] = x[o][index[j]][i]; `inner` counts units, `units` those of the whole output.
extern "C" __global__ void __launch_bounds__(256)
index_select(const Unit* x, const T0* index, Unit* out, u64 units, u64 n, i64 size, u64 inner, ErrorWord* error, u32 kernel) {
    for (u64 u = blockIdx.x * 256ull + threadIdx.x; u < units; u += gridDim.x * 256ull) {
        u64 row, i, o, j;
        divide(u, inner, &row, &i);
        divide(row, n, &o, &j);
        i64 from = checked(index[j], size, error, kernel);
        out[u] = x[(o * size + from) * inner + i];
    }
}
