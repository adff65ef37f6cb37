// Elements made from their place alone: T0 is the element type, a thread makes one.

template<class T> struct Progression {
    static INLINE T at(u64 i, f64 start, f64 step, i64, i64) { return cast<T>(start + (f64)i * step); }
};
template<class T> struct WholeProgression {
    static INLINE T at(u64 i, f64, f64, i64 start, i64 step) { return cast<T>((i64)((u64)start + i * (u64)step)); }
};
template<> struct Progression<i64> : WholeProgression<i64> {};
template<> struct Progression<u32> : WholeProgression<u32> {};
template<> struct Progression<u8> : WholeProgression<u8> {};

// out[i] = start + i * step, in f64 for floats and in i64 (wrapping) for integers.
extern "C" __global__ void arange(T0* out, u64 n, f64 start, f64 step, i64 whole_start, i64 whole_step) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = Progression<T0>::at(i, start, step, whole_start, whole_step);
}

// out[i][j] = i == j
extern "C" __global__ void eye(T0* out, u64 n, u64 columns) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = cast<T0>((i64)(i / columns == i % columns));
}
