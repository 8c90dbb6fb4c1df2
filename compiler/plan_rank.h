/* The part of the plan that belongs to ranks: actions, offsets, operations, what each holds, and the
 * places of transfers. */
#ifndef PPC_PLAN_RANK_H
#define PPC_PLAN_RANK_H

#include "compiler/plan.h"
#include "compiler/tasks.h"

#define PLAN_IN_WINDOW (UINT64_C(1) << 63) /* of an argument's offset */
#define PLAN_NOWHERE UINT64_MAX

/* Fills plan->ranks, transfers, and with `generate` prompt and logits; the rest of the plan is there. */
void plan_ranks_build(Plan *plan, const Tasks *t, Arena *arena);

#endif
