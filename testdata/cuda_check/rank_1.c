/* Rank 1 of 2: stage 1, y = layernorm(h) w1 + b1, loss = mean (y - target)^2.
 * Takes act.i from rank 0, sends grad.i back. */
#include "runtime/host.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

enum { PEER = 0, NONE = -1, WORKSPACE_BYTES = 4096 };

/* The arena: name, offset, bytes. Offsets are multiples of 256. */
enum { W1 = 0, B1 = 4096, DW1 = 4352, DB1 = 8448, M_W1 = 8704, V_W1 = 12800,
       M_B1 = 16896, V_B1 = 17152, TARGET = 17408, NORM = 21504, RSTD = 25600,
       Y = 25856, DY = 26880, DNORM = 27904, ACT = 32000, GRAD = 40192,
       LOSS = 48384, WARM_UP = 48640, WORKSPACE = 48896, ARENA_BYTES = 52992 };
enum { ACT_BYTES = ROWS * D_HIDDEN * 4, Y_BYTES = ROWS * D_OUT * 4 };

static const Buffer buffers[] = {
    {"w1", W1, 4096}, {"b1", B1, 64}, {"dw1", DW1, 4096}, {"db1", DB1, 64},
    {"m_w1", M_W1, 4096}, {"v_w1", V_W1, 4096}, {"m_b1", M_B1, 64},
    {"v_b1", V_B1, 64}, {"target.0", TARGET, Y_BYTES},
    {"target.1", TARGET + 1024, Y_BYTES}, {"target.2", TARGET + 2048, Y_BYTES},
    {"target.3", TARGET + 3072, Y_BYTES}, {"norm", NORM, ACT_BYTES},
    {"rstd", RSTD, ROWS * 4}, {"y", Y, Y_BYTES}, {"dy", DY, Y_BYTES},
    {"dnorm", DNORM, ACT_BYTES}, {"act_slot.0", ACT, ACT_BYTES},
    {"act_slot.1", ACT + 4096, ACT_BYTES}, {"grad_slot.0", GRAD, ACT_BYTES},
    {"grad_slot.1", GRAD + 4096, ACT_BYTES}, {"loss", LOSS, 4},
    {"warm_up", WARM_UP, 256}, {"workspace", WORKSPACE, WORKSPACE_BYTES}};

static char *arena;
static float *at(int offset, int i, int bytes) {
  return (float *)(arena + offset + i * bytes);
}

static cudaStream_t compute, comm;
static cudaEvent_t act_ready[SLOTS], act_used[SLOTS], grad_ready[SLOTS],
    grad_sent[SLOTS];
static ncclComm_t world, pair;
static cublasLtHandle_t blas;
static cudaLibrary_t library;
static cudaKernel_t layernorm, layernorm_backward, mse_loss, column_sum, adamw;
static Matmul forward_product, weight_product, input_product;

static void push(const char *what, int microbatch) {
  char text[64];
  snprintf(text, sizeof text, "%s.%d", what, microbatch);
  nvtxRangePushA(text);
}

static void forward(int i) {
  int slot = i % SLOTS, n = ROWS * D_OUT;
  float *act = at(ACT, slot, ACT_BYTES), *norm = at(NORM, 0, 0);
  float *rstd = at(RSTD, 0, 0), *y = at(Y, 0, 0), *dy = at(DY, 0, 0);
  float *target = at(TARGET, i, Y_BYTES), *loss = at(LOSS, 0, 0);
  float scale = 1.0f / (float)(MICROBATCHES * n);
  push("fwd", i);
  CUDA(cudaStreamWaitEvent(compute, act_ready[slot], 0));
  host_launch(layernorm, ROWS * D_HIDDEN, D_HIDDEN,
              (void *[]){&act, &norm, &rstd}, compute);
  CUDA(cudaEventRecord(act_used[slot], compute));
  host_matmul(blas, &forward_product, norm, at(W1, 0, 0), y, at(WORKSPACE, 0, 0),
              WORKSPACE_BYTES, compute);
  host_launch(mse_loss, 256, 256,
              (void *[]){&y, &target, &dy, &loss, &n, &scale}, compute);
  nvtxRangePop();
}

static void backward(int i) {
  int slot = i % SLOTS, rows = ROWS, cols = D_OUT;
  float *norm = at(NORM, 0, 0), *rstd = at(RSTD, 0, 0), *dy = at(DY, 0, 0);
  float *db1 = at(DB1, 0, 0), *dnorm = at(DNORM, 0, 0);
  float *grad = at(GRAD, slot, ACT_BYTES);
  push("bwd", i);
  host_launch(column_sum, cols, 64, (void *[]){&dy, &db1, &rows, &cols}, compute);
  host_matmul(blas, &weight_product, norm, dy, at(DW1, 0, 0),
              at(WORKSPACE, 0, 0), WORKSPACE_BYTES, compute);
  host_matmul(blas, &input_product, dy, at(W1, 0, 0), dnorm,
              at(WORKSPACE, 0, 0), WORKSPACE_BYTES, compute);
  CUDA(cudaStreamWaitEvent(compute, grad_sent[slot], 0));
  host_launch(layernorm_backward, ROWS * D_HIDDEN, D_HIDDEN,
              (void *[]){&dnorm, &norm, &rstd, &grad}, compute);
  CUDA(cudaEventRecord(grad_ready[slot], compute));
  nvtxRangePop();
}

/* Takes act.`taken` and sends grad.`sent`, as one group; NONE: not this one. */
static void transfer(int taken, int sent) {
  ncclComm_t used = pair;
  size_t n_taken = ROWS * D_HIDDEN;
  if (taken == 2 && host_has_fault("WRONG_COMMUNICATOR")) used = world;
  if (taken == 2 && host_has_fault("WRONG_SIZE")) n_taken /= 2;
  push("transfer", taken != NONE ? taken : sent);
  if (!host_has_fault("UNGROUPED")) NCCL(pair, ncclGroupStart());
  if (sent != NONE) {
    push("send grad", sent);
    CUDA(cudaStreamWaitEvent(comm, grad_ready[sent % SLOTS], 0));
    NCCL(used, ncclSend(at(GRAD, sent % SLOTS, ACT_BYTES), ROWS * D_HIDDEN,
                        ncclFloat32, PEER, used, comm));
    nvtxRangePop();
  }
  if (taken != NONE) {
    push("recv act", taken);
    CUDA(cudaStreamWaitEvent(comm, act_used[taken % SLOTS], 0));
    NCCL(used, ncclRecv(at(ACT, taken % SLOTS, ACT_BYTES), n_taken, ncclFloat32,
                        PEER, used, comm));
    nvtxRangePop();
  }
  if (!host_has_fault("UNGROUPED")) NCCL(used, ncclGroupEnd());
  if (sent != NONE) CUDA(cudaEventRecord(grad_sent[sent % SLOTS], comm));
  if (taken != NONE) CUDA(cudaEventRecord(act_ready[taken % SLOTS], comm));
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
  CUDA(cudaMemsetAsync(at(DW1, 0, 0), 0, D_HIDDEN * D_OUT * 4, compute));
  CUDA(cudaMemsetAsync(at(DB1, 0, 0), 0, D_OUT * 4, compute));
  CUDA(cudaMemsetAsync(at(LOSS, 0, 0), 0, 4, compute));
  nvtxRangePop();
  transfer(0, NONE);
  forward(0);
  backward(0);
  transfer(1, 0);
  forward(1);
  backward(1);
  transfer(2, 1);
  forward(2);
  backward(2);
  transfer(3, 2);
  forward(3);
  backward(3);
  transfer(NONE, 3);
  update(step, W1, DW1, M_W1, V_W1, D_HIDDEN * D_OUT);
  update(step, B1, DB1, M_B1, V_B1, D_OUT);
}

static void start(float *staging) {
  unsigned random = 2;
  CUDA(cudaSetDevice(0));
  CUDA(cudaMalloc((void **)&arena, ARENA_BYTES));
  host_name_buffers(arena, ARENA_BYTES, buffers, sizeof buffers / sizeof *buffers);
  compute = host_stream("compute");
  comm = host_stream("comm");
  host_events(act_ready, SLOTS, "act_ready");
  host_events(act_used, SLOTS, "act_used");
  host_events(grad_ready, SLOTS, "grad_ready");
  host_events(grad_sent, SLOTS, "grad_sent");
  CUDA(cudaLibraryLoadFromFile(&library, "kernels.fatbin", NULL, NULL, 0, NULL,
                               NULL, 0));
  layernorm = host_kernel(library, "layernorm");
  layernorm_backward = host_kernel(library, "layernorm_backward");
  mse_loss = host_kernel(library, "mse_loss");
  column_sum = host_kernel(library, "column_sum");
  adamw = host_kernel(library, "adamw");
  BLAS(cublasLtCreate(&blas));
  host_plan_matmul(blas, &forward_product, ROWS, D_OUT, D_HIDDEN, 0, 0, 0.0f,
                   at(B1, 0, 0), WORKSPACE_BYTES);
  host_plan_matmul(blas, &weight_product, D_HIDDEN, D_OUT, ROWS, 1, 0, 1.0f, NULL,
                   WORKSPACE_BYTES);
  host_plan_matmul(blas, &input_product, ROWS, D_HIDDEN, D_OUT, 0, 1, 0.0f, NULL,
                   WORKSPACE_BYTES);
  CUDA(cudaMemsetAsync(arena + B1, 0, 64, compute));
  host_run_matmul_first(blas, &forward_product, WORKSPACE_BYTES, compute);
  host_run_matmul_first(blas, &weight_product, WORKSPACE_BYTES, compute);
  host_run_matmul_first(blas, &input_product, WORKSPACE_BYTES, compute);
  world = host_communicator("world", 1);
  pair = host_communicator("pair_0_1", 1);

  CUDA(cudaMemsetAsync(arena + M_W1, 0, 4096, compute));
  if (!host_has_fault("UNINITIALISED"))
    CUDA(cudaMemsetAsync(arena + V_W1, 0, 4096, compute));
  CUDA(cudaMemsetAsync(arena + M_B1, 0, 64, compute));
  CUDA(cudaMemsetAsync(arena + V_B1, 0, 64, compute));
  CUDA(cudaMemsetAsync(arena + WARM_UP, 0, 256, comm));
  for (int i = 0; i < D_HIDDEN * D_OUT; i++)
    staging[i] = 0.2f * host_uniform(&random);
  CUDA(cudaMemcpyAsync(arena + W1, staging, 4096, cudaMemcpyHostToDevice, compute));
  CUDA(cudaStreamSynchronize(compute));
  for (int i = 0; i < MICROBATCHES * ROWS * D_OUT; i++)
    staging[i] = host_uniform(&random);
  for (int i = 0; i < MICROBATCHES; i++)
    CUDA(cudaMemcpyAsync(at(TARGET, i, Y_BYTES), staging + i * ROWS * D_OUT,
                         Y_BYTES, cudaMemcpyHostToDevice, compute));

  /* Connections are set up at first use: touch both directions now. */
  nvtxRangePushA("warm up");
  NCCL(pair, ncclGroupStart());
  NCCL(pair, ncclSend(arena + WARM_UP, 1, ncclFloat32, PEER, pair, comm));
  NCCL(pair, ncclRecv(arena + WARM_UP + 128, 1, ncclFloat32, PEER, pair, comm));
  NCCL(pair, ncclGroupEnd());
  nvtxRangePop();
  for (int i = 0; i < SLOTS; i++) { /* all slots start out free */
    CUDA(cudaEventRecord(grad_sent[i], comm));
    CUDA(cudaEventRecord(act_used[i], compute));
  }
}

int main(void) {
  float *staging, *loss, sum = 0.0f;
  CUDA(cudaMallocHost((void **)&staging, 8192));
  CUDA(cudaMallocHost((void **)&loss, 4));
  host_name_buffers((char *)staging, 8192, &(Buffer){"host_staging", 0, 8192}, 1);
  host_name_buffers((char *)loss, 4, &(Buffer){"host_loss", 0, 4}, 1);
  start(staging);
  for (int step = 1; step <= STEPS; step++) {
    train_step(step);
    push("print loss", step);
    CUDA(cudaMemcpyAsync(loss, at(LOSS, 0, 0), 4, cudaMemcpyDeviceToHost, compute));
    if (!host_has_fault("MISSING_SYNC")) CUDA(cudaStreamSynchronize(compute));
    if (host_has_fault("HOST_DEREFERENCE")) loss = at(LOSS, 0, 0);
    printf("rank 1: step %d loss %a\n", step, (double)loss[0]);
    nvtxRangePop();
  }
  CUDA(cudaMemcpyAsync(staging, arena + W1, 4096, cudaMemcpyDeviceToHost, compute));
  CUDA(cudaStreamSynchronize(compute));
  CUDA(cudaStreamSynchronize(comm));
  for (int i = 0; i < D_HIDDEN * D_OUT; i++) sum += staging[i] * (float)(i % 7);
  printf("rank 1: w1 %a\n", (double)sum);

  NCCL(pair, ncclCommDestroy(pair));
  NCCL(world, ncclCommDestroy(world));
  host_events_destroy(act_ready, SLOTS);
  host_events_destroy(act_used, SLOTS);
  host_events_destroy(grad_ready, SLOTS);
  host_events_destroy(grad_sent, SLOTS);
  CUDA(cudaStreamDestroy(compute));
  CUDA(cudaStreamDestroy(comm));
  BLAS(cublasLtDestroy(blas));
  CUDA(cudaLibraryUnload(library));
  CUDA(cudaFree(arena));
  CUDA(cudaFreeHost(staging));
  CUDA(cudaFreeHost(loss));
  return 0;
}
