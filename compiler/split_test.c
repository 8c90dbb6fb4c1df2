/* Tests of compiler/split.c: the tasks of a module, run one by one as ranks would (each stage has its
 * own memory, values go by id), give the same bits as @step before the split. On nets built for a
 * case, and on random ones. */
#include "compiler/job_test.h"

static void check_fixture(Fixture *f) {
  CHECK(check_split(f, noisy_machine));
  CHECK(diag_error_count(f->diag) == 0);
  fixture_end(f);
}

/* --- nets for a case -------------------------------------------------------------------------------- */

static Type square(Fixture *f) { return shape(f, f->real, 2, 4, 4); }

static Value dense(Fixture *f, const char *name, Value x) {
  Value y = ir_matmul(&f->b, x, param(f, name, square(f)), false, false);
  Value row = ir_broadcast(&f->b, param(f, arena_printf(f->arena, "%s.b", name), shape(f, f->real, 1, 4)), square(f));
  return map1(f, OP_TANH, map2(f, OP_ADD, y, row));
}

static Fixture start_net(int n_stages, int n_microbatches) { return fixture_start(n_stages, n_microbatches, PP_F32); }

static void end_net(Fixture *f, Value x) {
  finish_loss(f, sum_all(f, x), (Value){NULL});
  sgd(f, 0.125, true);
  clip(f, 1);
}

static void test_chain(void) {
  for (int n = 1; n <= 4; n++) {
    Fixture f = start_net(n, 3);
    Value x = data(&f, "x", square(&f));
    for (int s = 0; s < n; s++) {
      f.b.stage = s;
      x = dense(&f, arena_printf(f.arena, "w%d", s), dense(&f, arena_printf(f.arena, "v%d", s), x));
    }
    end_net(&f, x);
    check_fixture(&f);
  }
}

/* One weight in three stages, a skip from the first to all later ones, a value that passes through. */
static void test_tied_and_skip(void) {
  Fixture f = start_net(4, 2);
  Value x0 = dense(&f, "w", data(&f, "x", square(&f))), x = x0;
  for (int s = 1; s < 4; s++) {
    f.b.stage = s;
    if (s == 2) continue; /* nothing there but what passes */
    x = map2(&f, OP_ADD, dense(&f, "w", x), x0);
  }
  end_net(&f, x);
  check_fixture(&f);
}

/* Residual blocks with dropout under 1, 2, 4 and 8 stages: the same bits. */
static Machine *train_cut(Fixture *f, int n_stages) {
  Value x = data(f, "x", square(f));
  for (int i = 0; i < 8; i++) {
    f->b.stage = i * n_stages / 8;
    Attr key = {.name = "key", .kind = ATTR_KIND_INT, .i = i};
    Type t = square(f);
    Value u = op_result(ir_build(&f->b, OP_RANDOM, 0, NULL, 1, &t, 1, &key), 0);
    Value y = dense(f, arena_printf(f->arena, "w%d", i), x);
    y = map2(f, OP_ADD, dense(f, arena_printf(f->arena, "v%d", i), y), map2(f, OP_MUL, x, y));
    x = map2(f, OP_ADD, x, map2(f, OP_MUL, y, u));
  }
  end_net(f, x);
  CHECK(check_split(f, noisy_machine));
  Job j = job_start(f, noisy_machine);
  for (int i = 0; i < 3; i++) run_job_step(&j, i % 2);
  for (int i = 0; i < 8; i++) { /* gather all in the first machine */
    Machine *m = j.machines[i * n_stages / 8];
    const char *names[] = {"w", "v"};
    for (int k = 0; k < 2; k++) {
      const char *name = arena_printf(f->arena, "%s%d", names[k], i);
      map_put(f->arena, &j.machines[0]->params, name, machine_param(m, name));
    }
  }
  return j.machines[0];
}

static void test_cuts(void) {
  Fixture one = start_net(1, 3);
  Machine *wanted = train_cut(&one, 1);
  for (int n = 2; n <= 8; n *= 2) {
    Fixture f = start_net(n, 3);
    Machine *got = train_cut(&f, n);
    for (int i = 0; i < 8; i++) {
      const char *name = arena_printf(f.arena, "w%d", i);
      CHECK(same_bits(machine_param(wanted, name), machine_param(got, name)));
      CHECK(isfinite(machine_param(got, name)->at[0]));
    }
    fixture_end(&f);
  }
  fixture_end(&one);
}

/* Integers and masks cross forward only. */
static void test_integers(void) {
  Fixture f = start_net(3, 2);
  Value index = map2(&f, OP_ADD, data(&f, "i", shape(&f, PP_I32, 1, 4)), ir_constant_int(&f.b, shape(&f, PP_I32, 1, 4), 1));
  index = map2(&f, OP_MIN, index, ir_constant_int(&f.b, shape(&f, PP_I32, 1, 4), 3));
  Value mask = ir_compare(&f.b, "gt", data(&f, "m", square(&f)), ir_constant(&f.b, square(&f), 0));
  Value x = op_result(ir_build(&f.b, OP_GATHER, 2, (Value[]){param(&f, "e", square(&f)), index}, 0, NULL, 0, NULL), 0);
  for (int s = 0; s < 3; s++) {
    f.b.stage = s;
    x = dense(&f, arena_printf(f.arena, "w%d", s), x);
    x = ir_map(&f.b, OP_SELECT, 3, (Value[]){mask, x, splat(&f, x, 0)});
    Value e = op_result(ir_build(&f.b, OP_GATHER, 2, (Value[]){param(&f, "e", square(&f)), index}, 0, NULL, 0, NULL), 0);
    x = map2(&f, OP_ADD, x, e);
  }
  end_net(&f, x);
  CHECK(check_split(&f, noisy_machine));
  for (int s = 0; s < 3; s++) {
    Op bwd = func_find(f.ir, find_module(&f, s), "bwd");
    Op ret = func_return_op(bwd);
    for (int i = 0; i < op_n_operands(ret); i++) CHECK(type_is_real(value_type(op_operand(ret, i))));
  }
  fixture_end(&f);
}

/* The first stage has neither parameter nor op with an adjoint; the last has an output and no loss. */
static void test_idle_stages(void) {
  Fixture f = start_net(5, 2);
  Value x = map1(&f, OP_EXP, data(&f, "x", square(&f)));
  f.b.stage = 2;
  x = dense(&f, "w", x);
  f.b.stage = 3;
  Value loss = sum_all(&f, dense(&f, "v", x));
  f.b.stage = 4;
  Attr attrs[] = {{.name = "output", .kind = ATTR_KIND_STRING, .s = "y"}, {.name = "kind", .kind = ATTR_KIND_STRING, .s = "concat"}};
  Value y = map1(&f, OP_NEG, x);
  ir_build(&f.b, OP_OUTPUT, 1, &y, 0, NULL, 2, attrs);
  f.b.stage = 3;
  finish_loss(&f, loss, (Value){NULL});
  sgd(&f, 0.5, false);
  CHECK(check_split(&f, noisy_machine));
  CHECK(!op_is_null(func_find(f.ir, find_module(&f, 3), "decide")));
  CHECK(op_is_null(func_find(f.ir, find_module(&f, 4), "decide")));
  CHECK(func_n_args(func_find(f.ir, find_module(&f, 3), "decide")) == 3); /* norms of stages 2 and 3, the output */
  for (int s = 0; s < 5; s++) {
    CHECK(!op_is_null(func_find(f.ir, find_module(&f, s), "fwd")));
    CHECK(!op_is_null(func_find(f.ir, find_module(&f, s), "bwd")));
    CHECK(!op_is_null(func_find(f.ir, find_module(&f, s), "update")));
  }
  fixture_end(&f);
}

/* What a layer norm leaves for its backward: one matrix and one column, not every intermediate. */
static void test_few_stashes(void) {
  Fixture f = start_net(2, 1);
  f.b.stage = 1;
  Value x = dense(&f, "w", data(&f, "x", square(&f)));
  Type t = square(&f);
  int64_t column[] = {4, 1}, last[] = {1};
  Value mean = ir_reshape(&f.b, ir_reduce(&f.b, OP_REDUCE_SUM, x, 1, last), 2, column);
  Value c = map2(&f, OP_SUB, x, ir_broadcast(&f.b, map2(&f, OP_MUL, mean, splat(&f, mean, 0.25)), t));
  Value var = ir_reshape(&f.b, ir_reduce(&f.b, OP_REDUCE_SUM, map2(&f, OP_MUL, c, c), 1, last), 2, column);
  Value r = map1(&f, OP_RSQRT, map2(&f, OP_ADD, var, splat(&f, var, 1e-3)));
  Value y = map2(&f, OP_MUL, c, ir_broadcast(&f.b, r, t));
  y = map2(&f, OP_ADD, map2(&f, OP_MUL, y, ir_broadcast(&f.b, param(&f, "g", shape(&f, PP_F32, 1, 4)), t)), splat(&f, y, 1));
  end_net(&f, ir_matmul(&f.b, y, param(&f, "v", t), false, false));
  CHECK(check_split(&f, noisy_machine));
  Op fwd = func_find(f.ir, find_module(&f, 1), "fwd"), ret = func_return_op(fwd);
  int64_t bytes = 0;
  for (int i = 0; i < op_n_operands(ret); i++) bytes += type_bytes(value_type(op_operand(ret, i)));
  CHECK(bytes <= 3 * 64 + 16); /* data x, tanh's result, the centred matrix; the variance */
  fixture_end(&f);
}

/* --- random nets ---------------------------------------------------------------------------------------- */

typedef struct {
  Fixture f;
  uint64_t state;
  VEC(Value) pool, masks, indices; /* f32[4, 4]; bool[4, 4]; i32[4] */
} Random;

static int pick(Random *r, int n) {
  r->state = r->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((r->state >> 33) % (uint64_t)n);
}

/* The newest values more often. */
static Value any(Random *r) {
  int n = r->pool.n, back = pick(r, 3) ? pick(r, n < 3 ? n : 3) : pick(r, n);
  return r->pool.at[n - 1 - back];
}

static Value weight(Random *r) {
  return param(&r->f, arena_printf(r->f.arena, "w%d", pick(r, 4)), square(&r->f));
}

static Value over_columns(Random *r, Value x) {
  Fixture *f = &r->f;
  Value sum = ir_reduce(&f->b, pick(r, 2) ? OP_REDUCE_SUM : OP_REDUCE_MAX, x, 1, (int64_t[]){1});
  return map2(f, OP_SUB, x, ir_broadcast(&f->b, ir_reshape(&f->b, sum, 2, (int64_t[]){4, 1}), square(f)));
}

static Value cut_and_join(Random *r, Value x) {
  Fixture *f = &r->f;
  Value top = ir_slice(&f->b, x, (int64_t[]){0, 0}, (int64_t[]){1, 4});
  Value rest = ir_slice(&f->b, x, (int64_t[]){1, 0}, (int64_t[]){4, 4});
  return ir_concat(&f->b, 2, (Value[]){rest, top}, 0);
}

static Value dropout(Random *r, Value x) {
  Fixture *f = &r->f;
  Type t = square(f);
  Attr key = {.name = "key", .kind = ATTR_KIND_INT, .i = r->pool.n};
  Value u = op_result(ir_build(&f->b, OP_RANDOM, 0, NULL, 1, &t, 1, &key), 0);
  Value keep = ir_compare(&f->b, "lt", u, splat(f, u, 0.5));
  return ir_map(&f->b, OP_SELECT, 3, (Value[]){keep, map2(f, OP_MUL, x, splat(f, x, 2)), splat(f, x, 0)});
}

static Value rows_of(Random *r) {
  Fixture *f = &r->f;
  Value index = r->indices.at[pick(r, r->indices.n)];
  return op_result(ir_build(&f->b, OP_GATHER, 2, (Value[]){weight(r), index}, 0, NULL, 0, NULL), 0);
}

static Value random_op(Random *r) {
  Fixture *f = &r->f;
  Value x = any(r), y = any(r);
  switch (pick(r, 14)) {
    case 0: return map2(f, OP_ADD, x, y);
    case 1: return map2(f, OP_MUL, x, y);
    case 2: return map1(f, OP_TANH, x);
    case 3: return ir_matmul(&f->b, x, weight(r), pick(r, 2), pick(r, 2));
    case 4: return ir_matmul(&f->b, weight(r), x, pick(r, 2), pick(r, 2));
    case 5: return ir_matmul(&f->b, x, y, pick(r, 2), pick(r, 2));
    case 6: return rows_of(r);
    case 7: return ir_permute(&f->b, x, (int64_t[]){1, 0});
    case 8: return over_columns(r, x);
    case 9: return cut_and_join(r, x);
    case 10: return dropout(r, x);
    case 11: return map2(f, OP_SUB, x, weight(r));
    case 12: return ir_map(&f->b, OP_SELECT, 3, (Value[]){r->masks.at[pick(r, r->masks.n)], x, y});
    default: return map2(f, OP_MUL, weight(r), weight(r));
  }
}

/* Bounded, and sometimes seen through another shape. */
static Value settle(Random *r, Value x) {
  Fixture *f = &r->f;
  if (pick(r, 3) == 0) x = ir_reshape(&f->b, ir_reshape(&f->b, x, 1, (int64_t[]){16}), 2, (int64_t[]){4, 4});
  return pick(r, 2) ? map1(f, OP_TANH, x) : x;
}

static void add_side_values(Random *r) {
  Fixture *f = &r->f;
  Arena *arena = f->arena;
  Type i = shape(f, PP_I32, 1, 4);
  if (pick(r, 4) == 0) VEC_PUSH(arena, &r->masks, ir_compare(&f->b, "gt", any(r), any(r)));
  if (pick(r, 4) == 0)
    VEC_PUSH(arena, &r->indices, map2(f, OP_MAX, r->indices.at[0], ir_constant_int(&f->b, i, pick(r, 4))));
}

static void build_random(Random *r, int n_stages) {
  Fixture *f = &r->f;
  VEC_PUSH(f->arena, &r->pool, data(f, "x", square(f)));
  VEC_PUSH(f->arena, &r->masks, data(f, "m", shape(f, PP_BOOL, 2, 4, 4)));
  VEC_PUSH(f->arena, &r->indices, data(f, "i", shape(f, PP_I32, 1, 4)));
  VEC_PUSH(f->arena, &r->pool, map1(f, OP_TANH, weight(r)));
  for (int s = 0; s < n_stages; s++) {
    f->b.stage = s;
    for (int i = pick(r, 7); i > 0; i--) {
      add_side_values(r);
      VEC_PUSH(f->arena, &r->pool, settle(r, random_op(r)));
    }
  }
  Value x = map1(f, OP_TANH, VEC_LAST(&r->pool));
  for (int i = 0; i < 2; i++) x = map2(f, OP_ADD, x, map1(f, OP_TANH, any(r)));
  end_net(f, x);
}

/* Bytes that the weight half of the middle stage of three takes from the tasks before it. */
static int64_t weight_bytes(Value (*middle)(Fixture *, Value)) {
  Fixture f = start_net(3, 2);
  Value x = dense(&f, "first", data(&f, "x", square(&f)));
  f.b.stage = 1;
  x = middle(&f, x);
  f.b.stage = 2;
  end_net(&f, dense(&f, "last", x));
  CHECK(check_split(&f, noisy_machine));
  Op weights = func_find(f.ir, find_module(&f, 1), "bwd_weight");
  int64_t bytes = 0;
  for (int i = 0; i < func_n_args(weights); i++) bytes += type_bytes(value_type(func_arg(weights, i)));
  fixture_end(&f);
  return bytes;
}

static Value product(Fixture *f, Value x) { return ir_matmul(&f->b, x, param(f, "w", square(f)), false, false); }

/* What is multiplied is made from two stashes: the weight half keeps it instead of both. */
static Value gated(Fixture *f, Value x) { return product(f, map2(f, OP_MUL, x, map1(f, OP_TANH, x))); }

/* What is multiplied twice, and scaled before: one stash does for both. */
static Value twice(Fixture *f, Value x) {
  Value t = map1(f, OP_TANH, x), u = map2(f, OP_MUL, t, splat(f, t, 0.5));
  Value other = ir_matmul(&f->b, u, param(f, "v", square(f)), false, false);
  return map2(f, OP_ADD, product(f, t), other);
}

/* Sums over rows are small: bwd_input makes them. */
static Value scaled(Fixture *f, Value x) {
  Type row = shape(f, f->real, 1, 4);
  Value g = ir_broadcast(&f->b, param(f, "g", row), square(f)), b = ir_broadcast(&f->b, param(f, "b", row), square(f));
  return map2(f, OP_ADD, map2(f, OP_MUL, x, g), b);
}

/* But not when the weight half has the operand for a product anyway. */
static Value biased(Fixture *f, Value x) {
  Value b = ir_broadcast(&f->b, param(f, "b", shape(f, f->real, 1, 4)), square(f));
  return map2(f, OP_ADD, product(f, x), b);
}

static void the_halves_share_few_bytes(void) {
  CHECK(weight_bytes(gated) == 2 * 64);
  CHECK(weight_bytes(twice) == 2 * 64);
  CHECK(weight_bytes(scaled) == 2 * 16);
  CHECK(weight_bytes(biased) == 2 * 64);
}

static void test_random(void) {
  int n = 0;
  for (uint64_t seed = 1; seed <= 300 && n < 5; seed++) {
    Random r = {.state = seed};
    int n_stages = 1 + pick(&r, 6);
    r.f = start_net(n_stages, 1 + pick(&r, 3));
    build_random(&r, n_stages);
    bool ok = check_split(&r.f, noisy_machine);
    CHECK(ok);
    if (!ok) {
      printf("  random net %d\n", (int)seed);
      n++;
    }
    fixture_end(&r.f);
  }
}

int main(void) {
  TEST(test_chain);
  TEST(test_tied_and_skip);
  TEST(test_cuts);
  TEST(test_integers);
  TEST(test_idle_stages);
  TEST(test_few_stashes);
  TEST(the_halves_share_few_bytes);
  TEST(test_random);
  return test_end();
}
