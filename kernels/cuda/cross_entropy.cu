// Cross entropy of logits [rows, classes] and class indices, a group of threads a row. T0: logits and their gradient.
//   loss = logsumexp(x) - x[target]        dx[c] = (exp(x[c] - lse) - (c == target)) * g
//
// Rows of an odd number of classes start anywhere, so a row is walked in three parts: up to the first address that a pack is aligned at,
// packs of 16 bytes, the rest.

typedef compute_t<T0> C;
constexpr int PACK = 16 / sizeof(T0);

// The class of a row, or -1 where it doesn't count. One out of range is noted and clamped.
INLINE i64 class_of(i64 target, i64 ignore, i64 classes, ErrorWord* error, u32 kernel) {
    if (target == ignore || classes == 0) return -1;
    if (target >= 0 && target < classes) return target;
    if (threadIdx.x % GROUP == 0) report_index(error, kernel, target, classes);
    return target < 0 ? 0 : classes - 1;
}

// Elements of a row before its packs, and the end of its packs.
INLINE void parts_of(const T0* row, u64 n, u64* head, u64* body) {
    u64 before = (0 - (u64)row / sizeof(T0)) % PACK;
    *head = before < n ? before : n;
    *body = *head + (n - *head) / PACK * PACK;
}

extern "C" __global__ void __launch_bounds__(THREADS)
cross_entropy(const T0* x, const i64* target, C* loss, C* lse, C* counted, u64 rows, u64 classes, i64 ignore, ErrorWord* error, u32 kernel) {
    u32 lane = threadIdx.x % GROUP;
    for (u64 row = blockIdx.x * (u64)ROWS + threadIdx.x / GROUP; row < rows; row += gridDim.x * (u64)ROWS) {
        const T0* in = x + row * classes;
        u64 head, body;
        parts_of(in, classes, &head, &body);
        ExpSum<C> s;
        for (u64 i = lane; i < head; i += GROUP) {
            C v = widen(in[i]);
            s.add<1>(&v);
        }
        for (u64 i = head + lane * PACK; i < body; i += GROUP * PACK) {
            C v[PACK];
            load_wide<PACK>(in + i, v);
            s.add<PACK>(v);
        }
        for (u64 i = body + lane; i < classes; i += GROUP) {
            C v = widen(in[i]);
            s.add<1>(&v);
        }
        s.fold();
        i64 t = class_of(target[row], ignore, classes, error, kernel);
        if (lane != 0) continue;
        C ln = log_of(s.sum);
        lse[row] = s.max + ln;
        loss[row] = t < 0 ? (C)0 : (s.max - widen(in[t])) + ln;
        counted[row] = t < 0 ? (C)0 : (C)1;
    }
}

INLINE C slope(C v, C lse, C g, bool is_target) { return (exp_of(v - lse) - (is_target ? (C)1 : (C)0)) * g; }

extern "C" __global__ void __launch_bounds__(THREADS)
cross_entropy_backward(const T0* x, const i64* target, const C* lse, const C* g, T0* dx, u64 rows, u64 classes, u64 g_stride, i64 ignore,
                       ErrorWord* error, u32 kernel) {
    u32 lane = threadIdx.x % GROUP;
    for (u64 row = blockIdx.x * (u64)ROWS + threadIdx.x / GROUP; row < rows; row += gridDim.x * (u64)ROWS) {
        const T0* in = x + row * classes;
        T0* out = dx + row * classes;
        u64 head, body;
        parts_of(in, classes, &head, &body);
        // Packs only where both rows are aligned alike.
        if (((u64)in - (u64)out) % 16 != 0) head = body = classes;
        i64 t = class_of(target[row], ignore, classes, error, kernel);
        if (t < 0) {
            for (u64 i = lane; i < classes; i += GROUP) out[i] = cast<T0>((C)0);
            continue;
        }
        C l = lse[row], up = g[row * g_stride];
        for (u64 i = lane; i < head; i += GROUP) out[i] = cast<T0>(slope(widen(in[i]), l, up, i == t));
        for (u64 i = head + lane * PACK; i < body; i += GROUP * PACK) {
            C v[PACK];
            load_wide<PACK>(in + i, v);
#pragma unroll
            for (int j = 0; j < PACK; ++j) v[j] = slope(v[j], l, up, i + j == t);
            store_wide<PACK>(out + i, v);
        }
        for (u64 i = body + lane; i < classes; i += GROUP) out[i] = cast<T0>(slope(widen(in[i]), l, up, i == t));
    }
}
