/* In: the tasks of each stage, and the actions that the schedule program lists. Out: one pp.rank op per
 * rank with its actions in order (the loop's, then finish, decide, update, refresh), and
 * pp.stage_ranks. Every (stage, microbatch) must run exactly once, a stage on one rank, forward before
 * backward, input half before weight half; what ranks wait for must not form a cycle even when sends
 * never block. Linear in actions. Actions whose task is empty in this model are left out; tasks that no
 * rank runs (the halves of a backward that runs whole, or the other way round) are erased. */
#include "compiler/actions.h"
#include "compiler/compiler.h"

enum { FEW = 4 }; /* errors of one kind that are worth printing */

/* Errors of one kind. A line in a loop breaks a rule again and again: it is named once. */
typedef struct {
  int n;
  Loc last;
} Told;

typedef struct {
  Ir *ir;
  Diag *diag;
  Arena *arena;
  const Tasks *t;
  const ScheduledActions *list;
  Loc schedule, ranks;
  int *at;           /* [stage][kind][microbatch] index in the list + 1 */
  int *position;     /* [list] place on its rank */
  int *stage_first;  /* [stage] index in the list + 1 of its first action */
  int n_errors;
  Told ranges, places, repeats, mixed, forwards, inputs;
} Check;

static int *slot(const Check *c, int stage, pp_task_kind kind, int microbatch) {
  return &c->at[((int64_t)stage * LOOP_KINDS + (int)kind) * c->t->n_microbatches + microbatch];
}

static const ScheduledAction *found(const Check *c, int stage, pp_task_kind kind, int microbatch) {
  int index = *slot(c, stage, kind, microbatch);
  return index ? &c->list->at[index - 1] : NULL;
}

static int position_of(const Check *c, const ScheduledAction *a) { return c->position[a - c->list->at]; }

/* Counts an error; true when it is worth printing. */
static bool is_news(Check *c, Told *told, Loc loc) {
  c->n_errors++;
  bool same = told->n && told->last.file == loc.file && told->last.line == loc.line && told->last.col == loc.col;
  told->last = loc;
  return !same && told->n++ < FEW;
}

/* The line of the schedule that a reader follows: inside `rank { }`. */
static Loc line_of(const ScheduledAction *a) { return a->caller.line ? a->caller : a->loc; }

static void note_caller(Check *c, const ScheduledAction *a) {
  if (a->caller.line) diag_note(c->diag, a->caller, "called from here");
}

/* --- each action by itself --------------------------------------------------------------------------- */

static bool in_range(Check *c, const ScheduledAction *a) {
  bool stage_ok = a->stage >= 0 && a->stage < c->t->n_stages;
  bool microbatch_ok = a->microbatch >= 0 && a->microbatch < c->t->n_microbatches;
  if (stage_ok && microbatch_ok) return true;
  if (!is_news(c, &c->ranges, a->loc)) return false;
  const char *kind = tasks_kind_name(a->kind);
  if (!stage_ok)
    diag_error(c->diag, a->loc, "%s(%d, %d) on rank %d: stages run from 0 to %d", kind, a->stage, a->microbatch,
               a->rank, c->t->n_stages - 1);
  else
    diag_error(c->diag, a->loc, "%s(%d, %d) on rank %d: microbatches run from 0 to %d", kind, a->stage, a->microbatch,
               a->rank, c->t->n_microbatches - 1);
  note_caller(c, a);
  return false;
}

/* A stage lives on the rank that runs it first. */
static bool on_its_rank(Check *c, const ScheduledAction *a) {
  int *first = &c->stage_first[a->stage];
  if (!*first) *first = (int)(a - c->list->at) + 1;
  const ScheduledAction *other = &c->list->at[*first - 1];
  if (other->rank == a->rank) return true;
  if (!is_news(c, &c->places, a->loc)) return false;
  diag_error(c->diag, a->loc, "stage %d runs on rank %d (microbatch %d) and on rank %d: a stage lives on one rank",
             a->stage, a->rank, a->microbatch, other->rank);
  note_caller(c, a);
  diag_note(c->diag, line_of(other), "rank %d runs it here (microbatch %d)", other->rank, other->microbatch);
  return false;
}

static void enter(Check *c, const ScheduledAction *a) {
  int *at = slot(c, a->stage, a->kind, a->microbatch);
  if (!*at) {
    *at = (int)(a - c->list->at) + 1;
    return;
  }
  if (!is_news(c, &c->repeats, a->loc)) return;
  diag_error(c->diag, a->loc, "%s(%d, %d) runs twice on rank %d", tasks_kind_name(a->kind), a->stage, a->microbatch,
             a->rank);
  note_caller(c, a);
  diag_note(c->diag, line_of(&c->list->at[*at - 1]), "it ran here before");
}

static void check_each(Check *c) {
  int *n_on_rank = arena_alloc_array(c->arena, (size_t)c->t->n_ranks, sizeof *n_on_rank);
  for (int i = 0; i < c->list->n; i++) {
    const ScheduledAction *a = &c->list->at[i];
    if (a->rank < 0 || a->rank >= c->t->n_ranks || (int)a->kind >= (int)LOOP_KINDS)
      bug("scheduled action %d: rank %d, kind %d", i, a->rank, (int)a->kind);
    c->position[i] = n_on_rank[a->rank]++;
    if (in_range(c, a) && on_its_rank(c, a)) enter(c, a);
  }
  if (c->n_errors) return; /* what is missing would follow from these */
  for (int r = 0; r < c->t->n_ranks; r++) {
    if (n_on_rank[r]) continue;
    c->n_errors++;
    diag_error(c->diag, c->ranks, "rank %d runs nothing under this schedule", r);
    diag_note(c->diag, c->schedule, "the schedule is given %d ranks and %d stages", c->t->n_ranks, c->t->n_stages);
    break;
  }
}

/* --- completeness and order ----------------------------------------------------------------------------- */

typedef struct {
  int missing[LOOP_KINDS], first_missing[LOOP_KINDS]; /* how many microbatches lack it, and the first */
} StageCheck;

static void missing(StageCheck *s, pp_task_kind kind, int microbatch) {
  if (s->missing[kind]++ == 0) s->first_missing[kind] = microbatch;
}

static void check_halves(Check *c, StageCheck *s, int stage, int m) {
  const ScheduledAction *whole = found(c, stage, PP_BWD, m);
  const ScheduledAction *input = found(c, stage, PP_BWD_INPUT, m), *weight = found(c, stage, PP_BWD_WEIGHT, m);
  const ScheduledAction *half = input ? input : weight;
  if (whole && half) {
    if (!is_news(c, &c->mixed, whole->loc)) return;
    diag_error(c->diag, whole->loc, "rank %d runs both bwd(%d, %d) and its %s half", whole->rank, stage, m,
               half->kind == PP_BWD_INPUT ? "input" : "weight");
    note_caller(c, whole);
    diag_note(c->diag, line_of(half), "%s(%d, %d) is here", tasks_kind_name(half->kind), stage, m);
  } else if (!whole && !half) {
    missing(s, PP_BWD, m);
  } else if (!whole && !input) {
    missing(s, PP_BWD_INPUT, m);
  } else if (!whole && !weight) {
    missing(s, PP_BWD_WEIGHT, m);
  }
}

static void check_before(Check *c, Told *told, const ScheduledAction *first, const ScheduledAction *then) {
  if (!first || !then || position_of(c, first) < position_of(c, then)) return;
  if (!is_news(c, told, then->loc)) return;
  diag_error(c->diag, then->loc, "rank %d runs %s(%d, %d) before %s(%d, %d)", then->rank, tasks_kind_name(then->kind),
             then->stage, then->microbatch, tasks_kind_name(first->kind), first->stage, first->microbatch);
  note_caller(c, then);
  diag_note(c->diag, line_of(first), "%s(%d, %d) comes here", tasks_kind_name(first->kind), first->stage,
            first->microbatch);
}

static void report_missing(Check *c, const StageCheck *s, int stage) {
  const ScheduledAction *first = &c->list->at[c->stage_first[stage] - 1];
  for (int kind = 0; kind < LOOP_KINDS; kind++) {
    if (!s->missing[kind]) continue;
    c->n_errors++;
    const char *name = tasks_kind_name((pp_task_kind)kind);
    if (s->missing[kind] == 1)
      diag_error(c->diag, c->schedule, "rank %d never runs %s(%d, %d): microbatch %d of stage %d is missing",
                 first->rank, name, stage, s->first_missing[kind], s->first_missing[kind], stage);
    else
      diag_error(c->diag, c->schedule, "rank %d never runs %s(%d, %d), nor for %d other microbatch%s of stage %d",
                 first->rank, name, stage, s->first_missing[kind], s->missing[kind] - 1,
                 s->missing[kind] == 2 ? "" : "es", stage);
    diag_note(c->diag, line_of(first), "rank %d runs stage %d here", first->rank, stage);
  }
}

static void check_stage(Check *c, int stage) {
  StageCheck s = {0};
  for (int m = 0; m < c->t->n_microbatches; m++) {
    const ScheduledAction *fwd = found(c, stage, PP_FWD, m);
    if (!fwd) missing(&s, PP_FWD, m);
    check_halves(c, &s, stage, m);
    check_before(c, &c->forwards, fwd, found(c, stage, PP_BWD, m));
    check_before(c, &c->forwards, fwd, found(c, stage, PP_BWD_INPUT, m));
    const ScheduledAction *input = found(c, stage, PP_BWD_INPUT, m);
    check_before(c, &c->inputs, input ? input : fwd, found(c, stage, PP_BWD_WEIGHT, m));
  }
  report_missing(c, &s, stage);
}

/* Errors of one kind in all stages at once would hide the rest, so absent stages are one error. */
static void check_stages(Check *c) {
  int absent = 0, first_absent = -1;
  for (int s = 0; s < c->t->n_stages; s++) {
    if (c->stage_first[s]) check_stage(c, s);
    else if (absent++ == 0) first_absent = s;
  }
  if (!absent) return;
  c->n_errors++;
  if (absent == 1) diag_error(c->diag, c->schedule, "no rank runs stage %d", first_absent);
  else diag_error(c->diag, c->schedule, "no rank runs stage %d, nor %d other stage%s", first_absent, absent - 1,
                  absent == 2 ? "" : "s");
  diag_note(c->diag, c->schedule, "the model has %d stages (its `stage_end` markers + 1), the schedule runs %d of them",
            c->t->n_stages, c->t->n_stages - absent);
}

/* Sums over microbatches are promised bit for bit only in ascending order. */
static void check_accumulation_order(Check *c) {
  int *last = arena_alloc_array(c->arena, (size_t)c->t->n_stages, sizeof *last); /* index + 1 */
  int stages = 0;
  bool *told = arena_alloc_array(c->arena, (size_t)c->t->n_stages, sizeof *told);
  const ScheduledAction *first = NULL, *before = NULL;
  for (int i = 0; i < c->list->n; i++) {
    const ScheduledAction *a = &c->list->at[i];
    if (a->kind != PP_BWD && a->kind != PP_BWD_WEIGHT) continue;
    const ScheduledAction *previous = last[a->stage] ? &c->list->at[last[a->stage] - 1] : NULL;
    last[a->stage] = i + 1;
    if (!previous || previous->microbatch < a->microbatch || told[a->stage]) continue;
    told[a->stage] = true;
    if (stages++ == 0) first = a, before = previous;
  }
  if (!stages) return;
  diag_warning(c->diag, line_of(first),
               "stage %d adds the gradient of microbatch %d after that of %d: results equal one rank's within "
               "rounding, not to the bit",
               first->stage, first->microbatch, before->microbatch);
  if (stages == 2) diag_note(c->diag, line_of(first), "another stage does so too");
  if (stages > 2) diag_note(c->diag, line_of(first), "%d other stages do so too", stages - 1);
}

/* --- the ops ------------------------------------------------------------------------------------------ */

typedef struct {
  VEC(int64_t) actions, overlaps;
  VEC(Loc) lines;
  bool overlapped;
} RankList;

static void append(Check *c, RankList *list, pp_task_kind kind, int stage, int microbatch, int overlap, Loc line) {
  VEC_PUSH(c->arena, &list->actions, (int64_t)kind);
  VEC_PUSH(c->arena, &list->actions, stage);
  VEC_PUSH(c->arena, &list->actions, microbatch);
  VEC_PUSH(c->arena, &list->overlaps, overlap);
  VEC_PUSH(c->arena, &list->lines, line);
  list->overlapped |= overlap >= 0;
}

/* Does the refresh of a stage receive anything, or do the owners live on its own rank? */
static bool refresh_receives(const Check *c, const Task *task, const int64_t *stage_ranks) {
  for (int i = 0; i < task->n_in; i++)
    if (stage_ranks[c->t->values[task->in[i]].stage] != stage_ranks[task->stage]) return true;
  return false;
}

static void append_tail(Check *c, RankList *list, int rank, const int64_t *stage_ranks) {
  for (pp_task_kind kind = PP_FINISH; kind <= PP_REFRESH; kind++)
    for (int s = c->t->n_stages - 1; s >= 0; s--) {
      const Task *task = tasks_find(c->t, s, kind);
      if (stage_ranks[s] != rank || !task) continue;
      if (kind == PP_REFRESH && !refresh_receives(c, task, stage_ranks)) continue;
      append(c, list, kind, s, -1, -1, c->schedule);
    }
}

static void write_rank(Check *c, const RankList *list, int rank) {
  Builder b = {.ir = c->ir, .block = ir_body(c->ir), .loc = c->schedule, .stage = -1};
  Attr attrs[] = {{.name = "rank", .kind = ATTR_KIND_INT, .i = rank},
                  {.name = "actions", .kind = ATTR_KIND_INTS, .ints = list->actions.at, .n_ints = list->actions.n},
                  {.name = "lines", .kind = ATTR_KIND_LINES, .lines = list->lines.at, .n_ints = list->lines.n},
                  {.name = "overlaps", .kind = ATTR_KIND_INTS, .ints = list->overlaps.at, .n_ints = list->overlaps.n}};
  int n_attrs = list->overlapped ? 4 : 3;
  Op op = ir_build(&b, OP_RANK, 0, NULL, 0, NULL, n_attrs, attrs);
  if (op_is_null(op)) bug("pp.rank can't be built");
}

static void write_ranks(Check *c) {
  int64_t *stage_ranks = arena_alloc_array(c->arena, (size_t)c->t->n_stages, sizeof *stage_ranks);
  for (int s = 0; s < c->t->n_stages; s++) stage_ranks[s] = c->list->at[c->stage_first[s] - 1].rank;
  RankList *lists = arena_alloc_array(c->arena, (size_t)c->t->n_ranks, sizeof *lists);
  for (int i = 0; i < c->list->n; i++) {
    const ScheduledAction *a = &c->list->at[i];
    if (tasks_find(c->t, a->stage, a->kind))
      append(c, &lists[a->rank], a->kind, a->stage, a->microbatch, a->overlap, line_of(a));
  }
  for (int r = 0; r < c->t->n_ranks; r++) {
    append_tail(c, &lists[r], r, stage_ranks);
    write_rank(c, &lists[r], r);
  }
  op_set_ints(c->ir, ir_top(c->ir), "pp.stage_ranks", c->t->n_stages, stage_ranks);
}

/* --- cycles -------------------------------------------------------------------------------------------- */

static const char *action_text(Check *c, const Actions *a, int action) {
  int r = actions_rank(a, action), i = action - a->first[r];
  const char *kind = tasks_kind_name((pp_task_kind)actions_kind(a, r, i));
  if (actions_microbatch(a, r, i) < 0) return arena_printf(c->arena, "%s(%d)", kind, actions_stage(a, r, i));
  return arena_printf(c->arena, "%s(%d, %d)", kind, actions_stage(a, r, i), actions_microbatch(a, r, i));
}

static Loc action_line(const Actions *a, int action) {
  int r = actions_rank(a, action);
  return a->tasks->ranks[r].lines[action - a->first[r]];
}

static void report_wait(Check *c, const Actions *a, int r, bool is_first) {
  int stuck = a->stuck_at[r], maker = a->stuck_for[r].action, other = actions_rank(a, maker);
  const char *value = a->tasks->values[a->stuck_for[r].value].name;
  const char *text = action_text(c, a, stuck), *wanted = action_text(c, a, maker);
  const char *cause = other == r                     ? "which stands later on this rank"
                      : maker == a->stuck_at[other] ? "which waits in turn"
                                                     : "which stands behind an action that waits";
  if (other == r && tasks_block_end(&a->tasks->ranks[r], stuck - a->first[r]) > maker - a->first[r])
    cause = "which stands in the same overlap block";
  if (is_first)
    diag_error(c->diag, action_line(a, stuck), "this schedule can't finish: rank %d waits in %s for %s of %s, %s", r,
               text, value, wanted, cause);
  else
    diag_note(c->diag, action_line(a, stuck), "rank %d waits in %s for %s of %s, %s", r, text, value, wanted, cause);
}

/* Every rank that can't go on waits for one other: following these from any of them ends in a cycle. */
static void report_cycle(Check *c, const Actions *a) {
  int *seen = arena_alloc_array(c->arena, (size_t)c->t->n_ranks, sizeof *seen);
  int r = 0, step = 0;
  while (a->stuck_at[r] < 0) r++;
  while (!seen[r]) {
    seen[r] = ++step;
    r = actions_rank(a, a->stuck_for[r].action);
  }
  int begin = r;
  do {
    report_wait(c, a, r, r == begin);
    r = actions_rank(a, a->stuck_for[r].action);
  } while (r != begin);
}

static bool check_cycles(Check *c) {
  Tasks *scheduled = tasks_read(c->ir, c->arena);
  Actions *a = actions_create(scheduled, c->arena);
  if (actions_time(a, c->arena)) return true;
  report_cycle(c, a);
  return false;
}

/* --- tasks that no rank runs --------------------------------------------------------------------------- */

static bool is_scheduled(const Check *c, int stage, pp_task_kind kind) {
  for (int m = 0; m < c->t->n_microbatches; m++)
    if (*slot(c, stage, kind, m)) return true;
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
static void drop_tasks(Check *c) {
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

/* --- entries ------------------------------------------------------------------------------------------- */

bool schedule_build(Ir *ir, const ScheduledActions *list, Loc schedule, Loc ranks) {
  Arena *arena = arena_create();
  Check c = {.ir = ir, .diag = ir_diag(ir), .arena = arena, .list = list, .schedule = schedule, .ranks = ranks};
  c.t = tasks_read(ir, arena);
  size_t n_slots = (size_t)c.t->n_stages * LOOP_KINDS * (size_t)c.t->n_microbatches;
  c.at = arena_alloc_array(arena, n_slots, sizeof *c.at);
  c.position = arena_alloc_array(arena, (size_t)list->n, sizeof *c.position);
  c.stage_first = arena_alloc_array(arena, (size_t)c.t->n_stages, sizeof *c.stage_first);
  check_each(&c);
  if (c.n_errors == 0 && !c.t->generate) check_stages(&c);
  bool ok = c.n_errors == 0;
  if (ok) {
    check_accumulation_order(&c);
    write_ranks(&c);
    if (!c.t->generate) drop_tasks(&c);
    ok = check_cycles(&c);
  }
  arena_destroy(arena);
  return ok;
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
  return ran && schedule_build(ir, &list, program_schedule_loc(program), program_ranks_loc(program));
}
