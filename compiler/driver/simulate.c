/* The command `simulate`: of a model through its plan, of a schedule alone as a chain of stages. In: the options.
 * Out: the report. Costs are stated, measured, else estimated. */
#include "compiler/simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "compiler/driver/bare.h"
#include "compiler/driver/pictures.h"
#include "compiler/driver/pipeline.h"
#include "compiler/driver/simulate.h"

typedef struct {
  Arena *arena;
  Diag *diag;
  const Options *options;
  SimulateView view;
  const Trace *trace; /* of --costs; null: costs aren't measured */
} Run;

/* --- how it is shown ------------------------------------------------------------------------------------- */

static int terminal_columns(void) {
  enum { OTHERWISE = 100 };
  struct winsize size;
  if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char *columns = getenv("COLUMNS");
  int n = columns ? atoi(columns) : 0;
  return n >= 20 && n <= 1000 ? n : OTHERWISE;
}

static int show(const Run *c, const Simulation *s) {
  Str out = {0};
  if (c->options->json) simulate_report_json(s, &c->view, &out);
  else simulate_report_text(s, &c->view, &out);
  fwrite(str_text(&out), 1, out.length, stdout);
  str_free(&out);
  return STATUS_FINE;
}

/* --- of a schedule ---------------------------------------------------------------------------------------- */

static bool check_costs(const Run *c, int n_stages) {
  const char *error = costs_check_stages(c->arena, &c->options->costs, n_stages);
  if (error) diag_error(c->diag, (Loc){0}, "%s", error);
  return !error;
}

/* Null after errors. */
static const SimulateJob *read_schedule(Run *c) {
  Bare b;
  const StatedCosts *costs = &c->options->costs;
  if (!bare_read(c->arena, c->diag, c->options, &b) || !check_costs(c, b.job.n_stages)) return NULL;
  c->view.schedule = b.name;
  c->view.stated = costs;
  return simulate_chain(c->arena, &b.actions, &b.index, &b.job, costs, bare_title(c->arena, b.name, &b.job));
}

static const Simulation *simulate_schedule(Run *c) {
  const SimulateJob *job = read_schedule(c);
  return job ? simulate_run(c->arena, c->diag, job) : NULL;
}

/* --- of a model ------------------------------------------------------------------------------------------- */

static const PlanCosts *measured_costs(Run *c, const Plan *plan, Machine machine) {
  Str error = {0};
  const char *name = c->options->trace_costs;
  const PlanCosts *costs = NULL;
  c->trace = pictures_read_trace(c->arena, c->diag, name, &error);
  const TraceCosts *measured = c->trace ? trace_costs(c->arena, c->trace) : NULL;
  if (measured) costs = plan_costs_measured(c->arena, plan, measured, name, machine, &error);
  if (costs && strcmp(measured->model, plan->model) != 0)
    diag_warning(c->diag, (Loc){0}, "%s is a trace of %s, not of %s", name, measured->model, plan->model);
  if (costs && measured->microbatch != plan->microbatch)
    diag_warning(c->diag, (Loc){0}, "%s is a trace of microbatches of %d, not of %d: its tasks cost something else", name,
                 measured->microbatch, plan->microbatch);
  if (!costs) diag_error(c->diag, (Loc){0}, "%s", str_text(&error));
  str_free(&error);
  return costs;
}

/* As the target has it, but for what is stated. */
static Machine machine_of(const Options *o) {
  Machine m = machine_core();
  if (o->compile.target == PP_TARGET_CUDA && !machine_find_gpu(o->gpu, &m)) bug("the options let '%s' pass", o->gpu);
  for (int k = 0; o->flops > 0 && k < MACHINE_RATES; k++) m.flops[k] = o->flops;
  if (o->bandwidth > 0) m.bandwidth = o->bandwidth;
  if (o->link > 0) m.link = o->link;
  return m;
}

static const PlanCosts *choose_costs(Run *c, const Plan *plan) {
  const Options *o = c->options;
  Machine machine = machine_of(o);
  if (o->trace_costs) return measured_costs(c, plan, machine);
  if (!o->has_costs) return plan_costs_estimated(c->arena, plan, machine);
  return check_costs(c, plan->n_stages) ? plan_costs_stated(c->arena, plan, &o->costs) : NULL;
}

static const Simulation *simulate_proved(Arena *arena, Diag *diag, const Plan *plan, const PlanCosts *costs, const char *title) {
  const Simulation *s = simulate_run(arena, diag, simulate_plan(arena, plan, costs, title));
  if (!s) bug("the simulator finds a deadlock in a plan that was proved");
  return s;
}

static const Simulation *simulate_model(Run *c) {
  Pipeline p = {.arena = c->arena, .diag = c->diag, .without_events = true};
  if (bare_refuse_options(c->diag, c->options)) return NULL;
  bool fine = pipeline_run(&p, c->options->files.at[0], &c->options->compile, NULL);
  pipeline_destroy(&p);
  if (!fine) return NULL;
  c->view.plan = p.plan;
  c->view.schedule = c->options->compile.schedule ? c->options->compile.schedule : p.plan->schedule;
  c->view.costs = choose_costs(c, p.plan);
  if (!c->view.costs) return NULL;
  ScheduleJob job = {.n_ranks = p.plan->n_ranks, .n_stages = p.plan->n_stages, .n_microbatches = p.plan->n_microbatches};
  const char *title = arena_printf(c->arena, "%s: %s", p.plan->model, bare_title(c->arena, c->view.schedule, &job));
  return simulate_proved(c->arena, c->diag, p.plan, c->view.costs, title);
}

ReportEstimate simulate_estimate(Arena *arena, Diag *diag, const Options *options, const Plan *plan) {
  const PlanCosts *costs = plan_costs_estimated(arena, plan, machine_of(options));
  const Timeline *t = &simulate_proved(arena, diag, plan, costs, plan->model)->timeline;
  return (ReportEstimate){.step_time = t->step_time, .bubble_rate = t->bubble_rate};
}

/* --- entries ---------------------------------------------------------------------------------------------- */

int simulate_command(Arena *arena, Diag *diag, const Options *options) {
  Run c = {.arena = arena, .diag = diag, .options = options};
  c.view.columns = terminal_columns();
  c.view.color = options_want_color(options, STDOUT_FILENO);
  const Simulation *s = bare_is_wanted(options) ? simulate_schedule(&c) : simulate_model(&c);
  diag_flush(diag);
  if (!s || !pictures_write(arena, diag, options, &s->timeline, c.trace)) return STATUS_INPUT;
  return show(&c, s);
}

int simulate_check_schedule(Arena *arena, Diag *diag, const Options *options) {
  Run c = {.arena = arena, .diag = diag, .options = options, .view = {.verdict = "proved"}};
  const SimulateJob *job = read_schedule(&c);
  const Simulation *s = job ? simulate_run(arena, diag, job) : NULL;
  if (s) c.view.n_transfers = simulate_prove(arena, job, s);
  diag_flush(diag);
  if (!s) return STATUS_INPUT;
  if (c.view.n_transfers < 0) bug("the simulator's order is no proof of progress");
  Str out = {0};
  if (options->json) simulate_report_json(s, &c.view, &out);
  else simulate_report_check(s, &c.view, &out);
  fwrite(str_text(&out), 1, out.length, stdout);
  str_free(&out);
  return STATUS_FINE;
}
