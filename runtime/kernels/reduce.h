/* The fixed association of reductions: element k goes to lane k mod 16, then lanes l and l + 8 meet,
 * l and l + 4, l + 2, l + 1. The same bits whatever the vector width and whatever is fused. Sums
 * begin with +0, maxima with the least value; NaN wins a maximum. `stride` is the distance of the
 * lanes of one result: 1 for one row, the number of columns when many columns are reduced at once. */
#ifndef PP_KERNELS_REDUCE_H
#define PP_KERNELS_REDUCE_H

#include "runtime/kernels/math.h"

enum { PP_LANES = 16 };

PP_INLINE float pp_add_f32(float a, float b) { return a + b; }
PP_INLINE double pp_add_f64(double a, double b) { return a + b; }

#define PP_FOLD(name, type, combine)                                                               \
  PP_INLINE type name(const type *lane, int64_t stride) {                                      \
    type a0 = combine(lane[0 * stride], lane[8 * stride]), a1 = combine(lane[1 * stride], lane[9 * stride]);    \
    type a2 = combine(lane[2 * stride], lane[10 * stride]), a3 = combine(lane[3 * stride], lane[11 * stride]);  \
    type a4 = combine(lane[4 * stride], lane[12 * stride]), a5 = combine(lane[5 * stride], lane[13 * stride]);  \
    type a6 = combine(lane[6 * stride], lane[14 * stride]), a7 = combine(lane[7 * stride], lane[15 * stride]);  \
    type b0 = combine(a0, a4), b1 = combine(a1, a5), b2 = combine(a2, a6), b3 = combine(a3, a7);   \
    type c0 = combine(b0, b2), c1 = combine(b1, b3);                                               \
    return combine(c0, c1);                                                                        \
  }

PP_FOLD(pp_fold_sum_f32, float, pp_add_f32)
PP_FOLD(pp_fold_sum_f64, double, pp_add_f64)
PP_FOLD(pp_fold_sum_i32, int32_t, pp_add_i32)
PP_FOLD(pp_fold_max_f32, float, pp_max_f32)
PP_FOLD(pp_fold_max_f64, double, pp_max_f64)
PP_FOLD(pp_fold_max_i32, int32_t, pp_max_i32)
#undef PP_FOLD

#endif
