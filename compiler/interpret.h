/* An interpreter of the IR, for tests: what each op means, in loops that hide nothing. It runs
 * functions before and after any pass up to `fuse`, so that a pass can be held against what was
 * there before it, and emitted programs against the IR.
 *
 * All elements are doubles, rounded to f32 after each op where the type says so. Elementwise ops on
 * f32 are exact in that sense (+ − × ÷ √); exp and the like round a correct double; products are sums
 * in index order, which a library's are not. */
#ifndef PPC_INTERPRET_H
#define PPC_INTERPRET_H

#include "compiler/ir/ir.h"

typedef struct {
  Type type;
  pp_dtype dtype; /* of type, as are the next two */
  int rank;
  int64_t dims[PP_MAX_RANK];
  int64_t n;
  double *at; /* row-major; i32 and bool are exact */
} Tensor;

/* The state of a step. Absent accumulators and states read as zeros. */
typedef struct Machine {
  Ir *ir;
  Arena *arena;
  int n_stages;
  int microbatch;   /* of the function that runs */
  double step;
  Map params;       /* name → Tensor */
  Map states;       /* "name/state" → Tensor */
  Map *accumulators; /* [n_stages] name → Tensor */
  Map outputs;      /* name → Tensor f64[microbatches * n]: see OP_OUTPUTS */
  double *losses, *counts, *control, *loss_scale;
  int64_t n_microbatches;
  /* Fills what a data source gives for m->microbatch. */
  void (*data)(struct Machine *m, const char *source, Tensor *out);
  void *user;
} Machine;

/* Sizes come from the module; parameters are zeros until the caller sets them. */
Machine *machine_create(Ir *ir, Arena *arena);
Tensor *tensor_create(Arena *arena, Type type);
Tensor *machine_param(Machine *m, const char *name);
Tensor *machine_accumulator(Machine *m, const char *name, int stage); /* null when nothing was added */
void machine_start_step(Machine *m); /* forgets accumulators */

/* Runs a function; results are new tensors. `pp.loop` runs its body for all microbatches. */
void interpret_func(Machine *m, Op func, int n, Tensor *const *args, Tensor **out_results);

#endif
