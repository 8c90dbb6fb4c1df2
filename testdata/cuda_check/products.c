/* Products of cublasLt against plain loops in double, and uses that are wrong. `products CASE` runs one; `products` prints
 * the list: the case and the kind of report it must give ("clean": none). */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { M = 8, N = 4, K = 7, BATCH = 3, MAX_VALUES = 256, ARENA_BYTES = 16384, PART_BYTES = 2048, WORKSPACE_BYTES = 1024 };
enum { PART_A, PART_B, PART_C, PART_BIAS, PART_AUX, PART_WORKSPACE };

typedef struct Case { /* D[m, n] = op(A) op(B) + beta C, column-major */
  const char *name, *kind;
  cudaDataType operands, result;
  cublasComputeType_t compute;
  int ta, tb, batch;
  double beta;
  cublasLtEpilogue_t epilogue;
  double tolerance;
  int misaligned, no_workspace, wrong_shape;
  enum { FINE, NO_BIAS, NO_AUX, NARROW_AUX, ODD_AUX, MISALIGNED_BIAS, MISALIGNED_AUX, OTHER_EPILOGUE, OTHER_BIAS_TYPE, BIAS_AT_END,
         AUX_AT_END, BIAS_WRITTEN, AUX_READ } fault; /* of the epilogue, behind the heuristic */
} Case;

#define F32 CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F
static const Case cases[] = {
    {"plain", "clean", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 1e-6, 0, 0, 0, FINE},
    {"transposed", "clean", F32, 1, 1, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 1e-6, 0, 0, 0, FINE},
    {"accumulating", "clean", F32, 0, 1, 1, 1, CUBLASLT_EPILOGUE_DEFAULT, 1e-6, 0, 0, 0, FINE},
    {"batched", "clean", F32, 1, 0, BATCH, 1, CUBLASLT_EPILOGUE_DEFAULT, 1e-6, 0, 0, 0, FINE},
    {"bias", "clean", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_BIAS, 1e-6, 0, 0, 0, FINE},
    {"gelu", "clean", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_GELU, 1e-6, 0, 0, 0, FINE},
    {"gelu_bias", "clean", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_GELU_BIAS, 1e-6, 0, 0, 0, FINE},
    {"tf32", "clean", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 1e-6, 0, 0, 0, FINE},
    {"f64", "clean", CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 0, 1, 2, 1, CUBLASLT_EPILOGUE_DEFAULT, 1e-14, 0, 0, 0, FINE},
    {"bf16_to_f32", "clean", CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 1, 0, 2, 1, CUBLASLT_EPILOGUE_DEFAULT, 1e-6, 0, 0, 0, FINE},
    {"bf16", "clean", CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 0, 0, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 2e-2, 0, 0, 0, FINE},
    {"gelu_aux", "clean", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX, 1e-6, 0, 0, 0, FINE},
    {"gelu_aux_bias", "clean", F32, 1, 1, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1e-6, 0, 0, 0, FINE},
    {"bf16_bias", "clean", CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0, 0, 1, 1, CUBLASLT_EPILOGUE_BIAS, 1e-6, 0, 0, 0, FINE},
    {"no_bias", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_BIAS, 1e-6, 0, 0, 0, NO_BIAS},
    {"no_aux", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1e-6, 0, 0, 0, NO_AUX},
    {"narrow_aux", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1e-6, 0, 0, 0, NARROW_AUX},
    {"odd_aux", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1e-6, 0, 0, 0, ODD_AUX},
    {"misaligned_bias", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_BIAS, 1e-6, 0, 0, 0, MISALIGNED_BIAS},
    {"misaligned_aux", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1e-6, 0, 0, 0, MISALIGNED_AUX},
    {"other_epilogue", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_BIAS, 1e-6, 0, 0, 0, OTHER_EPILOGUE},
    {"other_bias_type", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_BIAS, 1e-6, 0, 0, 0, OTHER_BIAS_TYPE},
    {"bias_at_end", "out of bounds", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_BIAS, 1e-6, 0, 0, 0, BIAS_AT_END},
    {"aux_at_end", "out of bounds", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1e-6, 0, 0, 0, AUX_AT_END},
    {"bias_written", "race", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_BIAS, 1e-6, 0, 0, 0, BIAS_WRITTEN},
    {"aux_read", "race", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1e-6, 0, 0, 0, AUX_READ},
    {"misaligned", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 1e-6, 1, 0, 0, FINE},
    {"no_workspace", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 1e-6, 0, 1, 0, FINE},
    {"wrong_shape", "misuse", F32, 0, 0, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 1e-6, 0, 0, 1, FINE},
    {"mixed_types", "misuse", CUDA_R_32F, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 0, 0, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, 1, 0, 0, 0, FINE},
};

static cublasLtHandle_t blas;
static cudaStream_t stream, other;
static char *device, *host;

static void must(int is_good) {
  if (!is_good) exit(1);
}
#define CUDA(call) must((call) == cudaSuccess)
#define BLAS(call) must((call) == CUBLAS_STATUS_SUCCESS)

/* ---- values ---- */

static double value(int part, int i) { return 0.25 * ((i * 37 + part * 11) % 23 - 11) + 0.001 * i; }

static size_t size_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

static double store(char *at, cudaDataType type, int i, double x) {
  float f = (float)x;
  uint32_t bits;
  if (type == CUDA_R_64F) return ((double *)(void *)at)[i] = x;
  if (type == CUDA_R_32F) return ((float *)(void *)at)[i] = f;
  memcpy(&bits, &f, sizeof bits);
  ((uint16_t *)(void *)at)[i] = (uint16_t)(bits >> 16);
  bits &= 0xffff0000u;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static double load(const char *at, cudaDataType type, int i) {
  float f;
  if (type == CUDA_R_64F) return ((const double *)(const void *)at)[i];
  if (type == CUDA_R_32F) return ((const float *)(const void *)at)[i];
  uint32_t bits = (uint32_t)((const uint16_t *)(const void *)at)[i] << 16;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* As TF32 holds it: 10 bits behind the point, to nearest even. */
static double to_tf32(double x) {
  int exponent;
  double fraction = frexp(x, &exponent);
  return ldexp(nearbyint(ldexp(fraction, 11)), exponent - 11);
}

static double a[MAX_VALUES], b[MAX_VALUES], c[MAX_VALUES], bias[MAX_VALUES];

static void make_values(const Case *t) {
  for (int i = 0; i < t->batch * M * K; i++) a[i] = store(host + PART_A * PART_BYTES, t->operands, i, value(PART_A, i));
  for (int i = 0; i < t->batch * K * N; i++) b[i] = store(host + PART_B * PART_BYTES, t->operands, i, value(PART_B, i));
  for (int i = 0; i < t->batch * M * N; i++) c[i] = store(host + PART_C * PART_BYTES, t->result, i, value(PART_C, i));
  if (t->compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
    must(to_tf32(a[1]) != a[1] && to_tf32(b[1]) != b[1]); /* the operands show whether they are rounded */
    for (int i = 0; i < MAX_VALUES; i++) a[i] = to_tf32(a[i]), b[i] = to_tf32(b[i]);
  }
  for (int i = 0; i < M; i++) bias[i] = store(host + PART_BIAS * PART_BYTES, t->result, i, value(PART_BIAS, i));
}

static int has(const Case *t, int part) { return ((int)t->epilogue & part) == part; }

/* Before GELU. */
static double expected_sum(const Case *t, int batch, int row, int col) {
  double sum = 0;
  for (int k = 0; k < K; k++)
    sum += a[batch * M * K + (t->ta ? row * K + k : k * M + row)] * b[batch * K * N + (t->tb ? k * N + col : col * K + k)];
  if (t->beta != 0) sum += t->beta * c[batch * M * N + col * M + row];
  return has(t, CUBLASLT_EPILOGUE_BIAS) ? sum + bias[row] : sum;
}

static double expected(const Case *t, int batch, int row, int col) {
  double x = expected_sum(t, batch, row, col);
  return has(t, CUBLASLT_EPILOGUE_GELU) ? 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x))) : x;
}

static void must_be(const Case *t, const char *what, int index, double want) {
  const char *at = host + (strcmp(what, "aux") ? PART_C : PART_AUX) * PART_BYTES;
  double got = load(at, t->result, index), error = fabs(got - want) / (1 + fabs(want));
  if (!(error <= t->tolerance)) {
    fprintf(stderr, "%s: %s[%d] is %.9g, not %.9g\n", t->name, what, index, got, want);
    exit(1);
  }
}

static void judge(const Case *t) {
  for (int batch = 0; batch < t->batch; batch++)
    for (int col = 0; col < N; col++)
      for (int row = 0; row < M; row++) {
        int index = batch * M * N + col * M + row;
        must_be(t, "result", index, expected(t, batch, row, col));
        if (has(t, CUBLASLT_EPILOGUE_GELU_AUX)) must_be(t, "aux", index, expected_sum(t, batch, row, col));
      }
}

/* ---- the product ---- */

static cublasLtMatrixLayout_t layout(cudaDataType type, int rows, int cols, int batch) {
  cublasLtMatrixLayout_t out;
  int64_t stride = (int64_t)rows * cols;
  int32_t count = batch;
  BLAS(cublasLtMatrixLayoutCreate(&out, type, (uint64_t)rows, (uint64_t)cols, rows));
  BLAS(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  BLAS(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
  return out;
}

static void set_pointer(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *pointer) {
  BLAS(cublasLtMatmulDescSetAttribute(desc, attribute, &pointer, sizeof pointer));
}

static void set_aux_ld(cublasLtMatmulDesc_t desc, int64_t ld) {
  BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld));
}

static cublasLtMatmulDesc_t describe(const Case *t) {
  cublasLtMatmulDesc_t out;
  cublasOperation_t ta = t->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = t->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
  BLAS(cublasLtMatmulDescCreate(&out, t->compute, t->compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F));
  BLAS(cublasLtMatmulDescSetAttribute(out, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
  BLAS(cublasLtMatmulDescSetAttribute(out, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
  BLAS(cublasLtMatmulDescSetAttribute(out, CUBLASLT_MATMUL_DESC_EPILOGUE, &t->epilogue, sizeof t->epilogue));
  set_pointer(out, CUBLASLT_MATMUL_DESC_BIAS_POINTER, device + PART_BIAS * PART_BYTES);
  set_pointer(out, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, device + PART_AUX * PART_BYTES);
  set_aux_ld(out, M);
  return out;
}

static void plant(const Case *t, cublasLtMatmulDesc_t desc) {
  const cublasLtMatmulDescAttributes_t bias_at = CUBLASLT_MATMUL_DESC_BIAS_POINTER, aux_at = CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER;
  const cublasLtEpilogue_t gelu = CUBLASLT_EPILOGUE_GELU_BIAS;
  const cudaDataType type = CUDA_R_16BF;
  char *bias_part = device + PART_BIAS * PART_BYTES, *aux_part = device + PART_AUX * PART_BYTES;
  switch (t->fault) {
  case FINE:
  case AUX_READ: break;
  case NO_BIAS: set_pointer(desc, bias_at, NULL); break;
  case NO_AUX: set_pointer(desc, aux_at, NULL); break;
  case NARROW_AUX: set_aux_ld(desc, M - 8); break;
  case ODD_AUX: set_aux_ld(desc, M + 4); break;
  case MISALIGNED_BIAS: set_pointer(desc, bias_at, bias_part + 4); break;
  case MISALIGNED_AUX: set_pointer(desc, aux_at, aux_part + 4); break;
  case OTHER_EPILOGUE: BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &gelu, sizeof gelu)); break;
  case OTHER_BIAS_TYPE: BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type)); break;
  case BIAS_AT_END: set_pointer(desc, bias_at, device + ARENA_BYTES); break;
  case AUX_AT_END: set_pointer(desc, aux_at, device + ARENA_BYTES); break;
  case BIAS_WRITTEN: CUDA(cudaMemcpyAsync(bias_part, host + PART_BIAS * PART_BYTES, 64, cudaMemcpyHostToDevice, other)); break;
  }
}

static void run(const Case *t) {
  cublasLtMatmulDesc_t desc = describe(t);
  cublasLtMatrixLayout_t la = layout(t->operands, t->ta ? K : M, t->ta ? M : K, t->batch);
  cublasLtMatrixLayout_t lb = layout(t->operands, t->tb ? N : K, t->tb ? K : N, t->batch);
  cublasLtMatrixLayout_t ld = layout(t->result, t->wrong_shape ? M + 1 : M, N, t->batch);
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found;
  size_t room = WORKSPACE_BYTES;
  int n_found = 0;
  double alpha = 1, beta = t->beta;
  float alpha_f = 1, beta_f = (float)t->beta;
  int is_f64 = t->compute == CUBLAS_COMPUTE_64F;
  BLAS(cublasLtMatmulPreferenceCreate(&preference));
  BLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room));
  BLAS(cublasLtMatmulAlgoGetHeuristic(blas, desc, la, lb, ld, ld, preference, 1, &found, &n_found));
  must(n_found == 1 && found.workspaceSize <= room);
  make_values(t);
  CUDA(cudaMemcpyAsync(device, host, PART_WORKSPACE * PART_BYTES, cudaMemcpyHostToDevice, stream));
  CUDA(cudaStreamSynchronize(stream)); /* so that a race is one with the product */
  plant(t, desc);
  char *d = device + PART_C * PART_BYTES;
  BLAS(cublasLtMatmul(blas, desc, is_f64 ? (void *)&alpha : &alpha_f, device + PART_A * PART_BYTES + 16 * t->misaligned, la,
                      device + PART_B * PART_BYTES, lb, is_f64 ? (void *)&beta : &beta_f, d, ld, d, ld, &found.algo,
                      device + PART_WORKSPACE * PART_BYTES, t->no_workspace ? 0 : room, stream));
  if (t->fault == AUX_READ)
    CUDA(cudaMemcpyAsync(host + PART_WORKSPACE * PART_BYTES, device + PART_AUX * PART_BYTES, 64, cudaMemcpyDeviceToHost, other));
  CUDA(cudaMemcpyAsync(host, device, PART_WORKSPACE * PART_BYTES, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  judge(t);
  BLAS(cublasLtMatmulPreferenceDestroy(preference));
  BLAS(cublasLtMatrixLayoutDestroy(la));
  BLAS(cublasLtMatrixLayoutDestroy(lb));
  BLAS(cublasLtMatrixLayoutDestroy(ld));
  BLAS(cublasLtMatmulDescDestroy(desc));
}

int main(int n_arguments, char **arguments) {
  CUDA(cudaMalloc((void **)&device, ARENA_BYTES));
  CUDA(cudaMallocHost((void **)&host, ARENA_BYTES));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  BLAS(cublasLtCreate(&blas));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (n_arguments < 2) printf("%s %s\n", cases[i].name, cases[i].kind);
    else if (strcmp(arguments[1], cases[i].name) == 0) run(&cases[i]);
  }
  BLAS(cublasLtDestroy(blas));
  CUDA(cudaStreamDestroy(stream));
  CUDA(cudaStreamDestroy(other));
  CUDA(cudaFree(device));
  CUDA(cudaFreeHost(host));
  return 0;
}
