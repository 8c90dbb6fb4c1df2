/* The passes, in the order in which the driver calls them. Each returns false after it has reported
 * errors. What each needs and gives is in docs/ir.md under its name. */
#ifndef PPC_COMPILER_H
#define PPC_COMPILER_H

#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/ir/ir.h"
#include "compiler/plan.h"

typedef struct DslProgram DslProgram; /* dsl/load.h; its names of operators clash with ir.h */

/* What the command line says beside the file. */
typedef struct {
  const char *name, *value; /* -D NAME=VALUE, value is an expression of the language */
} Define;

typedef struct {
  const char *name, *path;  /* --data NAME=PATH */
} DataOverride;

typedef struct {
  int n_defines;
  const Define *defines;
  int n_data;
  const DataOverride *data;
  const char *schedule;     /* --schedule='name(args)', null: the file's */
  const char *dtype;        /* "f32" or "f64", null: the file's */
  const char *precision;    /* "f32", "tf32" or "bf16", null: the file's */
  int64_t ranks, microbatch, microbatches, steps; /* -1: the file's */
  int64_t seed;             /* when has_seed */
  bool has_seed;
  int threads;
  pp_target target;
  const char *arch;         /* CUDA: "80,90", null: those of the Makefile */
  int64_t products_workspace; /* CUDA: bytes for each compute stream; -1: PP_CUDA_WORKSPACE_BYTES */
  int64_t step_limit; /* of the evaluator; 0: 10^9 */
  int64_t memory;     /* bytes that a rank may map; 0: no limit */
  bool no_fuse, no_epilogues, verify, generate;
  bool keep_transfers;      /* check the transfers that a CSV states */
} CompileOptions;

/* --- elaborate ------------------------------------------------------------------------------- */

/* The evaluated program; alive until the schedule has run. Holds AST and compile-time values. */
typedef struct Program Program;
Program *elaborate_run(Ir *ir, const DslProgram *program, const CompileOptions *options); /* null after errors */
/* For a schedule alone: that of --schedule, among the items of a program without `train`. Null after errors. */
Program *elaborate_schedule(Ir *ir, const DslProgram *program, const CompileOptions *options);
/* Runs the schedule program for what the module says (pp.ranks, pp.stages, pp.microbatches). */
typedef struct {
  int rank, stage, microbatch;
  pp_task_kind kind;   /* PP_FWD, PP_BWD, PP_BWD_INPUT, PP_BWD_WEIGHT */
  int overlap;         /* number of the overlap { } it stands in, -1: none */
  Loc loc;             /* of the call of fwd, bwd, … */
  Loc caller;          /* of the outermost call inside `rank`, when different; line 0 else */
} ScheduledAction;
typedef VEC(ScheduledAction) ScheduledActions;
enum { SCHEDULE_MAX_ACTIONS = 1 << 21 }; /* the passes keep about 1 KB for each */
/* May run several times, for different numbers. */
bool program_run_schedule(Program *program, int ranks, int stages, int microbatches, ScheduledActions *out);
bool program_is_spent(Program *program);    /* its budget, or that of its errors: it won't run again */
Loc program_refusal(Program *program);      /* the `require` that its last run did not meet; line 0: none */
struct ScheduleCsv;
const struct ScheduleCsv *program_csv(Program *program); /* of --schedule=FILE.csv, or null */
bool program_keeps_transfers(Program *program);
const char *program_schedule_name(Program *program);
Loc program_schedule_loc(Program *program); /* of train's `schedule` line */
Loc program_ranks_loc(Program *program);    /* of train's `ranks` line */

/* --- passes ------------------------------------------------------------------------------------- */

bool simplify_run(Ir *ir);
bool autodiff_run(Ir *ir);
bool stages_run(Ir *ir);
bool epilogues_run(Ir *ir, bool enabled);
bool split_run(Ir *ir);
bool schedule_run(Ir *ir, Program *program);
/* The same for given actions, in the order of each rank; `schedule` and `ranks`: lines of train. */
bool schedule_build(Ir *ir, const ScheduledActions *actions, Loc schedule, Loc ranks);
bool transfers_run(Ir *ir);
bool fuse_run(Ir *ir, bool enabled); /* disabled: a kernel for each op */
bool memory_run(Ir *ir);
bool memory_check_limit(Ir *ir, int64_t limit); /* behind memory_run: an error for each rank that maps more bytes */
bool progress_run(Ir *ir);
Plan *plan_build(Ir *ir, Arena *arena, const CompileOptions *options); /* null after errors */
/* Fills in what devices with streams need: the stream of each action, which operations wait. */
bool events_run(Plan *plan);
/* Null when, with these waits, all accesses to the same bytes are ordered; else a text that names a pair that isn't. */
const char *events_check(const Plan *plan, Arena *arena);
/* Writes them into the IR, for dumps. */
void events_annotate(Ir *ir, const Plan *plan);

/* `stages` calls it: appends finish, decision and update to @step. */
bool update_build(Ir *ir);
/* `autodiff` and `stages` call it: the loss scale, an f64 scalar, and the vector that it was read from, null when it is
 * a constant. `dtype`: of the loss. */
Value loss_scale_read(Builder *b, Value *out_vector);
void loss_scale_decide(Builder *b, Value vector, Value finite, Value counted, pp_dtype dtype);
bool loss_scale_changes(Ir *ir); /* it is dynamic */
/* `autodiff` calls it: builds at b the adjoints of op's operands, given those of its results (null: zero)
 * for the operands i with needed[i]. out_dx[i] is null where the adjoint is zero, or where op accumulates
 * straight into a parameter (matmul_accumulate, scatter_accumulate). False after an error. */
bool adjoint_build(Builder *b, Op op, const Value *dy, const bool *needed, Value *out_dx);
bool adjoint_exists(OpId id); /* false: no derivative goes through it */
/* `autodiff` and `stages` call it: gives each stage that uses them its own copy of reads of data and
 * parameters and of what follows from constants, random numbers and parameters alone. */
void stages_localize(Ir *ir, Op func);
/* Removes unused pure ops in one function (also for passes after `stages`). */
void simplify_dead_ops(Ir *ir, Op func);

#endif
