/* The board: the head of a job's shared memory. Every rank has a slot in it (is it alive, where is
 * it), every transfer a pair of flags, the job one record of what ended it. Waiting is done here
 * too: a few pauses, then a futex on the waiter's doorbell. A peer sets its flag first and rings
 * after; the waiter reads the doorbell before it looks at the flags, so that a ring between its
 * look and its sleep makes the sleep return at once. */
#include "internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LAYOUT_VERSION = 4, PAGE_BYTES = 4096 };
/* A sleeper looks up this often even if nobody rings: a peer may have died between flag and ring. */
enum { NAP_NS = 100 * 1000 * 1000, LATE_NAP_NS = 200 * 1000, NAPS_BEFORE_TEXT = 3 };

uint64_t pp_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- layout ------------------------------------------------------------------------------------- */

pp_layout pp_board_layout(const pp_program *program) {
  pp_layout layout;
  size_t n_ranks = (size_t)program->n_ranks;
  layout.slots = pp_round_up(sizeof(pp_board), PP_CACHE_LINE);
  layout.flags = layout.slots + n_ranks * sizeof(pp_slot);
  layout.head_bytes = pp_round_up(layout.flags + program->n_transfers_job * sizeof(pp_flags), PAGE_BYTES);
  layout.chunk = layout.head_bytes;
  layout.windows = layout.chunk + (n_ranks > 1 ? PP_CHUNK_BYTES : 0);
  layout.total_bytes = layout.windows;
  for (size_t r = 0; r < n_ranks && program->device->shares_windows; r++)
    layout.total_bytes += pp_round_up(program->all_window_bytes[r], PAGE_BYTES);
  return layout;
}

size_t pp_board_window(const pp_program *program, int rank) {
  size_t at = pp_board_layout(program).windows;
  for (int r = 0; r < rank; r++) at += pp_round_up(program->all_window_bytes[r], PAGE_BYTES);
  return at;
}

void pp_board_init(void *base, const pp_program *program) {
  pp_board *board = base;
  board->layout_version = LAYOUT_VERSION;
  board->plan_hash = program->plan_hash;
  board->size_bytes = pp_board_layout(program).total_bytes;
  board->n_ranks = program->n_ranks;
  board->n_transfers = program->n_transfers_job;
}

const char *pp_board_mismatch(const void *base, const pp_program *program) {
  const pp_board *board = base;
  if (board->layout_version != LAYOUT_VERSION) return "another version of the runtime";
  if (board->plan_hash != program->plan_hash) return "another plan";
  if (board->n_ranks != program->n_ranks) return "another number of ranks";
  if (board->n_transfers != program->n_transfers_job) return "another number of transfers";
  if (board->size_bytes != pp_board_layout(program).total_bytes) return "other sizes of memory";
  return NULL;
}

static size_t append_name(char *names, size_t used, const char *text) {
  size_t n = strlen(text) + 1;
  if (used + n > PP_NAMES_BYTES) return used;
  memcpy(names + used, text, n);
  return used + n;
}

/* Names that don't fit are left out from the first one on; their actions are then told by number. */
static void write_names(pp_slot *slot, const pp_program *program) {
  uint32_t n_lines = 0;
  size_t used = 0;
  for (uint32_t i = 0; i < program->n_actions; i++) {
    if (program->actions[i].line >= n_lines) n_lines = program->actions[i].line + 1;
  }
  for (int i = 0; i < program->n_tasks; i++) {
    char text[256];
    snprintf(text, sizeof text, "%s, stage %d", program->tasks[i].name, program->tasks[i].stage);
    used = append_name(slot->names, used, text);
  }
  for (uint32_t i = 0; i < n_lines; i++) used = append_name(slot->names, used, program->lines[i]);
  slot->n_tasks = (uint32_t)program->n_tasks;
  slot->n_lines = n_lines;
}

void pp_board_attach(pp_rank *rank, void *base) {
  pp_layout layout = pp_board_layout(rank->program);
  unsigned char *bytes = base;
  rank->segment = bytes;
  rank->segment_bytes = layout.total_bytes;
  rank->board = base;
  rank->slots = (pp_slot *)(void *)(bytes + layout.slots);
  rank->slot = &rank->slots[rank->program->rank];
  rank->flags = (pp_flags *)(void *)(bytes + layout.flags);
  rank->chunk = bytes + layout.chunk;
  rank->failure = &rank->board->failure;
  write_names(rank->slot, rank->program);
  atomic_store(&rank->slot->pid, (int32_t)getpid());
  atomic_store(&rank->slot->state, PP_STATE_ATTACHED);
}

/* --- doorbells ---------------------------------------------------------------------------------- */

static void futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t nap_ns) {
  struct timespec nap = {.tv_sec = 0, .tv_nsec = nap_ns};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &nap, NULL, 0);
}

/* The order (doorbell, then sleeping; there sleeping, then doorbell) is what keeps a ring from being lost:
 * all four are sequentially consistent, so one of the two sees the other. */
void pp_doorbell_ring(pp_slot *slot) {
  atomic_fetch_add(&slot->doorbell, 1);
  if (atomic_load(&slot->sleeping)) syscall(SYS_futex, &slot->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void pp_doorbell_ring_all(pp_rank *rank) {
  if (!rank->slots) return;
  for (int r = 0; r < rank->program->n_ranks; r++) pp_doorbell_ring(&rank->slots[r]);
}

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* --- waiting ------------------------------------------------------------------------------------ */

/* What this rank waits for, for the report when nothing moves any more. Made only after some naps. */
static void write_waiting_text(pp_rank *rank) {
  pp_slot *slot = rank->slot;
  if (rank->waits_for) {
    pp_describe_wait(rank->program, rank->waits_for - 1, rank->waits_for_send, slot->waiting_text, sizeof slot->waiting_text);
  } else {
    snprintf(slot->waiting_text, sizeof slot->waiting_text, "waits for the other ranks");
  }
  atomic_store(&slot->has_waiting_text, 1);
}

static int spin(pp_rank *rank, pp_done_fn *done, uint64_t argument) {
  for (int i = 0; i < rank->spins; i++) {
    if (done(rank, argument)) return 1;
    pause_briefly();
  }
  return 0;
}

static pp_status sleep_until(pp_rank *rank, pp_done_fn *done, uint64_t argument) {
  pp_slot *slot = rank->slot;
  for (int naps = 0;; naps++) {
    uint32_t seen = atomic_load(&slot->doorbell);
    if (done(rank, argument)) return PP_OK;
    if (pp_failing(rank)) return PP_STOPPED;
    if (naps == NAPS_BEFORE_TEXT) write_waiting_text(rank);
    atomic_store(&slot->sleeping, 1);
    futex_wait(&slot->doorbell, seen, rank->late_state ? LATE_NAP_NS : NAP_NS);
    atomic_store(&slot->sleeping, 0);
  }
}

pp_status pp_wait(pp_rank *rank, pp_done_fn *done, uint64_t argument) {
  pp_slot *slot = rank->slot;
  if (spin(rank, done, argument)) return PP_OK;
  atomic_store_explicit(&slot->has_waiting_text, 0, memory_order_relaxed);
  atomic_store_explicit(&slot->waiting, PP_WAITS, memory_order_relaxed);
  pp_status status = sleep_until(rank, done, argument);
  atomic_store_explicit(&slot->waiting, PP_RUNS, memory_order_relaxed);
  atomic_fetch_add_explicit(&slot->moves, 1, memory_order_relaxed);
  return status;
}

/* --- barrier and chunks -------------------------------------------------------------------------- */

static int all_in_phase(pp_rank *rank, uint64_t phase) {
  rank->transport->progress(rank);
  for (int r = 0; r < rank->program->n_ranks; r++) {
    if (atomic_load_explicit(&rank->slots[r].phase, memory_order_acquire) < phase) return 0;
  }
  return 1;
}

pp_status pp_board_barrier(pp_rank *rank) {
  rank->phase++;
  atomic_store_explicit(&rank->slot->phase, rank->phase, memory_order_release);
  pp_doorbell_ring_all(rank);
  PP_TRY(pp_wait(rank, all_in_phase, rank->phase));
  return pp_failing(rank) ? PP_STOPPED : PP_OK;
}

static int chunk_is_wanted(pp_rank *rank, uint64_t count) {
  rank->transport->progress(rank);
  return atomic_load_explicit(&rank->slot->wanted, memory_order_acquire) >= count;
}

static int chunk_is_given(pp_rank *rank, uint64_t from) {
  rank->transport->progress(rank);
  return atomic_load_explicit(&rank->slots[from].given, memory_order_acquire) >= rank->chunks_taken[from];
}

/* Rank 0 asks for one chunk at a time, so the one that was asked owns the buffer until it has answered. */
pp_status pp_board_give(pp_rank *rank, const void *bytes, size_t size_bytes) {
  PP_TRY(pp_wait(rank, chunk_is_wanted, ++rank->chunks_given));
  memcpy(rank->chunk, bytes, size_bytes);
  atomic_store_explicit(&rank->slot->given, rank->chunks_given, memory_order_release);
  pp_doorbell_ring(&rank->slots[0]);
  return PP_OK;
}

pp_status pp_board_take(pp_rank *rank, int from, void *out_bytes, size_t size_bytes) {
  uint64_t count = ++rank->chunks_taken[from];
  atomic_store_explicit(&rank->slots[from].wanted, count, memory_order_release);
  pp_doorbell_ring(&rank->slots[from]);
  PP_TRY(pp_wait(rank, chunk_is_given, (uint64_t)from));
  memcpy(out_bytes, rank->chunk, size_bytes);
  return PP_OK;
}
