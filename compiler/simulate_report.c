/* In: a simulation. Out: what `ppc simulate` prints: step time and bubble, a line for each rank, the critical
 * path. Neighbours on the path that are of one kind, stage and rank are one line for people; the JSON has all. */
#include <jansson.h>
#include <stdlib.h>

#include "compiler/base/diag.h"
#include "compiler/simulate.h"
#include "compiler/tasks.h"

/* --- JSON --------------------------------------------------------------------------------------------- */

static void set(json_t *object, const char *key, json_t *value) {
  if (!value || json_object_set_new(object, key, value) != 0) bug("simulate: '%s'", key);
}

/* What is no UTF-8 in it is shown as '?'. */
static json_t *text(const char *s) {
  json_t *j = json_string(s);
  if (j) return j;
  Str clean = {0};
  for (; *s; s++) str_putc(&clean, (unsigned char)*s < 0x80 ? *s : '?');
  j = json_string(str_text(&clean));
  str_free(&clean);
  return j;
}

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
    set(o, costs_key_name((CostKey)k), json_cost(&costs->of[k], k == COST_TRANSFER ? 0 : 1));
  }
  return o;
}

static json_t *json_rank(const Simulation *s, int r) {
  const SimulateRank *rank = &s->ranks[r];
  json_t *o = json_object();
  set(o, "rank", json_integer(r));
  set(o, "actions", json_integer(rank->n_actions));
  set(o, "start", number(rank->start));
  set(o, "end", number(rank->end));
  set(o, "work", number(rank->work));
  set(o, "bubble", number(s->timeline.step_time - rank->work));
  set(o, "peak_live", json_integer(rank->peak_live));
  set(o, "peak_live_weight_held", json_integer(rank->peak_live_weight_held));
  return o;
}

static json_t *json_task(const TimelineTask *t) {
  json_t *o = json_object();
  set(o, "rank", json_integer(t->rank));
  set(o, "kind", text(tasks_kind_name(t->kind)));
  set(o, "stage", json_integer(t->stage));
  if (t->microbatch >= 0) set(o, "microbatch", json_integer(t->microbatch));
  set(o, "start", number(t->start));
  set(o, "end", number(t->end));
  if (t->line) set(o, "line", text(t->line));
  return o;
}

void simulate_report_json(const Simulation *s, const StatedCosts *costs, const char *schedule, Str *out) {
  const Timeline *t = &s->timeline;
  json_t *o = json_object(), *ranks = json_array(), *path = json_array();
  for (int r = 0; r < t->n_ranks; r++) json_array_append_new(ranks, json_rank(s, r));
  for (int i = 0; i < s->n_path; i++) json_array_append_new(path, json_task(&t->tasks[s->path[i]]));
  set(o, "schedule", text(schedule));
  set(o, "n_ranks", json_integer(t->n_ranks));
  set(o, "stages", json_integer(t->n_stages));
  set(o, "microbatches", json_integer(t->n_microbatches));
  set(o, "costs", json_costs(costs));
  set(o, "step_time", number(t->step_time));
  set(o, "bubble", number(t->bubble));
  set(o, "bubble_rate", number(t->bubble_rate));
  set(o, "ranks", ranks);
  set(o, "critical_path", path);
  char *dump = json_dumps(o, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
  json_decref(o);
  if (!dump) bug("simulate: JSON");
  str_puts(out, dump);
  str_putc(out, '\n');
  free(dump);
}

/* --- text --------------------------------------------------------------------------------------------- */

static void put_ranks(const Simulation *s, Str *out) {
  str_printf(out, "\n%8s %9s %12s %12s %8s %10s %12s\n", "", "actions", "work", "bubble", "of step", "peak live",
             "weight held");
  for (int r = 0; r < s->timeline.n_ranks; r++) {
    const SimulateRank *rank = &s->ranks[r];
    double step = s->timeline.step_time, bubble = step - rank->work;
    str_printf(out, "rank %-3d %9d %12.6g %12.6g %7.2f%% %10d %12d\n", r, rank->n_actions, rank->work, bubble,
               step > 0 ? 100 * bubble / step : 0, rank->peak_live, rank->peak_live_weight_held);
  }
}

static void put_stretch(const Simulation *s, int begin, int end, Str *out) {
  const TimelineTask *a = &s->timeline.tasks[s->path[begin]], *b = &s->timeline.tasks[s->path[end - 1]];
  str_printf(out, "%12.6g %12.6g  rank %-3d %s(%d, %d", a->start, b->end, a->rank, tasks_kind_name(a->kind), a->stage,
             a->microbatch);
  if (end - begin == 1) str_puts(out, ")");
  else str_printf(out, ") … (%d, %d)", b->stage, b->microbatch);
  if (a->line) str_printf(out, "  %s", a->line);
  str_puts(out, "\n");
}

static void put_path(const Simulation *s, Str *out) {
  enum { MANY = 40 };
  const TimelineTask *tasks = s->timeline.tasks;
  int shown = 0, hidden = 0;
  str_puts(out, "\ncritical path:\n");
  for (int begin = 0, end; begin < s->n_path; begin = end) {
    const TimelineTask *a = &tasks[s->path[begin]];
    for (end = begin + 1; end < s->n_path; end++) {
      const TimelineTask *b = &tasks[s->path[end]];
      if (b->rank != a->rank || b->kind != a->kind || b->stage != a->stage) break;
    }
    if (shown++ < MANY) put_stretch(s, begin, end, out);
    else hidden++;
  }
  if (hidden) str_printf(out, "  and %d more stretches\n", hidden);
}

void simulate_report_text(const Simulation *s, const StatedCosts *costs, Str *out) {
  const Timeline *t = &s->timeline;
  (void)costs;
  str_printf(out, "%s\nstep %.6g, bubble %.6g: %.2f%% of the step\n", t->title, t->step_time, t->bubble,
             100 * t->bubble_rate);
  put_ranks(s, out);
  put_path(s, out);
}
