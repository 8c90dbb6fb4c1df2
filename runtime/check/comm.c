/* libnccl: communicators. A non-blocking one answers ncclInProgress for as long as the seed likes; used before it is ready
 * it is reported. Whether a rank learns that a peer has gone or given up, or hears nothing of it ever, the seed picks too. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "world.h"

static char last_error[CHECK_TEXT];

ncclResult_t comm_fail(ncclResult_t result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_error, sizeof last_error, format, arguments);
  va_end(arguments);
  check_report("misuse", "%s", last_error);
  return result;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n) { /* FNV-1a */
  for (size_t i = 0; i < n; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
  return hash;
}

/* ---- joining ---- */

static void join(ncclComm_t comm, uint64_t key) {
  comm->shared = world_find_comm(key);
  comm->shared->world_rank[comm->rank] = check_rank();
  comm->shared->n_joined++;
  world_note_progress();
}

/* When all ranks have said theirs: the members are those of one colour, by key, then by rank. */
static void resolve_split(ncclComm_t comm) {
  const ncclComm_t parent = comm->parent;
  const Split *split = &parent->shared->splits[comm->split];
  if (split->posted != (1ull << parent->n_ranks) - 1) return;
  int mine = parent->rank;
  comm->n_ranks = comm->rank = 0;
  for (int r = 0; r < parent->n_ranks; r++) {
    if (split->color[r] != comm->color) continue;
    comm->n_ranks++;
    if (split->key[r] < split->key[mine] || (split->key[r] == split->key[mine] && r < mine)) comm->rank++;
  }
  uint64_t key = hash_bytes(parent->shared->key, &comm->split, sizeof comm->split);
  join(comm, hash_bytes(key, &comm->color, sizeof comm->color));
}

static bool is_joined(const void *argument) {
  ncclComm_t comm = (ncclComm_t)(uintptr_t)argument;
  if (!comm->shared) resolve_split(comm);
  return comm->shared && comm->shared->n_joined == comm->n_ranks;
}

bool comm_is_ready(ncclComm_t comm) { return is_joined(comm) && !comm->polls_left; }

static ncclComm_t create(const ncclConfig_t *config) {
  static int n_created;
  ncclComm_t comm = calloc(1, sizeof *comm);
  if (!comm) check_fatal("internal", "out of memory");
  check_object_begin(&comm->object, "communicator", "%d", n_created++);
  if (config && config->commName) snprintf(comm->object.name, sizeof comm->object.name, "%s", config->commName);
  comm->is_blocking = !config || config->blocking != 0;
  comm->tells_of_peers = check_random(2);
  return comm;
}

static ncclResult_t wait_until_joined(ncclComm_t comm, const char *call) {
  if (comm->is_blocking) {
    check_run_until(is_joined, comm, "%s(%s)", call, comm->object.name);
    return ncclSuccess;
  }
  check_step_some();
  comm->polls_left = 1 + (int)check_random(3);
  return ncclInProgress;
}

/* ---- what programs call ---- */

ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  ssize_t n = getrandom(id, sizeof *id, 0);
  return n == sizeof *id ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  CHECK_CALL();
  if (n_ranks < 1 || rank < 0 || rank >= n_ranks)
    return comm_fail(ncclInvalidArgument, "ncclCommInitRankConfig: rank %d of %d", rank, n_ranks);
  if (n_ranks > MAX_RANKS) check_fatal("unsupported", "a communicator of %d ranks", n_ranks);
  ncclComm_t comm = create(config);
  comm->rank = rank;
  comm->n_ranks = n_ranks;
  join(comm, hash_bytes(14695981039346656037u, &id, sizeof id));
  *out = comm;
  return wait_until_joined(comm, "ncclCommInitRankConfig");
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int n_ranks, ncclUniqueId id, int rank) {
  CHECK_CALL();
  return ncclCommInitRankConfig(out, n_ranks, id, rank, NULL);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
  CHECK_CALL();
  if (!check_object_is_live(&parent->object, "ncclCommSplit")) return ncclInvalidArgument;
  if (!comm_is_ready(parent)) return comm_fail(ncclInvalidUsage, "ncclCommSplit of %s before it is ready", parent->object.name);
  if (parent->n_splits == MAX_SPLITS) check_fatal("unsupported", "more than %d splits of a communicator", MAX_SPLITS);
  int number = parent->n_splits++;
  Split *split = &parent->shared->splits[number];
  split->color[parent->rank] = color;
  split->key[parent->rank] = key;
  split->posted |= 1u << parent->rank;
  world_note_progress();
  *out = NULL;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  ncclComm_t comm = create(config);
  comm->parent = parent;
  comm->split = number;
  comm->color = color;
  if (!config || config->blocking == NCCL_CONFIG_UNDEF_INT) comm->is_blocking = parent->is_blocking;
  *out = comm;
  return wait_until_joined(comm, "ncclCommSplit");
}

static bool has_lost_peer(const ncclComm_t comm) {
  const SharedComm *shared = comm->shared;
  if (!shared || !comm->tells_of_peers) return false;
  if (shared->aborted & ~(1u << comm->rank)) return true;
  for (int r = 0; r < comm->n_ranks && shared->n_joined == comm->n_ranks; r++)
    if (world_has_died(shared->world_rank[r])) return true;
  return false;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  CHECK_CALL();
  if (!check_object_is_live(&comm->object, "ncclCommGetAsyncError")) return ncclInvalidArgument;
  check_step_for_query("ncclCommGetAsyncError(%s), again and again", comm->object.name);
  *result = ncclInProgress;
  if (has_lost_peer(comm)) {
    snprintf(last_error, sizeof last_error, "a rank of %s has gone", comm->object.name);
    *result = ncclRemoteError;
  } else if (!is_joined(comm)) {
    return ncclSuccess;
  } else if (comm->polls_left > 0) {
    comm->polls_left--;
  } else if (!comm->is_finalized || !comm->last || comm->last->done) {
    *result = ncclSuccess;
  }
  return ncclSuccess;
}

static bool is_idle(const void *argument) {
  const struct ncclComm *comm = argument;
  return !comm->last || comm->last->done;
}

/* A communicator lives for as long as graphs hold its transfers. */
static ncclResult_t judge_graphs(ncclComm_t comm, const char *call) {
  const char *graph = check_graph_with(transfer_is_of, comm);
  if (!graph) return ncclSuccess;
  return comm_fail(ncclInvalidUsage, "%s of %s, whose transfers executable graph %s holds: it waits until that is destroyed", call,
                   comm->object.name, graph);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  CHECK_CALL();
  if (!check_object_is_live(&comm->object, "ncclCommFinalize")) return ncclInvalidArgument;
  if (!is_joined(comm)) return comm_fail(ncclInvalidUsage, "ncclCommFinalize of %s before it is ready", comm->object.name);
  if (judge_graphs(comm, "ncclCommFinalize") != ncclSuccess) return ncclInvalidUsage;
  comm->is_finalized = true;
  if (comm->is_blocking) {
    check_run_until(is_idle, comm, "ncclCommFinalize(%s)", comm->object.name);
    return ncclSuccess;
  }
  check_step_some();
  comm->polls_left = (int)check_random(3);
  return comm->polls_left || !is_idle(comm) ? ncclInProgress : ncclSuccess;
}

/* The struct is kept: labels and operations may name it. */
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  CHECK_CALL();
  if (!comm) return ncclSuccess;
  check_step_some();
  if (!check_object_end(&comm->object, "ncclCommDestroy")) return ncclInvalidArgument;
  if (!is_idle(comm))
    return comm_fail(ncclInvalidUsage, "ncclCommDestroy(%s) while %s is queued", comm->object.name,
                     check_label_text(comm->last->id));
  return ncclSuccess;
}

/* What this rank has on the communicator ends at once, without its data; what peers have doesn't. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  CHECK_CALL();
  if (!comm) return ncclSuccess;
  if (!check_object_end(&comm->object, "ncclCommAbort")) return ncclInvalidArgument;
  comm->is_aborted = true;
  if (comm->shared) comm->shared->aborted |= 1u << comm->rank;
  world_note_progress();
  check_step_some();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  CHECK_CALL();
  *count = comm->n_ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  CHECK_CALL();
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  CHECK_CALL();
  (void)comm;
  *device = 0;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const texts[] = {"no error",
                                      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                      "internal error - please report this issue to the NCCL developers",
                                      "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                      "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return last_error;
}
