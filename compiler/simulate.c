/* In: the actions of each rank in order, what they need of one another, what each costs. Out: a timeline, the
 * critical path, live stashes. A rank runs its actions one after the other, each when all it needs has
 * arrived; a transfer takes its hop from the end of its maker on, holds neither rank up, and any number are
 * under way at once. Members of an overlap block start when the needs of all have arrived. Each rank runs
 * until it waits and is woken by what it waits for: linear in actions and needs. */
#include "compiler/simulate.h"

#include <math.h>

#include "compiler/base/diag.h"
#include "compiler/base/vec.h"
#include "compiler/tasks.h"

typedef struct {
  const SimulateJob *job;
  Arena *arena;
  Diag *diag;
  int *first;           /* [n_ranks + 1] each rank's first action */
  double *start, *end;
  bool *done;
  int *order, n_done;   /* place of each action in the order in which they were run */
  int *cause;           /* what an action started after: an action of its rank or a maker, -1: nothing */
  int *next, *member, *need; /* [n_ranks] next action; member of its block and its need that are looked at */
  double *clock;
  int *last;            /* [n_ranks] what the clock stands at: as `cause` */
  int *stuck_for;       /* [n_ranks] index of the need that a rank waits for, -1 */
  int *waiting, *also_waiting; /* [n] rank that waits for an action + 1, [n_ranks] the next such */
  int *ready, n_ready;
} Run;

static bool in_block(const Run *run, int action, int other) {
  const SimulateAction *a = &run->job->actions[action], *b = &run->job->actions[other];
  return action == other || simulate_share_block(a, b);
}

static int block_end(const Run *run, int begin) {
  int end = begin + 1, limit = run->first[run->job->actions[begin].rank + 1];
  while (end < limit && in_block(run, begin, end)) end++;
  return end;
}

/* --- time ------------------------------------------------------------------------------------------- */

static double arrival(const Run *run, const SimulateNeed *need, int rank) {
  const SimulateRoute *route = &run->job->routes[need->route];
  bool here = run->job->actions[need->maker].rank == rank;
  return run->end[need->maker] + (here && !route->lasts ? 0 : route->hop);
}

/* False when the action needs what is not made yet: then its rank waits for that. */
static bool needs_met(Run *run, int r, int action) {
  const SimulateJob *job = run->job;
  int begin = job->first_need[action], n = job->first_need[action + 1] - begin;
  for (; run->need[r] < n; run->need[r]++) {
    const SimulateNeed *need = &job->needs[begin + run->need[r]];
    if (!run->done[need->maker]) {
      run->stuck_for[r] = begin + run->need[r];
      run->also_waiting[r] = run->waiting[need->maker];
      run->waiting[need->maker] = r + 1;
      return false;
    }
    double time = arrival(run, need, r);
    if (time > run->clock[r]) run->clock[r] = time, run->last[r] = need->maker;
  }
  run->need[r] = 0;
  return true;
}

/* The cost of a block of one forward and one backward may be stated. */
static bool is_pair(const Run *run, int begin, int end, double *out_cost) {
  const SimulateAction *a = &run->job->actions[begin], *b = a + 1;
  if (end - begin != 2 || !run->job->costs) return false;
  const SimulateAction *forward = a->kind == PP_FWD ? a : b, *backward = a->kind == PP_FWD ? b : a;
  if (forward->kind != PP_FWD || (backward->kind != PP_BWD && backward->kind != PP_BWD_INPUT)) return false;
  return costs_of_pair(run->job->costs, forward->stage, out_cost);
}

static void finish_action(Run *run, int action) {
  run->done[action] = true;
  run->order[action] = run->n_done++;
  for (int w = run->waiting[action]; w; w = run->also_waiting[w - 1]) run->ready[run->n_ready++] = w - 1;
}

static void run_block(Run *run, int r, int begin, int end) {
  double pair = 0, begun = run->clock[r];
  bool together = is_pair(run, begin, end, &pair);
  for (int a = begin; a < end; a++) {
    run->cause[a] = run->last[r];
    run->start[a] = together ? begun : run->clock[r];
    run->clock[r] = together ? begun + pair : run->clock[r] + run->job->actions[a].cost;
    run->end[a] = run->clock[r];
    if (!together || a + 1 == end) run->last[r] = a;
  }
  for (int a = begin; a < end; a++) finish_action(run, a);
}

/* Runs a rank until it waits. */
static void run_rank(Run *run, int r) {
  run->stuck_for[r] = -1;
  while (run->next[r] < run->first[r + 1]) {
    int begin = run->next[r], end = block_end(run, begin);
    for (; begin + run->member[r] < end; run->member[r]++)
      if (!needs_met(run, r, begin + run->member[r])) return;
    run->member[r] = 0;
    run_block(run, r, begin, end);
    run->next[r] = end;
  }
}

static Run start(Arena *arena, Diag *diag, const SimulateJob *job) {
  size_t n = (size_t)job->n + 1, ranks = (size_t)job->n_ranks + 1;
  Run run = {.job = job, .arena = arena, .diag = diag};
  run.first = arena_alloc_array(arena, ranks, sizeof *run.first);
  for (int i = 0; i < job->n; i++) run.first[job->actions[i].rank + 1]++;
  for (int r = 0; r < job->n_ranks; r++) run.first[r + 1] += run.first[r];
  run.start = arena_alloc_array(arena, n, sizeof *run.start);
  run.end = arena_alloc_array(arena, n, sizeof *run.end);
  run.done = arena_alloc_array(arena, n, sizeof *run.done);
  run.order = arena_alloc_array(arena, n, sizeof *run.order);
  run.cause = arena_alloc_array(arena, n, sizeof *run.cause);
  run.next = arena_alloc_array(arena, ranks, sizeof *run.next);
  run.member = arena_alloc_array(arena, ranks, sizeof *run.member);
  run.need = arena_alloc_array(arena, ranks, sizeof *run.need);
  run.clock = arena_alloc_array(arena, ranks, sizeof *run.clock);
  run.last = arena_alloc_array(arena, ranks, sizeof *run.last);
  run.stuck_for = arena_alloc_array(arena, ranks, sizeof *run.stuck_for);
  run.waiting = arena_alloc_array(arena, n, sizeof *run.waiting);
  run.also_waiting = arena_alloc_array(arena, ranks, sizeof *run.also_waiting);
  run.ready = arena_alloc_array(arena, ranks, sizeof *run.ready);
  for (int r = 0; r < job->n_ranks; r++) {
    run.next[r] = run.first[r];
    run.last[r] = -1;
    run.ready[run.n_ready++] = r;
  }
  return run;
}

/* --- deadlock ----------------------------------------------------------------------------------------- */

static const char *action_text(const Run *run, int action) {
  const SimulateAction *a = &run->job->actions[action];
  return tasks_action_text(run->arena, a->kind, a->stage, a->microbatch);
}

static ScheduleWait wait_of(const Run *run, int r) {
  if (run->stuck_for[r] < 0) return (ScheduleWait){.other = -1};
  const SimulateNeed *need = &run->job->needs[run->stuck_for[r]];
  int action = run->next[r] + run->member[r], other = run->job->actions[need->maker].rank;
  return (ScheduleWait){.other = other,
                        .in_block = in_block(run, action, need->maker),
                        .other_waits = need->maker == run->next[other] + run->member[other],
                        .line = run->job->actions[action].line,
                        .action = action_text(run, action),
                        .value = run->job->routes[need->route].value,
                        .wanted = action_text(run, need->maker)};
}

static bool report_deadlock(const Run *run) {
  int n = run->job->n_ranks, stuck = 0;
  ScheduleWait *waits = arena_alloc_array(run->arena, (size_t)n, sizeof *waits);
  for (int r = 0; r < n; r++) {
    waits[r] = wait_of(run, r);
    stuck += waits[r].other >= 0;
  }
  if (stuck) schedule_report_cycle(run->diag, run->arena, n, waits);
  return stuck > 0;
}

/* --- what follows from the times ----------------------------------------------------------------------- */

/* A model's stage may have no such half (no gradient goes on, or it has no parameters), or no backward. */
typedef struct {
  bool whole, input, weight;
} Halves;

static Halves *find_halves(const Run *run) {
  Halves *halves = arena_alloc_array(run->arena, (size_t)run->job->n_stages + 1, sizeof *halves);
  for (int i = 0; i < run->job->n; i++) {
    Halves *h = &halves[run->job->actions[i].stage];
    h->whole |= run->job->actions[i].kind == PP_BWD;
    h->input |= run->job->actions[i].kind == PP_BWD_INPUT;
    h->weight |= run->job->actions[i].kind == PP_BWD_WEIGHT;
  }
  return halves;
}

/* Live stashes of a rank, in its order: a block's forwards live through it. */
typedef struct {
  const Halves *halves;
  int live, held;
  VEC(TimelineLevel) levels;
} Live;

static void put_level(const Run *run, Live *live, double time) {
  TimelineLevel level = {time, live->held};
  if (live->levels.n && VEC_LAST(&live->levels).time >= time) VEC_LAST(&live->levels).value = level.value;
  else VEC_PUSH(run->arena, &live->levels, level);
}

static void count_block(const Run *run, Live *live, SimulateRank *out, int begin, int end) {
  int made = 0, used = 0, freed = 0;
  for (int a = begin; a < end; a++) {
    pp_task_kind kind = run->job->actions[a].kind;
    const Halves *h = &live->halves[run->job->actions[a].stage];
    made += kind == PP_FWD && (h->whole || h->input || h->weight);
    used += kind == PP_BWD || kind == (h->input ? PP_BWD_INPUT : PP_BWD_WEIGHT);
    freed += kind == PP_BWD || kind == (h->weight ? PP_BWD_WEIGHT : PP_BWD_INPUT);
  }
  live->live += made, live->held += made;
  if (live->live > out->peak_live) out->peak_live = live->live;
  if (live->held > out->peak_live_weight_held) out->peak_live_weight_held = live->held;
  if (made) put_level(run, live, run->start[begin]);
  live->live -= used, live->held -= freed;
  if (freed) put_level(run, live, run->end[end - 1]);
}

static TimelineMemory count_live(const Run *run, const Halves *halves, int r, SimulateRank *out) {
  Live live = {.halves = halves};
  for (int begin = run->first[r], end; begin < run->first[r + 1]; begin = end) {
    end = block_end(run, begin);
    count_block(run, &live, out, begin, end);
  }
  return (TimelineMemory){live.levels.n, live.levels.at, out->peak_live_weight_held};
}

/* Bytes in use, where they are known for each action. */
static TimelineMemory list_bytes(const Run *run, int r) {
  VEC(TimelineLevel) levels = {0};
  TimelineMemory memory = {0};
  for (int a = run->first[r]; a < run->first[r + 1]; a++) {
    TimelineLevel level = {run->start[a], (double)run->job->live_bytes[a]};
    memory.peak = fmax(memory.peak, level.value);
    if (!levels.n || VEC_LAST(&levels).value != level.value) VEC_PUSH(run->arena, &levels, level);
  }
  memory.n_levels = levels.n;
  memory.levels = levels.at;
  return memory;
}

static SimulateRank measure(const Run *run, int r) {
  int begin = run->first[r], limit = run->first[r + 1];
  SimulateRank rank = {.n_actions = limit - begin};
  if (!rank.n_actions) return rank;
  rank.start = run->start[begin], rank.end = run->end[limit - 1];
  for (int end; begin < limit; begin = end) {
    double pair;
    end = block_end(run, begin);
    if (is_pair(run, begin, end, &pair)) rank.work += pair;
    else
      for (int a = begin; a < end; a++) rank.work += run->job->actions[a].cost;
  }
  return rank;
}

/* Back from the action that ends last along what each one started after. */
static void trace_path(const Run *run, Simulation *s) {
  int last = -1, n = 0;
  for (int a = 0; a < run->job->n; a++)
    if (last < 0 || run->end[a] > run->end[last]) last = a;
  for (int a = last; a >= 0; a = run->cause[a]) n++;
  int *path = arena_alloc_array(run->arena, (size_t)n + 1, sizeof *path);
  s->n_path = n;
  s->path = path;
  for (int a = last; a >= 0; a = run->cause[a]) path[--n] = a;
}

static const char *line_name(Diag *diag, Loc loc) {
  return loc.line > 0 && loc.file >= 0 ? diag_loc_name(diag, loc) : NULL;
}

static TimelineTask *list_tasks(const Run *run, const Simulation *s) {
  TimelineTask *tasks = arena_alloc_array(run->arena, (size_t)run->job->n + 1, sizeof *tasks);
  for (int i = 0; i < run->job->n; i++) {
    const SimulateAction *a = &run->job->actions[i];
    tasks[i] = (TimelineTask){.rank = a->rank, .stage = a->stage, .microbatch = a->microbatch, .kind = a->kind,
                              .start = run->start[i], .end = run->end[i], .overlap = a->overlap,
                              .line = a->line_name ? a->line_name : line_name(run->diag, a->line)};
  }
  for (int i = 0; i < s->n_path; i++) tasks[s->path[i]].critical = true;
  return tasks;
}

static void list_transfers(const Run *run, Timeline *t) {
  const SimulateJob *job = run->job;
  VEC(TimelineTransfer) all = {0};
  for (int i = 0; i < job->n; i++)
    for (int k = job->first_need[i]; k < job->first_need[i + 1]; k++) {
      const SimulateNeed *need = &job->needs[k];
      const SimulateRoute *route = &job->routes[need->route];
      const SimulateAction *maker = &job->actions[need->maker];
      if (!route->moves || maker->rank == job->actions[i].rank) continue;
      TimelineTransfer transfer = {.value = route->value, .microbatch = maker->microbatch, .from = maker->rank,
                                   .to = job->actions[i].rank, .made = need->maker, .used = i,
                                   .start = run->end[need->maker], .end = run->end[need->maker] + route->hop,
                                   .bytes = route->bytes};
      VEC_PUSH(run->arena, &all, transfer);
    }
  t->n_transfers = all.n;
  t->transfers = all.at;
}

static Simulation *conclude(const Run *run) {
  const SimulateJob *job = run->job;
  Simulation *s = arena_alloc(run->arena, sizeof *s);
  Timeline *t = &s->timeline;
  SimulateRank *ranks = arena_alloc_array(run->arena, (size_t)job->n_ranks, sizeof *ranks);
  TimelineMemory *memory = arena_alloc_array(run->arena, (size_t)job->n_ranks, sizeof *memory);
  const Halves *halves = find_halves(run);
  double busiest = 0;
  *t = (Timeline){.title = job->title, .in_seconds = job->in_seconds,
                  .memory_in_bytes = job->live_bytes != NULL, .n_ranks = job->n_ranks,
                  .n_stages = job->n_stages, .n_microbatches = job->n_microbatches, .n_tasks = job->n};
  for (int r = 0; r < job->n_ranks; r++) {
    ranks[r] = measure(run, r);
    memory[r] = count_live(run, halves, r, &ranks[r]);
    if (job->live_bytes) memory[r] = list_bytes(run, r);
    t->step_time = fmax(t->step_time, ranks[r].end - ranks[r].start);
    busiest = fmax(busiest, ranks[r].work);
  }
  t->bubble = fmax(0, t->step_time - busiest);
  t->bubble_rate = t->step_time > 0 ? t->bubble / t->step_time : 0;
  t->memory = memory;
  s->ranks = ranks;
  s->order = run->order;
  trace_path(run, s);
  t->tasks = list_tasks(run, s);
  list_transfers(run, t);
  return s;
}

Simulation *simulate_run(Arena *arena, Diag *diag, const SimulateJob *job) {
  Run run = start(arena, diag, job);
  while (run.n_ready > 0) run_rank(&run, run.ready[--run.n_ready]);
  return report_deadlock(&run) ? NULL : conclude(&run);
}
