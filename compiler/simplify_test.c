/* Tests of compiler/simplify.c: small @loss functions are built by hand, simplified, and what is left
 * is counted. `bench N` times a function of N ops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compiler/base/test.h"
#include "compiler/compiler.h"
#include "compiler/interpret.h"

typedef struct {
  Arena *arena;
  Diag *diag;
  Ir *ir;
  Op func;
  Builder b;
  Value x, w;  /* f32[4, 8]: an argument; a parameter */
  Type t;
} Fixture;

static Fixture start(const char *name) {
  Fixture f = {.arena = arena_create(), .diag = diag_create()};
  diag_add_source(f.diag, "m.pp", "text\n");
  f.ir = ir_create(f.arena, f.diag);
  f.t = type_tensor(f.ir, PP_F32, 2, (int64_t[]){4, 8});
  f.b = (Builder){.ir = f.ir, .block = ir_body(f.ir), .loc = {0, 1, 1}, .stage = 0};
  Attr a[] = {{.name = "sym", .kind = ATTR_KIND_STRING, .s = "w"},     {.name = "type", .kind = ATTR_KIND_TYPE, .type = f.t},
              {.name = "init", .kind = ATTR_KIND_STRING, .s = "zeros"}, {.name = "a", .kind = ATTR_KIND_FLOAT},
              {.name = "b", .kind = ATTR_KIND_FLOAT}};
  ir_build(&f.b, OP_PARAMETER, 0, NULL, 0, NULL, 5, a);
  f.func = func_create(f.ir, ir_body(f.ir), (Loc){0, 1, 1}, name);
  f.b.block = func_body(f.func);
  f.x = func_add_arg(f.ir, f.func, f.t, (Loc){0, 1, 1});
  Attr param = {.name = "param", .kind = ATTR_KIND_STRING, .s = "w"};
  f.w = op_result(ir_build(&f.b, OP_PARAM, 0, NULL, 1, &f.t, 1, &param), 0);
  return f;
}

/* Returns the values, simplifies, verifies. */
static void finish(Fixture *f, int n, const Value *v) {
  func_return(f->ir, f->func, (Loc){0, 1, 1}, n, v);
  CHECK(simplify_run(f->ir));
  CHECK(ir_verify(f->ir));
  diag_flush(f->diag);
}

static void end(Fixture *f) {
  ir_destroy(f->ir);
  diag_destroy(f->diag);
  arena_destroy(f->arena);
}

static int count(Fixture *f) { return block_ops(f->arena, func_body(f->func)).n - 1; }
static int count_of(Fixture *f, OpId id) { return ir_ops(f->arena, f->func, id).n; }
static Value returned(Fixture *f, int i) { return op_operand(func_return_op(f->func), i); }
static Value constant(Fixture *f, double v) { return ir_constant(&f->b, f->t, v); }
static Value map2(Fixture *f, OpId id, Value x, Value y) { return ir_map(&f->b, id, 2, (Value[]){x, y}); }

static void test_identities(void) {
  Fixture f = start("loss");
  Value v = map2(&f, OP_MUL, f.x, constant(&f, 1));
  v = map2(&f, OP_ADD, constant(&f, -0.0), v);
  v = map2(&f, OP_SUB, v, constant(&f, 0.0));
  v = map2(&f, OP_DIV, v, constant(&f, 1));
  v = ir_permute(&f.b, v, (int64_t[]){0, 1});
  v = ir_map(&f.b, OP_NEG, 1, (Value[]){ir_map(&f.b, OP_NEG, 1, &v)});
  v = ir_pad(&f.b, v, (int64_t[]){0, 0}, (int64_t[]){0, 0});
  v = ir_slice(&f.b, v, (int64_t[]){0, 0}, (int64_t[]){4, 8});
  v = ir_concat(&f.b, 1, &v, 0);
  v = ir_cast(&f.b, ir_cast(&f.b, v, PP_F64), PP_F32);
  v = ir_reshape(&f.b, ir_reshape(&f.b, v, 1, (int64_t[]){32}), 2, (int64_t[]){4, 8});
  v = ir_transpose(&f.b, ir_transpose(&f.b, v));
  finish(&f, 1, &v);
  CHECK(count(&f) == 0 && value_equal(returned(&f, 0), f.x));
  end(&f);
}

static void test_keeps_bits(void) {
  Fixture f = start("loss");
  Value v[] = {map2(&f, OP_ADD, f.x, constant(&f, 0.0)),  /* -0.0 would change */
               map2(&f, OP_SUB, f.x, constant(&f, -0.0)),
               map2(&f, OP_MUL, f.x, constant(&f, 0.0)),
               ir_cast(&f.b, ir_cast(&f.b, ir_cast(&f.b, f.x, PP_I32), PP_F32), PP_I32)};
  finish(&f, 4, v);
  CHECK(count_of(&f, OP_ADD) == 1 && count_of(&f, OP_SUB) == 1 && count_of(&f, OP_MUL) == 1);
  CHECK(count_of(&f, OP_CAST) == 3);
  end(&f);
}

static void test_constants(void) {
  Fixture f = start("loss");
  Value scalar = ir_constant(&f.b, type_scalar(f.ir, PP_F32), 0.1);
  Value wide = ir_broadcast(&f.b, scalar, f.t);
  Value third = map2(&f, OP_DIV, constant(&f, 1), constant(&f, 3));
  Type i32 = type_scalar(f.ir, PP_I32);
  Value seven = ir_constant_int(&f.b, i32, -7), two = ir_constant_int(&f.b, i32, 2);
  Value v[7] = {map2(&f, OP_ADD, wide, third),
               ir_map(&f.b, OP_DIV, 2, (Value[]){seven, two}),
               ir_compare(&f.b, "ge", third, wide),
               ir_map(&f.b, OP_EXP, 1, &wide),
               ir_map(&f.b, OP_DIV, 2, (Value[]){seven, ir_constant_int(&f.b, i32, 0)}),
               ir_map(&f.b, OP_SELECT, 3, (Value[]){ir_compare(&f.b, "lt", third, wide), wide, f.x})};
  v[6] = ir_map(&f.b, OP_SUB, 2, (Value[]){two, seven});
  finish(&f, 7, v);
  CHECK(op_int(value_owner(returned(&f, 6)), "value", 0) == 9);
  CHECK(op_float(value_owner(returned(&f, 0)), "value", 0) == (double)(0.1f + 1.0f / 3.0f));
  CHECK(op_int(value_owner(returned(&f, 1)), "value", 0) == -4);
  CHECK(op_int(value_owner(returned(&f, 2)), "value", 0) == 1);
  CHECK(op_id(value_owner(returned(&f, 3))) == OP_EXP && op_id(value_owner(returned(&f, 4))) == OP_DIV);
  CHECK(value_equal(returned(&f, 5), f.x));
  end(&f);
}

static void test_merging(void) {
  Fixture f = start("loss");
  Value c1 = constant(&f, 2), c2 = constant(&f, 2);
  Value v[6] = {map2(&f, OP_ADD, f.x, c1), map2(&f, OP_ADD, c2, f.x), map2(&f, OP_ADD, f.w, c1), map2(&f, OP_ADD, f.w, c2)};
  f.b.stage = 1;
  v[4] = map2(&f, OP_ADD, f.x, c1);
  v[5] = map2(&f, OP_SUB, c1, f.x);
  finish(&f, 6, v);
  CHECK(value_equal(returned(&f, 0), returned(&f, 1)));  /* commutative, no parameter */
  CHECK(!value_equal(returned(&f, 2), returned(&f, 3))); /* an adjoint would tell */
  CHECK(!value_equal(returned(&f, 0), returned(&f, 4))); /* another stage */
  CHECK(count_of(&f, OP_CONSTANT) == 1);
  end(&f);
}

static void test_merging_elsewhere(void) {
  Fixture f = start("update.w");
  Value v[] = {map2(&f, OP_ADD, f.w, f.x), map2(&f, OP_ADD, f.w, f.x)};
  finish(&f, 2, v);
  CHECK(count_of(&f, OP_ADD) == 1);
  end(&f);
}

static void test_transposes(void) {
  Fixture f = start("loss");
  Value wt = ir_transpose(&f.b, f.w);
  Value v[] = {ir_matmul(&f.b, f.x, wt, false, false), ir_matmul(&f.b, f.x, wt, true, true),
               ir_matmul(&f.b, wt, f.x, false, false)};
  finish(&f, 3, v);
  Op a = value_owner(returned(&f, 0)), b = value_owner(returned(&f, 1)), c = value_owner(returned(&f, 2));
  CHECK(op_unit(a, "tb") && !op_unit(a, "ta") && value_equal(op_operand(a, 1), f.w));
  CHECK(op_unit(b, "ta") && !op_unit(b, "tb") && op_unit(c, "ta") && count_of(&f, OP_PERMUTE) == 0);
  end(&f);
}

/* Heads: [t, h, d] → [h, t, d] → transposed. The outer permute goes to the product, the inner stays. */
static void test_transposed_heads(void) {
  Fixture f = start("loss");
  Value y = ir_permute(&f.b, ir_reshape(&f.b, f.w, 3, (int64_t[]){4, 2, 4}), (int64_t[]){1, 0, 2});
  Value p = ir_permute(&f.b, ir_permute(&f.b, y, (int64_t[]){2, 0, 1}), (int64_t[]){0, 2, 1});
  Value v[] = {ir_matmul(&f.b, y, ir_transpose(&f.b, y), false, false), p};
  finish(&f, 2, v);
  CHECK(op_unit(value_owner(returned(&f, 0)), "tb"));
  CHECK(count_of(&f, OP_PERMUTE) == 2); /* y, and one for three */
  end(&f);
}

static void test_dead_ops(void) {
  Fixture f = start("loss");
  Value y = map2(&f, OP_MUL, f.w, f.w), sum = ir_reduce(&f.b, OP_REDUCE_SUM, y, 2, (int64_t[]){0, 1});
  map2(&f, OP_ADD, y, y);
  ir_build(&f.b, OP_LOSS, 1, &sum, 0, NULL, 0, NULL);
  finish(&f, 0, NULL);
  CHECK(count(&f) == 4 && count_of(&f, OP_ADD) == 0);
  end(&f);
}

/* --- random functions: the same bits before and after ------------------------------------------------ */

typedef struct {
  uint64_t state;
} Random;

static int pick(Random *r, int n) {
  r->state = r->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((r->state >> 33) % (uint64_t)n);
}

/* Values of f32[4, 8], its transpose, its reshape f32[2, 16] and i32[4, 8] take turns. */
typedef struct {
  Value at[200];
  int n;
} Pool;

static Value any(Random *r, Pool *p) { return p->at[pick(r, p->n)]; }

static Value any_like(Random *r, Pool *p, Type t) {
  int start = pick(r, p->n);
  for (int i = 0; i < p->n; i++) {
    Value v = p->at[(start + i) % p->n];
    if (type_equal(value_type(v), t)) return v;
  }
  return (Value){NULL};
}

static Value random_constant(Fixture *f, Random *r, Type t) {
  static const double reals[] = {0.0, -0.0, 1, -1, 2, 0.1, INFINITY};
  static const int64_t integers[] = {0, 1, -1, 2, -7, INT32_MIN};
  if (type_dtype(t) == PP_BOOL) return ir_constant_int(&f->b, t, pick(r, 2));
  return type_is_real(t) ? ir_constant(&f->b, t, reals[pick(r, 7)]) : ir_constant_int(&f->b, t, integers[pick(r, 6)]);
}

static Value random_map(Fixture *f, Random *r, Pool *p, Value x) {
  static const OpId real[] = {OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MIN, OP_MAX};
  static const OpId logic[] = {OP_AND, OP_OR};
  Type t = value_type(x);
  bool boolean = type_dtype(t) == PP_BOOL;
  OpId id = boolean ? logic[pick(r, 2)] : real[pick(r, type_is_real(t) ? 6 : 3)]; /* i32 division by 0 is undefined */
  Value y = pick(r, 2) ? random_constant(f, r, t) : any_like(r, p, t);
  return ir_map(&f->b, id, 2, pick(r, 2) ? (Value[]){x, y} : (Value[]){y, x});
}

static Value random_move(Fixture *f, Random *r, Value x) {
  int64_t zero[PP_MAX_RANK] = {0}, all[PP_MAX_RANK], same[PP_MAX_RANK];
  Type t = value_type(x);
  for (int i = 0; i < type_rank(t); i++) all[i] = type_dim(t, i), same[i] = i;
  switch (pick(r, 6)) {
    case 0: return ir_reshape(&f->b, x, 2, pick(r, 2) ? (int64_t[]){4, 8} : (int64_t[]){2, 16});
    case 1: return ir_reshape(&f->b, x, 3, (int64_t[]){2, 4, 4});
    case 2: return ir_transpose(&f->b, x);
    case 3: return ir_permute(&f->b, x, type_rank(t) == 3 ? (int64_t[]){1, 0, 2} : same);
    case 4: return ir_slice(&f->b, x, zero, all);
    default: return ir_concat(&f->b, 1, &x, 0);
  }
}

static Value random_step(Fixture *f, Random *r, Pool *p) {
  Value x = any(r, p), y;
  Type t = value_type(x);
  pp_dtype d = type_dtype(t);
  switch (pick(r, 9)) {
    case 0:
    case 1: return random_move(f, r, x);
    case 2: return ir_cast(&f->b, x, pick(r, 2) || d == PP_F32 || d == PP_F64 ? PP_F64 : PP_F32);
    case 3: return ir_cast(&f->b, x, d == PP_F64 || d == PP_BOOL ? PP_F32 : d);
    case 4:
      if (d == PP_BOOL) return ir_map(&f->b, OP_NOT, 1, &x);
      return ir_map(&f->b, OP_NEG, 1, &x);
    case 5: return d == PP_BOOL ? x : ir_compare(&f->b, pick(r, 2) ? "lt" : "ne", x, random_constant(f, r, t));
    case 6: {
      Type b = type_with_dtype(f->ir, t, PP_BOOL);
      y = any_like(r, p, b);
      if (value_is_null(y) || pick(r, 2)) y = random_constant(f, r, b);
      return ir_map(&f->b, OP_SELECT, 3, (Value[]){y, x, any_like(r, p, t)});
    }
    case 7:
      y = any_like(r, p, t);
      if (!type_is_real(t)) return random_map(f, r, p, x);
      return ir_matmul(&f->b, x, ir_transpose(&f->b, y), false, false);
    default: return random_map(f, r, p, x);
  }
}

static void random_function(Fixture *f, Random *r) {
  Pool p = {.at = {f->x, f->w}, .n = 2};
  Value products[20]; /* of other sizes: results only */
  int n_products = 0;
  p.at[p.n++] = func_add_arg(f->ir, f->func, type_tensor(f->ir, PP_I32, 2, (int64_t[]){4, 8}), (Loc){0, 1, 1});
  while (p.n < 60) {
    f->b.stage = p.n / 30;
    Value v = random_step(f, r, &p);
    CHECK(!value_is_null(v));
    if (value_is_null(v)) return;
    if (type_elements(value_type(v)) == 32)
      p.at[p.n++] = v;
    else if (n_products < 20)
      products[n_products++] = v;
  }
  memcpy(p.at + p.n, products, (size_t)n_products * sizeof *products);
  func_return(f->ir, f->func, (Loc){0, 1, 1}, p.n - 20 + n_products, p.at + 20);
}

static void fill(Tensor *t, Random *r) {
  static const double special[] = {0.0, -0.0, 1, -1, 3e38, 1e-45, 0.3, -2.5, NAN, INFINITY};
  for (int64_t i = 0; i < t->n; i++)
    t->at[i] = type_is_real(t->type) ? (float)special[pick(r, 10)] : (double)(pick(r, 9) - 4);
}

static bool same_bits(const Tensor *a, const Tensor *b) {
  if (!type_equal(a->type, b->type)) return false;
  for (int64_t i = 0; i < a->n; i++)
    if (isnan(a->at[i]) ? !isnan(b->at[i]) : memcmp(&a->at[i], &b->at[i], sizeof(double)) != 0) return false;
  return true;
}

static void test_random(void) {
  int erased = 0;
  for (uint64_t seed = 1; seed <= 150 && !test_failures; seed++) {
    Fixture f = start("loss");
    op_set_int(f.ir, ir_top(f.ir), "pp.stages", 2);
    op_set_int(f.ir, ir_top(f.ir), "pp.microbatches", 1);
    Random r = {seed * 77};
    random_function(&f, &r);
    diag_flush(f.diag);
    if (test_failures) return;
    Machine *m = machine_create(f.ir, f.arena);
    Tensor *args[2], *before[64], *after[64];
    for (int i = 0; i < 2; i++) fill(args[i] = tensor_create(f.arena, value_type(func_arg(f.func, i))), &r);
    fill(machine_param(m, "w"), &r);
    CHECK(ir_verify(f.ir));
    interpret_func(m, f.func, 2, args, before);
    int n = count(&f);
    CHECK(simplify_run(f.ir) && ir_verify(f.ir));
    erased += n - count(&f);
    interpret_func(m, f.func, 2, args, after);
    for (int i = 0; i < op_n_operands(func_return_op(f.func)); i++) {
      CHECK(same_bits(before[i], after[i]));
      if (test_failures) printf("seed %d, result %d\n", (int)seed, i);
    }
    diag_flush(f.diag);
    end(&f);
  }
  CHECK(erased > 150 * 10);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* A third of the ops fold, a third merge. */
static void bench(int n) {
  Fixture f = start("loss");
  Value v = f.x;
  for (int i = 0; i < n; i += 3) {
    Value one = constant(&f, 1), y = map2(&f, OP_MUL, v, one);
    v = map2(&f, OP_SUB, map2(&f, i % 2 ? OP_ADD : OP_MAX, y, f.w), f.x);
  }
  func_return(f.ir, f.func, (Loc){0, 1, 1}, 1, &v);
  double t = now();
  CHECK(simplify_run(f.ir));
  printf("simplify of %d ops: %.1f ms, %d left\n", n / 3 * 4, now() - t, count(&f));
  end(&f);
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "bench")) return bench(argc > 2 ? atoi(argv[2]) : 100000), test_failures != 0;
  TEST(test_identities);
  TEST(test_keeps_bits);
  TEST(test_constants);
  TEST(test_merging);
  TEST(test_merging_elsewhere);
  TEST(test_transposes);
  TEST(test_transposed_heads);
  TEST(test_dead_ops);
  TEST(test_random);
  return test_end();
}
