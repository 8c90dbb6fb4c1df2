/* Tests of compiler/stages.c and update.c: where ops and parameters end up, and a whole step in the
 * interpreter with the numbers of cases from the field. */
#include "compiler/pass_test.h"

static bool lower(Fixture *f) {
  bool ok = autodiff_run(f->ir) && stages_run(f->ir) && ir_verify(f->ir);
  diag_flush(f->diag);
  return ok;
}

static Op parameter(Fixture *f, const char *name) { return ir_parameter(f->ir, name); }

static const char *stage_list(Fixture *f, const char *name, const char *attr) {
  int64_t n;
  const int64_t *stages = op_ints(f->arena, parameter(f, name), attr, &n);
  const char *text = "";
  for (int64_t i = 0; i < n; i++) text = arena_printf(f->arena, "%s%s%d", text, i ? " " : "", (int)stages[i]);
  return text;
}

static void run_step(Fixture *f, Machine *m) {
  machine_start_step(m);
  interpret_func(m, func_find(f->ir, ir_top(f->ir), "step"), 0, NULL, NULL);
  m->step++;
}

/* --- where things are ------------------------------------------------------------------------ */

/* Constants, data and a mask from random numbers are copied to their users, in stages that ascend. */
static void test_copies(void) {
  Fixture f = fixture_start(3, 1, PP_F32);
  Type t = shape(&f, PP_F32, 2, 2, 2);
  Value w = param(&f, "w", t), x = data(&f, "x", t), two = splat(&f, w, 2);
  Attr key = {.name = "key", .kind = ATTR_KIND_INT, .i = 5};
  Value noise_value = op_result(ir_build(&f.b, OP_RANDOM, 0, NULL, 1, &t, 1, &key), 0);
  Value mask = map2(&f, OP_MUL, noise_value, two);
  Value y = map2(&f, OP_MUL, map2(&f, OP_MUL, w, x), mask);
  for (f.b.stage = 1; f.b.stage < 3; f.b.stage++) y = map2(&f, OP_MUL, map2(&f, OP_ADD, y, x), mask);
  f.b.stage = 2;
  finish_loss(&f, sum_all(&f, y), (Value){NULL});
  sgd(&f, 1, false);
  CHECK(lower(&f));
  Op microbatch = func_find(f.ir, ir_top(f.ir), "microbatch");
  CHECK(ir_ops(f.arena, microbatch, OP_DATA).n == 3);
  CHECK(ir_ops(f.arena, microbatch, OP_RANDOM).n == 3);
  CHECK(ir_ops(f.arena, microbatch, OP_PARAM).n == 1);
  OpVec ops = block_ops(f.arena, func_body(microbatch));
  for (int i = 0; i < ops.n; i++)
    for (int k = 0; k < op_n_operands(ops.at[i]); k++) {
      Op from = value_owner(op_operand(ops.at[i], k));
      OpId id = op_id(from);
      if (id == OP_DATA || id == OP_RANDOM || id == OP_CONSTANT) CHECK(op_stage(from) == op_stage(ops.at[i]));
    }
  fixture_end(&f);
}

/* Unused, used without a gradient, tied, and owned by a stage that only reads it. */
static void test_parameters(void) {
  Fixture f = fixture_start(3, 1, PP_F32);
  Type t = shape(&f, PP_F32, 2, 2, 2);
  param(&f, "unused", t);
  Value frozen = param(&f, "frozen", t), tied = param(&f, "tied", t);
  Value flat = ir_compare(&f.b, "gt", frozen, splat(&f, frozen, 0));
  Value y = ir_map(&f.b, OP_SELECT, 3, (Value[]){flat, tied, data(&f, "x", t)});
  Value c = ir_compare(&f.b, "gt", param(&f, "late", t), splat(&f, frozen, 0));
  y = ir_map(&f.b, OP_SELECT, 3, (Value[]){c, y, splat(&f, y, 0)});
  f.b.stage = 1;
  y = map2(&f, OP_MUL, y, param(&f, "late", t));
  f.b.stage = 2;
  y = ir_matmul(&f.b, y, param(&f, "tied", t), false, true);
  finish_loss(&f, sum_all(&f, y), (Value){NULL});
  sgd(&f, 1, false);
  CHECK(lower(&f));
  CHECK(diag_warning_count(f.diag) == 2);
  CHECK_TEXT(stage_list(&f, "unused", "stages"), "");
  CHECK_TEXT(stage_list(&f, "frozen", "stages"), "0");
  CHECK_TEXT(stage_list(&f, "frozen", "accumulators"), "");
  CHECK_TEXT(stage_list(&f, "tied", "stages"), "0 2");
  CHECK_TEXT(stage_list(&f, "tied", "accumulators"), "0 2");
  CHECK_TEXT(stage_list(&f, "late", "stages"), "0 1");
  CHECK_TEXT(stage_list(&f, "late", "accumulators"), "1");
  CHECK(op_int(parameter(&f, "unused"), "owner", -1) == 0);
  CHECK(op_int(parameter(&f, "late"), "owner", -1) == 0);
  CHECK(ir_ops(f.arena, ir_top(f.ir), OP_FOLD).n == 2);
  Machine *m = noisy_machine(f.ir, f.arena);
  double before = machine_param(m, "late")->at[0];
  run_step(&f, m);
  CHECK(machine_param(m, "late")->at[0] != before || machine_accumulator(m, "late", 1)->at[0] == 0);
  fixture_end(&f);
}

/* Only what leads to accumulators alone is a weight half; adjoints of activations are not, even in
 * stage 0, where nothing needs them but parameters. */
static void test_halves(void) {
  Fixture f = fixture_start(2, 1, PP_F32);
  Type t = shape(&f, PP_F32, 2, 4, 4), row = shape(&f, PP_F32, 1, 4);
  Value x = data(&f, "x", t);
  for (f.b.stage = 0; f.b.stage < 2; f.b.stage++) {
    Value w = param(&f, f.b.stage ? "w1" : "w0", t), b = param(&f, f.b.stage ? "b1" : "b0", row);
    x = map2(&f, OP_ADD, ir_matmul(&f.b, x, w, false, false), ir_broadcast(&f.b, b, t));
    x = map1(&f, OP_TANH, x);
  }
  f.b.stage = 1;
  finish_loss(&f, sum_all(&f, x), (Value){NULL});
  sgd(&f, 1, false);
  CHECK(lower(&f));
  OpVec ops = block_ops(f.arena, func_body(func_find(f.ir, ir_top(f.ir), "microbatch")));
  int n[2] = {0};
  for (int i = 0; i < ops.n; i++) {
    OpId id = op_id(ops.at[i]);
    bool weight = op_unit(ops.at[i], "pp.weight_half");
    if (weight) n[op_stage(ops.at[i])]++;
    if (id == OP_MATMUL_ACCUMULATE || id == OP_ACCUMULATE) CHECK(weight);
    if (id == OP_MUL || id == OP_MATMUL) CHECK(!weight);
  }
  CHECK(n[0] == 3 && n[1] == 3); /* product; reduce, accumulate */
  fixture_end(&f);
}

/* --- numbers from the field ----------------------------------------------------------------------- */

static void counting_data(Machine *m, const char *source, Tensor *out) {
  (void)source;
  out->at[0] = m->microbatch;
}

/* a · b · x over x = 0 … 7: gradients 10.5 and 7, whatever the number of stages. */
static void check_product(int n_stages) {
  Fixture f = fixture_start(n_stages, 8, PP_F32);
  Type t = type_scalar(f.ir, PP_F32);
  Value y = map2(&f, OP_MUL, param(&f, "a", t), data(&f, "x", t));
  f.b.stage = n_stages - 1;
  y = map2(&f, OP_MUL, y, param(&f, "b", t));
  finish_loss(&f, y, (Value){NULL});
  sgd(&f, 1, false);
  CHECK(lower(&f));
  Machine *m = machine_create(f.ir, f.arena);
  m->data = counting_data;
  machine_param(m, "a")->at[0] = 2;
  machine_param(m, "b")->at[0] = 3;
  run_step(&f, m);
  CHECK(machine_param(m, "a")->at[0] == -8.5);
  CHECK(machine_param(m, "b")->at[0] == -4);
  CHECK(m->control[PP_CONTROL_LOSS] == 21);
  CHECK(m->control[PP_CONTROL_APPLY] == 1);
  CHECK(m->control[PP_CONTROL_DIVISOR] == 8);
  CHECK(fabs(m->control[PP_CONTROL_NORM] - sqrt(10.5 * 10.5 + 49)) < 1e-12);
  CHECK(isnan(m->control[PP_CONTROL_RATE]));
  fixture_end(&f);
}

static void test_no_power_of_microbatches(void) {
  for (int n_stages = 1; n_stages <= 3; n_stages++) check_product(n_stages);
}

/* Scaled by 8, grown to 16 after two good steps, and back: the same numbers at each step. */
static void test_loss_scale(void) {
  Fixture f = fixture_start(2, 8, PP_F32);
  Op top = ir_top(f.ir);
  op_set_float(f.ir, top, "pp.loss_scale", 8);
  op_set_float(f.ir, top, "pp.loss_scale_growth", 2);
  op_set_float(f.ir, top, "pp.loss_scale_backoff", 0.25);
  op_set_int(f.ir, top, "pp.loss_scale_interval", 2);
  Type t = type_scalar(f.ir, PP_F32);
  Value y = map2(&f, OP_MUL, param(&f, "a", t), data(&f, "x", t));
  f.b.stage = 1;
  finish_loss(&f, map2(&f, OP_MUL, y, param(&f, "b", t)), (Value){NULL});
  sgd(&f, 1, false);
  CHECK(lower(&f));
  Machine *m = machine_create(f.ir, f.arena);
  m->data = counting_data;
  const double next[] = {8, 16, 16, 32, 8}, good[] = {1, 0, 1, 0, 0}, last[] = {8, 8, 16, 16, 32};
  for (int step = 0; step < 5; step++) {
    machine_param(m, "a")->at[0] = step < 4 ? 2 : NAN;
    machine_param(m, "b")->at[0] = 3;
    run_step(&f, m);
    CHECK(m->control[PP_CONTROL_APPLY] == (step < 4));
    CHECK(m->loss_scale[PP_LOSS_SCALE_NEXT] == next[step]);
    CHECK(m->loss_scale[PP_LOSS_SCALE_GOOD] == good[step]);
    CHECK(m->loss_scale[PP_LOSS_SCALE_LAST] == last[step]);
    CHECK(m->control[PP_CONTROL_DIVISOR] == 8 * last[step]);
    if (step == 4) continue;
    CHECK(machine_param(m, "a")->at[0] == -8.5);
    CHECK(m->control[PP_CONTROL_LOSS] == 21);
    CHECK(fabs(m->control[PP_CONTROL_NORM] - sqrt(10.5 * 10.5 + 49)) < 1e-12);
  }
  fixture_end(&f);
}

static void pair_data(Machine *m, const char *source, Tensor *out) {
  const double sums[] = {2, 90}, counts[] = {1, 9};
  bool none = m->user != NULL;
  out->at[0] = *source == 's' ? sums[m->microbatch] : none ? 0 : counts[m->microbatch];
}

/* (sum, count) = (2, 1), (90, 9): one division by 10. Nothing counted: not applied, no NaN. */
static void test_counted_loss(void) {
  Fixture f = fixture_start(2, 2, PP_F32);
  Type t = type_scalar(f.ir, PP_F32);
  Value sum = map2(&f, OP_MUL, param(&f, "w", t), data(&f, "sum", t));
  f.b.stage = 1;
  finish_loss(&f, sum, data(&f, "count", t));
  op_set_unit(f.ir, ir_top(f.ir), "pp.loss_pair");
  sgd(&f, 1, false);
  CHECK(lower(&f));
  Machine *m = machine_create(f.ir, f.arena);
  m->data = pair_data;
  machine_param(m, "w")->at[0] = 1;
  run_step(&f, m);
  CHECK(m->control[PP_CONTROL_LOSS] == 9.2);
  CHECK(m->control[PP_CONTROL_DIVISOR] == 10);
  CHECK(fabs(machine_param(m, "w")->at[0] - (1 - 9.2)) < 1e-6);
  m->user = m;
  run_step(&f, m);
  CHECK(m->control[PP_CONTROL_APPLY] == 0);
  CHECK(m->control[PP_CONTROL_DIVISOR] == 0);
  CHECK(isfinite(m->control[PP_CONTROL_LOSS]) && isfinite(m->control[PP_CONTROL_FACTOR]));
  fixture_end(&f);
}

static void one_data(Machine *m, const char *source, Tensor *out) {
  (void)m, (void)source;
  for (int64_t i = 0; i < out->n; i++) out->at[i] = 1;
}

/* A tied weight of 200 elements, gradient 1 from each of two stages: norm √800, counted once. */
static void test_tied_norm(void) {
  Fixture f = fixture_start(2, 1, PP_F32);
  Type t = shape(&f, PP_F32, 1, 200);
  Value a = sum_all(&f, map2(&f, OP_MUL, param(&f, "w", t), data(&f, "x", t)));
  f.b.stage = 1;
  Value b = sum_all(&f, map2(&f, OP_MUL, param(&f, "w", t), data(&f, "x", t)));
  finish_loss(&f, map2(&f, OP_ADD, a, b), (Value){NULL});
  sgd(&f, 1, false);
  clip(&f, 1);
  CHECK(lower(&f));
  Machine *m = machine_create(f.ir, f.arena);
  m->data = one_data;
  run_step(&f, m);
  CHECK(fabs(m->control[PP_CONTROL_NORM] - sqrt(800)) < 1e-12);
  CHECK(fabs(m->control[PP_CONTROL_FACTOR] - 0.0353553390593) < 1e-12);
  CHECK(fabs(machine_param(m, "w")->at[3] + 2 * 0.0353553390593) < 1e-7);
  CHECK(op_is_null(func_find(f.ir, ir_top(f.ir), "clip")));
  fixture_end(&f);
}

/* sqrt(p) at p = 0 on stage 1: the step isn't applied. */
static void test_not_finite(void) {
  Fixture f = fixture_start(2, 1, PP_F32);
  Type t = type_scalar(f.ir, PP_F32);
  Value y = map2(&f, OP_MUL, param(&f, "a", t), data(&f, "x", t));
  f.b.stage = 1;
  finish_loss(&f, map2(&f, OP_ADD, y, map1(&f, OP_SQRT, param(&f, "p", t))), (Value){NULL});
  sgd(&f, 1, true);
  CHECK(lower(&f));
  Machine *m = machine_create(f.ir, f.arena);
  m->data = one_data;
  run_step(&f, m);
  CHECK(m->control[PP_CONTROL_APPLY] == 0);
  CHECK(m->control[PP_CONTROL_LOSS] == 0);
  fixture_end(&f);
}

/* Norms in declaration order though owners alternate. */
static void test_order_of_norms(void) {
  Fixture f = fixture_start(2, 1, PP_F32);
  Type t = type_scalar(f.ir, PP_F32);
  const char *const names[] = {"p0", "p1", "p2", "p3", "p4"};
  const int home[] = {1, 0, 0, 1, 0};
  for (int i = 0; i < 5; i++) { /* declared in this order, used elsewhere */
    f.b.stage = home[i];
    param(&f, names[i], t);
  }
  Value y = {NULL};
  for (f.b.stage = 0; f.b.stage < 2; f.b.stage++)
    for (int i = 0; i < 5; i++) {
      if (home[i] != f.b.stage) continue;
      Value z = map2(&f, OP_MUL, param(&f, names[i], t), splat(&f, param(&f, names[i], t), i + 1));
      y = value_is_null(y) ? z : map2(&f, OP_ADD, y, z);
    }
  f.b.stage = 1;
  finish_loss(&f, y, (Value){NULL});
  sgd(&f, 1, false);
  CHECK(lower(&f));
  Op step = func_find(f.ir, ir_top(f.ir), "step");
  OpVec all = ir_ops(f.arena, step, OP_CONCAT);
  Value norms = {NULL};
  for (int i = 0; i < all.n; i++) {
    const char *name = op_string(f.arena, all.at[i], "pp.name");
    if (name && !strcmp(name, "norms")) norms = op_result(all.at[i], 0);
  }
  CHECK(!value_is_null(norms));
  Op ret = func_return_op(step);
  op_set_operands(ret, 1, &norms);
  func_update_type(f.ir, step);
  Machine *m = noisy_machine(f.ir, f.arena);
  Tensor *result;
  machine_start_step(m);
  interpret_func(m, step, 0, NULL, &result);
  for (int i = 0; i < 5; i++) CHECK(result->at[i] == (i + 1) * (i + 1));
  fixture_end(&f);
}

int main(void) {
  TEST(test_copies);
  TEST(test_parameters);
  TEST(test_halves);
  TEST(test_no_power_of_microbatches);
  TEST(test_loss_scale);
  TEST(test_counted_loss);
  TEST(test_tied_norm);
  TEST(test_not_finite);
  TEST(test_order_of_norms);
  return test_end();
}
