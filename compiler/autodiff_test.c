/* Tests of compiler/autodiff.c and adjoints.c: the gradient of every primitive against central
 * differences in f64, with operands that are parameters and operands that are not; the order in which
 * adjoints meet; stated derivatives. */
#include "compiler/pass_test.h"

enum { MAX_PARAMS = 3 };

typedef struct {
  const char *name;
  int n_params;
  int ranks[MAX_PARAMS];
  int64_t dims[MAX_PARAMS][4];
  Value (*build)(Fixture *f, const Value *p);
  bool positive;    /* parameters above 0 */
  double tolerance; /* 0: 1e-6 */
} Case;

/* --- cases ------------------------------------------------------------------------------ */

#define UNARY(function, id) \
  static Value function(Fixture *f, const Value *p) { return map1(f, id, p[0]); }
#define BINARY(function, id) \
  static Value function(Fixture *f, const Value *p) { return map2(f, id, p[0], p[1]); }
UNARY(build_neg, OP_NEG)
UNARY(build_exp, OP_EXP)
UNARY(build_log, OP_LOG)
UNARY(build_tanh, OP_TANH)
UNARY(build_sqrt, OP_SQRT)
UNARY(build_rsqrt, OP_RSQRT)
UNARY(build_erf, OP_ERF)
UNARY(build_sin, OP_SIN)
UNARY(build_cos, OP_COS)
BINARY(build_add, OP_ADD)
BINARY(build_sub, OP_SUB)
BINARY(build_mul, OP_MUL)
BINARY(build_div, OP_DIV)
BINARY(build_pow, OP_POW)
BINARY(build_min, OP_MIN)
BINARY(build_max, OP_MAX)

static Value build_square(Fixture *f, const Value *p) { return map2(f, OP_MUL, p[0], p[0]); }
static Value build_pow2(Fixture *f, const Value *p) { return map2(f, OP_POW, p[0], splat(f, p[0], 2)); }
static Value build_pow3(Fixture *f, const Value *p) { return map2(f, OP_POW, p[0], splat(f, p[0], 2.5)); }
static Value build_pow1(Fixture *f, const Value *p) { return map2(f, OP_POW, p[0], splat(f, p[0], 1)); }
static Value build_exponent(Fixture *f, const Value *p) { return map2(f, OP_POW, splat(f, p[0], 3), p[0]); }

static Value build_select(Fixture *f, const Value *p) {
  Value c = ir_compare(&f->b, "gt", data(f, "c", value_type(p[0])), splat(f, p[0], 0));
  return ir_map(&f->b, OP_SELECT, 3, (Value[]){c, p[0], p[1]});
}

static Value build_cast(Fixture *f, const Value *p) {
  return ir_cast(&f->b, ir_cast(&f->b, p[0], PP_F32), PP_F64);
}

static Value build_sum_rows(Fixture *f, const Value *p) {
  return ir_reduce(&f->b, OP_REDUCE_SUM, p[0], 1, (int64_t[]){1});
}
static Value build_sum_outer(Fixture *f, const Value *p) {
  return ir_reduce(&f->b, OP_REDUCE_SUM, p[0], 2, (int64_t[]){0, 2});
}
static Value build_max_rows(Fixture *f, const Value *p) {
  return ir_reduce(&f->b, OP_REDUCE_MAX, p[0], 1, (int64_t[]){1});
}
static Value build_max_all(Fixture *f, const Value *p) {
  return ir_reduce(&f->b, OP_REDUCE_MAX, p[0], 2, (int64_t[]){0, 1});
}

static Value build_reshape(Fixture *f, const Value *p) { return ir_reshape(&f->b, p[0], 2, (int64_t[]){6, 4}); }
static Value build_permute(Fixture *f, const Value *p) { return ir_permute(&f->b, p[0], (int64_t[]){2, 0, 1}); }
static Value build_broadcast(Fixture *f, const Value *p) {
  return ir_broadcast(&f->b, p[0], shape(f, PP_F64, 3, 5, 2, 3));
}
static Value build_scalar(Fixture *f, const Value *p) {
  return ir_broadcast(&f->b, p[0], shape(f, PP_F64, 2, 5, 2));
}
static Value build_slice(Fixture *f, const Value *p) {
  return ir_slice(&f->b, p[0], (int64_t[]){1, 0}, (int64_t[]){3, 2});
}
static Value build_concat(Fixture *f, const Value *p) {
  return ir_concat(&f->b, 3, (Value[]){p[0], p[1], p[0]}, 1);
}
static Value build_pad(Fixture *f, const Value *p) {
  return ir_pad(&f->b, p[0], (int64_t[]){1, 0}, (int64_t[]){2, 1});
}

static Value build_nn(Fixture *f, const Value *p) { return ir_matmul(&f->b, p[0], p[1], false, false); }
static Value build_nt(Fixture *f, const Value *p) { return ir_matmul(&f->b, p[0], p[1], false, true); }
static Value build_tn(Fixture *f, const Value *p) { return ir_matmul(&f->b, p[0], p[1], true, false); }
static Value build_tt(Fixture *f, const Value *p) { return ir_matmul(&f->b, p[0], p[1], true, true); }
static Value build_twice(Fixture *f, const Value *p) { return ir_matmul(&f->b, p[0], p[0], false, true); }
static Value build_reshaped(Fixture *f, const Value *p) { /* through reshapes that change nothing in the end */
  Value flat = ir_reshape(&f->b, p[1], 1, (int64_t[]){12});
  return ir_matmul(&f->b, p[0], ir_reshape(&f->b, flat, 2, (int64_t[]){3, 4}), false, false);
}

static Value index_of(Fixture *f) { return data(f, "index", shape(f, PP_I32, 2, 3, 5)); } /* 0 … 3 */

static Value build_gather(Fixture *f, const Value *p) {
  Op op = ir_build(&f->b, OP_GATHER, 2, (Value[]){p[0], index_of(f)}, 0, NULL, 0, NULL);
  return op_result(op, 0);
}

static Value build_scatter(Fixture *f, const Value *p) {
  Attr a = {.name = "rows", .kind = ATTR_KIND_INT, .i = 4};
  return op_result(ir_build(&f->b, OP_SCATTER_ADD, 2, (Value[]){p[0], index_of(f)}, 0, NULL, 1, &a), 0);
}

static Value attention(Fixture *f, const Value *p, bool causal) {
  Attr a[] = {{.name = "scale", .kind = ATTR_KIND_FLOAT, .f = 0.7}, {.name = "causal", .kind = ATTR_KIND_UNIT}};
  return op_result(ir_build(&f->b, OP_ATTENTION, 3, p, 0, NULL, causal ? 2 : 1, a), 0);
}
static Value build_attention(Fixture *f, const Value *p) { return attention(f, p, false); }
static Value build_causal(Fixture *f, const Value *p) { return attention(f, p, true); }

/* Several uses of one value, and constants on the way. */
static Value build_softmax(Fixture *f, const Value *p) {
  Type t = value_type(p[0]);
  Value max = ir_reshape(&f->b, build_max_rows(f, p), 2, (int64_t[]){4, 1});
  Value e = map1(f, OP_EXP, map2(f, OP_SUB, p[0], ir_broadcast(&f->b, max, t)));
  Value sum = ir_reshape(&f->b, ir_reduce(&f->b, OP_REDUCE_SUM, e, 1, (int64_t[]){1}), 2, (int64_t[]){4, 1});
  return map2(f, OP_DIV, e, ir_broadcast(&f->b, sum, t));
}

#define S2 {2, 2}, {{4, 3}, {4, 3}}
static const Case cases[] = {
    {"neg", 1, S2, .build = build_neg},
    {"exp", 1, S2, .build = build_exp},
    {"log", 1, S2, .build = build_log, .positive = true},
    {"tanh", 1, S2, .build = build_tanh},
    {"sqrt", 1, S2, .build = build_sqrt, .positive = true},
    {"rsqrt", 1, S2, .build = build_rsqrt, .positive = true},
    {"erf", 1, S2, .build = build_erf},
    {"sin", 1, S2, .build = build_sin},
    {"cos", 1, S2, .build = build_cos},
    {"add", 2, S2, .build = build_add},
    {"sub", 2, S2, .build = build_sub},
    {"mul", 2, S2, .build = build_mul},
    {"square", 1, S2, .build = build_square},
    {"div", 2, S2, .build = build_div},
    {"pow", 2, S2, .build = build_pow, .positive = true},
    {"pow constant 1", 1, S2, .build = build_pow1},
    {"pow constant 2", 1, S2, .build = build_pow2},
    {"pow constant 2.5", 1, S2, .build = build_pow3, .positive = true},
    {"pow of constant", 1, S2, .build = build_exponent},
    {"min", 2, S2, .build = build_min},
    {"max", 2, S2, .build = build_max},
    {"select", 2, S2, .build = build_select},
    {"cast", 1, S2, .build = build_cast, .tolerance = 2e-3},
    {"reduce_sum", 1, S2, .build = build_sum_rows},
    {"reduce_sum outer", 1, {3}, {{2, 3, 4}}, .build = build_sum_outer},
    {"reduce_max", 1, S2, .build = build_max_rows},
    {"reduce_max all", 1, S2, .build = build_max_all},
    {"reshape", 1, {3}, {{2, 3, 4}}, .build = build_reshape},
    {"permute", 1, {3}, {{2, 3, 4}}, .build = build_permute},
    {"broadcast", 1, {2}, {{1, 3}}, .build = build_broadcast},
    {"broadcast row", 1, {1}, {{3}}, .build = build_broadcast},
    {"broadcast scalar", 1, {0}, {{0}}, .build = build_scalar},
    {"slice", 1, S2, .build = build_slice},
    {"concat", 2, {2, 2}, {{4, 3}, {4, 2}}, .build = build_concat},
    {"pad", 1, S2, .build = build_pad},
    {"matmul nn", 2, {2, 2}, {{2, 3}, {3, 4}}, .build = build_nn},
    {"matmul nt", 2, {2, 2}, {{2, 3}, {4, 3}}, .build = build_nt},
    {"matmul tn", 2, {2, 2}, {{3, 2}, {3, 4}}, .build = build_tn},
    {"matmul tt", 2, {2, 2}, {{3, 2}, {4, 3}}, .build = build_tt},
    {"matmul batched nn", 2, {3, 3}, {{2, 2, 3}, {2, 3, 4}}, .build = build_nn},
    {"matmul batched nt", 2, {3, 3}, {{2, 2, 3}, {2, 4, 3}}, .build = build_nt},
    {"matmul batched tn", 2, {3, 3}, {{2, 3, 2}, {2, 3, 4}}, .build = build_tn},
    {"matmul batched tt", 2, {3, 3}, {{2, 3, 2}, {2, 4, 3}}, .build = build_tt},
    {"matmul of itself", 1, S2, .build = build_twice},
    {"matmul reshaped", 2, {2, 2}, {{2, 3}, {3, 4}}, .build = build_reshaped},
    {"gather", 1, {2}, {{4, 3}}, .build = build_gather},
    {"scatter_add", 1, {3}, {{3, 5, 2}}, .build = build_scatter},
    {"attention", 3, {4, 4, 4}, {{2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 4}}, .build = build_attention},
    {"attention causal, grouped", 3, {4, 4, 4}, {{1, 4, 5, 2}, {1, 2, 5, 2}, {1, 2, 5, 2}}, .build = build_causal},
    {"softmax", 1, S2, .build = build_softmax},
};

/* --- central differences ----------------------------------------------------------------------- */

static const char *const names[MAX_PARAMS] = {"p0", "p1", "p2"};

/* loss = Σ y · w for noise w. `wrapped`: the operands are 1.5 · parameter. */
static Fixture build_case(const Case *c, bool wrapped) {
  Fixture f = fixture_start(1, 1, PP_F64);
  Value p[MAX_PARAMS];
  for (int i = 0; i < c->n_params; i++) {
    p[i] = param(&f, names[i], type_tensor(f.ir, PP_F64, c->ranks[i], c->dims[i]));
    if (wrapped) p[i] = map2(&f, OP_MUL, p[i], splat(&f, p[i], 1.5));
  }
  Value y = c->build(&f, p);
  Value w = data(&f, "w", value_type(y));
  finish_loss(&f, sum_all(&f, map2(&f, OP_MUL, y, w)), (Value){NULL});
  return f;
}

static double loss_of(Machine *m, Op func) {
  machine_start_step(m);
  m->microbatch = 0;
  interpret_func(m, func, 0, NULL, NULL);
  return m->losses[0];
}

static double difference(Machine *m, Op func, double *x, double h) {
  double kept = *x;
  *x = kept + h;
  double above = loss_of(m, func);
  *x = kept - h;
  double below = loss_of(m, func);
  *x = kept;
  return (above - below) / (2 * h);
}

/* ‖a − b‖ / max(‖a‖, ‖b‖) */
static double gradient_error(Machine *m, Op func, const char *name, double h) {
  Tensor *p = machine_param(m, name);
  loss_of(m, func);
  Tensor *g = machine_accumulator(m, name, 0);
  if (!g) return 1;
  double wrong = 0, a = 0, b = 0;
  for (int64_t i = 0; i < p->n; i++) {
    double d = difference(m, func, &p->at[i], h);
    wrong += (d - g->at[i]) * (d - g->at[i]);
    a += d * d;
    b += g->at[i] * g->at[i];
  }
  return sqrt(wrong) / sqrt(fmax(fmax(a, b), 1e-30));
}

static void check_case(const Case *c, bool wrapped) {
  Fixture f = build_case(c, wrapped);
  CHECK(autodiff_run(f.ir));
  CHECK(ir_verify(f.ir));
  Op func = func_find(f.ir, ir_top(f.ir), "microbatch");
  Machine *m = noisy_machine(f.ir, f.arena);
  for (int i = 0; i < c->n_params; i++) {
    Tensor *p = machine_param(m, names[i]);
    for (int64_t k = 0; k < p->n && c->positive; k++) p->at[k] = fabs(p->at[k]);
    double error = gradient_error(m, func, names[i], c->tolerance > 0 ? 1e-2 : 1e-5);
    if (!(error < (c->tolerance > 0 ? c->tolerance : 1e-6))) {
      CHECK(!"gradient");
      printf("  %s%s, operand %d: error %g\n", c->name, wrapped ? " wrapped" : "", i, error);
    }
  }
  diag_flush(f.diag);
  fixture_end(&f);
}

static void test_gradients(void) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    check_case(&cases[i], false);
    check_case(&cases[i], true);
  }
}

/* Every op with an adjoint has a case above, or a test of its own. */
static void test_every_adjoint_is_tested(void) {
  for (OpId id = 0; id < OP_COUNT; id++) {
    bool found = id == OP_WITH_DERIVATIVE || !adjoint_exists(id);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
      found = found || str_starts_with(cases[i].name, op_name(id));
    if (!found) printf("  no case for %s\n", op_name(id));
    CHECK(found);
  }
}

/* --- form ------------------------------------------------------------------------------------------ */

static int count_ops(Fixture *f, OpId id) { return ir_ops(f->arena, ir_top(f->ir), id).n; }

/* Direct products of parameters accumulate, nothing is transposed by a copy. */
static void test_products_accumulate(void) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!str_starts_with(cases[i].name, "matmul")) continue;
    Fixture f = build_case(&cases[i], false);
    CHECK(autodiff_run(f.ir));
    CHECK(count_ops(&f, OP_MATMUL_ACCUMULATE) == 2);
    CHECK(count_ops(&f, OP_MATMUL) == 1);
    CHECK(count_ops(&f, OP_ACCUMULATE) == 0);
    CHECK(count_ops(&f, OP_PERMUTE) == 0);
    fixture_end(&f);
  }
}

static void test_gather_accumulates(void) {
  const Case c = {"gather", 1, {2}, {{4, 3}}, .build = build_gather};
  Fixture f = build_case(&c, false);
  CHECK(autodiff_run(f.ir));
  CHECK(count_ops(&f, OP_SCATTER_ACCUMULATE) == 1);
  CHECK(count_ops(&f, OP_SCATTER_ADD) == 0);
  fixture_end(&f);
}

/* What no parameter reaches has no adjoint: x · w by data x gives one product. */
static void test_only_needed_adjoints(void) {
  Fixture f = fixture_start(1, 1, PP_F32);
  Value x = data(&f, "x", shape(&f, PP_F32, 2, 2, 3));
  Value w = param(&f, "w", shape(&f, PP_F32, 2, 3, 4));
  finish_loss(&f, sum_all(&f, ir_matmul(&f.b, map1(&f, OP_EXP, x), w, false, false)), (Value){NULL});
  CHECK(autodiff_run(f.ir));
  CHECK(count_ops(&f, OP_MATMUL_ACCUMULATE) == 1);
  CHECK(count_ops(&f, OP_MATMUL) == 1);
  fixture_end(&f);
}

/* --- where adjoints meet ------------------------------------------------------------------------------ */

/* A scalar x = w · 1 made in stage 0 is used in stage 0 (twice), 1 (twice), 2: factors from data. The
 * order of the sums shows in f32. */
static Value use(Fixture *f, Value x, const char *factor, Value sum) {
  Value y = map2(f, OP_MUL, x, data(f, factor, value_type(x)));
  return value_is_null(sum) ? y : map2(f, OP_ADD, sum, y);
}

static void factor_data(Machine *m, const char *source, Tensor *out) {
  (void)m;
  const double big[] = {1e8, 3.3, 1.7, -1e8, 0.3};
  out->at[0] = (float)big[source[0] - 'a'];
}

static void test_order_of_sums(void) {
  Fixture f = fixture_start(3, 1, PP_F32);
  Type t = type_scalar(f.ir, PP_F32);
  Value x = map2(&f, OP_MUL, param(&f, "w", t), data(&f, "b", t)); /* 3.3 w */
  Value sum = use(&f, x, "a", (Value){NULL});
  sum = use(&f, x, "b", sum);
  f.b.stage = 1;
  sum = use(&f, x, "c", sum);
  sum = use(&f, x, "d", sum);
  f.b.stage = 2;
  sum = use(&f, x, "e", sum);
  finish_loss(&f, sum, (Value){NULL});
  CHECK(autodiff_run(f.ir));
  CHECK(ir_verify(f.ir));
  Machine *m = noisy_machine(f.ir, f.arena);
  m->data = factor_data;
  interpret_func(m, func_find(f.ir, ir_top(f.ir), "microbatch"), 0, NULL, NULL);
  float a = 1e8f, b = 3.3f, c = 1.7f, d = -1e8f, e = 0.3f;
  float later = e + (d + c); /* stage 2, then stage 1's own sum, in descending order */
  float dx = (later + b) + a;
  CHECK(machine_accumulator(m, "w", 0)->at[0] == (double)(dx * 3.3f));
  /* the sum of stage 1's two is made there, the others in stage 0 */
  OpVec adds = ir_ops(f.arena, func_find(f.ir, ir_top(f.ir), "microbatch"), OP_ADD);
  int backward[3] = {0};
  for (int i = 0; i < adds.n; i++) backward[op_stage(adds.at[i])] += op_unit(adds.at[i], "pp.backward");
  CHECK(backward[0] == 3 && backward[1] == 1 && backward[2] == 0);
  fixture_end(&f);
}

/* w · 2, made once and used in two stages: each stage has its own copy and accumulator. */
static void test_parameter_work_is_local(void) {
  Fixture f = fixture_start(3, 1, PP_F32);
  Type t = shape(&f, PP_F32, 2, 4, 4);
  Value w = param(&f, "w", t), w2 = map2(&f, OP_MUL, w, splat(&f, w, 2));
  Value x = ir_matmul(&f.b, data(&f, "x", t), w2, false, false);
  f.b.stage = 2;
  x = ir_matmul(&f.b, x, w2, false, false);
  finish_loss(&f, sum_all(&f, x), (Value){NULL});
  CHECK(autodiff_run(f.ir));
  CHECK(ir_verify(f.ir));
  OpVec sums = ir_ops(f.arena, ir_top(f.ir), OP_ACCUMULATE);
  CHECK(sums.n == 2 && op_stage(sums.at[0]) == 0 && op_stage(sums.at[1]) == 2);
  CHECK(count_ops(&f, OP_PARAM) == 2);
  CHECK(count_ops(&f, OP_DATA) == 1);
  fixture_end(&f);
}

/* Σ w² is small: it stays in its stage and is sent. */
static void test_shrinking_work_stays(void) {
  Fixture f = fixture_start(2, 2, PP_F32);
  Type t = shape(&f, PP_F32, 2, 8, 8);
  Value w = param(&f, "w", t), norm = sum_all(&f, map2(&f, OP_MUL, w, w));
  Value x = ir_matmul(&f.b, data(&f, "x", t), w, false, false);
  f.b.stage = 1;
  finish_loss(&f, map2(&f, OP_ADD, sum_all(&f, x), norm), (Value){NULL});
  CHECK(autodiff_run(f.ir));
  CHECK(ir_verify(f.ir));
  CHECK(count_ops(&f, OP_PARAM) == 1);
  fixture_end(&f);
}

/* --- stated derivatives ---------------------------------------------------------------------------------- */

/* f(a) = sin a with the stated derivative 3 dy · capture + y, by with_derivative(y, a, capture). */
static Op stated_function(Fixture *f, Type t) {
  Op func = func_create(f->ir, ir_body(f->ir), f->b.loc, "derivative.0");
  Builder b = {.ir = f->ir, .block = func_body(func), .loc = f->b.loc, .stage = -1};
  Value args[4];
  for (int i = 0; i < 4; i++) args[i] = func_add_arg(f->ir, func, t, b.loc);
  Value three = ir_map(&b, OP_MUL, 2, (Value[]){args[1], ir_constant(&b, t, 3)});
  Value times = ir_map(&b, OP_MUL, 2, (Value[]){three, args[3]});
  Value out = ir_map(&b, OP_ADD, 2, (Value[]){times, args[0]});
  func_return(f->ir, func, b.loc, 1, &out);
  return func;
}

static void test_stated_derivative(void) {
  Fixture f = fixture_start(2, 1, PP_F64);
  f.b.stage = 1;
  Type t = type_scalar(f.ir, PP_F64);
  stated_function(&f, t);
  Value a = param(&f, "a", t), c = data(&f, "c", t), y = map1(&f, OP_SIN, a);
  Attr attrs[] = {{.name = "derivative", .kind = ATTR_KIND_SYMBOL, .s = "derivative.0"},
                  {.name = "n_results", .kind = ATTR_KIND_INT, .i = 1},
                  {.name = "n_arguments", .kind = ATTR_KIND_INT, .i = 1}};
  Op stated = ir_build(&f.b, OP_WITH_DERIVATIVE, 3, (Value[]){y, a, c}, 1, &t, 3, attrs);
  finish_loss(&f, map2(&f, OP_MUL, op_result(stated, 0), splat(&f, y, 5)), (Value){NULL});
  CHECK(autodiff_run(f.ir));
  CHECK(ir_verify(f.ir));
  CHECK(count_ops(&f, OP_WITH_DERIVATIVE) == 0);
  CHECK(op_is_null(func_find(f.ir, ir_top(f.ir), "derivative.0")));
  Machine *m = noisy_machine(f.ir, f.arena);
  interpret_func(m, func_find(f.ir, ir_top(f.ir), "microbatch"), 0, NULL, NULL);
  Tensor capture = *tensor_create(f.arena, t);
  fill_data(m, "c", &capture);
  double wanted = 15 * capture.at[0] + sin(machine_param(m, "a")->at[0]);
  CHECK(fabs(machine_accumulator(m, "a", 1)->at[0] - wanted) < 1e-12);
  OpVec ops = block_ops(f.arena, func_body(func_find(f.ir, ir_top(f.ir), "microbatch")));
  for (int i = 0; i < ops.n; i++) CHECK(op_is_return(ops.at[i]) || op_stage(ops.at[i]) == 1);
  fixture_end(&f);
}

/* No derivative: an error at the op, not a zero. */
static void test_lse_is_refused(void) {
  Fixture f = fixture_start(1, 1, PP_F64);
  Value q = param(&f, "q", shape(&f, PP_F64, 4, 1, 1, 2, 2));
  Attr a = {.name = "scale", .kind = ATTR_KIND_FLOAT, .f = 1};
  Op op = ir_build(&f.b, OP_ATTENTION, 3, (Value[]){q, q, q}, 0, NULL, 1, &a);
  finish_loss(&f, sum_all(&f, op_result(op, 1)), (Value){NULL});
  CHECK(!autodiff_run(f.ir));
  CHECK(diag_error_count(f.diag) == 1);
  fixture_end(&f);
}

int main(void) {
  TEST(test_gradients);
  TEST(test_every_adjoint_is_tested);
  TEST(test_products_accumulate);
  TEST(test_gather_accumulates);
  TEST(test_only_needed_adjoints);
  TEST(test_order_of_sums);
  TEST(test_parameter_work_is_local);
  TEST(test_shrinking_work_stays);
  TEST(test_stated_derivative);
  TEST(test_lse_is_refused);
  return test_end();
}
