// A stable sort of positions by key, eight bits at a time from the lowest: count the digits of each tile, sum up the counts, move.
// No result depends on which block runs first.

// Keys of a tile; each of its 8 warps takes 256 neighbours of them, 32 at a time.
constexpr u32 TILE = 2048, PART = TILE / 8;

// Ranks this thread's key among the equal digits of its warp's current 32 keys: how many come before it, and how many there are.
INLINE void rank_of(u32 digit, bool valid, u32* before, u32* count) {
    u32 lane = threadIdx.x % 32, same = 0xFFFFFFFFu;
#pragma unroll
    for (int bit = 0; bit < 8; ++bit) {
        u32 ones = __ballot_sync(0xFFFFFFFFu, digit >> bit & 1);
        same &= (digit >> bit & 1) ? ones : ~ones;
    }
    same &= __ballot_sync(0xFFFFFFFFu, valid);
    *before = __popc(same & ((1u << lane) - 1));
    *count = __popc(same);
}

// Counts the digits of each warp's keys into `counts`, in shared memory.
INLINE void count_digits(const u32* keys, u32 n, u32 shift, u32 (*counts)[256]) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 i = threadIdx.x; i < 8 * 256; i += 256) (&counts[0][0])[i] = 0;
    __syncthreads();
    for (u32 step = 0; step < PART; step += 32) {
        u32 i = blockIdx.x * TILE + warp * PART + step + lane;
        u32 digit = i < n ? keys[i] >> shift & 255 : 0, before, count;
        rank_of(digit, i < n, &before, &count);
        if (i < n && before == 0) counts[warp][digit] += count;
        __syncwarp();
    }
    __syncthreads();
}

// totals[digit * tiles + tile]: keys of a tile with a digit.
extern "C" __global__ void __launch_bounds__(256) sort_count(const u32* keys, u32* totals, u32 n, u32 shift) {
    __shared__ u32 counts[8][256];
    count_digits(keys, n, shift, counts);
    u32 total = 0;
    for (int w = 0; w < 8; ++w) total += counts[w][threadIdx.x];
    totals[threadIdx.x * gridDim.x + blockIdx.x] = total;
}

// Replaces each total by the sum of all before it; one block.
extern "C" __global__ void __launch_bounds__(1024) sort_sum(u32* totals, u32 n) {
    __shared__ u32 warps[32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, carry = 0;
    for (u32 start = 0; start < n; start += 1024) {
        u32 i = start + threadIdx.x, own = i < n ? totals[i] : 0, sum = own;
        for (int o = 1; o < 32; o <<= 1) {
            u32 other = __shfl_up_sync(0xFFFFFFFFu, sum, o);
            if (lane >= o) sum += other;
        }
        if (lane == 31) warps[warp] = sum;
        __syncthreads();
        u32 before = carry;
        for (u32 w = 0; w < 32; ++w) {
            if (w < warp) before += warps[w];
            carry += warps[w];
        }
        if (i < n) totals[i] = before + sum - own;
        __syncthreads();
    }
}

// Moves each key and its position to its place. The first pass has no positions yet (null): a key's is its own.
extern "C" __global__ void __launch_bounds__(256)
sort_move(const u32* keys, const u32* positions, const u32* totals, u32* keys_out, u32* positions_out, u32 n, u32 shift) {
    __shared__ u32 places[8][256];
    count_digits(keys, n, shift, places);
    u32 place = totals[threadIdx.x * gridDim.x + blockIdx.x];
    for (int w = 0; w < 8; ++w) {
        u32 count = places[w][threadIdx.x];
        places[w][threadIdx.x] = place;
        place += count;
    }
    __syncthreads();
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 step = 0; step < PART; step += 32) {
        u32 i = blockIdx.x * TILE + warp * PART + step + lane;
        u32 key = i < n ? keys[i] : 0, digit = key >> shift & 255, before, count;
        rank_of(digit, i < n, &before, &count);
        if (i < n) {
            u32 to = places[warp][digit] + before;
            keys_out[to] = key;
            positions_out[to] = positions ? positions[i] : i;
        }
        __syncwarp();
        if (i < n && before == 0) places[warp][digit] += count;
        __syncwarp();
    }
}
