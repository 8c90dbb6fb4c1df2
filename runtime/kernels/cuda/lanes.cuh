// What emitted kernels need beside pp_half_*: lanes of a reduction that lie apart in a block, and partial sums of
// whole tensors. Same association as reduce.cuh: in ascending order in each of 16 lanes, then lanes l and l + 8,
// l + 4, l + 2, l + 1.
#ifndef PP_CUDA_LANES_CUH
#define PP_CUDA_LANES_CUH

#include "runtime/kernels/cuda/reduce.cuh"

// Blocks of 16 x width threads: lane l of column c is thread l x width + c. All threads of the block call it; each
// gets its column's result.
template <int width, typename Op, typename T> PP_DEVICE T pp_column_fold(T x) {
  __shared__ T values[16 * width];
  int thread = (int)threadIdx.x;
  values[thread] = x;
  __syncthreads();
  for (int half = 8 * width; half >= width; half /= 2) {
    if (thread < half) values[thread] = Op::of(values[thread], values[thread + half]);
    __syncthreads();
  }
  T result = values[thread % width];
  __syncthreads(); // the next call's values
  return result;
}
template <int width, typename T> PP_DEVICE T pp_column_sum(T x) { return pp_column_fold<width, pp_sum>(x); }
template <int width, typename T> PP_DEVICE T pp_column_max(T x) { return pp_column_fold<width, pp_maximum>(x); }

// n partial results of type T, stored as doubles, by half a warp: like any n elements.
template <typename Op, typename T> PP_DEVICE T pp_half_partial_fold(const double *partial, int n, T start) {
  T x = start;
  for (int k = (int)(threadIdx.x % 16); k < n; k += 16) x = Op::of(x, (T)partial[k]);
  return pp_half_fold<Op>(x);
}

// The same by one thread.
template <typename Op, typename T> PP_DEVICE T pp_thread_partial_fold(const double *partial, int n, T start) {
  T lane[16];
#pragma unroll
  for (int l = 0; l < 16; l++) lane[l] = start;
  for (int k = 0; k < n; k += 16) {
#pragma unroll
    for (int l = 0; l < 16; l++)
      if (k + l < n) lane[l] = Op::of(lane[l], (T)partial[k + l]);
  }
#pragma unroll
  for (int half = 8; half > 0; half /= 2) {
#pragma unroll
    for (int l = 0; l < half; l++) lane[l] = Op::of(lane[l], lane[l + half]);
  }
  return lane[0];
}

// Maxima have at least one element, so theirs begin with the first.
template <typename T> PP_DEVICE T pp_half_partial_sum(const double *partial, int n) { return pp_half_partial_fold<pp_sum>(partial, n, (T)0); }
template <typename T> PP_DEVICE T pp_thread_partial_sum(const double *partial, int n) { return pp_thread_partial_fold<pp_sum>(partial, n, (T)0); }
template <typename T> PP_DEVICE T pp_half_partial_max(const double *partial, int n) { return pp_half_partial_fold<pp_maximum>(partial, n, (T)partial[0]); }
template <typename T> PP_DEVICE T pp_thread_partial_max(const double *partial, int n) { return pp_thread_partial_fold<pp_maximum>(partial, n, (T)partial[0]); }

#endif
