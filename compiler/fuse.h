/* What the two halves of the pass `fuse` share: fuse.c groups the ops of a task, fuse_kernels.c turns
 * each group into a kernel function and a call. */
#ifndef PPC_FUSE_H
#define PPC_FUSE_H

#include "compiler/ir/ir.h"

typedef enum {
  NODE_VIRTUAL,  /* made anew inside each kernel that uses it: constants, reshapes, broadcasts, scalars */
  NODE_REAL,     /* computed once, by the kernel of its group */
  NODE_BOUNDARY  /* stays in the task: products, effects, parameters, … */
} NodeKind;

/* One op of a task. */
typedef struct {
  Op op;
  OpId id;
  NodeKind kind;
  bool needed;          /* VIRTUAL: something that is no kernel uses the value, so a kernel makes it too */
  int group;            /* −1: VIRTUAL and not needed */
  int64_t elements;     /* of the result */
  int weight;           /* VIRTUAL: ops that a clone takes along */
} FuseNode;

typedef struct {
  int n;
  int *nodes;           /* in program order */
} FuseGroup;

/* A task whose ops are grouped. */
typedef struct {
  Ir *ir;
  Arena *arena;
  Op func;
  int n;
  FuseNode *nodes;      /* in program order, without the terminator */
  PtrMap index;         /* op → its number + 1 */
  FuseGroup *groups;
  int n_order;
  int *order;           /* groups in the order in which they run */
} FuseTask;

/* Kernels of the module so far. */
typedef struct {
  Map by_content;       /* text of the body → function */
  Map names;            /* taken */
} FuseKernels;

int fuse_node_of(const FuseTask *t, Value v); /* −1: an argument, or made outside the grouped ops */
bool fuse_is_outside_use(const FuseTask *t, Value v, int group); /* something outside the group reads v */
void fuse_rewrite(FuseTask *t, FuseKernels *kernels);

#endif
