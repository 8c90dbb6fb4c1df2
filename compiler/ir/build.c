/* Makes ops from the table: arity, attributes, inferred types and the op's own rules are checked
 * before anything is made, so a null op is the only trace of a failure beside the report. */
#include <stdlib.h>
#include <string.h>

#include "compiler/ir/internal.h"

void builder_insert(Builder *b, Op op) {
  if (op_is_null(b->before))
    mlirBlockAppendOwnedOperation(b->block, op);
  else
    mlirBlockInsertOwnedOperationBefore(b->block, b->before, op);
}

/* --- attributes ------------------------------------------------------------------------------------ */

static MlirAttribute make_attr(Ir *ir, const Attr *a) {
  switch (a->kind) {
    case ATTR_KIND_INT: return int_attr(ir, a->i);
    case ATTR_KIND_FLOAT: return mlirFloatAttrDoubleGet(ir->ctx, ir->elements[PP_F64], a->f);
    case ATTR_KIND_STRING: return string_attr(ir, a->s);
    case ATTR_KIND_UNIT: return ir->unit;
    case ATTR_KIND_INTS: return mlirDenseI64ArrayGet(ir->ctx, a->n_ints, a->ints);
    case ATTR_KIND_SYMBOL: return mlirFlatSymbolRefAttrGet(ir->ctx, ref(a->s));
    case ATTR_KIND_TYPE: return mlirTypeAttrGet(a->type);
    case ATTR_KIND_LINES: return lines_attr(ir, a->n_ints, a->lines);
  }
  bug("attribute '%s' of no kind", a->name);
}

static MlirIdentifier attr_name(Ir *ir, OpId id, const char *name) {
  int first = op_table[id].first_attr;
  for (int i = first; i < first + op_attr_count(id); i++)
    if (!strcmp(attr_table[i].name, name)) return ir->attr_names[i];
  if (strncmp(name, "pp.", 3)) bug("%s has no attribute '%s'", op_name(id), name);
  return mlirIdentifierGet(ir->ctx, ref(name));
}

enum { MAX_ATTRS = MAX_OWN_ATTRS + 8 };

static int make_attrs(Ir *ir, OpId id, int n, const Attr *attrs, MlirNamedAttribute *out) {
  if (n > MAX_OWN_ATTRS + 4) bug("%s with %d attributes", op_name(id), n);
  for (int i = 0; i < n; i++) {
    out[i] = named_attr(attr_name(ir, id, attrs[i].name), make_attr(ir, &attrs[i]));
    for (int k = 0; k < i; k++) /* MLIR would keep both, unnoticed */
      if (out[i].name.ptr == out[k].name.ptr) bug("%s: attribute '%s' given twice", op_name(id), attrs[i].name);
  }
  return n;
}

/* What the builder puts on every op; the attributes are not part of the op's own. */
static int add_marks(Builder *b, MlirNamedAttribute *attrs, int n) {
  Ir *ir = b->ir;
  int own = n;
  bool has_stage = false, has_name = false, has_path = false;
  for (int i = 0; i < own; i++) {
    has_stage |= attrs[i].name.ptr == ir->stage_id.ptr;
    has_name |= attrs[i].name.ptr == ir->name_id.ptr;
    has_path |= attrs[i].name.ptr == ir->path_id.ptr;
  }
  if (b->stage >= 0 && !has_stage) attrs[n++] = named_attr(ir->stage_id, int_attr(ir, b->stage));
  if (b->backward) attrs[n++] = named_attr(ir->backward_id, ir->unit);
  if (b->name && !has_name) attrs[n++] = named_attr(ir->name_id, string_attr(ir, b->name));
  if (b->path && b->path[0] && !has_path) attrs[n++] = named_attr(ir->path_id, string_attr(ir, b->path));
  b->name = NULL;
  return n;
}

/* --- segments ----------------------------------------------------------------------------------------- */

/* IRDL wants all values of one variadic slot to be of one type, so an op with any number of operands or
 * results has VARIADIC_SLOTS slots, each a run of values of one type; the lengths of the runs are an
 * attribute. False: more runs than that. */
static bool run_lengths(int n, const Type *types, int32_t *out_lengths) {
  int runs = 0;
  memset(out_lengths, 0, VARIADIC_SLOTS * sizeof *out_lengths);
  for (int i = 0; i < n; i++) {
    if (i == 0 || !type_equal(types[i], types[i - 1])) runs++;
    if (runs > VARIADIC_SLOTS) return false;
    out_lengths[runs - 1]++;
  }
  return true;
}

/* Writes operand_segment_sizes and result_segment_sizes where op's row asks for them. */
void op_set_segments(Op op) {
  const OpDef *def = &op_table[op_id(op)];
  MlirContext ctx = mlirOperationGetContext(op);
  for (int side = 0; side < 2; side++) {
    if ((side ? def->max_out : def->max_in) >= 0) continue;
    int n = side ? op_n_results(op) : op_n_operands(op);
    int32_t lengths[VARIADIC_SLOTS];
    Type *types = malloc((size_t)(n + 1) * sizeof *types);
    if (!types) bug("no memory for %d types", n);
    for (int i = 0; i < n; i++) types[i] = value_type(side ? op_result(op, i) : op_operand(op, i));
    if (!run_lengths(n, types, lengths)) bug("%s: types change more than %d times", def->name, VARIADIC_SLOTS);
    free(types);
    mlirOperationSetAttributeByName(op, ref(side ? "result_segment_sizes" : "operand_segment_sizes"),
                                    mlirDenseI32ArrayGet(ctx, VARIADIC_SLOTS, lengths));
  }
}

/* --- the op ------------------------------------------------------------------------------------------- */

/* Infers or checks the result types; returns them, or NULL with the reason in a->why. */
static const Type *settle_types(OpArgs *a, int n_out, const Type *out) {
  static const Type none;
  const OpDef *def = &op_table[a->id];
  a->n_out = n_out;
  if (!out) out = &none;
  if (def->infer) {
    a->n_out = 0;
    if (!def->infer(a)) return NULL;
    if (n_out && !args_check_inferred(a, n_out, out)) return NULL;
    if (!args_check_sizes(a, a->n_out, a->out)) return NULL;
    out = a->out;
  } else if (!args_check_results(a, n_out, out)) {
    return NULL;
  }
  return !def->verify || def->verify(a, out) ? out : NULL;
}

Op ir_build(Builder *b, OpId id, int n_in, const Value *in, int n_out, const Type *out, int n_attrs,
            const Attr *attrs) {
  const OpDef *def = &op_table[id];
  Ir *ir = b->ir;
  MlirNamedAttribute named[MAX_ATTRS];
  for (int i = 0; i < n_in; i++)
    if (value_is_null(in[i])) return (Op){NULL};
  OpArgs a = {.ir = ir, .id = id, .n_in = n_in, .in = in, .attrs = named, .n_out = n_out};
  a.n_attrs = make_attrs(ir, id, n_attrs, attrs, named);
  const Type *types = args_check_operands(&a) && args_check_attrs(&a) ? settle_types(&a, n_out, out) : NULL;
  if (!types) {
    diag_error(ir->diag, b->loc, "%s: %s", def->name, a.why);
    b->name = NULL;
    return (Op){NULL};
  }
  MlirOperationState state = mlirOperationStateGet(ref(def->full_name), ir_location(ir, b->loc));
  if (n_in) mlirOperationStateAddOperands(&state, n_in, in);
  if (a.n_out) mlirOperationStateAddResults(&state, a.n_out, types);
  int n = add_marks(b, named, a.n_attrs);
  if (n) mlirOperationStateAddAttributes(&state, n, named);
  Op op = mlirOperationCreate(&state);
  if (op_is_null(op)) bug("MLIR refuses to make %s", def->name);
  if (def->max_in < 0 || def->max_out < 0) op_set_segments(op);
  builder_insert(b, op);
  if (id == OP_PARAMETER)
    map_put(ir->arena, &ir->parameters, op_string(ir->arena, op, "sym"), op.ptr);
  return op;
}

/* --- short forms ------------------------------------------------------------------------------------------ */

static Value first_result(Op op) { return op_is_null(op) ? (Value){NULL} : op_result(op, 0); }

Value ir_constant(Builder *b, Type t, double value) {
  value = dtype_round(type_dtype(t), value);
  Attr a = {.name = "value", .kind = ATTR_KIND_FLOAT, .f = value};
  return first_result(ir_build(b, OP_CONSTANT, 0, NULL, 1, &t, 1, &a));
}

Value ir_constant_int(Builder *b, Type t, int64_t value) {
  Attr a = {.name = "value", .kind = ATTR_KIND_INT, .i = value};
  return first_result(ir_build(b, OP_CONSTANT, 0, NULL, 1, &t, 1, &a));
}

Value ir_map(Builder *b, OpId id, int n, const Value *in) {
  return first_result(ir_build(b, id, n, in, 0, NULL, 0, NULL));
}

Value ir_compare(Builder *b, const char *predicate, Value x, Value y) {
  Attr a = {.name = "predicate", .kind = ATTR_KIND_STRING, .s = predicate};
  return first_result(ir_build(b, OP_COMPARE, 2, (Value[]){x, y}, 0, NULL, 1, &a));
}

Value ir_cast(Builder *b, Value x, pp_dtype dtype) {
  if (value_is_null(x) || type_dtype(value_type(x)) == dtype) return x;
  Type t = type_with_dtype(b->ir, value_type(x), dtype);
  return first_result(ir_build(b, OP_CAST, 1, &x, 1, &t, 0, NULL));
}

static Attr ints(const char *name, int n, const int64_t *v) {
  return (Attr){.name = name, .kind = ATTR_KIND_INTS, .ints = v, .n_ints = n};
}

Value ir_reduce(Builder *b, OpId id, Value x, int n_axes, const int64_t *axes) {
  if (n_axes == 0) return x;
  Attr a = ints("axes", n_axes, axes);
  return first_result(ir_build(b, id, 1, &x, 0, NULL, 1, &a));
}

Value ir_reshape(Builder *b, Value x, int rank, const int64_t *dims) {
  if (value_is_null(x)) return x;
  Type t = type_tensor(b->ir, type_dtype(value_type(x)), rank, dims);
  if (type_equal(t, value_type(x))) return x;
  return first_result(ir_build(b, OP_RESHAPE, 1, &x, 1, &t, 0, NULL));
}

Value ir_permute(Builder *b, Value x, const int64_t *axes) {
  if (value_is_null(x)) return x;
  Attr a = ints("axes", type_rank(value_type(x)), axes);
  return first_result(ir_build(b, OP_PERMUTE, 1, &x, 0, NULL, 1, &a));
}

Value ir_transpose(Builder *b, Value x) {
  if (value_is_null(x)) return x;
  int rank = type_rank(value_type(x));
  char text[160];
  if (rank < 2) {
    diag_error(b->ir->diag, b->loc, "transpose: %s has no two axes", type_put(text, sizeof text, value_type(x)));
    return (Value){NULL};
  }
  int64_t axes[PP_MAX_RANK];
  for (int i = 0; i < rank; i++) axes[i] = i;
  axes[rank - 2] = rank - 1;
  axes[rank - 1] = rank - 2;
  return ir_permute(b, x, axes);
}

Value ir_broadcast(Builder *b, Value x, Type to) {
  if (value_is_null(x) || type_equal(value_type(x), to)) return x;
  Type from = value_type(x);
  int more = type_rank(to) - type_rank(from);
  if (more > 0 && type_rank(from) > 0) { /* leading axes of 1, where the trailing ones fit */
    int64_t dims[PP_MAX_RANK];
    bool fits = true;
    for (int i = 0; i < type_rank(to); i++) {
      dims[i] = i < more ? 1 : type_dim(from, i - more);
      fits &= dims[i] == 1 || dims[i] == type_dim(to, i);
    }
    if (fits) x = ir_reshape(b, x, type_rank(to), dims);
    if (type_equal(value_type(x), to)) return x;
  }
  return first_result(ir_build(b, OP_BROADCAST, 1, &x, 1, &to, 0, NULL));
}

Value ir_slice(Builder *b, Value x, const int64_t *starts, const int64_t *limits) {
  if (value_is_null(x)) return x;
  int rank = type_rank(value_type(x));
  Attr a[] = {ints("starts", rank, starts), ints("limits", rank, limits)};
  return first_result(ir_build(b, OP_SLICE, 1, &x, 0, NULL, 2, a));
}

Value ir_concat(Builder *b, int n, const Value *x, int axis) {
  if (n > IR_MAX_RUNS) {
    const char *name = b->name;
    b->name = NULL;
    Value parts[2] = {ir_concat(b, n / 2, x, axis), ir_concat(b, n - n / 2, x + n / 2, axis)};
    b->name = name;
    return ir_concat(b, 2, parts, axis);
  }
  Attr a = {.name = "axis", .kind = ATTR_KIND_INT, .i = axis};
  return first_result(ir_build(b, OP_CONCAT, n, x, 0, NULL, 1, &a));
}

Value ir_pad(Builder *b, Value x, const int64_t *before, const int64_t *after) {
  if (value_is_null(x)) return x;
  int rank = type_rank(value_type(x));
  Attr a[] = {ints("before", rank, before), ints("after", rank, after)};
  return first_result(ir_build(b, OP_PAD, 1, &x, 0, NULL, 2, a));
}

Value ir_matmul(Builder *b, Value x, Value y, bool ta, bool tb) {
  Attr a[2];
  int n = 0;
  if (ta) a[n++] = (Attr){.name = "ta", .kind = ATTR_KIND_UNIT};
  if (tb) a[n++] = (Attr){.name = "tb", .kind = ATTR_KIND_UNIT};
  return first_result(ir_build(b, OP_MATMUL, 2, (Value[]){x, y}, 0, NULL, n, a));
}
