/* One task as plain C structs: its statements, and a place for each tensor in it. `memory` needs the
 * bytes of its workspace, `plan` all of it; both make it anew from the IR. */
#ifndef PPC_PLAN_TASK_H
#define PPC_PLAN_TASK_H

#include "compiler/plan.h"
#include "compiler/tasks.h"

/* Needs what `fuse` gives. PLAN_ARGUMENT buffers and arguments of kind VALUE have the root value. */
PlanTask *plan_task_build(const Tasks *t, const Task *task, Arena *arena);
PlanKernel plan_kernel_build(Op func, Arena *arena);
PlanType plan_type(Type t);
/* A C identifier for any text: letters, digits and underscores; never empty, never a leading digit. */
const char *plan_identifier(Arena *arena, const char *text);
/* The identifier for a value's name, which looks like "x (gpt2.pp:31)". */
const char *plan_value_name(Arena *arena, const char *text);
/* `wanted`, or wanted_2, wanted_3 … when that is taken; enters it. */
const char *plan_unique_name(Arena *arena, Map *taken, const char *wanted);

#endif
