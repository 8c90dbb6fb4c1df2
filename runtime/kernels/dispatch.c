/* Chooses at run time among objects built for x86-64-v2, v3, v4 or the baseline. Levels that were
 * not linked are absent (weak symbols): the best that is there and that the CPU has is called. */
#include <stdlib.h>

#include "runtime/kernels/level.h"
#include "runtime/pp.h"

static int detect(void) {
#if defined __x86_64__ && (defined __clang__ || __GNUC__ >= 12)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return 4;
  if (__builtin_cpu_supports("x86-64-v3")) return 3;
  if (__builtin_cpu_supports("x86-64-v2")) return 2;
#elif defined __x86_64__
  __builtin_cpu_init();
  int v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  int v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
  int v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return v4 ? 4 : v3 ? 3 : v2 ? 2 : 0;
#endif
  return 0;
}

int pp_cpu_level(void) {
  int level = detect();
  const char *text = getenv("PP_CPU_LEVEL");
  if (text && text[0] >= '2' && text[0] <= '4' && text[1] == 0 && text[0] - '0' < level) level = text[0] - '0';
  return level;
}

#define WEAK __attribute__((weak))
#define ATTENTION(real, v)                                                                          \
  WEAK void pp_attention_##v(const pp_attention_shape *s, const real *q, const real *k,             \
                             const real *value, real *out, real *lse, void *workspace);
#define ATTENTION_GRAD(real, v)                                                                     \
  WEAK void pp_attention_grad_##v(const pp_attention_shape *s, const real *q, const real *k,        \
                                  const real *value, const real *out, const real *lse,              \
                                  const real *dout, real *dq, real *dk, real *dv, void *workspace);
#define ALL_LEVELS(X, real, suffix) X(real, suffix##_v0) X(real, suffix##_v2) X(real, suffix##_v3) X(real, suffix##_v4)
ALL_LEVELS(ATTENTION, float, f32)
ALL_LEVELS(ATTENTION, double, f64)
ALL_LEVELS(ATTENTION_GRAD, float, f32)
ALL_LEVELS(ATTENTION_GRAD, double, f64)

#define CHOOSE(name)                                                                                \
  (level >= 4 && name##_v4 ? name##_v4 : level >= 3 && name##_v3 ? name##_v3                        \
                                       : level >= 2 && name##_v2 ? name##_v2                        \
                                                                 : name##_v0)
#define DISPATCH(real, suffix)                                                                      \
  void pp_attention_##suffix(const pp_attention_shape *s, const real *q, const real *k,             \
                             const real *v, real *out, real *lse, void *workspace) {                \
    int level = pp_cpu_level();                                                                     \
    CHOOSE(pp_attention_##suffix)(s, q, k, v, out, lse, workspace);                                 \
  }                                                                                                 \
  void pp_attention_grad_##suffix(const pp_attention_shape *s, const real *q, const real *k,        \
                                  const real *v, const real *out, const real *lse,                  \
                                  const real *dout, real *dq, real *dk, real *dv, void *workspace) { \
    int level = pp_cpu_level();                                                                     \
    CHOOSE(pp_attention_grad_##suffix)(s, q, k, v, out, lse, dout, dq, dk, dv, workspace);          \
  }

DISPATCH(float, f32)
DISPATCH(double, f64)
