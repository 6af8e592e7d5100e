// Attention of each row over its own lane, positions 0 to its own: no padding, no mask. A row's positions are cut into
// chunks; chunk c belongs to split c % SPLITS, a block walks the chunks of its split with a running softmax, and the last
// block to finish adds the splits up in their order. All of this depends on the row's position alone: the grid may have
// fewer than SPLITS splits where no row needs more.

#define SPLITS 16
#define CHUNK 128
#define THREADS 256
#define WARPS (THREADS / 32)
#define GROUP (HEADS / KV_HEADS)
// Threads that share one key, the eights of coordinates each of them takes, and keys that a thread meets in a chunk.
#define LOW_BIT(n) ((n) & -(n))
#define SHARERS (LOW_BIT(HEAD_DIM / 8) < 8 ? LOW_BIT(HEAD_DIM / 8) : 8)
#define EIGHTS (HEAD_DIM / 8 / SHARERS)
#define KEYS (CHUNK * SHARERS / THREADS < 1 ? 1 : CHUNK * SHARERS / THREADS)
// Lanes that share one value row (the last of them idle where heads are no power of two), and rows that a lane meets.
#define WIDE (HEAD_DIM <= 8 ? 1 : HEAD_DIM <= 16 ? 2 : HEAD_DIM <= 32 ? 4 : HEAD_DIM <= 64 ? 8 : HEAD_DIM <= 128 ? 16 : 32)
#define VALUES (CHUNK * WIDE / THREADS < 1 ? 1 : CHUNK * WIDE / THREADS)

// queries: [rows, HEADS * HEAD_DIM]; keys, values: this layer's pool, [lane, KV_HEADS, context, HEAD_DIM]; out: placed by
// row_place in out_blocks; projected: where GATED, holds each head's gate after its queries.
// partial: [rows, KV_HEADS, SPLITS, GROUP, HEAD_DIM + 2]; arrived: [rows, KV_HEADS], zero before and after.
// grid: rows x KV_HEADS x splits.
extern "C" __global__ void __launch_bounds__(THREADS)
    attend(const float* __restrict__ queries, const T* __restrict__ keys, const T* __restrict__ values, T* __restrict__ out,
           const float* __restrict__ projected, float* partial, int* arrived, const Row* __restrict__ rows, int context,
           int out_blocks, int projected_stride) {
    __shared__ float query[GROUP * HEAD_DIM];
    __shared__ float scores[GROUP][CHUNK];
    __shared__ float greatest[GROUP], total[GROUP], rescale[GROUP];
    __shared__ float gathered[WARPS * GROUP * HEAD_DIM];
    __shared__ bool last;
    const int row_number = blockIdx.x, head = blockIdx.y, split = blockIdx.z, thread = threadIdx.x, lane = thread % 32;
    const Row row = rows[row_number];
    const int positions = row.position + 1, chunks = (positions + CHUNK - 1) / CHUNK;
    if (row.lane < 0 || split >= chunks) return;
    const size_t start = ((size_t)row.lane * KV_HEADS + head) * context * HEAD_DIM;
    keys += start;
    values += start;
    for (int i = thread; i < GROUP * HEAD_DIM; i += THREADS)
        query[i] = queries[((size_t)row_number * HEADS + head * GROUP) * HEAD_DIM + i] * rsqrtf((float)HEAD_DIM);
    if (thread < GROUP) greatest[thread] = -INFINITY, total[thread] = 0.0f;
    float sums[GROUP][8];
#pragma unroll
    for (int i = 0; i < GROUP; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) sums[i][j] = 0.0f;
    const int column = lane % WIDE * 8, value_row = thread / WIDE, value_step = THREADS / WIDE;
    const int key_row = thread / SHARERS, key_step = THREADS / SHARERS, sharer = thread % SHARERS;
    __syncthreads();

    for (int chunk = split; chunk < chunks; chunk += SPLITS) {
        const int from = chunk * CHUNK, count = min(CHUNK, positions - from);
        // Values are asked for together with keys, so that their way is part of the same wait.
        Eight kept[VALUES];
#pragma unroll
        for (int i = 0; i < VALUES; i++) {
            const int at = value_row + i * value_step;
            if (at < count && column < HEAD_DIM) kept[i] = load8(values + (size_t)(from + at) * HEAD_DIM + column);
        }
#pragma unroll
        for (int k = 0; k < KEYS; k++) {
            const int at = key_row + k * key_step;
            float dots[GROUP];
#pragma unroll
            for (int i = 0; i < GROUP; i++) dots[i] = 0.0f;
            if (at < count) {
#pragma unroll
                for (int eight = 0; eight < EIGHTS; eight++) {
                    const int d = (sharer + eight * SHARERS) * 8;
                    float key[8];
                    unpack(load8(keys + (size_t)(from + at) * HEAD_DIM + d), key);
#pragma unroll
                    for (int i = 0; i < GROUP; i++)
#pragma unroll
                        for (int j = 0; j < 8; j++) dots[i] += query[i * HEAD_DIM + d + j] * key[j];
                }
            }
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
#pragma unroll
                for (int step = SHARERS / 2; step > 0; step >>= 1) dots[i] += __shfl_xor_sync(EVERYONE, dots[i], step);
                if (sharer == 0 && at < CHUNK) scores[i][at] = at < count ? dots[i] : -INFINITY;
            }
        }
        __syncthreads();
        for (int i = thread / 32; i < GROUP; i += WARPS) {
            float top = -INFINITY;
#pragma unroll
            for (int j = 0; j < CHUNK; j += 32) top = fmaxf(top, scores[i][j + lane]);
            const float before = greatest[i], now = fmaxf(before, warp_max(top));
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < CHUNK; j += 32) {
                const float weight = expf(scores[i][j + lane] - now);
                scores[i][j + lane] = weight;
                sum += weight;
            }
            sum = warp_sum(sum);
            if (lane == 0) {
                rescale[i] = expf(before - now);
                total[i] = total[i] * rescale[i] + sum;
                greatest[i] = now;
            }
            __syncwarp();
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < GROUP; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) sums[i][j] *= rescale[i];
#pragma unroll
        for (int k = 0; k < VALUES; k++) {
            const int at = value_row + k * value_step;
            if (at < count && column < HEAD_DIM) {
                float value[8];
                unpack(kept[k], value);
#pragma unroll
                for (int i = 0; i < GROUP; i++) {
                    const float weight = scores[i][at];
#pragma unroll
                    for (int j = 0; j < 8; j++) sums[i][j] += weight * value[j];
                }
            }
        }
        __syncthreads();
    }

    // The rows of a warp first, then the warps in their order.
#pragma unroll
    for (int i = 0; i < GROUP; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
#pragma unroll
            for (int step = 16; step >= WIDE; step >>= 1) sums[i][j] += __shfl_xor_sync(EVERYONE, sums[i][j], step);
            if (lane < WIDE && column < HEAD_DIM)
                gathered[(thread / 32 * GROUP + i) * HEAD_DIM + column + j] = sums[i][j];
        }
    __syncthreads();
    const int active = min(chunks, SPLITS);
    const size_t place = (size_t)row_number * KV_HEADS + head;
    const int part = GROUP * (HEAD_DIM + 2);
    for (int index = thread; index < GROUP * HEAD_DIM; index += THREADS) {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < WARPS; k++) sum += gathered[k * GROUP * HEAD_DIM + index];
        if (active > 1) {
            partial[(place * SPLITS + split) * part + index] = sum;
        } else {
            query[index] = sum / total[index / HEAD_DIM];
        }
    }
    if (active > 1) {
        if (thread < GROUP) {
            float* to = partial + (place * SPLITS + split) * part + GROUP * HEAD_DIM;
            to[2 * thread] = greatest[thread];
            to[2 * thread + 1] = total[thread];
        }
        __threadfence();
        __syncthreads();
        if (thread == 0) last = atomicAdd(arrived + place, 1) == active - 1;
        __syncthreads();
        if (!last) return;
        if (thread == 0) arrived[place] = 0;
        __threadfence();
        for (int index = thread; index < GROUP * HEAD_DIM; index += THREADS) {
            const int i = index / HEAD_DIM;
            const volatile float* from = partial + place * SPLITS * part;
            float top = -INFINITY;
            for (int k = 0; k < active; k++) top = fmaxf(top, from[k * part + GROUP * HEAD_DIM + 2 * i]);
            float sum = 0.0f, weight = 0.0f;
            for (int k = 0; k < active; k++) {
                const float factor = expf(from[k * part + GROUP * HEAD_DIM + 2 * i] - top);
                sum += from[k * part + index] * factor;
                weight += from[k * part + GROUP * HEAD_DIM + 2 * i + 1] * factor;
            }
            query[index] = sum / weight;
        }
    }
    __syncthreads();
    for (int index = thread; index < GROUP * HEAD_DIM; index += THREADS) {
        float value = query[index];
        if (GATED) {
            const int number = head * GROUP + index / HEAD_DIM;
            const float* gate = projected + (size_t)row_number * projected_stride + (2 * number + 1) * HEAD_DIM;
            value *= sigmoid(gate[index % HEAD_DIM]);
        }
        out[row_place(row_number, head * GROUP * HEAD_DIM + index, out_blocks)] = from_f32(value);
    }
}

#undef THREADS
#undef WARPS
