/* The passes as straight calls. In: a path and the options. Out: the IR after the last pass that was
 * asked for, or the plan. Each pass runs under its name, so that a fault of ppc says where it was. */
#include "compiler/driver/pipeline.h"

#include <string.h>

#include "dsl/load.h"

const char *const pipeline_passes[] = {"elaborate", "simplify", "autodiff", "stages", "epilogues", "split", "schedule",
                                       "transfers", "fuse",     "memory",   "progress", "events", NULL};

typedef struct {
  Pipeline *p;
  bool verify, failed;
  const char *last;
} Run;

static void enter(Run *run, const char *pass) {
  bug_set_pass(pass);
  diag_start_phase(run->p->diag);
}

/* True when the next pass is to run. */
static bool leave(Run *run, const char *pass, bool passed) {
  Pipeline *p = run->p;
  if (passed && run->verify && !ir_verify(p->ir)) bug("pass %s left IR that does not verify", pass);
  if (!passed && diag_error_count(p->diag) == 0) bug("pass %s failed without an error", pass);
  run->failed = !passed || diag_error_count(p->diag) > 0;
  bug_set_pass(NULL);
  if (run->failed) return false;
  p->last_pass = pass;
  return !run->last || strcmp(run->last, pass) != 0;
}

#define PASS(name, call)                          \
  do {                                            \
    enter(run, name);                             \
    bool passed = (call);                         \
    if (!leave(run, name, passed)) return;        \
  } while (0)

/* A dump is of IR, so what the pass has found is written there, too. */
static bool run_events(Run *run, Plan *plan) {
  Pipeline *p = run->p;
  p->plan = plan;
  if (p->without_events && !run->verify) return true;
  events_run(plan);
  const char *clash = run->verify ? events_check(plan, p->arena) : NULL;
  if (clash) bug("%s", clash);
  if (run->last) events_annotate(p->ir, plan);
  return true;
}

static void run_passes(Run *run, const DslProgram *text, const CompileOptions *options) {
  Pipeline *p = run->p;
  Ir *ir = p->ir;
  PASS("elaborate", (p->program = elaborate_run(ir, text, options)) != NULL);
  PASS("simplify", simplify_run(ir));
  PASS("autodiff", autodiff_run(ir));
  PASS("stages", stages_run(ir));
  PASS("epilogues", epilogues_run(ir, !options->no_epilogues));
  PASS("split", split_run(ir));
  PASS("schedule", schedule_run(ir, p->program));
  PASS("transfers", transfers_run(ir));
  PASS("fuse", fuse_run(ir, !options->no_fuse));
  PASS("memory", memory_run(ir) && (!options->memory || memory_check_limit(ir, options->memory)));
  PASS("progress", progress_run(ir));
  Plan *plan = NULL;
  PASS("plan", (run->verify || ir_verify(ir)) && (plan = plan_build(ir, p->arena, options)) != NULL);
  PASS("events", run_events(run, plan));
}

static bool run_loaded(Pipeline *p, const DslProgram *text, const CompileOptions *options, const char *last) {
  Run run = {.p = p, .verify = options->verify, .last = last};
  if (!text || diag_error_count(p->diag) > 0) return false;
  p->ir = ir_create(p->arena, p->diag);
  run_passes(&run, text, options);
  return !run.failed;
}

bool pipeline_run(Pipeline *p, const char *path, const CompileOptions *options, const char *last) {
  bug_set_pass("parse");
  diag_start_phase(p->diag);
  return run_loaded(p, dsl_load(p->arena, p->diag, path), options, last);
}

bool pipeline_run_text(Pipeline *p, const char *name, const char *text, const CompileOptions *options, const char *last) {
  bug_set_pass("parse");
  diag_start_phase(p->diag);
  return run_loaded(p, dsl_load_text(p->arena, p->diag, name, text), options, last);
}

void pipeline_destroy(Pipeline *p) {
  ir_destroy(p->ir);
  p->ir = NULL;
  p->program = NULL;
}
