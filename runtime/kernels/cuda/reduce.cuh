// The association of reductions (runtime/kernels/reduce.h: element k to lane k mod 16, then lanes l and l + 8, l + 4,
// l + 2, l + 1) on the device: lanes are the threads of half a warp, or 16 values in shared or local memory
// (pp_fold_*, as on the CPU). In: each thread's lane value, made in ascending order of k from PP_*_START. Out: the
// same bits as the CPU's, in every thread of the half warp. All threads of the half warp call it.
#ifndef PP_CUDA_REDUCE_CUH
#define PP_CUDA_REDUCE_CUH

#include "runtime/kernels/cuda/math.cuh"
#include "runtime/kernels/reduce.h"

PP_DEVICE int pp_lane_of_warp() { return (int)(threadIdx.x % 32); }
PP_DEVICE unsigned pp_half_mask() { return 0xffffu << (threadIdx.x & 16); }

struct pp_sum {
  PP_DEVICE float of(float a, float b) { return a + b; }
  PP_DEVICE double of(double a, double b) { return a + b; }
  PP_DEVICE int32_t of(int32_t a, int32_t b) { return pp_add_i32(a, b); }
};
struct pp_maximum {
  PP_DEVICE float of(float a, float b) { return pp_max_f32(a, b); }
  PP_DEVICE double of(double a, double b) { return pp_max_f64(a, b); }
  PP_DEVICE int32_t of(int32_t a, int32_t b) { return pp_max_i32(a, b); }
};

// The lower lane is the first operand, for maxima of zeros and NaNs.
template <typename Op, typename T> PP_DEVICE T pp_half_fold(T x) {
  for (int distance = 8; distance > 0; distance /= 2) {
    T other = __shfl_xor_sync(pp_half_mask(), x, distance);
    x = threadIdx.x & distance ? Op::of(other, x) : Op::of(x, other);
  }
  return x;
}
template <typename T> PP_DEVICE T pp_half_sum(T x) { return pp_half_fold<pp_sum>(x); }
template <typename T> PP_DEVICE T pp_half_max(T x) { return pp_half_fold<pp_maximum>(x); }

// --- whole warps, for what has no prescribed order ----------------------------------------------------------------

PP_DEVICE int32_t pp_warp_min(int32_t x) {
  for (int distance = 16; distance > 0; distance /= 2) x = pp_min_i32(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

#endif
