/* One suite for all transports: random transfers between 1 to 4 ranks, with few send buffers that are
 * reused as soon as the plan allows, receives posted at random earlier places, tensors gathered on
 * rank 0. Every byte is checked by its receiver. */
#include <stdint.h>

#include "internal.h"
#include "test.h"

enum { TRANSFERS = 60, SLOTS = 2, SLOT_BYTES = 40000, MAX_OPS = 8 * TRANSFERS, BIG = 800000 };

void pp_matmul_set_threads(int threads) __attribute__((weak));
void pp_matmul_set_threads(int threads) { (void)threads; }

typedef struct {
  int from, to;
  uint64_t size;
  int slot;
} Message;

static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* The same on all ranks: drawn from a seed. */
static void draw_messages(Message messages[TRANSFERS], int n_ranks, uint32_t seed) {
  uint32_t state = seed;
  int used[TEST_MAX_RANKS] = {0};
  for (int k = 0; k < TRANSFERS; k++) {
    Message *m = &messages[k];
    m->from = (int)(next_random(&state) % (uint32_t)n_ranks);
    m->to = (m->from + 1 + (int)(next_random(&state) % (uint32_t)(n_ranks - 1))) % n_ranks;
    m->size = next_random(&state) % 3 ? next_random(&state) % 200 + 1 : next_random(&state) % SLOT_BYTES + 1;
    m->slot = used[m->from]++ % SLOTS;
  }
}

/* --- tasks ------------------------------------------------------------------------------------------ */

static uint64_t size_of(const pp_call *c, int is_send) {
  const pp_program *p = c->rank->program;
  for (uint32_t t = 0; t < p->n_transfers; t++) {
    if (p->transfers[t].id == (uint32_t)c->microbatch && p->transfers[t].is_send == is_send) return p->transfers[t].size_bytes;
  }
  return 0;
}

#ifdef SUITE_CUDA
#include "suite_tasks.h" /* testdata/cuda_runtime */
#else
enum { POSTS_IN_ORDER = 0 };

static void set_cuda(pp_program *p) { (void)p; }

static unsigned char byte_of(uint64_t step, int message, uint64_t i) {
  return (unsigned char)(step * 31 + (uint64_t)message * 17 + i * 7 + (i >> 8));
}

static void fill(const pp_call *c) {
  unsigned char *at = c->at[0];
  for (uint64_t i = 0, n = size_of(c, 1); i < n; i++) at[i] = byte_of(c->rank->step, c->microbatch, i);
}

static void verify(const pp_call *c) {
  const unsigned char *at = c->at[0];
  for (uint64_t i = 0, n = size_of(c, 0); i < n; i++) {
    if (at[i] == byte_of(c->rank->step, c->microbatch, i)) continue;
    pp_fail(c->rank, PP_EXIT_FAILED, "message %d, byte %d is wrong", c->microbatch, (int)i);
    return;
  }
}

static void control(const pp_call *c) { *(double *)c->at[0] = 1; }
#endif

/* --- tables ----------------------------------------------------------------------------------------- */

typedef struct {
  pp_program program;
  pp_action actions[2 * TRANSFERS + 1];
  pp_op ops[MAX_OPS];
  pp_transfer transfers[TRANSFERS];
  uint64_t offsets[2 * TRANSFERS + 1];
  uint64_t windows[TEST_MAX_RANKS];
  pp_parameter parameters[2];
  pp_held held[2];
  pp_output outputs[1];
} Tables;

static const pp_task tasks[] = {{"fill", fill, PP_FWD, 0, 1}, {"verify", verify, PP_FWD, 0, 1}, {"control", control, PP_DECIDE, 0, 1}};

static void add_op(Tables *t, int op, uint32_t transfer) {
  t->ops[t->program.n_ops++] = (pp_op){.op = (uint8_t)op, .transfer = transfer, .waits = 1};
}

static pp_action *add_action(Tables *t, int task, int microbatch, uint64_t offset) {
  pp_action *a = &t->actions[t->program.n_actions++];
  *a = (pp_action){.task = task, .microbatch = microbatch, .args = t->program.n_offsets};
  t->offsets[t->program.n_offsets++] = offset;
  return a;
}

/* This rank's messages in order; index of the last one that used each slot. */
static void add_messages(Tables *t, const Message *messages, uint32_t seed) {
  int rank = t->program.rank, waiting[SLOTS] = {-1, -1};
  uint32_t state = seed + (uint32_t)rank, posted = 0, mine[TRANSFERS], n = 0;
  for (int k = 0; k < TRANSFERS; k++) {
    const Message *m = &messages[k];
    if (m->from != rank && m->to != rank) continue;
    t->transfers[n] = (pp_transfer){.id = (uint32_t)k, .peer = m->from == rank ? m->to : m->from, .microbatch = k, .size_bytes = m->size,
                                    .is_send = m->from == rank, .space = m->from == rank ? PP_WINDOW : PP_ARENA,
                                    .offset = m->from == rank ? (uint64_t)m->slot * SLOT_BYTES : (uint64_t)(k + 1) * SLOT_BYTES,
                                    .peer_offset = (uint64_t)m->slot * SLOT_BYTES};
    mine[n++] = (uint32_t)k;
  }
  t->program.n_transfers = n;
  for (uint32_t i = 0; i < n; i++) {
    const Message *m = &messages[mine[i]];
    uint32_t first = t->program.n_ops;
    uint32_t ahead = i + 1 + next_random(&state) % 4;
    for (; posted < n && (posted <= i || posted < ahead); posted++) {
      if (POSTS_IN_ORDER && posted > i && (t->transfers[i].is_send || t->transfers[posted].is_send)) break;
      if (!t->transfers[posted].is_send) add_op(t, PP_POST_RECEIVE, posted);
    }
    if (m->from == rank && waiting[m->slot] >= 0) add_op(t, PP_AWAIT_SEND, (uint32_t)waiting[m->slot]);
    if (m->to == rank) add_op(t, PP_AWAIT_RECEIVE, i);
    uint64_t at = t->transfers[i].offset | (m->from == rank ? UINT64_C(1) << 63 : 0);
    pp_action *a = add_action(t, m->from == rank ? 0 : 1, (int)mine[i], at);
    a->n_before = (uint16_t)(t->program.n_ops - first);
    if (m->from != rank) continue;
    add_op(t, PP_POST_SEND, i);
    a->n_after = 1;
    waiting[m->slot] = (int)i;
  }
  pp_action *last = add_action(t, 2, -1, t->program.control);
  for (int s = 0; s < SLOTS; s++) {
    if (waiting[s] < 0) continue;
    add_op(t, PP_AWAIT_SEND, (uint32_t)waiting[s]);
    last->n_before++;
  }
}

static void add_parameters(Tables *t) {
  pp_program *p = &t->program;
  static const char *const names[] = {"b", "a"};
  uint64_t at = (TRANSFERS + 2) * SLOT_BYTES;
  for (int i = 0; i < 2; i++) {
    t->parameters[i] = (pp_parameter){.name = names[i], .dtype = PP_F32, .n_dims = 1, .dims = {i ? 17 : BIG}, .init = PP_INIT_UNIFORM,
                                      .a = -1, .b = 1, .owner = i ? 0 : p->n_ranks - 1, .trainable = 1};
    if (t->parameters[i].owner == p->rank) {
      t->held[p->n_held++] = (pp_held){.parameter = i, .value = at + (uint64_t)i * BIG * 4, .owned = 1};
    }
  }
  p->parameters = t->parameters;
  p->n_parameters = 2;
  p->held = t->held;
}

static Tables *create(int rank, int n_ranks, uint32_t seed) {
  static const char *const lines[] = {"suite:1"}, *const values[] = {"a message"};
  Tables *t = calloc(1, sizeof *t);
  Message messages[TRANSFERS];
  pp_program *p = &t->program;
  *p = (pp_program){.abi_version = PP_ABI_VERSION, .device = &pp_device_cpu, .model = "suite", .plan_hash = seed, .rank = rank, .n_ranks = n_ranks, .n_microbatches = 1,
                    .microbatch = 1, .steps = 30, .arena_bytes = (TRANSFERS + 3) * SLOT_BYTES + BIG * 8, .window_bytes = SLOTS * SLOT_BYTES,
                    .all_window_bytes = t->windows, .all_mapped_bytes = t->windows, .n_transfers_job = TRANSFERS, .tasks = tasks, .n_tasks = 3,
                    .actions = t->actions, .offsets = t->offsets, .ops = t->ops, .transfers = t->transfers, .lines = lines, .values = values,
                    .control = 0, .step = 64, .losses = 128, .counts = 128, .norms = 128};
  for (int r = 0; r < n_ranks; r++) t->windows[r] = SLOTS * SLOT_BYTES;
  if (n_ranks > 1) draw_messages(messages, n_ranks, seed);
  if (n_ranks > 1) add_messages(t, messages, seed);
  else add_action(t, 2, -1, 0);
  add_parameters(t);
  set_cuda(p);
  return t;
}

/* --- the suite --------------------------------------------------------------------------------------- */

static test_job job;

static const char *hash_of(const char *out) {
  static char hash[65];
  const char *at = strstr(out, "\"parameters\":\"");
  snprintf(hash, sizeof hash, "%.64s", at ? at + 14 : "");
  return hash;
}

static char expected[65];

static void run_suite(const char *transport, int n_ranks) {
  int slow = strcmp(transport, "late") == 0 || strncmp(transport, "strict", 6) == 0;
  const char *steps = slow ? "--steps=4" : "--steps=30";
  for (int seed = 1; seed <= 3; seed++) {
    char text[16];
    snprintf(text, sizeof text, "%d", seed);
    setenv("TEST_SEED", text, 1);
    CHECK(test_run(&job, n_ranks, ARGUMENTS("--json", "--timeout=20", "--transport", transport, steps)) == 0);
    if (job.err[0]) printf("%s", job.err);
    if (!expected[0]) snprintf(expected, sizeof expected, "%s", hash_of(job.out));
    CHECK(strlen(expected) == 64 && strcmp(expected, hash_of(job.out)) == 0);
  }
}

static void self(void) { run_suite("self", 1); }
static void shm(void) {
  for (int n = 2; n <= 4; n++) run_suite("shm", n);
}
static void late(void) {
  for (int n = 2; n <= 4; n++) run_suite("late", n);
}
/* The suite's receives are posted out of order: it needs as many channels as transfers. */
static void strict(void) {
  for (int n = 2; n <= 4; n++) run_suite("strict:7:60", n);
}
/* One process: the job's "rank 0" starts them all. */
static void threads(void) {
  for (int n = 2; n <= 4; n++) {
    char text[16];
    snprintf(text, sizeof text, "%d", n);
    setenv("TEST_THREADS", text, 1);
    CHECK(test_run(&job, 1, ARGUMENTS("--json", "--timeout=20")) == 0);
    if (job.err[0]) printf("%s", job.err);
    CHECK(strcmp(expected, hash_of(job.out)) == 0);
  }
  unsetenv("TEST_THREADS");
}

static int number_of(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

static int be_a_rank(int argc, char **argv) {
  const pp_program *programs[TEST_MAX_RANKS];
  uint32_t seed = (uint32_t)number_of("TEST_SEED", 1);
  int n_threads = number_of("TEST_THREADS", 0);
  if (!n_threads) return pp_main(&create(number_of("TEST_RANK", 0), number_of("TEST_RANKS", 1), seed)->program, argc, argv);
  for (int r = 0; r < n_threads; r++) programs[r] = &create(r, n_threads, seed)->program;
  return pp_main_threads(programs, n_threads, argc, argv);
}

int main(int argc, char **argv) {
  if (getenv("TEST_RANK")) return be_a_rank(argc, argv);
  TEST(self);
  TEST(shm);
  TEST(late);
  TEST(strict);
  TEST(threads);
  return test_failures != 0;
}
