// Tests of the printer: golden pairs, and the library, which is kept in
// canonical form.
#include "compiler/base/test.h"
#include "dsl/load.h"

static const char *printed(Arena *arena, const char *text) {
  Diag *diag = diag_create();
  AstFile *file = dsl_parse(arena, diag, diag_add_source(diag, "t", text));
  Str out = {0};
  if (file)
    dsl_print(file, &out);
  else
    diag_flush_to(diag, &out);
  char *result = arena_strdup(arena, str_text(&out));
  str_free(&out);
  diag_destroy(diag);
  return result;
}

static void check_pair(const char *text, const char *wanted) {
  Arena *arena = arena_create();
  CHECK_TEXT(printed(arena, text), wanted);
  CHECK_TEXT(printed(arena, wanted), wanted);
  arena_destroy(arena);
}

static void spaces_and_signs(void) {
  check_pair("", "");
  check_pair("const  a=-1+2*( 3 ) ;", "const a = -1 + 2 * (3);\n");
  check_pair("const a=not b and c or d==e;",
             "const a = not b and c or d == e;\n");
  check_pair("const a=b?c:d;", "const a = b ? c : d;\n");
  check_pair("const a = x [ .. ,0 .. n ](y,z=1) . w;",
             "const a = x[.., 0..n](y, z = 1).w;\n");
  check_pair("use a;use b;\n\n\n\nuse c;", "use a; use b;\n\nuse c;\n");
}

static void blocks_stay_on_one_line(void) {
  check_pair("fn f(x,y:i32[..,b]=1){return x;}",
             "fn f(x, y: i32[.., b] = 1) { return x; }\n");
  check_pair("fn f(){\nreturn;}", "fn f() {\n  return;\n}\n");
  check_pair("fn f() {\n if a {b();} else if c {\n} else { d(); } }",
             "fn f() {\n  if a { b(); } else if c {} else { d(); }\n}\n");
  check_pair("fn f() {\n if a {\nb();} else if c {d();} else { } }",
             "fn f() {\n  if a {\n    b();\n  } else if c {\n    d();\n"
             "  } else {}\n}\n");
  check_pair("fn f() {\n if a {b();} else {c();}\n}",
             "fn f() {\n  if a { b(); } else { c(); }\n}\n");
  check_pair("fn f() {\n let a = 1;   let b = 2;\n\n\n c();\n}",
             "fn f() {\n  let a = 1; let b = 2;\n\n  c();\n}\n");
}

static void comments(void) {
  check_pair("// one\n\n\n// two\nconst a = 1;// three\n/* four */ const b = 2;",
             "// one\n\n// two\nconst a = 1;  // three\n/* four */\n"
             "const b = 2;\n");
  check_pair("fn f() { // a\n  // b\n  g(1, // c\n    2); // d\n  // e\n}\n// f",
             "fn f() {  // a\n  // b\n  // c\n  g(1, 2);  // d\n  // e\n}\n"
             "// f\n");
  check_pair("fn f() { /* a */ }", "fn f() {  /* a */\n}\n");
  check_pair("fn f() {\n if a { } // b\n else { } }",
             "fn f() {\n  if a {} else {}\n  // b\n}\n");
  check_pair("fn f() { g(); /* a */ h(); i(); // b\n}",
             "fn f() {\n  g();  /* a */\n  h(); i();  // b\n}\n");
  check_pair("train { steps 4; // a\n\n // b\n}",
             "train {\n  steps 4;  // a\n\n  // b\n}\n");
}

static void train_is_aligned(void) {
  check_pair("train {model net = n(1);\nranks 2;optimizer o;batch a=1,b=2;}",
             "train {\n  model     net = n(1);\n  ranks     2;\n"
             "  optimizer o;\n  batch     a = 1, b = 2;\n}\n");
}

static void long_lines_are_filled(void) {
  check_pair(
      "const a = some_function(first_argument_of_it, second_argument_of_it, "
      "third_argument_of_it, fourth(argument));",
      "const a = some_function(first_argument_of_it, second_argument_of_it, "
      "third_argument_of_it,\n    fourth(argument));\n");
  check_pair(
      "const a = first_operand_of_a_sum_that_is_long + "
      "second_operand_of_a_sum_that_is_long + third_operand_of_it;",
      "const a = first_operand_of_a_sum_that_is_long + "
      "second_operand_of_a_sum_that_is_long\n    + third_operand_of_it;\n");
}

// The block is opened or not by the same measure that breaks before it.
static void function_literals_break_as_a_whole(void) {
  check_pair(
      "optimizer o(learning_rate_of_the_optimizer, beta1 = 0.9, beta2 = 0.99, "
      "decay = fn (p) { return p; }) {}",
      "optimizer o(learning_rate_of_the_optimizer, beta1 = 0.9, beta2 = 0.99,"
      "\n    decay = fn (p) { return p; }) {}\n");
  check_pair(
      "const a = f(a_long_first_argument_of_the_call_for_this_test, fn (x) {\n"
      "  return x; });",
      "const a = f(a_long_first_argument_of_the_call_for_this_test, fn (x) {\n"
      "  return x;\n});\n");
}

static void library_is_canonical(void) {
  for (int i = 0; i < dsl_library_count; i++) {
    Arena *arena = arena_create();
    CHECK_TEXT(printed(arena, dsl_library[i].text), dsl_library[i].text);
    arena_destroy(arena);
  }
}

int main(void) {
  TEST(spaces_and_signs);
  TEST(blocks_stay_on_one_line);
  TEST(comments);
  TEST(train_is_aligned);
  TEST(long_lines_are_filled);
  TEST(function_literals_break_as_a_whole);
  TEST(library_is_canonical);
  return test_end();
}
