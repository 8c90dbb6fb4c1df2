/* See host.h. */
#define _POSIX_C_SOURCE 200809L
#include "host.h"

#include <nvtx3/nvToolsExtCudaRt.h>
#include <nvtx3/nvToolsExtMem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BUFFERS = 64 };

void host_expect(int is_good, const char *call, const char *file, int line) {
  if (is_good) return;
  fprintf(stderr, "%s:%d: failed: %s\n", file, line, call);
  exit(1);
}

bool host_has_fault(const char *name) {
  const char *fault = getenv("FAULT");
  return fault && strcmp(fault, name) == 0;
}

void host_nccl(ncclComm_t comm, ncclResult_t result, const char *call,
               const char *file, int line) {
  while (result == ncclInProgress && comm)
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) break;
  host_expect(result == ncclSuccess, call, file, line);
}

void host_name_buffers(char *arena, size_t bytes, const Buffer *buffers, size_t n) {
  nvtxMemVirtualRangeDesc_t whole = {bytes, arena}, ranges[MAX_BUFFERS];
  nvtxMemRegionHandle_t handles[MAX_BUFFERS];
  nvtxMemRegionNameDesc_t names[MAX_BUFFERS];
  nvtxMemHeapDesc_t heap = {.extCompatID = NVTX_EXT_COMPATID_MEM,
      .structSize = sizeof heap, .usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
      .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
      .typeSpecificDescSize = sizeof whole, .typeSpecificDesc = &whole};
  nvtxMemHeapHandle_t handle = nvtxMemHeapRegister(NULL, &heap);
  for (size_t i = 0; i < n; i++) {
    ranges[i] = (nvtxMemVirtualRangeDesc_t){buffers[i].bytes,
                                            arena + buffers[i].offset};
    handles[i] = NULL;
  }
  nvtxMemRegionsRegister(NULL, &(nvtxMemRegionsRegisterBatch_t){
      .extCompatID = NVTX_EXT_COMPATID_MEM,
      .structSize = sizeof(nvtxMemRegionsRegisterBatch_t),
      .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS, .heap = handle,
      .regionCount = n, .regionDescElementSize = sizeof *ranges,
      .regionDescElements = ranges, .regionHandleElementsOut = handles});
  for (size_t i = 0; i < n; i++)
    names[i] = (nvtxMemRegionNameDesc_t){
        .regionRefType = NVTX_MEM_REGION_REF_TYPE_HANDLE,
        .nameType = NVTX_MESSAGE_TYPE_ASCII, .region.handle = handles[i],
        .name.ascii = buffers[i].name};
  nvtxMemRegionsName(NULL, &(nvtxMemRegionsNameBatch_t){
      .extCompatID = NVTX_EXT_COMPATID_MEM,
      .structSize = sizeof(nvtxMemRegionsNameBatch_t), .regionCount = n,
      .regionElementSize = sizeof *names, .regionElements = names});
}

cudaStream_t host_stream(const char *name) {
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  nvtxNameCudaStreamA(stream, name);
  return stream;
}

void host_events(cudaEvent_t *events, int n, const char *name) {
  char text[64];
  for (int i = 0; i < n; i++) {
    CUDA(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
    snprintf(text, sizeof text, "%s.%d", name, i);
    nvtxNameCudaEventA(events[i], text);
  }
}

void host_events_destroy(cudaEvent_t *events, int n) {
  for (int i = 0; i < n; i++) CUDA(cudaEventDestroy(events[i]));
}

/* Row-major D = A B is column-major D' = B' A', so the operands change places. */
void host_plan_matmul(cublasLtHandle_t blas, Matmul *plan, int m, int n, int k,
                      int transpose_a, int transpose_b, float beta,
                      const float *bias, size_t workspace_bytes) {
  cublasOperation_t of_a = transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t of_b = transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found;
  int n_found = 0;
  plan->beta = beta;
  BLAS(cublasLtMatmulDescCreate(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  BLAS(cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                      &of_b, sizeof of_b));
  BLAS(cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB,
                                      &of_a, sizeof of_a));
  if (bias) {
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    BLAS(cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                        &epilogue, sizeof epilogue));
    BLAS(cublasLtMatmulDescSetAttribute(
        plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  }
  int b_rows = transpose_b ? k : n, b_cols = transpose_b ? n : k;
  int a_rows = transpose_a ? m : k, a_cols = transpose_a ? k : m;
  BLAS(cublasLtMatrixLayoutCreate(&plan->b, CUDA_R_32F, (uint64_t)b_rows,
                                  (uint64_t)b_cols, b_rows));
  BLAS(cublasLtMatrixLayoutCreate(&plan->a, CUDA_R_32F, (uint64_t)a_rows,
                                  (uint64_t)a_cols, a_rows));
  BLAS(cublasLtMatrixLayoutCreate(&plan->d, CUDA_R_32F, (uint64_t)n, (uint64_t)m,
                                  n));
  BLAS(cublasLtMatmulPreferenceCreate(&preference));
  BLAS(cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
      sizeof workspace_bytes));
  BLAS(cublasLtMatmulAlgoGetHeuristic(blas, plan->desc, plan->b, plan->a, plan->d,
                                      plan->d, preference, 1, &found, &n_found));
  host_expect(n_found == 1, "a cublasLt algorithm", __FILE__, __LINE__);
  plan->algo = found.algo;
  BLAS(cublasLtMatmulPreferenceDestroy(preference));
}

void host_matmul(cublasLtHandle_t blas, const Matmul *plan, const float *a,
                 const float *b, float *d, void *workspace,
                 size_t workspace_bytes, cudaStream_t stream) {
  const float alpha = 1.0f;
  BLAS(cublasLtMatmul(blas, plan->desc, &alpha, b, plan->b, a, plan->a,
                      &plan->beta, d, plan->d, d, plan->d, &plan->algo, workspace,
                      workspace_bytes, stream));
}

void host_run_matmul_first(cublasLtHandle_t blas, const Matmul *plan,
                           size_t workspace_bytes, cudaStream_t stream) {
  enum { OPERAND_BYTES = 16384 };
  char *memory;
  if (host_has_fault("LATE_PRODUCT")) return;
  CUDA(cudaMalloc((void **)&memory, 2 * OPERAND_BYTES + workspace_bytes));
  CUDA(cudaMemsetAsync(memory, 0, 2 * OPERAND_BYTES, stream));
  host_matmul(blas, plan, (float *)memory, (float *)memory,
              (float *)(memory + OPERAND_BYTES), memory + 2 * OPERAND_BYTES,
              workspace_bytes, stream);
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaFree(memory));
}

ncclComm_t host_communicator(const char *name, int rank) {
  const char *folder = getenv("PPC_RENDEZVOUS");
  char path[512], temporary[520];
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  FILE *file = NULL;
  host_expect(folder != NULL, "PPC_RENDEZVOUS is set", __FILE__, __LINE__);
  snprintf(path, sizeof path, "%s/%s.id", folder, name);
  if (rank == 0) {
    snprintf(temporary, sizeof temporary, "%s.new", path);
    NCCL(NULL, ncclGetUniqueId(&id));
    file = fopen(temporary, "wb");
    host_expect(file && fwrite(&id, sizeof id, 1, file) == 1 &&
                    fclose(file) == 0 && rename(temporary, path) == 0,
                "writing the communicator's id", __FILE__, __LINE__);
  } else {
    for (int tries = 0; !file && tries < 10000; tries++) {
      file = fopen(path, "rb");
      if (!file) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    host_expect(file && fread(&id, sizeof id, 1, file) == 1 && fclose(file) == 0,
                "reading the communicator's id", __FILE__, __LINE__);
  }
  config.blocking = 0;
  config.commName = name;
  ncclResult_t result = ncclCommInitRankConfig(&comm, 2, id, rank, &config);
  NCCL(comm, result);
  return comm;
}

cudaKernel_t host_kernel(cudaLibrary_t library, const char *name) {
  cudaKernel_t kernel;
  struct cudaFuncAttributes loaded;
  CUDA(cudaLibraryGetKernel(&kernel, library, name));
  if (!host_has_fault("LATE_KERNEL"))
    CUDA(cudaFuncGetAttributes(&loaded, (const void *)kernel));
  return kernel;
}

void host_launch(cudaKernel_t kernel, int n, int block, void **arguments,
                 cudaStream_t stream) {
  dim3 blocks = {(unsigned)((n + block - 1) / block), 1, 1};
  dim3 threads = {(unsigned)block, 1, 1};
  CUDA(cudaLaunchKernel((const void *)kernel, blocks, threads, arguments, 0,
                        stream));
}

float host_uniform(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}
