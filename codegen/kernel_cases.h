/* Kernels for the tests of emitters: hand-built ones (layer norm, softmax, column sums, concat, pad, optimizer
 * in place, …), every op alone, and random ones; an interpreter that runs their ops one by one; the comparison
 * to the bit. A test includes runtime/kernels/math.h and this, once, and says how kernels are run (run_all). */
#ifndef PPC_KERNEL_CASES_H
#define PPC_KERNEL_CASES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/emit.h"
#include "codegen/kernel.h"

static int n_failed;

static uint64_t state = 42;
static uint32_t next(void) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(state >> 33);
}
static int below(int n) { return (int)(next() % (uint32_t)n); }

/* --- building -------------------------------------------------------------------------------------- */

typedef struct {
  Arena *arena;
  PlanKernel kernel;
  PlanType inputs[16];
  PlanNode nodes[256];
  int outputs[16];
} Build;

static Build *start(Arena *arena, const char *name) {
  Build *b = arena_alloc(arena, sizeof *b);
  b->arena = arena;
  b->kernel.name = arena_strdup(arena, name);
  b->kernel.inputs = b->inputs, b->kernel.nodes = b->nodes, b->kernel.outputs = b->outputs;
  return b;
}

static PlanType shape(pp_dtype dtype, int rank, const int64_t *dims) {
  PlanType t = {.dtype = dtype, .rank = rank};
  if (rank) memcpy(t.dims, dims, sizeof *dims * (size_t)rank);
  return t;
}
#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}

static const PlanType *type_of(const PlanKernel *k, int v) { return v < k->n_inputs ? &k->inputs[v] : &k->nodes[v - k->n_inputs].type; }

static int input(Build *b, pp_dtype dtype, int rank, const int64_t *dims) {
  b->inputs[b->kernel.n_inputs] = shape(dtype, rank, dims);
  return b->kernel.n_inputs++;
}

static int node(Build *b, PlanOp op, PlanType type, int n_in, const int *in, PlanAttrs attrs) {
  int *copy = arena_alloc_array(b->arena, (size_t)n_in, sizeof *copy);
  if (n_in) memcpy(copy, in, sizeof *in * (size_t)n_in);
  b->nodes[b->kernel.n_nodes] = (PlanNode){.op = op, .n_in = n_in, .in = copy, .type = type, .attrs = attrs};
  return b->kernel.n_inputs + b->kernel.n_nodes++;
}

static int map1(Build *b, PlanOp op, int x) { return node(b, op, *type_of(&b->kernel, x), 1, &x, (PlanAttrs){0}); }
static int map2(Build *b, PlanOp op, int x, int y) { return node(b, op, *type_of(&b->kernel, x), 2, (int[]){x, y}, (PlanAttrs){0}); }
static int select3(Build *b, int c, int x, int y) { return node(b, PLAN_OP_SELECT, *type_of(&b->kernel, x), 3, (int[]){c, x, y}, (PlanAttrs){0}); }
static int compare(Build *b, const char *predicate, int x, int y) {
  PlanType t = *type_of(&b->kernel, x);
  t.dtype = PP_BOOL;
  return node(b, PLAN_OP_COMPARE, t, 2, (int[]){x, y}, (PlanAttrs){.predicate = predicate});
}
static int cast(Build *b, int x, pp_dtype dtype) {
  PlanType t = *type_of(&b->kernel, x);
  t.dtype = dtype;
  return node(b, PLAN_OP_CAST, t, 1, &x, (PlanAttrs){0});
}
static int constant(Build *b, PlanType t, double value) {
  return node(b, PLAN_OP_CONSTANT, t, 0, NULL, (PlanAttrs){.value = value, .integer = (int64_t)value});
}
static const int64_t *keep(Build *b, int n, const int64_t *v) {
  int64_t *copy = arena_alloc_array(b->arena, (size_t)n, sizeof *copy);
  if (n) memcpy(copy, v, sizeof *v * (size_t)n);
  return copy;
}
static int broadcast(Build *b, int x, int rank, const int64_t *dims) {
  return node(b, PLAN_OP_BROADCAST, shape(type_of(&b->kernel, x)->dtype, rank, dims), 1, &x, (PlanAttrs){0});
}
static int reshape(Build *b, int x, int rank, const int64_t *dims) {
  return node(b, PLAN_OP_RESHAPE, shape(type_of(&b->kernel, x)->dtype, rank, dims), 1, &x, (PlanAttrs){0});
}
static int reduce(Build *b, PlanOp op, int x, int n, const int64_t *axes) {
  const PlanType *t = type_of(&b->kernel, x);
  PlanType r = {.dtype = t->dtype};
  for (int i = 0; i < t->rank; i++) {
    bool reduced = false;
    for (int j = 0; j < n; j++) reduced |= axes[j] == i;
    if (!reduced) r.dims[r.rank++] = t->dims[i];
  }
  return node(b, op, r, 1, &x, (PlanAttrs){.axes = keep(b, n, axes), .n_axes = n});
}
static int permute(Build *b, int x, const int64_t *axes) {
  const PlanType *t = type_of(&b->kernel, x);
  PlanType r = *t;
  for (int i = 0; i < t->rank; i++) r.dims[i] = t->dims[axes[i]];
  return node(b, PLAN_OP_PERMUTE, r, 1, &x, (PlanAttrs){.axes = keep(b, t->rank, axes), .n_axes = t->rank});
}
static int slice(Build *b, int x, const int64_t *starts, const int64_t *limits) {
  const PlanType *t = type_of(&b->kernel, x);
  PlanType r = *t;
  for (int i = 0; i < t->rank; i++) r.dims[i] = limits[i] - starts[i];
  return node(b, PLAN_OP_SLICE, r, 1, &x, (PlanAttrs){.axes = keep(b, t->rank, starts), .limits = keep(b, t->rank, limits), .n_axes = t->rank});
}
static int pad(Build *b, int x, const int64_t *before, const int64_t *after) {
  const PlanType *t = type_of(&b->kernel, x);
  PlanType r = *t;
  for (int i = 0; i < t->rank; i++) r.dims[i] += before[i] + after[i];
  return node(b, PLAN_OP_PAD, r, 1, &x, (PlanAttrs){.axes = keep(b, t->rank, before), .limits = keep(b, t->rank, after), .n_axes = t->rank});
}
static int concat(Build *b, int n, const int *x, int axis) {
  PlanType r = *type_of(&b->kernel, x[0]);
  for (int i = 1; i < n; i++) r.dims[axis] += type_of(&b->kernel, x[i])->dims[axis];
  return node(b, PLAN_OP_CONCAT, r, n, x, (PlanAttrs){.integer = axis});
}
static void output(Build *b, int v) { b->outputs[b->kernel.n_outputs++] = v; }

/* --- the interpreter: values are doubles, rounded to their type after each op --------------------------- */

static int64_t elements(const PlanType *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->dims[i];
  return n;
}
static void unravel(int64_t at, const PlanType *t, int64_t *index) {
  for (int i = t->rank - 1; i >= 0; i--) index[i] = at % t->dims[i], at /= t->dims[i];
}
static int64_t ravel(const int64_t *index, const PlanType *t) {
  int64_t at = 0;
  for (int i = 0; i < t->rank; i++) at = at * t->dims[i] + index[i];
  return at;
}

static double unary(PlanOp op, pp_dtype d, double x) {
  float f = (float)x;
#define BOTH(name) (d == PP_F32 ? (double)pp_##name##_f32(f) : pp_##name##_f64(x))
  switch (op) {
  case PLAN_OP_NEG: return d == PP_I32 ? pp_neg_i32((int32_t)x) : -x;
  case PLAN_OP_EXP: return BOTH(exp);
  case PLAN_OP_LOG: return BOTH(log);
  case PLAN_OP_TANH: return BOTH(tanh);
  case PLAN_OP_SQRT: return BOTH(sqrt);
  case PLAN_OP_RSQRT: return BOTH(rsqrt);
  case PLAN_OP_ERF: return BOTH(erf);
  case PLAN_OP_SIN: return BOTH(sin);
  case PLAN_OP_COS: return BOTH(cos);
  case PLAN_OP_NOT: return x == 0;
  default: abort();
  }
}

static double binary(PlanOp op, pp_dtype d, double x, double y) {
  int32_t a = d == PP_I32 ? (int32_t)x : 0, b = d == PP_I32 ? (int32_t)y : 0;
  float f = (float)x, g = (float)y;
  switch (op) {
  case PLAN_OP_ADD: return d == PP_I32 ? pp_add_i32(a, b) : d == PP_F32 ? (double)(f + g) : x + y;
  case PLAN_OP_SUB: return d == PP_I32 ? pp_sub_i32(a, b) : d == PP_F32 ? (double)(f - g) : x - y;
  case PLAN_OP_MUL: return d == PP_I32 ? pp_mul_i32(a, b) : d == PP_F32 ? (double)(f * g) : x * y;
  case PLAN_OP_DIV: return d == PP_I32 ? pp_div_i32(a, b) : d == PP_F32 ? (double)(f / g) : x / y;
  case PLAN_OP_POW: return d == PP_F32 ? (double)pp_pow_f32(f, g) : pp_pow_f64(x, y);
  case PLAN_OP_MIN: return pp_min_f64(x, y);
  case PLAN_OP_MAX: return pp_max_f64(x, y);
  case PLAN_OP_AND: return x != 0 && y != 0;
  case PLAN_OP_OR: return x != 0 || y != 0;
  default: abort();
  }
}

static double convert(pp_dtype from, pp_dtype to, double x) {
  if (to == PP_BOOL) return x != 0;
  if (to == PP_F32) return (double)(float)x;
  if (to == PP_I32) return from == PP_F32 ? pp_i32_from_f32((float)x) : from == PP_F64 ? pp_i32_from_f64(x) : x;
  return x;
}

static double compared(const char *p, double x, double y) {
  return !strcmp(p, "eq") ? x == y : !strcmp(p, "ne") ? x != y : !strcmp(p, "lt") ? x < y : !strcmp(p, "le") ? x <= y : !strcmp(p, "gt") ? x > y : x >= y;
}

/* Sums of whole tensors of more elements go in chunks: on devices. */
static int64_t sum_chunk = INT64_MAX;

/* n elements by the rule. */
static double fold(const PlanNode *node, int64_t n, const double *x) {
  bool max = node->op == PLAN_OP_REDUCE_MAX;
  double lane[16];
  for (int l = 0; l < 16; l++) lane[l] = !max ? 0 : node->type.dtype == PP_I32 ? INT32_MIN : -(double)INFINITY;
  for (int64_t i = 0; i < n; i++) lane[i % 16] = binary(max ? PLAN_OP_MAX : PLAN_OP_ADD, node->type.dtype, lane[i % 16], x[i]);
  for (int half = 8; half; half /= 2)
    for (int l = 0; l < half; l++) lane[l] = binary(max ? PLAN_OP_MAX : PLAN_OP_ADD, node->type.dtype, lane[l], lane[l + half]);
  return lane[0];
}

static double fold_chunks(const PlanNode *node, int64_t n, const double *x) {
  int64_t n_chunks = (n + sum_chunk - 1) / sum_chunk;
  double *partial = malloc(sizeof *partial * (size_t)n_chunks);
  for (int64_t c = 0; c < n_chunks; c++) partial[c] = fold(node, n - c * sum_chunk < sum_chunk ? n - c * sum_chunk : sum_chunk, x + c * sum_chunk);
  double sum = fold(node, n_chunks, partial);
  free(partial);
  return sum;
}

static void interpret_reduce(const PlanNode *n, const PlanType *t, const double *x, double *y) {
  int64_t count = elements(&n->type), size = elements(t);
  bool max = n->op == PLAN_OP_REDUCE_MAX;
  if (count == 1 && size > sum_chunk) {
    y[0] = fold_chunks(n, size, x);
    return;
  }
  double(*lane)[16] = malloc(sizeof *lane * (size_t)count);
  int64_t *seen = calloc((size_t)count, sizeof *seen);
  for (int64_t i = 0; i < count; i++)
    for (int l = 0; l < 16; l++) lane[i][l] = !max ? 0 : n->type.dtype == PP_I32 ? INT32_MIN : -(double)INFINITY;
  for (int64_t at = 0; at < size; at++) {
    int64_t index[PP_MAX_RANK], kept[PP_MAX_RANK];
    int n_kept = 0;
    unravel(at, t, index);
    for (int i = 0; i < t->rank; i++) {
      bool reduced = false;
      for (int j = 0; j < n->attrs.n_axes; j++) reduced |= n->attrs.axes[j] == i;
      if (!reduced) kept[n_kept++] = index[i];
    }
    int64_t o = ravel(kept, &n->type), l = seen[o]++ % 16;
    lane[o][l] = binary(max ? PLAN_OP_MAX : PLAN_OP_ADD, n->type.dtype, lane[o][l], x[at]);
  }
  for (int64_t i = 0; i < count; i++) {
    for (int half = 8; half; half /= 2)
      for (int l = 0; l < half; l++) lane[i][l] = binary(max ? PLAN_OP_MAX : PLAN_OP_ADD, n->type.dtype, lane[i][l], lane[i][l + half]);
    y[i] = lane[i][0];
  }
  free(lane);
  free(seen);
}

static double random_element(uint64_t key, int64_t i) { return (double)(float)(((uint64_t)i * 2654435761u + key) % 1000) / 1024; }

static double interpret_element(const PlanKernel *k, const PlanNode *n, double **values, int64_t at) {
  int64_t index[PP_MAX_RANK] = {0}, inner[PP_MAX_RANK] = {0};
  unravel(at, &n->type, index);
  const PlanType *t = n->n_in ? type_of(k, n->in[0]) : NULL;
  const double *x = n->n_in ? values[n->in[0]] : NULL;
  switch (n->op) {
  case PLAN_OP_CONSTANT: return n->type.dtype == PP_F32 ? (double)(float)n->attrs.value : n->type.dtype == PP_F64 ? n->attrs.value : (double)n->attrs.integer;
  case PLAN_OP_IOTA: return (double)index[n->attrs.integer];
  case PLAN_OP_RANDOM: return random_element((uint64_t)n->attrs.integer, at);
  case PLAN_OP_COMPARE: return compared(n->attrs.predicate, x[at], values[n->in[1]][at]);
  case PLAN_OP_SELECT: return values[n->in[x[at] != 0 ? 1 : 2]][at];
  case PLAN_OP_CAST: return convert(t->dtype, n->type.dtype, x[at]);
  case PLAN_OP_RESHAPE: return x[at];
  case PLAN_OP_PERMUTE:
    for (int i = 0; i < t->rank; i++) inner[n->attrs.axes[i]] = index[i];
    return x[ravel(inner, t)];
  case PLAN_OP_BROADCAST:
    for (int i = 0; i < t->rank; i++) inner[i] = t->dims[i] == 1 ? 0 : index[i];
    return x[ravel(inner, t)];
  case PLAN_OP_SLICE:
    for (int i = 0; i < t->rank; i++) inner[i] = index[i] + n->attrs.axes[i];
    return x[ravel(inner, t)];
  case PLAN_OP_PAD:
    for (int i = 0; i < t->rank; i++) {
      inner[i] = index[i] - n->attrs.axes[i];
      if (inner[i] < 0 || inner[i] >= t->dims[i]) return 0;
    }
    return x[ravel(inner, t)];
  case PLAN_OP_CONCAT:
    for (int i = 0;; i++) {
      const PlanType *s = type_of(k, n->in[i]);
      if (index[n->attrs.integer] < s->dims[n->attrs.integer]) return values[n->in[i]][ravel(index, s)];
      index[n->attrs.integer] -= s->dims[n->attrs.integer];
    }
  default:
    return n->n_in == 1 ? unary(n->op, n->type.dtype, x[at]) : binary(n->op, n->type.dtype, x[at], values[n->in[1]][at]);
  }
}

static void interpret(const PlanKernel *k, double **values) {
  for (int i = 0; i < k->n_nodes; i++) {
    const PlanNode *n = &k->nodes[i];
    int64_t count = elements(&n->type);
    double *y = values[k->n_inputs + i] = malloc(sizeof *y * (size_t)count);
    if (n->op == PLAN_OP_REDUCE_SUM || n->op == PLAN_OP_REDUCE_MAX) {
      interpret_reduce(n, type_of(k, n->in[0]), values[n->in[0]], y);
      continue;
    }
    for (int64_t at = 0; at < count; at++) y[at] = interpret_element(k, n, values, at);
  }
}

/* --- running kernels ------------------------------------------------------------------------------------ */

static int element_bytes(pp_dtype d) { return d == PP_F64 ? 8 : d == PP_BOOL ? 1 : 4; }
static void put(void *buffer, pp_dtype d, int64_t i, double x) {
  if (d == PP_F32) ((float *)buffer)[i] = (float)x;
  else if (d == PP_F64) ((double *)buffer)[i] = x;
  else if (d == PP_I32) ((int32_t *)buffer)[i] = (int32_t)x;
  else ((uint8_t *)buffer)[i] = x != 0;
}
static double get(const void *buffer, pp_dtype d, int64_t i) {
  return d == PP_F32 ? (double)((const float *)buffer)[i] : d == PP_F64 ? ((const double *)buffer)[i]
         : d == PP_I32 ? ((const int32_t *)buffer)[i] : ((const uint8_t *)buffer)[i];
}
static bool same_bits(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b); /* the sign and payload of a NaN are open */
  return !memcmp(&a, &b, sizeof a);
}

static double random_value(pp_dtype d) {
  if (d == PP_BOOL) return below(2);
  if (d == PP_I32) return below(41) - 20;
  switch (below(40)) {
  case 0: return 0;
  case 1: return -0.0;
  case 2: return 1;
  default: break;
  }
  double x = (double)((int)(next() & 0xffffff) - 0x800000) / 0x200000;
  return d == PP_F32 ? (double)(float)x : x + (double)next() * 0x1p-54;
}

typedef void Call(int number, void **a);

static void write_text(const char *dir, const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  if (!f || fputs(text, f) < 0 || fclose(f)) perror(path), exit(2);
}

/* Each output, and each input, is in one pair at most. */
static void share_in_place(const PlanKernel *k, void **a) {
  for (int i = 0; i < k->n_in_place; i++) {
    int output = k->n_inputs + k->in_place[2 * i], input = k->in_place[2 * i + 1];
    bool taken = false;
    for (int j = 0; j < i; j++) taken |= k->in_place[2 * j] == k->in_place[2 * i] || k->in_place[2 * j + 1] == input;
    if (taken) continue;
    free(a[output]);
    a[output] = a[input];
  }
}

static bool run_kernel(const PlanKernel *k, int number, Call *call, const char *what) {
  int n = k->n_inputs + k->n_outputs, n_values = k->n_inputs + k->n_nodes;
  double **values = calloc((size_t)n_values, sizeof *values);
  void **a = calloc((size_t)n + 1, sizeof *a);
  bool ok = true;
  for (int i = 0; i < n; i++) {
    int v = i < k->n_inputs ? i : k->outputs[i - k->n_inputs];
    const PlanType *t = type_of(k, v);
    int64_t count = elements(t);
    size_t bytes = (size_t)(count * element_bytes(t->dtype));
    a[i] = aligned_alloc(64, (bytes + 64 + 63) / 64 * 64);
    memset(a[i], 0xff, bytes + 64);
    if (i >= k->n_inputs) continue;
    values[i] = malloc(sizeof(double) * (size_t)count);
    for (int64_t j = 0; j < count; j++) put(a[i], t->dtype, j, values[i][j] = random_value(t->dtype));
  }
  share_in_place(k, a);
  interpret(k, values);
  call(number, a);
  for (int o = 0; o < k->n_outputs && ok; o++) {
    const PlanType *t = type_of(k, k->outputs[o]);
    int64_t count = elements(t);
    for (int64_t j = 0; j < count && ok; j++) {
      double got = get(a[k->n_inputs + o], t->dtype, j), want = values[k->outputs[o]][j];
      if (same_bits(got, want)) continue;
      printf("FAIL %s %s: output %d element %lld is %a, not %a\n", what, k->name, o, (long long)j, got, want);
      ok = false;
    }
    const unsigned char *end = (const unsigned char *)a[k->n_inputs + o] + count * element_bytes(t->dtype);
    for (int j = 0; j < 64; j++)
      if (end[j] != 0xff && ok) printf("FAIL %s %s: output %d written behind its end\n", what, k->name, o), ok = false;
  }
  for (int i = 0; i < n; i++) {
    bool shared = false;
    for (int j = 0; j < i; j++) shared |= a[j] == a[i];
    if (!shared) free(a[i]);
  }
  for (int i = 0; i < n_values; i++) free(values[i]);
  free(values), free(a);
  return ok;
}

/* Emits, compiles, loads and runs these kernels: each test in its own way. `options`: of the compiler. */
static void run_all(Arena *arena, Build **builds, int n, const char *what, const char *options);

/* --- hand-built kernels ------------------------------------------------------------------------------------------ */

#define F32 PP_F32
#define F64 PP_F64
#define I32 PP_I32
#define BOOL PP_BOOL

static int mean(Build *b, int x, int64_t rows, int64_t cols) {
  int s = reduce(b, PLAN_OP_REDUCE_SUM, x, 1, (int64_t[]){1});
  int r = reshape(b, s, DIMS(rows, 1));
  return map2(b, PLAN_OP_DIV, r, constant(b, *type_of(&b->kernel, r), (double)cols));
}

static Build *layer_norm(Arena *a, pp_dtype d, int64_t rows, int64_t cols, const char *name) {
  Build *b = start(a, name);
  int x = input(b, d, DIMS(rows, cols)), w = input(b, d, DIMS(cols)), bias = input(b, d, DIMS(cols));
  int xc = map2(b, PLAN_OP_SUB, x, broadcast(b, mean(b, x, rows, cols), DIMS(rows, cols)));
  int var = mean(b, map2(b, PLAN_OP_MUL, xc, xc), rows, cols);
  int rstd = map1(b, PLAN_OP_RSQRT, map2(b, PLAN_OP_ADD, var, constant(b, *type_of(&b->kernel, var), 1e-5)));
  int y = map2(b, PLAN_OP_MUL, xc, broadcast(b, rstd, DIMS(rows, cols)));
  int wb = broadcast(b, reshape(b, w, DIMS(1, cols)), DIMS(rows, cols)), bb = broadcast(b, reshape(b, bias, DIMS(1, cols)), DIMS(rows, cols));
  output(b, y);
  output(b, map2(b, PLAN_OP_ADD, map2(b, PLAN_OP_MUL, y, wb), bb));
  output(b, rstd);
  return b;
}

static Build *layer_norm_grad(Arena *a, int64_t rows, int64_t cols) {
  Build *b = start(a, "layer_norm_grad");
  int y = input(b, F32, DIMS(rows, cols)), dy = input(b, F32, DIMS(rows, cols)), rstd = input(b, F32, DIMS(rows, 1));
  int m = broadcast(b, mean(b, dy, rows, cols), DIMS(rows, cols));
  int my = broadcast(b, mean(b, map2(b, PLAN_OP_MUL, dy, y), rows, cols), DIMS(rows, cols));
  int dx = map2(b, PLAN_OP_SUB, map2(b, PLAN_OP_SUB, dy, m), map2(b, PLAN_OP_MUL, y, my));
  output(b, map2(b, PLAN_OP_MUL, broadcast(b, rstd, DIMS(rows, cols)), dx));
  return b;
}

static Build *softmax(Arena *a, pp_dtype d, int64_t rows, int64_t cols, const char *name) {
  Build *b = start(a, name);
  int x = input(b, d, DIMS(rows, cols));
  int m = broadcast(b, reshape(b, reduce(b, PLAN_OP_REDUCE_MAX, x, 1, (int64_t[]){1}), DIMS(rows, 1)), DIMS(rows, cols));
  int e = map1(b, PLAN_OP_EXP, map2(b, PLAN_OP_SUB, x, m));
  int s = reshape(b, reduce(b, PLAN_OP_REDUCE_SUM, e, 1, (int64_t[]){1}), DIMS(rows, 1));
  output(b, map2(b, PLAN_OP_DIV, e, broadcast(b, s, DIMS(rows, cols))));
  output(b, map1(b, PLAN_OP_LOG, s));
  return b;
}

static Build *column_sums(Arena *a, int64_t rows, int64_t cols, const char *name) {
  Build *b = start(a, name);
  int x = input(b, F32, DIMS(rows, cols)), y = input(b, F32, DIMS(rows, cols)), r = input(b, F32, DIMS(rows, 1));
  int p = map2(b, PLAN_OP_MUL, map2(b, PLAN_OP_MUL, x, y), broadcast(b, r, DIMS(rows, cols)));
  output(b, reduce(b, PLAN_OP_REDUCE_SUM, p, 1, (int64_t[]){0}));
  output(b, reduce(b, PLAN_OP_REDUCE_SUM, x, 1, (int64_t[]){0}));
  output(b, reduce(b, PLAN_OP_REDUCE_MAX, x, 1, (int64_t[]){0}));
  return b;
}

static Build *adamw(Arena *a, int64_t n, int64_t m) {
  Build *b = start(a, "adamw");
  int p = input(b, F32, DIMS(n, m)), g = input(b, F32, DIMS(n, m)), m1 = input(b, F32, DIMS(n, m)), v = input(b, F32, DIMS(n, m));
  PlanType t = *type_of(&b->kernel, p), scalar = {.dtype = F64};
  int step = input(b, F64, 0, NULL);
  int c1 = cast(b, map2(b, PLAN_OP_SUB, constant(b, scalar, 1), map2(b, PLAN_OP_POW, constant(b, scalar, 0.9), step)), F32);
  int nm = map2(b, PLAN_OP_ADD, map2(b, PLAN_OP_MUL, constant(b, t, 0.9), m1), map2(b, PLAN_OP_MUL, constant(b, t, 0.1), g));
  int nv = map2(b, PLAN_OP_ADD, map2(b, PLAN_OP_MUL, constant(b, t, 0.999), v), map2(b, PLAN_OP_MUL, map2(b, PLAN_OP_MUL, constant(b, t, 0.001), g), g));
  int hat = map2(b, PLAN_OP_DIV, nm, broadcast(b, c1, DIMS(n, m)));
  int up = map2(b, PLAN_OP_DIV, hat, map2(b, PLAN_OP_ADD, map1(b, PLAN_OP_SQRT, nv), constant(b, t, 1e-8)));
  output(b, map2(b, PLAN_OP_SUB, p, map2(b, PLAN_OP_MUL, constant(b, t, 1e-3), up)));
  output(b, nm);
  output(b, nv);
  b->kernel.n_in_place = 3;
  b->kernel.in_place = arena_alloc(a, sizeof(int[6]));
  memcpy((int *)b->kernel.in_place, (int[]){0, 0, 1, 2, 2, 3}, sizeof(int[6]));
  b->kernel.names = "p,g,m,v,step;p_new,m_new,v_new";
  return b;
}

static Build *gelu(Arena *a, bool exact) {
  Build *b = start(a, exact ? "gelu_exact" : "gelu_tanh");
  int x = input(b, F32, DIMS(33, 67)), bias = input(b, F32, DIMS(67));
  PlanType t = *type_of(&b->kernel, x);
  x = map2(b, PLAN_OP_ADD, x, broadcast(b, reshape(b, bias, DIMS(1, 67)), DIMS(33, 67)));
  int cube = map2(b, PLAN_OP_MUL, x, map2(b, PLAN_OP_MUL, x, x));
  int in = exact ? map2(b, PLAN_OP_MUL, x, constant(b, t, 0.70710678118654752))
                 : map2(b, PLAN_OP_MUL, constant(b, t, 0.79788456), map2(b, PLAN_OP_ADD, x, map2(b, PLAN_OP_MUL, constant(b, t, 0.044715), cube)));
  int e = map1(b, exact ? PLAN_OP_ERF : PLAN_OP_TANH, in);
  output(b, map2(b, PLAN_OP_MUL, map2(b, PLAN_OP_MUL, constant(b, t, 0.5), x), map2(b, PLAN_OP_ADD, constant(b, t, 1), e)));
  output(b, x);
  return b;
}

static Build *cross_entropy(Arena *a) {
  Build *b = start(a, "cross_entropy");
  int64_t rows = 12, cols = 100;
  int x = input(b, F32, DIMS(3, 4, cols)), target = input(b, I32, DIMS(3, 4));
  x = reshape(b, x, DIMS(rows, cols));
  int m = reshape(b, reduce(b, PLAN_OP_REDUCE_MAX, x, 1, (int64_t[]){1}), DIMS(rows, 1));
  int z = map2(b, PLAN_OP_SUB, x, broadcast(b, m, DIMS(rows, cols)));
  int s = reduce(b, PLAN_OP_REDUCE_SUM, map1(b, PLAN_OP_EXP, z), 1, (int64_t[]){1});
  int classes = node(b, PLAN_OP_IOTA, shape(I32, DIMS(rows, cols)), 0, NULL, (PlanAttrs){.integer = 1});
  int hot = compare(b, "eq", classes, broadcast(b, reshape(b, target, DIMS(rows, 1)), DIMS(rows, cols)));
  int picked = reduce(b, PLAN_OP_REDUCE_SUM, select3(b, hot, z, constant(b, *type_of(&b->kernel, z), 0)), 1, (int64_t[]){1});
  int loss = map2(b, PLAN_OP_SUB, map1(b, PLAN_OP_LOG, s), picked);
  output(b, loss);
  output(b, reduce(b, PLAN_OP_REDUCE_SUM, loss, 1, (int64_t[]){0}));
  return b;
}

static Build *rope(Arena *a) {
  Build *b = start(a, "rope");
  int x = input(b, F32, DIMS(2, 3, 5, 8)), c = input(b, F32, DIMS(5, 8)), s = input(b, F32, DIMS(5, 8));
  int left = slice(b, x, (int64_t[]){0, 0, 0, 0}, (int64_t[]){2, 3, 5, 4}), right = slice(b, x, (int64_t[]){0, 0, 0, 4}, (int64_t[]){2, 3, 5, 8});
  int turned = concat(b, 2, (int[]){map1(b, PLAN_OP_NEG, right), left}, 3);
  int cb = broadcast(b, reshape(b, c, DIMS(1, 1, 5, 8)), DIMS(2, 3, 5, 8)), sb = broadcast(b, reshape(b, s, DIMS(1, 1, 5, 8)), DIMS(2, 3, 5, 8));
  int y = map2(b, PLAN_OP_ADD, map2(b, PLAN_OP_MUL, x, cb), map2(b, PLAN_OP_MUL, turned, sb));
  output(b, permute(b, y, (int64_t[]){0, 2, 1, 3}));
  return b;
}

static Build *moves(Arena *a) {
  Build *b = start(a, "moves");
  int x = input(b, F32, DIMS(6, 4)), y = input(b, F32, DIMS(3, 4));
  int c = concat(b, 3, (int[]){y, x, y}, 0);
  int p = pad(b, c, (int64_t[]){1, 2}, (int64_t[]){0, 3});
  output(b, p);
  output(b, map1(b, PLAN_OP_NEG, reshape(b, permute(b, p, (int64_t[]){1, 0}), DIMS(9, 13))));
  output(b, reduce(b, PLAN_OP_REDUCE_SUM, p, 2, (int64_t[]){0, 1}));
  output(b, reduce(b, PLAN_OP_REDUCE_SUM, pad(b, c, (int64_t[]){1, 2}, (int64_t[]){0, 0}), 1, (int64_t[]){0}));
  return b;
}

static Build *norms(Arena *a) {
  Build *b = start(a, "norms");
  int x[6];
  for (int i = 0; i < 6; i++) x[i] = input(b, F64, 0, NULL);
  int vector = input(b, F64, DIMS(5));
  int parts[7];
  for (int i = 0; i < 6; i++) parts[i] = reshape(b, x[i], DIMS(1));
  parts[6] = vector;
  int all = concat(b, 7, parts, 0);
  output(b, all);
  output(b, map1(b, PLAN_OP_SQRT, reduce(b, PLAN_OP_REDUCE_SUM, map2(b, PLAN_OP_MUL, all, all), 1, (int64_t[]){0})));
  return b;
}

static Build *squared_norm(Arena *a) {
  Build *b = start(a, "squared_norm");
  int g = input(b, F32, DIMS(37, 65));
  int w = cast(b, g, F64);
  output(b, reduce(b, PLAN_OP_REDUCE_SUM, map2(b, PLAN_OP_MUL, w, w), 2, (int64_t[]){0, 1}));
  return b;
}

static Build *dropout(Arena *a) {
  Build *b = start(a, "dropout");
  PlanType t = shape(F32, DIMS(20, 30));
  int x = input(b, F32, DIMS(20, 30));
  int r = node(b, PLAN_OP_RANDOM, t, 0, NULL, (PlanAttrs){.integer = 77});
  int keep_it = compare(b, "ge", r, constant(b, t, 0.1));
  output(b, select3(b, keep_it, map2(b, PLAN_OP_DIV, x, constant(b, t, 0.9)), constant(b, t, 0)));
  output(b, keep_it);
  b->kernel.uses_call = true;
  return b;
}

static Build *random_alone(Arena *a) {
  Build *b = start(a, "random_alone");
  output(b, node(b, PLAN_OP_RANDOM, shape(F32, DIMS(7, 9)), 0, NULL, (PlanAttrs){.integer = 5}));
  b->kernel.uses_call = true;
  return b;
}

static Build *middle_sums(Arena *a) {
  Build *b = start(a, "middle_sums");
  int x = input(b, F32, DIMS(3, 20, 5, 35)), i = input(b, I32, DIMS(4, 50));
  output(b, reduce(b, PLAN_OP_REDUCE_SUM, x, 1, (int64_t[]){1}));
  output(b, reduce(b, PLAN_OP_REDUCE_SUM, x, 2, (int64_t[]){0, 2}));
  output(b, reduce(b, PLAN_OP_REDUCE_SUM, x, 2, (int64_t[]){1, 3}));
  output(b, reduce(b, PLAN_OP_REDUCE_MAX, x, 3, (int64_t[]){0, 1, 3}));
  output(b, reduce(b, PLAN_OP_REDUCE_SUM, i, 1, (int64_t[]){1}));
  output(b, reduce(b, PLAN_OP_REDUCE_MAX, i, 1, (int64_t[]){0}));
  return b;
}

static void test_hand_built(Arena *a) {
  Build *all[] = {
      layer_norm(a, F32, 7, 48, "layer_norm_48"), layer_norm(a, F32, 3, 50, "layer_norm_50"), layer_norm(a, F64, 5, 7, "layer_norm_7"),
      layer_norm_grad(a, 6, 33), softmax(a, F32, 5, 64, "softmax_64"), softmax(a, F32, 4, 39, "softmax_39"), softmax(a, F64, 4, 16, "softmax_16"),
      softmax(a, F32, 2, 20000, "softmax_wide"), column_sums(a, 40, 300, "column_sums_300"), column_sums(a, 5, 17, "column_sums_17"),
      adamw(a, 6, 11), gelu(a, true), gelu(a, false), cross_entropy(a), rope(a), moves(a), norms(a), squared_norm(a), dropout(a),
      random_alone(a), middle_sums(a),
  };
  run_all(a, all, sizeof all / sizeof *all, "hand-built", "-O3");
}

/* --- every op alone ------------------------------------------------------------------------------------------------ */

static void test_ops(Arena *a) {
  static const PlanOp unary_ops[] = {PLAN_OP_NEG, PLAN_OP_EXP, PLAN_OP_LOG, PLAN_OP_TANH, PLAN_OP_SQRT, PLAN_OP_RSQRT, PLAN_OP_ERF, PLAN_OP_SIN, PLAN_OP_COS};
  static const PlanOp binary_ops[] = {PLAN_OP_ADD, PLAN_OP_SUB, PLAN_OP_MUL, PLAN_OP_DIV, PLAN_OP_POW, PLAN_OP_MIN, PLAN_OP_MAX};
  static const char *const predicates[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  VEC(Build *) all = {0};
  for (int d = 0; d < 3; d++) {
    for (int i = 0; i < 9; i++) {
      if (d == I32 && i) continue;
      Build *b = start(a, arena_printf(a, "unary_%d_%d", i, d));
      output(b, map1(b, unary_ops[i], input(b, (pp_dtype)d, DIMS(5, 13))));
      VEC_PUSH(a, &all, b);
    }
    for (int i = 0; i < 7; i++) {
      if (d == I32 && binary_ops[i] == PLAN_OP_POW) continue;
      Build *b = start(a, arena_printf(a, "binary_%d_%d", i, d));
      int x = input(b, (pp_dtype)d, DIMS(70)), y = input(b, (pp_dtype)d, DIMS(70));
      output(b, map2(b, binary_ops[i], x, y));
      VEC_PUSH(a, &all, b);
    }
    for (int i = 0; i < 6; i++) {
      Build *b = start(a, arena_printf(a, "compare_%d_%d", i, d));
      int x = input(b, (pp_dtype)d, DIMS(70)), y = input(b, (pp_dtype)d, DIMS(70));
      output(b, compare(b, predicates[i], x, y));
      VEC_PUSH(a, &all, b);
    }
  }
  for (int from = 0; from < 4; from++)
    for (int to = 0; to < 4; to++) {
      Build *b = start(a, arena_printf(a, "cast_%d_%d", from, to));
      output(b, cast(b, input(b, (pp_dtype)from, DIMS(70)), (pp_dtype)to));
      VEC_PUSH(a, &all, b);
    }
  Build *b = start(a, "logic");
  int x = input(b, BOOL, DIMS(50)), y = input(b, BOOL, DIMS(50)), f = input(b, F64, DIMS(50)), g = input(b, F64, DIMS(50));
  output(b, map2(b, PLAN_OP_AND, x, y));
  output(b, map2(b, PLAN_OP_OR, x, map1(b, PLAN_OP_NOT, y)));
  output(b, select3(b, x, f, g));
  output(b, select3(b, x, y, x));
  VEC_PUSH(a, &all, b);
  static const double odd[] = {INFINITY, -INFINITY, NAN, -0.0, 1e-45, 3.4e38, 0.1, 1e300, -7};
  b = start(a, "constants");
  for (int i = 0; i < 9; i++)
    for (int d = 0; d < 2; d++) {
      int n = constant(b, shape((pp_dtype)d, DIMS(3)), odd[i]);
      if (b->kernel.n_outputs < 15) output(b, map2(b, PLAN_OP_SUB, n, constant(b, shape((pp_dtype)d, DIMS(3)), -1.5)));
    }
  VEC_PUSH(a, &all, b);
  run_all(a, all.at, all.n, "ops", "-O3");
}

/* --- random kernels --------------------------------------------------------------------------------------------------- */

static bool same_shape(const PlanType *x, const PlanType *y) { return x->rank == y->rank && !memcmp(x->dims, y->dims, sizeof *x->dims * (size_t)x->rank); }

/* A value of this shape and type: one that exists, else a new constant or input-like iota. */
static int find_like(Build *b, const PlanType *t) {
  int n = b->kernel.n_inputs + b->kernel.n_nodes;
  for (int tries = 0; tries < 30; tries++) {
    int v = below(n);
    const PlanType *u = type_of(&b->kernel, v);
    if (u->dtype == t->dtype && same_shape(t, u)) return v;
  }
  int scalar = constant(b, (PlanType){.dtype = t->dtype}, t->dtype == PP_BOOL ? below(2) : below(9) - 4);
  return t->rank ? broadcast(b, scalar, t->rank, t->dims) : scalar;
}

static void add_reduce(Build *b, int x) {
  const PlanType *t = type_of(&b->kernel, x);
  if (t->rank == 0 || t->dtype == PP_BOOL) return;
  int64_t axes[PP_MAX_RANK], kept[PP_MAX_RANK];
  int n = 0;
  bool trailing = below(2);
  for (int i = 0; i < t->rank; i++) {
    kept[i] = t->dims[i];
    if (trailing ? i == t->rank - 1 : below(2)) kept[i] = 1, axes[n++] = i;
  }
  if (!n) return;
  PlanType full = *t;
  int r = reduce(b, below(3) ? PLAN_OP_REDUCE_SUM : PLAN_OP_REDUCE_MAX, x, n, axes);
  if (below(3)) broadcast(b, reshape(b, r, full.rank, kept), full.rank, full.dims);
}

static void add_move(Build *b, int x) {
  PlanType t = *type_of(&b->kernel, x);
  if (t.rank == 0) return;
  int64_t p[PP_MAX_RANK], q[PP_MAX_RANK];
  int axis = below(t.rank);
  switch (below(6)) {
  case 0: /* merge two axes, or split one */
    if (t.rank >= 2 && below(2)) {
      int i = below(t.rank - 1), n = 0;
      for (int j = 0; j < t.rank; j++) p[n++] = t.dims[j];
      p[i] *= p[i + 1];
      for (int j = i + 1; j + 1 < n; j++) p[j] = p[j + 1];
      reshape(b, x, n - 1, p);
    } else {
      int64_t all = elements(&t);
      for (int64_t f = 2; f < 7; f++)
        if (all % f == 0) { reshape(b, x, DIMS(f, all / f)); break; }
    }
    return;
  case 1:
    for (int i = 0; i < t.rank; i++) p[i] = i;
    for (int i = 0; i < t.rank; i++) {
      int j = below(t.rank);
      int64_t s = p[i];
      p[i] = p[j], p[j] = s;
    }
    permute(b, x, p);
    return;
  case 2:
    for (int i = 0; i < t.rank; i++) p[i] = below((int)t.dims[i]), q[i] = p[i] + 1 + below((int)(t.dims[i] - p[i]));
    slice(b, x, p, q);
    return;
  case 3:
    for (int i = 0; i < t.rank; i++) p[i] = q[i] = 0;
    p[axis] = below(3), q[axis] = below(3);
    if (elements(&t) < 5000) pad(b, x, p, q);
    return;
  case 4: {
    int parts[3] = {x, find_like(b, &t), x};
    if (elements(&t) < 5000) concat(b, 2 + below(2), parts, axis);
    return;
  }
  default:
    if (t.dims[axis] == 1 && elements(&t) < 5000) {
      memcpy(p, t.dims, sizeof p);
      p[axis] = 2 + below(20);
      broadcast(b, x, t.rank, p);
    }
    return;
  }
}

static void add_map(Build *b, int x) {
  static const PlanOp real_unary[] = {PLAN_OP_NEG, PLAN_OP_EXP, PLAN_OP_TANH, PLAN_OP_SQRT, PLAN_OP_ERF, PLAN_OP_SIN, PLAN_OP_LOG};
  static const PlanOp number_binary[] = {PLAN_OP_ADD, PLAN_OP_SUB, PLAN_OP_MUL, PLAN_OP_MAX, PLAN_OP_MIN, PLAN_OP_DIV, PLAN_OP_ADD, PLAN_OP_MUL};
  PlanType t = *type_of(&b->kernel, x);
  if (t.dtype == PP_BOOL) {
    if (below(3) == 0) {
      map1(b, PLAN_OP_NOT, x);
      return;
    }
    PlanType v = t;
    v.dtype = (pp_dtype)below(3);
    int y = find_like(b, &v);
    select3(b, x, y, find_like(b, &v));
    return;
  }
  int choice = below(10);
  if (choice == 0) cast(b, x, (pp_dtype)below(4));
  else if (choice == 1) compare(b, below(2) ? "lt" : "eq", x, find_like(b, &t));
  else if (choice < 5 && t.dtype != PP_I32) map1(b, real_unary[below(7)], x);
  else map2(b, number_binary[below(8)], x, find_like(b, &t));
}

static Build *random_kernel(Arena *a, int number) {
  static const int64_t sizes[] = {1, 2, 3, 5, 16, 17, 32, 48};
  Build *b = start(a, arena_printf(a, "random_%d", number));
  int64_t dims[4];
  int rank = 1 + below(4), n_inputs = 1 + below(4);
  for (int i = 0; i < rank; i++) dims[i] = sizes[below(rank > 2 ? 6 : 8)];
  for (int i = 0; i < n_inputs; i++) {
    int64_t d[4];
    memcpy(d, dims, sizeof d);
    if (below(3) == 0) d[below(rank)] = 1;
    input(b, below(5) ? PP_F32 : (pp_dtype)below(4), rank, d);
  }
  int n_nodes = 1 + below(16);
  while (b->kernel.n_nodes < n_nodes) {
    int n = b->kernel.n_inputs + b->kernel.n_nodes, x = below(3) ? n - 1 : below(n);
    const PlanType *t = type_of(&b->kernel, x);
    int choice = below(10);
    if (choice == 0 && t->rank) node(b, PLAN_OP_IOTA, shape(PP_I32, t->rank, t->dims), 0, NULL, (PlanAttrs){.integer = below(t->rank)});
    else if (choice < 3) add_reduce(b, x);
    else if (choice < 5) add_move(b, x);
    else add_map(b, x);
  }
  int n = b->kernel.n_inputs + b->kernel.n_nodes;
  bool *used = arena_alloc_array(a, (size_t)n, sizeof *used);
  for (int i = 0; i < b->kernel.n_nodes; i++)
    for (int j = 0; j < b->nodes[i].n_in; j++) used[b->nodes[i].in[j]] = true;
  for (int v = b->kernel.n_inputs; v < n; v++)
    if ((!used[v] || below(8) == 0) && b->kernel.n_outputs < 16) output(b, v);
  return b;
}

static void test_random(int count) {
  for (int first = 0; first < count; first += 100) {
    Arena *a = arena_create();
    Build *all[100];
    int n = count - first < 100 ? count - first : 100;
    for (int i = 0; i < n; i++) all[i] = random_kernel(a, first + i);
    run_all(a, all, n, "random", first % 400 == 0 ? "-O3" : "-O1");
    arena_destroy(a);
  }
}

#endif
