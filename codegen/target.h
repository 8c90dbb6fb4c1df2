/* What differs between the targets of code generation. Everything else of a program, its tables, tasks
 * and names, is emitted by the same code. */
#ifndef PPC_CODEGEN_TARGET_H
#define PPC_CODEGEN_TARGET_H

#include "codegen/parts.h"
#include "compiler/base/map.h"

typedef struct EmitTarget EmitTarget;

/* A task under emission. */
typedef struct {
  Arena *arena;
  const Plan *plan;
  const PlanStage *stage;
  const PlanTask *task;
  const EmitTarget *target;
  Str *out;
  const char **names;       /* [n_buffers] as C sees them */
  bool *used, *written;     /* [n_buffers] */
  int *argument;            /* [n_buffers] position in c->at of what holds the buffer */
  Map taken;
  const void *prepared;     /* of the target */
  const char *note;         /* what the target adds to the comment of its statement; null: nothing */
} EmitTask;

struct EmitTarget {
  const char *name;            /* "cpu": in plan.json */
  const char *products;        /* "openblas": the library of the matrix products, in plan.json */
  const char *stage_includes;  /* lines of stage_K.c before kernels.h */
  const char *rank_includes;   /* lines of rank_R.c before the stages' headers */
  const char *window;          /* what peers have to do with the window: "from which its peers read" */
  const char *source;          /* what the place of the sender's buffer is to a receiver */
  const char *main_starts;     /* lines at the begin of main() */
  bool names_lives;            /* lifetimes are in all builds, for tools; else in checking builds */
  /* What statements and kernels both need to know of the plan; may be null. */
  const void *(*prepare)(Arena *arena, const Plan *plan);
  /* Lines before a task's first statement; may be null. */
  void (*begin_task)(EmitTask *b);
  /* One call, to b->out, without a line break at its end; nothing: another statement's call does it, too. */
  void (*statement)(EmitTask *b, const PlanStatement *s);
  void (*kernels)(Arena *arena, const Plan *plan, const void *prepared, EmitFiles *files);
  /* Members of pp_program that only this target has. */
  void (*program)(Str *out, const Plan *plan, const PlanRank *rank);
  /* Makefile and launch files; `files` already has everything else. */
  void (*build_files)(Arena *arena, const Plan *plan, EmitFiles *files);
  /* Which of codegen_runtime_files belong into DIR. */
  bool (*takes_runtime_file)(const char *path);
};

extern const EmitTarget emit_target_cpu;  /* codegen/c/target.c */
extern const EmitTarget emit_target_cuda; /* codegen/cuda/target.c */

/* --- task.c ------------------------------------------------------------------------------------ */

void emit_stage_source(Arena *arena, const Plan *plan, const PlanStage *stage, const EmitTarget *target, const void *prepared,
                       EmitFiles *files);
/* C[m, n] = op(A) · op(B) of a MATMUL or MATMUL_ACCUMULATE; batch: the leading axes of A. */
typedef struct {
  int64_t batch, m, n, k;
} EmitProduct;
EmitProduct emit_product_shape(const PlanTask *task, const PlanStatement *s);
bool emit_does_nothing(const PlanTask *task, const PlanStatement *s);
/* "!c->first" or "1": whether an accumulating statement adds to what is there. */
const char *emit_accumulates(const PlanStatement *s);

/* --- rank.c ------------------------------------------------------------------------------------ */

void emit_rank(Arena *arena, const Plan *plan, const PlanRank *rank, const EmitTarget *target, EmitFiles *files);

/* --- c/statement.c -------------------------------------------------------------------------------- */

void emit_c_statement(EmitTask *b, const PlanStatement *s);

#endif
