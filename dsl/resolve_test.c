// Tests of the loader and of the name checks: one case for each message.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compiler/base/test.h"
#include "dsl/load.h"

static const char rest_of_train[] =
    " batch microbatch = 1, microbatches = 1; loss m(x); ranks 1; schedule s;"
    " optimizer o; steps 1; }"
    " module net() { fn (x) { return x; } }"
    " schedule s(ranks) { rank r { fwd(r, 0); } }"
    " optimizer o() { fn (p, g, step) { return p; } }";

// The lines that hold "error:" or "note:", without places' file names.
static const char *messages_of(Arena *arena, const char *text) {
  Diag *diag = diag_create();
  dsl_load_text(arena, diag, "t", text);
  Str all = {0}, kept = {0};
  diag_flush_to(diag, &all);
  for (const char *line = str_text(&all); *line;) {
    size_t length = strcspn(line, "\n");
    const char *copy = arena_strndup(arena, line, length);
    if (strstr(copy, "error: ") || strstr(copy, "note: "))
      str_printf(&kept, "%s\n", copy);
    line += length + (line[length] == '\n');
  }
  char *result = arena_strdup(arena, str_text(&kept));
  str_free(&all);
  str_free(&kept);
  diag_destroy(diag);
  return result;
}

static void check_messages(const char *text, const char *wanted) {
  Arena *arena = arena_create();
  CHECK_TEXT(messages_of(arena, text), wanted);
  arena_destroy(arena);
}

static void check_train(const char *settings, const char *wanted) {
  Str text = {0};
  str_printf(&text, "train { model m = net(); data x = synthetic(4); %s %s",
             settings, rest_of_train);
  check_messages(str_text(&text), wanted);
  str_free(&text);
}

static void finds_names(void) {
  check_messages("const a = b; const b = 1;", "");
  check_messages("fn f(x: [b, t], n = 2) { return b + t + n + sum(x); }", "");
  check_messages("fn f(x) { fn g(y) { return g(x + y); } return g(1); }", "");
  check_messages("module m(n) { if n { a: b(n); } fn (x) { return g(x); } "
                 "fn g(x) { return a(x); } } module b(n) { }", "");
  check_messages("fn f(x) { let r = x; return r; } derivative (y, dy) { "
                 "return r * dy + x; }", "");
  check_messages("use nn; fn f(x) { return softmax(x); }", "");
  check_messages("fn softmax(x) { return x; } use nn; const a = softmax(1);",
                 "");
  check_train("", "");
}

static void reports_unknown_names(void) {
  check_messages("const width = 1; const b = widht;",
                 "t:1:28: error: unknown name 'widht'\n"
                 "t:1:7: note: did you mean 'width'?\n");
  check_messages("fn f() { if true { let a = 1; } return a; }",
                 "t:1:40: error: unknown name 'a'\n");
  check_messages("const b = softmax(1);",
                 "t:1:11: error: unknown name 'softmax'\n"
                 "t:1:11: note: the library has it: 'use nn;'\n");
  check_messages("fn f() { x = 1; }",
                 "t:1:10: error: unknown name 'x'\n"
                 "t:1:10: note: 'let x = …;' declares it\n");
  check_messages("use nx;",
                 "t:1:5: error: there is no file 'nx.pp' to use: No such file "
                 "or directory\n"
                 "t:1:5: note: the library has 'nn'\n");
}

static void reports_duplicates(void) {
  check_messages("const a = 1; fn a() { }",
                 "t:1:17: error: 'a' is declared twice in this file\n"
                 "t:1:7: note: it is declared here first\n");
  check_messages("fn f() { let a = 1; let a = 2; }",
                 "t:1:25: error: 'a' is declared twice in this block\n"
                 "t:1:14: note: it is declared here first\n");
  check_messages("fn f(a, a) { let a = 1; if true { let a = 2; } }",
                 "t:1:9: error: 'a' is declared twice in this block\n"
                 "t:1:6: note: it is declared here first\n");
  check_messages("module m(a) { param a: [1]; b: m(1); b: m(1); }",
                 "t:1:21: error: 'a' is already an argument of the module\n"
                 "t:1:10: note: it is declared here first\n"
                 "t:1:38: error: 'b' is declared twice in this block\n"
                 "t:1:29: note: it is declared here first\n");
  check_messages("module m() { fn () { } fn () { } }",
                 "t:1:24: error: a second function without a name\n"
                 "t:1:14: note: the first is here\n");
  check_messages("fn f(x: [a], y: [f]) { }",
                 "t:1:18: error: 'f' in a shape must be a size\n"
                 "t:1:4: note: it is declared here\n");
  check_messages("const a = 1; fn f() { a = 2; }",
                 "t:1:23: error: 'a' can't be assigned: it is no variable "
                 "made by 'let'\n"
                 "t:1:7: note: it is declared here\n");
}

static void reports_statements_out_of_place(void) {
  check_messages("fn f() { param a: [1]; }",
                 "t:1:10: error: 'param' can only stand in a module, outside "
                 "its functions\n");
  check_messages("module m() { return 1; stage_end; break; state a = zeros; "
                 "rank r { } b: m(); }",
                 "t:1:14: error: 'return' can only stand in a function\n"
                 "t:1:24: error: 'stage_end' can only stand in a function\n"
                 "t:1:35: error: 'break' can only stand in a loop\n"
                 "t:1:42: error: 'state' can only stand at the top of an "
                 "optimizer\n"
                 "t:1:59: error: 'rank' can only stand at the top of a "
                 "schedule\n");
  check_messages("schedule s() { overlap { } }",
                 "t:1:16: error: 'overlap' can only stand in a rank block or "
                 "a function\n"
                 "t:1:10: error: schedule 's' has no rank block\n");
  check_messages("schedule s() { rank r { } rank r { } }",
                 "t:1:27: error: a schedule has one rank block\n"
                 "t:1:16: note: the first is here\n");
  check_messages("optimizer o() { }",
                 "t:1:11: error: optimizer 'o' has no 'fn (p, g, step)'\n");
  check_messages("fn f(x) { output a = median(x); }",
                 "t:1:22: error: an output is a 'mean', 'sum', 'max' or "
                 "'concat'\n");
}

static void reports_train_settings(void) {
  check_train("sead 3;", "t:1:49: error: 'train' has no setting 'sead'\n"
                         "t:1:49: note: did you mean 'seed'?\n");
  check_train("steps 3;", "t:1:144: error: 'steps' is set twice\n"
                          "t:1:49: note: it is set here first\n");
  check_train("seed ;", "t:1:49: error: 'seed' has no value\n");
  check_train("seed 1, 2;", "t:1:57: error: 'seed' takes one value\n");
  check_train("seed a = 1;",
              "t:1:54: error: write 'seed VALUE;', without a name\n");
  check_train("nonfinite go;",
              "t:1:59: error: 'nonfinite' is 'stop' or 'skip'\n");
  check_messages("train { batch microbatch = 1, size = 2; }",
                 "t:1:31: error: 'batch' has 'microbatch' and 'microbatches', "
                 "no 'size'\n"
                 "t:1:9: error: 'batch' needs 'microbatches = VALUE'\n"
                 "t:1:7: error: 'train' needs 'model'\n"
                 "t:1:7: error: 'train' needs 'loss'\n"
                 "t:1:7: error: 'train' needs 'ranks'\n"
                 "t:1:7: error: 'train' needs 'schedule'\n"
                 "t:1:7: error: 'train' needs 'optimizer'\n"
                 "t:1:7: error: 'train' needs 'steps'\n");
}

static void write_file(const char *folder, const char *name,
                       const char *text) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  CHECK(file != NULL);
  if (!file) return;
  fputs(text, file);
  fclose(file);
}

// Uses beside the file, cycles, and a name that two files declare.
static void follows_uses(void) {
  char folder[] = "/tmp/ppc_load_XXXXXX";
  CHECK(mkdtemp(folder) != NULL);
  write_file(folder, "main.pp",
             "use a; use b; const z = x + y + only_b; const own = 1;\n"
             "const w = own;");
  write_file(folder, "a.pp", "use b; const x = 1; const own = 2;");
  write_file(folder, "b.pp", "use a; const x = 3; const y = 4;\n"
                             "const only_b = own;");
  Arena *arena = arena_create();
  Diag *diag = diag_create();
  const char *path = arena_printf(arena, "%s/main.pp", folder);
  CHECK(dsl_load(arena, diag, path) == NULL);
  CHECK(diag_error_count(diag) == 1);
  Str text = {0};
  diag_flush_to(diag, &text);
  CHECK(strstr(str_text(&text), "'x' is declared by two used files") != NULL);
  write_file(folder, "b.pp", "use a; const y = 4; const only_b = own;");
  DslProgram *program = dsl_load(arena, diag, path);
  CHECK(program && program->files.n == 3);
  if (program) {
    CHECK(dsl_find_item(program->main, "own")->file == program->main);
    CHECK(dsl_find_item(program->main, "only_b") != NULL);
    CHECK(dsl_find_item(program->main, "none") == NULL);
  }
  CHECK(dsl_load(arena, diag, folder) == NULL);
  CHECK(dsl_load(arena, diag, "/nowhere.pp") == NULL);
  str_free(&text);
  diag_destroy(diag);
  for (const char *const *name = (const char *const[]){"main", "a", "b", NULL};
       *name; name++)
    unlink(arena_printf(arena, "%s/%s.pp", folder, *name));
  rmdir(folder);
  arena_destroy(arena);
}

int main(void) {
  TEST(finds_names);
  TEST(reports_unknown_names);
  TEST(reports_duplicates);
  TEST(reports_statements_out_of_place);
  TEST(reports_train_settings);
  TEST(follows_uses);
  return test_end();
}
