// Optimizer updates in place. T0: parameter, T1: gradient; moments and buffers are of the type C that arithmetic is done in.
// A thread takes VARIANT neighbours at a time. `hyper` is (learning rate, steps done), `scaler` (scale, clean steps, found-inf) or null.

typedef compute_t<T0> C;
constexpr int VEC = VARIANT;

INLINE bool found_inf(const f32* scaler) { return scaler && scaler[2] != 0.0f; }
INLINE f32 root_of(f32 v) { return sqrtf(v); }
INLINE f64 root_of(f64 v) { return sqrt(v); }

extern "C" __global__ void advance(f64* hyper, const f32* scaler) {
    if (!found_inf(scaler)) hyper[1] += 1.0;
}

extern "C" __global__ void __launch_bounds__(256)
sgd(T0* p, const T1* g, C* buffer, const f64* hyper, const f32* scaler, u64 n, f64 momentum, f64 dampening, f64 weight_decay, u32 nesterov) {
    if (found_inf(scaler)) return;
    C lr = (C)hyper[0], decay = (C)weight_decay, mu = (C)momentum, damped = (C)(1.0 - dampening);
    bool first = hyper[1] <= 1.0;
    for (u64 i = (blockIdx.x * 256ull + threadIdx.x) * VEC; i < n; i += gridDim.x * 256ull * VEC) {
        C w[VEC], d[VEC], b[VEC];
        load_wide<VEC>(p + i, w);
        load_wide<VEC>(g + i, d);
        if (buffer && !first) load_wide<VEC>(buffer + i, b);
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            d[j] += decay * w[j];
            if (buffer) {
                b[j] = first ? d[j] : mu * b[j] + damped * d[j];
                d[j] = nesterov ? d[j] + mu * b[j] : b[j];
            }
            w[j] -= lr * d[j];
        }
        if (buffer) store_wide<VEC>(buffer + i, b);
        store_wide<VEC>(p + i, w);
    }
}

extern "C" __global__ void __launch_bounds__(256)
adam(T0* p, const T1* g, C* m, C* v, const f64* hyper, const f32* scaler, u64 n, f64 beta1, f64 beta2, f64 eps, f64 weight_decay, u32 decoupled) {
    if (found_inf(scaler)) return;
    // lr / (1 - b1^t) and 1 / sqrt(1 - b2^t), in f64, once a block.
    __shared__ C shared[2];
    f64 lr = hyper[0], t = hyper[1];
    if (threadIdx.x == 0) shared[0] = (C)(lr / (1.0 - pow(beta1, t)));
    if (threadIdx.x == 32) shared[1] = (C)(1.0 / sqrt(1.0 - pow(beta2, t)));
    __syncthreads();
    C step = shared[0], root = shared[1], b1 = (C)beta1, b2 = (C)beta2, a1 = (C)(1.0 - beta1), a2 = (C)(1.0 - beta2), e = (C)eps;
    C l2 = decoupled ? (C)0 : (C)weight_decay, keep = decoupled ? (C)(1.0 - lr * weight_decay) : (C)1;
    for (u64 i = (blockIdx.x * 256ull + threadIdx.x) * VEC; i < n; i += gridDim.x * 256ull * VEC) {
        C w[VEC], d[VEC], first[VEC], second[VEC];
        load_wide<VEC>(p + i, w);
        load_wide<VEC>(g + i, d);
        load_wide<VEC>(m + i, first);
        load_wide<VEC>(v + i, second);
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            d[j] += l2 * w[j];
            first[j] = b1 * first[j] + a1 * d[j];
            second[j] = b2 * second[j] + a2 * d[j] * d[j];
            w[j] = keep * w[j] - step * first[j] / (root_of(second[j]) * root + e);
        }
        store_wide<VEC>(m + i, first);
        store_wide<VEC>(v + i, second);
        store_wide<VEC>(p + i, w);
    }
}

// T0 is the gradient's type. Every thread that finds an inf or NaN writes the same 1.
extern "C" __global__ void __launch_bounds__(256) unscale(T0* g, f32* scaler, u64 n) {
    C inverse = (C)(f32)(1.0 / (f64)scaler[0]);
    bool finite = true;
    for (u64 i = (blockIdx.x * 256ull + threadIdx.x) * VEC; i < n; i += gridDim.x * 256ull * VEC) {
        C d[VEC];
        load_wide<VEC>(g + i, d);
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            d[j] *= inverse;
            // The difference of a number and itself is 0, of inf or NaN it is NaN.
            finite = finite && d[j] - d[j] == (C)0;
        }
        store_wide<VEC>(g + i, d);
    }
    if (!finite) scaler[2] = 1.0f;
}

extern "C" __global__ void update_scale(f32* scaler, f64 growth, f64 backoff, u32 interval) {
    if (scaler[2] != 0.0f) {
        scaler[0] = (f32)(scaler[0] * backoff);
        scaler[1] = 0.0f;
    } else {
        scaler[1] += 1.0f;
        if (scaler[1] >= (f32)interval) {
            f32 grown = (f32)(scaler[0] * growth);
            if (grown - grown == 0.0f) scaler[0] = grown;
            scaler[1] = 0.0f;
        }
    }
    scaler[2] = 0.0f;
}
