/* A schedule without a model: `ppc simulate --schedule=zb_h1 --ranks=4 --microbatches=8`. In: the options,
 * perhaps a file of schedules. Out: the checked actions. Without --stages the
 * smallest multiple of the ranks is taken with which the schedule's `require`s hold and it is complete. */
#include "compiler/driver/bare.h"

#include <limits.h>
#include <string.h>

#include "compiler/ir/ir.h"
#include "compiler/stated.h"
#include "dsl/load.h"

enum { MAX_CHUNKS = 16 };

typedef enum { FILE_BROKEN, FILE_OF_SCHEDULES, FILE_MODEL } FileKind;

/* Errors in it are for whoever reads it in earnest. */
static FileKind kind_of_file(const char *path) {
  Arena *arena = arena_create();
  Diag *diag = diag_create();
  const DslProgram *program = dsl_load(arena, diag, path);
  FileKind kind = !program ? FILE_BROKEN : program->train ? FILE_MODEL : FILE_OF_SCHEDULES;
  diag_destroy(diag);
  arena_destroy(arena);
  return kind;
}

bool bare_is_wanted(const Options *o) {
  if (!o->compile.schedule) return false;
  return o->files.n == 0 || kind_of_file(o->files.at[0]) == FILE_OF_SCHEDULES;
}

bool bare_refuse_options(Diag *diag, const Options *o) {
  bool refused = o->schedule_only && kind_of_file(o->files.at[0]) == FILE_MODEL;
  if (refused)
    diag_error(diag, (Loc){0}, "%s is of a schedule alone, but '%s' is a model%s", o->schedule_only, o->files.at[0],
               strcmp(o->schedule_only, "--cost") == 0 ? ": ppc simulate takes its costs" : "");
  return refused;
}

/* The checks need room for each. */
static bool check_size(Diag *diag, const ScheduleJob *job) {
  if ((int64_t)job->n_stages * job->n_microbatches <= SCHEDULE_MAX_ACTIONS) return true;
  diag_error(diag, job->schedule, "%d stages of %d microbatches are more actions than %d", job->n_stages,
             job->n_microbatches, SCHEDULE_MAX_ACTIONS);
  return false;
}

/* Runs and checks the schedule for this many stages. */
static bool try_stages(Arena *arena, Diag *diag, Program *program, int stages, Bare *out) {
  ScheduleJob *job = &out->job;
  job->n_stages = stages;
  if (!check_size(diag, job)) return false;
  out->actions = (ScheduledActions){0};
  return program_run_schedule(program, job->n_ranks, stages, job->n_microbatches, &out->actions) &&
         schedule_check(diag, arena, &out->actions, job, &out->index);
}

/* How far an attempt came: past every `require`, else to the one that stands here. */
static int reached(Program *program) {
  Loc refusal = program_refusal(program);
  return refusal.line > 0 ? refusal.line : INT_MAX;
}

static bool find_stages(Arena *arena, Diag *diag, Program *program, Bare *out) {
  int ranks = out->job.n_ranks, furthest = 0, best = 1;
  DiagMark mark = diag_mark(diag);
  for (int chunks = 1; chunks <= MAX_CHUNKS; chunks++) {
    if (try_stages(arena, diag, program, chunks * ranks, out)) return true;
    if (program_is_spent(program)) return false;
    diag_rewind(diag, mark);
    if (reached(program) <= furthest) continue;
    furthest = reached(program);
    best = chunks;
  }
  /* None will do: what is wrong with the one that came furthest says most. */
  if (try_stages(arena, diag, program, best * ranks, out)) return true; /* it counts its runs in a list of its file */
  diag_note(diag, out->job.schedule, "this is for %d stage%s; no multiple of %d up to %d does better (--stages=N)",
            best * ranks, best * ranks == 1 ? "" : "s", ranks, MAX_CHUNKS * ranks);
  return false;
}

static bool evaluate(Arena *arena, Diag *diag, const Options *o, const DslProgram *text, Ir *ir, Bare *out) {
  Program *program = elaborate_schedule(ir, text, &o->compile);
  if (!program) return false;
  out->job = (ScheduleJob){.n_ranks = (int)o->compile.ranks, .n_microbatches = (int)o->compile.microbatches,
                           .schedule = program_schedule_loc(program), .ranks = program_ranks_loc(program), .bare = true};
  if (o->stages > 0) return try_stages(arena, diag, program, (int)o->stages, out);
  return find_stages(arena, diag, program, out);
}

static bool read_program(Arena *arena, Diag *diag, const Options *o, Bare *out) {
  if (o->compile.ranks < 0 || o->compile.microbatches < 0) {
    diag_error(diag, (Loc){0}, "a schedule without a model needs --ranks=N and --microbatches=N");
    return false;
  }
  const DslProgram *text = dsl_load_schedules(arena, diag, o->files.n ? o->files.at[0] : NULL);
  if (!text) return false;
  Ir *ir = ir_create(arena, diag);
  bool fine = evaluate(arena, diag, o, text, ir, out);
  ir_destroy(ir);
  return fine;
}

/* A table says itself how many there are of everything; the options can only ask for just that. */
static bool read_table(Arena *arena, Diag *diag, const Options *o, Bare *out) {
  if (o->files.n) {
    diag_error(diag, (Loc){0}, "a table of actions needs no file of schedules: leave out '%s'", o->files.at[0]);
    return false;
  }
  const ScheduleCsv *csv = schedule_csv_read(diag, arena, o->compile.schedule);
  if (!csv) return false;
  Loc top = {csv->source, 1, 1};
  ScheduleJob *job = &out->job;
  out->csv = csv;
  out->actions = csv->actions;
  *job = (ScheduleJob){.n_ranks = csv->n_ranks, .schedule = top, .ranks = top, .bare = true};
  for (int i = 0; i < csv->actions.n; i++) {
    const ScheduledAction *a = &csv->actions.at[i];
    if (a->stage >= job->n_stages) job->n_stages = a->stage + 1;
    if (a->microbatch >= job->n_microbatches) job->n_microbatches = a->microbatch + 1;
  }
  if (o->stages > 0) job->n_stages = (int)o->stages;
  if (o->compile.microbatches > 0) job->n_microbatches = (int)o->compile.microbatches;
  if (o->compile.ranks > 0 && !schedule_csv_check_rows(diag, csv, (int)o->compile.ranks, (Loc){0})) return false;
  return check_size(diag, job) && schedule_check(diag, arena, &out->actions, job, &out->index);
}

static bool check_transfers(Arena *arena, Diag *diag, const Bare *b) {
  StatedJob job = {.csv = b->csv, .job = &b->job, .index = &b->index};
  return stated_check(diag, arena, &job);
}

bool bare_read(Arena *arena, Diag *diag, const Options *o, Bare *out) {
  *out = (Bare){.name = o->compile.schedule};
  if (o->model_only) {
    diag_error(diag, (Loc){0}, "%s is of a model, and '%s' has no `train`", o->model_only, o->files.n ? o->files.at[0] : "");
    return false;
  }
  bool table = schedule_is_csv(o->compile.schedule);
  bool fine = table ? read_table(arena, diag, o, out) : read_program(arena, diag, o, out);
  if (fine && o->compile.keep_transfers) fine = check_transfers(arena, diag, out);
  return fine && diag_error_count(diag) == 0;
}

const char *bare_title(Arena *arena, const char *schedule, const ScheduleJob *job) {
  return arena_printf(arena, "%s, %d rank%s, %d stage%s, %d microbatch%s", schedule, job->n_ranks,
                      job->n_ranks == 1 ? "" : "s", job->n_stages, job->n_stages == 1 ? "" : "s", job->n_microbatches,
                      job->n_microbatches == 1 ? "" : "es");
}
