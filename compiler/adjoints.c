/* Adjoints of the primitives: one function per name in the `adjoint` column of ops.def.
 *
 * In: an op of the forward pass and the adjoints dy of its results (same types, but f32 for bf16). Out: ops
 * at the builder, and the adjoint of each operand that is needed (likewise). What is built
 * is what runs: no later pass rewrites it, so the form, operand order and transposition below fix
 * the bits of training.
 *
 * Conventions: ties of min and max go to the first operand; reduce_max shares evenly among equal
 * elements; pow treats 0^0 as a constant in both operands. A product or gather whose operand is a
 * parameter accumulates into it and has no value as adjoint. Adjoint ops have no adjoints. At most one
 * argument of a call makes ops: C leaves the order of arguments open, and the order of ops counts. */
#include <math.h>
#include <string.h>

#include "compiler/compiler.h"

typedef struct {
  Builder *b;
  Op op;
  const Value *dy;
  const bool *needed;
  Value *dx;
} Adjoint;

static const Value null_value = {NULL};

/* --- short forms ---------------------------------------------------------- */

static Value in(const Adjoint *a, int i) { return op_operand(a->op, i); }
static Value out(const Adjoint *a) { return op_result(a->op, 0); }

static Value map1(const Adjoint *a, OpId id, Value x) {
  return ir_map(a->b, id, 1, (Value[]){x});
}

static Value map2(const Adjoint *a, OpId id, Value x, Value y) {
  return ir_map(a->b, id, 2, (Value[]){x, y});
}

static Value mul(const Adjoint *a, Value x, Value y) {
  return map2(a, OP_MUL, x, y);
}

/* A splat with x's type. */
static Value splat(const Adjoint *a, Value x, double value) {
  return ir_constant(a->b, value_type(x), value);
}

static Value scale(const Adjoint *a, Value x, double factor) {
  return mul(a, x, splat(a, x, factor));
}

static Value select_value(const Adjoint *a, Value condition, Value x, Value y) {
  return ir_map(a->b, OP_SELECT, 3, (Value[]){condition, x, y});
}

/* The shape of t without copying: at most PP_MAX_RANK axes. */
static int shape_of(Type t, int64_t *out_dims) {
  int rank = type_rank(t);
  for (int i = 0; i < rank; i++) out_dims[i] = type_dim(t, i);
  return rank;
}

/* x with the shape of t; a reshape of a reshape is one. */
static Value reshape_to(const Adjoint *a, Value x, Type t) {
  int64_t dims[PP_MAX_RANK];
  if (!value_is_null(x) && op_id(value_owner(x)) == OP_RESHAPE) x = op_operand(value_owner(x), 0);
  int rank = shape_of(t, dims);
  return ir_reshape(a->b, x, rank, dims);
}

/* Undoes a reduction of `from` over op's axes: x of the reduced shape becomes
 * one of the full shape. */
static Value expand(const Adjoint *a, Value x, Type from) {
  int64_t n, dims[PP_MAX_RANK];
  const int64_t *axes = op_ints(ir_arena(a->b->ir), a->op, "axes", &n);
  int rank = shape_of(from, dims);
  for (int i = 0; i < n; i++) dims[axes[i]] = 1;
  Value kept = ir_reshape(a->b, x, rank, dims);
  return ir_broadcast(a->b, kept, type_with_dtype(a->b->ir, from, type_dtype(value_type(x))));
}

/* An f32 value as bf16. */
static bool is_narrowed(Value v) {
  Op op = value_owner(v);
  return op_id(op) == OP_CAST && type_dtype(value_type(v)) == PP_BF16 && type_dtype(value_type(op_operand(op, 0))) == PP_F32;
}

/* The parameter that a value is, seen through casts to bf16 and reshapes that leave its shape as
 * it was; null when it is none. */
static const char *parameter_of(const Adjoint *a, Value v) {
  Value base = v;
  while (op_id(value_owner(base)) == OP_RESHAPE || is_narrowed(base)) base = op_operand(value_owner(base), 0);
  Op owner = value_owner(base);
  if (op_id(owner) != OP_PARAM || !type_equal(value_type(base), type_adjoint(a->b->ir, value_type(v)))) return NULL;
  return op_string(ir_arena(a->b->ir), owner, "param");
}

/* --- elementwise ------------------------------------------------------------ */

static void adjoint_neg(Adjoint *a) { a->dx[0] = map1(a, OP_NEG, a->dy[0]); }
static void adjoint_exp(Adjoint *a) { a->dx[0] = mul(a, a->dy[0], out(a)); }
static void adjoint_log(Adjoint *a) { a->dx[0] = map2(a, OP_DIV, a->dy[0], in(a, 0)); }

static void adjoint_tanh(Adjoint *a) {
  Value square = mul(a, out(a), out(a));
  a->dx[0] = mul(a, a->dy[0], map2(a, OP_SUB, splat(a, square, 1), square));
}

static void adjoint_sqrt(Adjoint *a) {
  a->dx[0] = map2(a, OP_DIV, scale(a, a->dy[0], 0.5), out(a));
}

/* y = x^(-1/2): y' = -y³ / 2 */
static void adjoint_rsqrt(Adjoint *a) {
  Value cube = mul(a, mul(a, out(a), out(a)), out(a));
  a->dx[0] = mul(a, scale(a, a->dy[0], -0.5), cube);
}

/* erf' = 2 / √π · exp(-x²) */
static void adjoint_erf(Adjoint *a) {
  const double two_over_sqrt_pi = 1.1283791670955125738961589031215451716881;
  Value x = in(a, 0);
  Value bell = map1(a, OP_EXP, map1(a, OP_NEG, mul(a, x, x)));
  a->dx[0] = mul(a, a->dy[0], scale(a, bell, two_over_sqrt_pi));
}

static void adjoint_sin(Adjoint *a) {
  a->dx[0] = mul(a, a->dy[0], map1(a, OP_COS, in(a, 0)));
}

static void adjoint_cos(Adjoint *a) {
  a->dx[0] = map1(a, OP_NEG, mul(a, a->dy[0], map1(a, OP_SIN, in(a, 0))));
}

static void adjoint_add(Adjoint *a) { a->dx[0] = a->dx[1] = a->dy[0]; }

static void adjoint_sub(Adjoint *a) {
  a->dx[0] = a->dy[0];
  if (a->needed[1]) a->dx[1] = map1(a, OP_NEG, a->dy[0]);
}

static void adjoint_mul(Adjoint *a) {
  if (a->needed[0]) a->dx[0] = mul(a, a->dy[0], in(a, 1));
  if (a->needed[1]) a->dx[1] = mul(a, a->dy[0], in(a, 0));
}

/* x / y: dx = dy / y, and -(dy / y) · out for the divisor */
static void adjoint_div(Adjoint *a) {
  Value quotient = map2(a, OP_DIV, a->dy[0], in(a, 1));
  a->dx[0] = quotient;
  if (a->needed[1]) a->dx[1] = map1(a, OP_NEG, mul(a, quotient, out(a)));
}

/* The value of a splat constant seen through broadcasts and reshapes. */
static bool constant_of(Value v, double *out_value) {
  Op op = value_owner(v);
  while (op_id(op) == OP_BROADCAST || op_id(op) == OP_RESHAPE) op = value_owner(op_operand(op, 0));
  if (op_id(op) != OP_CONSTANT || !op_constant_is_float(op)) return false;
  *out_value = op_float(op, "value", 0);
  return true;
}

/* dy · c · x^(c-1) for a constant exponent c. */
static Value pow_base_constant(Adjoint *a, double c) {
  if (c == 0) return null_value;
  Value x = in(a, 0), dy = a->dy[0];
  if (c == 1) return dy;
  Value power = c == 2 ? x : map2(a, OP_POW, x, splat(a, x, c - 1));
  return mul(a, scale(a, dy, c), power);
}

/* dy · y · x^(y-1), and 0 where y is 0 whatever x is. */
static Value pow_base(Adjoint *a) {
  Value x = in(a, 0), y = in(a, 1);
  Value one = splat(a, y, 1), zero = splat(a, y, 0);
  Value less = map2(a, OP_SUB, y, one);
  Value safe = select_value(a, ir_compare(a->b, "eq", y, zero), one, less);
  Value scaled = mul(a, a->dy[0], y);
  return mul(a, scaled, map2(a, OP_POW, x, safe));
}

/* dy · out · log x, and 0 where x is 0. */
static Value pow_exponent(Adjoint *a) {
  Value x = in(a, 0);
  Value is_zero = ir_compare(a->b, "eq", x, splat(a, x, 0));
  Value safe = select_value(a, is_zero, splat(a, x, 1), x);
  Value scaled = mul(a, a->dy[0], out(a));
  return mul(a, scaled, map1(a, OP_LOG, safe));
}

static void adjoint_pow(Adjoint *a) {
  double c;
  if (a->needed[0])
    a->dx[0] = constant_of(in(a, 1), &c) ? pow_base_constant(a, c) : pow_base(a);
  if (a->needed[1]) a->dx[1] = pow_exponent(a);
}

/* dy goes to the first operand where it is taken. */
static void adjoint_choice(Adjoint *a, const char *first_is_taken) {
  Value first = ir_compare(a->b, first_is_taken, in(a, 0), in(a, 1));
  Value zero = splat(a, a->dy[0], 0);
  if (a->needed[0]) a->dx[0] = select_value(a, first, a->dy[0], zero);
  if (a->needed[1]) a->dx[1] = select_value(a, first, zero, a->dy[0]);
}

static void adjoint_min(Adjoint *a) { adjoint_choice(a, "le"); }
static void adjoint_max(Adjoint *a) { adjoint_choice(a, "ge"); }

static void adjoint_select(Adjoint *a) {
  Value zero = splat(a, a->dy[0], 0);
  if (a->needed[1]) a->dx[1] = select_value(a, in(a, 0), a->dy[0], zero);
  if (a->needed[2]) a->dx[2] = select_value(a, in(a, 0), zero, a->dy[0]);
}

static void adjoint_cast(Adjoint *a) {
  a->dx[0] = ir_cast(a->b, a->dy[0], type_dtype(type_adjoint(a->b->ir, value_type(in(a, 0)))));
}

/* --- reductions ---------------------------------------------------------------- */

static void adjoint_reduce_sum(Adjoint *a) {
  a->dx[0] = expand(a, a->dy[0], value_type(in(a, 0)));
}

/* dy divided by the number of elements that equal the maximum, at each of them. */
static void adjoint_reduce_max(Adjoint *a) {
  int64_t n;
  const int64_t *axes = op_ints(ir_arena(a->b->ir), a->op, "axes", &n);
  Value x = in(a, 0), zero = splat(a, x, 0);
  Value hit = ir_compare(a->b, "eq", x, expand(a, out(a), value_type(x)));
  Value one = select_value(a, hit, splat(a, x, 1), zero);
  Value count = ir_reduce(a->b, OP_REDUCE_SUM, one, (int)n, axes);
  Value share = map2(a, OP_DIV, a->dy[0], count);
  a->dx[0] = select_value(a, hit, expand(a, share, value_type(x)), zero);
}

/* --- movement -------------------------------------------------------------------- */

static void adjoint_reshape(Adjoint *a) {
  a->dx[0] = reshape_to(a, a->dy[0], value_type(in(a, 0)));
}

static void adjoint_permute(Adjoint *a) {
  int64_t n, inverse[PP_MAX_RANK];
  const int64_t *axes = op_ints(ir_arena(a->b->ir), a->op, "axes", &n);
  for (int i = 0; i < n; i++) inverse[axes[i]] = i;
  a->dx[0] = ir_permute(a->b, a->dy[0], inverse);
}

/* Sums over the axes that grew; a scalar grew along all. */
static void adjoint_broadcast(Adjoint *a) {
  Type from = value_type(in(a, 0)), to = value_type(out(a));
  int64_t axes[PP_MAX_RANK];
  int n = 0;
  for (int i = 0; i < type_rank(to); i++)
    if (type_rank(from) == 0 || type_dim(from, i) != type_dim(to, i)) axes[n++] = i;
  Value sum = n ? ir_reduce(a->b, OP_REDUCE_SUM, a->dy[0], n, axes) : a->dy[0];
  a->dx[0] = reshape_to(a, sum, from);
}

static void adjoint_slice(Adjoint *a) {
  int64_t n, after[PP_MAX_RANK];
  Arena *arena = ir_arena(a->b->ir);
  const int64_t *starts = op_ints(arena, a->op, "starts", &n);
  const int64_t *limits = op_ints(arena, a->op, "limits", &n);
  for (int i = 0; i < n; i++) after[i] = type_dim(value_type(in(a, 0)), i) - limits[i];
  a->dx[0] = ir_pad(a->b, a->dy[0], starts, after);
}

/* The part of dy that starts at `start` along `axis` and has type t. */
static Value part(Adjoint *a, int axis, int64_t start, Type t) {
  int64_t starts[PP_MAX_RANK] = {0}, limits[PP_MAX_RANK];
  shape_of(t, limits);
  starts[axis] = start;
  limits[axis] += start;
  return ir_slice(a->b, a->dy[0], starts, limits);
}

static void adjoint_concat(Adjoint *a) {
  int axis = (int)op_int(a->op, "axis", 0);
  int64_t start = 0;
  for (int i = 0; i < op_n_operands(a->op); i++) {
    Type t = value_type(in(a, i));
    if (a->needed[i]) a->dx[i] = part(a, axis, start, t);
    start += type_dim(t, axis);
  }
}

static void adjoint_pad(Adjoint *a) {
  int64_t n, limits[PP_MAX_RANK];
  const int64_t *before = op_ints(ir_arena(a->b->ir), a->op, "before", &n);
  for (int i = 0; i < n; i++) limits[i] = before[i] + type_dim(value_type(in(a, 0)), i);
  a->dx[0] = ir_slice(a->b, a->dy[0], before, limits);
}

/* --- products ---------------------------------------------------------------------- */

typedef struct {
  Value x, y;
  bool tx, ty;
} Product;

/* With C = op(A)·op(B), the product that is the adjoint of operand i as it is
 * stored, so that nothing is ever transposed by a copy. */
static Product matmul_product(Adjoint *a, int i, Value dc) {
  Value x = in(a, 0), y = in(a, 1);
  bool ta = op_unit(a->op, "ta"), tb = op_unit(a->op, "tb");
  if (i == 0) return ta ? (Product){y, dc, tb, true} : (Product){dc, y, false, !tb};
  return tb ? (Product){dc, x, true, ta} : (Product){x, dc, !ta, false};
}

static bool accumulate_product(Adjoint *a, const char *parameter, Product p) {
  Attr attrs[3] = {{.name = "param", .kind = ATTR_KIND_STRING, .s = parameter}};
  int n = 1;
  if (p.tx) attrs[n++] = (Attr){.name = "ta", .kind = ATTR_KIND_UNIT};
  if (p.ty) attrs[n++] = (Attr){.name = "tb", .kind = ATTR_KIND_UNIT};
  return !op_is_null(ir_build(a->b, OP_MATMUL_ACCUMULATE, 2, (Value[]){p.x, p.y}, 0, NULL, n, attrs));
}

/* Products of the backward have operands of the forward's type: dC is narrowed once for both. */
static void adjoint_matmul(Adjoint *a) {
  Value dc = ir_cast(a->b, a->dy[0], type_dtype(value_type(in(a, 0))));
  for (int i = 0; i < 2; i++) {
    if (!a->needed[i]) continue;
    Product p = matmul_product(a, i, dc);
    const char *parameter = parameter_of(a, in(a, i));
    if (parameter)
      accumulate_product(a, parameter, p);
    else
      a->dx[i] = ir_matmul(a->b, p.x, p.y, p.tx, p.ty);
  }
}

/* --- rows and attention --------------------------------------------------------------- */

static void adjoint_gather(Adjoint *a) {
  const char *parameter = parameter_of(a, in(a, 0));
  Value operands[2] = {a->dy[0], in(a, 1)};
  if (parameter) {
    Attr attr = {.name = "param", .kind = ATTR_KIND_STRING, .s = parameter};
    ir_build(a->b, OP_SCATTER_ACCUMULATE, 2, operands, 0, NULL, 1, &attr);
    return;
  }
  Attr attr = {.name = "rows", .kind = ATTR_KIND_INT, .i = type_dim(value_type(in(a, 0)), 0)};
  Op sum = ir_build(a->b, OP_SCATTER_ADD, 2, operands, 0, NULL, 1, &attr);
  a->dx[0] = op_is_null(sum) ? null_value : op_result(sum, 0);
}

static void adjoint_scatter_add(Adjoint *a) {
  Op rows = ir_build(a->b, OP_GATHER, 2, (Value[]){a->dy[0], in(a, 1)}, 0, NULL, 0, NULL);
  a->dx[0] = op_is_null(rows) ? null_value : op_result(rows, 0);
}

static void adjoint_attention(Adjoint *a) {
  if (!value_is_null(a->dy[1]))
    diag_error(ir_diag(a->b->ir), op_loc(a->b->ir, a->op),
               "no derivative goes through the log-sum-exp of attention");
  if (value_is_null(a->dy[0])) return;
  Attr attrs[2] = {{.name = "scale", .kind = ATTR_KIND_FLOAT, .f = op_float(a->op, "scale", 1)}};
  int n = 1;
  if (op_unit(a->op, "causal")) attrs[n++] = (Attr){.name = "causal", .kind = ATTR_KIND_UNIT};
  pp_dtype dtype = type_dtype(value_type(out(a)));
  Value dout = ir_cast(a->b, a->dy[0], dtype);
  Value operands[6] = {in(a, 0), in(a, 1), in(a, 2), out(a), op_result(a->op, 1), dout};
  Op grad = ir_build(a->b, OP_ATTENTION_GRAD, 6, operands, 0, NULL, n, attrs);
  for (int i = 0; i < 3 && !op_is_null(grad); i++)
    a->dx[i] = ir_cast(a->b, op_result(grad, i), dtype == PP_BF16 ? PP_F32 : dtype);
}

/* --- stated derivatives ------------------------------------------------------------------- */

/* The adjoints of the results, zeros for those that reach nothing. */
static Value given_or_zero(Adjoint *a, int i) {
  if (!value_is_null(a->dy[i])) return a->dy[i];
  return ir_constant(a->b, type_adjoint(a->b->ir, value_type(op_result(a->op, i))), 0);
}

/* Checks what the user's derivative returned for argument i. */
static bool check_derivative(Adjoint *a, int i, Value dx, Value x) {
  Ir *ir = a->b->ir;
  if (type_equal(value_type(dx), type_adjoint(ir, value_type(x)))) return true;
  diag_error(ir_diag(ir), op_loc(ir, a->op),
             "the derivative of argument %d is %s, the argument is %s", i + 1,
             type_text(ir_arena(ir), value_type(dx)), type_text(ir_arena(ir), value_type(x)));
  return false;
}

/* Operands y…, a…, captured…; the function takes y…, dy…, a…, captured… and
 * returns the adjoints of a…. */
static void adjoint_with_derivative(Adjoint *a) {
  Ir *ir = a->b->ir;
  Arena *arena = ir_arena(ir);
  int n_y = (int)op_int(a->op, "n_results", 0), n_a = (int)op_int(a->op, "n_arguments", 0);
  int n_in = op_n_operands(a->op), n = 0;
  Op func = func_find(ir, ir_top(ir), op_string(arena, a->op, "derivative"));
  if (op_is_null(func)) bug("derivative without a function");
  Value *args = arena_alloc_array(arena, (size_t)(n_in + n_y), sizeof *args);
  Value *dx = arena_alloc_array(arena, (size_t)n_a, sizeof *dx);
  for (int i = 0; i < n_y; i++) args[n++] = in(a, i);
  for (int i = 0; i < n_y; i++) args[n++] = given_or_zero(a, i);
  for (int i = n_y; i < n_in; i++) args[n++] = in(a, i);
  if (n != func_n_args(func)) bug("derivative takes %d values, not %d", func_n_args(func), n);
  func_inline(a->b, func, n, args, dx);
  for (int i = 0; i < n_a; i++)
    if (check_derivative(a, i, dx[i], in(a, n_y + i))) a->dx[n_y + i] = dx[i];
}

static void adjoint_none(Adjoint *a) {
  bug("no adjoint of %s", op_name(op_id(a->op)));
}

/* --- the table -------------------------------------------------------------------------------- */

typedef void AdjointFn(Adjoint *a);

static AdjointFn *const table[OP_COUNT] = {
#define OP(id, name, class, traits, min_in, max_in, min_out, max_out, infer, verify, adjoint) \
  [OP_##id] = adjoint_##adjoint,
#include "compiler/ir/ops.def"
};

bool adjoint_exists(OpId id) { return id < OP_COUNT && table[id] != adjoint_none; }

bool adjoint_build(Builder *b, Op op, const Value *dy, const bool *needed, Value *out_dx) {
  int before = diag_error_count(ir_diag(b->ir));
  for (int i = 0; i < op_n_operands(op); i++) out_dx[i] = null_value;
  table[op_id(op)](&(Adjoint){b, op, dy, needed, out_dx});
  for (int i = 0; i < op_n_operands(op); i++)
    if (!needed[i]) out_dx[i] = null_value;
  return diag_error_count(ir_diag(b->ir)) == before;
}
