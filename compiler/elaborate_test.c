/* Optimizers, `train`, data, the command line, generation, schedules: each rule
 * as a small program that must work or fail as said. */
#include "compiler/eval_test.h"

/* --- optimizers --- */

static void train_ok(const char *declarations, const char *train) {
  Str s = {0};
  str_printf(&s,
             USES "module net() {\n  param w: [8] = ones;\n  fn (x) { return "
                  "mean(x * w); }\n}\n%s\ntrain {\n%s\n}\n",
             declarations, train);
  whole_ok(str_text(&s));
  str_free(&s);
}

static void train_fails(const char *declarations, const char *train,
                        const char *wanted) {
  Str s = {0};
  str_printf(&s,
             USES "module net() {\n  param w: [8] = ones;\n  fn (x) { return "
                  "mean(x * w); }\n}\n%s\ntrain {\n%s\n}\n",
             declarations, train);
  whole_fails(str_text(&s), wanted);
  str_free(&s);
}

#define BASE                                                                   \
  "model net = net(); batch microbatch = 4, microbatches = 2; data x = "       \
  "synthetic(8); loss net(x); "
#define REST "ranks 1; schedule gpipe; steps 3; "

static void test_optimizers(void) {
  train_ok("", BASE REST
           "optimizer adamw(lr = cosine(peak = 1e-3, warmup = 2, total = "
           "steps), weight_decay = 0.1); clip global_norm(1.0);");
  train_ok("", BASE REST "optimizer sgd(lr = 1);");
  train_ok("optimizer plain() { fn (p, g, step) { return p - 0.1 * g; } }",
           BASE REST "optimizer plain;");
  train_ok("optimizer odd(lr) { state m = zeros; let k = 2; fn scaled(x) { "
           "return k * x; }\n"
           "  fn (p, g, step) { if name(p) == \"w\" and rank(p) == 1 and "
           "shape(p)[0] == 8 { m = scaled(m) + g; }\n"
           "    return p - select(step < 10, 0.1, lr(step)) * m; } }",
           BASE REST "optimizer odd(lr = linear_decay(1.0, 1, 10));");
  train_fails("optimizer o() { fn (p, g, step) { if step > 3 { return p; } "
              "return g; } }",
              BASE REST "optimizer o();",
              "6:43: error: 'if' needs a bool at compile time");
  train_fails("optimizer o() { fn (p, g, step) { return sum(p); } }",
              BASE REST "optimizer o();",
              "6:35: error: the parameter's new value must be f32[8], but this "
              "is f32\n");
  train_fails("optimizer o() { state m = zeros; fn (p, g, step) { m = sum(g); "
              "return p; } }",
              BASE REST "optimizer o();",
              "6:64: error: state 'm' must be f32[8], but this is f32\n");
  train_fails("optimizer o() { state m = ones; fn (p, g, step) { return p; } }",
              BASE REST "optimizer o();",
              "an optimizer's state starts as zeros");
  train_fails("optimizer o() { state a, b, c, d, e = zeros; fn (p, g, step) { "
              "return p; } }",
              BASE REST "optimizer o();", "has 5 states, 4 are the most");
  train_fails(
      "", BASE REST "optimizer sgd(lr = -1);",
      "8:144: error: the rate must be finite and not negative, but it is -1");
  train_fails("", BASE REST "optimizer sgd(lr = constant(-1.0));",
              "the rate must be finite and not negative, but it is -1");
  train_fails("", BASE REST "optimizer sgd(lr = \"a\");",
              "'lr' is a function of the step");
  train_fails("", BASE REST "optimizer sgd(rate = constant(1.0));",
              "optimizer 'sgd' has no argument 'rate'");
  train_fails("", BASE REST "optimizer gpipe;",
              "'optimizer' needs an optimizer, not a schedule");
  train_fails("", BASE REST "optimizer sgd(lr = 1); clip global_norm(0.0);",
              "error: the limit of global_norm must be positive");
  train_fails("",
              BASE REST "optimizer sgd(lr = 1); clip global_norm(0.0 / 0.0);",
              "error: the limit of global_norm must be positive");
  train_fails("", BASE REST "optimizer sgd(lr = 1); clip 1.0;",
              "a clip is a function of the gradient norm");
  train_fails(
      "", BASE REST "optimizer sgd(lr = 1); clip fn (norm) { return -1.0; };",
      "the clip's factor must be finite and positive");
}

/* --- train --- */

#define SGD "optimizer sgd(lr = 1); "
#define WITH_DATA(data, loss)                                                  \
  "model net = net(); batch microbatch = 4, microbatches = 2; data x = " data  \
  "; loss " loss "; " REST SGD

static void test_settings(void) {
  train_ok(
      "",
      WITH_DATA(
          "synthetic(8)",
          "net(cast(x, real))") "seed 7; dtype f64; nonfinite skip; stages 1;");
  train_ok("", BASE "ranks 1; schedule gpipe; steps 0; " SGD);
  train_ok("", "model net = net(); batch microbatch = 2 * ranks, microbatches "
               "= microbatch; data x = synthetic(8); loss net(x); ranks 2; "
               "schedule gpipe; steps microbatches * 2; " SGD);
  train_fails("",
              "model net = net(); batch microbatch = 4, microbatches = 0; data "
              "x = synthetic(8); loss net(x); " REST SGD,
              "8:57: error: 'microbatches' must be at least 1, not 0");
  train_fails("", BASE "ranks 0; schedule gpipe; steps 3; " SGD,
              "'ranks' must be at least 1, not 0");
  train_fails("", BASE "ranks 1; schedule gpipe; steps -1; " SGD,
              "'steps' must be at least 0, not -1");
  train_fails("", BASE "ranks 1; schedule gpipe; steps 1.5; " SGD,
              "'steps' needs an int, not the float 1.5");
  train_fails("", BASE "ranks steps; schedule gpipe; steps ranks; " SGD,
              "depends on itself");
  train_fails("", BASE REST SGD "dtype i32;",
              "'dtype' is f32 or f64, not the dtype i32");
  train_fails("", BASE REST SGD "seed 1.5;", "'seed' needs an int");
  train_fails("", BASE REST SGD "stages 2;",
              "'stages' is 2, but the loss has 1");
  train_fails("", BASE "ranks 1; schedule sgd; steps 3; " SGD,
              "'schedule' needs a schedule, not an optimizer");
  train_fails(
      "", BASE "ranks 1; schedule gpipe(ranks = 2); steps 3; " SGD,
      "'ranks' is not given here: schedule 'gpipe' gets it from 'train'");
  train_fails(
      "", BASE "ranks 1; schedule interleaved_1f1b(chnks = 2); steps 3; " SGD,
      "did you mean 'chunks'?");
  train_fails("", BASE REST SGD "stps 4;", "did you mean 'steps'?");
  whole_fails("fn f() { }\n",
              "m.pp:1:1: error: this file has no 'train { … }'");
}

static void test_data(void) {
  train_ok("", WITH_DATA("bytes(\"a.txt\", 8, order = sequential)",
                         "net(cast(x, real))"));
  train_ok("", WITH_DATA("f32_file(\"a.bin\", 8, order = shuffled)", "net(x)"));
  train_ok("", WITH_DATA("i32_file(\"a.bin\", n = 8)", "net(cast(x, real))"));
  train_fails(
      "",
      WITH_DATA("bytes(\"a.txt\", 8, order = shuffled)", "net(cast(x, real))"),
      "'order' of bytes is sequential (or left out), not the word 'shuffled'");
  train_fails("", WITH_DATA("bytes(3, 8)", "net(cast(x, real))"),
              "'bytes' needs a path, not the int 3");
  train_fails("", WITH_DATA("bytes(\"a\", 0)", "net(cast(x, real))"),
              "must be from 1 to 2^31 - 1, not 0");
  train_fails("", WITH_DATA("3", "net(x)"), "a data source is bytes(");
  train_fails("", WITH_DATA("synthetic(8)", "x"),
              "the loss must be a scalar tensor, not the tensor f32[4, 8]");
  train_fails(
      "", WITH_DATA("synthetic(8)", "net"),
      "the loss must be a scalar tensor, not an instance of module 'net'");
  train_fails("", WITH_DATA("synthetic(8)", "1.0"),
              "the loss must be a scalar tensor, not the float 1.0");
  Run r = run(
      USES
      "module net() {\n  e: embedding(70, 8);\n  f: embedding(50, 8);\n  fn "
      "(t: i32[b, n]) { return mean(e(t[.., 0..2]) * f(reshape(t[.., 2..4], "
      "[b, 2]))); }\n}\n"
      "train { model net = net(); batch microbatch = 4, microbatches = 2; data "
      "t = bytes(\"a\", 4); data unused = synthetic(2); loss net(t); " REST SGD
      "}\n");
  OpVec sources = ir_ops(r.arena, ir_top(r.ir), OP_SOURCE);
  CHECK(sources.n == 2 && op_int(sources.at[0], "vocabulary", 0) == 50);
  CHECK(strstr(str_text(&r.errors),
               "warning: the loss does not use data 'unused'") != NULL);
  run_end(&r);
  whole_fails(USES
              "module net() {\n  e: embedding(70000, 8);\n  fn (t) { return "
              "mean(e(t)); }\n}\n"
              "train { model net = net(); batch microbatch = 4, microbatches = "
              "2; data t = tokens16(\"a\", 4); loss net(t); " REST SGD "}\n",
              "6:77: error: tokens16 holds ids up to 65535, but the table that "
              "they index has 70000 rows");
}

static void test_loss_pair(void) {
  Run r = run(USES "module net() {\n  param w: [8] = ones;\n  fn (x) { return "
                   "sum(x * w), sum(cast(x > 0, i32)); }\n}\n" TRAIN);
  CHECK(r.program && op_unit(ir_top(r.ir), "pp.loss_pair"));
  OpVec losses = ir_ops(r.arena, ir_top(r.ir), OP_LOSS);
  CHECK(losses.n == 1 && op_n_operands(losses.at[0]) == 2);
  run_end(&r);
  whole_ok(USES "module net() {\n  param w: [8] = ones;\n  fn (x) { return "
                "sum(x * w), 32; }\n}\n" TRAIN);
  whole_fails(USES "module net() {\n  param w: [8] = ones;\n  fn (x) { return "
                   "sum(x * w), 1, 2; }\n}\n" TRAIN,
              "the loss is one scalar or a pair (sum, count), not 3 results");
}

static void test_options(void) {
  static const char *const text =
      USES "const width = 8;\nmodule net() {\n  param w: [width] = ones;\n  fn "
           "(x) { return mean(x * w); }\n}\n" TRAIN;
  CompileOptions o = no_options();
  Define defines[] = {{"width", "1"},
                      {"widht", "4"},
                      {"width", "4; const b = 2"},
                      {"width", "wide"}};
  o.ranks = 2, o.microbatch = 16, o.microbatches = 5, o.steps = 9,
  o.has_seed = true, o.seed = 3, o.dtype = "f32";
  o.n_defines = 1, o.defines = defines;
  o.schedule = "interleaved_1f1b(chunks = 1)";
  Run r = run_with(text, o);
  if (!r.program) show("should work", "options", str_text(&r.errors));
  Op top = ir_top(r.ir);
  CHECK(op_int(top, "pp.ranks", 0) == 2 &&
        op_int(top, "pp.microbatches", 0) == 5 &&
        op_int(top, "pp.steps", 0) == 9);
  CHECK(op_int(top, "pp.microbatch", 0) == 16 &&
        op_int(top, "pp.seed", 0) == 3);
  CHECK_TEXT(op_string(r.arena, top, "pp.schedule"), "interleaved_1f1b");
  if (r.program) CHECK(type_dim(r.program->e.params.at[0]->type, 0) == 1);
  run_end(&r);
  static const char *const wanted[] = {
      "-D widht: 'm.pp' has no const of that name",
      "-D width:1:2: error: expected the end before ';'",
      "error: unknown name 'wide'"};
  for (int i = 1; i < 4; i++) {
    o.defines = defines + i;
    r = run_with(text, o);
    if (r.program || !strstr(str_text(&r.errors), wanted[i - 1]))
      show("should fail", defines[i].value, str_text(&r.errors));
    run_end(&r);
  }
  o = no_options();
  o.schedule = "gpip";
  r = run_with(text, o);
  CHECK(!r.program &&
        strstr(str_text(&r.errors),
               "--schedule:1:1: error: unknown name 'gpip'") &&
        strstr(str_text(&r.errors), "did you mean 'gpipe'?"));
  run_end(&r);
  o = no_options();
  o.ranks = 0;
  r = run_with(text, o);
  CHECK(!r.program &&
        strstr(str_text(&r.errors), "'--ranks' must be at least 1, not 0"));
  run_end(&r);
  DataOverride data[] = {{"x", "p"}, {"y", "p"}};
  for (int i = 0; i < 2; i++) {
    o = no_options();
    o.n_data = 1, o.data = data + i;
    r = run_with(text, o);
    CHECK(!r.program &&
          strstr(str_text(&r.errors), i ? "'train' has no data of that name"
                                        : "this source has no file"));
    run_end(&r);
  }
}

static void test_generate(void) {
  static const char *const text =
      USES "module net() {\n  wte: embedding(16, 4);\n"
           "  fn logits(t: i32[b, n]) { let x = wte(t); stage_end; output a = "
           "mean(x); return dropout(x, 0.5) @ transpose(wte.weight); }\n"
           "  fn (t: i32[b, n], u: i32[b, n]) { return "
           "cross_entropy(logits(t), u); }\n}\n"
           "train { model net = net(); batch microbatch = 4, microbatches = 2; "
           "data t = bytes(\"a\", 9); loss net(t[.., 0..8], t[.., 1..9]); "
           "generate net.logits; " REST SGD "}\n";
  CompileOptions o = no_options();
  o.generate = true;
  Run r = run_with(text, o);
  if (!r.program) show("should work", "generate", str_text(&r.errors));
  Op f = func_find(r.ir, ir_top(r.ir), "generate");
  CHECK(!op_is_null(f) && op_is_null(func_find(r.ir, ir_top(r.ir), "loss")));
  CHECK(op_int(ir_top(r.ir), "pp.length", 0) == 8 &&
        op_int(ir_top(r.ir), "pp.vocabulary", 0) == 16);
  CHECK(op_int(ir_top(r.ir), "pp.stages", 0) == 2);
  CHECK(count_ops(&r, OP_RANDOM) == 0 &&
        count_ops(&r, OP_OUTPUT) == 1); /* `training` is false */
  run_end(&r);
  r = run_with(USES "module net() {\n  param w: [8] = ones;\n  fn (x) { return "
                    "mean(x * w); }\n}\n" TRAIN,
               o);
  CHECK(!r.program && strstr(str_text(&r.errors), "'train' has no 'generate'"));
  run_end(&r);
}

/* --- schedules --- */

/* The actions of a schedule on 2 ranks, 2 stages and m microbatches, as text;
 * errors instead when it has some. */
static char *schedule_text(const char *schedule, int microbatches) {
  Str s = {0}, out = {0};
  str_printf(&s,
             "%s\n" USES "module net() {\n  param w: [8] = ones;\n  fn (x) { "
             "let y = x * w; stage_end; return mean(y * w); }\n}\n"
             "train {\n  model net = net(); batch microbatch = 4, microbatches "
             "= %d; data x = synthetic(8); loss net(x); ranks 2;\n"
             "  schedule s; steps 3; " SGD "}\n",
             schedule, microbatches);
  Run r = run(str_text(&s));
  ScheduledActions actions = {0};
  if (r.program &&
      program_run_schedule(r.program, 2, 2, microbatches, &actions)) {
    for (int i = 0; i < actions.n; i++) {
      const ScheduledAction *a = &actions.at[i];
      if (i == 0 || actions.at[i - 1].rank != a->rank)
        str_printf(&out, "%d:", a->rank);
      str_printf(&out, " %d%c%d", a->stage, "FBIW"[a->kind], a -> microbatch);
      if (a->overlap >= 0) str_printf(&out, "o%d", a->overlap);
      if (i + 1 == actions.n || actions.at[i + 1].rank != a->rank)
        str_puts(&out, "\n");
    }
  }
  diag_flush_to(r.diag, &out);
  str_puts(&out, str_text(&r.errors));
  run_end(&r);
  str_free(&s);
  char *text = strdup(str_text(&out));
  str_free(&out);
  return text;
}

static void schedule_is(const char *schedule, int microbatches,
                        const char *wanted) {
  char *text = schedule_text(schedule, microbatches);
  CHECK_TEXT(text, wanted);
  free(text);
}

static void schedule_fails(const char *schedule, const char *wanted) {
  char *text = schedule_text(schedule, 2);
  if (!strstr(text, wanted)) {
    show("should fail", schedule, text);
    printf("  with: %s\n", wanted);
  }
  free(text);
}

static void test_schedules(void) {
  schedule_is("schedule s(ranks, stages, microbatches) {\n  require stages == "
              "ranks, \"one stage on each rank\";\n  rank r {\n"
              "    let f = 0; let i = 0; let w = 0;\n    while f < "
              "min(microbatches, ranks - 1 - r) { fwd(r, f); f += 1; }\n"
              "    while i < microbatches {\n      if f < microbatches { "
              "fwd(r, f); f += 1; }\n      bwd_input(r, i); i += 1;\n"
              "      if i - w > r { bwd_weight(r, w); w += 1; }\n    }\n    "
              "while w < microbatches { bwd_weight(r, w); w += 1; }\n  }\n}",
              3,
              "0: 0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2\n1: 1F0 1I0 1F1 1I1 1W0 "
              "1F2 1I2 1W1 1W2\n");
  schedule_is("schedule s(ranks, microbatches, twice = ranks * 2) {\n  let "
              "plan = [];\n  for i in 0..microbatches { append(plan, i); }\n"
              "  require twice == 4, \"t\";\n  rank r { for i in plan { "
              "overlap { fwd(r, i); bwd(r, i); } } }\n}",
              2, "0: 0F0o0 0B0o0 0F1o1 0B1o1\n1: 1F0o2 1B0o2 1F1o3 1B1o3\n");
  schedule_fails(
      "schedule s(ranks) { fwd(0, 0); rank r { fwd(r, 0); } }",
      "m.pp:1:21: error: 'fwd' can only stand in a schedule's 'rank' block");
  schedule_fails("schedule s(ranks) { rank r { fwd(r + 1, 0); } }",
                 "1:34: error: stage 2 is out of range: there are 2, from 0");
  schedule_fails(
      "schedule s(ranks) { rank r { fwd(r, 2); } }",
      "1:37: error: microbatch 2 is out of range: there are 2, from 0");
  schedule_fails("schedule s(ranks) { rank r { fwd(r); } }",
                 "'fwd' needs argument 'microbatch'");
  schedule_fails("schedule s(ranks) { rank r { fwd(r, 0.5); } }",
                 "'fwd' needs an int for the microbatch, not the float 0.5");
  schedule_fails(
      "schedule s(ranks) { require ranks == 3, \"three ranks\"; rank r { } }",
      "9:12: error: three ranks");
  schedule_fails("schedule s(ranks, depth) { rank r { } }",
                 "9:12: error: schedule 's' needs argument 'depth'");
}

int main(void) {
  TEST(test_optimizers);
  TEST(test_settings);
  TEST(test_data);
  TEST(test_loss_pair);
  TEST(test_options);
  TEST(test_generate);
  TEST(test_schedules);
  return test_end();
}
