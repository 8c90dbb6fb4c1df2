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
