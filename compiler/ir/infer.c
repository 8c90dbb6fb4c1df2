/* Result types from operands and attributes, before the op exists and again when it is verified.
 * Each infer_<name> of ops.def's `infer` column is here. On failure they write `why`, in words that
 * the author of a model understands, and return false. */
#include <stdarg.h>
#include <string.h>

#include "compiler/ir/internal.h"

bool args_fail(OpArgs *a, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(a->why, sizeof a->why, format, list);
  va_end(list);
  return false;
}

MlirAttribute args_attr(const OpArgs *a, const char *name) {
  size_t n = strlen(name);
  for (int i = 0; i < a->n_attrs; i++) {
    MlirStringRef s = mlirIdentifierStr(a->attrs[i].name);
    if (s.length == n && !memcmp(s.data, name, n)) return a->attrs[i].attribute;
  }
  return mlirAttributeGetNull();
}

bool args_unit(const OpArgs *a, const char *name) { return !mlirAttributeIsNull(args_attr(a, name)); }

bool args_has_text(const OpArgs *a, const char *name, const char *text) {
  MlirAttribute v = args_attr(a, name);
  if (mlirAttributeIsNull(v)) return false;
  MlirStringRef s = mlirStringAttrGetValue(v);
  return s.length == strlen(text) && !memcmp(s.data, text, s.length);
}

int64_t args_int(const OpArgs *a, const char *name, int64_t otherwise) {
  MlirAttribute v = args_attr(a, name);
  return mlirAttributeIsNull(v) ? otherwise : mlirIntegerAttrGetValueInt(v);
}

/* Reads at most PP_MAX_RANK numbers; false when there are more, or not `want` (-1: any number). */
static bool args_ints(OpArgs *a, const char *name, int want, int64_t *out_v, int *out_n) {
  MlirAttribute v = args_attr(a, name);
  int64_t n = mlirDenseArrayGetNumElements(v);
  if (n > PP_MAX_RANK) return args_fail(a, "more than %d %s", PP_MAX_RANK, name);
  if (want >= 0 && n != want) return args_fail(a, "%d %s for %d axes", (int)n, name, want);
  for (int i = 0; i < n; i++) out_v[i] = mlirDenseI64ArrayGetElement(v, i);
  *out_n = (int)n;
  return true;
}

static Type in_type(const OpArgs *a, int i) { return value_type(a->in[i]); }

static bool result(OpArgs *a, Type t) {
  a->out[a->n_out++] = t;
  return true;
}

/* `format` has a %s for each type. */
static bool fail_types(OpArgs *a, const char *format, Type x, Type y) __attribute__((format(printf, 2, 0)));
static bool fail_types(OpArgs *a, const char *format, Type x, Type y) {
  char text_x[160], text_y[160];
  return args_fail(a, format, type_put(text_x, sizeof text_x, x), type_put(text_y, sizeof text_y, y));
}

static bool no_axis(OpArgs *a, int64_t axis, Type x) {
  char text[160];
  return args_fail(a, "no axis %lld in %s", (long long)axis, type_put(text, sizeof text, x));
}

static bool same_shape(Type x, Type y) {
  if (type_rank(x) != type_rank(y)) return false;
  for (int i = 0; i < type_rank(x); i++)
    if (type_dim(x, i) != type_dim(y, i)) return false;
  return true;
}

static bool check_same(OpArgs *a, Type x, Type y) {
  if (type_equal(x, y)) return true;
  return fail_types(a, same_shape(x, y) ? "element types differ: %s and %s" : "shapes differ: %s and %s", x, y);
}

static void dims_of(Type t, int64_t *dims) {
  for (int i = 0; i < type_rank(t); i++) dims[i] = type_dim(t, i);
}

bool infer_nothing(OpArgs *a) {
  (void)a;
  return true;
}

/* --- elementwise ------------------------------------------------------------------------------- */

bool infer_same(OpArgs *a) {
  for (int i = 1; i < a->n_in; i++)
    if (!check_same(a, in_type(a, 0), in_type(a, i))) return false;
  return result(a, in_type(a, 0));
}

bool infer_compare(OpArgs *a) {
  if (!check_same(a, in_type(a, 0), in_type(a, 1))) return false;
  return result(a, type_with_dtype(a->ir, in_type(a, 0), PP_BOOL));
}

bool infer_select(OpArgs *a) {
  Type c = in_type(a, 0), x = in_type(a, 1);
  if (type_dtype(c) != PP_BOOL) return fail_types(a, "the condition is %s, not bool (values %s)", c, x);
  if (!check_same(a, x, in_type(a, 2))) return false;
  if (!same_shape(c, x)) return fail_types(a, "shapes differ: condition %s and value %s", c, x);
  return result(a, x);
}

/* --- reductions and movement --------------------------------------------------------------------- */

bool infer_reduce(OpArgs *a) {
  Type x = in_type(a, 0);
  int64_t axes[PP_MAX_RANK], dims[PP_MAX_RANK];
  int n, rank = 0;
  if (!args_ints(a, "axes", -1, axes, &n)) return false;
  for (int i = 0; i < n; i++) {
    if (axes[i] < 0 || axes[i] >= type_rank(x)) return no_axis(a, axes[i], x);
    if (i && axes[i] <= axes[i - 1]) return args_fail(a, "axis %lld given twice or out of order", (long long)axes[i]);
  }
  for (int i = 0, k = 0; i < type_rank(x); i++) {
    if (k < n && axes[k] == i)
      k++;
    else
      dims[rank++] = type_dim(x, i);
  }
  return result(a, type_tensor(a->ir, type_dtype(x), rank, dims));
}

bool infer_permute(OpArgs *a) {
  Type x = in_type(a, 0);
  int64_t axes[PP_MAX_RANK], dims[PP_MAX_RANK];
  int n;
  unsigned seen = 0;
  if (!args_ints(a, "axes", type_rank(x), axes, &n)) return false;
  for (int i = 0; i < n; i++) {
    if (axes[i] < 0 || axes[i] >= n) return no_axis(a, axes[i], x);
    if (seen >> axes[i] & 1) return args_fail(a, "axis %lld given twice", (long long)axes[i]);
    seen |= 1u << axes[i];
    dims[i] = type_dim(x, (int)axes[i]);
  }
  return result(a, type_tensor(a->ir, type_dtype(x), n, dims));
}

bool infer_slice(OpArgs *a) {
  Type x = in_type(a, 0);
  int64_t starts[PP_MAX_RANK], limits[PP_MAX_RANK], dims[PP_MAX_RANK];
  int n;
  if (!args_ints(a, "starts", type_rank(x), starts, &n) || !args_ints(a, "limits", type_rank(x), limits, &n))
    return false;
  for (int i = 0; i < n; i++) {
    bool empty = starts[i] >= limits[i];
    if (empty || starts[i] < 0 || limits[i] > type_dim(x, i)) {
      char text[160];
      return args_fail(a, "range %lld..%lld %s axis %d of %s", (long long)starts[i], (long long)limits[i],
                       empty ? "is empty, on" : "is outside", i, type_put(text, sizeof text, x));
    }
    dims[i] = limits[i] - starts[i];
  }
  return result(a, type_tensor(a->ir, type_dtype(x), n, dims));
}

bool infer_concat(OpArgs *a) {
  Type x = in_type(a, 0);
  int64_t axis = args_int(a, "axis", 0), dims[PP_MAX_RANK];
  if (axis < 0 || axis >= type_rank(x)) return no_axis(a, axis, x);
  dims_of(x, dims);
  for (int k = 1; k < a->n_in; k++) {
    Type y = in_type(a, k);
    bool fits = type_dtype(x) == type_dtype(y) && type_rank(x) == type_rank(y);
    for (int i = 0; fits && i < type_rank(x); i++) fits = i == axis || type_dim(x, i) == type_dim(y, i);
    if (!fits) return fail_types(a, "%s and %s don't fit together", x, y);
    dims[axis] += type_dim(y, (int)axis);
  }
  return result(a, type_tensor(a->ir, type_dtype(x), type_rank(x), dims));
}

bool infer_pad(OpArgs *a) {
  Type x = in_type(a, 0);
  int64_t before[PP_MAX_RANK], after[PP_MAX_RANK], dims[PP_MAX_RANK];
  int n;
  if (!args_ints(a, "before", type_rank(x), before, &n) || !args_ints(a, "after", type_rank(x), after, &n))
    return false;
  for (int i = 0; i < n; i++) {
    const int64_t most = (int64_t)1 << 46;
    if (before[i] < 0 || after[i] < 0) return args_fail(a, "a negative width on axis %d", i);
    if (before[i] > most || after[i] > most) return args_fail(a, "the width on axis %d is too large", i);
    dims[i] = before[i] + type_dim(x, i) + after[i];
  }
  return result(a, type_tensor(a->ir, type_dtype(x), n, dims));
}

/* --- products and special kernels ------------------------------------------------------------------- */

static const char *const product_formats[2][2] = {
    {"inner dimensions differ: %s @ %s", "inner dimensions differ: %s @ %s transposed"},
    {"inner dimensions differ: %s transposed @ %s", "inner dimensions differ: %s transposed @ %s transposed"}};

/* bf16 operands are multiplied into an f32 result. */
bool infer_matmul(OpArgs *a) {
  Type x = in_type(a, 0), y = in_type(a, 1);
  int rank = type_rank(x);
  bool ta = args_unit(a, "ta"), tb = args_unit(a, "tb");
  int64_t dims[PP_MAX_RANK];
  if (rank < 2 || type_rank(y) < 2) return fail_types(a, "operands need two axes or more: %s @ %s", x, y);
  if (type_dtype(x) != type_dtype(y)) return fail_types(a, "element types differ: %s @ %s", x, y);
  bool batch = rank == type_rank(y);
  for (int i = 0; batch && i < rank - 2; i++) batch = type_dim(x, i) == type_dim(y, i);
  if (!batch) return fail_types(a, "batch shapes differ: %s @ %s", x, y);
  if (type_dim(x, ta ? rank - 2 : rank - 1) != type_dim(y, tb ? rank - 1 : rank - 2))
    return fail_types(a, product_formats[ta][tb], x, y);
  dims_of(x, dims);
  dims[rank - 2] = type_dim(x, ta ? rank - 1 : rank - 2);
  dims[rank - 1] = type_dim(y, tb ? rank - 2 : rank - 1);
  Type product = type_adjoint(a->ir, type_tensor(a->ir, type_dtype(x), rank, dims));
  return result(a, product) && (!args_has_text(a, "epilogue", "gelu_aux") || result(a, product));
}

/* table [n, rest…], index [axes…] → [axes…, rest…] */
bool infer_gather(OpArgs *a) {
  Type table = in_type(a, 0), index = in_type(a, 1);
  int64_t dims[2 * PP_MAX_RANK];
  if (type_rank(table) < 1) return fail_types(a, "the table %s has no rows (index %s)", table, index);
  if (type_dtype(index) != PP_I32) return fail_types(a, "the index of %s is %s, not i32", table, index);
  int rank = type_rank(index) + type_rank(table) - 1;
  if (rank > PP_MAX_RANK) return fail_types(a, "too many axes: %s by %s", table, index);
  dims_of(index, dims);
  for (int i = 1; i < type_rank(table); i++) dims[type_rank(index) + i - 1] = type_dim(table, i);
  return result(a, type_tensor(a->ir, type_dtype(table), rank, dims));
}

/* dy [axes…, rest…], index [axes…] → [rows, rest…] */
bool infer_scatter_add(OpArgs *a) {
  Type dy = in_type(a, 0), index = in_type(a, 1);
  int64_t dims[PP_MAX_RANK + 1] = {args_int(a, "rows", 0)};
  if (type_dtype(index) != PP_I32) return fail_types(a, "the index of %s is %s, not i32", dy, index);
  bool fits = type_rank(index) <= type_rank(dy);
  for (int i = 0; fits && i < type_rank(index); i++) fits = type_dim(index, i) == type_dim(dy, i);
  if (!fits) return fail_types(a, "the rows of %s don't fit the index %s", dy, index);
  if (dims[0] < 1) return args_fail(a, "%lld rows", (long long)dims[0]);
  int rank = 1 + type_rank(dy) - type_rank(index);
  if (rank > PP_MAX_RANK) return args_fail(a, "more than %d axes", PP_MAX_RANK);
  for (int i = 1; i < rank; i++) dims[i] = type_dim(dy, type_rank(index) + i - 1);
  return result(a, type_tensor(a->ir, type_dtype(dy), rank, dims));
}

/* q [batch, heads, t, d], k and v [batch, kv_heads, t_kv, d] → out like q, lse [batch, heads, t] */
bool infer_attention(OpArgs *a) {
  Type q = in_type(a, 0), k = in_type(a, 1), v = in_type(a, 2);
  if (type_rank(q) != 4 || type_rank(k) != 4)
    return fail_types(a, "q and k need 4 axes (batch, heads, length, width): %s and %s", q, k);
  if (!type_equal(k, v)) return fail_types(a, "k and v differ: %s and %s", k, v);
  if (type_dtype(q) != type_dtype(k) || type_dim(q, 0) != type_dim(k, 0) || type_dim(q, 3) != type_dim(k, 3))
    return fail_types(a, "q %s and k %s don't fit together", q, k);
  if (type_dim(q, 1) % type_dim(k, 1))
    return args_fail(a, "%lld heads can't share %lld key heads evenly", (long long)type_dim(q, 1),
                     (long long)type_dim(k, 1));
  result(a, q);
  int64_t rows[3] = {type_dim(q, 0), type_dim(q, 1), type_dim(q, 2)};
  return result(a, type_adjoint(a->ir, type_tensor(a->ir, type_dtype(q), 3, rows)));
}

/* q k v out lse dout → dq dk dv */
bool infer_attention_grad(OpArgs *a) {
  if (!infer_attention(a)) return false;
  Type out = a->out[0], lse = a->out[1];
  a->n_out = 0;
  if (!check_same(a, out, in_type(a, 3)) || !check_same(a, lse, in_type(a, 4)) || !check_same(a, out, in_type(a, 5)))
    return false;
  for (int i = 0; i < 3; i++) result(a, in_type(a, i));
  return true;
}
