/* Tests of compiler/split.c: the tasks of a module, run one by one as ranks would (each stage has its
 * own memory, values go by id), give the same bits as @step before the split. On nets built for a
 * case, and on random ones. */
#include "compiler/pass_test.h"

enum { MAX_STAGES = 8 };

/* --- an executor of tasks --------------------------------------------------------------------- */

typedef struct {
  Fixture *f;
  int n_stages, n_microbatches;
  Machine *machines[MAX_STAGES]; /* a rank for each stage */
  Op modules[MAX_STAGES];
  VEC(Tensor *) *values;         /* [n_microbatches + 1] by id; the last: after the loop */
} Job;

static Op find_module(Fixture *f, int stage) {
  OpVec ops = block_ops(f->arena, ir_body(f->ir));
  for (int i = 0; i < ops.n; i++) {
    const char *name = op_is_func(ops.at[i]) ? NULL : op_string(f->arena, ops.at[i], "sym_name");
    if (name && !strcmp(name, arena_printf(f->arena, "stage_%d", stage))) return ops.at[i];
  }
  return (Op){NULL};
}

static Job job_start(Fixture *f) {
  Job j = {.f = f, .n_stages = (int)op_int(ir_top(f->ir), "pp.stages", 1)};
  j.n_microbatches = (int)op_int(ir_top(f->ir), "pp.microbatches", 1);
  j.values = arena_alloc_array(f->arena, (size_t)j.n_microbatches + 1, sizeof *j.values);
  for (int s = 0; s < j.n_stages; s++) {
    j.machines[s] = noisy_machine(f->ir, f->arena);
    j.modules[s] = find_module(f, s);
    CHECK(!op_is_null(j.modules[s]));
  }
  return j;
}

static Op task(Job *j, int stage, const char *name) { return func_find(j->f->ir, j->modules[stage], name); }

static Tensor **slot(Job *j, int microbatch, int64_t id) {
  int at = microbatch < 0 ? j->n_microbatches : microbatch;
  while (j->values[at].n <= id) VEC_PUSH(j->f->arena, &j->values[at], NULL);
  return &j->values[at].at[id];
}

/* The updated parameters that have arrived take the place of the copies. */
static void refresh(Job *j, Op func, Machine *m, Tensor **args) {
  const char *text = op_string(j->f->arena, func, "pp.refresh");
  for (int i = 0; text && *text; i++) {
    size_t length = strcspn(text, ",");
    Tensor *p = machine_param(m, arena_strndup(j->f->arena, text, length));
    memcpy(p->at, args[i]->at, (size_t)p->n * sizeof *p->at);
    text += length + (text[length] == ',');
  }
}

static void run_task(Job *j, int stage, const char *name, int microbatch) {
  Op func = task(j, stage, name);
  if (op_is_null(func)) return;
  int64_t n_in, n_out;
  const int64_t *in = op_ints(j->f->arena, func, "pp.in", &n_in), *out = op_ints(j->f->arena, func, "pp.out", &n_out);
  CHECK(n_in == func_n_args(func) && n_out == op_n_operands(func_return_op(func)));
  Tensor **args = arena_alloc_array(j->f->arena, (size_t)n_in, sizeof *args);
  Tensor **results = arena_alloc_array(j->f->arena, (size_t)n_out, sizeof *results);
  for (int64_t i = 0; i < n_in; i++) {
    args[i] = *slot(j, microbatch, in[i]);
    if (!args[i]) bug("stage %d %s: value %d is not there", stage, name, (int)in[i]);
  }
  j->machines[stage]->microbatch = microbatch;
  interpret_func(j->machines[stage], func, (int)n_in, args, results);
  for (int64_t i = 0; i < n_out; i++) *slot(j, microbatch, out[i]) = results[i];
  refresh(j, func, j->machines[stage], args);
}

/* Forward all, then backward in ascending microbatches: gpipe's order, which keeps the bits. */
static void run_job_step(Job *j, bool halves) {
  for (int i = 0; i <= j->n_microbatches; i++) j->values[i].n = 0;
  for (int s = 0; s < j->n_stages; s++) machine_start_step(j->machines[s]);
  for (int i = 0; i < j->n_microbatches; i++)
    for (int s = 0; s < j->n_stages; s++) run_task(j, s, "fwd", i);
  for (int i = 0; i < j->n_microbatches; i++)
    for (int s = j->n_stages - 1; s >= 0; s--) run_task(j, s, halves ? "bwd_input" : "bwd", i);
  for (int i = 0; i < j->n_microbatches && halves; i++)
    for (int s = 0; s < j->n_stages; s++) run_task(j, s, "bwd_weight", i);
  for (int s = j->n_stages - 1; s >= 0; s--) run_task(j, s, "finish", -1);
  for (int s = 0; s < j->n_stages; s++) run_task(j, s, "decide", -1);
  for (int s = 0; s < j->n_stages; s++) run_task(j, s, "update", -1);
  for (int s = 0; s < j->n_stages; s++) run_task(j, s, "refresh", -1);
  for (int s = 0; s < j->n_stages; s++) j->machines[s]->step++;
}

/* --- against the whole step ----------------------------------------------------------------------- */

static bool same_bits(const Tensor *a, const Tensor *b) {
  return a->n == b->n && !memcmp(a->at, b->at, (size_t)a->n * sizeof *a->at);
}

static Machine *run_whole(Fixture *f, int steps) {
  Machine *m = noisy_machine(f->ir, f->arena);
  for (int i = 0; i < steps; i++) {
    machine_start_step(m);
    interpret_func(m, func_find(f->ir, ir_top(f->ir), "step"), 0, NULL, NULL);
    m->step++;
  }
  return m;
}

static bool has_stage(Fixture *f, Op parameter, int stage) {
  int64_t n;
  const int64_t *stages = op_ints(f->arena, parameter, "stages", &n);
  for (int64_t i = 0; i < n; i++)
    if (stages[i] == stage) return true;
  return false;
}

static bool compare(Fixture *f, const Machine *whole, Job *j) {
  OpVec parameters = ir_ops(f->arena, ir_top(f->ir), OP_PARAMETER);
  bool ok = true;
  for (int i = 0; i < parameters.n; i++) {
    const char *name = op_string(f->arena, parameters.at[i], "sym");
    for (int s = 0; s < j->n_stages; s++)
      if (has_stage(f, parameters.at[i], s))
        ok = ok && same_bits(map_get(&whole->params, name), machine_param(j->machines[s], name));
  }
  return ok;
}

/* Values that cross are few: no value and a reshape of it from one task, no constants. */
static bool check_crossings(Fixture *f) {
  bool ok = true;
  OpVec all = ir_ops(f->arena, ir_top(f->ir), OP_CONSTANT);
  for (int i = 0; i < all.n; i++) {
    OpVec users = value_users(f->arena, op_result(all.at[i], 0));
    for (int k = 0; k < users.n; k++) ok = ok && !op_is_return(users.at[k]);
  }
  return ok;
}

/* Two steps, so that refreshed copies count. */
static bool check_split(Fixture *f) {
  bool ok = autodiff_run(f->ir) && stages_run(f->ir) && ir_verify(f->ir);
  Machine *whole = ok ? run_whole(f, 2) : NULL;
  ok = ok && split_run(f->ir) && ir_verify(f->ir);
  for (int halves = 0; halves < 2 && ok; halves++) {
    Job j = job_start(f);
    run_job_step(&j, halves);
    run_job_step(&j, halves);
    ok = compare(f, whole, &j) && check_crossings(f);
  }
  return ok;
}

static void check_fixture(Fixture *f) {
  CHECK(check_split(f));
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
  CHECK(check_split(f));
  Job j = job_start(f);
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
  CHECK(check_split(&f));
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
  CHECK(check_split(&f));
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
  CHECK(check_split(&f));
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

static void test_random(void) {
  int n = 0;
  for (uint64_t seed = 1; seed <= 300 && n < 5; seed++) {
    Random r = {.state = seed};
    int n_stages = 1 + pick(&r, 6);
    r.f = start_net(n_stages, 1 + pick(&r, 3));
    build_random(&r, n_stages);
    bool ok = check_split(&r.f);
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
  TEST(test_random);
  return test_end();
}
