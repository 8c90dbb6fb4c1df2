/* What eval_test.c and elaborate_test.c share: programs made of a body, or
 * whole ones, that must elaborate or fail with a given message. A body stands
 * on line 2 of a function that the loss calls with x: f32[4, 8], the only data.
 */
#ifndef PPC_EVAL_TEST_H
#define PPC_EVAL_TEST_H

#include <stdlib.h>
#include <string.h>

#include "compiler/base/test.h"
#include "compiler/eval.h"

typedef struct {
  Arena *arena;
  Diag *diag;
  Ir *ir;
  Program *program; /* NULL after errors */
  Str errors;
} Run;

static inline CompileOptions no_options(void) {
  return (CompileOptions){
      .ranks = -1, .microbatch = -1, .microbatches = -1, .steps = -1};
}

static inline Run run_with(const char *text, CompileOptions options) {
  Run r = {.arena = arena_create(), .diag = diag_create()};
  DslProgram *program = dsl_load_text(r.arena, r.diag, "m.pp", text);
  r.ir = ir_create(r.arena, r.diag);
  if (program) r.program = elaborate_run(r.ir, program, &options);
  if (r.program && !ir_verify(r.ir)) r.program = NULL;
  diag_flush_to(r.diag, &r.errors);
  return r;
}

static inline Run run(const char *text) {
  return run_with(text, no_options());
}

static inline void run_end(Run *r) {
  str_free(&r->errors);
  ir_destroy(r->ir);
  diag_destroy(r->diag);
  arena_destroy(r->arena);
}

static const char *const settings =
    "  batch microbatch = 4, microbatches = 2;\n  data x = synthetic(8);\n  "
    "ranks 1;\n  schedule gpipe;\n"
    "  optimizer sgd(lr = constant(0.1));\n  steps 3;\n";

/* `declarations` follow the function; `body` may use x and must not return. */
static inline char *program_of(const char *body, const char *declarations) {
  Str s = {0};
  str_printf(&s,
             "fn test(x) {\n%s\n}\n%s\nuse nn; use optim; use schedules;\n"
             "module net() {\n  param w: [8] = ones;\n  fn (x: [b, n]) { "
             "test(x); return mean(x * w); }\n}\n"
             "train {\n  model net = net();\n  loss net(x);\n%s}\n",
             body, declarations, settings);
  char *text = strdup(str_text(&s));
  str_free(&s);
  return text;
}

static inline void show(const char *what, const char *body,
                        const char *errors) {
  test_failures++;
  printf("%s: %s\n%s\n", what, body, errors);
}

static inline void ok_with(const char *body, const char *declarations) {
  char *text = program_of(body, declarations);
  Run r = run(text);
  if (!r.program || r.errors.length > 0)
    show("should work", body, str_text(&r.errors));
  run_end(&r);
  free(text);
}

static inline void ok(const char *body) {
  ok_with(body, "");
}

static inline void fails_with(const char *body, const char *declarations,
                              const char *wanted) {
  char *text = program_of(body, declarations);
  Run r = run(text);
  if (r.program || !strstr(str_text(&r.errors), wanted)) {
    show("should fail", body, str_text(&r.errors));
    printf("  with: %s\n", wanted);
  }
  run_end(&r);
  free(text);
}

static inline void fails(const char *body, const char *wanted) {
  fails_with(body, "", wanted);
}

/* A whole program. */
static inline void whole_ok(const char *text) {
  Run r = run(text);
  if (!r.program) show("should work", text, str_text(&r.errors));
  run_end(&r);
}

static inline void whole_fails(const char *text, const char *wanted) {
  Run r = run(text);
  if (r.program || !strstr(str_text(&r.errors), wanted)) {
    show("should fail", text, str_text(&r.errors));
    printf("  with: %s\n", wanted);
  }
  run_end(&r);
}

#define TRAIN                                                                  \
  "train {\n  model m = net();\n  batch microbatch = 4, microbatches = 2;\n  " \
  "data x = synthetic(8);\n  loss m(x);\n"                                     \
  "  ranks 1;\n  schedule gpipe;\n  optimizer sgd(lr = constant(0.1));\n  "    \
  "steps 3;\n}\n"
#define USES "use nn; use optim; use schedules;\n"

static inline int count_ops(Run *r, OpId id) {
  return r->program ? ir_ops(r->arena, ir_top(r->ir), id).n : -1;
}

#endif
