/* Statements of one task that do the same to tensors of different sizes (an optimizer's step, squares of
 * gradients) as one launch. */
#ifndef PPC_CUDA_MANY_H
#define PPC_CUDA_MANY_H

#include "codegen/cuda/kernel.h"

typedef struct {
  int n;                 /* members, at least 2 */
  const int *statements; /* of the task, ascending; the launch stands at the first */
  const char *key;       /* groups of one key have one kernel */
  int n_arguments;
  const int *arguments;  /* buffers of the task, in the order of the kernel's parameters */
} CudaGroup;

typedef struct {
  int n;
  const CudaGroup *groups;
  int *of;               /* per statement: number in groups + 1; 0: a launch of its own */
} CudaGroups;

/* Which input of a statement of an update task is the control vector; -1: none. */
int cuda_control_input(const PlanTask *task, const PlanStatement *s);
/* The groups of a task; empty but for updates and what runs after the loop. */
CudaGroups cuda_groups_find(Arena *arena, const Plan *plan, const PlanTask *task);
/* The kernel of a group. `name`: of it, unique. */
CudaKernel cuda_group_kernel(Arena *arena, const Plan *plan, const PlanTask *task, const CudaGroup *group, const char *name);

#endif
