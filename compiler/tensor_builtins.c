/* The builtins that make or ask tensors: reductions, movement, gather, cast,
 * attention …
 *
 * In: checked argument counts (builtins.c). Out: a tensor, or a compile-time
 * answer. Those that work on numbers too give a number for numbers. Axes may be
 * negative; sizes and bounds are checked here. */
#include <math.h>
#include <string.h>

#include "compiler/eval.h"

static bool given(const BuiltinCall *call, int i) {
  return call->v[i].kind != VAL_UNSET;
}

static bool any_poison(const BuiltinCall *call) {
  for (int i = 0; i < BUILTIN_MAX_ARGS; i++)
    if (call->v[i].kind == VAL_POISON) return true;
  return false;
}

/* Argument i as a tensor, ready for the function that is traced; NULL after an
 * error. */
static Tensor *want_tensor(Eval *e, const BuiltinCall *call, int i,
                           Value *out) {
  Val v = call->v[i];
  if (any_poison(call)) return NULL;
  if (v.kind != VAL_TENSOR) {
    eval_error(e, call->at[i], "'%s' needs a tensor, not %s",
               builtin_name_of(call), val_describe(e, v));
    return NULL;
  }
  *out = tensor_use(e, call->loc, v.tensor);
  return value_is_null(*out) ? NULL : v.tensor;
}

static bool normalise_axis(Eval *e, Loc loc, int64_t axis, int rank, int *out) {
  if (axis < -rank || axis >= rank) {
    eval_error(e, loc, "axis %lld of a tensor with %d %s", (long long)axis,
               rank, rank == 1 ? "axis" : "axes");
    return false;
  }
  *out = (int)(axis < 0 ? axis + rank : axis);
  return true;
}

/* --- elementwise --- */

static const struct {
  const char *name;
  OpId op;
  double (*number)(double);
} unary_ops[] = {
    {"exp", OP_EXP, exp},    {"log", OP_LOG, log},      {"tanh", OP_TANH, tanh},
    {"sqrt", OP_SQRT, sqrt}, {"sin", OP_SIN, sin},      {"cos", OP_COS, cos},
    {"erf", OP_ERF, erf},    {"rsqrt", OP_RSQRT, NULL},
};

BUILTIN(unary) {
  const char *name = builtin_name_of(call);
  Val x = call->v[0];
  for (size_t i = 0; i < sizeof unary_ops / sizeof *unary_ops; i++) {
    if (strcmp(unary_ops[i].name, name) != 0) continue;
    if (!val_is_number(x)) {
      if (x.kind == VAL_TENSOR || x.kind == VAL_POISON)
        return tensor_unary(e, call->loc, unary_ops[i].op, x);
      return eval_error(e, call->at[0],
                        "'%s' works on tensors and numbers, not on %s", name,
                        val_describe(e, x));
    }
    double v = val_number(x);
    return val_float(unary_ops[i].number ? unary_ops[i].number(v)
                                         : 1.0 / sqrt(v));
  }
  return POISON;
}

static Val min_max_numbers(Val a, Val b, bool max) {
  if (a.kind == VAL_INT && b.kind == VAL_INT)
    return val_int((a.int_value < b.int_value) != max ? a.int_value
                                                      : b.int_value);
  double x = val_number(a), y = val_number(b);
  if (isnan(x) || isnan(y)) return val_float((double)NAN);
  return val_float((x <= y) != max ? x : y);
}

static Val min_max(Eval *e, const BuiltinCall *call, bool max) {
  Val a = call->v[0], b = call->v[1];
  if (val_is_number(a) && val_is_number(b)) return min_max_numbers(a, b, max);
  if (a.kind == VAL_POISON || b.kind == VAL_POISON) return POISON;
  if (a.kind != VAL_TENSOR && b.kind != VAL_TENSOR)
    return eval_error(e, call->loc, "'%s' does not work on %s and %s",
                      max ? "max" : "min", val_describe(e, a),
                      val_describe(e, b));
  return tensor_map2(e, call->loc, max ? OP_MAX : OP_MIN, a, b);
}

BUILTIN(min) {
  return min_max(e, call, false);
}

BUILTIN(pow) {
  Val a = call->v[0], b = call->v[1];
  if (a.kind == VAL_TENSOR || b.kind == VAL_TENSOR)
    return tensor_map2(e, call->loc, OP_POW, a, b);
  if (!val_is_number(a) || !val_is_number(b)) {
    if (a.kind == VAL_POISON || b.kind == VAL_POISON) return POISON;
    return eval_error(e, call->loc, "'pow' does not work on %s and %s",
                      val_describe(e, a), val_describe(e, b));
  }
  if (a.kind == VAL_FLOAT || b.kind == VAL_FLOAT || b.int_value < 0)
    return val_float(pow(val_number(a), val_number(b)));
  int64_t r = 1, base = a.int_value;
  for (int64_t n = b.int_value; n > 0; n >>= 1) {
    if ((n & 1) && __builtin_mul_overflow(r, base, &r))
      return eval_error(e, call->loc, "this power does not fit in 64 bits");
    if (n > 1 && __builtin_mul_overflow(base, base, &base))
      return eval_error(e, call->loc, "this power does not fit in 64 bits");
  }
  return val_int(r);
}

BUILTIN(abs) {
  Val x = call->v[0];
  if (x.kind == VAL_FLOAT) return val_float(fabs(x.float_value));
  if (x.kind == VAL_INT && x.int_value != INT64_MIN)
    return val_int(x.int_value < 0 ? -x.int_value : x.int_value);
  if (x.kind != VAL_TENSOR)
    return x.kind == VAL_POISON
               ? x
               : eval_error(e, call->at[0], "'abs' does not work on %s",
                            val_describe(e, x));
  return tensor_map2(e, call->loc, OP_MAX, x,
                     tensor_unary(e, call->loc, OP_NEG, x));
}

static int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static bool two_ints(Eval *e, const BuiltinCall *call) {
  Val a = call->v[0], b = call->v[1];
  if (a.kind == VAL_POISON || b.kind == VAL_POISON) return false;
  if (a.kind != VAL_INT || b.kind != VAL_INT) {
    eval_error(e, call->loc, "'%s' works on ints, not on %s",
               builtin_name_of(call),
               val_describe(e, a.kind == VAL_INT ? b : a));
  } else if (b.int_value == 0) {
    eval_error(e, call->loc, "division by zero");
  } else if (b.int_value == -1 && a.int_value == INT64_MIN) {
    eval_error(e, call->loc, "this quotient does not fit in 64 bits");
  } else {
    return true;
  }
  return false;
}

static bool is_tensor_call(const BuiltinCall *call) {
  return call->v[0].kind == VAL_TENSOR || call->v[1].kind == VAL_TENSOR;
}

static Val tensor_div(Eval *e, const BuiltinCall *call) {
  for (int i = 0; i < 2; i++)
    if (call->v[i].kind == VAL_TENSOR &&
        type_dtype(call->v[i].tensor->type) != PP_I32)
      return eval_error(e, call->at[i], "'%s' works on ints, not on %s",
                        builtin_name_of(call), val_describe(e, call->v[i]));
  return tensor_map2(e, call->loc, OP_DIV, call->v[0], call->v[1]);
}

BUILTIN(div) {
  if (is_tensor_call(call)) return tensor_div(e, call);
  return two_ints(e, call)
             ? val_int(floor_div(call->v[0].int_value, call->v[1].int_value))
             : POISON;
}

BUILTIN(mod) {
  if (is_tensor_call(call)) {
    Val whole =
        tensor_map2(e, call->loc, OP_MUL, tensor_div(e, call), call->v[1]);
    return tensor_map2(e, call->loc, OP_SUB, call->v[0], whole);
  }
  if (!two_ints(e, call)) return POISON;
  int64_t a = call->v[0].int_value, b = call->v[1].int_value;
  return val_int(a - floor_div(a, b) * b);
}

BUILTIN(select) {
  return tensor_select(e, call->loc, call->v[0], call->v[1], call->v[2]);
}

/* --- reductions --- */

typedef struct {
  int n;
  int64_t axes[PP_MAX_RANK];
  int64_t count; /* elements that become one */
  bool is[PP_MAX_RANK];
} Axes;

static bool add_axis(Eval *e, Loc loc, Val v, const Tensor *t, Axes *axes) {
  int axis;
  if (v.kind != VAL_INT) {
    if (v.kind != VAL_POISON)
      eval_error(e, loc, "an axis is an int, not %s", val_describe(e, v));
    return false;
  }
  if (!normalise_axis(e, loc, v.int_value, type_rank(t->type), &axis))
    return false;
  if (axes->is[axis])
    return eval_error(e, loc, "axis %lld stands twice", (long long)v.int_value),
           false;
  axes->is[axis] = true;
  return true;
}

/* `axis`: an int, a list of ints, or all. */
static bool read_axes(Eval *e, const BuiltinCall *call, int i, const Tensor *t,
                      Axes *axes) {
  Val v = call->v[i];
  int rank = type_rank(t->type);
  bool all = v.kind == VAL_UNSET ||
             (v.kind == VAL_WORD && strcmp(v.string, "all") == 0);
  if (v.kind == VAL_LIST) {
    for (int64_t k = 0; k < v.list->n; k++)
      if (!add_axis(e, call->at[i], v.list->at[v.list->head + k], t, axes))
        return false;
  } else if (!all && !add_axis(e, call->at[i], v, t, axes)) {
    return false;
  }
  axes->count = 1;
  for (int axis = 0; axis < rank; axis++) {
    if (!all && !axes->is[axis]) continue;
    axes->is[axis] = true;
    axes->axes[axes->n++] = axis;
    axes->count *= type_dim(t->type, axis);
  }
  return true;
}

static Value keep_axes(Builder *b, Value v, const Tensor *t, const Axes *axes) {
  int64_t dims[PP_MAX_RANK];
  int rank = type_rank(t->type);
  for (int i = 0; i < rank; i++)
    dims[i] = axes->is[i] ? 1 : type_dim(t->type, i);
  return ir_reshape(b, v, rank, dims);
}

static bool check_reduced(Eval *e, const BuiltinCall *call, const Tensor *t,
                          bool mean) {
  const char *name = builtin_name_of(call);
  pp_dtype dtype = type_dtype(t->type);
  if (dtype != PP_BOOL && !(mean && dtype == PP_I32)) return true;
  eval_error(e, call->at[0], "'%s' of a tensor of %s", name, dtype_name(dtype));
  eval_note(e, call->at[0],
            dtype == PP_BOOL && !mean
                ? "cast(x, i32) gives 0 and 1"
                : "cast(x, real) makes a float tensor of it");
  return false;
}

static Val reduce(Eval *e, const BuiltinCall *call, OpId op, int axis_arg,
                  bool mean) {
  Value x;
  Axes axes = {0};
  bool keep;
  Tensor *t = want_tensor(e, call, 0, &x);
  if (!t || !check_reduced(e, call, t, mean) ||
      !read_axes(e, call, axis_arg, t, &axes))
    return POISON;
  if (!builtin_bool(e, call, axis_arg + 1, false, &keep)) return POISON;
  Builder *b = trace_builder(e, call->loc);
  if (!b) return POISON;
  Value v = ir_reduce(b, op, tensor_widen(b, x), axes.n, axes.axes);
  if (keep && !value_is_null(v)) v = keep_axes(b, v, t, &axes);
  Val sum = tensor_wrap(e, call->loc, v, false);
  return mean ? eval_binary(e, call->loc, AST_DIV, sum,
                            val_float((double)axes.count))
              : sum;
}

/* sum and mean: (x, axis, keep). */
BUILTIN(reduce) {
  return reduce(e, call, OP_REDUCE_SUM, 1,
                strcmp(builtin_name_of(call), "mean") == 0);
}

/* max(a, b) elementwise, max(x, axis = …, keep = …) over axes. */
BUILTIN(max) {
  if (given(call, 1)) {
    if (given(call, 2) || given(call, 3))
      return eval_error(
          e, call->loc,
          "max(a, b) has no axis; max(x, axis = …) has one argument");
    return min_max(e, call, true);
  }
  if (call->v[0].kind != VAL_TENSOR && call->v[0].kind != VAL_POISON)
    return eval_error(e, call->loc,
                      "'max' of one argument needs a tensor, not %s",
                      val_describe(e, call->v[0]));
  return reduce(e, call, OP_REDUCE_MAX, 2, false);
}

/* --- movement --- */

enum { MAX_CONCAT = 4096 };

static bool concat_fits(Eval *e, const BuiltinCall *call, Type first, Type t,
                        int axis) {
  bool ok =
      type_dtype(first) == type_dtype(t) && type_rank(first) == type_rank(t);
  for (int i = 0; ok && i < type_rank(t); i++)
    ok = i == axis || type_dim(first, i) == type_dim(t, i);
  if (!ok)
    eval_error(e, call->at[0], "%s and %s can't be joined on axis %d",
               tensor_shape_text(e, first), tensor_shape_text(e, t), axis);
  return ok;
}

BUILTIN(concat) {
  Val list = call->v[0];
  int64_t axis_given = -1;
  int axis = 0;
  if (any_poison(call)) return POISON;
  if (list.kind != VAL_LIST || list.list->n == 0 || list.list->n > MAX_CONCAT)
    return eval_error(
        e, call->at[0],
        "'concat' joins a list of tensors: concat([a, b], axis = -1)");
  if (given(call, 1) && !builtin_int(e, call, 1, "an axis", &axis_given))
    return POISON;
  int n = (int)list.list->n;
  Value *in = eval_alloc(e, (size_t)n * sizeof *in);
  Type first = {0};
  for (int i = 0; i < n; i++) {
    Val v = list.list->at[list.list->head + i];
    if (v.kind == VAL_POISON) return POISON;
    if (v.kind != VAL_TENSOR)
      return eval_error(e, call->at[0],
                        "'concat' joins tensors: element %d is %s", i,
                        val_describe(e, v));
    if (i == 0) first = v.tensor->type;
    if (i == 0 &&
        !normalise_axis(e, call->at[0], axis_given, type_rank(first), &axis))
      return POISON;
    if (!concat_fits(e, call, first, v.tensor->type, axis)) return POISON;
    in[i] = tensor_use(e, call->loc, v.tensor);
    if (value_is_null(in[i])) return POISON;
  }
  Builder *b = trace_builder(e, call->loc);
  return b ? tensor_wrap(e, call->loc, ir_concat(b, n, in, axis), false)
           : POISON;
}

BUILTIN(pad) {
  Value x;
  int64_t axis_given, before[PP_MAX_RANK] = {0}, after[PP_MAX_RANK] = {0},
                      front, back;
  int axis;
  Tensor *t = want_tensor(e, call, 0, &x);
  if (!t || !builtin_int(e, call, 1, "an axis", &axis_given) ||
      !builtin_int(e, call, 2, "a width", &front) ||
      !builtin_int(e, call, 3, "a width", &back) ||
      !normalise_axis(e, call->at[1], axis_given, type_rank(t->type), &axis))
    return POISON;
  if (front < 0 || back < 0 || front > INT32_MAX || back > INT32_MAX)
    return eval_error(
        e, call->at[front < 0 || front > INT32_MAX ? 2 : 3],
        "'pad' can't add %lld elements",
        (long long)(front < 0 || front > INT32_MAX ? front : back));
  before[axis] = front, after[axis] = back;
  Builder *b = trace_builder(e, call->loc);
  return b ? tensor_wrap(e, call->loc, ir_pad(b, x, before, after), false)
           : POISON;
}

BUILTIN(transpose) {
  Value x;
  Tensor *t = want_tensor(e, call, 0, &x);
  if (!t) return POISON;
  if (type_rank(t->type) < 2)
    return eval_error(e, call->at[0],
                      "'transpose' swaps the last two axes: %s has fewer",
                      tensor_shape_text(e, t->type));
  Builder *b = trace_builder(e, call->loc);
  return b ? tensor_wrap(e, call->loc, ir_transpose(b, x), false) : POISON;
}

BUILTIN(permute) {
  Value x;
  Tensor *t = want_tensor(e, call, 0, &x);
  if (!t) return POISON;
  int rank = type_rank(t->type);
  Axes axes = {0};
  int64_t order[PP_MAX_RANK];
  Val list = call->v[1];
  if (list.kind != VAL_LIST || list.list->n != rank)
    return eval_error(
        e, call->at[1],
        "'permute' needs the %d axes of %s in their new order, as a list", rank,
        tensor_shape_text(e, t->type));
  for (int i = 0; i < rank; i++) {
    int axis;
    Val v = list.list->at[list.list->head + i];
    if (!add_axis(e, call->at[1], v, t, &axes) ||
        !normalise_axis(e, call->at[1], v.int_value, rank, &axis))
      return POISON;
    order[i] = axis;
  }
  Builder *b = trace_builder(e, call->loc);
  return b ? tensor_wrap(e, call->loc, ir_permute(b, x, order), false) : POISON;
}

/* Fills in the size that -1 leaves open. */
static bool fill_open_size(int rank, int64_t *dims, int64_t elements) {
  int64_t known = 1;
  int open = -1;
  for (int i = 0; i < rank; i++) {
    if (dims[i] == -1)
      open = i;
    else if (dims[i] < 1 || __builtin_mul_overflow(known, dims[i], &known))
      return false;
  }
  if (open < 0) return known == elements;
  dims[open] = elements / known;
  return elements % known == 0;
}

BUILTIN(reshape) {
  Value x;
  int rank;
  int64_t dims[PP_MAX_RANK];
  Tensor *t = want_tensor(e, call, 0, &x);
  if (!t || !shape_from_list(e, call->v[1], call->at[1], true, &rank, dims))
    return POISON;
  if (!fill_open_size(rank, dims, type_elements(t->type))) {
    Str text = {0};
    val_print(&text, call->v[1], 0);
    eval_error(e, call->loc,
               "%s with its %lld elements can't have the shape %s",
               tensor_shape_text(e, t->type), (long long)type_elements(t->type),
               str_text(&text));
    str_free(&text);
    return POISON;
  }
  Builder *b = trace_builder(e, call->loc);
  return b ? tensor_wrap(e, call->loc, ir_reshape(b, x, rank, dims), false)
           : POISON;
}

/* --- leaves and rows --- */

BUILTIN(iota) {
  int64_t n;
  if (!builtin_int(e, call, 0, "a size", &n)) return POISON;
  if (n > INT32_MAX)
    return eval_error(e, call->at[0], "%lld does not fit in i32", (long long)n);
  if (!shape_check_size(e, call->at[0], 1, &n)) return POISON;
  Builder *b = trace_builder(e, call->loc);
  if (!b) return POISON;
  Type type = type_tensor(e->ir, PP_I32, 1, &n);
  Attr axis = {.name = "axis", .kind = ATTR_KIND_INT, .i = 0};
  Op op = ir_build(b, OP_IOTA, 0, NULL, 1, &type, 1, &axis);
  return tensor_wrap(e, call->loc,
                     op_is_null(op) ? (Value){0} : op_result(op, 0), false);
}

/* Path of the instance, then the functions from there, then the occurrence:
 * nothing that another line of the source, a marker or a pass could change. */
static int64_t random_key(Eval *e) {
  Str text = {0};
  str_printf(&text, "%s/", instance_path(e));
  int first = e->frames.n - 1;
  while (first > 0 &&
         e->frames.at[first - 1].instance == e->frames.at[first].instance)
    first--;
  for (int i = first; i >= 0 && i < e->frames.n; i++)
    str_printf(&text, "%s/", e->frames.at[i].name ? e->frames.at[i].name : "");
  const char *path = eval_printf(e, "%s", str_text(&text));
  intptr_t occurrence = (intptr_t)map_get(&e->occurrences, path);
  map_put(e->arena, &e->occurrences, path, (void *)(occurrence + 1));
  str_printf(&text, "%lld", (long long)occurrence);
  uint64_t key = str_hash(str_text(&text), text.length);
  str_free(&text);
  return (int64_t)key;
}

BUILTIN(random) {
  int rank;
  int64_t dims[PP_MAX_RANK];
  if (!shape_from_list(e, call->v[0], call->at[0], false, &rank, dims))
    return POISON;
  Builder *b = trace_builder(e, call->loc);
  if (!b) return POISON;
  if (e->trace->kind != TRACE_LOSS && e->trace->kind != TRACE_GENERATE)
    return eval_error(
        e, call->loc,
        "'random' can't stand here: only the loss has random numbers");
  Type type = type_tensor(e->ir, PP_F32, rank, dims);
  Attr key = {.name = "key", .kind = ATTR_KIND_INT, .i = random_key(e)};
  Op op = ir_build(b, OP_RANDOM, 0, NULL, 1, &type, 1, &key);
  return tensor_wrap(e, call->loc,
                     op_is_null(op) ? (Value){0} : op_result(op, 0), false);
}

BUILTIN(gather) {
  Value in[2];
  Tensor *table = want_tensor(e, call, 0, &in[0]),
         *index = want_tensor(e, call, 1, &in[1]);
  if (!table || !index) return POISON;
  if (type_rank(table->type) < 1)
    return eval_error(e, call->at[0],
                      "'gather' takes rows of a table, but this is a scalar");
  if (type_dtype(index->type) != PP_I32)
    return eval_error(e, call->at[1],
                      "'gather' takes rows by an i32 tensor, not by %s",
                      tensor_shape_text(e, index->type));
  if (type_rank(index->type) + type_rank(table->type) - 1 > PP_MAX_RANK)
    return eval_error(e, call->loc, "a tensor of more than %d axes",
                      PP_MAX_RANK);
  Builder *b = trace_builder(e, call->loc);
  if (!b) return POISON;
  Op op = ir_build(b, OP_GATHER, 2, in, 0, NULL, 0, NULL);
  return tensor_wrap(e, call->loc,
                     op_is_null(op) ? (Value){0} : op_result(op, 0), false);
}

static Val cast_number(Eval *e, const BuiltinCall *call, pp_dtype dtype) {
  Val x = call->v[0];
  double v = x.kind == VAL_BOOL ? (double)x.bool_value : val_number(x);
  switch (dtype) {
  case PP_F64:
    return val_float(v);
  case PP_F32:
  case PP_BF16:
    return val_float(dtype_round(dtype, v));
  case PP_BOOL:
    return val_bool(v != 0);
  default:
    break;
  }
  if (!(fabs(v) < 9.2e18))
    return eval_error(e, call->at[0], "this number does not fit in an int");
  return x.kind == VAL_INT ? x : val_int((int64_t)v);
}

BUILTIN(cast) {
  Val d = call->v[1];
  if (any_poison(call)) return POISON;
  if (d.kind != VAL_DTYPE)
    return eval_error(e, call->at[1], "'cast' needs a dtype, not %s",
                      val_describe(e, d));
  if (val_is_number(call->v[0]) || call->v[0].kind == VAL_BOOL)
    return cast_number(e, call, d.dtype);
  Value x;
  Tensor *t = want_tensor(e, call, 0, &x);
  if (!t) return POISON;
  if (d.dtype == PP_BOOL && type_dtype(t->type) != PP_BOOL)
    return tensor_compare(e, call->loc, "ne", call->v[0], val_int(0));
  Builder *b = trace_builder(e, call->loc);
  if (!b) return POISON;
  if (type_dtype(t->type) == d.dtype) return call->v[0];
  return tensor_wrap(e, call->loc, ir_cast(b, x, d.dtype), false);
}

/* --- questions --- */

static const Tensor *asked(Eval *e, const BuiltinCall *call) {
  Val v = call->v[0];
  if (v.kind == VAL_TENSOR) return v.tensor;
  if (v.kind != VAL_POISON)
    eval_error(e, call->at[0], "'%s' asks a tensor, not %s",
               builtin_name_of(call), val_describe(e, v));
  return NULL;
}

BUILTIN(shape) {
  const Tensor *t = asked(e, call);
  if (!t) return POISON;
  Val list = list_new(e, type_rank(t->type));
  for (int i = 0; i < type_rank(t->type); i++)
    list_push(e, list.list, val_int(type_dim(t->type, i)));
  return list;
}

BUILTIN(dtype) {
  const Tensor *t = asked(e, call);
  return t ? (Val){.kind = VAL_DTYPE, .dtype = type_dtype(t->type)} : POISON;
}

BUILTIN(rank) {
  const Tensor *t = asked(e, call);
  return t ? val_int(type_rank(t->type)) : POISON;
}

BUILTIN(name) {
  const Tensor *t = asked(e, call);
  if (!t) return POISON;
  if (t->param) return (Val){.kind = VAL_STRING, .string = t->param};
  return eval_error(e, call->at[0],
                    "only the parameter of an optimizer has a name");
}

/* --- attention --- */

static bool check_attention(Eval *e, const BuiltinCall *call,
                            Tensor *const *t) {
  for (int i = 0; i < 3; i++) {
    if (type_rank(t[i]->type) == 4 && type_is_real(t[i]->type)) continue;
    eval_error(e, call->at[i],
               "'attention' works on float tensors [b, heads, t, d], not on %s",
               tensor_shape_text(e, t[i]->type));
    return false;
  }
  Type q = t[0]->type, k = t[1]->type, v = t[2]->type;
  const char *qs = tensor_shape_text(e, q), *ks = tensor_shape_text(e, k),
             *vs = tensor_shape_text(e, v);
  if (!type_equal(k, v)) {
    eval_error(e, call->loc, "'attention': keys %s and values %s differ", ks,
               vs);
  } else if (type_dtype(q) != type_dtype(k) ||
             type_dim(q, 0) != type_dim(k, 0) ||
             type_dim(q, 3) != type_dim(k, 3)) {
    eval_error(e, call->loc,
               "'attention': queries %s and keys %s do not fit together", qs,
               ks);
  } else if (type_dim(q, 1) % type_dim(k, 1) != 0) {
    eval_error(
        e, call->loc,
        "'attention': %lld query heads are no multiple of %lld key heads",
        (long long)type_dim(q, 1), (long long)type_dim(k, 1));
  } else if (e->options->target == PP_TARGET_CUDA &&
             type_dim(q, 3) > PP_CUDA_MAX_HEAD) {
    eval_error(e, call->loc,
               "'attention': heads of width %lld; on GPUs they have at most %d",
               (long long)type_dim(q, 3), PP_CUDA_MAX_HEAD);
  } else {
    return true;
  }
  return false;
}

BUILTIN(attention) {
  Value in[3];
  Tensor *t[3];
  bool causal;
  for (int i = 0; i < 3; i++)
    if (!(t[i] = want_tensor(e, call, i, &in[i]))) return POISON;
  if (!check_attention(e, call, t) || !builtin_bool(e, call, 3, false, &causal))
    return POISON;
  double scale = 1.0 / sqrt((double)type_dim(t[0]->type, 3));
  if (given(call, 4)) {
    if (!val_is_number(call->v[4]))
      return eval_error(e, call->at[4], "'scale' is a number, not %s",
                        val_describe(e, call->v[4]));
    scale = val_number(call->v[4]);
  }
  Builder *b = trace_builder(e, call->loc);
  if (!b) return POISON;
  for (int i = 0; i < 3; i++) in[i] = tensor_narrow(e, b, in[i]);
  Attr attrs[2] = {{.name = "scale", .kind = ATTR_KIND_FLOAT, .f = scale},
                   {.name = "causal", .kind = ATTR_KIND_UNIT}};
  Op op = ir_build(b, OP_ATTENTION, 3, in, 0, NULL, causal ? 2 : 1, attrs);
  return tensor_wrap(e, call->loc,
                     op_is_null(op) ? (Value){0} : op_result(op, 0), false);
}
