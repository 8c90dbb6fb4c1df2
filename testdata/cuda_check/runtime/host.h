/* What both rank programs use: checked calls, names, matrix products, one
 * communicator per pair of ranks. C11; CUDA's C headers only. */
#ifndef HOST_H
#define HOST_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

enum { MICROBATCHES = 4, STEPS = 3, SLOTS = 2 };
enum { ROWS = 16, D_IN = 32, D_HIDDEN = 64, D_OUT = 16 };

/* Each call's result is checked; a failure ends the program. */
#define CUDA(call) host_expect((call) == cudaSuccess, #call, __FILE__, __LINE__)
#define BLAS(call)                                                             \
  host_expect((call) == CUBLAS_STATUS_SUCCESS, #call, __FILE__, __LINE__)
#define NCCL(comm, call) host_nccl(comm, call, #call, __FILE__, __LINE__)

void host_expect(int is_good, const char *call, const char *file, int line);
/* Polls a non-blocking communicator until the call took effect. */
void host_nccl(ncclComm_t comm, ncclResult_t result, const char *call,
               const char *file, int line);

/* Whether $FAULT names this fault; the list is in `faults`. */
bool host_has_fault(const char *name);

/* The arena's layout, a table that the compiler emits. */
typedef struct Buffer {
  const char *name;
  size_t offset, bytes;
} Buffer;
void host_name_buffers(char *arena, size_t bytes, const Buffer *buffers, size_t n);

cudaStream_t host_stream(const char *name);
void host_events(cudaEvent_t *events, int n, const char *name);
void host_events_destroy(cudaEvent_t *events, int n);

/* D[m, n] = A B + beta D, row-major f32; a transposed operand is stored the
 * other way round. `bias` [n] may be NULL. Planned once, at start. */
typedef struct Matmul {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulAlgo_t algo;
  float beta;
} Matmul;
void host_plan_matmul(cublasLtHandle_t blas, Matmul *plan, int m, int n, int k,
                      int transpose_a, int transpose_b, float beta,
                      const float *bias, size_t workspace_bytes);
void host_matmul(cublasLtHandle_t blas, const Matmul *plan, const float *a,
                 const float *b, float *d, void *workspace,
                 size_t workspace_bytes, cudaStream_t stream);
/* On zeros of its own; a bias must be there. */
void host_run_matmul_first(cublasLtHandle_t blas, const Matmul *plan,
                           size_t workspace_bytes, cudaStream_t stream);

/* The id of communicator `name` goes from rank 0 to rank 1 through a file. */
ncclComm_t host_communicator(const char *name, int rank);

/* Its code is on the device then. */
cudaKernel_t host_kernel(cudaLibrary_t library, const char *name);
void host_launch(cudaKernel_t kernel, int n, int block, void **arguments,
                 cudaStream_t stream);
float host_uniform(unsigned *state); /* in [-1, 1), the same everywhere */

#endif
