/* What follows the loop over microbatches: finish, decision, update, as ops of @step.
 *
 * In: parameters with owner and accumulators, @clip, @rate and @update.NAME, the loss op of
 * @microbatch. Out, in this order, each op with its stage and the kind of task it belongs to
 * (`pp.task`):
 *   finish  tied gradients folded on their owner in descending stage order, squared norms (f64)
 *   decide  in the loss stage: loss, norm, factor, whether to apply: the control vector (abi.h); the next loss scale
 *   update  on the owner: gradient times factor, the optimizer's text, assignments
 * The functions are inlined and gone. A gradient is never divided here but by the one factor, so a
 * step's result does not depend on where a stage lies. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "compiler/compiler.h"

typedef struct {
  Op op;
  const char *name;
  Type type;
  int owner;
  int64_t n_accumulators;
  const int64_t *accumulators; /* stages, ascending; none: not trained */
  int place;                   /* of its norm in the owner's vector */
} Trained;

typedef struct {
  Ir *ir;
  Arena *tmp;
  Builder b;     /* at the end of @step */
  Op loss;
  int n_stages, n;
  int64_t n_microbatches;
  Trained *trained;   /* in declaration order */
  Value *norms;       /* [n_stages] f64[trained parameters of the stage]; null */
  int *n_norms;       /* [n_stages] */
  Value control;
  Map functions;      /* name → Op.ptr, of the module */
} Update;

static const Value null_value = {NULL};

/* --- short forms ------------------------------------------------------------------ */

static Attr string_attribute(const char *name, const char *value) {
  return (Attr){.name = name, .kind = ATTR_KIND_STRING, .s = value};
}

static Value leaf(Update *u, OpId id, Type t, int n, const Attr *attrs) {
  Op op = ir_build(&u->b, id, 0, NULL, 1, &t, n, attrs);
  return op_is_null(op) ? null_value : op_result(op, 0);
}

static void effect(Update *u, OpId id, Value v, int n, const Attr *attrs) {
  ir_build(&u->b, id, 1, &v, 0, NULL, n, attrs);
}

static Type f64(Update *u) { return type_scalar(u->ir, PP_F64); }
static Type f64_vector(Update *u, int64_t n) { return type_tensor(u->ir, PP_F64, 1, &n); }
static Value number(Update *u, double x) { return ir_constant(&u->b, f64(u), x); }

static Value map2(Update *u, OpId id, Value x, Value y) {
  return ir_map(&u->b, id, 2, (Value[]){x, y});
}

static Value choose(Update *u, Value condition, Value x, Value y) {
  return ir_map(&u->b, OP_SELECT, 3, (Value[]){condition, x, y});
}

static Value sum_all(Update *u, Value x) {
  int64_t axes[PP_MAX_RANK];
  int n = type_rank(value_type(x));
  for (int i = 0; i < n; i++) axes[i] = i;
  return ir_reduce(&u->b, OP_REDUCE_SUM, x, n, axes);
}

/* Even of one. */
static Value concat(Update *u, int n, const Value *parts) {
  Attr axis = {.name = "axis", .kind = ATTR_KIND_INT, .i = 0};
  Op op = ir_build(&u->b, OP_CONCAT, n, parts, 0, NULL, 1, &axis);
  return op_is_null(op) ? null_value : op_result(op, 0);
}

/* A vector of scalars. */
static Value join(Update *u, int n, const Value *numbers) {
  Value *vectors = arena_alloc_array(u->tmp, (size_t)n, sizeof *vectors);
  for (int i = 0; i < n; i++) vectors[i] = ir_reshape(&u->b, numbers[i], 1, (int64_t[]){1});
  return concat(u, n, vectors);
}

static Value part(Update *u, Value vector, int64_t start, int64_t n) {
  if (n == type_elements(value_type(vector))) return vector;
  int64_t limit = start + n;
  return ir_slice(&u->b, vector, &start, &limit);
}

static Value element(Update *u, Value vector, int64_t i) {
  return ir_reshape(&u->b, part(u, vector, i, 1), 0, NULL);
}

/* --- what there is ------------------------------------------------------------------- */

static void read_parameters(Update *u) {
  OpVec all = ir_ops(u->tmp, ir_top(u->ir), OP_PARAMETER);
  u->trained = arena_alloc_array(u->tmp, (size_t)all.n, sizeof *u->trained);
  for (int i = 0; i < all.n; i++) {
    Trained p = {.op = all.at[i], .name = op_string(u->tmp, all.at[i], "sym")};
    p.type = op_type_attr(p.op, "type");
    p.owner = (int)op_int(p.op, "owner", 0);
    p.accumulators = op_ints(u->tmp, p.op, "accumulators", &p.n_accumulators);
    if (!p.n_accumulators) continue;
    p.place = u->n_norms[p.owner]++;
    u->trained[u->n++] = p;
  }
}

/* --- finish --------------------------------------------------------------------------- */

/* What the accumulator of p in `stage` holds. */
static Value gradient(Update *u, const Trained *p, int stage) {
  u->b.stage = stage;
  Attr attrs[] = {string_attribute("param", p->name), {.name = "of_stage", .kind = ATTR_KIND_INT, .i = stage}};
  return leaf(u, OP_GRADIENT, p->type, 2, attrs);
}

/* The owner's accumulator takes the sum over stages, the highest first. */
static void fold_tied(Update *u, const Trained *p) {
  if (p->n_accumulators == 1 && p->accumulators[0] == p->owner) return;
  Value sum = null_value;
  for (int64_t i = p->n_accumulators - 1; i >= 0; i--) {
    Value g = gradient(u, p, (int)p->accumulators[i]);
    u->b.stage = p->owner;
    sum = value_is_null(sum) ? g : map2(u, OP_ADD, sum, g);
  }
  Attr name = string_attribute("param", p->name);
  effect(u, OP_FOLD, sum, 1, &name);
}

static Value squared_norm(Update *u, const Trained *p) {
  Value g = ir_cast(&u->b, gradient(u, p, p->owner), PP_F64);
  return sum_all(u, map2(u, OP_MUL, g, g));
}

static void build_norms(Update *u) {
  Value **squares = arena_alloc_array(u->tmp, (size_t)u->n_stages, sizeof *squares);
  for (int s = 0; s < u->n_stages; s++)
    squares[s] = arena_alloc_array(u->tmp, (size_t)u->n_norms[s], sizeof **squares);
  for (int i = 0; i < u->n; i++) {
    Trained *p = &u->trained[i];
    u->b.loc = op_loc(u->ir, p->op);
    squares[p->owner][p->place] = squared_norm(u, p);
  }
  for (int s = 0; s < u->n_stages; s++) {
    if (!u->n_norms[s]) continue;
    u->b.stage = s;
    u->b.loc = op_loc(u->ir, u->loss);
    u->norms[s] = join(u, u->n_norms[s], squares[s]);
    op_set_string(u->ir, value_owner(u->norms[s]), "pp.name", "squares");
  }
}

/* Partial results of `output` ops: n values a microbatch, read by the decide task (see split). */
static void build_outputs(Update *u, Op microbatch) {
  OpVec outputs = ir_ops(u->tmp, microbatch, OP_OUTPUT);
  for (int i = 0; i < outputs.n; i++) {
    Op op = outputs.at[i];
    bool whole = !strcmp(op_string(u->tmp, op, "kind"), "concat");
    int64_t n = whole ? type_elements(value_type(op_operand(op, 0))) : 1;
    Attr name = string_attribute("output", op_string(u->tmp, op, "output"));
    u->b.stage = op_stage(op);
    u->b.loc = op_loc(u->ir, op);
    leaf(u, OP_OUTPUTS, f64_vector(u, u->n_microbatches * n), 1, &name);
  }
}

/* --- decide ----------------------------------------------------------------------------- */

enum { CONCAT_LIMIT = 16 }; /* below the number of types that one op may have */

/* In place: groups of parts joined until few are left. */
static int join_groups(Update *u, int n, Value *parts) {
  while (n > CONCAT_LIMIT) {
    int groups = 0;
    for (int i = 0; i < n; i += CONCAT_LIMIT)
      parts[groups++] = concat(u, n - i < CONCAT_LIMIT ? n - i : CONCAT_LIMIT, parts + i);
    n = groups;
  }
  return n;
}

/* Squared norms of all trained parameters in declaration order; parameters that follow one another
 * in an owner's vector come as one slice. */
static Value gather_norms(Update *u) {
  Value *parts = arena_alloc_array(u->tmp, (size_t)u->n, sizeof *parts);
  int n = 0;
  for (int i = 0; i < u->n;) {
    int first = i, owner = u->trained[i].owner;
    while (i < u->n && u->trained[i].owner == owner) i++;
    parts[n++] = part(u, u->norms[owner], u->trained[first].place, i - first);
  }
  n = join_groups(u, n, parts);
  u->b.name = "norms";
  return concat(u, n, parts);
}

static void find_functions(Update *u) {
  OpVec funcs = ir_funcs(u->tmp, ir_top(u->ir));
  for (int i = 0; i < funcs.n; i++) map_put(u->tmp, &u->functions, func_name(u->tmp, funcs.at[i]), funcs.at[i].ptr);
}

static Op function(Update *u, const char *name) { return (Op){map_get(&u->functions, name)}; }

/* One of the functions of a number; `otherwise` without it. */
static Value call_number(Update *u, const char *name, Value x, Value otherwise) {
  Op func = function(u, name);
  if (op_is_null(func)) return otherwise;
  Value out;
  func_inline(&u->b, func, 1, &x, &out);
  return out;
}

static Value as_number(Update *u, Value condition) {
  Value one = number(u, 1), zero = number(u, 0);
  return choose(u, condition, one, zero);
}

/* The sum of a vector that the runtime keeps for each microbatch, folded in microbatch order. */
static Value total_of(Update *u, OpId id) {
  return sum_all(u, leaf(u, id, f64_vector(u, u->n_microbatches), 0, NULL));
}

/* With nothing counted the divisor is 1, so that no NaN arises, and the step is not applied. Gradients are sums of
 * `scale` times theirs, squares of its square. */
static void build_decide(Update *u) {
  u->b.stage = op_stage(u->loss);
  u->b.loc = op_loc(u->ir, u->loss);
  bool pair = op_n_operands(u->loss) == 2;
  Value total = total_of(u, OP_LOSSES);
  Value count = pair ? total_of(u, OP_COUNTS) : number(u, (double)u->n_microbatches);
  Value counted = ir_compare(&u->b, "ne", count, number(u, 0));
  Value divisor = choose(u, counted, count, number(u, 1));
  Value squares = u->n ? sum_all(u, gather_norms(u)) : number(u, 0);
  Value scales, scale = loss_scale_read(&u->b, &scales), scaled = map2(u, OP_MUL, divisor, scale);
  Value norm = map2(u, OP_DIV, ir_map(&u->b, OP_SQRT, 1, &squares), scaled);
  Value finite = ir_compare(&u->b, "le", norm, number(u, DBL_MAX)); /* false for NaN */
  Value clip = call_number(u, "clip", norm, number(u, 1));
  Value step = leaf(u, OP_STEP, f64(u), 0, NULL);
  Value control[PP_CONTROL_SIZE]; /* one after the other: C leaves the order in an initializer open */
  control[PP_CONTROL_APPLY] = as_number(u, map2(u, OP_AND, finite, counted));
  control[PP_CONTROL_FACTOR] = map2(u, OP_DIV, clip, scaled);
  control[PP_CONTROL_LOSS] = map2(u, OP_DIV, total, divisor);
  control[PP_CONTROL_NORM] = norm;
  control[PP_CONTROL_RATE] = call_number(u, "rate", step, number(u, NAN));
  control[PP_CONTROL_DIVISOR] = map2(u, OP_MUL, count, scale);
  u->control = join(u, PP_CONTROL_SIZE, control);
  op_set_string(u->ir, value_owner(u->control), "pp.name", "control");
  effect(u, OP_CONTROL, u->control, 0, NULL);
  loss_scale_decide(&u->b, scales, finite, counted, type_dtype(value_type(op_operand(u->loss, 0))));
}

/* --- update --------------------------------------------------------------------------------- */

static Value scaled_gradient(Update *u, const Trained *p) {
  Value g = gradient(u, p, p->owner);
  Value factor = ir_cast(&u->b, element(u, u->control, PP_CONTROL_FACTOR), type_dtype(p->type));
  return map2(u, OP_MUL, g, ir_broadcast(&u->b, factor, p->type));
}

/* Names of the optimizer's states, from "m,v". */
static const char *const *state_names(Update *u, int *out_n) {
  const char *text = op_string(u->tmp, ir_top(u->ir), "pp.states");
  VEC(const char *) names = {0};
  while (text && *text) {
    size_t length = strcspn(text, ",");
    VEC_PUSH(u->tmp, &names, arena_strndup(u->tmp, text, length));
    text += length + (text[length] == ',');
  }
  *out_n = names.n;
  return names.at;
}

static void assign(Update *u, const Trained *p, Value v, const char *state) {
  Attr attrs[] = {string_attribute("param", p->name), string_attribute("state", state)};
  effect(u, OP_ASSIGN, v, state ? 2 : 1, attrs);
}

/* (p, g, state…, step) → (p', state'…) */
static void build_update(Update *u, const Trained *p) {
  int n_states;
  const char *const *states = state_names(u, &n_states);
  Op func = function(u, arena_printf(u->tmp, "update.%s", p->name));
  if (op_is_null(func)) bug("no @update.%s", p->name);
  if (func_n_args(func) != n_states + 3) bug("@update.%s takes %d values", p->name, func_n_args(func));
  Value *args = arena_alloc_array(u->tmp, (size_t)n_states + 3, sizeof *args);
  Value *results = arena_alloc_array(u->tmp, (size_t)n_states + 1, sizeof *results);
  u->b.stage = p->owner;
  u->b.loc = op_loc(u->ir, p->op);
  Attr attrs[] = {string_attribute("param", p->name), {0}};
  args[0] = leaf(u, OP_PARAM, p->type, 1, attrs);
  args[1] = scaled_gradient(u, p);
  for (int k = 0; k < n_states; k++) {
    attrs[1] = string_attribute("state", states[k]);
    args[2 + k] = leaf(u, OP_STATE, value_type(func_arg(func, 2 + k)), 2, attrs);
  }
  args[2 + n_states] = leaf(u, OP_STEP, f64(u), 0, NULL);
  func_inline(&u->b, func, n_states + 3, args, results);
  assign(u, p, results[0], NULL);
  for (int k = 0; k < n_states; k++) assign(u, p, results[1 + k], states[k]);
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Marks what was built since the last call: what stands behind the first `done` ops, up to the return. */
static void mark_task(Update *u, int *done, pp_task_kind kind) {
  OpVec ops = block_ops(u->tmp, u->b.block);
  for (; *done < ops.n - 1; ++*done)
    if (op_stage(ops.at[*done]) >= 0) op_set_int(u->ir, ops.at[*done], "pp.task", kind);
}

static void drop_functions(Update *u) {
  for (int i = 0; i < u->functions.n; i++) {
    const char *name = u->functions.entries[i].key;
    if (!strcmp(name, "clip") || !strcmp(name, "rate") || str_starts_with(name, "update.")) op_erase(function(u, name));
  }
}

static void build(Update *u, Op microbatch) {
  int done = 0;
  for (int i = 0; i < u->n; i++) {
    u->b.loc = op_loc(u->ir, u->trained[i].op);
    fold_tied(u, &u->trained[i]);
  }
  build_norms(u);
  build_outputs(u, microbatch);
  mark_task(u, &done, PP_FINISH);
  build_decide(u);
  mark_task(u, &done, PP_DECIDE);
  for (int i = 0; i < u->n; i++) build_update(u, &u->trained[i]);
  mark_task(u, &done, PP_UPDATE);
  drop_functions(u);
}

bool update_build(Ir *ir) {
  Op step = func_find(ir, ir_top(ir), "step"), microbatch = func_find(ir, ir_top(ir), "microbatch");
  int errors = diag_error_count(ir_diag(ir));
  Update u = {.ir = ir, .tmp = arena_create()};
  u.b = (Builder){.ir = ir, .block = func_body(step), .before = func_return_op(step), .stage = -1};
  u.n_stages = (int)op_int(ir_top(ir), "pp.stages", 1);
  u.n_microbatches = op_int(ir_top(ir), "pp.microbatches", 1);
  u.loss = ir_ops(u.tmp, microbatch, OP_LOSS).at[0];
  u.norms = arena_alloc_array(u.tmp, (size_t)u.n_stages, sizeof *u.norms);
  u.n_norms = arena_alloc_array(u.tmp, (size_t)u.n_stages, sizeof *u.n_norms);
  read_parameters(&u);
  find_functions(&u);
  build(&u, microbatch);
  arena_destroy(u.tmp);
  return diag_error_count(ir_diag(ir)) == errors;
}
