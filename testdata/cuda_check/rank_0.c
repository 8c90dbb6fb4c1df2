/* Rank 0 of 2: stage 0, h = gelu(x w0 + b0). 1F1B over MICROBATCHES. Sends
 * act.i to rank 1, takes grad.i from it. */
#include "runtime/host.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

enum { PEER = 1, NONE = -1, WORKSPACE_BYTES = 4096 };

/* The arena: name, offset, bytes. Offsets are multiples of 256. */
enum { W0 = 0, B0 = 8192, DW0 = 8448, DB0 = 16640, M_W0 = 16896, V_W0 = 25088,
       M_B0 = 33280, V_B0 = 33536, X = 33792, U = 41984, DU = 50176,
       ACT = 54272, GRAD = 62464, WARM_UP = 70656, WORKSPACE = 70912,
       ARENA_BYTES = 75008 };
enum { ACT_BYTES = ROWS * D_HIDDEN * 4, X_BYTES = ROWS * D_IN * 4 };

static const Buffer buffers[] = {
    {"w0", W0, 8192}, {"b0", B0, 256}, {"dw0", DW0, 8192}, {"db0", DB0, 256},
    {"m_w0", M_W0, 8192}, {"v_w0", V_W0, 8192}, {"m_b0", M_B0, 256},
    {"v_b0", V_B0, 256}, {"x.0", X, X_BYTES}, {"x.1", X + 2048, X_BYTES},
    {"x.2", X + 4096, X_BYTES}, {"x.3", X + 6144, X_BYTES},
    {"u.0", U, ACT_BYTES}, {"u.1", U + 4096, ACT_BYTES}, {"du", DU, ACT_BYTES},
    {"act_slot.0", ACT, ACT_BYTES}, {"act_slot.1", ACT + 4096, ACT_BYTES},
    {"grad_slot.0", GRAD, ACT_BYTES}, {"grad_slot.1", GRAD + 4096, ACT_BYTES},
    {"warm_up", WARM_UP, 256}, {"workspace", WORKSPACE, WORKSPACE_BYTES}};

static char *arena;
static float *at(int offset, int i, int bytes) {
  return (float *)(arena + offset + i * bytes);
}

static cudaStream_t compute, comm;
static cudaEvent_t act_ready[SLOTS], act_sent[SLOTS], grad_ready[SLOTS],
    grad_used[SLOTS];
static ncclComm_t world, pair;
static cublasLtHandle_t blas;
static cudaLibrary_t library;
static cudaKernel_t bias_gelu, bias_gelu_backward, column_sum, adamw;
static Matmul forward_product, weight_product;

static void push(const char *what, int microbatch) {
  char text[64];
  snprintf(text, sizeof text, "%s.%d", what, microbatch);
  nvtxRangePushA(text);
}

/* Where act.i lies while it is sent. */
static float *act_slot(int i) {
  if (host_has_fault("EARLY_REUSE")) i = 0;
  return at(ACT, i % SLOTS, ACT_BYTES);
}

static void forward(int i) {
  int slot = i % SLOTS, rows = ROWS, cols = D_HIDDEN;
  float *x = at(X, i, X_BYTES), *u = at(U, slot, ACT_BYTES);
  float *act = act_slot(i), *b0 = at(B0, 0, 0);
  if (host_has_fault("OUT_OF_BOUNDS")) rows++;
  push("fwd", i);
  CUDA(cudaStreamWaitEvent(compute, act_sent[slot], 0));
  host_matmul(blas, &forward_product, x, at(W0, 0, 0), u, at(WORKSPACE, 0, 0),
              WORKSPACE_BYTES, compute);
  host_launch(bias_gelu, rows * cols, 256,
              (void *[]){&u, &b0, &act, &rows, &cols}, compute);
  CUDA(cudaEventRecord(act_ready[slot], compute));
  nvtxRangePop();
}

static void backward(int i) {
  int slot = i % SLOTS, rows = ROWS, cols = D_HIDDEN;
  float *x = at(X, i, X_BYTES), *u = at(U, slot, ACT_BYTES);
  float *grad = at(GRAD, slot, ACT_BYTES), *du = at(DU, 0, 0);
  float *b0 = at(B0, 0, 0), *db0 = at(DB0, 0, 0);
  push("bwd", i);
  CUDA(cudaStreamWaitEvent(compute, grad_ready[slot], 0));
  host_launch(bias_gelu_backward, rows * cols, 256,
              (void *[]){&u, &b0, &grad, &du, &rows, &cols}, compute);
  CUDA(cudaEventRecord(grad_used[slot], compute));
  host_launch(column_sum, cols, 64, (void *[]){&du, &db0, &rows, &cols}, compute);
  host_matmul(blas, &weight_product, x, du, at(DW0, 0, 0), at(WORKSPACE, 0, 0),
              WORKSPACE_BYTES, compute);
  nvtxRangePop();
}

/* Sends act.`sent` and takes grad.`taken`, as one group; NONE: not this one. */
static void transfer(int sent, int taken) {
  if (taken == MICROBATCHES - 1 && host_has_fault("MISSING_RECEIVE")) return;
  push("transfer", sent != NONE ? sent : taken);
  if (!host_has_fault("UNGROUPED")) NCCL(pair, ncclGroupStart());
  if (sent != NONE) {
    push("send act", sent);
    if (!host_has_fault("DROPPED_WAIT"))
      CUDA(cudaStreamWaitEvent(comm, act_ready[sent % SLOTS], 0));
    NCCL(pair, ncclSend(act_slot(sent), ROWS * D_HIDDEN, ncclFloat32, PEER, pair,
                        comm));
    nvtxRangePop();
  }
  if (taken != NONE) {
    push("recv grad", taken);
    CUDA(cudaStreamWaitEvent(comm, grad_used[taken % SLOTS], 0));
    NCCL(pair, ncclRecv(at(GRAD, taken % SLOTS, ACT_BYTES), ROWS * D_HIDDEN,
                        ncclFloat32, PEER, pair, comm));
    nvtxRangePop();
  }
  if (!host_has_fault("UNGROUPED")) NCCL(pair, ncclGroupEnd());
  if (sent != NONE) CUDA(cudaEventRecord(act_sent[sent % SLOTS], comm));
  if (taken != NONE) CUDA(cudaEventRecord(grad_ready[taken % SLOTS], comm));
  nvtxRangePop();
}

static void update(int step, int p, int g, int m, int v, int n) {
  float *w = at(p, 0, 0), *dw = at(g, 0, 0), *mean = at(m, 0, 0);
  float *square = at(v, 0, 0), lr = 0.01f, c1 = 1.0f, c2 = 1.0f;
  for (int i = 0; i < step; i++) c1 *= 0.9f, c2 *= 0.999f;
  c1 = 1.0f - c1;
  c2 = 1.0f - c2;
  push("adamw", step);
  host_launch(adamw, n, 256,
              (void *[]){&w, &dw, &mean, &square, &n, &lr, &c1, &c2}, compute);
  nvtxRangePop();
}

static void train_step(int step) {
  push("zero gradients", step);
  CUDA(cudaMemsetAsync(at(DW0, 0, 0), 0, D_IN * D_HIDDEN * 4, compute));
  CUDA(cudaMemsetAsync(at(DB0, 0, 0), 0, D_HIDDEN * 4, compute));
  nvtxRangePop();
  forward(0);
  if (host_has_fault("SWAPPED_ORDER")) {
    forward(1);
    transfer(1, NONE);
    transfer(0, 0);
  } else {
    transfer(0, NONE);
    forward(1);
    transfer(1, 0);
  }
  backward(0);
  forward(2);
  transfer(2, 1);
  backward(1);
  forward(3);
  transfer(3, 2);
  backward(2);
  transfer(NONE, 3);
  backward(3);
  update(step, W0, DW0, M_W0, V_W0, D_IN * D_HIDDEN);
  update(step, B0, DB0, M_B0, V_B0, D_HIDDEN);
}

static void start(float *staging) {
  unsigned random = 1;
  CUDA(cudaSetDevice(0));
  CUDA(cudaMalloc((void **)&arena, ARENA_BYTES));
  host_name_buffers(arena, ARENA_BYTES, buffers, sizeof buffers / sizeof *buffers);
  compute = host_stream("compute");
  comm = host_stream("comm");
  host_events(act_ready, SLOTS, "act_ready");
  host_events(act_sent, SLOTS, "act_sent");
  host_events(grad_ready, SLOTS, "grad_ready");
  host_events(grad_used, SLOTS, "grad_used");
  CUDA(cudaLibraryLoadFromFile(&library, "kernels.fatbin", NULL, NULL, 0, NULL,
                               NULL, 0));
  bias_gelu = host_kernel(library, "bias_gelu");
  bias_gelu_backward = host_kernel(library, "bias_gelu_backward");
  column_sum = host_kernel(library, "column_sum");
  adamw = host_kernel(library, "adamw");
  BLAS(cublasLtCreate(&blas));
  host_plan_matmul(blas, &forward_product, ROWS, D_HIDDEN, D_IN, 0, 0, 0.0f, NULL,
                   WORKSPACE_BYTES);
  host_plan_matmul(blas, &weight_product, D_IN, D_HIDDEN, ROWS, 1, 0, 1.0f, NULL,
                   WORKSPACE_BYTES);
  host_run_matmul_first(blas, &forward_product, WORKSPACE_BYTES, compute);
  host_run_matmul_first(blas, &weight_product, WORKSPACE_BYTES, compute);
  world = host_communicator("world", 0);
  pair = host_communicator("pair_0_1", 0);

  CUDA(cudaMemsetAsync(arena + B0, 0, 256, compute));
  CUDA(cudaMemsetAsync(arena + M_W0, 0, 8192, compute));
  CUDA(cudaMemsetAsync(arena + V_W0, 0, 8192, compute));
  CUDA(cudaMemsetAsync(arena + M_B0, 0, 256, compute));
  CUDA(cudaMemsetAsync(arena + V_B0, 0, 256, compute));
  CUDA(cudaMemsetAsync(arena + WARM_UP, 0, 256, comm));
  for (int i = 0; i < D_IN * D_HIDDEN; i++)
    staging[i] = 0.2f * host_uniform(&random);
  CUDA(cudaMemcpyAsync(arena + W0, staging, 8192, cudaMemcpyHostToDevice, compute));
  CUDA(cudaStreamSynchronize(compute));
  for (int i = 0; i < MICROBATCHES * ROWS * D_IN; i++)
    staging[i] = host_uniform(&random);
  for (int i = 0; i < MICROBATCHES; i++)
    CUDA(cudaMemcpyAsync(at(X, i, X_BYTES), staging + i * ROWS * D_IN, X_BYTES,
                         cudaMemcpyHostToDevice, compute));

  /* Connections are set up at first use: touch both directions now. */
  nvtxRangePushA("warm up");
  NCCL(pair, ncclGroupStart());
  NCCL(pair, ncclSend(arena + WARM_UP, 1, ncclFloat32, PEER, pair, comm));
  NCCL(pair, ncclRecv(arena + WARM_UP + 128, 1, ncclFloat32, PEER, pair, comm));
  NCCL(pair, ncclGroupEnd());
  nvtxRangePop();
  if (!host_has_fault("WAIT_BEFORE_RECORD")) {
    for (int i = 0; i < SLOTS; i++) { /* all slots start out free */
      CUDA(cudaEventRecord(act_sent[i], comm));
      CUDA(cudaEventRecord(grad_used[i], compute));
    }
  }
}

int main(void) {
  float *staging, sum = 0.0f;
  CUDA(cudaMallocHost((void **)&staging, 8192));
  host_name_buffers((char *)staging, 8192, &(Buffer){"host_staging", 0, 8192}, 1);
  start(staging);
  for (int step = 1; step <= STEPS; step++) train_step(step);
  if (host_has_fault("USE_AFTER_FREE")) CUDA(cudaFree(arena));
  CUDA(cudaMemcpyAsync(staging, arena + W0, 8192, cudaMemcpyDeviceToHost, compute));
  CUDA(cudaStreamSynchronize(compute));
  CUDA(cudaStreamSynchronize(comm));
  for (int i = 0; i < D_IN * D_HIDDEN; i++) sum += staging[i] * (float)(i % 7);
  printf("rank 0: w0 %a\n", (double)sum);

  NCCL(pair, ncclCommDestroy(pair));
  if (!host_has_fault("LEAK")) NCCL(world, ncclCommDestroy(world));
  host_events_destroy(act_ready, SLOTS);
  host_events_destroy(act_sent, SLOTS);
  host_events_destroy(grad_ready, SLOTS);
  host_events_destroy(grad_used, SLOTS);
  CUDA(cudaStreamDestroy(compute));
  CUDA(cudaStreamDestroy(comm));
  BLAS(cublasLtDestroy(blas));
  CUDA(cudaLibraryUnload(library));
  if (!host_has_fault("USE_AFTER_FREE")) CUDA(cudaFree(arena));
  CUDA(cudaFreeHost(staging));
  return 0;
}
