// Types and small functions that all kernels share. Compiled at run time, so nothing is included.
// T is the type of weights, activations between products, keys and values: bf16 (as its bits) or f32.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// One row of a step. A row without a lane (-1) is padding: nothing reads what it computes.
struct Row {
    int token, position, lane, adapter;
};

#ifdef BF16
typedef u16 T;
__device__ __forceinline__ float to_f32(T x) { return __uint_as_float((u32)x << 16); }
__device__ __forceinline__ T from_f32(float x) {
    if (x != x) return 0x7fc0;
    u32 bits = __float_as_uint(x);
    return (T)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
// Eight numbers, from an address that is a multiple of 16 bytes.
struct Eight {
    uint4 bits;
};
__device__ __forceinline__ Eight load8(const T* from) { return {*reinterpret_cast<const uint4*>(from)}; }
__device__ __forceinline__ void unpack(const Eight& eight, float* out) {
    const u32 pairs[4] = {eight.bits.x, eight.bits.y, eight.bits.z, eight.bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = __uint_as_float(pairs[i] << 16);
        out[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
}
#else
typedef float T;
__device__ __forceinline__ float to_f32(T x) { return x; }
__device__ __forceinline__ T from_f32(float x) { return x; }
struct Eight {
    float4 low, high;
};
__device__ __forceinline__ Eight load8(const T* from) {
    return {reinterpret_cast<const float4*>(from)[0], reinterpret_cast<const float4*>(from)[1]};
}
__device__ __forceinline__ void unpack(const Eight& eight, float* out) {
    out[0] = eight.low.x, out[1] = eight.low.y, out[2] = eight.low.z, out[3] = eight.low.w;
    out[4] = eight.high.x, out[5] = eight.high.y, out[6] = eight.high.z, out[7] = eight.high.w;
}
#endif

// Where number k of a row lies in what goes into a product, and number k of output n in a weight; `blocks` is the inner
// length in blocks of 64. In bf16 both lie in the order in which the tensor cores' threads take them: a group of eight
// rows and a block of 64 are 2 x 32 x 8 numbers, a tile of 16 outputs and a block are 4 x 32 x 8, and thread 4 g + t
// takes eight numbers of row g at 8 t, then eight at 32 + 8 t. In f32 they lie row after row.
#ifdef BF16
__device__ __forceinline__ size_t row_place(int row, int k, int blocks) {
    int chunk = k % 64 / 8;
    return ((((size_t)(row / 8) * blocks + k / 64) * 2 + chunk / 4) * 32 + row % 8 * 4 + chunk % 4) * 8 + k % 8;
}
__device__ __forceinline__ size_t weight_place(int n, int k, int blocks) {
    int chunk = k % 64 / 8;
    return ((((size_t)(n / 16) * blocks + k / 64) * 4 + chunk / 4 * 2 + n % 16 / 8) * 32 + n % 8 * 4 + chunk % 4) * 8 + k % 8;
}
#else
__device__ __forceinline__ size_t row_place(int row, int k, int blocks) { return (size_t)row * blocks * 64 + k; }
__device__ __forceinline__ size_t weight_place(int n, int k, int blocks) { return (size_t)n * blocks * 64 + k; }
#endif

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

#define EVERYONE 0xffffffffu

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(EVERYONE, x, step);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) x = fmaxf(x, __shfl_xor_sync(EVERYONE, x, step));
    return x;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }
