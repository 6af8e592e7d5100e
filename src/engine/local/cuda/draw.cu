// Drawing a token from a row of logits. Weights are exp((x - top) / temperature) in 40 binary places, so that their
// sums are whole numbers: exact in any order of addition, and a row's draw depends on that row alone.
// Kept are the top_k greatest (ties: lower id), of those, by falling weight, the fewest whose share reaches top_p, of
// those the ones that weigh at least min_p; then one uniform number picks along the ids.

struct Draw {
    int row;        // of the step; -1: nothing to draw
    int top_k;      // 0: all
    float temperature;  // 0: greedy
    float top_p, min_p;
    int logprob;    // whether it is wanted
    double unit;    // uniform in [0, 1)
};

// token -1: the logits are not numbers.
struct Drawn {
    int token;
    float logprob;
};

#define THREADS 1024
#define ONE 1099511627776.0  // 2^40

// A key that orders floats as unsigned integers.
__device__ __forceinline__ u32 order(float x) {
    u32 bits = __float_as_uint(x + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Weigher {
    float top, inverse;
    __device__ __forceinline__ float share(float x) const { return expf((x - top) * inverse); }
    __device__ __forceinline__ u64 weight(float x) const { return (u64)((double)share(x) * ONE); }
};

// Sum of one number a thread, for all threads; and, if wanted, the sum over the threads before this one.
__device__ u64 block_sum(u64 x, u64* before) {
    __shared__ u64 parts[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 sum = x;
    for (int step = 1; step < 32; step <<= 1) {
        u64 other = __shfl_up_sync(EVERYONE, sum, step);
        if (lane >= step) sum += other;
    }
    __syncthreads();
    if (lane == 31) parts[warp] = sum;
    __syncthreads();
    u64 total = 0, preceding = 0;
    for (int i = 0; i < 32; i++) {
        if (i == warp) preceding = total;
        total += parts[i];
    }
    if (before) *before = preceding + sum - x;
    return total;
}

// The key at which the items above `floor`, taken from the greatest, first reach `enough` (in counts or in weights),
// and what the items above that key amount to.
template <bool COUNT>
__device__ u32 reach(const float* logits, int allowed, Weigher weigher, u32 floor, u64 enough, u64* above) {
    __shared__ u64 bins[256];
    __shared__ u32 found;
    __shared__ u64 sum;
    u32 prefix = 0;
    u64 reached = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += THREADS) bins[i] = 0;
        __syncthreads();
        const u32 mask = shift == 24 ? 0u : 0xffffffffu << (shift + 8);
        for (int i = threadIdx.x; i < allowed; i += THREADS) {
            const u32 key = order(logits[i]);
            if (key >= floor && (key & mask) == prefix)
                atomicAdd(bins + ((key >> shift) & 255), COUNT ? 1ull : weigher.weight(logits[i]));
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int bin = 255;
            u64 so_far = reached;
            while (bin > 0 && so_far + bins[bin] < enough) so_far += bins[bin--];
            found = bin;
            sum = so_far;
        }
        __syncthreads();
        prefix |= found << shift;
        reached = sum;
        __syncthreads();
    }
    *above = reached;
    return prefix;
}

// logits: [draws, stride]; ids from `allowed` on are never drawn. grid: draws, 1024 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    draw(const float* __restrict__ all_logits, const Draw* __restrict__ draws, Drawn* __restrict__ out, int vocab,
         int allowed, int stride) {
    const Draw wanted = draws[blockIdx.x];
    if (wanted.row < 0) return;
    const float* logits = all_logits + (size_t)blockIdx.x * stride;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    __shared__ u64 best[32];
    __shared__ float shift[32];
    __shared__ int broken, picked;
    if (thread == 0) broken = 0, picked = -1;
    // The greatest allowed logit and its lowest id, in one number; and the greatest of all.
    u64 top = 0;
    float greatest = -INFINITY;
    bool bad = false;
    constexpr int AT_ONCE = 8;
    for (int base = thread; base < vocab; base += THREADS * AT_ONCE) {
        float x[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) x[j] = base + j * THREADS < vocab ? logits[base + j * THREADS] : -INFINITY;
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int i = base + j * THREADS;
            bad |= x[j] != x[j];
            greatest = fmaxf(greatest, x[j]);
            if (i < allowed) top = max(top, (u64)order(x[j]) << 32 | (u32)~i);
        }
    }
    for (int step = 16; step > 0; step >>= 1) top = max(top, __shfl_xor_sync(EVERYONE, top, step));
    greatest = warp_max(greatest);
    __syncthreads();
    if (bad) broken = 1;
    if (lane == 0) best[warp] = top, shift[warp] = greatest;
    __syncthreads();
    for (int i = 0; i < 32; i++) top = max(top, best[i]), greatest = fmaxf(greatest, shift[i]);
    const int first = (int)~(u32)top;
    const float top_logit = logits[first];
    if (broken || !isfinite(top_logit)) {
        if (thread == 0) out[blockIdx.x].token = -1;
        return;
    }
    int token = first;
    if (wanted.temperature > 0.0f) {
        const Weigher weigher = {top_logit, 1.0f / wanted.temperature};
        u32 floor = 0;           // least key that is kept
        u64 ties = ~0ull;        // how many of that very key, from the lowest id
        u64 above;
        if (wanted.top_k > 0 && wanted.top_k < allowed) {
            floor = reach<true>(logits, allowed, weigher, 0, wanted.top_k, &above);
            ties = wanted.top_k - above;
        }
        if (wanted.top_p < 1.0f) {
            // Weight of what top_k keeps.
            u64 sum = 0, same = 0;
            for (int i = thread; i < allowed; i += THREADS) {
                const u32 key = order(logits[i]);
                if (key > floor || ties == ~0ull) sum += weigher.weight(logits[i]);
                if (key == floor && ties != ~0ull) same = weigher.weight(logits[i]);
            }
            u64 mass = block_sum(sum, 0);
            if (ties != ~0ull) {
                // All items of the floor's key weigh the same.
                __shared__ u64 one;
                if (thread == 0) one = 0;
                __syncthreads();
                if (same) one = same;
                __syncthreads();
                mass += one * ties;
            }
            const u64 enough = (u64)ceil((double)mass * (double)wanted.top_p);
            const u32 key = reach<false>(logits, allowed, weigher, floor, enough, &above);
            u64 weight = 0;
            {
                __shared__ u64 one;
                __shared__ int some;
                if (thread == 0) one = 0, some = 0;
                __syncthreads();
                for (int i = thread; i < allowed; i += THREADS)
                    if (order(logits[i]) == key) one = weigher.weight(logits[i]), some = 1;
                __syncthreads();
                weight = some ? one : 0;
            }
            u64 need = weight ? (enough - above + weight - 1) / weight : ~0ull;
            if (need == 0) need = 1;
            if (key > floor || need < ties) ties = need;
            floor = key > floor ? key : floor;
        }
        // Each thread takes a stretch of ids, so that sums before it are sums over lower ids.
        const int each = (allowed + THREADS - 1) / THREADS;
        const int from = min(thread * each, allowed), to = min(from + each, allowed);
        u64 tied = 0, tied_before = 0;
        if (ties != ~0ull) {
            for (int i = from; i < to; i++) tied += order(logits[i]) == floor;
            block_sum(tied, &tied_before);
        }
        u64 sum = 0, rank = tied_before;
        for (int i = from; i < to; i++) {
            const float x = logits[i];
            const u32 key = order(x);
            bool kept = key > floor || (key == floor && rank++ < ties);
            if (kept && weigher.share(x) >= wanted.min_p) sum += weigher.weight(x);
        }
        u64 before;
        const u64 total = block_sum(sum, &before);
        u64 target = (u64)(wanted.unit * (double)total);
        if (target >= total) target = total - 1;
        if (target >= before && target < before + sum) {
            rank = tied_before;
            u64 so_far = before;
            for (int i = from; i < to; i++) {
                const float x = logits[i];
                const u32 key = order(x);
                bool kept = key > floor || (key == floor && rank++ < ties);
                if (kept && weigher.share(x) >= wanted.min_p) so_far += weigher.weight(x);
                if (so_far > target) {
                    picked = i;
                    break;
                }
            }
        }
        __syncthreads();
        token = picked < 0 ? first : picked;
    }
    float logprob = 0.0f;
    if (wanted.logprob) {
        u64 sum = 0;
        const Weigher weigher = {greatest, 1.0f};
        for (int i = thread; i < vocab; i += THREADS) sum += weigher.weight(logits[i]);
        const u64 total = block_sum(sum, 0);
        logprob = (float)((double)logits[token] - (double)greatest - log((double)total / ONE));
    }
    if (thread == 0) {
        Drawn result = {token, logprob};
        out[blockIdx.x] = result;
    }
}
