/* Each rule of the language as a line: small programs that must elaborate, and
 * wrong ones with the message, line and column that they must give. What train
 * and schedules add is in elaborate_test.c. */
#include "compiler/eval_test.h"

/* --- compile-time values --- */

static void test_numbers(void) {
  ok("require 7 / 7 == 1 and div(-7, 2) == -4 and mod(-7, 2) == 1, \"t\";");
  ok("require 1 / 2.0 == 0.5 and 1 + 0.5 == 1.5 and 3 == 3.0, \"t\";");
  ok("require pow(2, 10) == 1024 and pow(2.0, -1) == 0.5 and sqrt(16) == 4.0, "
     "\"t\";");
  ok("require infinity > 1e300 and -infinity < 0 and min(2, 3) == 2 and max(2, "
     "2.5) == 2.5, \"t\";");
  ok("require cast(2.9, i32) == 2 and cast(-2.9, i32) == -2 and cast(3, f64) "
     "== 3.0, \"t\";");
  ok("require \"a\" + \"b\" == \"ab\" and f32 != f64 and real == f32, \"t\";");
  ok("require true or 1 / 0 == 1, \"lazy\"; require (true ? 1 : 1 / 0) == 1, "
     "\"lazy\";");
  fails("let a = 7 / 2;", "m.pp:2:11: error: 7 / 2 is not exact");
  fails("let a = 1 / 0;", "2:11: error: division by zero");
  fails("let a = 9223372036854775807 + 1;",
        "2:29: error: 9223372036854775807 + 1 does not fit in 64 bits");
  fails("let a = 4611686018427387904 * 2;", "does not fit in 64 bits");
  fails("let a = 1 + \"b\";",
        "2:11: error: '+' does not work on the int 1 and a string");
  fails("let a = 1 == \"b\";", "can't compare the int 1 with a string");
  fails("if 1 { }", "2:4: error: 'if' needs a bool, not the int 1");
  fails("let a = not 1;", "'not' works on bools, not on the int 1");
  fails("let a = true and 2;", "'and' works on bools, not on the int 2");
  fails("require 1 == 2, \"one is two\";", "error: one is two");
}

static void test_require_stands_at_the_call(void) {
  fails_with("small(9);",
             "fn small(n) { require n < 5, \"n must be small\"; return n; }",
             "m.pp:2:1: error: n must be small");
  fails_with("small(9);",
             "fn small(n) { require n < 5, \"n must be small\"; return n; }",
             "m.pp:4:15: note: required here");
  fails("cut(0, 3, 4);", "2:1: error: there are fewer layers than stages");
}

static void test_lists(void) {
  ok("let a = [1, 2]; let b = a; append(b, 3); require len(a) == 3 and a[2] == "
     "3, \"reference\";");
  ok("let a = copy([1, 2]); a[0] = 5; a[1] += 2; require a == [5, 4], \"t\";");
  ok("let a = [[1], [2]]; a[1][0] = 7; require a[1][0] == 7, \"nested\";");
  ok("let a = [3, 1, 2]; require sort(a) == [1, 2, 3] and a[0] == 3 and "
     "reverse(a) == [2, 1, 3], \"new lists\";");
  ok("let a = sort([[2, 0], [1, 1], [2, 2]], less = fn (p, q) { return p[0] < "
     "q[0]; });\n"
     "require a[1][1] == 0 and a[2][1] == 2, \"stable\";");
  ok("let a = [1, 2, 3]; require pop_front(a) == 1 and len(a) == 2 and a[0] == "
     "2, \"t\";");
  ok("let n = 0; for i in 3..1 { n += 1; } require n == 0 and len(2..5) == 3, "
     "\"half open, empty\";");
  ok("let s = 0; for v in [4, 5] { s += v; } for v in reverse(0..4) { s = s * "
     "10 + v; } require s == 93210, \"t\";");
  fails("let a = [1]; let b = a[1];",
        "2:23: error: index 1 is not within a list of 1");
  fails("let a = [1]; a[-1] = 2;", "index -1 is not within a list of 1");
  fails("let a = []; pop_front(a);", "'pop_front' of an empty list");
  fails("sort([1, \"a\"]);", "error: '<' does not work on");
  fails("for i in 3 { }", "'for' goes over a range or a list, not the int 3");
  fails("let a = 2..1.5;", "a range needs an int, not the float 1.5");
}

static void test_scopes_and_functions(void) {
  ok("let n = 1; if true { let n = 2; n = 3; } require n == 1, \"hidden\";");
  ok("let n = 1; fn add(k) { n += k; } add(2); add(3); require n == 6, \"by "
     "reference\";");
  ok("let fs = []; for i in 0..3 { let k = i; append(fs, fn () { return k; }); "
     "}\n"
     "let f = fs[0]; let g = fs[2]; require f() == 0 and g() == 2, \"each turn "
     "is fresh\";");
  ok("fn f(a, b = a + 1, c = a * b) { return a + b + c; } require f(1) == 5 "
     "and f(1, c = 0) == 3 and f(b = 2, a = 1) == 5, \"t\";");
  ok("fn two() { return 1, 2; } let a, b = two(); require a + b == 3, \"t\"; "
     "fn again() { return two(); } let c, d = again();");
  ok("fn fact(n) { if n < 2 { return 1; } return n * fact(n - 1); } require "
     "fact(10) == 3628800, \"t\";");
  ok("fn down(n) { return n == 0 ? 0 : down(n - 1); } require down(900) == 0, "
     "\"depth\";");
  ok("let n = 0; while true { n += 1; if n == 3 { continue; } if n > 5 { "
     "break; } } require n == 6, \"t\";");
  ok("let a = 1; fn f() { return a; } if true { let a = 2; require f() == 1 "
     "and a == 2, \"lexical\"; }");
  ok_with("require later() == 4 and k == 4, \"t\";",
          "fn later() { return k; }\nconst k = 2 * half;\nconst half = 2;");
  fails("fn f(a) { return a; } f(1, 2);",
        "2:28: error: function 'f' takes 1 argument, here are 2");
  fails("fn f(count) { return count; } f(cout = 1);",
        "function 'f' has no argument 'cout'");
  fails("fn f(count) { return count; } f(cout = 1);",
        "2:6: note: did you mean 'count'?");
  fails("fn f(a) { return a; } f();",
        "2:23: error: function 'f' needs argument 'a'");
  fails("fn f(a) { return a; } f(1, a = 2);", "argument 'a' is given twice");
  fails("fn f() { return 1, 2; } let a = f();",
        "this gives 2 results where one is needed");
  fails("fn f() { return 1, 2; } let a, b, c = f();",
        "this gives 2 results, here are 3 names");
  fails("fn f() { } let a = f();", "this gives no value");
  fails("let a = 3; a();", "the int 3 can't be called");
  fails("fn f(n) { return f(n + 1); } f(0);",
        "error: calls are nested more than 1000 deep here");
  fails_with("let a = k;", "const k = l;\nconst l = k;", "depends on itself");
  fails("len(1, 2);", "'len' takes 1 argument by place, here are 2");
  fails("let a = mean(x, ais = 1);",
        "2:17: error: 'mean' has no argument 'ais'");
}

static void test_budget(void) {
  CompileOptions o = no_options();
  o.step_limit = 100000;
  static const char *const bodies[] = {
      "while true { }", "let a = 0; while a < 1 { a = 0; }",
      "for i in 0..1000000000000 { }",
      "fn f() { return 1; } while f() == 1 { }"};
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    char *text = program_of(bodies[i], "");
    Run r = run_with(text, o);
    if (r.program || !strstr(str_text(&r.errors), "m.pp:2:"))
      show("should end", bodies[i], str_text(&r.errors));
    CHECK(strstr(str_text(&r.errors),
                 "does not end within 100000 evaluation steps") != NULL);
    run_end(&r);
    free(text);
  }
  fails("let a = [1]; while true { append(a, a); a = [copy(a), copy(a), "
        "copy(a), copy(a)]; for i in 0..1000 { append(a, 0..1000); } }",
        "needs too much memory");
  fails("let y = x; while true { y = y + 1.0; }",
        "makes more than 1000000 operations");
}

/* --- shapes and tensors --- */

static const char *const helpers =
    "fn is(x, wanted) { require shape(x) == wanted, \"a shape\"; }\n"
    "fn both(x: [.., n], y: [.., m]) { return n + m; }\n"
    "fn ints(x: i32[b, t]) { return b * t; }\n"
    "fn wide(x: [.., 2 * four]) { return 1; }\nconst four = 4;\n";

static void tensors_ok(const char *body) {
  ok_with(body, helpers);
}
static void tensors_fail(const char *body, const char *wanted) {
  fails_with(body, helpers, wanted);
}

static void test_patterns(void) {
  tensors_ok("require both(x, x) == 16 and wide(x) == 1 and "
             "ints(reshape(iota(6), [2, 3])) == 6, \"t\";");
  tensors_ok("fn f(y: [b, n]) { fn g(z: [n]) { return n; } return g(y[0]); } "
             "require f(x) == 8, \"a bound name is in sight\";");
  tensors_ok("let b = 4; fn f(y: [b, n]) { return b; } require f(x) == 4, "
             "\"compared\";");
  tensors_ok("fn f(y: [.., n]) { return reshape(y, [.., 2, n / 2]); } is(f(x), "
             "[4, 2, 4]);");
  tensors_fail("both(x, x[0]);",
               "2:9: error: 'y' is f32[8], but its leading axes must be [4]");
  tensors_fail("let b = 3; fn f(y: [b, n]) { return b; } f(x);",
               "2:44: error: 'y' is f32[4, 8], but axis 0 must be b = 3");
  tensors_fail("let b = 3; fn f(y: [b, n]) { return b; } f(x);",
               "2:21: note: the shape is declared here");
  tensors_fail("ints(x);",
               "2:6: error: 'x' must be i32, but this is f32[4, 8]");
  tensors_fail("wide(iota(7));", "'x' is i32[7], but axis 0 must be 8");
  tensors_fail("ints(iota(7));", "'x' is i32[7], but it must have 2 axes");
  tensors_fail("ints(3);", "'x' must be a tensor, not the int 3");
  tensors_fail(
      "let b = x; fn f(y: [b, n]) { } f(x);",
      "'b' in a shape must be a size, but here it is the tensor f32[4, 8]");
  tensors_fail("let a = [.., 1];", "'..' stands for nothing here");
}

static void test_tensor_operations(void) {
  tensors_ok("is(x + 1, [4, 8]); is(x * x[0], [4, 8]); is(1.0 / (x + 2.0), [4, "
             "8]); is(-x, [4, 8]);");
  tensors_ok("is(x @ transpose(x), [4, 4]); is(x[0] @ transpose(x), [4]); is(x "
             "@ x[0], [4]); is(x[0] @ x[0], []);");
  tensors_ok(
      "let y = reshape(x, [2, 2, 8]); is(y @ transpose(x), [2, 2, 4]); is(y @ "
      "transpose(y), [2, 2, 2]); is(x[0..2] @ transpose(y), [2, 2, 2]);");
  tensors_ok("is(x[.., 0..3], [4, 3]); is(x[1], [8]); is(x[1, 2..3], [1]); "
             "is(x[.., 7], [4]); is(x[1..3, ..], [2, 8]); is(x[0, 0], []);");
  tensors_ok("is(sum(x), []); is(mean(x, axis = -1, keep = true), [4, 1]); "
             "is(max(x, axis = [0, 1]), []); is(max(x, axis = 0), [8]); "
             "is(sum(x, axis = all), []);");
  tensors_ok(
      "is(concat([x, x]), [4, 16]); is(concat([x, x], axis = 0), [8, 8]); "
      "is(pad(x, -1, 1, 2), [4, 11]); is(reshape(x, [-1, 2]), [16, 2]);");
  tensors_ok("is(select(x > 0, x, 0), [4, 8]); require dtype(select(x > 0, 1, "
             "0)) == real and dtype(x > 0) == bool, \"t\";");
  tensors_ok(
      "let m = x > 0 and not (x > 1) or x == 2; is(m, [4, 8]); is(cast(m, "
      "i32), [4, 8]); require dtype(true and m) == bool, \"t\";");
  tensors_ok("is(gather(x, iota(3)), [3, 8]); is(iota(5) + 1, [5]); "
             "is(div(iota(4), 2), [4]); is(mod(iota(4), 2), [4]);");
  tensors_ok("let q = reshape(x, [1, 2, 2, 8]); is(attention(q, q, q, causal = "
             "true, scale = 0.5), [1, 2, 2, 8]);");
  tensors_ok("is(random(shape(x)), [4, 8]); is(permute(reshape(x, [2, 2, 8]), "
             "[2, 0, -2]), [8, 2, 2]); is(abs(x), [4, 8]);");
  tensors_ok("is(min(x, 1.0), [4, 8]); is(max(1, x), [4, 8]); is(pow(x, 2), "
             "[4, 8]); is(exp(x) + tanh(x) + rsqrt(x) + erf(x), [4, 8]);");
  tensors_fail(
      "let y = x + x[.., 0..3];",
      "2:11: error: f32[4, 8] and f32[4, 3] do not broadcast: axis -1 differs");
  tensors_fail("let y = x @ x;",
               "2:11: error: f32[4, 8] @ f32[4, 8]: 8 columns meet 4 rows");
  tensors_fail("let y = x + iota(8);",
               "f32[4, 8] meets i32[8]: there are no implicit casts");
  tensors_fail("let y = iota(8) + 0.5;", "the float 0.5 meets an i32 tensor");
  tensors_fail("let y = iota(8) / 2;", "'/' on an i32 tensor");
  tensors_fail("let y = iota(8) + 3000000000;",
               "3000000000 does not fit in i32");
  tensors_fail("let y = exp(iota(8));",
               "'exp' works on floats, not on an i32 tensor");
  tensors_fail("let y = (x > 0) + 1;", "the int 1 meets a bool tensor");
  tensors_fail("let y = x[.., 4..9];",
               "2:16: error: 4..9 is not within axis 1 of f32[4, 8]");
  tensors_fail("let y = x[4];", "index 4 is not within axis 0 of f32[4, 8]");
  tensors_fail("let y = x[.., 3..3];", "3..3 is empty");
  tensors_fail("let y = x[0, 0, 0];", "more indices than f32[4, 8] has axes");
  tensors_fail("let y = sum(x, axis = 2);",
               "2:16: error: axis 2 of a tensor with 2 axes");
  tensors_fail("let y = mean(iota(4));", "'mean' of a tensor of i32");
  tensors_fail("let y = sum(x, 1);", "'sum' takes 1 argument by place");
  tensors_fail("let y = reshape(x, [5, -1]);",
               "f32[4, 8] with its 32 elements can't have the shape [5, -1]");
  tensors_fail("let y = concat([x, x[0]]);",
               "f32[4, 8] and f32[8] can't be joined on axis 1");
  tensors_fail("let y = permute(x, [0]);",
               "'permute' needs the 2 axes of f32[4, 8]");
  tensors_fail("let y = gather(x, x);",
               "'gather' takes rows by an i32 tensor, not by f32[4, 8]");
  tensors_fail(
      "if sum(x) > 0 { }",
      "'if' needs a bool at compile time, but this is known only at run time");
  tensors_fail("if sum(x) > 0 { }",
               "note: select(c, a, b) chooses at run time");
  tensors_fail("x[0] = 1.0;", "a tensor's elements can't be assigned");
  tensors_fail("let y = iota(0);", "would have size 0");
  tensors_fail("let y = random([1000000, 1000000, 1000000]);",
               "this tensor is too large");
  tensors_fail("let y = cast(x, f16);", "f16 is not supported");
}

/* One error for a line that runs often, several for several lines. */
static void test_errors_are_collected(void) {
  char *text =
      program_of("for i in 0..5 { let y = x @ x; let z = y + 1; }\nlet u = x + "
                 "iota(8);\nlet v = u * 2;\nlet w = x[9];",
                 "");
  Run r = run(text);
  int n = 0;
  for (const char *at = str_text(&r.errors); (at = strstr(at, "error:")); at++)
    n++;
  CHECK(n == 3);
  run_end(&r);
  free(text);
}

/* --- modules --- */

static const char *parameter_names(Run *r) {
  Str s = {0};
  for (int i = 0; r->program && i < r->program->e.params.n; i++)
    str_printf(&s, "%s ", r->program->e.params.at[i]->name);
  const char *text = arena_strdup(r->arena, str_text(&s));
  str_free(&s);
  return text;
}

static void test_parameters_have_paths(void) {
  Run r = run(
      USES
      "module net() {\n  first: linear(8, 8);\n  for i in 0..2 {\n    if i > 0 "
      "{ h[i]: block(i); } else { h[i]: block(5); }\n  }\n"
      "  k[2]: linear(8, 8, with_bias = false);\n  param scale: [8] = "
      "uniform(-1, 1);\n"
      "  fn (x) { return mean(h[1](first(x)) * scale * k[0].weight[0]); }\n}\n"
      "module block(i) {\n  require i > 0, \"t\";\n  mlp: mlp(8);\n  fn (x) { "
      "return mlp(x); }\n}\n"
      "module mlp(d) {\n  let hidden = 2 * d;\n  up: conv1d(d, hidden);\n  fn "
      "(x) { return up(x); }\n}\n"
      "fn unused() { }\n" TRAIN);
  CHECK(!r.program);
  run_end(&r);
  r = run(
      USES
      "module net() {\n  first: linear(8, 8);\n  for i in 0..2 {\n    if i > 0 "
      "{ h[i]: block(i); } else { h[i]: block(5); }\n  }\n"
      "  k[2]: linear(8, 8, with_bias = false);\n  param scale: [8] = "
      "uniform(-1, 1);\n"
      "  fn (x) { return mean(h[1](first(x)) * scale * k[0].weight[0]); }\n}\n"
      "module block(i) {\n  require i > 0, \"t\";\n  mlp: mlp(8);\n  fn (x) { "
      "return mlp(x); }\n}\n"
      "module mlp(d) {\n  let hidden = d;\n  up: conv1d(d, hidden);\n  fn (x) "
      "{ return up(x); }\n}\n" TRAIN);
  if (!r.program) show("should work", "paths", str_text(&r.errors));
  CHECK_TEXT(parameter_names(&r),
             "first.weight first.bias h.0.mlp.up.weight h.0.mlp.up.bias "
             "h.1.mlp.up.weight h.1.mlp.up.bias "
             "k.0.weight k.1.weight scale ");
  run_end(&r);
}

static void test_module_errors(void) {
  whole_fails(USES "module net() {\n  h[2]: linear(8, 8);\n  fn (x) { return "
                   "mean(h[2](x)); }\n}\n" TRAIN,
              "m.pp:4:25: error: index 2 is not within a list of 2");
  whole_fails(USES "module net() {\n  wte: embedding(8, 8);\n  fn (x) { return "
                   "mean(x * wte.wieght[0]); }\n}\n" TRAIN,
              "4:32: error: module 'embedding' has no member 'wieght'");
  whole_fails(USES "module net() {\n  wte: embedding(8, 8);\n  fn (x) { return "
                   "mean(x * wte.wieght[0]); }\n}\n" TRAIN,
              "note: did you mean 'weight'?");
  whole_fails(USES "module net() {\n  for i in 0..2 { h[i + 1]: linear(8, 8); "
                   "}\n  fn (x) { return mean(x); }\n}\n" TRAIN,
              "element 1 of 'h' can't be made here: the next one is 0");
  whole_fails(USES "module net() {\n  a: linear(8, 8, wide = 3);\n  fn (x) { "
                   "return mean(x); }\n}\n" TRAIN,
              "3:19: error: module 'linear' has no argument 'wide'");
  whole_fails(
      USES
      "module net() {\n  a: mean(3);\n  fn (x) { return mean(x); }\n}\n" TRAIN,
      "a member is an instance of a module, but this is a function");
  whole_fails(USES "module net() {\n  let a = linear(8, 8);\n  fn (x) { return "
                   "mean(x); }\n}\n" TRAIN,
              "a module is made as a member");
  whole_fails(USES "module net() {\n  param w: [0] = zeros;\n  fn (x) { return "
                   "mean(x); }\n}\n" TRAIN,
              "would have size 0");
  whole_fails(USES "module net() {\n  param w: [8] = 3;\n  fn (x) { return "
                   "mean(x); }\n}\n" TRAIN,
              "3:18: error: the int 3 is no initial value");
  whole_fails(USES "module net() {\n  param w: [8] = normal(0, -1);\n  fn (x) "
                   "{ return mean(x); }\n}\n" TRAIN,
              "a standard deviation can't be negative");
  whole_fails(USES "module net() {\n  param w: i32[8] = zeros;\n  fn (x) { "
                   "return mean(x); }\n}\n" TRAIN,
              "a parameter is f32 or f64, not i32");
  whole_fails(USES "module net() {\n  fn f(x) { return mean(x); }\n}\n" TRAIN,
              "module 'net' has no function without a name");
  whole_fails(
      USES
      "module net() {\n  a: net();\n  fn (x) { return mean(x); }\n}\n" TRAIN,
      "nested more than 1000 deep");
  whole_fails(USES "module net() {\n  for i in 0..2 { a: linear(8, 8); }\n  fn "
                   "(x) { return mean(x); }\n}\n" TRAIN,
              "'a' is declared twice in module 'net'");
  whole_fails(
      USES "module net() {\n  a: linear(8, 8);\n  fn (x) { return mean(a(x[.., "
           "0..4])); }\n}\n" TRAIN,
      "m.pp:4:26: error: 'x' is f32[4, 4], but axis 1 must be n_in = 8");
}

static void test_outputs_and_stages(void) {
  Run r = run(USES "module net() {\n  a: part();\n  b: part();\n  fn (x) { let "
                   "y = a(x); stage_end; return mean(b(y)); }\n}\n"
                   "module part() {\n  param w: [8] = ones;\n  fn (x) { let y "
                   "= x * w; output size = mean(y); output all = concat(y[0]); "
                   "return y * w; }\n}\n" TRAIN);
  if (!r.program) show("should work", "outputs", str_text(&r.errors));
  OpVec outputs = ir_ops(r.arena, ir_top(r.ir), OP_OUTPUT);
  CHECK(outputs.n == 4);
  CHECK_TEXT(op_string(r.arena, outputs.at[0], "output"), "a.size");
  CHECK_TEXT(op_string(r.arena, outputs.at[3], "output"), "b.all");
  CHECK_TEXT(type_text(r.arena, value_type(op_operand(outputs.at[0], 0))),
             "f64");
  CHECK_TEXT(type_text(r.arena, value_type(op_operand(outputs.at[1], 0))),
             "f64[8]");
  CHECK(op_stage(outputs.at[0]) == 0 && op_stage(outputs.at[2]) == 1);
  CHECK(count_ops(&r, OP_PARAM) ==
        2); /* one for each parameter and stage, however often it is used */
  CHECK(op_int(ir_top(r.ir), "pp.stages", 0) == 2);
  run_end(&r);
  fails("output a = mean(x); output a = mean(x);",
        "2:28: error: there are two outputs 'a'");
  fails("output a = median(x);",
        "2:12: error: an output is a 'mean', 'sum', 'max' or 'concat'");
}

static void test_random_keys(void) {
  static const char *const text = USES
      "const cut_at = 0;\n"
      "module net() {\n  a[2]: part();\n  fn (x) {\n    for i in 0..2 { x = "
      "a[i](x); if i < cut_at { stage_end; } }\n    return mean(x);\n  }\n}\n"
      "module part() {\n  param w: [8] = ones;\n  fn (x) { return "
      "dropout(dropout(x * w, 0.5), 0.25); }\n}\n" TRAIN;
  CompileOptions o = no_options();
  Define cut = {"cut_at", "1"};
  Run a = run(text);
  o.n_defines = 1, o.defines = &cut;
  Run b = run_with(text, o);
  CHECK(count_ops(&a, OP_RANDOM) == 4 && count_ops(&b, OP_RANDOM) == 4);
  OpVec u = ir_ops(a.arena, ir_top(a.ir), OP_RANDOM),
        v = ir_ops(b.arena, ir_top(b.ir), OP_RANDOM);
  for (int i = 0; i < u.n && i < v.n; i++) {
    CHECK(op_int(u.at[i], "key", 0) == op_int(v.at[i], "key", 1));
    for (int k = 0; k < i; k++)
      CHECK(op_int(u.at[i], "key", 0) != op_int(u.at[k], "key", 0));
  }
  CHECK(op_int(ir_top(b.ir), "pp.stages", 0) == 2);
  run_end(&a);
  run_end(&b);
}

/* --- derivatives --- */

static void derivative_ok(const char *f) {
  ok_with("let y = f(x);", f);
}
static void derivative_fails(const char *f, const char *wanted) {
  fails_with("let y = f(x);", f, wanted);
}

static void test_derivatives(void) {
  derivative_ok("fn f(x) { let e = exp(x); return e; } derivative (y, dy) { "
                "return dy * e; }");
  derivative_ok("fn f(x, k = 2) { x = x * k; return x; } derivative (y, dy) { "
                "return dy * k + 0 * x; }");
  derivative_ok("fn f(x) { return 0 * x; } derivative (y, dy) { return 0; }");
  derivative_ok("fn f(x) { let a, b = g(x, iota(8), x); return a + b; }\n"
                "fn g(x, i: i32[n], z) { return x, z; } derivative (y, u, dy, "
                "du) { return dy + cast(i, real), du; }");
  Run r =
      run(USES "module net() {\n  param w: [8] = ones;\n  fn (x) { return "
               "mean(f(x * w, w)); }\n}\n"
               "fn f(x, w) { let e = exp(x); return e * w; } derivative (y, "
               "dy) { return dy * e * w, sum(dy * e, axis = 0); }\n" TRAIN);
  OpVec stated = ir_ops(r.arena, ir_top(r.ir), OP_WITH_DERIVATIVE);
  CHECK(stated.n == 1);
  if (stated.n == 1) {
    CHECK(op_n_operands(stated.at[0]) == 4); /* y, x, w, and the captured e */
    CHECK(op_int(stated.at[0], "n_arguments", 0) == 2);
    Op f = func_find(r.ir, ir_top(r.ir), "derivative.0");
    CHECK(!op_is_null(f) && func_n_args(f) == 5);
  }
  run_end(&r);
  derivative_fails(
      "fn f(x) { return x; } derivative (y, dy) { return sum(dy); }",
      "4:44: error: the adjoint of 'x' must be f32[4, 8], but this is f32\n");
  derivative_fails(
      "fn f(x) { return x; } derivative (y, dy) { return dy, dy; }",
      "one adjoint for each float tensor argument: here are 2 for 1");
  derivative_fails("fn f(x) { return x, x; } derivative (y, dy) { return dy; }",
                   "the function has 2 results");
  derivative_fails("fn f(x) { return 1; } derivative (y, dy) { return dy; }",
                   "returns float tensors, but result 0 is the int 1");
  whole_fails(USES "module net() {\n  param w: [8] = ones;\n  fn f(x) { return "
                   "x * w; } derivative (y, dy) { return dy; }\n  fn (x) { "
                   "return mean(f(x)); }\n}\n" TRAIN,
              "4:24: error: a function that states its derivative uses no "
              "tensor but its arguments: pass 'w' to it");
  fails("fn f(y) { return y * x; } derivative (z, dz) { return dz; } f(x + 1);",
        "uses no tensor but its arguments");
  derivative_fails(
      "fn f(x) { stage_end; return x; } derivative (y, dy) { return dy; }",
      "a stage can't end in a function that states its derivative");
}

int main(void) {
  TEST(test_numbers);
  TEST(test_require_stands_at_the_call);
  TEST(test_lists);
  TEST(test_scopes_and_functions);
  TEST(test_budget);
  TEST(test_patterns);
  TEST(test_tensor_operations);
  TEST(test_errors_are_collected);
  TEST(test_parameters_have_paths);
  TEST(test_module_errors);
  TEST(test_outputs_and_stages);
  TEST(test_random_keys);
  TEST(test_derivatives);
  return test_end();
}
