// The backward pass of layer normalisation; see norm.cu. Every kernel computes only what it has an address for.

// Rows that fit in registers: x and g are read once, for dx and for the sums over rows at the same time. Block b takes rows b, b + gridDim.x, ..
// (ROWS at once), and leaves its sums in line b of `dw` and `db`, of n elements each. The next row is on its way while one is worked on.
extern "C" __global__ void __launch_bounds__(THREADS)
layer_norm_backward_rows(const T0* x, const T1* g, const T2* weight, const C* mean, const C* rstd, T0* dx, C* dw, C* db, u64 rows, u32 n) {
    u32 lane = threadIdx.x % GROUP;
    T0 x_next[PACKS][VEC];
    T1 g_next[PACKS][VEC];
    C dw_sum[PACKS][VEC], db_sum[PACKS][VEC];
    u64 row = blockIdx.x * (u64)ROWS + threadIdx.x / GROUP;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        u32 i = (k * GROUP + lane) * VEC;
        if (row < rows && i < n) {
            load_pack<VEC>(x + row * n + i, x_next[k]);
            load_pack<VEC>(g + row * n + i, g_next[k]);
        }
#pragma unroll
        for (int j = 0; j < VEC; ++j) dw_sum[k][j] = db_sum[k][j] = 0;
    }
    while (row < rows) {
        C h[PACKS][VEC], s[PACKS][VEC], c1 = 0, c2 = 0, m = mean[row], r = rstd[row];
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                h[k][j] = (widen(x_next[k][j]) - m) * r;
                s[k][j] = widen(g_next[k][j]);
            }
        u64 this_row = row;
        row += gridDim.x * (u64)ROWS;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            u32 i = (k * GROUP + lane) * VEC;
            if (i >= n) continue;
            if (row < rows) {
                load_pack<VEC>(x + row * n + i, x_next[k]);
                load_pack<VEC>(g + row * n + i, g_next[k]);
            }
            C w[VEC];
            if (weight) load_wide<VEC>(weight + i, w);
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                db_sum[k][j] += s[k][j];
                dw_sum[k][j] += s[k][j] * h[k][j];
                if (weight) s[k][j] *= w[j];
                c1 += s[k][j];
                c2 += s[k][j] * h[k][j];
            }
        }
        if (!dx) continue;
        c1 = group_fold<Sum>(c1) / (C)n;
        c2 = group_fold<Sum>(c2) / (C)n;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            u32 i = (k * GROUP + lane) * VEC;
            if (i >= n) continue;
#pragma unroll
            for (int j = 0; j < VEC; ++j) s[k][j] = r * (s[k][j] - c1 - h[k][j] * c2);
            store_wide<VEC>(dx + this_row * n + i, s[k]);
        }
    }
    if (!dw && !db) return;
    if constexpr (ROWS > 1) {
        // The warps of a block add up their sums in shared memory, in order.
        constexpr int WIDTH = ROWS > 1 ? GROUP * PACKS * VEC : 1;
        __shared__ C sums[2][WIDTH];
        for (int turn = 0; turn < ROWS; ++turn) {
            if (threadIdx.x / GROUP == turn)
#pragma unroll
                for (int k = 0; k < PACKS; ++k)
#pragma unroll
                    for (int j = 0; j < VEC; ++j) {
                        u32 i = (k * GROUP + lane) * VEC + j;
                        sums[0][i] = turn == 0 ? dw_sum[k][j] : sums[0][i] + dw_sum[k][j];
                        sums[1][i] = turn == 0 ? db_sum[k][j] : sums[1][i] + db_sum[k][j];
                    }
            __syncthreads();
        }
        for (u32 i = threadIdx.x; i < n; i += THREADS) {
            if (dw) dw[blockIdx.x * (u64)n + i] = sums[0][i];
            if (db) db[blockIdx.x * (u64)n + i] = sums[1][i];
        }
    } else {
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                u32 i = (k * GROUP + lane) * VEC + j;
                if (i >= n) continue;
                if (dw) dw[blockIdx.x * (u64)n + i] = dw_sum[k][j];
                if (db) db[blockIdx.x * (u64)n + i] = db_sum[k][j];
            }
    }
}

// dx of longer rows, a block each: read twice.
extern "C" __global__ void __launch_bounds__(THREADS)
layer_norm_backward_long(const T0* x, const T1* g, const T2* weight, const C* mean, const C* rstd, T0* dx, u64 rows, u64 n) {
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        C c1 = 0, c2 = 0, m = mean[row], r = rstd[row];
        for (int pass = 0; pass < 2; ++pass) {
            for (u64 i = threadIdx.x * VEC; i < n; i += GROUP * VEC) {
                C h[VEC], s[VEC], w[VEC], part1 = 0, part2 = 0;
                load_wide<VEC>(x + row * n + i, h);
                load_wide<VEC>(g + row * n + i, s);
                if (weight) load_wide<VEC>(weight + i, w);
#pragma unroll
                for (int j = 0; j < VEC; ++j) {
                    h[j] = (h[j] - m) * r;
                    if (weight) s[j] *= w[j];
                    part1 += s[j];
                    part2 += s[j] * h[j];
                    s[j] = r * (s[j] - c1 - h[j] * c2);
                }
                if (pass == 0) {
                    c1 += part1;
                    c2 += part2;
                } else {
                    store_wide<VEC>(dx + row * n + i, s);
                }
            }
            if (pass == 0) {
                c1 = group_fold<Sum>(c1) / (C)n;
                c2 = group_fold<Sum>(c2) / (C)n;
            }
        }
    }
}

// Sums over rows for longer rows: a thread per column, rows blockIdx.y, blockIdx.y + gridDim.y, ..; its sums go to line blockIdx.y.
extern "C" __global__ void __launch_bounds__(256)
layer_norm_backward_columns(const T0* x, const T1* g, const C* mean, const C* rstd, C* dw, C* db, u64 rows, u64 n) {
    u64 i = blockIdx.x * 256ull + threadIdx.x;
    if (i >= n) return;
    C w = 0, b = 0;
#pragma unroll 4
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y) {
        C v = widen(g[row * n + i]);
        w += v * ((widen(x[row * n + i]) - mean[row]) * rstd[row]);
        b += v;
    }
    if (dw) dw[blockIdx.y * n + i] = w;
    if (db) db[blockIdx.y * n + i] = b;
}

// Adds up `lines` lines of sums: 32 columns a block, 16 threads each. blockIdx.y says whose: 0 weight, 1 bias.
extern "C" __global__ void __launch_bounds__(512) layer_norm_sums(const C* dw, const C* db, T2* dweight, T2* dbias, u32 lines, u64 n) {
    const C* from = blockIdx.y ? db : dw;
    T2* to = blockIdx.y ? dbias : dweight;
    if (!to) return;
    __shared__ C parts[16][32];
    u32 c = threadIdx.x % 32, part = threadIdx.x / 32;
    u64 i = blockIdx.x * 32ull + c;
    C sum = 0;
    if (i < n) {
#pragma unroll 4
        for (u32 line = part; line < lines; line += 16) sum += from[line * n + i];
    }
    parts[part][c] = sum;
    __syncthreads();
    if (part > 0 || i >= n) return;
#pragma unroll
    for (int p = 1; p < 16; ++p) sum += parts[p][c];
    to[i] = cast<T2>(sum);
}
