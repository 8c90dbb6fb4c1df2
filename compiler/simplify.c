/* In: the functions that elaborate made. Out: the same with fewer ops: folds that keep every bit,
 * permutes of the last two axes taken into products as ta/tb, equal ops merged where no adjoint can
 * tell, unused pure ops gone. One walk in program order (what an op reads is simple by then) and one
 * backwards for the unused; linear in ops.
 *
 * What it decides depends on no stage, except that only ops of one stage are merged. It doesn't fold
 * what another machine's library computes (exp, pow, …) nor anything that drops a signed zero:
 * x + 0.0 stays, x + -0.0 and x - 0.0 go. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "compiler/compiler.h"

typedef struct {
  Ir *ir;
  Arena *tmp;
  bool keeps_adjoints; /* merge only what depends on no parameter */
  PtrMap depends;      /* values that depend on a parameter */
  Op *table;           /* open addressing: ops to merge with */
  size_t n_slots;
  Value made;          /* by the last fold, when it made an op */
} Simplifier;

/* --- readers ------------------------------------------------------------------------------------------ */

static Op def_of(Value v, OpId id) {
  Op op = value_owner(v);
  return !op_is_null(op) && op_id(op) == id ? op : (Op){NULL};
}

/* The splat behind v: true for a constant. */
typedef struct {
  pp_dtype dtype;
  double real;
  int64_t integer;
} Splat;

static bool splat_of(Value v, Splat *out) {
  Op c = def_of(v, OP_CONSTANT);
  if (op_is_null(c)) return false;
  out->dtype = type_dtype(value_type(v));
  if (op_constant_is_float(c))
    out->real = op_float(c, "value", 0);
  else
    out->integer = op_int(c, "value", 0);
  return true;
}

static bool is_real(const Splat *s) { return s->dtype == PP_F32 || s->dtype == PP_F64 || s->dtype == PP_BF16; }

static bool is_number(Value v, int64_t n) {
  Splat s;
  if (!splat_of(v, &s)) return false;
  return is_real(&s) ? s.real == (double)n && !signbit(s.real) : s.integer == n;
}

static bool is_negative_zero(Value v) {
  Splat s;
  return splat_of(v, &s) && is_real(&s) && s.real == 0 && signbit(s.real);
}

static bool is_integer_type(Value v) { return type_dtype(value_type(v)) == PP_I32; }

static Builder builder_at(Simplifier *s, Op op) {
  return (Builder){.ir = s->ir, .block = op_block(op), .before = op, .loc = op_loc(s->ir, op), .stage = op_stage(op),
                   .backward = op_unit(op, "pp.backward"), .name = op_string(s->tmp, op, "pp.name"),
                   .path = op_string(s->tmp, op, "pp.path")};
}

static bool is_identity(int64_t n, const int64_t *axes) {
  for (int64_t i = 0; i < n; i++)
    if (axes[i] != i) return false;
  return true;
}

static bool swaps_last_two(int64_t n, const int64_t *axes) {
  return n >= 2 && axes[n - 1] == n - 2 && axes[n - 2] == n - 1 && is_identity(n - 2, axes);
}

static bool all_zero(int64_t n, const int64_t *v) {
  for (int64_t i = 0; i < n; i++)
    if (v[i]) return false;
  return true;
}

/* --- constants ------------------------------------------------------------------------------------------ */

static Value make_splat(Simplifier *s, Op op, const Splat *value) {
  Builder b = builder_at(s, op);
  Type t = value_type(op_result(op, 0));
  return s->made = is_real(value) ? ir_constant(&b, t, value->real) : ir_constant_int(&b, t, value->integer);
}

static int64_t wrap(int64_t v) { return (int32_t)(uint32_t)(uint64_t)v; }

/* f32 operations round once from the exact f64 result of f32 operands: the same as f32 arithmetic for
 * add, sub, mul, div and sqrt (f64 has more than twice the bits plus two). */

static bool fold_real(OpId id, pp_dtype d, double x, double y, double *out) {
  if (isnan(x) || isnan(y)) return false;
  switch (id) {
    case OP_NEG: *out = -x; break;
    case OP_SQRT: *out = sqrt(x); break;
    case OP_ADD: *out = x + y; break;
    case OP_SUB: *out = x - y; break;
    case OP_MUL: *out = x * y; break;
    case OP_DIV: *out = x / y; break;
    case OP_MIN: *out = x < y ? x : y; return x != y;
    case OP_MAX: *out = x > y ? x : y; return x != y;
    default: return false;
  }
  *out = dtype_round(d, *out);
  return !isnan(*out);
}

static bool fold_integer(OpId id, int64_t x, int64_t y, int64_t *out) {
  switch (id) {
    case OP_NEG: *out = wrap(-x); return true;
    case OP_ADD: *out = wrap(x + y); return true;
    case OP_SUB: *out = wrap(x - y); return true;
    case OP_MUL: *out = wrap(x * y); return true;
    case OP_MIN: *out = x < y ? x : y; return true;
    case OP_MAX: *out = x > y ? x : y; return true;
    case OP_NOT: *out = !x; return true;
    case OP_AND: *out = x & y; return true;
    case OP_OR: *out = x | y; return true;
    case OP_DIV:
      if (y == 0 || (x == INT_MIN && y == -1)) return false;
      *out = x / y - (x % y != 0 && (x < 0) != (y < 0));
      return true;
    default: return false;
  }
}

static bool compare(const char *predicate, int order, bool unordered) {
  if (!strcmp(predicate, "ne")) return unordered || order != 0;
  if (unordered) return false;
  if (!strcmp(predicate, "eq")) return order == 0;
  if (!strcmp(predicate, "lt")) return order < 0;
  if (!strcmp(predicate, "le")) return order <= 0;
  if (!strcmp(predicate, "gt")) return order > 0;
  return order >= 0;
}

static bool fold_compare(Simplifier *s, Op op, const Splat *x, const Splat *y, Splat *out) {
  const char *predicate = op_string(s->tmp, op, "predicate");
  bool real = is_real(x);
  int order = real ? (x->real > y->real) - (x->real < y->real) : (x->integer > y->integer) - (x->integer < y->integer);
  out->integer = compare(predicate, order, real && (isnan(x->real) || isnan(y->real)));
  return true;
}

static bool fold_cast(const Splat *x, Splat *out) {
  bool from_real = is_real(x);
  if (is_real(out)) {
    out->real = dtype_round(out->dtype, from_real ? x->real : (double)x->integer);
    return true;
  }
  if (out->dtype == PP_BOOL) {
    out->integer = from_real ? x->real != 0 : x->integer != 0;
    return true;
  }
  if (from_real && !(fabs(x->real) < 2147483648.0)) return false; /* undefined: left to the kernel */
  out->integer = from_real ? (int64_t)x->real : x->integer;
  return true;
}

static bool fold_map(Simplifier *s, Op op, OpId id, const Splat *in, Splat *out) {
  if (id == OP_COMPARE) return fold_compare(s, op, &in[0], &in[1], out);
  if (id == OP_CAST) return fold_cast(&in[0], out);
  const Splat *y = op_n_operands(op) > 1 ? &in[1] : &in[0];
  if (is_real(out)) return fold_real(id, out->dtype, in[0].real, y->real, &out->real);
  return fold_integer(id, in[0].integer, y->integer, &out->integer);
}

/* A constant for an op whose operands are all constants; null when it is none. */
static Value fold_constant(Simplifier *s, Op op, OpId id) {
  Splat in[3], out = {0};
  int n = op_n_operands(op);
  if (n < 1 || n > 2) return (Value){NULL};
  for (int i = 0; i < n; i++)
    if (!splat_of(op_operand(op, i), &in[i])) return (Value){NULL};
  out.dtype = type_dtype(value_type(op_result(op, 0)));
  bool moves = id == OP_RESHAPE || id == OP_PERMUTE || id == OP_BROADCAST || id == OP_SLICE;
  if (moves) return make_splat(s, op, &in[0]);
  return op_class(id) == CLASS_MAP && fold_map(s, op, id, in, &out) ? make_splat(s, op, &out) : (Value){NULL};
}

/* --- folds that need no arithmetic ------------------------------------------------------------------------ */

/* Each returns the value that takes the place of op's result, or null. */

static Value fold_add(Op op) {
  Value x = op_operand(op, 0), y = op_operand(op, 1);
  for (int i = 0; i < 2; i++, x = y, y = op_operand(op, 0))
    if (is_negative_zero(y) || (is_integer_type(y) && is_number(y, 0))) return x;
  return (Value){NULL};
}

static Value fold_mul(Op op) {
  Value x = op_operand(op, 0), y = op_operand(op, 1);
  return is_number(y, 1) ? x : is_number(x, 1) ? y : (Value){NULL};
}

static Value fold_select(Op op) {
  Splat c;
  if (!splat_of(op_operand(op, 0), &c)) return (Value){NULL};
  return op_operand(op, c.integer ? 1 : 2);
}

/* There and back through a type that holds every value of the first. */
static Value fold_cast_of_cast(Op op) {
  Op inner = def_of(op_operand(op, 0), OP_CAST);
  if (op_is_null(inner)) return (Value){NULL};
  Value x = op_operand(inner, 0);
  if (!type_equal(value_type(x), value_type(op_result(op, 0)))) return (Value){NULL};
  pp_dtype from = type_dtype(value_type(x)), through = type_dtype(value_type(op_result(inner, 0)));
  return through == PP_F64 || from == PP_BOOL || (from == PP_BF16 && through == PP_F32) ? x : (Value){NULL};
}

static Value fold_reshape(Simplifier *s, Op op) {
  Op inner = def_of(op_operand(op, 0), OP_RESHAPE);
  if (op_is_null(inner)) return (Value){NULL};
  Value x = op_operand(inner, 0);
  Type t = value_type(op_result(op, 0));
  if (type_equal(value_type(x), t)) return x;
  int64_t dims[PP_MAX_RANK];
  for (int i = 0; i < type_rank(t); i++) dims[i] = type_dim(t, i);
  Builder b = builder_at(s, op);
  return s->made = ir_reshape(&b, x, type_rank(t), dims);
}

static bool feeds_matmul(Simplifier *s, Op op) {
  OpVec users = value_users(s->tmp, op_result(op, 0));
  for (int i = 0; i < users.n; i++)
    if (op_id(users.at[i]) == OP_MATMUL) return true;
  return false;
}

/* One permute for two, unless a product can take the outer one as ta or tb. */
static Value fold_permute(Simplifier *s, Op op) {
  int64_t n, k, both[PP_MAX_RANK];
  const int64_t *outer = op_ints(s->tmp, op, "axes", &n);
  if (is_identity(n, outer)) return op_operand(op, 0);
  Op inner_op = def_of(op_operand(op, 0), OP_PERMUTE);
  if (op_is_null(inner_op)) return (Value){NULL};
  const int64_t *inner = op_ints(s->tmp, inner_op, "axes", &k);
  for (int64_t i = 0; i < n; i++) both[i] = inner[outer[i]];
  if (is_identity(n, both)) return op_operand(inner_op, 0);
  if (swaps_last_two(n, outer) && feeds_matmul(s, op)) return (Value){NULL};
  Builder b = builder_at(s, op);
  return s->made = ir_permute(&b, op_operand(inner_op, 0), both);
}

static Value same_type(Op op) {
  Value x = op_operand(op, 0);
  return type_equal(value_type(x), value_type(op_result(op, 0))) ? x : (Value){NULL};
}

static Value fold_pad(Simplifier *s, Op op) {
  int64_t n, m;
  const int64_t *before = op_ints(s->tmp, op, "before", &n), *after = op_ints(s->tmp, op, "after", &m);
  return all_zero(n, before) && all_zero(m, after) ? op_operand(op, 0) : (Value){NULL};
}

static Value fold_negation(Op op) {
  Op inner = def_of(op_operand(op, 0), op_id(op));
  return op_is_null(inner) ? (Value){NULL} : op_operand(inner, 0);
}

static Value or_constant(Simplifier *s, Op op, OpId id, Value found) {
  return value_is_null(found) ? fold_constant(s, op, id) : found;
}

static Value fold(Simplifier *s, Op op, OpId id) {
  Value none = {NULL};
  switch (id) {
    case OP_ADD: return or_constant(s, op, id, fold_add(op));
    case OP_SUB: return is_number(op_operand(op, 1), 0) ? op_operand(op, 0) : fold_constant(s, op, id);
    case OP_MUL: return or_constant(s, op, id, fold_mul(op));
    case OP_DIV: return is_number(op_operand(op, 1), 1) ? op_operand(op, 0) : fold_constant(s, op, id);
    case OP_NEG:
    case OP_NOT: return or_constant(s, op, id, fold_negation(op));
    case OP_SELECT: return fold_select(op);
    case OP_CAST: {
      Value x = same_type(op);
      return or_constant(s, op, id, value_is_null(x) ? fold_cast_of_cast(op) : x);
    }
    case OP_RESHAPE: {
      Value x = same_type(op);
      return or_constant(s, op, id, value_is_null(x) ? fold_reshape(s, op) : x);
    }
    case OP_PERMUTE: return or_constant(s, op, id, fold_permute(s, op));
    case OP_BROADCAST:
    case OP_SLICE: return or_constant(s, op, id, same_type(op)); /* a slice of the whole type is the whole */
    case OP_PAD: return fold_pad(s, op);
    case OP_CONCAT: return op_n_operands(op) == 1 ? op_operand(op, 0) : none;
    case OP_REDUCE_SUM:
    case OP_REDUCE_MAX: return type_rank(value_type(op_operand(op, 0))) == type_rank(value_type(op_result(op, 0)))
                                   ? op_operand(op, 0) : none;
    default: return op_class(id) == CLASS_MAP ? fold_constant(s, op, id) : none;
  }
}

/* --- products -------------------------------------------------------------------------------------------- */

/* A permute of the last two axes behind operand i is flag `name` of the product instead. */
static void take_transpose(Simplifier *s, Op matmul, int i, const char *name) {
  int64_t n;
  Op permute = def_of(op_operand(matmul, i), OP_PERMUTE);
  if (op_is_null(permute)) return;
  const int64_t *axes = op_ints(s->tmp, permute, "axes", &n);
  if (!swaps_last_two(n, axes)) return;
  op_set_operand(matmul, i, op_operand(permute, 0));
  if (op_unit(matmul, name))
    op_remove_attr(matmul, name);
  else
    op_set_unit(s->ir, matmul, name);
}

/* --- merging ----------------------------------------------------------------------------------------------- */

static bool depends_on_parameter(Simplifier *s, Op op, OpId id) {
  if (id == OP_PARAM) return true;
  for (int i = 0; i < op_n_operands(op); i++)
    if (ptrmap_find(&s->depends, op_operand(op, i).ptr)) return true;
  return false;
}

static void note_dependence(Simplifier *s, Op op) {
  for (int i = 0; i < op_n_results(op); i++) ptrmap_put(s->tmp, &s->depends, op_result(op, i).ptr, NULL);
}

/* The op before this one that computes the same in the same stage; enters this one when there is none. */
static Op find_same(Simplifier *s, Op op) {
  size_t i = (size_t)(op_hash(op) + (uint64_t)(op_stage(op) + 1) * 0x9E3779B97F4A7C15u) & (s->n_slots - 1);
  for (; !op_is_null(s->table[i]); i = (i + 1) & (s->n_slots - 1))
    if (op_stage(s->table[i]) == op_stage(op) && op_same(s->table[i], op)) return s->table[i];
  s->table[i] = op;
  return (Op){NULL};
}

static bool merge(Simplifier *s, Op op, OpId id) {
  if (!(op_traits(id) & TRAIT_PURE)) return false;
  if (s->keeps_adjoints && depends_on_parameter(s, op, id)) {
    note_dependence(s, op);
    return false;
  }
  Op same = find_same(s, op);
  if (op_is_null(same)) return false;
  for (int i = 0; i < op_n_results(op); i++) value_replace(op_result(op, i), op_result(same, i));
  return true;
}

/* --- the pass ------------------------------------------------------------------------------------------------ */

static void simplify_op(Simplifier *s, Op op) {
  OpId id = op_id(op);
  if (id == OP_NONE) return;
  if (id == OP_MATMUL) {
    take_transpose(s, op, 0, "ta");
    take_transpose(s, op, 1, "tb");
  }
  s->made = (Value){NULL};
  Value v = op_n_results(op) == 1 ? fold(s, op, id) : (Value){NULL};
  if (!value_is_null(v)) {
    value_replace(op_result(op, 0), v);
    op_erase(op);
    if (value_is_null(s->made)) return;
    op = value_owner(s->made); /* a new op may merge as well */
    id = op_id(op);
  }
  if (merge(s, op, id)) op_erase(op);
}

void simplify_dead_ops(Ir *ir, Op func) {
  (void)ir;
  Arena *tmp = arena_create();
  OpVec ops = block_ops(tmp, func_body(func));
  for (int i = ops.n - 1; i >= 0; i--)
    if ((op_traits(op_id(ops.at[i])) & TRAIT_PURE) && !op_has_uses(ops.at[i])) op_erase(ops.at[i]);
  arena_destroy(tmp);
}

static void simplify_func(Ir *ir, Op func, bool keeps_adjoints) {
  Simplifier s = {.ir = ir, .tmp = arena_create(), .keeps_adjoints = keeps_adjoints, .n_slots = 64};
  OpVec ops = block_ops(s.tmp, func_body(func));
  while (s.n_slots < (size_t)ops.n * 2 + 2) s.n_slots *= 2;
  s.table = arena_alloc_array(s.tmp, s.n_slots, sizeof *s.table);
  for (int i = 0; i < ops.n; i++) simplify_op(&s, ops.at[i]);
  arena_destroy(s.tmp);
  simplify_dead_ops(ir, func);
}

bool simplify_run(Ir *ir) {
  Arena *tmp = arena_create();
  int before = diag_error_count(ir_diag(ir));
  OpVec funcs = ir_funcs(tmp, ir_top(ir));
  for (int i = 0; i < funcs.n; i++)
    simplify_func(ir, funcs.at[i], !strcmp(func_name(tmp, funcs.at[i]), "loss"));
  arena_destroy(tmp);
  return diag_error_count(ir_diag(ir)) == before;
}
