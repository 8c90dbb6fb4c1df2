/* A whole program from a plan that is made by hand: two stages of an MLP, on one rank and on two. The
 * emitted C is built with -Wall -Wextra -Werror, in all its forms, and run; both must end with the same
 * hash of the parameters, and the loss must be what a few lines of C compute. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/parts.h"

enum { SAMPLES = 4, WIDTH = 8, HIDDEN = 16, MICROBATCHES = 2, STEPS = 3 };
enum { VALUE_H, VALUE_DH, VALUE_NORMS_0, VALUE_NORMS_1, VALUE_CONTROL, N_VALUES };
static const double RATE = 0.01;

/* --- shorthands -------------------------------------------------------------------------------------- */

#define N(array) ((int)(sizeof(array) / sizeof *(array)))
#define INTS(...) ((const int[]){__VA_ARGS__})
#define AXES(...) .axes = (const int64_t[]){__VA_ARGS__}
#define F32(...) {PP_F32, N(((const int64_t[]){__VA_ARGS__})), {__VA_ARGS__}}
#define F64(...) {PP_F64, N(((const int64_t[]){__VA_ARGS__})), {__VA_ARGS__}}
#define REAL_SCALAR {.dtype = PP_F32}
#define WIDE_SCALAR {.dtype = PP_F64}
#define NODE(id, type, ...) {PLAN_OP_##id, N(INTS(__VA_ARGS__)), INTS(__VA_ARGS__), type, {0}}

static const PlanType type_x = F32(SAMPLES, WIDTH), type_h = F32(SAMPLES, HIDDEN), type_y = F32(SAMPLES, 1);
static const PlanType type_w1 = F32(WIDTH, HIDDEN), type_w2 = F32(HIDDEN, 1);
static const PlanType type_one = F64(1), type_control = F64(PP_CONTROL_SIZE), type_losses = F64(MICROBATCHES), type_norms = F64(2);
static const PlanType type_real = REAL_SCALAR, type_wide = WIDE_SCALAR;

/* --- kernels -------------------------------------------------------------------------------------------- */

static PlanNode node(PlanOp op, PlanType type, int n_in, const int *in, PlanAttrs attrs) {
  return (PlanNode){.op = op, .n_in = n_in, .in = in, .type = type, .attrs = attrs};
}
#define MAKE(id, type, attrs, ...) node(PLAN_OP_##id, type, N(INTS(__VA_ARGS__)), INTS(__VA_ARGS__), attrs)
#define LEAF(type, v) node(PLAN_OP_CONSTANT, type, 0, NULL, (PlanAttrs){.value = v})
#define NONE ((PlanAttrs){0})

static const void *copy(Arena *arena, const void *from, size_t size) { return memcpy(arena_alloc(arena, size), from, size); }
#define COPY(array) copy(arena, array, sizeof(array))

static PlanKernel kernel(Arena *arena, const char *name, int n_in, const PlanType *in, int n, const PlanNode *nodes, int n_out,
                         const int *out) {
  PlanNode *kept = arena_alloc_array(arena, (size_t)n, sizeof *kept);
  for (int i = 0; i < n; i++) {
    kept[i] = nodes[i];
    kept[i].in = copy(arena, nodes[i].in ? nodes[i].in : INTS(0), sizeof(int) * (size_t)(nodes[i].n_in ? nodes[i].n_in : 1));
    if (nodes[i].attrs.axes) kept[i].attrs.axes = copy(arena, nodes[i].attrs.axes, sizeof(int64_t) * (size_t)nodes[i].attrs.n_axes);
    if (nodes[i].attrs.limits) kept[i].attrs.limits = copy(arena, nodes[i].attrs.limits, sizeof(int64_t) * (size_t)nodes[i].attrs.n_axes);
  }
  return (PlanKernel){.name = name, .n_inputs = n_in, .inputs = copy(arena, in, sizeof *in * (size_t)n_in), .n_nodes = n,
                      .nodes = kept, .n_outputs = n_out, .outputs = copy(arena, out, sizeof *out * (size_t)n_out)};
}

static PlanKernel tanh_kernel(Arena *arena) {
  PlanNode nodes[] = {MAKE(TANH, type_h, NONE, 0)};
  return kernel(arena, "tanh_4x16", 1, &type_h, N(nodes), nodes, 1, INTS(1));
}

/* dpre = dh (1 - h²) */
static PlanKernel tanh_grad_kernel(Arena *arena) {
  PlanType in[] = {type_h, type_h};
  PlanNode nodes[] = {MAKE(MUL, type_h, NONE, 0, 0), LEAF(type_h, 1), MAKE(SUB, type_h, NONE, 3, 2), MAKE(MUL, type_h, NONE, 1, 4)};
  return kernel(arena, "tanh_grad_4x16", 2, in, N(nodes), nodes, 1, INTS(5));
}

/* d = y - 1, loss = Σ d² */
static PlanKernel error_kernel(Arena *arena) {
  PlanAttrs axes = {AXES(0, 1), .n_axes = 2};
  PlanNode nodes[] = {LEAF(type_y, 1), MAKE(SUB, type_y, NONE, 0, 1), MAKE(MUL, type_y, NONE, 2, 2), MAKE(REDUCE_SUM, type_real, axes, 3)};
  return kernel(arena, "error_4", 1, &type_y, N(nodes), nodes, 2, INTS(2, 4));
}

static PlanKernel double_kernel(Arena *arena) {
  PlanNode nodes[] = {MAKE(ADD, type_y, NONE, 0, 0)};
  return kernel(arena, "double_4", 1, &type_y, N(nodes), nodes, 1, INTS(1));
}

static PlanKernel norm_kernel(Arena *arena, const char *name, PlanType type) {
  PlanAttrs axes = {AXES(0, 1), .n_axes = 2};
  PlanType wide = type;
  wide.dtype = PP_F64;
  PlanNode nodes[] = {MAKE(CAST, wide, NONE, 0), MAKE(MUL, wide, NONE, 1, 1), MAKE(REDUCE_SUM, type_wide, axes, 2), MAKE(RESHAPE, type_one, NONE, 3)};
  return kernel(arena, name, 1, &type, N(nodes), nodes, 1, INTS(4));
}

/* norms_0, norms_1, losses → control, norms */
static PlanKernel decide_kernel(Arena *arena) {
  PlanType in[] = {type_one, type_one, type_losses};
  PlanAttrs axes = {AXES(0), .n_axes = 1};
  PlanNode nodes[] = {
      MAKE(CONCAT, type_norms, NONE, 0, 1),     /* 3 */
      MAKE(REDUCE_SUM, type_wide, axes, 3),     /* 4 */
      MAKE(SQRT, type_wide, NONE, 4),           /* 5 */
      LEAF(type_wide, 1.0 / MICROBATCHES),      /* 6 */
      MAKE(MUL, type_wide, NONE, 5, 6),         /* 7: norm */
      MAKE(REDUCE_SUM, type_wide, axes, 2),     /* 8 */
      MAKE(MUL, type_wide, NONE, 8, 6),         /* 9: loss */
      LEAF(type_one, 1),                        /* 10 */
      MAKE(RESHAPE, type_one, NONE, 6),         /* 11: factor */
      MAKE(RESHAPE, type_one, NONE, 9),         /* 12 */
      MAKE(RESHAPE, type_one, NONE, 7),         /* 13 */
      LEAF(type_one, RATE),                     /* 14 */
      LEAF(type_one, MICROBATCHES),             /* 15 */
      MAKE(CONCAT, type_control, NONE, 10, 11, 12, 13, 14, 15),
  };
  return kernel(arena, "decide", 3, in, N(nodes), nodes, 2, INTS(16, 3));
}

/* w' = w - rate g factor, in place */
static PlanKernel sgd_kernel(Arena *arena, const char *name, PlanType type) {
  PlanType in[] = {type, type, type_control}, one = F32(1);
  PlanAttrs slice = {AXES(PP_CONTROL_FACTOR), .limits = (const int64_t[]){PP_CONTROL_FACTOR + 1}, .n_axes = 1};
  PlanNode nodes[] = {MAKE(SLICE, type_one, slice, 2), MAKE(CAST, one, NONE, 3),       MAKE(RESHAPE, type_real, NONE, 4),
                      MAKE(BROADCAST, type, NONE, 5),  MAKE(MUL, type, NONE, 1, 6),    LEAF(type, RATE),
                      MAKE(MUL, type, NONE, 7, 8),     MAKE(SUB, type, NONE, 0, 9)};
  PlanKernel k = kernel(arena, name, 3, in, N(nodes), nodes, 1, INTS(10));
  k.n_in_place = 1;
  k.in_place = copy(arena, INTS(0, 0), 2 * sizeof(int));
  return k;
}

enum { TANH, TANH_GRAD, ERROR, DOUBLE, NORM_W1, NORM_W2, DECIDE, SGD_W1, SGD_W2, N_KERNELS };

static const PlanKernel *make_kernels(Arena *arena) {
  PlanKernel kernels[] = {tanh_kernel(arena),
                          tanh_grad_kernel(arena),
                          error_kernel(arena),
                          double_kernel(arena),
                          norm_kernel(arena, "norm_8x16", type_w1),
                          norm_kernel(arena, "norm_16x1", type_w2),
                          decide_kernel(arena),
                          sgd_kernel(arena, "sgd_8x16", type_w1),
                          sgd_kernel(arena, "sgd_16x1", type_w2)};
  return COPY(kernels);
}

/* --- tasks ------------------------------------------------------------------------------------------------ */

#define VALUE(name, type, id, result) {PLAN_ARG_VALUE, 0, name, type, 0, 0, id, result, "a value"}
#define FRAME {PLAN_ARG_FRAME, 0, "frame", {0}, 0, 0, -1, true, ""}
#define WEIGHT(name, type, i, result) {PLAN_ARG_WEIGHTS, 0, name, type, i, 0, -1, result, "parameter"}
#define GRADIENT(name, type, i) {PLAN_ARG_GRADIENT, 0, name, type, i, 0, -1, true, "accumulator"}
#define WORKSPACE {PLAN_ARG_WORKSPACE, 0, "workspace", {0}, 0, 0, -1, true, ""}
#define RUNTIME(place, name, type) {PLAN_ARG_RUNTIME, place, name, type, 0, 0, -1, true, ""}
#define STATEMENT(id, ...) {.op = PLAN_OP_##id, .workspace = -1, .line = "mlp.pp:7", .comment = "", __VA_ARGS__}
#define IN(...) .n_in = N(INTS(__VA_ARGS__)), .in = copy(arena, INTS(__VA_ARGS__), sizeof INTS(__VA_ARGS__))
#define OUT(...) .n_out = N(INTS(__VA_ARGS__)), .out = copy(arena, INTS(__VA_ARGS__), sizeof INTS(__VA_ARGS__))
#define TASK(task_name, task_kind, task_stage, args, bufs, stmts, workspace)                                               \
  (PlanTask) {                                                                                                            \
    .name = task_name, .kind = task_kind, .stage = task_stage, .n_arguments = N(args), .arguments = COPY(args),           \
    .n_buffers = N(bufs), .buffers = COPY(bufs), .n_statements = N(stmts), .statements = COPY(stmts),                     \
    .workspace_bytes = workspace, .flops = 0                                                                              \
  }

static PlanTask fwd_0(Arena *arena) {
  PlanArgument args[] = {FRAME, WEIGHT("w1", type_w1, 0, false), VALUE("h", type_h, VALUE_H, true), WORKSPACE};
  PlanBuffer bufs[] = {{"x", type_x, PLAN_FRAME, 0, 0}, {"w1", type_w1, PLAN_WEIGHT, 0, 0}, {"pre", type_h, PLAN_SCRATCH, 0, 0},
                       {"h", type_h, PLAN_ARGUMENT, 2, 0}};
  PlanStatement stmts[] = {STATEMENT(DATA, OUT(0), .index = 0), STATEMENT(MATMUL, IN(0, 1), OUT(2)),
                           STATEMENT(KERNEL, IN(2), OUT(3), .kernel = TANH)};
  return TASK("stage_0_fwd", PP_FWD, 0, args, bufs, stmts, 4 * SAMPLES * HIDDEN);
}

static PlanTask bwd_0(Arena *arena) {
  PlanArgument args[] = {VALUE("dh", type_h, VALUE_DH, false), VALUE("h", type_h, VALUE_H, false), FRAME, WORKSPACE,
                         GRADIENT("dw1", type_w1, 0)};
  PlanBuffer bufs[] = {{"dh", type_h, PLAN_ARGUMENT, 0, 0}, {"h", type_h, PLAN_ARGUMENT, 1, 0}, {"x", type_x, PLAN_FRAME, 0, 0},
                       {"dpre", type_h, PLAN_SCRATCH, 0, 0}, {"dw1", type_w1, PLAN_GRADIENT, 0, 0}};
  PlanStatement stmts[] = {STATEMENT(KERNEL, IN(1, 0), OUT(3), .kernel = TANH_GRAD),
                           STATEMENT(MATMUL_ACCUMULATE, IN(2, 3), OUT(4), .attrs.ta = true, .first_use = true)};
  return TASK("stage_0_bwd", PP_BWD, 0, args, bufs, stmts, 4 * SAMPLES * HIDDEN);
}

static PlanTask fwd_1(Arena *arena) {
  PlanArgument args[] = {VALUE("h", type_h, VALUE_H, false), WEIGHT("w2", type_w2, 1, false), FRAME, WORKSPACE};
  PlanBuffer bufs[] = {{"h", type_h, PLAN_ARGUMENT, 0, 0}, {"w2", type_w2, PLAN_WEIGHT, 1, 0}, {"y", type_y, PLAN_SCRATCH, 0, 0},
                       {"d", type_y, PLAN_FRAME, 0, 0}, {"loss", type_real, PLAN_SCRATCH, 64, 0}};
  PlanStatement stmts[] = {STATEMENT(MATMUL, IN(0, 1), OUT(2)), STATEMENT(KERNEL, IN(2), OUT(3, 4), .kernel = ERROR),
                           STATEMENT(LOSS, IN(4))};
  return TASK("stage_1_fwd", PP_FWD, 1, args, bufs, stmts, 128);
}

static PlanTask bwd_1(Arena *arena) {
  PlanArgument args[] = {VALUE("h", type_h, VALUE_H, false), WEIGHT("w2", type_w2, 1, false), FRAME, WORKSPACE,
                         GRADIENT("dw2", type_w2, 1), VALUE("dh", type_h, VALUE_DH, true)};
  PlanBuffer bufs[] = {{"h", type_h, PLAN_ARGUMENT, 0, 0},   {"w2", type_w2, PLAN_WEIGHT, 1, 0},    {"d", type_y, PLAN_FRAME, 0, 0},
                       {"dy", type_y, PLAN_SCRATCH, 0, 0},   {"dw2", type_w2, PLAN_GRADIENT, 1, 0}, {"dh", type_h, PLAN_ARGUMENT, 5, 0}};
  PlanStatement stmts[] = {STATEMENT(KERNEL, IN(2), OUT(3), .kernel = DOUBLE), STATEMENT(MATMUL, IN(3, 1), OUT(5), .attrs.tb = true),
                           STATEMENT(MATMUL_ACCUMULATE, IN(0, 3), OUT(4), .attrs.ta = true, .first_use = true)};
  return TASK("stage_1_bwd", PP_BWD, 1, args, bufs, stmts, 64);
}

static PlanTask finish(Arena *arena, int stage) {
  PlanType type = stage ? type_w2 : type_w1;
  PlanArgument args[] = {GRADIENT("dw", type, stage), VALUE("norms", type_one, stage ? VALUE_NORMS_1 : VALUE_NORMS_0, true)};
  PlanBuffer bufs[] = {{"dw", type, PLAN_GRADIENT, stage, 0}, {"norms", type_one, PLAN_ARGUMENT, 1, 0}};
  PlanStatement stmts[] = {STATEMENT(KERNEL, IN(0), OUT(1), .kernel = stage ? NORM_W2 : NORM_W1)};
  return TASK(stage ? "stage_1_finish" : "stage_0_finish", PP_FINISH, stage, args, bufs, stmts, 0);
}

static PlanTask decide(Arena *arena) {
  PlanArgument args[] = {VALUE("norms_0", type_one, VALUE_NORMS_0, false), VALUE("norms_1", type_one, VALUE_NORMS_1, false),
                         RUNTIME(PLAN_LOSSES, "losses", type_losses), VALUE("control", type_control, VALUE_CONTROL, true),
                         RUNTIME(PLAN_NORMS, "norms", type_norms), RUNTIME(PLAN_CONTROL, "kept", type_control)};
  PlanBuffer bufs[] = {{"norms_0", type_one, PLAN_ARGUMENT, 0, 0}, {"norms_1", type_one, PLAN_ARGUMENT, 1, 0},
                       {"losses", type_losses, PLAN_LOSSES, 0, 0}, {"control", type_control, PLAN_ARGUMENT, 3, 0},
                       {"norms", type_norms, PLAN_NORMS, 0, 0},    {"kept", type_control, PLAN_CONTROL, 0, 0}};
  PlanStatement stmts[] = {STATEMENT(KERNEL, IN(0, 1, 2), OUT(3, 4), .kernel = DECIDE), STATEMENT(CONTROL, IN(3), OUT(5))};
  return TASK("stage_1_decide", PP_DECIDE, 1, args, bufs, stmts, 0);
}

static PlanTask update(Arena *arena, int stage) {
  PlanType type = stage ? type_w2 : type_w1;
  PlanArgument args[] = {WEIGHT("w", type, stage, true), GRADIENT("dw", type, stage),
                         VALUE("control", type_control, VALUE_CONTROL, false)};
  PlanBuffer bufs[] = {{"w", type, PLAN_WEIGHT, stage, 0}, {"dw", type, PLAN_GRADIENT, stage, 0},
                       {"control", type_control, PLAN_ARGUMENT, 2, 0}};
  PlanStatement stmts[] = {STATEMENT(KERNEL, IN(0, 1, 2), OUT(0), .kernel = stage ? SGD_W2 : SGD_W1)};
  return TASK(stage ? "stage_1_update" : "stage_0_update", PP_UPDATE, stage, args, bufs, stmts, 0);
}

enum { FWD_0, BWD_0, FINISH_0, UPDATE_0, FWD_1, BWD_1, FINISH_1, DECIDE_1, UPDATE_1, N_TASKS };

static const PlanTask *make_tasks(Arena *arena) {
  PlanTask tasks[] = {fwd_0(arena), bwd_0(arena),     finish(arena, 0), update(arena, 0), fwd_1(arena),
                      bwd_1(arena), finish(arena, 1), decide(arena),    update(arena, 1)};
  return COPY(tasks);
}

static const PlanStage *make_stages(Arena *arena, int n_ranks) {
  PlanField x[] = {{"x", type_x, 0, "mlp.pp:6"}}, d[] = {{"d", type_y, 0, "mlp.pp:9"}};
  PlanStage stages[] = {
      {.index = 0, .rank = 0, .n_tasks = 4, .tasks = copy(arena, INTS(FWD_0, BWD_0, FINISH_0, UPDATE_0), 4 * sizeof(int)),
       .n_fields = 1, .fields = COPY(x), .frame_bytes = plan_bytes(&type_x), .first_line = "mlp.pp:6", .last_line = "mlp.pp:7"},
      {.index = 1, .rank = n_ranks - 1, .n_tasks = 5, .tasks = copy(arena, INTS(FWD_1, BWD_1, FINISH_1, DECIDE_1, UPDATE_1), 5 * sizeof(int)),
       .n_fields = 1, .fields = COPY(d), .frame_bytes = 64, .first_line = "mlp.pp:8", .last_line = "mlp.pp:9"}};
  return COPY(stages);
}

/* --- layout: everything has its own place -------------------------------------------------------------------- */

/* Values lie in the window when they are sent; on the receiver in its arena. */
static uint64_t value_place(int value, int microbatch) { return (uint64_t)(value * MICROBATCHES + (microbatch > 0)) * 512; }
enum { PLACE_FRAMES = 8192, PLACE_WORKSPACE = 12288, PLACE_HELD = 16384, PLACE_VECTORS = 24576, ARENA = 28672, WINDOW = 8192 };

static int made_on(int value, int n_ranks) { return value == VALUE_H || value == VALUE_NORMS_0 ? 0 : n_ranks - 1; }

static uint64_t place(const PlanArgument *a, int rank, int n_ranks, int stage, int microbatch) {
  switch (a->kind) {
  case PLAN_ARG_VALUE: {
    bool here = made_on(a->value, n_ranks) == rank;
    if (!here && a->value == VALUE_CONTROL) return PLACE_VECTORS;
    return value_place(a->value, microbatch) | (here ? EMIT_IN_WINDOW : 0);
  }
  case PLAN_ARG_FRAME: return (uint64_t)(PLACE_FRAMES + stage * 1024 + microbatch * 512);
  case PLAN_ARG_WORKSPACE: return PLACE_WORKSPACE;
  case PLAN_ARG_WEIGHTS: return (uint64_t)(PLACE_HELD + a->index * 2048);
  case PLAN_ARG_GRADIENT: return (uint64_t)(PLACE_HELD + a->index * 2048 + 1024);
  default: return PLACE_VECTORS + (uint64_t)(a->place - PLAN_STEP + 1) * 128 - (a->place == PLAN_CONTROL ? 128u * (PLAN_CONTROL - PLAN_STEP + 1) : 0);
  }
}

static const uint64_t *places(Arena *arena, const PlanTask *task, int rank, int n_ranks, int microbatch) {
  uint64_t *at = arena_alloc_array(arena, (size_t)task->n_arguments, sizeof *at);
  for (int i = 0; i < task->n_arguments; i++) at[i] = place(&task->arguments[i], rank, n_ranks, task->stage, microbatch);
  return at;
}

/* --- ranks ------------------------------------------------------------------------------------------------------ */

#define OPS(field, ...) \
  .n_##field = N(((const PlanTransferOp[]){__VA_ARGS__})), .field = copy(arena, (const PlanTransferOp[]){__VA_ARGS__}, sizeof((const PlanTransferOp[]){__VA_ARGS__}))
#define ACTION(t, mb, ...) {.task = t, .microbatch = mb, .first = mb <= 0, .line = "mlp.pp:20", __VA_ARGS__}
enum { H_0, H_1, DH_0, DH_1, NORMS, CONTROL, N_TRANSFERS };

static PlanRank finish_rank(Arena *arena, const PlanTask *tasks, int rank, int n_ranks, int n, const PlanAction *actions) {
  PlanAction *kept = arena_alloc_array(arena, (size_t)n, sizeof *kept);
  for (int i = 0; i < n; i++) {
    kept[i] = actions[i];
    kept[i].offsets = places(arena, &tasks[actions[i].task], rank, n_ranks, actions[i].microbatch);
  }
  PlanHeld held[] = {{.parameter = 0, .value = PLACE_HELD, .gradient = PLACE_HELD + 1024, .owned = true},
                     {.parameter = 1, .value = PLACE_HELD + 2048, .gradient = PLACE_HELD + 3072, .owned = true}};
  return (PlanRank){.rank = rank, .n_actions = n, .actions = kept, .n_held = n_ranks == 1 ? 2 : 1,
                    .held = copy(arena, n_ranks == 1 ? held : &held[rank], n_ranks == 1 ? sizeof held : sizeof *held),
                    .arena_bytes = ARENA, .window_bytes = WINDOW, .control = PLACE_VECTORS, .step = PLACE_VECTORS + 128,
                    .losses = PLACE_VECTORS + 256, .counts = PLACE_VECTORS + 384, .norms = PLACE_VECTORS + 640,
                    .class_bytes = {4096}};
}

static const PlanRank *one_rank(Arena *arena, const PlanTask *tasks) {
  PlanAction actions[] = {ACTION(FWD_0, 0), ACTION(FWD_1, 0), ACTION(BWD_1, 0), ACTION(BWD_0, 0), ACTION(FWD_0, 1),
                          ACTION(FWD_1, 1), ACTION(BWD_1, 1), ACTION(BWD_0, 1), ACTION(FINISH_1, -1), ACTION(FINISH_0, -1),
                          ACTION(DECIDE_1, -1), ACTION(UPDATE_1, -1), ACTION(UPDATE_0, -1)};
  PlanRank ranks[] = {finish_rank(arena, tasks, 0, 1, N(actions), actions)};
  return COPY(ranks);
}

static const PlanRank *two_ranks(Arena *arena, const PlanTask *tasks) {
  PlanAction first[] = {
      ACTION(FWD_0, 0, OPS(after, {PP_POST_SEND, H_0, 1, -1})),
      ACTION(FWD_0, 1, OPS(after, {PP_POST_SEND, H_1, 1, -1})),
      ACTION(BWD_0, 0, OPS(before, {PP_POST_RECEIVE, DH_0, 1, -1}, {PP_POST_RECEIVE, DH_1, 1, -1}, {PP_AWAIT_RECEIVE, DH_0, 1, -1})),
      ACTION(BWD_0, 1, OPS(before, {PP_AWAIT_RECEIVE, DH_1, 1, -1})),
      ACTION(FINISH_0, -1, OPS(before, {PP_AWAIT_SEND, H_0, 1, -1}, {PP_AWAIT_SEND, H_1, 1, -1}), OPS(after, {PP_POST_SEND, NORMS, 1, -1})),
      ACTION(UPDATE_0, -1, OPS(before, {PP_POST_RECEIVE, CONTROL, 1, -1}, {PP_AWAIT_RECEIVE, CONTROL, 1, -1})),
  };
  PlanAction second[] = {
      ACTION(FWD_1, 0, OPS(before, {PP_POST_RECEIVE, H_0, 1, -1}, {PP_POST_RECEIVE, H_1, 1, -1}, {PP_AWAIT_RECEIVE, H_0, 1, -1})),
      ACTION(BWD_1, 0, OPS(after, {PP_POST_SEND, DH_0, 1, -1})),
      ACTION(FWD_1, 1, OPS(before, {PP_AWAIT_RECEIVE, H_1, 1, -1})),
      ACTION(BWD_1, 1, OPS(after, {PP_POST_SEND, DH_1, 1, -1})),
      ACTION(FINISH_1, -1),
      ACTION(DECIDE_1, -1, OPS(before, {PP_POST_RECEIVE, NORMS, 1, -1}, {PP_AWAIT_RECEIVE, NORMS, 1, -1}), OPS(after, {PP_POST_SEND, CONTROL, 1, -1})),
      ACTION(UPDATE_1, -1),
  };
  PlanRank ranks[] = {finish_rank(arena, tasks, 0, 2, N(first), first), finish_rank(arena, tasks, 1, 2, N(second), second)};
  return COPY(ranks);
}

static PlanTransfer transfer(int value, int microbatch, int from, const PlanType *type) {
  uint64_t here = value_place(value, microbatch);
  return (PlanTransfer){value, microbatch, from, !from, plan_bytes(type), here, value == VALUE_CONTROL ? PLACE_VECTORS : here, PP_ARENA, value};
}

/* --- the plan ------------------------------------------------------------------------------------------------------ */

static Plan *make_plan(Arena *arena, const char *folder, int n_ranks) {
  static const char *const values[N_VALUES] = {"h (mlp.pp:7)", "dh (mlp.pp:7)", "norms of stage 0", "norms of stage 1", "control"};
  PlanParameter parameters[] = {
      {.name = "w1", .c_name = "w1", .type = type_w1, .init = PP_INIT_NORMAL, .b = 0.3, .owner_stage = 0, .owner_rank = 0, .trainable = true, .line = "mlp.pp:3"},
      {.name = "w2", .c_name = "w2", .type = type_w2, .init = PP_INIT_NORMAL, .b = 0.3, .owner_stage = 1, .owner_rank = n_ranks - 1, .trainable = true, .line = "mlp.pp:4"}};
  PlanSource sources[] = {{"x", PP_DATA_F32_FILE, PP_ORDER_SEQUENTIAL, "x.f32", WIDTH, 0, type_x}};
  PlanTransfer transfers[] = {transfer(VALUE_H, 0, 0, &type_h),         transfer(VALUE_H, 1, 0, &type_h),
                              transfer(VALUE_DH, 0, 1, &type_h),        transfer(VALUE_DH, 1, 1, &type_h),
                              transfer(VALUE_NORMS_0, -1, 0, &type_one), transfer(VALUE_CONTROL, -1, 1, &type_control)};
  const PlanTask *tasks = make_tasks(arena);
  Plan plan = {.model = "mlp.pp", .directory = folder, .schedule = "by_hand", .seed = 7, .steps = STEPS, .microbatch = SAMPLES,
               .n_microbatches = MICROBATCHES, .n_ranks = n_ranks, .n_stages = 2, .threads = 1, .loss_rank = n_ranks - 1,
               .loss_stage = 1, .n_parameters = 2, .parameters = COPY(parameters), .n_sources = 1, .sources = COPY(sources),
               .n_kernels = N_KERNELS, .kernels = make_kernels(arena), .n_tasks = N_TASKS, .tasks = tasks, .n_stages_ = 2,
               .stages = make_stages(arena, n_ranks), .n_transfers = n_ranks == 1 ? 0 : N_TRANSFERS, .transfers = COPY(transfers),
               .n_values = N_VALUES, .values = values,
               .ranks = n_ranks == 1 ? one_rank(arena, tasks) : two_ranks(arena, tasks), .hash = (uint64_t)n_ranks};
  return (Plan *)copy(arena, &plan, sizeof plan);
}

/* --- building and running ---------------------------------------------------------------------------------------------- */

static int failures;
static void result(bool fine, const char *name) {
  printf("%s %s\n", fine ? "ok" : "FAIL", name);
  failures += !fine;
}

static void write_file(const char *folder, const char *name, const void *bytes, size_t size, bool executable) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = '\0';
    mkdir(path, 0777);
    *slash = '/';
  }
  FILE *f = fopen(path, "wb");
  if (!f) return;
  fwrite(bytes, 1, size, f);
  fclose(f);
  if (executable) chmod(path, 0777);
}

static bool shell(const char *folder, const char *format, const char *argument) {
  char command[2048];
  int n = snprintf(command, sizeof command, "cd '%s' && { ", folder);
  n += snprintf(command + n, sizeof command - (size_t)n, format, argument);
  snprintf(command + n, sizeof command - (size_t)n, "; } >log 2>&1 || { sed 's/^/  /' log | tail -n 40; false; }");
  fflush(stdout);
  return system(command) == 0;
}

/* --- the same in plain C ------------------------------------------------------------------------------------------- */

static double sample_at(int i) { return (float)sin(i * 0.37); }
static double w1_at(int i) { return (float)(0.3 * cos(i * 0.7)); }
static double w2_at(int i) { return (float)(0.3 * cos(i * 1.3)); }

static void write_start(const char *folder) {
  char file[4096] = "";
  const char *header = "{\"w1\":{\"dtype\":\"F32\",\"shape\":[8,16],\"data_offsets\":[0,512]},"
                       "\"w2\":{\"dtype\":\"F32\",\"shape\":[16,1],\"data_offsets\":[512,576]}}";
  uint64_t n = strlen(header);
  memcpy(file, &n, 8);
  memcpy(file + 8, header, n);
  float *w = (float *)calloc(144, sizeof *w);
  for (int i = 0; i < WIDTH * HIDDEN; i++) w[i] = (float)w1_at(i);
  for (int i = 0; i < HIDDEN; i++) w[WIDTH * HIDDEN + i] = (float)w2_at(i);
  memcpy(file + 8 + n, w, 576);
  write_file(folder, "start.safetensors", file, 8 + n + 576, false);
  free(w);
}

typedef struct {
  double w1[WIDTH * HIDDEN], w2[HIDDEN], dw1[WIDTH * HIDDEN], dw2[HIDDEN], loss;
} Net;

/* Adds loss and gradients of Σ (tanh(x w1) w2 - 1)² for one sample. */
static void learn(Net *net, const double *x) {
  double h[HIDDEN], y = 0;
  for (int k = 0; k < HIDDEN; k++) {
    double pre = 0;
    for (int i = 0; i < WIDTH; i++) pre += x[i] * net->w1[i * HIDDEN + k];
    h[k] = tanh(pre);
    y += h[k] * net->w2[k];
  }
  net->loss += (y - 1) * (y - 1);
  for (int k = 0; k < HIDDEN; k++) {
    double dh = 2 * (y - 1) * net->w2[k];
    net->dw2[k] += 2 * (y - 1) * h[k];
    for (int i = 0; i < WIDTH; i++) net->dw1[i * HIDDEN + k] += x[i] * dh * (1 - h[k] * h[k]);
  }
}

static double make_step(Net *net, int step) {
  memset(net->dw1, 0, sizeof net->dw1);
  memset(net->dw2, 0, sizeof net->dw2);
  net->loss = 0;
  for (int s = 0; s < SAMPLES * MICROBATCHES; s++) {
    double x[WIDTH];
    for (int i = 0; i < WIDTH; i++) x[i] = sample_at((step * SAMPLES * MICROBATCHES + s) * WIDTH + i);
    learn(net, x);
  }
  for (int i = 0; i < WIDTH * HIDDEN; i++) net->w1[i] -= RATE * net->dw1[i] / MICROBATCHES;
  for (int i = 0; i < HIDDEN; i++) net->w2[i] -= RATE * net->dw2[i] / MICROBATCHES;
  return net->loss / MICROBATCHES;
}

/* Reads the losses back from steps.json. */
static bool losses_agree(const char *folder) {
  char path[512], line[1024];
  Net net = {.loss = 0};
  for (int i = 0; i < WIDTH * HIDDEN; i++) net.w1[i] = w1_at(i);
  for (int i = 0; i < HIDDEN; i++) net.w2[i] = w2_at(i);
  snprintf(path, sizeof path, "%s/steps.json", folder);
  FILE *f = fopen(path, "r");
  bool fine = f != NULL;
  for (int step = 0; fine && step < STEPS; step++) {
    double expected = make_step(&net, step), loss = 0;
    char *at = fgets(line, sizeof line, f) ? strstr(line, "\"loss\":") : NULL;
    if (at) loss = strtod(at + 7, NULL);
    fine = fabs(loss - expected) < 1e-5 * expected;
    if (!fine) printf("  step %d: loss %.9g, expected %.9g\n", step + 1, loss, expected);
  }
  if (f) fclose(f);
  return fine;
}

static void write_program(Arena *arena, const char *folder, int n_ranks) {
  EmitFiles files = {0};
  emit_program(arena, make_plan(arena, folder, n_ranks), &files);
  for (int i = 0; i < files.n; i++) write_file(folder, files.at[i].path, files.at[i].text, files.at[i].size, files.at[i].executable);
  float x[64 * WIDTH];
  for (int i = 0; i < 64 * WIDTH; i++) x[i] = (float)sample_at(i);
  write_file(folder, "x.f32", x, sizeof x, false);
  write_start(folder);
}

static bool build_and_run(const char *folder) {
  return shell(folder, "make -j2 WARN=-Werror OBJECT_CACHE=%s && ./launch.sh --json --init=start.safetensors --timeout=20 >steps.json",
               "$PWD/../objects");
}

int main(void) {
  Arena *arena = arena_create();
  char root[] = "/tmp/program_test.XXXXXX", one[64], two[64];
  if (!mkdtemp(root)) return 1;
  snprintf(one, sizeof one, "%s/one", root);
  snprintf(two, sizeof two, "%s/two", root);
  mkdir(one, 0777);
  mkdir(two, 0777);
  write_program(arena, one, 1);
  write_program(arena, two, 2);
  result(build_and_run(one), "one rank builds without warnings and trains");
  result(losses_agree(one), "its losses are those of plain C");
  result(build_and_run(two), "two ranks build without warnings and train");
  result(shell(one, "grep '\"done\"' steps.json | grep -o '\"parameters\":\"[0-9a-f]*\"' >hash && grep -qF \"$(cat hash)\" ../two/steps.json%s", ""),
         "one and two ranks end with the same parameters");
  result(shell(two, "grep -q -F '0: fwd(1, 0), mlp.pp:20; waits for h from rank 0' rank_1.c%s", ""),
         "a row of rank_1.c says what it waits for");
  result(shell(two, "make -j2 CHECK=1 WARN=-Werror OBJECT_CACHE=%s && CHECK=1 ./launch.sh --timeout=60", "$PWD/../objects"),
         "the checking build of two ranks runs clean");
  result(shell(two, "sed -i.kept 's/memcpy(kept, control, 48)/memcpy(kept, control, 96)/' stage_1.c && make -j2 CHECK=1 OBJECT_CACHE=%s &&"
                    " ! CHECK=1 ./launch.sh --timeout=60 && mv stage_1.c.kept stage_1.c", "$PWD/../objects"),
         "a planted overflow is caught by the checking build");
  result(shell(two, "grep -q '^  512, 18432, 9728, 12288, 19456, W + 1536,' rank_1.c &&"
                    " sed -i.kept 's/^  512, 18432, 9728, 12288, 19456, W + 1536,/  0, 18432, 9216, 12288, 19456, W + 1536,/' rank_1.c &&"
                    " make -j2 CHECK=1 OBJECT_CACHE=%s && ! CHECK=1 ./launch.sh --timeout=60 && mv rank_1.c.kept rank_1.c", "$PWD/../objects"),
         "a planted stale read is caught by the checking build");
  result(shell(two, "make -j2 threads WARN=-Werror OBJECT_CACHE=%s && ./threads --timeout=60", "$PWD/../objects"),
         "all ranks as threads run clean");
  result(shell(two, "sed -i.kept '/ready, rank->step/s/release/relaxed/; /flags->ready/s/acquire/relaxed/' runtime/transport/shm.c &&"
                    " make -j2 threads OBJECT_CACHE=%s && ! ./threads --steps=60 --timeout=60", "$PWD/../objects"),
         "a planted missing fence is caught among threads");
  if (!failures) shell("/tmp", "rm -rf '%s'", root);
  else printf("  see %s\n", root);
  arena_destroy(arena);
  return failures != 0;
}
