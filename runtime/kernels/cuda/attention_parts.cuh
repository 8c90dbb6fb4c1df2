// What both forms of attention share: shared memory, the softmax's exponential, who sees whom.
#ifndef PP_CUDA_ATTENTION_PARTS_CUH
#define PP_CUDA_ATTENTION_PARTS_CUH

#include "runtime/cuda/geometry.h"
#include "runtime/kernels/cuda/reduce.cuh"

// Shared memory of the block, aligned for packs; once in a kernel.
template <int64_t BYTES> PP_DEVICE unsigned char *pp_shared_memory() {
  if constexpr (BYTES > PP_CUDA_STATIC_SHARED) {
    extern __shared__ __align__(16) unsigned char pp_shared[];
    return pp_shared;
  } else {
    __shared__ __align__(16) unsigned char bytes[BYTES];
    return bytes;
  }
}

// Scores in units of `unit`, so that exp of a score is one instruction for f32.
template <typename T> struct pp_softmax;
template <> struct pp_softmax<float> {
  PP_DEVICE float unit() { return 0.693147180559945309417f; }
  PP_DEVICE float per_unit() { return 1.44269504088896340736f; }
  PP_DEVICE float exp(float x) { return exp2f(x); }
};
template <> struct pp_softmax<double> {
  PP_DEVICE double unit() { return 1.0; }
  PP_DEVICE double per_unit() { return 1.0; }
  PP_DEVICE double exp(double x) { return pp_exp_f64(x); }
};

// Keys that query row i sees.
template <int64_t T_Q, int64_t T_KV, bool CAUSAL> PP_DEVICE int64_t pp_visible(int64_t i) {
  int64_t n = CAUSAL ? i + 1 + T_KV - T_Q : T_KV;
  return n < 0 ? 0 : n > T_KV ? T_KV : n;
}

// Of head h of batch · heads, its head of batch · kv_heads.
template <int64_t HEADS, int64_t KV_HEADS> PP_DEVICE int64_t pp_kv_head(int64_t h) {
  return h / HEADS * KV_HEADS + h % HEADS / (HEADS / KV_HEADS);
}

#endif
