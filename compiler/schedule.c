/* In: the tasks of each stage, and the actions that the schedule program lists. Out: one pp.rank op per
 * rank with its actions in order (the loop's, then finish, decide, update, refresh), and
 * pp.stage_ranks. The list is checked (schedule_check.h), and what ranks wait for must not form a cycle
 * even when sends never block. Linear in actions. Actions whose task is empty in this model are left out;
 * tasks that no rank runs (the halves of a backward that runs whole, or the other way round) are erased. */
#include "compiler/actions.h"
#include "compiler/compiler.h"
#include "compiler/schedule_check.h"
#include "compiler/stated.h"

typedef struct {
  Ir *ir;
  Arena *arena;
  const Tasks *t;
  const ScheduledActions *list;
  ScheduleJob job;
  ScheduleIndex index;
} Build;

/* --- the ops ------------------------------------------------------------------------------------------ */

typedef struct {
  VEC(int64_t) actions, overlaps;
  VEC(Loc) lines;
  bool overlapped;
} RankList;

static void append(Build *c, RankList *list, pp_task_kind kind, int stage, int microbatch, int overlap, Loc line) {
  VEC_PUSH(c->arena, &list->actions, (int64_t)kind);
  VEC_PUSH(c->arena, &list->actions, stage);
  VEC_PUSH(c->arena, &list->actions, microbatch);
  VEC_PUSH(c->arena, &list->overlaps, overlap);
  VEC_PUSH(c->arena, &list->lines, line);
  list->overlapped |= overlap >= 0;
}

/* Does the refresh of a stage receive anything, or do the owners live on its own rank? */
static bool refresh_receives(const Build *c, const Task *task, const int64_t *stage_ranks) {
  for (int i = 0; i < task->n_in; i++)
    if (stage_ranks[c->t->values[task->in[i]].stage] != stage_ranks[task->stage]) return true;
  return false;
}

static void append_head(Build *c, RankList *list, int rank, const int64_t *stage_ranks) {
  for (int s = 0; s < c->t->n_stages; s++)
    if (stage_ranks[s] == rank && tasks_find(c->t, s, PP_PREPARE)) append(c, list, PP_PREPARE, s, -1, -1, c->job.schedule);
}

static void append_tail(Build *c, RankList *list, int rank, const int64_t *stage_ranks) {
  for (pp_task_kind kind = PP_FINISH; kind <= PP_REFRESH; kind++)
    for (int s = c->t->n_stages - 1; s >= 0; s--) {
      const Task *task = tasks_find(c->t, s, kind);
      if (stage_ranks[s] != rank || !task) continue;
      if (kind == PP_REFRESH && !refresh_receives(c, task, stage_ranks)) continue;
      append(c, list, kind, s, -1, -1, c->job.schedule);
    }
}

static void write_rank(Build *c, const RankList *list, int rank) {
  Builder b = {.ir = c->ir, .block = ir_body(c->ir), .loc = c->job.schedule, .stage = -1};
  Attr attrs[] = {{.name = "rank", .kind = ATTR_KIND_INT, .i = rank},
                  {.name = "actions", .kind = ATTR_KIND_INTS, .ints = list->actions.at, .n_ints = list->actions.n},
                  {.name = "lines", .kind = ATTR_KIND_LINES, .lines = list->lines.at, .n_ints = list->lines.n},
                  {.name = "overlaps", .kind = ATTR_KIND_INTS, .ints = list->overlaps.at, .n_ints = list->overlaps.n}};
  int n_attrs = list->overlapped ? 4 : 3;
  Op op = ir_build(&b, OP_RANK, 0, NULL, 0, NULL, n_attrs, attrs);
  if (op_is_null(op)) bug("pp.rank can't be built");
}

static void write_ranks(Build *c) {
  int64_t *stage_ranks = arena_alloc_array(c->arena, (size_t)c->t->n_stages, sizeof *stage_ranks);
  for (int s = 0; s < c->t->n_stages; s++) stage_ranks[s] = c->list->at[c->index.stage_first[s] - 1].rank;
  RankList *lists = arena_alloc_array(c->arena, (size_t)c->t->n_ranks, sizeof *lists);
  for (int r = 0; r < c->t->n_ranks; r++) append_head(c, &lists[r], r, stage_ranks);
  for (int i = 0; i < c->list->n; i++) {
    const ScheduledAction *a = &c->list->at[i];
    if (tasks_find(c->t, a->stage, a->kind))
      append(c, &lists[a->rank], a->kind, a->stage, a->microbatch, a->overlap, schedule_line_of(a));
  }
  for (int r = 0; r < c->t->n_ranks; r++) {
    append_tail(c, &lists[r], r, stage_ranks);
    write_rank(c, &lists[r], r);
  }
  op_set_ints(c->ir, ir_top(c->ir), "pp.stage_ranks", c->t->n_stages, stage_ranks);
}

/* --- cycles -------------------------------------------------------------------------------------------- */

static const char *action_text(Build *c, const Actions *a, int action) {
  int r = actions_rank(a, action), i = action - a->first[r];
  return tasks_action_text(c->arena, (pp_task_kind)actions_kind(a, r, i), actions_stage(a, r, i),
                           actions_microbatch(a, r, i));
}

static ScheduleWait wait_of(Build *c, const Actions *a, int r) {
  int stuck = a->stuck_at[r], maker = a->stuck_for[r].action;
  if (stuck < 0) return (ScheduleWait){.other = -1};
  const TaskRank *rank = &a->tasks->ranks[r];
  int other = actions_rank(a, maker), index = stuck - a->first[r];
  return (ScheduleWait){.other = other,
                        .in_block = other == r && tasks_block_end(rank, index) > maker - a->first[r],
                        .other_waits = maker == a->stuck_at[other],
                        .line = rank->lines[index],
                        .action = action_text(c, a, stuck),
                        .value = a->tasks->values[a->stuck_for[r].value].name,
                        .wanted = action_text(c, a, maker)};
}

static bool check_cycles(Build *c) {
  Tasks *scheduled = tasks_read(c->ir, c->arena);
  Actions *a = actions_create(scheduled, c->arena);
  if (actions_time(a, c->arena)) return true;
  ScheduleWait *waits = arena_alloc_array(c->arena, (size_t)c->t->n_ranks, sizeof *waits);
  for (int r = 0; r < c->t->n_ranks; r++) waits[r] = wait_of(c, a, r);
  schedule_report_cycle(ir_diag(c->ir), c->arena, c->t->n_ranks, waits);
  return false;
}

/* --- tasks that no rank runs --------------------------------------------------------------------------- */

static bool is_scheduled(const Build *c, int stage, pp_task_kind kind) {
  for (int m = 0; m < c->t->n_microbatches; m++)
    if (c->index.at[schedule_slot(&c->job, stage, kind, m)]) return true;
  return false;
}

/* Results that no task takes any more: what only the halves, or only the whole backward, would use. */
static void drop_results(Ir *ir, Arena *arena, const bool *taken, Op func) {
  int64_t n = 0;
  const int64_t *ids = op_ints(arena, func, "pp.out", &n);
  Op ret = func_return_op(func);
  int64_t *kept = arena_alloc_array(arena, (size_t)n + 1, sizeof *kept);
  Value *values = arena_alloc_array(arena, (size_t)n + 1, sizeof *values);
  int n_kept = 0;
  for (int i = 0; i < n; i++) {
    if (!taken[ids[i]]) continue;
    values[n_kept] = op_operand(ret, i);
    kept[n_kept++] = ids[i];
  }
  if (n_kept == n) return;
  op_set_operands(ret, n_kept, values);
  op_set_ints(ir, func, "pp.out", n_kept, kept);
  func_update_type(ir, func);
  simplify_dead_ops(ir, func);
}

/* A stage runs its backward whole or in halves; the other form goes, and what was saved for it. */
static void drop_tasks(Build *c) {
  const Tasks *t = c->t;
  bool *taken = arena_alloc_array(c->arena, (size_t)t->n_values + 1, sizeof *taken);
  for (int i = 0; i < t->n_tasks; i++) {
    const Task *task = &t->tasks[i];
    bool dropped = (int)task->kind < LOOP_KINDS && !is_scheduled(c, task->stage, task->kind);
    if (dropped) op_erase(task->func);
    for (int k = 0; !dropped && k < task->n_in; k++) taken[task->in[k]] = true;
  }
  for (int i = 0; i < t->n_tasks; i++) {
    const Task *task = &t->tasks[i];
    if (task->kind == PP_FWD && is_scheduled(c, task->stage, PP_FWD)) drop_results(c->ir, c->arena, taken, task->func);
  }
}

/* --- stated transfers ------------------------------------------------------------------------------------- */

/* A value goes from one stage to another on another rank: cells can state that only of neighbours. */
static bool note_carried(Build *c, int value, int to, bool *forward, bool *backward) {
  const TaskValue *v = &c->t->values[value];
  bool made_forward = v->made_by & 1u << PP_FWD;
  if (made_forward && to == v->stage + 1) return forward[v->stage] = true;
  if (!made_forward && to == v->stage - 1) return backward[v->stage] = true;
  if (c->list->at[c->index.stage_first[v->stage] - 1].rank == c->list->at[c->index.stage_first[to] - 1].rank) return true;
  diag_error(ir_diag(c->ir), v->loc, "stage %d sends %s to stage %d: cells state transfers between neighbours only, so "
             "--keep-transfers can't check this model", v->stage, v->name, to);
  return false;
}

static bool check_stated(Build *c, const ScheduleCsv *csv) {
  size_t n = (size_t)c->t->n_stages;
  bool *forward = arena_alloc_array(c->arena, n, sizeof *forward), *backward = arena_alloc_array(c->arena, n, sizeof *backward);
  for (int i = 0; i < c->t->n_tasks; i++) {
    const Task *task = &c->t->tasks[i];
    for (int k = 0; (int)task->kind < LOOP_KINDS && k < task->n_in; k++) {
      const TaskValue *v = &c->t->values[task->in[k]];
      bool crosses = v->made_by & ((1u << LOOP_KINDS) - 1) && v->stage != task->stage;
      if (crosses && !note_carried(c, (int)task->in[k], task->stage, forward, backward)) return false;
    }
  }
  StatedJob job = {csv, &c->job, &c->index, forward, backward};
  return stated_check(ir_diag(c->ir), c->arena, &job);
}

/* --- entries ------------------------------------------------------------------------------------------- */

/* `stated`: the CSV whose transfers are to be checked, or null. */
static bool build(Ir *ir, const ScheduledActions *list, Loc schedule, Loc ranks, const ScheduleCsv *stated) {
  Arena *arena = arena_create();
  Build c = {.ir = ir, .arena = arena, .list = list, .t = tasks_read(ir, arena)};
  c.job = (ScheduleJob){c.t->n_ranks, c.t->n_stages, c.t->n_microbatches, schedule, ranks, .forward_only = c.t->generate};
  bool ok = schedule_check(ir_diag(ir), arena, list, &c.job, &c.index);
  if (ok) {
    write_ranks(&c);
    if (!c.t->generate) drop_tasks(&c);
    ok = check_cycles(&c) && (!stated || check_stated(&c, stated));
  }
  arena_destroy(arena);
  return ok;
}

bool schedule_build(Ir *ir, const ScheduledActions *list, Loc schedule, Loc ranks) {
  return build(ir, list, schedule, ranks, NULL);
}

/* Generation runs each stage once, forward, on one rank; no schedule is asked. */
static bool schedule_forward(Ir *ir) {
  Arena *arena = arena_create();
  ScheduledActions list = {0};
  int n_stages = (int)op_int(ir_top(ir), "pp.stages", 1);
  Loc none = {0};
  op_set_int(ir, ir_top(ir), "pp.ranks", 1);
  for (int s = 0; s < n_stages; s++)
    VEC_PUSH(arena, &list, (ScheduledAction){.stage = s, .kind = PP_FWD, .overlap = -1});
  bool ok = schedule_build(ir, &list, none, none);
  arena_destroy(arena);
  return ok;
}

bool schedule_run(Ir *ir, Program *program) {
  Op top = ir_top(ir);
  if (op_unit(top, "pp.generate")) return schedule_forward(ir);
  ScheduledActions list = {0};
  bool ran = program_run_schedule(program, (int)op_int(top, "pp.ranks", 1), (int)op_int(top, "pp.stages", 1),
                                  (int)op_int(top, "pp.microbatches", 1), &list);
  const ScheduleCsv *stated = program_keeps_transfers(program) ? program_csv(program) : NULL;
  return ran && build(ir, &list, program_schedule_loc(program), program_ranks_loc(program), stated);
}
