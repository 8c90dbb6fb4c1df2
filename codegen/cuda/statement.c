/* A statement of a task as C that enqueues its work: a launch of a kernel, a product, a copy, sample data.
 * In: the statement, the names of its buffers, the program's kernels and products (calls.h). Out: one call,
 * without the comment. Which kernel serves a statement is decided in calls.c; here its arguments are listed. */
#include "codegen/cuda/calls.h"
#include "compiler/base/diag.h"

static const PlanType *type_of(const EmitTask *b, int buffer) { return &b->task->buffers[buffer].type; }

static void put_buffers(EmitTask *b, EmitCall *call, int n, const int *buffers) {
  for (int i = 0; i < n; i++) emit_call_arg(call, "%s", b->names[buffers[i]]);
}

static void start_launch(EmitTask *b, EmitCall *call, const PlanStatement *s) {
  const CudaKernel *kernel = cuda_calls_kernel(b->prepared, b->task, s);
  if (!kernel) bug("%s: no kernel for a statement of op %d", b->task->name, (int)s->op);
  emit_call_start(call, b->out, arena_printf(b->arena, "launch_%s", kernel->name));
  emit_call_arg(call, "c");
}

/* Inputs, outputs, and for an accumulation whether it adds. */
static void emit_launch(EmitTask *b, const PlanStatement *s) {
  EmitCall call;
  start_launch(b, &call, s);
  put_buffers(b, &call, s->n_in, s->in);
  put_buffers(b, &call, s->n_out, s->out);
  if (s->op == PLAN_OP_ACCUMULATE) emit_call_arg(&call, "%s", emit_accumulates(s));
  emit_call_end(&call);
}

/* The parameter to which a statement of an update, or of a sum of squares, belongs; else what it makes. */
static const char *subject_of(const EmitTask *b, const PlanStatement *s) {
  for (int i = 0; i < s->n_in; i++) {
    const PlanBuffer *x = &b->task->buffers[s->in[i]];
    if (x->place == PLAN_WEIGHT || x->place == PLAN_GRADIENT || x->place == PLAN_STATE) return b->plan->parameters[x->index].name;
  }
  return b->names[s->out[0]];
}

/* "for 6 tensors: hidden.2.weight, hidden.2.bias and 4 more" */
static const char *group_note(const EmitTask *b, const CudaGroup *group) {
  enum { MAX_NAMED = 12 };
  int n_named = group->n > MAX_NAMED ? MAX_NAMED : group->n;
  Str note = {0};
  str_printf(&note, "for %d tensors: ", group->n);
  for (int m = 0; m < n_named; m++)
    str_printf(&note, "%s%s", m ? ", " : "", subject_of(b, &b->task->statements[group->statements[m]]));
  if (group->n > n_named) str_printf(&note, " and %d more", group->n - n_named);
  const char *text = arena_strndup(b->arena, str_text(&note), note.length);
  str_free(&note);
  return text;
}

/* The first statement of a group launches for all of it; the others are nothing. */
static void emit_group(EmitTask *b, const PlanStatement *s, const CudaGroup *group) {
  if (s != &b->task->statements[group->statements[0]]) return;
  b->note = group_note(b, group);
  EmitCall call;
  start_launch(b, &call, s);
  put_buffers(b, &call, group->n_arguments, group->arguments);
  emit_call_end(&call);
}

/* An index outside its table is noted on the device, with the statement's place; the runtime ends the job. */
static void emit_indexed_launch(EmitTask *b, const PlanStatement *s) {
  EmitCall call;
  start_launch(b, &call, s);
  put_buffers(b, &call, s->n_in, s->in);
  put_buffers(b, &call, s->n_out, s->out);
  if (s->op != PLAN_OP_GATHER) emit_call_arg(&call, "%s", s->op == PLAN_OP_SCATTER_ADD ? "0" : emit_accumulates(s));
  emit_call_arg(&call, "pp_device_fault(c)");
  emit_call_arg(&call, "%d", cuda_calls_place(b->prepared, b->task, s));
  emit_call_arg(&call, "c->microbatch");
  emit_call_end(&call);
}

static void emit_loss(EmitTask *b, const PlanStatement *s) {
  EmitCall call;
  start_launch(b, &call, s);
  put_buffers(b, &call, s->n_in, s->in);
  emit_call_arg(&call, "pp_device_losses(c)");
  emit_call_arg(&call, "pp_device_counts(c)");
  emit_call_arg(&call, "c->microbatch");
  emit_call_end(&call);
}

static void emit_output(EmitTask *b, const PlanStatement *s) {
  EmitCall call;
  start_launch(b, &call, s);
  put_buffers(b, &call, s->n_in, s->in);
  emit_call_arg(&call, "pp_device_output(c, %d)", s->index);
  emit_call_arg(&call, "c->microbatch");
  emit_call_end(&call);
}

static void emit_product(EmitTask *b, const PlanStatement *s) {
  static const char *const functions[PP_EPILOGUE_COUNT] = {"pp_product_run", "pp_product_bias", "pp_product_gelu", "pp_product_gelu"};
  EmitCall call;
  emit_call_start(&call, b->out, functions[s->attrs.epilogue]);
  emit_call_arg(&call, "c");
  emit_call_arg(&call, "%s", cuda_calls_product(b->prepared, b->task, s)->name);
  put_buffers(b, &call, s->n_in, s->in);
  put_buffers(b, &call, s->n_out, s->out);
  if (s->attrs.epilogue == PP_EPILOGUE_GELU) emit_call_arg(&call, "NULL");
  if (s->attrs.epilogue == PP_EPILOGUE_NONE) emit_call_arg(&call, "%s", s->op == PLAN_OP_MATMUL ? "0" : emit_accumulates(s));
  emit_call_end(&call);
}

/* In update tasks a copy is a guarded kernel. */
static void emit_copy(EmitTask *b, const PlanStatement *s) {
  if (cuda_calls_kernel(b->prepared, b->task, s)) {
    emit_launch(b, s);
    return;
  }
  EmitCall call;
  emit_call_start(&call, b->out, "pp_device_copy");
  emit_call_arg(&call, "c");
  put_buffers(b, &call, 1, s->out);
  put_buffers(b, &call, 1, s->in);
  emit_call_arg(&call, "%lld", (long long)plan_bytes(type_of(b, s->out[0])));
  emit_call_end(&call);
}

static void emit_data(EmitTask *b, const PlanStatement *s) {
  str_printf(b->out, "pp_device_data(c, %d, %s);", s->index, b->names[s->out[0]]);
}

static bool is_product(const PlanStatement *s) { return s->op == PLAN_OP_MATMUL || s->op == PLAN_OP_MATMUL_ACCUMULATE; }

/* A step that is skipped leaves guarded kernels out, and not products, which then read what nothing has written. */
void emit_cuda_begin_task(EmitTask *b) {
  bool has_product = false;
  for (int i = 0; i < b->task->n_statements; i++) has_product |= is_product(&b->task->statements[i]);
  if (b->task->kind != PP_UPDATE || !has_product || b->task->workspace_bytes == 0) return;
  str_printf(b->out, "  pp_device_clear(c, workspace, %lld); /* for the products of a step that is skipped */\n", (long long)b->task->workspace_bytes);
}

void emit_cuda_statement(EmitTask *b, const PlanStatement *s) {
  const CudaGroup *group = cuda_calls_group(b->prepared, b->task, s);
  if (group) {
    emit_group(b, s, group);
    return;
  }
  switch (s->op) {
  case PLAN_OP_KERNEL:
  case PLAN_OP_ACCUMULATE:
  case PLAN_OP_ATTENTION:
  case PLAN_OP_ATTENTION_GRAD: emit_launch(b, s); break;
  case PLAN_OP_GATHER:
  case PLAN_OP_SCATTER_ADD:
  case PLAN_OP_SCATTER_ACCUMULATE: emit_indexed_launch(b, s); break;
  case PLAN_OP_MATMUL:
  case PLAN_OP_MATMUL_ACCUMULATE: emit_product(b, s); break;
  case PLAN_OP_LOSS: emit_loss(b, s); break;
  case PLAN_OP_DATA: s->n_in ? emit_copy(b, s) : emit_data(b, s); break;
  case PLAN_OP_OUTPUT: s->n_out ? emit_copy(b, s) : emit_output(b, s); break;
  case PLAN_OP_CONTROL:
  case PLAN_OP_RESCALE:
  case PLAN_OP_FOLD:
  case PLAN_OP_ASSIGN: emit_copy(b, s); break;
  default: bug("%s: statement of op %d", b->task->name, (int)s->op);
  }
}
