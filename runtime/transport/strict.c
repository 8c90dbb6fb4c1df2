/* Shared memory read as strictly as the proof of progress reads a transport, and as late as it may, for tests: a send
 * completes only with its receive, and a rank's transfers, to whatever peer, complete in the order in which it issues
 * them: one channel per rank, or a few.
 *
 *   --transport=strict[:SEED[:CHANNELS]]     1 and 1 by default
 *
 * A rank keeps what it has posted in a queue. Only the first CHANNELS of it that aren't complete can move: a send is shown
 * to its receiver when it comes there, a receive is taken when it is there and shown. Most looks do nothing: the seed says
 * which. With one channel a plan that the checker would refuse hangs; one that it accepts ends for every seed. */
#include <stdio.h>
#include <string.h>

#include "../internal.h"

static const pp_transfer *transfer_of(const pp_rank *rank, uint32_t transfer) { return &rank->program->transfers[transfer]; }

static pp_status read_name(pp_rank *rank) {
  const char *name = rank->options->transport ? rank->options->transport : "strict";
  unsigned long long seed = 1;
  unsigned channels = 1;
  char rest = 0;
  int n = strchr(name, ':') ? sscanf(name, "strict:%llu:%u%c", &seed, &channels, &rest) : 2;
  if (n < 1 || n > 2 || channels == 0)
    return pp_fail(rank, PP_EXIT_INPUT, "--transport=%s: expected strict:SEED:CHANNELS", name);
  rank->late_state = (0x9e3779b97f4a7c15u ^ (uint64_t)(rank->program->rank + 1)) * (2 * seed + 1);
  rank->channels = channels;
  return PP_OK;
}

static pp_status connect_strict(pp_rank *rank, void *segment) {
  PP_TRY(read_name(rank));
  return pp_shm_connect(rank, segment);
}

static pp_status connect_threads(pp_rank *rank, void *segment) {
  PP_TRY(read_name(rank));
  return pp_threads_connect(rank, segment);
}

static void enqueue(pp_rank *rank, uint32_t transfer) { rank->posted[rank->n_posted++] = transfer; }

static int is_complete(const pp_rank *rank, uint32_t transfer) {
  const pp_transfer *t = transfer_of(rank, transfer);
  if (!t->is_send) return rank->arrived[transfer] == rank->step;
  return atomic_load_explicit(&rank->flags[t->id].done, memory_order_acquire) == rank->step;
}

/* What has a channel moves. */
static void move(pp_rank *rank, uint32_t transfer) {
  const pp_transfer *t = transfer_of(rank, transfer);
  _Atomic uint64_t *ready = &rank->flags[t->id].ready;
  int shown = atomic_load_explicit(ready, memory_order_acquire) == rank->step;
  if (t->is_send && !shown) pp_shm_post_send(rank, transfer);
  if (!t->is_send && shown) pp_shm_pull(rank, transfer);
}

static void look(pp_rank *rank) {
  uint32_t kept = 0, channels = rank->channels;
  for (uint32_t i = 0; i < rank->n_posted; i++) {
    uint32_t transfer = rank->posted[i];
    if (is_complete(rank, transfer)) continue;
    if (channels > 0) move(rank, transfer), channels--;
    rank->posted[kept++] = transfer;
  }
  rank->n_posted = kept;
}

/* One look in four does something. */
static void progress_strict(pp_rank *rank) {
  if ((pp_late_random(rank) >> 40 & 3) == 0) look(rank);
}

static int is_there(pp_rank *rank, uint64_t transfer) {
  progress_strict(rank);
  return is_complete(rank, (uint32_t)transfer);
}

/* It leaves the queue at once: the step may end with it. */
static pp_status await(pp_rank *rank, uint32_t transfer, int is_send) {
  rank->waits_for = transfer + 1;
  rank->waits_for_send = is_send;
  pp_status status = pp_wait(rank, is_there, transfer);
  rank->waits_for = 0;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < rank->n_posted; i++)
    if (rank->posted[i] != transfer) rank->posted[kept++] = rank->posted[i];
  rank->n_posted = kept;
  return status;
}

static pp_status await_send(pp_rank *rank, uint32_t transfer) { return await(rank, transfer, 1); }
static pp_status await_receive(pp_rank *rank, uint32_t transfer) { return await(rank, transfer, 0); }

#define STRICT(connector)                                                                                    \
  {                                                                                                          \
    .name = "strict", .connect = connector, .disconnect = pp_shm_disconnect, .post_send = enqueue,           \
    .post_receive = enqueue, .await_send = await_send, .await_receive = await_receive,                       \
    .progress = progress_strict, .barrier = pp_board_barrier, .give = pp_board_give, .take = pp_board_take, \
  }

const pp_transport pp_transport_strict = STRICT(connect_strict);
const pp_transport pp_transport_strict_threads = STRICT(connect_threads);
