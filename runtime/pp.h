/* The runtime of emitted programs. A rank is one `pp_program`: constant tables that a short loop
 * walks. The arena and the window are mapped once; nothing is allocated inside the loop of steps. */
#ifndef PP_H
#define PP_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pp_rank pp_rank; /* the one handle; its content is the runtime's */
struct pp_device;                /* device.h */
struct pp_kernel;                /* cuda/cuda.h */
struct pp_product;

/* --- what a task sees ------------------------------------------------------------------------ */

/* `at` has the address of each argument, in the order stated above the task in stage_K.c. The
 * addresses were computed once at start from the offsets in rank_R.c. */
typedef struct {
  void *const *at;
  int microbatch;   /* -1 outside the loop */
  int first;        /* 1: no earlier microbatch of this step has run this task: accumulators are overwritten */
  pp_rank *rank;
} pp_call;

typedef void pp_task_fn(const pp_call *call);

/* --- the tables of a rank ---------------------------------------------------------------------- */

typedef struct {
  const char *name;  /* "stage_1_fwd" */
  pp_task_fn *run;
  int kind;          /* pp_task_kind */
  int stage;
  int n_args;        /* addresses each call of it takes */
} pp_task;

typedef struct {
  int32_t task;         /* index in tasks */
  int32_t microbatch;   /* -1 outside the loop */
  int32_t first;        /* see pp_call */
  uint32_t args;        /* index in `offsets` of its first argument */
  uint16_t n_before, n_after; /* transfer operations to issue before and after; they follow one another in `ops` */
  uint32_t line;        /* index in `lines`: the line of the schedule program */
  uint8_t streams;      /* PP_ON_SECOND | PP_FORK | PP_JOIN: for devices with streams */
} pp_action;

typedef struct {
  uint8_t op;        /* pp_transfer_op */
  uint32_t transfer; /* index in `transfers` of this rank */
  uint8_t waits;     /* on a device with streams, bit k: a post makes the communication stream wait for what compute
                      * stream k has been given so far; an await makes compute stream k wait for the transfer.
                      * 0: nothing waits, for others imply it (docs/ir.md, events) */
} pp_op;

typedef struct {
  uint32_t id;          /* number in the whole job: its flags in the shared control block */
  int32_t peer;         /* the other rank */
  int32_t microbatch;
  uint32_t value;       /* index in `values`: its name in messages */
  uint64_t size_bytes;
  uint64_t offset;      /* of this rank's buffer; a sender's lies in the window */
  uint64_t peer_offset; /* of the sender's buffer in its window, for a receive */
  uint8_t is_send, space;
} pp_transfer;

typedef struct {
  const char *name;
  int dtype, n_dims;
  int64_t dims[PP_MAX_RANK];
  int init;             /* pp_init_kind */
  double a, b;          /* normal(mean, std), uniform(low, high) */
  int owner;            /* rank that holds optimizer state and saves it */
  int owner_stage;
  int trainable;        /* 0: nothing accumulates into it */
} pp_parameter;

/* A parameter's copies on this rank: offset of the value, and for the owner of gradient and states. */
typedef struct {
  int parameter;        /* index in parameters */
  uint64_t value;       /* offset */
  uint8_t value_space;
  int owned;
  uint64_t gradient;
  uint8_t gradient_space;
  uint64_t states[4];   /* each in the arena, the parameter's shape and dtype */
} pp_held;

typedef struct {
  const char *name;
  int kind;              /* pp_data_kind */
  int order;             /* pp_data_order */
  const char *path;      /* relative to the model's directory; null for synthetic; --data overrides it */
  int64_t n;             /* elements of a sample */
  int64_t vocabulary;    /* i32 sources: a value outside [0, vocabulary) is an error before step 1; 0: unknown */
  int used;              /* by this rank */
} pp_data;

typedef struct {
  const char *name;
  int kind;              /* pp_output_kind */
  int stage, rank;
  int64_t n;             /* elements a microbatch gives */
} pp_output;

/* A build with -DPP_CHECK: bytes that start or end their life. All of arena and window outside
 * `always` is poisoned at start. A rank counts the points of a step: one before each transfer
 * operation and one before each action, in the order in which it comes to them, from 0; the rows with
 * that number are applied there (a start unpoisons and fills with NaN), those with the number of all
 * points at the end of the step. Rows are sorted by point; at one point ends stand before starts. */
typedef struct {
  uint32_t point;
  uint8_t starts;      /* 1: start of life, 0: end */
  uint8_t space;       /* pp_space */
  uint64_t offset, size_bytes;
  const char *name;
} pp_life;

typedef struct {
  int abi_version;
  const struct pp_device *device; /* what it runs on */
  const char *model;           /* "gpt2.pp" */
  const char *directory;       /* of the model file when it was compiled */
  uint64_t plan_hash;          /* the same in all ranks' programs of a job */
  int rank, n_ranks, n_stages, n_microbatches, microbatch;
  int64_t steps;
  uint64_t seed;
  int threads;
  int nonfinite_skip;          /* 0: a step whose norm is not finite ends the job */
  int loss_rank;               /* runs PP_DECIDE and prints the log */
  int64_t tokens_per_step;     /* for tokens/s; 0: samples are counted */
  uint64_t arena_bytes, window_bytes; /* of this rank */
  const uint64_t *all_window_bytes, *all_mapped_bytes; /* [n_ranks] */
  uint32_t n_transfers_job;    /* ids run below this */

  const pp_task *tasks;               int n_tasks;
  const pp_action *actions;           uint32_t n_actions;
  const uint64_t *offsets;            uint32_t n_offsets;   /* bit 63: in the window */
  const pp_op *ops;                   uint32_t n_ops;
  const pp_transfer *transfers;       uint32_t n_transfers;
  const char *const *lines;           /* "gpt2.pp:41" */
  const char *const *values;          /* "h.0: x (gpt2.pp:12)" */
  const pp_parameter *parameters;     int n_parameters;     /* of the whole job, in declaration order */
  const pp_held *held;                int n_held;
  const char *const *state_names;     int n_states;         /* "m", "v" */
  const pp_data *data;                int n_data;
  const pp_output *outputs;           int n_outputs;
  /* Offsets from here on are encoded as in `offsets`: bit 63 says that the buffer lies in the window. */
  uint64_t losses, counts;            /* on the loss rank: f64[n_microbatches] each */
  uint64_t norms;                     /* f64[n_parameters] on the loss rank: squared norms of sums, declaration order */
  uint64_t control;                   /* f64[PP_CONTROL_SIZE], arrives on every rank, whether or not it updates: all decide alike */
  double first_loss_scale;            /* 0: on this rank there is no dynamic loss scale */
  uint64_t loss_scale;                /* of a dynamic one, on the loss rank: f64[PP_LOSS_SCALE_SIZE] */
  uint64_t step;                      /* one f64: number of the optimizer's step that is being made, from 1; skipped ones don't count */
  const uint64_t *output_slots;       /* [n_outputs] f64[n_microbatches * n] (n = 1 unless concat): on the rank of its stage
                                       * where partial results are stored (in the window), on the loss rank where they arrive */
  /* a forward-only program (ppc run --generate) has no optimizer; it fills `prompt` and reads `logits` */
  int generate;
  uint64_t prompt, logits;            /* i32[length], real[length, vocabulary] */
  int64_t length, vocabulary;
  int real;                           /* pp_dtype of the model */
  /* of CUDA programs; empty in others. Beside the executable lies the file of kernels. */
  const char *fatbin;                 /* "kernels.fatbin" */
  const char *kernels_mark;           /* a kernel in it that no other program's has; may be null */
  const struct pp_kernel *kernels;    int n_kernels;
  const struct pp_product *products;  int n_products;
  const struct pp_place *places;      int n_places;         /* of checked indices */
  int n_streams;                      /* compute streams: 2 with `overlap`, else 1 */
  uint64_t scratch_bytes;             /* of each: partial sums and workspace of products */
  uint64_t partial_bytes;             /* of them, the partial sums: the first */
  uint64_t staging_bytes;             /* sample data that a step of this rank reads, each call's rounded up to PP_ALIGNMENT */
  /* with -DPP_CHECK; empty otherwise */
  const pp_life *lives;               uint32_t n_lives;
  const pp_life *always;              uint32_t n_always;    /* parameters, gradients, states, the vectors above: live in all steps */
} pp_program;

/* The whole life of a rank: finds its peers, maps memory, trains, saves, reports. Returns the exit status. */
int pp_main(const pp_program *program, int argc, char **argv);
/* All ranks of a job as threads of this process (`make threads`, for ThreadSanitizer). */
int pp_main_threads(const pp_program *const *programs, int n_programs, int argc, char **argv);

/* --- what emitted tasks call --------------------------------------------------------------------- */

/* Sample data of this step's microbatch into dst: [microbatch, n] i32 or f32. */
void pp_data_read(const pp_call *call, int data, void *dst);
/* Loss pair of a microbatch; count 1 for a plain loss. */
void pp_loss_store(const pp_call *call, double loss, double count);
/* Partial result of `output` number k for this microbatch: n values, already reduced over the elements unless concat. */
void pp_output_store(const pp_call *call, int output, const double *values, int64_t n);
/* An index outside [0, rows) stops the run naming stage, microbatch, place and value. */
void pp_check_indices(const pp_call *call, const int32_t *index, int64_t n, int64_t rows, const char *place);
/* Random numbers: uniform [0, 1) f32, a function of (seed, step, microbatch, key, element). */
void pp_random_uniform(const pp_call *call, uint64_t key, float *dst, int64_t n);

/* Matrix products, row-major, batched over `batch` with contiguous matrices: C[m,n] = op(A)·op(B) (+ C).
 * ta: A is stored [k, m]; tb: B is stored [n, k]. accumulate: add to what C holds. */
void pp_matmul_f32(int ta, int tb, int64_t batch, int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c, int accumulate);
void pp_matmul_f64(int ta, int tb, int64_t batch, int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c, int accumulate);
/* bf16 operands, f32 result: widened block by block, so that k is summed in pieces of 256. */
void pp_matmul_bf16(int ta, int tb, int64_t batch, int64_t m, int64_t n, int64_t k, const uint16_t *a, const uint16_t *b, float *c, int accumulate);
/* Threads of each product: the rank's --threads. Called once at start, before the first product. */
void pp_matmul_set_threads(int threads);

/* acc (+)= x, elementwise. accumulate 0: overwrites. */
void pp_accumulate_f32(int64_t n, const float *x, float *acc, int accumulate);
void pp_accumulate_f64(int64_t n, const double *x, double *acc, int accumulate);
/* Rows of `row` elements: out[i] = table[index[i]], for i in [0, n). Indices were checked. */
void pp_gather_f32(int64_t n, int64_t row, const float *table, const int32_t *index, float *out);
void pp_gather_f64(int64_t n, int64_t row, const double *table, const int32_t *index, double *out);
void pp_gather_bf16(int64_t n, int64_t row, const uint16_t *table, const int32_t *index, uint16_t *out);
void pp_gather_bool(int64_t n, int64_t row, const uint8_t *table, const int32_t *index, uint8_t *out);
void pp_gather_i32(int64_t n, int64_t row, const int32_t *table, const int32_t *index, int32_t *out);
/* out[index[i]] += dy[i], in the order of i; out has `rows` rows and is zeroed first unless accumulate. */
void pp_scatter_add_f32(int64_t n, int64_t row, int64_t rows, const float *dy, const int32_t *index, float *out, int accumulate);
void pp_scatter_add_f64(int64_t n, int64_t row, int64_t rows, const double *dy, const int32_t *index, double *out, int accumulate);

/* Attention over [batch, heads, t, d]; k and v have kv_heads. lse: log of the sum of exponentials, [batch, heads, t].
 * workspace: pp_attention_workspace_bytes() of abi.h, planned by the compiler. */
typedef struct {
  int64_t batch, heads, kv_heads, t, t_kv, d;
  int causal;
  double scale;
} pp_attention_shape;
/* kernels/attention.c has one of each for each x86-64 level; the emitted table of kernels holds those that fit. */
typedef void pp_attention_f32_fn(const pp_attention_shape *s, const float *q, const float *k, const float *v, float *out, float *lse, void *workspace);
typedef void pp_attention_grad_f32_fn(const pp_attention_shape *s, const float *q, const float *k, const float *v, const float *out, const float *lse, const float *dout, float *dq, float *dk, float *dv, void *workspace);
/* workspace: pp_attention_bf16_workspace_bytes() */
typedef void pp_attention_bf16_fn(const pp_attention_shape *s, const uint16_t *q, const uint16_t *k, const uint16_t *v, uint16_t *out, float *lse, void *workspace);
typedef void pp_attention_grad_bf16_fn(const pp_attention_shape *s, const uint16_t *q, const uint16_t *k, const uint16_t *v, const uint16_t *out, const float *lse, const uint16_t *dout, uint16_t *dq, uint16_t *dk, uint16_t *dv, void *workspace);
typedef void pp_attention_f64_fn(const pp_attention_shape *s, const double *q, const double *k, const double *v, double *out, double *lse, void *workspace);
typedef void pp_attention_grad_f64_fn(const pp_attention_shape *s, const double *q, const double *k, const double *v, const double *out, const double *lse, const double *dout, double *dq, double *dk, double *dv, void *workspace);

#ifdef __cplusplus
}
#endif
#endif
