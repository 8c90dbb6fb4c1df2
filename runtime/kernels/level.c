/* The x86-64 level of this CPU. Asked once, at start, by the emitted kernels_select.c. */
#include <stdlib.h>

#include "runtime/kernels/level.h"

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
