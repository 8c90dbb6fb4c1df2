/* The kernels and products of a CUDA program. In: the plan. Out: every distinct one once, in the order in
 * which the tasks first use them: the plan's fused kernels (kernel_body.c; a second, guarded variant when an
 * update task uses it), and instances of the templates in runtime/kernels/cuda/ with static shapes. Two
 * statements share an instance when all that is fixed in its body is the same. */
#include "codegen/cuda/calls.h"

#include <stdarg.h>
#include <string.h>

#include "compiler/base/diag.h"
#include "runtime/cuda/geometry.h"

/* An instance under construction. */
typedef struct {
  Arena *arena;
  const PlanTask *task;
  const PlanStatement *s;
  CudaKernel kernel;
  VEC(CudaParameter) parameters;
} Instance;

static const PlanType *type_of(const PlanTask *task, int buffer) { return &task->buffers[buffer].type; }
static const PlanType *in_type(const PlanTask *task, const PlanStatement *s, int i) { return type_of(task, s->in[i]); }
static const PlanType *out_type(const PlanTask *task, const PlanStatement *s, int i) { return type_of(task, s->out[i]); }

static bool is_copy(const PlanStatement *s) {
  switch (s->op) {
  case PLAN_OP_DATA: return s->n_in == 1;
  case PLAN_OP_OUTPUT: return s->n_out == 1;
  case PLAN_OP_CONTROL:
  case PLAN_OP_RESCALE:
  case PLAN_OP_FOLD:
  case PLAN_OP_ASSIGN: return true;
  default: return false;
  }
}

static bool is_product(const PlanStatement *s) { return s->op == PLAN_OP_MATMUL || s->op == PLAN_OP_MATMUL_ACCUMULATE; }
static bool is_update(const PlanTask *task) { return task->kind == PP_UPDATE; }

/* --- names: what an instance computes, and all that is fixed in it -------------------------------------- */

static int64_t rows_of(const PlanType *table) { return table->rank ? table->dims[0] : 1; }
static int64_t row_of(const PlanType *table) { return rows_of(table) ? plan_elements(table) / rows_of(table) : 1; }

static void name_attention(const PlanTask *task, const PlanStatement *s, Str *out) {
  const PlanType *q = in_type(task, s, 0), *k = in_type(task, s, 1);
  if (q->rank != 4 || k->rank != 4) bug("attention of rank %d", q->rank);
  char scale[32];
  str_format_double(s->attrs.value, scale);
  str_printf(out, "%s_%s_%lldx%lldx%lldx%lld", s->op == PLAN_OP_ATTENTION ? "attention" : "attention_grad", pp_dtype_name(q->dtype),
             (long long)q->dims[0], (long long)q->dims[1], (long long)q->dims[2], (long long)q->dims[3]);
  if (k->dims[1] != q->dims[1]) str_printf(out, "_kv%lld", (long long)k->dims[1]);
  if (k->dims[2] != q->dims[2]) str_printf(out, "_to%lld", (long long)k->dims[2]);
  if (s->attrs.causal) str_puts(out, "_causal");
  str_printf(out, " %s", scale); /* not part of the name */
}

/* "update_f32"; with the dtype of what is stored there, where that is another: "update_f32_of_bf16". */
static void name_dtypes(const PlanTask *task, const PlanStatement *s, const char *what, Str *out) {
  pp_dtype from = in_type(task, s, 0)->dtype, to = out_type(task, s, 0)->dtype;
  str_printf(out, "%s_%s", what, pp_dtype_name(to));
  if (from != to) str_printf(out, "_of_%s", pp_dtype_name(from));
}

/* False: the statement launches no instance of a template. */
static bool describe(const PlanTask *task, const PlanStatement *s, Str *out) {
  switch (s->op) {
  case PLAN_OP_GATHER:
    str_printf(out, "gather_%s_%lldx%lld_%lld", pp_dtype_name(out_type(task, s, 0)->dtype), (long long)rows_of(in_type(task, s, 0)),
               (long long)row_of(in_type(task, s, 0)), (long long)plan_elements(in_type(task, s, 1)));
    return true;
  case PLAN_OP_SCATTER_ADD:
  case PLAN_OP_SCATTER_ACCUMULATE:
    name_dtypes(task, s, "scatter_add", out);
    str_printf(out, "_%lldx%lld_%lld", (long long)rows_of(out_type(task, s, 0)), (long long)row_of(out_type(task, s, 0)), (long long)plan_elements(in_type(task, s, 1)));
    return true;
  case PLAN_OP_ACCUMULATE:
    name_dtypes(task, s, "accumulate", out);
    str_printf(out, "_%lld", (long long)plan_elements(in_type(task, s, 0)));
    return true;
  case PLAN_OP_ATTENTION:
  case PLAN_OP_ATTENTION_GRAD: name_attention(task, s, out); return true;
  case PLAN_OP_LOSS:
    str_printf(out, "store_loss_%s", pp_dtype_name(in_type(task, s, 0)->dtype));
    if (s->n_in > 1) str_printf(out, "_%s", pp_dtype_name(in_type(task, s, 1)->dtype));
    return true;
  default: break;
  }
  if (s->op == PLAN_OP_OUTPUT && s->n_out == 0) {
    str_printf(out, "store_output_%s_%lld", pp_dtype_name(in_type(task, s, 0)->dtype), (long long)plan_elements(in_type(task, s, 0)));
    return true;
  }
  if (!is_copy(s) || !is_update(task)) return false;
  name_dtypes(task, s, "update", out);
  str_printf(out, "_%lld", (long long)plan_elements(out_type(task, s, 0)));
  return true;
}

/* --- instances -------------------------------------------------------------------------------------------- */

static void add_parameter(Instance *x, const char *type, const char *name) {
  VEC_PUSH(x->arena, &x->parameters, (CudaParameter){type, name, true});
}

static void add_input(Instance *x, int i, const char *name) {
  add_parameter(x, arena_printf(x->arena, "const %s *", emit_c_type(in_type(x->task, x->s, i)->dtype)), name);
}

static void add_output(Instance *x, int i, const char *name) {
  add_parameter(x, arena_printf(x->arena, "%s *", emit_c_type(out_type(x->task, x->s, i)->dtype)), name);
}

static void set_geometry(Instance *x, pp_geometry g) {
  for (int i = 0; i < 3; i++) x->kernel.grid[i] = g.grid[i];
  x->kernel.block = g.block;
  x->kernel.min_blocks = g.min_blocks;
  x->kernel.shared_bytes = g.shared_bytes;
}

/* The body: the template with its arguments in <>, called with the parameters. */
static void call_template(Instance *x, const char *include, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void call_template(Instance *x, const char *include, const char *format, ...) {
  Str body = {0};
  va_list args;
  str_puts(&body, "  ");
  va_start(args, format);
  str_vprintf(&body, format, args);
  va_end(args);
  str_putc(&body, '(');
  for (int i = 0; i < x->parameters.n; i++) str_printf(&body, "%s%s", i ? ", " : "", x->parameters.at[i].name);
  str_puts(&body, ");\n");
  x->kernel.include = include;
  x->kernel.body = arena_strndup(x->arena, str_text(&body), body.length);
  str_free(&body);
}

static const char *c_type_in(const Instance *x, int i) { return emit_c_type(in_type(x->task, x->s, i)->dtype); }
static const char *c_type_out(const Instance *x, int i) { return emit_c_type(out_type(x->task, x->s, i)->dtype); }

/* Where indices are checked: who asks. */
static void add_check(Instance *x) {
  add_parameter(x, "pp_fault *", "fault");
  add_parameter(x, "int", "place");
  add_parameter(x, "int", "of_microbatch");
}

static void make_gather(Instance *x) {
  const PlanType *table = in_type(x->task, x->s, 0), *out = out_type(x->task, x->s, 0);
  int64_t n = plan_elements(in_type(x->task, x->s, 1));
  add_input(x, 0, "table");
  add_input(x, 1, "index");
  add_output(x, 0, "out");
  add_check(x);
  set_geometry(x, pp_gather_geometry(n, row_of(table), pp_dtype_bytes(out->dtype)));
  call_template(x, "rows.cuh", "pp_gather<%s, %lld, %lld, %lld>", c_type_out(x, 0), (long long)n, (long long)row_of(table),
                (long long)rows_of(table));
}

static void make_scatter(Instance *x) {
  const PlanType *out = out_type(x->task, x->s, 0);
  int64_t n = plan_elements(in_type(x->task, x->s, 1));
  add_input(x, 0, "dy");
  add_input(x, 1, "index");
  add_output(x, 0, "out");
  add_parameter(x, "int", "accumulate");
  add_check(x);
  set_geometry(x, pp_scatter_geometry(rows_of(out), row_of(out), out->dtype == PP_F64 ? 8 : 4));
  call_template(x, "rows.cuh", "pp_scatter_add<%s, %s, %lld, %lld, %lld>", c_type_out(x, 0), c_type_in(x, 0), (long long)n,
                (long long)row_of(out), (long long)rows_of(out));
}

static void make_accumulate(Instance *x) {
  int64_t n = plan_elements(in_type(x->task, x->s, 0));
  int from = pp_dtype_bytes(in_type(x->task, x->s, 0)->dtype), to = pp_dtype_bytes(out_type(x->task, x->s, 0)->dtype);
  add_input(x, 0, "x");
  add_output(x, 0, "acc");
  add_parameter(x, "int", "accumulate");
  set_geometry(x, pp_accumulate_geometry(n, from > to ? from : to));
  call_template(x, "rows.cuh", "pp_accumulate<%s, %s, %lld>", c_type_out(x, 0), c_type_in(x, 0), (long long)n);
}

/* "float, 2, 4, 4, 64, 64, 32, true": type, batch, heads, heads of k, rows of q, of k, columns, causal. */
static const char *attention_shape(const Instance *x) {
  const PlanType *q = in_type(x->task, x->s, 0), *k = in_type(x->task, x->s, 1);
  return arena_printf(x->arena, "%s, %lld, %lld, %lld, %lld, %lld, %lld, %s", emit_c_type(q->dtype), (long long)q->dims[0],
                      (long long)q->dims[1], (long long)k->dims[1], (long long)q->dims[2], (long long)k->dims[2],
                      (long long)q->dims[3], x->s->attrs.causal ? "true" : "false");
}

static const char *attention_scale(const Instance *x) {
  char scale[32];
  str_format_double(x->s->attrs.value, scale);
  return arena_strdup(x->arena, scale);
}

static void add_tensors(Instance *x, const char *const *in, const char *const *out) {
  for (int i = 0; i < x->s->n_in; i++) add_input(x, i, in[i]);
  for (int i = 0; i < x->s->n_out; i++) add_output(x, i, out[i]);
  x->kernel.n_parameters = x->parameters.n;
  x->kernel.parameters = x->parameters.at;
  x->kernel.include = "attention.cuh";
}

static void make_attention(Instance *x) {
  static const char *const in[] = {"q", "k", "v"}, *const out[] = {"out", "lse"};
  const PlanType *q = in_type(x->task, x->s, 0);
  add_tensors(x, in, out);
  set_geometry(x, pp_attention_geometry(q->dims[0] * q->dims[1], q->dims[2], q->dims[3], pp_dtype_bytes(q->dtype)));
  x->kernel.body = arena_printf(x->arena, "  pp_attention<%s>(q, k, v, out, lse, %s);\n", attention_shape(x), attention_scale(x));
}

/* Two kernels, which make the scores anew: that of dq is launched before that of dk and dv. */
static void make_attention_grad(Instance *x) {
  static const char *const in[] = {"q", "k", "v", "out", "lse", "dout"}, *const out[] = {"dq", "dk", "dv"};
  const PlanType *q = in_type(x->task, x->s, 0), *k = in_type(x->task, x->s, 1);
  const char *shape = attention_shape(x), *scale = attention_scale(x);
  int bytes = pp_dtype_bytes(q->dtype);
  CudaKernel *before = arena_alloc(x->arena, sizeof *before);
  add_tensors(x, in, out);
  set_geometry(x, pp_attention_grad_q_geometry(q->dims[0] * q->dims[1], q->dims[2], q->dims[3], bytes));
  *before = x->kernel;
  before->name = arena_printf(x->arena, "%s_q", x->kernel.name);
  before->body = arena_printf(x->arena, "  pp_attention_grad_q<%s>(q, k, v, out, lse, dout, dq, %s);\n", shape, scale);
  set_geometry(x, pp_attention_grad_kv_geometry(k->dims[0] * k->dims[1], k->dims[2], k->dims[3], bytes));
  x->kernel.before = before;
  x->kernel.body = arena_printf(x->arena, "  pp_attention_grad_kv<%s>(q, k, v, out, lse, dout, dk, dv, %s);\n", shape, scale);
}

/* A guarded copy. */
static void make_update(Instance *x) {
  int64_t n = plan_elements(out_type(x->task, x->s, 0));
  x->kernel.guarded = true;
  add_input(x, 0, "value");
  add_output(x, 0, "out");
  set_geometry(x, pp_accumulate_geometry(n, pp_dtype_bytes(out_type(x->task, x->s, 0)->dtype)));
  x->kernel.include = "rows.cuh";
  x->kernel.body = arena_printf(x->arena, "  pp_accumulate<%s, %s, %lld>(value, out, 0);\n", c_type_out(x, 0), c_type_in(x, 0), (long long)n);
}

static void make_loss(Instance *x) {
  const char *count = x->s->n_in > 1 ? c_type_in(x, 1) : c_type_in(x, 0);
  add_input(x, 0, "loss");
  if (x->s->n_in > 1) add_input(x, 1, "count");
  add_parameter(x, "double *", "losses");
  add_parameter(x, "double *", "counts");
  add_parameter(x, "int", "of_microbatch");
  set_geometry(x, pp_single_geometry());
  x->kernel.include = "step.cuh";
  x->kernel.body = arena_printf(x->arena, "  pp_store_loss<%s, %s>(loss, %s, losses, counts, of_microbatch);\n", c_type_in(x, 0), count,
                                x->s->n_in > 1 ? "count" : "nullptr");
}

static void make_output(Instance *x) {
  int64_t n = plan_elements(in_type(x->task, x->s, 0));
  add_input(x, 0, "values");
  add_parameter(x, "double *", "slot");
  add_parameter(x, "int", "of_microbatch");
  set_geometry(x, pp_flat_geometry(n));
  call_template(x, "step.cuh", "pp_store_output<%s, %lld>", c_type_in(x, 0), (long long)n);
}

static void make_instance(Instance *x) {
  switch (x->s->op) {
  case PLAN_OP_GATHER: make_gather(x); break;
  case PLAN_OP_SCATTER_ADD:
  case PLAN_OP_SCATTER_ACCUMULATE: make_scatter(x); break;
  case PLAN_OP_ACCUMULATE: make_accumulate(x); break;
  case PLAN_OP_ATTENTION: make_attention(x); break;
  case PLAN_OP_ATTENTION_GRAD: make_attention_grad(x); break;
  case PLAN_OP_LOSS: make_loss(x); break;
  case PLAN_OP_OUTPUT: x->s->n_out ? make_update(x) : make_output(x); break;
  default: make_update(x);
  }
}

/* --- the list ------------------------------------------------------------------------------------------------- */

static void add_kernel(Arena *arena, CudaCalls *calls, CudaKernel kernel) {
  map_put(arena, &calls->names, kernel.name, NULL);
  VEC_PUSH(arena, &calls->kernels, kernel);
}

/* What is fixed in it and not part of its name tells instances of one name apart. */
static const char *free_name(Arena *arena, const CudaCalls *calls, const char *key) {
  const char *wanted = arena_strndup(arena, key, strcspn(key, " ")), *name = wanted;
  for (int i = 2; map_find(&calls->names, name); i++) name = arena_printf(arena, "%s_%d", wanted, i);
  return name;
}

static void add_instance(Arena *arena, CudaCalls *calls, const PlanTask *task, const PlanStatement *s) {
  Str key = {0};
  if (describe(task, s, &key) && !map_find(&calls->kernel_numbers, str_text(&key))) {
    const char *kept = arena_strndup(arena, str_text(&key), key.length);
    Instance x = {.arena = arena, .task = task, .s = s, .kernel = {.name = free_name(arena, calls, kept), .grid = {1, 1, 1}}};
    make_instance(&x);
    x.kernel.n_parameters = x.parameters.n;
    x.kernel.parameters = x.parameters.at;
    add_kernel(arena, calls, x.kernel);
    map_put(arena, &calls->kernel_numbers, kept, (void *)(intptr_t)calls->kernels.n);
  }
  str_free(&key);
}

/* Which input of the guarded variant is the control vector, wherever an update launches it; -1: not the same everywhere, or none. */
static int control_of(const Plan *plan, int kernel) {
  int control = -1, n = 0;
  for (int t = 0; t < plan->n_tasks; t++)
    for (int i = 0; i < plan->tasks[t].n_statements && is_update(&plan->tasks[t]); i++) {
      const PlanStatement *s = &plan->tasks[t].statements[i];
      if (s->op != PLAN_OP_KERNEL || s->kernel != kernel) continue;
      int here = cuda_control_input(&plan->tasks[t], s);
      if (n++ && here != control) return -1;
      control = here;
    }
  return control;
}

static void add_fused(Arena *arena, CudaCalls *calls, const Plan *plan, const PlanTask *task, const PlanStatement *s) {
  int *number = &calls->fused[is_update(task)][s->kernel];
  if (*number) return;
  int control = is_update(task) ? control_of(plan, s->kernel) : -1;
  add_kernel(arena, calls, cuda_fused_kernel(arena, plan, s->kernel, is_update(task), control));
  *number = calls->kernels.n;
}

/* --- groups ------------------------------------------------------------------------------------------------------ */

/* "adamw_of_14": the first kernel's name without its shape. */
static const char *group_name(Arena *arena, const CudaCalls *calls, const char *first, int n) {
  size_t length = 0;
  while (first[length] && !(first[length] == '_' && first[length + 1] >= '0' && first[length + 1] <= '9')) length++;
  return free_name(arena, calls, arena_printf(arena, "%.*s_of_%d", (int)length, first, n));
}

static void add_groups(Arena *arena, CudaCalls *calls, const Plan *plan, int t) {
  const PlanTask *task = &plan->tasks[t];
  calls->groups[t] = cuda_groups_find(arena, plan, task);
  for (int i = 0; i < calls->groups[t].n; i++) {
    const CudaGroup *g = &calls->groups[t].groups[i];
    if (map_find(&calls->kernel_numbers, g->key)) continue;
    const char *name = group_name(arena, calls, plan->kernels[task->statements[g->statements[0]].kernel].name, g->n);
    add_kernel(arena, calls, cuda_group_kernel(arena, plan, task, g, name));
    map_put(arena, &calls->kernel_numbers, g->key, (void *)(intptr_t)calls->kernels.n);
  }
}

const CudaGroup *cuda_calls_group(const CudaCalls *calls, const PlanTask *task, const PlanStatement *s) {
  const CudaGroups *groups = &calls->groups[task - calls->tasks];
  int number = groups->of[s - task->statements];
  return number ? &groups->groups[number - 1] : NULL;
}

/* --- the kernels of a step: the runtime launches them ------------------------------------------------------------ */

static void add_step_kernel(Arena *arena, CudaCalls *calls, const char *name, int n, const CudaParameter *parameters, const char *body) {
  CudaParameter *kept = arena_alloc_array(arena, (size_t)n, sizeof *kept);
  pp_geometry g = pp_single_geometry();
  memcpy(kept, parameters, sizeof *kept * (size_t)n);
  add_kernel(arena, calls, (CudaKernel){.name = name, .include = "step.cuh", .n_parameters = n, .parameters = kept,
                                        .grid = {g.grid[0], g.grid[1], g.grid[2]}, .block = g.block, .body = body});
}

static void add_step_kernels(Arena *arena, CudaCalls *calls, const Plan *plan) {
  static const CudaParameter begin[] = {{"pp_step_state *", "state", true}, {"double *", "step", true}};
  static const CudaParameter gate[] = {{"const pp_step_state *", "state", true}, {"double *", "decision", true}};
  static const CudaParameter end[] = {{"pp_step_state *", "state", true}, {"const double *", "decision", true},
                                      {"const double *", "losses", true}, {"const double *", "norms", true}};
  add_step_kernel(arena, calls, "step_begin", 2, begin, "  pp_step_begin(state, step);\n");
  add_step_kernel(arena, calls, "step_gate", 2, gate, "  pp_step_gate(state, decision);\n");
  add_step_kernel(arena, calls, "step_end", 4, end,
                  arena_printf(arena, "  pp_step_end<%d, %d, %s>(state, decision, losses, norms);\n", plan->n_microbatches,
                               plan->n_parameters, plan->nonfinite_skip ? "true" : "false"));
}

/* --- products --------------------------------------------------------------------------------------------------- */

static const char *product_name(Arena *arena, const CudaProduct *p) {
  Str name = {0};
  str_puts(&name, "product_");
  if (p->shape.batch != 1) str_printf(&name, "%lldx", (long long)p->shape.batch);
  str_printf(&name, "%lldx%lldx%lld_%c%c", (long long)p->shape.m, (long long)p->shape.n, (long long)p->shape.k, p->ta ? 't' : 'n',
             p->tb ? 't' : 'n');
  if (p->operands != PP_F32) str_printf(&name, "_%s", pp_dtype_name(p->operands));
  if (p->operands != p->result) str_printf(&name, "_%s", pp_dtype_name(p->result));
  if (p->tf32) str_puts(&name, "_tf32");
  if (p->epilogue != PP_EPILOGUE_NONE) str_printf(&name, "_%s", pp_epilogue_name(p->epilogue));
  const char *text = arena_strndup(arena, str_text(&name), name.length);
  str_free(&name);
  return text;
}

/* TF32 is for the model; what follows the loop, such as an optimizer's products, is computed in f32. */
static CudaProduct product_of(const CudaCalls *calls, const PlanTask *task, const PlanStatement *s) {
  bool of_model = task->kind <= PP_BWD_WEIGHT || task->kind == PP_PREPARE;
  pp_dtype operands = in_type(task, s, 0)->dtype;
  return (CudaProduct){.ta = s->attrs.ta, .tb = s->attrs.tb, .shape = emit_product_shape(task, s),
                       .operands = operands, .result = out_type(task, s, 0)->dtype, .epilogue = s->attrs.epilogue,
                       .tf32 = calls->tf32 && of_model && operands == PP_F32};
}

static bool same_product(const CudaProduct *x, const CudaProduct *y) {
  return x->ta == y->ta && x->tb == y->tb && x->shape.batch == y->shape.batch && x->shape.m == y->shape.m &&
         x->shape.n == y->shape.n && x->shape.k == y->shape.k && x->operands == y->operands && x->result == y->result &&
         x->epilogue == y->epilogue && x->tf32 == y->tf32;
}

const CudaProduct *cuda_calls_product(const CudaCalls *calls, const PlanTask *task, const PlanStatement *s) {
  CudaProduct p = product_of(calls, task, s);
  for (int i = 0; i < calls->products.n; i++)
    if (same_product(&calls->products.at[i], &p)) return &calls->products.at[i];
  return NULL;
}

/* A product has no guard: what an update task makes of it goes to workspace and is copied (compiler/plan_task.c). */
static void check_update(const PlanTask *task, const PlanStatement *s) {
  PlanPlace place = task->buffers[s->out[0]].place;
  if (is_update(task) && (place == PLAN_WEIGHT || place == PLAN_STATE))
    bug("%s: a product writes '%s' in place", task->name, task->buffers[s->out[0]].name);
}

static void add_product(Arena *arena, CudaCalls *calls, const PlanTask *task, const PlanStatement *s) {
  check_update(task, s);
  if (cuda_calls_product(calls, task, s)) return;
  CudaProduct p = product_of(calls, task, s);
  p.name = product_name(arena, &p);
  VEC_PUSH(arena, &calls->products, p);
}

/* --- entry ------------------------------------------------------------------------------------------------------ */

int cuda_calls_place(const CudaCalls *calls, const PlanTask *task, const PlanStatement *s) {
  for (int i = 0; i < calls->places.n; i++)
    if (calls->places.at[i].task == task && strcmp(calls->places.at[i].line, s->line ? s->line : "") == 0) return i;
  return -1;
}

static void add_place(Arena *arena, CudaCalls *calls, const PlanTask *task, const PlanStatement *s) {
  CudaPlace place = {task, s->line ? s->line : ""};
  if (cuda_calls_place(calls, task, s) < 0) VEC_PUSH(arena, &calls->places, place);
}

const CudaCalls *cuda_calls_collect(Arena *arena, const Plan *plan) {
  CudaCalls *calls = arena_alloc(arena, sizeof *calls);
  for (int g = 0; g < 2; g++) calls->fused[g] = arena_alloc_array(arena, (size_t)plan->n_kernels, sizeof *calls->fused[g]);
  calls->tasks = plan->tasks;
  calls->tf32 = plan->tf32;
  calls->groups = arena_alloc_array(arena, (size_t)plan->n_tasks, sizeof *calls->groups);
  for (int t = 0; t < plan->n_tasks; t++) {
    const PlanTask *task = &plan->tasks[t];
    add_groups(arena, calls, plan, t);
    for (int i = 0; i < task->n_statements; i++) {
      const PlanStatement *s = &task->statements[i];
      if (calls->groups[t].of[i]) continue;
      if (is_product(s)) add_product(arena, calls, task, s);
      else if (s->op == PLAN_OP_KERNEL) add_fused(arena, calls, plan, task, s);
      else if (!emit_does_nothing(task, s)) add_instance(arena, calls, task, s);
      if (s->op == PLAN_OP_GATHER || s->op == PLAN_OP_SCATTER_ADD || s->op == PLAN_OP_SCATTER_ACCUMULATE) add_place(arena, calls, task, s);
    }
  }
  if (!plan->generate) add_step_kernels(arena, calls, plan);
  return calls;
}

const CudaKernel *cuda_calls_kernel(const CudaCalls *calls, const PlanTask *task, const PlanStatement *s) {
  const CudaGroup *group = cuda_calls_group(calls, task, s);
  if (group) return &calls->kernels.at[(intptr_t)map_get(&calls->kernel_numbers, group->key) - 1];
  if (s->op == PLAN_OP_KERNEL) return &calls->kernels.at[calls->fused[is_update(task)][s->kernel] - 1];
  Str key = {0};
  intptr_t number = describe(task, s, &key) ? (intptr_t)map_get(&calls->kernel_numbers, str_text(&key)) : 0;
  str_free(&key);
  return number ? &calls->kernels.at[number - 1] : NULL;
}

/* --- tables.h, tables.c ----------------------------------------------------------------------------------------- */

static void emit_numbers(Arena *arena, const CudaCalls *calls, EmitFiles *files) {
  Str out = {0};
  str_puts(&out, "/* What stage_K.c names: the matrix products of this program, rows of pp_products in tables.c. */\n"
                 "#ifndef TABLES_H\n#define TABLES_H\n\n#include \"runtime/cuda/cuda.h\"\n\nenum {\n");
  for (int i = 0; i < calls->products.n; i++) str_printf(&out, "  %s,\n", calls->products.at[i].name);
  str_printf(&out, "  n_products\n};\n\n/* Where indices are checked; calls in stage_K.c have these numbers. */\n"
                   "enum { n_places = %d };\nextern const pp_place pp_places[];\n\n#endif\n", calls->places.n);
  emit_add(arena, files, "tables.h", &out);
}

static void emit_products(Str *out, const CudaCalls *calls) {
  static const char *const epilogues[PP_EPILOGUE_COUNT] = {"PP_EPILOGUE_NONE", "PP_EPILOGUE_BIAS", "PP_EPILOGUE_GELU", "PP_EPILOGUE_GELU_AUX"};
  str_puts(out, "/* A is stored transposed, B is; batch, m, n, k; types of A and B, of C; epilogue; TF32 */\nconst pp_product pp_products[] = {\n");
  for (int i = 0; i < calls->products.n; i++) {
    const CudaProduct *p = &calls->products.at[i];
    str_printf(out, "  {%d, %d, %lld, %lld, %lld, %lld, %s, %s, %s, %d},", p->ta, p->tb, (long long)p->shape.batch, (long long)p->shape.m,
               (long long)p->shape.n, (long long)p->shape.k, emit_dtype(p->operands), emit_dtype(p->result), epilogues[p->epilogue], p->tf32);
    emit_to_column(out, 76);
    str_printf(out, "/* %s */\n", p->name);
  }
  if (calls->products.n == 0) str_puts(out, "  {0}\n");
  str_puts(out, "};\nconst int pp_n_products = n_products;\n");
}

void emit_tables_cuda(Arena *arena, const CudaCalls *calls, EmitFiles *files) {
  Str out = {0};
  emit_numbers(arena, calls, files);
  str_puts(&out, "/* What calls in stage_K.c refer to by number. */\n#include \"tables.h\"\n\n");
  emit_products(&out, calls);
  str_puts(&out, "\n/* line, task, stage */\nconst pp_place pp_places[] = {\n");
  for (int i = 0; i < calls->places.n; i++) {
    const CudaPlace *p = &calls->places.at[i];
    str_puts(&out, "  {");
    emit_string(&out, p->line);
    str_printf(&out, ", \"%s\", %d},\n", p->task->name, p->task->stage);
  }
  str_puts(&out, calls->places.n ? "};\n" : "  {0}\n};\n");
  emit_add(arena, files, "tables.c", &out);
}
