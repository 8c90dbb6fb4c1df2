/* In: a task function after `fuse`. Out: PlanTask.
 *
 * Places. A tensor lies where its value is wanted: results of the task in their frame field or item,
 * new parameters and states in place when the op that makes them may write there, everything else in
 * the task's workspace, laid out by liveness over the statements. Reshapes are names for the same
 * bytes. An `assign`, `fold`, `control` or `output` whose operand already lies in its target stays as
 * a statement with equal places (no copy is emitted for it). */
#include "compiler/plan_task.h"

#include <ctype.h>
#include <string.h>

#include "compiler/layout.h"

typedef struct {
  PlanPlace place;
  int64_t index;
  int sub;
} Place;

/* Life of a piece of workspace over the statements; several buffers may share it. */
typedef struct {
  int first, last;
  int64_t bytes;
} Scratch;

typedef struct {
  const Tasks *t;
  const Task *task;
  Arena *arena;
  int rank;
  OpVec ops;
  PtrMap position;              /* op → its place in the block + 1 */
  PtrMap placed;                /* value that a statement makes → Place, when it isn't workspace */
  PtrMap buffer_of;             /* value → buffer + 1 */
  PtrMap in_place_used;         /* kernel call → list of arguments that some result has taken */
  Map old_contents;             /* parameter → ops that read what an effect of the task may replace */
  VEC(PlanBuffer) buffers;
  VEC(int) scratch_of;          /* of each buffer: piece of workspace, -1 */
  VEC(Scratch) scratch;
  VEC(PlanStatement) statements;
  VEC(PlanArgument) arguments;
  Map names, accumulated;
  int64_t flops;
} Body;

/* --- names --------------------------------------------------------------------------------------------- */

const char *plan_identifier(Arena *arena, const char *text) {
  char *name = arena_printf(arena, "%s%s", isdigit((unsigned char)text[0]) ? "_" : "", text[0] ? text : "value");
  for (char *c = name; *c; c++)
    if (!isalnum((unsigned char)*c) || (unsigned char)*c > 127) *c = '_';
  return name;
}

/* The map keeps the last number that was tried for a name, so that many equal ones stay linear. */
const char *plan_unique_name(Arena *arena, Map *taken, const char *wanted) {
  MapEntry *known = map_find(taken, wanted);
  const char *name = wanted;
  for (int i = known ? (int)(intptr_t)known->value + 1 : 0; map_find(taken, name); i++) {
    name = arena_printf(arena, "%s_%d", wanted, i < 2 ? 2 : i);
    map_put(arena, taken, wanted, (void *)(intptr_t)(i < 2 ? 2 : i));
  }
  map_put(arena, taken, name, NULL);
  return name;
}

const char *plan_value_name(Arena *arena, const char *text) {
  const char *end = strstr(text, " (");
  return plan_identifier(arena, end ? arena_strndup(arena, text, (size_t)(end - text)) : text);
}

static const char *parameter_name(const Body *b, Op op) {
  return plan_identifier(b->arena, op_string(b->arena, op, "param"));
}

/* A value without a name in the source is called after its module and op: "c_attn_matmul". */
static const char *name_in_module(const Body *b, Op at, OpId id) {
  const char *path = op_string(b->arena, at, "pp.path"), *last = path;
  for (const char *p = path; p && *p; p++)
    if ((p == path || p[-1] == '.') && (*p < '0' || *p > '9')) last = p;
  if (!last || !*last) return op_name(id);
  bool is_adjoint = id == OP_MATMUL && op_unit(at, "pp.backward");
  return plan_identifier(b->arena, arena_printf(b->arena, "%s%s_%s", is_adjoint ? "d_" : "", last, op_name(id)));
}

/* What a kernel's result is called in the kernel: the fusion keeps the ops' names. */
static const char *kernel_result_name(const Body *b, Op call, int k) {
  Op func = b->t->kernels[tasks_callee(b->t, call)];
  Op made = value_owner(op_operand(func_return_op(func), k));
  if (op_is_null(made)) return "copy";
  const char *name = op_string(b->arena, made, "pp.name");
  return name ? name : name_in_module(b, call, op_id(made));
}

static const char *result_name(const Body *b, Op op, int k) {
  static const char *const attention[] = {"attended", "lse"}, *const attention_grad[] = {"dq", "dk", "dv"};
  const char *name = op_string(b->arena, op, "pp.name");
  if (name && op_n_results(op) == 1) return plan_identifier(b->arena, name);
  switch (op_id(op)) {
  case OP_CALL: return plan_identifier(b->arena, kernel_result_name(b, op, k));
  case OP_PARAM: return parameter_name(b, op);
  case OP_GRADIENT: return arena_printf(b->arena, "d_%s", parameter_name(b, op));
  case OP_STATE: return arena_printf(b->arena, "%s_%s", parameter_name(b, op), op_string(b->arena, op, "state"));
  case OP_DATA: return plan_identifier(b->arena, op_string(b->arena, op, "source"));
  case OP_ATTENTION: return attention[k];
  case OP_ATTENTION_GRAD: return attention_grad[k];
  case OP_MATMUL: return name_in_module(b, op, k == 1 ? OP_ADD : OP_MATMUL); /* the sum that gelu takes */
  default: return name_in_module(b, op, op_id(op));
  }
}

/* --- arguments ----------------------------------------------------------------------------------------- */

static int add_argument(Body *b, PlanArgument a) {
  for (int i = 0; i < b->arguments.n; i++) {
    const PlanArgument *have = &b->arguments.at[i];
    if (have->kind != a.kind || have->place != a.place || have->index != a.index || have->sub != a.sub) continue;
    if (have->value != a.value) continue;
    b->arguments.at[i].is_result |= a.is_result;
    return i;
  }
  VEC_PUSH(b->arena, &b->arguments, a);
  return b->arguments.n - 1;
}

static const char *crossing_comment(const Body *b, int value, bool is_result) {
  const TaskValue *v = &b->t->values[value];
  const char *line = diag_loc_name(ir_diag(b->t->ir), v->loc);
  if (is_result) return v->leaves ? arena_printf(b->arena, "to other stages (%s)", line) : line;
  if (v->stage == b->task->stage) return line;
  return arena_printf(b->arena, "from stage %d (%s)", v->stage, line);
}

static Place argument_place(Body *b, int value, bool is_result) {
  const TaskValue *v = &b->t->values[value];
  PlanArgument a = {.kind = PLAN_ARG_VALUE, .place = PLAN_ARGUMENT, .name = plan_value_name(b->arena, v->name),
                    .type = plan_type(v->type), .value = value, .is_result = is_result,
                    .comment = crossing_comment(b, value, is_result)};
  return (Place){PLAN_ARGUMENT, add_argument(b, a), 0};
}

/* Where the crossing value `id` lies on the task's rank. */
static Place crossing_place(Body *b, int id, bool is_result) {
  int root = tasks_root(b->t, b->rank, id);
  const TaskValue *v = &b->t->values[root];
  switch (tasks_storage(b->t, b->rank, root)) {
  case STORE_FRAME: return (Place){PLAN_FRAME, v->index, 0};
  case STORE_WEIGHT_FRAME: return (Place){PLAN_FRAME, v->index, 1};
  case STORE_PARAMETER: return (Place){PLAN_WEIGHT, v->index, 0};
  case STORE_OUTPUT: return (Place){PLAN_OUTPUT, v->index, 0};
  case STORE_CONTROL: return (Place){PLAN_CONTROL, 0, 0};
  default: return argument_place(b, root, is_result);
  }
}

/* The argument that a place is reached through. */
static void need_argument(Body *b, Place p, Type type) {
  PlanArgument a = {.place = p.place, .index = (int)p.index, .sub = p.sub, .type = plan_type(type), .value = -1};
  const char *parameter = NULL;
  if (p.place == PLAN_WEIGHT || p.place == PLAN_GRADIENT || p.place == PLAN_STATE) {
    parameter = plan_identifier(b->arena, b->t->parameters[p.index].name);
    a.type = plan_type(b->t->parameters[p.index].type);
  }
  switch (p.place) {
  case PLAN_ARGUMENT: return;
  case PLAN_FRAME:
    a = (PlanArgument){.kind = p.sub ? PLAN_ARG_WEIGHT_FRAME : PLAN_ARG_FRAME, .place = PLAN_FRAME, .value = -1};
    a.name = p.sub ? "weight_frame" : "frame";
    break;
  case PLAN_SCRATCH:
    a = (PlanArgument){.kind = PLAN_ARG_WORKSPACE, .place = PLAN_SCRATCH, .name = "workspace", .value = -1};
    break;
  case PLAN_WEIGHT: a.kind = PLAN_ARG_WEIGHTS, a.name = parameter; break;
  case PLAN_GRADIENT: a.kind = PLAN_ARG_GRADIENT, a.name = arena_printf(b->arena, "d_%s", parameter); break;
  case PLAN_STATE:
    a.kind = PLAN_ARG_STATE;
    a.name = arena_printf(b->arena, "%s_%s", parameter, b->t->states[p.sub]);
    break;
  case PLAN_STEP: a.kind = PLAN_ARG_RUNTIME, a.name = "step"; break;
  case PLAN_LOSSES: a.kind = PLAN_ARG_RUNTIME, a.name = "losses"; break;
  case PLAN_COUNTS: a.kind = PLAN_ARG_RUNTIME, a.name = "counts"; break;
  case PLAN_CONTROL: a.kind = PLAN_ARG_RUNTIME, a.name = "control"; break;
  case PLAN_NORMS: a.kind = PLAN_ARG_RUNTIME, a.name = "norms"; break;
  case PLAN_OUTPUT: a.kind = PLAN_ARG_RUNTIME, a.name = plan_identifier(b->arena, b->t->outputs.at[p.index].name); break;
  case PLAN_PROMPT: a.kind = PLAN_ARG_RUNTIME, a.name = "prompt"; break;
  case PLAN_LOGITS: a.kind = PLAN_ARG_RUNTIME, a.name = "logits"; break;
  case PLAN_LOSS_SCALE: a.kind = PLAN_ARG_RUNTIME, a.name = "loss_scale"; break;
  }
  add_argument(b, a);
}

bool plan_argument_holds(const PlanArgument *a, int position, const PlanBuffer *b) {
  switch (b->place) {
  case PLAN_ARGUMENT: return position == b->index;
  case PLAN_WEIGHT: return a->kind == PLAN_ARG_WEIGHTS && a->index == b->index;
  case PLAN_GRADIENT: return a->kind == PLAN_ARG_GRADIENT && a->index == b->index;
  case PLAN_STATE: return a->kind == PLAN_ARG_STATE && a->index == b->index && a->sub == b->sub;
  case PLAN_FRAME: return a->kind == (b->sub ? PLAN_ARG_WEIGHT_FRAME : PLAN_ARG_FRAME);
  case PLAN_SCRATCH: return a->kind == PLAN_ARG_WORKSPACE;
  case PLAN_OUTPUT: return a->kind == PLAN_ARG_RUNTIME && a->place == PLAN_OUTPUT && a->index == b->index;
  default: return a->kind == PLAN_ARG_RUNTIME && a->place == b->place;
  }
}

/* --- places -------------------------------------------------------------------------------------------- */

static int state_number(const Body *b, Op op) {
  const char *name = op_string(b->arena, op, "state");
  for (int k = 0; k < b->t->n_states; k++)
    if (!strcmp(b->t->states[k], name)) return k;
  bug("no optimizer state '%s'", name);
}

static int parameter_index(const Body *b, Op op) { return tasks_parameter(b->t, op_string(b->arena, op, "param")); }

/* A leaf that names memory instead of making a value. False for other ops. */
static bool leaf_place(const Body *b, Op op, Place *out) {
  switch (op_id(op)) {
  case OP_PARAM: *out = (Place){PLAN_WEIGHT, parameter_index(b, op), 0}; return true;
  case OP_GRADIENT: *out = (Place){PLAN_GRADIENT, parameter_index(b, op), 0}; return true;
  case OP_STATE: *out = (Place){PLAN_STATE, parameter_index(b, op), state_number(b, op)}; return true;
  case OP_LOSSES: *out = (Place){PLAN_LOSSES, 0, 0}; return true;
  case OP_COUNTS: *out = (Place){PLAN_COUNTS, 0, 0}; return true;
  case OP_STEP: *out = (Place){PLAN_STEP, 0, 0}; return true;
  case OP_LOSS_SCALE: *out = (Place){PLAN_LOSS_SCALE, 0, 0}; return true;
  case OP_OUTPUTS: *out = (Place){PLAN_OUTPUT, tasks_output(b->t, op_string(b->arena, op, "output")), 0}; return true;
  case OP_DATA:
    *out = (Place){PLAN_PROMPT, 0, 0};
    return b->t->generate && !strcmp(op_string(b->arena, op, "source"), "prompt");
  default: return false;
  }
}

/* What an effect writes. False for ops that copy nothing. */
static bool target_place(const Body *b, Op op, Place *out) {
  switch (op_id(op)) {
  case OP_ASSIGN:
    *out = (Place){PLAN_WEIGHT, parameter_index(b, op), 0};
    if (op_string(b->arena, op, "state")) *out = (Place){PLAN_STATE, out->index, state_number(b, op)};
    return true;
  case OP_FOLD: *out = (Place){PLAN_GRADIENT, parameter_index(b, op), 0}; return true;
  case OP_CONTROL: *out = (Place){PLAN_CONTROL, 0, 0}; return true;
  case OP_RESCALE: *out = (Place){PLAN_LOSS_SCALE, 0, 0}; return true;
  case OP_OUTPUT: *out = (Place){PLAN_LOGITS, 0, 0}; return b->t->generate;
  default: return false;
  }
}

static bool same_place(Place x, Place y) { return x.place == y.place && x.index == y.index && x.sub == y.sub; }

static int position_of(const Body *b, Op op) { return (int)(intptr_t)ptrmap_get(&b->position, op.ptr) - 1; }

static void put_place(Body *b, Value v, Place p) {
  Place *copy = arena_alloc(b->arena, sizeof *copy);
  *copy = p;
  ptrmap_put(b->arena, &b->placed, v.ptr, copy);
}

/* On CUDA updates are decided on the device: only fused kernels can leave the old value where it is. What a
 * product makes is copied. */
static bool can_update(const Body *b, Op maker) {
  return b->t->target == PP_TARGET_CPU || b->task->kind != PP_UPDATE || op_id(maker) == OP_CALL;
}

/* Results of the task whose ops write them lie in their field or item from the start. */
static void place_results(Body *b) {
  Op ret = func_return_op(b->task->func);
  for (int k = 0; k < b->task->n_out; k++) {
    Value base = tasks_view_base(op_operand(ret, k));
    Place leaf;
    if (op_is_null(value_owner(base)) || leaf_place(b, value_owner(base), &leaf)) continue;
    if (ptrmap_get(&b->placed, base.ptr) || !can_update(b, value_owner(base))) continue;
    put_place(b, base, crossing_place(b, (int)b->task->out[k], true));
  }
}

/* --- in place ------------------------------------------------------------------------------------------- */

typedef VEC(int) IntVec;

/* May `result` of the kernel call lie in the place of its operand `argument`? (fuse says so; each
 * argument serves one result.) */
static bool kernel_allows(const Body *b, Op call, int result, int argument) {
  const IntVec *used = ptrmap_get(&b->in_place_used, call.ptr);
  for (int i = 0; used && i < used->n; i++)
    if (used->at[i] == argument) return false;
  int64_t n = 0;
  const int64_t *pairs = op_ints(b->arena, b->t->kernels[tasks_callee(b->t, call)], "pp.in_place", &n);
  for (int64_t i = 0; i + 1 < n; i += 2)
    if (pairs[i] == result && pairs[i + 1] == argument) return true;
  return false;
}

static void use_argument(Body *b, Op call, int argument) {
  IntVec *used = ptrmap_get(&b->in_place_used, call.ptr);
  if (!used) {
    used = arena_alloc(b->arena, sizeof *used);
    ptrmap_put(b->arena, &b->in_place_used, call.ptr, used);
  }
  VEC_PUSH(b->arena, used, argument);
}

typedef struct {
  Op maker;       /* of the new value */
  int result;
  int maker_at, effect_at;
  IntVec taken;   /* arguments of the maker that lie in the target */
  bool allowed;
} InPlace;

/* Looks at everything that reads `v`, the old content of the target. */
static void check_readers(Body *b, InPlace *x, Value v) {
  OpVec users = value_users(b->arena, v);
  for (int i = 0; i < users.n; i++) {
    Op user = users.at[i];
    int at = position_of(b, user);
    if (op_id(user) == OP_RESHAPE) {
      check_readers(b, x, op_result(user, 0));
      continue;
    }
    if (at > x->effect_at && !op_is_return(user))
      bug("%s reads what an earlier op of its task has overwritten", op_name(op_id(user)));
    if (at > x->maker_at) x->allowed = false;
    if (at != x->maker_at) continue;
    for (int k = 0; k < op_n_operands(user); k++) {
      if (!value_equal(op_operand(user, k), v)) continue;
      if (op_id(user) == OP_CALL && kernel_allows(b, user, x->result, k)) VEC_PUSH(b->arena, &x->taken, k);
      else x->allowed = false;
    }
  }
}

/* Puts the operand of an effect where the effect wants it, when nothing reads the old content any more
 * by the time it is made. */
static void try_in_place(Body *b, Op effect, Place target) {
  Value base = tasks_view_base(op_operand(effect, 0));
  Op maker = value_owner(base);
  Place leaf;
  if (op_is_null(maker) || leaf_place(b, maker, &leaf) || ptrmap_get(&b->placed, base.ptr)) return;
  if (!can_update(b, maker)) return;
  InPlace x = {.maker = maker, .result = value_index(base), .maker_at = position_of(b, maker),
               .effect_at = position_of(b, effect), .allowed = true};
  const char *content = op_content(b->arena, effect);
  const OpVec *old = content ? map_get(&b->old_contents, content) : NULL;
  for (int i = 0; old && i < old->n; i++)
    if (position_of(b, old->at[i]) < x.effect_at && leaf_place(b, old->at[i], &leaf) && same_place(leaf, target))
      check_readers(b, &x, op_result(old->at[i], 0));
  if (!x.allowed) return;
  for (int i = 0; i < x.taken.n; i++) use_argument(b, maker, x.taken.at[i]);
  put_place(b, base, target);
}

static void place_effects(Body *b) {
  Place target;
  for (int i = 0; i < b->ops.n; i++) {
    const char *content = op_content(b->arena, b->ops.at[i]);
    if (!content || op_class(op_id(b->ops.at[i])) != CLASS_LEAF) continue;
    OpVec *list = map_get(&b->old_contents, content);
    if (!list) {
      list = arena_alloc(b->arena, sizeof *list);
      map_put(b->arena, &b->old_contents, content, list);
    }
    VEC_PUSH(b->arena, list, b->ops.at[i]);
  }
  for (int i = 0; i < b->ops.n; i++)
    if (target_place(b, b->ops.at[i], &target)) try_in_place(b, b->ops.at[i], target);
}

/* The vector of squared norms is read by the runtime when one of them is not finite. */
static void place_norms(Body *b) {
  if (b->task->kind != PP_DECIDE) return;
  for (int i = 0; i < b->ops.n; i++)
    for (int k = 0; k < op_n_results(b->ops.at[i]); k++) {
      Value v = op_result(b->ops.at[i], k);
      if (ptrmap_get(&b->placed, v.ptr) || strcmp(result_name(b, b->ops.at[i], k), "norms")) continue;
      put_place(b, v, (Place){PLAN_NORMS, 0, 0});
      return;
    }
}

/* --- buffers ------------------------------------------------------------------------------------------- */

static int add_buffer(Body *b, Value v, const char *name, Place p, int scratch) {
  PlanBuffer buffer = {plan_unique_name(b->arena, &b->names, name), plan_type(value_type(v)), p.place, p.index, p.sub};
  need_argument(b, p, value_type(v));
  VEC_PUSH(b->arena, &b->buffers, buffer);
  VEC_PUSH(b->arena, &b->scratch_of, scratch);
  ptrmap_put(b->arena, &b->buffer_of, v.ptr, (void *)(intptr_t)b->buffers.n);
  return b->buffers.n - 1;
}

/* A buffer of that type at a place that is not workspace, -1. */
static int find_buffer(const Body *b, Place p, Type type) {
  PlanType wanted = plan_type(type);
  for (int i = 0; i < b->buffers.n && p.place != PLAN_SCRATCH; i++) {
    const PlanBuffer *x = &b->buffers.at[i];
    if (same_place((Place){x->place, x->index, x->sub}, p) && !memcmp(&x->type, &wanted, sizeof wanted)) return i;
  }
  return -1;
}

static int new_scratch(Body *b, int64_t bytes) {
  VEC_PUSH(b->arena, &b->scratch, (Scratch){b->statements.n, b->statements.n, bytes});
  return b->scratch.n - 1;
}

static int buffer_for(Body *b, Value v);

static int make_buffer(Body *b, Value v) {
  Op op = value_owner(v);
  if (op_is_null(op)) {
    int id = (int)b->task->in[value_index(v)];
    return add_buffer(b, v, plan_value_name(b->arena, b->t->values[id].name), crossing_place(b, id, false), -1);
  }
  int k = value_index(v);
  Place p;
  if (op_id(op) == OP_RESHAPE) {
    int base = buffer_for(b, op_operand(op, 0));
    const PlanBuffer *x = &b->buffers.at[base];
    const char *name = op_string(b->arena, op, "pp.name");
    p = (Place){x->place, x->index, x->sub};
    return add_buffer(b, v, name ? plan_identifier(b->arena, name) : x->name, p, b->scratch_of.at[base]);
  }
  const Place *placed = ptrmap_get(&b->placed, v.ptr);
  bool is_leaf = leaf_place(b, op, &p);
  if (!is_leaf && placed) p = *placed;
  if (is_leaf || placed) { /* one name for one place: an old value, and the new one that replaces it */
    int have = p.place == PLAN_FRAME || p.place == PLAN_ARGUMENT ? -1 : find_buffer(b, p, value_type(v));
    if (have < 0) return add_buffer(b, v, result_name(b, op, k), p, -1);
    ptrmap_put(b->arena, &b->buffer_of, v.ptr, (void *)(intptr_t)(have + 1));
    return have;
  }
  int scratch = new_scratch(b, type_bytes(value_type(v)));
  return add_buffer(b, v, result_name(b, op, k), (Place){PLAN_SCRATCH, 0, 0}, scratch);
}

/* The buffer of a value; its workspace, if it has some, lives up to the present statement. */
static int buffer_for(Body *b, Value v) {
  int buffer = (int)(intptr_t)ptrmap_get(&b->buffer_of, v.ptr) - 1;
  if (buffer < 0) buffer = make_buffer(b, v);
  int scratch = b->scratch_of.at[buffer];
  if (scratch >= 0) b->scratch.at[scratch].last = b->statements.n;
  return buffer;
}

/* A buffer that is no value of the function: an accumulator, the target of a copy, workspace. */
static int place_buffer(Body *b, Place p, Type type, const char *name) {
  int have = find_buffer(b, p, type);
  if (have >= 0) return have;
  PlanBuffer buffer = {plan_unique_name(b->arena, &b->names, name), plan_type(type), p.place, p.index, p.sub};
  need_argument(b, p, type);
  VEC_PUSH(b->arena, &b->buffers, buffer);
  VEC_PUSH(b->arena, &b->scratch_of, -1);
  return b->buffers.n - 1;
}

/* --- statements ---------------------------------------------------------------------------------------- */

static pp_epilogue epilogue_of(Arena *arena, Op op) {
  const char *name = op_string(arena, op, "epilogue");
  for (int e = PP_EPILOGUE_BIAS; name && e < PP_EPILOGUE_COUNT; e++)
    if (strcmp(name, pp_epilogue_name((pp_epilogue)e)) == 0) return (pp_epilogue)e;
  return PP_EPILOGUE_NONE;
}

static PlanAttrs read_attrs(Arena *arena, Op op) {
  OpId id = op_id(op);
  PlanAttrs a = {.integer = op_int(op, "axis", 0), .ta = op_unit(op, "ta"), .tb = op_unit(op, "tb"),
                 .causal = op_unit(op, "causal"), .predicate = op_string(arena, op, "predicate")};
  if (id == OP_MATMUL) a.epilogue = epilogue_of(arena, op);
  if (id == OP_RANDOM) a.integer = op_int(op, "key", 0);
  if (id == OP_SCATTER_ADD) a.integer = op_int(op, "rows", 0);
  if (id == OP_ATTENTION || id == OP_ATTENTION_GRAD) a.value = op_float(op, "scale", 1);
  if (id == OP_CONSTANT && op_constant_is_float(op)) a.value = op_float(op, "value", 0);
  if (id == OP_CONSTANT && !op_constant_is_float(op)) a.integer = op_int(op, "value", 0);
  static const char *const names[][2] = {{"axes", NULL}, {"starts", "limits"}, {"before", "after"}};
  for (int i = 0; i < 3; i++) {
    int64_t n = 0;
    const int64_t *axes = op_ints(arena, op, names[i][0], &n);
    if (!axes) continue;
    a.axes = axes;
    a.n_axes = (int)n;
    if (names[i][1]) a.limits = op_ints(arena, op, names[i][1], &n);
  }
  return a;
}

static int64_t product_flops(Op op) {
  Type x = value_type(op_operand(op, 0)), y = value_type(op_operand(op, 1));
  int rank = type_rank(y);
  return 2 * type_elements(x) * type_dim(y, op_unit(op, "tb") ? rank - 2 : rank - 1);
}

/* Two products forward, five backward, half of it masked when causal. */
static int64_t attention_flops(Op op) {
  Type q = value_type(op_operand(op, 0)), k = value_type(op_operand(op, 1));
  int64_t products = op_id(op) == OP_ATTENTION ? 2 : 5;
  int64_t flops = products * 2 * type_elements(q) * type_dim(k, type_rank(k) - 2);
  return op_unit(op, "causal") ? flops / 2 : flops;
}

/* A buffer, or -1: on CUDA attention has no rows in memory. */
static int attention_workspace(Body *b, Op op) {
  if (b->t->target == PP_TARGET_CUDA) return -1;
  Type q = value_type(op_operand(op, 0)), k = value_type(op_operand(op, 1));
  int64_t t = type_dim(q, type_rank(q) - 2), t_kv = type_dim(k, type_rank(k) - 2);
  pp_dtype dtype = type_dtype(type_adjoint(b->t->ir, q)); /* of the rows: bf16 is widened */
  int64_t element = dtype_bytes(dtype), group = type_dim(q, 1) / type_dim(k, 1);
  bool gradient = op_id(op) == OP_ATTENTION_GRAD;
  int64_t bytes = type_dtype(q) == PP_BF16 ? pp_attention_bf16_workspace_bytes(group, t, t_kv, type_dim(q, 3), gradient)
                                           : pp_attention_workspace_bytes(t, t_kv, (int)element, gradient);
  int64_t dims[1] = {bytes / element};
  int scratch = new_scratch(b, bytes);
  int buffer = place_buffer(b, (Place){PLAN_SCRATCH, 0, 0}, type_tensor(b->t->ir, dtype, 1, dims), "rows");
  b->scratch_of.at[buffer] = scratch;
  return buffer;
}

static bool is_accumulation(OpId id) {
  return id == OP_MATMUL_ACCUMULATE || id == OP_ACCUMULATE || id == OP_SCATTER_ACCUMULATE;
}

static int accumulator_of(Body *b, Op op, bool *first_use) {
  const char *name = op_string(b->arena, op, "param");
  int index = tasks_parameter(b->t, name);
  *first_use = !map_find(&b->accumulated, name);
  map_put(b->arena, &b->accumulated, name, NULL);
  return place_buffer(b, (Place){PLAN_GRADIENT, index, 0}, b->t->parameters[index].type,
                      arena_printf(b->arena, "d_%s", parameter_name(b, op)));
}

static const char *what_it_is(const Body *b, Op op) {
  OpId id = op_id(op);
  if (id == OP_CALL) {
    const char *comment = op_string(b->arena, b->t->kernels[tasks_callee(b->t, op)], "pp.comment");
    return comment ? comment : "";
  }
  const char *name = op_string(b->arena, op, "pp.name"), *what = op_name(id);
  if (op_n_operands(op) == 3 && id == OP_MATMUL) what = strcmp(op_string(b->arena, op, "epilogue"), "bias") ? "matmul, add, gelu" : "matmul, add";
  return name ? arena_printf(b->arena, "%s = %s", name, what) : what;
}

/* "h.0.attn.c_attn: matmul" */
static const char *statement_comment(const Body *b, Op op) {
  const char *path = op_string(b->arena, op, "pp.path"), *what = what_it_is(b, op);
  return path ? arena_printf(b->arena, "%s: %s", path, what) : what;
}

/* Ops that are places or names of the same bytes make no statement. */
static bool makes_statement(const Body *b, Op op) {
  Place p;
  return !op_is_return(op) && op_id(op) != OP_RESHAPE && !leaf_place(b, op, &p);
}

static int add_outputs(Body *b, Op op, PlanStatement *s, int *out) {
  OpId id = op_id(op);
  Place target;
  if (is_accumulation(id)) {
    out[0] = accumulator_of(b, op, &s->first_use);
    return 1;
  }
  if (target_place(b, op, &target)) {
    Value v = op_operand(op, 0);
    const PlanBuffer *x = &b->buffers.at[s->in[0]];
    bool in_place = same_place((Place){x->place, x->index, x->sub}, target);
    out[0] = in_place ? s->in[0] : place_buffer(b, target, value_type(v), arena_printf(b->arena, "%s_place", x->name));
    return 1;
  }
  int n = op_n_results(op);
  for (int k = 0; k < n; k++) out[k] = buffer_for(b, op_result(op, k));
  return n;
}

static void add_statement(Body *b, Op op) {
  OpId id = op_id(op);
  int n_in = op_n_operands(op), *in = arena_alloc_array(b->arena, (size_t)n_in, sizeof *in);
  int *out = arena_alloc_array(b->arena, (size_t)op_n_results(op) + 1, sizeof *out);
  PlanStatement s = {.op = (PlanOp)id, .kernel = -1, .n_in = n_in, .in = in, .out = out, .index = -1, .workspace = -1,
                     .comment = statement_comment(b, op), .line = diag_loc_name(ir_diag(b->t->ir), op_loc(b->t->ir, op))};
  for (int k = 0; k < n_in; k++) in[k] = buffer_for(b, op_operand(op, k));
  s.n_out = add_outputs(b, op, &s, out);
  if (id == OP_CALL) {
    s.op = PLAN_OP_KERNEL;
    s.kernel = tasks_callee(b->t, op);
  } else {
    s.attrs = read_attrs(b->arena, op);
  }
  if (id == OP_ATTENTION || id == OP_ATTENTION_GRAD) {
    s.workspace = attention_workspace(b, op);
    s.flops = attention_flops(op);
  }
  if (id == OP_MATMUL || id == OP_MATMUL_ACCUMULATE) s.flops = product_flops(op);
  if (id == OP_DATA) s.index = tasks_source(b->t, op_string(b->arena, op, "source"));
  if (id == OP_OUTPUT) s.index = tasks_output(b->t, op_string(b->arena, op, "output"));
  b->flops += s.flops;
  VEC_PUSH(b->arena, &b->statements, s);
}

/* --- workspace and order of arguments ---------------------------------------------------------------- */

static int64_t lay_out_workspace(Body *b) {
  LayoutItem *items = arena_alloc_array(b->arena, (size_t)b->scratch.n, sizeof *items);
  for (int i = 0; i < b->scratch.n; i++) {
    const Scratch *s = &b->scratch.at[i];
    items[i] = (LayoutItem){.size = pp_align(s->bytes), .start = s->first, .end = s->last};
  }
  Layout layout = layout_open(items, b->scratch.n);
  int64_t bytes = layout_pack(&layout);
  layout_close(&layout);
  for (int i = 0; i < b->buffers.n; i++)
    if (b->scratch_of.at[i] >= 0) b->buffers.at[i].index = items[b->scratch_of.at[i]].offset;
  return bytes;
}

/* Frames first, then values, weights, gradients, states, the runtime's vectors, workspace. */
static int rank_of_kind(PlanArgKind kind) {
  switch (kind) {
  case PLAN_ARG_FRAME: return 0;
  case PLAN_ARG_WEIGHT_FRAME: return 1;
  case PLAN_ARG_VALUE: return 2;
  case PLAN_ARG_WEIGHTS: return 3;
  case PLAN_ARG_GRADIENT: return 4;
  case PLAN_ARG_STATE: return 5;
  case PLAN_ARG_RUNTIME: return 6;
  case PLAN_ARG_WORKSPACE: return 7;
  }
  return 8;
}

static void sort_arguments(Body *b, PlanTask *task) {
  PlanArgument *sorted = arena_alloc_array(b->arena, (size_t)b->arguments.n, sizeof *sorted);
  int *to = arena_alloc_array(b->arena, (size_t)b->arguments.n, sizeof *to), n = 0;
  for (int order = 0; order < 9; order++)
    for (int i = 0; i < b->arguments.n; i++)
      if (rank_of_kind(b->arguments.at[i].kind) == order) {
        to[i] = n;
        sorted[n++] = b->arguments.at[i];
      }
  for (int i = 0; i < b->buffers.n; i++)
    if (b->buffers.at[i].place == PLAN_ARGUMENT) b->buffers.at[i].index = to[b->buffers.at[i].index];
  task->n_arguments = n;
  task->arguments = sorted;
}

PlanTask *plan_task_build(const Tasks *t, const Task *task, Arena *arena) {
  Body b = {.t = t, .task = task, .arena = arena, .rank = (int)t->stage_ranks[task->stage]};
  b.ops = block_ops(arena, func_body(task->func));
  for (int i = 0; i < b.ops.n; i++) ptrmap_put(arena, &b.position, b.ops.at[i].ptr, (void *)(intptr_t)(i + 1));
  place_results(&b);
  place_norms(&b);
  place_effects(&b);
  for (int i = 0; i < b.ops.n; i++)
    if (makes_statement(&b, b.ops.at[i])) add_statement(&b, b.ops.at[i]);
  PlanTask *p = arena_alloc(arena, sizeof *p);
  p->name = arena_printf(arena, "stage_%d_%s", task->stage, pp_task_kind_name(task->kind));
  p->kind = task->kind;
  p->stage = task->stage;
  p->workspace_bytes = lay_out_workspace(&b);
  sort_arguments(&b, p);
  p->n_buffers = b.buffers.n;
  p->buffers = b.buffers.at;
  p->n_statements = b.statements.n;
  p->statements = b.statements.at;
  p->flops = b.flops;
  return p;
}

/* --- kernels and types --------------------------------------------------------------------------------- */

PlanType plan_type(Type t) {
  PlanType p = {.dtype = type_dtype(t), .rank = type_rank(t)};
  for (int i = 0; i < p.rank; i++) p.dims[i] = type_dim(t, i);
  return p;
}

static int *value_numbers(Arena *arena, const PtrMap *numbers, Op op, int *out_n) {
  *out_n = op_n_operands(op);
  int *values = arena_alloc_array(arena, (size_t)*out_n, sizeof *values);
  for (int i = 0; i < *out_n; i++) values[i] = (int)(intptr_t)ptrmap_get(numbers, op_operand(op, i).ptr) - 1;
  return values;
}

static void build_nodes(Arena *arena, Op func, PtrMap *numbers, PlanKernel *k) {
  OpVec ops = block_ops(arena, func_body(func));
  PlanNode *nodes = arena_alloc_array(arena, (size_t)ops.n, sizeof *nodes);
  for (int i = 0; i < ops.n; i++) {
    Op op = ops.at[i];
    if (op_is_return(op)) {
      k->outputs = value_numbers(arena, numbers, op, &k->n_outputs);
      continue;
    }
    if (op_id(op) == OP_NONE || op_n_results(op) != 1) bug("op %s in a kernel", op_name(op_id(op)));
    PlanNode *node = &nodes[k->n_nodes++];
    node->op = (PlanOp)op_id(op);
    node->in = value_numbers(arena, numbers, op, &node->n_in);
    node->type = plan_type(value_type(op_result(op, 0)));
    node->attrs = read_attrs(arena, op);
    node->name = op_string(arena, op, "pp.name");
    k->uses_call |= op_id(op) == OP_RANDOM;
    ptrmap_put(arena, numbers, op_result(op, 0).ptr, (void *)(intptr_t)(k->n_inputs + k->n_nodes));
  }
  k->nodes = nodes;
}

PlanKernel plan_kernel_build(Op func, Arena *arena) {
  const char *name = func_name(arena, func);
  PlanKernel k = {.name = str_starts_with(name, "kernel_") ? name + 7 : name, .n_inputs = func_n_args(func)};
  PlanType *inputs = arena_alloc_array(arena, (size_t)k.n_inputs, sizeof *inputs);
  PtrMap numbers = {0};
  for (int i = 0; i < k.n_inputs; i++) {
    inputs[i] = plan_type(value_type(func_arg(func, i)));
    ptrmap_put(arena, &numbers, func_arg(func, i).ptr, (void *)(intptr_t)(i + 1));
  }
  k.inputs = inputs;
  build_nodes(arena, func, &numbers, &k);
  int64_t n = 0;
  const int64_t *pairs = op_ints(arena, func, "pp.in_place", &n);
  int *in_place = arena_alloc_array(arena, (size_t)n, sizeof *in_place);
  for (int64_t i = 0; i < n; i++) in_place[i] = (int)pairs[i];
  k.n_in_place = (int)(n / 2);
  k.in_place = in_place;
  k.comment = op_string(arena, func, "pp.comment");
  k.names = op_string(arena, func, "pp.names");
  return k;
}
