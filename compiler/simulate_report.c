/* In: a simulation. Out: what `ppc simulate` prints: step time and bubble, a line for each rank, the critical
 * path. A stretch of the path on one rank is one line for people; the JSON has every action of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/json.h"
#include "compiler/chart.h"
#include "compiler/simulate.h"
#include "compiler/tasks.h"

/* Sums of costs in two orders can differ in the last bit: a rank that never waits has no bubble. */
static double bubble_of(const Simulation *s, int r) { return fmax(0, s->timeline.step_time - s->ranks[r].work); }

static const char *const from_names[] = {"stated", "estimated", "measured"};

/* --- JSON --------------------------------------------------------------------------------------------- */

static json_t *number(double x) {
  return x == (double)(int64_t)x && x < 1e15 ? json_integer((json_int_t)x) : json_real(x);
}

/* A list where one was stated. */
static json_t *json_cost(const CostList *list, double otherwise) {
  if (list->n <= 1) return number(list->n ? list->at[0] : otherwise);
  json_t *all = json_array();
  for (int i = 0; i < list->n; i++) json_array_append_new(all, number(list->at[i]));
  return all;
}

static json_t *json_costs(const StatedCosts *costs) {
  json_t *o = json_object();
  for (int k = 0; k < COST_KEY_COUNT; k++) {
    bool derived = k == COST_BACKWARD || k == COST_PAIR;
    if (derived && costs->of[k].n == 0) continue; /* sums of the others */
    json_put(o, costs_key_name((CostKey)k), json_cost(&costs->of[k], k == COST_TRANSFER ? 0 : 1));
  }
  return o;
}

static json_t *json_rank(const Simulation *s, const SimulateView *view, int r) {
  const SimulateRank *rank = &s->ranks[r];
  json_t *o = json_object();
  json_put(o, "rank", json_integer(r));
  json_put(o, "actions", json_integer(rank->n_actions));
  json_put(o, "start", number(rank->start));
  json_put(o, "end", number(rank->end));
  json_put(o, "work", number(rank->work));
  json_put(o, "bubble", number(bubble_of(s, r)));
  json_put(o, "peak_live", json_integer(rank->peak_live));
  json_put(o, "peak_live_weight_held", json_integer(rank->peak_live_weight_held));
  if (!view->plan) return o;
  const PlanRank *planned = &view->plan->ranks[r];
  json_put(o, "peak_bytes", json_integer(planned->peak_bytes));
  json_put(o, "mapped_bytes", json_integer((json_int_t)(planned->arena_bytes + planned->window_bytes)));
  return o;
}

static json_t *json_task(const TimelineTask *t) {
  json_t *o = json_object();
  json_put(o, "rank", json_integer(t->rank));
  json_put(o, "kind", json_text(pp_task_kind_name(t->kind)));
  json_put(o, "stage", json_integer(t->stage));
  if (t->microbatch >= 0) json_put(o, "microbatch", json_integer(t->microbatch));
  json_put(o, "start", number(t->start));
  json_put(o, "end", number(t->end));
  if (t->line) json_put(o, "line", json_text(t->line));
  return o;
}

static json_t *json_tasks(const SimulateView *view) {
  json_t *all = json_array();
  for (int i = 0; i < view->plan->n_tasks; i++) {
    const PlanTask *task = &view->plan->tasks[i];
    json_t *o = json_object();
    json_put(o, "stage", json_integer(task->stage));
    json_put(o, "kind", json_text(pp_task_kind_name(task->kind)));
    json_put(o, "cost", number(view->costs->tasks[i]));
    json_array_append_new(all, o);
  }
  return all;
}

/* Of the model's products, by the first. */
static double rate_of(const SimulateView *view) {
  for (int i = 0; i < view->plan->n_tasks; i++) {
    const PlanTask *task = &view->plan->tasks[i];
    for (int k = 0; k < task->n_statements; k++) {
      const PlanStatement *s = &task->statements[k];
      if (s->flops) return machine_flops(&view->costs->machine, view->plan, task->buffers[s->in[0]].type.dtype);
    }
  }
  return machine_flops(&view->costs->machine, view->plan, PP_F32);
}

/* Of a model: where its costs come from, and each of them. */
static json_t *json_plan_costs(const SimulateView *view) {
  const PlanCosts *costs = view->costs;
  json_t *o = costs->from == COSTS_STATED ? json_costs(costs->stated) : json_object();
  json_put(o, "from", json_text(from_names[costs->from]));
  if (costs->from == COSTS_ESTIMATED) {
    json_put(o, "machine", json_text(costs->machine.name));
    json_put(o, "flops", number(rate_of(view)));
    json_put(o, "bandwidth", number(costs->machine.bandwidth));
    json_put(o, "link", number(costs->machine.link));
  }
  if (costs->from == COSTS_MEASURED) {
    json_put(o, "trace", json_text(costs->trace));
    json_put(o, "measured_step_time", number(costs->measured_step));
  }
  json_put(o, "tasks", json_tasks(view));
  return o;
}

void simulate_report_json(const Simulation *s, const SimulateView *view, Str *out) {
  const Timeline *t = &s->timeline;
  json_t *o = json_object(), *ranks = json_array(), *path = json_array();
  for (int r = 0; r < t->n_ranks; r++) json_array_append_new(ranks, json_rank(s, view, r));
  for (int i = 0; i < s->n_path; i++) json_array_append_new(path, json_task(&t->tasks[s->path[i]]));
  if (view->plan) json_put(o, "model", json_text(view->plan->model));
  json_put(o, "schedule", json_text(view->schedule));
  json_put(o, "n_ranks", json_integer(t->n_ranks));
  json_put(o, "stages", json_integer(t->n_stages));
  json_put(o, "microbatches", json_integer(t->n_microbatches));
  if (view->verdict) {
    json_put(o, "verdict", json_text(view->verdict));
    json_put(o, "transfers", json_integer(view->n_transfers));
  }
  json_put(o, "costs", view->plan ? json_plan_costs(view) : json_costs(view->stated));
  if (t->in_seconds) json_put(o, "unit", json_text("seconds"));
  json_put(o, "step_time", number(t->step_time));
  json_put(o, "bubble", number(t->bubble));
  json_put(o, "bubble_rate", number(t->bubble_rate));
  json_put(o, "ranks", ranks);
  json_put(o, "critical_path", path);
  /* 15 digits: 18.522 stays 18.522. */
  json_print(out, o, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15));
}

/* --- text --------------------------------------------------------------------------------------------- */

/* How times of a step are shown: those of a model in the unit that fits the step, stated ones as they are. */
typedef struct {
  double unit;
  const char *name;
} Unit;

static Unit unit_of(const Timeline *t) {
  if (!t->in_seconds) return (Unit){1, ""};
  if (t->step_time >= 1) return (Unit){1, " s"};
  return t->step_time >= 1e-3 ? (Unit){1e-3, " ms"} : (Unit){1e-6, " µs"};
}

/* Four digits of seconds, for they are predicted; none of it has an exponent as long as it fits a column. */
static const char *show_time(const Timeline *t, double time, char text[32]) {
  double x = time / unit_of(t).unit;
  double many = t->in_seconds ? 1e4 : 1e6;
  snprintf(text, 32, x >= many && x < 1e11 ? "%.0f" : t->in_seconds ? "%.4g" : "%.6g", x);
  return text;
}

static void put_step(const Timeline *t, Str *out) {
  char step[32], bubble[32];
  const char *unit = unit_of(t).name;
  str_printf(out, "step %s%s, bubble %s%s: %.2f%% of the step\n", show_time(t, t->step_time, step), unit,
             show_time(t, t->bubble, bubble), unit, 100 * t->bubble_rate);
}

static void put_costs(const Timeline *t, const SimulateView *view, Str *out) {
  char time[32];
  if (!view->plan || view->costs->from == COSTS_STATED) return;
  const Machine *m = &view->costs->machine;
  if (view->costs->from == COSTS_MEASURED)
    str_printf(out, "costs: measured, %s (its median step took %s%s)\n", view->costs->trace,
               show_time(t, view->costs->measured_step, time), unit_of(t).name);
  else
    str_printf(out, "costs: estimated%s%s at %.6g Gflop/s, %.4g GB/s, %.4g GB/s between ranks (--costs=TRACE has measured ones)\n",
               view->plan->target == PP_TARGET_CUDA ? " for " : "", view->plan->target == PP_TARGET_CUDA ? m->name : "", rate_of(view) / 1e9,
               m->bandwidth / 1e9, m->link / 1e9);
}

/* Of the column with the ranks. */
static int label_width(const Timeline *t) {
  enum { LEAST = 8 };
  int n = snprintf(NULL, 0, "rank %d", t->n_ranks - 1);
  return n > LEAST ? n : LEAST;
}

static void put_head(const Timeline *t, Str *out) {
  const char *unit = unit_of(t).name;
  int width = 12 + (strstr(unit, "µ") ? 1 : 0); /* two bytes, one column */
  char work[32], bubble[32];
  snprintf(work, sizeof work, "work%s%s", *unit ? "," : "", unit);
  snprintf(bubble, sizeof bubble, "bubble%s%s", *unit ? "," : "", unit);
  str_printf(out, "\n%*s %9s %*s %*s %8s %10s %12s", label_width(t), "", "actions", width, work, width, bubble, "of step", "peak live", "weight held");
}

static void put_ranks(const Simulation *s, const SimulateView *view, Str *out) {
  const Timeline *t = &s->timeline;
  int label = label_width(t);
  char work[32], idle[32];
  put_head(t, out);
  str_puts(out, view->plan ? "      peak bytes\n" : "\n");
  for (int r = 0; r < t->n_ranks; r++) {
    const SimulateRank *rank = &s->ranks[r];
    double bubble = bubble_of(s, r);
    str_printf(out, "rank %-*d %9d %12s %12s %7.2f%% %10d %12d", label - 5, r, rank->n_actions, show_time(t, rank->work, work),
               show_time(t, bubble, idle), t->step_time > 0 ? 100 * bubble / t->step_time : 0, rank->peak_live, rank->peak_live_weight_held);
    if (view->plan) str_put_grouped(out, view->plan->ranks[r].peak_bytes, 16);
    str_puts(out, "\n");
  }
}

static void put_action(const TimelineTask *t, Str *out) {
  if (t->microbatch >= 0) str_printf(out, "%s(%d, %d)", pp_task_kind_name(t->kind), t->stage, t->microbatch);
  else str_printf(out, "%s(%d)", pp_task_kind_name(t->kind), t->stage);
}

/* Tasks that follow one another on a rank, in one line: by kind how many, the first, the last. */
static void put_stretch(const Simulation *s, int begin, int end, Str *out) {
  const Timeline *t = &s->timeline;
  const TimelineTask *a = &t->tasks[s->path[begin]], *b = &t->tasks[s->path[end - 1]];
  char start[32], finish[32];
  str_printf(out, "%12s … %-12s rank %-3d ", show_time(t, a->start, start), show_time(t, b->end, finish), a->rank);
  put_action(a, out);
  if (end - begin == 2) str_puts(out, ", ");
  if (end - begin > 2) str_printf(out, ", %d more, ", end - begin - 2);
  if (end - begin > 1) put_action(b, out);
  if (a->line && a->microbatch >= 0) str_printf(out, "  %s", a->line);
  bool elsewhere = a->line && b->line && b->microbatch >= 0 && strcmp(a->line, b->line) != 0;
  if (elsewhere) str_printf(out, " … %s", b->line);
  str_puts(out, "\n");
}

static void put_path(const Simulation *s, Str *out) {
  enum { MANY = 40 };
  const TimelineTask *tasks = s->timeline.tasks;
  int shown_lines = 0, hidden = 0;
  const char *unit = unit_of(&s->timeline).name;
  str_printf(out, "\ncritical path%s%s:\n", *unit ? " in" : "", unit);
  for (int begin = 0, end; begin < s->n_path; begin = end) {
    for (end = begin + 1; end < s->n_path; end++)
      if (tasks[s->path[end]].rank != tasks[s->path[begin]].rank) break;
    if (shown_lines++ < MANY) put_stretch(s, begin, end, out);
    else hidden++;
  }
  if (hidden) str_printf(out, "  and %d more stretches\n", hidden);
}

void simulate_report_text(const Simulation *s, const SimulateView *view, Str *out) {
  const Timeline *t = &s->timeline;
  str_printf(out, "%s\n", t->title);
  put_step(t, out);
  put_costs(t, view, out);
  str_puts(out, "\n");
  chart_print(t, view->columns, view->color, out);
  put_ranks(s, view, out);
  put_path(s, out);
}

void simulate_report_check(const Simulation *s, const SimulateView *view, Str *out) {
  const Timeline *t = &s->timeline;
  str_printf(out, "%s\n%d actions, complete and in order; %d transfers when the stages form a chain\n", t->title, t->n_tasks,
             view->n_transfers);
  put_step(t, out);
  put_ranks(s, view, out);
  str_puts(out, "\nprogress: proved. No rank can wait for ever, even when sends complete only with their receives.\n");
}
