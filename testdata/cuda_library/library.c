/* The device library against the CPU's functions: the same bits for all but attention, attention within rounding,
 * twice the same bits. Runs kernels.fatbin of this folder, on a GPU or under the checking library. Arguments: names of
 * tests; none: all. Prints "ok NAME" or "FAIL NAME …". */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/geometry.h"
#include "runtime/cuda/state.h"
#include "runtime/kernels/level.h"
#include "runtime/kernels/reduce.h"
#include "runtime/pp.h"

void pp_random_fill_uniform(uint64_t seed, uint64_t step, uint32_t microbatch, uint64_t key, float *dst, int64_t n);
pp_attention_f32_fn PP_LEVELED(pp_attention_f32);
pp_attention_grad_f32_fn PP_LEVELED(pp_attention_grad_f32);
pp_attention_f64_fn PP_LEVELED(pp_attention_f64);
pp_attention_grad_f64_fn PP_LEVELED(pp_attention_grad_f64);
pp_attention_bf16_fn PP_LEVELED(pp_attention_bf16);
pp_attention_grad_bf16_fn PP_LEVELED(pp_attention_grad_bf16);

static cudaLibrary_t library;
static int n_failed, n_failed_here;
static uint64_t seed_state;

/* --- the device -------------------------------------------------------------------------------------------------- */

static void must(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  printf("FAIL %s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}
#define MUST(call) must(call, #call)

enum { MAX_BUFFERS = 16 };
typedef struct {
  void *device, *host; /* host: where it comes back to */
  size_t size_bytes;
} Buffer;
static Buffer buffers[MAX_BUFFERS];
static int n_buffers;

/* A copy of x on the device; what it holds then comes back to x. */
static void *device(void *x, size_t size_bytes) {
  Buffer *b = &buffers[n_buffers++];
  *b = (Buffer){.host = x, .size_bytes = size_bytes};
  MUST(cudaMalloc(&b->device, size_bytes));
  MUST(cudaMemcpyAsync(b->device, x, size_bytes, cudaMemcpyHostToDevice, NULL));
  return b->device;
}

static void launch(const char *name, pp_geometry g, void **arguments) {
  cudaKernel_t kernel;
  must(cudaLibraryGetKernel(&kernel, library, name), name);
  dim3 grid = {(unsigned)g.grid[0], (unsigned)g.grid[1], (unsigned)g.grid[2]}, block = {(unsigned)g.block, 1, 1};
  if (g.shared_bytes)
    must(cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)g.shared_bytes, 0), name);
  must(cudaLaunchKernel((const void *)kernel, grid, block, arguments, (size_t)g.shared_bytes, NULL), name);
}

static void come_back(void) {
  for (int i = 0; i < n_buffers; i++)
    MUST(cudaMemcpyAsync(buffers[i].host, buffers[i].device, buffers[i].size_bytes, cudaMemcpyDeviceToHost, NULL));
  MUST(cudaDeviceSynchronize());
  for (int i = 0; i < n_buffers; i++) MUST(cudaFree(buffers[i].device));
  n_buffers = 0;
}

/* --- values and checks ---------------------------------------------------------------------------------------------- */

static void check(bool ok, const char *name, const char *what) {
  if (ok) return;
  n_failed_here++;
  printf("FAIL %s: %s\n", name, what);
}

static void *room(size_t n, size_t bytes) {
  void *x = aligned_alloc(64, (n * bytes + 63) / 64 * 64);
  if (!x) abort();
  memset(x, 0, (n * bytes + 63) / 64 * 64);
  return x;
}

static uint64_t next_bits(void) {
  seed_state = seed_state * 6364136223846793005ull + 1442695040888963407ull;
  return seed_state >> 11;
}
static double next(void) { return (double)next_bits() * 0x1p-52 - 1; }

#define VALUES(type, suffix, value)                           \
  static type *values_##suffix(int64_t n) {                   \
    type *x = room((size_t)n, sizeof *x);                     \
    for (int64_t i = 0; i < n; i++) x[i] = (type)(value);     \
    return x;                                                 \
  }
VALUES(float, f32, next())
VALUES(double, f64, next())
VALUES(int32_t, i32, next_bits())
VALUES(pp_bf16, bf16, pp_bf16_from_f32((float)next()))

/* What the CPU's functions add: bf16 are f32 there. */
#define ADDED(type, suffix, from, from_suffix, convert)                 \
  static type *added_##suffix##_##from_suffix(const from *x, int64_t n) { \
    type *y = room((size_t)n, sizeof *y);                               \
    for (int64_t i = 0; i < n; i++) y[i] = convert(x[i]);               \
    return y;                                                           \
  }
ADDED(float, f32, float, f32, )
ADDED(double, f64, double, f64, )
ADDED(float, f32, pp_bf16, bf16, pp_f32_from_bf16)

static int32_t *indices(int64_t n, int64_t rows) {
  int32_t *x = room((size_t)n, sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = (int32_t)(next_bits() % (uint64_t)rows * (next_bits() % 3 ? 1 : 0));
  return x;
}

static void same(const void *a, const void *b, size_t size_bytes, const char *name, const char *what) {
  check(memcmp(a, b, size_bytes) == 0, name, what);
}

/* --- rows --------------------------------------------------------------------------------------------------------------- */

/* A wrong index: the lowest position is reported, and only the first time. */
static void check_fault(const pp_fault *fault, const int32_t *index, int bad, int rows, const char *name) {
  pp_fault expected = {0};
  if (bad >= 0) expected = (pp_fault){1, 3, 1, bad, index[bad], rows};
  same(fault, &expected, sizeof *fault, name, "fault word");
}

#define GATHER(name, type, suffix, n, row, rows)                                                              \
  static void test_##name(int bad) {                                                                          \
    type *table = values_##suffix((rows) * (row)), *out = values_##suffix((n) * (row)), *expected = room((n) * (row), sizeof *out); \
    int32_t *index = indices(n, rows), *good = indices(n, rows);                                              \
    pp_fault fault = {0};                                                                                     \
    memcpy(good, index, (n) * sizeof *index);                                                                 \
    if (bad >= 0) index[bad] = (rows), index[bad + 2] = -5, good[bad] = good[bad + 2] = 0;                    \
    pp_gather_##suffix(n, row, table, good, expected);                                                        \
    if (bad >= 0) memset(expected + bad * (row), 0, (row) * sizeof *out), memset(expected + (bad + 2) * (row), 0, (row) * sizeof *out); \
    void *a = device(table, (rows) * (row) * sizeof *table), *b = device(index, (n) * sizeof *index);         \
    void *c = device(out, (n) * (row) * sizeof *out), *d = device(&fault, sizeof fault);                      \
    launch(#name, pp_gather_geometry(n, row, sizeof *out), (void *[]){&a, &b, &c, &d});                       \
    come_back();                                                                                              \
    same(out, expected, (n) * (row) * sizeof *out, #name, "rows");                                            \
    check_fault(&fault, index, bad, rows, #name);                                                             \
    free(table), free(out), free(expected), free(index), free(good);                                          \
  }

#define SCATTER(name, type, suffix, from, from_suffix, n, row, rows)                                          \
  static void test_##name(int accumulate, int bad) {                                                          \
    from *dy = values_##from_suffix((n) * (row));                                                             \
    type *added = added_##suffix##_##from_suffix(dy, (n) * (row));                                            \
    type *out = values_##suffix((rows) * (row)), *expected = room((rows) * (row), sizeof *out);               \
    int32_t *index = indices(n, rows);                                                                        \
    pp_fault fault = {0};                                                                                     \
    memcpy(expected, out, (rows) * (row) * sizeof *out);                                                      \
    int64_t before = bad < 0 ? (n) : bad;                                                                     \
    pp_scatter_add_##suffix(before, row, rows, added, index, expected, accumulate);                              \
    if (bad >= 0) {                                                                                           \
      pp_scatter_add_##suffix((n) - bad - 1, row, rows, added + (bad + 1) * (row), index + bad + 1, expected, 1); \
      index[bad] = (rows) + 7;                                                                                \
    }                                                                                                         \
    void *a = device(dy, (n) * (row) * sizeof *dy), *b = device(index, (n) * sizeof *index);                  \
    void *c = device(out, (rows) * (row) * sizeof *out), *d = device(&fault, sizeof fault);                   \
    launch(#name, pp_scatter_geometry(rows, row, sizeof *out), (void *[]){&a, &b, &c, &accumulate, &d});      \
    come_back();                                                                                              \
    same(out, expected, (rows) * (row) * sizeof *out, #name, "rows");                                         \
    check_fault(&fault, index, bad, rows, #name);                                                             \
    free(dy), free(added), free(out), free(expected), free(index);                                                         \
  }

#define ACCUMULATE(name, type, suffix, from, from_suffix, n)                                                  \
  static void test_##name(int accumulate) {                                                                   \
    from *x = values_##from_suffix(n);                                                                        \
    type *added = added_##suffix##_##from_suffix(x, n), *acc = values_##suffix(n), *expected = room(n, sizeof *acc); \
    memcpy(expected, acc, (n) * sizeof *acc);                                                                 \
    pp_accumulate_##suffix(n, added, expected, accumulate);                                                   \
    void *a = device(x, (n) * sizeof *x), *b = device(acc, (n) * sizeof *acc);                                \
    launch(#name, pp_accumulate_geometry(n, sizeof *acc), (void *[]){&a, &b, &accumulate});                     \
    come_back();                                                                                              \
    same(acc, expected, (n) * sizeof *acc, #name, accumulate ? "sum" : "copy");                                 \
    free(x), free(added), free(acc), free(expected);                                                                       \
  }

/* --- attention ------------------------------------------------------------------------------------------------------------ */

#define DISTANCE(type, suffix, wide)                                                                              \
  static double distance_##suffix(const type *a, const type *b, int64_t n) {                                  \
    double most = 0, size = 0;                                                                                \
    for (int64_t i = 0; i < n; i++) {                                                                         \
      double x = wide(a[i]), y = wide(b[i]);                                                                   \
      if (x == y) continue;                                                                                    \
      double d = fabs(x - y), s = fabs(y);                                                                     \
      most = d > most || d != d ? d : most;                                                                   \
      size = s > size ? s : size;                                                                             \
    }                                                                                                         \
    return most == 0 ? 0 : most / size;                                                                       \
  }
DISTANCE(float, f32, (double))
DISTANCE(double, f64, )
DISTANCE(pp_bf16, bf16, (double)pp_f32_from_bf16)
enum { OUT, LSE, DQ, DK, DV, N_RESULTS };
static const double tolerance_f32 = 1e-5, tolerance_f64 = 1e-12, tolerance_bf16 = 1e-2;

#define ATTENTION_TEST(type, suffix, real, real_suffix, workspace_bytes)                                                                        \
  static void run_##suffix(const char *name, const pp_attention_shape *s, type *in[4], type *result[5], real *lse, const int64_t size[5]) { \
    char grad_q[80], grad_kv[80];                                                                             \
    double scale = s->scale;                                                                                  \
    int64_t heads = s->batch * s->heads, kv_heads = s->batch * s->kv_heads;                                   \
    void *x[4], *y[5];                                                                                        \
    for (int i = 0; i < 4; i++) x[i] = device(in[i], (size_t)size[i == 0 || i == 3 ? OUT : DK] * sizeof(type)); \
    for (int i = 0; i < 5; i++) y[i] = i == LSE ? device(lse, (size_t)size[i] * sizeof *lse) : device(result[i], (size_t)size[i] * sizeof(type));                     \
    snprintf(grad_q, sizeof grad_q, "%s_grad_q", name);                                                       \
    snprintf(grad_kv, sizeof grad_kv, "%s_grad_kv", name);                                                    \
    launch(name, pp_attention_geometry(heads, s->t, s->d, sizeof(type)), (void *[]){&x[0], &x[1], &x[2], &y[0], &y[1], &scale}); \
    launch(grad_q, pp_attention_grad_q_geometry(heads, s->t, s->d, sizeof(type)),                             \
           (void *[]){&x[0], &x[1], &x[2], &y[0], &y[1], &x[3], &y[2], &scale});                              \
    launch(grad_kv, pp_attention_grad_kv_geometry(kv_heads, s->t_kv, s->d, sizeof(type)),                     \
           (void *[]){&x[0], &x[1], &x[2], &y[0], &y[1], &x[3], &y[3], &y[4], &scale});                       \
    come_back();                                                                                              \
  }                                                                                                           \
  static void attention_##suffix(const char *name, const pp_attention_shape *s) {                             \
    int64_t nq = s->batch * s->heads * s->t * s->d, nk = s->batch * s->kv_heads * s->t_kv * s->d;             \
    int64_t size[5] = {nq, s->batch * s->heads * s->t, nq, nk, nk};                                           \
    type *in[4] = {values_##suffix(nq), values_##suffix(nk), values_##suffix(nk), values_##suffix(nq)};       \
    type *expected[5], *first[5], *second[5];                                                                 \
    for (int i = 0; i < 5; i++) expected[i] = values_##suffix(size[i]), first[i] = values_##suffix(size[i]), second[i] = values_##suffix(size[i]); \
    void *workspace = room((size_t)(workspace_bytes), 1); real *lse[3];                                               \
    for (int i = 0; i < 3; i++) lse[i] = values_##real_suffix(size[LSE]);                                     \
    PP_LEVELED(pp_attention_##suffix)(s, in[0], in[1], in[2], expected[0], lse[0], workspace);           \
    PP_LEVELED(pp_attention_grad_##suffix)(s, in[0], in[1], in[2], expected[0], lse[0], in[3], expected[2], expected[3], expected[4], workspace); \
    run_##suffix(name, s, in, first, lse[1], size);                                                                   \
    run_##suffix(name, s, in, second, lse[2], size);                                                                  \
    static const char *const results[5] = {"out", "lse", "dq", "dk", "dv"};                                   \
    check(distance_##real_suffix(lse[1], lse[0], size[LSE]) <= tolerance_##real_suffix, name, "lse");    \
    same(lse[1], lse[2], (size_t)size[LSE] * sizeof(real), name, "other bits of lse in a second run");        \
    for (int i = 0; i < 3; i++) free(lse[i]);                                                                 \
    for (int i = 0; i < 5; i++) {                                                                             \
      check(i == LSE || distance_##suffix(first[i], expected[i], size[i]) <= tolerance_##suffix, name, results[i]);       \
      if (i != LSE) same(first[i], second[i], (size_t)size[i] * sizeof(type), name, "other bits in a second run");          \
      free(expected[i]), free(first[i]), free(second[i]);                                                     \
    }                                                                                                         \
    for (int i = 0; i < 4; i++) free(in[i]);                                                                  \
    free(workspace);                                                                                          \
  }
#define WORKSPACE(bytes) pp_attention_workspace_bytes(s->t, s->t_kv, bytes, 1)
ATTENTION_TEST(float, f32, float, f32, WORKSPACE(4))
ATTENTION_TEST(double, f64, double, f64, WORKSPACE(8))
ATTENTION_TEST(pp_bf16, bf16, float, f32, pp_attention_bf16_workspace_bytes(s->heads / s->kv_heads, s->t, s->t_kv, s->d, 1))

#define ATTENTION(name, type, suffix, batch, heads, kv_heads, t, t_kv, d, causal)                             \
  static void test_##name(void) {                                                                             \
    attention_##suffix(#name, &(pp_attention_shape){batch, heads, kv_heads, t, t_kv, d, causal, 0.9 / sqrt(d)}); \
  }
#include "instances.def"
#undef GATHER
#undef SCATTER
#undef ACCUMULATE
#undef ATTENTION

/* --- elementary functions, reductions, random numbers ------------------------------------------------------------------- */

static bool same_value(double a, double b) { return (a != a && b != b) || (a == b && signbit(a) == signbit(b)); }

#define MATH(type, suffix)                                                                                    \
  static void test_math_##suffix(void) {                                                                      \
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-310, -1e-40, 1e30, 3e9, -3e9, 0.5, 2.5}; \
    enum { N = 1000, N_SPECIAL = sizeof special / sizeof *special };                                          \
    type *x = values_##suffix(N), *y = values_##suffix(N), *out = values_##suffix(13 * N);                    \
    for (int i = 0; i < N; i++) {                                                                             \
      x[i] *= i % 2 ? 8 : 100;                                                                                \
      if (i < N_SPECIAL * N_SPECIAL) x[i] = (type)special[i / N_SPECIAL], y[i] = (type)special[i % N_SPECIAL]; \
    }                                                                                                         \
    int n = N;                                                                                                \
    void *a = device(x, N * sizeof *x), *b = device(y, N * sizeof *x), *c = device(out, 13 * N * sizeof *x);  \
    launch("math_" #suffix, pp_flat_geometry(N), (void *[]){&a, &b, &c, &n});                                 \
    come_back();                                                                                              \
    bool ok = true;                                                                                           \
    for (int i = 0; i < N; i++) {                                                                             \
      type p = x[i], q = y[i];                                                                                \
      type expected[13] = {pp_exp_##suffix(p), pp_log_##suffix(p), pp_tanh_##suffix(p), pp_erf_##suffix(p), pp_sin_##suffix(p), \
                           pp_cos_##suffix(p), pp_sqrt_##suffix(p), pp_rsqrt_##suffix(p), pp_pow_##suffix(p, q), \
                           pp_max_##suffix(p, q), pp_min_##suffix(p, q), (type)pp_i32_from_##suffix(p), p / q}; \
      for (int f = 0; f < 13; f++) ok &= same_value((double)out[13 * i + f], (double)expected[f]);            \
    }                                                                                                         \
    check(ok, "math_" #suffix, "other bits");                                                                 \
    free(x), free(y), free(out);                                                                              \
  }
MATH(float, f32)
MATH(double, f64)

#define FOLD(type, suffix, least, put)                                                                        \
  static void test_fold_##suffix(void) {                                                                      \
    enum { N = 100 };                                                                                         \
    type *x = values_##suffix(16 * N), *out = values_##suffix(512);                                           \
    put;                                                                                                      \
    int n = N;                                                                                                \
    void *a = device(x, 16 * N * sizeof *x), *b = device(out, 512 * sizeof *x);                               \
    launch("fold_" #suffix, pp_flat_geometry(256), (void *[]){&a, &b, &n});                                   \
    come_back();                                                                                              \
    bool ok = true;                                                                                           \
    for (int r = 0; r < 16; r++) {                                                                            \
      type sum[16], most[16];                                                                                 \
      for (int l = 0; l < 16; l++) sum[l] = 0, most[l] = least;                                               \
      for (int k = 0; k < N; k++) {                                                                           \
        sum[k % 16] = pp_add_##suffix(sum[k % 16], x[r * N + k]);                                             \
        most[k % 16] = pp_max_##suffix(x[r * N + k], most[k % 16]);                                           \
      }                                                                                                       \
      for (int l = 0; l < 16; l++) {                                                                          \
        ok &= same_value((double)out[(r * 16 + l) * 2], (double)pp_fold_sum_##suffix(sum, 1));                \
        ok &= same_value((double)out[(r * 16 + l) * 2 + 1], (double)pp_fold_max_##suffix(most, 1));           \
      }                                                                                                       \
    }                                                                                                         \
    check(ok, "fold_" #suffix, "other bits");                                                                 \
    free(x), free(out);                                                                                       \
  }
/* a row with a NaN, one of zeros of both signs */
#define SPECIAL (x[5] = NAN, memset(x + N, 0, N * sizeof *x), x[N + 3] = -0.0, x[N + 11] = -0.0)
FOLD(float, f32, -INFINITY, SPECIAL)
FOLD(double, f64, -INFINITY, SPECIAL)
FOLD(int32_t, i32, INT32_MIN, (void)0)

static void test_uniform(void) {
  enum { N = 500 };
  float *out = values_f32(N), *expected = values_f32(N);
  pp_random_state state = {0x1122334455667788ull, 0x9900000007ull};
  int microbatch = 5, n = N;
  pp_random_fill_uniform(state.seed, state.step, 5, 0x123456789abcdefull, expected, N);
  void *a = device(&state, sizeof state), *b = device(out, N * sizeof *out);
  launch("uniform", pp_flat_geometry(N), (void *[]){&a, &microbatch, &b, &n});
  come_back();
  same(out, expected, N * sizeof *out, "uniform", "other bits");
  free(out), free(expected);
}

static void test_round_bf16(void) {
  static const float x[] = {1.0f, 1.00390625f, 1.01171875f, -1.00390637f, 3.4e38f, 0x1p-130f, INFINITY, -0.0f, NAN};
  static const pp_bf16 expected[] = {0x3f80, 0x3f80, 0x3f82, 0xbf81, 0x7f80, 0x0008, 0x7f80, 0x8000, 0x7fc0};
  enum { N = sizeof x / sizeof *x };
  float in[N], wide[N];
  pp_bf16 narrow[N] = {0};
  memcpy(in, x, sizeof x), memcpy(wide, x, sizeof x);
  int n = N;
  void *a = device(in, sizeof in), *b = device(narrow, sizeof narrow), *c = device(wide, sizeof wide);
  launch("round_bf16", pp_flat_geometry(N), (void *[]){&a, &b, &c, &n});
  come_back();
  for (int i = 0; i < N; i++) {
    check((narrow[i] & (x[i] != x[i] ? 0x7fc0 : 0xffff)) == expected[i], "round_bf16", "rounding");
    check(pp_bits_f32(wide[i]) == (uint32_t)narrow[i] << 16, "round_bf16", "widening");
  }
}

/* --- a step --------------------------------------------------------------------------------------------------------------- */

typedef struct {
  pp_step_state state;
  double step, control[PP_CONTROL_SIZE], losses[3], norms[2];
} Step;

static void make_step(Step *s, const char *end, double apply, double count) {
  s->control[PP_CONTROL_APPLY] = apply;
  s->control[PP_CONTROL_DIVISOR] = count;
  void *a = device(&s->state, sizeof s->state), *b = device(&s->step, sizeof s->step), *c = device(s->control, sizeof s->control);
  void *d = device(s->losses, sizeof s->losses), *e = device(s->norms, sizeof s->norms);
  launch("step_begin", pp_single_geometry(), (void *[]){&a, &b});
  launch("step_gate", pp_single_geometry(), (void *[]){&a, &c});
  launch(end, pp_single_geometry(), (void *[]){&a, &c, &d, &e});
  come_back();
}

static void test_step(void) {
  Step s = {.losses = {1, 2, 3}, .norms = {1, 1}};
  make_step(&s, "step_end", 1, 3);
  check(s.step == 1 && s.state.random.step == 1 && s.state.updates == 1, "step", "an update");
  make_step(&s, "step_end", 0, 0);
  check(s.step == 2 && s.state.updates == 1 && s.state.n_skipped == 1 && s.state.skip.uncounted && s.state.skip.step == 2 && !s.state.stopped, "step", "no target");
  s.losses[2] = NAN;
  make_step(&s, "step_end_skip", 0, 3);
  check(s.step == 2 && s.state.updates == 1 && !s.state.stopped && s.state.skip.microbatch == 2 && isnan(s.state.skip.value), "step", "a step left out");
  s.losses[2] = 3, s.norms[1] = INFINITY;
  make_step(&s, "step_end", 0, 3);
  check(s.state.stopped && s.state.skip.step == 4 && s.state.skip.microbatch == -1 && s.state.skip.parameter == 1 && isinf(s.state.skip.value), "step", "a stop");
  make_step(&s, "step_end", 1, 3);
  check(s.control[PP_CONTROL_APPLY] == 0 && s.state.updates == 1 && s.state.skip.step == 4, "step", "after a stop");
  s.state.stopped = 0, s.state.fault.set = 1;
  make_step(&s, "step_end", 1, 3);
  check(s.control[PP_CONTROL_APPLY] == 0 && s.state.updates == 1, "step", "after a fault");
}

static void test_store(void) {
  float loss = 1.5f, count = 7, values[5] = {1, 2, 3, 4, 5};
  double losses[3] = {0}, counts[3] = {0}, slot[20] = {0};
  void *a = device(&loss, 4), *b = device(&count, 4), *none = NULL, *c = device(losses, sizeof losses), *d = device(counts, sizeof counts);
  void *e = device(values, sizeof values), *f = device(slot, sizeof slot);
  launch("store_loss", pp_single_geometry(), (void *[]){&a, &b, &c, &d});
  launch("store_output", pp_flat_geometry(5), (void *[]){&e, &f});
  come_back();
  check(losses[1] == 1.5 && counts[1] == 7 && losses[0] == 0 && losses[2] == 0, "store", "loss pair");
  for (int i = 0; i < 20; i++) check(slot[i] == (i >= 10 && i < 15 ? i - 9 : 0), "store", "output");
  a = device(&loss, 4), c = device(losses, sizeof losses), d = device(counts, sizeof counts);
  launch("store_loss", pp_single_geometry(), (void *[]){&a, &none, &c, &d});
  come_back();
  check(counts[1] == 1, "store", "plain loss");
}

/* ---------------------------------------------------------------------------------------------------------------------------- */

static int n_names;
static char **names;

static bool is_chosen(const char *name) {
  for (int i = 0; i < n_names; i++)
    if (strcmp(names[i], name) == 0) return true;
  return n_names == 0;
}

#define RUN(name, calls)                            \
  if (is_chosen(#name)) {                           \
    n_failed_here = 0;                              \
    seed_state = 1234567;                           \
    calls;                                          \
    if (!n_failed_here) printf("ok %s\n", #name);   \
    n_failed += n_failed_here;                      \
    fflush(stdout);                                 \
  }

int main(int argc, char **argv) {
  n_names = argc - 1, names = argv + 1;
  pp_matmul_set_threads(1);
  MUST(cudaLibraryLoadFromFile(&library, "kernels.fatbin", NULL, NULL, 0, NULL, NULL, 0));
#define GATHER(name, ...) RUN(name, (test_##name(-1), test_##name(4)))
#define SCATTER(name, ...) RUN(name, (test_##name(0, -1), test_##name(1, -1), test_##name(0, 9)))
#define ACCUMULATE(name, ...) RUN(name, (test_##name(0), test_##name(1)))
#define ATTENTION(name, ...) RUN(name, test_##name())
#include "instances.def"
  RUN(math_f32, test_math_f32())
  RUN(math_f64, test_math_f64())
  RUN(fold_f32, test_fold_f32())
  RUN(fold_f64, test_fold_f64())
  RUN(fold_i32, test_fold_i32())
  RUN(uniform, test_uniform())
  RUN(round_bf16, test_round_bf16())
  RUN(step, test_step())
  RUN(store, test_store())
  MUST(cudaLibraryUnload(library));
  return n_failed != 0;
}
