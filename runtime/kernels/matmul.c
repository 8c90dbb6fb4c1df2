/* Matrix products on OpenBLAS: row-major, contiguous, batched by a loop, so that a product's bits
 * depend on its shape, the number of threads and the CPU only. The one file that sees cblas. */
#if defined __has_include
#if __has_include(<cblas-openblas.h>)
#include <cblas-openblas.h>
#else
#include <cblas.h>
#endif
#else
#include <cblas.h>
#endif
#include <string.h>

#include "runtime/kernels/bf16.h"
#include "runtime/pp.h"

void pp_matmul_set_threads(int threads) { openblas_set_num_threads(threads < 1 ? 1 : threads); }

#define MATMUL(suffix, real, gemm)                                                                  \
  void pp_matmul_##suffix(int ta, int tb, int64_t batch, int64_t m, int64_t n, int64_t k,           \
                          const real *a, const real *b, real *c, int accumulate) {                  \
    if (batch <= 0 || m <= 0 || n <= 0) return;                                                     \
    if (k <= 0) {                                                                                   \
      if (!accumulate) memset(c, 0, (size_t)(batch * m * n) * sizeof *c);                           \
      return;                                                                                       \
    }                                                                                               \
    blasint lda = (blasint)(ta ? m : k), ldb = (blasint)(tb ? k : n);                               \
    for (int64_t i = 0; i < batch; i++)                                                             \
      gemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,           \
           (blasint)m, (blasint)n, (blasint)k, 1, a + i * m * k, lda, b + i * k * n, ldb,           \
           accumulate ? 1 : 0, c + i * m * n, (blasint)n);                                          \
  }

MATMUL(f32, float, cblas_sgemm)
MATMUL(f64, double, cblas_dgemm)

/* --- bf16 ------------------------------------------------------------------------------------------ */

enum { BLOCK = 256 };

/* `rows` × `columns` from a matrix whose rows are `stride` apart. */
static void widen(int64_t rows, int64_t columns, int64_t stride, const uint16_t *from, float *to) {
  for (int64_t i = 0; i < rows; i++) {
#pragma omp simd
    for (int64_t j = 0; j < columns; j++) to[i * columns + j] = pp_f32_from_bf16(from[i * stride + j]);
  }
}

/* The block at (row, column) of op(X), as it is stored. */
static void widen_block(int transposed, int64_t row, int64_t column, int64_t rows, int64_t columns, int64_t stride,
                        const uint16_t *x, float *to) {
  if (transposed) widen(columns, rows, stride, x + column * stride + row, to);
  else widen(rows, columns, stride, x + row * stride + column, to);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* C[i…, j…] of one matrix, over all of k. */
static void multiply_block(int ta, int tb, int64_t m, int64_t n, int64_t k, const uint16_t *a, const uint16_t *b,
                           float *c, int64_t i, int64_t j, int accumulate) {
  _Alignas(64) float x[BLOCK * BLOCK], y[BLOCK * BLOCK];
  int64_t rows = least(BLOCK, m - i), columns = least(BLOCK, n - j);
  for (int64_t l = 0; l < k; l += BLOCK) {
    int64_t depth = least(BLOCK, k - l);
    widen_block(ta, i, l, rows, depth, ta ? m : k, a, x);
    widen_block(tb, l, j, depth, columns, tb ? k : n, b, y);
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (blasint)rows,
                (blasint)columns, (blasint)depth, 1, x, (blasint)(ta ? rows : depth), y,
                (blasint)(tb ? depth : columns), accumulate || l > 0 ? 1 : 0, c + i * n + j, (blasint)n);
  }
}

void pp_matmul_bf16(int ta, int tb, int64_t batch, int64_t m, int64_t n, int64_t k, const uint16_t *a,
                    const uint16_t *b, float *c, int accumulate) {
  if (k <= 0 && !accumulate && batch > 0 && m > 0 && n > 0) memset(c, 0, (size_t)(batch * m * n) * sizeof *c);
  for (int64_t p = 0; p < batch; p++)
    for (int64_t i = 0; i < m; i += BLOCK)
      for (int64_t j = 0; j < n; j += BLOCK)
        multiply_block(ta, tb, m, n, k, a + p * m * k, b + p * k * n, c + p * m * n, i, j, accumulate);
}
