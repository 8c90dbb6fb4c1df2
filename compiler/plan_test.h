/* What the tests of schedules and of the proof share: models of testdata up to `split`, and the machine of tags on which
 * a plan runs: every 64 bytes of each rank's memory carry the name of what was last written there, every read checks it,
 * and transfers complete as late as the rules allow, in the order of each rank, only when both ends have posted. */
#ifndef PPC_PLAN_TEST_H
#define PPC_PLAN_TEST_H

#include <stdlib.h>

#include "compiler/actions.h"
#include "compiler/base/test.h"
#include "compiler/compiler.h"
#include "compiler/plan_rank.h"
#include "dsl/load.h"

static uint64_t random_state = 7;
static inline int random_below(int n) {
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

/* `schedule`, `precision`: null, the model's own. */
static inline Case open_any(const char *model, const char *schedule, const char *precision, int stages, int ranks, int microbatches, int microbatch) {
  Case c = {.arena = arena_create(), .diag = diag_create(), .ranks = ranks, .stages = stages,
            .microbatches = microbatches};
  c.ir = ir_create(c.arena, c.diag);
  const char *text = arena_printf(c.arena, "%d", stages);
  Define defines[] = {{"stages", text}, {"layers", text}, {"width", "8"}};
  CompileOptions options = {.defines = defines, .n_defines = 3, .ranks = ranks, .microbatch = microbatch,
                            .microbatches = microbatches, .steps = 2, .threads = 1, .schedule = schedule,
                            .precision = precision};
  DslProgram *program = dsl_load(c.arena, c.diag, model);
  c.program = program ? elaborate_run(c.ir, program, &options) : NULL;
  bool ok = c.program && simplify_run(c.ir) && autodiff_run(c.ir) && stages_run(c.ir) && split_run(c.ir);
  diag_flush(c.diag);
  if (!ok) bug("%s does not get to split", model);
  return c;
}

static inline Case open_case_of(const char *model, int stages, int ranks, int microbatches, int microbatch) {
  return open_any(model, NULL, NULL, stages, ranks, microbatches, microbatch);
}

static inline Case open_scheduled(const char *model, const char *schedule, int stages, int ranks, int microbatches) {
  return open_any(model, schedule, NULL, stages, ranks, microbatches, 2);
}

static inline Case open_case(const char *model, int stages, int ranks, int microbatches) {
  return open_case_of(model, stages, ranks, microbatches, 2);
}

static inline void close_case(Case *c) {
  ir_destroy(c->ir);
  diag_destroy(c->diag);
  arena_destroy(c->arena);
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

static inline uint64_t tag(int what, int a, int b, int c) {
  uint64_t h = 1469598103934665603u;
  int parts[] = {what, a, b, c};
  for (int i = 0; i < 4; i++) h = (h ^ (uint64_t)(unsigned)parts[i]) * 1099511628211u;
  return h | 1;
}

static inline void write_tag(TagRank *r, int space, uint64_t offset, int64_t bytes, uint64_t t) {
  for (int64_t i = 0; i * 64 < bytes; i++) r->memory[space][offset / 64 + (uint64_t)i] = t;
}

static inline bool has_tag(const TagRank *r, int space, uint64_t offset, int64_t bytes, uint64_t t) {
  for (int64_t i = 0; i * 64 < bytes; i++)
    if (r->memory[space][offset / 64 + (uint64_t)i] != t) return false;
  return true;
}

static inline int64_t bytes_of(const PlanType *type) {
  int64_t n = pp_dtype_bytes(type->dtype);
  for (int i = 0; i < type->rank; i++) n *= type->dims[i];
  return n;
}

/* Address and tag of a buffer. False for places that this machine does not follow. */
static inline bool locate(Machine *m, int r, const PlanAction *a, int buffer, uint64_t *at, uint64_t *t) {
  const PlanTask *task = &m->plan->tasks[a->task];
  const PlanBuffer *b = &task->buffers[buffer];
  for (int k = 0; k < task->n_arguments; k++) {
    const PlanArgument *x = &task->arguments[k];
    if (b->place == PLAN_ARGUMENT && k == b->index) {
      *at = a->offsets[k], *t = tag(1, x->value, m->plan->prepared[x->value] ? -1 : a->microbatch, 0);
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
static inline void read_buffer(Machine *m, int r, const PlanAction *a, int buffer) {
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

static inline void write_buffer(Machine *m, int r, const PlanAction *a, int statement, int buffer) {
  const PlanBuffer *b = &m->plan->tasks[a->task].buffers[buffer];
  uint64_t at, t;
  if (!locate(m, r, a, buffer, &at, &t)) return;
  if (b->place == PLAN_SCRATCH) {
    t = ((uint64_t)statement + 1) << 32 | (t & 0xffffffffu);
    m->ranks[r].scratch_tags[buffer] = t;
  }
  write_tag(&m->ranks[r], at & PLAN_IN_WINDOW ? PP_WINDOW : PP_ARENA, at & ~PLAN_IN_WINDOW, bytes_of(&b->type), t);
}

static inline bool is_copy_in_place(const PlanTask *task, const PlanStatement *s) {
  if (s->n_in != 1 || s->n_out != 1) return false;
  const PlanBuffer *x = &task->buffers[s->in[0]], *y = &task->buffers[s->out[0]];
  return x->place == y->place && x->index == y->index && x->sub == y->sub;
}

static inline void run_action(Machine *m, int r, int index) {
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
static inline void complete(Machine *m, int number) {
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

static inline bool try_complete(Machine *m, int r) {
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
static inline bool step_rank(Machine *m, int r) {
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
static inline bool run_step(Machine *m) {
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

static inline void list_events(Machine *m, int r) {
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

static inline bool run_plan(Case *c, const Plan *plan) {
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

static inline const Plan *plan_for(Case *c, const ScheduledActions *list) {
  Loc line = {0, 1, 1};
  CompileOptions options = {.threads = 1};
  bool ok = schedule_build(c->ir, list, line, line) && transfers_run(c->ir) && fuse_run(c->ir, true) &&
            memory_run(c->ir) && progress_run(c->ir);
  if (!ok) diag_flush(c->diag);
  return ok ? plan_build(c->ir, c->arena, &options) : NULL;
}

#endif
