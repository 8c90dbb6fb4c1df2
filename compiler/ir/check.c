/* What holds of one op beyond its inferred types: each verify_<name> of ops.def's `verify` column.
 * They run when an op is built and when a module is verified, write `why` and return false. */
#include <string.h>

#include "compiler/ir/internal.h"

static Type in_type(const OpArgs *a, int i) { return value_type(a->in[i]); }

static bool has_type(OpArgs *a, Type t, const char *what) {
  char text[160];
  return args_fail(a, "%s %s", type_put(text, sizeof text, t), what);
}

/* `words` ends in NULL. */
static bool string_among(OpArgs *a, const char *name, const char *const *words) {
  for (int i = 0; words[i]; i++)
    if (args_has_text(a, name, words[i])) return true;
  MlirStringRef s = mlirStringAttrGetValue(args_attr(a, name));
  return args_fail(a, "no %s '%.*s'", name, (int)s.length, s.data);
}

/* --- element types ------------------------------------------------------------------------------- */

/* Nothing is computed in bf16. */
static bool computes(OpArgs *a, Type t) { return type_dtype(t) != PP_BF16 || has_type(a, t, "is only stored: it has no arithmetic"); }

bool verify_number(OpArgs *a, const Type *given) {
  (void)given;
  Type t = in_type(a, 0);
  return type_dtype(t) != PP_BOOL ? computes(a, t) : has_type(a, t, "is no tensor of numbers");
}

/* Operands of library products may be bf16. */
bool verify_product(OpArgs *a, const Type *given) {
  (void)given;
  return type_is_real(in_type(a, 0)) || has_type(a, in_type(a, 0), "is no float tensor");
}

/* An epilogue stands with its vector, and on a 2-D product whose result is f32. */
bool verify_matmul(OpArgs *a, const Type *given) {
  static const char *const epilogues[] = {"bias", "gelu", "gelu_aux", NULL};
  bool has_epilogue = !mlirAttributeIsNull(args_attr(a, "epilogue"));
  if (!verify_product(a, given)) return false;
  if (has_epilogue != (a->n_in == 3)) return args_fail(a, "%d operands %s an epilogue", a->n_in, has_epilogue ? "with" : "without");
  if (!has_epilogue) return true;
  Type bias = in_type(a, 2);
  bool fits = type_rank(given[0]) == 2 && type_dtype(given[0]) == PP_F32 && type_dtype(bias) == PP_F32 && type_rank(bias) == 1 &&
              type_dim(bias, 0) == type_dim(given[0], 1);
  return string_among(a, "epilogue", epilogues) && (fits || has_type(a, bias, "is no vector for the rows of the product"));
}

bool verify_real(OpArgs *a, const Type *given) { return verify_product(a, given) && computes(a, in_type(a, 0)); }

bool verify_boolean(OpArgs *a, const Type *given) {
  (void)given;
  return type_dtype(in_type(a, 0)) == PP_BOOL || has_type(a, in_type(a, 0), "is no bool tensor");
}

bool verify_compare(OpArgs *a, const Type *given) {
  static const char *const all[] = {"eq", "ne", "lt", "le", "gt", "ge", NULL};
  (void)given;
  if (!string_among(a, "predicate", all)) return false;
  bool ordered = !args_has_text(a, "predicate", "eq") && !args_has_text(a, "predicate", "ne");
  return !ordered || type_dtype(in_type(a, 0)) != PP_BOOL || args_fail(a, "bools have no order");
}

bool verify_select(OpArgs *a, const Type *given) {
  (void)a, (void)given; /* inference says it all */
  return true;
}

/* --- leaves ---------------------------------------------------------------------------------------- */

bool verify_constant(OpArgs *a, const Type *given) {
  MlirAttribute v = args_attr(a, "value");
  if (mlirAttributeIsAFloat(v) != type_is_real(given[0])) return has_type(a, given[0], "has a value of another kind");
  if (type_dtype(given[0]) != PP_BOOL) return true;
  int64_t i = mlirIntegerAttrGetValueInt(v);
  return i == 0 || i == 1 || args_fail(a, "a bool of value %lld", (long long)i);
}

bool verify_iota(OpArgs *a, const Type *given) {
  int64_t axis = args_int(a, "axis", -1);
  if (type_dtype(given[0]) != PP_I32) return has_type(a, given[0], "is not i32");
  return (axis >= 0 && axis < type_rank(given[0])) || args_fail(a, "no axis %lld", (long long)axis);
}

bool verify_random(OpArgs *a, const Type *given) {
  return type_dtype(given[0]) == PP_F32 || has_type(a, given[0], "is not f32");
}

/* --- movement and casts ------------------------------------------------------------------------------- */

bool verify_cast(OpArgs *a, const Type *given) {
  Type x = in_type(a, 0);
  bool same = type_rank(x) == type_rank(given[0]);
  for (int i = 0; same && i < type_rank(x); i++) same = type_dim(x, i) == type_dim(given[0], i);
  return same || has_type(a, given[0], "is not of the operand's shape");
}

static bool from_to(OpArgs *a, Type from, Type to, const char *what) {
  char x[160], y[160];
  return args_fail(a, "%s: %s to %s", what, type_put(x, sizeof x, from), type_put(y, sizeof y, to));
}

bool verify_reshape(OpArgs *a, const Type *given) {
  Type x = in_type(a, 0);
  if (type_dtype(x) != type_dtype(given[0])) return from_to(a, x, given[0], "element types differ");
  return type_elements(x) == type_elements(given[0]) || from_to(a, x, given[0], "numbers of elements differ");
}

bool verify_broadcast(OpArgs *a, const Type *given) {
  Type x = in_type(a, 0), y = given[0];
  if (type_dtype(x) != type_dtype(y)) return from_to(a, x, y, "element types differ");
  if (type_rank(x) == 0) return true;
  bool fits = type_rank(x) == type_rank(y);
  for (int i = 0; fits && i < type_rank(x); i++) fits = type_dim(x, i) == 1 || type_dim(x, i) == type_dim(y, i);
  return fits || from_to(a, x, y, "can't broadcast");
}

/* --- products and special kernels ---------------------------------------------------------------------- */

/* What it adds must have the shape of the parameter; ir_verify checks that, here only that it is a product. */
bool verify_matmul_accumulate(OpArgs *a, const Type *given) {
  (void)given;
  OpArgs product = *a;
  product.n_out = 0;
  bool ok = infer_matmul(&product) && verify_product(&product, NULL);
  if (!ok) memcpy(a->why, product.why, sizeof a->why);
  return ok;
}

bool verify_gather(OpArgs *a, const Type *given) {
  (void)given;
  return type_rank(in_type(a, 0)) >= 1 || args_fail(a, "the table is a scalar");
}

bool verify_scatter_add(OpArgs *a, const Type *given) { return verify_real(a, given); }

bool verify_scatter_accumulate(OpArgs *a, const Type *given) {
  (void)given;
  Type dy = in_type(a, 0), index = in_type(a, 1);
  if (type_dtype(index) != PP_I32) return has_type(a, index, "is no i32 index");
  bool fits = type_rank(index) <= type_rank(dy);
  for (int i = 0; fits && i < type_rank(index); i++) fits = type_dim(index, i) == type_dim(dy, i);
  return (fits || has_type(a, index, "doesn't fit the rows that are added")) && verify_real(a, NULL);
}

bool verify_attention(OpArgs *a, const Type *given) {
  if (!verify_product(a, given)) return false;
  Type q = in_type(a, 0), k = in_type(a, 1);
  return !args_unit(a, "causal") || type_dim(q, 2) <= type_dim(k, 2) ||
         args_fail(a, "causal, with more queries (%lld) than keys (%lld)", (long long)type_dim(q, 2),
                   (long long)type_dim(k, 2));
}

/* --- effects and structure -------------------------------------------------------------------------------- */

bool verify_loss(OpArgs *a, const Type *given) {
  if (!verify_real(a, given)) return false;
  for (int i = 0; i < a->n_in; i++)
    if (type_rank(in_type(a, i))) return has_type(a, in_type(a, i), i ? "is the count: not a scalar" : "is the loss: not a scalar");
  return true;
}

bool verify_output(OpArgs *a, const Type *given) {
  static const char *const all[] = {"sum", "mean", "max", "concat", NULL};
  (void)given;
  return string_among(a, "kind", all);
}

bool verify_control(OpArgs *a, const Type *given) {
  (void)given;
  Type t = in_type(a, 0);
  bool ok = type_dtype(t) == PP_F64 && type_rank(t) == 1 && type_dim(t, 0) == PP_CONTROL_SIZE;
  return ok || has_type(a, t, "is no control vector");
}

bool verify_rescale(OpArgs *a, const Type *given) {
  (void)given;
  Type t = in_type(a, 0);
  bool ok = type_dtype(t) == PP_F64 && type_rank(t) == 1 && type_dim(t, 0) == PP_LOSS_SCALE_SIZE;
  return ok || has_type(a, t, "is no loss scale");
}

bool verify_with_derivative(OpArgs *a, const Type *given) {
  int64_t n = args_int(a, "n_results", -1), m = args_int(a, "n_arguments", -1);
  if (n < 1 || m < 0 || n + m > a->n_in) return args_fail(a, "counts don't fit the operands");
  if (a->n_out != n) return args_fail(a, "%d results, not %lld", a->n_out, (long long)n);
  for (int i = 0; i < n; i++)
    if (!type_equal(given[i], in_type(a, i))) return from_to(a, in_type(a, i), given[i], "a result changes type");
  return true;
}

static bool type_attr_is_tensor(OpArgs *a) {
  return type_is_tensor(mlirTypeAttrGetValue(args_attr(a, "type"))) || args_fail(a, "its type is no tensor");
}

bool verify_parameter(OpArgs *a, const Type *given) {
  static const char *const all[] = {"zeros", "ones", "normal", "uniform", NULL};
  (void)given;
  return type_attr_is_tensor(a) && string_among(a, "init", all);
}

bool verify_source(OpArgs *a, const Type *given) {
  static const char *const kinds[] = {"bytes", "tokens16", "f32_file", "i32_file", "synthetic", NULL};
  static const char *const orders[] = {"random", "sequential", "shuffled", NULL};
  (void)given;
  return type_attr_is_tensor(a) && string_among(a, "kind", kinds) && string_among(a, "order", orders);
}

bool verify_rank(OpArgs *a, const Type *given) {
  (void)given;
  int64_t actions = mlirDenseArrayGetNumElements(args_attr(a, "actions"));
  int64_t lines = mlirArrayAttrGetNumElements(args_attr(a, "lines"));
  if (actions != 3 * lines) return args_fail(a, "%lld lines for %lld numbers", (long long)lines, (long long)actions);
  MlirAttribute ops = args_attr(a, "ops"), items = args_attr(a, "items");
  if (!mlirAttributeIsNull(ops) && mlirDenseArrayGetNumElements(ops) % 3) return args_fail(a, "ops: not 3 numbers each");
  return mlirAttributeIsNull(items) || mlirDenseArrayGetNumElements(items) % 6 == 0 || args_fail(a, "items: not 6 numbers each");
}

bool verify_transfers(OpArgs *a, const Type *given) {
  (void)given;
  return mlirDenseArrayGetNumElements(args_attr(a, "table")) % 5 == 0 || args_fail(a, "not 5 numbers each");
}
