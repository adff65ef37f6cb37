// Copies between layouts that are contiguous along different dims, through tiles in shared memory: both sides move whole rows of a tile,
// in packs of VEC neighbours. A block moves one tile of one matrix. T0 has the size of the elements; VARIANT is VEC + (TILE << 8).

constexpr int VEC = (VARIANT) & 255, TILE = (VARIANT) >> 8;
// Threads of a row of the tile, and rows that the block moves at once.
constexpr int ACROSS = TILE / VEC, DOWN = 256 / ACROSS;
// A column of the tile lies in different banks.
constexpr int PADDING = sizeof(T0) < 4 ? 4 / sizeof(T0) : 1;

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
    __shared__ T0 tile[TILE][TILE + PADDING];
    u64 block = blockIdx.x;
    i64 j0 = (i64)(block % t.column_tiles) * TILE;
    block /= t.column_tiles;
    i64 i0 = (i64)(block % t.row_tiles) * TILE;
    i64 b = (i64)(block / t.row_tiles), x_at = 0, out_at = 0;
    for (int d = (int)t.rank - 1; d >= 0; --d) {
        i64 r = b % t.sizes[d];
        b /= t.sizes[d];
        x_at += r * t.x_strides[d];
        out_at += r * t.out_strides[d];
    }
    const T0* x = reinterpret_cast<const T0*>(t.x) + x_at;
    T0* out = reinterpret_cast<T0*>(t.out) + out_at;
    int across = threadIdx.x % ACROSS * VEC, down = threadIdx.x / ACROSS;
    T0 v[TILE / DOWN][VEC];
#pragma unroll
    for (int k = 0; k < TILE / DOWN; ++k) {
        i64 i = i0 + across, j = j0 + down + k * DOWN;
        if (i < t.rows && j < t.columns) load_pack<VEC>(x + i + j * t.x_column, v[k]);
    }
#pragma unroll
    for (int k = 0; k < TILE / DOWN; ++k)
#pragma unroll
        for (int q = 0; q < VEC; ++q) tile[down + k * DOWN][across + q] = v[k][q];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE / DOWN; ++k) {
        i64 i = i0 + down + k * DOWN, j = j0 + across;
        if (i >= t.rows || j >= t.columns) continue;
#pragma unroll
        for (int q = 0; q < VEC; ++q) v[k][q] = tile[across + q][down + k * DOWN];
        store_pack<VEC>(out + i * t.out_row + j, v[k]);
    }
}
