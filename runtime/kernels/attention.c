/* Attention and its gradient for f32, f64 and bf16, built once for each x86-64 level (see level.h): the
 * text is attention_body.h, included once for each type. */
#include <string.h>

#include "runtime/kernels/bf16.h"
#include "runtime/kernels/level.h"
#include "runtime/kernels/reduce.h"
#include "runtime/pp.h"

#define REAL float
#define T(name) PP_PASTE(name, _f32)
#include "runtime/kernels/attention_body.h"
#undef REAL
#undef T

#define REAL double
#define T(name) PP_PASTE(name, _f64)
#include "runtime/kernels/attention_body.h"
#undef REAL
#undef T

/* --- bf16: what belongs to one key head is widened, computed in f32, and rounded ------------------------- */

static float *widened(float **free_space, const uint16_t *from, int64_t n) {
  float *to = *free_space;
  *free_space += (n + PP_LANES - 1) / PP_LANES * PP_LANES;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] = pp_f32_from_bf16(from[i]);
  return to;
}

static float *room(float **free_space, int64_t n) {
  float *at = *free_space;
  *free_space += (n + PP_LANES - 1) / PP_LANES * PP_LANES;
  return at;
}

static void narrow(const float *from, uint16_t *to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] = pp_bf16_from_f32(from[i]);
}

/* One key head with its query heads. */
static pp_attention_shape one_key_head(const pp_attention_shape *s) {
  pp_attention_shape one = *s;
  one.batch = one.kv_heads = 1;
  one.heads = s->heads / s->kv_heads;
  return one;
}

static float *behind_rows(const pp_attention_shape *s, void *workspace, int gradient) {
  return (float *)(void *)((char *)workspace + pp_attention_workspace_bytes(s->t, s->t_kv, 4, gradient));
}

void PP_LEVELED(pp_attention_bf16)(const pp_attention_shape *s, const uint16_t *q, const uint16_t *k,
                                   const uint16_t *v, uint16_t *out, float *lse, void *workspace) {
  pp_attention_shape one = one_key_head(s);
  int64_t queries = one.heads * s->t * s->d, keys = s->t_kv * s->d;
  for (int64_t h = 0; h < s->batch * s->kv_heads; h++) {
    float *space = behind_rows(s, workspace, 0), *o = room(&space, queries);
    float *x = widened(&space, q + h * queries, queries);
    float *y = widened(&space, k + h * keys, keys), *z = widened(&space, v + h * keys, keys);
    PP_LEVELED(pp_attention_f32)(&one, x, y, z, o, lse + h * one.heads * s->t, workspace);
    narrow(o, out + h * queries, queries);
  }
}

void PP_LEVELED(pp_attention_grad_bf16)(const pp_attention_shape *s, const uint16_t *q, const uint16_t *k,
                                        const uint16_t *v, const uint16_t *out, const float *lse,
                                        const uint16_t *dout, uint16_t *dq, uint16_t *dk, uint16_t *dv,
                                        void *workspace) {
  pp_attention_shape one = one_key_head(s);
  int64_t queries = one.heads * s->t * s->d, keys = s->t_kv * s->d;
  for (int64_t h = 0; h < s->batch * s->kv_heads; h++) {
    float *space = behind_rows(s, workspace, 1), *x = widened(&space, q + h * queries, queries);
    float *o = widened(&space, out + h * queries, queries), *d_o = widened(&space, dout + h * queries, queries);
    float *y = widened(&space, k + h * keys, keys), *z = widened(&space, v + h * keys, keys);
    float *dx = room(&space, queries), *dy = room(&space, keys), *dz = room(&space, keys);
    PP_LEVELED(pp_attention_grad_f32)(&one, x, y, z, o, lse + h * one.heads * s->t, d_o, dx, dy, dz, workspace);
    narrow(dx, dq + h * queries, queries);
    narrow(dy, dk + h * keys, keys);
    narrow(dz, dv + h * keys, keys);
  }
}
