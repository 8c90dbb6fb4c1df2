/* In: the pp.rank ops as Tasks. Out: the index of actions and their times in an asynchronous run with
 * unit costs, by running each rank until it waits and waking it when what it waits for is done: linear
 * in actions and uses. Times are longest paths, so the order in which ranks are tried does not matter. */
#include "compiler/actions.h"

/* --- index ------------------------------------------------------------------------------------------- */

static int64_t slot_of(const Tasks *t, int stage, pp_task_kind kind, int microbatch) {
  int64_t loop = (int64_t)t->n_stages * LOOP_KINDS * t->n_microbatches;
  if ((int)kind < LOOP_KINDS) return ((int64_t)stage * LOOP_KINDS + (int)kind) * t->n_microbatches + microbatch;
  return loop + (int64_t)stage * PP_TASK_KIND_COUNT + (int)kind;
}

Actions *actions_create(const Tasks *t, Arena *arena) {
  Actions *a = arena_alloc(arena, sizeof *a);
  a->tasks = t;
  int *first = arena_alloc_array(arena, (size_t)t->n_ranks + 1, sizeof *first);
  for (int r = 0; r < t->n_ranks; r++) first[r + 1] = first[r] + t->ranks[r].n_actions;
  a->first = first;
  a->n = first[t->n_ranks];
  int64_t n_slots = slot_of(t, t->n_stages, PP_TASK_KIND_COUNT, 0);
  int *at = arena_alloc_array(arena, (size_t)n_slots, sizeof *at);
  for (int64_t i = 0; i < n_slots; i++) at[i] = -1;
  for (int r = 0; r < t->n_ranks; r++)
    for (int i = 0; i < t->ranks[r].n_actions; i++) {
      const int64_t *action = &t->ranks[r].actions[3 * i];
      at[slot_of(t, (int)action[1], (pp_task_kind)action[0], (int)action[2])] = first[r] + i;
    }
  a->at = at;
  return a;
}

int actions_find(const Actions *a, int stage, pp_task_kind kind, int microbatch) {
  return a->at[slot_of(a->tasks, stage, kind, microbatch)];
}

int actions_maker(const Actions *a, int value, int microbatch) {
  const TaskValue *v = &a->tasks->values[value];
  if (tasks_is_prepared(a->tasks, value)) return actions_find(a, v->stage, PP_PREPARE, -1);
  for (int kind = 0; kind < PP_TASK_KIND_COUNT; kind++) {
    if (!(v->made_by & 1u << kind)) continue;
    int action = actions_find(a, v->stage, (pp_task_kind)kind, microbatch);
    if (action >= 0) return action;
  }
  return -1;
}

int actions_rank(const Actions *a, int action) {
  int low = 0, high = a->tasks->n_ranks;
  while (high - low > 1) {
    int mid = (low + high) / 2;
    if (a->first[mid] <= action) low = mid;
    else high = mid;
  }
  return low;
}

const Task *actions_task(const Actions *a, int rank, int index) {
  const Task *task = tasks_find(a->tasks, actions_stage(a, rank, index), (pp_task_kind)actions_kind(a, rank, index));
  if (!task) bug("rank %d: action %d has no task", rank, index);
  return task;
}

/* --- times ------------------------------------------------------------------------------------------- */

/* One value for each different maker of what a task uses: the same for all its microbatches. */
typedef struct {
  int n;
  int *values;
} Uses;

static Uses *collect_uses(const Tasks *t, Arena *arena) {
  Uses *uses = arena_alloc_array(arena, (size_t)t->n_tasks, sizeof *uses);
  for (int i = 0; i < t->n_tasks; i++) {
    const Task *task = &t->tasks[i];
    Uses *u = &uses[i];
    u->values = arena_alloc_array(arena, (size_t)task->n_in, sizeof *u->values);
    for (int k = 0; k < task->n_in; k++) {
      const TaskValue *v = &t->values[task->in[k]];
      bool known = false;
      for (int j = 0; j < u->n && !known; j++) {
        const TaskValue *w = &t->values[u->values[j]];
        known = w->stage == v->stage && w->made_by == v->made_by;
      }
      if (!known) u->values[u->n++] = (int)task->in[k];
    }
  }
  return uses;
}

typedef struct {
  Actions *a;
  const Uses *uses;
  int *next;           /* [n_ranks] index of the next action */
  int *member, *use;   /* [n_ranks] of its overlap block (itself without one) and their uses: what is met */
  int64_t *clock;      /* [n_ranks] */
  int *waiting;        /* [n] first rank that waits for an action + 1, 0: none */
  int *also_waiting;   /* [n_ranks] the next one in that list + 1 */
  int *ready;          /* stack of ranks that may go on */
  int n_ready;
} Run;

/* False when a use of action `index` is not made yet; then the rank waits for it. */
static bool uses_met(Run *run, int r, int index) {
  Actions *a = run->a;
  const Tasks *t = a->tasks;
  const Task *task = actions_task(a, r, index);
  const Uses *uses = &run->uses[task - t->tasks];
  for (; run->use[r] < uses->n; run->use[r]++) {
    int value = uses->values[run->use[r]];
    int maker = actions_maker(a, value, actions_microbatch(a, r, index));
    if (maker < 0) bug("no action makes %s for microbatch %d", t->values[value].name, actions_microbatch(a, r, index));
    if (a->end[maker] == 0) {
      a->stuck_at[r] = a->first[r] + index;
      a->stuck_for[r] = (Need){maker, value};
      run->also_waiting[r] = run->waiting[maker];
      run->waiting[maker] = r + 1;
      return false;
    }
    if (a->end[maker] > run->clock[r]) run->clock[r] = a->end[maker];
  }
  return true;
}

/* The members of an overlap block start when all their uses are there: none may need another. */
static bool block_ready(Run *run, int r) {
  const TaskRank *rank = &run->a->tasks->ranks[r];
  int end = tasks_block_end(rank, run->next[r]);
  for (; run->next[r] + run->member[r] < end; run->member[r]++, run->use[r] = 0)
    if (!uses_met(run, r, run->next[r] + run->member[r])) return false;
  run->member[r] = 0;
  return true;
}

static void run_action(Run *run, int r, int index) {
  Actions *a = run->a;
  int action = a->first[r] + index;
  a->start[action] = run->clock[r];
  run->clock[r] += actions_kind(a, r, index) == PP_BWD ? 2 : 1;
  a->end[action] = run->clock[r];
  for (int w = run->waiting[action]; w; w = run->also_waiting[w - 1]) run->ready[run->n_ready++] = w - 1;
}

/* Runs a rank until it waits. */
static void run_rank(Run *run, int r) {
  const TaskRank *rank = &run->a->tasks->ranks[r];
  run->a->stuck_at[r] = -1;
  while (run->next[r] < rank->n_actions) {
    if (!block_ready(run, r)) return;
    int end = tasks_block_end(rank, run->next[r]);
    for (; run->next[r] < end; run->next[r]++) run_action(run, r, run->next[r]);
  }
}

bool actions_time(Actions *a, Arena *arena) {
  const Tasks *t = a->tasks;
  size_t ranks = (size_t)t->n_ranks, n = (size_t)a->n;
  a->start = arena_alloc_array(arena, n, sizeof *a->start);
  a->end = arena_alloc_array(arena, n, sizeof *a->end);
  a->stuck_at = arena_alloc_array(arena, ranks, sizeof *a->stuck_at);
  a->stuck_for = arena_alloc_array(arena, ranks, sizeof *a->stuck_for);
  Run run = {.a = a, .uses = collect_uses(t, arena)};
  run.next = arena_alloc_array(arena, ranks, sizeof *run.next);
  run.member = arena_alloc_array(arena, ranks, sizeof *run.member);
  run.use = arena_alloc_array(arena, ranks, sizeof *run.use);
  run.clock = arena_alloc_array(arena, ranks, sizeof *run.clock);
  run.waiting = arena_alloc_array(arena, n, sizeof *run.waiting);
  run.also_waiting = arena_alloc_array(arena, ranks, sizeof *run.also_waiting);
  run.ready = arena_alloc_array(arena, ranks, sizeof *run.ready);
  for (int r = 0; r < t->n_ranks; r++) run.ready[run.n_ready++] = r;
  while (run.n_ready > 0) run_rank(&run, run.ready[--run.n_ready]);
  for (int r = 0; r < t->n_ranks; r++)
    if (a->stuck_at[r] >= 0) return false;
  return true;
}
