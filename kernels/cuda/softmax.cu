// Softmax and log-softmax over the middle dim of [outer, n, inner], and their gradients. T0: input (y and g in backward), T1: output.
//   y = exp(x - max) / sum(exp(x - max))    log: x - max - ln(sum)
//   dx = y * (g - sum(g * y))               log: g - exp(y) * sum(g)

typedef compute_t<T0> C;

INLINE C finish(C v, C max, C sum, C ln, u32 log) { return log ? v - max - ln : exp_of(v - max) / sum; }
INLINE C term(C y, C g, u32 log) { return log ? g : g * y; }
INLINE C slope(C y, C g, C sum, u32 log) { return log ? g - exp_of(y) * sum : y * (g - sum); }

// Rows that fit in registers: each element is read once.
extern "C" __global__ void __launch_bounds__(THREADS) softmax_rows(const T0* x, T1* out, u64 rows, u32 n, u32 log) {
    u32 lane = threadIdx.x % GROUP;
    for (u64 row = blockIdx.x * (u64)ROWS + threadIdx.x / GROUP; row < rows; row += gridDim.x * (u64)ROWS) {
        T0 raw[PACKS][VEC];
        C v[PACKS][VEC], max = lowest<C>(), sum = 0;
        load_row(x + row * n, n, lane, raw);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            bool inside = (k * GROUP + lane) * VEC < n;
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                v[k][j] = inside ? (C)widen(raw[k][j]) : lowest<C>();
                max = Max::join(max, v[k][j]);
            }
        }
        max = group_fold<Max>(max);
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                C e = exp_of(v[k][j] -= max);
                if (!log) v[k][j] = e;
                sum += e;
            }
        sum = group_fold<Sum>(sum);
        C ln = log_of(sum), scale = (C)1 / sum;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            u32 i = (k * GROUP + lane) * VEC;
#pragma unroll
            for (int j = 0; j < VEC; ++j) v[k][j] = log ? v[k][j] - ln : v[k][j] * scale;
            if (i < n) store_wide<VEC>(out + row * n + i, v[k]);
        }
    }
}

// Longer rows, a block each: read twice.
extern "C" __global__ void __launch_bounds__(THREADS) softmax_long(const T0* x, T1* out, u64 rows, u64 n, u32 log) {
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const T0* in = x + row * n;
        ExpSum<C> s;
        for (u64 i = threadIdx.x * VEC; i < n; i += GROUP * VEC) {
            C v[VEC];
            load_wide<VEC>(in + i, v);
            s.add<VEC>(v);
        }
        s.fold();
        C ln = log_of(s.sum);
        for (u64 i = threadIdx.x * VEC; i < n; i += GROUP * VEC) {
            C v[VEC];
            load_wide<VEC>(in + i, v);
#pragma unroll
            for (int j = 0; j < VEC; ++j) v[j] = finish(v[j], s.max, s.sum, ln, log);
            store_wide<VEC>(out + row * n + i, v);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
softmax_backward_rows(const T0* y, const T0* g, T1* dx, u64 rows, u32 n, u32 log) {
    u32 lane = threadIdx.x % GROUP;
    for (u64 row = blockIdx.x * (u64)ROWS + threadIdx.x / GROUP; row < rows; row += gridDim.x * (u64)ROWS) {
        T0 a[PACKS][VEC], b[PACKS][VEC];
        C sum = 0;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            u32 i = (k * GROUP + lane) * VEC;
            if (i < n) {
                load_pack<VEC>(y + row * n + i, a[k]);
                load_pack<VEC>(g + row * n + i, b[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                if ((k * GROUP + lane) * VEC < n) sum += term(widen(a[k][j]), widen(b[k][j]), log);
        sum = group_fold<Sum>(sum);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            u32 i = (k * GROUP + lane) * VEC;
            C v[VEC];
            if (i >= n) continue;
#pragma unroll
            for (int j = 0; j < VEC; ++j) v[j] = slope(widen(a[k][j]), widen(b[k][j]), sum, log);
            store_wide<VEC>(dx + row * n + i, v);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
softmax_backward_long(const T0* y, const T0* g, T1* dx, u64 rows, u64 n, u32 log) {
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        C sum = 0;
        for (u64 i = threadIdx.x * VEC; i < n; i += GROUP * VEC) {
            C a[VEC], b[VEC], part = 0;
            load_wide<VEC>(y + row * n + i, a);
            load_wide<VEC>(g + row * n + i, b);
#pragma unroll
            for (int j = 0; j < VEC; ++j) part += term(a[j], b[j], log);
            sum += part;
        }
        sum = group_fold<Sum>(sum);
        for (u64 i = threadIdx.x * VEC; i < n; i += GROUP * VEC) {
            C a[VEC], b[VEC];
            load_wide<VEC>(y + row * n + i, a);
            load_wide<VEC>(g + row * n + i, b);
#pragma unroll
            for (int j = 0; j < VEC; ++j) a[j] = slope(a[j], b[j], sum, log);
            store_wide<VEC>(dx + row * n + i, a);
        }
    }
}

// Columns (inner > 1): a block has 32 neighbouring columns, each walked by 8 threads that take every eighth element.
INLINE C* column_buffer() {
    __shared__ C buffer[8][32];
    return &buffer[0][0];
}
template<class Op> INLINE C column_fold(C v) {
    C* buffer = column_buffer();
    u32 x = threadIdx.x % 32, y = threadIdx.x / 32;
    buffer[y * 32 + x] = v;
    __syncthreads();
    v = buffer[x];
#pragma unroll
    for (int i = 1; i < 8; ++i) v = Op::join(v, buffer[i * 32 + x]);
    __syncthreads();
    return v;
}

extern "C" __global__ void __launch_bounds__(256) softmax_columns(const T0* x, T1* out, u64 columns, u64 n, u64 inner, u32 log) {
    for (u64 first = blockIdx.x * 32ull; first < columns; first += gridDim.x * 32ull) {
        u64 column = first + threadIdx.x % 32, base = column / inner * n * inner + column % inner;
        u64 from = column < columns ? threadIdx.x / 32 : n;
        ExpSum<C> s;
        for (u64 j = from; j < n; j += 8) {
            C v = widen(x[base + j * inner]);
            s.add<1>(&v);
        }
        C max = column_fold<Max>(s.max);
        C sum = column_fold<Sum>(s.sum == (C)0 ? s.sum : s.sum * exp_of(s.max - max)), ln = log_of(sum);
        for (u64 j = from; j < n; j += 8) out[base + j * inner] = cast<T1>(finish(widen(x[base + j * inner]), max, sum, ln, log));
    }
}

extern "C" __global__ void __launch_bounds__(256)
softmax_backward_columns(const T0* y, const T0* g, T1* dx, u64 columns, u64 n, u64 inner, u32 log) {
    for (u64 first = blockIdx.x * 32ull; first < columns; first += gridDim.x * 32ull) {
        u64 column = first + threadIdx.x % 32, base = column / inner * n * inner + column % inner;
        u64 from = column < columns ? threadIdx.x / 32 : n;
        C sum = 0;
        for (u64 j = from; j < n; j += 8) sum += term(widen(y[base + j * inner]), widen(g[base + j * inner]), log);
        sum = column_fold<Sum>(sum);
        for (u64 j = from; j < n; j += 8) {
            u64 i = base + j * inner;
            dx[i] = cast<T1>(slope(widen(y[i]), widen(g[i]), sum, log));
        }
    }
}
