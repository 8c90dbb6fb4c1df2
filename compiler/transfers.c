/* In: the ranks' actions. Out: pp.transfers, one for each (value, microbatch, destination rank) in one
 * total order, and each rank's operations, with every receive at its latest safe point (`memory` moves
 * them up). Linear in uses, n log n in transfers.
 *
 * The order. An asynchronous run with unit costs gives each action a start and an end. A transfer's
 * key is the end of the action that makes its value, an action's key is its start; at equal keys
 * transfers stand before actions. This is a linear extension of "makes", "is used by" and the order of
 * each rank, because actions take time: start < end of an action, end of the maker <= start of a user.
 *
 * Why no rank can wait for ever, even when a send completes only with its receive and a rank's
 * transfers complete in the order in which it issues them: every rank issues its transfers, both
 * directions, in the total order. Take the first transfer of the order that never completes. All before
 * it complete, so it heads the queue at both ends once issued there. Each end issues it behind actions
 * that stand before it in the order (a send behind its maker; a receive at the latest behind the makers
 * of earlier sends of that rank), and what these wait for are earlier transfers. So it completes. */
#include <stddef.h>

#include "compiler/base/sort.h"
#include "compiler/compiler.h"
#include "compiler/issue.h"

/* --- issue lists --------------------------------------------------------------------------------------- */

/* Posts stand in the total order; waits behind the posts of their position. */
#define AFTER_POSTS (INT64_C(1) << 40)

void issue_post(Arena *arena, Issues *list, int64_t position, pp_transfer_op op, int transfer) {
  VEC_PUSH(arena, list, (Issue){position, 2 * (int64_t)transfer + 1, (int)op, transfer});
}

void issue_await(Arena *arena, Issues *list, int64_t position, pp_transfer_op op, int transfer) {
  int64_t later = op == PP_AWAIT_SEND ? 2 * AFTER_POSTS : AFTER_POSTS; /* sends last: their peers may be late */
  VEC_PUSH(arena, list, (Issue){position, later + transfer, (int)op, transfer});
}

void issue_await_before_post(Arena *arena, Issues *list, int64_t position, int transfer, int receive) {
  VEC_PUSH(arena, list, (Issue){position, 2 * (int64_t)receive, PP_AWAIT_SEND, transfer});
}

static int by_position(const void *px, const void *py) {
  const Issue *x = px, *y = py;
  if (x->position != y->position) return x->position < y->position ? -1 : 1;
  if (x->order != y->order) return x->order < y->order ? -1 : 1;
  return x->transfer - y->transfer;
}

void issue_write(Ir *ir, Op rank, Issues *list) {
  sort_by_key(list->at, (size_t)list->n, sizeof *list->at, offsetof(Issue, position), by_position);
  Arena *arena = arena_create();
  int64_t *numbers = arena_alloc_array(arena, 3 * (size_t)list->n, sizeof *numbers);
  for (int i = 0; i < list->n; i++) {
    numbers[3 * i] = list->at[i].position;
    numbers[3 * i + 1] = list->at[i].op;
    numbers[3 * i + 2] = list->at[i].transfer;
  }
  op_set_ints(ir, rank, "ops", 3 * (int64_t)list->n, numbers);
  arena_destroy(arena);
}

Transfer *transfers_read(const Tasks *t, Arena *arena, int *out_n) {
  OpVec ops = ir_ops(arena, ir_top(t->ir), OP_TRANSFERS);
  int64_t n = 0;
  const int64_t *table = ops.n == 1 ? op_ints(arena, ops.at[0], "table", &n) : NULL;
  if (ops.n != 1) bug("%d tables of transfers", ops.n);
  Transfer *transfers = arena_alloc_array(arena, (size_t)(n / 5), sizeof *transfers);
  for (int64_t i = 0; i < n / 5; i++)
    transfers[i] = (Transfer){(int)table[5 * i], (int)table[5 * i + 1], (int)table[5 * i + 2], (int)table[5 * i + 3],
                              (int)table[5 * i + 4], 0};
  for (int r = 0; r < t->n_ranks; r++) {
    int64_t n_numbers = 0;
    const int64_t *numbers = op_ints(arena, t->ranks[r].op, "ops", &n_numbers);
    for (int64_t i = 0; i < n_numbers; i += 3)
      if (numbers[i + 1] == PP_AWAIT_RECEIVE) transfers[numbers[i + 2]].used = (int)((numbers[i] + 1) / 2);
  }
  *out_n = (int)(n / 5);
  return transfers;
}

/* --- collecting ---------------------------------------------------------------------------------------- */

typedef struct {
  Transfer transfer;
  int64_t ready, wanted; /* end of the maker, start of the first user */
} Planned;
typedef VEC(Planned) PlannedVec;

typedef struct {
  const Tasks *t;
  const Actions *a;
  Arena *arena;
  PlannedVec found;
  int *row;    /* [n_values] row of a value on the present rank + 1 */
  bool *seen;  /* [rows][n_microbatches + 1]; the last for microbatch -1 */
} Collect;

static void add_transfer(Collect *c, int r, int value, int microbatch, int used) {
  int maker = actions_maker(c->a, value, microbatch);
  if (maker < 0) bug("no action makes %s for microbatch %d", c->t->values[value].name, microbatch);
  int from = actions_rank(c->a, maker);
  bool at_end = used == c->t->ranks[r].n_actions;
  Planned p = {{value, microbatch, from, r, maker - c->a->first[from], used},
               c->a->end[maker],
               at_end ? INT64_MAX : c->a->start[c->a->first[r] + used]};
  VEC_PUSH(c->arena, &c->found, p);
}

static void collect_task(Collect *c, int r, int index) {
  const Task *task = actions_task(c->a, r, index);
  int microbatch = actions_microbatch(c->a, r, index), n = c->t->n_microbatches;
  for (int k = 0; k < task->n_in; k++) {
    int value = (int)task->in[k];
    if (!c->row[value]) continue;
    bool *seen = &c->seen[(int64_t)(c->row[value] - 1) * (n + 1) + (microbatch < 0 ? n : microbatch)];
    if (*seen) continue;
    *seen = true;
    add_transfer(c, r, value, microbatch, index);
  }
}

/* Every rank gets the control vector: it says whether the job goes on. */
static void collect_control(Collect *c, int r) {
  for (int v = 0; v < c->t->n_values; v++) {
    const TaskValue *value = &c->t->values[v];
    if (value->store != STORE_CONTROL || value->stage < 0 || c->t->stage_ranks[value->stage] == r) continue;
    if (!c->row[v]) add_transfer(c, r, v, -1, c->t->ranks[r].n_actions);
  }
}

static void collect_rank(Collect *c, int r) {
  int n_rows = 0;
  for (int v = 0; v < c->t->n_values; v++) c->row[v] = 0;
  for (int i = 0; i < c->t->n_tasks; i++) {
    const Task *task = &c->t->tasks[i];
    if (c->t->stage_ranks[task->stage] != r) continue;
    for (int k = 0; k < task->n_in; k++) {
      bool away = c->t->stage_ranks[c->t->values[task->in[k]].stage] != r;
      if (away && !c->row[task->in[k]]) c->row[task->in[k]] = ++n_rows;
    }
  }
  c->seen = arena_alloc_array(c->arena, (size_t)n_rows * ((size_t)c->t->n_microbatches + 1), sizeof *c->seen);
  for (int i = 0; i < c->t->ranks[r].n_actions; i++) collect_task(c, r, i);
  collect_control(c, r);
}

static int by_order(const void *px, const void *py) {
  const Planned *x = px, *y = py;
  if (x->ready != y->ready) return x->ready < y->ready ? -1 : 1;
  if (x->wanted != y->wanted) return x->wanted < y->wanted ? -1 : 1;
  const Transfer *s = &x->transfer, *t = &y->transfer;
  if (s->value != t->value) return s->value - t->value;
  if (s->microbatch != t->microbatch) return s->microbatch - t->microbatch;
  return s->to - t->to;
}

/* --- writing ------------------------------------------------------------------------------------------- */

static void write_table(Ir *ir, Arena *arena, const PlannedVec *list) {
  int64_t *table = arena_alloc_array(arena, 5 * (size_t)list->n, sizeof *table);
  for (int i = 0; i < list->n; i++) {
    const Transfer *x = &list->at[i].transfer;
    const int64_t row[5] = {x->value, x->microbatch, x->from, x->to, x->made};
    for (int k = 0; k < 5; k++) table[5 * (int64_t)i + k] = row[k];
  }
  Builder b = {.ir = ir, .block = ir_body(ir), .loc = op_loc(ir, ir_top(ir)), .stage = -1};
  Attr attr = {.name = "table", .kind = ATTR_KIND_INTS, .ints = table, .n_ints = 5 * (int64_t)list->n};
  if (op_is_null(ir_build(&b, OP_TRANSFERS, 0, NULL, 0, NULL, 1, &attr))) bug("pp.transfers can't be built");
}

/* Going back over the order: a send right behind its maker; a receive as late as its user and the
 * transfers behind it allow. With an overlap block the receives of all its members stand before it. */
static void issue_transfer(Arena *arena, Issues *list, const TaskRank *rank, const Transfer *x, int number,
                           int64_t *bound) {
  if (x->from == rank->rank) {
    int64_t position = 2 * (int64_t)x->made + 1;
    if (position > *bound) bug("rank %d: send %d stands behind a later transfer", rank->rank, number);
    issue_post(arena, list, position, PP_POST_SEND, number);
    issue_await(arena, list, issue_end(rank), PP_AWAIT_SEND, number);
    *bound = position;
    return;
  }
  bool at_end = x->used == rank->n_actions;
  int64_t needed = at_end ? issue_end(rank) : 2 * (int64_t)tasks_block_begin(rank, x->used);
  if (needed < *bound) *bound = needed;
  issue_post(arena, list, *bound, PP_POST_RECEIVE, number);
  issue_await(arena, list, at_end ? issue_end(rank) : 2 * (int64_t)x->used, PP_AWAIT_RECEIVE, number);
}

static void write_issues(const Tasks *t, Arena *arena, const PlannedVec *list) {
  Issues *issues = arena_alloc_array(arena, (size_t)t->n_ranks, sizeof *issues);
  int64_t *bound = arena_alloc_array(arena, (size_t)t->n_ranks, sizeof *bound);
  int *n_issues = arena_alloc_array(arena, (size_t)t->n_ranks, sizeof *n_issues);
  for (int i = 0; i < list->n; i++) n_issues[list->at[i].transfer.from] += 2, n_issues[list->at[i].transfer.to] += 2;
  for (int r = 0; r < t->n_ranks; r++) {
    VEC_RESERVE(arena, &issues[r], n_issues[r]);
    bound[r] = issue_end(&t->ranks[r]);
  }
  for (int i = list->n - 1; i >= 0; i--) {
    const Transfer *x = &list->at[i].transfer;
    issue_transfer(arena, &issues[x->from], &t->ranks[x->from], x, i, &bound[x->from]);
    issue_transfer(arena, &issues[x->to], &t->ranks[x->to], x, i, &bound[x->to]);
  }
  for (int r = 0; r < t->n_ranks; r++) issue_write(t->ir, t->ranks[r].op, &issues[r]);
}

bool transfers_run(Ir *ir) {
  Arena *arena = arena_create();
  Tasks *t = tasks_read(ir, arena);
  Actions *a = actions_create(t, arena);
  if (!actions_time(a, arena)) bug("a cycle of actions got past `schedule`");
  Collect c = {.t = t, .a = a, .arena = arena};
  c.row = arena_alloc_array(arena, (size_t)t->n_values, sizeof *c.row);
  for (int r = 0; r < t->n_ranks; r++) collect_rank(&c, r);
  sort_by_key(c.found.at, (size_t)c.found.n, sizeof *c.found.at, offsetof(Planned, ready), by_order);
  write_table(ir, arena, &c.found);
  write_issues(t, arena, &c.found);
  arena_destroy(arena);
  return true;
}
