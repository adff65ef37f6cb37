// Reduction over any layout. A block has X outputs, or packs of VEC neighbouring outputs, each folded by Y threads that take every Y-th
// element. FAST: neighbouring threads are those of one output (its elements lie closer than outputs do).
// VARIANT is VEC + (OP << 8) + (X << 16) + (FAST << 26).

constexpr int VEC = (VARIANT) & 255, X = (VARIANT) >> 16 & 1023, Y = 256 / X;
constexpr bool FAST = (VARIANT) >> 26 & 1;

INLINE u32 thread_x() { return FAST ? threadIdx.x / Y : threadIdx.x % X; }
INLINE u32 thread_y() { return FAST ? threadIdx.x % Y : threadIdx.x / X; }

// out[blockIdx.y][o]: output o folded over elements part * blockIdx.y .. of `n`.
extern "C" __global__ void __launch_bounds__(256)
reduce(const T0* x, T1* out, Path kept, Path reduced, u64 outputs, u64 n, u64 part, f64 count) {
    __shared__ A buffer[Y][X * VEC];
    u32 tx = thread_x(), ty = thread_y();
    u64 o = (blockIdx.x * (u64)X + tx) * VEC;
    u64 end = (blockIdx.y + 1) * part < n ? (blockIdx.y + 1) * part : n;
    A acc[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) acc[j] = Fold::start<A>();
    if (o < outputs) {
        const T0* in = x + place(kept, o);
        // By blocks of 256 elements, so that the rounding of long sums stays small.
        for (u64 i = blockIdx.y * part + ty; i < end;) {
            A block[VEC];
#pragma unroll
            for (int j = 0; j < VEC; ++j) block[j] = Fold::start<A>();
            u64 stop = i + 256 * Y < end ? i + 256 * Y : end;
#pragma unroll 4
            for (; i < stop; i += Y) {
                A v[VEC];
                load_wide<VEC>(in + place(reduced, i), v);
#pragma unroll
                for (int j = 0; j < VEC; ++j) block[j] = Fold::join(block[j], v[j]);
            }
#pragma unroll
            for (int j = 0; j < VEC; ++j) acc[j] = Fold::join(acc[j], block[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j) buffer[ty][tx * VEC + j] = acc[j];
#pragma unroll
    for (int half = Y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (ty >= half) continue;
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            acc[j] = Fold::join(acc[j], buffer[ty + half][tx * VEC + j]);
            buffer[ty][tx * VEC + j] = acc[j];
        }
    }
    if (ty > 0 || o >= outputs) return;
#pragma unroll
    for (int j = 0; j < VEC; ++j) out[blockIdx.y * outputs + o + j] = finish(acc[j], count);
}

// Index of the best of the `n` elements of each output.
extern "C" __global__ void __launch_bounds__(256) arg_reduce(const T0* x, i64* out, Path kept, u64 stride, u64 outputs, u64 n) {
    __shared__ A keys[Y][X];
    __shared__ i64 indices[Y][X];
    u32 tx = thread_x(), ty = thread_y();
    u64 o = blockIdx.x * (u64)X + tx;
    A best = Fold::start<A>();
    i64 index = -1;
    if (o < outputs) {
        const T0* in = x + place(kept, o);
#pragma unroll 4
        for (u64 i = ty; i < n; i += Y) {
            A v = widen(in[i * stride]);
            if (index < 0 || Fold::beats(v, best)) {
                best = v;
                index = i;
            }
        }
    }
    keys[ty][tx] = best;
    indices[ty][tx] = index;
    for (int half = Y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (ty >= half) continue;
        A other = keys[ty + half][tx];
        i64 other_index = indices[ty + half][tx];
        // Of equals, and of NaNs, the first.
        bool equal = !Fold::beats(other, best) && !Fold::beats(best, other);
        if (other_index >= 0 && (index < 0 || Fold::beats(other, best) || (equal && other_index < index))) {
            best = other;
            index = other_index;
        }
        keys[ty][tx] = best;
        indices[ty][tx] = index;
    }
    if (ty == 0 && o < outputs) out[o] = index;
}
