/* What the passes from schedule to plan read of the split module, as plain arrays. It is made anew
 * from the IR by each of them and holds no decision that is not in the IR. */
#ifndef PPC_TASKS_H
#define PPC_TASKS_H

#include "compiler/ir/ir.h"

enum { LOOP_KINDS = 4 }; /* PP_FWD … PP_BWD_WEIGHT */

/* One task function of one stage. */
typedef struct {
  Op func;
  int stage;
  pp_task_kind kind;
  int n_in, n_out;
  const int64_t *in, *out;  /* value ids of arguments and results */
  bool accumulates;         /* has an op that adds to an accumulator */
} Task;

/* Where a value that crosses tasks lies on a rank (see tasks_storage). */
typedef enum {
  STORE_ITEM,         /* an item of its own for each microbatch */
  STORE_FRAME,        /* a field of the stage's frame: index = field */
  STORE_WEIGHT_FRAME, /* a field of the stage's weight frame: index = field */
  STORE_PARAMETER,    /* the rank's copy of a parameter: index */
  STORE_GRADIENT,     /* the accumulator of (parameter index, stage) where it is made; elsewhere an item */
  STORE_OUTPUT,       /* the partial results of output index */
  STORE_CONTROL       /* the control vector */
} StoreKind;

typedef struct {
  Type type;            /* null type when the id is not used */
  int64_t bytes;
  int stage;            /* that makes it; -1: nothing makes it */
  unsigned made_by;     /* bit per kind of task that makes it */
  unsigned used_by;     /* bit per kind of task of the same stage that uses it */
  bool leaves;          /* used by another stage */
  int alias;            /* made as a reshape of this value, in the same memory; -1 */
  StoreKind store;
  int index;
  const char *name;     /* as in the source, or made up */
  Loc loc;
} TaskValue;

typedef struct {
  const char *name;
  Op op;
  Type type;
  int64_t bytes;
  int owner;
  int64_t n_stages, n_accumulators;
  const int64_t *stages, *accumulators;
  bool trainable;       /* something accumulates into it */
} TaskParameter;

typedef struct {
  const char *name, *kind;
  int stage;
  int64_t n;            /* elements of one microbatch's part: 1 unless it is a concat */
  int64_t bytes;        /* of what the task gives, in its own dtype */
} TaskOutput;

/* A stage's frame: fields in the order of their value ids. */
typedef struct {
  int value;
  int64_t offset;
} TaskField;
typedef struct {
  VEC(TaskField) fields;
  int64_t bytes;
} TaskFrame;

typedef struct {
  int rank;
  Op op;
  int n_actions;
  const int64_t *actions;      /* kind, stage, microbatch */
  const Loc *lines;
  const int64_t *overlaps;     /* number of the overlap block of each action, -1; null: no blocks */
} TaskRank;

typedef struct {
  Ir *ir;
  Arena *arena;
  int n_stages, n_ranks, n_microbatches;
  bool generate;
  pp_target target;
  int64_t scratch_bytes;       /* CUDA: of each compute stream, beside arena and window */
  int64_t partial_bytes;       /* of them, the partial sums */
  int n_tasks;
  Task *tasks;
  const int *by_stage;         /* [n_stages * PP_TASK_KIND_COUNT] index of the task, -1 */
  int n_values;
  TaskValue *values;
  int n_parameters;
  TaskParameter *parameters;
  VEC(TaskOutput) outputs;
  int n_states;
  const char **states;
  int loss_stage;              /* -1 with generate */
  int n_kernels;
  const Op *kernels;           /* func.funcs, in the module's order; after `fuse` */
  Map parameter_index, kernel_index, source_index; /* the last two: number + 1 */
  /* after `schedule` */
  const int64_t *stage_ranks;  /* null before */
  TaskRank *ranks;
  bool *halves;                /* [n_stages] some microbatch runs bwd_input and bwd_weight */
  TaskFrame *frames, *weight_frames;
} Tasks;

/* Compute streams of a rank: the members of an overlap block run side by side. */
int tasks_streams(const TaskRank *rank);
/* Reads the module; `arena` holds the result. Module faults are bugs of a pass before. */
Tasks *tasks_read(Ir *ir, Arena *arena);

/* The task, or null. */
Task *tasks_find(const Tasks *t, int stage, pp_task_kind kind);
int tasks_parameter(const Tasks *t, const char *name);
int tasks_source(const Tasks *t, const char *name);
int tasks_output(const Tasks *t, const char *name);
/* The value whose item (or field) holds `value` on `rank`: follows reshapes made on that rank. */
int tasks_root(const Tasks *t, int rank, int value);
/* Where `value` lies on `rank`, given its root there. */
StoreKind tasks_storage(const Tasks *t, int rank, int root);
/* Made once a step, before the loop: the same for all microbatches, with microbatch -1. */
bool tasks_is_prepared(const Tasks *t, int value);
/* Bytes that a microbatch keeps of a stage's forward for its backward, and from the input half of it to
 * the weight half. */
int64_t tasks_stash_bytes(const Tasks *t, int stage);
int64_t tasks_weight_stash_bytes(const Tasks *t, int stage);
/* The overlap block that action `index` stands in, as [begin, end): the action alone without one. */
int tasks_block_begin(const TaskRank *rank, int index);
int tasks_block_end(const TaskRank *rank, int index);
/* Follows reshapes to what a value of a task function is a view of. */
Value tasks_view_base(Value v);
/* Index in `kernels` of what a pp.call calls. */
int tasks_callee(const Tasks *t, Op call);

/* F, B, I, W as in charts and tables; + outside the loop. */
char tasks_kind_letter(pp_task_kind kind);
/* "fwd(1, 3)", "update(1)" outside the loop. */
const char *tasks_action_text(Arena *arena, pp_task_kind kind, int stage, int microbatch);

#endif
