/* Matrix products by cuBLASLt. In: the rows of pp_program.products. Out: for each a description, layouts and an
 * algorithm, chosen at start for the fixed workspace of a compute stream, and one run, so that no step is the first to load it. Row-major C = A·B is column-major C' = B'·A',
 * so the operands change places, and a vector that is added to the rows of C lies along the rows of C', as epilogues want
 * it. f32 is computed in f32, or in TF32 where the row says so, f64 in f64, bf16 is summed in f32. No split of k whose
 * parts meet in a narrower type. */
#include <stdlib.h>
#include <string.h>

#include "rank.h"

enum { POINTER_ALIGNMENT = 16 }; /* of any operand */

static uint64_t workspace_bytes(const pp_program *program) {
  return program->scratch_bytes - program->partial_bytes;
}

static cudaDataType type_of(int dtype) {
  return dtype == PP_F64 ? CUDA_R_64F : dtype == PP_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* --- plans ----------------------------------------------------------------------------------------- */

/* A row-major matrix of rows × columns. */
static pp_status create_layout(pp_rank *rank, cublasLtMatrixLayout_t *out_layout, int dtype, int64_t batch, int64_t rows, int64_t columns) {
  int32_t count = (int32_t)batch;
  int64_t stride = rows * columns;
  PP_BLAS_TRY(rank, cublasLtMatrixLayoutCreate(out_layout, type_of(dtype), (uint64_t)columns, (uint64_t)rows, columns));
  if (batch == 1) return PP_OK;
  PP_BLAS_TRY(rank, cublasLtMatrixLayoutSetAttribute(*out_layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  PP_BLAS_TRY(rank, cublasLtMatrixLayoutSetAttribute(*out_layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
  return PP_OK;
}

/* Which buffers an epilogue reads and writes is said at each call. The heuristic takes their alignment from the pointers,
 * so that here they are to a place aligned like any buffer. */
static pp_status set_epilogue(pp_rank *rank, const pp_product *p, cublasLtMatmulDesc_t description, const void *buffer) {
  static const cublasLtEpilogue_t epilogues[PP_EPILOGUE_COUNT] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                                                  CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
  PP_BLAS_TRY(rank, cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[p->epilogue], sizeof *epilogues));
  if (p->epilogue == PP_EPILOGUE_NONE) return PP_OK;
  PP_BLAS_TRY(rank, cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &buffer, sizeof buffer));
  if (p->epilogue != PP_EPILOGUE_GELU_AUX) return PP_OK;
  PP_BLAS_TRY(rank, cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &buffer, sizeof buffer));
  PP_BLAS_TRY(rank, cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->n, sizeof p->n));
  return PP_OK;
}

static pp_status describe(pp_rank *rank, const pp_product *p, pp_product_plan *plan, const void *buffer) {
  cublasOperation_t of_a = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N, of_b = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
  plan->is_f64 = p->operands == PP_F64;
  cublasComputeType_t compute = plan->is_f64 ? CUBLAS_COMPUTE_64F : p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  PP_BLAS_TRY(rank, cublasLtMatmulDescCreate(&plan->description, compute, plan->is_f64 ? CUDA_R_64F : CUDA_R_32F));
  PP_BLAS_TRY(rank, cublasLtMatmulDescSetAttribute(plan->description, CUBLASLT_MATMUL_DESC_TRANSA, &of_b, sizeof of_b));
  PP_BLAS_TRY(rank, cublasLtMatmulDescSetAttribute(plan->description, CUBLASLT_MATMUL_DESC_TRANSB, &of_a, sizeof of_a));
  PP_TRY(set_epilogue(rank, p, plan->description, buffer));
  PP_TRY(create_layout(rank, &plan->a, p->operands, p->batch, p->ta ? p->k : p->m, p->ta ? p->m : p->k));
  PP_TRY(create_layout(rank, &plan->b, p->operands, p->batch, p->tb ? p->n : p->k, p->tb ? p->k : p->n));
  return create_layout(rank, &plan->c, p->result, p->batch, p->m, p->n);
}

static pp_status create_preference(pp_rank *rank, cublasLtMatmulPreference_t *out_preference) {
  static const cublasLtMatmulPreferenceAttributes_t pointers[] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  uint64_t room = workspace_bytes(rank->program);
  uint32_t alignment = POINTER_ALIGNMENT;
  uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  PP_BLAS_TRY(rank, cublasLtMatmulPreferenceCreate(out_preference));
  PP_BLAS_TRY(rank, cublasLtMatmulPreferenceSetAttribute(*out_preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room));
  PP_BLAS_TRY(rank, cublasLtMatmulPreferenceSetAttribute(*out_preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
  for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
    PP_BLAS_TRY(rank, cublasLtMatmulPreferenceSetAttribute(*out_preference, pointers[i], &alignment, sizeof alignment));
  return PP_OK;
}

/* NVIDIA's libraries let this variable decide about TF32, whatever a program says: 0 is never, the rest is not stated. */
static pp_status check_override(pp_rank *rank) {
  const char *value = getenv("NVIDIA_TF32_OVERRIDE");
  int tf32 = 0;
  for (int i = 0; i < rank->program->n_products; i++) tf32 |= rank->program->products[i].tf32;
  if (!value || !*value || (strcmp(value, "0") == 0 && !tf32)) return PP_OK;
  return pp_fail(rank, PP_EXIT_INPUT, "NVIDIA_TF32_OVERRIDE=%s is set, and this program's products are in %s", value, tf32 ? "TF32" : "f32");
}

static pp_status choose(pp_rank *rank, int i, cublasLtMatmulPreference_t preference, const void *buffer) {
  const pp_product *p = &rank->program->products[i];
  struct pp_cuda *cuda = rank->cuda;
  pp_product_plan *plan = &cuda->products[i];
  cublasLtMatmulHeuristicResult_t found;
  int n_found = 0;
  memset(&found, 0, sizeof found);
  PP_TRY(describe(rank, p, plan, buffer));
  cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(cuda->blas, plan->description, plan->b, plan->a, plan->c, plan->c, preference, 1,
                                                         &found, &n_found);
  if (status != CUBLAS_STATUS_SUCCESS || n_found != 1) {
    const char *with = p->epilogue == PP_EPILOGUE_NONE ? "" : ", compiled with --no-epilogues the program does without it";
    return pp_fail(rank, PP_EXIT_FAILED, "cuBLASLt has no algorithm for the product %lld x [%lld, %lld, %lld], epilogue %s%s: %s",
                   (long long)p->batch, (long long)p->m, (long long)p->n, (long long)p->k, pp_epilogue_name((pp_epilogue)p->epilogue), with,
                   pp_blas_error(status));
  }
  plan->algorithm = found.algo;
  return PP_OK;
}

static void add_digest(uint64_t *digest, const void *bytes, size_t n) {
  for (const unsigned char *at = bytes; n > 0; at++, n--) *digest = (*digest ^ *at) * UINT64_C(0x100000001b3);
}

static pp_status choose_all(pp_rank *rank, const void *buffer) {
  struct pp_cuda *cuda = rank->cuda;
  cublasLtMatmulPreference_t preference = NULL;
  pp_status status = create_preference(rank, &preference);
  cuda->products_digest = UINT64_C(0xcbf29ce484222325);
  for (int i = 0; status == PP_OK && i < rank->program->n_products; i++) {
    status = choose(rank, i, preference, buffer);
    add_digest(&cuda->products_digest, &cuda->products[i].algorithm, sizeof cuda->products[i].algorithm);
  }
  if (preference) PP_BLAS_DO(rank, cublasLtMatmulPreferenceDestroy(preference));
  return status;
}

/* --- first runs ------------------------------------------------------------------------------------ */

/* The library brings a product's code to the device when it first runs, which may wait for all that runs there. So each
 * runs once while nothing does, on zeros, in memory that is given back before the rank takes its own: that is larger,
 * for it holds a product's operands too. Here A, B and what is added are one block, behind the result and its sum. */

static uint64_t matrix_bytes(int dtype, int64_t batch, int64_t rows, int64_t columns) {
  return (uint64_t)pp_align(batch * rows * columns * pp_dtype_bytes((pp_dtype)dtype));
}

static uint64_t result_bytes(const pp_product *p) { return matrix_bytes(p->result, p->batch, p->m, p->n); }

static uint64_t sum_bytes(const pp_product *p) { return p->epilogue == PP_EPILOGUE_GELU_AUX ? result_bytes(p) : 0; }

static uint64_t operand_bytes(const pp_product *p) {
  uint64_t a = matrix_bytes(p->operands, p->batch, p->m, p->k), b = matrix_bytes(p->operands, p->batch, p->k, p->n);
  uint64_t bias = matrix_bytes(p->result, 1, 1, p->n), longest = a > b ? a : b;
  return longest > bias ? longest : bias;
}

static uint64_t first_run_bytes(const pp_program *program) {
  uint64_t most = 0;
  for (int i = 0; i < program->n_products; i++) {
    const pp_product *p = &program->products[i];
    uint64_t all = result_bytes(p) + sum_bytes(p) + operand_bytes(p);
    if (all > most) most = all;
  }
  return most;
}

/* A plan without an epilogue may be used with either beta, for which a library may have other code. */
static void run_first(const pp_call *call, int i, unsigned char *at) {
  const pp_product *p = &call->rank->program->products[i];
  unsigned char *sum = at + result_bytes(p), *operands = sum + sum_bytes(p);
  for (int accumulate = 0; p->epilogue == PP_EPILOGUE_NONE && accumulate < 2; accumulate++)
    pp_product_run(call, i, operands, operands, at, accumulate);
  if (p->epilogue == PP_EPILOGUE_NONE) return;
  if (p->epilogue == PP_EPILOGUE_BIAS) pp_product_bias(call, i, operands, operands, operands, at);
  else pp_product_gelu(call, i, operands, operands, operands, at, sum_bytes(p) ? sum : NULL);
}

static pp_status run_all_first(pp_rank *rank, unsigned char *at) {
  struct pp_cuda *cuda = rank->cuda;
  const pp_call call = {.rank = rank};
  PP_CUDA_TRY(rank, cudaMemsetAsync(at, 0, first_run_bytes(rank->program), cuda->compute[0]));
  for (int i = 0; i < rank->program->n_products; i++) run_first(&call, i, at);
  PP_CUDA_TRY(rank, cudaEventRecord(cuda->drained, cuda->compute[0]));
  return pp_cuda_await(rank, cuda->drained);
}

/* Scratch memory comes first, as if it were the rank's; the rest is aligned like any buffer, no better. */
static pp_status choose_and_run(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  uint64_t at = pp_round_up(rank->program->scratch_bytes, PP_CUDA_ALIGNMENT) + PP_ALIGNMENT;
  unsigned char *memory = NULL;
  PP_CUDA_TRY(rank, cudaMalloc((void **)&memory, at + first_run_bytes(rank->program)));
  cuda->scratch[0] = memory;
  pp_status status = choose_all(rank, memory + at);
  if (status == PP_OK) status = run_all_first(rank, memory + at);
  cuda->scratch[0] = NULL;
  PP_CUDA_DO(rank, cudaFree(memory));
  return status == PP_OK && pp_failing(rank) ? PP_STOPPED : status;
}

pp_status pp_cuda_products_create(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  int n = rank->program->n_products;
  if (n == 0) return PP_OK;
  PP_TRY(check_override(rank));
  cuda->products = calloc((size_t)n, sizeof *cuda->products);
  if (!cuda->products) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  PP_BLAS_TRY(rank, cublasLtCreate(&cuda->blas));
  return choose_and_run(rank);
}

void pp_cuda_products_destroy(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  for (int i = 0; cuda->products && i < rank->program->n_products; i++) {
    pp_product_plan *plan = &cuda->products[i];
    cublasLtMatrixLayout_t layouts[] = {plan->a, plan->b, plan->c};
    for (int k = 0; k < 3; k++)
      if (layouts[k]) PP_BLAS_DO(rank, cublasLtMatrixLayoutDestroy(layouts[k]));
    if (plan->description) PP_BLAS_DO(rank, cublasLtMatmulDescDestroy(plan->description));
  }
  if (cuda->blas) PP_BLAS_DO(rank, cublasLtDestroy(cuda->blas));
  free(cuda->products);
}

/* --- running ----------------------------------------------------------------------------------------- */

void pp_product_run(const pp_call *call, int product, const void *a, const void *b, void *c, int accumulate) {
  static const float ones[2] = {0, 1};
  static const double long_ones[2] = {0, 1};
  pp_rank *rank = call->rank;
  struct pp_cuda *cuda = rank->cuda;
  const pp_product_plan *plan = &cuda->products[product];
  const void *alpha = plan->is_f64 ? (const void *)&long_ones[1] : &ones[1];
  const void *beta = plan->is_f64 ? (const void *)&long_ones[accumulate != 0] : &ones[accumulate != 0];
  void *workspace = workspace_bytes(rank->program) ? cuda->scratch[cuda->current] + rank->program->partial_bytes : NULL;
  PP_BLAS_DO(rank, cublasLtMatmul(cuda->blas, plan->description, alpha, b, plan->b, a, plan->a, beta, c, plan->c, c, plan->c, &plan->algorithm,
                                  workspace, workspace_bytes(rank->program), cuda->compute[cuda->current]));
}

/* The library takes the description as it is at the call, so the next one may say something else. */
void pp_product_bias(const pp_call *call, int product, const void *a, const void *b, const void *bias, void *c) {
  cublasLtMatmulDesc_t description = call->rank->cuda->products[product].description;
  PP_BLAS_DO(call->rank, cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  pp_product_run(call, product, a, b, c, 0);
}

void pp_product_gelu(const pp_call *call, int product, const void *a, const void *b, const void *bias, void *c, void *sum) {
  cublasLtMatmulDesc_t description = call->rank->cuda->products[product].description;
  if (sum)
    PP_BLAS_DO(call->rank, cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &sum, sizeof sum));
  pp_product_bias(call, product, a, b, bias, c);
}
