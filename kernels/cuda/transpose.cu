// Copies between layouts that are contiguous along different dims, through tiles in shared memory: both sides move whole rows of a tile.
// A block moves one 32 x 32 tile of one matrix; T0 has the size of the elements.

// out[b, i, j] (stride 1 along j) = x[b, i, j] (stride 1 along i); `b` counts the other dims.
struct Transpose {
    u64 x, out;
    i64 rows, columns;
    i64 x_column, out_row;
    u32 row_tiles, column_tiles;
    u32 rank;
    u32 padding;
    i64 sizes[8], x_strides[8], out_strides[8];
};

extern "C" __global__ void __launch_bounds__(256) transpose(const __grid_constant__ Transpose t) {
    __shared__ T0 tile[32][33];
    u64 block = blockIdx.x;
    i64 j0 = (i64)(block % t.column_tiles) * 32;
    block /= t.column_tiles;
    i64 i0 = (i64)(block % t.row_tiles) * 32;
    i64 b = (i64)(block / t.row_tiles), x_at = 0, out_at = 0;
    for (int d = (int)t.rank - 1; d >= 0; --d) {
        i64 r = b % t.sizes[d];
        b /= t.sizes[d];
        x_at += r * t.x_strides[d];
        out_at += r * t.out_strides[d];
    }
    const T0* x = reinterpret_cast<const T0*>(t.x) + x_at;
    T0* out = reinterpret_cast<T0*>(t.out) + out_at;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int k = warp; k < 32; k += 8)
        if (i0 + lane < t.rows && j0 + k < t.columns) tile[k][lane] = x[(i0 + lane) + (j0 + k) * t.x_column];
    __syncthreads();
    for (int k = warp; k < 32; k += 8)
        if (i0 + k < t.rows && j0 + lane < t.columns) out[(i0 + k) * t.out_row + (j0 + lane)] = tile[lane][k];
}
