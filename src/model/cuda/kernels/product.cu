// y = x Wᵀ for rows x, and what is done with y: stored, added to the residual, or gated. Each output is summed in an
// order that depends on the matrix alone: warp w of a block takes blocks w, w + warps, … of 64 inner indices, and the
// warps' sums are added in their order. So a row has the same bits in any company, in any number of rows.

// What happens to the products.
#define STORE 0
#define ADD 1
#define GATE 2

// The product's surroundings.
struct Product {
    const T* w;        // [outputs in tiles of 16, inner rounded up to 64], padded with zeros
    const T* x;        // [rows, x_stride], zeros beyond inner
    void* y;           // STORE, ADD: f32; GATE: T
    const Row* meta;   // rows, for their adapters
    const Pair* pairs; // adapters' pairs, or null
    const float* h;    // [rows, h_stride]
    const u8* part;    // of each output: which part of the pair
    int outputs, blocks, x_stride, y_stride, rows, sites, site, h_stride;
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
    ((T*)p.y)[(size_t)row * p.y_stride + tile * 8 + i] = from_f32(silu(gate) * value);
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

// TILES tiles of 16 outputs, GROUPS groups of eight rows, AHEAD blocks of weights asked for at once.
// The tensor cores take the weights as their left side. Which inner index a thread's numbers belong to does not matter
// as long as both sides agree, so each thread takes 16 bytes as they lie.
template <int TILES, int GROUPS, int AHEAD, int AFTER>
__device__ __forceinline__ void product_tiles(const Product& p) {
    extern __shared__ float sums[];
    const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
    const int g = lane / 4, t = lane % 4;
    const int inner = p.blocks * 64;
    const int first_tile = blockIdx.x * TILES, first_row = blockIdx.y * GROUPS * 8;
    const T* w = p.w + ((size_t)first_tile * 16 + g) * inner + t * 8;
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
            int at = block + ahead * warps;
            if (at < p.blocks) {
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    const T* from = w + (size_t)i * 16 * inner + at * 64;
                    a[ahead][i][0] = load_weights(from);
                    a[ahead][i][1] = load_weights(from + 8 * (size_t)inner);
                    a[ahead][i][2] = load_weights(from + 32);
                    a[ahead][i][3] = load_weights(from + 8 * (size_t)inner + 32);
                }
            }
        }
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ahead++) {
            int at = block + ahead * warps;
            if (at < p.blocks) {
#pragma unroll
                for (int j = 0; j < GROUPS; j++) {
                    int row = first_row + j * 8 + g;
                    uint4 low = make_uint4(0, 0, 0, 0), high = low;
                    if (row < p.rows) {
                        const T* from = p.x + (size_t)row * p.x_stride + at * 64 + t * 8;
                        low = *reinterpret_cast<const uint4*>(from);
                        high = *reinterpret_cast<const uint4*>(from + 32);
                    }
#pragma unroll
                    for (int i = 0; i < TILES; i++) {
                        const uint4* v = a[ahead][i];
                        multiply(c[i][j], v[0].x, v[1].x, v[0].y, v[1].y, low.x, low.y);
                        multiply(c[i][j], v[0].z, v[1].z, v[0].w, v[1].w, low.z, low.w);
                        multiply(c[i][j], v[2].x, v[3].x, v[2].y, v[3].y, high.x, high.y);
                        multiply(c[i][j], v[2].z, v[3].z, v[2].w, v[3].w, high.z, high.w);
                    }
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
                int local = index / (TILES * 8), i = index % (TILES * 8);
                int row = first_row + phase * 8 + local, tile = first_tile + i / 8;
                if (row >= p.rows || tile * 16 >= p.outputs) continue;
                const float* from = sums + local * LINE + i / 8 * 16 + i % 8;
                float gate = 0.0f, value = 0.0f;
                for (int k = 0; k < warps; k++) gate += from[k * AREA], value += from[k * AREA + 8];
                finish_gated(p, row, tile, i % 8, gate, value);
            }
        } else {
            for (int index = thread; index < PHASE * 8 * TILES * 16; index += threads) {
                int local = index / (TILES * 16), i = index % (TILES * 16);
                int row = first_row + phase * 8 + local, n = first_tile * 16 + i;
                if (row >= p.rows || n >= p.outputs) continue;
                float value = 0.0f;
                for (int k = 0; k < warps; k++) value += sums[k * AREA + local * LINE + i];
                finish<AFTER>(p, row, n, value);
            }
        }
    }
}

#define PRODUCT(NAME, TILES, GROUPS, AHEAD)                                                                    \
    extern "C" __global__ void __launch_bounds__(512) NAME##_store(Product p) { product_tiles<TILES, GROUPS, AHEAD, STORE>(p); } \
    extern "C" __global__ void __launch_bounds__(512) NAME##_add(Product p) { product_tiles<TILES, GROUPS, AHEAD, ADD>(p); }     \
    extern "C" __global__ void __launch_bounds__(512) NAME##_gate(Product p) { product_tiles<TILES, GROUPS, AHEAD, GATE>(p); }

PRODUCT(product_1x1, 1, 1, 4)
PRODUCT(product_1x2, 1, 2, 2)
PRODUCT(product_1x4, 1, 4, 2)
PRODUCT(product_2x4, 2, 4, 1)
PRODUCT(product_1x8, 1, 8, 1)
PRODUCT(product_2x8, 2, 8, 1)

#else

// In f32: a warp an output, eight rows at once, one tile of 16 outputs a block.
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
            if (row < p.rows) c[j] += weight * p.x[(size_t)row * p.x_stride + k];
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
