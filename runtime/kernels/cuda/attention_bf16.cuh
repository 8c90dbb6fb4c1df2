// Attention and its gradient in bf16 on tensor cores: products of bf16 with sums in f32, softmax in f32, lse in f32; as
// attention.cuh, which includes it, otherwise. A warp has 16 rows of its block's tile and keeps their scores and results
// in registers; the other side passes through shared memory STEP rows at a time, copied while the tile before it is
// used. The gradient of keys works on transposed scores, so that keys are a warp's rows. Rows are padded with zeros to a
// multiple of 16 columns.
#ifndef PP_CUDA_ATTENTION_BF16_CUH
#define PP_CUDA_ATTENTION_BF16_CUH

#include <cuda_pipeline.h>

#include "runtime/kernels/cuda/attention_parts.cuh"
#include "runtime/kernels/cuda/mma.cuh"

// Both rounded to bf16, `low` in the low half.
PP_DEVICE uint32_t pp_pair_bf16(float low, float high) {
#ifdef __CUDACC__
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return pp_mma_pair(pp_bf16_from_f32(low), pp_bf16_from_f32(high));
#endif
}

// Two results [16, 8] side by side as a left operand [16, 16], rounded.
PP_DEVICE void pp_mma_operand(uint32_t a[4], const float left[4], const float right[4]) {
  a[0] = pp_pair_bf16(left[0], left[1]);
  a[1] = pp_pair_bf16(left[2], left[3]);
  a[2] = pp_pair_bf16(right[0], right[1]);
  a[3] = pp_pair_bf16(right[2], right[3]);
}

template <int64_t D_, int WARPS_, int STEP_> struct pp_warp_tile {
  static constexpr int D = (int)D_, WARPS = WARPS_, STEP = STEP_;
  static constexpr int BLOCK = 32 * WARPS_, ROWS = 16 * WARPS_;
  static constexpr int WIDTH = (int)pp_attention_bf16_width(D_);
  static constexpr int STRIDE = (int)pp_attention_bf16_stride(D_); // rows of 8 begin in different banks
  static constexpr int PACK = pp_pack_values(D_, 2);
  static constexpr int SCORES = STEP_ / 8;                          // pieces of 8 columns
  static_assert(D_ <= PP_ATTENTION_MAX_D, "results of wider heads have no place in registers");
};

PP_DEVICE int pp_warp() { return (int)threadIdx.x / 32; }
PP_DEVICE int pp_lane_row() { return (int)threadIdx.x % 32 / 4; }    // g
PP_DEVICE int pp_lane_column() { return (int)threadIdx.x % 4 * 2; }  // 2 t

// N rows from global memory, of which the first n exist; complete after pp_copies_wait and a barrier.
template <typename Tile, int N> PP_DEVICE void pp_rows_copy(pp_bf16 *tile, const pp_bf16 *from, int64_t n) {
  typedef pp_pack<pp_bf16, Tile::PACK> Pack;
  constexpr int PACKS = Tile::D / Tile::PACK;
  for (int i = (int)threadIdx.x; i < N * PACKS; i += Tile::BLOCK) {
    int row = i / PACKS, column = i % PACKS * Tile::PACK;
    pp_bf16 *to = tile + row * Tile::STRIDE + column;
    if constexpr (Tile::PACK == 8) {
      __pipeline_memcpy_async(to, from + (row < n ? row : 0) * Tile::D + column, 16, row < n ? 0 : 16);
    } else {
      Pack x = {};
      if (row < n) x = *reinterpret_cast<const Pack *>(from + row * Tile::D + column);
      *reinterpret_cast<Pack *>(to) = x;
    }
  }
  __pipeline_commit();
}

// All copies so far, of all threads.
PP_DEVICE void pp_copies_wait() {
  __pipeline_wait_prior(0);
  __syncthreads();
}

// Zeros where rows are padded; n rows, of all tiles at once.
template <typename Tile> PP_DEVICE void pp_rows_pad(pp_bf16 *tile, int n) {
  constexpr int PADDING = Tile::WIDTH - Tile::D;
  if constexpr (PADDING > 0)
    for (int i = (int)threadIdx.x; i < n * PADDING; i += Tile::BLOCK) tile[i / PADDING * Tile::STRIDE + Tile::D + i % PADDING] = 0;
}

// s = a · bᵀ: 16 rows of a by STEP rows of b.
template <typename Tile> PP_DEVICE void pp_warp_dot(const pp_bf16 *a, const pp_bf16 *b, float s[Tile::SCORES][4]) {
  int lane = pp_lane_of_warp();
  a += lane % 16 * Tile::STRIDE + lane / 16 * 8;
  b += (lane / 16 * 8 + lane % 8) * Tile::STRIDE + lane / 8 % 2 * 8;
  PP_UNROLL("unroll")
  for (int j = 0; j < Tile::SCORES; j++)
    PP_UNROLL("unroll")
    for (int c = 0; c < 4; c++) s[j][c] = 0.0f;
  PP_UNROLL("unroll 2")
  for (int column = 0; column < Tile::WIDTH; column += 16) {
    uint32_t x[4];
    pp_load_matrices(x, a + column);
    PP_UNROLL("unroll")
    for (int j = 0; j < Tile::SCORES; j += 2) {
      uint32_t y[4];
      pp_load_matrices(y, b + j * 8 * Tile::STRIDE + column);
      pp_mma_bf16(s[j], x, y);
      pp_mma_bf16(s[j + 1], x, y + 2);
    }
  }
}

// r += p · b, COLUMNS columns of b: p is 16 × STEP, rounded to bf16.
template <typename Tile, int COLUMNS> PP_DEVICE void pp_warp_product(const float p[Tile::SCORES][4], const pp_bf16 *b, float r[COLUMNS / 8][4]) {
  int lane = pp_lane_of_warp();
  b += lane % 16 * Tile::STRIDE + lane / 16 * 8;
  PP_UNROLL("unroll")
  for (int j = 0; j < Tile::SCORES; j += 2) {
    uint32_t x[4];
    pp_mma_operand(x, p[j], p[j + 1]);
    PP_UNROLL("unroll")
    for (int c = 0; c < COLUMNS / 8; c += 2) {
      uint32_t y[4];
      pp_load_transposed(y, b + j * 8 * Tile::STRIDE + c * 8);
      pp_mma_bf16(r[c], x, y);
      pp_mma_bf16(r[c + 1], x, y + 2);
    }
  }
}

// Rows of results to global memory, times factor[0] (row g) and factor[1] (row g + 8); rows below n, columns from `first`.
template <typename Tile, int COLUMNS>
PP_DEVICE void pp_warp_store(const float r[COLUMNS / 8][4], const float factor[2], pp_bf16 *to, int64_t n, int first) {
  PP_UNROLL("unroll")
  for (int half = 0; half < 2; half++) {
    int row = pp_lane_row() + 8 * half;
    if (row >= n) continue;
    PP_UNROLL("unroll")
    for (int c = 0; c < COLUMNS / 8; c++) {
      int column = first + c * 8 + pp_lane_column();
      uint32_t pair = pp_pair_bf16(r[c][2 * half] * factor[half], r[c][2 * half + 1] * factor[half]);
      pp_bf16 *at = to + (int64_t)row * Tile::D + column;
      if constexpr (Tile::D % 2 == 0) {
        if (column < Tile::D) *reinterpret_cast<uint32_t *>(at) = pair;
      } else {
        if (column < Tile::D) at[0] = (pp_bf16)pair;
        if (column + 1 < Tile::D) at[1] = (pp_bf16)(pair >> 16);
      }
    }
  }
}

// Over the four lanes that share a row.
PP_DEVICE float pp_row_max(float x) {
  x = pp_max_f32(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return pp_max_f32(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
PP_DEVICE float pp_row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// --- forward -----------------------------------------------------------------------------------------------------------

// What a lane knows of its two rows: maximum, in units of log 2, and its part of the sum.
struct pp_row_pair {
  float max[2], sum[2];
};

// Scores become weights, as pp_attention_weigh does; n[half]: keys of this tile that the row sees.
template <typename Tile, int COLUMNS>
PP_DEVICE void pp_warp_weigh(float s[Tile::SCORES][4], const int n[2], float unit, pp_row_pair &rows, float r[COLUMNS / 8][4]) {
  PP_UNROLL("unroll")
  for (int half = 0; half < 2; half++) {
    float most = rows.max[half];
    PP_UNROLL("unroll")
    for (int j = 0; j < Tile::SCORES; j++)
      PP_UNROLL("unroll")
      for (int c = 2 * half; c < 2 * half + 2; c++) {
        s[j][c] = j * 8 + pp_lane_column() + c % 2 < n[half] ? s[j][c] * unit : -INFINITY;
        most = pp_max_f32(s[j][c], most);
      }
    most = pp_row_max(most);
    float shift = most == -INFINITY ? 0.0f : most, factor = exp2f(rows.max[half] - shift);
    rows.max[half] = most;
    rows.sum[half] *= factor;
    PP_UNROLL("unroll")
    for (int j = 0; j < Tile::SCORES; j++)
      PP_UNROLL("unroll")
      for (int c = 2 * half; c < 2 * half + 2; c++) {
        s[j][c] = exp2f(s[j][c] - shift);
        rows.sum[half] += s[j][c];
      }
    PP_UNROLL("unroll")
    for (int c = 0; c < COLUMNS / 8; c++) {
      r[c][2 * half] *= factor;
      r[c][2 * half + 1] *= factor;
    }
  }
}

PP_DEVICE int pp_clamp(int64_t n, int most) { return n < 0 ? 0 : n > most ? most : (int)n; }

template <int64_t BATCH, int64_t HEADS, int64_t KV_HEADS, int64_t T_Q, int64_t T_KV, int64_t D, bool CAUSAL>
PP_DEVICE void pp_attention_bf16(const pp_bf16 *q, const pp_bf16 *k, const pp_bf16 *v, pp_bf16 *out, float *lse, double scale) {
  typedef pp_warp_tile<D, pp_attention_bf16_warps(T_Q), pp_attention_bf16_step(D)> Tile;
  constexpr int64_t N_TILES = pp_ceil_div(T_Q, Tile::ROWS);
  pp_bf16 *q_tile = reinterpret_cast<pp_bf16 *>(pp_shared_memory<pp_attention_bf16_shared(T_Q, D, 1)>());
  pp_bf16 *k_tile = q_tile + Tile::ROWS * Tile::STRIDE, *v_tile = k_tile + Tile::STEP * Tile::STRIDE;
  int64_t head = (int64_t)blockIdx.x % (BATCH * HEADS), first = (N_TILES - 1 - (int64_t)blockIdx.x / (BATCH * HEADS)) * Tile::ROWS;
  int64_t last = first + Tile::ROWS < T_Q ? first + Tile::ROWS - 1 : T_Q - 1, own = first + pp_warp() * 16;
  int64_t keys = pp_visible<T_Q, T_KV, CAUSAL>(last);
  k += pp_kv_head<HEADS, KV_HEADS>(head) * T_KV * D;
  v += pp_kv_head<HEADS, KV_HEADS>(head) * T_KV * D;
  float unit = (float)(scale * (double)pp_softmax<float>::per_unit()), r[Tile::WIDTH / 8][4] = {};
  pp_row_pair rows = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
  pp_rows_pad<Tile>(q_tile, Tile::ROWS + 2 * Tile::STEP);
  pp_rows_copy<Tile, Tile::ROWS>(q_tile, q + (head * T_Q + first) * D, T_Q - first);
  pp_rows_copy<Tile, Tile::STEP>(k_tile, k, T_KV);
  for (int64_t at = 0; at < keys; at += Tile::STEP) {
    float s[Tile::SCORES][4];
    int n[2];
    PP_UNROLL("unroll")
    for (int half = 0; half < 2; half++) n[half] = pp_clamp(pp_visible<T_Q, T_KV, CAUSAL>(own + pp_lane_row() + 8 * half) - at, Tile::STEP);
    pp_copies_wait();
    pp_rows_copy<Tile, Tile::STEP>(v_tile, v + at * D, T_KV - at);
    pp_warp_dot<Tile>(q_tile + pp_warp() * 16 * Tile::STRIDE, k_tile, s);
    pp_copies_wait();
    if (at + Tile::STEP < keys) pp_rows_copy<Tile, Tile::STEP>(k_tile, k + (at + Tile::STEP) * D, T_KV - at - Tile::STEP);
    pp_warp_weigh<Tile, Tile::WIDTH>(s, n, unit, rows, r);
    pp_warp_product<Tile, Tile::WIDTH>(s, v_tile, r);
  }
  __pipeline_wait_prior(0);
  float factor[2];
  PP_UNROLL("unroll")
  for (int half = 0; half < 2; half++) {
    float total = pp_row_sum(rows.sum[half]);
    int64_t row = own + pp_lane_row() + 8 * half;
    factor[half] = total == 0.0f ? 0.0f : 1.0f / total;
    if (row < T_Q && pp_lane_column() == 0)
      lse[head * T_Q + row] = total == 0.0f ? -INFINITY : fmaf(rows.max[half], pp_softmax<float>::unit(), pp_log_f32(total));
  }
  pp_warp_store<Tile, Tile::WIDTH>(r, factor, out + (head * T_Q + own) * D, T_Q - own, 0);
}

// --- gradient ----------------------------------------------------------------------------------------------------------

// dout · out of a row in global memory, by `n_lanes` neighbouring lanes, of which this is `lane`; not yet added up.
template <typename Tile> PP_DEVICE float pp_row_delta(const pp_bf16 *dout, const pp_bf16 *out, int lane, int n_lanes) {
  typedef pp_pack<pp_bf16, Tile::PACK> Pack;
  float sum = 0.0f;
  for (int column = lane * Tile::PACK; column < Tile::D; column += n_lanes * Tile::PACK) {
    Pack x = *reinterpret_cast<const Pack *>(dout + column), y = *reinterpret_cast<const Pack *>(out + column);
    for (int i = 0; i < Tile::PACK; i++) sum = fmaf(pp_f32_from_bf16(x.at[i]), pp_f32_from_bf16(y.at[i]), sum);
  }
  return sum;
}

template <int64_t BATCH, int64_t HEADS, int64_t KV_HEADS, int64_t T_Q, int64_t T_KV, int64_t D, bool CAUSAL>
PP_DEVICE void pp_attention_bf16_grad_q(const pp_bf16 *q, const pp_bf16 *k, const pp_bf16 *v, const pp_bf16 *out, const float *lse,
                                        const pp_bf16 *dout, pp_bf16 *dq, double scale) {
  typedef pp_warp_tile<D, pp_attention_bf16_warps(T_Q), pp_attention_bf16_step(D)> Tile;
  constexpr int64_t N_TILES = pp_ceil_div(T_Q, Tile::ROWS);
  pp_bf16 *q_tile = reinterpret_cast<pp_bf16 *>(pp_shared_memory<pp_attention_bf16_shared(T_Q, D, 2)>());
  pp_bf16 *dout_tile = q_tile + Tile::ROWS * Tile::STRIDE, *k_tile = dout_tile + Tile::ROWS * Tile::STRIDE;
  pp_bf16 *v_tile = k_tile + Tile::STEP * Tile::STRIDE;
  int64_t head = (int64_t)blockIdx.x % (BATCH * HEADS), first = (N_TILES - 1 - (int64_t)blockIdx.x / (BATCH * HEADS)) * Tile::ROWS;
  int64_t last = first + Tile::ROWS < T_Q ? first + Tile::ROWS - 1 : T_Q - 1, own = first + pp_warp() * 16;
  int64_t keys = pp_visible<T_Q, T_KV, CAUSAL>(last);
  k += pp_kv_head<HEADS, KV_HEADS>(head) * T_KV * D;
  v += pp_kv_head<HEADS, KV_HEADS>(head) * T_KV * D;
  float unit = (float)(scale * (double)pp_softmax<float>::per_unit()), r[Tile::WIDTH / 8][4] = {}, shift[2], delta[2];
  pp_rows_pad<Tile>(q_tile, 2 * Tile::ROWS + 2 * Tile::STEP);
  pp_rows_copy<Tile, Tile::ROWS>(q_tile, q + (head * T_Q + first) * D, T_Q - first);
  pp_rows_copy<Tile, Tile::ROWS>(dout_tile, dout + (head * T_Q + first) * D, T_Q - first);
  pp_rows_copy<Tile, Tile::STEP>(k_tile, k, T_KV);
  PP_UNROLL("unroll")
  for (int half = 0; half < 2; half++) {
    int64_t row = own + pp_lane_row() + 8 * half, at = head * T_Q + row;
    shift[half] = row < T_Q ? lse[at] * pp_softmax<float>::per_unit() : 0.0f;
    delta[half] = pp_row_sum(row < T_Q ? pp_row_delta<Tile>(dout + at * D, out + at * D, pp_lane_column() / 2, 4) : 0.0f);
  }
  for (int64_t at = 0; at < keys; at += Tile::STEP) {
    float p[Tile::SCORES][4], ds[Tile::SCORES][4];
    pp_copies_wait();
    pp_rows_copy<Tile, Tile::STEP>(v_tile, v + at * D, T_KV - at);
    pp_warp_dot<Tile>(q_tile + pp_warp() * 16 * Tile::STRIDE, k_tile, p);
    pp_copies_wait();
    pp_warp_dot<Tile>(dout_tile + pp_warp() * 16 * Tile::STRIDE, v_tile, ds);
    PP_UNROLL("unroll")
    for (int half = 0; half < 2; half++) {
      int64_t row = own + pp_lane_row() + 8 * half;
      int n = row < T_Q ? pp_clamp(pp_visible<T_Q, T_KV, CAUSAL>(row) - at, Tile::STEP) : 0;
      PP_UNROLL("unroll")
      for (int j = 0; j < Tile::SCORES; j++)
        PP_UNROLL("unroll")
        for (int c = 2 * half; c < 2 * half + 2; c++) {
          bool sees = j * 8 + pp_lane_column() + c % 2 < n;
          ds[j][c] = sees ? exp2f(fmaf(p[j][c], unit, -shift[half])) * (ds[j][c] - delta[half]) * (float)scale : 0.0f;
        }
    }
    pp_warp_product<Tile, Tile::WIDTH>(ds, k_tile, r);
    __syncthreads();
    if (at + Tile::STEP < keys) pp_rows_copy<Tile, Tile::STEP>(k_tile, k + (at + Tile::STEP) * D, T_KV - at - Tile::STEP);
  }
  __pipeline_wait_prior(0);
  const float one[2] = {1.0f, 1.0f};
  pp_warp_store<Tile, Tile::WIDTH>(r, one, dq + (head * T_Q + own) * D, T_Q - own, 0);
}

// Of STEP queries from row `first` of a head: lse in units of log 2, and delta, by four lanes each.
template <typename Tile>
PP_DEVICE void pp_queries_prepare(const pp_bf16 *dout, const pp_bf16 *out, const float *lse, int64_t n, float *shift, float *delta) {
  for (int row = (int)threadIdx.x / 4; row < Tile::STEP; row += Tile::BLOCK / 4) {
    float sum = pp_row_sum(row < n ? pp_row_delta<Tile>(dout + row * Tile::D, out + row * Tile::D, (int)threadIdx.x % 4, 4) : 0.0f);
    if (threadIdx.x % 4 != 0) continue;
    shift[row] = row < n ? lse[row] * pp_softmax<float>::per_unit() : 0.0f;
    delta[row] = sum;
  }
}

// Block: a tile of keys and, for wide heads, one part of the columns of dk and dv.
template <int64_t BATCH, int64_t HEADS, int64_t KV_HEADS, int64_t T_Q, int64_t T_KV, int64_t D, bool CAUSAL>
PP_DEVICE void pp_attention_bf16_grad_kv(const pp_bf16 *q, const pp_bf16 *k, const pp_bf16 *v, const pp_bf16 *out, const float *lse,
                                         const pp_bf16 *dout, pp_bf16 *dk, pp_bf16 *dv, double scale) {
  typedef pp_warp_tile<D, pp_attention_bf16_warps(T_KV), pp_attention_bf16_step(D)> Tile;
  constexpr int PARTS = pp_attention_bf16_parts(D), COLUMNS = Tile::WIDTH / PARTS;
  constexpr int64_t GROUP = HEADS / KV_HEADS;
  pp_bf16 *k_tile = reinterpret_cast<pp_bf16 *>(pp_shared_memory<pp_attention_bf16_shared(T_KV, D, 2)>());
  pp_bf16 *v_tile = k_tile + Tile::ROWS * Tile::STRIDE, *q_tile = v_tile + Tile::ROWS * Tile::STRIDE;
  pp_bf16 *dout_tile = q_tile + Tile::STEP * Tile::STRIDE;
  __shared__ float shift[Tile::STEP], delta[Tile::STEP];
  int64_t block = (int64_t)blockIdx.x / PARTS, kv_head = block % (BATCH * KV_HEADS), at = block / (BATCH * KV_HEADS) * Tile::ROWS;
  int part = (int)((int64_t)blockIdx.x % PARTS) * COLUMNS;
  int64_t own = at + pp_warp() * 16, lowest = at - (T_KV - T_Q);
  int64_t start = CAUSAL && lowest > 0 ? lowest / Tile::STEP * Tile::STEP : 0;
  float unit = (float)(scale * (double)pp_softmax<float>::per_unit());
  float dk_rows[COLUMNS / 8][4] = {}, dv_rows[COLUMNS / 8][4] = {};
  pp_rows_pad<Tile>(k_tile, 2 * Tile::ROWS + 2 * Tile::STEP);
  pp_rows_copy<Tile, Tile::ROWS>(k_tile, k + (kv_head * T_KV + at) * D, T_KV - at);
  pp_rows_copy<Tile, Tile::ROWS>(v_tile, v + (kv_head * T_KV + at) * D, T_KV - at);
  for (int64_t member = 0; member < GROUP; member++) {
    int64_t head = kv_head / KV_HEADS * HEADS + kv_head % KV_HEADS * GROUP + member;
    for (int64_t first = start; first < T_Q; first += Tile::STEP) {
      int64_t from = head * T_Q + first;
      float p[Tile::SCORES][4], ds[Tile::SCORES][4];
      pp_rows_copy<Tile, Tile::STEP>(q_tile, q + from * D, T_Q - first);
      pp_rows_copy<Tile, Tile::STEP>(dout_tile, dout + from * D, T_Q - first);
      pp_queries_prepare<Tile>(dout + from * D, out + from * D, lse + from, T_Q - first, shift, delta);
      pp_copies_wait();
      pp_warp_dot<Tile>(k_tile + pp_warp() * 16 * Tile::STRIDE, q_tile, p);
      pp_warp_dot<Tile>(v_tile + pp_warp() * 16 * Tile::STRIDE, dout_tile, ds);
      PP_UNROLL("unroll")
      for (int j = 0; j < Tile::SCORES; j++)
        PP_UNROLL("unroll")
        for (int c = 0; c < 4; c++) {
          int column = j * 8 + pp_lane_column() + c % 2;
          int64_t row = first + column, key = own + pp_lane_row() + c / 2 * 8;
          bool sees = row < T_Q && key < pp_visible<T_Q, T_KV, CAUSAL>(row);
          p[j][c] = sees ? exp2f(fmaf(p[j][c], unit, -shift[column])) : 0.0f;
          ds[j][c] = sees ? p[j][c] * (ds[j][c] - delta[column]) * (float)scale : 0.0f;
        }
      pp_warp_product<Tile, COLUMNS>(p, dout_tile + part, dv_rows);
      pp_warp_product<Tile, COLUMNS>(ds, q_tile + part, dk_rows);
      __syncthreads();
    }
  }
  const float one[2] = {1.0f, 1.0f};
  __pipeline_wait_prior(0);
  pp_warp_store<Tile, COLUMNS>(dk_rows, one, dk + (kv_head * T_KV + own) * D, T_KV - own, part);
  pp_warp_store<Tile, COLUMNS>(dv_rows, one, dv + (kv_head * T_KV + own) * D, T_KV - own, part);
}

#endif
