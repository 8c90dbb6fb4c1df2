/* From split tasks to the plan: schedules that are right are accepted and proved, broken ones rejected
 * with their place, and what was accepted runs to the end on a machine of tags: every 64 bytes of each
 * rank's memory carry the name of what was last written there, every read checks it, and transfers
 * complete as late as the rules allow, in the order of each rank, only when both ends have posted. */
#include <stdlib.h>

#include "compiler/actions.h"
#include "compiler/base/test.h"
#include "compiler/compiler.h"
#include "compiler/plan_rank.h"
#include "dsl/load.h"

static uint64_t random_state = 7;
static int random_below(int n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (int)((random_state >> 33) % (uint64_t)n);
}

/* --- a model, split --------------------------------------------------------------------------------------- */

typedef struct {
  Arena *arena;
  Diag *diag;
  Ir *ir;
  Program *program;
  int ranks, stages, microbatches;
} Case;

static Case open_case_of(const char *model, int stages, int ranks, int microbatches, int microbatch) {
  Case c = {.arena = arena_create(), .diag = diag_create(), .ranks = ranks, .stages = stages,
            .microbatches = microbatches};
  c.ir = ir_create(c.arena, c.diag);
  const char *text = arena_printf(c.arena, "%d", stages);
  Define defines[] = {{"stages", text}, {"layers", text}, {"width", "8"}};
  CompileOptions options = {.defines = defines, .n_defines = 3, .ranks = ranks, .microbatch = microbatch,
                            .microbatches = microbatches, .steps = 2, .threads = 1};
  DslProgram *program = dsl_load(c.arena, c.diag, model);
  c.program = program ? elaborate_run(c.ir, program, &options) : NULL;
  bool ok = c.program && simplify_run(c.ir) && autodiff_run(c.ir) && stages_run(c.ir) && split_run(c.ir);
  diag_flush(c.diag);
  if (!ok) bug("%s does not get to split", model);
  return c;
}

static Case open_case(const char *model, int stages, int ranks, int microbatches) {
  return open_case_of(model, stages, ranks, microbatches, 2);
}

static void close_case(Case *c) {
  ir_destroy(c->ir);
  diag_destroy(c->diag);
  arena_destroy(c->arena);
}

/* --- schedules ------------------------------------------------------------------------------------------ */

typedef struct {
  Case *c;
  ScheduledActions list;
} Maker;

/* Each action has a line of its own, to be found in messages. */
static void add(Maker *m, int rank, pp_task_kind kind, int stage, int microbatch) {
  Loc loc = {0, m->list.n + 1, 1};
  VEC_PUSH(m->c->arena, &m->list, (ScheduledAction){rank, stage, microbatch, kind, -1, loc, {0}});
}

static int smaller(int a, int b) { return a < b ? a : b; }

static ScheduledActions one_f_one_b(Case *c) {
  Maker m = {c, {0}};
  for (int r = 0; r < c->ranks; r++) {
    int warmup = smaller(c->microbatches, c->ranks - r - 1);
    for (int i = 0; i < warmup; i++) add(&m, r, PP_FWD, r, i);
    for (int i = 0; i < c->microbatches; i++) {
      if (warmup + i < c->microbatches) add(&m, r, PP_FWD, r, warmup + i);
      add(&m, r, PP_BWD, r, i);
    }
  }
  return m.list;
}

static ScheduledActions gpipe(Case *c, bool reversed) {
  Maker m = {c, {0}};
  for (int r = 0; r < c->ranks; r++) {
    int k = c->stages / c->ranks;
    for (int i = 0; i < c->microbatches; i++)
      for (int s = r * k; s < (r + 1) * k; s++) add(&m, r, PP_FWD, s, i);
    for (int i = 0; i < c->microbatches; i++)
      for (int s = (r + 1) * k - 1; s >= r * k; s--) add(&m, r, PP_BWD, s, reversed ? c->microbatches - 1 - i : i);
  }
  return m.list;
}

static ScheduledActions zb_h1(Case *c) {
  Maker m = {c, {0}};
  for (int r = 0; r < c->ranks; r++) {
    int f = 0, i = 0, w = 0;
    while (f < smaller(c->microbatches, c->ranks - 1 - r)) add(&m, r, PP_FWD, r, f++);
    while (i < c->microbatches) {
      if (f < c->microbatches) add(&m, r, PP_FWD, r, f++);
      add(&m, r, PP_BWD_INPUT, r, i++);
      if (i - w > r) add(&m, r, PP_BWD_WEIGHT, r, w++);
    }
    while (w < c->microbatches) add(&m, r, PP_BWD_WEIGHT, r, w++);
  }
  return m.list;
}

static void interleaved_forward(Maker *m, int r, int k, int group, int chunks) {
  int chunk = k / group % chunks, microbatch = k / (group * chunks) * group + k % group;
  add(m, r, PP_FWD, chunk * m->c->ranks + r, microbatch);
}

static void interleaved_backward(Maker *m, int r, int k, int group, int chunks) {
  int chunk = chunks - 1 - k / group % chunks, microbatch = k / (group * chunks) * group + k % group;
  add(m, r, PP_BWD, chunk * m->c->ranks + r, microbatch);
}

static ScheduledActions interleaved(Case *c) {
  Maker m = {c, {0}};
  int chunks = c->stages / c->ranks, rounds = c->microbatches / c->ranks > 1 ? c->microbatches / c->ranks : 1;
  int group = c->microbatches / rounds, n = c->microbatches * chunks;
  for (int r = 0; r < c->ranks; r++) {
    int warmup = smaller(n, 2 * (c->ranks - 1 - r) + (chunks - 1) * group);
    for (int k = 0; k < warmup; k++) interleaved_forward(&m, r, k, group, chunks);
    for (int k = 0; k < n - warmup; k++) {
      interleaved_forward(&m, r, warmup + k, group, chunks);
      interleaved_backward(&m, r, k, group, chunks);
    }
    for (int k = n - warmup; k < n; k++) interleaved_backward(&m, r, k, group, chunks);
  }
  return m.list;
}

/* Forwards ahead, then a forward and a backward (or its input half) in one block, as often as there are both. */
static ScheduledActions pairs(Case *c, bool halves) {
  Maker m = {c, {0}};
  int n_blocks = 0;
  for (int r = 0; r < c->ranks; r++) {
    int ahead = smaller(c->microbatches, 2 * (c->ranks - r - 1) + 1);
    for (int i = 0; i < ahead; i++) add(&m, r, PP_FWD, r, i);
    for (int i = 0; i < c->microbatches; i++) {
      bool both = i + ahead < c->microbatches;
      if (both) add(&m, r, PP_FWD, r, i + ahead);
      if (both) VEC_LAST(&m.list).overlap = n_blocks;
      add(&m, r, halves ? PP_BWD_INPUT : PP_BWD, r, i);
      if (both) VEC_LAST(&m.list).overlap = n_blocks++;
      if (halves) add(&m, r, PP_BWD_WEIGHT, r, i);
    }
  }
  return m.list;
}

/* Any order in which one processor could run everything, dealt out to ranks at random. */
static ScheduledActions random_schedule(Case *c, bool halves) {
  int S = c->stages, M = c->microbatches;
  int *rank_of = arena_alloc_array(c->arena, (size_t)S, sizeof *rank_of);
  for (int s = 0; s < S; s++) rank_of[s] = s < c->ranks ? s : random_below(c->ranks);
  for (int s = S - 1; s > 0; s--) {
    int k = random_below(s + 1), swap = rank_of[s];
    rank_of[s] = rank_of[k], rank_of[k] = swap;
  }
  int *n_forward = arena_alloc_array(c->arena, (size_t)M, sizeof *n_forward);
  int *n_backward = arena_alloc_array(c->arena, (size_t)M, sizeof *n_backward);
  bool *owes = arena_alloc_array(c->arena, (size_t)(S * M), sizeof *owes);
  Maker all = {c, {0}}, sorted = {c, {0}};
  for (int left = 2 * S * M, debts = 0; left + debts > 0;) {
    int i = random_below(M), s;
    if (debts && random_below(4) == 0) {
      int k = random_below(S * M);
      while (!owes[k]) k = (k + 1) % (S * M);
      owes[k] = false, debts--;
      add(&all, rank_of[k / M], PP_BWD_WEIGHT, k / M, k % M);
    } else if (n_forward[i] < S) {
      s = n_forward[i]++, left--;
      add(&all, rank_of[s], PP_FWD, s, i);
    } else if (n_backward[i] < S) {
      s = S - 1 - n_backward[i]++, left--;
      bool split = halves && random_below(2);
      add(&all, rank_of[s], split ? PP_BWD_INPUT : PP_BWD, s, i);
      if (split) owes[s * M + i] = true, debts++;
    }
  }
  for (int r = 0; r < c->ranks; r++)
    for (int k = 0; k < all.list.n; k++)
      if (all.list.at[k].rank == r) add(&sorted, r, all.list.at[k].kind, all.list.at[k].stage, all.list.at[k].microbatch);
  return sorted.list;
}

/* --- the machine of tags ----------------------------------------------------------------------------------- */

typedef struct {
  uint64_t *memory[PP_SPACE_COUNT]; /* a tag for each 64 bytes */
  int n_events, next, head;
  struct { int op, index; } *events; /* op -1: action */
  int *posts, n_posts;
  uint64_t *scratch_tags;           /* of the running task, by buffer */
} TagRank;

typedef struct {
  const Plan *plan;
  Arena *arena;
  TagRank *ranks;
  bool *sent, *received, *complete; /* of the present step */
  int *param_version;               /* [ranks * parameters] */
  int step, n_wrong;
} Machine;

static uint64_t tag(int what, int a, int b, int c) {
  uint64_t h = 1469598103934665603u;
  int parts[] = {what, a, b, c};
  for (int i = 0; i < 4; i++) h = (h ^ (uint64_t)(unsigned)parts[i]) * 1099511628211u;
  return h | 1;
}

static void write_tag(TagRank *r, int space, uint64_t offset, int64_t bytes, uint64_t t) {
  for (int64_t i = 0; i * 64 < bytes; i++) r->memory[space][offset / 64 + (uint64_t)i] = t;
}

static bool has_tag(const TagRank *r, int space, uint64_t offset, int64_t bytes, uint64_t t) {
  for (int64_t i = 0; i * 64 < bytes; i++)
    if (r->memory[space][offset / 64 + (uint64_t)i] != t) return false;
  return true;
}

static int64_t bytes_of(const PlanType *type) {
  int64_t n = type->dtype == PP_F64 ? 8 : type->dtype == PP_BOOL ? 1 : 4;
  for (int i = 0; i < type->rank; i++) n *= type->dims[i];
  return n;
}

/* Address and tag of a buffer. False for places that this machine does not follow. */
static bool locate(Machine *m, int r, const PlanAction *a, int buffer, uint64_t *at, uint64_t *t) {
  const PlanTask *task = &m->plan->tasks[a->task];
  const PlanBuffer *b = &task->buffers[buffer];
  for (int k = 0; k < task->n_arguments; k++) {
    const PlanArgument *x = &task->arguments[k];
    if (b->place == PLAN_ARGUMENT && k == b->index) {
      *at = a->offsets[k], *t = tag(1, x->value, a->microbatch, 0);
      /* an accumulator of another stage on this rank is no item of its own */
      return !strstr(m->plan->values[x->value], "gradient of");
    }
    if (b->place == PLAN_FRAME && x->kind == (b->sub ? PLAN_ARG_WEIGHT_FRAME : PLAN_ARG_FRAME)) {
      const PlanStage *stage = &m->plan->stages[task->stage];
      *at = a->offsets[k] + (uint64_t)(b->sub ? stage->weight_fields : stage->fields)[b->index].offset;
      *t = tag(2 + b->sub, task->stage, (int)b->index, a->microbatch);
      return true;
    }
    if (b->place == PLAN_SCRATCH && x->kind == PLAN_ARG_WORKSPACE) {
      *at = a->offsets[k] + (uint64_t)b->index;
      *t = tag(4, r, (int)(a - m->plan->ranks[r].actions), (int)b->index);
      return true;
    }
  }
  return false;
}

/* The tag of workspace tells which statement wrote it: buffers at one offset are told apart by it. */
static void read_buffer(Machine *m, int r, const PlanAction *a, int buffer) {
  const PlanTask *task = &m->plan->tasks[a->task];
  const PlanBuffer *b = &task->buffers[buffer];
  uint64_t at, t;
  if (b->place == PLAN_WEIGHT && m->param_version[r * m->plan->n_parameters + b->index] != m->step) m->n_wrong++;
  if (!locate(m, r, a, buffer, &at, &t)) return;
  if (b->place == PLAN_SCRATCH) {
    t = 0;
    for (int k = 0; k < task->n_buffers; k++) /* a reshape has the tag of what it is made of */
      if (task->buffers[k].place == PLAN_SCRATCH && task->buffers[k].index == b->index && m->ranks[r].scratch_tags[k])
        t = m->ranks[r].scratch_tags[k] > t ? m->ranks[r].scratch_tags[k] : t;
  }
  int space = at & PLAN_IN_WINDOW ? PP_WINDOW : PP_ARENA;
  if (!has_tag(&m->ranks[r], space, at & ~PLAN_IN_WINDOW, bytes_of(&b->type), t)) m->n_wrong++;
}

static void write_buffer(Machine *m, int r, const PlanAction *a, int statement, int buffer) {
  const PlanBuffer *b = &m->plan->tasks[a->task].buffers[buffer];
  uint64_t at, t;
  if (!locate(m, r, a, buffer, &at, &t)) return;
  if (b->place == PLAN_SCRATCH) {
    t = ((uint64_t)statement + 1) << 32 | (t & 0xffffffffu);
    m->ranks[r].scratch_tags[buffer] = t;
  }
  write_tag(&m->ranks[r], at & PLAN_IN_WINDOW ? PP_WINDOW : PP_ARENA, at & ~PLAN_IN_WINDOW, bytes_of(&b->type), t);
}

static bool is_copy_in_place(const PlanTask *task, const PlanStatement *s) {
  if (s->n_in != 1 || s->n_out != 1) return false;
  const PlanBuffer *x = &task->buffers[s->in[0]], *y = &task->buffers[s->out[0]];
  return x->place == y->place && x->index == y->index && x->sub == y->sub;
}

static void run_action(Machine *m, int r, int index) {
  const PlanAction *a = &m->plan->ranks[r].actions[index];
  const PlanTask *task = &m->plan->tasks[a->task];
  memset(m->ranks[r].scratch_tags, 0, sizeof(uint64_t) * 4096);
  if (task->n_buffers > 4096) bug("a task of %d buffers", task->n_buffers);
  for (int i = 0; i < task->n_statements; i++) {
    const PlanStatement *s = &task->statements[i];
    if (is_copy_in_place(task, s)) continue;
    if (task->kind != PP_UPDATE)
      for (int k = 0; k < s->n_in; k++) read_buffer(m, r, a, s->in[k]);
    if (s->workspace >= 0) write_buffer(m, r, a, i, s->workspace);
    for (int k = 0; k < s->n_out; k++) write_buffer(m, r, a, i, s->out[k]);
  }
  if (task->kind != PP_UPDATE) return;
  for (int p = 0; p < m->plan->n_parameters; p++)
    if (m->plan->parameters[p].owner_stage == task->stage) m->param_version[r * m->plan->n_parameters + p] = m->step + 1;
}

/* Copies the bytes; what is sent from an item of its own has its tag. */
static void complete(Machine *m, int number) {
  const PlanTransfer *t = &m->plan->transfers[number];
  TagRank *from = &m->ranks[t->from], *to = &m->ranks[t->to];
  uint64_t had = from->memory[PP_WINDOW][t->send_offset / 64], wanted = tag(1, t->value, t->microbatch, 0);
  bool lasting = true;
  for (int p = 0; p < m->plan->n_parameters; p++)
    for (int k = 0; k < m->plan->ranks[t->to].n_held; k++) {
      const PlanHeld *h = &m->plan->ranks[t->to].held[k];
      if (h->parameter != p || h->value != t->receive_offset || h->value_space != t->receive_space) continue;
      int *version = &m->param_version[t->to * m->plan->n_parameters + p];
      if (m->param_version[t->from * m->plan->n_parameters + p] != m->step + 1) m->n_wrong++;
      *version = m->step + 1;
    }
  lasting = had != wanted && strstr(m->plan->values[t->value], "gradient of") != NULL;
  bool is_item = t->microbatch >= 0;
  if (is_item && !has_tag(from, PP_WINDOW, t->send_offset, t->size_bytes, wanted)) m->n_wrong++;
  (void)lasting;
  write_tag(to, t->receive_space, t->receive_offset, t->size_bytes, wanted);
  m->complete[number] = true;
}

static bool try_complete(Machine *m, int r) {
  TagRank *x = &m->ranks[r];
  if (x->head >= x->n_posts) return false;
  int number = x->posts[x->head];
  const PlanTransfer *t = &m->plan->transfers[number];
  TagRank *y = &m->ranks[t->from == r ? t->to : t->from];
  if (!m->sent[number] || !m->received[number] || y->head >= y->n_posts || y->posts[y->head] != number) return false;
  complete(m, number);
  x->head++, y->head++;
  return true;
}

/* One event; false when the rank has to wait. */
static bool step_rank(Machine *m, int r) {
  TagRank *x = &m->ranks[r];
  if (x->next == x->n_events) return false;
  int op = x->events[x->next].op, index = x->events[x->next].index;
  if (op == PP_POST_SEND) m->sent[index] = true, x->posts[x->n_posts++] = index;
  else if (op == PP_POST_RECEIVE) m->received[index] = true, x->posts[x->n_posts++] = index;
  else if (op >= 0 && !m->complete[index]) return false;
  else if (op < 0) run_action(m, r, index);
  x->next++;
  return true;
}

/* Ranks run in any order; transfers move only when nothing else can, or now and then. */
static bool run_step(Machine *m) {
  const Plan *plan = m->plan;
  size_t n = (size_t)plan->n_transfers + 1;
  memset(m->sent, 0, n), memset(m->received, 0, n), memset(m->complete, 0, n);
  for (int r = 0; r < plan->n_ranks; r++) m->ranks[r].next = m->ranks[r].head = m->ranks[r].n_posts = 0;
  for (;;) {
    bool moved = false;
    int first = random_below(plan->n_ranks);
    for (int k = 0; k < plan->n_ranks; k++) {
      int burst = random_below(12);
      while (burst-- > 0 && step_rank(m, (first + k) % plan->n_ranks)) moved = true;
    }
    if (!moved)
      for (int r = 0; r < plan->n_ranks; r++) moved |= step_rank(m, r);
    if (!moved || random_below(50) == 0)
      for (int k = 0; k < plan->n_ranks; k++) moved |= try_complete(m, (first + k) % plan->n_ranks);
    if (!moved) break;
  }
  for (int r = 0; r < plan->n_ranks; r++)
    if (m->ranks[r].next < m->ranks[r].n_events) return false;
  for (int i = 0; i < plan->n_transfers; i++)
    if (!m->complete[i]) return false;
  return true;
}

static void list_events(Machine *m, int r) {
  const PlanRank *rank = &m->plan->ranks[r];
  TagRank *x = &m->ranks[r];
  int n = 0;
  for (int i = 0; i < rank->n_actions; i++) n += 1 + rank->actions[i].n_before + rank->actions[i].n_after;
  x->events = arena_alloc_array(m->arena, (size_t)n, sizeof *x->events);
  x->posts = arena_alloc_array(m->arena, (size_t)n, sizeof *x->posts);
  x->scratch_tags = arena_alloc_array(m->arena, 4096, sizeof *x->scratch_tags);
  x->memory[PP_ARENA] = arena_alloc_array(m->arena, rank->arena_bytes / 64 + 1, sizeof(uint64_t));
  x->memory[PP_WINDOW] = arena_alloc_array(m->arena, rank->window_bytes / 64 + 1, sizeof(uint64_t));
  for (int i = 0; i < rank->n_actions; i++) {
    const PlanAction *a = &rank->actions[i];
    for (int k = 0; k < a->n_before; k++)
      x->events[x->n_events].op = (int)a->before[k].op, x->events[x->n_events++].index = a->before[k].transfer;
    x->events[x->n_events].op = -1, x->events[x->n_events++].index = i;
    for (int k = 0; k < a->n_after; k++)
      x->events[x->n_events].op = (int)a->after[k].op, x->events[x->n_events++].index = a->after[k].transfer;
  }
}

static bool run_plan(Case *c, const Plan *plan) {
  Machine m = {.plan = plan, .arena = c->arena};
  size_t n = (size_t)plan->n_transfers + 1;
  m.ranks = arena_alloc_array(c->arena, (size_t)plan->n_ranks, sizeof *m.ranks);
  m.sent = arena_alloc(c->arena, n), m.received = arena_alloc(c->arena, n), m.complete = arena_alloc(c->arena, n);
  m.param_version = arena_alloc_array(c->arena, (size_t)(plan->n_ranks * plan->n_parameters + 1), sizeof(int));
  for (int r = 0; r < plan->n_ranks; r++) list_events(&m, r);
  for (m.step = 0; m.step < 3; m.step++)
    if (!run_step(&m)) return false;
  if (m.n_wrong) printf("%d reads of wrong memory\n", m.n_wrong);
  return m.n_wrong == 0;
}

/* --- what is right ------------------------------------------------------------------------------------------ */

static const Plan *plan_for(Case *c, const ScheduledActions *list) {
  Loc line = {0, 1, 1};
  CompileOptions options = {.threads = 1};
  bool ok = schedule_build(c->ir, list, line, line) && transfers_run(c->ir) && fuse_run(c->ir, true) &&
            memory_run(c->ir) && progress_run(c->ir);
  if (!ok) diag_flush(c->diag);
  return ok ? plan_build(c->ir, c->arena, &options) : NULL;
}

static bool bytes_add_up(const Plan *plan) {
  for (int r = 0; r < plan->n_ranks; r++) {
    int64_t sum = 0;
    for (int k = 0; k < PP_CLASS_COUNT; k++) {
      sum += plan->ranks[r].class_bytes[k];
      if (plan->ranks[r].class_bytes[k] < 0) return false;
    }
    if (sum != (int64_t)(plan->ranks[r].arena_bytes + plan->ranks[r].window_bytes)) return false;
  }
  return true;
}

static void accept(Case *c, ScheduledActions list) {
  const Plan *plan = plan_for(c, &list);
  CHECK(plan != NULL);
  if (plan) {
    CHECK(bytes_add_up(plan));
    CHECK(run_plan(c, plan));
  }
  close_case(c);
}

static const char skip[] = "testdata/models/skip.pp", mlp[] = "testdata/models/mlp.pp";
static const char encdec[] = "testdata/models/encdec.pp", gpt2[] = "testdata/models/gpt2.pp";

static void library_schedules_are_proved(void) {
  const char *const models[] = {mlp, skip};
  for (int k = 0; k < 2; k++) {
    for (int p = 1; p <= 5; p++)
      for (int m = 1; m <= 2 * p + 1; m += p > 2 ? 2 : 1) {
        Case c = open_case(models[k], p, p, m);
        accept(&c, one_f_one_b(&c));
      }
    for (int m = 1; m <= 6; m++) {
      Case c = open_case(models[k], 4, 2, m);
      accept(&c, gpipe(&c, false));
      c = open_case(models[k], 4, 4, m);
      accept(&c, zb_h1(&c));
    }
    for (int m = 2; m <= 6; m += 2) {
      Case c = open_case(models[k], 4, 2, m);
      accept(&c, interleaved(&c));
    }
    Case c = open_case(models[k], 8, 4, 4);
    accept(&c, interleaved(&c));
    c = open_case(models[k], 8, 4, 10);
    accept(&c, interleaved(&c));
    c = open_case(models[k], 8, 4, 3);
    accept(&c, interleaved(&c));
  }
}

static void tied_parameters_are_refreshed(void) {
  for (int m = 1; m <= 5; m += 2) {
    Case c = open_case(encdec, 4, 4, m);
    accept(&c, one_f_one_b(&c));
    c = open_case(encdec, 4, 4, m);
    accept(&c, zb_h1(&c));
    c = open_case(gpt2, 3, 3, m);
    accept(&c, one_f_one_b(&c));
    c = open_case(gpt2, 4, 2, m + 1);
    accept(&c, interleaved(&c));
  }
}

static void random_schedules_are_proved(void) {
  for (int k = 0; k < 60; k++) {
    int stages = 1 + random_below(6), ranks = 1 + random_below(stages);
    Case c = open_case(k % 3 ? skip : mlp, stages, ranks, 1 + random_below(6));
    accept(&c, random_schedule(&c, k % 2));
  }
}

/* --- memory ------------------------------------------------------------------------------------------------- */

/* Stages 1 and 2 are alike; with samples enough the stashes fill the memory. */
static void one_f_one_b_holds_p_minus_r_frames(void) {
  Case c = open_case_of(skip, 4, 4, 8, 256);
  ScheduledActions list = one_f_one_b(&c);
  const Plan *plan = plan_for(&c, &list);
  CHECK(plan != NULL);
  if (plan) {
    int64_t one = plan->ranks[1].class_bytes[PP_CLASS_STASHES], two = plan->ranks[2].class_bytes[PP_CLASS_STASHES];
    CHECK(plan->stages[1].frame_bytes == plan->stages[2].frame_bytes);
    CHECK(two >= 2 * plan->stages[2].frame_bytes && two < 3 * plan->stages[2].frame_bytes);
    CHECK(one * 2 == two * 3);
    CHECK(plan->ranks[3].class_bytes[PP_CLASS_STASHES] < 2 * plan->stages[3].frame_bytes);
  }
  close_case(&c);
}

/* --- what is wrong ------------------------------------------------------------------------------------------ */

static void reject(Case *c, ScheduledActions list, const char *wanted) {
  Loc line = {0, 1, 1};
  CHECK(!schedule_build(c->ir, &list, line, line));
  Str text = {0};
  diag_flush_to(c->diag, &text);
  if (!strstr(str_text(&text), wanted)) CHECK_TEXT(str_text(&text), wanted);
  str_free(&text);
  close_case(c);
}

static ScheduledAction *find(ScheduledActions *list, pp_task_kind kind, int stage, int microbatch) {
  for (int i = 0; i < list->n; i++)
    if (list->at[i].kind == kind && list->at[i].stage == stage && list->at[i].microbatch == microbatch)
      return &list->at[i];
  bug("no such action");
}

static void swap(ScheduledAction *x, ScheduledAction *y) {
  ScheduledAction z = *x;
  *x = *y, *y = z;
}

/* --- overlap blocks ----------------------------------------------------------------------------------------- */

/* The action before which a transfer's receive is posted on its rank, or after it: 2a, 2a + 1; -1: never. */
static int posted_at(const PlanRank *rank, int transfer) {
  for (int a = 0; a < rank->n_actions; a++) {
    const PlanAction *x = &rank->actions[a];
    for (int k = 0; k < x->n_before; k++)
      if (x->before[k].op == PP_POST_RECEIVE && x->before[k].transfer == transfer) return 2 * a;
    for (int k = 0; k < x->n_after; k++)
      if (x->after[k].op == PP_POST_RECEIVE && x->after[k].transfer == transfer) return 2 * a + 1;
  }
  return -1;
}

/* All that a member of a block receives is posted before the first member runs. */
static bool posts_stand_before(const PlanRank *rank, int first, int last) {
  bool ok = true;
  for (int a = first; a <= last; a++)
    for (int k = 0; k < rank->actions[a].n_before; k++) {
      const PlanTransferOp *op = &rank->actions[a].before[k];
      int at = op->op == PP_AWAIT_RECEIVE ? posted_at(rank, op->transfer) : 0;
      ok = ok && at >= 0 && at <= 2 * first;
    }
  return ok;
}

static bool is_written(const PlanArgument *a) {
  return a->kind == PLAN_ARG_WORKSPACE || (a->kind == PLAN_ARG_VALUE && a->is_result);
}

static int64_t argument_bytes(const Plan *plan, const PlanTask *task, const PlanArgument *a) {
  static const int64_t sizes[PP_DTYPE_COUNT] = {[PP_F32] = 4, [PP_F64] = 8, [PP_I32] = 4, [PP_BOOL] = 1};
  int64_t n = sizes[a->type.dtype];
  for (int k = 0; k < a->type.rank; k++) n *= a->type.dims[k];
  if (a->kind == PLAN_ARG_WORKSPACE) return task->workspace_bytes;
  if (a->kind == PLAN_ARG_FRAME) return plan->stages[task->stage].frame_bytes;
  return a->kind == PLAN_ARG_WEIGHT_FRAME ? plan->stages[task->stage].weight_frame_bytes : n;
}

/* What one member writes, results and workspace, lies apart from all that the other has. */
static bool members_are_apart(const Plan *plan, const PlanAction *x, const PlanAction *y) {
  const PlanTask *tx = &plan->tasks[x->task], *ty = &plan->tasks[y->task];
  for (int i = 0; i < tx->n_arguments; i++)
    for (int k = 0; k < ty->n_arguments && is_written(&tx->arguments[i]); k++) {
      uint64_t a = x->offsets[i], b = y->offsets[k];
      if (ty->arguments[k].kind == PLAN_ARG_RUNTIME) continue;
      if (a < b + (uint64_t)argument_bytes(plan, ty, &ty->arguments[k]) && b < a + (uint64_t)argument_bytes(plan, tx, &tx->arguments[i]))
        return false;
    }
  return true;
}

static void members_of_a_block_run_as_one(void) {
  int n_blocks = 0;
  for (int p = 2; p <= 4; p++)
    for (int halves = 0; halves < 2; halves++) {
      Case c = open_case(skip, p, p, 2 * p + 1);
      ScheduledActions list = pairs(&c, halves);
      const Plan *plan = plan_for(&c, &list);
      CHECK(plan != NULL && run_plan(&c, plan));
      for (int i = 0; i + 1 < list.n && plan; i++) {
        if (list.at[i].overlap < 0 || list.at[i].overlap != list.at[i + 1].overlap) continue;
        const PlanRank *rank = &plan->ranks[list.at[i].rank];
        int first = i;
        while (first > 0 && list.at[first - 1].rank == list.at[i].rank) first--;
        int a = i - first; /* no action is left out in this model */
        CHECK(rank->actions[a].microbatch == list.at[i].microbatch);
        CHECK(posts_stand_before(rank, a, a + 1));
        CHECK(members_are_apart(plan, &rank->actions[a], &rank->actions[a + 1]));
        CHECK(members_are_apart(plan, &rank->actions[a + 1], &rank->actions[a]));
        n_blocks++;
      }
      close_case(&c);
    }
  CHECK(n_blocks > 20);
}

static void broken_schedules_are_rejected(void) {
  Case c = open_case(skip, 2, 2, 4);
  ScheduledActions list = one_f_one_b(&c);
  find(&list, PP_FWD, 1, 2)->stage = 7;
  reject(&c, list, "skip.pp:13:1: error: fwd(7, 2) on rank 1: stages run from 0 to 1");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  find(&list, PP_FWD, 1, 2)->microbatch = 4;
  reject(&c, list, "error: fwd(1, 4) on rank 1: microbatches run from 0 to 3");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  find(&list, PP_BWD, 0, 3)->stage = 1;
  reject(&c, list, "error: stage 1 runs on rank 1 (microbatch 0) and on rank 0: a stage lives on one rank");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  find(&list, PP_FWD, 0, 3)->microbatch = 2;
  reject(&c, list, "error: fwd(0, 2) runs twice on rank 0");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  list.n--;
  reject(&c, list, "error: rank 1 never runs bwd(1, 3): microbatch 3 of stage 1 is missing");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  swap(find(&list, PP_FWD, 1, 1), find(&list, PP_BWD, 1, 1));
  reject(&c, list, "error: rank 1 runs bwd(1, 1) before fwd(1, 1)");

  c = open_case(skip, 2, 2, 4);
  list = zb_h1(&c);
  swap(find(&list, PP_BWD_INPUT, 1, 3), find(&list, PP_BWD_WEIGHT, 1, 3));
  reject(&c, list, "error: rank 1 runs bwd_weight(1, 3) before bwd_input(1, 3)");

  c = open_case(skip, 2, 2, 4);
  list = one_f_one_b(&c);
  VEC_PUSH(c.arena, &list, (ScheduledAction){1, 1, 0, PP_BWD_WEIGHT, -1, {0, 3, 1}, {0}});
  reject(&c, list, "error: rank 1 runs both bwd(1, 0) and its weight half");

  c = open_case(skip, 4, 2, 2);
  list = (ScheduledActions){0};
  Maker m = {&c, {0}};
  for (int s = 0; s < 2; s++)
    for (int i = 0; i < 2; i++) add(&m, s, PP_FWD, s, i), add(&m, s, PP_BWD, s, i);
  reject(&c, m.list, "error: no rank runs stage 2, nor 1 other stage");

  c = open_case(skip, 2, 3, 2);
  c.ranks = 2;
  reject(&c, one_f_one_b(&c), "error: rank 2 runs nothing under this schedule");
}

static void cycles_are_named(void) {
  Case c = open_case(mlp, 2, 2, 2);
  ScheduledActions list = gpipe(&c, false);
  /* rank 0 wants the gradient of microbatch 0 before it has made the activation of 1; rank 1 wants 1 first */
  Maker m = {&c, {0}};
  add(&m, 0, PP_FWD, 0, 0), add(&m, 0, PP_BWD, 0, 0), add(&m, 0, PP_FWD, 0, 1), add(&m, 0, PP_BWD, 0, 1);
  add(&m, 1, PP_FWD, 1, 1), add(&m, 1, PP_FWD, 1, 0), add(&m, 1, PP_BWD, 1, 0), add(&m, 1, PP_BWD, 1, 1);
  (void)list;
  reject(&c, m.list, "error: this schedule can't finish: rank ");

  c = open_case(mlp, 2, 1, 1);
  Maker one = {&c, {0}};
  add(&one, 0, PP_FWD, 1, 0), add(&one, 0, PP_FWD, 0, 0), add(&one, 0, PP_BWD, 1, 0), add(&one, 0, PP_BWD, 0, 0);
  reject(&c, one.list, "of fwd(0, 0), which stands later on this rank");
}

static void descending_microbatches_are_warned_of(void) {
  Case c = open_case(skip, 2, 2, 3);
  ScheduledActions list = gpipe(&c, true);
  Loc line = {0, 1, 1};
  CHECK(schedule_build(c.ir, &list, line, line));
  Str text = {0};
  diag_flush_to(c.diag, &text);
  CHECK(strstr(str_text(&text), "stage 0 adds the gradient of microbatch 1 after that of 2") != NULL);
  CHECK(diag_warning_count(c.diag) > 0);
  str_free(&text);
  close_case(&c);
}

/* Could a processor per rank run it, sends never blocking? Found by trying, without the compiler. */
static bool can_run(const Case *c, const ScheduledActions *list) {
  int S = c->stages, M = c->microbatches, n = list->n;
  bool *done = arena_alloc_array(c->arena, (size_t)n, sizeof *done);
  bool *fwd = arena_alloc_array(c->arena, (size_t)(S * M), sizeof *fwd), *bwd = arena_alloc_array(c->arena, (size_t)(S * M), sizeof *bwd);
  int left = n;
  for (bool moved = true; moved && left;) {
    moved = false;
    for (int i = 0; i < n; i++) {
      const ScheduledAction *a = &list->at[i];
      bool ready = !done[i];
      for (int k = 0; k < i; k++) ready &= done[k] || list->at[k].rank != a->rank;
      int at = a->stage * M + a->microbatch;
      if (a->kind == PP_FWD) ready &= a->stage == 0 || fwd[at - M];
      else ready &= fwd[at] && (a->stage == S - 1 || bwd[at + M]);
      if (!ready) continue;
      done[i] = moved = true, left--;
      (a->kind == PP_FWD ? fwd : bwd)[at] = true;
    }
  }
  return left == 0;
}

static void shuffled_schedules_are_judged_right(void) {
  int accepted = 0, rejected = 0;
  for (int k = 0; k < 80; k++) {
    int stages = 2 + random_below(3), ranks = 1 + random_below(stages);
    Case c = open_case(mlp, stages, ranks, 1 + random_below(4));
    ScheduledActions list = random_schedule(&c, false);
    for (int swaps = 1 + random_below(3); swaps > 0; swaps--) {
      ScheduledAction *x = &list.at[random_below(list.n)], *y = &list.at[random_below(list.n)];
      if (x->rank == y->rank) swap(x, y);
    }
    bool right = can_run(&c, &list);
    (right ? accepted++ : rejected++);
    if (right) {
      accept(&c, list);
    } else {
      reject(&c, list, "error: ");
    }
  }
  CHECK(accepted > 10 && rejected > 10);
}

/* --- the checker by itself ---------------------------------------------------------------------------------- */

static void change_ops(Case *c, int r, void (*change)(int64_t *ops, int64_t n)) {
  OpVec ranks = ir_ops(c->arena, ir_top(c->ir), OP_RANK);
  int64_t n;
  const int64_t *ops = op_ints(c->arena, ranks.at[r], "ops", &n);
  int64_t *copy = arena_alloc_array(c->arena, (size_t)n, sizeof *copy);
  memcpy(copy, ops, (size_t)n * sizeof *copy);
  change(copy, n / 3);
  op_set_ints(c->ir, ranks.at[r], "ops", n, copy);
}

static void expect_no_proof(Case *c, const char *wanted) {
  CHECK(!progress_run(c->ir));
  Str text = {0};
  diag_flush_to(c->diag, &text);
  if (!strstr(str_text(&text), wanted)) CHECK_TEXT(str_text(&text), wanted);
  str_free(&text);
  close_case(c);
}

static Case laid_out(int stages, int microbatches) {
  Case c = open_case(skip, stages, stages, microbatches);
  ScheduledActions list = one_f_one_b(&c);
  Loc line = {0, 1, 1};
  CHECK(schedule_build(c.ir, &list, line, line) && transfers_run(c.ir) && fuse_run(c.ir, true) && memory_run(c.ir));
  diag_flush(c.diag);
  return c;
}

/* Receives just before their use: a deadlock under rendezvous in the steady state of 1F1B. */
static void post_late(int64_t *ops, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (ops[3 * i + 1] != PP_POST_RECEIVE) continue;
    int64_t at = i;
    while (at + 1 < n && !(ops[3 * at + 4] == PP_AWAIT_RECEIVE && ops[3 * at + 5] == ops[3 * at + 2])) {
      int64_t row[3] = {ops[3 * at], ops[3 * at + 1], ops[3 * at + 2]};
      row[0] = ops[3 * at + 3];
      memcpy(&ops[3 * at], &ops[3 * at + 3], 3 * sizeof *ops);
      memcpy(&ops[3 * at + 3], row, 3 * sizeof *ops);
      at++;
    }
    if (at + 1 < n) ops[3 * at] = ops[3 * at + 3];
  }
}

static void late_sends(int64_t *ops, int64_t n) { /* wait for each send at once */
  for (int64_t i = 0; i < n; i++) {
    if (ops[3 * i + 1] != PP_AWAIT_SEND) continue;
    int64_t at = i;
    while (at > 0 && !(ops[3 * at - 2] == PP_POST_SEND && ops[3 * at - 1] == ops[3 * at + 2])) {
      int64_t row[3] = {ops[3 * at - 3], ops[3 * at + 1], ops[3 * at + 2]};
      memcpy(&ops[3 * at], &ops[3 * at - 3], 3 * sizeof *ops);
      memcpy(&ops[3 * at - 3], row, 3 * sizeof *ops);
      at--;
    }
    if (at > 0) ops[3 * at] = ops[3 * at - 3];
  }
}

static void wait_less(int64_t *ops, int64_t n) { /* the first wait for a send goes to the end of the step */
  for (int64_t i = 0; i < n; i++) {
    if (ops[3 * i + 1] != PP_AWAIT_SEND) continue;
    int64_t row[3] = {ops[3 * n - 3], ops[3 * i + 1], ops[3 * i + 2]};
    memmove(&ops[3 * i], &ops[3 * i + 3], 3 * (size_t)(n - 1 - i) * sizeof *ops);
    memcpy(&ops[3 * n - 3], row, sizeof row);
    return;
  }
}

static void lose_one(int64_t *ops, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (ops[3 * i + 1] == PP_AWAIT_RECEIVE) {
      ops[3 * i + 1] = PP_AWAIT_SEND;
      return;
    }
}

static void the_checker_finds_cycles(void) {
  Case c = laid_out(2, 4);
  change_ops(&c, 0, post_late);
  change_ops(&c, 1, post_late);
  change_ops(&c, 0, late_sends);
  change_ops(&c, 1, late_sends);
  expect_no_proof(&c, "error: this can't finish: ");
}

static void the_checker_finds_bad_memory(void) {
  Case c = laid_out(2, 6);
  change_ops(&c, 1, wait_less);
  expect_no_proof(&c, "live at the same time in the same bytes");
  c = laid_out(2, 3);
  change_ops(&c, 1, lose_one);
  expect_no_proof(&c, "is not its own, or stands twice");
}

int main(void) {
  TEST(library_schedules_are_proved);
  TEST(tied_parameters_are_refreshed);
  TEST(random_schedules_are_proved);
  TEST(one_f_one_b_holds_p_minus_r_frames);
  TEST(members_of_a_block_run_as_one);
  TEST(broken_schedules_are_rejected);
  TEST(cycles_are_named);
  TEST(descending_microbatches_are_warned_of);
  TEST(shuffled_schedules_are_judged_right);
  TEST(the_checker_finds_cycles);
  TEST(the_checker_finds_bad_memory);
  return test_end();
}
