/* Tests of compiler/ir: a module with every op of the table is built, verified, printed and read back
 * by mlir-opt-19 (when it is installed); inference errors; functions; locations; marks. With the
 * argument `bench N` it times N ops instead. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "compiler/base/test.h"
#include "compiler/items.h"
#include "compiler/ir/internal.h"

typedef struct {
  Arena *arena;
  Diag *diag;
  Ir *ir;
  Builder b;
} Fixture;

static Fixture start(void) {
  Fixture f = {.arena = arena_create(), .diag = diag_create()};
  diag_add_source(f.diag, "m.pp", "line one\nline two\nline three\n");
  f.ir = ir_create(f.arena, f.diag);
  f.b = (Builder){.ir = f.ir, .block = ir_body(f.ir), .loc = {0, 1, 1}, .stage = -1};
  return f;
}

static void end(Fixture *f) {
  ir_destroy(f->ir);
  diag_destroy(f->diag);
  arena_destroy(f->arena);
}

static bool said(Fixture *f, const char *text) {
  Str out = {0};
  diag_flush_to(f->diag, &out);
  bool found = strstr(str_text(&out), text) != NULL;
  if (!found) printf("wanted: %s\ngot: %s\n", text, str_text(&out));
  str_free(&out);
  return found;
}

static Type f32(Fixture *f, int rank, const int64_t *dims) { return type_tensor(f->ir, PP_F32, rank, dims); }
#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}

static Attr string(const char *name, const char *s) { return (Attr){.name = name, .kind = ATTR_KIND_STRING, .s = s}; }
static Attr integer(const char *name, int64_t i) { return (Attr){.name = name, .kind = ATTR_KIND_INT, .i = i}; }
static Attr number(const char *name, double v) { return (Attr){.name = name, .kind = ATTR_KIND_FLOAT, .f = v}; }
static Attr symbol(const char *name, const char *s) { return (Attr){.name = name, .kind = ATTR_KIND_SYMBOL, .s = s}; }
static Attr type_attr(const char *name, Type t) { return (Attr){.name = name, .kind = ATTR_KIND_TYPE, .type = t}; }
static Attr unit(const char *name) { return (Attr){.name = name, .kind = ATTR_KIND_UNIT}; }
static Attr ints(const char *name, int64_t n, const int64_t *v) {
  return (Attr){.name = name, .kind = ATTR_KIND_INTS, .n_ints = n, .ints = v};
}

static void parameter(Fixture *f, const char *name, Type t) {
  Attr a[] = {string("sym", name), type_attr("type", t), string("init", "normal"), number("a", 0), number("b", 0.02)};
  ir_build(&f->b, OP_PARAMETER, 0, NULL, 0, NULL, 5, a);
}

static Value leaf(Builder *b, OpId id, Type t, int n, const Attr *a) {
  return op_result(ir_build(b, id, 0, NULL, 1, &t, n, a), 0);
}

/* --- the module with every op ------------------------------------------------------------------------ */

static void build_declarations(Fixture *f) {
  parameter(f, "w", f32(f, DIMS(8, 16)));
  parameter(f, "table", f32(f, DIMS(10, 8)));
  Attr source[] = {string("sym", "text"), type_attr("type", type_tensor(f->ir, PP_I32, DIMS(4))), string("kind", "bytes"),
                   string("path", "corpus.txt"), string("order", "random"), integer("vocabulary", 256)};
  ir_build(&f->b, OP_SOURCE, 0, NULL, 0, NULL, 6, source);
  int64_t actions[] = {0, 0, 0, 1, 0, 0}, table[] = {3, 0, 0, 1, 5};
  Loc lines[] = {{0, 2, 1}, {0, 3, 4}};
  Attr rank[] = {integer("rank", 0), ints("actions", 6, actions),
                 {.name = "lines", .kind = ATTR_KIND_LINES, .n_ints = 2, .lines = lines}};
  ir_build(&f->b, OP_RANK, 0, NULL, 0, NULL, 3, rank);
  Attr transfers = ints("table", 5, table);
  ir_build(&f->b, OP_TRANSFERS, 0, NULL, 0, NULL, 1, &transfers);
}

static void build_maps(Builder *b, Value x, Value yes) {
  Value xx[] = {x, x};
  for (OpId id = 0; id < OP_COUNT; id++) {
    if (op_class(id) != CLASS_MAP || id == OP_COMPARE || id == OP_SELECT || id == OP_CAST) continue;
    bool logic = id == OP_NOT || id == OP_AND || id == OP_OR;
    bool one = id == OP_NEG || id == OP_NOT || (id >= OP_EXP && id <= OP_COS);
    Value in[] = {logic ? yes : xx[0], logic ? yes : xx[1]};
    CHECK(!value_is_null(ir_map(b, id, one ? 1 : 2, in)));
  }
  CHECK(!value_is_null(ir_map(b, OP_SELECT, 3, (Value[]){yes, x, x})));
  CHECK(type_dtype(value_type(ir_cast(b, x, PP_F64))) == PP_F64);
  CHECK(value_equal(ir_cast(b, x, PP_F32), x));
}

static void build_moves(Fixture *f, Builder *b, Value x) {
  int64_t zero[] = {0, 0}, one[] = {1, 1}, axes[] = {0, 1};
  CHECK(type_rank(value_type(ir_reduce(b, OP_REDUCE_SUM, x, 2, axes))) == 0);
  CHECK(type_equal(value_type(ir_reduce(b, OP_REDUCE_MAX, x, 1, axes)), f32(f, DIMS(8))));
  CHECK(value_equal(ir_reduce(b, OP_REDUCE_SUM, x, 0, axes), x));
  CHECK(type_equal(value_type(ir_transpose(b, x)), f32(f, DIMS(8, 4))));
  CHECK(value_equal(ir_reshape(b, x, DIMS(4, 8)), x));
  Value row = ir_reduce(b, OP_REDUCE_SUM, x, 1, axes);
  CHECK(type_equal(value_type(ir_broadcast(b, row, value_type(x))), value_type(x)));
  CHECK(type_equal(value_type(ir_slice(b, x, zero, one)), f32(f, DIMS(1, 1))));
  CHECK(type_equal(value_type(ir_concat(b, 3, (Value[]){x, x, x}, 1)), f32(f, DIMS(4, 24))));
  CHECK(type_equal(value_type(ir_pad(b, x, one, zero)), f32(f, DIMS(5, 9))));
}

static void build_special(Fixture *f, Builder *b, Value x, Value index) {
  Attr table = string("param", "table"), rows = integer("rows", 10);
  Value t = leaf(b, OP_PARAM, f32(f, DIMS(10, 8)), 1, &table);
  Value g = op_result(ir_build(b, OP_GATHER, 2, (Value[]){t, index}, 0, NULL, 0, NULL), 0);
  CHECK(type_equal(value_type(g), f32(f, DIMS(4, 8))));
  Op s = ir_build(b, OP_SCATTER_ADD, 2, (Value[]){g, index}, 0, NULL, 1, &rows);
  CHECK(type_equal(value_type(op_result(s, 0)), value_type(t)));
  Value q = ir_reshape(b, x, DIMS(1, 2, 4, 4)), k = ir_reshape(b, ir_reduce(b, OP_REDUCE_SUM, q, 1, (int64_t[]){1}), DIMS(1, 1, 4, 4));
  Attr a[] = {number("scale", 0.5), unit("causal")};
  Op att = ir_build(b, OP_ATTENTION, 3, (Value[]){q, k, k}, 0, NULL, 2, a);
  CHECK(op_n_results(att) == 2 && type_equal(value_type(op_result(att, 1)), f32(f, DIMS(1, 2, 4))));
  Value in[] = {q, k, k, op_result(att, 0), op_result(att, 1), op_result(att, 0)};
  CHECK(op_n_results(ir_build(b, OP_ATTENTION_GRAD, 6, in, 0, NULL, 2, a)) == 3);
}

static void build_effects(Fixture *f, Builder *b, Value x, Value index) {
  Attr w = string("param", "w"), t = string("param", "table");
  Value y = leaf(b, OP_PARAM, f32(f, DIMS(8, 16)), 1, &w);
  Value xy = ir_matmul(b, x, y, false, false);
  ir_build(b, OP_MATMUL_ACCUMULATE, 2, (Value[]){x, xy}, 0, NULL, 2, (Attr[]){w, unit("ta")});
  ir_build(b, OP_ACCUMULATE, 1, &y, 0, NULL, 1, &w);
  ir_build(b, OP_SCATTER_ACCUMULATE, 2, (Value[]){x, index}, 0, NULL, 1, &t);
  Value sum = ir_reduce(b, OP_REDUCE_SUM, x, 2, (int64_t[]){0, 1});
  ir_build(b, OP_OUTPUT, 1, &sum, 0, NULL, 2, (Attr[]){string("output", "score"), string("kind", "mean")});
  ir_build(b, OP_LOSS, 2, (Value[]){sum, sum}, 0, NULL, 0, NULL);
  ir_build(b, OP_LOOP, 0, NULL, 0, NULL, 2, (Attr[]){symbol("body", "kernel_add"), integer("count", 8)});
  Value g = leaf(b, OP_GRADIENT, f32(f, DIMS(8, 16)), 2, (Attr[]){w, integer("of_stage", 1)});
  ir_build(b, OP_FOLD, 1, &g, 0, NULL, 1, &w);
  Value m = leaf(b, OP_STATE, f32(f, DIMS(8, 16)), 2, (Attr[]){w, string("state", "m")});
  ir_build(b, OP_ASSIGN, 1, &m, 0, NULL, 2, (Attr[]){w, string("state", "m")});
  Type many = type_tensor(f->ir, PP_F64, DIMS(8));
  leaf(b, OP_LOSSES, many, 0, NULL);
  leaf(b, OP_COUNTS, many, 0, NULL);
  leaf(b, OP_OUTPUTS, many, 1, (Attr[]){string("output", "score")});
  Value control = ir_constant(b, type_tensor(f->ir, PP_F64, DIMS(PP_CONTROL_SIZE)), 0.1);
  ir_build(b, OP_CONTROL, 1, &control, 0, NULL, 0, NULL);
  Value scale = leaf(b, OP_LOSS_SCALE, type_tensor(f->ir, PP_F64, DIMS(PP_LOSS_SCALE_SIZE)), 0, NULL);
  ir_build(b, OP_RESCALE, 1, &scale, 0, NULL, 0, NULL);
}

static Op build_kernel(Fixture *f) {
  Op k = func_create(f->ir, ir_body(f->ir), (Loc){0, 2, 3}, "kernel_add");
  Value x = func_add_arg(f->ir, k, f32(f, DIMS(4, 8)), (Loc){0, 2, 3});
  Builder b = {.ir = f->ir, .block = func_body(k), .loc = {0, 2, 5}, .stage = -1};
  Value y = ir_map(&b, OP_ADD, 2, (Value[]){x, x});
  func_return(f->ir, k, (Loc){0, 2, 9}, 1, &y);
  op_set_string(f->ir, k, "sym_visibility", "private");
  op_set_unit(f->ir, k, "pp.kernel");
  return k;
}

/* A call with operands and results of several types. */
static void build_mixed_call(Fixture *f, Builder *b, Value x) {
  Op k = func_create(f->ir, ir_body(f->ir), (Loc){0, 2, 3}, "kernel_mixed");
  Builder in = {.ir = f->ir, .block = func_body(k), .loc = {0, 2, 5}, .stage = -1};
  Value y = func_add_arg(f->ir, k, value_type(x), in.loc), z = func_add_arg(f->ir, k, type_scalar(f->ir, PP_F64), in.loc);
  Value out[] = {z, ir_map(&in, OP_EXP, 1, &y), z};
  func_return(f->ir, k, in.loc, 3, out);
  Value args[] = {x, leaf(b, OP_STEP, value_type(z), 0, NULL)};
  Type types[] = {value_type(z), value_type(x), value_type(z)};
  CHECK(op_n_results(call_create(b, k, 2, args, 3, types)) == 3);
}

static void build_all(Fixture *f) {
  build_declarations(f);
  Op kernel = build_kernel(f), module = module_create(f->ir, ir_body(f->ir), (Loc){0, 1, 1}, "stage_0");
  Op func = func_create(f->ir, module_body(module), (Loc){0, 1, 2}, "fwd");
  Value x = func_add_arg(f->ir, func, f32(f, DIMS(4, 8)), (Loc){0, 1, 3});
  Builder b = {.ir = f->ir, .block = func_body(func), .loc = {0, 3, 7}, .stage = 2, .backward = true, .name = "first"};
  Attr axis = integer("axis", 0), text = string("source", "text"), key = integer("key", -77);
  Value index = leaf(&b, OP_DATA, type_tensor(f->ir, PP_I32, DIMS(4)), 1, &text);
  leaf(&b, OP_IOTA, type_tensor(f->ir, PP_I32, DIMS(4)), 1, &axis);
  leaf(&b, OP_RANDOM, value_type(x), 1, &key);
  leaf(&b, OP_STEP, type_scalar(f->ir, PP_F64), 0, NULL);
  Value yes = ir_compare(&b, "lt", x, ir_constant(&b, value_type(x), 1.0 / 0.0));
  ir_constant_int(&b, type_tensor(f->ir, PP_BOOL, DIMS(2)), 1);
  build_maps(&b, x, yes);
  build_moves(f, &b, x);
  build_special(f, &b, x, index);
  build_effects(f, &b, x, index);
  Type t = value_type(x);
  Value called = op_result(call_create(&b, kernel, 1, &x, 1, &t), 0);
  build_mixed_call(f, &b, x);
  Value wd[] = {called, x};
  ir_build(&b, OP_WITH_DERIVATIVE, 2, wd, 1, &t, 3, (Attr[]){symbol("derivative", "kernel_add"), integer("n_results", 1), integer("n_arguments", 1)});
  func_inline(&b, kernel, 1, &called, wd);
  func_return(f->ir, func, (Loc){0, 3, 9}, 1, wd);
}

static void test_every_op(void) {
  Fixture f = start();
  build_all(&f);
  CHECK(ir_verify(f.ir));
  for (OpId id = 0; id < OP_COUNT; id++) {
    if (ir_ops(f.arena, ir_top(f.ir), id).n == 0) printf("%s is not in the test\n", op_name(id)), test_failures++;
    OpVec ops = ir_ops(f.arena, ir_top(f.ir), id);
    if (ops.n) CHECK(op_id(ops.at[0]) == id);
  }
  OpVec data = ir_ops(f.arena, ir_top(f.ir), OP_DATA), iota = ir_ops(f.arena, ir_top(f.ir), OP_IOTA);
  CHECK(!strcmp(op_string(f.arena, data.at[0], "pp.name"), "first"));
  CHECK(op_string(f.arena, iota.at[0], "pp.name") == NULL);
  CHECK(op_stage(iota.at[0]) == 2 && op_unit(iota.at[0], "pp.backward"));
  CHECK(op_loc(f.ir, iota.at[0]).line == 3 && op_loc(f.ir, iota.at[0]).col == 7);
  int64_t n;
  const Loc *lines = op_lines(f.ir, f.arena, ir_ops(f.arena, ir_top(f.ir), OP_RANK).at[0], "lines", &n);
  CHECK(n == 2 && lines[1].line == 3 && lines[1].col == 4);
  diag_flush(f.diag);
  end(&f);
}

/* --- reading back -------------------------------------------------------------------------------------- */

static void save(const char *path, void (*print)(FILE *, Fixture *), Fixture *f) {
  FILE *out = fopen(path, "w");
  CHECK(out != NULL);
  print(out, f);
  fclose(out);
}

static void print_dialect(FILE *out, Fixture *f) { (void)f, ir_print_irdl(out); }
static void print_plain(FILE *out, Fixture *f) { ir_print(out, f->ir, ir_top(f->ir), false); }
static void print_placed(FILE *out, Fixture *f) { ir_print(out, f->ir, ir_top(f->ir), true); }

static void test_reads_back(void) {
  if (system("command -v mlir-opt-19 >/dev/null")) {
    printf("skip reads_back: no mlir-opt-19\n");
    return;
  }
  Fixture f = start();
  build_all(&f);
  char dir[] = "/tmp/ir_test_XXXXXX", path[64], command[512];
  CHECK(mkdtemp(dir) != NULL);
  snprintf(path, sizeof path, "%s/pp.irdl", dir), save(path, print_dialect, &f);
  snprintf(path, sizeof path, "%s/plain", dir), save(path, print_plain, &f);
  snprintf(path, sizeof path, "%s/placed", dir), save(path, print_placed, &f);
  snprintf(command, sizeof command, "mlir-opt-19 --irdl-file=%s/pp.irdl %s/plain | cmp - %s/plain", dir, dir, dir);
  CHECK(system(command) == 0);
  snprintf(command, sizeof command,
           "mlir-opt-19 --irdl-file=%s/pp.irdl --mlir-print-debuginfo %s/placed | cmp - %s/placed", dir, dir, dir);
  CHECK(system(command) == 0);
  snprintf(command, sizeof command, "rm -r %s", dir);
  CHECK(system(command) == 0);
  end(&f);
}

/* --- errors ---------------------------------------------------------------------------------------------- */

static void test_inference_errors(void) {
  Fixture f = start();
  Op func = func_create(f.ir, ir_body(f.ir), f.b.loc, "loss");
  Value x = func_add_arg(f.ir, func, f32(&f, DIMS(4, 8)), f.b.loc), y = func_add_arg(f.ir, func, f32(&f, DIMS(16, 4)), f.b.loc);
  Value i = func_add_arg(f.ir, func, type_tensor(f.ir, PP_I32, DIMS(4, 8)), f.b.loc);
  Builder b = {.ir = f.ir, .block = func_body(func), .loc = {0, 2, 6}, .stage = -1};
  CHECK(value_is_null(ir_matmul(&b, x, y, false, false)));
  CHECK(said(&f, "m.pp:2:6: error: matmul: inner dimensions differ: f32[4, 8] @ f32[16, 4]"));
  CHECK(value_is_null(ir_map(&b, OP_ADD, 2, (Value[]){x, y})));
  CHECK(said(&f, "add: shapes differ: f32[4, 8] and f32[16, 4]"));
  CHECK(value_is_null(ir_map(&b, OP_ADD, 2, (Value[]){x, i})));
  CHECK(said(&f, "add: element types differ: f32[4, 8] and i32[4, 8]"));
  CHECK(value_is_null(ir_map(&b, OP_EXP, 1, &i)));
  CHECK(said(&f, "exp: i32[4, 8] is no float tensor"));
  CHECK(value_is_null(ir_map(&b, OP_ADD, 1, &x)));
  CHECK(said(&f, "add: 1 operand, not 2"));
  CHECK(value_is_null(ir_reshape(&b, x, DIMS(5, 6))));
  CHECK(said(&f, "reshape: numbers of elements differ: f32[4, 8] to f32[5, 6]"));
  CHECK(value_is_null(ir_reshape(&b, x, DIMS(-4, -8))) && said(&f, "reshape: the result f32[-4, -8] has an axis below 1"));
  CHECK(value_is_null(ir_broadcast(&b, ir_reshape(&b, x, DIMS(1, 4, 8)), f32(&f, DIMS(INT64_MAX, 4, 8)))));
  CHECK(said(&f, "is too large"));
  CHECK(value_is_null(ir_pad(&b, x, (int64_t[]){INT64_MAX, 0}, (int64_t[]){1, 0})) && said(&f, "width on axis 0 is too large"));
  CHECK(value_is_null(ir_broadcast(&b, x, value_type(y))));
  CHECK(said(&f, "broadcast: can't broadcast: f32[4, 8] to f32[16, 4]"));
  CHECK(value_is_null(ir_slice(&b, x, (int64_t[]){0, 0}, (int64_t[]){5, 1})));
  CHECK(said(&f, "slice: range 0..5 is outside axis 0 of f32[4, 8]"));
  CHECK(value_is_null(ir_concat(&b, 2, (Value[]){x, y}, 0)));
  CHECK(said(&f, "concat: f32[4, 8] and f32[16, 4] don't fit together"));
  Attr axis = {.name = "axis", .kind = ATTR_KIND_INT};
  Value many[3 * IR_MAX_RUNS];
  for (int m = 0; m < 3 * IR_MAX_RUNS; m++) many[m] = ir_slice(&b, y, (int64_t[]){0, 0}, (int64_t[]){1 + m % 2, 4});
  CHECK(type_equal(value_type(ir_concat(&b, 3 * IR_MAX_RUNS, many, 0)), f32(&f, DIMS(9 * IR_MAX_RUNS / 2, 4))));
  CHECK(op_is_null(ir_build(&b, OP_CONCAT, IR_MAX_RUNS + 1, many, 0, NULL, 1, &axis)));
  CHECK(said(&f, "concat: the type changes more than 64 times along the operands"));
  CHECK(value_is_null(ir_compare(&b, "like", x, x)));
  CHECK(said(&f, "compare: no predicate 'like'"));
  int before = diag_error_count(f.diag);
  CHECK(value_is_null(ir_map(&b, OP_ADD, 2, (Value[]){x, {NULL}})));
  CHECK(diag_error_count(f.diag) == before);
  end(&f);
}

/* A product of f32[4, 8] and f32[8, 16] with an epilogue, from its operands. */
static Op product_with(Builder *b, int n, const Value *in, const char *epilogue) {
  Attr a = string("epilogue", epilogue);
  return ir_build(b, OP_MATMUL, n, in, 0, NULL, epilogue != NULL, &a);
}

static void test_epilogues(void) {
  Fixture f = start();
  Op func = func_create(f.ir, ir_body(f.ir), f.b.loc, "loss");
  Type types[] = {f32(&f, DIMS(4, 8)), f32(&f, DIMS(8, 16)), f32(&f, DIMS(16)), f32(&f, DIMS(8))};
  Value v[4];
  for (int i = 0; i < 4; i++) v[i] = func_add_arg(f.ir, func, types[i], f.b.loc);
  Builder b = {.ir = f.ir, .block = func_body(func), .loc = {0, 2, 6}, .stage = -1};
  CHECK(op_n_results(product_with(&b, 3, v, "bias")) == 1 && op_n_results(product_with(&b, 3, v, "gelu")) == 1);
  CHECK(op_n_results(product_with(&b, 3, v, "gelu_aux")) == 2);
  CHECK(op_is_null(product_with(&b, 3, v, NULL)) && said(&f, "matmul: 3 operands without an epilogue"));
  CHECK(op_is_null(product_with(&b, 2, v, "bias")) && said(&f, "matmul: 2 operands with an epilogue"));
  CHECK(op_is_null(product_with(&b, 3, v, "relu")) && said(&f, "matmul: no epilogue 'relu'"));
  CHECK(op_is_null(product_with(&b, 3, (Value[]){v[0], v[1], v[3]}, "bias")));
  CHECK(said(&f, "matmul: f32[8] is no vector for the rows of the product"));
  end(&f);
}

static void test_verifier(void) {
  Fixture f = start();
  Op func = func_create(f.ir, ir_body(f.ir), f.b.loc, "loss");
  Builder b = {.ir = f.ir, .block = func_body(func), .loc = {0, 3, 1}, .stage = -1};
  Attr w = string("param", "w");
  Value x = leaf(&b, OP_PARAM, f32(&f, DIMS(4, 8)), 1, &w), y = ir_map(&b, OP_ADD, 2, (Value[]){x, x});
  func_return(f.ir, func, b.loc, 0, NULL);
  CHECK(!ir_verify(f.ir) && said(&f, "m.pp:3:1: error: param: no parameter 'w'"));
  parameter(&f, "w", f32(&f, DIMS(4, 9)));
  CHECK(!ir_verify(f.ir) && said(&f, "param: f32[4, 8] for the parameter 'w', which is f32[4, 9]"));
  parameter(&f, "w2", f32(&f, DIMS(4, 8)));
  op_set_string(f.ir, value_owner(x), "param", "w2");
  CHECK(ir_verify(f.ir));
  op_move_before(value_owner(y), value_owner(x));
  CHECK(!ir_verify(f.ir) && said(&f, "does not dominate"));
  op_move_before(value_owner(x), value_owner(y));
  op_set_operand(value_owner(y), 1, ir_reshape(&b, x, DIMS(8, 4)));
  CHECK(!ir_verify(f.ir) && said(&f, "add: shapes differ"));
  op_set_operand(value_owner(y), 1, x);
  op_set_int(f.ir, value_owner(x), "param", 3);
  CHECK(!ir_verify(f.ir) && said(&f, "attribute 'param' is of the wrong kind"));
  end(&f);
}

static void test_functions(void) {
  Fixture f = start();
  build_all(&f);
  Op kernel = func_find(f.ir, ir_top(f.ir), "kernel_add");
  CHECK(!op_is_null(kernel) && op_is_func(kernel) && func_n_args(kernel) == 1);
  CHECK(op_is_null(func_find(f.ir, ir_top(f.ir), "fwd")));
  CHECK(ir_funcs(f.arena, ir_top(f.ir)).n == 2);
  CHECK(!op_is_null(ir_parameter(f.ir, "table")) && op_is_null(ir_parameter(f.ir, "nothing")));
  OpVec calls = ir_ops(f.arena, ir_top(f.ir), OP_CALL);
  CHECK(calls.n == 2 && op_is_call(calls.at[0]) && !strcmp(call_callee(f.arena, calls.at[0]), "kernel_add"));
  Value x = func_arg(kernel, 0);
  OpVec users = value_users(f.arena, x);
  CHECK(users.n == 2 && op_id(users.at[0]) == OP_ADD && op_is_return(func_return_op(kernel)));
  CHECK(op_is_null(value_owner(x)) && value_index(x) == 0);
  end(&f);
}

/* --- random ops: what is built verifies, the rest is reported ------------------------------------------- */

static uint64_t random_state = 12345;
static int pick(int n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (int)((random_state >> 33) % (uint64_t)n);
}

static Type random_type(Fixture *f) {
  static const int64_t dims[] = {1, 2, 4, 8};
  int64_t d[4];
  int rank = pick(5);
  for (int i = 0; i < rank; i++) d[i] = dims[pick(4)];
  return type_tensor(f->ir, (pp_dtype)pick(PP_DTYPE_COUNT), rank, d);
}

static Attr random_attr(Fixture *f, const AttrDef *def, int64_t *room) {
  static const char *const words[] = {"", "w", "sum", "normal", "bytes", "random", "lt", "eq", "\u00e9\n\"", "concat"};
  Attr a = {.name = def->name, .i = pick(6) - 1, .f = pick(5) - 2, .s = words[pick(10)], .type = random_type(f)};
  static const int kinds[KIND_COUNT] = {
      [KIND_INT] = ATTR_KIND_INT,   [KIND_FLOAT] = ATTR_KIND_FLOAT,   [KIND_FLOAT_OR_INT] = ATTR_KIND_FLOAT,
      [KIND_STRING] = ATTR_KIND_STRING, [KIND_UNIT] = ATTR_KIND_UNIT, [KIND_INTS] = ATTR_KIND_INTS,
      [KIND_SYMBOL] = ATTR_KIND_SYMBOL, [KIND_TYPE] = ATTR_KIND_TYPE, [KIND_ARRAY] = ATTR_KIND_LINES};
  a.kind = kinds[def->kind];
  if (def->kind == KIND_FLOAT_OR_INT && pick(2)) a.kind = ATTR_KIND_INT;
  if (pick(40) == 0) a.kind = pick(ATTR_KIND_TYPE); /* of the wrong kind */
  a.n_ints = a.kind == ATTR_KIND_INTS ? pick(10) : 0;
  for (int i = 0; i < a.n_ints; i++) room[i] = pick(6) - 1;
  a.ints = room;
  if (a.kind == ATTR_KIND_SYMBOL && !*a.s) a.s = "w";
  return a;
}

static bool refers(OpId id) { /* to declarations that this test doesn't make */
  return id == OP_CALL || id == OP_LOOP || id == OP_WITH_DERIVATIVE || id == OP_DATA;
}

static void random_op(Fixture *f, Builder *b, Value *pool, int *n) {
  OpId id = (OpId)pick(OP_COUNT);
  Value in[6];
  Type out[3];
  Attr attrs[MAX_OWN_ATTRS];
  int64_t room[MAX_OWN_ATTRS][10];
  int n_in = pick(7), n_out = pick(3), n_attrs = 0;
  if (pick(4)) n_in = op_table[id].min_in;
  if (op_table[id].infer || pick(4)) n_out = op_table[id].infer ? 0 : op_table[id].min_out;
  for (int i = 0; i < n_in; i++) in[i] = pool[i && pick(2) ? 0 : pick(*n)];
  for (int i = 0; i < n_out; i++) out[i] = random_type(f);
  for (int i = 0; i < op_attr_count(id); i++)
    if (pick(20)) attrs[n_attrs++] = random_attr(f, &attr_table[op_table[id].first_attr + i], room[i]);
  if (refers(id) || id == OP_PARAM || (id == OP_PARAMETER && *n > 8)) return;
  Op op = ir_build(b, id, n_in, in, n_out, n_out ? out : NULL, n_attrs, attrs);
  if (op_is_null(op)) return;
  if (op_string(f->arena, op, "param")) op_erase(op); /* of a parameter that is not there */
  else if (op_n_results(op) && *n < 400) pool[(*n)++] = op_result(op, 0);
}

static void test_random_ops(void) {
  Fixture f = start();
  Op func = func_create(f.ir, ir_body(f.ir), f.b.loc, "loss");
  Builder b = {.ir = f.ir, .block = func_body(func), .loc = {0, 1, 1}, .stage = -1};
  Value pool[400];
  int n = 0, built = 0;
  for (; n < 8; n++) pool[n] = func_add_arg(f.ir, func, random_type(&f), b.loc);
  for (int i = 0; i < 20000; i++) {
    int before = diag_error_count(f.diag);
    random_op(&f, &b, pool, &n);
    built += diag_error_count(f.diag) == before;
  }
  func_return(f.ir, func, b.loc, 1, pool);
  int reported = diag_error_count(f.diag);
  Str text = {0};
  diag_flush_to(f.diag, &text); /* what was refused */
  str_free(&text);
  CHECK(built > 1000 && reported > 1000);
  diag_start_phase(f.diag);
  CHECK(ir_verify(f.ir));
  diag_flush(f.diag);
  FILE *out = fopen("/dev/null", "w");
  ir_print_pretty(out, f.ir, ir_top(f.ir), (PrettyOptions){-1, -1});
  fclose(out);
  end(&f);
}

/* --- the form for people ----------------------------------------------------------------------------------- */

static void check_contains(Fixture *f, PrettyOptions options, int n, const char *const *wanted, const char *unwanted) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ir_print_pretty(out, f->ir, ir_top(f->ir), options);
  fclose(out);
  for (int i = 0; i < n; i++)
    if (!strstr(text, wanted[i])) printf("not in the text: %s\n", wanted[i]), test_failures++;
  CHECK(!unwanted || !strstr(text, unwanted));
  if (test_failures) fputs(text, stdout);
  free(text);
}

static void test_pretty(void) {
  Fixture f = start();
  build_all(&f);
  static const char *const wanted[] = {
      "  w      f32[8, 16]  normal(0, 0.02)  # m.pp:1\n", "text  i32[4]  bytes(\"corpus.txt\")  random  vocabulary 256",
      "  compare_1 = in0 < inf ", "matmul_1 = matmul(in0, w) ", "  gradient(w) += matmul(in0ᵀ, matmul_1)", "# m.pp:3\n",
      "gather_1 = gather(table, text)", "  m(w) := state_1", "add_1 = in0 + in0 ", "bool[4, 8]", "attention_1, lse = attention("};
  check_contains(&f, (PrettyOptions){-1, -1}, (int)(sizeof wanted / sizeof *wanted), wanted, NULL);
  end(&f);
}

static void build_rank(Fixture *f, int rank, int64_t n_ops, const int64_t *ops) {
  Loc lines[] = {{0, 2, 1}, {0, 3, 4}};
  int64_t actions[] = {PP_FWD, rank, 3, PP_UPDATE, rank, -1}, items[] = {ITEM_PARAMETER, 0, 0, PP_ARENA, 64, 512, ITEM_VALUE, 0, 3, PP_WINDOW, 0, 128};
  int64_t bytes[PP_CLASS_COUNT + 3] = {576, 128};
  Attr a[] = {integer("rank", rank), ints("actions", 6, actions), {.name = "lines", .kind = ATTR_KIND_LINES, .n_ints = 2, .lines = lines},
              ints("ops", n_ops, ops), ints("items", 12, items), ints("bytes", PP_CLASS_COUNT + 3, bytes)};
  CHECK(!op_is_null(ir_build(&f->b, OP_RANK, 0, NULL, 0, NULL, 6, a)));
}

/* Actions with what is issued around them, transfers and memory; one rank of two. */
static void test_pretty_ranks(void) {
  Fixture f = start();
  int64_t table[] = {0, 3, 0, 1, 0}, ranks[] = {0, 1};
  Attr transfers = ints("table", 5, table);
  parameter(&f, "w", f32(&f, DIMS(8, 16)));
  ir_build(&f.b, OP_TRANSFERS, 0, NULL, 0, NULL, 1, &transfers);
  op_set_string(f.ir, ir_top(f.ir), "pp.value_names", "x (m.pp:2)\nadjoint: mul (m.pp:3)");
  op_set_ints(f.ir, ir_top(f.ir), "pp.stage_ranks", 2, ranks);
  build_rank(&f, 0, 6, (int64_t[]){1, PP_POST_SEND, 0, 2, PP_AWAIT_SEND, 0});
  build_rank(&f, 1, 6, (int64_t[]){0, PP_POST_RECEIVE, 0, 0, PP_AWAIT_RECEIVE, 0});
  CHECK(ir_verify(f.ir));
  check_contains(&f, (PrettyOptions){-1, 0}, 5,
                 (const char *[]){"rank 0, stages 0: 2 actions\n", "after: send x:3 to 1  # m.pp:2\n", "before: await sent x:3 to 1",
                                  "memory of rank 0: arena 576 bytes, window 128 bytes\n  arena + 64  512 bytes  w\n",
                                  "x, microbatch 3\n"},
                 "rank 1, stages");
  check_contains(&f, (PrettyOptions){1, -1}, 2,
                 (const char *[]){"  0  fwd     stage 1  microbatch 3  before: receive x:3 from 0, await x:3  # m.pp:2\n",
                                  "  0  x:3  rank 0 → rank 1  made by action 0\n"},
                 "rank 0, stages");
  end(&f);
}

/* --- times ----------------------------------------------------------------------------------------------- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double since;
static void lap(const char *what) {
  printf("%-32s %8.1f ms\n", what, now() - since);
  since = now();
}

static void bench(int n) {
  since = now();
  Fixture f = start();
  lap("context and dialects");
  Op func = func_create(f.ir, ir_body(f.ir), f.b.loc, "loss");
  Value x = func_add_arg(f.ir, func, f32(&f, DIMS(4, 4)), f.b.loc), v = x;
  Builder b = {.ir = f.ir, .block = func_body(func), .stage = 0};
  for (int i = 0; i < n; i++) {
    b.loc = (Loc){0, i + 1, 3};
    v = i % 3 == 0 ? ir_matmul(&b, v, x, false, false) : ir_map(&b, i % 3 == 1 ? OP_ADD : OP_EXP, i % 3 == 1 ? 2 : 1, (Value[]){v, x});
  }
  func_return(f.ir, func, f.b.loc, 1, &v);
  lap("build");
  CHECK(ir_verify(f.ir));
  lap("verify");
  OpVec ops = block_ops(f.arena, func_body(func));
  lap("list");
  long sum = 0;
  for (int i = 0; i < ops.n; i++) sum += op_id(ops.at[i]) + op_stage(ops.at[i]);
  lap("op_id and op_stage");
  for (int i = 0; i < ops.n; i++) sum += op_loc(f.ir, ops.at[i]).line;
  lap("op_loc");
  FILE *out = fopen("/dev/null", "w");
  ir_print(out, f.ir, ir_top(f.ir), false);
  lap("print");
  ir_print_pretty(out, f.ir, ir_top(f.ir), (PrettyOptions){-1, -1});
  lap("print_pretty");
  fclose(out);
  printf("%ld\n", sum);
  end(&f);
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "bench")) return bench(argc > 2 ? atoi(argv[2]) : 100000), test_failures != 0;
  TEST(test_every_op);
  TEST(test_reads_back);
  TEST(test_inference_errors);
  TEST(test_epilogues);
  TEST(test_verifier);
  TEST(test_functions);
  TEST(test_random_ops);
  TEST(test_pretty);
  TEST(test_pretty_ranks);
  return test_end();
}
