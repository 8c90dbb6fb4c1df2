/* Transfers between GPUs, whatever moves their bytes. A rank's transfers follow one another on one stream, in the order
 * of its plan (docs/decisions/0001, 0006). A post makes that stream wait for the compute streams that its row in `ops`
 * names and enqueues the transfer; an await makes compute streams wait for the transfer's event. The host waits for
 * nothing. It learns where the device is from the transfers' events, when it waits for a step's end, and tells the
 * watchdog. The host may be a step ahead of the device, so steps of each parity have events of their own; those of a
 * captured step can't be asked, so it records others beside them, as nodes of its graph. */
#include "transfers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Marks {
  cudaEvent_t posted[PP_CUDA_MAX_STREAMS]; /* what a compute stream had been given then; null: nothing is waited for */
  cudaEvent_t moved;
} Marks;

/* The transfers of the last step of one parity. */
typedef struct Issued {
  Marks *marks;          /* [n_transfers] that streams wait for */
  Marks *seen;           /* [n_transfers] that the host asks: the same, but with --graph */
  uint32_t *order;       /* [n_transfers] as they were issued; the first `done` of them are complete */
  uint32_t n, done, told; /* told: the watchdog knows that the device is at `done` = told - 1 */
  int ready;             /* this rank's side of transfer `done` */
  uint64_t step;
} Issued;

struct pp_transfers {
  Issued steps[2];
  uint32_t *action_of;   /* [n_transfers] the action that posts it */
  uint8_t *waits;        /* [n_transfers] compute streams that the post waits for */
  char **tags;           /* [n_transfers] for NVTX; null when nobody listens */
};

static Issued *issued_now(const pp_rank *rank) { return &rank->transfers->steps[rank->step & 1]; }

/* --- start and end --------------------------------------------------------------------------------------- */

static pp_status create_tables(pp_rank *rank) {
  struct pp_transfers *transfers = rank->transfers;
  size_t n = rank->program->n_transfers + 1u;
  transfers->action_of = calloc(n, sizeof *transfers->action_of);
  transfers->waits = calloc(n, sizeof *transfers->waits);
  if (rank->cuda->names) transfers->tags = calloc(n, sizeof *transfers->tags);
  int fine = transfers->action_of && transfers->waits && (transfers->tags || !rank->cuda->names);
  for (int i = 0; i < 2; i++) {
    Issued *step = &transfers->steps[i];
    step->order = calloc(n, sizeof *step->order);
    step->marks = calloc(n, sizeof *step->marks);
    step->seen = rank->options->graph ? calloc(n, sizeof *step->seen) : step->marks;
    fine = fine && step->order && step->marks && step->seen;
  }
  return fine ? PP_OK : pp_fail(rank, PP_EXIT_FAILED, "out of memory");
}

int pp_gpus_shared(const pp_rank *rank, int *out_a, int *out_b) {
  for (int b = 1; b < rank->program->n_ranks; b++) {
    for (int a = 0; a < b; a++) {
      *out_a = a;
      *out_b = b;
      if (rank->slots[a].gpu == rank->slots[b].gpu) return 1;
    }
  }
  return 0;
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

static pp_status create_marks(pp_rank *rank, uint32_t t, Marks *out_marks) {
  const pp_transfer *transfer = &rank->program->transfers[t];
  const char *value = rank->program->values[transfer->value];
  char name[128];
  snprintf(name, sizeof name, "%s %.80s", transfer->is_send ? "sent" : "received", value);
  PP_TRY(pp_cuda_event(rank, &out_marks->moved, name, transfer->microbatch));
  snprintf(name, sizeof name, "%s %.80s", transfer->is_send ? "made" : "room for", value);
  for (int k = 0; k < rank->program->n_streams; k++)
    if (rank->transfers->waits[t] >> k & 1) PP_TRY(pp_cuda_event(rank, &out_marks->posted[k], name, transfer->microbatch));
  return PP_OK;
}

static pp_status create_events(pp_rank *rank) {
  for (uint32_t t = 0; t < rank->program->n_transfers; t++) {
    for (int i = 0; i < 2; i++) {
      Issued *step = &rank->transfers->steps[i];
      PP_TRY(create_marks(rank, t, &step->marks[t]));
      if (step->seen != step->marks) PP_TRY(create_marks(rank, t, &step->seen[t]));
    }
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

static void destroy_event(pp_rank *rank, cudaEvent_t event) {
  if (event) PP_CUDA_DO(rank, cudaEventDestroy(event));
}

static void destroy_marks(pp_rank *rank, Marks *marks) {
  for (uint32_t t = 0; marks && t < rank->program->n_transfers; t++) {
    destroy_event(rank, marks[t].moved);
    for (int k = 0; k < PP_CUDA_MAX_STREAMS; k++) destroy_event(rank, marks[t].posted[k]);
  }
  free(marks);
}

void pp_transfers_destroy(pp_rank *rank) {
  struct pp_transfers *transfers = rank->transfers;
  if (!transfers) return;
  for (int i = 0; i < 2; i++) {
    Issued *step = &transfers->steps[i];
    if (step->seen != step->marks) destroy_marks(rank, step->seen);
    destroy_marks(rank, step->marks);
    free(step->order);
  }
  for (uint32_t t = 0; transfers->tags && t < rank->program->n_transfers; t++) free(transfers->tags[t]);
  free(transfers->tags);
  free(transfers->action_of);
  free(transfers->waits);
  free(transfers);
  rank->transfers = NULL;
}

/* --- transfers --------------------------------------------------------------------------------------------- */

/* What the host asks is another event only if the step may be captured: then a node of the graph. */
static void record_seen(pp_rank *rank, cudaEvent_t mark, cudaEvent_t seen, cudaStream_t stream) {
  if (seen != mark) PP_CUDA_DO(rank, cudaEventRecordWithFlags(seen, stream, rank->cuda->captures ? cudaEventRecordExternal : cudaEventRecordDefault));
}

static void wait_for_compute(pp_rank *rank, uint32_t transfer, unsigned waits) {
  struct pp_cuda *cuda = rank->cuda;
  const Issued *step = issued_now(rank);
  for (int k = 0; k < rank->program->n_streams; k++) {
    cudaEvent_t event = step->marks[transfer].posted[k];
    if (!(waits >> k & 1)) continue;
    PP_CUDA_DO(rank, cudaEventRecord(event, cuda->compute[k]));
    record_seen(rank, event, step->seen[transfer].posted[k], cuda->compute[k]);
    PP_CUDA_DO(rank, cudaStreamWaitEvent(cuda->communication, event, 0));
  }
}

static void begin_step(Issued *step, uint64_t number, uint32_t n) {
  step->step = number;
  step->n = n;
  step->done = step->told = 0;
  step->ready = 0;
}

static void note_issued(pp_rank *rank, uint32_t transfer) {
  Issued *step = issued_now(rank);
  if (step->step != rank->step) begin_step(step, rank->step, 0);
  if (step->n < rank->program->n_transfers) step->order[step->n++] = transfer;
}

void pp_transfers_repeat(pp_rank *rank) { begin_step(issued_now(rank), rank->step, issued_now(rank)->n); }

void pp_transfers_post(pp_rank *rank, uint32_t transfer, pp_move_fn *move) {
  struct pp_transfers *transfers = rank->transfers;
  const Issued *step = issued_now(rank);
  wait_for_compute(rank, transfer, rank->issued->waits);
  if (rank->times) pp_trace_copy(rank, transfer, 0);
  if (transfers->tags) pp_names_push(transfers->tags[transfer]);
  atomic_store_explicit(&rank->moving, transfer + 1, memory_order_relaxed);
  move(rank, transfer);
  atomic_store_explicit(&rank->moving, 0, memory_order_relaxed);
  pp_cuda_note_call(rank);
  if (transfers->tags) pp_names_pop();
  if (rank->times) pp_trace_copy(rank, transfer, 1);
  PP_CUDA_DO(rank, cudaEventRecord(step->marks[transfer].moved, rank->cuda->communication));
  record_seen(rank, step->marks[transfer].moved, step->seen[transfer].moved, rank->cuda->communication);
  note_issued(rank, transfer);
}

pp_status pp_transfers_await(pp_rank *rank, uint32_t transfer) {
  struct pp_cuda *cuda = rank->cuda;
  unsigned waits = rank->issued->waits;
  for (int k = 0; k < rank->program->n_streams; k++)
    if (waits >> k & 1) PP_CUDA_TRY(rank, cudaStreamWaitEvent(cuda->compute[k], issued_now(rank)->marks[transfer].moved, 0));
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
static pp_status is_ready(pp_rank *rank, const Marks *seen, int *out_ready) {
  *out_ready = 1;
  for (int k = 0; k < rank->program->n_streams && *out_ready; k++) PP_TRY(is_done(rank, seen->posted[k], out_ready));
  return PP_OK;
}

/* The first transfer that is not complete is at the head of its stream: what the rank is at. If its own side is ready
 * the rank waits for the peer, else it computes: what its side waits for was issued before it, so all transfers among
 * that are complete. */
static pp_status tell_place(pp_rank *rank, Issued *step) {
  const pp_program *program = rank->program;
  uint32_t transfer = step->order[step->done];
  pp_slot *slot = rank->slot;
  if (step->told != step->done + 1) {
    atomic_store_explicit(&slot->step, step->step, memory_order_relaxed);
    pp_note_place(rank, &program->actions[rank->transfers->action_of[transfer]]);
  }
  step->told = step->done + 1;
  if (step->ready) return PP_OK;
  PP_TRY(is_ready(rank, &step->seen[transfer], &step->ready));
  if (!step->ready) return PP_OK;
  pp_describe_wait(program, transfer, program->transfers[transfer].is_send, slot->waiting_text, sizeof slot->waiting_text);
  atomic_store(&slot->has_waiting_text, 1);
  atomic_store_explicit(&slot->waiting, PP_WAITS, memory_order_relaxed);
  return PP_OK;
}

static pp_status look_at(pp_rank *rank, Issued *step) {
  for (int done = 1; step->done < step->n;) {
    PP_TRY(is_done(rank, step->seen[step->order[step->done]].moved, &done));
    if (!done) return tell_place(rank, step);
    step->done++;
    step->ready = 0;
    atomic_store_explicit(&rank->slot->waiting, PP_RUNS, memory_order_relaxed);
    atomic_fetch_add_explicit(&rank->slot->moves, 1, memory_order_relaxed);
  }
  return PP_OK;
}

/* The step before the newest one first: until its transfers are complete those of the newest can't be. */
pp_status pp_transfers_look(pp_rank *rank) {
  Issued *steps = rank->transfers->steps;
  int newest = steps[1].step > steps[0].step;
  PP_TRY(look_at(rank, &steps[!newest]));
  return steps[!newest].done == steps[!newest].n ? look_at(rank, &steps[newest]) : PP_OK;
}
