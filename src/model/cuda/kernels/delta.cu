// The gated delta rule, token by token: the short convolution, then the rule with the norm and gate of its output.
// The rows of a lane lie together in the order of their positions; the blocks at a lane's first row walk them all.
// A row at position 0 starts from an empty memory. Only compiled for networks with such layers.
#ifdef DELTA_KEYS

#define CHANNELS (2 * KEY_HEADS * DELTA_KEYS + VALUE_HEADS * DELTA_VALUES)
// Numbers of a lane's memory in one layer: the last inputs of the convolution, then the state, [head, value, key].
#define TAIL ((TAPS - 1) * CHANNELS)
#define MEMORY (TAIL + VALUE_HEADS * DELTA_KEYS * DELTA_VALUES)

// projected: [rows, stride], its first CHANNELS columns; convolved: [rows, CHANNELS]; weights: [TAPS, CHANNELS].
// memories: this layer's, [lane, MEMORY]; only read here. grid: rows x channels / 256.
extern "C" __global__ void __launch_bounds__(256)
    convolve(const float* __restrict__ projected, const Row* __restrict__ rows, const float* __restrict__ weights,
             float* __restrict__ convolved, const float* __restrict__ memories, int stride) {
    const int channel = blockIdx.y * 256 + threadIdx.x, number = blockIdx.x;
    const Row row = rows[number];
    if (row.lane < 0 || channel >= CHANNELS) return;
    const float* tail = memories + (size_t)row.lane * MEMORY + channel;
    // Rows of this lane right before this one; what lies further back is in the tail.
    int before = 0;
    while (before < TAPS - 1 && number > before && rows[number - before - 1].lane == row.lane) before++;
    float sum = 0.0f;
#pragma unroll
    for (int back = TAPS - 1; back >= 0; back--) {
        float x = 0.0f;
        if (back <= before) x = projected[(size_t)(number - back) * stride + channel];
        else if (back <= row.position) x = tail[(TAPS - 1 - (back - before)) * CHANNELS];
        sum += x * weights[(TAPS - 1 - back) * CHANNELS + channel];
    }
    convolved[(size_t)number * CHANNELS + channel] = silu(sum);
}

// A thread has COLUMNS columns of the state and shares them with SHARED_BY - 1 others: thread s of these has the keys
// KEY(i, s). Wide heads have four columns a thread, so that each key that is read serves four times.
#if DELTA_KEYS % 64 == 0
#define COLUMNS 4
#define SHARED_BY 16
#define STRIDE 4
#define KEY(i, share) ((i) / 4 * 64 + (share) * 4 + (i) % 4)
#else
#define COLUMNS 1
#define SHARED_BY 4
#define STRIDE 1
#define KEY(i, share) ((i) * 4 + (share))
#endif
#define OWN (DELTA_KEYS / SHARED_BY)
// Tokens that are made ready at once.
#define TOGETHER 8
// Columns of a block: a head's columns know nothing of each other until its norm.
#define SLICE (DELTA_VALUES % 32 == 0 ? 32 : DELTA_VALUES)
#define DELTA_THREADS (SLICE * 4)
#define DELTA_WARPS (DELTA_THREADS / 32)

// A thread's own keys of a vector, and of a column of the state in memory.
__device__ __forceinline__ void take_own(const float* from, int share, float* own) {
#pragma unroll
    for (int i = 0; i < OWN; i += STRIDE) {
        if (STRIDE == 4) {
            const float4 four = *reinterpret_cast<const float4*>(from + KEY(i, share));
            own[i] = four.x, own[i + 1] = four.y, own[i + 2] = four.z, own[i + 3] = four.w;
        } else {
            own[i] = from[KEY(i, share)];
        }
    }
}

// Sums of each column over the threads that share it. The sum of column (lane & 15) / 4, or of the only one.
__device__ __forceinline__ float column_sum(const float* x, int lane) {
    float sum;
    if (COLUMNS == 4) {
        const bool upper = lane & 8, odd = lane & 4;
        const float low = (upper ? x[2] : x[0]) + __shfl_xor_sync(EVERYONE, upper ? x[0] : x[2], 8);
        const float high = (upper ? x[3] : x[1]) + __shfl_xor_sync(EVERYONE, upper ? x[1] : x[3], 8);
        sum = (odd ? high : low) + __shfl_xor_sync(EVERYONE, odd ? low : high, 4);
    } else {
        sum = x[0];
    }
    sum += __shfl_xor_sync(EVERYONE, sum, 2);
    return sum + __shfl_xor_sync(EVERYONE, sum, 1);
}

// projected: shares and time steps after channels and gates. read: [rows, VALUE_HEADS * DELTA_VALUES].
// grid: rows x VALUE_HEADS x slices of a head, SLICE * 4 threads.
extern "C" __global__ void __launch_bounds__(DELTA_THREADS)
    recur(const float* __restrict__ projected, const float* __restrict__ convolved, const Row* __restrict__ rows,
          const float* __restrict__ decay, const float* __restrict__ step_bias, float* __restrict__ memories,
          float* __restrict__ read, int count, int stride) {
    const int first = blockIdx.x, head = blockIdx.y, thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const Row start = rows[first];
    if (start.lane < 0 || (first > 0 && rows[first - 1].lane == start.lane)) return;
    __shared__ __align__(16) float q[TOGETHER][DELTA_KEYS], k[TOGETHER][DELTA_KEYS];
    __shared__ float keeps[TOGETHER], betas[TOGETHER];
    const int v = blockIdx.z * SLICE + thread / SHARED_BY * COLUMNS, share = thread % SHARED_BY;
    const int key_head = head / (VALUE_HEADS / KEY_HEADS);
    float* memory = memories + (size_t)start.lane * MEMORY;
    float* place = memory + TAIL + ((size_t)head * DELTA_VALUES + v) * DELTA_KEYS;
    float state[COLUMNS][OWN];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        if (start.position > 0) {
            take_own(place + c * DELTA_KEYS, share, state[c]);
        } else {
#pragma unroll
            for (int i = 0; i < OWN; i++) state[c][i] = 0.0f;
        }
    }
    int row = first, length = 0;
    while (true) {
        int ready = 0;
        while (ready < TOGETHER && row + ready < count && rows[row + ready].lane == start.lane) ready++;
        if (ready == 0) break;
        // Queries and keys at their length of one, a warp each.
        for (int task = warp; task < 2 * ready; task += DELTA_WARPS) {
            const int token = task / 2, which = task % 2;
            const float* x = convolved + (size_t)(row + token) * CHANNELS + (which * KEY_HEADS + key_head) * DELTA_KEYS;
            float sum = 0.0f;
            for (int i = lane; i < DELTA_KEYS; i += 32) sum += x[i] * x[i];
            float scale = 1.0f / sqrtf(warp_sum(sum) + 1e-6f);
            if (which == 0) scale *= 1.0f / sqrtf((float)DELTA_KEYS);
            for (int i = lane; i < DELTA_KEYS; i += 32) (which == 0 ? q : k)[token][i] = x[i] * scale;
        }
        if (thread < ready) {
            const float* line = projected + (size_t)(row + thread) * stride + CHANNELS + VALUE_HEADS * DELTA_VALUES;
            const float time = line[VALUE_HEADS + head] + step_bias[head];
            betas[thread] = sigmoid(line[head]);
            keeps[thread] = expf(decay[head] * (time > 20.0f ? time : log1pf(expf(time))));
        }
        // Which column of its own a thread's sums are for.
        const int mine = COLUMNS == 4 ? lane % 16 / 4 : 0;
        const float* column = convolved + (size_t)row * CHANNELS + 2 * KEY_HEADS * DELTA_KEYS + head * DELTA_VALUES + v + mine;
        float next = column[0];
        __syncthreads();
        for (int token = 0; token < ready; token++) {
            const float value = next, keep = keeps[token];
            if (token + 1 < ready) next = column[(size_t)(token + 1) * CHANNELS];
            float own[OWN], sums[COLUMNS];
            take_own(k[token], share, own);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                sums[c] = 0.0f;
#pragma unroll
                for (int i = 0; i < OWN; i++) {
                    state[c][i] *= keep;
                    sums[c] += state[c][i] * own[i];
                }
            }
            const float change = betas[token] * (value - column_sum(sums, lane));
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const float own_change = COLUMNS == 4 ? __shfl_sync(EVERYONE, change, (lane & 16) + c * 4) : change;
#pragma unroll
                for (int i = 0; i < OWN; i++) state[c][i] += own[i] * own_change;
            }
            take_own(q[token], share, own);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                sums[c] = 0.0f;
#pragma unroll
                for (int i = 0; i < OWN; i++) sums[c] += state[c][i] * own[i];
            }
            const float sum = column_sum(sums, lane);
            if (lane % 4 == 0)
                read[(size_t)(row + token) * VALUE_HEADS * DELTA_VALUES + head * DELTA_VALUES + v + mine] = sum;
        }
        row += ready;
        length += ready;
        __syncthreads();
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
#pragma unroll
        for (int i = 0; i < OWN; i += STRIDE) {
            float* to = place + c * DELTA_KEYS + KEY(i, share);
            const float* from = state[c] + i;
            if (STRIDE == 4) *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
            else *to = *from;
        }
    }
    // The convolution's last inputs, a share of the channels each.
    const int block = head * gridDim.z + blockIdx.z;
    for (int channel = block * DELTA_THREADS + thread; channel < CHANNELS; channel += VALUE_HEADS * gridDim.z * DELTA_THREADS) {
        float kept[TAPS - 1];
#pragma unroll
        for (int i = 0; i < TAPS - 1; i++) {
            const int from = length - (TAPS - 1) + i;  // of this run; negative: further back
            if (from >= 0) kept[i] = projected[(size_t)(first + from) * stride + channel];
            else kept[i] = start.position + from >= 0 ? memory[(TAPS - 1 + from) * CHANNELS + channel] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < TAPS - 1; i++) memory[i * CHANNELS + channel] = kept[i];
    }
}

// Norm and gate of each head's output. projected: gates start at column CHANNELS. out: placed by row_place in out_blocks.
// grid: rows x VALUE_HEADS, one warp.
extern "C" __global__ void __launch_bounds__(32)
    norm_and_gate(const float* __restrict__ read, const float* __restrict__ projected, const Row* __restrict__ rows,
                  const float* __restrict__ weight, T* __restrict__ out, int stride, int out_blocks, float eps) {
    const int number = blockIdx.x, head = blockIdx.y, lane = threadIdx.x;
    if (rows[number].lane < 0) return;
    const float* x = read + ((size_t)number * VALUE_HEADS + head) * DELTA_VALUES;
    float sum = 0.0f;
    for (int i = lane; i < DELTA_VALUES; i += 32) sum += x[i] * x[i];
    const float scale = 1.0f / sqrtf(warp_sum(sum) / (float)DELTA_VALUES + eps);
    const float* gate = projected + (size_t)number * stride + CHANNELS + head * DELTA_VALUES;
    for (int i = lane; i < DELTA_VALUES; i += 32)
        out[row_place(number, head * DELTA_VALUES + i, out_blocks)] = from_f32(silu(gate[i]) * (x[i] * scale * weight[i]));
}
#endif
