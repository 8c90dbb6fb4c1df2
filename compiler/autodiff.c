/* Reverse-mode differentiation of @loss, which becomes @microbatch with the backward pass behind the
 * forward one, and @step with the loop over microbatches.
 *
 * In: the forward pass in program order. Stages ascend along it, but for work on parameters alone,
 * which stages_localize has given to the stages that use it. One walk against the program order
 * builds the adjoint of each op whose result reaches the loss and whose operands depend on a
 * parameter (adjoints.c). Contributions to one value are added as they come: within each later stage
 * first, then the stages' sums in descending order, then those of the value's own stage. What
 * reaches a parameter is accumulated at once. Nothing depends on where an op of another stage stands,
 * so the bits of a gradient depend on the cut only through that grouping.
 *
 * It makes no second derivatives, and removes the ops that nothing uses in the end. */
#include <string.h>

#include "compiler/compiler.h"

/* What one later stage adds to a value's adjoint. */
typedef struct {
  int stage;
  Value sum;
} Share;

/* The adjoint of a value so far. `later` descends by stage and is folded into `own` when the first
 * contribution of the value's own stage arrives, or at the end. */
typedef struct {
  VEC(Share) later;
  Value own; /* null: nothing yet */
} Sum;

/* Facts about an op of the forward pass. */
typedef struct {
  Op op;
  int stage;
  bool active;     /* depends on a parameter: its real results have adjoints */
  bool param_only; /* depends on no data */
  Sum *sums;       /* one for each result; null until the first contribution */
} Node;

typedef struct {
  Ir *ir;
  Arena *tmp;
  Op func;
  Builder b;    /* at the end of func */
  int n;
  Node *nodes;
  PtrMap index; /* op → Node */
} Autodiff;

static const Value null_value = {NULL};

static Node *node_of(Autodiff *d, Value v) { return ptrmap_get(&d->index, value_owner(v).ptr); }

/* --- activity -------------------------------------------------------------------- */

/* Which operands carry adjoints: all, or the arguments of a stated derivative. */
static bool is_differentiable(Op op, int operand) {
  if (op_id(op) != OP_WITH_DERIVATIVE) return true;
  int first = (int)op_int(op, "n_results", 0);
  return operand >= first && operand < first + op_int(op, "n_arguments", 0);
}

static bool needs_adjoint(Autodiff *d, Op op, int operand) {
  Value v = op_operand(op, operand);
  return is_differentiable(op, operand) && node_of(d, v)->active && type_is_real(value_type(v));
}

static void find_facts(Autodiff *d, Node *n) {
  OpId id = op_id(n->op);
  n->active = id == OP_PARAM;
  n->param_only = id != OP_DATA && (op_traits(id) & TRAIT_PURE);
  for (int i = 0; i < op_n_operands(n->op); i++) {
    n->active = n->active || needs_adjoint(d, n->op, i);
    n->param_only = n->param_only && node_of(d, op_operand(n->op, i))->param_only;
  }
}

static void collect(Autodiff *d) {
  OpVec ops = block_ops(d->tmp, func_body(d->func));
  d->nodes = arena_alloc_array(d->tmp, (size_t)ops.n, sizeof *d->nodes);
  for (int i = 0; i < ops.n && !op_is_return(ops.at[i]); i++) {
    Node *n = &d->nodes[d->n++];
    *n = (Node){.op = ops.at[i], .stage = op_stage(ops.at[i])};
    ptrmap_put(d->tmp, &d->index, n->op.ptr, n);
    find_facts(d, n);
  }
}

/* --- sums of adjoints -------------------------------------------------------------- */

static Value add_at(Autodiff *d, Op place, int stage, Value x, Value y) {
  Builder b = d->b;
  b.stage = stage;
  b.loc = op_loc(d->ir, place);
  return ir_map(&b, OP_ADD, 2, (Value[]){x, y});
}

/* Later stages' sums in descending order, in the stage of the value. */
static void fold_later(Autodiff *d, Node *n, Sum *sum) {
  for (int i = 0; i < sum->later.n; i++) {
    Value s = sum->later.at[i].sum;
    sum->own = value_is_null(sum->own) ? s : add_at(d, n->op, n->stage, sum->own, s);
  }
  sum->later.n = 0;
}

static void add_later(Autodiff *d, Node *n, Sum *sum, int stage, Value dx) {
  Share *last = sum->later.n ? &VEC_LAST(&sum->later) : NULL;
  if (!value_is_null(sum->own) || (last && last->stage < stage))
    bug("adjoints of %s in stage %d come out of order", op_name(op_id(n->op)), n->stage);
  if (last && last->stage == stage)
    last->sum = add_at(d, n->op, stage, last->sum, dx);
  else
    VEC_PUSH(d->tmp, &sum->later, (Share){stage, dx});
}

static void accumulate(Autodiff *d, Op param, Value dx) {
  Attr a = {.name = "param", .kind = ATTR_KIND_STRING, .s = op_string(d->tmp, param, "param")};
  ir_build(&d->b, OP_ACCUMULATE, 1, &dx, 0, NULL, 1, &a);
}

/* dx, made in `stage`, is a part of v's adjoint. */
static void contribute(Autodiff *d, Value v, Value dx, int stage) {
  Node *n = node_of(d, v);
  if (op_id(n->op) == OP_PARAM) {
    accumulate(d, n->op, dx);
    return;
  }
  if (!n->sums) n->sums = arena_alloc_array(d->tmp, (size_t)op_n_results(n->op), sizeof *n->sums);
  Sum *sum = &n->sums[value_index(v)];
  if (stage < n->stage) bug("a use in stage %d of a value of stage %d", stage, n->stage);
  if (stage > n->stage) {
    add_later(d, n, sum, stage, dx);
    return;
  }
  fold_later(d, n, sum);
  sum->own = value_is_null(sum->own) ? dx : add_at(d, n->op, stage, sum->own, dx);
}

/* `pp.adjoint` tells `stages` that the op makes the adjoint of an activation; `pp.name` is "dx"
 * where the source calls the value x. */
static void mark_adjoint(Autodiff *d, const Node *n, Value dy) {
  Op op = value_owner(dy);
  if (!op_unit(op, "pp.backward")) return;
  if (!n->param_only) op_set_unit(d->ir, op, "pp.adjoint");
  const char *name = op_string(d->tmp, n->op, "pp.name");
  if (!name || op_string(d->tmp, op, "pp.name") || op_n_results(op) != 1 || op_n_results(n->op) != 1) return;
  op_set_string(d->ir, op, "pp.name", arena_printf(d->tmp, "d%s", name));
}

/* --- the backward pass --------------------------------------------------------------- */

/* The adjoints of n's results; false when all are zero. */
static bool finish_adjoints(Autodiff *d, Node *n, Value *out_dy) {
  bool any = false;
  for (int i = 0; i < op_n_results(n->op); i++) {
    Sum *sum = n->sums ? &n->sums[i] : NULL;
    if (sum) fold_later(d, n, sum);
    out_dy[i] = sum ? sum->own : null_value;
    if (value_is_null(out_dy[i])) continue;
    any = true;
    mark_adjoint(d, n, out_dy[i]);
  }
  return any;
}

static bool build_adjoint(Autodiff *d, Node *n) {
  int n_in = op_n_operands(n->op);
  Value *dy = arena_alloc_array(d->tmp, (size_t)op_n_results(n->op), sizeof *dy);
  if (!finish_adjoints(d, n, dy)) return true;
  if (!adjoint_exists(op_id(n->op))) {
    diag_error(ir_diag(d->ir), d->b.loc, "no derivative goes through '%s'", op_name(op_id(n->op)));
    return false;
  }
  Value *dx = arena_alloc_array(d->tmp, (size_t)n_in, sizeof *dx);
  bool *needed = arena_alloc_array(d->tmp, (size_t)n_in, sizeof *needed);
  for (int i = 0; i < n_in; i++) needed[i] = needs_adjoint(d, n->op, i);
  if (!adjoint_build(&d->b, n->op, dy, needed, dx)) return false;
  for (int i = n_in - 1; i >= 0; i--)
    if (!value_is_null(dx[i])) contribute(d, op_operand(n->op, i), dx[i], n->stage);
  return true;
}

/* The loss is the sum; its adjoint is the loss scale. The count has none. */
static void start_from_loss(Autodiff *d, Node *n) {
  Value sum = op_operand(n->op, 0), scales;
  if (!node_of(d, sum)->active) return;
  contribute(d, sum, ir_cast(&d->b, loss_scale_read(&d->b, &scales), type_dtype(value_type(sum))), n->stage);
}

static bool build_backward(Autodiff *d) {
  bool ok = true;
  for (int i = d->n - 1; i >= 0; i--) {
    Node *n = &d->nodes[i];
    d->b.stage = n->stage;
    d->b.loc = op_loc(d->ir, n->op);
    d->b.path = op_string(d->tmp, n->op, "pp.path");
    if (op_id(n->op) == OP_LOSS)
      start_from_loss(d, n);
    else if (n->active && op_id(n->op) != OP_PARAM)
      ok = build_adjoint(d, n) && ok;
  }
  return ok;
}

/* --- after it -------------------------------------------------------------------------- */

static void drop_derivatives(Ir *ir, Arena *tmp, Op func) {
  OpVec stated = ir_ops(tmp, func, OP_WITH_DERIVATIVE);
  for (int i = 0; i < stated.n; i++) {
    for (int r = 0; r < op_n_results(stated.at[i]); r++)
      value_replace(op_result(stated.at[i], r), op_operand(stated.at[i], r));
    op_erase(stated.at[i]);
  }
  OpVec funcs = ir_funcs(tmp, ir_top(ir));
  for (int i = 0; i < funcs.n; i++)
    if (str_starts_with(func_name(tmp, funcs.at[i]), "derivative.")) op_erase(funcs.at[i]);
}

/* @step, with nothing but the loop. */
static void build_step(Ir *ir, Op microbatch, int64_t count) {
  Op step = func_create(ir, ir_body(ir), op_loc(ir, microbatch), "step");
  Builder b = {.ir = ir, .block = func_body(step), .loc = op_loc(ir, microbatch), .stage = -1};
  Attr attrs[] = {{.name = "body", .kind = ATTR_KIND_SYMBOL, .s = "microbatch"},
                  {.name = "count", .kind = ATTR_KIND_INT, .i = count}};
  ir_build(&b, OP_LOOP, 0, NULL, 0, NULL, 2, attrs);
  func_return(ir, step, b.loc, 0, NULL);
}

static bool differentiate(Ir *ir, Op loss) {
  Arena *tmp = arena_create();
  Autodiff d = {.ir = ir, .tmp = tmp, .func = loss};
  d.b = (Builder){.ir = ir, .block = func_body(loss), .before = func_return_op(loss), .backward = true};
  stages_localize(ir, loss);
  collect(&d);
  bool ok = build_backward(&d);
  drop_derivatives(ir, tmp, loss);
  if (ok) simplify_dead_ops(ir, loss);
  arena_destroy(tmp);
  return ok;
}

/* A module for generation has @generate in place of @loss: it only goes forward. */
bool autodiff_run(Ir *ir) {
  Op loss = func_find(ir, ir_top(ir), "loss");
  Op forward = func_find(ir, ir_top(ir), "generate");
  if (op_is_null(loss) && op_is_null(forward)) bug("neither @loss nor @generate");
  if (!op_is_null(loss) && !differentiate(ir, loss)) return false;
  Op microbatch = op_is_null(loss) ? forward : loss;
  op_set_string(ir, microbatch, "sym_name", "microbatch");
  build_step(ir, microbatch, op_is_null(loss) ? 1 : op_int(ir_top(ir), "pp.microbatches", 1));
  return true;
}
