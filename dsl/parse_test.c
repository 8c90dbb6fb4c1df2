// Tests of scanner, grammar and tree builder: trees, and one case for each
// syntax error message.
#include "compiler/base/test.h"
#include "dsl/load.h"

// The first message of a text, without its source line; "" when it parses.
static const char *first_error(Arena *arena, const char *text) {
  Diag *diag = diag_create();
  dsl_parse(arena, diag, diag_add_source(diag, "t", text));
  Str messages = {0};
  diag_flush_to(diag, &messages);
  const char *all = str_text(&messages);
  char *first = arena_strndup(arena, all, strcspn(all, "\n"));
  str_free(&messages);
  diag_destroy(diag);
  return first;
}

static int error_count(const char *text) {
  Arena *arena = arena_create();
  Diag *diag = diag_create();
  dsl_parse(arena, diag, diag_add_source(diag, "t", text));
  int count = diag_error_count(diag);
  diag_destroy(diag);
  arena_destroy(arena);
  return count;
}

static void accepts_what_language_md_shows(void) {
  static const char *const texts[] = {
      "",
      "use x;",
      "const a = 0..3;",
      "fn f() { let q, k = g(1, b = 2); return q, k; }",
      "fn f(x: [b, t, d], i: i32[..], n = 3) { }",
      "fn f(x) { return x[.., 0..n, i]; }",
      "fn f(x) { return x ? 1 : y ? 2 : fn (z) { return z; }; }",
      "fn f(a) { if a { } else if not a and b or c { } else { } }",
      "fn f(l) { l[i][j] += 1; while true { break; } for i in l { continue; } }",
      "fn f(x) { return -x @ y * 2.5e-3 == infinity; }",
      "fn f(x) { return x; } derivative (y, dy) { return dy; }",
      "module m(a) { param w: f32[a, 2 * a] = normal(0, 1); param b: [a]; "
      "h[a]: block(a); output: linear(a); fn (x) { } fn g(x) { } }",
      "module m() { if a { param: x(); state: y(); rank: z(); } }",
      "fn f(rank, state) { output a = mean(rank); state = rank(param); "
      "stage_end; output(train); }",
      "optimizer o(lr, d = fn (p) { return rank(p) >= 2; }) { "
      "state m, v = zeros; fn (p, g, step) { return p; } }",
      "schedule s(r) { rank r { overlap { fwd(r, 0); bwd(r, 0); } } }",
      "train { model net = net(1); batch microbatch = 4, microbatches = 8; "
      "loss net(x[.., 0..3]); schedule a(b = 2); steps 0; clip -1.0; }",
      "// only\n/* comments, even \xc3\xa4 */",
  };
  Arena *arena = arena_create();
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    CHECK_TEXT(first_error(arena, texts[i]), "");
  arena_destroy(arena);
}

static const struct {
  const char *text, *message;
} bad[] = {
    {"fn f() { return a }", "t:1:18: error: expected ';' before '}'"},
    {"fn f() { let a = 1\n  let b = 2; }",
     "t:1:19: error: expected ';' before 'let'"},
    {"fn f() { let a = ; }",
     "t:1:18: error: expected an expression before ';'"},
    {"fn f() { let for = 1; }",
     "t:1:14: error: expected a name, but 'for' is a reserved word"},
    {"const = 1;", "t:1:7: error: expected a name before '='"},
    {"fn f(x { }", "t:1:8: error: expected '=', ')', ',' or ':' before '{'"},
    {"fn f() { g(1; }", "t:1:13: error: expected ')' or ',' before ';'"},
    {"fn f() {", "t:1:9: error: expected '}' before the end of the file"},
    {"fn f() { { } }", "t:1:10: error: expected a statement before '{'"},
    {"let a = 1;", "t:1:1: error: expected a declaration (use, const, fn, module, schedule, optimizer or train) before 'let'"},
    {"const a = 0..1..2;", "t:1:15: error: expected ';' before '..'"},
    {"const a = 1 < 2 < 3;", "t:1:17: error: comparisons can't be chained"},
    {"const a = (1 < 2) == b;", ""},
    {"const a = f(b = 1, 2);",
     "t:1:20: error: an argument by place can't follow one by name"},
    {"const a = f(b = 1, b = 2);",
     "t:1:20: error: the argument 'b' is given twice"},
    {"const a = x[];",
     "t:1:12: error: expected a subscript between '[' and ']'"},
    {"fn f(x: [a, ..]) { }",
     "t:1:13: error: '..' can only stand first in a shape"},
    {"fn f() { } derivative (y) { }",
     "t:1:12: error: a derivative names the results, then as many adjoints"},
    {"fn f() { f() = 1; }",
     "t:1:10: error: only a name or an element of a list can be assigned"},
    {"fn f() { a + b; }", "t:1:12: error: this statement has no effect"},
    {"module m() { a.b: c(); }",
     "t:1:14: error: a member is declared as 'name: module(...);' or "
     "'name[n]: module(...);'"},
    {"const a = 0 .b;", "t:1:14: error: a number has no members"},
    {"const a = 9223372036854775808;",
     "t:1:11: error: the int 9223372036854775808 is out of range (it has 64 "
     "bits)"},
    {"const a = 1e999;", "t:1:11: error: the float 1e999 is out of range"},
    {"const a = 12ab;", "t:1:11: error: '12ab' is not a number"},
    {"const a = 1.;", "t:1:13: error: a digit must follow the '.' of a number"},
    {"const a = \"b;\n", "t:1:11: error: this string is not closed"},
    {"const a = \"\\q\";",
     "t:1:12: error: unknown escape '\\q' (there are \\n \\t \\\" \\\\)"},
    {"const a = 1; /* b", "t:1:14: error: this comment is not closed"},
    {"const a = $;", "t:1:11: error: unexpected character '$'"},
    {"const \xc3\xa4 = 1;",
     "t:1:7: error: a byte 0xc3: only ASCII may stand outside comments"},
    {"const a = \"\xc3\xa4\";",
     "t:1:12: error: a byte 0xc3: only ASCII may stand in a string"},
};

static void reports_syntax_errors(void) {
  Arena *arena = arena_create();
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    CHECK_TEXT(first_error(arena, bad[i].text), bad[i].message);
  arena_destroy(arena);
}

static void goes_on_after_an_error(void) {
  CHECK(error_count("fn f() { let = 1; }\nfn g() { return }\nconst 3;") == 3);
  CHECK(error_count("fn f(x { let a = 1; if a { } } fn g() { let = 1; }") == 2);
  CHECK(error_count("train { steps = ; ranks 2 3; seed 1; }") == 2);
  CHECK(error_count("} } const a = ;") >= 2);
}

static void refuses_nul_bytes(void) {
  Arena *arena = arena_create();
  Diag *diag = diag_create();
  static const char text[] = "const a = 1;\0";
  dsl_parse(arena, diag, diag_add_source_bytes(diag, "t", text, sizeof text));
  CHECK(diag_error_count(diag) > 0);
  diag_destroy(diag);
  arena_destroy(arena);
}

static void refuses_deep_nesting(void) {
  static const char *const parts[] = {"(", "-", "[", "f(", "a + ", "a ? "};
  Arena *arena = arena_create();
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    Str text = {0};
    str_puts(&text, "const a = ");
    for (int k = 0; k < 100000; k++) str_puts(&text, parts[i]);
    str_puts(&text, "1;");
    const char *message = first_error(arena, str_text(&text));
    CHECK(strstr(message, "this is nested too deeply") != NULL);
    str_free(&text);
  }
  arena_destroy(arena);
}

static void builds_the_tree(void) {
  Arena *arena = arena_create();
  Diag *diag = diag_create();
  Str dump = {0};
  AstFile *file = dsl_parse(
      arena, diag,
      diag_add_source(diag, "t", "const a = -b.c[0](1, d = 2) + 3 * 4;"));
  dsl_dump(file, &dump);
  CHECK_TEXT(str_text(&dump),
             "item 1 a\n"
             " binary +\n"
             "  unary -\n"
             "   expr 12\n"
             "    expr 13\n"
             "     member c\n"
             "      name b\n"
             "     subscripts 1\n"
             "      int 0\n"
             "    arg -\n"
             "    int 1\n"
             "    arg d\n"
             "    int 2\n"
             "  binary *\n"
             "   int 3\n"
             "   int 4\n");
  const AstExpr *value = file->items.at[0]->value;
  CHECK(value->loc.col == 29 && ast_expr_start(value).col == 11);
  CHECK(value->depth == 6);
  str_free(&dump);
  diag_destroy(diag);
  arena_destroy(arena);
}

int main(void) {
  TEST(accepts_what_language_md_shows);
  TEST(reports_syntax_errors);
  TEST(goes_on_after_an_error);
  TEST(refuses_nul_bytes);
  TEST(refuses_deep_nesting);
  TEST(builds_the_tree);
  return test_end();
}
