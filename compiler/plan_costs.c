/* In: a plan. Out: what each of its tasks and transfers costs: as stated, or estimated from products and bytes. */
#include "compiler/simulate.h"

#include <math.h>

static int64_t bytes_of_type(const PlanType *type) {
  static const int sizes[] = {4, 8, 4, 1};
  _Static_assert(sizeof sizes / sizeof *sizes == PP_DTYPE_COUNT, "one size per dtype");
  int64_t n = sizes[type->dtype];
  for (int i = 0; i < type->rank; i++) n *= type->dims[i];
  return n;
}

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

/* An op of a kernel reads its inputs and writes its outputs once. */
static double statement_seconds(const PlanTask *task, const PlanStatement *s, Machine machine) {
  int64_t bytes = 0;
  for (int k = 0; k < s->n_in; k++) bytes += bytes_of_type(&task->buffers[s->in[k]].type);
  for (int k = 0; k < s->n_out; k++) bytes += bytes_of_type(&task->buffers[s->out[k]].type);
  return fmax((double)s->flops / machine.flops, (double)bytes / machine.bandwidth);
}

PlanCosts *plan_costs_estimated(Arena *arena, const Plan *plan, Machine machine) {
  double *tasks = arena_alloc_array(arena, (size_t)plan->n_tasks + 1, sizeof *tasks);
  double *transfers = arena_alloc_array(arena, (size_t)plan->n_transfers + 1, sizeof *transfers);
  for (int i = 0; i < plan->n_tasks; i++)
    for (int k = 0; k < plan->tasks[i].n_statements; k++)
      tasks[i] += statement_seconds(&plan->tasks[i], &plan->tasks[i].statements[k], machine);
  for (int i = 0; i < plan->n_transfers; i++) transfers[i] = (double)plan->transfers[i].size_bytes / machine.link;
  PlanCosts *costs = arena_alloc(arena, sizeof *costs);
  *costs = (PlanCosts){.from = COSTS_ESTIMATED, .tasks = tasks, .transfers = transfers, .machine = machine};
  return costs;
}
