// Reduction of contiguous rows by a group of threads each; a long row is split in parts that get a result of their own.

extern "C" __global__ void __launch_bounds__(THREADS)
reduce_rows(const T0* x, T1* out, Path kept, u64 rows, u64 n, u64 parts, u64 part, f64 count, const f64* shift, f64 power) {
    u32 lane = threadIdx.x % GROUP;
    for (u64 item = blockIdx.x * (u64)ROWS + threadIdx.x / GROUP; item < rows * parts; item += gridDim.x * (u64)ROWS) {
        u64 row, p;
        divide(item, parts, &row, &p);
        u64 end = (p + 1) * part < n ? (p + 1) * part : n;
        const T0* in = x + place(kept, row);
        f64 s = SHIFTED && shift ? shift[row] : 0.0;
        A acc[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) acc[j] = Fold::start<A>();
#pragma unroll 4
        for (u64 i = p * part + lane * VEC; i < end; i += GROUP * VEC) {
            A v[VEC];
            load_wide<VEC>(in + i, v);
#pragma unroll
            for (int j = 0; j < VEC; ++j) acc[j] = Fold::step(acc[j], v[j], s, power);
        }
        A all = acc[0];
#pragma unroll
        for (int j = 1; j < VEC; ++j) all = Fold::join(all, acc[j]);
        all = group_fold<Fold>(all);
        if (lane == 0) out[item] = finish(all, count);
    }
}
