// The gated delta rule, token by token: the short convolution, then the rule with the norm and gate of its output.
// The rows of a lane lie together in the order of their positions; the block at a lane's first row walks them all.
// A row at position 0 starts from an empty memory. Only compiled for networks with such layers.
#ifdef DELTA_KEYS

#define CHANNELS (2 * KEY_HEADS * DELTA_KEYS + VALUE_HEADS * DELTA_VALUES)
// Numbers of a lane's memory in one layer: the last inputs of the convolution, then the state.
#define TAIL ((TAPS - 1) * CHANNELS)
#define MEMORY (TAIL + VALUE_HEADS * DELTA_KEYS * DELTA_VALUES)

// Rows of the lane that starts here; 0 where another row starts it, or on padding.
__device__ __forceinline__ int run_length(const Row* rows, int first, int count) {
    int lane = rows[first].lane;
    if (lane < 0 || (first > 0 && rows[first - 1].lane == lane)) return 0;
    int end = first + 1;
    while (end < count && rows[end].lane == lane) end++;
    return end - first;
}

// projected: [rows, stride], its first CHANNELS columns; convolved: [rows, CHANNELS]; weights: [TAPS, CHANNELS].
// memories: this layer's, [lane, MEMORY]. grid: rows x channels / 256.
extern "C" __global__ void __launch_bounds__(256)
    convolve(const float* __restrict__ projected, const Row* __restrict__ rows, const float* __restrict__ weights,
             float* __restrict__ convolved, float* __restrict__ memories, int count, int stride) {
    const int channel = blockIdx.y * 256 + threadIdx.x, first = blockIdx.x;
    const int length = run_length(rows, first, count);
    if (length == 0 || channel >= CHANNELS) return;
    float* memory = memories + (size_t)rows[first].lane * MEMORY + channel;
    float tail[TAPS - 1], taps[TAPS];
#pragma unroll
    for (int i = 0; i < TAPS; i++) taps[i] = weights[i * CHANNELS + channel];
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++) tail[i] = rows[first].position > 0 ? memory[i * CHANNELS] : 0.0f;
    for (int row = first; row < first + length; row++) {
        const float x = projected[(size_t)row * stride + channel];
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < TAPS - 1; i++) sum += tail[i] * taps[i];
        sum += x * taps[TAPS - 1];
        convolved[(size_t)row * CHANNELS + channel] = silu(sum);
#pragma unroll
        for (int i = 0; i + 1 < TAPS - 1; i++) tail[i] = tail[i + 1];
        tail[TAPS - 2] = x;
    }
#pragma unroll
    for (int i = 0; i < TAPS - 1; i++) memory[i * CHANNELS] = tail[i];
}

// Four threads share a column of the state.
#define SHARED_BY 4
#define OWN (DELTA_KEYS / SHARED_BY)

// projected: gates start at column CHANNELS, shares and time steps after them. out: [rows, out_stride].
// grid: rows x VALUE_HEADS, DELTA_VALUES * SHARED_BY threads.
extern "C" __global__ void __launch_bounds__(DELTA_VALUES * SHARED_BY)
    recur(const float* __restrict__ projected, const float* __restrict__ convolved, const Row* __restrict__ rows,
          const float* __restrict__ decay, const float* __restrict__ step_bias, const float* __restrict__ norm_weight,
          float* __restrict__ memories, T* __restrict__ out, int count, int stride, int out_stride, float eps) {
    const int first = blockIdx.x, head = blockIdx.y, thread = threadIdx.x;
    const int length = run_length(rows, first, count);
    if (length == 0) return;
    constexpr int THREADS = DELTA_VALUES * SHARED_BY, WARPS = THREADS / 32;
    __shared__ float q[DELTA_KEYS], k[DELTA_KEYS], parts[2][WARPS];
    const int v = thread / SHARED_BY, share = thread % SHARED_BY;
    const int key_head = head / (VALUE_HEADS / KEY_HEADS);
    float* memory = memories + (size_t)rows[first].lane * MEMORY + TAIL + (size_t)head * DELTA_KEYS * DELTA_VALUES + v;
    float state[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++)
        state[i] = rows[first].position > 0 ? memory[(size_t)(i * SHARED_BY + share) * DELTA_VALUES] : 0.0f;
    for (int row = first; row < first + length; row++) {
        const float* from = convolved + (size_t)row * CHANNELS;
        // Lengths of query and key, each summed by one warp (both by the same where there is only one).
        for (int which = thread / 32; which < 2; which += WARPS) {
            const float* x = from + (which * KEY_HEADS + key_head) * DELTA_KEYS;
            float sum = 0.0f;
            for (int i = thread % 32; i < DELTA_KEYS; i += 32) sum += x[i] * x[i];
            float scale = 1.0f / sqrtf(warp_sum(sum) + 1e-6f);
            if (which == 0) scale *= 1.0f / sqrtf((float)DELTA_KEYS);
            for (int i = thread % 32; i < DELTA_KEYS; i += 32) (which == 0 ? q : k)[i] = x[i] * scale;
        }
        const float* line = projected + (size_t)row * stride + CHANNELS + VALUE_HEADS * DELTA_VALUES;
        const float beta = sigmoid(line[head]), time = line[VALUE_HEADS + head] + step_bias[head];
        const float keep = expf(decay[head] * (time > 20.0f ? time : log1pf(expf(time))));
        const float value = from[2 * KEY_HEADS * DELTA_KEYS + head * DELTA_VALUES + v];
        __syncthreads();
        float known = 0.0f;
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            state[i] *= keep;
            known += state[i] * k[i * SHARED_BY + share];
        }
        known += __shfl_xor_sync(EVERYONE, known, 1);
        known += __shfl_xor_sync(EVERYONE, known, 2);
        const float change = beta * (value - known);
        float read = 0.0f;
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            state[i] += k[i * SHARED_BY + share] * change;
            read += state[i] * q[i * SHARED_BY + share];
        }
        read += __shfl_xor_sync(EVERYONE, read, 1);
        read += __shfl_xor_sync(EVERYONE, read, 2);
        // The norm over the head: each column is held by four threads and counts once.
        const float square = warp_sum(share == 0 ? read * read : 0.0f);
        if (thread % 32 == 0) parts[row & 1][thread / 32] = square;
        __syncthreads();
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < WARPS; i++) sum += parts[row & 1][i];
        if (share == 0) {
            const float gate = projected[(size_t)row * stride + CHANNELS + head * DELTA_VALUES + v];
            const float normed = read * (1.0f / sqrtf(sum / (float)DELTA_VALUES + eps)) * norm_weight[v];
            out[(size_t)row * out_stride + head * DELTA_VALUES + v] = from_f32(silu(gate) * normed);
        }
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) memory[(size_t)(i * SHARED_BY + share) * DELTA_VALUES] = state[i];
}
#endif
