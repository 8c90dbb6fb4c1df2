/* bf16 as it is stored: 16 bits, the upper half of an f32. Shared by the compiler and the kernels of
 * all targets, so that a value is rounded in one way. */
#ifndef PP_BF16_H
#define PP_BF16_H

#include <stdint.h>
#include <string.h>

#ifndef PP_INLINE
#define PP_INLINE static inline /* device code (cuda/math.cuh) says otherwise */
#endif

typedef uint16_t pp_bf16;

PP_INLINE float pp_f32_from_bf16(pp_bf16 x) {
  uint32_t u = (uint32_t)x << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

/* To nearest, ties to even; a NaN stays one. */
PP_INLINE pp_bf16 pp_bf16_from_f32(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  return (pp_bf16)(x != x ? u >> 16 | 0x40u : rounded);
}

#endif
