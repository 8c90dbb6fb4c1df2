/* Tests of compiler/simplify.c: small @loss functions are built by hand, simplified, and what is left
 * is counted. `bench N` times a function of N ops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compiler/compiler.h"

static int failed;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      failed++;                                                                     \
      fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
    }                                                                               \
  } while (0)

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
  Value v[] = {map2(&f, OP_ADD, wide, third),
               ir_map(&f.b, OP_DIV, 2, (Value[]){seven, two}),
               ir_compare(&f.b, "ge", third, wide),
               ir_map(&f.b, OP_EXP, 1, &wide),
               ir_map(&f.b, OP_DIV, 2, (Value[]){seven, ir_constant_int(&f.b, i32, 0)}),
               ir_map(&f.b, OP_SELECT, 3, (Value[]){ir_compare(&f.b, "lt", third, wide), wide, f.x})};
  finish(&f, 6, v);
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
  if (argc > 1 && !strcmp(argv[1], "bench")) return bench(argc > 2 ? atoi(argv[2]) : 100000), failed != 0;
  static const struct {
    const char *name;
    void (*run)(void);
  } tests[] = {{"identities", test_identities},
               {"keeps_bits", test_keeps_bits},
               {"constants", test_constants},
               {"merging", test_merging},
               {"merging_elsewhere", test_merging_elsewhere},
               {"transposes", test_transposes},
               {"transposed_heads", test_transposed_heads},
               {"dead_ops", test_dead_ops}};
  int bad = 0;
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    failed = 0;
    tests[i].run();
    printf("%s %s\n", failed ? "FAIL" : "ok", tests[i].name);
    bad += failed != 0;
  }
  return bad != 0;
}
