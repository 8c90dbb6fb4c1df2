// Indices are checked where they are used. In: n indices of a table of `rows` rows. Out: the lowest position that
// holds one outside the table, if any, into the rank's fault word, unless an earlier launch has set it; the host
// reads it at the next step end that it looks at and stops with the message of pp_check_indices (runtime/rank.c).
// Called by all threads of one block; users leave out the rows of such indices.
#ifndef PP_CUDA_FAULT_CUH
#define PP_CUDA_FAULT_CUH

#include "runtime/cuda/geometry.h"
#include "runtime/cuda/state.h"
#include "runtime/kernels/cuda/reduce.cuh"

template <int64_t N, int64_t ROWS>
PP_DEVICE void pp_check_indices(const int32_t *index, pp_fault *fault, int place, int microbatch) {
  static_assert(N < INT32_MAX, "positions are i32");
  __shared__ int32_t lowest[PP_CUDA_BLOCK / 32];
  int32_t mine = INT32_MAX;
  for (int64_t i = (int64_t)threadIdx.x; i < N && mine == INT32_MAX; i += PP_CUDA_BLOCK)
    if (index[i] < 0 || index[i] >= ROWS) mine = (int32_t)i;
  mine = pp_warp_min(mine);
  if (threadIdx.x % 32 == 0) lowest[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < PP_CUDA_BLOCK / 32; w++) mine = pp_min_i32(mine, lowest[w]);
  if (mine == INT32_MAX || fault->set) return;
  fault->place = place;
  fault->microbatch = microbatch;
  fault->position = mine;
  fault->value = index[mine];
  fault->rows = (int32_t)ROWS;
  fault->set = 1;
}

#endif
