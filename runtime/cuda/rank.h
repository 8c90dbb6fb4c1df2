/* What the files of runtime/cuda and transport/nccl.c share: a rank's device, its streams, its events, and
 * calls whose results are checked. Everything is made before step 1. */
#ifndef PP_CUDA_RANK_H
#define PP_CUDA_RANK_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "../internal.h"
#include "cuda.h"

enum { PP_CUDA_MAX_STREAMS = 2, PP_CUDA_WARM_BYTES = 64 };

typedef struct pp_product_plan {
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algorithm;
  int is_f64; /* of alpha and beta */
} pp_product_plan;

/* A data call of a step: what it reads and where that lies in the pinned memory of its step. */
typedef struct pp_staged {
  int data, microbatch;
  uint64_t at;
} pp_staged;

/* Pinned copies of what the host looks at. */
typedef struct pp_copy {
  void *to;
  const void *from;
  size_t size_bytes;
} pp_copy;


struct pp_cuda {
  int device;

  unsigned char *memory; /* arena, window, scratch of each compute stream, state, a few bytes for first transfers */
  uint64_t memory_bytes, free_bytes; /* the latter: of the device, before the former and the libraries took theirs */
  unsigned char *scratch[PP_CUDA_MAX_STREAMS];
  pp_step_state *state;
  unsigned char *warm;

  cudaStream_t compute[PP_CUDA_MAX_STREAMS], communication;
  cudaEvent_t forked, joined, second_joined, drained;
  cudaEvent_t ended[2];  /* of steps of each parity */
  int current;           /* compute stream of the running action */

  cudaLibrary_t library;
  cudaKernel_t *kernels; /* [n_kernels] */
  int step_begin, step_gate, step_end; /* indices; -1: the program has none */
  int gated;             /* the control vector of this step has been looked at */

  cublasLtHandle_t blas;
  pp_product_plan *products; /* [n_products] */
  uint64_t products_digest;

  unsigned char *pinned;  /* all of it */
  unsigned char *staging; /* twice staging_bytes */
  unsigned char *sample;  /* a data call's, as it is read */
  unsigned char *bounce;  /* PP_CHUNK_BYTES */
  pp_step_state *seen_state;
  pp_copy *copies;
  int n_copies;
  pp_staged *staged;      /* data calls of a step, in the order of issue */
  uint32_t n_staged, max_staged;
  uint64_t staged_bytes;

  char **names;           /* [n_actions] for NVTX; null when nobody listens */
  void *regions;          /* names.c */

  int graphs;             /* --graph, until it turns out not to be possible */
  int captures;           /* this step is being captured */
  cudaGraphExec_t graph[2];
  struct pp_cuda_trace *trace;
};

/* --- checked calls ------------------------------------------------------------------------------ */

/* Tells the call, the place, the error in words, and the rank's step and action. Returns PP_STOPPED. */
pp_status pp_cuda_fail(pp_rank *rank, const char *call, const char *file, int line, const char *error);
const char *pp_cuda_error(cudaError_t error);
const char *pp_blas_error(cublasStatus_t status);

#define PP_CUDA_TRY(rank, call)                                                                                \
  do {                                                                                                         \
    cudaError_t try_error = (call);                                                                            \
    if (try_error != cudaSuccess) return pp_cuda_fail(rank, #call, __FILE__, __LINE__, pp_cuda_error(try_error)); \
  } while (0)
#define PP_BLAS_TRY(rank, call)                                                                                \
  do {                                                                                                         \
    cublasStatus_t try_error = (call);                                                                         \
    if (try_error != CUBLAS_STATUS_SUCCESS)                                                                    \
      return pp_cuda_fail(rank, #call, __FILE__, __LINE__, pp_blas_error(try_error));                          \
  } while (0)
/* Where no status can be handed back: the rank stops at its next action. */
#define PP_CUDA_DO(rank, call)                                                                                 \
  do {                                                                                                         \
    cudaError_t do_error = (call);                                                                             \
    if (do_error != cudaSuccess) pp_cuda_fail(rank, #call, __FILE__, __LINE__, pp_cuda_error(do_error));       \
  } while (0)
#define PP_BLAS_DO(rank, call)                                                                                 \
  do {                                                                                                         \
    cublasStatus_t do_error = (call);                                                                          \
    if (do_error != CUBLAS_STATUS_SUCCESS) pp_cuda_fail(rank, #call, __FILE__, __LINE__, pp_blas_error(do_error)); \
  } while (0)

/* --- device.c ----------------------------------------------------------------------------------- */

pp_status pp_cuda_event(pp_rank *rank, cudaEvent_t *out_event, const char *name, int number); /* number -1: none */
/* Sleeps until the event is done. A job that fails ends it. */
pp_status pp_cuda_await(pp_rank *rank, cudaEvent_t event);
/* Whether the host does nothing but enqueue, so that the watchdog may tell a call that doesn't come back. */
void pp_cuda_issues(pp_rank *rank, int issues);
/* One has come back. */
static inline void pp_cuda_note_call(pp_rank *rank) {
  uint64_t moves = atomic_load_explicit(&rank->slot->moves, memory_order_relaxed);
  atomic_store_explicit(&rank->slot->moves, moves + 1, memory_order_relaxed);
}

/* --- step.c -------------------------------------------------------------------------------------- */

pp_status pp_cuda_step_create(pp_rank *rank);
void pp_cuda_step_destroy(pp_rank *rank);
void pp_cuda_graphs_destroy(pp_rank *rank); /* a launch that runs still ends */
pp_status pp_cuda_begin_step(pp_rank *rank, int *out_issued);
pp_status pp_cuda_end_step(pp_rank *rank, int sees);
void pp_cuda_run(pp_rank *rank, const pp_task *task, const pp_call *call);
void pp_cuda_enter(pp_rank *rank, const pp_action *action);
void pp_cuda_leave(pp_rank *rank, const pp_action *action);

/* --- launch.c ------------------------------------------------------------------------------------ */

pp_status pp_cuda_kernels_create(pp_rank *rank);
void pp_cuda_kernels_destroy(pp_rank *rank);
void pp_cuda_launch(pp_rank *rank, int kernel, void **arguments); /* on the current stream */

/* --- products.c ---------------------------------------------------------------------------------- */

pp_status pp_cuda_products_create(pp_rank *rank);
void pp_cuda_products_destroy(pp_rank *rank);

/* --- names.c: what tools show, by NVTX ------------------------------------------------------------ */

pp_status pp_names_create(pp_rank *rank);
void pp_names_destroy(pp_rank *rank);
void pp_names_stream(cudaStream_t stream, const char *name);
void pp_names_event(cudaEvent_t event, const char *name);
void pp_names_push(const char *range);
void pp_names_pop(void);

#endif
