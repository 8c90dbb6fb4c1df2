#include "chain.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

enum { STAGES = 4, MICROBATCHES = 4, ROWS = 2, MAX = 512 };
#define WINDOW_BIT (UINT64_C(1) << 63)

/* The chain has no matrix product; weak, for when the kernels are linked too. */
__attribute__((weak)) void pp_matmul_set_threads(int threads) { (void)threads; }

/* What the tasks need beside their arguments. */
static chain_options chain;

static int64_t elements(void) { return ROWS * chain.width; }

/* --- tasks --------------------------------------------------------------------------------------- */

#ifdef CHAIN_CUDA
#include "chain_tasks.h" /* testdata/cuda_runtime */
#else
static void set_cuda(pp_program *p) { (void)p; }

/* at: x, w, y, then (last stage) dy */
static void forward(const pp_call *c, int stage) {
  const float *x = c->at[0], *w = c->at[1];
  float *y = c->at[2];
  int64_t n = elements();
  if (stage == 0 && chain.data_kind == PP_DATA_SYNTHETIC_F32) pp_data_read(c, 0, c->at[0]);
  if (stage == 0 && chain.data_kind != PP_DATA_SYNTHETIC_F32) {
    int32_t *tokens = c->at[0];
    pp_data_read(c, 0, tokens);
    if (chain.bad_index_step && (int)c->rank->step == chain.bad_index_step) tokens[3] = 70000;
    pp_check_indices(c, tokens, n, 65536, "wte");
    for (int64_t i = 0; i < n; i++) {
      float value = (float)tokens[i] / 256.0f;
      memcpy(&tokens[i], &value, 4);
    }
  }
  if (chain.sleep_us) usleep((useconds_t)chain.sleep_us);
  if (stage == 2 && chain.crash_step && (int)c->rank->step == chain.crash_step) raise(SIGSEGV);
  if (stage == 2 && chain.exit_step && (int)c->rank->step == chain.exit_step) exit(0);
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * w[i % chain.width];
  if (stage != STAGES - 1) return;
  float *dy = c->at[3];
  double loss = 0, mean = 0;
  for (int64_t i = 0; i < n; i++) {
    float e = y[i] - 1;
    loss += (double)(e * e);
    mean += (double)y[i];
    dy[i] = 2 * e / (float)n;
  }
  mean /= (double)n;
  int bad = chain.bad_loss_step && (int)c->rank->step == chain.bad_loss_step && c->microbatch == 1;
  int none = chain.no_count_step && (int)c->rank->step == chain.no_count_step;
  pp_loss_store(c, bad ? (double)NAN : loss / (double)n, none ? 0 : 1);
  pp_output_store(c, 0, &mean, 1);
}

/* at: x, w, dy, dw, dx (not stage 0) */
static void backward(const pp_call *c, int stage) {
  const float *x = c->at[0], *w = c->at[1], *dy = c->at[2];
  float *dw = c->at[3];
  if (c->first) memset(dw, 0, (size_t)chain.width * sizeof *dw);
  for (int64_t i = 0; i < elements(); i++) dw[i % chain.width] += x[i] * dy[i];
  if (stage == 2 && chain.bad_step && (int)c->rank->step == chain.bad_step) dw[1] = (float)INFINITY;
  if (stage == 0) return;
  float *dx = c->at[4];
  for (int64_t i = 0; i < elements(); i++) dx[i] = w[i % chain.width] * dy[i];
}

/* at: dw, norm */
static void finish(const pp_call *c) {
  const float *dw = c->at[0];
  double sum = 0;
  for (int64_t i = 0; i < chain.width; i++) sum += (double)dw[i] * (double)dw[i];
  *(double *)c->at[1] = sum;
}

/* at: losses, counts, norms, control */
static void decide(const pp_call *c) {
  const double *losses = c->at[0], *counts = c->at[1], *norms = c->at[2];
  double *control = c->at[3], loss = 0, count = 0, norm = 0;
  for (int i = 0; i < MICROBATCHES; i++) {
    loss += losses[i];
    count += counts[i];
  }
  for (int s = 0; s < STAGES; s++) norm += norms[s];
  norm = sqrt(norm) / count;
  control[PP_CONTROL_LOSS] = count != 0 ? loss / count : 0;
  control[PP_CONTROL_DIVISOR] = count;
  control[PP_CONTROL_NORM] = norm;
  control[PP_CONTROL_RATE] = 0.5;
  control[PP_CONTROL_FACTOR] = 1 / count;
  control[PP_CONTROL_APPLY] = isfinite(norm) && isfinite(control[PP_CONTROL_LOSS]) && count != 0;
}

/* at: control, w, dw, m */
static void update(const pp_call *c) {
  const double *control = c->at[0];
  float *w = c->at[1], *dw = c->at[2], *m = c->at[3];
  for (int64_t i = 0; i < chain.width; i++) {
    dw[i] *= (float)control[PP_CONTROL_FACTOR];
    m[i] = 0.5f * m[i] + dw[i];
    w[i] -= 0.5f * m[i];
  }
}

#endif

#define STAGE(k)                                                  \
  static void stage_##k##_fwd(const pp_call *c) { forward(c, k); } \
  static void stage_##k##_bwd(const pp_call *c) { backward(c, k); }
STAGE(0)
STAGE(1)
STAGE(2)
STAGE(3)

/* --- tables -------------------------------------------------------------------------------------- */

typedef struct {
  pp_program *p;
  uint64_t arena, window;
  pp_action *actions;
  uint64_t *offsets;
  pp_op *ops;
  pp_transfer *transfers;
  int32_t task_of[PP_TASK_KIND_COUNT][STAGES];
  uint64_t w[STAGES], dw[STAGES], m[STAGES], norm[STAGES];
  uint64_t x[STAGES][MICROBATCHES], y[STAGES][MICROBATCHES], dy[STAGES][MICROBATCHES], dx[STAGES][MICROBATCHES];
} Build;

/* Where each rank's sent buffers lie: the same arithmetic on all ranks. */
static uint64_t window_y(int stage, int mb) {
  return ((uint64_t)stage * MICROBATCHES + (uint64_t)mb) * (uint64_t)elements() * 4;
}
static uint64_t window_dx(int stage, int mb) { return window_y(STAGES + stage, mb); }
static uint64_t window_norm(int stage) { return window_y(2 * STAGES, 0) + (uint64_t)stage * 64; }
static uint64_t window_control(void) { return window_norm(STAGES); }
static uint64_t window_size(void) { return window_control() + 64; }

static int rank_of(int stage, int n_ranks) { return stage * n_ranks / STAGES; }

static uint64_t in_arena(Build *b, uint64_t bytes) {
  uint64_t at = b->arena;
  b->arena += (bytes + 63) / 64 * 64;
  return at;
}

/* Never freed, but always reachable, so that a leak checker keeps quiet. */
static void *room(size_t n, size_t size) {
  static void **last;
  void **memory = calloc(1, n * size + 64);
  if (!memory) abort();
  *memory = last;
  last = memory;
  return memory + 8;
}

static void add_task(Build *b, const char *name, pp_task_fn *run, int kind, int stage, int n_args) {
  pp_task *t = (pp_task *)(uintptr_t)&b->p->tasks[b->p->n_tasks];
  *t = (pp_task){name, run, kind, stage, n_args};
  b->task_of[kind][stage < 0 ? 0 : stage] = b->p->n_tasks++;
}

static pp_action *add_action(Build *b, int kind, int stage, int mb) {
  pp_action *a = &b->actions[b->p->n_actions++];
  *a = (pp_action){.task = b->task_of[kind][stage], .microbatch = mb, .first = mb == 0, .args = b->p->n_offsets,
                   .line = (uint32_t)(kind == PP_FWD ? 0 : kind == PP_BWD ? 1 : 2)};
  return a;
}

static void add_argument(Build *b, uint64_t offset) { b->offsets[b->p->n_offsets++] = offset; }

static void add_op(Build *b, int op, uint32_t transfer) {
  b->ops[b->p->n_ops++] = (pp_op){.op = (uint8_t)op, .transfer = transfer, .waits = 1};
}

static uint32_t add_transfer(Build *b, uint32_t id, int peer, int is_send, int mb, uint32_t value, uint64_t bytes, uint64_t offset,
                             uint64_t peer_offset) {
  pp_transfer *t = &b->transfers[b->p->n_transfers];
  *t = (pp_transfer){.id = id, .peer = peer, .microbatch = mb, .value = value, .size_bytes = bytes, .offset = offset,
                     .peer_offset = peer_offset, .is_send = (uint8_t)is_send, .space = is_send ? PP_WINDOW : PP_ARENA};
  return b->p->n_transfers++;
}

static int is_mine(const Build *b, int stage) {
  return stage >= 0 && stage < STAGES && rank_of(stage, b->p->n_ranks) == b->p->rank;
}

static void add_memory(Build *b) {
  uint64_t act = (uint64_t)elements() * 4, par = (uint64_t)chain.width * 4;
  pp_held *held = room(STAGES, sizeof *held);
  for (int s = 0; s < STAGES; s++) {
    if (!is_mine(b, s)) continue;
    b->w[s] = in_arena(b, par);
    b->dw[s] = in_arena(b, par);
    b->m[s] = in_arena(b, par);
    held[b->p->n_held++] = (pp_held){.parameter = s, .value = b->w[s], .owned = 1, .gradient = b->dw[s], .states = {b->m[s]}};
  }
  for (int s = 0; s < STAGES; s++) {
    for (int i = 0; i < MICROBATCHES; i++) {
      if (!is_mine(b, s)) continue;
      b->x[s][i] = is_mine(b, s - 1) ? b->y[s - 1][i] : in_arena(b, act);
      b->y[s][i] = is_mine(b, s + 1) || s == STAGES - 1 ? in_arena(b, act) : window_y(s, i) | WINDOW_BIT;
    }
  }
  for (int s = STAGES - 1; s >= 0; s--) {
    for (int i = 0; i < MICROBATCHES; i++) {
      if (!is_mine(b, s)) continue;
      b->dy[s][i] = is_mine(b, s + 1) ? b->dx[s + 1][i] : in_arena(b, act);
      b->dx[s][i] = is_mine(b, s - 1) || s == 0 ? in_arena(b, act) : window_dx(s, i) | WINDOW_BIT;
    }
  }
  b->p->held = held;
  b->p->losses = in_arena(b, MICROBATCHES * 8);
  b->p->counts = in_arena(b, MICROBATCHES * 8);
  b->p->norms = in_arena(b, STAGES * 8);
  b->p->control = b->p->rank == b->p->loss_rank ? window_control() | WINDOW_BIT : in_arena(b, PP_CONTROL_SIZE * 8);
  b->p->step = in_arena(b, 8);
  uint64_t *slots = room(1, sizeof *slots);
  slots[0] = in_arena(b, MICROBATCHES * 8);
  b->p->output_slots = slots;
}

static uint32_t id_y(int s, int i) { return (uint32_t)(s * MICROBATCHES + i); }
static uint32_t id_dx(int s, int i) { return id_y(STAGES + s, i); }
static uint32_t id_norm(int s) { return id_y(2 * STAGES, 0) + (uint32_t)s; }
static uint32_t id_control(int r) { return id_norm(STAGES) + (uint32_t)r; }

/* The peer offset of a receive is where the sender's window has it. */
static void add_loop(Build *b, int kind, int backwards) {
  uint64_t act = (uint64_t)elements() * 4;
  for (int i = 0; i < MICROBATCHES; i++) {
    for (int k = 0; k < STAGES; k++) {
      int s = backwards ? STAGES - 1 - k : k, from = backwards ? s + 1 : s - 1, to = backwards ? s - 1 : s + 1;
      if (!is_mine(b, s)) continue;
      pp_action *a = add_action(b, kind, s, i);
      int receives = from >= 0 && from < STAGES && !is_mine(b, from), sends = to >= 0 && to < STAGES && !is_mine(b, to);
      if (receives && !(chain.lost_receive && b->p->rank == 1 && i == 2 && !backwards)) {
        uint32_t t = add_transfer(b, backwards ? id_dx(from, i) : id_y(from, i), rank_of(from, b->p->n_ranks), 0, i, 0, act,
                                  backwards ? b->dy[s][i] : b->x[s][i], backwards ? window_dx(from, i) : window_y(from, i));
        add_op(b, PP_POST_RECEIVE, t);
        add_op(b, PP_AWAIT_RECEIVE, t);
        a->n_before = 2;
      }
      if (sends && !(chain.lost_send && b->p->rank == 0 && i == MICROBATCHES - 1 && !backwards)) {
        uint32_t t = add_transfer(b, backwards ? id_dx(s, i) : id_y(s, i), rank_of(to, b->p->n_ranks), 1, i, 0, act,
                                  backwards ? window_dx(s, i) : window_y(s, i), 0);
        add_op(b, PP_POST_SEND, t);
        a->n_after = 1;
      }
      add_argument(b, b->x[s][i]);
      add_argument(b, b->w[s]);
      if (!backwards) {
        add_argument(b, b->y[s][i]);
        add_argument(b, b->dy[s][i]);
      } else {
        add_argument(b, b->dy[s][i]);
        add_argument(b, b->dw[s]);
        add_argument(b, b->dx[s][i]);
      }
    }
  }
}

static void add_finish(Build *b) {
  int is_loss_rank = b->p->rank == b->p->loss_rank;
  for (int s = 0; s < STAGES; s++) {
    if (!is_mine(b, s)) continue;
    pp_action *a = add_action(b, PP_FINISH, s, -1);
    add_argument(b, b->dw[s]);
    add_argument(b, is_loss_rank ? b->p->norms + (uint64_t)s * 8 : window_norm(s) | WINDOW_BIT);
    if (is_loss_rank) continue;
    add_op(b, PP_POST_SEND, add_transfer(b, id_norm(s), b->p->loss_rank, 1, -1, 1, 8, window_norm(s), 0));
    a->n_after = 1;
  }
}

static void add_decide(Build *b) {
  if (b->p->rank != b->p->loss_rank) return;
  pp_action *a = add_action(b, PP_DECIDE, 0, -1);
  for (int pass = 0; pass < 2; pass++) {
    for (int s = 0, k = 0; s < STAGES; s++) {
      if (is_mine(b, s)) continue;
      uint32_t t = pass ? b->p->n_transfers - (uint32_t)(a->n_before - k)
                        : add_transfer(b, id_norm(s), rank_of(s, b->p->n_ranks), 0, -1, 1, 8, b->p->norms + (uint64_t)s * 8,
                                       window_norm(s));
      add_op(b, pass ? PP_AWAIT_RECEIVE : PP_POST_RECEIVE, t);
      if (pass) k++;
      else a->n_before++;
    }
  }
  a->n_before = (uint16_t)(2 * a->n_before);
  for (int r = 0; r < b->p->n_ranks; r++) {
    if (r == b->p->rank) continue;
    add_op(b, PP_POST_SEND, add_transfer(b, id_control(r), r, 1, -1, 2, PP_CONTROL_SIZE * 8, window_control(), 0));
    a->n_after++;
  }
  add_argument(b, b->p->losses);
  add_argument(b, b->p->counts);
  add_argument(b, b->p->norms);
  add_argument(b, b->p->control);
}

static void add_update(Build *b) {
  pp_action *a = NULL;
  for (int s = 0; s < STAGES; s++) {
    if (!is_mine(b, s)) continue;
    int first = a == NULL;
    a = add_action(b, PP_UPDATE, s, -1);
    add_argument(b, b->p->control);
    add_argument(b, b->w[s]);
    add_argument(b, b->dw[s]);
    add_argument(b, b->m[s]);
    if (!first || b->p->rank == b->p->loss_rank) continue;
    uint32_t t = add_transfer(b, id_control(b->p->rank), b->p->loss_rank, 0, -1, 2, PP_CONTROL_SIZE * 8, b->p->control, window_control());
    add_op(b, PP_POST_RECEIVE, t);
    add_op(b, PP_AWAIT_RECEIVE, t);
    a->n_before = 2;
  }
  for (uint32_t t = 0; t < b->p->n_transfers; t++) {
    if (!b->transfers[t].is_send) continue;
    add_op(b, PP_AWAIT_SEND, t);
    a->n_after++;
  }
}

static void add_tasks(Build *b) {
  static pp_task_fn *const fwd[] = {stage_0_fwd, stage_1_fwd, stage_2_fwd, stage_3_fwd};
  static pp_task_fn *const bwd[] = {stage_0_bwd, stage_1_bwd, stage_2_bwd, stage_3_bwd};
  static const char *const names[4][4] = {{"stage_0_fwd", "stage_0_bwd", "stage_0_finish", "stage_0_update"},
                                          {"stage_1_fwd", "stage_1_bwd", "stage_1_finish", "stage_1_update"},
                                          {"stage_2_fwd", "stage_2_bwd", "stage_2_finish", "stage_2_update"},
                                          {"stage_3_fwd", "stage_3_bwd", "stage_3_finish", "stage_3_update"}};
  b->p->tasks = room(MAX, sizeof(pp_task));
  for (int s = 0; s < STAGES; s++) {
    add_task(b, names[s][0], fwd[s], PP_FWD, s, 4);
    add_task(b, names[s][1], bwd[s], PP_BWD, s, 5);
    add_task(b, names[s][2], finish, PP_FINISH, s, 2);
    add_task(b, names[s][3], update, PP_UPDATE, s, 4);
  }
  add_task(b, "decide", decide, PP_DECIDE, -1, 4);
}

static void add_names(Build *b) {
  static const char *const lines[] = {"chain.pp:10", "chain.pp:11", "chain.pp:1"};
  static const char *const values[] = {"x (chain.pp:3)", "a norm", "the control vector"};
  static const char *const states[] = {"m"};
  static const char *const names[] = {"w.0", "w.1", "w.2", "w.3"};
  pp_parameter *parameters = room(STAGES, sizeof *parameters);
  for (int s = 0; s < STAGES; s++) {
    parameters[s] = (pp_parameter){.name = names[s], .dtype = PP_F32, .n_dims = 2, .dims = {2, chain.width / 2}, .init = PP_INIT_NORMAL,
                                   .a = 1, .b = 0.1, .owner = rank_of(s, b->p->n_ranks), .owner_stage = s, .trainable = 1};
  }
  b->p->lines = lines;
  b->p->values = values;
  b->p->state_names = states;
  b->p->n_states = 1;
  b->p->parameters = parameters;
  b->p->n_parameters = STAGES;
}

static void add_data(Build *b) {
  pp_data *data = room(1, sizeof *data);
  pp_output *output = room(1, sizeof *output);
  *data = (pp_data){.name = "text", .kind = (int)chain.data_kind, .order = PP_ORDER_RANDOM, .path = chain.data_path, .n = chain.width,
                    .vocabulary = chain.vocabulary, .used = is_mine(b, 0)};
  *output = (pp_output){.name = "mean_y", .kind = PP_REDUCE_MEAN, .stage = STAGES - 1, .rank = b->p->loss_rank, .n = 1};
  b->p->data = data;
  b->p->n_data = 1;
  b->p->outputs = output;
  b->p->n_outputs = 1;
}

static void set_sizes(Build *b) {
  uint64_t *windows = room((size_t)b->p->n_ranks, sizeof *windows), *mapped = room((size_t)b->p->n_ranks, sizeof *mapped);
  for (int r = 0; r < b->p->n_ranks; r++) windows[r] = b->p->n_ranks > 1 ? window_size() : 64 + window_control();
  for (int r = 0; r < b->p->n_ranks; r++) mapped[r] = windows[r] + b->arena;
  b->p->arena_bytes = b->arena;
  b->p->window_bytes = windows[0];
  b->p->all_window_bytes = windows;
  b->p->all_mapped_bytes = mapped;
  b->p->n_transfers_job = id_control(b->p->n_ranks);
}

pp_program *chain_create(const chain_options *options, int rank, int n_ranks) {
  Build *b = room(1, sizeof *b);
  pp_program *p = room(1, sizeof *p);
  chain = *options;
  b->p = p;
  *p = (pp_program){.abi_version = PP_ABI_VERSION, .device = &pp_device_cpu, .model = "chain.pp", .directory = "/tmp", .plan_hash = 77 + (uint64_t)n_ranks,
                    .rank = rank, .n_ranks = n_ranks, .n_stages = STAGES, .n_microbatches = MICROBATCHES, .microbatch = ROWS,
                    .steps = 5, .seed = 1, .nonfinite_skip = options->skip, .loss_rank = n_ranks - 1, .real = PP_F32};
  b->actions = room(MAX, sizeof *b->actions);
  b->offsets = room(MAX, sizeof *b->offsets);
  b->ops = room(MAX, sizeof *b->ops);
  b->transfers = room(MAX, sizeof *b->transfers);
  add_tasks(b);
  add_names(b);
  add_data(b);
  add_memory(b);
  add_loop(b, PP_FWD, 0);
  add_loop(b, PP_BWD, 1);
  add_finish(b);
  add_decide(b);
  add_update(b);
  set_sizes(b);
  p->actions = b->actions;
  p->offsets = b->offsets;
  p->ops = b->ops;
  p->transfers = b->transfers;
  set_cuda(p);
  return p;
}

static int64_t variable(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoll(text, NULL, 10) : otherwise;
}

chain_options chain_options_read(void) {
  chain_options o = {
      .width = variable("PP_TEST_WIDTH", 64),
      .sleep_us = (int)variable("PP_TEST_SLEEP_US", 0),
      .bad_step = (int)variable("PP_TEST_BAD_STEP", 0),
      .bad_loss_step = (int)variable("PP_TEST_BAD_LOSS_STEP", 0),
      .bad_index_step = (int)variable("PP_TEST_BAD_INDEX_STEP", 0),
      .no_count_step = (int)variable("PP_TEST_NO_COUNT_STEP", 0),
      .skip = (int)variable("PP_TEST_SKIP", 0),
      .lost_receive = (int)variable("PP_TEST_LOST_RECEIVE", 0),
      .lost_send = (int)variable("PP_TEST_LOST_SEND", 0),
      .crash_step = (int)variable("PP_TEST_CRASH_STEP", 0),
      .exit_step = (int)variable("PP_TEST_EXIT_STEP", 0),
      .data_kind = variable("PP_TEST_DATA_KIND", PP_DATA_SYNTHETIC_F32),
      .data_path = getenv("PP_TEST_DATA"),
      .vocabulary = variable("PP_TEST_VOCABULARY", 0),
  };
  return o;
}
