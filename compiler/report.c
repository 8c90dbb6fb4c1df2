/* In: the plan. Out: the report of `ppc check`: what the model is, the exact bytes that each rank maps
 * and of which class they are when the arena is fullest, the transfers of a step, the verdict. All
 * numbers are those of the emitted programs; a parameter is counted once, its copies as bytes of ranks. */
#include "compiler/report.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/base/diag.h"
#include "compiler/base/json.h"
#include "compiler/base/vec.h"

static const char *const class_names[] = {"parameters", "gradients", "optimizer", "stashes", "transfers", "workspace"};
_Static_assert(sizeof class_names / sizeof *class_names == PP_CLASS_COUNT, "one name per class");

static int64_t parameter_count(const Plan *plan, bool trainable_only) {
  int64_t n = 0;
  for (int i = 0; i < plan->n_parameters; i++)
    if (!trainable_only || plan->parameters[i].trainable) n += plan_elements(&plan->parameters[i].type);
  return n;
}

static int64_t loop_flops(const Plan *plan) {
  int64_t flops = 0;
  for (int i = 0; i < plan->n_tasks; i++) {
    pp_task_kind kind = plan->tasks[i].kind;
    if (kind == PP_FWD || kind == PP_BWD) flops += plan->tasks[i].flops;
  }
  return flops * plan->n_microbatches;
}

static int64_t mapped_bytes(const PlanRank *r) { return (int64_t)(r->arena_bytes + r->window_bytes); }

/* --- transfers, summed over microbatches --------------------------------------------------------------- */

typedef struct {
  int value, from, to, n;
  int64_t bytes; /* of one */
  const char *name;
} Route;

static int by_route(const void *px, const void *py) {
  const Route *x = px, *y = py;
  if (x->from != y->from) return x->from - y->from;
  if (x->to != y->to) return x->to - y->to;
  return x->value - y->value;
}

/* Values of one name (layers of one module) are one line for people. */
static int by_name(const void *px, const void *py) {
  const Route *x = px, *y = py;
  if (x->from != y->from) return x->from - y->from;
  if (x->to != y->to) return x->to - y->to;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int merge_routes(Route *routes, int n, int (*compare)(const void *, const void *)) {
  int kept = 0;
  if (n) qsort(routes, (size_t)n, sizeof *routes, compare);
  for (int i = 0; i < n; i++) {
    if (kept && compare(&routes[kept - 1], &routes[i]) == 0) routes[kept - 1].n += routes[i].n;
    else routes[kept++] = routes[i];
  }
  return kept;
}

/* One entry per route, sorted; the caller frees it. Microbatches are counted together first: a value goes
 * to few ranks. */
static Route *sum_routes(const Plan *plan, int (*compare)(const void *, const void *), int *out_n) {
  int *newest = calloc((size_t)plan->n_values + 1, sizeof *newest); /* route of a value + 1; `older` goes on */
  int *older = calloc((size_t)plan->n_transfers + 1, sizeof *older);
  Route *routes = calloc((size_t)plan->n_transfers + 1, sizeof *routes);
  if (!newest || !older || !routes) bug("out of memory");
  int n = 0;
  for (int i = 0; i < plan->n_transfers; i++) {
    const PlanTransfer *t = &plan->transfers[i];
    int at = newest[t->value];
    while (at && (routes[at - 1].from != t->from || routes[at - 1].to != t->to)) at = older[at - 1];
    if (at) {
      routes[at - 1].n++;
      continue;
    }
    routes[n] = (Route){t->value, t->from, t->to, 1, t->size_bytes, plan->values[t->value]};
    older[n] = newest[t->value];
    newest[t->value] = ++n;
  }
  free(newest);
  free(older);
  *out_n = merge_routes(routes, n, compare);
  return routes;
}

/* --- text ---------------------------------------------------------------------------------------------- */

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

static void put_head(const Plan *plan, Str *out) {
  str_printf(out, "%s: ", plan->model);
  str_put_grouped(out, parameter_count(plan, false), 0);
  str_printf(out, " parameter%s in %d tensor%s (%s), %d stage%s on %d rank%s", plural(parameter_count(plan, false)),
             plan->n_parameters, plural(plan->n_parameters), pp_dtype_name(plan->dtype), plan->n_stages,
             plural(plan->n_stages), plan->n_ranks, plural(plan->n_ranks));
  if (plan->generate) {
    str_printf(out, ", forward only\n");
    return;
  }
  int64_t samples = (int64_t)plan->microbatch * plan->n_microbatches;
  str_printf(out, "\nschedule %s, %d microbatch%s of %d, %lld step%s of %lld sample%s", plan->schedule,
             plan->n_microbatches, plan->n_microbatches == 1 ? "" : "es", plan->microbatch, (long long)plan->steps,
             plural(plan->steps), (long long)samples, plural(samples));
  if (plan->tokens_per_step > 0) {
    str_puts(out, ", ");
    str_put_grouped(out, plan->tokens_per_step, 0);
    str_puts(out, " tokens");
  }
  str_puts(out, "\n");
  if (parameter_count(plan, true) != parameter_count(plan, false)) {
    str_put_grouped(out, parameter_count(plan, true), 0);
    str_puts(out, " of the parameters are trained\n");
  }
}

static void put_stages(const Plan *plan, const PlanRank *r, Str *out) {
  const char *separator = " ";
  int shown = 0, hidden = 0;
  for (int s = 0; s < plan->n_stages_; s++) {
    if (plan->stages[s].rank != r->rank) continue;
    if (shown++ >= 8) {
      hidden++;
      continue;
    }
    str_printf(out, "%s%d", separator, s);
    separator = ", ";
  }
  if (hidden) str_printf(out, " and %d more", hidden);
}

static void put_memory(const Plan *plan, Str *out) {
  enum { WIDTH = 16 };
  str_puts(out, "\nbytes   ");
  for (int c = 0; c < PP_CLASS_COUNT; c++) str_printf(out, "%*s", WIDTH, class_names[c]);
  str_printf(out, "%*s%*s\n", WIDTH, "mapped", WIDTH, "of it shared");
  for (int i = 0; i < plan->n_ranks; i++) {
    const PlanRank *r = &plan->ranks[i];
    str_printf(out, "rank %-3d", r->rank);
    for (int c = 0; c < PP_CLASS_COUNT; c++) str_put_grouped(out, r->class_bytes[c], WIDTH);
    str_put_grouped(out, mapped_bytes(r), WIDTH);
    str_put_grouped(out, (int64_t)r->window_bytes, WIDTH);
    str_puts(out, "\n");
  }
}

/* CUDA: what lies behind arena and window. */
static void put_device(const Plan *plan, Str *out) {
  enum { WIDTH = 16 };
  if (plan->target != PP_TARGET_CUDA) return;
  str_printf(out, "\non the device%*s%*s%*s%*s\n", WIDTH, "mapped", WIDTH, "products", WIDTH, "partial sums", WIDTH, "allocated");
  for (int i = 0; i < plan->n_ranks; i++) {
    const PlanRank *r = &plan->ranks[i];
    str_printf(out, "rank %-8d", r->rank);
    str_put_grouped(out, mapped_bytes(r), WIDTH);
    str_put_grouped(out, (plan->scratch_bytes - plan->partial_bytes) * r->n_streams, WIDTH);
    str_put_grouped(out, plan->partial_bytes * r->n_streams, WIDTH);
    str_put_grouped(out, plan_device_bytes(plan, r), WIDTH);
    str_printf(out, "%s\n", r->n_streams > 1 ? "  two compute streams" : "");
  }
}

static void put_peaks(const Plan *plan, Str *out) {
  str_puts(out, "\n");
  for (int i = 0; i < plan->n_ranks; i++) {
    const PlanRank *r = &plan->ranks[i];
    str_printf(out, "rank %d runs stage", r->rank);
    put_stages(plan, r, out);
    str_printf(out, ": %d actions a step", r->n_actions);
    if (r->n_actions && r->peak_action < r->n_actions) {
      const PlanAction *a = &r->actions[r->peak_action];
      const PlanTask *task = &plan->tasks[a->task];
      if (a->microbatch >= 0)
        str_printf(out, ", fullest in %s(%d, %d)", pp_task_kind_name(task->kind), task->stage, a->microbatch);
      else
        str_printf(out, ", fullest in %s(%d)", pp_task_kind_name(task->kind), task->stage);
      if (a->line && a->microbatch >= 0) str_printf(out, " (%s)", a->line);
      str_puts(out, ": ");
      str_put_grouped(out, r->peak_bytes, 0);
      str_puts(out, " bytes");
    }
    str_puts(out, "\n");
  }
}

static void put_transfers(const Plan *plan, Str *out) {
  int n = 0;
  Route *routes = sum_routes(plan, by_name, &n);
  int64_t total = 0;
  for (int i = 0; i < n; i++) total += routes[i].n * routes[i].bytes;
  str_printf(out, "\n%d transfer%s a step, ", plan->n_transfers, plan->n_transfers == 1 ? "" : "s");
  str_put_grouped(out, total, 0);
  str_puts(out, " bytes\n");
  enum { MANY = 40 };
  for (int i = 0; i < n && i < MANY; i++) {
    str_printf(out, "  rank %d to %d: %4d × ", routes[i].from, routes[i].to, routes[i].n);
    str_put_grouped(out, routes[i].bytes, 12);
    str_printf(out, "  %s\n", routes[i].name);
  }
  if (n > MANY) str_printf(out, "  and %d more kinds\n", n - MANY);
  free(routes);
}

void report_text(const Plan *plan, const ReportEstimate *estimate, Str *out) {
  put_head(plan, out);
  put_memory(plan, out);
  put_device(plan, out);
  put_peaks(plan, out);
  if (plan->n_transfers) put_transfers(plan, out);
  str_putc(out, '\n');
  if (estimate) str_printf(out, "bubble: %.2f%% of a step, by estimated costs; ppc simulate shows where.\n", 100 * estimate->bubble_rate);
  str_puts(out, "progress: proved. No rank can wait for ever, even when sends complete only with their receives.\n");
}

/* --- JSON ---------------------------------------------------------------------------------------------- */

/* Ranks of more actions than these don't list them. */
enum { MANY_ACTIONS = 10000 };

static json_t *json_live(const PlanRank *r) {
  json_t *all = json_array();
  for (int i = 0; i < r->n_actions; i++) json_array_append_new(all, json_integer(r->live_bytes[i]));
  return all;
}

static json_t *json_ranks(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_ranks; i++) {
    const PlanRank *r = &plan->ranks[i];
    json_t *o = json_object(), *classes = json_object(), *stages = json_array();
    for (int c = 0; c < PP_CLASS_COUNT; c++) json_put(classes, class_names[c], json_integer(r->class_bytes[c]));
    for (int s = 0; s < plan->n_stages_; s++)
      if (plan->stages[s].rank == r->rank) json_array_append_new(stages, json_integer(s));
    json_put(o, "rank", json_integer(r->rank));
    json_put(o, "stages", stages);
    json_put(o, "actions", json_integer(r->n_actions));
    json_put(o, "bytes", classes);
    json_put(o, "arena_bytes", json_integer((json_int_t)r->arena_bytes));
    json_put(o, "window_bytes", json_integer((json_int_t)r->window_bytes));
    json_put(o, "mapped_bytes", json_integer(mapped_bytes(r)));
    if (plan->scratch_bytes) {
      json_put(o, "compute_streams", json_integer(r->n_streams));
      json_put(o, "scratch_bytes", json_integer(plan_scratch_bytes(plan, r)));
      json_put(o, "device_bytes", json_integer(plan_device_bytes(plan, r)));
    }
    json_put(o, "peak_action", json_integer(r->peak_action));
    json_put(o, "peak_bytes", json_integer(r->peak_bytes));
    json_put(o, "stash_bytes", json_integer(r->stash_bytes));
    if (r->n_actions <= MANY_ACTIONS) json_put(o, "live_bytes", json_live(r));
    json_array_append_new(all, o);
  }
  return all;
}

static json_t *json_transfers(const Plan *plan) {
  int n = 0;
  Route *routes = sum_routes(plan, by_route, &n);
  int64_t total = 0;
  json_t *o = json_object(), *values = json_array();
  for (int i = 0; i < n; i++) {
    json_t *v = json_object();
    total += routes[i].n * routes[i].bytes;
    json_put(v, "value", json_text(plan->values[routes[i].value]));
    json_put(v, "id", json_integer(routes[i].value));
    json_put(v, "from", json_integer(routes[i].from));
    json_put(v, "to", json_integer(routes[i].to));
    json_put(v, "count", json_integer(routes[i].n));
    json_put(v, "size_bytes", json_integer(routes[i].bytes));
    json_array_append_new(values, v);
  }
  free(routes);
  json_put(o, "count", json_integer(plan->n_transfers));
  json_put(o, "bytes", json_integer(total));
  json_put(o, "values", values);
  return o;
}

static json_t *json_stages(const Plan *plan) {
  json_t *all = json_array();
  for (int s = 0; s < plan->n_stages_; s++) {
    const PlanStage *stage = &plan->stages[s];
    json_t *o = json_object();
    json_put(o, "stage", json_integer(s));
    json_put(o, "rank", json_integer(stage->rank));
    json_put(o, "frame_bytes", json_integer(stage->frame_bytes));
    json_put(o, "weight_frame_bytes", json_integer(stage->weight_frame_bytes));
    json_put(o, "stash_bytes", json_integer(stage->stash_bytes));
    json_put(o, "weight_stash_bytes", json_integer(stage->weight_stash_bytes));
    json_put(o, "first_line", json_text(stage->first_line ? stage->first_line : ""));
    json_put(o, "last_line", json_text(stage->last_line ? stage->last_line : ""));
    json_array_append_new(all, o);
  }
  return all;
}

void report_json(const Plan *plan, const ReportEstimate *estimate, Str *out) {
  json_t *o = json_object();
  json_put(o, "model", json_text(plan->model));
  json_put(o, "schedule", json_text(plan->schedule));
  if (plan->target == PP_TARGET_CUDA) json_put(o, "target", json_text("cuda"));
  json_put(o, "dtype", json_text(pp_dtype_name(plan->dtype)));
  json_put(o, "verdict", json_text("proved"));
  json_put(o, "parameters", json_integer(parameter_count(plan, false)));
  json_put(o, "trained_parameters", json_integer(parameter_count(plan, true)));
  json_put(o, "tensors", json_integer(plan->n_parameters));
  json_put(o, "steps", json_integer(plan->steps));
  json_put(o, "microbatch", json_integer(plan->microbatch));
  json_put(o, "microbatches", json_integer(plan->n_microbatches));
  json_put(o, "samples_per_step", json_integer((json_int_t)plan->microbatch * plan->n_microbatches));
  json_put(o, "tokens_per_step", json_integer(plan->tokens_per_step));
  json_put(o, "product_flops_per_step", json_integer(loop_flops(plan)));
  if (estimate) json_put(o, "estimated_step_time", json_real(estimate->step_time));
  if (estimate) json_put(o, "estimated_bubble_rate", json_real(estimate->bubble_rate));
  json_put(o, "stages", json_stages(plan));
  json_put(o, "ranks", json_ranks(plan));
  json_put(o, "transfers", json_transfers(plan));
  json_put(o, "plan_hash", json_sprintf("%016llx", (unsigned long long)plan->hash));
  json_print(out, o, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
}
