/* How the templates of runtime/kernels/cuda are launched: the same numbers for the emitter, which writes them into
 * the table of kernels, and for the templates, which are made for them. Blocks have one dimension. Grids are as
 * large as the work; the templates are right for any grid, but for no other block. C11 and C++17. */
#ifndef PP_CUDA_GEOMETRY_H
#define PP_CUDA_GEOMETRY_H

#include <stdint.h>

#if defined __CUDACC__
#define PP_GEOMETRY __host__ __device__ constexpr
#elif defined __cplusplus
#define PP_GEOMETRY constexpr
#else
#define PP_GEOMETRY static inline
#endif

enum { PP_CUDA_BLOCK = 256, PP_CUDA_STATIC_SHARED = 48 << 10 };

typedef struct pp_geometry {
  int64_t grid[3];
  int block;
  int min_blocks;       /* that are to fit on a multiprocessor: the second launch bound; it sets how many registers there are */
  int64_t shared_bytes; /* dynamic; up to PP_CUDA_STATIC_SHARED a template declares its own */
} pp_geometry;

PP_GEOMETRY int64_t pp_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Values of `bytes` bytes that make a piece of at most 16 bytes and divide rows of `row`. */
PP_GEOMETRY int pp_pack_values(int64_t row, int bytes) {
  int n = 16 / bytes;
  while (row % n) n /= 2;
  return n;
}

/* One thread for each of n pieces of work. */
PP_GEOMETRY pp_geometry pp_flat_geometry(int64_t n) {
  pp_geometry g = {{n > 0 ? pp_ceil_div(n, PP_CUDA_BLOCK) : 1, 1, 1}, PP_CUDA_BLOCK, 1, 0};
  return g;
}

PP_GEOMETRY pp_geometry pp_single_geometry(void) {
  pp_geometry g = {{1, 1, 1}, 1, 1, 0};
  return g;
}

/* out[i] = table[index[i]], i < n, rows of `row` values of `bytes` bytes. */
PP_GEOMETRY pp_geometry pp_gather_geometry(int64_t n, int64_t row, int bytes) {
  return pp_flat_geometry(n * row / pp_pack_values(row, bytes));
}

/* acc (+)= x; `bytes`: of the wider of both types. */
PP_GEOMETRY pp_geometry pp_accumulate_geometry(int64_t n, int bytes) { return pp_flat_geometry(n / pp_pack_values(n, bytes)); }

/* Rows of the table that a block of the scatter-add looks after: few enough for its shared memory, and for small
 * tables to give every multiprocessor a block. */
PP_GEOMETRY int pp_scatter_group(int64_t rows, int wide_bytes) {
  int group = 128 / wide_bytes;
  while (group > 1 && rows / group < 128) group /= 2;
  return group;
}

/* Blocks go through the groups of rows of the table, and for each through the columns of a row; wide_bytes: of what is added in (8 for f64, else 4). */
PP_GEOMETRY pp_geometry pp_scatter_geometry(int64_t rows, int64_t row, int wide_bytes) {
  return pp_flat_geometry(pp_ceil_div(rows, pp_scatter_group(rows, wide_bytes)) * pp_ceil_div(row, PP_CUDA_BLOCK) * PP_CUDA_BLOCK);
}

/* --- attention ------------------------------------------------------------------------------------------------ */

/* Query and key rows are taken 16 · pp_attention_rows() at a time by 16 × 16 threads, a tile of each operand in shared
 * memory. `tiles` operands of d columns and `scores` tiles of scores. */
PP_GEOMETRY int64_t pp_attention_stride(int64_t d, int bytes) {
  int pack = pp_pack_values(d, bytes);
  return (d / pack | 1) * pack; /* rows begin in different banks */
}
PP_GEOMETRY int64_t pp_attention_shared(int64_t rows, int64_t d, int bytes, int tiles, int scores) {
  return (tiles * pp_attention_stride(d, bytes) + scores * (16 * rows + 16 / bytes)) * 16 * rows * bytes;
}
PP_GEOMETRY int pp_attention_rows(int64_t t, int64_t d, int bytes, int tiles, int scores) {
  int rows = t > 32 ? 4 : t > 16 ? 2 : 1;
  while (rows > 1 && pp_attention_shared(rows, d, bytes, tiles, scores) > (72 << 10)) rows /= 2;
  return rows;
}
PP_GEOMETRY pp_geometry pp_attention_tiles_geometry(int64_t heads, int64_t t, int64_t d, int bytes, int tiles, int scores) {
  int rows = pp_attention_rows(t, d, bytes, tiles, scores);
  pp_geometry g = {{heads * pp_ceil_div(t, 16 * rows), 1, 1}, PP_CUDA_BLOCK, 2, pp_attention_shared(rows, d, bytes, tiles, scores)};
  if (g.shared_bytes <= PP_CUDA_STATIC_SHARED) g.shared_bytes = 0;
  return g;
}
enum { PP_ATTENTION_TILES = 3, PP_ATTENTION_GRAD_TILES = 4, PP_ATTENTION_GRAD_KV_SCORES = 2 };

/* bf16: a warp has 16 rows; the other side comes STEP rows at a time. */
enum { PP_ATTENTION_MAX_D = 256 };
PP_GEOMETRY int pp_attention_bf16_parts(int64_t d) { return d > 128 ? 2 : 1; } /* of the columns of dk and dv, a block each */
PP_GEOMETRY int64_t pp_attention_bf16_width(int64_t d) {
  int part = 16 * pp_attention_bf16_parts(d);
  return pp_ceil_div(d, part) * part;
}
PP_GEOMETRY int64_t pp_attention_bf16_stride(int64_t d) { return pp_attention_bf16_width(d) + 8; }
PP_GEOMETRY int pp_attention_bf16_warps(int64_t t) { return t > 32 ? 4 : t > 16 ? 2 : 1; }
PP_GEOMETRY int pp_attention_bf16_step(int64_t d) { return d <= 64 ? 64 : 32; }
/* own: tiles of the block's own rows, beside two of the other side's */
PP_GEOMETRY int64_t pp_attention_bf16_shared(int64_t t, int64_t d, int own) {
  return (own * 16 * pp_attention_bf16_warps(t) + 2 * pp_attention_bf16_step(d)) * pp_attention_bf16_stride(d) * 2;
}
PP_GEOMETRY pp_geometry pp_attention_bf16_geometry(int64_t heads, int64_t t, int64_t d, int own, int parts) {
  int warps = pp_attention_bf16_warps(t);
  pp_geometry g = {{heads * pp_ceil_div(t, 16 * warps) * parts, 1, 1}, 32 * warps, 1, pp_attention_bf16_shared(t, d, own)};
  if (g.shared_bytes <= PP_CUDA_STATIC_SHARED) g.shared_bytes = 0;
  return g;
}

/* heads: batch · heads of q; kv_heads: batch · heads of k. */
PP_GEOMETRY pp_geometry pp_attention_geometry(int64_t heads, int64_t t, int64_t d, int bytes) {
  if (bytes == 2) return pp_attention_bf16_geometry(heads, t, d, 1, 1);
  return pp_attention_tiles_geometry(heads, t, d, bytes, PP_ATTENTION_TILES, 1);
}
PP_GEOMETRY pp_geometry pp_attention_grad_q_geometry(int64_t heads, int64_t t, int64_t d, int bytes) {
  if (bytes == 2) return pp_attention_bf16_geometry(heads, t, d, 2, 1);
  return pp_attention_tiles_geometry(heads, t, d, bytes, PP_ATTENTION_GRAD_TILES, 1);
}
PP_GEOMETRY pp_geometry pp_attention_grad_kv_geometry(int64_t kv_heads, int64_t t_kv, int64_t d, int bytes) {
  if (bytes == 2) return pp_attention_bf16_geometry(kv_heads, t_kv, d, 2, pp_attention_bf16_parts(d));
  return pp_attention_tiles_geometry(kv_heads, t_kv, d, bytes, PP_ATTENTION_GRAD_TILES, PP_ATTENTION_GRAD_KV_SCORES);
}

#endif
