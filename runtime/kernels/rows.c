/* Row operations: gather, scatter-add and accumulation. In: contiguous rows and indices that were
 * checked (pp_check_indices). Out: as stated in pp.h. Additions go in the order of the indices, one
 * rounding each, so that the result depends on nothing but the arguments. One thread. */
#include <string.h>

#include "runtime/pp.h"

#define ROWS(suffix, real)                                                                        \
  void pp_accumulate_##suffix(int64_t n, const real *x, real *acc, int accumulate) {              \
    if (!accumulate) {                                                                            \
      memcpy(acc, x, (size_t)n * sizeof *x);                                                      \
      return;                                                                                     \
    }                                                                                             \
    for (int64_t i = 0; i < n; i++) acc[i] += x[i];                                               \
  }                                                                                               \
  void pp_scatter_add_##suffix(int64_t n, int64_t row, int64_t rows, const real *dy,              \
                               const int32_t *index, real *out, int accumulate) {                 \
    if (!accumulate) memset(out, 0, (size_t)(rows * row) * sizeof *out);                          \
    for (int64_t i = 0; i < n; i++)                                                               \
      pp_accumulate_##suffix(row, dy + i * row, out + index[i] * row, 1);                         \
  }

#define GATHER(suffix, type)                                                                      \
  void pp_gather_##suffix(int64_t n, int64_t row, const type *table, const int32_t *index,        \
                          type *out) {                                                            \
    for (int64_t i = 0; i < n; i++)                                                               \
      memcpy(out + i * row, table + index[i] * row, (size_t)row * sizeof *out);                   \
  }

ROWS(f32, float)
ROWS(f64, double)
GATHER(f32, float)
GATHER(f64, double)
GATHER(i32, int32_t)
GATHER(bf16, uint16_t)
GATHER(bool, uint8_t)
