/* kernels.h, kernels.c and kernels_select.c, see codegen/emit.h: every kernel once, a table of all of
 * them for each x86-64 level, and the choice at start. The bodies are kernel_body.c's work. */
#include "codegen/kernel.h"

#include <ctype.h>
#include <string.h>

#include "codegen/emit.h"
#include "codegen/parts.h"

/* --- names of parameters --------------------------------------------------------------------------- */

static bool is_keyword(const char *name) {
  static const char *const words[] = {"auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum",
    "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof",
    "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "call", "lane", "kernels", "i", "j",
    "k", "l", "c", "i0", "j0", "k0", "l0", "NAN", "INFINITY", "y0", "y1", "yn", "j1", "jn"};
  for (size_t w = 0; w < sizeof words / sizeof *words; w++)
    if (!strcmp(words[w], name)) return true;
  return false;
}

/* Characters up to ',', ';' or the end, as an identifier; null when there are none. */
static char *next_name(Arena *arena, const char **at) {
  if (!*at) return NULL;
  size_t n = strcspn(*at, ",;");
  char *name = n ? arena_strndup(arena, *at, n) : NULL;
  *at = (*at)[n] ? *at + n + 1 : NULL;
  for (char *c = name; c && *c; c++)
    if (!isalnum((unsigned char)*c)) *c = '_';
  if (name && isdigit((unsigned char)name[0])) name = arena_printf(arena, "x%s", name);
  return name;
}

const char *const *kernel_parameter_names(Arena *arena, const PlanKernel *k) {
  int n = k->n_inputs + k->n_outputs;
  const char **names = arena_alloc_array(arena, (size_t)n, sizeof *names);
  const char *at = k->names;
  if (at && k->n_inputs == 0 && *at == ';') at++;
  for (int i = 0; i < n; i++) {
    char *base = next_name(arena, &at);
    if (!base) base = i < k->n_inputs ? arena_printf(arena, "in%d", i) : k->n_outputs == 1 ? arena_strdup(arena, "out") : arena_printf(arena, "out%d", i - k->n_inputs);
    if (is_keyword(base) || emit_may_be_taken(base)) base = arena_printf(arena, "%s_", base);
    const char *name = base;
    bool taken = true;
    for (int number = 2; taken; number++) {
      taken = false;
      for (int j = 0; j < i; j++) taken |= !strcmp(names[j], name);
      if (taken) name = arena_printf(arena, "%s_%d", base, number);
    }
    names[i] = name;
  }
  return names;
}

static bool may_alias(const PlanKernel *k, bool output, int number) {
  for (int i = 0; i < k->n_in_place; i++)
    if (k->in_place[2 * i + (output ? 0 : 1)] == number) return true;
  return false;
}

void kernel_print_parameters(Str *out, const PlanKernel *k, const char *const *names) {
  EmitCall call = {.out = out, .indent = emit_column(out) > EMIT_COLUMNS / 2 ? 4 : emit_column(out)};
  if (k->uses_call) emit_call_arg(&call, "const pp_call *call");
  for (int i = 0; i < k->n_inputs; i++)
    emit_call_arg(&call, "const %s *%s%s", kernel_type(k->inputs[i].dtype), may_alias(k, false, i) ? "" : "restrict ", names[i]);
  for (int i = 0; i < k->n_outputs; i++)
    emit_call_arg(&call, "%s *%s%s", kernel_type(kernel_value_type(k, k->outputs[i])->dtype), may_alias(k, true, i) ? "" : "restrict ",
                  names[k->n_inputs + i]);
  if (!k->uses_call && k->n_inputs + k->n_outputs == 0) str_puts(out, "void");
}

/* --- the files -------------------------------------------------------------------------------------------- */

static void add_file(Arena *arena, EmitFiles *files, const char *path, Str *text) {
  EmitFile file = {.path = path, .text = arena_strndup(arena, str_text(text), text->length), .size = text->length};
  VEC_PUSH(arena, files, file);
  str_free(text);
}

/* --- attention: one routine of the runtime for each (op, dtype), built for every level like the kernels -------- */

typedef struct {
  const char *name; /* "attention_f32" */
  PlanOp op;
  pp_dtype dtype;   /* of q */
} LeveledRoutine;

static const LeveledRoutine leveled_routines[] = {{"attention_f32", PLAN_OP_ATTENTION, PP_F32},
                                                  {"attention_grad_f32", PLAN_OP_ATTENTION_GRAD, PP_F32},
                                                  {"attention_f64", PLAN_OP_ATTENTION, PP_F64},
                                                  {"attention_grad_f64", PLAN_OP_ATTENTION_GRAD, PP_F64},
                                                  {"attention_bf16", PLAN_OP_ATTENTION, PP_BF16},
                                                  {"attention_grad_bf16", PLAN_OP_ATTENTION_GRAD, PP_BF16}};
enum { N_LEVELED_ROUTINES = sizeof leveled_routines / sizeof *leveled_routines };

static bool is_used(const Plan *plan, const LeveledRoutine *routine) {
  for (int t = 0; t < plan->n_tasks; t++) {
    const PlanTask *task = &plan->tasks[t];
    for (int i = 0; i < task->n_statements; i++) {
      const PlanStatement *s = &task->statements[i];
      if (s->op == routine->op && task->buffers[s->in[0]].type.dtype == routine->dtype) return true;
    }
  }
  return false;
}

/* `format` has the name twice. */
static void print_leveled_routines(Str *out, const Plan *plan, const char *format) {
  for (int i = 0; i < N_LEVELED_ROUTINES; i++)
    if (is_used(plan, &leveled_routines[i])) str_printf(out, format, leveled_routines[i].name, leveled_routines[i].name);
}

static void emit_header(Arena *arena, const Plan *plan, EmitFiles *files) {
  Str out = {0};
  str_puts(&out, "/* The kernels of this program: called through the table that was chosen at start. */\n"
                 "#ifndef KERNELS_H\n#define KERNELS_H\n\n#include <stdint.h>\n\n#include \"runtime/pp.h\"\n\nstruct kernels {\n"
                 "  int level; /* x86-64 level of the build, 0: baseline */\n");
  for (int i = 0; i < plan->n_kernels; i++) {
    const PlanKernel *k = &plan->kernels[i];
    str_printf(&out, "  void (*%s)(", k->name);
    kernel_print_parameters(&out, k, kernel_parameter_names(arena, k));
    str_puts(&out, ");\n");
  }
  print_leveled_routines(&out, plan, "  pp_%s_fn *%s;\n");
  str_puts(&out, "};\n\n/* Constant after pp_kernels_select(). */\nextern const struct kernels *kernels;\n\n"
                 "/* Chooses the kernels for this CPU; 0, or 1 after printing why there are none. */\nint pp_kernels_select(void);\n\n#endif\n");
  add_file(arena, files, "kernels.h", &out);
}

static void emit_source(Arena *arena, const Plan *plan, EmitFiles *files) {
  Str out = {0};
  str_puts(&out, "/* Every fused kernel once. Built for several x86-64 levels (PP_LEVEL), all with the same bits: values are\n"
                 " * rounded to their type, nothing is contracted, sums have 16 fixed lanes (runtime/kernels/reduce.h). */\n"
                 "#include \"kernels.h\"\n\n#include \"runtime/kernels/level.h\"\n#include \"runtime/kernels/math.h\"\n"
                 "#include \"runtime/kernels/reduce.h\"\n\n"
                 "#pragma GCC diagnostic ignored \"-Wtautological-compare\" /* a model may ask whether x == x */\n");
  for (int i = 0; i < plan->n_kernels; i++) {
    const PlanKernel *k = &plan->kernels[i];
    const char *const *names = kernel_parameter_names(arena, k);
    str_putc(&out, '\n');
    emit_wrapped_comment(&out, kernel_comment(arena, k, names));
    str_putc(&out, '\n');
    str_printf(&out, "static void %s(", k->name);
    kernel_print_parameters(&out, k, names);
    str_puts(&out, ") ");
    kernel_print_body(arena, &out, k, names);
  }
  str_putc(&out, '\n');
  print_leveled_routines(&out, plan, "extern pp_%s_fn PP_LEVELED(pp_%s);\n");
  str_puts(&out, "extern const struct kernels PP_LEVELED(kernels);\nconst struct kernels PP_LEVELED(kernels) = {\n  .level = PP_LEVEL,\n");
  for (int i = 0; i < plan->n_kernels; i++) str_printf(&out, "  .%s = %s,\n", plan->kernels[i].name, plan->kernels[i].name);
  print_leveled_routines(&out, plan, "  .%s = PP_LEVELED(pp_%s),\n");
  str_puts(&out, "};\n");
  add_file(arena, files, "kernels.c", &out);
}

static void emit_select(Arena *arena, EmitFiles *files) {
  Str out = {0};
  str_puts(&out,
           "/* Chooses, once at start, the build of kernels.c that fits this CPU: the highest x86-64 level that was\n"
           " * linked (absent ones are null) and that the CPU has. PP_CPU_LEVEL=2|3 in the environment lowers it. */\n"
           "#include <stdio.h>\n\n#include \"kernels.h\"\n#include \"runtime/abi.h\"\n\n"
           "extern const struct kernels kernels_v0 __attribute__((weak)), kernels_v2 __attribute__((weak));\n"
           "extern const struct kernels kernels_v3 __attribute__((weak)), kernels_v4 __attribute__((weak));\n\n"
           "const struct kernels *kernels;\n\n"
           "int pp_kernels_select(void) {\n"
           "  int level = pp_cpu_level();\n"
           "  kernels = level >= 4 && &kernels_v4 ? &kernels_v4 : level >= 3 && &kernels_v3 ? &kernels_v3\n"
           "            : level >= 2 && &kernels_v2 ? &kernels_v2 : &kernels_v0;\n"
           "  if (kernels) return 0;\n"
           "  fprintf(stderr, \"this CPU is older than x86-64-v2: build with make LEVELS=0\\n\");\n"
           "  return 1;\n"
           "}\n");
  add_file(arena, files, "kernels_select.c", &out);
}

void emit_kernels_c(Arena *arena, const Plan *plan, EmitFiles *files) {
  emit_header(arena, plan, files);
  emit_source(arena, plan, files);
  emit_select(arena, files);
}
