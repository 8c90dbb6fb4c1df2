/* In: the checked actions of a schedule without a model. Out: a job for the simulator. Stages form a chain: a
 * forward needs that of the stage before, the gradient of a stage that of the stage behind it, and each
 * backward its own forward. Costs are the stated ones. Linear in actions. */
#include "compiler/simulate.h"

#include "compiler/base/vec.h"

/* What one action can need of another; one route for each and each stage that makes it. */
typedef enum { ACTIVATION, GRADIENT, STASH, WEIGHT_STASH, ROUTE_KINDS } RouteKind;

static const char *const route_values[] = {"the activation", "the gradient", "the stash", "the stash"};
_Static_assert(sizeof route_values / sizeof *route_values == ROUTE_KINDS, "one text per route");

typedef struct {
  Arena *arena;
  const ScheduledActions *list;
  const ScheduleIndex *index;
  const ScheduleJob *schedule;
  const StatedCosts *costs;
  int *place;      /* [list] index among the actions sorted by rank */
  SimulateAction *actions;
  int *first_need;
  SimulateNeed *needs;
  int n_needs;
} Chain;

static void sort_by_rank(Chain *c) {
  int n_ranks = c->schedule->n_ranks, n = c->list->n;
  int *at = arena_alloc_array(c->arena, (size_t)n_ranks + 1, sizeof *at);
  for (int i = 0; i < n; i++) at[c->list->at[i].rank + 1]++;
  for (int r = 0; r < n_ranks; r++) at[r + 1] += at[r];
  for (int i = 0; i < n; i++) {
    const ScheduledAction *a = &c->list->at[i];
    c->place[i] = at[a->rank]++;
    c->actions[c->place[i]] = (SimulateAction){.rank = a->rank, .stage = a->stage, .microbatch = a->microbatch,
                                               .kind = a->kind, .overlap = a->overlap,
                                               .cost = costs_of_task(c->costs, a->kind, a->stage),
                                               .line = schedule_line_of(a)};
  }
}

static SimulateRoute *list_routes(const Chain *c) {
  SimulateRoute *routes = arena_alloc_array(c->arena, (size_t)c->schedule->n_stages * ROUTE_KINDS, sizeof *routes);
  for (int s = 0; s < c->schedule->n_stages; s++)
    for (int k = 0; k < ROUTE_KINDS; k++)
      routes[s * ROUTE_KINDS + k] = (SimulateRoute){.hop = costs_of_transfer(c->costs, s), .value = route_values[k],
                                                    .moves = k == ACTIVATION || k == GRADIENT};
  return routes;
}

/* Adds a need of what an action of this kind makes, if the schedule has it. */
static bool need(Chain *c, int stage, pp_task_kind kind, int microbatch, RouteKind route) {
  if (stage < 0 || stage >= c->schedule->n_stages) return false;
  int found = c->index->at[schedule_slot(c->schedule, stage, kind, microbatch)];
  if (found) c->needs[c->n_needs++] = (SimulateNeed){c->place[found - 1], stage * ROUTE_KINDS + (int)route};
  return found;
}

static void list_needs_of(Chain *c, const SimulateAction *a) {
  int s = a->stage, m = a->microbatch;
  if (a->kind == PP_FWD) {
    need(c, s - 1, PP_FWD, m, ACTIVATION);
    return;
  }
  if (a->kind == PP_BWD_WEIGHT && need(c, s, PP_BWD_INPUT, m, WEIGHT_STASH)) return;
  need(c, s, PP_FWD, m, STASH);
  if (!need(c, s + 1, PP_BWD, m, GRADIENT)) need(c, s + 1, PP_BWD_INPUT, m, GRADIENT);
}

static void list_needs(Chain *c) {
  int n = c->list->n;
  c->first_need = arena_alloc_array(c->arena, (size_t)n + 1, sizeof *c->first_need);
  c->needs = arena_alloc_array(c->arena, 2 * (size_t)n, sizeof *c->needs);
  for (int i = 0; i < n; i++) {
    list_needs_of(c, &c->actions[i]);
    c->first_need[i + 1] = c->n_needs;
  }
}

SimulateJob *simulate_chain(Arena *arena, const ScheduledActions *list, const ScheduleIndex *index,
                            const ScheduleJob *schedule, const StatedCosts *costs, const char *title) {
  Chain c = {.arena = arena, .list = list, .index = index, .schedule = schedule, .costs = costs};
  c.place = arena_alloc_array(arena, (size_t)list->n, sizeof *c.place);
  c.actions = arena_alloc_array(arena, (size_t)list->n, sizeof *c.actions);
  sort_by_rank(&c);
  list_needs(&c);
  SimulateJob *job = arena_alloc(arena, sizeof *job);
  *job = (SimulateJob){.title = title, .n_ranks = schedule->n_ranks, .n_stages = schedule->n_stages,
                       .n_microbatches = schedule->n_microbatches, .n = list->n, .actions = c.actions,
                       .first_need = c.first_need, .needs = c.needs, .routes = list_routes(&c), .costs = costs};
  return job;
}
