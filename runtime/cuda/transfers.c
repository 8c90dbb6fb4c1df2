/* Transfers between GPUs, whatever moves their bytes. A rank's transfers follow one another on one stream, in the order
 * of its plan (docs/decisions/0001, 0006). A post makes that stream wait for the compute streams that its row in `ops`
 * names and enqueues the transfer; an await makes compute streams wait for the transfer's event. The host waits for
 * nothing. It learns where the device is from the transfers' events, when it waits for a step's end, and tells the
 * watchdog. */
#include "transfers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pp_transfers {
  cudaEvent_t *posted[PP_CUDA_MAX_STREAMS]; /* [n_transfers] what a compute stream had been given then */
  cudaEvent_t *moved;    /* [n_transfers] */
  uint32_t *action_of;   /* [n_transfers] the action that posts it */
  uint32_t *issued;      /* [n_transfers] of this step, in order; the first `done` of them are complete */
  uint8_t *waits;        /* [n_transfers] compute streams that the post waits for */
  uint32_t n_issued, done, told; /* told: the watchdog knows that the device is at `done` = told - 1 */
  uint64_t step;
  char **tags;           /* [n_transfers] for NVTX; null when nobody listens */
};

/* --- start and end --------------------------------------------------------------------------------------- */

static pp_status create_tables(pp_rank *rank) {
  struct pp_transfers *transfers = rank->transfers;
  size_t n = rank->program->n_transfers + 1u;
  for (int k = 0; k < rank->program->n_streams; k++) transfers->posted[k] = calloc(n, sizeof *transfers->posted[k]);
  transfers->moved = calloc(n, sizeof *transfers->moved);
  transfers->action_of = calloc(n, sizeof *transfers->action_of);
  transfers->issued = calloc(n, sizeof *transfers->issued);
  transfers->waits = calloc(n, sizeof *transfers->waits);
  if (rank->cuda->names) transfers->tags = calloc(n, sizeof *transfers->tags);
  int fine = transfers->posted[0] && transfers->moved && transfers->action_of && transfers->issued && transfers->waits;
  if (rank->cuda->names) fine = fine && transfers->tags;
  if (rank->program->n_streams > 1) fine = fine && transfers->posted[1];
  return fine ? PP_OK : pp_fail(rank, PP_EXIT_FAILED, "out of memory");
}

int pp_transfers_is_post(const pp_op *op) { return op->op == PP_POST_SEND || op->op == PP_POST_RECEIVE; }

static void find_posts(pp_rank *rank) {
  const pp_program *program = rank->program;
  const pp_op *op = program->ops;
  for (uint32_t i = 0; i < program->n_actions; i++) {
    const pp_op *end = op + program->actions[i].n_before + program->actions[i].n_after;
    for (; op < end; op++) {
      if (!pp_transfers_is_post(op)) continue;
      rank->transfers->action_of[op->transfer] = i;
      rank->transfers->waits[op->transfer] = op->waits;
    }
  }
}

/* "send h.0: x (gpt2.pp:12) 3": the same behind the first word on both ranks. */
static pp_status name_transfer(pp_rank *rank, uint32_t transfer) {
  const pp_transfer *t = &rank->program->transfers[transfer];
  const char *value = rank->program->values[t->value];
  size_t room = strlen(value) + 24;
  if (!rank->transfers->tags) return PP_OK;
  char *tag = rank->transfers->tags[transfer] = malloc(room);
  if (!tag) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  if (t->microbatch >= 0) snprintf(tag, room, "%s %s %d", t->is_send ? "send" : "recv", value, t->microbatch);
  else snprintf(tag, room, "%s %s", t->is_send ? "send" : "recv", value);
  return PP_OK;
}

static pp_status create_events(pp_rank *rank) {
  struct pp_transfers *transfers = rank->transfers;
  for (uint32_t t = 0; t < rank->program->n_transfers; t++) {
    const pp_transfer *transfer = &rank->program->transfers[t];
    const char *value = rank->program->values[transfer->value];
    char name[128];
    snprintf(name, sizeof name, "%s %.80s", transfer->is_send ? "sent" : "received", value);
    PP_TRY(pp_cuda_event(rank, &transfers->moved[t], name, transfer->microbatch));
    snprintf(name, sizeof name, "%s %.80s", transfer->is_send ? "made" : "room for", value);
    for (int k = 0; k < rank->program->n_streams; k++)
      if (transfers->waits[t] >> k & 1) PP_TRY(pp_cuda_event(rank, &transfers->posted[k][t], name, transfer->microbatch));
    PP_TRY(name_transfer(rank, t));
  }
  return PP_OK;
}

pp_status pp_transfers_create(pp_rank *rank) {
  rank->transfers = calloc(1, sizeof *rank->transfers);
  if (!rank->transfers) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  PP_TRY(create_tables(rank));
  find_posts(rank);
  return create_events(rank);
}

static void destroy_events(pp_rank *rank, cudaEvent_t *events) {
  for (uint32_t t = 0; events && t < rank->program->n_transfers; t++)
    if (events[t]) PP_CUDA_DO(rank, cudaEventDestroy(events[t]));
  free(events);
}

void pp_transfers_destroy(pp_rank *rank) {
  struct pp_transfers *transfers = rank->transfers;
  if (!transfers) return;
  for (int k = 0; k < PP_CUDA_MAX_STREAMS; k++) destroy_events(rank, transfers->posted[k]);
  destroy_events(rank, transfers->moved);
  for (uint32_t t = 0; transfers->tags && t < rank->program->n_transfers; t++) free(transfers->tags[t]);
  free(transfers->tags);
  free(transfers->action_of);
  free(transfers->issued);
  free(transfers->waits);
  free(transfers);
  rank->transfers = NULL;
}

/* --- transfers --------------------------------------------------------------------------------------------- */

static void wait_for_compute(pp_rank *rank, uint32_t transfer, unsigned waits) {
  struct pp_cuda *cuda = rank->cuda;
  for (int k = 0; k < rank->program->n_streams; k++) {
    cudaEvent_t event = rank->transfers->posted[k][transfer];
    if (!(waits >> k & 1)) continue;
    PP_CUDA_DO(rank, cudaEventRecord(event, cuda->compute[k]));
    PP_CUDA_DO(rank, cudaStreamWaitEvent(cuda->communication, event, 0));
  }
}

static void note_issued(pp_rank *rank, uint32_t transfer) {
  struct pp_transfers *transfers = rank->transfers;
  if (transfers->step != rank->step) transfers->n_issued = transfers->done = transfers->told = 0;
  transfers->step = rank->step;
  if (transfers->n_issued < rank->program->n_transfers) transfers->issued[transfers->n_issued++] = transfer;
}

void pp_transfers_post(pp_rank *rank, uint32_t transfer, pp_move_fn *move) {
  struct pp_transfers *transfers = rank->transfers;
  wait_for_compute(rank, transfer, rank->issued->waits);
  if (rank->times) pp_trace_copy(rank, transfer, 0);
  if (transfers->tags) pp_names_push(transfers->tags[transfer]);
  move(rank, transfer);
  if (transfers->tags) pp_names_pop();
  if (rank->times) pp_trace_copy(rank, transfer, 1);
  PP_CUDA_DO(rank, cudaEventRecord(transfers->moved[transfer], rank->cuda->communication));
  note_issued(rank, transfer);
}

pp_status pp_transfers_await(pp_rank *rank, uint32_t transfer) {
  struct pp_cuda *cuda = rank->cuda;
  unsigned waits = rank->issued->waits;
  for (int k = 0; k < rank->program->n_streams; k++)
    if (waits >> k & 1) PP_CUDA_TRY(rank, cudaStreamWaitEvent(cuda->compute[k], rank->transfers->moved[transfer], 0));
  return PP_OK;
}

void pp_transfers_progress(pp_rank *rank) { (void)rank; }

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
    PP_TRY(is_done(rank, rank->transfers->posted[k][transfer], out_ready));
  return PP_OK;
}

void pp_transfers_tell(pp_rank *rank, uint32_t transfer, int waits, int is_new) {
  const pp_program *program = rank->program;
  const pp_transfer *t = &program->transfers[transfer];
  pp_slot *slot = rank->slot;
  if (is_new) pp_note_place(rank, &program->actions[rank->transfers->action_of[transfer]]);
  if (waits && !atomic_load_explicit(&slot->waiting, memory_order_relaxed)) {
    snprintf(slot->waiting_text, sizeof slot->waiting_text, "waits until rank %d %s %s, microbatch %d", t->peer,
             t->is_send ? "has taken" : "sends", program->values[t->value], t->microbatch);
    atomic_store(&slot->has_waiting_text, 1);
  }
  atomic_store_explicit(&slot->waiting, (uint32_t)waits, memory_order_relaxed);
}

/* The first transfer that is not complete is at the head of its stream: what the rank is at. If its own side is ready
 * the rank waits for the peer, else it computes. */
static pp_status tell_first(pp_rank *rank, uint32_t transfer) {
  struct pp_transfers *transfers = rank->transfers;
  int ready = 0;
  PP_TRY(is_ready(rank, transfer, &ready));
  pp_transfers_tell(rank, transfer, ready, transfers->told != transfers->done + 1);
  transfers->told = transfers->done + 1;
  return PP_OK;
}

pp_status pp_transfers_look(pp_rank *rank) {
  struct pp_transfers *transfers = rank->transfers;
  for (int done = 1; transfers->done < transfers->n_issued;) {
    PP_TRY(is_done(rank, transfers->moved[transfers->issued[transfers->done]], &done));
    if (!done) return tell_first(rank, transfers->issued[transfers->done]);
    transfers->done++;
    atomic_store_explicit(&rank->slot->waiting, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&rank->slot->moves, 1, memory_order_relaxed);
  }
  atomic_store_explicit(&rank->slot->waiting, 0, memory_order_relaxed);
  return PP_OK;
}
