/* In: a plan and what its tasks and transfers cost. Out: a job for the simulator: the actions of the emitted
 * programs, those behind the loop too, skips and tied weights included. An action needs the transfers that are
 * awaited before it; one whose send buffer it uses again must have been received, so it needs what the
 * receiver does before it asks for it, and the transfer's time since it was sent. Linear in actions and transfers. */
#include "compiler/simulate.h"

#include "compiler/base/vec.h"

typedef struct {
  Arena *arena;
  const Plan *plan;
  const PlanCosts *costs;
  int *sent_by, *asked_after; /* [n_transfers] action that makes it; the receiver's before it asks, -1 */
  SimulateAction *actions;
  int *first_need;
  VEC(SimulateNeed) needs;
  int n;
} Job;

static void note_ops(Job *j, const PlanTransferOp *ops, int n, int action_before) {
  for (int i = 0; i < n; i++) {
    if (ops[i].op == PP_POST_SEND) j->sent_by[ops[i].transfer] = action_before;
    if (ops[i].op == PP_POST_RECEIVE) j->asked_after[ops[i].transfer] = action_before;
  }
}

static void add_action(Job *j, const PlanAction *a, int rank, int index) {
  const PlanTask *task = &j->plan->tasks[a->task];
  j->actions[j->n] = (SimulateAction){.rank = rank, .stage = task->stage, .microbatch = a->microbatch, .kind = task->kind,
                                      .overlap = a->overlap, .cost = j->costs->tasks[a->task], .line_name = a->line};
  note_ops(j, a->before, a->n_before, index > 0 ? j->n - 1 : -1);
  note_ops(j, a->after, a->n_after, j->n);
  j->n++;
}

/* Members of a block start together, but room that a later one wants may come free while the first runs. */
static bool is_inside_block(const Job *j, int action) {
  const SimulateAction *a = &j->actions[action];
  return action > 0 && simulate_share_block(a, &a[-1]);
}

/* Routes: one per transfer, then two per transfer for the wait of its buffer: until it is asked for, until it is over. */
static void add_need(Job *j, int action, const PlanTransferOp *op) {
  if (op->op == PP_AWAIT_SEND && is_inside_block(j, action)) return;
  int maker = op->op == PP_AWAIT_RECEIVE ? j->sent_by[op->transfer] : j->asked_after[op->transfer];
  int route = op->transfer + (op->op == PP_AWAIT_RECEIVE ? 0 : j->plan->n_transfers);
  if (maker < 0 || maker == action) return;
  VEC_PUSH(j->arena, &j->needs, (SimulateNeed){maker, route});
}

static void add_time(Job *j, int action, const PlanTransferOp *op) {
  int maker = j->sent_by[op->transfer];
  if (op->op != PP_AWAIT_SEND || is_inside_block(j, action) || maker < 0 || maker == action) return;
  VEC_PUSH(j->arena, &j->needs, (SimulateNeed){maker, op->transfer + 2 * j->plan->n_transfers});
}

static void add_needs(Job *j, int action, const PlanTransferOp *ops, int n) {
  for (int i = 0; i < n; i++) {
    if (ops[i].op != PP_AWAIT_RECEIVE && ops[i].op != PP_AWAIT_SEND) continue;
    add_need(j, action, &ops[i]);
    add_time(j, action, &ops[i]);
  }
}

/* What is awaited behind an action holds the next one up. */
static void list_needs(Job *j) {
  int action = 0;
  for (int r = 0; r < j->plan->n_ranks; r++) {
    const PlanRank *rank = &j->plan->ranks[r];
    for (int i = 0; i < rank->n_actions; i++) {
      if (i > 0) add_needs(j, action, rank->actions[i - 1].after, rank->actions[i - 1].n_after);
      add_needs(j, action, rank->actions[i].before, rank->actions[i].n_before);
      j->first_need[++action] = j->needs.n;
    }
  }
}

static SimulateRoute *list_routes(const Job *j) {
  int n = j->plan->n_transfers;
  SimulateRoute *routes = arena_alloc_array(j->arena, 3 * (size_t)n + 1, sizeof *routes);
  for (int i = 0; i < n; i++) {
    const PlanTransfer *t = &j->plan->transfers[i];
    routes[i] = (SimulateRoute){.hop = j->costs->transfers[i], .bytes = t->size_bytes, .value = j->plan->values[t->value], .moves = true};
    routes[2 * n + i] = (SimulateRoute){.hop = j->costs->transfers[i], .lasts = true, .value = j->plan->values[t->value]};
    routes[n + i] = (SimulateRoute){.value = j->plan->values[t->value]};
  }
  return routes;
}

static int64_t *list_bytes(const Job *j) {
  int64_t *bytes = arena_alloc_array(j->arena, (size_t)j->n + 1, sizeof *bytes);
  int n = 0;
  for (int r = 0; r < j->plan->n_ranks; r++)
    for (int i = 0; i < j->plan->ranks[r].n_actions; i++) bytes[n++] = j->plan->ranks[r].live_bytes[i];
  return bytes;
}

SimulateJob *simulate_plan(Arena *arena, const Plan *plan, const PlanCosts *costs, const char *title) {
  Job j = {.arena = arena, .plan = plan, .costs = costs};
  int n = 0;
  for (int r = 0; r < plan->n_ranks; r++) n += plan->ranks[r].n_actions;
  j.sent_by = arena_alloc_array(arena, (size_t)plan->n_transfers + 1, sizeof *j.sent_by);
  j.asked_after = arena_alloc_array(arena, (size_t)plan->n_transfers + 1, sizeof *j.asked_after);
  for (int i = 0; i < plan->n_transfers; i++) j.sent_by[i] = j.asked_after[i] = -1;
  j.actions = arena_alloc_array(arena, (size_t)n + 1, sizeof *j.actions);
  j.first_need = arena_alloc_array(arena, (size_t)n + 1, sizeof *j.first_need);
  for (int r = 0; r < plan->n_ranks; r++)
    for (int i = 0; i < plan->ranks[r].n_actions; i++) add_action(&j, &plan->ranks[r].actions[i], r, i);
  list_needs(&j);
  SimulateJob *job = arena_alloc(arena, sizeof *job);
  *job = (SimulateJob){.title = title, .n_ranks = plan->n_ranks, .n_stages = plan->n_stages,
                       .n_microbatches = plan->n_microbatches, .n = j.n, .actions = j.actions,
                       .first_need = j.first_need, .needs = j.needs.at, .routes = list_routes(&j),
                       .costs = costs->stated, .live_bytes = list_bytes(&j), .in_seconds = costs->from != COSTS_STATED};
  return job;
}
