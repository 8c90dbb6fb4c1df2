// Attention and its gradient, without a buffer of t × t (Dao et al., FlashAttention, 2022): here for f32 and f64, for bf16
// in attention_bf16.cuh; the last section chooses.
// In: q, out, dout [batch, heads, t, d]; k, v [batch, kv_heads, t_kv, d], kv_heads divides heads. Out: out and lse
// [batch, heads, t], dq, dk, dv, within rounding of runtime/kernels/attention_body.h. With t != t_kv row i of a causal
// mask sees keys 0 … i + t_kv - t; a row that sees none gives 0.
//
// A block of 16 × 16 threads takes a tile of rows and walks over the tiles of the other side. Thread (y, x) has ROWS
// rows of a tile, y·ROWS …, with the keys x, x + 16, … of their scores and the columns x, x + 16, … of their results
// (packs of columns where d allows it), so what belongs to a row stays within half a warp. The gradient makes the
// scores again, once for dq and once for dk and dv; sums over rows of other tiles and over the heads of a group go in
// ascending order within one block: no atomics, the same bits in every run. Products use fused multiply-add.
// Grids and blocks: pp_attention_*geometry (runtime/cuda/geometry.h). Not here: masks other than causal, dropout.
#ifndef PP_CUDA_ATTENTION_CUH
#define PP_CUDA_ATTENTION_CUH

#include "runtime/kernels/cuda/attention_bf16.cuh"
#include "runtime/kernels/cuda/attention_parts.cuh"

PP_DEVICE float pp_fma(float a, float b, float c) { return fmaf(a, b, c); }
PP_DEVICE double pp_fma(double a, double b, double c) { return fma(a, b, c); }
PP_DEVICE float pp_log(float x) { return pp_log_f32(x); }
PP_DEVICE double pp_log(double x) { return pp_log_f64(x); }

// Static numbers of one attention: D columns, ROWS rows for each thread.
template <typename T, int64_t D_, int ROWS_> struct pp_tile {
  static constexpr int64_t D = D_;
  static constexpr int ROWS = ROWS_, SIZE = 16 * ROWS_;
  static constexpr int PACK = pp_pack_values(D_, (int)sizeof(T)); // along d
  static constexpr int STRIDE = (int)pp_attention_stride(D_, (int)sizeof(T));
  static constexpr int SCORES = SIZE + 16 / (int)sizeof(T);       // stride of a tile of scores
  static constexpr int SPREAD = D_ % 16 == 0 ? pp_pack_values(D_ / 16, (int)sizeof(T)) : 1; // columns side by side in a thread
  static constexpr int PIECES = (int)((D_ + 16 * SPREAD - 1) / (16 * SPREAD));
  static constexpr int COLUMNS = PIECES * SPREAD;
};

PP_DEVICE int pp_tile_x() { return (int)threadIdx.x % 16; }
PP_DEVICE int pp_tile_y() { return (int)threadIdx.x / 16; }

// Rows 0 … n - 1 of `from` into shared memory, zeros below.
template <typename Tile, typename T> PP_DEVICE void pp_tile_load(T *tile, const T *from, int64_t n) {
  typedef pp_pack<T, Tile::PACK> Pack;
  constexpr int PACKS = (int)(Tile::D / Tile::PACK);
  for (int i = (int)threadIdx.x; i < Tile::SIZE * PACKS; i += PP_CUDA_BLOCK) {
    int row = i / PACKS, column = i % PACKS * Tile::PACK;
    Pack x = {};
    if (row < n) x = *reinterpret_cast<const Pack *>(from + row * Tile::D + column);
    *reinterpret_cast<Pack *>(tile + row * Tile::STRIDE + column) = x;
  }
}

// s[i][j] = a[y·ROWS + i] · b[x + 16 j].
template <typename Tile, typename T> PP_DEVICE void pp_tile_dot(const T *a, const T *b, T s[Tile::ROWS][Tile::ROWS]) {
  typedef pp_pack<T, Tile::PACK> Pack;
  a += pp_tile_y() * Tile::ROWS * Tile::STRIDE;
  b += pp_tile_x() * Tile::STRIDE;
  for (int i = 0; i < Tile::ROWS; i++)
    for (int j = 0; j < Tile::ROWS; j++) s[i][j] = (T)0;
  PP_UNROLL("unroll 2")
  for (int column = 0; column < (int)Tile::D; column += Tile::PACK) {
    Pack x[Tile::ROWS], y[Tile::ROWS];
    for (int i = 0; i < Tile::ROWS; i++) {
      x[i] = *reinterpret_cast<const Pack *>(a + i * Tile::STRIDE + column);
      y[i] = *reinterpret_cast<const Pack *>(b + 16 * i * Tile::STRIDE + column);
    }
    for (int i = 0; i < Tile::ROWS; i++)
      for (int j = 0; j < Tile::ROWS; j++)
        for (int c = 0; c < Tile::PACK; c++) s[i][j] = pp_fma(x[i].at[c], y[j].at[c], s[i][j]);
  }
}

// The first column of piece p of this thread; past the last where d isn't a multiple of 16.
template <typename Tile> PP_DEVICE int pp_tile_column(int p) { return (p * 16 + pp_tile_x()) * Tile::SPREAD; }
template <typename Tile> PP_DEVICE bool pp_tile_has(int p) { return pp_tile_column<Tile>(p) < (int)Tile::D; }

// r[i][…] += w[i] · row[…], with this thread's columns of one row.
template <typename Tile, typename T> PP_DEVICE void pp_tile_add(const T w[Tile::ROWS], const T *row, T r[Tile::ROWS][Tile::COLUMNS]) {
  typedef pp_pack<T, Tile::SPREAD> Pack;
  for (int p = 0; p < Tile::PIECES; p++) {
    if (!pp_tile_has<Tile>(p)) continue;
    Pack x = *reinterpret_cast<const Pack *>(row + pp_tile_column<Tile>(p));
    for (int i = 0; i < Tile::ROWS; i++)
      for (int c = 0; c < Tile::SPREAD; c++) r[i][p * Tile::SPREAD + c] = pp_fma(w[i], x.at[c], r[i][p * Tile::SPREAD + c]);
  }
}

// r[i] += Σ_j scores[y·ROWS + i][j] · b[j].
template <typename Tile, typename T> PP_DEVICE void pp_tile_product(const T *scores, const T *b, T r[Tile::ROWS][Tile::COLUMNS]) {
  constexpr int PACK = 16 / (int)sizeof(T);
  typedef pp_pack<T, PACK> Pack;
  scores += pp_tile_y() * Tile::ROWS * Tile::SCORES;
  PP_UNROLL("unroll 1")
  for (int j = 0; j < Tile::SIZE; j += PACK) {
    Pack w[Tile::ROWS];
    for (int i = 0; i < Tile::ROWS; i++) w[i] = *reinterpret_cast<const Pack *>(scores + i * Tile::SCORES + j);
    for (int u = 0; u < PACK; u++) {
      T x[Tile::ROWS];
      for (int i = 0; i < Tile::ROWS; i++) x[i] = w[i].at[u];
      pp_tile_add<Tile>(x, b + (j + u) * Tile::STRIDE, r);
    }
  }
}

// r[i] += Σ_j scores[j][y·ROWS + i] · b[j].
template <typename Tile, typename T>
PP_DEVICE void pp_tile_transposed_product(const T *scores, const T *b, T r[Tile::ROWS][Tile::COLUMNS]) {
  constexpr int PACK = pp_pack_values(Tile::ROWS, (int)sizeof(T));
  typedef pp_pack<T, PACK> Pack;
  scores += pp_tile_y() * Tile::ROWS;
  PP_UNROLL("unroll 4")
  for (int j = 0; j < Tile::SIZE; j++) {
    T w[Tile::ROWS];
    for (int i = 0; i < Tile::ROWS; i += PACK) {
      Pack x = *reinterpret_cast<const Pack *>(scores + j * Tile::SCORES + i);
      for (int u = 0; u < PACK; u++) w[i + u] = x.at[u];
    }
    pp_tile_add<Tile>(w, b + j * Tile::STRIDE, r);
  }
}

// This thread's rows and columns to global memory: rows first + y·ROWS + i below `end`.
template <typename Tile, typename T>
PP_DEVICE void pp_tile_store(const T r[Tile::ROWS][Tile::COLUMNS], T *to, int64_t first, int64_t end) {
  typedef pp_pack<T, Tile::SPREAD> Pack;
  for (int i = 0; i < Tile::ROWS; i++) {
    int64_t row = first + pp_tile_y() * Tile::ROWS + i;
    if (row >= end) continue;
    for (int p = 0; p < Tile::PIECES; p++) {
      if (!pp_tile_has<Tile>(p)) continue;
      Pack x;
      for (int c = 0; c < Tile::SPREAD; c++) x.at[c] = r[i][p * Tile::SPREAD + c];
      *reinterpret_cast<Pack *>(to + row * Tile::D + pp_tile_column<Tile>(p)) = x;
    }
  }
}

// A tile of scores from registers to shared memory.
template <typename Tile, typename T> PP_DEVICE void pp_tile_put(const T s[Tile::ROWS][Tile::ROWS], T *scores) {
  for (int i = 0; i < Tile::ROWS; i++)
    for (int j = 0; j < Tile::ROWS; j++)
      scores[(pp_tile_y() * Tile::ROWS + i) * Tile::SCORES + pp_tile_x() + 16 * j] = s[i][j];
}

// --- forward -----------------------------------------------------------------------------------------------------------

// One tile of keys: scores s become weights, of the rows' running maximum; sums of this thread's weights; earlier
// results are brought to the new maximum. n[i]: keys of the tile that row i sees.
template <typename Tile, typename T>
PP_DEVICE void pp_attention_weigh(T s[Tile::ROWS][Tile::ROWS], const int n[Tile::ROWS], T scale, T max[Tile::ROWS],
                                  T sum[Tile::ROWS], T r[Tile::ROWS][Tile::COLUMNS]) {
  const T none = -(T)INFINITY;
  for (int i = 0; i < Tile::ROWS; i++) {
    T most = max[i];
    for (int j = 0; j < Tile::ROWS; j++) {
      s[i][j] = pp_tile_x() + 16 * j < n[i] ? s[i][j] * scale : none;
      most = pp_maximum::of(s[i][j], most);
    }
    most = pp_half_max(most);
    T shift = most == none ? (T)0 : most, factor = pp_softmax<T>::exp(max[i] - shift);
    max[i] = most;
    sum[i] *= factor;
    for (int j = 0; j < Tile::ROWS; j++) {
      s[i][j] = pp_softmax<T>::exp(s[i][j] - shift);
      sum[i] += s[i][j];
    }
    for (int c = 0; c < Tile::COLUMNS; c++) r[i][c] *= factor;
  }
}

// Block: a tile of queries of one head, the longest first.
template <typename T, int64_t BATCH, int64_t HEADS, int64_t KV_HEADS, int64_t T_Q, int64_t T_KV, int64_t D, bool CAUSAL>
PP_DEVICE void pp_attention_tiled(const T *q, const T *k, const T *v, T *out, T *lse, double scale) {
  constexpr int ROWS = pp_attention_rows(T_Q, D, (int)sizeof(T), PP_ATTENTION_TILES, 1);
  typedef pp_tile<T, D, ROWS> Tile;
  constexpr int64_t N_TILES = pp_ceil_div(T_Q, Tile::SIZE);
  T *q_tile = reinterpret_cast<T *>(pp_shared_memory<pp_attention_shared(ROWS, D, (int)sizeof(T), PP_ATTENTION_TILES, 1)>());
  T *k_tile = q_tile + Tile::SIZE * Tile::STRIDE, *v_tile = k_tile + Tile::SIZE * Tile::STRIDE;
  T *weights = v_tile + Tile::SIZE * Tile::STRIDE;
  int64_t head = (int64_t)blockIdx.x % (BATCH * HEADS), tile = N_TILES - 1 - (int64_t)blockIdx.x / (BATCH * HEADS);
  int64_t first = tile * Tile::SIZE, n_rows = T_Q - first < Tile::SIZE ? T_Q - first : Tile::SIZE;
  int64_t keys = pp_visible<T_Q, T_KV, CAUSAL>(first + n_rows - 1);
  k += pp_kv_head<HEADS, KV_HEADS>(head) * T_KV * D;
  v += pp_kv_head<HEADS, KV_HEADS>(head) * T_KV * D;
  T unit = (T)(scale * (double)pp_softmax<T>::per_unit());
  T r[ROWS][Tile::COLUMNS] = {}, max[ROWS], sum[ROWS];
  for (int i = 0; i < ROWS; i++) {
    max[i] = -(T)INFINITY;
    sum[i] = (T)0;
  }
  pp_tile_load<Tile>(q_tile, q + (head * T_Q + first) * D, n_rows);
  for (int64_t at = 0; at < keys; at += Tile::SIZE) {
    pp_tile_load<Tile>(k_tile, k + at * D, T_KV - at);
    pp_tile_load<Tile>(v_tile, v + at * D, T_KV - at);
    __syncthreads();
    T s[ROWS][ROWS];
    int n[ROWS];
    pp_tile_dot<Tile>(q_tile, k_tile, s);
    for (int i = 0; i < ROWS; i++)
      n[i] = (int)(pp_visible<T_Q, T_KV, CAUSAL>(first + pp_tile_y() * ROWS + i) - at < Tile::SIZE
                       ? pp_visible<T_Q, T_KV, CAUSAL>(first + pp_tile_y() * ROWS + i) - at
                       : Tile::SIZE);
    pp_attention_weigh<Tile>(s, n, unit, max, sum, r);
    pp_tile_put<Tile>(s, weights);
    __syncwarp();
    pp_tile_product<Tile>(weights, v_tile, r);
    __syncthreads();
  }
  for (int i = 0; i < ROWS; i++) {
    T total = pp_half_sum(sum[i]), factor = total == (T)0 ? (T)0 : (T)1 / total;
    for (int c = 0; c < Tile::COLUMNS; c++) r[i][c] *= factor;
    int64_t row = first + pp_tile_y() * ROWS + i;
    if (row < T_Q && pp_tile_x() == 0)
      lse[head * T_Q + row] = total == (T)0 ? -(T)INFINITY : pp_fma(max[i], pp_softmax<T>::unit(), pp_log(total));
  }
  pp_tile_store<Tile>(r, out + head * T_Q * D, first, T_Q);
}

// --- gradient ----------------------------------------------------------------------------------------------------------

// What the gradient needs of this thread's query rows.
template <typename T, int ROWS> struct pp_attention_row {
  T lse[ROWS], delta[ROWS]; // lse in units of pp_softmax; delta = dout · out
};

// Of rows first + y·ROWS …; dout is that tile in shared memory, out and lse lie in global memory.
template <typename Tile, typename T>
PP_DEVICE pp_attention_row<T, Tile::ROWS> pp_attention_start(const T *dout_tile, const T *out, const T *lse, int64_t first, int64_t end) {
  pp_attention_row<T, Tile::ROWS> a;
  for (int i = 0; i < Tile::ROWS; i++) {
    int row = pp_tile_y() * Tile::ROWS + i;
    T delta = (T)0;
    if (first + row < end)
      for (int c = pp_tile_x(); c < (int)Tile::D; c += 16)
        delta = pp_fma(dout_tile[row * Tile::STRIDE + c], out[(first + row) * Tile::D + c], delta);
    a.delta[i] = pp_half_sum(delta);
    a.lse[i] = first + row < end ? lse[first + row] * pp_softmax<T>::per_unit() : (T)0;
  }
  return a;
}

// Weights p of a tile, and ds, the gradient of scores: scale · p · (dout · v - delta). n_visible(i): keys from the
// tile's first on that row i sees; 0 for rows past the end.
template <typename Tile, typename T, typename Visible>
PP_DEVICE void pp_attention_grad_scores(const T *q_tile, const T *k_tile, const T *dout_tile, const T *v_tile,
                                        const pp_attention_row<T, Tile::ROWS> &a, T scale, Visible n_visible,
                                        T p[Tile::ROWS][Tile::ROWS], T ds[Tile::ROWS][Tile::ROWS]) {
  T unit = scale * pp_softmax<T>::per_unit();
  pp_tile_dot<Tile>(q_tile, k_tile, p);
  pp_tile_dot<Tile>(dout_tile, v_tile, ds);
  for (int i = 0; i < Tile::ROWS; i++) {
    int64_t n = n_visible(i);
    for (int j = 0; j < Tile::ROWS; j++) {
      bool sees = pp_tile_x() + 16 * j < n;
      p[i][j] = sees ? pp_softmax<T>::exp(pp_fma(p[i][j], unit, -a.lse[i])) : (T)0;
      ds[i][j] = sees ? p[i][j] * (ds[i][j] - a.delta[i]) * scale : (T)0;
    }
  }
}

// dq. Block: a tile of queries of one head, over all tiles of keys.
template <typename T, int64_t BATCH, int64_t HEADS, int64_t KV_HEADS, int64_t T_Q, int64_t T_KV, int64_t D, bool CAUSAL>
PP_DEVICE void pp_attention_tiled_grad_q(const T *q, const T *k, const T *v, const T *out, const T *lse, const T *dout, T *dq, double scale) {
  constexpr int ROWS = pp_attention_rows(T_Q, D, (int)sizeof(T), PP_ATTENTION_GRAD_TILES, 1);
  typedef pp_tile<T, D, ROWS> Tile;
  constexpr int64_t N_TILES = pp_ceil_div(T_Q, Tile::SIZE);
  T *q_tile = reinterpret_cast<T *>(pp_shared_memory<pp_attention_shared(ROWS, D, (int)sizeof(T), PP_ATTENTION_GRAD_TILES, 1)>());
  T *dout_tile = q_tile + Tile::SIZE * Tile::STRIDE, *k_tile = dout_tile + Tile::SIZE * Tile::STRIDE;
  T *v_tile = k_tile + Tile::SIZE * Tile::STRIDE, *scores = v_tile + Tile::SIZE * Tile::STRIDE;
  int64_t head = (int64_t)blockIdx.x % (BATCH * HEADS), tile = N_TILES - 1 - (int64_t)blockIdx.x / (BATCH * HEADS);
  int64_t first = tile * Tile::SIZE, n_rows = T_Q - first < Tile::SIZE ? T_Q - first : Tile::SIZE;
  int64_t keys = pp_visible<T_Q, T_KV, CAUSAL>(first + n_rows - 1);
  k += pp_kv_head<HEADS, KV_HEADS>(head) * T_KV * D;
  v += pp_kv_head<HEADS, KV_HEADS>(head) * T_KV * D;
  T r[ROWS][Tile::COLUMNS] = {};
  pp_tile_load<Tile>(q_tile, q + (head * T_Q + first) * D, n_rows);
  pp_tile_load<Tile>(dout_tile, dout + (head * T_Q + first) * D, n_rows);
  __syncthreads();
  auto rows = pp_attention_start<Tile>(dout_tile, out + head * T_Q * D, lse + head * T_Q, first, T_Q);
  for (int64_t at = 0; at < keys; at += Tile::SIZE) {
    pp_tile_load<Tile>(k_tile, k + at * D, T_KV - at);
    pp_tile_load<Tile>(v_tile, v + at * D, T_KV - at);
    __syncthreads();
    T p[ROWS][ROWS], ds[ROWS][ROWS];
    auto n_visible = [=](int i) {
      int64_t row = first + pp_tile_y() * ROWS + i;
      return row < T_Q ? pp_visible<T_Q, T_KV, CAUSAL>(row) - at : 0;
    };
    pp_attention_grad_scores<Tile>(q_tile, k_tile, dout_tile, v_tile, rows, (T)scale, n_visible, p, ds);
    pp_tile_put<Tile>(ds, scores);
    __syncwarp();
    pp_tile_product<Tile>(scores, k_tile, r);
    __syncthreads();
  }
  pp_tile_store<Tile>(r, dq + head * T_Q * D, first, T_Q);
}

// dk and dv. Block: a tile of keys of one head of k, over the heads of its group and their tiles of queries.
template <typename T, int64_t BATCH, int64_t HEADS, int64_t KV_HEADS, int64_t T_Q, int64_t T_KV, int64_t D, bool CAUSAL>
PP_DEVICE void pp_attention_tiled_grad_kv(const T *q, const T *k, const T *v, const T *out, const T *lse, const T *dout, T *dk, T *dv,
                                    double scale) {
  constexpr int ROWS = pp_attention_rows(T_KV, D, (int)sizeof(T), PP_ATTENTION_GRAD_TILES, PP_ATTENTION_GRAD_KV_SCORES);
  constexpr int64_t BYTES = pp_attention_shared(ROWS, D, (int)sizeof(T), PP_ATTENTION_GRAD_TILES, PP_ATTENTION_GRAD_KV_SCORES);
  constexpr int64_t GROUP = HEADS / KV_HEADS;
  typedef pp_tile<T, D, ROWS> Tile;
  T *k_tile = reinterpret_cast<T *>(pp_shared_memory<BYTES>());
  T *v_tile = k_tile + Tile::SIZE * Tile::STRIDE, *q_tile = v_tile + Tile::SIZE * Tile::STRIDE;
  T *dout_tile = q_tile + Tile::SIZE * Tile::STRIDE;
  T *weights = dout_tile + Tile::SIZE * Tile::STRIDE, *scores = weights + Tile::SIZE * Tile::SCORES;
  int64_t kv_head = (int64_t)blockIdx.x % (BATCH * KV_HEADS), at = (int64_t)blockIdx.x / (BATCH * KV_HEADS) * Tile::SIZE;
  int64_t lowest = at - (T_KV - T_Q); // of the rows that see the tile, when the mask is causal
  int64_t start = CAUSAL && lowest > 0 ? lowest / Tile::SIZE * Tile::SIZE : 0;
  T dk_rows[ROWS][Tile::COLUMNS] = {}, dv_rows[ROWS][Tile::COLUMNS] = {};
  pp_tile_load<Tile>(k_tile, k + (kv_head * T_KV + at) * D, T_KV - at);
  pp_tile_load<Tile>(v_tile, v + (kv_head * T_KV + at) * D, T_KV - at);
  for (int64_t member = 0; member < GROUP; member++) {
    int64_t head = kv_head / KV_HEADS * HEADS + kv_head % KV_HEADS * GROUP + member;
    for (int64_t first = start; first < T_Q; first += Tile::SIZE) {
      pp_tile_load<Tile>(q_tile, q + (head * T_Q + first) * D, T_Q - first);
      pp_tile_load<Tile>(dout_tile, dout + (head * T_Q + first) * D, T_Q - first);
      __syncthreads();
      auto rows = pp_attention_start<Tile>(dout_tile, out + head * T_Q * D, lse + head * T_Q, first, T_Q);
      T p[ROWS][ROWS], ds[ROWS][ROWS];
      auto n_visible = [=](int i) {
        int64_t row = first + pp_tile_y() * ROWS + i;
        return row < T_Q ? pp_visible<T_Q, T_KV, CAUSAL>(row) - at : 0;
      };
      pp_attention_grad_scores<Tile>(q_tile, k_tile, dout_tile, v_tile, rows, (T)scale, n_visible, p, ds);
      pp_tile_put<Tile>(p, weights);
      pp_tile_put<Tile>(ds, scores);
      __syncthreads();
      pp_tile_transposed_product<Tile>(weights, dout_tile, dv_rows);
      pp_tile_transposed_product<Tile>(scores, q_tile, dk_rows);
      __syncthreads();
    }
  }
  pp_tile_store<Tile>(dk_rows, dk + kv_head * T_KV * D, at, T_KV);
  pp_tile_store<Tile>(dv_rows, dv + kv_head * T_KV * D, at, T_KV);
}

// --- either form: T is float, double or pp_bf16 --------------------------------------------------------------------------

template <typename T, int64_t BATCH, int64_t HEADS, int64_t KV_HEADS, int64_t T_Q, int64_t T_KV, int64_t D, bool CAUSAL>
PP_DEVICE void pp_attention(const T *q, const T *k, const T *v, T *out, typename pp_wide<T>::type *lse, double scale) {
  if constexpr (sizeof(T) == sizeof(pp_bf16)) pp_attention_bf16<BATCH, HEADS, KV_HEADS, T_Q, T_KV, D, CAUSAL>(q, k, v, out, lse, scale);
  else pp_attention_tiled<T, BATCH, HEADS, KV_HEADS, T_Q, T_KV, D, CAUSAL>(q, k, v, out, lse, scale);
}

template <typename T, int64_t BATCH, int64_t HEADS, int64_t KV_HEADS, int64_t T_Q, int64_t T_KV, int64_t D, bool CAUSAL>
PP_DEVICE void pp_attention_grad_q(const T *q, const T *k, const T *v, const T *out, const typename pp_wide<T>::type *lse, const T *dout, T *dq,
                                   double scale) {
  if constexpr (sizeof(T) == sizeof(pp_bf16)) pp_attention_bf16_grad_q<BATCH, HEADS, KV_HEADS, T_Q, T_KV, D, CAUSAL>(q, k, v, out, lse, dout, dq, scale);
  else pp_attention_tiled_grad_q<T, BATCH, HEADS, KV_HEADS, T_Q, T_KV, D, CAUSAL>(q, k, v, out, lse, dout, dq, scale);
}

template <typename T, int64_t BATCH, int64_t HEADS, int64_t KV_HEADS, int64_t T_Q, int64_t T_KV, int64_t D, bool CAUSAL>
PP_DEVICE void pp_attention_grad_kv(const T *q, const T *k, const T *v, const T *out, const typename pp_wide<T>::type *lse, const T *dout, T *dk,
                                    T *dv, double scale) {
  if constexpr (sizeof(T) == sizeof(pp_bf16)) pp_attention_bf16_grad_kv<BATCH, HEADS, KV_HEADS, T_Q, T_KV, D, CAUSAL>(q, k, v, out, lse, dout, dk, dv, scale);
  else pp_attention_tiled_grad_kv<T, BATCH, HEADS, KV_HEADS, T_Q, T_KV, D, CAUSAL>(q, k, v, out, lse, dout, dk, dv, scale);
}

#endif
