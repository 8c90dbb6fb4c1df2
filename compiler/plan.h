/* The plan: what the passes decided, as plain C structs. Code generation and reports read this and
 * nothing else of the compiler; after it there is no MLIR. All memory is in the arena it was made in.
 * Sizes are bytes, offsets are bytes from the start of their space, shapes row-major. */
#ifndef PPC_PLAN_H
#define PPC_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/abi.h"

typedef enum {
#define OP(id, ...) PLAN_OP_##id,
#include "compiler/ir/ops.def"
  PLAN_OP_COUNT,
  PLAN_OP_KERNEL = PLAN_OP_COUNT /* a call of a fused kernel */
} PlanOp;

typedef struct {
  pp_dtype dtype;
  int rank;
  int64_t dims[PP_MAX_RANK];
} PlanType;

static inline int64_t plan_elements(const PlanType *type) {
  int64_t n = 1;
  for (int i = 0; i < type->rank; i++) n *= type->dims[i];
  return n;
}

static inline int64_t plan_bytes(const PlanType *type) { return plan_elements(type) * pp_dtype_bytes(type->dtype); }

/* Attributes of an op; which ones count is stated in ops.def. */
typedef struct {
  double value;            /* CONSTANT of a real type, ATTENTION scale */
  int64_t integer;         /* CONSTANT of i32 or bool, `axis`, `key`, `rows` */
  const int64_t *axes;     /* `axes`, `starts` or `before` */
  const int64_t *limits;   /* `limits` or `after` */
  int n_axes;
  const char *predicate;   /* COMPARE */
  bool ta, tb, causal;
  pp_epilogue epilogue;    /* MATMUL: a third operand, gelu_aux a second result */
} PlanAttrs;

/* --- kernels --------------------------------------------------------------------------------- */

/* A kernel is a straight line of LEAF, MAP, REDUCE and MOVE ops. Values: 0 … n_inputs - 1 are the
 * inputs, then one for each node, in order. */
typedef struct {
  PlanOp op;
  int n_in;
  const int *in;
  PlanType type;
  PlanAttrs attrs;
  const char *name;        /* pp.name, for the reader of the emitted text; may be null */
} PlanNode;

typedef struct {
  const char *name;        /* "add_layer_norm_512x128": says what it computes; a C identifier, unique */
  int n_inputs;
  const PlanType *inputs;
  int n_nodes;
  const PlanNode *nodes;
  int n_outputs;
  const int *outputs;      /* values */
  bool uses_call;          /* has RANDOM: takes the pp_call too */
  int n_in_place;          /* pairs; from the kernel function's `pp.in_place` */
  const int *in_place;     /* output, input, …: these two may be one buffer */
  const char *comment;     /* its ops and source lines in words, `pp.comment`; may be null */
  const char *names;       /* "x,weight;out": of inputs; outputs, `pp.names`; may be null */
} PlanKernel;

/* --- tasks -------------------------------------------------------------------------------------- */

typedef enum {
  PLAN_WEIGHT,    /* parameter value on the stage's rank: index = parameter */
  PLAN_GRADIENT,  /* accumulator of (parameter, this stage): index = parameter */
  PLAN_STATE,     /* optimizer state: index = parameter, sub = state number */
  PLAN_FRAME,     /* field of the stage's frame: index = field; sub = 1: of its weight frame */
  PLAN_ARGUMENT,  /* a value that crosses tasks and has an item of its own: index = argument of the task */
  PLAN_SCRATCH,   /* index = byte offset in the task's workspace */
  PLAN_STEP,      /* the step scalar (f64) */
  PLAN_LOSSES, PLAN_COUNTS, PLAN_CONTROL, PLAN_NORMS, /* the runtime's vectors, see pp_program */
  PLAN_OUTPUT,    /* partial results of output number index */
  PLAN_PROMPT, PLAN_LOGITS, /* with `generate` */
  PLAN_LOSS_SCALE /* the dynamic loss scale, on the rank of the loss */
} PlanPlace;

/* A tensor in a task: one name, one place. Two buffers may lie at the same place (a reshape). */
typedef struct {
  const char *name;        /* a C identifier, unique in the task, from the source where it has a name there */
  PlanType type;
  PlanPlace place;
  int64_t index;
  int sub;
} PlanBuffer;

/* One line of a task. */
typedef struct {
  PlanOp op;               /* KERNEL, MATMUL, MATMUL_ACCUMULATE, ACCUMULATE, GATHER, SCATTER_ADD, SCATTER_ACCUMULATE,
                            * ATTENTION, ATTENTION_GRAD, DATA, LOSS, OUTPUT, CONTROL, RESCALE,
                            * FOLD / ASSIGN (copy in[0] to out[0]); with `generate`, DATA and OUTPUT may also be such a copy (n_in = n_out = 1) */
  int kernel;              /* KERNEL: index in the plan's kernels */
  int n_in, n_out;
  const int *in, *out;     /* buffers of the task; accumulating ops have the accumulator in out[0] */
  PlanAttrs attrs;
  int index;               /* DATA: source; OUTPUT: output */
  bool first_use;          /* accumulating ops: the first on this accumulator in the task's program order: overwrites when the call is `first` */
  int workspace;           /* ATTENTION…: a SCRATCH buffer, else -1 */
  int64_t flops;           /* of a product or attention, else 0 */
  const char *comment;     /* "h.0.attn: qkv = c_attn(x)" or the op's name, for the reader */
  const char *line;        /* "gpt2.pp:12" */
} PlanStatement;

typedef struct {
  const char *name;        /* "stage_1_fwd" */
  pp_task_kind kind;
  int stage;
  int n_arguments;         /* in the order of pp_call.at */
  const struct PlanArgument *arguments;
  int n_buffers;
  const PlanBuffer *buffers;
  int n_statements;
  const PlanStatement *statements;
  int64_t workspace_bytes;
  int64_t flops;           /* of products, for the simulator and tokens/s */
} PlanTask;

/* What an address in pp_call.at is. */
typedef enum {
  PLAN_ARG_VALUE,      /* a crossing value with its own item */
  PLAN_ARG_FRAME,      /* struct stage_K_frame */
  PLAN_ARG_WEIGHT_FRAME,
  PLAN_ARG_WEIGHTS,    /* one parameter value */
  PLAN_ARG_GRADIENT,   /* one accumulator */
  PLAN_ARG_STATE,
  PLAN_ARG_WORKSPACE,
  PLAN_ARG_RUNTIME     /* step, losses, counts, control, norms, output: `place` says which */
} PlanArgKind;

typedef struct PlanArgument {
  PlanArgKind kind;
  PlanPlace place;       /* RUNTIME */
  const char *name;      /* C identifier */
  PlanType type;         /* VALUE, WEIGHTS, GRADIENT, STATE */
  int index, sub;        /* parameter, output or state number */
  int value;             /* VALUE: id */
  bool is_result;        /* written by the task */
  const char *comment;   /* "from stage 0 (gpt2.pp:23)" */
} PlanArgument;

/* Whether the argument at `position` is, or contains, the buffer's memory. */
bool plan_argument_holds(const PlanArgument *a, int position, const PlanBuffer *b);

typedef struct {
  const char *name;
  PlanType type;
  int64_t offset;        /* in the struct; fields are 64-byte aligned */
  const char *line;
} PlanField;

typedef struct {
  int index, rank;
  int n_tasks;
  const int *tasks;      /* in the plan's tasks */
  int n_fields, n_weight_fields;
  const PlanField *fields, *weight_fields; /* struct stage_K_frame, struct stage_K_weight_frame */
  int64_t frame_bytes, weight_frame_bytes;
  int64_t stash_bytes;        /* what a microbatch keeps of its forward for its backward, frame and values */
  int64_t weight_stash_bytes; /* what it keeps from bwd_input to bwd_weight; 0 when the backward is whole */
  const char *first_line, *last_line; /* of the stage in the source */
} PlanStage;

/* --- the job --------------------------------------------------------------------------------------- */

typedef struct {
  const char *name;      /* "h.0.ln_1.weight" */
  const char *c_name;    /* "h_0_ln_1_weight", unique */
  PlanType type;
  pp_init_kind init;
  double a, b;
  int owner_stage, owner_rank;
  int n_stages;
  const int *stages;     /* that use it */
  bool trainable;
  const char *line;
} PlanParameter;

typedef struct {
  const char *name;
  pp_data_kind kind;
  pp_data_order order;
  const char *path;
  int64_t n, vocabulary;
  PlanType type;         /* of a microbatch */
} PlanSource;

typedef struct {
  const char *name;
  pp_output_kind kind;
  int stage, rank;
  int64_t n;
} PlanOutput;

typedef struct {
  int value, microbatch, from, to;  /* ranks */
  int64_t size_bytes;
  uint64_t send_offset, receive_offset; /* window of the sender; arena or window of the receiver */
  pp_space receive_space;
  int sent_as; /* the value that the sender's arguments call these bytes: `value` may be a reshape of it */
} PlanTransfer;

typedef struct {
  int task, microbatch;
  int overlap;             /* number of its overlap block on the rank, -1 */
  int streams;             /* PP_ON_SECOND, … */
  bool first;
  const uint64_t *offsets; /* [n_arguments of the task]; bit 63: in the window */
  int n_before, n_after;
  const struct PlanTransferOp *before, *after;
  const char *line;        /* of the schedule program */
} PlanAction;

typedef struct PlanTransferOp {
  pp_transfer_op op;
  int transfer;            /* in the plan's transfers */
  int waits;               /* bit k: of compute stream k (pp_op); 0: others imply it (compiler/events.c) */
  int implied_by;          /* transfer whose wait, or place on the communication stream, implies it; -1: the step's begin or end */
} PlanTransferOp;

typedef struct {
  int parameter;
  uint64_t value, gradient, states[4];
  pp_space value_space, gradient_space;
  bool owned;
} PlanHeld;

typedef struct {
  int rank;
  int n_actions;
  const PlanAction *actions;
  int n_held;
  const PlanHeld *held;
  uint64_t arena_bytes, window_bytes;
  int n_streams;                          /* CUDA: compute streams, 2 where blocks overlap */
  int64_t class_bytes[PP_CLASS_COUNT];    /* at the peak; they add up to arena_bytes + window_bytes, alignment gaps counted as workspace */
  uint64_t losses, counts, norms, step;   /* arena offsets; UINT64_MAX: not on this rank */
  uint64_t loss_scale;                    /* the same; only of a dynamic one */
  uint64_t control;                       /* bit 63: in the window */
  const uint64_t *output_slots;           /* the same; UINT64_MAX: not on this rank */
  int peak_action;                        /* where most bytes are in use */
  const int64_t *live_bytes;              /* [n_actions] in use during each action, arena and window; gaps don't count */
  int64_t peak_bytes;                     /* the largest of them; mapped bytes are more where there are gaps, or where
                                           * arena and window are fullest at different times */
  int64_t stash_bytes;                    /* most bytes of stashes that wait between two actions */
} PlanRank;

typedef struct {
  const char *model;         /* "gpt2.pp" */
  const char *directory;     /* absolute, of the model file */
  const char *schedule;      /* "one_f_one_b" */
  pp_target target;
  const char *arch;          /* CUDA: "80,90", as --arch says; null: those of the Makefile */
  int64_t scratch_bytes;     /* CUDA: for each compute stream, behind arena and window: workspace of products, partial sums */
  int64_t partial_bytes;     /* of them, the partial sums */
  pp_dtype dtype;
  bool tf32;                 /* CUDA: the model's products of f32 are computed in TF32 */
  uint64_t seed;
  int64_t steps;
  int64_t tokens_per_step;   /* microbatch · microbatches · (n − 1) of the first i32 source, else 0 */
  int microbatch, n_microbatches, n_ranks, n_stages, threads;
  bool nonfinite_skip, loss_pair, generate;
  double first_loss_scale;   /* of a dynamic one; 0: the loss scale is a constant */
  int loss_rank, loss_stage;
  int64_t length, vocabulary; /* generate */
  uint64_t prompt, logits;    /* generate: arena offsets */
  int n_parameters;   const PlanParameter *parameters;
  int n_states;       const char *const *states;    /* names of optimizer state */
  int n_sources;      const PlanSource *sources;
  int n_outputs;      const PlanOutput *outputs;
  int n_kernels;      const PlanKernel *kernels;
  int n_tasks;        const PlanTask *tasks;
  int n_stages_;      const PlanStage *stages;
  int n_transfers;    const PlanTransfer *transfers; /* in the total order */
  int n_values;       const char *const *values;     /* name and line of each crossing value, for messages */
                      const bool *prepared;          /* [n_values] made before the loop: one for all microbatches */
  const PlanRank *ranks;
  uint64_t hash;      /* of everything above */
} Plan;

/* CUDA: of all compute streams of a rank; and what it allocates on its device. */
static inline int64_t plan_scratch_bytes(const Plan *plan, const PlanRank *rank) { return plan->scratch_bytes * rank->n_streams; }
static inline int64_t plan_device_bytes(const Plan *plan, const PlanRank *rank) {
  return pp_cuda_bytes((int64_t)rank->arena_bytes, (int64_t)rank->window_bytes, rank->n_streams, plan->scratch_bytes);
}

#endif
