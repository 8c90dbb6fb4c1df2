// Row operations: gather, scatter-add and accumulation, as runtime/kernels/rows.c has them, with the same bits:
// additions go in the order of the indices, one rounding each. In: buffers aligned to PP_ALIGNMENT that don't overlap.
// Grids and blocks: pp_gather_geometry, pp_scatter_geometry, pp_accumulate_geometry (runtime/cuda/geometry.h).
// An index outside the table sets the fault word; what would be gathered for it is 0, what would be added is left out.
// No atomics, no workspace.
#ifndef PP_CUDA_ROWS_CUH
#define PP_CUDA_ROWS_CUH

#include "runtime/kernels/cuda/fault.cuh"

// out[i] = table[index[i]], i < N, rows of ROW values.
template <typename T, int64_t N, int64_t ROW, int64_t ROWS>
PP_DEVICE void pp_gather(const T *table, const int32_t *index, T *out, pp_fault *fault, int place, int microbatch) {
  constexpr int V = pp_pack_values(ROW, (int)sizeof(T));
  constexpr int64_t PACKS = ROW / V;
  typedef pp_pack<T, V> Pack;
  const Pack *from = reinterpret_cast<const Pack *>(table);
  Pack *to = reinterpret_cast<Pack *>(out);
  for (int64_t i = (int64_t)blockIdx.x * PP_CUDA_BLOCK + threadIdx.x; i < N * PACKS; i += (int64_t)gridDim.x * PP_CUDA_BLOCK) {
    int32_t row = index[i / PACKS];
    to[i] = row >= 0 && row < ROWS ? from[row * PACKS + i % PACKS] : Pack{};
  }
  if (blockIdx.x == 0) pp_check_indices<N, ROWS>(index, fault, place, microbatch);
}

// acc (+)= x.
template <typename T, typename U, int64_t N> PP_DEVICE void pp_accumulate(const U *x, T *acc, int accumulate) {
  constexpr int V = pp_pack_values(N, (int)(sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U)));
  typedef typename pp_wide<T>::type Wide;
  const pp_pack<U, V> *from = reinterpret_cast<const pp_pack<U, V> *>(x);
  pp_pack<T, V> *to = reinterpret_cast<pp_pack<T, V> *>(acc);
  for (int64_t i = (int64_t)blockIdx.x * PP_CUDA_BLOCK + threadIdx.x; i < N / V; i += (int64_t)gridDim.x * PP_CUDA_BLOCK) {
    pp_pack<U, V> add = from[i];
    pp_pack<T, V> sum;
    if (accumulate) sum = to[i];
    for (int v = 0; v < V; v++) {
      Wide term = pp_convert<Wide>(add.at[v]);
      sum.at[v] = pp_convert<T>(accumulate ? pp_convert<Wide>(sum.at[v]) + term : term);
    }
    to[i] = sum;
  }
}

// --- scatter-add -----------------------------------------------------------------------------------------------------

enum { PP_SCATTER_EACH = 4, PP_SCATTER_CHUNK = PP_CUDA_BLOCK * PP_SCATTER_EACH };

// Of the chunk of indices that begins at `base`, those within [first, first + n_rows): their positions, ascending.
// `counts` is another one at the next call, so that one barrier is enough when there are none. Returns how many.
template <int64_t N>
PP_DEVICE int pp_scatter_find(const int32_t *index, int64_t base, int64_t first, int64_t n_rows, int32_t *counts, int32_t *found) {
  int warp = (int)threadIdx.x / 32, lane = pp_lane_of_warp(), n = 0;
  int64_t start = base + warp * 32 * PP_SCATTER_EACH + lane;
  uint32_t hits[PP_SCATTER_EACH];
  for (int k = 0; k < PP_SCATTER_EACH; k++) {
    int64_t i = start + k * 32, row = i < N ? index[i] - first : -1;
    hits[k] = __ballot_sync(0xffffffffu, row >= 0 && row < n_rows);
    n += __popc(hits[k]);
  }
  if (lane == 0) counts[warp] = n;
  __syncthreads();
  int before = 0, total = 0;
  for (int w = 0; w < PP_CUDA_BLOCK / 32; w++) {
    before += w < warp ? counts[w] : 0;
    total += counts[w];
  }
  if (total == 0) return 0;
  for (int k = 0; k < PP_SCATTER_EACH; k++) {
    if (hits[k] >> lane & 1) found[before + __popc(hits[k] & ((1u << lane) - 1))] = (int32_t)(start + k * 32);
    before += __popc(hits[k]);
  }
  __syncthreads();
  return total;
}

// out[index[i]] += dy[i], i < N, in the order of i; out has ROWS rows and is zeroed first unless `accumulate`.
// A block looks after GROUP rows of out and BLOCK columns, and looks for its rows among all indices.
template <typename T, typename U, int64_t N, int64_t ROW, int64_t ROWS>
PP_DEVICE void pp_scatter_add(const U *dy, const int32_t *index, T *out, int accumulate, pp_fault *fault, int place, int microbatch) {
  typedef typename pp_wide<T>::type Wide;
  constexpr int GROUP = pp_scatter_group(ROWS, (int)sizeof(Wide));
  static_assert(GROUP <= 32, "a bit for each row");
  __shared__ Wide sums[GROUP * PP_CUDA_BLOCK];
  __shared__ int32_t found[PP_SCATTER_CHUNK], counts[2][PP_CUDA_BLOCK / 32];
  constexpr uint32_t STRIPES = (uint32_t)pp_ceil_div(ROW, PP_CUDA_BLOCK);
  int64_t first = (int64_t)(blockIdx.x / STRIPES) * GROUP, column = (int64_t)(blockIdx.x % STRIPES) * PP_CUDA_BLOCK + threadIdx.x;
  int64_t n_rows = ROWS - first < GROUP ? ROWS - first : GROUP;
  uint32_t touched = 0; // rows of the group, the same in all threads
  for (int64_t base = 0; base < N; base += PP_SCATTER_CHUNK) {
    int n = pp_scatter_find<N>(index, base, first, n_rows, counts[base / PP_SCATTER_CHUNK % 2], found);
    for (int k = 0; k < n; k++) {
      int64_t i = found[k];
      int row = (int)(index[i] - first);
      if (column < ROW) {
        Wide *sum = &sums[row * PP_CUDA_BLOCK + threadIdx.x];
        if (!(touched >> row & 1)) *sum = accumulate ? pp_convert<Wide>(out[(first + row) * ROW + column]) : (Wide)0;
        *sum = pp_convert<Wide>(pp_convert<T>(*sum + pp_convert<Wide>(dy[i * ROW + column])));
      }
      touched |= 1u << row;
    }
    if (n > 0) __syncthreads(); // before `found` is filled again
  }
  for (int row = 0; row < n_rows && column < ROW; row++) {
    bool is_touched = touched >> row & 1;
    if (is_touched || !accumulate)
      out[(first + row) * ROW + column] = is_touched ? pp_convert<T>(sums[row * PP_CUDA_BLOCK + threadIdx.x]) : pp_convert<T>((Wide)0);
  }
  if (blockIdx.x == 0) pp_check_indices<N, ROWS>(index, fault, place, microbatch);
}

#endif
