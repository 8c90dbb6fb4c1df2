/* Tasks of one stage as C. In: the stage, its tasks with their buffers and statements. Out: stage_K.h
 * (frame structs, declarations) and stage_K.c. A task is named pointers, then one line per statement.
 * A frame's layout is checked against the plan's offsets by the C compiler. No decision is made here:
 * places, order and kernels are the plan's. */
#include <stdio.h>
#include <string.h>

#include "codegen/target.h"
#include "compiler/base/diag.h"

enum { COMMENT_COLUMN = 64 };

/* --- frames -------------------------------------------------------------------------------------- */

/* What stands behind a field's name. */
static const char *field_end(const PlanField *field) { return emit_may_be_taken(field->name) ? "_" : ""; }

static void emit_field(Str *out, const PlanField *field) {
  str_printf(out, "  _Alignas(%d) %s %s%s[", PP_ALIGNMENT, emit_c_type(field->type.dtype), field->name, field_end(field));
  for (int i = 0; i < field->type.rank; i++)
    str_printf(out, "%s%lld", i ? " * " : "", (long long)field->type.dims[i]);
  str_puts(out, field->type.rank ? "];" : "1];");
  emit_to_column(out, COMMENT_COLUMN);
  str_puts(out, "/* ");
  emit_comment(out, field->line);
  str_puts(out, " */\n");
}

static void emit_frame(Str *out, int stage, const char *what, const char *why, int n, const PlanField *fields,
                       int64_t frame_bytes) {
  if (n == 0) return;
  str_printf(out, "\n/* %s; one for each microbatch in flight, ", why);
  emit_grouped(out, (uint64_t)frame_bytes);
  str_printf(out, " bytes. */\nstruct stage_%d_%s {\n", stage, what);
  int64_t end = 0;
  for (int i = 0; i < n; i++) {
    if (fields[i].offset < pp_align(end)) bug("fields of %s %d overlap at %s", what, stage, fields[i].name);
    if (fields[i].offset > pp_align(end))
      str_printf(out, "  _Alignas(%d) char gap_%d[%lld];\n", PP_ALIGNMENT, i,
                 (long long)(fields[i].offset - pp_align(end)));
    emit_field(out, &fields[i]);
    end = fields[i].offset + plan_bytes(&fields[i].type);
  }
  str_puts(out, "};\n");
  str_printf(out, "_Static_assert(offsetof(struct stage_%d_%s, %s%s) == %lld, \"as planned\");\n", stage, what,
             fields[n - 1].name, field_end(&fields[n - 1]), (long long)fields[n - 1].offset);
  str_printf(out, "_Static_assert(sizeof(struct stage_%d_%s) <= %lld, \"as planned\");\n", stage, what,
             (long long)pp_align(frame_bytes));
}

void emit_stage_header(Arena *arena, const Plan *plan, const PlanStage *stage, EmitFiles *files) {
  Str out = {0};
  int k = stage->index;
  str_printf(&out, "/* Stage %d of ", k);
  emit_comment(&out, plan->model);
  str_puts(&out, ": what its tasks save for one another, and the tasks. */\n");
  str_printf(&out, "#ifndef STAGE_%d_H\n#define STAGE_%d_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n", k, k);
  str_puts(&out, "#include \"runtime/pp.h\"\n");
  emit_frame(&out, k, "frame", "Saved by fwd until the adjoint of the input is made", stage->n_fields,
             stage->fields, stage->frame_bytes);
  emit_frame(&out, k, "weight_frame", "Saved by bwd_input until the weights' gradients are made",
             stage->n_weight_fields, stage->weight_fields, stage->weight_frame_bytes);
  str_putc(&out, '\n');
  for (int i = 0; i < stage->n_tasks; i++)
    str_printf(&out, "void %s(const pp_call *c);\n", plan->tasks[stage->tasks[i]].name);
  str_puts(&out, "\n#endif\n");
  char path[64];
  snprintf(path, sizeof path, "stage_%d.h", k);
  emit_add(arena, files, path, &out);
}

/* --- names of a task ---------------------------------------------------------------------------------- */

static int find_argument(const PlanTask *task, const PlanBuffer *buffer) {
  for (int i = 0; i < task->n_arguments; i++)
    if (plan_argument_holds(&task->arguments[i], i, buffer)) return i;
  bug("%s: no argument holds '%s'", task->name, buffer->name);
}

static const char *const reserved[] = {
    "c",        "frame",    "weight_frame", "workspace", "kernels", "auto",     "break",  "case",     "char",
    "const",    "continue", "default",      "do",        "double",  "else",     "enum",   "extern",   "float",
    "for",      "goto",     "if",           "inline",    "int",     "long",     "register", "restrict", "return",
    "short",    "signed",   "sizeof",       "static",    "struct",  "switch",   "typedef", "union",    "unsigned",
    "void",     "volatile", "while",        "memcpy",    "NULL",    "asm",      "typeof", "linux",    "unix",
    "pp_call",  "int32_t",  "int64_t",      "uint8_t"};

/* The plan's names are unique, but not apart from C's words and ours. */
static const char *local_name(EmitTask *b, const char *wanted) {
  if (emit_may_be_taken(wanted)) wanted = arena_printf(b->arena, "%s_", wanted);
  const char *name = wanted;
  for (int i = 2; map_find(&b->taken, name); i++)
    name = arena_printf(b->arena, "%s_%d", wanted, i);
  map_put(b->arena, &b->taken, name, NULL);
  return name;
}

static bool same_place(const PlanBuffer *x, const PlanBuffer *y) {
  return x->place == y->place && x->index == y->index && x->sub == y->sub;
}

/* What already lies where it is to be copied to needs no line. */
bool emit_does_nothing(const PlanTask *task, const PlanStatement *s) {
  switch (s->op) {
  case PLAN_OP_DATA:
  case PLAN_OP_OUTPUT:
  case PLAN_OP_CONTROL:
  case PLAN_OP_RESCALE:
  case PLAN_OP_FOLD:
  case PLAN_OP_ASSIGN:
    return s->n_in == 1 && s->n_out == 1 && same_place(&task->buffers[s->in[0]], &task->buffers[s->out[0]]);
  default: return false;
  }
}

static void mark_buffers(EmitTask *b) {
  for (int i = 0; i < b->task->n_statements; i++) {
    const PlanStatement *s = &b->task->statements[i];
    if (emit_does_nothing(b->task, s)) continue;
    for (int k = 0; k < s->n_in; k++) b->used[s->in[k]] = true;
    for (int k = 0; k < s->n_out; k++) b->used[s->out[k]] = b->written[s->out[k]] = true;
    if (s->workspace >= 0) b->used[s->workspace] = b->written[s->workspace] = true;
  }
}

static void name_buffers(EmitTask *b) {
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) map_put(b->arena, &b->taken, reserved[i], NULL);
  for (int i = 0; i < b->task->n_buffers; i++) {
    if (!b->used[i]) continue;
    b->argument[i] = find_argument(b->task, &b->task->buffers[i]);
    b->names[i] = local_name(b, b->task->buffers[i].name);
  }
}

/* --- the pointers a task begins with ----------------------------------------------------------------------- */

static void emit_base(EmitTask *b, PlanArgKind kind, const char *declaration) {
  for (int i = 0; i < b->task->n_buffers; i++) {
    if (!b->used[i] || b->task->arguments[b->argument[i]].kind != kind) continue;
    str_printf(b->out, "  %s = c->at[%d];\n", declaration, b->argument[i]);
    return;
  }
}

static void emit_bases(EmitTask *b) {
  char text[96];
  snprintf(text, sizeof text, "struct stage_%d_frame *const frame", b->stage->index);
  emit_base(b, PLAN_ARG_FRAME, text);
  snprintf(text, sizeof text, "struct stage_%d_weight_frame *const weight_frame", b->stage->index);
  emit_base(b, PLAN_ARG_WEIGHT_FRAME, text);
  emit_base(b, PLAN_ARG_WORKSPACE, "char *const workspace");
}

/* A comment in its column, or nearer to the code where all of it fits into the line only there; else it is wrapped. */
static void emit_comment_behind(Str *out, const char *text) {
  int width = (int)strlen(text) + 6, end = emit_column(out) + 1;
  bool is_long = COMMENT_COLUMN + width > EMIT_COLUMNS;
  emit_to_column(out, is_long && end + width <= EMIT_COLUMNS ? end : COMMENT_COLUMN);
  emit_wrapped_comment(out, text);
}

/* A line of code, its comment behind it when both fit into a line, else above it. */
static void print_with_comment(Str *out, const Str *comment, Str *code) {
  int width = (int)comment->length + 6, end = emit_column(code) + 1;
  if (end + width <= EMIT_COLUMNS) {
    emit_comment_behind(code, str_text(comment));
    str_puts(out, str_text(code));
  } else {
    str_puts(out, "  ");
    emit_wrapped_comment(out, str_text(comment));
    str_printf(out, "\n%s", str_text(code));
  }
  str_putc(out, '\n');
}

static void emit_pointer(EmitTask *b, int i) {
  const PlanBuffer *buffer = &b->task->buffers[i];
  const PlanArgument *a = &b->task->arguments[b->argument[i]];
  const char *type = emit_c_type(buffer->type.dtype);
  Str code = {0}, text = {0};
  str_printf(&code, "  %s%s *%s = ", b->written[i] ? "" : "const ", type, b->names[i]);
  const char *comment = NULL;
  if (buffer->place == PLAN_FRAME) {
    const PlanField *fields = buffer->sub ? b->stage->weight_fields : b->stage->fields;
    str_printf(&code, "%s->%s%s;", buffer->sub ? "weight_frame" : "frame", fields[buffer->index].name, field_end(&fields[buffer->index]));
    comment = fields[buffer->index].line;
  } else if (buffer->place == PLAN_SCRATCH) {
    str_printf(&code, "(%s *)(workspace + %lld);", type, (long long)buffer->index);
  } else {
    str_printf(&code, "c->at[%d];", b->argument[i]);
    comment = a->comment;
  }
  emit_shape(&text, &buffer->type);
  if (comment && comment[0]) str_printf(&text, " %s", comment);
  print_with_comment(b->out, &text, &code);
  str_free(&text);
  str_free(&code);
}

/* Arguments in their order, then fields of the frames, then workspace. */
static void emit_pointers(EmitTask *b) {
  static const PlanPlace last[] = {PLAN_FRAME, PLAN_SCRATCH};
  for (int a = 0; a < b->task->n_arguments; a++)
    for (int i = 0; i < b->task->n_buffers; i++)
      if (b->used[i] && b->argument[i] == a && b->task->buffers[i].place != last[0] &&
          b->task->buffers[i].place != last[1])
        emit_pointer(b, i);
  for (int g = 0; g < 2; g++)
    for (int i = 0; i < b->task->n_buffers; i++)
      if (b->used[i] && b->task->buffers[i].place == last[g]) emit_pointer(b, i);
}

/* --- statements ------------------------------------------------------------------------------------------- */

static int64_t dim_from_end(const PlanType *type, int i) {
  if (type->rank < i) bug("a product of a tensor of rank %d", type->rank);
  return type->dims[type->rank - i];
}

EmitProduct emit_product_shape(const PlanTask *task, const PlanStatement *s) {
  const PlanType *x = &task->buffers[s->in[0]].type, *y = &task->buffers[s->in[1]].type;
  EmitProduct p = {1, dim_from_end(x, s->attrs.ta ? 1 : 2), dim_from_end(y, s->attrs.tb ? 2 : 1),
                   dim_from_end(x, s->attrs.ta ? 2 : 1)};
  for (int i = 0; i < x->rank - 2; i++) p.batch *= x->dims[i];
  return p;
}

const char *emit_accumulates(const PlanStatement *s) { return s->first_use ? "!c->first" : "1"; }

/* "h.0.attn.c_attn: matmul (nn.pp:35)". The comment of a kernel has its lines already. */
static void statement_comment(Str *out, const PlanStatement *s) {
  const char *what = s->comment ? s->comment : "";
  size_t n = strlen(what);
  str_puts(out, what);
  if (s->op == PLAN_OP_KERNEL && n > 0 && what[n - 1] == ')') return;
  if (s->line && s->line[0]) str_printf(out, n > 0 ? " (%s)" : "%s", s->line);
}

static void emit_statement(EmitTask *b, const PlanStatement *s) {
  Str comment = {0}, code = {0}, *out = b->out;
  const int indent = 2;
  str_pad(&code, ' ', indent);
  b->out = &code, b->note = NULL;
  b->target->statement(b, s);
  b->out = out;
  statement_comment(&comment, s);
  if (b->note) str_printf(&comment, " %s", b->note);
  if (code.length > (size_t)indent) print_with_comment(out, &comment, &code);
  str_free(&comment);
  str_free(&code);
}

/* --- a task --------------------------------------------------------------------------------------------------- */

static const char *purpose(pp_task_kind kind) {
  static const char *const texts[] = {
      "forward",
      "backward, both halves in program order",
      "backward, adjoints of activations",
      "backward, gradients of parameters",
      "after the loop, tied gradients are folded and squares of gradients summed",
      "after the loop, the loss, the norm and the one factor of all gradients",
      "the optimizer's step",
      "copies of tied parameters take the new values",
      "before the loop, what follows from parameters alone",
  };
  _Static_assert(sizeof texts / sizeof *texts == PP_TASK_KIND_COUNT, "one text per kind");
  return texts[kind];
}

static void emit_head(EmitTask *b) {
  str_printf(b->out, "\n/* Stage %d: %s.", b->stage->index, purpose(b->task->kind));
  if (b->task->flops > 0) {
    str_puts(b->out, " Products: ");
    emit_grouped(b->out, (uint64_t)b->task->flops);
    str_puts(b->out, " flop.");
  }
  if (b->task->workspace_bytes > 0) {
    str_puts(b->out, " Workspace: ");
    emit_grouped(b->out, (uint64_t)b->task->workspace_bytes);
    str_puts(b->out, " bytes.");
  }
  str_printf(b->out, " */\nvoid %s(const pp_call *c) {\n", b->task->name);
}

static void emit_task(Arena *arena, const Plan *plan, const PlanStage *stage, const PlanTask *task, const EmitTarget *target,
                      const void *prepared, Str *out) {
  size_t n = (size_t)task->n_buffers;
  EmitTask b = {.arena = arena, .plan = plan, .stage = stage, .task = task, .target = target, .out = out,
                .prepared = prepared};
  b.names = arena_alloc_array(arena, n, sizeof *b.names);
  b.used = arena_alloc_array(arena, n, sizeof *b.used);
  b.written = arena_alloc_array(arena, n, sizeof *b.written);
  b.argument = arena_alloc_array(arena, n, sizeof *b.argument);
  mark_buffers(&b);
  name_buffers(&b);
  emit_head(&b);
  size_t before = out->length;
  emit_bases(&b);
  emit_pointers(&b);
  if (out->length == before) str_puts(out, "  (void)c; /* nothing to do */\n");
  else str_putc(out, '\n');
  if (target->begin_task) target->begin_task(&b);
  for (int i = 0; i < task->n_statements; i++)
    if (!emit_does_nothing(task, &task->statements[i])) emit_statement(&b, &task->statements[i]);
  str_puts(out, "}\n");
}

void emit_stage_source(Arena *arena, const Plan *plan, const PlanStage *stage, const EmitTarget *target, const void *prepared,
                       EmitFiles *files) {
  Str out = {0};
  int k = stage->index;
  str_printf(&out, "/* Stage %d of ", k);
  emit_comment(&out, plan->model);
  str_puts(&out, ", ");
  emit_comment(&out, stage->first_line);
  str_puts(&out, " to ");
  emit_comment(&out, stage->last_line);
  str_printf(&out, ", on rank %d. Emitted by ppc; rank_%d.c calls it. */\n", stage->rank, stage->rank);
  str_printf(&out, "#include \"stage_%d.h\"\n\n%s#include \"kernels.h\"\n", k, target->stage_includes);
  for (int i = 0; i < stage->n_tasks; i++) emit_task(arena, plan, stage, &plan->tasks[stage->tasks[i]], target, prepared, &out);
  char path[64];
  snprintf(path, sizeof path, "stage_%d.c", k);
  emit_add(arena, files, path, &out);
}
