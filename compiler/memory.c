/* In: actions and transfers of each rank. Out: each rank's items with their places, its operations with
 * receives moved up and waits before sent bytes are overwritten, and its bytes by class.
 *
 * Time on a rank is counted in ticks: the operations at position p happen at tick 2p, action a runs at
 * tick 4a + 1 (positions 2a and 2a + 1 are before and after it). An item lives from the first tick that
 * writes it to the last that reads it:
 *   a frame       from the fwd of its stage and microbatch to the last task that uses one of its fields;
 *   a value       from the action that makes it, or the tick at which its receive is posted, to its last
 *                 user here; sent, at least until the sender's first action after its receiver has begun
 *                 to use it (unit-cost times), so that the wait for the send should find it done;
 *                 made before the loop, it is one for all microbatches, and counts as a parameter;
 *   workspace     during its action.
 * Members of an overlap block count as running at the same time. What is sent lies in the window.
 *
 * The layout is made with every receive at its latest safe point. Then, in the total order, each moves
 * up to where its bytes become free, never before the transfers that stand before it: bytes and issue
 * order stay. A wait for a send stands before the first write into its bytes. It can't contradict the
 * total order: it stands behind its post, and what a rank issues later stands later in the order. */
#include "compiler/compiler.h"
#include "compiler/issue.h"
#include "compiler/items.h"
#include "compiler/layout.h"
#include "compiler/plan_task.h"

typedef struct {
  ItemKind kind;
  int key1, key2;
  pp_space space;
  pp_memory_class class;
  int64_t bytes, start, end, offset;
  int n_own, n_other; /* actions that touch it: of the stage that makes it, of others */
  int64_t first_use, first_other, last_use; /* ticks of actions that touch it */
  int receive;      /* transfer that fills it, -1 */
  int first_send;   /* newest transfer that reads it + 1; next_send of Memory goes on */
} Item;

/* What an action of a task touches, besides what lives in all steps. */
typedef struct {
  ItemKind kind;
  int key; /* stage or root value */
} Touch;
typedef VEC(Touch) TouchVec;

typedef struct {
  int later, earlier; /* items */
} Reuse;

/* Where a send must be complete, and the receive that overwrites its bytes there (-1: an action does). */
typedef struct {
  int64_t position;
  int receive;
} Wait;

typedef struct {
  Ir *ir;
  const Tasks *t;
  const Actions *a;
  int n_transfers;
  const Transfer *transfers;
  const int *of_rank;      /* numbers of the transfers of each rank, ascending */
  const int *first_of_rank; /* [n_ranks + 1] where they begin */
  PlanTask **plans;        /* [n_tasks] */
  int *next_send;          /* [n_transfers] next one from the same item + 1 */
  int64_t *latest;         /* [n_transfers] position of the receive from `transfers` */
  int64_t *posted;         /* [n_transfers] and from here */
  Wait *waits;             /* [n_transfers] where the send is waited for */
  /* of the present rank; `arena` is reset behind it */
  Arena *arena;
  const TaskRank *rank;
  VEC(Item) items;
  TouchVec *touches;       /* [n_tasks] */
  int *row;                /* [n_values] row of a root value in `value_item` + 1 */
  int *value_item;         /* [rows][n_microbatches + 1] item + 1 */
  int *frame_item;         /* [2][n_stages][n_microbatches] item + 1 */
  bool *sent;              /* [n_values] root values that some transfer sends */
  int64_t *floor;          /* [n_items] first position at which its bytes are free */
  VEC(Reuse) reuses;       /* of sent bytes */
} Memory;

static int64_t first_tick(const Memory *m, int action) { return 4 * (int64_t)tasks_block_begin(m->rank, action) + 1; }
static int64_t last_tick(const Memory *m, int action) { return 4 * (int64_t)tasks_block_end(m->rank, action) - 3; }
static int64_t end_of_step(const Memory *m) { return 4 * (int64_t)m->rank->n_actions + 4; }

/* --- what lives in all steps ----------------------------------------------------------------------------- */

static int add_item(Memory *m, Item item) {
  item.receive = -1;
  VEC_PUSH(m->arena, &m->items, item);
  return m->items.n - 1;
}

static void add_lasting(Memory *m, ItemKind kind, int key1, int key2, int64_t bytes, bool is_sent,
                        pp_memory_class class) {
  add_item(m, (Item){.kind = kind, .key1 = key1, .key2 = key2, .space = is_sent ? PP_WINDOW : PP_ARENA,
                     .class = class, .bytes = bytes, .start = -1, .end = end_of_step(m)});
}

static bool on_rank(const Memory *m, int stage) { return m->t->stage_ranks[stage] == m->rank->rank; }

/* Is a value that lies in (store, index) of a stage sent from this rank? stage -1: of any. Asked only
 * for what several stages share: it looks at all values. */
static bool sends_from(const Memory *m, StoreKind store, int index, int stage) {
  for (int v = 0; v < m->t->n_values; v++) {
    const TaskValue *x = &m->t->values[v];
    if (m->sent[v] && x->store == store && x->index == index && (stage < 0 || x->stage == stage)) return true;
  }
  return false;
}

static void add_accumulators(Memory *m, int p) {
  const TaskParameter *x = &m->t->parameters[p];
  bool owner_has = false;
  for (int64_t i = 0; i < x->n_accumulators; i++) {
    int stage = (int)x->accumulators[i];
    owner_has |= stage == x->owner;
    if (!on_rank(m, stage)) continue;
    bool is_sent = stage != x->owner && sends_from(m, STORE_GRADIENT, p, stage);
    add_lasting(m, ITEM_GRADIENT, p, stage, x->bytes, is_sent, PP_CLASS_GRADIENTS);
  }
  if (x->trainable && !owner_has && on_rank(m, x->owner)) /* where the others are folded */
    add_lasting(m, ITEM_GRADIENT, p, x->owner, x->bytes, false, PP_CLASS_GRADIENTS);
}

static void add_parameter(Memory *m, int p) {
  const TaskParameter *x = &m->t->parameters[p];
  bool used = on_rank(m, x->owner);
  for (int64_t i = 0; i < x->n_stages; i++) used |= on_rank(m, (int)x->stages[i]);
  if (!used) return;
  bool is_sent = x->n_stages > 1 && sends_from(m, STORE_PARAMETER, p, -1);
  add_lasting(m, ITEM_PARAMETER, p, 0, x->bytes, is_sent, PP_CLASS_PARAMETERS);
  if (m->t->generate) return;
  add_accumulators(m, p);
  if (!x->trainable || !on_rank(m, x->owner)) return;
  for (int k = 0; k < m->t->n_states; k++)
    add_lasting(m, ITEM_STATE, p, k, x->bytes, false, PP_CLASS_OPTIMIZER);
}

static void add_generation(Memory *m) {
  OpVec data = ir_ops(m->arena, ir_top(m->ir), OP_DATA), outputs = ir_ops(m->arena, ir_top(m->ir), OP_OUTPUT);
  if (data.n) add_lasting(m, ITEM_PROMPT, 0, 0, type_bytes(value_type(op_result(data.at[0], 0))), false, PP_CLASS_WORKSPACE);
  if (outputs.n) add_lasting(m, ITEM_LOGITS, 0, 0, type_bytes(value_type(op_operand(outputs.at[0], 0))), false, PP_CLASS_WORKSPACE);
}

static void add_vectors(Memory *m) {
  const Tasks *t = m->t;
  bool has_loss = t->loss_stage >= 0 && on_rank(m, t->loss_stage);
  int64_t vector = 8 * (int64_t)t->n_microbatches;
  add_lasting(m, ITEM_STEP, 0, 0, 8, false, PP_CLASS_WORKSPACE);
  if (t->generate) {
    add_generation(m);
    return;
  }
  add_lasting(m, ITEM_CONTROL, 0, 0, 8 * PP_CONTROL_SIZE, has_loss && sends_from(m, STORE_CONTROL, 0, -1),
              PP_CLASS_WORKSPACE);
  if (has_loss) {
    add_lasting(m, ITEM_LOSSES, 0, 0, vector, false, PP_CLASS_WORKSPACE);
    add_lasting(m, ITEM_COUNTS, 0, 0, vector, false, PP_CLASS_WORKSPACE);
    add_lasting(m, ITEM_NORMS, 0, 0, 8 * (int64_t)(t->n_parameters ? t->n_parameters : 1), false, PP_CLASS_WORKSPACE);
    if (loss_scale_changes(m->ir)) add_lasting(m, ITEM_LOSS_SCALE, 0, 0, 8 * PP_LOSS_SCALE_SIZE, false, PP_CLASS_WORKSPACE);
  }
  for (int k = 0; k < t->outputs.n; k++) {
    bool here = on_rank(m, t->outputs.at[k].stage);
    if (!here && !has_loss) continue;
    add_lasting(m, ITEM_OUTPUT, k, 0, vector * t->outputs.at[k].n, here && sends_from(m, STORE_OUTPUT, k, -1),
                PP_CLASS_WORKSPACE);
  }
}

/* --- lives over actions ----------------------------------------------------------------------------------- */

static int root_of(const Memory *m, int value) { return tasks_root(m->t, m->rank->rank, value); }

static void add_touch(Memory *m, TouchVec *list, int value, int stage) {
  int root = root_of(m, value);
  Touch touch;
  switch (tasks_storage(m->t, m->rank->rank, root)) {
  case STORE_FRAME: touch = (Touch){ITEM_FRAME, stage}; break;
  case STORE_WEIGHT_FRAME: touch = (Touch){ITEM_WEIGHT_FRAME, stage}; break;
  case STORE_ITEM: touch = (Touch){ITEM_VALUE, root}; break;
  case STORE_GRADIENT: /* made here, so it lies in its accumulator; elsewhere storage says ITEM */
  default: return;
  }
  for (int i = 0; i < list->n; i++)
    if (list->at[i].kind == touch.kind && list->at[i].key == touch.key) return;
  VEC_PUSH(m->arena, list, touch);
}

static void find_touches(Memory *m) {
  m->touches = arena_alloc_array(m->arena, (size_t)m->t->n_tasks, sizeof *m->touches);
  m->row = arena_alloc_array(m->arena, (size_t)m->t->n_values, sizeof *m->row);
  int n_rows = 0;
  for (int i = 0; i < m->t->n_tasks; i++) {
    const Task *task = &m->t->tasks[i];
    if (!on_rank(m, task->stage)) continue;
    for (int k = 0; k < task->n_in; k++) add_touch(m, &m->touches[i], (int)task->in[k], task->stage);
    for (int k = 0; k < task->n_out; k++) add_touch(m, &m->touches[i], (int)task->out[k], task->stage);
    for (int k = 0; k < m->touches[i].n; k++) {
      Touch touch = m->touches[i].at[k];
      if (touch.kind == ITEM_VALUE && !m->row[touch.key]) m->row[touch.key] = ++n_rows;
    }
  }
  size_t columns = (size_t)m->t->n_microbatches + 1;
  m->value_item = arena_alloc_array(m->arena, (size_t)n_rows * columns, sizeof *m->value_item);
  m->frame_item = arena_alloc_array(m->arena, 2 * (size_t)m->t->n_stages * columns, sizeof *m->frame_item);
}

static int *item_slot(Memory *m, ItemKind kind, int key, int microbatch) {
  bool once = kind == ITEM_VALUE && tasks_is_prepared(m->t, key);
  int64_t columns = m->t->n_microbatches + 1, column = once || microbatch < 0 ? columns - 1 : microbatch;
  if (kind == ITEM_VALUE) return &m->value_item[(m->row[key] - 1) * columns + column];
  int64_t which = kind == ITEM_WEIGHT_FRAME;
  return &m->frame_item[(which * m->t->n_stages + key) * columns + column];
}

static int64_t touched_bytes(const Memory *m, ItemKind kind, int key) {
  if (kind == ITEM_VALUE) return m->t->values[key].bytes;
  return kind == ITEM_FRAME ? m->t->frames[key].bytes : m->t->weight_frames[key].bytes;
}

/* The item, made when it is touched for the first time. */
static Item *touch_item(Memory *m, ItemKind kind, int key, int microbatch, int64_t start) {
  int *slot = item_slot(m, kind, key, microbatch);
  if (!*slot) {
    bool is_sent = kind == ITEM_VALUE && m->sent[key];
    bool once = kind == ITEM_VALUE && tasks_is_prepared(m->t, key);
    Item item = {.kind = kind, .key1 = key, .key2 = once ? -1 : microbatch, .space = is_sent ? PP_WINDOW : PP_ARENA,
                 .class = once ? PP_CLASS_PARAMETERS : PP_CLASS_STASHES, .bytes = touched_bytes(m, kind, key), .start = start, .end = start, .first_use = start,
                 .first_other = INT64_MAX};
    *slot = add_item(m, item) + 1;
  }
  return &m->items.at[*slot - 1];
}

/* A frame is its stage's own; a value is that of the stage that makes it. */
static bool is_own(const Memory *m, const Touch *touch, int stage) {
  return touch->kind != ITEM_VALUE || m->t->values[touch->key].stage == stage;
}

static void walk_actions(Memory *m) {
  for (int i = 0; i < m->rank->n_actions; i++) {
    const Task *task = actions_task(m->a, m->rank->rank, i);
    int task_index = (int)(task - m->t->tasks), microbatch = actions_microbatch(m->a, m->rank->rank, i);
    const TouchVec *touches = &m->touches[task_index];
    int64_t first = first_tick(m, i), last = last_tick(m, i);
    for (int k = 0; k < touches->n; k++) {
      Item *item = touch_item(m, touches->at[k].kind, touches->at[k].key, microbatch, first);
      bool own = is_own(m, &touches->at[k], task->stage);
      if (last > item->end) item->end = last;
      if (last > item->last_use) item->last_use = last;
      if (!own && item->first_other == INT64_MAX) item->first_other = first;
      if (own) item->n_own++;
      else item->n_other++;
    }
    int64_t workspace = m->plans[task_index]->workspace_bytes;
    if (workspace)
      add_item(m, (Item){.kind = ITEM_WORKSPACE, .key1 = i, .class = PP_CLASS_WORKSPACE, .bytes = workspace,
                         .start = first, .end = last});
  }
}

/* --- transfers ----------------------------------------------------------------------------------------- */

static void mark_sent(Memory *m) {
  m->sent = arena_alloc_array(m->arena, (size_t)m->t->n_values, sizeof *m->sent);
  for (int k = m->first_of_rank[m->rank->rank]; k < m->first_of_rank[m->rank->rank + 1]; k++) {
    const Transfer *x = &m->transfers[m->of_rank[k]];
    if (x->from == m->rank->rank) m->sent[root_of(m, x->value)] = true;
  }
}

/* The item of a transfer at this rank; null when it goes from or to what lives in all steps. */
static Item *transfer_item(Memory *m, const Transfer *x) {
  int root = root_of(m, x->value);
  if (tasks_storage(m->t, m->rank->rank, root) != STORE_ITEM || !m->row[root]) return NULL;
  int slot = *item_slot(m, ITEM_VALUE, root, x->microbatch);
  if (!slot) bug("no action of rank %d touches %s", m->rank->rank, m->t->values[x->value].name);
  return &m->items.at[slot - 1];
}

/* The first action of this rank that starts after the receiver's first use does: by then the send
 * should be through. */
static int free_action(const Memory *m, const Transfer *x) {
  const TaskRank *to = &m->t->ranks[x->to];
  if (x->used >= to->n_actions) return m->rank->n_actions;
  int64_t used = m->a->start[m->a->first[x->to] + x->used];
  const int64_t *start = &m->a->start[m->a->first[m->rank->rank]];
  int low = x->made + 1, high = m->rank->n_actions;
  while (low < high) {
    int mid = (low + high) / 2;
    if (start[mid] <= used) low = mid + 1;
    else high = mid;
  }
  if (low == m->rank->n_actions || tasks_block_begin(m->rank, low) == low) return low;
  return tasks_block_end(m->rank, low); /* a block's members run at one time */
}

static void add_transfers(Memory *m) {
  for (int k = m->first_of_rank[m->rank->rank]; k < m->first_of_rank[m->rank->rank + 1]; k++) {
    int i = m->of_rank[k];
    const Transfer *x = &m->transfers[i];
    Item *item = transfer_item(m, x);
    if (!item) continue;
    if (x->to == m->rank->rank) {
      item->receive = i;
      item->start = 2 * m->latest[i];
    } else {
      int64_t last = 4 * (int64_t)free_action(m, x) - 1;
      if (last > item->end) item->end = last;
      m->next_send[i] = item->first_send;
      item->first_send = i + 1;
    }
  }
}

/* --- layout -------------------------------------------------------------------------------------------- */

typedef struct {
  Memory *m;
  const int *items; /* of the space */
} Visit;

static void note_reuse(void *context, int later, int earlier) {
  Visit *v = context;
  Memory *m = v->m;
  int y = v->items[later], x = v->items[earlier];
  int64_t free_at = m->items.at[x].end / 2 + 1; /* first position whose tick is behind the end */
  if (free_at > m->floor[y]) m->floor[y] = free_at;
  if (m->items.at[x].first_send) VEC_PUSH(m->arena, &m->reuses, (Reuse){y, x});
}

/* From when on an item is a stash: kept here for a later task of the stage that makes it, or of one that
 * has used it. Before that it has come, or waits on the rank, to be used. */
static int64_t stash_begin(const Item *x) { return x->n_own > 1 ? x->first_use : x->first_other; }

static bool is_stash(const Item *x) { return x->class == PP_CLASS_STASHES && (x->n_own > 1 || x->n_other > 1); }

/* What has come but is not used yet, and what is used no more but has not gone, is a transfer. */
static pp_memory_class class_at(const Item *x, int64_t instant) {
  if (x->class != PP_CLASS_STASHES) return x->class;
  return is_stash(x) && instant >= stash_begin(x) && instant <= x->last_use ? PP_CLASS_STASHES : PP_CLASS_TRANSFERS;
}

/* Lays out one space; adds what is live at its fullest instant to the class totals. */
static int64_t lay_out(Memory *m, pp_space space, int64_t *class_bytes) {
  LayoutItem *layout = arena_alloc_array(m->arena, (size_t)m->items.n, sizeof *layout);
  int *members = arena_alloc_array(m->arena, (size_t)m->items.n, sizeof *members), n = 0;
  for (int i = 0; i < m->items.n; i++) {
    const Item *x = &m->items.at[i];
    if (x->space != space) continue;
    layout[n] = (LayoutItem){.size = pp_align(x->bytes), .start = x->start, .end = x->end};
    members[n++] = i;
  }
  Layout packed = layout_open(layout, n);
  int64_t extent = layout_pack(&packed), instant = 0;
  for (int i = 0; i < n; i++) m->items.at[members[i]].offset = layout[i].offset;
  layout_visit_earlier(&packed, note_reuse, &(Visit){m, members});
  layout_peak(&packed, &instant);
  layout_close(&packed);
  for (int i = 0; i < n; i++) {
    const Item *x = &m->items.at[members[i]];
    if (x->start <= instant && x->end >= instant) class_bytes[class_at(x, instant)] += x->bytes;
  }
  return extent;
}

/* --- operations ---------------------------------------------------------------------------------------- */

/* Where a receive into memory that lives in all steps may be posted: the old value of a parameter has
 * no reader any more. */
static int64_t lasting_floor(const Memory *m, const Transfer *x, const int *last_read) {
  const TaskValue *v = &m->t->values[root_of(m, x->value)];
  return v->store == STORE_PARAMETER ? 2 * (int64_t)last_read[v->index] + 1 : 0;
}

/* [parameter] the last action of the rank that reads it, -1. Its refresh is no reader. */
static int *find_last_reads(Memory *m) {
  int *last = arena_alloc_array(m->arena, (size_t)m->t->n_parameters, sizeof *last);
  for (int p = 0; p < m->t->n_parameters; p++) last[p] = -1;
  for (int i = 0; i < m->rank->n_actions; i++) {
    const PlanTask *plan = m->plans[actions_task(m->a, m->rank->rank, i) - m->t->tasks];
    for (int k = 0; k < plan->n_arguments; k++)
      if (plan->arguments[k].kind == PLAN_ARG_WEIGHTS) last[plan->arguments[k].index] = tasks_block_end(m->rank, i) - 1;
  }
  return last;
}

static void note_waits(Memory *m, const Reuse *reuse) {
  const Item *y = &m->items.at[reuse->later], *x = &m->items.at[reuse->earlier];
  Wait wait = {(y->start - 1) / 2, -1};
  if (y->receive >= 0) wait = (Wait){m->posted[y->receive], y->receive};
  for (int s = x->first_send; s; s = m->next_send[s - 1]) {
    Wait *have = &m->waits[s - 1];
    bool sooner = wait.position < have->position ||
                  (wait.position == have->position && (unsigned)wait.receive < (unsigned)have->receive);
    if (sooner) *have = wait;
  }
}

/* Receives in the total order, each as early as its bytes and the order allow. */
static void post_all(Memory *m, Issues *issues) {
  const int *last_read = find_last_reads(m);
  int64_t position = 0;
  for (int k = m->first_of_rank[m->rank->rank]; k < m->first_of_rank[m->rank->rank + 1]; k++) {
    int i = m->of_rank[k];
    const Transfer *x = &m->transfers[i];
    if (x->from == m->rank->rank) {
      position = 2 * (int64_t)x->made + 1;
      issue_post(m->arena, issues, position, PP_POST_SEND, i);
    } else {
      const Item *item = transfer_item(m, x);
      int64_t floor = item ? m->floor[item - m->items.at] : lasting_floor(m, x, last_read);
      if (floor > position) position = floor;
      if (position > m->latest[i]) bug("rank %d: receive %d has no place", m->rank->rank, i);
      m->posted[i] = position;
      issue_post(m->arena, issues, position, PP_POST_RECEIVE, i);
      bool at_end = x->used == m->rank->n_actions;
      issue_await(m->arena, issues, at_end ? issue_end(m->rank) : 2 * (int64_t)x->used, PP_AWAIT_RECEIVE, i);
    }
  }
}

/* An action of the runtime has room for 65535 operations behind it; a step of very many microbatches waits
 * for the rest where the sends should be through. */
enum { MANY_WAITS = 30000 };

static int free_position(const Memory *m, const Transfer *x) {
  int action = free_action(m, x);
  return action < m->rank->n_actions ? action : m->rank->n_actions - 1;
}

/* Every send is waited for once: before its bytes are written again, else at the end of the step. */
static void await_sends(Memory *m, Issues *issues) {
  const int *begin = &m->of_rank[m->first_of_rank[m->rank->rank]], *end = &m->of_rank[m->first_of_rank[m->rank->rank + 1]];
  for (const int *i = begin; i < end; i++)
    if (m->transfers[*i].from == m->rank->rank) m->waits[*i] = (Wait){issue_end(m->rank), -1};
  for (int i = 0; i < m->reuses.n; i++) note_waits(m, &m->reuses.at[i]);
  int n_at_end = 0;
  for (const int *i = begin; i < end; i++) {
    if (m->transfers[*i].from != m->rank->rank) continue;
    Wait *wait = &m->waits[*i];
    bool at_end = wait->receive < 0 && wait->position == issue_end(m->rank);
    if (at_end && n_at_end++ >= MANY_WAITS) wait->position = 2 * (int64_t)free_position(m, &m->transfers[*i]);
    if (wait->receive >= 0) issue_await_before_post(m->arena, issues, wait->position, *i, wait->receive);
    else issue_await(m->arena, issues, wait->position, PP_AWAIT_SEND, *i);
  }
}

static void write_items(Memory *m) {
  int64_t *numbers = arena_alloc_array(m->arena, ITEM_NUMBERS * (size_t)m->items.n, sizeof *numbers);
  for (int i = 0; i < m->items.n; i++) {
    const Item *x = &m->items.at[i];
    const int64_t row[ITEM_NUMBERS] = {x->kind, x->key1, x->key2, x->space, x->offset, x->bytes};
    for (int k = 0; k < ITEM_NUMBERS; k++) numbers[ITEM_NUMBERS * (int64_t)i + k] = row[k];
  }
  op_set_ints(m->ir, m->rank->op, "items", ITEM_NUMBERS * (int64_t)m->items.n, numbers);
}

static void write_bytes(Memory *m, int64_t arena_bytes, int64_t window_bytes, int64_t *class_bytes, int64_t instant) {
  int64_t sum = 0, numbers[PP_CLASS_COUNT + 3] = {arena_bytes, window_bytes};
  for (int k = 0; k < PP_CLASS_COUNT; k++) sum += class_bytes[k];
  class_bytes[PP_CLASS_WORKSPACE] += arena_bytes + window_bytes - sum; /* gaps */
  for (int k = 0; k < PP_CLASS_COUNT; k++) numbers[2 + k] = class_bytes[k];
  numbers[2 + PP_CLASS_COUNT] = instant / 4;
  op_set_ints(m->ir, m->rank->op, "bytes", PP_CLASS_COUNT + 3, numbers);
}

/* --- bytes over time ----------------------------------------------------------------------------------- */

static void count_between(int64_t *change, int64_t n, int64_t start, int64_t end, int64_t bytes) {
  change[start < 0 ? 0 : start] += bytes;
  change[end + 1 < n ? end + 1 : n] -= bytes;
}

/* Writes the bytes in use during each action, arena and window together; returns the fullest instant. */
static int64_t write_live(Memory *m) {
  int64_t n = 4 * (int64_t)m->rank->n_actions, sum = 0, most = -1, instant = 0;
  int64_t *change = arena_alloc_array(m->arena, (size_t)n + 1, sizeof *change);
  int64_t *live = arena_alloc_array(m->arena, (size_t)m->rank->n_actions, sizeof *live);
  for (int i = 0; i < m->items.n; i++) {
    const Item *x = &m->items.at[i];
    count_between(change, n, x->start < n ? x->start : n - 1, x->end, pp_align(x->bytes));
  }
  for (int64_t tick = 0; tick < n; tick++) {
    sum += change[tick];
    if (sum > live[tick / 4]) live[tick / 4] = sum;
    if (sum > most) most = sum, instant = tick;
  }
  op_set_ints(m->ir, m->rank->op, "live", m->rank->n_actions, live);
  return instant;
}

/* The most bytes of stashes that wait between two actions; what a task makes and uses at once is not
 * among them. */
static void write_stash(Memory *m) {
  int64_t n = 4 * (int64_t)m->rank->n_actions, sum = 0, most = 0;
  int64_t *change = arena_alloc_array(m->arena, (size_t)n + 1, sizeof *change);
  for (int i = 0; i < m->items.n; i++) {
    const Item *x = &m->items.at[i];
    if (is_stash(x) && stash_begin(x) < x->last_use) count_between(change, n, stash_begin(x) + 1, x->last_use - 1, x->bytes);
  }
  for (int64_t tick = 0; tick < n; tick++) {
    sum += change[tick];
    if (sum > most) most = sum;
  }
  op_set_int(m->ir, m->rank->op, "stash", most);
}

/* Writes which items are there at the fullest instant. */
static void write_peak(Memory *m, int64_t instant) {
  VEC(int64_t) items = {0};
  for (int i = 0; i < m->items.n; i++)
    if (m->items.at[i].start <= instant && m->items.at[i].end >= instant) VEC_PUSH(m->arena, &items, i);
  op_set_ints(m->ir, m->rank->op, "peak", items.n, items.at);
}

static void plan_rank(Memory *m, int r) {
  m->rank = &m->t->ranks[r];
  m->items.at = NULL, m->items.n = m->items.cap = 0;
  m->reuses.at = NULL, m->reuses.n = m->reuses.cap = 0;
  mark_sent(m);
  for (int p = 0; p < m->t->n_parameters; p++) add_parameter(m, p);
  add_vectors(m);
  find_touches(m);
  walk_actions(m);
  add_transfers(m);
  m->floor = arena_alloc_array(m->arena, (size_t)m->items.n, sizeof *m->floor);
  int64_t class_bytes[PP_CLASS_COUNT] = {0};
  int64_t arena_bytes = lay_out(m, PP_ARENA, class_bytes);
  int64_t window_bytes = lay_out(m, PP_WINDOW, class_bytes);
  Issues issues = {0};
  post_all(m, &issues);
  await_sends(m, &issues);
  issue_write(m->ir, m->rank->op, &issues);
  write_items(m);
  int64_t instant = write_live(m);
  write_bytes(m, arena_bytes, window_bytes, class_bytes, instant);
  write_peak(m, instant);
  write_stash(m);
}

static void index_transfers(Memory *m, Arena *arena) {
  int *first = arena_alloc_array(arena, (size_t)m->t->n_ranks + 2, sizeof *first);
  int *numbers = arena_alloc_array(arena, 2 * (size_t)m->n_transfers, sizeof *numbers);
  for (int i = 0; i < m->n_transfers; i++) first[m->transfers[i].from + 2]++, first[m->transfers[i].to + 2]++;
  for (int r = 2; r < m->t->n_ranks + 2; r++) first[r] += first[r - 1];
  for (int i = 0; i < m->n_transfers; i++) {
    numbers[first[m->transfers[i].from + 1]++] = i;
    numbers[first[m->transfers[i].to + 1]++] = i;
  }
  m->of_rank = numbers;
  m->first_of_rank = first;
}

static void read_transfers(Memory *m, Arena *arena) {
  m->transfers = transfers_read(m->t, arena, &m->n_transfers);
  size_t n_all = (size_t)m->n_transfers;
  m->next_send = arena_alloc_array(arena, n_all, sizeof *m->next_send);
  m->latest = arena_alloc_array(arena, n_all, sizeof *m->latest);
  m->posted = arena_alloc_array(arena, n_all, sizeof *m->posted);
  m->waits = arena_alloc_array(arena, n_all, sizeof *m->waits);
  index_transfers(m, arena);
  for (int r = 0; r < m->t->n_ranks; r++) {
    int64_t n = 0;
    const int64_t *ops = op_ints(arena, m->t->ranks[r].op, "ops", &n);
    for (int64_t i = 0; i < n; i += 3)
      if (ops[i + 1] == PP_POST_RECEIVE) m->latest[ops[i + 2]] = ops[i];
  }
}

bool memory_run(Ir *ir) {
  Arena *job = arena_create();
  Tasks *t = tasks_read(ir, job);
  Actions *a = actions_create(t, job);
  if (!actions_time(a, job)) bug("a cycle of actions got past `schedule`");
  Memory m = {.ir = ir, .t = t, .a = a, .arena = arena_create()};
  read_transfers(&m, job);
  m.plans = arena_alloc_array(job, (size_t)t->n_tasks, sizeof *m.plans);
  for (int i = 0; i < t->n_tasks; i++) m.plans[i] = plan_task_build(t, &t->tasks[i], job);
  for (int r = 0; r < t->n_ranks; r++) {
    plan_rank(&m, r);
    arena_reset(m.arena);
  }
  arena_destroy(m.arena);
  arena_destroy(job);
  return true;
}
