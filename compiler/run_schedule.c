/* Runs a schedule program: its body once, then its `rank r { … }` for each
 * rank.
 *
 * In: the schedule that train names and the numbers of ranks, stages and
 * microbatches. Out: the actions of each rank, in order. Ranges are checked
 * here; whether the schedule is complete and ordered is the pass `schedule`'s
 * matter. */
#include <string.h>

#include "compiler/eval.h"
#include "compiler/schedule_csv.h"

static pp_task_kind action_kind(const char *name) {
  if (strcmp(name, "fwd") == 0) return PP_FWD;
  if (strcmp(name, "bwd") == 0) return PP_BWD;
  return strcmp(name, "bwd_input") == 0 ? PP_BWD_INPUT : PP_BWD_WEIGHT;
}

static Loc batch_loc(const Program *p) {
  if (!p->train) return (Loc){0};
  const AstTrainEntry *entry = ast_train_find(p->train, "batch");
  return entry ? entry->loc : (Loc){0};
}

static bool check_range(Eval *e, const BuiltinCall *call, int64_t v, int i,
                        const char *what, int64_t n, Loc declared) {
  if (v >= 0 && v < n) return true;
  const char *stage =
      i == 0 ? ""
             : eval_printf(e, "stage %lld, ", (long long)call->v[0].int_value);
  eval_error(e, call->at[i],
             "%s %lld is out of range: there are %lld, from 0 (%son rank %d)",
             what, (long long)v, (long long)n, stage, e->schedule_run.rank);
  if (declared.line)
    eval_note(e, declared, "%lld %s%s here", (long long)n, what,
              n == 1   ? ""
              : i == 0 ? "s end"
                       : "es");
  return false;
}

static Loc stages_loc(const Program *p) {
  if (!p->train) return (Loc){0};
  const AstTrainEntry *entry = ast_train_find(p->train, "stages");
  if (!entry) entry = ast_train_find(p->train, "loss");
  return entry->loc;
}

static Loc outermost_call(const Eval *e, Loc own) {
  if (e->frames.n <= e->schedule_run.base) return (Loc){0};
  Loc loc = e->frames.at[e->schedule_run.base].loc;
  bool same =
      loc.file == own.file && loc.line == own.line && loc.col == own.col;
  return same ? (Loc){0} : loc;
}

BUILTIN(action) {
  const char *name = builtin_name_of(call);
  int64_t stage, microbatch;
  if (!e->schedule_run.out || e->schedule_run.rank < 0) {
    eval_error(e, call->loc, "'%s' can only stand in a schedule's 'rank' block",
               name);
    eval_stop(e);
    return POISON;
  }
  const Program *p = (const Program *)e; /* its first member */
  if (!builtin_int(e, call, 0, "the stage", &stage) ||
      !builtin_int(e, call, 1, "the microbatch", &microbatch))
    return POISON;
  if (!check_range(e, call, stage, 0, "stage", e->schedule_run.stages,
                   stages_loc(p)) ||
      !check_range(e, call, microbatch, 1, "microbatch",
                   e->schedule_run.microbatches, batch_loc(p))) {
    eval_stop(e);
    return POISON;
  }
  ScheduledActions *out = e->schedule_run.out;
  if (out->n >= SCHEDULE_MAX_ACTIONS)
    return eval_fatal(e, call->loc,
                      "this schedule has more than %d actions (on rank %d)",
                      SCHEDULE_MAX_ACTIONS, e->schedule_run.rank),
           POISON;
  VEC_PUSH(e->arena, out,
           ((ScheduledAction){.rank = e->schedule_run.rank,
                              .stage = (int)stage,
                              .microbatch = (int)microbatch,
                              .kind = action_kind(name),
                              .overlap = e->schedule_run.overlap,
                              .loc = call->loc,
                              .caller = outermost_call(e, call->loc)}));
  return NONE;
}

Flow exec_overlap(Eval *e, const AstStmt *s, Frame *frame) {
  if (!e->schedule_run.out || e->schedule_run.rank < 0) {
    eval_error(e, s->loc,
               "'overlap' can only stand in a schedule's 'rank' block");
    return eval_stop(e), FLOW_STOP;
  }
  if (e->schedule_run.overlap >= 0) {
    eval_error(e, s->loc, "an overlap block can't stand in another");
    return eval_stop(e), FLOW_STOP;
  }
  e->schedule_run.overlap = e->schedule_run.n_overlaps++;
  Flow flow = exec_block(e, s->overlap, frame->scope, frame->body);
  e->schedule_run.overlap = -1;
  return flow;
}

static bool run_rank(Eval *e, const Body *body, int rank) {
  Scope *scope = scope_push(e, body->rank_scope);
  scope_declare(e, scope, SLOT_LET, body->rank->rank.name, val_int(rank));
  Frame frame = {.scope = scope, .own = true};
  e->schedule_run.rank = rank;
  e->schedule_run.overlap = -1;
  Flow flow = exec_stmts(e, body->rank->rank.body, &frame);
  scope_pop(e, scope);
  return flow != FLOW_STOP && !e->stop;
}

static bool run_body(Eval *e, const AstItem *item, Scope *scope) {
  Body body = {0};
  Frame frame = {.scope = scope, .own = true, .body = &body};
  if (exec_stmts(e, item->decl.body, &frame) == FLOW_STOP) return false;
  if (!body.rank) {
    eval_error(e, item->name_loc, "schedule '%s' has no rank block",
               item->name);
    return false;
  }
  for (int r = 0; r < e->schedule_run.ranks; r++)
    if (!run_rank(e, &body, r)) return false;
  return true;
}

static bool run_schedule(Eval *e, Loc loc) {
  static const char *const names[] = {"ranks", "stages", "microbatches"};
  const Bound *bound = e->schedule;
  const AstItem *item = bound->item;
  Val values[] = {val_int(e->schedule_run.ranks),
                  val_int(e->schedule_run.stages),
                  val_int(e->schedule_run.microbatches)};
  Presets presets = {3, names, values};
  if (!call_enter(e, loc, item->name, NULL)) return false;
  Scope *scope = scope_push(e, eval_file_scope(e, item->file));
  scope->captured = true;
  e->schedule_run.base = e->frames.n;
  bool ok = bind_params(e, &item->decl.params, bound->args, &presets, scope,
                        "schedule", item->name, item->name_loc) &&
            run_body(e, item, scope);
  call_leave(e);
  return ok;
}

/* A schedule that changes a list of its file may do something else each time:
 * what was checked is what counts. */
static bool has_run(const Program *p, int ranks, int stages,
                    int microbatches) {
  return p->ran_ranks == ranks && p->ran_stages == stages &&
         p->ran_microbatches == microbatches;
}

static void remember_run(Program *p, const ScheduledActions *actions) {
  p->ran = *actions;
  p->ran_ranks = p->e.schedule_run.ranks;
  p->ran_stages = p->e.schedule_run.stages;
  p->ran_microbatches = p->e.schedule_run.microbatches;
}

bool program_run_schedule(Program *program, int ranks, int stages,
                          int microbatches, ScheduledActions *out) {
  Eval *e = &program->e;
  int errors = diag_error_count(e->diag);
  if (program->csv) {
    if (!schedule_csv_check_rows(e->diag, program->csv, ranks,
                                 program->ranks_loc))
      return false;
    *out = program->csv->actions;
    return true;
  }
  if (has_run(program, ranks, stages, microbatches)) {
    *out = program->ran;
    return true;
  }
  if (!e->schedule) bug("program_run_schedule of a program with errors");
  e->stack_base = __builtin_frame_address(0);
  e->stop = e->fatal;
  e->frames.n = 0, e->depth = 0, e->n_values = 0;
  e->trace = NULL, e->guard = NULL;
  e->reported.n = 0;
  e->refused = (Loc){0};
  e->schedule_run.out = out;
  e->schedule_run.rank = -1;
  e->schedule_run.ranks = ranks;
  e->schedule_run.stages = stages;
  e->schedule_run.microbatches = microbatches;
  e->schedule_run.overlap = -1;
  e->schedule_run.n_overlaps = 0;
  bool ok = !e->fatal && run_schedule(e, program->schedule_loc);
  eval_flush_notes(e);
  e->schedule_run.out = NULL;
  if (!ok || diag_error_count(e->diag) != errors) return false;
  remember_run(program, out);
  return true;
}
