/* The device. A stream is a queue of operations (a lane); nothing runs on a thread of its own: at every call, and while
 * the host waits, the seed picks which lanes' heads run, among all orders that CUDA allows. A head may run when what it
 * waits for is done, every op issued earlier on the same hardware queue has started and, for NCCL, a slot is free.
 *   PPC_CHECK_SEED     picks the policy and every choice
 *   PPC_CHECK_QUEUES   hardware queues    } 1 and 1 is the strictest; else seeds
 *   PPC_CHECK_SLOTS    NCCL's slots       } go through {16, 1, 2} */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core.h"

enum { ASKS_UNTIL_WAIT = 30 };
typedef enum { LAZY, EAGER, RANDOM, BY_PRIORITY, POLICY_COUNT } Policy;

static Lane lanes[MAX_LANES];
static Clock host_clock;
static uint64_t n_issued;
static Policy policy;
static int n_queues, n_slots, n_asks; /* n_asks: calls that only asked, one after the other, while nothing moved */
static uint32_t asked_at;             /* the world's progress then */
static int priority[MAX_LANES];

/* ---- clocks ---- */

void check_clock_join(Clock *clock, const Clock *other) {
  for (int r = 0; r < MAX_RANKS; r++)
    for (int l = 0; l < MAX_LANES; l++)
      clock->at[r][l] = clock->at[r][l] < other->at[r][l] ? other->at[r][l] : clock->at[r][l];
}

Clock *check_lane_clock(int lane) { return &lanes[lane].clock; }

bool check_host_knows(const Op *op) {
  int rank = check_rank();
  return op->done && host_clock.at[rank][op->lane] >= op->clock.at[rank][op->lane];
}

void check_host_joins(const Op *op) {
  if (op) check_clock_join(&host_clock, &op->clock);
  if (!check_memory_is_open()) check_pinned_guard();
}

/* ---- lanes ---- */

Lane *check_lane_at(int lane) { return &lanes[lane]; }

/* One that nothing used yet; else one whose stream was destroyed and is empty. */
int check_lane_create(bool is_blocking, const char *name) {
  int lane = LANE_FIRST_STREAM;
  while (lane < MAX_LANES && (lanes[lane].in_use || lanes[lane].last)) lane++;
  if (lane == MAX_LANES) lane = LANE_FIRST_STREAM;
  while (lane < MAX_LANES && (lanes[lane].in_use || lanes[lane].head)) lane++;
  if (lane == MAX_LANES) check_fatal("unsupported", "more than %d streams", MAX_LANES - LANE_FIRST_STREAM);
  lanes[lane].in_use = true;
  lanes[lane].is_blocking = is_blocking;
  lanes[lane].capture = NULL;
  snprintf(lanes[lane].name, sizeof lanes->name, "%s", name);
  return lane;
}

void check_list_pending(char *out, size_t capacity) {
  size_t used = 0;
  out[0] = 0;
  for (int l = LANE_DEFAULT; l < MAX_LANES; l++) {
    const Op *op = lanes[l].head;
    if (!op || used >= capacity) continue;
    used += (size_t)snprintf(out + used, capacity - used, "%s%s%s", used ? "; " : "", check_label_brief(op->id),
                             op->started ? "" : " [not started]");
  }
}

uint32_t check_oldest_pending(void) {
  uint32_t oldest = check_label_next();
  for (int l = LANE_DEFAULT; l < MAX_LANES; l++)
    if (lanes[l].head && lanes[l].head->id < oldest) oldest = lanes[l].head->id;
  return oldest;
}

/* ---- one step of the device ---- */

static bool has_started_before(const Op *op) {
  for (int l = LANE_DEFAULT; l < MAX_LANES; l++) {
    if (l % n_queues != op->lane % n_queues) continue;
    const Op *first = lanes[l].head;
    while (first && first->started) first = first->next;
    if (first && first->issue < op->issue) return false;
  }
  return true;
}

static bool is_ready(const Op *op) {
  for (int i = 0; i < op->n_waits; i++)
    if (!op->waits[i]->done) return false;
  if (op->after && !op->after->done) return false;
  int n_running = 0;
  for (int l = LANE_DEFAULT; l < MAX_LANES; l++) n_running += lanes[l].head && lanes[l].head->started;
  if (op->is_transfer && n_running >= n_slots) return false;
  return has_started_before(op);
}

/* An op that uses memory opens it, for all that run in a row. */
static void close_memory(void) {
  if (!check_memory_is_open()) return;
  check_memory_open(false);
  check_pinned_guard();
}

/* The host's clock, which all ranks share; a microsecond at least from one op of a rank to the next. */
static uint64_t device_time(void) {
  static uint64_t last_ns;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  last_ns = ns > last_ns + 1000 ? ns : last_ns + 1000;
  return last_ns;
}

static void complete(Lane *lane, Op *op) {
  op->clock = lane->clock;
  op->done = true;
  op->done_ns = device_time();
  lane->head = op->next;
  if (!lane->head) lane->tail = NULL;
  free(op->payload);
  op->payload = NULL;
}

static void start(Lane *lane, Op *op) {
  check_clock_join(&lane->clock, &op->clock);
  for (int i = 0; i < op->n_waits; i++) check_clock_join(&lane->clock, &op->waits[i]->clock);
  check_op_tick(op, ++lane->clock.at[check_rank()][op->lane]);
  op->started = true;
}

/* Starts or polls the head of a lane; true: something happened. */
static bool advance(Lane *lane) {
  Op *op = lane->head;
  if (!op || (!op->started && !is_ready(op))) return false;
  bool starts = !op->started;
  if (starts) start(lane, op);
  check_access_begin(op);
  if (starts && op->start) {
    check_memory_open(true);
    op->start(op);
  }
  bool ends = !op->poll || op->poll(op);
  check_access_end();
  if (ends) complete(lane, op);
  return starts || ends;
}

static bool step(void) {
  int order[MAX_LANES];
  if (policy != BY_PRIORITY || check_random(16) == 0)
    for (int l = 0; l < MAX_LANES; l++) priority[l] = (int)check_random(1 << 20);
  for (int l = 0; l < MAX_LANES; l++) {
    int k = l;
    for (; k > 0 && priority[order[k - 1]] < priority[l]; k--) order[k] = order[k - 1];
    order[k] = l;
  }
  for (int k = 0; k < MAX_LANES; k++)
    if (advance(&lanes[order[k]])) return true;
  return false;
}

/* ---- between calls, and waiting ---- */

static uint32_t read_progress(void) { return check_hooks.progress ? check_hooks.progress() : 0; }

/* Whether anything came forward. */
static bool step_by_policy(void) {
  bool moved = false;
  if (policy == EAGER) {
    while (step()) moved = true;
  } else if (policy != LAZY) {
    while (check_random(3) && step()) moved = true;
  }
  close_memory();
  return moved;
}

static void resume(void) {
  n_asks = 0;
  if (check_hooks.resume) check_hooks.resume();
}

/* Then it is not these libraries that know whether the rank can go on. */
static bool wait_for_host_function(void) {
  bool runs = check_host_function_nap();
  if (runs && check_hooks.resume) check_hooks.resume();
  return runs;
}

void check_step_some(void) {
  resume();
  step_by_policy();
}

/* A program may ask until the answer is yes, so the device must come forward; and if it can't, this is waiting. */
void check_step_for_query(const char *format, ...) {
  char waiting[CHECK_TEXT];
  uint32_t seen = read_progress();
  int before = seen == asked_at ? n_asks : 0;
  bool moved = step_by_policy();
  if (check_random(4) == 0 && step()) moved = true;
  while (before > ASKS_UNTIL_WAIT && step()) moved = true;
  close_memory();
  asked_at = seen;
  n_asks = before + 1;
  if (moved) resume();
  if (n_asks <= ASKS_UNTIL_WAIT || !check_hooks.stall || wait_for_host_function()) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(waiting, sizeof waiting, format, arguments);
  va_end(arguments);
  check_hooks.stall(seen, waiting, true);
}

void check_query_succeeds(void) { resume(); }

void check_run_until(bool (*is_done)(const void *), const void *argument, const char *format, ...) {
  char waiting[CHECK_TEXT];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(waiting, sizeof waiting, format, arguments);
  va_end(arguments);
  resume();
  while (!is_done(argument)) {
    uint32_t seen = read_progress();
    if (step()) {
      resume();
    } else if (!is_done(argument)) {
      close_memory();
      if (wait_for_host_function()) continue;
      if (!check_hooks.stall) check_fatal("hang", "%s never ends", waiting);
      check_hooks.stall(seen, waiting, false);
    }
  }
  resume();
  close_memory();
}

static bool is_op_done(const void *op) { return !op || ((const Op *)op)->done; }

void check_wait_op(const Op *op, const char *call) {
  check_run_until(is_op_done, op, "%s in '%s'", call, check_action());
  check_host_joins(op);
}

void check_wait_device(const char *call) {
  for (int l = LANE_DEFAULT; l < MAX_LANES; l++) check_wait_op(lanes[l].last, call);
}

/* ---- issuing ---- */

Op *check_op_create(cudaStream_t stream, size_t payload_bytes, const char *format, ...) {
  char call[160];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(call, sizeof call, format, arguments);
  va_end(arguments);
  Op *op = calloc(1, sizeof *op);
  if (!op || (payload_bytes && !(op->payload = calloc(1, payload_bytes)))) check_fatal("internal", "out of memory");
  op->payload_bytes = payload_bytes;
  op->lane = check_lane_of(stream);
  op->id = check_label_create(call, op->lane);
  if (!lanes[op->lane].in_use) check_fatal("misuse", "%s: the stream was destroyed", check_label_text(op->id));
  return op;
}

void check_op_wait_for(Op *op, const Op *other) {
  if (other) op->waits[op->n_waits++] = other;
}

void check_op_enqueue(Op *op) {
  Lane *lane = &lanes[op->lane];
  op->clock = host_clock;
  if (op->lane == LANE_DEFAULT) {
    for (int l = LANE_FIRST_STREAM; l < MAX_LANES; l++)
      if (lanes[l].in_use && lanes[l].is_blocking) check_op_wait_for(op, lanes[l].last);
  } else if (lane->is_blocking) {
    check_op_wait_for(op, lanes[LANE_DEFAULT].last);
  }
  op->issue = ++n_issued;
  if (lane->tail) lane->tail->next = op;
  else lane->head = op;
  lane->tail = op;
  lane->last = op;
  if (op->issued) op->issued(op);
}

__attribute__((constructor)) static void set_up(void) {
  static const int some[] = {MAX_LANES, 1, 2};
  long seed = check_setting("PPC_CHECK_SEED", NULL, 0);
  policy = (Policy)(seed % POLICY_COUNT);
  n_queues = (int)check_setting("PPC_CHECK_QUEUES", NULL, some[seed % 3]);
  n_slots = (int)check_setting("PPC_CHECK_SLOTS", NULL, some[seed / 3 % 3]);
  lanes[LANE_DEFAULT].in_use = true;
  snprintf(lanes[LANE_DEFAULT].name, sizeof lanes->name, "default");
}
