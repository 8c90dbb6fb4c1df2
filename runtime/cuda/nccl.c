/* Transfers between GPUs by NCCL. The control plane is that of shared memory: board, barrier, tensors for rank 0,
 * watchdog. The data plane is one communicator of all ranks on one stream per rank, where a rank's transfers follow
 * one another in the order of its plan, without groups (docs/decisions/0001, 0006). A post makes that stream wait for
 * the compute streams that its row in `ops` names and enqueues the transfer; an await makes compute streams wait for the
 * transfer's event. The host waits for nothing. It learns where the device is from the transfers' events, when it waits
 * for a step's end, and tells the watchdog. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rank.h"

struct pp_nccl {
  _Atomic(ncclComm_t) communicator; /* whoever takes it out ends it */
  cudaEvent_t *posted[PP_CUDA_MAX_STREAMS]; /* [n_transfers] what a compute stream had been given then */
  cudaEvent_t *moved;    /* [n_transfers] */
  uint32_t *action_of;   /* [n_transfers] the action that posts it */
  uint32_t *issued;      /* [n_transfers] of this step, in order; the first `done` of them are complete */
  uint8_t *waits;        /* [n_transfers] compute streams that the post waits for */
  uint32_t n_issued, done, told; /* told: the watchdog knows that the device is at `done` = told - 1 */
  uint64_t step;
  char **tags;           /* [n_transfers] for NVTX; null when nobody listens */
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

/* Calls on the communicator come back before they have taken effect: the next one has to wait. */
static pp_status settle(pp_rank *rank, const char *call, int line, ncclResult_t result, double limit_s) {
  uint64_t start_ns = pp_now_ns();
  ncclComm_t communicator = atomic_load(&rank->nccl->communicator);
  for (int asked = 0; result == ncclInProgress && communicator; asked++) {
    ncclResult_t asking = ncclCommGetAsyncError(communicator, &result);
    if (asking != ncclSuccess) return nccl_fail(rank, "ncclCommGetAsyncError", __LINE__, asking);
    if (result != ncclInProgress) break;
    if (pp_failing(rank)) return PP_STOPPED;
    double waited_s = (double)(pp_now_ns() - start_ns) * 1e-9;
    if (limit_s > 0 && waited_s > limit_s) return pp_fail(rank, PP_EXIT_FAILED, "waited %g s for %s", limit_s, call);
    if (asked > 100) nap(100 * 1000);
  }
  return result == ncclSuccess ? PP_OK : nccl_fail(rank, call, line, result);
}
#define SETTLE(rank, call) settle(rank, #call, __LINE__, call, 0)

/* --- the communicator ----------------------------------------------------------------------------------- */

static pp_status share_id(pp_rank *rank, ncclUniqueId *id) {
  ncclResult_t result = rank->program->rank == 0 ? ncclGetUniqueId(id) : ncclSuccess;
  if (result != ncclSuccess) return nccl_fail(rank, "ncclGetUniqueId", __LINE__, result);
  if (rank->program->rank == 0) memcpy(rank->chunk, id, sizeof *id);
  PP_TRY(rank->transport->barrier(rank));
  memcpy(id, rank->chunk, sizeof *id);
  return rank->transport->barrier(rank);
}

static pp_status create_communicator(pp_rank *rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t communicator = NULL;
  ncclUniqueId id;
  config.blocking = 0;
  config.commName = "world";
  PP_TRY(share_id(rank, &id));
  ncclResult_t result = ncclCommInitRankConfig(&communicator, rank->program->n_ranks, id, rank->program->rank, &config);
  atomic_store(&rank->nccl->communicator, communicator);
  return settle(rank, "all ranks to make the communicator (--start-timeout)", __LINE__, result, rank->options->start_timeout_s);
}

static int has_transfer(const pp_program *program, int peer, int is_send) {
  for (uint32_t t = 0; t < program->n_transfers; t++)
    if (program->transfers[t].peer == peer && program->transfers[t].is_send == is_send) return 1;
  return 0;
}

static pp_status await_first(pp_rank *rank, int from, int to) {
  uint64_t start_ns = pp_now_ns();
  cudaEvent_t event = rank->cuda->drained;
  cudaError_t error;
  PP_CUDA_TRY(rank, cudaEventRecord(event, rank->cuda->communication));
  while ((error = cudaEventQuery(event)) == cudaErrorNotReady) {
    if (pp_failing(rank)) return PP_STOPPED;
    if ((double)(pp_now_ns() - start_ns) * 1e-9 > rank->options->start_timeout_s) {
      return pp_fail(rank, PP_EXIT_FAILED, "waited %g s (--start-timeout) for the first transfer from rank %d to rank %d",
                     rank->options->start_timeout_s, from, to);
    }
    nap(50 * 1000);
  }
  PP_CUDA_TRY(rank, error);
  return PP_OK;
}

/* The first transfer between two ranks sets up their connection, and may wait for the peer to do so: each is made
 * here, in one order on all ranks. */
static pp_status warm_up(pp_rank *rank, int from, int to) {
  struct pp_cuda *cuda = rank->cuda;
  ncclComm_t communicator = atomic_load(&rank->nccl->communicator);
  int own = rank->program->rank, sends = from == own;
  char tag[64];
  if ((from != own && to != own) || !has_transfer(rank->program, sends ? to : from, sends)) return PP_OK;
  snprintf(tag, sizeof tag, "%s first from %d to %d", sends ? "send" : "recv", from, to);
  pp_names_push(tag);
  pp_status status = sends ? SETTLE(rank, ncclSend(cuda->warm, PP_CUDA_WARM_BYTES, ncclInt8, to, communicator, cuda->communication))
                           : SETTLE(rank, ncclRecv(cuda->warm, PP_CUDA_WARM_BYTES, ncclInt8, from, communicator, cuda->communication));
  pp_names_pop();
  PP_TRY(status);
  return await_first(rank, from, to);
}

/* --- start and end --------------------------------------------------------------------------------------- */

static pp_status create_tables(pp_rank *rank) {
  struct pp_nccl *nccl = rank->nccl;
  size_t n = rank->program->n_transfers + 1u;
  for (int k = 0; k < rank->program->n_streams; k++) nccl->posted[k] = calloc(n, sizeof *nccl->posted[k]);
  nccl->moved = calloc(n, sizeof *nccl->moved);
  nccl->action_of = calloc(n, sizeof *nccl->action_of);
  nccl->issued = calloc(n, sizeof *nccl->issued);
  nccl->waits = calloc(n, sizeof *nccl->waits);
  if (rank->cuda->names) nccl->tags = calloc(n, sizeof *nccl->tags);
  int fine = nccl->posted[0] && nccl->moved && nccl->action_of && nccl->issued && nccl->waits;
  if (rank->cuda->names) fine = fine && nccl->tags;
  if (rank->program->n_streams > 1) fine = fine && nccl->posted[1];
  return fine ? PP_OK : pp_fail(rank, PP_EXIT_FAILED, "out of memory");
}

static int is_post(const pp_op *op) { return op->op == PP_POST_SEND || op->op == PP_POST_RECEIVE; }

static void find_posts(pp_rank *rank) {
  const pp_program *program = rank->program;
  const pp_op *op = program->ops;
  for (uint32_t i = 0; i < program->n_actions; i++) {
    const pp_op *end = op + program->actions[i].n_before + program->actions[i].n_after;
    for (; op < end; op++) {
      if (!is_post(op)) continue;
      rank->nccl->action_of[op->transfer] = i;
      rank->nccl->waits[op->transfer] = op->waits;
    }
  }
}

/* "send h.0: x (gpt2.pp:12) 3": the same behind the first word on both ranks. */
static pp_status name_transfer(pp_rank *rank, uint32_t transfer) {
  const pp_transfer *t = &rank->program->transfers[transfer];
  const char *value = rank->program->values[t->value];
  size_t room = strlen(value) + 24;
  if (!rank->nccl->tags) return PP_OK;
  char *tag = rank->nccl->tags[transfer] = malloc(room);
  if (!tag) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  if (t->microbatch >= 0) snprintf(tag, room, "%s %s %d", t->is_send ? "send" : "recv", value, t->microbatch);
  else snprintf(tag, room, "%s %s", t->is_send ? "send" : "recv", value);
  return PP_OK;
}

static pp_status create_events(pp_rank *rank) {
  struct pp_nccl *nccl = rank->nccl;
  for (uint32_t t = 0; t < rank->program->n_transfers; t++) {
    const pp_transfer *transfer = &rank->program->transfers[t];
    const char *value = rank->program->values[transfer->value];
    char name[128];
    snprintf(name, sizeof name, "%s %.80s", transfer->is_send ? "sent" : "received", value);
    PP_TRY(pp_cuda_event(rank, &nccl->moved[t], name, transfer->microbatch));
    snprintf(name, sizeof name, "%s %.80s", transfer->is_send ? "made" : "room for", value);
    for (int k = 0; k < rank->program->n_streams; k++)
      if (nccl->waits[t] >> k & 1) PP_TRY(pp_cuda_event(rank, &nccl->posted[k][t], name, transfer->microbatch));
    PP_TRY(name_transfer(rank, t));
  }
  return PP_OK;
}

static pp_status start(pp_rank *rank) {
  int n_ranks = rank->program->n_ranks;
  rank->nccl = calloc(1, sizeof *rank->nccl);
  if (!rank->nccl) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  PP_TRY(create_tables(rank));
  find_posts(rank);
  PP_TRY(create_events(rank));
  PP_TRY(create_communicator(rank));
  for (int from = 0; from < n_ranks; from++)
    for (int to = 0; to < n_ranks; to++) PP_TRY(warm_up(rank, from, to));
  return PP_OK;
}

/* From the watchdog too, when the rank's own thread does not come back. */
static void end_at_once(pp_rank *rank) {
  ncclComm_t communicator = rank->nccl ? atomic_exchange(&rank->nccl->communicator, NULL) : NULL;
  if (communicator) ncclCommAbort(communicator);
}

static void end_in_order(pp_rank *rank) {
  double limit_s = rank->options->timeout_s > 0 ? rank->options->timeout_s : 60;
  ncclComm_t communicator = atomic_load(&rank->nccl->communicator);
  if (!communicator) return;
  pp_status status = settle(rank, "ncclCommFinalize(communicator)", __LINE__, ncclCommFinalize(communicator), limit_s);
  if (status != PP_OK) {
    end_at_once(rank);
    return;
  }
  atomic_store(&rank->nccl->communicator, NULL);
  ncclResult_t result = ncclCommDestroy(communicator);
  if (result != ncclSuccess) nccl_fail(rank, "ncclCommDestroy(communicator)", __LINE__, result);
}

static void destroy_events(pp_rank *rank, cudaEvent_t *events) {
  for (uint32_t t = 0; events && t < rank->program->n_transfers; t++)
    if (events[t]) PP_CUDA_DO(rank, cudaEventDestroy(events[t]));
  free(events);
}

static void stop(pp_rank *rank) {
  struct pp_nccl *nccl = rank->nccl;
  if (!nccl) return;
  if (pp_failing(rank)) end_at_once(rank);
  else end_in_order(rank);
  for (int k = 0; k < PP_CUDA_MAX_STREAMS; k++) destroy_events(rank, nccl->posted[k]);
  destroy_events(rank, nccl->moved);
  for (uint32_t t = 0; nccl->tags && t < rank->program->n_transfers; t++) free(nccl->tags[t]);
  free(nccl->tags);
  free(nccl->action_of);
  free(nccl->issued);
  free(nccl->waits);
}

/* What the watchdog may look at goes last. */
static void disconnect(pp_rank *rank) {
  free(rank->nccl);
  rank->nccl = NULL;
  pp_shm_disconnect(rank);
}

/* --- transfers --------------------------------------------------------------------------------------------- */

static void wait_for_compute(pp_rank *rank, uint32_t transfer, unsigned waits) {
  struct pp_cuda *cuda = rank->cuda;
  for (int k = 0; k < rank->program->n_streams; k++) {
    cudaEvent_t event = rank->nccl->posted[k][transfer];
    if (!(waits >> k & 1)) continue;
    PP_CUDA_DO(rank, cudaEventRecord(event, cuda->compute[k]));
    PP_CUDA_DO(rank, cudaStreamWaitEvent(cuda->communication, event, 0));
  }
}

static void note_issued(pp_rank *rank, uint32_t transfer) {
  struct pp_nccl *nccl = rank->nccl;
  if (nccl->step != rank->step) nccl->n_issued = nccl->done = nccl->told = 0;
  nccl->step = rank->step;
  if (nccl->n_issued < rank->program->n_transfers) nccl->issued[nccl->n_issued++] = transfer;
}

static void move(pp_rank *rank, uint32_t transfer) {
  const pp_transfer *t = &rank->program->transfers[transfer];
  void *at = pp_address_in(rank, t->space, t->offset);
  ncclComm_t communicator = atomic_load_explicit(&rank->nccl->communicator, memory_order_relaxed);
  cudaStream_t stream = rank->cuda->communication;
  if (!communicator || pp_failing(rank)) return;
  if (t->is_send) SETTLE(rank, ncclSend(at, t->size_bytes, ncclInt8, t->peer, communicator, stream));
  else SETTLE(rank, ncclRecv(at, t->size_bytes, ncclInt8, t->peer, communicator, stream));
}

static void post(pp_rank *rank, uint32_t transfer) {
  struct pp_nccl *nccl = rank->nccl;
  wait_for_compute(rank, transfer, rank->issued->waits);
  if (rank->times) pp_trace_copy(rank, transfer, 0);
  if (nccl->tags) pp_names_push(nccl->tags[transfer]);
  move(rank, transfer);
  if (nccl->tags) pp_names_pop();
  if (rank->times) pp_trace_copy(rank, transfer, 1);
  PP_CUDA_DO(rank, cudaEventRecord(nccl->moved[transfer], rank->cuda->communication));
  note_issued(rank, transfer);
}

static pp_status await(pp_rank *rank, uint32_t transfer) {
  struct pp_cuda *cuda = rank->cuda;
  unsigned waits = rank->issued->waits;
  for (int k = 0; k < rank->program->n_streams; k++)
    if (waits >> k & 1) PP_CUDA_TRY(rank, cudaStreamWaitEvent(cuda->compute[k], rank->nccl->moved[transfer], 0));
  return PP_OK;
}

/* What has been enqueued moves by itself. */
static void progress(pp_rank *rank) { (void)rank; }

/* --- where the device is ------------------------------------------------------------------------------------- */

static pp_status is_done(pp_rank *rank, cudaEvent_t event, int *out_done) {
  cudaError_t error = event ? cudaEventQuery(event) : cudaSuccess;
  *out_done = error == cudaSuccess;
  if (error != cudaSuccess && error != cudaErrorNotReady) PP_CUDA_TRY(rank, error);
  return PP_OK;
}

/* A transfer without an event of its own follows on others that have come. */
static pp_status is_ready(pp_rank *rank, uint32_t transfer, int *out_ready) {
  *out_ready = 1;
  for (int k = 0; k < rank->program->n_streams && *out_ready; k++)
    PP_TRY(is_done(rank, rank->nccl->posted[k][transfer], out_ready));
  return PP_OK;
}

/* The first transfer that is not complete is at the head of its stream: what the rank is at. If its own side is ready
 * the rank waits for the peer, else it computes. */
static pp_status tell_place(pp_rank *rank, uint32_t transfer) {
  const pp_program *program = rank->program;
  const pp_transfer *t = &program->transfers[transfer];
  pp_slot *slot = rank->slot;
  int ready = 0;
  PP_TRY(is_ready(rank, transfer, &ready));
  if (rank->nccl->told != rank->nccl->done + 1) pp_note_place(rank, &program->actions[rank->nccl->action_of[transfer]]);
  rank->nccl->told = rank->nccl->done + 1;
  if (ready && !atomic_load_explicit(&slot->waiting, memory_order_relaxed)) {
    snprintf(slot->waiting_text, sizeof slot->waiting_text, "waits until rank %d %s %s, microbatch %d", t->peer,
             t->is_send ? "has taken" : "sends", program->values[t->value], t->microbatch);
    atomic_store(&slot->has_waiting_text, 1);
  }
  atomic_store_explicit(&slot->waiting, (uint32_t)ready, memory_order_relaxed);
  return PP_OK;
}

/* Events of a captured step can't be asked: then only that the communicator is well. */
static pp_status look(pp_rank *rank) {
  struct pp_nccl *nccl = rank->nccl;
  ncclResult_t result = ncclSuccess;
  ncclComm_t communicator = nccl ? atomic_load(&nccl->communicator) : NULL;
  if (!communicator) return PP_OK;
  ncclResult_t asking = ncclCommGetAsyncError(communicator, &result);
  if (asking != ncclSuccess) return nccl_fail(rank, "ncclCommGetAsyncError", __LINE__, asking);
  if (result != ncclSuccess && result != ncclInProgress) return nccl_fail(rank, "a transfer", __LINE__, result);
  if (rank->cuda->graphs) return PP_OK;
  for (int done = 1; nccl->done < nccl->n_issued;) {
    PP_TRY(is_done(rank, nccl->moved[nccl->issued[nccl->done]], &done));
    if (!done) return tell_place(rank, nccl->issued[nccl->done]);
    nccl->done++;
    atomic_store_explicit(&rank->slot->waiting, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&rank->slot->moves, 1, memory_order_relaxed);
  }
  atomic_store_explicit(&rank->slot->waiting, 0, memory_order_relaxed);
  return PP_OK;
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
    .post_send = post,
    .post_receive = post,
    .await_send = await,
    .await_receive = await,
    .progress = progress,
    .barrier = pp_board_barrier,
    .give = pp_board_give,
    .take = pp_board_take,
};
