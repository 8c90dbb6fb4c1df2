/* Small jobs of several ranks, each right or wrong by NCCL's rules. `jobs CASE RANK` is one rank; `jobs` prints the list:
 * the case, how many ranks, and the kind of report that some rank must give ("clean": none does). */
#define _POSIX_C_SOURCE 200809L
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BIG = 10 << 20, SMALL = 1024, MANY_ASKS = 300 };

static int rank, n_ranks;
static float *x, *y; /* of BIG bytes */
static float *host;  /* pinned, of BIG bytes */
static cudaStream_t stream, second;
static cudaEvent_t event;
static ncclComm_t world;

static void must(int is_good, const char *what, int line) {
  if (is_good) return;
  fprintf(stderr, "jobs.c:%d: %s\n", line, what);
  exit(1);
}
#define CUDA(call) must((call) == cudaSuccess, #call, __LINE__)
#define THAT(condition) must(condition, #condition, __LINE__)
#define NCCL(call) must((call) == ncclSuccess, #call, __LINE__)
#define SETTLE(comm, call) must(settle(comm, call) == ncclSuccess, #call, __LINE__)

static ncclResult_t settle(ncclComm_t comm, ncclResult_t result) {
  while (result == ncclInProgress) THAT(ncclCommGetAsyncError(comm, &result) == ncclSuccess);
  return result;
}

/* ---- start and end ---- */

static void share_id(ncclUniqueId *id) {
  char path[512], temporary[520];
  FILE *file = NULL;
  snprintf(path, sizeof path, "%s/id", getenv("PPC_RENDEZVOUS"));
  snprintf(temporary, sizeof temporary, "%s.new", path);
  if (rank == 0) {
    NCCL(ncclGetUniqueId(id));
    file = fopen(temporary, "wb");
    THAT(file && fwrite(id, sizeof *id, 1, file) == 1 && fclose(file) == 0 && rename(temporary, path) == 0);
    return;
  }
  for (int i = 0; i < 10000 && !(file = fopen(path, "rb")); i++) nanosleep(&(struct timespec){0, 1000000}, NULL);
  THAT(file && fread(id, sizeof *id, 1, file) == 1 && fclose(file) == 0);
}

static ncclResult_t start_world(int blocking) {
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  share_id(&id);
  config.blocking = blocking;
  config.commName = "world";
  return ncclCommInitRankConfig(&world, n_ranks, id, rank, &config);
}

static void end_world(void) {
  SETTLE(world, ncclCommFinalize(world));
  NCCL(ncclCommDestroy(world));
}

static void set_up(void) {
  CUDA(cudaMalloc((void **)&x, BIG));
  CUDA(cudaMalloc((void **)&y, BIG));
  CUDA(cudaMallocHost((void **)&host, BIG));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

static void tear_down(void) {
  CUDA(cudaFree(x));
  CUDA(cudaFree(y));
  CUDA(cudaFreeHost(host));
  CUDA(cudaStreamDestroy(stream));
  CUDA(cudaStreamDestroy(second));
  CUDA(cudaEventDestroy(event));
}

static void put(float *to, size_t n, float value, float slope) {
  for (size_t i = 0; i < n; i++) host[i] = value + slope * (float)(i % 1000);
  CUDA(cudaMemcpyAsync(to, host, n * sizeof *to, cudaMemcpyHostToDevice, stream));
  CUDA(cudaStreamSynchronize(stream));
}

static void expect(const float *from, size_t n, float value, float slope) {
  CUDA(cudaMemcpyAsync(host, from, n * sizeof *from, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < n; i++) THAT(host[i] == value + slope * (float)(i % 1000));
}

/* ---- right ---- */

static void big(void) {
  size_t n = BIG / sizeof *x;
  SETTLE(world, start_world(0));
  if (rank == 0) {
    put(x, n, 3, 1);
    SETTLE(world, ncclSend(x, n, ncclFloat32, 1, world, stream));
    CUDA(cudaStreamSynchronize(stream));
  } else {
    SETTLE(world, ncclRecv(x, n, ncclFloat32, 0, world, stream));
    expect(x, n, 3, 1);
  }
  end_world();
}

static void collectives(void) {
  size_t n = BIG / 8 / sizeof *x;
  NCCL(start_world(1));
  put(x, n, (float)rank, 1);
  NCCL(ncclAllReduce(x, y, n, ncclFloat32, ncclSum, world, stream));
  expect(y, n, (float)(n_ranks * (n_ranks - 1) / 2), (float)n_ranks);
  NCCL(ncclAllReduce(x, x, 8, ncclFloat32, ncclMax, world, stream));
  expect(x, 8, (float)(n_ranks - 1), 1);
  put(x, n, (float)rank, 0);
  NCCL(ncclBroadcast(x, y, n, ncclFloat32, 2, world, stream));
  expect(y, n, 2, 0);
  end_world();
}

static void ring(void) {
  NCCL(start_world(1));
  put(x, SMALL, (float)rank, 1);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(x, SMALL, ncclFloat32, (rank + 1) % n_ranks, world, stream));
  NCCL(ncclRecv(y, SMALL, ncclFloat32, (rank + n_ranks - 1) % n_ranks, world, stream));
  NCCL(ncclGroupEnd());
  expect(y, SMALL, (float)((rank + n_ranks - 1) % n_ranks), 1);
  end_world();
}

/* Even and odd ranks, in reverse order; then rank 0 of each sends to rank 1. */
static void split(void) {
  ncclComm_t half = NULL, none = NULL;
  int mine, count;
  SETTLE(world, start_world(0));
  NCCL(settle(world, ncclCommSplit(world, NCCL_SPLIT_NOCOLOR, 0, &none, NULL)));
  THAT(none == NULL);
  ncclResult_t result = ncclCommSplit(world, rank % 2, -rank, &half, NULL);
  SETTLE(half, result);
  SETTLE(world, ncclSuccess);
  NCCL(ncclCommUserRank(half, &mine));
  NCCL(ncclCommCount(half, &count));
  THAT(count == n_ranks / 2 && mine == (n_ranks - 1 - rank) / 2);
  if (mine == 0) put(x, SMALL, (float)(rank % 2), 1);
  if (mine == 0) SETTLE(half, ncclSend(x, SMALL, ncclFloat32, 1, half, stream));
  if (mine == 1) {
    SETTLE(half, ncclRecv(x, SMALL, ncclFloat32, 0, half, stream));
    expect(x, SMALL, (float)(rank % 2), 1);
  }
  CUDA(cudaStreamSynchronize(stream));
  SETTLE(half, ncclCommFinalize(half));
  NCCL(ncclCommDestroy(half));
  end_world();
}

/* The answer orders rank 0's new value behind the sending of the old one, though they are on two streams. */
static void echo(void) {
  NCCL(start_world(1));
  if (rank == 0) {
    put(x, SMALL, 1, 1);
    NCCL(ncclSend(x, SMALL, ncclFloat32, 1, world, stream));
    NCCL(ncclRecv(y, SMALL, ncclFloat32, 1, world, second));
    CUDA(cudaMemsetAsync(x, 0, SMALL, second));
  } else {
    NCCL(ncclRecv(x, SMALL, ncclFloat32, 0, world, stream));
    NCCL(ncclSend(x, SMALL, ncclFloat32, 0, world, stream));
  }
  CUDA(cudaDeviceSynchronize());
  end_world();
}

/* Asks for a while, as a runtime with a time-out does. */
static int comes(void) {
  for (int i = 0; i < MANY_ASKS; i++) {
    ncclResult_t result;
    if (cudaStreamQuery(stream) == cudaSuccess) return 1;
    NCCL(ncclCommGetAsyncError(world, &result));
    if (result != ncclSuccess && result != ncclInProgress) return 0;
  }
  return 0;
}

static void give_up(void) {
  THAT(!comes());
  NCCL(ncclCommAbort(world));
  CUDA(cudaDeviceSynchronize());
}

static void abort_both(void) { /* both receive */
  SETTLE(world, start_world(0));
  put(x, SMALL, 1, 1);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(x, SMALL, ncclFloat32, 1 - rank, world, stream));
  NCCL(ncclRecv(y, SMALL, ncclFloat32, 1 - rank, world, stream));
  SETTLE(world, ncclGroupEnd());
  SETTLE(world, ncclRecv(y, SMALL, ncclFloat32, 1 - rank, world, stream));
  give_up();
}

static void never_comes(void) {
  ncclResult_t result = ncclInProgress;
  if (rank == 1) return;
  start_world(0);
  for (int i = 0; i < MANY_ASKS; i++) NCCL(ncclCommGetAsyncError(world, &result));
  THAT(result == ncclInProgress);
  NCCL(ncclCommAbort(world));
}

/* Rank 1 may be gone before rank 0 has asked about its own start: from then on every question may be answered with
 * the loss of the peer. */
static void dies(void) {
  ncclResult_t result;
  SETTLE(world, start_world(0));
  put(x, SMALL, 1, 1);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(x, SMALL, ncclFloat32, 1 - rank, world, stream));
  NCCL(ncclRecv(y, SMALL, ncclFloat32, 1 - rank, world, stream));
  result = settle(world, ncclGroupEnd());
  if (rank == 1) {
    THAT(result == ncclSuccess);
    CUDA(cudaStreamSynchronize(stream));
    raise(SIGKILL);
  }
  if (result == ncclSuccess) {
    CUDA(cudaStreamSynchronize(stream));
    result = settle(world, ncclRecv(y, SMALL, ncclFloat32, 1, world, stream));
    if (result == ncclSuccess) THAT(!comes());
  }
  THAT(result == ncclSuccess || result == ncclRemoteError);
  NCCL(ncclCommAbort(world));
  CUDA(cudaDeviceSynchronize());
}

/* ---- wrong ---- */

static void start_and_receive(void) {
  SETTLE(world, start_world(0));
  put(x, SMALL, 1, 1);
  NCCL(ncclGroupStart());
  NCCL(ncclSend(x, SMALL, ncclFloat32, 1 - rank, world, stream));
  NCCL(ncclRecv(y, SMALL, ncclFloat32, 1 - rank, world, stream));
  SETTLE(world, ncclGroupEnd());
  SETTLE(world, ncclRecv(y, SMALL, ncclFloat32, 1 - rank, world, stream));
}

static void both_wait(void) {
  start_and_receive();
  CUDA(cudaStreamSynchronize(stream));
}

static void both_ask(void) {
  start_and_receive();
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
  }
}

static void asks_and_waits(void) {
  start_and_receive();
  while (rank == 0 && cudaStreamQuery(stream) == cudaErrorNotReady) {
  }
  CUDA(cudaStreamSynchronize(stream));
}

static void elsewhere(void) { /* rank 1 sleeps where the libraries can't see it: PPC_CHECK_LIMIT */
  start_and_receive();
  if (rank == 1) sleep(4);
  CUDA(cudaStreamSynchronize(stream));
}

static void other_collective(void) {
  NCCL(start_world(1));
  put(x, SMALL, 1, 1);
  NCCL(ncclAllReduce(x, y, SMALL, ncclFloat32, rank == 0 ? ncclSum : ncclMax, world, stream));
  CUDA(cudaStreamSynchronize(stream));
  end_world();
}

static void before_ready(void) {
  ncclResult_t result = start_world(0);
  THAT(result == ncclInProgress);
  ncclSend(x, SMALL, ncclFloat32, 1 - rank, world, stream);
  exit(1);
}

static void leak(void) { NCCL(start_world(1)); }

static void reads_too_early(void) { /* a received value, on a stream that doesn't wait for it */
  NCCL(start_world(1));
  put(x, SMALL, 1, 1);
  if (rank == 0) {
    NCCL(ncclSend(x, SMALL, ncclFloat32, 1, world, stream));
  } else {
    NCCL(ncclRecv(x, SMALL, ncclFloat32, 0, world, stream));
    CUDA(cudaMemcpyAsync(host, x, SMALL, cudaMemcpyDeviceToHost, second));
  }
  CUDA(cudaDeviceSynchronize());
  end_world();
}

static const struct {
  const char *name, *kind;
  int n_ranks;
  void (*run)(void);
} cases[] = {
    {"big", "clean", 2, big},
    {"collectives", "clean", 4, collectives},
    {"ring", "clean", 8, ring},
    {"split", "clean", 4, split},
    {"echo", "clean", 2, echo},
    {"abort_both", "clean", 2, abort_both},
    {"never_comes", "clean", 2, never_comes},
    {"dies", "clean", 2, dies},
    {"both_wait", "hang", 2, both_wait},
    {"both_ask", "hang", 2, both_ask},
    {"asks_and_waits", "hang", 2, asks_and_waits},
    {"elsewhere", "hang", 2, elsewhere},
    {"other_collective", "order mismatch", 2, other_collective},
    {"before_ready", "misuse", 2, before_ready},
    {"leak", "leak", 2, leak},
    {"reads_too_early", "race", 2, reads_too_early},
};

int main(int n_arguments, char **arguments) {
  size_t n = sizeof cases / sizeof *cases;
  for (size_t i = 0; i < n && n_arguments < 3; i++) printf("%s %d %s\n", cases[i].name, cases[i].n_ranks, cases[i].kind);
  if (n_arguments < 3) return 0;
  rank = atoi(arguments[2]);
  set_up();
  for (size_t i = 0; i < n; i++) {
    if (strcmp(arguments[1], cases[i].name) != 0) continue;
    n_ranks = cases[i].n_ranks;
    cases[i].run();
  }
  tear_down();
  return 0;
}
