/* The proof of the waits: all ranks are replayed, with a clock for each of their streams, and every two
 * accesses to one byte, one of which writes, must be ordered. In: the plan with its waits. Out: null, or a
 * text that names the first two that aren't. Shares no code with `events`: what a task touches is taken
 * from the buffers of its statements, byte for byte, and memory is a row of pieces between the bounds of
 * all accesses, each with the last access of each stream. A clock holds what is done on each stream of the
 * rank when the next piece of work starts. What other ranks know is left out: a plan that passes needs
 * nothing of it. Linear in actions times the pieces that they touch: for tests and --verify. */
#include <stdlib.h>

#include "compiler/compiler.h"
#include "compiler/plan_rank.h"
#include "compiler/tasks.h"

enum { COPIES = PP_COMPUTE_STREAMS, N_STREAMS }; /* the communication stream */

/* One access of a task: to what its argument number `argument` points at, or to a place of the rank. */
typedef struct {
  int argument;          /* -1: `vector` */
  PlanPlace vector;
  int output;            /* PLAN_OUTPUT */
  bool of_microbatch;    /* bytes for each microbatch, one after the other */
  uint64_t delta;
  int64_t bytes;
  bool writes;
  const char *name;
} Part;
typedef VEC(Part) Parts;

/* Event 0: before the step. */
typedef struct {
  int event;
  const char *name;
} Last;

typedef struct {
  Last wrote[N_STREAMS], read[N_STREAMS];
} Piece;

typedef struct {
  const Plan *plan;
  const PlanRank *rank;
  Arena *arena;
  Parts *parts;                    /* [n_tasks] */
  uint64_t *edges;
  size_t n_edges;
  Piece *pieces;                   /* [n_edges] */
  int done[N_STREAMS][N_STREAMS];  /* of the first, what is done on the second */
  int n_events;
  int *of_event;                   /* action, or ~transfer */
  int (*after)[N_STREAMS];         /* [n_transfers] what is done when it is */
  const char *text;
} Check;

/* --- what tasks touch -------------------------------------------------------------------------------------- */

static int argument_of(const PlanTask *task, const PlanBuffer *b) {
  static const PlanArgKind kinds[] = {[PLAN_WEIGHT] = PLAN_ARG_WEIGHTS, [PLAN_GRADIENT] = PLAN_ARG_GRADIENT, [PLAN_STATE] = PLAN_ARG_STATE,
                                      [PLAN_FRAME] = PLAN_ARG_FRAME, [PLAN_ARGUMENT] = PLAN_ARG_VALUE, [PLAN_SCRATCH] = PLAN_ARG_WORKSPACE};
  if (b->place == PLAN_ARGUMENT) return (int)b->index;
  PlanArgKind kind = b->place <= PLAN_SCRATCH ? kinds[b->place] : PLAN_ARG_RUNTIME;
  if (b->place == PLAN_FRAME && b->sub) kind = PLAN_ARG_WEIGHT_FRAME;
  for (int k = 0; k < task->n_arguments; k++) {
    const PlanArgument *a = &task->arguments[k];
    if (a->kind != kind) continue;
    if (kind == PLAN_ARG_RUNTIME && (a->place != b->place || (a->place == PLAN_OUTPUT && a->index != b->index))) continue;
    if ((kind == PLAN_ARG_WEIGHTS || kind == PLAN_ARG_GRADIENT || kind == PLAN_ARG_STATE) && a->index != b->index) continue;
    if (kind == PLAN_ARG_STATE && a->sub != b->sub) continue;
    return k;
  }
  return -1;
}

static void add_buffer(Check *c, const PlanTask *task, int buffer, bool writes, Parts *out) {
  const PlanBuffer *b = &task->buffers[buffer];
  const PlanStage *stage = &c->plan->stages[task->stage];
  Part part = {.argument = argument_of(task, b), .bytes = plan_bytes(&b->type), .writes = writes, .name = b->name};
  if (part.argument < 0) bug("%s: no argument holds '%s'", task->name, b->name);
  if (b->place == PLAN_FRAME) part.delta = (uint64_t)(b->sub ? stage->weight_fields : stage->fields)[b->index].offset;
  if (b->place == PLAN_SCRATCH) part.delta = (uint64_t)b->index;
  VEC_PUSH(c->arena, out, part);
}

static void add_statement(Check *c, const PlanTask *task, const PlanStatement *s, Parts *out) {
  for (int k = 0; k < s->n_in; k++) add_buffer(c, task, s->in[k], false, out);
  for (int k = 0; k < s->n_out; k++) add_buffer(c, task, s->out[k], true, out);
  if (s->workspace >= 0) add_buffer(c, task, s->workspace, true, out);
  if (s->op == PLAN_OP_LOSS) {
    VEC_PUSH(c->arena, out, (Part){.argument = -1, .vector = PLAN_LOSSES, .of_microbatch = true, .bytes = 8, .writes = true, .name = "losses"});
    VEC_PUSH(c->arena, out, (Part){.argument = -1, .vector = PLAN_COUNTS, .of_microbatch = true, .bytes = 8, .writes = true, .name = "counts"});
  }
  if (s->op == PLAN_OP_OUTPUT && s->n_out == 0) {
    const PlanOutput *o = &c->plan->outputs[s->index];
    VEC_PUSH(c->arena, out, (Part){.argument = -1, .vector = PLAN_OUTPUT, .output = s->index, .of_microbatch = true, .bytes = 8 * o->n,
                                   .writes = true, .name = o->name});
  }
}

static void list_parts(Check *c) {
  c->parts = arena_alloc_array(c->arena, (size_t)c->plan->n_tasks, sizeof *c->parts);
  for (int i = 0; i < c->plan->n_tasks; i++) {
    const PlanTask *task = &c->plan->tasks[i];
    for (int k = 0; k < task->n_statements; k++) add_statement(c, task, &task->statements[k], &c->parts[i]);
    if (task->kind == PP_UPDATE)
      VEC_PUSH(c->arena, &c->parts[i], (Part){.argument = -1, .vector = PLAN_CONTROL, .bytes = 8 * PP_CONTROL_SIZE, .name = "control"});
  }
}

static uint64_t place_of(const Check *c, const PlanAction *a, const Part *part) {
  const PlanRank *r = c->rank;
  uint64_t base = part->argument >= 0 ? a->offsets[part->argument]
                  : part->vector == PLAN_LOSSES ? r->losses
                  : part->vector == PLAN_COUNTS ? r->counts
                  : part->vector == PLAN_OUTPUT ? r->output_slots[part->output] : r->control;
  if (base == PLAN_NOWHERE) bug("rank %d: '%s' of %s lies nowhere", r->rank, part->name, c->plan->tasks[a->task].name);
  return base + part->delta + (part->of_microbatch ? (uint64_t)(part->bytes * a->microbatch) : 0);
}

static uint64_t transfer_place(const Check *c, const PlanTransfer *t) {
  if (t->from == c->rank->rank) return t->send_offset | PLAN_IN_WINDOW;
  return t->receive_space == PP_WINDOW ? t->receive_offset | PLAN_IN_WINDOW : t->receive_offset;
}

/* --- pieces of memory --------------------------------------------------------------------------------------- */

static int by_value(const void *px, const void *py) {
  uint64_t x = *(const uint64_t *)px, y = *(const uint64_t *)py;
  return x < y ? -1 : x > y;
}

static void add_edges(Check *c, uint64_t place, int64_t bytes) {
  c->edges[c->n_edges++] = place;
  c->edges[c->n_edges++] = place + (uint64_t)bytes;
}

static void cut(Check *c) {
  size_t most = 0, n = 0;
  for (int i = 0; i < c->rank->n_actions; i++) {
    const PlanAction *a = &c->rank->actions[i];
    most += 2 * (size_t)(c->parts[a->task].n + a->n_before + a->n_after);
  }
  c->edges = arena_alloc_array(c->arena, most, sizeof *c->edges), c->n_edges = 0;
  for (int i = 0; i < c->rank->n_actions; i++) {
    const PlanAction *a = &c->rank->actions[i];
    for (int k = 0; k < c->parts[a->task].n; k++) add_edges(c, place_of(c, a, &c->parts[a->task].at[k]), c->parts[a->task].at[k].bytes);
    for (int k = 0; k < a->n_before + a->n_after; k++) {
      const PlanTransferOp *op = k < a->n_before ? &a->before[k] : &a->after[k - a->n_before];
      const PlanTransfer *t = &c->plan->transfers[op->transfer];
      if (op->op <= PP_POST_SEND) add_edges(c, transfer_place(c, t), t->size_bytes);
    }
  }
  if (c->n_edges) qsort(c->edges, c->n_edges, sizeof *c->edges, by_value);
  for (size_t i = 0; i < c->n_edges; i++)
    if (n == 0 || c->edges[n - 1] != c->edges[i]) c->edges[n++] = c->edges[i];
  c->n_edges = n;
  c->pieces = arena_alloc_array(c->arena, n, sizeof *c->pieces);
}

static size_t piece_at(const Check *c, uint64_t place) {
  return (size_t)((uint64_t *)bsearch(&place, c->edges, c->n_edges, sizeof *c->edges, by_value) - c->edges);
}

/* --- accesses ------------------------------------------------------------------------------------------------- */

static const char *transfer_text(const Check *c, int number) {
  const PlanTransfer *t = &c->plan->transfers[number];
  bool sends = t->from == c->rank->rank;
  const char *microbatch = t->microbatch < 0 ? "" : arena_printf(c->arena, ", microbatch %d,", t->microbatch);
  return arena_printf(c->arena, "the %s of %s%s %s rank %d", sends ? "send" : "receive", c->plan->values[t->value], microbatch,
                      sends ? "to" : "from", sends ? t->to : t->from);
}

static const char *event_text(const Check *c, int event) {
  int of = c->of_event[event];
  if (of < 0) return transfer_text(c, ~of);
  const PlanAction *a = &c->rank->actions[of];
  const PlanTask *task = &c->plan->tasks[a->task];
  return tasks_action_text(c->arena, task->kind, task->stage, a->microbatch);
}

static void report(Check *c, const char *name, bool writes, const Last *other, bool other_writes, size_t piece) {
  uint64_t place = c->edges[piece];
  if (c->text) return;
  c->text = arena_printf(c->arena, "rank %d: nothing orders %s, which %s %s, behind %s, which %s %s, at byte %llu of the %s", c->rank->rank,
                         event_text(c, c->n_events), writes ? "writes" : "reads", name, event_text(c, other->event),
                         other_writes ? "writes" : "reads", other->name, (unsigned long long)(place & ~PLAN_IN_WINDOW),
                         place & PLAN_IN_WINDOW ? "window" : "arena");
}

static void access(Check *c, int stream, uint64_t place, int64_t bytes, bool writes, const char *name) {
  if (bytes <= 0) return;
  size_t end = piece_at(c, place + (uint64_t)bytes);
  for (size_t i = piece_at(c, place); i < end; i++) {
    Piece *p = &c->pieces[i];
    for (int s = 0; s < N_STREAMS; s++) {
      if (s == stream) continue;
      if (p->wrote[s].event > c->done[stream][s]) report(c, name, writes, &p->wrote[s], true, i);
      if (writes && p->read[s].event > c->done[stream][s]) report(c, name, writes, &p->read[s], false, i);
    }
    *(writes ? &p->wrote[stream] : &p->read[stream]) = (Last){c->n_events, name};
  }
}

/* --- the replay ------------------------------------------------------------------------------------------------ */

static void join(int *knows, const int *other) {
  for (int s = 0; s < N_STREAMS; s++)
    if (other[s] > knows[s]) knows[s] = other[s];
}

static void post(Check *c, const PlanTransferOp *op) {
  const PlanTransfer *t = &c->plan->transfers[op->transfer];
  for (int s = 0; s < PP_COMPUTE_STREAMS; s++)
    if (op->waits & 1 << s) join(c->done[COPIES], c->done[s]);
  c->of_event[++c->n_events] = ~op->transfer;
  access(c, COPIES, transfer_place(c, t), t->size_bytes, t->to == c->rank->rank, c->plan->values[t->value]);
  c->done[COPIES][COPIES] = c->n_events;
  for (int s = 0; s < N_STREAMS; s++) c->after[op->transfer][s] = c->done[COPIES][s];
}

static void replay_ops(Check *c, int n, const PlanTransferOp *ops) {
  for (int i = 0; i < n; i++) {
    if (ops[i].op <= PP_POST_SEND) post(c, &ops[i]);
    for (int s = 0; s < PP_COMPUTE_STREAMS && ops[i].op > PP_POST_SEND; s++)
      if (ops[i].waits & 1 << s) join(c->done[s], c->after[ops[i].transfer]);
  }
}

static void replay_action(Check *c, int index) {
  const PlanAction *a = &c->rank->actions[index];
  int stream = a->streams & PP_ON_SECOND ? PP_STREAM_SECOND : PP_STREAM_COMPUTE;
  const Parts *parts = &c->parts[a->task];
  if (a->streams & PP_FORK) join(c->done[PP_STREAM_SECOND], c->done[PP_STREAM_COMPUTE]);
  replay_ops(c, a->n_before, a->before);
  c->of_event[++c->n_events] = index;
  for (int k = 0; k < parts->n; k++)
    access(c, stream, place_of(c, a, &parts->at[k]), parts->at[k].bytes, parts->at[k].writes, parts->at[k].name);
  c->done[stream][stream] = c->n_events;
  replay_ops(c, a->n_after, a->after);
  if (a->streams & PP_JOIN) join(c->done[PP_STREAM_COMPUTE], c->done[PP_STREAM_SECOND]);
}

static void replay_rank(Check *c, const PlanRank *rank) {
  size_t n = 1;
  c->rank = rank;
  cut(c);
  for (int i = 0; i < rank->n_actions; i++) n += 1 + (size_t)(rank->actions[i].n_before + rank->actions[i].n_after);
  c->of_event = arena_alloc_array(c->arena, n, sizeof *c->of_event);
  c->n_events = 0;
  for (int s = 0; s < N_STREAMS; s++)
    for (int k = 0; k < N_STREAMS; k++) c->done[s][k] = 0;
  for (int i = 0; i < rank->n_actions && !c->text; i++) replay_action(c, i);
}

const char *events_check(const Plan *plan, Arena *arena) {
  Arena *tmp = arena_create();
  Check c = {.plan = plan, .arena = tmp, .after = arena_alloc_array(tmp, (size_t)plan->n_transfers, sizeof *c.after)};
  list_parts(&c);
  for (int r = 0; r < plan->n_ranks && !c.text; r++) replay_rank(&c, &plan->ranks[r]);
  const char *text = c.text ? arena_strdup(arena, c.text) : NULL;
  arena_destroy(tmp);
  return text;
}
