// Stable sorting of rows of contiguous elements: of keys whose unsigned order is that of the elements, equal ones by position. T0: elements.
// VARIANT: elements of a tile, a power of two.
//
// A block sorts a tile in shared memory (Batcher: "Sorting networks and their applications", 1968). A row that is one tile is done then; longer
// ones are merged tile by tile, runs of twice the width in each pass: an element's place in a merged run is its place in its own run plus the
// number of elements of the other run before it.

constexpr u32 TILE = (VARIANT);

template<class T> struct KeyOf { typedef u32 type; };
template<> struct KeyOf<f64> { typedef u64 type; };
template<> struct KeyOf<i64> { typedef u64 type; };
typedef typename KeyOf<T0>::type Key;

// NaN is after all numbers, and -0 is 0.
INLINE u32 key_of(f32 v) {
    if (v != v) return 0xFFFFFFFFu;
    u32 b = v == 0.0f ? 0u : __float_as_uint(v);
    return b >> 31 ? ~b : b | 0x80000000u;
}
INLINE u64 key_of(f64 v) {
    if (v != v) return 0xFFFFFFFFFFFFFFFFull;
    u64 b = v == 0.0 ? 0ull : (u64)__double_as_longlong(v);
    return b >> 63 ? ~b : b | 0x8000000000000000ull;
}
INLINE u64 key_of(i64 v) { return (u64)v ^ 0x8000000000000000ull; }
INLINE u32 key_of(u32 v) { return v; }
INLINE u32 key_of(u8 v) { return v; }

INLINE bool before(Key a, u32 i, Key b, u32 j) { return a < b || (a == b && i < j); }

// Sorts tile `blockIdx.x % tiles` of row `blockIdx.x / tiles`. Keys and positions go to `keys` and `places`; where those are null, the row is
// one tile, of which the sorted elements skip .. skip + take are the result.
extern "C" __global__ void __launch_bounds__(TILE / 2)
sort_tiles(const T0* x, Key* keys, u32* places, T0* values, i64* indices, u64 n, u64 tiles, u32 descending, u64 skip, u64 take) {
    __shared__ Key key[TILE];
    __shared__ u32 index[TILE];
    u64 row = blockIdx.x / tiles, first = blockIdx.x % tiles * TILE;
    u32 count = n - first < TILE ? (u32)(n - first) : TILE;
    for (u32 t = threadIdx.x; t < TILE; t += TILE / 2) {
        Key k = ~(Key)0;
        if (t < count) {
            k = key_of(widen(x[row * n + first + t]));
            if (descending) k = ~k;
        }
        key[t] = k;
        index[t] = t < count ? (u32)(first + t) : 0xFFFFFFFFu;
    }
    __syncthreads();
    for (u32 size = 2; size <= TILE; size <<= 1)
        for (u32 stride = size / 2; stride > 0; stride >>= 1) {
            u32 a = 2 * threadIdx.x - (threadIdx.x & (stride - 1)), b = a + stride;
            bool rising = (a & size) == 0;
            Key ka = key[a], kb = key[b];
            u32 ia = index[a], ib = index[b];
            if (before(kb, ib, ka, ia) == rising) {
                key[a] = kb;
                key[b] = ka;
                index[a] = ib;
                index[b] = ia;
            }
            __syncthreads();
        }
    for (u32 t = threadIdx.x; t < count; t += TILE / 2) {
        if (keys) {
            keys[row * n + first + t] = key[t];
            places[row * n + first + t] = index[t];
        } else if (t >= skip && t - skip < take) {
            u64 to = row * take + (t - skip);
            indices[to] = index[t];
            if (values) values[to] = x[row * n + index[t]];
        }
    }
}

// Merges neighbouring sorted runs of `width` elements in each row.
extern "C" __global__ void __launch_bounds__(256)
sort_merge(const Key* keys, const u32* places, Key* keys_out, u32* places_out, u64 elements, u64 n, u64 width) {
    for (u64 e = blockIdx.x * 256ull + threadIdx.x; e < elements; e += gridDim.x * 256ull) {
        u64 row, i;
        divide(e, n, &row, &i);
        u64 start = i - i % (2 * width), middle = start + width < n ? start + width : n;
        u64 end = start + 2 * width < n ? start + 2 * width : n;
        bool earlier = i < middle;
        const Key* other_keys = keys + row * n;
        const u32* other_places = places + row * n;
        Key key = keys[e];
        u32 place = places[e];
        u64 low = earlier ? middle : start, high = earlier ? end : middle, from = low;
        while (low < high) {
            u64 at = low + (high - low) / 2;
            if (before(other_keys[at], other_places[at], key, place)) low = at + 1;
            else high = at;
        }
        u64 to = row * n + start + (i - (earlier ? start : middle)) + (low - from);
        keys_out[to] = key;
        places_out[to] = place;
    }
}

// The sorted elements skip .. skip + take of each row.
extern "C" __global__ void __launch_bounds__(256)
sort_take(const T0* x, const u32* places, T0* values, i64* indices, u64 results, u64 n, u64 skip, u64 take) {
    for (u64 e = blockIdx.x * 256ull + threadIdx.x; e < results; e += gridDim.x * 256ull) {
        u64 row, j;
        divide(e, take, &row, &j);
        u32 place = places[row * n + skip + j];
        indices[e] = place;
        if (values) values[e] = x[row * n + place];
    }
}

// out[row][index[row][j]] = g[row][j]; the indices of a row are in range and differ.
extern "C" __global__ void __launch_bounds__(256) sort_put(const T0* g, const i64* index, T0* out, u64 elements, u64 n, u64 take) {
    for (u64 e = blockIdx.x * 256ull + threadIdx.x; e < elements; e += gridDim.x * 256ull) {
        u64 row, j;
        divide(e, take, &row, &j);
        out[row * n + (u64)index[e]] = g[e];
    }
}
