/* Lifetimes over a rank's points, for checking builds. In: a rank's actions with the places of their
 * arguments, its transfers. Out: what is live in all steps, and intervals for the rest. Found from the
 * plan alone, by sorting all uses of an item; nothing of how `memory` came to its layout is used, so that
 * a wrong layout shows. A point is one transfer operation or one action, in the order of the rank.
 *   a value's life   from its first action, or from where its receive is posted,
 *                    to its last action, or to where its sends are awaited (never: the end of the step)
 *   a frame's        from the first to the last action of its stage and microbatch
 *   a workspace's    one action */
#include <stdlib.h>

#include "codegen/parts.h"

/* One use of an item. Equal keys (what, id, microbatch, place) make one life. */
typedef struct {
  int what; /* PlanArgKind */
  int id, microbatch;
  pp_space space;
  uint64_t offset, size_bytes;
  uint32_t first, last; /* points */
  const char *name;
} Use;
typedef VEC(Use) Uses;

typedef struct {
  Arena *arena;
  const Plan *plan;
  const PlanRank *rank;
  Uses uses;
  EmitLives *always;
  uint32_t n_points;
} Walk;

static pp_space space_of(uint64_t offset) { return offset & EMIT_IN_WINDOW ? PP_WINDOW : PP_ARENA; }

static void add_always(Walk *w, uint64_t offset, int64_t size_bytes, const char *name) {
  if (offset == UINT64_MAX || size_bytes <= 0) return;
  EmitLife life = {.space = space_of(offset), .offset = offset & ~EMIT_IN_WINDOW,
                   .size_bytes = (uint64_t)size_bytes, .name = name};
  VEC_PUSH(w->arena, w->always, life);
}

static int64_t runtime_bytes(const Plan *plan, PlanPlace place, int index) {
  switch (place) {
  case PLAN_STEP: return 8;
  case PLAN_LOSSES:
  case PLAN_COUNTS: return 8 * (int64_t)plan->n_microbatches;
  case PLAN_CONTROL: return 8 * PP_CONTROL_SIZE;
  case PLAN_LOSS_SCALE: return 8 * PP_LOSS_SCALE_SIZE;
  case PLAN_NORMS: return 8 * (int64_t)plan->n_parameters;
  case PLAN_OUTPUT: return 8 * plan->outputs[index].n * plan->n_microbatches;
  default: return 0;
  }
}

/* --- collecting ------------------------------------------------------------------------------------ */

static const char *argument_name(const Walk *w, const PlanArgument *a, const PlanTask *task) {
  switch (a->kind) {
  case PLAN_ARG_VALUE: return w->plan->values[a->value];
  case PLAN_ARG_FRAME: return arena_printf(w->arena, "stage_%d_frame", task->stage);
  case PLAN_ARG_WEIGHT_FRAME: return arena_printf(w->arena, "stage_%d_weight_frame", task->stage);
  case PLAN_ARG_WORKSPACE: return arena_printf(w->arena, "workspace of %s", task->name);
  case PLAN_ARG_WEIGHTS: return w->plan->parameters[a->index].name;
  case PLAN_ARG_GRADIENT: return arena_printf(w->arena, "gradient of %s", w->plan->parameters[a->index].name);
  default: return a->name;
  }
}

/* Names are made once per task, not once per action. */
static const char ***name_arguments(Walk *w) {
  const Plan *plan = w->plan;
  const char ***names = arena_alloc_array(w->arena, (size_t)plan->n_tasks, sizeof *names);
  for (int t = 0; t < plan->n_tasks; t++) {
    const PlanTask *task = &plan->tasks[t];
    if (plan->stages[task->stage].rank != w->rank->rank) continue;
    names[t] = arena_alloc_array(w->arena, (size_t)task->n_arguments, sizeof *names[t]);
    for (int k = 0; k < task->n_arguments; k++) names[t][k] = argument_name(w, &task->arguments[k], task);
  }
  return names;
}

static int64_t argument_bytes(const Plan *plan, const PlanTask *task, const PlanArgument *a) {
  switch (a->kind) {
  case PLAN_ARG_FRAME: return plan->stages[task->stage].frame_bytes;
  case PLAN_ARG_WEIGHT_FRAME: return plan->stages[task->stage].weight_frame_bytes;
  case PLAN_ARG_WORKSPACE: return task->workspace_bytes;
  case PLAN_ARG_RUNTIME: return runtime_bytes(plan, a->place, a->index);
  default: return plan_bytes(&a->type);
  }
}

static bool is_prepared(const Plan *plan, int value) { return plan->prepared && plan->prepared[value]; }

static void add_argument(Walk *w, const PlanAction *action, int k, uint32_t point, const char *name) {
  const PlanTask *task = &w->plan->tasks[action->task];
  const PlanArgument *a = &task->arguments[k];
  int64_t size_bytes = argument_bytes(w->plan, task, a);
  uint64_t offset = action->offsets[k];
  bool lives_shortly = a->kind <= PLAN_ARG_WEIGHT_FRAME || a->kind == PLAN_ARG_WORKSPACE;
  if (!lives_shortly) {
    if (action->microbatch <= 0) add_always(w, offset, size_bytes, name); /* the same for all microbatches */
    return;
  }
  if (size_bytes <= 0) return;
  Use use = {.what = (int)a->kind, .id = task->stage, .microbatch = action->microbatch, .space = space_of(offset),
             .offset = offset & ~EMIT_IN_WINDOW, .size_bytes = (uint64_t)size_bytes,
             .first = point, .last = point, .name = name};
  if (a->kind == PLAN_ARG_VALUE) {
    use.id = a->value;
    if (is_prepared(w->plan, a->value)) use.microbatch = -1;
  }
  if (a->kind == PLAN_ARG_WORKSPACE) use.id = (int)point; /* never one life with another action's */
  VEC_PUSH(w->arena, &w->uses, use);
}

static void add_transfer(Walk *w, const PlanTransferOp *op, uint32_t point) {
  const PlanTransfer *t = &w->plan->transfers[op->transfer];
  bool sends = op->op == PP_POST_SEND || op->op == PP_AWAIT_SEND;
  Use use = {.what = PLAN_ARG_VALUE, .id = sends ? t->sent_as : t->value, .microbatch = t->microbatch,
             .space = sends ? PP_WINDOW : t->receive_space,
             .offset = sends ? t->send_offset : t->receive_offset, .size_bytes = (uint64_t)t->size_bytes,
             .first = point, .last = point, .name = w->plan->values[sends ? t->sent_as : t->value]};
  if (is_prepared(w->plan, use.id)) use.microbatch = -1;
  use.offset &= ~EMIT_IN_WINDOW;
  VEC_PUSH(w->arena, &w->uses, use);
}

/* Sends that no operation awaits leave at some time before the step ends. */
static void add_unawaited(Walk *w, const bool *awaited) {
  for (int i = 0; i < w->plan->n_transfers; i++) {
    if (w->plan->transfers[i].from != w->rank->rank || awaited[i]) continue;
    add_transfer(w, &(PlanTransferOp){PP_POST_SEND, i, 0, -1}, w->n_points - 1);
  }
}

static void collect(Walk *w) {
  const char ***names = name_arguments(w);
  bool *awaited = arena_alloc_array(w->arena, (size_t)w->plan->n_transfers, sizeof *awaited);
  for (int i = 0; i < w->rank->n_actions; i++) {
    const PlanAction *action = &w->rank->actions[i];
    for (int k = 0; k < action->n_before; k++) {
      if (action->before[k].op == PP_AWAIT_SEND) awaited[action->before[k].transfer] = true;
      add_transfer(w, &action->before[k], w->n_points++);
    }
    for (int k = 0; k < w->plan->tasks[action->task].n_arguments; k++)
      add_argument(w, action, k, w->n_points, names[action->task][k]);
    w->n_points++;
    for (int k = 0; k < action->n_after; k++) {
      if (action->after[k].op == PP_AWAIT_SEND) awaited[action->after[k].transfer] = true;
      add_transfer(w, &action->after[k], w->n_points++);
    }
  }
  if (w->n_points > 0) add_unawaited(w, awaited);
}

/* What the runtime itself keeps, and parameters that no action of this rank touches. */
static void add_held(Walk *w) {
  const Plan *plan = w->plan;
  const PlanRank *r = w->rank;
  for (int i = 0; i < r->n_held; i++) {
    const PlanHeld *h = &r->held[i];
    const PlanParameter *p = &plan->parameters[h->parameter];
    int64_t size_bytes = plan_bytes(&p->type);
    add_always(w, h->value | (h->value_space == PP_WINDOW ? EMIT_IN_WINDOW : 0), size_bytes, p->name);
    if (!h->owned || !p->trainable || plan->generate) continue;
    add_always(w, h->gradient | (h->gradient_space == PP_WINDOW ? EMIT_IN_WINDOW : 0), size_bytes,
               arena_printf(w->arena, "gradient of %s", p->name));
    for (int s = 0; s < plan->n_states; s++)
      add_always(w, h->states[s], size_bytes, arena_printf(w->arena, "%s of %s", plan->states[s], p->name));
  }
}

static void add_vectors(Walk *w) {
  const Plan *plan = w->plan;
  const PlanRank *r = w->rank;
  if (plan->generate) {
    add_always(w, plan->prompt, 4 * plan->length, "prompt");
    add_always(w, plan->logits, plan->length * plan->vocabulary * (plan->dtype == PP_F64 ? 8 : 4), "logits");
    return;
  }
  add_always(w, r->control, runtime_bytes(plan, PLAN_CONTROL, 0), "control");
  add_always(w, r->step, runtime_bytes(plan, PLAN_STEP, 0), "step");
  bool has_loss = r->rank == plan->loss_rank;
  if (has_loss) {
    add_always(w, r->losses, runtime_bytes(plan, PLAN_LOSSES, 0), "losses");
    add_always(w, r->counts, runtime_bytes(plan, PLAN_COUNTS, 0), "counts");
    add_always(w, r->norms, runtime_bytes(plan, PLAN_NORMS, 0), "norms");
    if (plan->first_loss_scale != 0) add_always(w, r->loss_scale, runtime_bytes(plan, PLAN_LOSS_SCALE, 0), "loss_scale");
  }
  for (int i = 0; i < plan->n_outputs; i++)
    if (has_loss || plan->outputs[i].rank == r->rank)
      add_always(w, r->output_slots[i], runtime_bytes(plan, PLAN_OUTPUT, i), plan->outputs[i].name);
}

/* --- sorting and merging -------------------------------------------------------------------------------- */

#define ORDER(x, y, field) \
  if ((x)->field != (y)->field) return (x)->field < (y)->field ? -1 : 1

static int by_item(const void *px, const void *py) {
  const Use *x = px, *y = py;
  ORDER(x, y, what);
  ORDER(x, y, id);
  ORDER(x, y, microbatch);
  ORDER(x, y, space);
  ORDER(x, y, offset);
  ORDER(x, y, first);
  return 0;
}

static int by_place(const void *px, const void *py) {
  const EmitLife *x = px, *y = py;
  ORDER(x, y, space);
  ORDER(x, y, offset);
  ORDER(x, y, point);
  ORDER(x, y, size_bytes);
  return 0;
}

static bool same_item(const Use *x, const Use *y) {
  return x->what == y->what && x->id == y->id && x->microbatch == y->microbatch && x->space == y->space &&
         x->offset == y->offset;
}

static void merge_uses(Walk *w, EmitLives *lives) {
  Use *u = w->uses.at;
  if (w->uses.n) qsort(u, (size_t)w->uses.n, sizeof *u, by_item);
  for (int i = 0; i < w->uses.n;) {
    EmitLife life = {.point = u[i].first, .end = u[i].last + 1, .space = u[i].space, .offset = u[i].offset,
                     .size_bytes = u[i].size_bytes, .name = u[i].name};
    int k = i + 1;
    for (; k < w->uses.n && same_item(&u[i], &u[k]); k++) {
      if (u[k].last + 1 > life.end) life.end = u[k].last + 1;
      if (u[k].size_bytes > life.size_bytes) life.size_bytes = u[k].size_bytes;
    }
    VEC_PUSH(w->arena, lives, life);
    i = k;
  }
  if (lives->n) qsort(lives->at, (size_t)lives->n, sizeof *lives->at, by_place);
}

/* Equal places once; overlapping ones joined, so that the intervals are disjoint and sorted. */
static void merge_always(EmitLives *always) {
  if (always->n) qsort(always->at, (size_t)always->n, sizeof *always->at, by_place);
  int n = 0;
  for (int i = 0; i < always->n; i++) {
    EmitLife *now = &always->at[i], *last = n ? &always->at[n - 1] : NULL;
    if (last && last->space == now->space && now->offset < last->offset + last->size_bytes) {
      uint64_t end = now->offset + now->size_bytes;
      if (end > last->offset + last->size_bytes) last->size_bytes = end - last->offset;
    } else {
      always->at[n++] = *now;
    }
  }
  always->n = n;
}

/* Transfers from and into what always lives (tied parameters, the control vector) have no life of
 * their own. Both lists are sorted by place. */
static void drop_covered(const EmitLives *always, EmitLives *lives) {
  int n = 0, a = 0;
  for (int i = 0; i < lives->n; i++) {
    const EmitLife *x = &lives->at[i];
    while (a < always->n && (always->at[a].space < x->space ||
                             (always->at[a].space == x->space &&
                              always->at[a].offset + always->at[a].size_bytes <= x->offset)))
      a++;
    bool covered = a < always->n && always->at[a].space == x->space &&
                   always->at[a].offset < x->offset + x->size_bytes;
    if (!covered) lives->at[n++] = *x;
  }
  lives->n = n;
}

void emit_lives(Arena *arena, const Plan *plan, const PlanRank *rank, EmitLives *always, EmitLives *lives) {
  Walk walk = {.arena = arena, .plan = plan, .rank = rank, .always = always};
  collect(&walk);
  add_held(&walk);
  add_vectors(&walk);
  merge_always(always);
  merge_uses(&walk, lives);
  drop_covered(always, lives);
}
