// What a row does alone: embedding, norm, rotary positions and the write of its key and value, the shrinking
// half of LoRA, and copies between lanes.

// x[row] = table[token of row]. grid: rows.
extern "C" __global__ void embed(const T* __restrict__ table, const Row* __restrict__ rows, float* __restrict__ x,
                                 int width, int blocks) {
    const int token = rows[blockIdx.x].token;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        x[(size_t)blockIdx.x * width + i] = to_f32(table[weight_place(token, i, blocks)]);
}

// out[i] = x[row] * weight / sqrt(mean(x[row]²) + eps), where row is chosen[i] (each row itself when chosen is null).
// grid: rows of out, 256 threads. The order of the sum depends on the width alone.
extern "C" __global__ void __launch_bounds__(256) rms_norm(const float* __restrict__ x, const float* __restrict__ weight,
                                                       T* __restrict__ out, const int* __restrict__ chosen, int width,
                                                       int blocks, float eps) {
    int row = chosen ? chosen[blockIdx.x * CHOSEN_STRIDE] : blockIdx.x;
    if (row < 0) return;
    const float* from = x + (size_t)row * width;
    // The row and its weights are asked for at once, and the first 4,096 numbers kept.
    constexpr int KEPT = 16;
    float numbers[KEPT], factors[KEPT], sum = 0.0f;
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        const int i = threadIdx.x + j * 256;
        numbers[j] = i < width ? from[i] : 0.0f;
        factors[j] = i < width ? weight[i] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < KEPT; j++) sum += numbers[j] * numbers[j];
    for (int i = threadIdx.x + KEPT * 256; i < width; i += 256) sum += from[i] * from[i];
    __shared__ float parts[8];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) total += parts[i];
    const float scale = 1.0f / sqrtf(total / (float)width + eps);
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        const int i = threadIdx.x + j * 256;
        if (i < width) out[row_place(blockIdx.x, i, blocks)] = from_f32(numbers[j] * scale * factors[j]);
    }
    for (int i = threadIdx.x + KEPT * 256; i < width; i += 256)
        out[row_place(blockIdx.x, i, blocks)] = from_f32(from[i] * scale * weight[i]);
}

// Normalises (where the network does) and turns queries and keys, and writes keys and values to the row's lane.
// projected: [rows, stride], queries (with a gate after each head's, where GATED), keys, values.
// queries: [rows, HEADS * HEAD_DIM]. keys, values: this layer's pool, [lane, KV_HEADS, context, HEAD_DIM].
// grid: rows x (HEADS + 2 * KV_HEADS), one warp.
extern "C" __global__ void __launch_bounds__(32)
    turn(const float* __restrict__ projected, const Row* __restrict__ rows, const float* __restrict__ frequencies,
         const float* __restrict__ query_norm, const float* __restrict__ key_norm, float* __restrict__ queries,
         T* __restrict__ keys, T* __restrict__ values, int stride, int context, float eps) {
    __shared__ float head[HEAD_DIM];
    Row row = rows[blockIdx.x];
    if (row.lane < 0) return;
    int number = blockIdx.y, query_width = GATED ? 2 * HEAD_DIM : HEAD_DIM;
    const float* from = projected + (size_t)blockIdx.x * stride;
    bool is_query = number < HEADS, is_value = number >= HEADS + KV_HEADS;
    int kv_head = is_value ? number - HEADS - KV_HEADS : number - HEADS;
    from += is_query ? number * query_width : HEADS * query_width + (number - HEADS) * HEAD_DIM;
    size_t place = (((size_t)row.lane * KV_HEADS + kv_head) * context + row.position) * HEAD_DIM;
    if (is_value) {
        for (int i = threadIdx.x; i < HEAD_DIM; i += 32) values[place + i] = from_f32(from[i]);
        return;
    }
    const float* weight = is_query ? query_norm : key_norm;
    float scale = 1.0f;
    if (weight) {
        float sum = 0.0f;
        for (int i = threadIdx.x; i < HEAD_DIM; i += 32) sum += from[i] * from[i];
        scale = 1.0f / sqrtf(warp_sum(sum) / (float)HEAD_DIM + eps);
    }
    for (int i = threadIdx.x; i < HEAD_DIM; i += 32) head[i] = weight ? from[i] * scale * weight[i] : from[i];
    __syncwarp();
    for (int i = threadIdx.x; i < HEAD_DIM; i += 32) {
        float result = head[i];
        if (i < 2 * TURNED) {
            int pair = i < TURNED ? i : i - TURNED;
            float sine, cosine;
            sincosf((float)row.position * frequencies[pair], &sine, &cosine);
            result = i < TURNED ? head[i] * cosine - head[i + TURNED] * sine : head[i] * cosine + head[i - TURNED] * sine;
        }
        if (is_query)
            queries[((size_t)blockIdx.x * HEADS + number) * HEAD_DIM + i] = result;
        else
            keys[place + i] = from_f32(result);
    }
}

// The pair of one matrix (or of several that share their input) in one adapter.
struct Pair {
    const float* a;  // [parts * rank, inner]
    const float* b;  // [outputs, rank], scaled
    int rank, parts;
};

// h[row] = A x[row], for rows with an adapter. grid: rows x 8, 128 threads: a warp for each fourth of every eighth rank.
extern "C" __global__ void __launch_bounds__(128)
    shrink(const T* __restrict__ x, const Row* __restrict__ rows, const Pair* __restrict__ pairs, int sites, int site,
           float* __restrict__ h, int inner, int blocks, int h_stride) {
    int adapter = rows[blockIdx.x].adapter;
    if (adapter < 0) return;
    Pair pair = pairs[(size_t)adapter * sites + site];
    for (int r = blockIdx.y * 4 + threadIdx.x / 32; r < pair.rank * pair.parts; r += 32) {
        const float* a = pair.a + (size_t)r * inner;
        float sum = 0.0f;
        for (int i = threadIdx.x % 32; i < inner; i += 32) sum += a[i] * to_f32(x[row_place(blockIdx.x, i, blocks)]);
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) h[(size_t)blockIdx.x * h_stride + r] = sum;
    }
}

// Copies the first `positions` positions of every head from one lane to another in every layer.
// pool: [layers, 2, lanes, KV_HEADS, context, HEAD_DIM]. grid: layers * 2 x KV_HEADS x some.
extern "C" __global__ void copy_positions(T* pool, int lanes, int context, int from, int to, int positions) {
    size_t head = (size_t)context * HEAD_DIM;
    T* base = pool + (size_t)blockIdx.x * lanes * KV_HEADS * head + (size_t)blockIdx.y * head;
    const T* source = base + (size_t)from * KV_HEADS * head;
    T* target = base + (size_t)to * KV_HEADS * head;
    size_t count = (size_t)positions * HEAD_DIM;
    for (size_t i = (size_t)blockIdx.z * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.z * blockDim.x)
        target[i] = source[i];
}

// Copies a lane's memories in every layer. memories: [layers, lanes, size]. grid: layers x some.
extern "C" __global__ void copy_memories(float* memories, int lanes, u64 size, int from, int to) {
    float* base = memories + (size_t)blockIdx.x * lanes * size;
    for (size_t i = (size_t)blockIdx.y * blockDim.x + threadIdx.x; i < size; i += (size_t)gridDim.y * blockDim.x)
        base[(size_t)to * size + i] = base[(size_t)from * size + i];
}

// Weights for measurements: uniform in ±bound, a function of seed and index alone.
extern "C" __global__ void fill(T* out, u64 count, u64 seed, float bound) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u64 z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        z ^= z >> 31;
        float unit = (float)(u32)(z >> 40) * (1.0f / 16777216.0f);
        out[i] = from_f32((2.0f * unit - 1.0f) * bound);
    }
}
