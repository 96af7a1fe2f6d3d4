// Replaces ROCm's header if only clang is installed: the parts of HIP that generated text uses, by clang's builtins.
//
// With this header, clang compiles a text to the machine code of an AMD GPU without ROCm. hipcc uses ROCm's own header.
// Functions of the mathematics library are only declared: their code is in ROCm's device libraries, which a linker adds.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

struct uint3 { unsigned x, y, z; };
#define threadIdx (uint3{__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()})
#define blockIdx (uint3{__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()})

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(2) char2 { signed char x, y; };
struct alignas(4) char4 { signed char x, y, z, w; };
struct alignas(4) ushort2 { unsigned short x, y; };
struct alignas(8) ushort4 { unsigned short x, y, z, w; };

__device__ inline void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Bits of the lane `delta` positions later in a team of `width` lanes, or the lane's own bits past the team's end.
__device__ inline int gg_shuffle_down(int bits, unsigned delta, int width) {
  const unsigned lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  const unsigned other = (lane & (width - 1)) + delta < static_cast<unsigned>(width) ? lane + delta : lane;
  return __builtin_amdgcn_ds_bpermute(static_cast<int>(other * 4), bits);
}
__device__ inline int __shfl_down(int value, unsigned delta, int width) { return gg_shuffle_down(value, delta, width); }
__device__ inline float __shfl_down(float value, unsigned delta, int width) {
  return __builtin_bit_cast(float, gg_shuffle_down(__builtin_bit_cast(int, value), delta, width));
}

__device__ inline float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
__device__ inline int __float_as_int(float value) { return __builtin_bit_cast(int, value); }
__device__ inline int max(int a, int b) { return a > b ? a : b; }
__device__ inline int min(int a, int b) { return a < b ? a : b; }
__device__ inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
__device__ inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
__device__ inline float fabsf(float a) { return __builtin_fabsf(a); }
__device__ inline float sqrtf(float a) { return __builtin_sqrtf(a); }
extern "C" __device__ float __ocml_erf_f32(float);
extern "C" __device__ float __ocml_exp_f32(float);
extern "C" __device__ float __ocml_tanh_f32(float);
__device__ inline float erff(float a) { return __ocml_erf_f32(a); }
__device__ inline float expf(float a) { return __ocml_exp_f32(a); }
__device__ inline float tanhf(float a) { return __ocml_tanh_f32(a); }

#define INFINITY (__builtin_inff())
