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
// Eight numbers from an address that is a multiple of 16 bytes.
__device__ __forceinline__ void load8(const T* p, float* out) {
    uint4 v = *reinterpret_cast<const uint4*>(p);
    u32 pairs[4] = {v.x, v.y, v.z, v.w};
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
__device__ __forceinline__ void load8(const T* p, float* out) {
    float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
    out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}
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
