// Layer normalisation over rows of n. T0: x (and dx), T1: out in forward, g in backward, T2: weight and bias, and their gradients.
//   y = (x - mean) * rstd * weight + bias
//   dx = rstd * (s - mean(s) - h * mean(s * h)),  h = (x - mean) * rstd,  s = g * weight,  dweight = sum(g * h),  dbias = sum(g)
//
// The rounding of the mean is made up for: with m the rounded mean and d = x - m (exact near m), x - mean = d - mean(d), and
// var = mean(d * d) - mean(d)^2, where the last term is as small as an ulp of m squared.

typedef compute_t<T0> C;

struct Stats { C mean, shift, rstd; };
INLINE Stats stats_of(C mean, C sum_d, C sum_dd, C n, f64 eps) {
    Stats s;
    s.mean = mean;
    s.shift = sum_d / n;
    C var = sum_dd / n - s.shift * s.shift;
    s.rstd = rsqrt_of((var > (C)0 || var != var ? var : (C)0) + (C)eps);
    return s;
}
// Normalised values of a pack, from d.
INLINE void scale_pack(C* d, Stats s, const T2* weight, const T2* bias, u64 i) {
    C w[VEC], b[VEC];
    if (weight) load_wide<VEC>(weight + i, w);
    if (bias) load_wide<VEC>(bias + i, b);
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        C h = (d[j] - s.shift) * s.rstd;
        if (weight) h *= w[j];
        d[j] = bias ? h + b[j] : h;
    }
}

// Rows that fit in registers: each element is read once.
extern "C" __global__ void __launch_bounds__(THREADS)
layer_norm_rows(const T0* x, const T2* weight, const T2* bias, T1* out, C* mean, C* rstd, u64 rows, u32 n, f64 eps) {
    u32 lane = threadIdx.x % GROUP;
    for (u64 row = blockIdx.x * (u64)ROWS + threadIdx.x / GROUP; row < rows; row += gridDim.x * (u64)ROWS) {
        T0 raw[PACKS][VEC];
        C v[PACKS][VEC], sum = 0, sum_d = 0, sum_dd = 0;
        load_row(x + row * n, n, lane, raw);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            bool inside = (k * GROUP + lane) * VEC < n;
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                v[k][j] = inside ? (C)widen(raw[k][j]) : (C)0;
                sum += v[k][j];
            }
        }
        C m = group_fold<Sum>(sum) / (C)n;
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                C d = (k * GROUP + lane) * VEC < n ? v[k][j] - m : (C)0;
                v[k][j] = d;
                sum_d += d;
                sum_dd += d * d;
            }
        group_sums(sum_d, sum_dd);
        Stats s = stats_of(m, sum_d, sum_dd, (C)n, eps);
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            u32 i = (k * GROUP + lane) * VEC;
            if (i >= n) continue;
            scale_pack(v[k], s, weight, bias, i);
            store_wide<VEC>(out + row * n + i, v[k]);
        }
        if (lane == 0) {
            mean[row] = s.mean + s.shift;
            rstd[row] = s.rstd;
        }
    }
}

// Longer rows, a block each: read three times.
extern "C" __global__ void __launch_bounds__(THREADS)
layer_norm_long(const T0* x, const T2* weight, const T2* bias, T1* out, C* mean, C* rstd, u64 rows, u64 n, f64 eps) {
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const T0* in = x + row * n;
        C sum = 0, sum_d = 0, sum_dd = 0;
        for (u64 i = threadIdx.x * VEC; i < n; i += GROUP * VEC) {
            C v[VEC], part = 0;
            load_wide<VEC>(in + i, v);
#pragma unroll
            for (int j = 0; j < VEC; ++j) part += v[j];
            sum += part;
        }
        C m = group_fold<Sum>(sum) / (C)n;
        for (u64 i = threadIdx.x * VEC; i < n; i += GROUP * VEC) {
            C v[VEC], part_d = 0, part_dd = 0;
            load_wide<VEC>(in + i, v);
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                C d = v[j] - m;
                part_d += d;
                part_dd += d * d;
            }
            sum_d += part_d;
            sum_dd += part_dd;
        }
        Stats s = stats_of(m, group_fold<Sum>(sum_d), group_fold<Sum>(sum_dd), (C)n, eps);
        for (u64 i = threadIdx.x * VEC; i < n; i += GROUP * VEC) {
            C v[VEC];
            load_wide<VEC>(in + i, v);
#pragma unroll
            for (int j = 0; j < VEC; ++j) v[j] -= m;
            scale_pack(v, s, weight, bias, i);
            store_wide<VEC>(out + row * n + i, v);
        }
        if (threadIdx.x == 0) {
            mean[row] = s.mean + s.shift;
            rstd[row] = s.rstd;
        }
    }
}
