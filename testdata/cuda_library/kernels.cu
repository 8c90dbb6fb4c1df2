// An instance of everything in runtime/kernels/cuda.
#include "runtime/kernels/cuda/attention.cuh"
#include "runtime/kernels/cuda/random.cuh"
#include "runtime/kernels/cuda/rows.cuh"
#include "runtime/kernels/cuda/step.cuh"

#define KERNEL(n) extern "C" __global__ __launch_bounds__(n, 1) void
// Bounds as pp_attention_geometry says.
#define ATTENTION_KERNEL(real) extern "C" __global__ __launch_bounds__(sizeof(real) == 2 ? 128 : 256, sizeof(real) == 2 ? 1 : 2) void

#define GATHER(name, type, suffix, n, row, rows)                                                              \
  KERNEL(256) name(const type *table, const int32_t *index, type *out, pp_fault *fault) {                     \
    pp_gather<type, n, row, rows>(table, index, out, fault, 3, 1);                                            \
  }
#define SCATTER(name, type, suffix, from, from_suffix, n, row, rows)                                          \
  KERNEL(256) name(const from *dy, const int32_t *index, type *out, int accumulate, pp_fault *fault) {        \
    pp_scatter_add<type, from, n, row, rows>(dy, index, out, accumulate, fault, 3, 1);                        \
  }
#define ACCUMULATE(name, type, suffix, from, from_suffix, n)                                                  \
  KERNEL(256) name(const from *x, type *acc, int accumulate) { pp_accumulate<type, from, n>(x, acc, accumulate); }
#define ATTENTION(name, real, suffix, ...)                                                                    \
  ATTENTION_KERNEL(real)                                                                                      \
  name(const real *q, const real *k, const real *v, real *out, pp_wide<real>::type *lse, double scale) {      \
    pp_attention<real, __VA_ARGS__>(q, k, v, out, lse, scale);                                                \
  }                                                                                                           \
  ATTENTION_KERNEL(real)                                                                                      \
  name##_grad_q(const real *q, const real *k, const real *v, const real *out, const pp_wide<real>::type *lse, \
                const real *dout, real *dq, double scale) {                                                   \
    pp_attention_grad_q<real, __VA_ARGS__>(q, k, v, out, lse, dout, dq, scale);                               \
  }                                                                                                           \
  ATTENTION_KERNEL(real)                                                                                      \
  name##_grad_kv(const real *q, const real *k, const real *v, const real *out, const pp_wide<real>::type *lse, \
                 const real *dout, real *dk, real *dv, double scale) {                                        \
    pp_attention_grad_kv<real, __VA_ARGS__>(q, k, v, out, lse, dout, dk, dv, scale);                          \
  }
#include "instances.def"
#undef GATHER
#undef SCATTER
#undef ACCUMULATE
#undef ATTENTION

#define UNARY(type, suffix)                                                                                   \
  KERNEL(256) math_##suffix(const type *x, const type *y, type *out, int n) {                                 \
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);                                                     \
    if (i >= n) return;                                                                                       \
    type a = x[i], b = y[i];                                                                                  \
    out += 13 * i;                                                                                            \
    out[0] = pp_exp_##suffix(a), out[1] = pp_log_##suffix(a), out[2] = pp_tanh_##suffix(a);                   \
    out[3] = pp_erf_##suffix(a), out[4] = pp_sin_##suffix(a), out[5] = pp_cos_##suffix(a);                    \
    out[6] = pp_sqrt_##suffix(a), out[7] = pp_rsqrt_##suffix(a), out[8] = pp_pow_##suffix(a, b);              \
    out[9] = pp_max_##suffix(a, b), out[10] = pp_min_##suffix(a, b);                                          \
    out[11] = (type)pp_i32_from_##suffix(a), out[12] = a / b;                                                 \
  }
UNARY(float, f32)
UNARY(double, f64)

// x [16, n]: sum and maximum of each row, by half a warp.
#define FOLD(type, suffix, least)                                                                             \
  KERNEL(256) fold_##suffix(const type *x, type *out, int n) {                                                \
    int row = (int)threadIdx.x / 16;                                                                          \
    type sum = 0, most = least;                                                                               \
    for (int k = (int)threadIdx.x % 16; k < n; k += 16) {                                                     \
      sum = pp_sum::of(sum, x[row * n + k]);                                                                  \
      most = pp_maximum::of(x[row * n + k], most);                                                            \
    }                                                                                                         \
    sum = pp_half_sum(sum);                                                                                   \
    most = pp_half_max(most);                                                                                 \
    out[threadIdx.x * 2] = sum;                                                                               \
    out[threadIdx.x * 2 + 1] = most;                                                                          \
  }
FOLD(float, f32, -INFINITY)
FOLD(double, f64, -(double)INFINITY)
FOLD(int32_t, i32, INT32_MIN)

KERNEL(256) uniform(const pp_random_state *random, int microbatch, float *out, int n) {
  pp_words stream = pp_random_stream(random, microbatch, 0x123456789abcdefull);
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = pp_random_element(stream, i);
}

KERNEL(256) round_bf16(const float *x, pp_bf16 *narrow, float *wide, int n) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  narrow[i] = pp_convert<pp_bf16>(x[i]);
  wide[i] = pp_convert<float>(narrow[i]);
}

KERNEL(1) step_begin(pp_step_state *state, double *step) { pp_step_begin(state, step); }
KERNEL(1) step_gate(const pp_step_state *state, double *control) { pp_step_gate(state, control); }
KERNEL(1) step_end(pp_step_state *state, const double *control, const double *losses, const double *norms) {
  pp_step_end<3, 2, false>(state, control, losses, norms);
}
KERNEL(1) step_end_skip(pp_step_state *state, const double *control, const double *losses, const double *norms) {
  pp_step_end<3, 2, true>(state, control, losses, norms);
}
KERNEL(1) store_loss(const float *loss, const float *count, double *losses, double *counts) {
  pp_store_loss(loss, count, losses, counts, 1);
}
KERNEL(256) store_output(const float *values, double *slot) { pp_store_output<float, 5>(values, slot, 2); }

#ifdef CHECK_KERNEL
#define GATHER(name, ...) CHECK_KERNEL(name, 256)
#define SCATTER(name, ...) CHECK_KERNEL(name, 256)
#define ACCUMULATE(name, ...) CHECK_KERNEL(name, 256)
#define ATTENTION(name, ...) CHECK_KERNEL(name, 256) CHECK_KERNEL(name##_grad_q, 256) CHECK_KERNEL(name##_grad_kv, 256)
#include "instances.def"
CHECK_KERNEL(math_f32, 256)
CHECK_KERNEL(math_f64, 256)
CHECK_KERNEL(fold_f32, 256)
CHECK_KERNEL(fold_f64, 256)
CHECK_KERNEL(fold_i32, 256)
CHECK_KERNEL(uniform, 256)
CHECK_KERNEL(round_bf16, 256)
CHECK_KERNEL(step_begin, 1)
CHECK_KERNEL(step_gate, 1)
CHECK_KERNEL(step_end, 1)
CHECK_KERNEL(step_end_skip, 1)
CHECK_KERNEL(store_loss, 1)
CHECK_KERNEL(store_output, 256)
#endif
