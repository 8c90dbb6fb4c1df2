/* In: a plan. Out: what each of its tasks and transfers costs: as stated, estimated from products and bytes,
 * or measured. */
#include "compiler/simulate.h"

#include <math.h>

/* --- stated ------------------------------------------------------------------------------------------ */

/* The stage whose task makes what a transfer moves: that of the send's action. */
static void stages_of_transfers(const Plan *plan, int *stages) {
  for (int r = 0; r < plan->n_ranks; r++) {
    int stage = 0;
    for (int i = 0; i < plan->ranks[r].n_actions; i++) {
      const PlanAction *a = &plan->ranks[r].actions[i];
      for (int k = 0; k < a->n_before; k++)
        if (a->before[k].op == PP_POST_SEND) stages[a->before[k].transfer] = stage;
      stage = plan->tasks[a->task].stage;
      for (int k = 0; k < a->n_after; k++)
        if (a->after[k].op == PP_POST_SEND) stages[a->after[k].transfer] = stage;
    }
  }
}

static bool is_of_loop(const PlanTransfer *t) { return t->microbatch >= 0; }

PlanCosts *plan_costs_stated(Arena *arena, const Plan *plan, const StatedCosts *stated) {
  double *tasks = arena_alloc_array(arena, (size_t)plan->n_tasks + 1, sizeof *tasks);
  double *transfers = arena_alloc_array(arena, (size_t)plan->n_transfers + 1, sizeof *transfers);
  int *stages = arena_alloc_array(arena, (size_t)plan->n_transfers + 1, sizeof *stages);
  for (int i = 0; i < plan->n_tasks; i++) tasks[i] = costs_of_task(stated, plan->tasks[i].kind, plan->tasks[i].stage);
  stages_of_transfers(plan, stages);
  for (int i = 0; i < plan->n_transfers; i++)
    if (is_of_loop(&plan->transfers[i])) transfers[i] = costs_of_transfer(stated, stages[i]);
  PlanCosts *costs = arena_alloc(arena, sizeof *costs);
  *costs = (PlanCosts){.from = COSTS_STATED, .tasks = tasks, .transfers = transfers, .stated = stated};
  return costs;
}

/* --- estimated --------------------------------------------------------------------------------------- */

static int64_t bytes_of_buffers(const PlanTask *task, int n, const int *buffers) {
  int64_t bytes = 0;
  for (int k = 0; k < n; k++) bytes += plan_bytes(&task->buffers[buffers[k]].type);
  return bytes;
}

/* What a statement reads and writes, each once; of a table only the rows that it takes or adds to. */
static int64_t statement_bytes(const PlanTask *task, const PlanStatement *s) {
  int64_t in = bytes_of_buffers(task, s->n_in, s->in), out = bytes_of_buffers(task, s->n_out, s->out);
  if (s->op == PLAN_OP_GATHER) return bytes_of_buffers(task, 1, &s->in[1]) + 2 * out;
  if (s->op == PLAN_OP_SCATTER_ACCUMULATE) return in + 2 * bytes_of_buffers(task, 1, &s->in[0]);
  return in + out;
}

static double statement_seconds(const Plan *plan, const PlanTask *task, const PlanStatement *s, const Machine *machine) {
  double products = 0, bytes = (double)statement_bytes(task, s) / machine->bandwidth;
  if (s->flops) products = (double)s->flops / machine_flops(machine, plan, task->buffers[s->in[0]].type.dtype);
  return fmax(products, bytes);
}

static double task_seconds(const Plan *plan, const PlanTask *task, const Machine *machine) {
  double seconds = 0;
  bool together = task->kind == PP_UPDATE;
  for (int k = 0; k < task->n_statements; k++)
    seconds += fmax(statement_seconds(plan, task, &task->statements[k], machine), together ? 0 : machine->launch);
  return task->n_statements ? fmax(seconds, machine->launch) : 0;
}

PlanCosts *plan_costs_estimated(Arena *arena, const Plan *plan, Machine machine) {
  double *tasks = arena_alloc_array(arena, (size_t)plan->n_tasks + 1, sizeof *tasks);
  double *transfers = arena_alloc_array(arena, (size_t)plan->n_transfers + 1, sizeof *transfers);
  for (int i = 0; i < plan->n_tasks; i++) tasks[i] = task_seconds(plan, &plan->tasks[i], &machine);
  for (int i = 0; i < plan->n_transfers; i++) transfers[i] = machine.latency + (double)plan->transfers[i].size_bytes / machine.link;
  PlanCosts *costs = arena_alloc(arena, sizeof *costs);
  *costs = (PlanCosts){.from = COSTS_ESTIMATED, .tasks = tasks, .transfers = transfers, .machine = machine};
  return costs;
}

/* --- measured ---------------------------------------------------------------------------------------- */

static double of_trace(const TraceCosts *trace, int stage, pp_task_kind kind) {
  return trace->task[stage * PP_TASK_KIND_COUNT + (int)kind];
}

static double estimate_of(const Plan *plan, const PlanCosts *estimates, int stage, pp_task_kind kind) {
  for (int i = 0; i < plan->n_tasks; i++)
    if (plan->tasks[i].stage == stage && plan->tasks[i].kind == kind) return estimates->tasks[i];
  return 0;
}

/* The part of a whole backward that is this half, by the estimates of both. */
static double share_of_half(const Plan *plan, const PlanCosts *estimates, int stage, pp_task_kind kind) {
  double half = estimate_of(plan, estimates, stage, kind);
  double whole = estimate_of(plan, estimates, stage, PP_BWD_INPUT) + estimate_of(plan, estimates, stage, PP_BWD_WEIGHT);
  return whole > 0 ? half / whole : 0.5;
}

/* NAN when the trace does not tell. */
static double measured_task(const Plan *plan, const TraceCosts *trace, const PlanCosts *estimates, int index) {
  const PlanTask *task = &plan->tasks[index];
  double own = of_trace(trace, task->stage, task->kind);
  if (!isnan(own)) return own;
  double input = of_trace(trace, task->stage, PP_BWD_INPUT), weight = of_trace(trace, task->stage, PP_BWD_WEIGHT);
  if (task->kind == PP_BWD) return isnan(input) ? weight : isnan(weight) ? input : input + weight;
  if (task->kind == PP_BWD_INPUT || task->kind == PP_BWD_WEIGHT)
    return of_trace(trace, task->stage, PP_BWD) * share_of_half(plan, estimates, task->stage, task->kind);
  return task->kind == PP_FWD ? NAN : estimates->tasks[index];
}

PlanCosts *plan_costs_measured(Arena *arena, const Plan *plan, const TraceCosts *trace, const char *name, Machine machine,
                               Str *out_error) {
  if (trace->n_stages != plan->n_stages) {
    str_printf(out_error, "%s is of %s with %d stage%s, but %s has %d", name, trace->model, trace->n_stages,
               trace->n_stages == 1 ? "" : "s", plan->model, plan->n_stages);
    return NULL;
  }
  PlanCosts *costs = plan_costs_estimated(arena, plan, machine);
  double *tasks = arena_alloc_array(arena, (size_t)plan->n_tasks + 1, sizeof *tasks);
  double *transfers = arena_alloc_array(arena, (size_t)plan->n_transfers + 1, sizeof *transfers);
  for (int i = 0; i < plan->n_tasks; i++) {
    tasks[i] = measured_task(plan, trace, costs, i);
    if (!isnan(tasks[i])) continue;
    str_printf(out_error, "%s does not tell what %s costs", name, plan->tasks[i].name);
    return NULL;
  }
  double per_byte = trace->seconds_per_byte > 0 ? trace->seconds_per_byte : 1 / machine.link;
  for (int i = 0; i < plan->n_transfers; i++)
    transfers[i] = trace->latency + (double)plan->transfers[i].size_bytes * per_byte;
  *costs = (PlanCosts){.from = COSTS_MEASURED, .tasks = tasks, .transfers = transfers, .machine = machine, .trace = name,
                       .measured_step = trace->step_time};
  return costs;
}
