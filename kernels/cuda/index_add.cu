// out[o][index[j]][i] += src[o][j][i]. T0: src, T1: out, T2: the index.
//
// The positions j are sorted by index, equal ones in order, and cut in chunks of CHUNK. A thread walks one chunk of one column (o, i) and adds
// up each run of equal indices. A run that lies inside the chunk goes to `out` at once; the part of a run that goes on beyond an end of the chunk
// goes to `heads` (it began earlier) or `tails` (it begins here and goes on), and `index_add_join` adds up these parts, in order.

constexpr u32 CHUNK = 64, LOADS = 8;

// Indices as keys; one out of range is noted and clamped.
extern "C" __global__ void __launch_bounds__(256) index_keys(const T2* index, u32* keys, u32 n, i64 size, ErrorWord* error, u32 kernel) {
    u32 j = blockIdx.x * 256 + threadIdx.x;
    if (j >= n) return;
    i64 i = (i64)index[j];
    if (i < 0 || i >= size) {
        report_index(error, kernel, i, size);
        i = i < 0 ? 0 : size - 1;
    }
    keys[j] = (u32)i;
}

// The same where each element of src, seen as [outer, n, inner], has an index of its own into the middle dim of [outer, size, inner]: keys are places there.
extern "C" __global__ void __launch_bounds__(256)
scatter_keys(const T2* index, u32* keys, u32 count, u64 n, i64 size, u64 inner, ErrorWord* error, u32 kernel) {
    u32 u = blockIdx.x * 256 + threadIdx.x;
    if (u >= count) return;
    u64 row, i, o, j;
    divide(u, inner, &row, &i);
    divide(row, n, &o, &j);
    i64 at = (i64)index[u];
    if (at < 0 || at >= size) {
        report_index(error, kernel, at, size);
        at = at < 0 ? 0 : size - 1;
    }
    keys[u] = (u32)((o * size + at) * inner + i);
}

extern "C" __global__ void __launch_bounds__(128)
index_add_chunks(const T0* src, const u32* keys, const u32* positions, T1* out, T1* heads, T1* tails, u32 n, u64 size, u64 inner, u64 columns) {
    __shared__ u32 key[CHUNK], position[CHUNK];
    u32 start = blockIdx.x * CHUNK, count = n - start < CHUNK ? n - start : CHUNK;
    for (u32 j = threadIdx.x; j < count; j += 128) {
        key[j] = keys[start + j];
        position[j] = positions[start + j];
    }
    __syncthreads();
    bool from_before = start > 0 && keys[start - 1] == key[0];
    bool goes_on = start + count < n && keys[start + count] == key[count - 1];
    for (u64 column = blockIdx.y * 128ull + threadIdx.x; column < columns; column += gridDim.y * 128ull) {
        u64 o, i;
        divide(column, inner, &o, &i);
        const T0* from = src + o * n * inner + i;
        T1* to = out + o * size * inner + i;
        T1 sum = 0;
        bool first = true;
        for (u32 tile = 0; tile < count; tile += LOADS) {
            // Loads go together: the compiler may not move them over stores.
            T1 v[LOADS];
#pragma unroll
            for (u32 l = 0; l < LOADS; ++l) v[l] = tile + l < count ? (T1)widen(from[position[tile + l] * inner]) : (T1)0;
#pragma unroll
            for (u32 l = 0; l < LOADS; ++l) {
                u32 j = tile + l;
                if (j >= count) break;
                sum += v[l];
                bool last = j + 1 == count;
                if (!last && key[j + 1] == key[j]) continue;
                // The end of a run.
                if (first && from_before) {
                    heads[blockIdx.x * columns + column] = sum;
                } else if (last && goes_on) {
                    tails[blockIdx.x * columns + column] = sum;
                } else {
                    to[key[j] * inner] += sum;
                }
                sum = 0;
                first = false;
            }
        }
    }
}

// A block looks after the run that begins in chunk blockIdx.x and goes on beyond it, if there is one.
extern "C" __global__ void __launch_bounds__(128)
index_add_join(const u32* keys, T1* out, const T1* heads, const T1* tails, u32 n, u64 size, u64 inner, u64 columns) {
    u32 end = (blockIdx.x + 1) * CHUNK, run = keys[end - 1];
    if (keys[end] != run) return;
    if (keys[end - CHUNK] == run && blockIdx.x > 0 && keys[end - CHUNK - 1] == run) return;
    for (u64 column = blockIdx.y * 128ull + threadIdx.x; column < columns; column += gridDim.y * 128ull) {
        T1 sum = tails[blockIdx.x * columns + column];
        for (u64 at = end, chunk = blockIdx.x + 1; at < n && keys[at] == run; at += CHUNK, ++chunk) sum += heads[chunk * columns + column];
        u64 o, i;
        divide(column, inner, &o, &i);
        out[(o * size + run) * inner + i] += sum;
    }
}
