/* In: the actions that a schedule lists, and how many ranks, stages and microbatches there are. Out: errors,
 * or an index of the actions. Every (stage, microbatch) must run exactly once, a stage on one rank, forward
 * before backward, input half before weight half. Linear in actions. Knows of no model: what its tasks need
 * from one another is the pass `schedule`'s matter, or the simulator's. */
#include "compiler/schedule_check.h"

#include "compiler/base/diag.h"
#include "compiler/tasks.h"

enum { FEW = 4 }; /* errors of one kind that are worth printing */

/* Errors of one kind. A line in a loop breaks a rule again and again: it is named once. */
typedef struct {
  int n;
  Loc last;
} Told;

typedef struct {
  Diag *diag;
  Arena *arena;
  const ScheduleJob *job;
  const ScheduledActions *list;
  int *at, *stage_first; /* as in ScheduleIndex */
  int *position;         /* [list] place on its rank */
  int n_errors;
  Told ranges, places, repeats, mixed, forwards, inputs;
} Check;

static int *slot(const Check *c, int stage, pp_task_kind kind, int microbatch) {
  return &c->at[schedule_slot(c->job, stage, kind, microbatch)];
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

Loc schedule_line_of(const ScheduledAction *a) { return a->caller.line ? a->caller : a->loc; }

static void note_caller(Check *c, const ScheduledAction *a) {
  if (a->caller.line) diag_note(c->diag, a->caller, "called from here");
}

/* --- each action by itself --------------------------------------------------------------------------- */

static bool in_range(Check *c, const ScheduledAction *a) {
  bool stage_ok = a->stage >= 0 && a->stage < c->job->n_stages;
  bool microbatch_ok = a->microbatch >= 0 && a->microbatch < c->job->n_microbatches;
  if (stage_ok && microbatch_ok) return true;
  if (!is_news(c, &c->ranges, a->loc)) return false;
  const char *kind = pp_task_kind_name(a->kind);
  if (!stage_ok)
    diag_error(c->diag, a->loc, "%s(%d, %d) on rank %d: stages run from 0 to %d", kind, a->stage, a->microbatch,
               a->rank, c->job->n_stages - 1);
  else
    diag_error(c->diag, a->loc, "%s(%d, %d) on rank %d: microbatches run from 0 to %d", kind, a->stage, a->microbatch,
               a->rank, c->job->n_microbatches - 1);
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
  diag_note(c->diag, schedule_line_of(other), "rank %d runs it here (microbatch %d)", other->rank, other->microbatch);
  return false;
}

static void enter(Check *c, const ScheduledAction *a) {
  int *at = slot(c, a->stage, a->kind, a->microbatch);
  if (!*at) {
    *at = (int)(a - c->list->at) + 1;
    return;
  }
  if (!is_news(c, &c->repeats, a->loc)) return;
  diag_error(c->diag, a->loc, "%s(%d, %d) runs twice on rank %d", pp_task_kind_name(a->kind), a->stage, a->microbatch,
             a->rank);
  note_caller(c, a);
  diag_note(c->diag, schedule_line_of(&c->list->at[*at - 1]), "it ran here before");
}

static void check_each(Check *c) {
  int *n_on_rank = arena_alloc_array(c->arena, (size_t)c->job->n_ranks, sizeof *n_on_rank);
  for (int i = 0; i < c->list->n; i++) {
    const ScheduledAction *a = &c->list->at[i];
    if (a->rank < 0 || a->rank >= c->job->n_ranks || (int)a->kind >= (int)LOOP_KINDS)
      bug("scheduled action %d: rank %d, kind %d", i, a->rank, (int)a->kind);
    c->position[i] = n_on_rank[a->rank]++;
    if (in_range(c, a) && on_its_rank(c, a)) enter(c, a);
  }
  if (c->n_errors) return; /* what is missing would follow from these */
  for (int r = 0; r < c->job->n_ranks; r++) {
    if (n_on_rank[r]) continue;
    c->n_errors++;
    diag_error(c->diag, c->job->ranks, "rank %d runs nothing under this schedule", r);
    diag_note(c->diag, c->job->schedule, "the schedule is given %d ranks and %d stages", c->job->n_ranks, c->job->n_stages);
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
    diag_note(c->diag, schedule_line_of(half), "%s(%d, %d) is here", pp_task_kind_name(half->kind), stage, m);
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
  diag_error(c->diag, then->loc, "rank %d runs %s(%d, %d) before %s(%d, %d)", then->rank, pp_task_kind_name(then->kind),
             then->stage, then->microbatch, pp_task_kind_name(first->kind), first->stage, first->microbatch);
  note_caller(c, then);
  diag_note(c->diag, schedule_line_of(first), "%s(%d, %d) comes here", pp_task_kind_name(first->kind), first->stage,
            first->microbatch);
}

static void report_missing(Check *c, const StageCheck *s, int stage) {
  const ScheduledAction *first = &c->list->at[c->stage_first[stage] - 1];
  for (int kind = 0; kind < LOOP_KINDS; kind++) {
    if (!s->missing[kind]) continue;
    c->n_errors++;
    const char *name = pp_task_kind_name((pp_task_kind)kind);
    if (s->missing[kind] == 1)
      diag_error(c->diag, c->job->schedule, "rank %d never runs %s(%d, %d): microbatch %d of stage %d is missing",
                 first->rank, name, stage, s->first_missing[kind], s->first_missing[kind], stage);
    else
      diag_error(c->diag, c->job->schedule, "rank %d never runs %s(%d, %d), nor for %d other microbatch%s of stage %d",
                 first->rank, name, stage, s->first_missing[kind], s->missing[kind] - 1,
                 s->missing[kind] == 2 ? "" : "es", stage);
    diag_note(c->diag, schedule_line_of(first), "rank %d runs stage %d here", first->rank, stage);
  }
}

static void check_stage(Check *c, int stage) {
  StageCheck s = {0};
  for (int m = 0; m < c->job->n_microbatches; m++) {
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
  for (int s = 0; s < c->job->n_stages; s++) {
    if (c->stage_first[s]) check_stage(c, s);
    else if (absent++ == 0) first_absent = s;
  }
  if (!absent) return;
  c->n_errors++;
  if (absent == 1) diag_error(c->diag, c->job->schedule, "no rank runs stage %d", first_absent);
  else diag_error(c->diag, c->job->schedule, "no rank runs stage %d, nor %d other stage%s", first_absent, absent - 1,
                  absent == 2 ? "" : "s");
  int n = c->job->n_stages;
  if (c->job->bare)
    diag_note(c->diag, c->job->schedule, "it was asked for %d stages and runs %d of them (--stages=N asks for others)", n,
              n - absent);
  else
    diag_note(c->diag, c->job->schedule,
              "the model has %d stages (its `stage_end` markers + 1), the schedule runs %d of them", n, n - absent);
}

/* Sums over microbatches are promised bit for bit only in ascending order. */
static void check_accumulation_order(Check *c) {
  int *last = arena_alloc_array(c->arena, (size_t)c->job->n_stages, sizeof *last); /* index + 1 */
  int stages = 0;
  bool *told = arena_alloc_array(c->arena, (size_t)c->job->n_stages, sizeof *told);
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
  diag_warning(c->diag, schedule_line_of(first),
               "stage %d adds the gradient of microbatch %d after that of %d: results equal one rank's within "
               "rounding, not to the bit",
               first->stage, first->microbatch, before->microbatch);
  if (stages == 2) diag_note(c->diag, schedule_line_of(first), "another stage does so too");
  if (stages > 2) diag_note(c->diag, schedule_line_of(first), "%d other stages do so too", stages - 1);
}

/* --- entry ---------------------------------------------------------------------------------------------- */

bool schedule_check(Diag *diag, Arena *arena, const ScheduledActions *list, const ScheduleJob *job,
                    ScheduleIndex *out_index) {
  Check c = {.diag = diag, .arena = arena, .job = job, .list = list};
  c.at = arena_alloc_array(arena, (size_t)schedule_slot(job, job->n_stages, PP_FWD, 0), sizeof *c.at);
  c.position = arena_alloc_array(arena, (size_t)list->n, sizeof *c.position);
  c.stage_first = arena_alloc_array(arena, (size_t)job->n_stages, sizeof *c.stage_first);
  check_each(&c);
  if (c.n_errors == 0 && !job->forward_only) check_stages(&c);
  if (c.n_errors == 0) check_accumulation_order(&c);
  *out_index = (ScheduleIndex){c.at, c.stage_first};
  return c.n_errors == 0;
}

/* --- cycles --------------------------------------------------------------------------------------------- */

static void report_wait(Diag *diag, const ScheduleWait *waits, int r, bool is_first) {
  const ScheduleWait *w = &waits[r];
  const char *cause = w->in_block        ? "which stands in the same overlap block"
                      : w->other == r    ? "which stands later on this rank"
                      : w->other_waits   ? "which waits in turn"
                                         : "which stands behind an action that waits";
  if (is_first)
    diag_error(diag, w->line, "this schedule can't finish: rank %d waits in %s for %s of %s, %s", r, w->action, w->value,
               w->wanted, cause);
  else
    diag_note(diag, w->line, "rank %d waits in %s for %s of %s, %s", r, w->action, w->value, w->wanted, cause);
}

void schedule_report_cycle(Diag *diag, Arena *arena, int n_ranks, const ScheduleWait *waits) {
  bool *seen = arena_alloc_array(arena, (size_t)n_ranks, sizeof *seen);
  int r = 0;
  while (waits[r].other < 0) r++;
  while (!seen[r]) {
    seen[r] = true;
    r = waits[r].other;
  }
  int begin = r;
  do {
    report_wait(diag, waits, r, r == begin);
    r = waits[r].other;
  } while (r != begin);
}
