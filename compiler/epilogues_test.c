/* Tests of compiler/epilogues.c: which products take a bias and gelu, on nets built for a case; what they compute, by the
 * interpreter against the same net without; and that split's tasks of them still give the bits of the whole step. */
#include "compiler/job_test.h"

enum { ROWS = 4, WIDTH = 8 };

static Type wide(Fixture *f) { return shape(f, PP_F32, 2, ROWS, WIDTH); }

static Value product(Fixture *f, const char *name, Value x) {
  return ir_matmul(&f->b, x, param(f, name, shape(f, PP_F32, 2, WIDTH, WIDTH)), false, false);
}

static Value add_row(Fixture *f, const char *name, Value x) {
  Value row = param(f, name, shape(f, PP_F32, 1, (int)type_dim(value_type(x), type_rank(value_type(x)) - 1)));
  return map2(f, OP_ADD, x, ir_broadcast(&f->b, row, value_type(x)));
}

static Value dense(Fixture *f, const char *name, Value x) {
  return add_row(f, arena_printf(f->arena, "%s.b", name), product(f, name, x));
}

static Value scaled(Fixture *f, double c, Value x) { return map2(f, OP_MUL, splat(f, x, c), x); }

/* As nn.pp has it, `cube` being 0.044715. */
static Value gelu_of(Fixture *f, Value x, double cube) {
  Value inner = map2(f, OP_ADD, x, map2(f, OP_MUL, map2(f, OP_MUL, scaled(f, cube, x), x), x));
  Value t = map1(f, OP_TANH, scaled(f, 0.7978845608028654, inner));
  return map2(f, OP_MUL, scaled(f, 0.5, x), map2(f, OP_ADD, splat(f, t, 1), t));
}

static Value gelu(Fixture *f, Value x) { return gelu_of(f, x, 0.044715); }

static Fixture start_net(int n_stages) { return fixture_start(n_stages, 2, PP_F32); }

/* Up to the pass's input. */
static void end_net(Fixture *f, Value x) {
  finish_loss(f, sum_all(f, map2(f, OP_MUL, x, x)), (Value){NULL});
  sgd(f, 0.125, false);
  CHECK(autodiff_run(f->ir) && stages_run(f->ir) && ir_verify(f->ir));
}

static bool run_pass(Fixture *f) {
  op_set_string(f->ir, ir_top(f->ir), "pp.target", "cuda");
  return epilogues_run(f->ir, true) && ir_verify(f->ir);
}

static int count(Fixture *f, const char *epilogue) {
  OpVec all = ir_ops(f->arena, ir_top(f->ir), OP_MATMUL);
  int n = 0;
  for (int i = 0; i < all.n; i++) {
    const char *has = op_string(f->arena, all.at[i], "epilogue");
    n += has && strcmp(has, epilogue) == 0;
  }
  return n;
}

/* Largest difference of a parameter after a step. */
static double difference(const Machine *a, const Machine *b) {
  double worst = 0;
  for (int i = 0; i < a->params.n; i++) {
    const Tensor *x = a->params.entries[i].value, *y = map_get(&b->params, a->params.entries[i].key);
    for (int64_t k = 0; k < x->n; k++) worst = fmax(worst, fabs(x->at[k] - y->at[k]) / (1 + fabs(x->at[k])));
  }
  return worst;
}

/* A net with these epilogues: `tolerance` from the one without; tasks and halves to the bit. */
static void check_net(Fixture *f, Value x, int n_bias, int n_aux, double tolerance) {
  end_net(f, x);
  Machine *without = run_whole(f, 1, noisy_machine);
  CHECK(run_pass(f) && count(f, "bias") == n_bias && count(f, "gelu_aux") == n_aux && count(f, "gelu") == 0);
  Machine *with = run_whole(f, 1, noisy_machine);
  double d = difference(without, with);
  CHECK(d <= tolerance);
  CHECK(split_run(f->ir) && ir_verify(f->ir));
  for (int halves = 0; halves < 2; halves++) {
    Job j = job_start(f, noisy_machine);
    run_job_step(&j, halves);
    CHECK(compare(f, with, &j));
  }
  CHECK(diag_error_count(f->diag) == 0);
  fixture_end(f);
}

/* The same bits, transposed operands and reshapes too. */
static void test_bias(void) {
  Fixture f = start_net(2);
  Value x = map1(&f, OP_TANH, dense(&f, "a", data(&f, "x", wide(&f))));
  f.b.stage = 1;
  Value w = param(&f, "w", shape(&f, PP_F32, 2, WIDTH, WIDTH));
  Value y = ir_reshape(&f.b, ir_matmul(&f.b, x, w, false, true), 3, (int64_t[]){2, ROWS / 2, WIDTH});
  check_net(&f, map1(&f, OP_SIN, add_row(&f, "w.b", y)), 2, 0, 0);
}

static void test_gelu(void) {
  Fixture f = start_net(1);
  Value x = gelu(&f, dense(&f, "a", data(&f, "x", wide(&f))));
  Value y = ir_reshape(&f.b, product(&f, "v", gelu(&f, dense(&f, "w", x))), 3, (int64_t[]){2, ROWS / 2, WIDTH});
  check_net(&f, y, 0, 2, 1e-6);
}

/* What the backward pass needs crosses as the sum alone. */
static void test_stash(void) {
  Fixture f = start_net(1);
  Value x = gelu(&f, dense(&f, "a", data(&f, "x", wide(&f))));
  end_net(&f, product(&f, "v", x));
  CHECK(run_pass(&f));
  OpVec gradients = ir_ops(f.arena, ir_top(f.ir), OP_MATMUL_ACCUMULATE);
  Op y = value_owner(op_operand(gradients.at[0], 0)); /* gelu again, for v alone */
  CHECK(op_id(y) == OP_MUL && op_unit(y, "pp.backward") && op_unit(y, "pp.weight_half"));
  CHECK(split_run(f.ir));
  Op fwd = func_find(f.ir, find_module(&f, 0), "fwd");
  CHECK(ir_ops(f.arena, fwd, OP_TANH).n == 0);
  CHECK(ir_ops(f.arena, func_find(f.ir, find_module(&f, 0), "bwd"), OP_TANH).n == 1);
  OpVec made = ir_ops(f.arena, fwd, OP_MATMUL);
  int stashed = 0;
  for (int i = 0; i < op_n_operands(func_return_op(fwd)); i++) {
    Value v = op_operand(func_return_op(fwd), i);
    stashed += value_owner(v).ptr == made.at[0].ptr;
    CHECK(value_owner(v).ptr != made.at[0].ptr || value_index(v) == 1);
  }
  CHECK(made.n == 2 && stashed == 1);
  fixture_end(&f);
}

/* A cut behind gelu: the next stage takes the library's result, for its backward pass too. Between: no gelu. */
static void test_cuts(void) {
  for (int cut = 0; cut < 3; cut++) {
    Fixture f = start_net(2);
    Value x = product(&f, "w", data(&f, "x", wide(&f)));
    if (cut == 0) f.b.stage = 1;
    x = add_row(&f, "w.b", x);
    if (cut == 1) f.b.stage = 1;
    x = gelu(&f, x);
    f.b.stage = 1;
    check_net(&f, product(&f, "v", x), cut == 1, cut == 2, cut == 2 ? 1e-6 : 0);
  }
}

/* What isn't one of the patterns stays as it is. */
static void test_others(void) {
  Fixture f = start_net(1);
  Value x = data(&f, "x", wide(&f)), y = product(&f, "used_twice", x);
  x = map2(&f, OP_MUL, add_row(&f, "a", y), y);
  x = map2(&f, OP_ADD, product(&f, "residual", x), x);
  Value column = param(&f, "column", shape(&f, PP_F32, 2, ROWS, 1));
  x = map2(&f, OP_ADD, product(&f, "by_columns", x), ir_broadcast(&f.b, column, wide(&f)));
  Type tall = shape(&f, PP_F32, 2, WIDTH, ROWS);
  Value y_tall = ir_reshape(&f.b, product(&f, "reshaped", x), 2, (int64_t[]){WIDTH, ROWS});
  y_tall = map2(&f, OP_ADD, y_tall, ir_broadcast(&f.b, param(&f, "as_long", shape(&f, PP_F32, 2, WIDTH, 1)), tall));
  x = ir_reshape(&f.b, y_tall, 2, (int64_t[]){ROWS, WIDTH});
  x = ir_slice(&f.b, dense(&f, "moved", x), (int64_t[]){0, 0}, (int64_t[]){ROWS, WIDTH / 2});
  check_net(&f, x, 0, 0, 0);
}

/* Another constant, rows that are no multiple of 8, and tanh that the forward pass uses, too: the bias only. */
static void test_almost_gelu(void) {
  Fixture f = start_net(1);
  Value x = gelu_of(&f, dense(&f, "a", data(&f, "x", wide(&f))), 0.045);
  Value narrow = ir_matmul(&f.b, x, param(&f, "narrow", shape(&f, PP_F32, 2, WIDTH, 4)), false, false);
  Value wider = ir_matmul(&f.b, gelu(&f, add_row(&f, "narrow.b", narrow)), param(&f, "wider", shape(&f, PP_F32, 2, 4, WIDTH)), false, false);
  Value y = gelu(&f, add_row(&f, "wider.b", wider));
  OpVec all = ir_ops(f.arena, f.func, OP_TANH);
  check_net(&f, map2(&f, OP_ADD, y, op_result(all.at[all.n - 1], 0)), 3, 0, 0);
}

static void test_switched_off(void) {
  Fixture f = start_net(1);
  end_net(&f, gelu(&f, dense(&f, "a", data(&f, "x", wide(&f)))));
  CHECK(epilogues_run(f.ir, true) && count(&f, "gelu_aux") == 0);
  op_set_string(f.ir, ir_top(f.ir), "pp.target", "cuda");
  CHECK(epilogues_run(f.ir, false) && count(&f, "gelu_aux") == 0);
  fixture_end(&f);
}

/* Nothing but bf16 is made of gelu: a kernel narrows it. */
static void test_narrowed(void) {
  Fixture f = start_net(1);
  Value x = ir_cast(&f.b, gelu(&f, dense(&f, "a", data(&f, "x", wide(&f)))), PP_BF16);
  Value w = ir_cast(&f.b, param(&f, "w", shape(&f, PP_F32, 2, WIDTH, WIDTH)), PP_BF16);
  check_net(&f, ir_matmul(&f.b, x, w, false, false), 1, 0, 0);
}

/* What no parameter stands behind has no backward pass that needs the sum, unless a parameter multiplies gelu. */
static void check_data_only(bool multiplied) {
  Fixture f = start_net(1);
  Value w = data(&f, "w", shape(&f, PP_F32, 2, WIDTH, WIDTH)), b = data(&f, "b", shape(&f, PP_F32, 1, WIDTH));
  Value y = ir_matmul(&f.b, data(&f, "x", wide(&f)), w, false, false);
  y = gelu(&f, map2(&f, OP_ADD, y, ir_broadcast(&f.b, b, wide(&f))));
  end_net(&f, multiplied ? product(&f, "v", y) : map2(&f, OP_ADD, y, param(&f, "v", wide(&f))));
  CHECK(run_pass(&f) && count(&f, "gelu") == !multiplied && count(&f, "gelu_aux") == multiplied);
  fixture_end(&f);
}

static void test_data_only(void) {
  check_data_only(false);
  check_data_only(true);
}

int main(void) {
  TEST(test_bias);
  TEST(test_gelu);
  TEST(test_stash);
  TEST(test_cuts);
  TEST(test_others);
  TEST(test_almost_gelu);
  TEST(test_narrowed);
  TEST(test_data_only);
  TEST(test_switched_off);
  return test_end();
}
