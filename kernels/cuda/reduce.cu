// Reduction over any layout. A block has X = 2^log_x outputs, or packs of VEC neighbouring outputs, each folded by Y = 256 / X threads that
// take every Y-th element. `fast`: neighbouring threads are those of one output (its elements lie closer than outputs do).
// VARIANT is VEC + (OP << 8).

constexpr int VEC = (VARIANT) & 255;

struct Place { u32 x, y, xs, ys; };
INLINE Place place_of_thread(u32 log_x, u32 fast) {
    u32 t = threadIdx.x, xs = 1u << log_x, ys = 256 >> log_x;
    return fast ? Place{t >> (8 - log_x), t & (ys - 1), xs, ys} : Place{t & (xs - 1), t >> log_x, xs, ys};
}

// out[blockIdx.y][o]: output o folded over elements part * blockIdx.y .. of `n`.
extern "C" __global__ void __launch_bounds__(256)
reduce(const T0* x, T1* out, Path kept, Path reduced, u64 outputs, u64 n, u64 part, f64 count, u32 log_x, u32 fast, const f64* shift, f64 power) {
    __shared__ A buffer[256 * VEC];
    Place t = place_of_thread(log_x, fast);
    u64 o = (blockIdx.x * (u64)t.xs + t.x) * VEC;
    A* own = buffer + (t.y * t.xs + t.x) * VEC;
    u64 end = (blockIdx.y + 1) * part < n ? (blockIdx.y + 1) * part : n;
    A acc[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) acc[j] = Fold::start<A>();
    if (o < outputs) {
        const T0* in = x + place(kept, o);
        f64 s[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) s[j] = SHIFTED && shift ? shift[o + j] : 0.0;
        // By blocks of 256 elements, so that the rounding of long sums stays small.
        for (u64 i = blockIdx.y * part + t.y; i < end;) {
            A block[VEC];
#pragma unroll
            for (int j = 0; j < VEC; ++j) block[j] = Fold::start<A>();
            u64 stop = i + 256 * t.ys < end ? i + 256 * t.ys : end;
#pragma unroll 4
            for (; i < stop; i += t.ys) {
                A v[VEC];
                load_wide<VEC>(in + place(reduced, i), v);
#pragma unroll
                for (int j = 0; j < VEC; ++j) block[j] = Fold::step(block[j], v[j], s[j], power);
            }
#pragma unroll
            for (int j = 0; j < VEC; ++j) acc[j] = Fold::join(acc[j], block[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j) own[j] = acc[j];
    for (u32 half = t.ys / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t.y >= half) continue;
#pragma unroll
        for (int j = 0; j < VEC; ++j) own[j] = acc[j] = Fold::join(acc[j], own[half * t.xs * VEC + j]);
    }
    if (t.y > 0 || o >= outputs) return;
#pragma unroll
    for (int j = 0; j < VEC; ++j) out[blockIdx.y * outputs + o + j] = finish(acc[j], count);
}

// Index of the best of the `n` elements of each output.
extern "C" __global__ void __launch_bounds__(256)
arg_reduce(const T0* x, i64* out, Path kept, u64 stride, u64 outputs, u64 n, u32 log_x, u32 fast) {
    __shared__ A keys[256];
    __shared__ i64 indices[256];
    Place t = place_of_thread(log_x, fast);
    u64 o = blockIdx.x * (u64)t.xs + t.x;
    u32 own = t.y * t.xs + t.x;
    A best = Fold::start<A>();
    i64 index = -1;
    if (o < outputs) {
        const T0* in = x + place(kept, o);
#pragma unroll 4
        for (u64 i = t.y; i < n; i += t.ys) {
            A v = widen(in[i * stride]);
            if (index < 0 || Fold::beats(v, best)) {
                best = v;
                index = i;
            }
        }
    }
    keys[own] = best;
    indices[own] = index;
    for (u32 half = t.ys / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t.y >= half) continue;
        A other = keys[own + half * t.xs];
        i64 other_index = indices[own + half * t.xs];
        // Of equals, and of NaNs, the first.
        bool equal = !Fold::beats(other, best) && !Fold::beats(best, other);
        if (other_index >= 0 && (index < 0 || Fold::beats(other, best) || (equal && other_index < index))) {
            best = other;
            index = other_index;
        }
        keys[own] = best;
        indices[own] = index;
    }
    if (t.y == 0 && o < outputs) out[o] = index;
}
