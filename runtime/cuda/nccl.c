/* Transfers between GPUs by NCCL. The control plane is that of shared memory: board, barrier, tensors for rank 0,
 * watchdog. The data plane is one communicator of all ranks on one stream per rank, where a rank's transfers follow
 * one another in the order of its plan (transfers.c), without groups. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transfers.h"

struct pp_nccl {
  _Atomic(ncclComm_t) communicator; /* whoever takes it out ends it */
};

/* --- checked calls ------------------------------------------------------------------------------------ */

static void nap(long ns) {
  struct timespec time = {.tv_sec = 0, .tv_nsec = ns};
  nanosleep(&time, NULL);
}

/* NCCL may notice first that a peer has gone; the watchdog, which can tell what happened to it, gets a second. */
static int is_told(pp_rank *rank) {
  for (int i = 0; i < 1000 && !pp_failing(rank); i++) nap(1000 * 1000);
  return pp_failing(rank);
}

static pp_status nccl_fail(pp_rank *rank, const char *call, int line, ncclResult_t result) {
  ncclComm_t communicator = atomic_load(&rank->nccl->communicator);
  char text[600];
  if ((result == ncclRemoteError || result == ncclSystemError) && is_told(rank)) return PP_STOPPED;
  const char *more = communicator ? ncclGetLastError(communicator) : "";
  snprintf(text, sizeof text, "%s%s%s", ncclGetErrorString(result), more && *more ? ": " : "", more ? more : "");
  return pp_cuda_fail(rank, call, __FILE__, line, text);
}

/* Calls on the communicator come back before they have taken effect: the next one has to wait. How long that may take, as
 * the call itself, is the watchdog's to limit (pp_limit; in a step PP_ISSUES). */
static pp_status settle(pp_rank *rank, const char *call, int line, ncclResult_t result) {
  ncclComm_t communicator = atomic_load(&rank->nccl->communicator);
  for (int asked = 0; result == ncclInProgress && communicator; asked++) {
    if (pp_failing(rank)) return PP_STOPPED;
    ncclResult_t asking = ncclCommGetAsyncError(communicator, &result);
    if (asking != ncclSuccess) return nccl_fail(rank, "ncclCommGetAsyncError", __LINE__, asking);
    if (result != ncclInProgress) break;
    if (asked > 100) nap(100 * 1000);
  }
  return result == ncclSuccess ? PP_OK : nccl_fail(rank, call, line, result);
}
#define SETTLE(rank, call) settle(rank, #call, __LINE__, call)

/* --- the communicator ----------------------------------------------------------------------------------- */

static pp_status share_id(pp_rank *rank, ncclUniqueId *id) {
  ncclResult_t result = rank->program->rank == 0 ? ncclGetUniqueId(id) : ncclSuccess;
  if (result != ncclSuccess) return nccl_fail(rank, "ncclGetUniqueId", __LINE__, result);
  if (rank->program->rank == 0) memcpy(rank->chunk, id, sizeof *id);
  PP_TRY(rank->transport->barrier(rank));
  memcpy(id, rank->chunk, sizeof *id);
  return rank->transport->barrier(rank);
}

/* Rank 0 says it for all; the others wait for it. What makes NCCL allow it is the environment's. */
static pp_status refuse_shared(pp_rank *rank) {
  int a, b;
  if (rank->program->rank != 0 || getenv("NCCL_HOSTID") || getenv("NCCL_MULTI_RANK_GPU_ENABLE")) return PP_OK;
  if (!pp_gpus_shared(rank, &a, &b)) return PP_OK;
  return pp_fail(rank, PP_EXIT_INPUT, "ranks %d and %d have one GPU, which NCCL refuses: --transport=host or auto, a GPU for each, or each rank "
                 "an NCCL_HOSTID of its own", a, b);
}

static pp_status create_communicator(pp_rank *rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t communicator = NULL;
  ncclUniqueId id;
  config.blocking = 0;
  config.commName = "world";
  PP_TRY(refuse_shared(rank));
  PP_TRY(share_id(rank, &id));
  pp_limit(rank, rank->options->start_timeout_s, "--start-timeout", "all ranks to make the communicator");
  ncclResult_t result = ncclCommInitRankConfig(&communicator, rank->program->n_ranks, id, rank->program->rank, &config);
  atomic_store(&rank->nccl->communicator, communicator);
  pp_status status = settle(rank, "ncclCommInitRankConfig", __LINE__, result);
  pp_limit_end(rank);
  return status;
}

static int has_transfer(const pp_program *program, int peer, int is_send) {
  for (uint32_t t = 0; t < program->n_transfers; t++)
    if (program->transfers[t].peer == peer && program->transfers[t].is_send == is_send) return 1;
  return 0;
}

static pp_status first_transfer(pp_rank *rank, int peer, int sends) {
  struct pp_cuda *cuda = rank->cuda;
  ncclComm_t communicator = atomic_load(&rank->nccl->communicator);
  if (!communicator) return PP_STOPPED;
  if (sends) PP_TRY(SETTLE(rank, ncclSend(cuda->warm, PP_CUDA_WARM_BYTES, ncclInt8, peer, communicator, cuda->communication)));
  else PP_TRY(SETTLE(rank, ncclRecv(cuda->warm, PP_CUDA_WARM_BYTES, ncclInt8, peer, communicator, cuda->communication)));
  PP_CUDA_TRY(rank, cudaEventRecord(cuda->drained, cuda->communication));
  return pp_cuda_await(rank, cuda->drained);
}

/* The first transfer between two ranks sets up their connection, and may wait for the peer to do so: each is made
 * here, in one order on all ranks. */
static pp_status warm_up(pp_rank *rank, int from, int to) {
  int own = rank->program->rank, sends = from == own, peer = sends ? to : from;
  char tag[64];
  if ((from != own && to != own) || !has_transfer(rank->program, peer, sends)) return PP_OK;
  snprintf(tag, sizeof tag, "%s first from %d to %d", sends ? "send" : "recv", from, to);
  pp_limit(rank, rank->options->start_timeout_s, "--start-timeout", "the first transfer from rank %d to rank %d", from, to);
  pp_names_push(tag);
  pp_status status = first_transfer(rank, peer, sends);
  pp_names_pop();
  pp_limit_end(rank);
  return status;
}

/* --- start and end --------------------------------------------------------------------------------------- */

/* Text for the log, behind the device's. */
static pp_status add_version(pp_rank *rank) {
  int version = 0;
  size_t used = strlen(rank->about);
  ncclResult_t result = ncclGetVersion(&version);
  if (result != ncclSuccess) return nccl_fail(rank, "ncclGetVersion", __LINE__, result);
  snprintf(rank->about + used, sizeof rank->about - used, ", NCCL %d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
  return PP_OK;
}

static pp_status start(pp_rank *rank) {
  int n_ranks = rank->program->n_ranks;
  rank->nccl = calloc(1, sizeof *rank->nccl);
  if (!rank->nccl) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  PP_TRY(add_version(rank));
  PP_TRY(pp_transfers_create(rank));
  PP_TRY(create_communicator(rank));
  for (int from = 0; from < n_ranks; from++)
    for (int to = 0; to < n_ranks; to++) PP_TRY(warm_up(rank, from, to));
  return PP_OK;
}

/* From the watchdog too, when the rank's own thread does not come back. */
static void end_at_once(pp_rank *rank) {
  ncclComm_t communicator = rank->nccl ? atomic_exchange(&rank->nccl->communicator, NULL) : NULL;
  ncclResult_t result = communicator ? ncclCommAbort(communicator) : ncclSuccess;
  if (result != ncclSuccess) pp_warn(rank, "ncclCommAbort(communicator): %s", ncclGetErrorString(result));
}

static void end_in_order(pp_rank *rank) {
  ncclComm_t communicator = atomic_load(&rank->nccl->communicator);
  if (!communicator) return;
  if (SETTLE(rank, ncclCommFinalize(communicator)) != PP_OK) {
    end_at_once(rank);
    return;
  }
  atomic_store(&rank->nccl->communicator, NULL);
  ncclResult_t result = ncclCommDestroy(communicator);
  if (result != ncclSuccess) nccl_fail(rank, "ncclCommDestroy(communicator)", __LINE__, result);
}

/* NCCL ends a communicator, or aborts it, when no graph holds its transfers any more. */
static void stop(pp_rank *rank) {
  if (!rank->nccl) return;
  pp_cuda_graphs_destroy(rank);
  if (pp_failing(rank)) end_at_once(rank);
  else end_in_order(rank);
  pp_transfers_destroy(rank);
}

/* What the watchdog may look at goes last. */
static void disconnect(pp_rank *rank) {
  free(rank->nccl);
  rank->nccl = NULL;
  pp_shm_disconnect(rank);
}

/* --- transfers --------------------------------------------------------------------------------------------- */

static void move(pp_rank *rank, uint32_t transfer) {
  const pp_transfer *t = &rank->program->transfers[transfer];
  void *at = pp_address_in(rank, t->space, t->offset);
  ncclComm_t communicator = atomic_load_explicit(&rank->nccl->communicator, memory_order_relaxed);
  cudaStream_t stream = rank->cuda->communication;
  if (!communicator || pp_failing(rank)) return;
  if (t->is_send) SETTLE(rank, ncclSend(at, t->size_bytes, ncclInt8, t->peer, communicator, stream));
  else SETTLE(rank, ncclRecv(at, t->size_bytes, ncclInt8, t->peer, communicator, stream));
}

static void post(pp_rank *rank, uint32_t transfer) { pp_transfers_post(rank, transfer, move); }

static pp_status look(pp_rank *rank) {
  ncclResult_t result = ncclSuccess;
  ncclComm_t communicator = rank->nccl ? atomic_load(&rank->nccl->communicator) : NULL;
  if (!communicator) return PP_OK;
  ncclResult_t asking = ncclCommGetAsyncError(communicator, &result);
  if (asking != ncclSuccess) return nccl_fail(rank, "ncclCommGetAsyncError", __LINE__, asking);
  if (result != ncclSuccess && result != ncclInProgress) return nccl_fail(rank, "a transfer", __LINE__, result);
  return pp_transfers_look(rank);
}

static int fits(int n_ranks) { return n_ranks > 1; }

const pp_transport pp_transport_nccl = {
    .name = "nccl",
    .fits = fits,
    .connect = pp_shm_connect,
    .start = start,
    .stop = stop,
    .disconnect = disconnect,
    .abort = end_at_once,
    .look = look,
    .repeat = pp_transfers_repeat,
    .post_send = post,
    .post_receive = post,
    .await_send = pp_transfers_await,
    .await_receive = pp_transfers_await,
    .progress = pp_transfers_progress,
    .barrier = pp_board_barrier,
    .give = pp_board_give,
    .take = pp_board_take,
};
