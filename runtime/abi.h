/* What the compiler and the runtime must agree on: element types, kinds of task, the order of
 * the control vector, limits and versions, the level of a CPU. Nothing else of the runtime is seen by codegen. */
#ifndef PP_ABI_H
#define PP_ABI_H

#include <stdlib.h>

enum { PP_ABI_VERSION = 1 };
enum { PP_ALIGNMENT = 64, PP_MAX_RANK = 8 };

/* Up to a multiple of PP_ALIGNMENT. */
static inline long long pp_align(long long bytes) { return (bytes + PP_ALIGNMENT - 1) / PP_ALIGNMENT * PP_ALIGNMENT; }

/* bool: one byte, 0 or 1. bf16 is only stored: the upper half of an f32, rounded to nearest even. */
typedef enum { PP_F32, PP_F64, PP_I32, PP_BOOL, PP_BF16, PP_DTYPE_COUNT } pp_dtype;

static inline int pp_dtype_bytes(pp_dtype dtype) {
  return dtype == PP_F64 ? 8 : dtype == PP_BOOL ? 1 : dtype == PP_BF16 ? 2 : 4;
}

static inline const char *pp_dtype_name(pp_dtype dtype) {
  return dtype == PP_F32 ? "f32" : dtype == PP_F64 ? "f64" : dtype == PP_I32 ? "i32" : dtype == PP_BOOL ? "bool" : "bf16";
}

/* What the library of products does to a result before it stores it: it adds a vector to each row; gelu of that, in the
 * form by tanh; and stores the sum, too. */
typedef enum { PP_EPILOGUE_NONE, PP_EPILOGUE_BIAS, PP_EPILOGUE_GELU, PP_EPILOGUE_GELU_AUX, PP_EPILOGUE_COUNT } pp_epilogue;

static inline const char *pp_epilogue_name(pp_epilogue epilogue) {
  static const char *const names[PP_EPILOGUE_COUNT] = {"none", "bias", "gelu", "gelu_aux"};
  return names[epilogue];
}

/* A sum over a whole tensor of more elements than PP_CUDA_CHUNK is made in chunks of as many. For the chunks' sums each
 * stream has scratch memory: for PP_CUDA_PARTIALS of them, or more where one kernel has more. */
enum { PP_CUDA_CHUNK = 65536, PP_CUDA_PARTIALS = 65536 };

/* What a program runs on. */
typedef enum { PP_TARGET_CPU, PP_TARGET_CUDA } pp_target;

/* CUDA: what lies behind arena and window for each compute stream, the workspace of the library of products (as
 * --products-workspace says) and the partial sums of kernels; behind them what the runtime keeps there. */
enum { PP_CUDA_ALIGNMENT = 256, PP_CUDA_WORKSPACE_BYTES = 32 << 20, PP_CUDA_STATE_BYTES = 512 };
enum { PP_CUDA_MAX_HEAD = 256 }; /* width of a head of attention, of which rows lie in shared memory */

/* What a rank allocates on its device, in one piece. */
static inline long long pp_cuda_bytes(long long arena_bytes, long long window_bytes, int n_streams, long long scratch_bytes) {
  long long mask = PP_CUDA_ALIGNMENT - 1;
  return ((arena_bytes + mask) & ~mask) + ((window_bytes + mask) & ~mask) + n_streams * scratch_bytes + PP_CUDA_STATE_BYTES;
}

/* Kinds of task. The loop's tasks have a microbatch; the others run once a step, with microbatch -1. */
typedef enum {
  PP_FWD,
  PP_BWD,        /* both halves, in program order */
  PP_BWD_INPUT,
  PP_BWD_WEIGHT,
  PP_FINISH,     /* after the loop: tied gradients folded, squared norms */
  PP_DECIDE,     /* on the rank of the loss: loss, norm, one factor for all ranks */
  PP_UPDATE,     /* scale once, optimizer step, in place; the runtime leaves it out when PP_CONTROL_APPLY is 0 */
  PP_REFRESH,    /* copies of tied parameters have arrived */
  PP_PREPARE,    /* before the loop: what follows from parameters alone and is worth making once a step */
  PP_TASK_KIND_COUNT
} pp_task_kind;

/* "fwd": the name of a kind in schedules, dumps, traces and messages. */
static inline const char *pp_task_kind_name(pp_task_kind kind) {
  static const char *const names[PP_TASK_KIND_COUNT] = {"fwd",    "bwd",    "bwd_input", "bwd_weight",
                                                        "finish", "decide", "update",    "refresh", "prepare"};
  return names[kind];
}

/* The control vector (f64): made by PP_DECIDE, sent to every rank that updates. */
enum {
  PP_CONTROL_APPLY,  /* 1: update; 0: the step is skipped (norm not finite, or nothing counted) */
  PP_CONTROL_FACTOR, /* multiplies every summed gradient once: clip factor / PP_CONTROL_DIVISOR */
  PP_CONTROL_LOSS,   /* the step's loss */
  PP_CONTROL_NORM,   /* global gradient norm, after the division */
  PP_CONTROL_RATE,   /* learning rate of this step, NaN when the optimizer has no `lr` */
  PP_CONTROL_DIVISOR, /* of the summed gradients: total count of a (sum, count) loss, microbatches otherwise, times
                       * the loss scale; 0: nothing is counted */
  PP_CONTROL_SIZE
};

/* The dynamic loss scale (f64): read and written by tasks of the rank of the loss alone, kept from step to step. */
enum {
  PP_LOSS_SCALE_NEXT,    /* multiplies the loss of the microbatches that come */
  PP_LOSS_SCALE_GOOD,    /* finite steps since it changed */
  PP_LOSS_SCALE_LAST,    /* that of the last step that was decided */
  PP_LOSS_SCALE_SIZE
};
/* It never leaves these: 1 / S, also times a clip and over a count, stays a normal f32. */
#define PP_LOSS_SCALE_MIN 0x1p-96
#define PP_LOSS_SCALE_MAX 0x1p96

/* Instructions before and after an action, in the order in which a rank issues them. */
typedef enum { PP_POST_RECEIVE, PP_POST_SEND, PP_AWAIT_RECEIVE, PP_AWAIT_SEND } pp_transfer_op;

/* Streams of a device. A task runs on the compute stream, or, as a member of an overlap block, on the second one. */
enum { PP_STREAM_COMPUTE, PP_STREAM_SECOND, PP_COMPUTE_STREAMS };
enum {
  PP_ON_SECOND = 1, /* the action runs on the second stream */
  PP_FORK = 2,      /* before its operations: the second stream waits for the compute stream */
  PP_JOIN = 4       /* behind its operations: the compute stream waits for the second */
};

/* Classes of bytes in the report of `ppc check` and in plan.json. */
typedef enum {
  PP_CLASS_PARAMETERS,
  PP_CLASS_GRADIENTS,
  PP_CLASS_OPTIMIZER,
  PP_CLASS_STASHES,
  PP_CLASS_TRANSFERS,
  PP_CLASS_WORKSPACE,
  PP_CLASS_COUNT
} pp_memory_class;

/* Where an item lies. The window is the part of a rank's memory that its peers read from. */
typedef enum { PP_ARENA, PP_WINDOW, PP_SPACE_COUNT } pp_space;

typedef enum { PP_INIT_ZEROS, PP_INIT_ONES, PP_INIT_NORMAL, PP_INIT_UNIFORM, PP_INIT_KIND_COUNT } pp_init_kind;

typedef enum {
  PP_DATA_BYTES,
  PP_DATA_TOKENS16,
  PP_DATA_F32_FILE,
  PP_DATA_I32_FILE,
  PP_DATA_SYNTHETIC_F32,
  PP_DATA_SYNTHETIC_I32,
  PP_DATA_KIND_COUNT
} pp_data_kind;

typedef enum { PP_ORDER_RANDOM, PP_ORDER_SEQUENTIAL, PP_ORDER_SHUFFLED, PP_ORDER_COUNT } pp_data_order;

typedef enum { PP_REDUCE_SUM, PP_REDUCE_MEAN, PP_REDUCE_MAX, PP_REDUCE_CONCAT } pp_output_kind;

/* Attention takes this many query rows at a time. */
enum { PP_ATTENTION_ROWS = 64 };

/* Bytes of workspace of pp_attention_* (gradient 0) and pp_attention_grad_* (gradient 1), for t query and
 * t_kv key positions; batch and heads share it. */
static inline long long pp_attention_workspace_bytes(long long t, long long t_kv, int dtype_bytes, int gradient) {
  long long rows = PP_ATTENTION_ROWS;
  if (t < rows && !gradient) rows = t;
  return pp_align(rows * t_kv * dtype_bytes * (gradient ? 2 : 1));
}

/* The same for bf16: what belongs to one key head is widened to f32 there, `group` query heads of width d. */
static inline long long pp_attention_bf16_workspace_bytes(long long group, long long t, long long t_kv, long long d, int gradient) {
  long long rows = pp_attention_workspace_bytes(t, t_kv, 4, gradient), tensors = gradient ? 4 : 2;
  return rows + 4 * tensors * d * (group * t + t_kv) + 8 * PP_ALIGNMENT;
}

static inline int pp_cpu_level_of_hardware(void) {
#if defined __x86_64__ && (defined __clang__ || __GNUC__ >= 12)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return 4;
  if (__builtin_cpu_supports("x86-64-v3")) return 3;
  if (__builtin_cpu_supports("x86-64-v2")) return 2;
#elif defined __x86_64__
  __builtin_cpu_init();
  int v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  int v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
  int v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return v4 ? 4 : v3 ? 3 : v2 ? 2 : 0;
#endif
  return 0;
}

/* 2, 3 or 4: the x86-64 level of this CPU, lowered by PP_CPU_LEVEL in the environment; 0: another architecture,
 * or a CPU below level 2. Asked where programs are built and once when they start. */
static inline int pp_cpu_level(void) {
  int level = pp_cpu_level_of_hardware();
  const char *text = getenv("PP_CPU_LEVEL");
  if (text && text[0] >= '2' && text[0] <= '4' && text[1] == 0 && text[0] - '0' < level) level = text[0] - '0';
  return level;
}

#endif
