// y = x Wᵀ for rows x, and what is done with y: stored, added to the residual, or gated. Each output is summed in an
// order that depends on the matrix alone: the blocks of 64 inner indices are dealt to SHARES sums (block b to sum
// b % SHARES), and these sums are added in their order. For few rows a warp has a sum each, for many one warp makes them
// one after the other. So a row has the same bits in any company, in any number of rows.

// What happens to the products.
#define STORE 0
#define ADD 1
#define GATE 2

// The product's surroundings.
struct Product {
    const T* w;        // [outputs, inner], placed by weight_place
    const T* x;        // [rows, inner], placed by row_place
    void* y;           // STORE, ADD: f32 [rows, y_stride]; GATE: T, placed by row_place in y_stride blocks
    const Row* meta;   // rows, for their adapters
    const Pair* pairs; // adapters' pairs, or null
    const float* h;    // [rows, h_stride]
    const u8* part;    // of each output: which part of the pair
    int outputs, blocks, shares, y_stride, rows, sites, site, h_stride;
};

// LoRA's addition to output n of a row.
__device__ __forceinline__ float addition(const Product& p, int row, int n) {
    if (!p.pairs) return 0.0f;
    int adapter = p.meta[row].adapter;
    if (adapter < 0) return 0.0f;
    Pair pair = p.pairs[(size_t)adapter * p.sites + p.site];
    if (pair.rank == 0) return 0.0f;
    const float* b = pair.b + (size_t)n * pair.rank;
    const float* h = p.h + (size_t)row * p.h_stride + p.part[n] * pair.rank;
    float sum = 0.0f;
    for (int r = 0; r < pair.rank; r++) sum += b[r] * h[r];
    return sum;
}

template <int AFTER>
__device__ __forceinline__ void finish(const Product& p, int row, int n, float value) {
    size_t at = (size_t)row * p.y_stride + n;
    float* y = (float*)p.y;
    value += addition(p, row, n);
    if (AFTER == ADD) y[at] += value;
    else y[at] = value;
}

// Outputs of a tile: eight gates, then the eight values that they gate.
__device__ __forceinline__ void finish_gated(const Product& p, int row, int tile, int i, float gate, float value) {
    gate += addition(p, row, tile * 16 + i);
    value += addition(p, row, tile * 16 + 8 + i);
    ((T*)p.y)[row_place(row, tile * 8 + i, p.y_stride)] = from_f32(silu(gate) * value);
}

#ifdef BF16
__device__ __forceinline__ uint4 load_weights(const T* p) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

__device__ __forceinline__ void multiply(float* c, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// One block of 64 inner indices: weights a (16 outputs), rows low and high (eight of them).
__device__ __forceinline__ void multiply_block(float* c, const uint4* a, uint4 low, uint4 high) {
    multiply(c, a[0].x, a[1].x, a[0].y, a[1].y, low.x, low.y);
    multiply(c, a[0].z, a[1].z, a[0].w, a[1].w, low.z, low.w);
    multiply(c, a[2].x, a[3].x, a[2].y, a[3].y, high.x, high.y);
    multiply(c, a[2].z, a[3].z, a[2].w, a[3].w, high.z, high.w);
}

// For few rows: a warp for each share, TILES tiles of 16 outputs, GROUPS groups of eight rows, AHEAD blocks of weights
// asked for at once. block: 32 x shares; grid: tiles / TILES x rows / (8 GROUPS).
template <int TILES, int GROUPS, int AHEAD, int AFTER>
__device__ __forceinline__ void product_few(const Product& p) {
    extern __shared__ float sums[];
    const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
    const int g = lane / 4, t = lane % 4;
    const int first_tile = blockIdx.x * TILES, first_row = blockIdx.y * GROUPS * 8;
    const T* w = p.w + (size_t)first_tile * p.blocks * 1024 + lane * 8;
    const T* x = p.x + (size_t)first_row * p.blocks * 64 + lane * 8;
    float c[TILES][GROUPS][4];
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
#pragma unroll
            for (int k = 0; k < 4; k++) c[i][j][k] = 0.0f;

    for (int block = warp; block < p.blocks; block += warps * AHEAD) {
        uint4 a[AHEAD][TILES][4];
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            const int at = block + ahead * warps;
            if (at < p.blocks) {
#pragma unroll
                for (int i = 0; i < TILES; i++)
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        a[ahead][i][k] = load_weights(w + ((size_t)i * p.blocks + at) * 1024 + k * 256);
            }
        }
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            const int at = block + ahead * warps;
            if (at < p.blocks) {
#pragma unroll
                for (int j = 0; j < GROUPS; j++) {
                    const T* from = x + ((size_t)j * p.blocks + at) * 512;
                    const uint4 low = *reinterpret_cast<const uint4*>(from);
                    const uint4 high = *reinterpret_cast<const uint4*>(from + 256);
#pragma unroll
                    for (int i = 0; i < TILES; i++) multiply_block(c[i][j], a[ahead][i], low, high);
                }
            }
        }
    }

    // Warps hand in their sums, PHASE groups of rows at a time. Lines are padded so that writes meet no bank twice.
    constexpr int PHASE = GROUPS < 2 ? GROUPS : 2, LINE = TILES * 16 + 4, AREA = PHASE * 8 * LINE;
    const int thread = warp * 32 + lane, threads = warps * 32;
#pragma unroll
    for (int phase = 0; phase < GROUPS; phase += PHASE) {
        if (phase > 0) __syncthreads();
#pragma unroll
        for (int j = 0; j < PHASE; j++)
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                float* to = sums + warp * AREA + (j * 8 + 2 * t) * LINE + i * 16 + g;
                const float* from = c[i][phase + j];
                to[0] = from[0], to[LINE] = from[1], to[8] = from[2], to[LINE + 8] = from[3];
            }
        __syncthreads();
        if (AFTER == GATE) {
            for (int index = thread; index < PHASE * 8 * TILES * 8; index += threads) {
                const int local = index / (TILES * 8), i = index % (TILES * 8);
                const int row = first_row + phase * 8 + local, tile = first_tile + i / 8;
                if (row >= p.rows || tile * 16 >= p.outputs) continue;
                const float* from = sums + local * LINE + i / 8 * 16 + i % 8;
                float gate = 0.0f, value = 0.0f;
                for (int k = 0; k < warps; k++) gate += from[k * AREA], value += from[k * AREA + 8];
                finish_gated(p, row, tile, i % 8, gate, value);
            }
        } else {
            for (int index = thread; index < PHASE * 8 * TILES * 16; index += threads) {
                const int local = index / (TILES * 16), i = index % (TILES * 16);
                const int row = first_row + phase * 8 + local, n = first_tile * 16 + i;
                if (row >= p.rows || n >= p.outputs) continue;
                float value = 0.0f;
                for (int k = 0; k < warps; k++) value += sums[k * AREA + local * LINE + i];
                finish<AFTER>(p, row, n, value);
            }
        }
    }
}

__device__ __forceinline__ void copy_ahead(void* to, const void* from) {
    u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
}

// For many rows: four warps, two by two, each with TILES tiles and GROUPS groups; weights and rows of STAGES blocks are on
// their way through shared memory. block: 128; grid: rows / (16 GROUPS) x tiles / (2 TILES).
template <int TILES, int GROUPS, int STAGES, int AFTER>
__device__ __forceinline__ void product_many(const Product& p) {
    extern __shared__ uint4 stages[];
    constexpr int W = 2 * TILES * 128, STAGE = W + 2 * GROUPS * 64;  // 16-byte pieces
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int g = lane / 4, t = lane % 4;
    const int first_tile = blockIdx.y * 2 * TILES, first_group = blockIdx.x * 2 * GROUPS;
    const uint4* w = reinterpret_cast<const uint4*>(p.w) + (size_t)first_tile * p.blocks * 128;
    const uint4* x = reinterpret_cast<const uint4*>(p.x) + (size_t)first_group * p.blocks * 64;
    float total[TILES][GROUPS][4], c[TILES][GROUPS][4];
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
#pragma unroll
            for (int k = 0; k < 4; k++) total[i][j][k] = 0.0f, c[i][j][k] = 0.0f;

    auto fetch = [&](int stage, int block) {
        uint4* to = stages + stage * STAGE;
#pragma unroll
        for (int piece = thread; piece < W; piece += 128)
            copy_ahead(to + piece, w + ((size_t)(piece / 128) * p.blocks + block) * 128 + piece % 128);
#pragma unroll
        for (int piece = thread; piece < 2 * GROUPS * 64; piece += 128)
            copy_ahead(to + W + piece, x + ((size_t)(piece / 64) * p.blocks + block) * 64 + piece % 64);
    };
    // The blocks in the order of the shares.
    struct Walk {
        int block, share;
        __device__ __forceinline__ void step(const Product& p) {
            block += p.shares;
            if (block >= p.blocks) block = ++share;
        }
    };
    Walk ahead = {0, 0}, now = ahead;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (ahead.share < p.shares) fetch(stage, ahead.block), ahead.step(p);
        asm volatile("cp.async.commit_group;");
    }
    for (int number = 0; now.share < p.shares; number++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        if (ahead.share < p.shares) fetch((number + STAGES - 1) % STAGES, ahead.block), ahead.step(p);
        asm volatile("cp.async.commit_group;");
        const uint4* from = stages + number % STAGES * STAGE;
        uint4 low[GROUPS], high[GROUPS];
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            const uint4* rows = from + W + (warp % 2 * GROUPS + j) * 64 + lane;
            low[j] = rows[0], high[j] = rows[32];
        }
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const uint4* weights = from + (warp / 2 * TILES + i) * 128 + lane;
            const uint4 a[4] = {weights[0], weights[32], weights[64], weights[96]};
#pragma unroll
            for (int j = 0; j < GROUPS; j++) multiply_block(c[i][j], a, low[j], high[j]);
        }
        const int share = now.share;
        now.step(p);
        if (now.share != share) {
#pragma unroll
            for (int i = 0; i < TILES; i++)
#pragma unroll
                for (int j = 0; j < GROUPS; j++)
#pragma unroll
                    for (int k = 0; k < 4; k++) total[i][j][k] += c[i][j][k], c[i][j][k] = 0.0f;
        }
    }
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < GROUPS; j++) {
            const int tile = first_tile + warp / 2 * TILES + i;
            const int row = (first_group + warp % 2 * GROUPS + j) * 8 + 2 * t, n = tile * 16 + g;
            const float* sum = total[i][j];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                if (row + k >= p.rows) continue;
                if (AFTER == GATE) {
                    if (tile * 16 < p.outputs) finish_gated(p, row + k, tile, g, sum[k], sum[2 + k]);
                } else {
                    if (n < p.outputs) finish<AFTER>(p, row + k, n, sum[k]);
                    if (n + 8 < p.outputs) finish<AFTER>(p, row + k, n + 8, sum[2 + k]);
                }
            }
        }
}

#define FEW(NAME, TILES, GROUPS, AHEAD)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 2) NAME##_store(Product p) { product_few<TILES, GROUPS, AHEAD, STORE>(p); } \
    extern "C" __global__ void __launch_bounds__(256, 2) NAME##_add(Product p) { product_few<TILES, GROUPS, AHEAD, ADD>(p); }     \
    extern "C" __global__ void __launch_bounds__(256, 2) NAME##_gate(Product p) { product_few<TILES, GROUPS, AHEAD, GATE>(p); }

#define MANY(NAME, TILES, GROUPS, STAGES, RESIDENT)                                                                                     \
    extern "C" __global__ void __launch_bounds__(128, RESIDENT) NAME##_store(Product p) { product_many<TILES, GROUPS, STAGES, STORE>(p); } \
    extern "C" __global__ void __launch_bounds__(128, RESIDENT) NAME##_add(Product p) { product_many<TILES, GROUPS, STAGES, ADD>(p); }     \
    extern "C" __global__ void __launch_bounds__(128, RESIDENT) NAME##_gate(Product p) { product_many<TILES, GROUPS, STAGES, GATE>(p); }

FEW(product_few_8, 1, 1, 4)
FEW(product_few_16, 1, 2, 3)
FEW(product_few_32, 1, 4, 2)
FEW(product_few_32_wide, 2, 4, 1)
MANY(product_many, 4, 4, 4, 2)

#else

// In f32: a warp an output, eight rows at once, one tile of 16 outputs a block. grid: tiles x rows / 8.
template <int AFTER>
__device__ __forceinline__ void product_plain(const Product& p) {
    __shared__ float sums[8][20];
    const int lane = threadIdx.x, warp = threadIdx.y, inner = p.blocks * 64;
    const int first_row = blockIdx.y * 8;
    const T* w = p.w + ((size_t)blockIdx.x * 16 + warp) * inner;
    float c[8] = {};
    for (int k = lane; k < inner; k += 32) {
        float weight = w[k];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            int row = first_row + j;
            if (row < p.rows) c[j] += weight * p.x[(size_t)row * inner + k];
        }
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float sum = warp_sum(c[j]);
        if (lane == 0) sums[j][warp] = sum;
    }
    __syncthreads();
    const int thread = warp * 32 + lane;
    if (AFTER == GATE) {
        int local = thread / 8, i = thread % 8, row = first_row + local;
        if (local < 8 && row < p.rows) finish_gated(p, row, blockIdx.x, i, sums[local][i], sums[local][i + 8]);
    } else {
        int local = thread / 16, i = thread % 16, row = first_row + local, n = blockIdx.x * 16 + i;
        if (local < 8 && row < p.rows && n < p.outputs) finish<AFTER>(p, row, n, sums[local][i]);
    }
}

extern "C" __global__ void __launch_bounds__(512) product_store(Product p) { product_plain<STORE>(p); }
extern "C" __global__ void __launch_bounds__(512) product_add(Product p) { product_plain<ADD>(p); }
extern "C" __global__ void __launch_bounds__(512) product_gate(Product p) { product_plain<GATE>(p); }
#endif
