/* A statement of a task as C that runs on CPUs: a call of a fused kernel or of a routine of the runtime.
 * In: the statement, the names of its buffers. Out: one call, without the comment. */
#include <stdio.h>

#include "codegen/target.h"
#include "compiler/base/diag.h"

static const PlanType *type_of(const EmitTask *b, int buffer) { return &b->task->buffers[buffer].type; }

static const char *suffix(const EmitTask *b, int buffer) { return pp_dtype_name(type_of(b, buffer)->dtype); }

/* "pp_gather_" and the dtype of a buffer. */
static void start_routine(EmitCall *call, EmitTask *b, const char *stem, int buffer) {
  char name[64];
  snprintf(name, sizeof name, "%s_%s", stem, suffix(b, buffer));
  emit_call_start(call, b->out, name);
}

static void emit_matmul(EmitTask *b, const PlanStatement *s) {
  if (s->attrs.epilogue != PP_EPILOGUE_NONE) bug("%s: a product with an epilogue", b->task->name);
  EmitProduct p = emit_product_shape(b->task, s);
  EmitCall call;
  start_routine(&call, b, "pp_matmul", s->in[0]);
  emit_call_arg(&call, "%d", s->attrs.ta);
  emit_call_arg(&call, "%d", s->attrs.tb);
  emit_call_arg(&call, "%lld", (long long)p.batch);
  emit_call_arg(&call, "%lld", (long long)p.m);
  emit_call_arg(&call, "%lld", (long long)p.n);
  emit_call_arg(&call, "%lld", (long long)p.k);
  emit_call_arg(&call, "%s", b->names[s->in[0]]);
  emit_call_arg(&call, "%s", b->names[s->in[1]]);
  emit_call_arg(&call, "%s", b->names[s->out[0]]);
  emit_call_arg(&call, "%s", s->op == PLAN_OP_MATMUL ? "0" : emit_accumulates(s));
  emit_call_end(&call);
}

static void emit_kernel_call(EmitTask *b, const PlanStatement *s) {
  const PlanKernel *kernel = &b->plan->kernels[s->kernel];
  char name[256];
  snprintf(name, sizeof name, "kernels->%s", kernel->name);
  EmitCall call;
  emit_call_start(&call, b->out, name);
  if (kernel->uses_call) emit_call_arg(&call, "c");
  for (int i = 0; i < s->n_in; i++) emit_call_arg(&call, "%s", b->names[s->in[i]]);
  for (int i = 0; i < s->n_out; i++) emit_call_arg(&call, "%s", b->names[s->out[i]]);
  emit_call_end(&call);
}

static void emit_check_indices(EmitTask *b, const PlanStatement *s, int index, int64_t rows) {
  Str place = {0};
  emit_string(&place, s->line ? s->line : "");
  str_printf(b->out, "pp_check_indices(c, %s, %lld, %lld, %s);\n  ", b->names[index],
             (long long)plan_elements(type_of(b, index)), (long long)rows, str_text(&place));
  str_free(&place);
}

static void emit_gather(EmitTask *b, const PlanStatement *s) {
  const PlanType *table = type_of(b, s->in[0]);
  emit_check_indices(b, s, s->in[1], table->dims[0]);
  EmitCall call;
  start_routine(&call, b, "pp_gather", s->out[0]);
  emit_call_arg(&call, "%lld", (long long)plan_elements(type_of(b, s->in[1])));
  emit_call_arg(&call, "%lld", (long long)(plan_elements(table) / (table->dims[0] ? table->dims[0] : 1)));
  emit_call_arg(&call, "%s", b->names[s->in[0]]);
  emit_call_arg(&call, "%s", b->names[s->in[1]]);
  emit_call_arg(&call, "%s", b->names[s->out[0]]);
  emit_call_end(&call);
}

static void emit_scatter(EmitTask *b, const PlanStatement *s) {
  const PlanType *to = type_of(b, s->out[0]);
  emit_check_indices(b, s, s->in[1], to->dims[0]);
  EmitCall call;
  start_routine(&call, b, "pp_scatter_add", s->out[0]);
  emit_call_arg(&call, "%lld", (long long)plan_elements(type_of(b, s->in[1])));
  emit_call_arg(&call, "%lld", (long long)(plan_elements(to) / (to->dims[0] ? to->dims[0] : 1)));
  emit_call_arg(&call, "%lld", (long long)to->dims[0]);
  emit_call_arg(&call, "%s", b->names[s->in[0]]);
  emit_call_arg(&call, "%s", b->names[s->in[1]]);
  emit_call_arg(&call, "%s", b->names[s->out[0]]);
  emit_call_arg(&call, "%s", s->op == PLAN_OP_SCATTER_ADD ? "0" : emit_accumulates(s));
  emit_call_end(&call);
}

static void emit_accumulate(EmitTask *b, const PlanStatement *s) {
  EmitCall call;
  start_routine(&call, b, "pp_accumulate", s->out[0]);
  emit_call_arg(&call, "%lld", (long long)plan_elements(type_of(b, s->in[0])));
  emit_call_arg(&call, "%s", b->names[s->in[0]]);
  emit_call_arg(&call, "%s", b->names[s->out[0]]);
  emit_call_arg(&call, "%s", emit_accumulates(s));
  emit_call_end(&call);
}

/* q [batch, heads, t, d]; k [batch, kv_heads, t_kv, d]. */
static void emit_attention(EmitTask *b, const PlanStatement *s) {
  const PlanType *q = type_of(b, s->in[0]), *k = type_of(b, s->in[1]);
  if (q->rank != 4 || k->rank != 4) bug("attention of rank %d", q->rank);
  char scale[32];
  str_format_double(s->attrs.value, scale);
  EmitCall call;
  start_routine(&call, b, s->op == PLAN_OP_ATTENTION ? "kernels->attention" : "kernels->attention_grad", s->in[0]);
  emit_call_arg(&call, "&(pp_attention_shape){%lld, %lld, %lld, %lld, %lld, %lld, %d, %s}",
                (long long)q->dims[0], (long long)q->dims[1], (long long)k->dims[1], (long long)q->dims[2],
                (long long)k->dims[2], (long long)q->dims[3], s->attrs.causal, scale);
  for (int i = 0; i < s->n_in; i++) emit_call_arg(&call, "%s", b->names[s->in[i]]);
  for (int i = 0; i < s->n_out; i++) emit_call_arg(&call, "%s", b->names[s->out[i]]);
  emit_call_arg(&call, "%s", s->workspace >= 0 ? b->names[s->workspace] : "NULL");
  emit_call_end(&call);
}

static void emit_loss(EmitTask *b, const PlanStatement *s) {
  str_printf(b->out, "pp_loss_store(c, (double)*%s, ", b->names[s->in[0]]);
  if (s->n_in > 1) str_printf(b->out, "(double)*%s);", b->names[s->in[1]]);
  else str_puts(b->out, "1.0);");
}

static void emit_copy(EmitTask *b, const PlanStatement *s) {
  str_printf(b->out, "memcpy(%s, %s, %lld);", b->names[s->out[0]], b->names[s->in[0]],
             (long long)plan_bytes(type_of(b, s->out[0])));
}

static void emit_output(EmitTask *b, const PlanStatement *s) {
  const PlanType *type = type_of(b, s->in[0]);
  int64_t n = plan_elements(type);
  const char *name = b->names[s->in[0]];
  if (type->dtype == PP_F64)
    str_printf(b->out, "pp_output_store(c, %d, %s, %lld);", s->index, name, (long long)n);
  else if (n == 1) str_printf(b->out, "pp_output_store(c, %d, &(double){(double)*%s}, 1);", s->index, name);
  else bug("%s: an output of %lld elements that are not f64", b->task->name, (long long)n);
}

void emit_c_statement(EmitTask *b, const PlanStatement *s) {
  switch (s->op) {
  case PLAN_OP_KERNEL: emit_kernel_call(b, s); break;
  case PLAN_OP_MATMUL:
  case PLAN_OP_MATMUL_ACCUMULATE: emit_matmul(b, s); break;
  case PLAN_OP_ACCUMULATE: emit_accumulate(b, s); break;
  case PLAN_OP_GATHER: emit_gather(b, s); break;
  case PLAN_OP_SCATTER_ADD:
  case PLAN_OP_SCATTER_ACCUMULATE: emit_scatter(b, s); break;
  case PLAN_OP_ATTENTION:
  case PLAN_OP_ATTENTION_GRAD: emit_attention(b, s); break;
  case PLAN_OP_LOSS: emit_loss(b, s); break;
  case PLAN_OP_DATA:
    if (s->n_in) emit_copy(b, s);
    else str_printf(b->out, "pp_data_read(c, %d, %s);", s->index, b->names[s->out[0]]);
    break;
  case PLAN_OP_OUTPUT:
    if (s->n_out) emit_copy(b, s);
    else emit_output(b, s);
    break;
  case PLAN_OP_CONTROL:
  case PLAN_OP_RESCALE:
  case PLAN_OP_FOLD:
  case PLAN_OP_ASSIGN: emit_copy(b, s); break;
  default: bug("%s: statement of op %d", b->task->name, (int)s->op);
  }
}
