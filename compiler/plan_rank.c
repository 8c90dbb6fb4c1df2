/* In: pp.rank and pp.transfers ops, the plan's tasks. Out: PlanRank, PlanTransfer. Offsets of equal
 * calls are one array: microbatches that use the same memory share it, so millions of actions need few. */
#include "compiler/plan_rank.h"

#include <string.h>

#include "compiler/issue.h"
#include "compiler/items.h"

/* Where an item lies; offset PLAN_NOWHERE when it is not on the rank. */
typedef struct {
  uint64_t offset;
  pp_space space;
} Where;

typedef struct {
  int64_t n;
  const int64_t *items;   /* six numbers each */
  int *lasting;           /* [parameters] item + 1 */
  int *gradients;         /* item of the first accumulator of a parameter + 1; they lie together */
  int *states;            /* the same for its states */
  int *vectors;           /* [ITEM_KIND_COUNT] item + 1 */
  int *outputs;           /* [n_outputs] item + 1 */
  int *row;               /* [n_values] + 1 */
  int *values;            /* [rows][n_microbatches + 1] item + 1 */
  int *frames;            /* [2][n_stages][n_microbatches] item + 1 */
  int *workspaces;        /* [n_actions] item + 1 */
} Index;

typedef struct {
  Plan *plan;
  const Tasks *t;
  Arena *arena;
  PlanTransfer *transfers;
  /* of the present rank; `tmp` is reset behind it */
  Arena *tmp;
  Index index;
  uint64_t *row;          /* offsets of an action's arguments */
} Build;

/* --- items --------------------------------------------------------------------------------------------- */

static void enter_item(const Tasks *t, Index *x, int64_t i) {
  const int64_t *item = &x->items[ITEM_NUMBERS * i];
  int64_t columns = t->n_microbatches + 1;
  int number = (int)i + 1;
  switch ((ItemKind)item[0]) {
  case ITEM_PARAMETER: x->lasting[item[1]] = number; break;
  case ITEM_GRADIENT:
    if (!x->gradients[item[1]]) x->gradients[item[1]] = number;
    break;
  case ITEM_STATE:
    if (!x->states[item[1]]) x->states[item[1]] = number;
    break;
  case ITEM_OUTPUT: x->outputs[item[1]] = number; break;
  case ITEM_FRAME: x->frames[item[1] * t->n_microbatches + item[2]] = number; break;
  case ITEM_WEIGHT_FRAME: x->frames[(t->n_stages + item[1]) * t->n_microbatches + item[2]] = number; break;
  case ITEM_VALUE: x->values[(x->row[item[1]] - 1) * columns + (item[2] < 0 ? columns - 1 : item[2])] = number; break;
  case ITEM_WORKSPACE: x->workspaces[item[1]] = number; break;
  default: x->vectors[item[0]] = number; break;
  }
}

static void index_rank(Build *b, int r) {
  const Tasks *t = b->t;
  Index *x = &b->index;
  *x = (Index){0};
  size_t columns = (size_t)t->n_microbatches + 1;
  x->items = op_ints(b->tmp, t->ranks[r].op, "items", &x->n);
  x->n /= ITEM_NUMBERS;
  x->lasting = arena_alloc_array(b->tmp, (size_t)t->n_parameters, sizeof(int));
  x->gradients = arena_alloc_array(b->tmp, (size_t)t->n_parameters, sizeof(int));
  x->states = arena_alloc_array(b->tmp, (size_t)t->n_parameters, sizeof(int));
  x->vectors = arena_alloc_array(b->tmp, ITEM_KIND_COUNT, sizeof(int));
  x->outputs = arena_alloc_array(b->tmp, (size_t)t->outputs.n, sizeof(int));
  x->row = arena_alloc_array(b->tmp, (size_t)t->n_values, sizeof(int));
  x->frames = arena_alloc_array(b->tmp, 2 * (size_t)t->n_stages * columns, sizeof(int));
  x->workspaces = arena_alloc_array(b->tmp, (size_t)t->ranks[r].n_actions, sizeof(int));
  int n_rows = 0;
  for (int64_t i = 0; i < x->n; i++) {
    const int64_t *item = &x->items[ITEM_NUMBERS * i];
    if (item[0] == ITEM_VALUE && !x->row[item[1]]) x->row[item[1]] = ++n_rows;
  }
  x->values = arena_alloc_array(b->tmp, (size_t)n_rows * columns, sizeof(int));
  for (int64_t i = 0; i < x->n; i++) enter_item(t, x, i);
}

static Where where_of(const Index *x, int number) {
  if (!number) return (Where){PLAN_NOWHERE, PP_ARENA};
  const int64_t *item = &x->items[ITEM_NUMBERS * (int64_t)(number - 1)];
  return (Where){(uint64_t)item[4], (pp_space)item[3]};
}

/* Accumulators of one parameter, and its states, stand one after the other. */
static Where where_of_series(const Index *x, int first, ItemKind kind, int key1, int key2) {
  for (int64_t i = first - 1; first && i < x->n; i++) {
    const int64_t *item = &x->items[ITEM_NUMBERS * i];
    if (item[0] != kind || item[1] != key1) break;
    if (item[2] == key2) return where_of(x, (int)i + 1);
  }
  return (Where){PLAN_NOWHERE, PP_ARENA};
}

static Where where_is_gradient(const Index *x, int parameter, int stage) {
  return where_of_series(x, x->gradients[parameter], ITEM_GRADIENT, parameter, stage);
}

static Where where_is_vector(const Index *x, PlanPlace place, int output) {
  switch (place) {
  case PLAN_STEP: return where_of(x, x->vectors[ITEM_STEP]);
  case PLAN_LOSSES: return where_of(x, x->vectors[ITEM_LOSSES]);
  case PLAN_COUNTS: return where_of(x, x->vectors[ITEM_COUNTS]);
  case PLAN_CONTROL: return where_of(x, x->vectors[ITEM_CONTROL]);
  case PLAN_NORMS: return where_of(x, x->vectors[ITEM_NORMS]);
  case PLAN_OUTPUT: return where_of(x, x->outputs[output]);
  case PLAN_PROMPT: return where_of(x, x->vectors[ITEM_PROMPT]);
  case PLAN_LOGITS: return where_of(x, x->vectors[ITEM_LOGITS]);
  case PLAN_LOSS_SCALE: return where_of(x, x->vectors[ITEM_LOSS_SCALE]);
  default: return (Where){PLAN_NOWHERE, PP_ARENA};
  }
}

/* Where a crossing value lies on a rank that has an item for it. */
static Where where_is_value(const Build *b, int r, int value, int microbatch) {
  const Index *x = &b->index;
  int root = tasks_root(b->t, r, value);
  const TaskValue *v = &b->t->values[root];
  int64_t columns = b->t->n_microbatches + 1;
  switch (tasks_storage(b->t, r, root)) {
  case STORE_PARAMETER: return where_of(x, x->lasting[v->index]);
  case STORE_GRADIENT: return where_is_gradient(x, v->index, v->stage);
  case STORE_OUTPUT: return where_of(x, x->outputs[v->index]);
  case STORE_CONTROL: return where_of(x, x->vectors[ITEM_CONTROL]);
  default: break;
  }
  if (!x->row[root]) return (Where){PLAN_NOWHERE, PP_ARENA};
  if (tasks_is_prepared(b->t, root)) microbatch = -1;
  return where_of(x, x->values[(x->row[root] - 1) * columns + (microbatch < 0 ? columns - 1 : microbatch)]);
}

/* --- actions ------------------------------------------------------------------------------------------- */

static Where where_is_argument(const Build *b, int r, int action, const PlanTask *task, const PlanArgument *a) {
  const Index *x = &b->index;
  int microbatch = (int)b->t->ranks[r].actions[3 * (int64_t)action + 2];
  switch (a->kind) {
  case PLAN_ARG_VALUE: return where_is_value(b, r, a->value, microbatch);
  case PLAN_ARG_FRAME: return where_of(x, x->frames[task->stage * b->t->n_microbatches + microbatch]);
  case PLAN_ARG_WEIGHT_FRAME:
    return where_of(x, x->frames[(b->t->n_stages + task->stage) * b->t->n_microbatches + microbatch]);
  case PLAN_ARG_WEIGHTS: return where_of(x, x->lasting[a->index]);
  case PLAN_ARG_GRADIENT: return where_is_gradient(x, a->index, task->stage);
  case PLAN_ARG_STATE: return where_of_series(x, x->states[a->index], ITEM_STATE, a->index, a->sub);
  case PLAN_ARG_WORKSPACE: return where_of(x, x->workspaces[action]);
  case PLAN_ARG_RUNTIME: return where_is_vector(x, a->place, a->index);
  }
  return (Where){PLAN_NOWHERE, PP_ARENA};
}

static uint64_t encode(Where w) { return w.space == PP_WINDOW ? w.offset | PLAN_IN_WINDOW : w.offset; }

/* Rows of offsets that were made already, by their bytes. */
typedef struct {
  const uint64_t **slots;
  int *sizes;
  size_t n_slots, n;
} Rows;

static size_t row_hash(const uint64_t *row, int n) {
  uint64_t h = (uint64_t)n;
  for (int k = 0; k < n; k++) h = (h ^ row[k]) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 32;
  return (size_t)h;
}

static void rows_put(Rows *rows, const uint64_t *row, int n) {
  size_t i = row_hash(row, n) & (rows->n_slots - 1);
  while (rows->slots[i]) i = (i + 1) & (rows->n_slots - 1);
  rows->slots[i] = row;
  rows->sizes[i] = n;
}

static void rows_grow(Rows *rows, Arena *tmp) {
  Rows old = *rows;
  rows->n_slots = old.n_slots ? 2 * old.n_slots : 256;
  rows->slots = arena_alloc_array(tmp, rows->n_slots, sizeof *rows->slots);
  rows->sizes = arena_alloc_array(tmp, rows->n_slots, sizeof *rows->sizes);
  for (size_t i = 0; i < old.n_slots; i++)
    if (old.slots[i]) rows_put(rows, old.slots[i], old.sizes[i]);
}

static const uint64_t *share_row(Build *b, Rows *rows, const uint64_t *row, int n) {
  if (2 * rows->n >= rows->n_slots) rows_grow(rows, b->tmp);
  size_t i = row_hash(row, n) & (rows->n_slots - 1);
  for (; rows->slots[i]; i = (i + 1) & (rows->n_slots - 1))
    if (rows->sizes[i] == n && !memcmp(rows->slots[i], row, (size_t)n * sizeof *row)) return rows->slots[i];
  uint64_t *copy = arena_alloc_array(b->arena, (size_t)n, sizeof *copy);
  memcpy(copy, row, (size_t)n * sizeof *row);
  rows_put(rows, copy, n);
  rows->n++;
  return copy;
}

/* Accumulators are overwritten by the first task of a stage that adds to them, be it whole or half. */
static bool is_first_call(const Task *task, bool *seen) {
  bool backward = task->kind == PP_BWD || task->kind == PP_BWD_WEIGHT;
  int column = task->accumulates && backward ? PP_BWD : (int)task->kind;
  if (task->accumulates && !backward) bug("@%s of stage %d accumulates", pp_task_kind_name(task->kind), task->stage);
  bool *at = &seen[task->stage * PP_TASK_KIND_COUNT + column];
  bool first = !*at;
  *at = true;
  return first;
}

static void build_action(Build *b, int r, int i, PlanAction *action, Rows *rows, bool *seen) {
  const TaskRank *rank = &b->t->ranks[r];
  const int64_t *numbers = &rank->actions[3 * (int64_t)i];
  int index = b->t->by_stage[numbers[1] * PP_TASK_KIND_COUNT + numbers[0]];
  const PlanTask *task = &b->plan->tasks[index];
  action->task = index;
  action->microbatch = (int)numbers[2];
  action->overlap = rank->overlaps ? (int)rank->overlaps[i] : -1;
  action->first = is_first_call(&b->t->tasks[index], seen);
  action->line = diag_loc_name(ir_diag(b->t->ir), rank->lines[i]);
  uint64_t *row = b->row;
  for (int k = 0; k < task->n_arguments; k++) {
    row[k] = encode(where_is_argument(b, r, i, task, &task->arguments[k]));
    if (row[k] == PLAN_NOWHERE) bug("%s on rank %d: '%s' has no place", task->name, r, task->arguments[k].name);
  }
  action->offsets = share_row(b, rows, row, task->n_arguments);
}

/* A transfer's place at the end that posts `op`. */
static void place_transfer(Build *b, int r, pp_transfer_op op, PlanTransfer *x) {
  if (op != PP_POST_SEND && op != PP_POST_RECEIVE) return;
  Where w = where_is_value(b, r, x->value, x->microbatch);
  if (w.offset == PLAN_NOWHERE || (op == PP_POST_SEND && w.space != PP_WINDOW))
    bug("transfer of %s has no place", b->t->values[x->value].name);
  if (op == PP_POST_SEND) x->send_offset = w.offset;
  else x->receive_offset = w.offset, x->receive_space = w.space;
}

static void build_operations(Build *b, int r, PlanAction *actions, int n_actions) {
  int64_t n = 0, next = 0;
  const int64_t *ops = op_ints(b->tmp, b->t->ranks[r].op, "ops", &n);
  PlanTransferOp *all = arena_alloc_array(b->arena, (size_t)(n / 3), sizeof *all);
  for (int64_t i = 0; i < n / 3; i++) {
    all[i] = (PlanTransferOp){(pp_transfer_op)ops[3 * i + 1], (int)ops[3 * i + 2], 1, -1};
    place_transfer(b, r, all[i].op, &b->transfers[all[i].transfer]);
  }
  for (int i = 0; i < n_actions; i++) {
    actions[i].before = &all[next];
    for (; next < n / 3 && ops[3 * next] == 2 * (int64_t)i; next++) actions[i].n_before++;
    actions[i].after = &all[next];
    for (; next < n / 3 && ops[3 * next] == 2 * (int64_t)i + 1; next++) actions[i].n_after++;
  }
  if (next != n / 3) bug("rank %d: operations behind the last action", r);
}

/* --- what a rank holds --------------------------------------------------------------------------------- */

static void build_held(Build *b, int r, PlanRank *rank) {
  const Index *x = &b->index;
  VEC(PlanHeld) held = {0};
  for (int p = 0; p < b->t->n_parameters; p++) {
    const TaskParameter *parameter = &b->t->parameters[p];
    Where value = where_of(x, x->lasting[p]);
    if (value.offset == PLAN_NOWHERE) continue;
    PlanHeld h = {.parameter = p, .value = value.offset, .value_space = value.space, .gradient = PLAN_NOWHERE,
                  .states = {PLAN_NOWHERE, PLAN_NOWHERE, PLAN_NOWHERE, PLAN_NOWHERE}};
    h.owned = b->t->stage_ranks[parameter->owner] == r;
    if (h.owned && parameter->trainable && !b->t->generate) {
      Where gradient = where_is_gradient(x, p, parameter->owner);
      h.gradient = gradient.offset;
      h.gradient_space = gradient.space;
      for (int k = 0; k < b->t->n_states && k < 4; k++)
        h.states[k] = where_of_series(x, x->states[p], ITEM_STATE, p, k).offset;
    }
    VEC_PUSH(b->arena, &held, h);
  }
  rank->n_held = held.n;
  rank->held = held.at;
}

static void build_bytes(Build *b, int r, PlanRank *rank) {
  int64_t n = 0;
  const int64_t *bytes = op_ints(b->tmp, b->t->ranks[r].op, "bytes", &n);
  if (n != PP_CLASS_COUNT + 3) bug("rank %d has no layout", r);
  rank->arena_bytes = (uint64_t)bytes[0];
  rank->window_bytes = (uint64_t)bytes[1];
  for (int k = 0; k < PP_CLASS_COUNT; k++) rank->class_bytes[k] = bytes[2 + k];
  rank->peak_action = (int)bytes[2 + PP_CLASS_COUNT];
  rank->live_bytes = op_ints(b->arena, b->t->ranks[r].op, "live", &n);
  if (n != rank->n_actions) bug("rank %d: bytes of %d actions", r, (int)n);
  if (n) rank->peak_bytes = rank->live_bytes[rank->peak_action];
  rank->stash_bytes = op_int(b->t->ranks[r].op, "stash", 0);
  rank->n_streams = tasks_streams(&b->t->ranks[r]);
}

static void build_rank(Build *b, int r, PlanRank *rank) {
  const Index *x = &b->index;
  const TaskRank *from = &b->t->ranks[r];
  rank->rank = r;
  rank->n_actions = from->n_actions;
  PlanAction *actions = arena_alloc_array(b->arena, (size_t)from->n_actions, sizeof *actions);
  bool *seen = arena_alloc_array(b->tmp, (size_t)b->t->n_stages * PP_TASK_KIND_COUNT, sizeof *seen);
  Rows rows = {0};
  for (int i = 0; i < from->n_actions; i++) build_action(b, r, i, &actions[i], &rows, seen);
  build_operations(b, r, actions, from->n_actions);
  rank->actions = actions;
  build_held(b, r, rank);
  build_bytes(b, r, rank);
  rank->losses = where_is_vector(x, PLAN_LOSSES, 0).offset;
  rank->counts = where_is_vector(x, PLAN_COUNTS, 0).offset;
  rank->norms = where_is_vector(x, PLAN_NORMS, 0).offset;
  rank->step = where_is_vector(x, PLAN_STEP, 0).offset;
  rank->loss_scale = where_is_vector(x, PLAN_LOSS_SCALE, 0).offset;
  rank->control = encode(where_is_vector(x, PLAN_CONTROL, 0));
  uint64_t *slots = arena_alloc_array(b->arena, (size_t)b->t->outputs.n, sizeof *slots);
  for (int k = 0; k < b->t->outputs.n; k++) slots[k] = encode(where_is_vector(x, PLAN_OUTPUT, k));
  rank->output_slots = slots;
}

/* Places come with the ranks. */
static void build_transfers(Build *b) {
  int n = 0;
  const Transfer *from = transfers_read(b->t, b->tmp, &n);
  b->transfers = arena_alloc_array(b->arena, (size_t)n, sizeof *b->transfers);
  for (int i = 0; i < n; i++) {
    const Transfer *x = &from[i];
    b->transfers[i] = (PlanTransfer){.value = x->value, .microbatch = x->microbatch, .from = x->from, .to = x->to,
                                     .size_bytes = b->t->values[x->value].bytes, .send_offset = PLAN_NOWHERE,
                                     .receive_offset = PLAN_NOWHERE, .sent_as = tasks_root(b->t, x->from, x->value)};
  }
  b->plan->n_transfers = n;
  b->plan->transfers = b->transfers;
  arena_reset(b->tmp);
}

void plan_ranks_build(Plan *plan, const Tasks *t, Arena *arena) {
  Build b = {.plan = plan, .t = t, .arena = arena, .tmp = arena_create()};
  int most = 0;
  for (int i = 0; i < plan->n_tasks; i++)
    if (plan->tasks[i].n_arguments > most) most = plan->tasks[i].n_arguments;
  b.row = arena_alloc_array(arena, (size_t)most, sizeof *b.row);
  PlanRank *ranks = arena_alloc_array(arena, (size_t)t->n_ranks, sizeof *ranks);
  build_transfers(&b);
  for (int r = 0; r < t->n_ranks; r++) {
    index_rank(&b, r);
    build_rank(&b, r, &ranks[r]);
    if (t->generate) {
      plan->prompt = where_is_vector(&b.index, PLAN_PROMPT, 0).offset;
      plan->logits = where_is_vector(&b.index, PLAN_LOGITS, 0).offset;
    }
    arena_reset(b.tmp);
  }
  plan->ranks = ranks;
  arena_destroy(b.tmp);
}
