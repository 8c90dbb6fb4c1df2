/* What the statements of a program call on CUDA: its kernels, each distinct one once, and its matrix
 * products. Made before any text; statements ask for what serves them. */
#ifndef PPC_CUDA_CALLS_H
#define PPC_CUDA_CALLS_H

#include "codegen/cuda/many.h"

typedef struct {
  const char *name;          /* "product_512x128x384_nt" */
  bool ta, tb;
  EmitProduct shape;
  pp_dtype operands, result;
  pp_epilogue epilogue;
  bool tf32;                 /* f32 operands are rounded to TF32 */
} CudaProduct;

typedef struct {
  const PlanTask *task;
  const char *line;
} CudaPlace;

typedef struct {
  VEC(CudaKernel) kernels;
  VEC(CudaProduct) products;
  int *fused[2];             /* [n_kernels of the plan] number in kernels + 1; [1]: guarded */
  const PlanTask *tasks;     /* the plan's */
  bool tf32;                 /* the plan's */
  CudaGroups *groups;        /* per task: statements that are launched together */
  Map kernel_numbers;        /* what an instance computes, as text → number + 1 */
  Map names;                 /* of kernels */
  VEC(CudaPlace) places;     /* where indices are checked */
} CudaCalls;

const CudaCalls *cuda_calls_collect(Arena *arena, const Plan *plan);
/* The kernel that a statement launches; null: it is no launch (a product, a copy, data). */
const CudaKernel *cuda_calls_kernel(const CudaCalls *calls, const PlanTask *task, const PlanStatement *s);
/* The group to which a statement belongs; null: none. Its first statement launches for all. */
const CudaGroup *cuda_calls_group(const CudaCalls *calls, const PlanTask *task, const PlanStatement *s);
const CudaProduct *cuda_calls_product(const CudaCalls *calls, const PlanTask *task, const PlanStatement *s);
/* Number of the place of a statement that uses indices. */
int cuda_calls_place(const CudaCalls *calls, const PlanTask *task, const PlanStatement *s);

/* tables.h, tables.c: products and places. */
void emit_tables_cuda(Arena *arena, const CudaCalls *calls, EmitFiles *files);

/* statement.c */
void emit_cuda_begin_task(EmitTask *b);
void emit_cuda_statement(EmitTask *b, const PlanStatement *s);

#endif
