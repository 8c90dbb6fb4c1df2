/* epilogues: what the library of products does to a result before it stores it, on GPUs.
 *
 * In: @microbatch after `stages`. Out: a forward product of f32 results to whose rows only a vector is added takes the
 * vector as its third operand, and the sum is its result; where gelu in the form by tanh follows, gelu of the sum is its
 * result, and the sum, which the backward pass needs, a second one. The sum is rounded as before, so bits stay; gelu is
 * the library's own approximation.
 *
 * The backward pass of the stage makes gelu and its tanh again from the sum: their ops move there, so that the sum alone
 * is stashed. Where nothing but bf16 is made of gelu, it stays a kernel's, which narrows it as it stores it. So does a sum
 * that is only moved, as queries, keys and values are: one kernel adds and makes all of them.
 *
 * Each pattern lies in one stage, and the choice depends on nothing else. Without a GPU target nothing changes. */
#include <string.h>

#include "compiler/compiler.h"

enum { AUX_MULTIPLE = 8 }; /* the library wants rows of the sum that are a multiple of this many elements */

/* x, gelu's value, and the ops between: 0.5 x (1 + tanh(0.79… (x + 0.044715 x x x))) */
enum { INNER_OPS = 8 };
typedef struct {
  Value x, y;
  Op inner[INNER_OPS]; /* users before what they use */
} Gelu;

typedef struct {
  Op product, sum;
  Value bias;
} Biased;

typedef struct {
  Ir *ir;
  Arena *tmp;
  PtrMap place; /* op → its place in the block + 1, from before the pass */
  PtrMap gelus; /* x → Gelu */
} Epilogues;

static bool is_backward(Op op) { return op_unit(op, "pp.backward"); }
static int64_t last_dim(Value v) { return type_rank(value_type(v)) ? type_dim(value_type(v), type_rank(value_type(v)) - 1) : 1; }

/* The forward op of this kind that makes v; null: another. */
static Op maker(Value v, OpId id) {
  Op op = value_owner(v);
  return !op_is_null(op) && op_id(op) == id && !is_backward(op) ? op : (Op){NULL};
}

/* --- the pattern of gelu ---------------------------------------------------------------------------------- */

static bool is_constant(Value v, double c) {
  Op op = maker(v, OP_CONSTANT);
  return !op_is_null(op) && op_constant_is_float(op) && op_float(op, "value", 0) == dtype_round(type_dtype(value_type(v)), c);
}

/* v = c ∘ x or x ∘ c. */
static bool with_constant(Value v, OpId id, double c, Op *out_op, Value *out_x) {
  *out_op = maker(v, id);
  if (op_is_null(*out_op)) return false;
  int k = is_constant(op_operand(*out_op, 0), c) ? 0 : is_constant(op_operand(*out_op, 1), c) ? 1 : -1;
  if (k >= 0) *out_x = op_operand(*out_op, 1 - k);
  return k >= 0;
}

/* v = rest ∘ x or x ∘ rest. */
static bool with_value(Value v, OpId id, Value x, Op *out_op, Value *out_rest) {
  *out_op = maker(v, id);
  if (op_is_null(*out_op)) return false;
  int k = value_equal(op_operand(*out_op, 1), x) ? 1 : value_equal(op_operand(*out_op, 0), x) ? 0 : -1;
  if (k >= 0) *out_rest = op_operand(*out_op, 1 - k);
  return k >= 0;
}

/* 0.044715 x x x */
static bool is_cube(Value v, Value x, Op *out) {
  Value square, scaled, base;
  return with_value(v, OP_MUL, x, &out[0], &square) && with_value(square, OP_MUL, x, &out[1], &scaled) &&
         with_constant(scaled, OP_MUL, 0.044715, &out[2], &base) && value_equal(base, x);
}

/* The argument of tanh: which of the two that are added is x. */
static bool match_argument(Value argument, Gelu *out) {
  Value polynomial;
  if (!with_constant(argument, OP_MUL, 0.7978845608028654, &out->inner[3], &polynomial)) return false;
  Op add = out->inner[4] = maker(polynomial, OP_ADD);
  for (int k = 0; !op_is_null(add) && k < 2; k++) {
    out->x = op_operand(add, k);
    if (is_cube(op_operand(add, 1 - k), out->x, &out->inner[5])) return true;
  }
  return false;
}

/* y = (0.5 x) (1 + t), the only one of its kind in the forward pass. */
static bool match_end(Epilogues *e, Op tanh, Gelu *out) {
  OpVec sums = value_users(e->tmp, op_result(tanh, 0));
  for (int i = 0; i < sums.n; i++) {
    Value t;
    if (op_id(sums.at[i]) != OP_ADD || !with_constant(op_result(sums.at[i], 0), OP_ADD, 1, &out->inner[1], &t)) continue;
    OpVec users = value_users(e->tmp, op_result(sums.at[i], 0));
    for (int k = 0; k < users.n; k++) {
      Op product;
      Value half, x;
      if (op_id(users.at[k]) != OP_MUL) continue;
      out->y = op_result(users.at[k], 0);
      if (with_value(out->y, OP_MUL, op_result(sums.at[i], 0), &product, &half) &&
          with_constant(half, OP_MUL, 0.5, &out->inner[0], &x) && value_equal(x, out->x))
        return true;
    }
  }
  return false;
}

static bool is_of(const Gelu *g, Op op) {
  for (int i = 0; i < INNER_OPS; i++)
    if (g->inner[i].ptr == op.ptr) return true;
  return value_owner(g->y).ptr == op.ptr;
}

/* What is inside serves nothing else of the forward pass, and no other stage. */
static bool is_closed(Epilogues *e, const Gelu *g) {
  int stage = op_stage(value_owner(g->y));
  for (int i = 0; i < INNER_OPS; i++) {
    OpVec users = value_users(e->tmp, op_result(g->inner[i], 0));
    for (int k = 0; k < users.n; k++)
      if (op_stage(users.at[k]) != stage || (!is_backward(users.at[k]) && !is_of(g, users.at[k]))) return false;
  }
  return true;
}

/* True when some forward op takes y, through reshapes, for something else than to narrow it. */
static bool is_used_wide(Epilogues *e, Value y) {
  OpVec users = value_users(e->tmp, y);
  for (int i = 0; i < users.n; i++) {
    Op user = users.at[i];
    if (is_backward(user)) continue;
    bool narrows = op_id(user) == OP_CAST && type_dtype(value_type(op_result(user, 0))) == PP_BF16;
    if (op_id(user) == OP_RESHAPE ? is_used_wide(e, op_result(user, 0)) : !narrows) return true;
  }
  return false;
}

static void find_gelus(Epilogues *e, OpVec ops) {
  for (int i = 0; i < ops.n; i++) {
    if (op_id(ops.at[i]) != OP_TANH || is_backward(ops.at[i])) continue;
    Gelu g = {.inner = {[2] = ops.at[i]}};
    if (!match_argument(op_operand(ops.at[i], 0), &g) || !match_end(e, ops.at[i], &g)) continue;
    if (!is_closed(e, &g) || !is_used_wide(e, g.y) || last_dim(g.x) % AUX_MULTIPLE) continue;
    Gelu *kept = arena_alloc(e->tmp, sizeof *kept);
    *kept = g;
    ptrmap_put(e->tmp, &e->gelus, g.x.ptr, kept);
  }
}

/* --- the pattern of a bias ---------------------------------------------------------------------------------- */

/* The vector of n numbers that v repeats along all axes before the last, whose length they have; null: v is something else. */
static Value repeated_vector(Value v, int64_t n) {
  Op broadcast = maker(v, OP_BROADCAST);
  if (op_is_null(broadcast)) return (Value){NULL};
  Value from = op_operand(broadcast, 0);
  if (type_elements(value_type(from)) != n || last_dim(from) != n) return (Value){NULL};
  for (Op op = maker(from, OP_RESHAPE); !op_is_null(op); op = maker(from, OP_RESHAPE)) from = op_operand(op, 0);
  return from;
}

/* All that the forward pass does with it is to cut, permute or pad it. */
static bool is_only_moved(Epilogues *e, Value v) {
  OpVec users = value_users(e->tmp, v);
  for (int i = 0; i < users.n; i++) {
    Op user = users.at[i];
    if (is_backward(user)) continue;
    bool moved = op_id(user) == OP_RESHAPE ? is_only_moved(e, op_result(user, 0)) : op_class(op_id(user)) == CLASS_MOVE;
    if (!moved) return false;
  }
  return true;
}

static bool match_bias(Epilogues *e, Op product, Biased *out) {
  Value v = op_result(product, 0);
  Type type = value_type(v);
  if (is_backward(product) || type_rank(type) != 2 || type_dtype(type) != PP_F32) return false;
  for (;;) {
    OpVec users = value_users(e->tmp, v);
    if (users.n != 1 || op_stage(users.at[0]) != op_stage(product) || is_backward(users.at[0])) return false;
    out->sum = users.at[0];
    if (op_id(out->sum) != OP_RESHAPE) break;
    v = op_result(out->sum, 0);
  }
  out->product = product;
  if (op_id(out->sum) != OP_ADD) return false;
  out->bias = repeated_vector(op_operand(out->sum, value_equal(op_operand(out->sum, 0), v)), type_dim(type, 1));
  return !value_is_null(out->bias) && !is_only_moved(e, op_result(out->sum, 0));
}

/* --- rewriting ------------------------------------------------------------------------------------------------- */

static Op build_product(Epilogues *e, Builder *b, const Biased *m, pp_epilogue epilogue) {
  int64_t n = type_elements(value_type(m->bias));
  const char *name = op_string(e->tmp, m->sum, "pp.name");
  Value in[] = {op_operand(m->product, 0), op_operand(m->product, 1), ir_reshape(b, m->bias, 1, &n)};
  Attr attrs[3] = {{.name = "epilogue", .kind = ATTR_KIND_STRING, .s = pp_epilogue_name(epilogue)}};
  int n_attrs = 1;
  if (op_unit(m->product, "ta")) attrs[n_attrs++] = (Attr){.name = "ta", .kind = ATTR_KIND_UNIT};
  if (op_unit(m->product, "tb")) attrs[n_attrs++] = (Attr){.name = "tb", .kind = ATTR_KIND_UNIT};
  b->name = epilogue == PP_EPILOGUE_BIAS ? name : NULL;
  Op op = ir_build(b, OP_MATMUL, 3, in, 0, NULL, n_attrs, attrs);
  if (op_is_null(op)) bug("no product with an epilogue");
  return op;
}

static Value with_shape_of(Builder *b, Value v, Value shape) {
  int64_t dims[PP_MAX_RANK];
  Type t = value_type(shape);
  for (int i = 0; i < type_rank(t); i++) dims[i] = type_dim(t, i);
  return ir_reshape(b, v, type_rank(t), dims);
}

static void replace_operand(Op op, Value old, Value with) {
  for (int i = 0; i < op_n_operands(op); i++)
    if (value_equal(op_operand(op, i), old)) op_set_operand(op, i, with);
}

/* All that uses y takes `with`, but the backward pass of the stage; reshapes are parted in two. Those that are left
 * with users of y come behind `left`. */
static void take_from_product(Epilogues *e, Builder *b, Value y, Value with, int stage, OpVec *left) {
  OpVec users = value_users(e->tmp, y);
  for (int i = 0; i < users.n; i++) {
    Op user = users.at[i];
    if (is_backward(user) && op_stage(user) == stage) continue;
    if (op_id(user) != OP_RESHAPE || is_backward(user)) {
      replace_operand(user, y, with);
      continue;
    }
    Builder at = *b;
    at.before = user;
    at.stage = op_stage(user);
    take_from_product(e, &at, op_result(user, 0), with_shape_of(&at, with, op_result(user, 0)), stage, left);
    VEC_PUSH(e->tmp, left, user);
  }
}

static intptr_t place_of(const Epilogues *e, Op op) { return (intptr_t)ptrmap_get(&e->place, op.ptr); }

/* Puts a forward op that only the backward pass uses before its first user there; without users it goes. */
static void move_back(Epilogues *e, Op op) {
  OpVec users = value_users(e->tmp, op_result(op, 0));
  if (users.n == 0) {
    op_erase(op);
    return;
  }
  Op first = users.at[0];
  bool weight = true;
  for (int i = 0; i < users.n; i++) {
    if (!is_backward(users.at[i])) bug("the forward pass uses what moves to the backward pass");
    if (place_of(e, users.at[i]) < place_of(e, first)) first = users.at[i];
    weight = weight && op_unit(users.at[i], "pp.weight_half");
  }
  op_move_before(op, first);
  ptrmap_put(e->tmp, &e->place, op.ptr, (void *)place_of(e, first));
  op_set_unit(e->ir, op, "pp.backward");
  if (weight) op_set_unit(e->ir, op, "pp.weight_half");
}

static bool is_used_in_backward(Epilogues *e, Value v, int stage) {
  OpVec users = value_users(e->tmp, v);
  for (int i = 0; i < users.n; i++) {
    Op user = users.at[i];
    if (is_backward(user) ? op_stage(user) == stage : op_id(user) == OP_RESHAPE && is_used_in_backward(e, op_result(user, 0), stage))
      return true;
  }
  return false;
}

/* Something else than the forward pass's gelu needs the sum. */
static bool needs_sum(Epilogues *e, const Gelu *g, int stage) {
  OpVec users = value_users(e->tmp, g->x);
  for (int i = 0; i < users.n; i++)
    if (!is_of(g, users.at[i])) return true;
  for (int i = 0; i < INNER_OPS; i++)
    if (is_used_in_backward(e, op_result(g->inner[i], 0), stage)) return true;
  return is_used_in_backward(e, g->y, stage);
}

static void put_gelu(Epilogues *e, Builder *b, const Biased *m, const Gelu *g) {
  OpVec left = {0};
  int stage = op_stage(m->product);
  bool aux = needs_sum(e, g, stage);
  Op product = build_product(e, b, m, aux ? PP_EPILOGUE_GELU_AUX : PP_EPILOGUE_GELU);
  take_from_product(e, b, g->y, with_shape_of(b, op_result(product, 0), g->y), stage, &left);
  if (aux) value_replace(g->x, with_shape_of(b, op_result(product, 1), g->x));
  for (int i = 0; i < left.n; i++) move_back(e, left.at[i]);
  move_back(e, value_owner(g->y));
  for (int i = 0; i < INNER_OPS; i++) move_back(e, g->inner[i]);
}

static void rewrite(Epilogues *e, const Biased *m) {
  const Gelu *g = ptrmap_get(&e->gelus, op_result(m->sum, 0).ptr);
  Builder b = {.ir = e->ir, .block = op_block(m->sum), .before = m->sum, .loc = op_loc(e->ir, m->product),
               .stage = op_stage(m->product), .path = op_string(e->tmp, m->product, "pp.path")};
  if (g && op_stage(value_owner(g->y)) == b.stage) {
    put_gelu(e, &b, m, g);
    return;
  }
  Op product = build_product(e, &b, m, PP_EPILOGUE_BIAS);
  value_replace(op_result(m->sum, 0), with_shape_of(&b, op_result(product, 0), op_result(m->sum, 0)));
}

bool epilogues_run(Ir *ir, bool enabled) {
  const char *target = op_string(ir_arena(ir), ir_top(ir), "pp.target");
  if (!enabled || !target || strcmp(target, "cuda") != 0) return true;
  Epilogues e = {.ir = ir, .tmp = arena_create()};
  Op microbatch = func_find(ir, ir_top(ir), "microbatch");
  OpVec ops = block_ops(e.tmp, func_body(microbatch));
  for (int i = 0; i < ops.n; i++) ptrmap_put(e.tmp, &e.place, ops.at[i].ptr, (void *)(intptr_t)(i + 1));
  find_gelus(&e, ops);
  OpVec products = ir_ops(e.tmp, microbatch, OP_MATMUL);
  for (int i = 0; i < products.n; i++) {
    Biased m;
    if (match_bias(&e, products.at[i], &m)) rewrite(&e, &m);
  }
  simplify_dead_ops(ir, microbatch);
  arena_destroy(e.tmp);
  return true;
}
