/* Tests of compiler/fuse.c: fused tasks give the bits of the whole step, on nets for a case and on
 * random ones, with fusion and without; nothing that costs is computed twice; known chains become
 * one kernel; effects keep their order; equal kernels are one. */
#include "compiler/job_test.h"

/* --- after the pass ------------------------------------------------------------------------------------- */

/* Ops over tensors, whose work counts: elementwise and reducing ones of more than one element. */
static bool is_work(Op op) {
  OpId id = op_id(op);
  if (id == OP_NONE || (op_class(id) != CLASS_MAP && op_class(id) != CLASS_REDUCE)) return false;
  Value v = op_class(id) == CLASS_REDUCE ? op_operand(op, 0) : op_result(op, 0);
  return type_elements(value_type(v)) > 1;
}

static int count_work(Fixture *f, Op func) {
  OpVec ops = block_ops(f->arena, func_body(func));
  int n = 0;
  for (int i = 0; i < ops.n; i++) {
    if (op_id(ops.at[i]) == OP_CALL) n += count_work(f, func_find(f->ir, ir_top(f->ir), call_callee(f->arena, ops.at[i])));
    n += is_work(ops.at[i]);
  }
  return n;
}

static int count_tasks_work(Fixture *f, int n_stages) {
  int n = 0;
  for (int s = 0; s < n_stages; s++) {
    OpVec funcs = ir_funcs(f->arena, find_module(f, s));
    for (int i = 0; i < funcs.n; i++) n += count_work(f, funcs.at[i]);
  }
  return n;
}

static int count_calls(Fixture *f, int stage, const char *task) {
  OpVec calls = ir_ops(f->arena, func_find(f->ir, find_module(f, stage), task), OP_CALL);
  return calls.n;
}

static int count_kernels(Fixture *f) {
  OpVec funcs = ir_funcs(f->arena, ir_top(f->ir));
  int n = 0;
  for (int i = 0; i < funcs.n; i++) n += op_unit(funcs.at[i], "pp.kernel");
  return n;
}

/* What is left in tasks are calls, reshapes, and ops that no kernel can hold. */
static void check_rest(Fixture *f, int n_stages) {
  for (int s = 0; s < n_stages; s++) {
    OpVec funcs = ir_funcs(f->arena, find_module(f, s));
    for (int i = 0; i < funcs.n; i++) {
      OpVec ops = block_ops(f->arena, func_body(funcs.at[i]));
      for (int k = 0; k < ops.n; k++) {
        OpId id = op_id(ops.at[k]);
        CHECK(id == OP_NONE || id == OP_RESHAPE || (op_class(id) != CLASS_MAP && op_class(id) != CLASS_MOVE && op_class(id) != CLASS_REDUCE &&
                                                    id != OP_CONSTANT && id != OP_IOTA && id != OP_RANDOM));
      }
    }
  }
}

/* autodiff … fuse; two steps against the step before the split. */
static bool check_fused(Fixture *f, bool enabled) {
  int n_stages = (int)op_int(ir_top(f->ir), "pp.stages", 1);
  bool ok = autodiff_run(f->ir) && stages_run(f->ir);
  Machine *whole = ok ? run_whole(f, 2, noisy_machine) : NULL;
  ok = ok && split_run(f->ir);
  int before = count_tasks_work(f, n_stages);
  ok = ok && fuse_run(f->ir, enabled) && ir_verify(f->ir);
  for (int halves = 0; halves < 2 && ok; halves++) {
    Job j = job_start(f, noisy_machine);
    run_job_step(&j, halves);
    run_job_step(&j, halves);
    ok = compare(f, whole, &j);
  }
  CHECK(count_tasks_work(f, n_stages) <= before); /* dead ops may go */
  check_rest(f, n_stages);
  return ok;
}

/* --- nets for a case ---------------------------------------------------------------------------------------- */

static Type matrix(Fixture *f) { return shape(f, f->real, 2, 8, 8); }

static Value row_sum(Fixture *f, OpId id, Value x) {
  int64_t column[] = {8, 1};
  return ir_reshape(&f->b, ir_reduce(&f->b, id, x, 1, (int64_t[]){1}), 2, column);
}
static Value spread(Fixture *f, Value x) { return ir_broadcast(&f->b, x, matrix(f)); }

static Value dense(Fixture *f, const char *name, Value x) {
  Value y = ir_matmul(&f->b, x, param(f, name, matrix(f)), false, false);
  return map2(f, OP_ADD, y, spread(f, param(f, arena_printf(f->arena, "%s.b", name), shape(f, f->real, 1, 8))));
}

static Value layer_norm(Fixture *f, Value x) {
  Value sum = row_sum(f, OP_REDUCE_SUM, x);
  Value c = map2(f, OP_SUB, x, spread(f, map2(f, OP_MUL, sum, splat(f, sum, 0.125))));
  Value var = row_sum(f, OP_REDUCE_SUM, map2(f, OP_MUL, c, c));
  return map2(f, OP_MUL, c, spread(f, map1(f, OP_RSQRT, map2(f, OP_ADD, var, splat(f, var, 1e-3)))));
}

static Value softmax(Fixture *f, Value x) {
  Value e = map1(f, OP_EXP, map2(f, OP_SUB, x, spread(f, row_sum(f, OP_REDUCE_MAX, x))));
  return map2(f, OP_DIV, e, spread(f, row_sum(f, OP_REDUCE_SUM, e)));
}

static void end_net(Fixture *f, Value x) {
  finish_loss(f, sum_all(f, x), (Value){NULL});
  sgd(f, 0.125, true);
  clip(f, 1);
}

/* dense, layer norm, tanh, dense, softmax: a matmul and a kernel each. */
static void test_layers(void) {
  for (int enabled = 0; enabled < 2; enabled++) {
    Fixture f = fixture_start(1, 2, PP_F32);
    Value x = map1(&f, OP_TANH, layer_norm(&f, dense(&f, "w", data(&f, "x", matrix(&f)))));
    x = map2(&f, OP_MUL, softmax(&f, dense(&f, "v", x)), x);
    end_net(&f, ir_matmul(&f.b, x, param(&f, "u", matrix(&f)), false, false));
    CHECK(check_fused(&f, enabled));
    if (enabled) CHECK(count_calls(&f, 0, "fwd") == 3); /* both rows, the sum of the loss */
    else CHECK(count_calls(&f, 0, "fwd") > 20);
    fixture_end(&f);
  }
}

/* A chain that a product interrupts, and comes back to: the two ends may not be one kernel. */
static void test_convex(void) {
  Fixture f = fixture_start(1, 1, PP_F32);
  Value a = map1(&f, OP_TANH, param(&f, "w", matrix(&f)));
  Value b = ir_matmul(&f.b, a, data(&f, "x", matrix(&f)), false, false);
  Value c = map2(&f, OP_ADD, a, map1(&f, OP_TANH, b));
  Value d = ir_matmul(&f.b, c, a, false, false);
  end_net(&f, map2(&f, OP_ADD, map2(&f, OP_MUL, d, c), a));
  CHECK(check_fused(&f, true));
  CHECK(count_calls(&f, 0, "fwd") >= 3);
  fixture_end(&f);
}

/* Three slices of one sum, each permuted: one kernel, nothing of it twice. */
static void test_moves(void) {
  Fixture f = fixture_start(1, 1, PP_F32);
  Value x = dense(&f, "w", data(&f, "x", matrix(&f)));
  Value part[2];
  for (int i = 0; i < 2; i++) {
    Value s = ir_slice(&f.b, x, (int64_t[]){0, 4 * i}, (int64_t[]){8, 4 * i + 4});
    part[i] = ir_permute(&f.b, s, (int64_t[]){1, 0});
  }
  Value y = ir_matmul(&f.b, part[0], ir_permute(&f.b, part[1], (int64_t[]){1, 0}), false, false);
  end_net(&f, ir_matmul(&f.b, y, param(&f, "v", shape(&f, PP_F32, 2, 4, 4)), false, false));
  CHECK(check_fused(&f, true));
  CHECK(count_calls(&f, 0, "fwd") <= 3);
  fixture_end(&f);
}

/* Equal layers share their kernels; the update is one in-place kernel per shape. */
static void test_shared(void) {
  int kernels[2];
  for (int k = 0; k < 2; k++) {
    Fixture f = fixture_start(1, 1, PP_F32);
    Value x = data(&f, "x", matrix(&f));
    for (int i = 0; i < 2 + 2 * k; i++) x = map1(&f, OP_TANH, dense(&f, arena_printf(f.arena, "w%d", i), x));
    end_net(&f, x);
    CHECK(check_fused(&f, true));
    kernels[k] = count_kernels(&f);
    OpVec calls = ir_ops(f.arena, func_find(f.ir, find_module(&f, 0), "update"), OP_CALL);
    for (int i = 0; i < calls.n; i++) {
      int64_t n;
      op_ints(f.arena, func_find(f.ir, ir_top(f.ir), call_callee(f.arena, calls.at[i])), "pp.in_place", &n);
      CHECK(n == 2 * 2 * 3); /* two results, each with gradient, state and value */
    }
    fixture_end(&f);
  }
  CHECK(kernels[1] <= kernels[0] + 1); /* the concat of the norms is another */
}

/* --- random nets ------------------------------------------------------------------------------------------------ */

typedef struct {
  Fixture f;
  uint64_t state;
  VEC(Value) pool;
} Random;

static int pick(Random *r, int n) {
  r->state = r->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((r->state >> 33) % (uint64_t)n);
}

static Value any(Random *r) {
  int n = r->pool.n, back = pick(r, 3) ? pick(r, n < 4 ? n : 4) : pick(r, n);
  return r->pool.at[n - 1 - back];
}

static Value weight(Random *r) { return param(&r->f, arena_printf(r->f.arena, "w%d", pick(r, 4)), matrix(&r->f)); }

static Value halves(Random *r, Value x) {
  Fixture *f = &r->f;
  int axis = pick(r, 2);
  int64_t zero[] = {0, 0}, end[] = {8, 8}, low[] = {8, 8}, high[] = {0, 0}, grow[] = {0, 0};
  low[axis] = 3, high[axis] = 3, grow[axis] = 3;
  Value a = ir_slice(&f->b, x, zero, low), b = ir_slice(&f->b, x, high, end);
  if (pick(r, 2)) return ir_concat(&f->b, 2, (Value[]){b, a}, axis);
  return map2(f, OP_ADD, ir_pad(&f->b, b, grow, zero), x);
}

static Value masked(Random *r, Value x) {
  Fixture *f = &r->f;
  Type t = matrix(f);
  Attr key = {.name = "key", .kind = ATTR_KIND_INT, .i = r->pool.n};
  Value u = op_result(ir_build(&f->b, OP_RANDOM, 0, NULL, 1, &t, 1, &key), 0);
  return ir_map(&f->b, OP_SELECT, 3, (Value[]){ir_compare(&f->b, "lt", u, splat(f, u, 0.5)), x, splat(f, x, 0)});
}

static Value total(Random *r, Value x) {
  Fixture *f = &r->f;
  int64_t axes[] = {0, 1};
  Value s = ir_reduce(&f->b, OP_REDUCE_SUM, x, pick(r, 2) + 1, axes);
  s = map2(f, OP_MUL, s, splat(f, s, 0.03));
  return map2(f, OP_MUL, x, ir_broadcast(&f->b, s, matrix(f)));
}

static Value random_op(Random *r) {
  Fixture *f = &r->f;
  Value x = any(r), y = any(r);
  switch (pick(r, 12)) {
    case 0: return map2(f, OP_ADD, x, y);
    case 1: return map2(f, OP_MUL, x, y);
    case 2: return map1(f, OP_TANH, x);
    case 3: return ir_matmul(&f->b, x, weight(r), false, false);
    case 4: return ir_matmul(&f->b, x, y, true, false);
    case 5: return ir_permute(&f->b, x, (int64_t[]){1, 0});
    case 6: return layer_norm(f, x);
    case 7: return softmax(f, x);
    case 8: return halves(r, x);
    case 9: return masked(r, x);
    case 10: return total(r, x);
    default: return map2(f, OP_SUB, x, ir_broadcast(&f->b, param(f, "b", shape(f, f->real, 1, 8)), matrix(f)));
  }
}

static void test_random(void) {
  int n_failed = 0;
  for (uint64_t seed = 1; seed <= 200 && n_failed < 3; seed++) {
    Random r = {.state = seed};
    int n_stages = 1 + pick(&r, 3);
    r.f = fixture_start(n_stages, 1 + pick(&r, 2), PP_F32);
    VEC_PUSH(r.f.arena, &r.pool, data(&r.f, "x", matrix(&r.f)));
    VEC_PUSH(r.f.arena, &r.pool, map1(&r.f, OP_TANH, weight(&r)));
    for (int s = 0; s < n_stages; s++) {
      r.f.b.stage = s;
      for (int i = 2 + pick(&r, 12); i > 0; i--) {
        Value x = random_op(&r);
        if (pick(&r, 4) == 0) x = ir_reshape(&r.f.b, ir_reshape(&r.f.b, x, 1, (int64_t[]){64}), 2, (int64_t[]){8, 8});
        VEC_PUSH(r.f.arena, &r.pool, pick(&r, 2) ? map1(&r.f, OP_TANH, x) : x);
      }
    }
    end_net(&r.f, map1(&r.f, OP_TANH, map2(&r.f, OP_ADD, VEC_LAST(&r.pool), any(&r))));
    bool ok = check_fused(&r.f, seed % 4 != 0);
    CHECK(ok);
    if (!ok) printf("  random net %d\n", (int)seed), n_failed++;
    fixture_end(&r.f);
  }
}

int main(void) {
  TEST(test_layers);
  TEST(test_convex);
  TEST(test_moves);
  TEST(test_shared);
  TEST(test_random);
  return test_end();
}
