/* Operations on tensors: from compile-time values to ops in the function that
 * is traced.
 *
 * In: values, of which one at least is a tensor. Out: a tensor. Numbers take
 * the dtype of the tensor they meet, trailing axes broadcast as NumPy does,
 * both as explicit ops; products are normalised as docs/ir.md says. What can go
 * wrong is checked here, so that the message speaks of the source. */
#include <math.h>
#include <string.h>

#include "compiler/eval.h"

/* --- the function that is traced --- */

static bool failed_before(const Eval *e, Loc loc) {
  for (int i = 0; i < e->reported.n; i++) {
    Loc r = e->reported.at[i];
    if (r.file == loc.file && r.line == loc.line && r.col == loc.col)
      return true;
  }
  return false;
}

/* An op whose place has an error already is not tried again: a loop would
 * repeat it. */
Builder *trace_builder(Eval *e, Loc loc) {
  if (!e->trace) {
    eval_error(e, loc,
               "tensors can't be computed here, only where the loss, a rate or "
               "an update is traced");
    return NULL;
  }
  if (e->reported.n > 0 && failed_before(e, loc)) return NULL;
  if (e->ops > e->op_limit) {
    eval_fatal(e, loc, "this program makes more than %lld operations",
               (long long)e->op_limit);
    return NULL;
  }
  Builder *b = &e->trace->b;
  bool staged =
      e->trace->kind == TRACE_LOSS || e->trace->kind == TRACE_GENERATE;
  b->loc = loc;
  b->stage = staged ? e->stage : -1;
  b->path = instance_path(e);
  return b;
}

Trace *trace_open(Eval *e, TraceKind kind, const char *name, Loc loc) {
  Trace *trace = eval_alloc(e, sizeof *trace);
  trace->outer = e->trace;
  trace->kind = kind;
  trace->func = func_create(e->ir, ir_body(e->ir), loc, name);
  trace->b = (Builder){
      .ir = e->ir, .block = func_body(trace->func), .loc = loc, .stage = -1};
  e->trace = trace;
  return trace;
}

void trace_close(Eval *e, Trace *trace, Loc loc, int n, const Value *results) {
  func_return(e->ir, trace->func, loc, n, results);
  e->trace = trace->outer;
}

static Tensor *tensor_new(Eval *e, Value v, bool number) {
  Tensor *t = eval_alloc(e, sizeof *t);
  *t = (Tensor){.v = v,
                .type = value_type(v),
                .trace = e->trace,
                .serial = ++e->serial,
                .number = number};
  return t;
}

/* A null value was reported by the IR at the op's place: the calls follow as
 * notes. */
Val tensor_wrap(Eval *e, Loc loc, Value v, bool number) {
  e->ops++;
  if (value_is_null(v)) {
    VEC_PUSH(e->arena, &e->reported, loc);
    if (diag_is_full(e->diag)) e->fatal = e->stop = true;
    return POISON;
  }
  Type t = value_type(v);
  int64_t dims[PP_MAX_RANK];
  for (int i = 0; i < type_rank(t); i++) dims[i] = type_dim(t, i);
  if (!shape_check_size(e, loc, type_rank(t), dims)) return POISON;
  return (Val){.kind = VAL_TENSOR, .tensor = tensor_new(e, v, number)};
}

static bool guard_allows(const Guard *guard, const Tensor *t) {
  if (!guard || t->serial > guard->floor) return true;
  for (int i = 0; i < guard->n; i++)
    if (guard->allowed[i] == t || value_equal(guard->allowed[i]->v, t->v))
      return true;
  return false;
}

/* A derivative's function gets what it uses of the outer one as further
 * arguments. */
static Value capture(Eval *e, Loc loc, Tensor *t) {
  Trace *trace = e->trace;
  Tensor *inner = ptrmap_get(&trace->known, t->v.ptr);
  if (!inner) {
    inner =
        tensor_new(e, func_add_arg(e->ir, trace->func, t->type, loc), false);
    ptrmap_put(e->arena, &trace->known, t->v.ptr, inner);
    VEC_PUSH(e->arena, &trace->captured, t);
  }
  return inner->v;
}

Value tensor_use(Eval *e, Loc loc, Tensor *t) {
  bool own = t->trace == e->trace;
  if (!guard_allows(e->guard, t)) {
    eval_error(e, loc,
               "a function that states its derivative uses no tensor but its "
               "arguments: pass this one to it");
    return (Value){0};
  }
  if (own) return t->v;
  if (e->trace && e->trace->kind == TRACE_DERIVATIVE &&
      t->trace == e->trace->outer)
    return capture(e, loc, t);
  eval_error(e, loc,
             "this tensor was made in another program: it can't be used here");
  return (Value){0};
}

void tensor_name(Eval *e, Val v, const char *name, int64_t since) {
  if (v.kind != VAL_TENSOR || v.tensor->serial <= since || v.tensor->named ||
      v.tensor->trace != e->trace)
    return;
  Op op = value_owner(v.tensor->v);
  v.tensor->named = true;
  if (op_is_null(op) || op_id(op) == OP_PARAM || op_id(op) == OP_DATA) return;
  op_set_string(e->ir, op, "pp.name", name);
}

/* --- numbers that meet tensors --- */

static bool number_fits(Eval *e, Loc loc, Val v, pp_dtype dtype) {
  if (dtype == PP_BOOL) {
    eval_error(e, loc, "%s meets a bool tensor", val_describe(e, v));
  } else if (dtype == PP_I32 && v.kind == VAL_FLOAT) {
    eval_error(e, loc, "%s meets an i32 tensor", val_describe(e, v));
    eval_note(e, loc, "cast(x, real) makes a float tensor of it");
  } else if (dtype == PP_I32 &&
             (v.int_value > INT32_MAX || v.int_value < INT32_MIN)) {
    eval_error(e, loc, "%lld does not fit in i32", (long long)v.int_value);
  } else {
    return true;
  }
  return false;
}

static Value build_constant(Eval *e, Builder *b, Val v, Type type) {
  e->ops++;
  if (type_is_real(type))
    return ir_constant(b, type, val_number(v));
  return ir_constant_int(b, type,
                         v.kind == VAL_BOOL ? v.bool_value : v.int_value);
}

Value tensor_constant(Eval *e, Loc loc, Val number, Type type) {
  Builder *b = trace_builder(e, loc);
  bool is_bool = number.kind == VAL_BOOL && type_dtype(type) == PP_BOOL;
  if (!b || (!is_bool && !number_fits(e, loc, number, type_dtype(type))))
    return (Value){0};
  return build_constant(e, b, number, type);
}

/* --- common dtype and shape --- */

/* What several operands become: one dtype, one shape. */
typedef struct {
  pp_dtype dtype;
  bool number; /* only run-time numbers: the result is one */
  int rank;
  int64_t dims[PP_MAX_RANK];
} Common;

static bool is_tensor(Val v) {
  return v.kind == VAL_TENSOR && !v.tensor->number;
}
static bool is_run_number(Val v) {
  return v.kind == VAL_TENSOR && v.tensor->number;
}

/* bf16 is only stored. */
static pp_dtype computed_dtype(Type t) { return type_dtype(t) == PP_BF16 ? PP_F32 : type_dtype(t); }

static bool common_dtype(Eval *e, Loc loc, int n, const Val *v, Common *c) {
  const Tensor *first = NULL;
  for (int i = 0; i < n; i++) {
    if (!is_tensor(v[i])) continue;
    const Tensor *t = v[i].tensor;
    if (first && computed_dtype(first->type) != computed_dtype(t->type)) {
      eval_error(e, loc, "%s meets %s: there are no implicit casts",
                 tensor_shape_text(e, first->type),
                 tensor_shape_text(e, t->type));
      eval_note(e, loc, "cast(x, %s) converts",
                dtype_name(type_dtype(first->type)));
      return false;
    }
    if (!first) first = t;
  }
  c->number = !first;
  c->dtype = first ? computed_dtype(first->type) : PP_F64;
  for (int i = 0; i < n; i++) {
    if (val_is_number(v[i]) && !number_fits(e, loc, v[i], c->dtype))
      return false;
    if (is_run_number(v[i]) && type_dtype(v[i].tensor->type) == PP_BOOL) {
      eval_error(
          e, loc,
          "a run-time bool is no number: select(c, 1.0, 0.0) makes one of it");
      return false;
    }
    if (is_run_number(v[i]) && first && !type_is_real(first->type)) {
      eval_error(e, loc, "a run-time number meets %s",
                 tensor_shape_text(e, first->type));
      return false;
    }
  }
  return true;
}

static void report_broadcast(Eval *e, Loc loc, int n, const Val *v, int axis) {
  const char *texts[3] = {0};
  int k = 0;
  for (int i = 0; i < n && k < 3; i++)
    if (v[i].kind == VAL_TENSOR)
      texts[k++] = tensor_shape_text(e, v[i].tensor->type);
  if (k == 3)
    eval_error(e, loc, "%s, %s and %s do not broadcast: axis %d differs",
               texts[0], texts[1], texts[2], axis);
  else
    eval_error(e, loc, "%s and %s do not broadcast: axis %d differs", texts[0],
               texts[1], axis);
}

static bool common_shape(Eval *e, Loc loc, int n, const Val *v, Common *c) {
  c->rank = 0;
  for (int i = 0; i < n; i++)
    if (v[i].kind == VAL_TENSOR && type_rank(v[i].tensor->type) > c->rank)
      c->rank = type_rank(v[i].tensor->type);
  for (int axis = 0; axis < c->rank; axis++) {
    int64_t size = 1;
    for (int i = 0; i < n; i++) {
      if (v[i].kind != VAL_TENSOR) continue;
      int at = axis - (c->rank - type_rank(v[i].tensor->type));
      int64_t is = at < 0 ? 1 : type_dim(v[i].tensor->type, at);
      if (is == 1 || is == size) continue;
      if (size != 1) {
        report_broadcast(e, loc, n, v, axis - c->rank);
        return false;
      }
      size = is;
    }
    c->dims[axis] = size;
  }
  return shape_check_size(e, loc, c->rank, c->dims);
}

/* One operand in the common dtype and shape. */
static Value materialise(Eval *e, Builder *b, Loc loc, Val v, pp_dtype dtype,
                         const Common *c) {
  Type type = type_tensor(e->ir, dtype, c->rank, c->dims);
  if (v.kind != VAL_TENSOR) return build_constant(e, b, v, type);
  Value x = tensor_use(e, loc, v.tensor);
  if (value_is_null(x)) return x;
  b = trace_builder(e, loc);
  if (!b) return (Value){0};
  x = v.tensor->number ? ir_cast(b, x, dtype) : tensor_widen(b, x);
  if (value_is_null(x)) return x;
  e->ops += 2;
  return value_is_null(x) ? x : ir_broadcast(b, x, type);
}

/* All operands in one dtype and shape; false after an error. */
static bool unify(Eval *e, Loc loc, int n, const Val *v, Common *c,
                  Value *out) {
  for (int i = 0; i < n; i++) {
    if (v[i].kind == VAL_POISON) return false;
    if (v[i].kind == VAL_TENSOR || val_is_number(v[i])) continue;
    eval_error(e, loc, "a tensor can't meet %s", val_describe(e, v[i]));
    return false;
  }
  if (!common_dtype(e, loc, n, v, c) || !common_shape(e, loc, n, v, c))
    return false;
  Builder *b = trace_builder(e, loc);
  if (!b) return false;
  for (int i = 0; i < n; i++) {
    out[i] = materialise(e, b, loc, v[i], c->dtype, c);
    if (value_is_null(out[i])) return false;
  }
  return true;
}

Value tensor_as(Eval *e, Loc loc, Val v, Type type, const char *what) {
  if (v.kind == VAL_POISON) return (Value){0};
  if (val_is_number(v)) return tensor_constant(e, loc, v, type);
  bool scalar = is_run_number(v) && type_is_real(type);
  if (v.kind != VAL_TENSOR || (!scalar && !type_equal(v.tensor->type, type) &&
                               !type_equal(type_adjoint(e->ir, v.tensor->type), type))) {
    eval_error(e, loc, "%s must be %s, but this is %s", what,
               tensor_shape_text(e, type),
               v.kind == VAL_TENSOR ? tensor_shape_text(e, v.tensor->type)
                                    : val_describe(e, v));
    return (Value){0};
  }
  Value x = tensor_use(e, loc, v.tensor);
  Builder *b = value_is_null(x) ? NULL : trace_builder(e, loc);
  if (!b) return (Value){0};
  x = ir_cast(b, x, type_dtype(type));
  return scalar ? ir_broadcast(b, x, type) : x;
}

/* --- elementwise --- */

static bool wants_real(OpId op) {
  switch (op) {
  case OP_EXP:
  case OP_LOG:
  case OP_TANH:
  case OP_SQRT:
  case OP_RSQRT:
  case OP_ERF:
  case OP_SIN:
  case OP_COS:
  case OP_POW:
    return true;
  default:
    return false;
  }
}

static bool check_operand(Eval *e, Loc loc, OpId op, pp_dtype dtype) {
  bool logic = op == OP_NOT || op == OP_AND || op == OP_OR;
  if (logic && dtype != PP_BOOL) {
    eval_error(e, loc, "'%s' works on bools, not on %s", op_name(op),
               dtype_name(dtype));
  } else if (!logic && dtype == PP_BOOL) {
    eval_error(e, loc, "'%s' works on numbers, not on a bool tensor",
               op_name(op));
    eval_note(e, loc, "cast(x, real) gives 0 and 1");
  } else if (wants_real(op) && dtype == PP_I32) {
    eval_error(e, loc, "'%s' works on floats, not on an i32 tensor",
               op_name(op));
    eval_note(e, loc, "cast(x, real) makes a float tensor of it");
  } else {
    return true;
  }
  return false;
}

Val tensor_unary(Eval *e, Loc loc, OpId op, Val x) {
  if (x.kind != VAL_TENSOR)
    return x.kind == VAL_POISON
               ? x
               : eval_error(e, loc, "'%s' needs a tensor", op_name(op));
  if (!check_operand(e, loc, op, type_dtype(x.tensor->type))) return POISON;
  Value v = tensor_use(e, loc, x.tensor);
  Builder *b = value_is_null(v) ? NULL : trace_builder(e, loc);
  if (!b) return POISON;
  v = tensor_widen(b, v);
  return tensor_wrap(e, loc, ir_map(b, op, 1, &v), x.tensor->number);
}

Val tensor_map2(Eval *e, Loc loc, OpId op, Val a, Val b) {
  Common c;
  Value in[2];
  if (!unify(e, loc, 2, (Val[]){a, b}, &c, in) ||
      !check_operand(e, loc, op, c.dtype))
    return POISON;
  return tensor_wrap(e, loc, ir_map(trace_builder(e, loc), op, 2, in),
                     c.number);
}

Val tensor_compare(Eval *e, Loc loc, const char *predicate, Val a, Val b) {
  Common c;
  Value in[2];
  if (!unify(e, loc, 2, (Val[]){a, b}, &c, in)) return POISON;
  if (c.dtype == PP_BOOL && strcmp(predicate, "eq") != 0 &&
      strcmp(predicate, "ne") != 0)
    return eval_error(e, loc, "bool tensors have no order");
  return tensor_wrap(e, loc,
                     ir_compare(trace_builder(e, loc), predicate, in[0], in[1]),
                     c.number);
}

/* Bool tensors; one side may be a compile-time bool. */
Val tensor_logic(Eval *e, Loc loc, OpId op, Val a, Val b) {
  Val v[2] = {a, b};
  Common c = {.dtype = PP_BOOL};
  Value in[2];
  for (int i = 0; i < 2; i++)
    if (v[i].kind == VAL_TENSOR &&
        !check_operand(e, loc, op, type_dtype(v[i].tensor->type)))
      return POISON;
  Builder *builder = trace_builder(e, loc);
  if (!builder || !common_shape(e, loc, 2, v, &c)) return POISON;
  bool number = true;
  for (int i = 0; i < 2; i++) {
    if (is_tensor(v[i])) number = false;
    in[i] = materialise(e, builder, loc, v[i], PP_BOOL, &c);
    if (value_is_null(in[i])) return POISON;
  }
  return tensor_wrap(e, loc, ir_map(builder, op, 2, in), number);
}

static const char *predicate_of(AstOp op) {
  switch (op) {
  case AST_EQ:
    return "eq";
  case AST_NE:
    return "ne";
  case AST_LT:
    return "lt";
  case AST_LE:
    return "le";
  case AST_GT:
    return "gt";
  case AST_GE:
    return "ge";
  default:
    return NULL;
  }
}

/* `a / b` of integers is an op that rounds down; the language has div for that.
 */
static bool refuse_int_division(Eval *e, Loc loc, Val a, Val b) {
  Val v = a.kind == VAL_TENSOR ? a : b;
  if (type_dtype(v.tensor->type) != PP_I32) return false;
  eval_error(e, loc,
             "'/' on an i32 tensor: div(a, b) rounds down, cast(x, real) makes "
             "floats");
  return true;
}

Val tensor_binary(Eval *e, Loc loc, AstOp op, Val a, Val b) {
  if (op == AST_MATMUL) return tensor_matmul(e, loc, a, b);
  if (predicate_of(op)) return tensor_compare(e, loc, predicate_of(op), a, b);
  switch (op) {
  case AST_ADD:
    return tensor_map2(e, loc, OP_ADD, a, b);
  case AST_SUB:
    return tensor_map2(e, loc, OP_SUB, a, b);
  case AST_MUL:
    return tensor_map2(e, loc, OP_MUL, a, b);
  case AST_DIV:
    return refuse_int_division(e, loc, a, b)
               ? POISON
               : tensor_map2(e, loc, OP_DIV, a, b);
  default:
    return eval_error(e, loc, "'%s' does not work on tensors", ast_op_text(op));
  }
}

/* Two numbers take the model's dtype, or stay a number where the condition is
 * one. */
static bool select_dtype(Eval *e, Loc loc, Val c, const Val *v,
                         Common *common) {
  bool numbers = !is_tensor(v[0]) && !is_tensor(v[1]);
  if (!numbers) return common_dtype(e, loc, 2, v, common);
  bool run = is_run_number(c) && type_rank(c.tensor->type) == 0;
  common->number = run || ((is_run_number(v[0]) || is_run_number(v[1])) &&
                           type_rank(c.tensor->type) == 0);
  common->dtype = common->number ? PP_F64 : e->real;
  return true;
}

Val tensor_select(Eval *e, Loc loc, Val c, Val a, Val b) {
  Val v[3] = {a, b, c};
  Common common;
  Value in[3];
  if (a.kind == VAL_POISON || b.kind == VAL_POISON || c.kind == VAL_POISON)
    return POISON;
  if (c.kind == VAL_BOOL) return c.bool_value ? a : b;
  if (c.kind != VAL_TENSOR || type_dtype(c.tensor->type) != PP_BOOL)
    return eval_error(e, loc, "'select' chooses by a bool tensor, not by %s",
                      val_describe(e, c));
  for (int i = 0; i < 2; i++)
    if (v[i].kind != VAL_TENSOR && !val_is_number(v[i]))
      return eval_error(e, loc,
                        "'select' chooses between tensors or numbers, not %s",
                        val_describe(e, v[i]));
  if (!select_dtype(e, loc, c, v, &common) ||
      !common_shape(e, loc, 3, v, &common))
    return POISON;
  Builder *builder = trace_builder(e, loc);
  if (!builder) return POISON;
  for (int i = 0; i < 2; i++)
    in[i + 1] = materialise(e, builder, loc, v[i], common.dtype, &common);
  in[0] = materialise(e, builder, loc, c, PP_BOOL, &common);
  for (int i = 0; i < 3; i++)
    if (value_is_null(in[i])) return POISON;
  return tensor_wrap(e, loc, ir_map(builder, OP_SELECT, 3, in), common.number);
}

/* --- products --- */

Value tensor_widen(Builder *b, Value x) {
  return type_dtype(value_type(x)) == PP_BF16 ? ir_cast(b, x, PP_F32) : x;
}

/* Below a permutation, which then still stands right before the product and
 * becomes a part of it. */
Value tensor_narrow(Eval *e, Builder *b, Value x) {
  bool trains = e->trace && (e->trace->kind == TRACE_LOSS ||
                             e->trace->kind == TRACE_GENERATE ||
                             e->trace->kind == TRACE_DERIVATIVE);
  if (!e->narrows || !trains || type_dtype(value_type(x)) != PP_F32) return x;
  Op op = value_owner(x);
  if (op_is_null(op) || op_id(op) != OP_PERMUTE)
    return ir_cast(b, x, PP_BF16);
  int64_t n;
  Value inner = ir_cast(b, op_operand(op, 0), PP_BF16);
  return ir_permute(b, inner, op_ints(e->arena, op, "axes", &n));
}

/* One dtype: bf16 beside f32 is widened. */
static void match_operands(Builder *b, Value *x, Value *y) {
  if (type_dtype(value_type(*x)) == type_dtype(value_type(*y))) return;
  *x = tensor_widen(b, *x);
  *y = tensor_widen(b, *y);
}

typedef struct {
  Value v;
  int rank;
  int64_t dims[PP_MAX_RANK];
} Operand;

static Operand operand_of(Value v) {
  Operand o = {.v = v, .rank = type_rank(value_type(v))};
  for (int i = 0; i < o.rank; i++) o.dims[i] = type_dim(value_type(v), i);
  return o;
}

static bool check_matmul(Eval *e, Loc loc, Val a, Val b) {
  if (!is_tensor(a) || !is_tensor(b)) {
    eval_error(e, loc, "'@' works on two tensors, not on %s",
               val_describe(e, is_tensor(a) ? b : a));
    return false;
  }
  Type x = a.tensor->type, y = b.tensor->type;
  const char *xs = tensor_shape_text(e, x), *ys = tensor_shape_text(e, y);
  if (!type_is_real(x) || computed_dtype(x) != computed_dtype(y)) {
    eval_error(e, loc,
               "'@' works on two float tensors of one dtype, not on %s and %s",
               xs, ys);
  } else if (type_rank(x) == 0 || type_rank(y) == 0) {
    eval_error(e, loc, "'@' needs axes: these are %s and %s", xs, ys);
  } else {
    int64_t k = type_dim(x, type_rank(x) - 1),
            l = type_dim(y, type_rank(y) > 1 ? type_rank(y) - 2 : 0);
    if (k == l) return true;
    eval_error(e, loc, "%s @ %s: %lld columns meet %lld rows", xs, ys,
               (long long)k, (long long)l);
  }
  return false;
}

/* [.., k] @ [k, n]: one product of two matrices, without batches. */
static Value matmul_flat(Builder *b, const Operand *x, const Operand *y) {
  int64_t rows = 1, dims[PP_MAX_RANK];
  for (int i = 0; i < x->rank - 1; i++) rows *= dims[i] = x->dims[i];
  int64_t k = x->dims[x->rank - 1], n = y->dims[1];
  Value flat = ir_reshape(b, x->v, 2, (int64_t[]){rows, k});
  Value product =
      value_is_null(flat) ? flat : ir_matmul(b, flat, y->v, false, false);
  dims[x->rank - 1] = n;
  return value_is_null(product) ? product
                                : ir_reshape(b, product, x->rank, dims);
}

static Value broadcast_batches(Eval *e, Builder *b, const Operand *o,
                               int n_batch, const int64_t *batch) {
  int64_t dims[PP_MAX_RANK];
  for (int i = 0; i < n_batch; i++) dims[i] = batch[i];
  dims[n_batch] = o->dims[o->rank - 2];
  dims[n_batch + 1] = o->dims[o->rank - 1];
  return ir_broadcast(
      b, o->v,
      type_tensor(e->ir, type_dtype(value_type(o->v)), n_batch + 2, dims));
}

static Value matmul_batched(Eval *e, Builder *b, Loc loc, const Operand *x,
                            const Operand *y) {
  int n_batch = (x->rank > y->rank ? x->rank : y->rank) - 2;
  int64_t batch[PP_MAX_RANK];
  for (int i = 0; i < n_batch; i++) {
    int xi = i - (n_batch - (x->rank - 2)), yi = i - (n_batch - (y->rank - 2));
    int64_t m = xi < 0 ? 1 : x->dims[xi], n = yi < 0 ? 1 : y->dims[yi];
    if (m != n && m != 1 && n != 1) {
      eval_error(e, loc, "%s @ %s: the leading axes do not broadcast",
                 tensor_shape_text(e, value_type(x->v)),
                 tensor_shape_text(e, value_type(y->v)));
      return (Value){0};
    }
    batch[i] = m > n ? m : n;
  }
  Value u = broadcast_batches(e, b, x, n_batch, batch),
        w = broadcast_batches(e, b, y, n_batch, batch);
  return value_is_null(u) || value_is_null(w)
             ? (Value){0}
             : ir_matmul(b, u, w, false, false);
}

/* A vector counts as a row on the left, as a column on the right; that axis
 * goes again. */
static Value drop_vector_axes(Builder *b, Value product, bool row,
                              bool column) {
  if (value_is_null(product)) return product;
  Operand o = operand_of(product);
  int64_t dims[PP_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < o.rank; i++)
    if (!(row && i == o.rank - 2) && !(column && i == o.rank - 1))
      dims[rank++] = o.dims[i];
  return ir_reshape(b, product, rank, dims);
}

Val tensor_matmul(Eval *e, Loc loc, Val a, Val b) {
  if (!check_matmul(e, loc, a, b)) return POISON;
  Value u = tensor_use(e, loc, a.tensor), w = tensor_use(e, loc, b.tensor);
  Builder *builder =
      value_is_null(u) || value_is_null(w) ? NULL : trace_builder(e, loc);
  if (!builder) return POISON;
  u = tensor_narrow(e, builder, u);
  w = tensor_narrow(e, builder, w);
  match_operands(builder, &u, &w);
  bool row = type_rank(a.tensor->type) == 1,
       column = type_rank(b.tensor->type) == 1;
  if (row)
    u = ir_reshape(builder, u, 2, (int64_t[]){1, type_dim(a.tensor->type, 0)});
  if (column)
    w = ir_reshape(builder, w, 2, (int64_t[]){type_dim(b.tensor->type, 0), 1});
  Operand x = operand_of(u), y = operand_of(w);
  Value product = y.rank == 2 ? matmul_flat(builder, &x, &y)
                              : matmul_batched(e, builder, loc, &x, &y);
  if (value_is_null(product)) return POISON;
  e->ops += 3;
  return tensor_wrap(e, loc, drop_vector_axes(builder, product, row, column),
                     false);
}

/* --- indexing --- */

typedef struct {
  int64_t starts[PP_MAX_RANK], limits[PP_MAX_RANK];
  bool drop[PP_MAX_RANK];
} Cut;

static bool cut_axis(Eval *e, const AstExpr *sub, Scope *scope, const Tensor *t,
                     int axis, Cut *cut) {
  int64_t a, b, size = type_dim(t->type, axis);
  if (sub->kind == EXPR_RANGE) {
    if (!range_bounds(e, sub, scope, &a, &b)) return false;
    if (a < 0 || b > size || a >= b) {
      eval_error(e, sub->loc,
                 a >= b ? "%lld..%lld is empty: axis %d of %s would vanish"
                        : "%lld..%lld is not within axis %d of %s",
                 (long long)a, (long long)b, axis,
                 tensor_shape_text(e, t->type));
      return false;
    }
  } else {
    Val v = eval_value(e, sub, scope);
    if (v.kind == VAL_TENSOR) {
      eval_error(e, ast_expr_start(sub), "a tensor can't be an index");
      eval_note(e, ast_expr_start(sub),
                "gather(table, i) takes rows by a tensor of i32");
    } else if (v.kind != VAL_INT && v.kind != VAL_POISON) {
      eval_error(e, ast_expr_start(sub),
                 "an index is an int or a range, not %s", val_describe(e, v));
    }
    if (v.kind != VAL_INT) return false;
    a = v.int_value, b = a + 1;
    if (a < 0 || a >= size) {
      eval_error(e, ast_expr_start(sub),
                 "index %lld is not within axis %d of %s", (long long)a, axis,
                 tensor_shape_text(e, t->type));
      return false;
    }
    cut->drop[axis] = true;
  }
  cut->starts[axis] = a;
  cut->limits[axis] = b;
  return true;
}

static bool cut_axes(Eval *e, const AstExpr *expr, const Tensor *t,
                     Scope *scope, Cut *cut) {
  const AstExprs *subs = &expr->index.subscripts;
  int rank = type_rank(t->type), n_ellipsis = 0, axis = 0;
  for (int i = 0; i < subs->n; i++)
    n_ellipsis += subs->at[i]->kind == EXPR_ELLIPSIS;
  if (n_ellipsis > 1 || subs->n - n_ellipsis > rank) {
    eval_error(e, expr->loc,
               n_ellipsis > 1 ? "'..' can stand once in an index"
                              : "more indices than %s has axes",
               tensor_shape_text(e, t->type));
    return false;
  }
  for (int i = 0; i < rank; i++) cut->limits[i] = type_dim(t->type, i);
  for (int i = 0; i < subs->n; i++) {
    if (subs->at[i]->kind == EXPR_ELLIPSIS)
      axis += rank - (subs->n - 1);
    else if (!cut_axis(e, subs->at[i], scope, t, axis++, cut))
      return false;
  }
  return true;
}

Val tensor_index(Eval *e, const AstExpr *expr, Tensor *t, Scope *scope) {
  Cut cut = {0};
  if (!cut_axes(e, expr, t, scope, &cut)) return POISON;
  Value v = tensor_use(e, expr->loc, t);
  Builder *b = value_is_null(v) ? NULL : trace_builder(e, expr->loc);
  if (!b) return POISON;
  int rank = 0;
  int64_t dims[PP_MAX_RANK];
  bool whole = true;
  for (int i = 0; i < type_rank(t->type); i++) {
    whole =
        whole && cut.starts[i] == 0 && cut.limits[i] == type_dim(t->type, i);
    if (!cut.drop[i]) dims[rank++] = cut.limits[i] - cut.starts[i];
  }
  if (!whole) v = ir_slice(b, v, cut.starts, cut.limits);
  e->ops++;
  if (!value_is_null(v)) v = ir_reshape(b, v, rank, dims);
  return tensor_wrap(e, expr->loc, v, false);
}
