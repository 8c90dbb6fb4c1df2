/* In: a module. Out: true, or reports at the places of the ops that are wrong. Our own rules first
 * (arity, attributes, types as inferred, each op's rules, names that refer to declarations), then
 * MLIR's verifier for structure and dominance: its words are less of a help. Linear in ops. */
#include <string.h>

#include "compiler/ir/internal.h"

/* --- one op against its row: also used by the builder --------------------------------------------- */

static bool count_fits(int n, int min, int max) { return n >= min && (max < 0 || n <= max); }

static const char *plural(int n) { return n == 1 ? "" : "s"; }

static bool check_count(OpArgs *a, int n, int min, int max, const char *what) {
  if (count_fits(n, min, max)) return true;
  if (min == max) return args_fail(a, "%d %s%s, not %d", n, what, plural(n), min);
  if (max < 0) return args_fail(a, "%d %s%s, not %d or more", n, what, plural(n), min);
  return args_fail(a, "%d %s%s, not %d to %d", n, what, plural(n), min, max);
}

bool args_check_operands(OpArgs *a) {
  const OpDef *def = &op_table[a->id];
  int runs = 0;
  if (!check_count(a, a->n_in, def->min_in, def->max_in, "operand")) return false;
  for (int i = 0; i < a->n_in; i++) {
    if (!type_is_tensor(value_type(a->in[i]))) return args_fail(a, "operand %d is no tensor of ours", i);
    runs += i == 0 || !type_equal(value_type(a->in[i]), value_type(a->in[i - 1]));
  }
  return def->max_in >= 0 || runs <= VARIADIC_SLOTS ||
         args_fail(a, "the type changes more than %d times along the operands", VARIADIC_SLOTS);
}

bool args_check_results(OpArgs *a, int n, const Type *given) {
  const OpDef *def = &op_table[a->id];
  if (!check_count(a, n, def->min_out, def->max_out, "result")) return false;
  for (int i = 0; i < n; i++)
    if (!type_is_tensor(given[i])) return args_fail(a, "result %d is no tensor of ours", i);
  int runs = 0;
  for (int i = 0; i < n; i++) runs += i == 0 || !type_equal(given[i], given[i - 1]);
  if (def->max_out < 0 && runs > VARIADIC_SLOTS)
    return args_fail(a, "the type changes more than %d times along the results", VARIADIC_SLOTS);
  return args_check_sizes(a, n, given);
}

bool args_check_sizes(OpArgs *a, int n, const Type *given) {
  char text[160];
  for (int i = 0; i < n; i++) {
    if (type_is_sized(given[i])) continue;
    int axis = 0;
    while (axis < type_rank(given[i]) && type_dim(given[i], axis) > 0) axis++;
    bool empty = axis < type_rank(given[i]);
    return args_fail(a, "the result %s %s", type_put(text, sizeof text, given[i]), empty ? "has an axis below 1" : "is too large");
  }
  return true;
}

bool args_check_inferred(OpArgs *a, int n, const Type *given) {
  if (n != a->n_out) return args_fail(a, "%d result%s, not %d", n, plural(n), a->n_out);
  for (int i = 0; i < n; i++) {
    char x[160], y[160];
    if (!type_equal(given[i], a->out[i]))
      return args_fail(a, "the result is %s, not %s", type_put(x, sizeof x, given[i]), type_put(y, sizeof y, a->out[i]));
  }
  return true;
}

static bool is_of_kind(MlirAttribute v, AttrKind kind) {
  switch (kind) {
    case KIND_INT: return mlirAttributeIsAInteger(v);
    case KIND_FLOAT: return mlirAttributeIsAFloat(v);
    case KIND_FLOAT_OR_INT: return mlirAttributeIsAFloat(v) || mlirAttributeIsAInteger(v);
    case KIND_STRING: return mlirAttributeIsAString(v);
    case KIND_UNIT: return mlirAttributeIsAUnit(v);
    case KIND_INTS: return mlirAttributeIsADenseI64Array(v);
    case KIND_SYMBOL: return mlirAttributeIsAFlatSymbolRef(v);
    case KIND_TYPE: return mlirAttributeIsAType(v);
    case KIND_ARRAY: return mlirAttributeIsAArray(v);
    case KIND_COUNT: break;
  }
  return false;
}

bool args_check_attrs(OpArgs *a) {
  const AttrDef *own = attr_table + op_table[a->id].first_attr;
  for (int i = 0; i < op_attr_count(a->id); i++) {
    MlirAttribute v = args_attr(a, own[i].name);
    if (mlirAttributeIsNull(v) ? own[i].required : !is_of_kind(v, own[i].kind))
      return args_fail(a, "attribute '%s' is %s", own[i].name, mlirAttributeIsNull(v) ? "missing" : "of the wrong kind");
  }
  return true;
}

/* --- names that refer to declarations ------------------------------------------------------------- */

typedef struct {
  Ir *ir;
  Arena *tmp;
  Map sources, functions; /* name → Op.ptr */
  bool ok;
} Verifier;

/* The shape that `op` adds to, reads or writes of its parameter; null type: not its business. */
static Type touched_type(OpArgs *a, Op op) {
  switch (a->id) {
    case OP_PARAM:
    case OP_GRADIENT:
    case OP_STATE: return value_type(op_result(op, 0));
    case OP_ACCUMULATE:
    case OP_ASSIGN:
    case OP_FOLD: return value_type(a->in[0]);
    case OP_MATMUL_ACCUMULATE:
      a->n_out = 0;
      return infer_matmul(a) ? a->out[0] : (Type){NULL};
    default: return (Type){NULL};
  }
}

static bool check_parameter(OpArgs *a, Op op, Arena *tmp) {
  const char *name = op_string(tmp, op, "param");
  Op parameter = ir_parameter(a->ir, name);
  if (op_is_null(parameter)) return args_fail(a, "no parameter '%s'", name);
  Type t = touched_type(a, op), declared = op_type_attr(parameter, "type");
  char x[160], y[160];
  return t.ptr == NULL || type_equal(t, declared) ||
         args_fail(a, "%s for the parameter '%s', which is %s", type_put(x, sizeof x, t), name,
                   type_put(y, sizeof y, declared));
}

static bool check_source(OpArgs *a, Op op, Verifier *v) {
  const char *name = op_string(v->tmp, op, "source");
  void *source = map_get(&v->sources, name);
  if (!strcmp(name, "prompt") && !source) return true; /* of `generate`: no declaration */
  if (!source) return args_fail(a, "no data source '%s'", name);
  return type_equal(op_type_attr((Op){source}, "type"), value_type(op_result(op, 0))) ||
         args_fail(a, "not the type of the data source '%s'", name);
}

static bool check_call(OpArgs *a, Op op, Op func) {
  bool ok = a->n_in == func_n_args(func);
  for (int i = 0; ok && i < a->n_in; i++) ok = type_equal(value_type(a->in[i]), value_type(func_arg(func, i)));
  Op ret = func_return_op(func);
  ok = ok && !op_is_null(ret) && op_n_operands(ret) == op_n_results(op);
  for (int i = 0; ok && i < op_n_results(op); i++)
    ok = type_equal(value_type(op_result(op, i)), value_type(op_operand(ret, i)));
  return ok || args_fail(a, "its types are not those of the function");
}

static bool check_symbol(OpArgs *a, Op op, Verifier *v, const char *attr) {
  const char *name = op_string(v->tmp, op, attr);
  void *func = map_get(&v->functions, name);
  if (!func) return args_fail(a, "no function '@%s'", name);
  return a->id != OP_CALL || check_call(a, op, (Op){func});
}

static bool check_names(OpArgs *a, Op op, Verifier *v) {
  if (!mlirAttributeIsNull(args_attr(a, "param")) && !check_parameter(a, op, v->tmp)) return false;
  if (a->id == OP_DATA) return check_source(a, op, v);
  if (a->id == OP_CALL) return check_symbol(a, op, v, "callee");
  if (a->id == OP_WITH_DERIVATIVE) return check_symbol(a, op, v, "derivative");
  if (a->id == OP_LOOP) return check_symbol(a, op, v, "body");
  return true;
}

/* --- the walk -------------------------------------------------------------------------------------- */

static bool check_types(OpArgs *a, Op op, Type *given) {
  const OpDef *def = &op_table[a->id];
  int n = op_n_results(op);
  for (int i = 0; i < n; i++) given[i] = value_type(op_result(op, i));
  a->n_out = 0;
  if (def->infer && (!def->infer(a) || !args_check_inferred(a, n, given))) return false;
  a->n_out = n;
  if (!args_check_results(a, n, given)) return false;
  return !def->verify || def->verify(a, given);
}

static bool check_op(OpArgs *a, Op op, Verifier *v) {
  int n_in = op_n_operands(op), n_attrs = (int)mlirOperationGetNumAttributes(op), n_out = op_n_results(op);
  enum { FEW = 16 };
  Value in_few[FEW], *in = n_in <= FEW ? in_few : arena_alloc_array(v->tmp, (size_t)n_in, sizeof *in);
  Type out_few[FEW], *out = n_out <= FEW ? out_few : arena_alloc_array(v->tmp, (size_t)n_out, sizeof *out);
  MlirNamedAttribute attrs_few[FEW],
      *attrs = n_attrs <= FEW ? attrs_few : arena_alloc_array(v->tmp, (size_t)n_attrs, sizeof *attrs);
  for (int i = 0; i < n_in; i++) in[i] = op_operand(op, i);
  for (int i = 0; i < n_attrs; i++) attrs[i] = mlirOperationGetAttribute(op, i);
  a->n_in = n_in;
  a->in = in;
  a->n_attrs = n_attrs;
  a->attrs = attrs;
  return args_check_operands(a) && args_check_attrs(a) && check_types(a, op, out) && check_names(a, op, v);
}

static bool is_structure(Op op) {
  return op_is_func(op) || op_is_return(op) ||
         mlirStringRefEqual(mlirIdentifierStr(mlirOperationGetName(op)), ref("builtin.module"));
}

static MlirWalkResult visit(Op op, void *data) {
  Verifier *v = data;
  OpArgs a = {.ir = v->ir, .id = op_id(op)};
  if (a.id == OP_NONE) {
    if (is_structure(op)) return MlirWalkResultAdvance;
    MlirStringRef name = mlirIdentifierStr(mlirOperationGetName(op));
    diag_error(v->ir->diag, op_loc(v->ir, op), "%.*s: not an op of the table", (int)name.length, name.data);
    v->ok = false;
  } else if (!check_op(&a, op, v)) {
    diag_error(v->ir->diag, op_loc(v->ir, op), "%s: %s", op_name(a.id), a.why);
    v->ok = false;
  }
  return MlirWalkResultAdvance;
}

bool ir_verify(Ir *ir) {
  Verifier v = {.ir = ir, .tmp = arena_create(), .ok = true};
  for (Op op = mlirBlockGetFirstOperation(ir_body(ir)); !op_is_null(op); op = op_next(op)) {
    if (op_is_func(op)) map_put(v.tmp, &v.functions, func_name(v.tmp, op), op.ptr);
    if (op_id(op) == OP_SOURCE) map_put(v.tmp, &v.sources, op_string(v.tmp, op, "sym"), op.ptr);
  }
  mlirOperationWalk(ir_top(ir), visit, &v, MlirWalkPreOrder);
  if (v.ok) v.ok = mlirOperationVerify(ir_top(ir));
  arena_destroy(v.tmp);
  return v.ok;
}
