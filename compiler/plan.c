/* In: the module after all passes. Out: the plan. Nothing is decided here: the structs say what the IR
 * says. The hash at the end is over every number and name of it, so that programs of different plans
 * never run together. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/compiler.h"
#include "compiler/plan_rank.h"
#include "compiler/plan_task.h"

typedef struct {
  Ir *ir;
  Arena *arena;
  const Tasks *t;
  Plan *plan;
} Build;

static int find_word(const char *word, int n, const char *const *words) {
  for (int i = 0; i < n; i++)
    if (word && !strcmp(word, words[i])) return i;
  bug("unknown word '%s'", word ? word : "");
}

static const char *loc_name(Build *b, Loc loc) { return diag_loc_name(ir_diag(b->ir), loc); }

/* --- declarations ---------------------------------------------------------------------------------------- */

static void build_parameters(Build *b) {
  static const char *const inits[] = {"zeros", "ones", "normal", "uniform"};
  const Tasks *t = b->t;
  PlanParameter *all = arena_alloc_array(b->arena, (size_t)t->n_parameters, sizeof *all);
  Map names = {0};
  for (int i = 0; i < t->n_parameters; i++) {
    const TaskParameter *from = &t->parameters[i];
    PlanParameter *p = &all[i];
    int *stages = arena_alloc_array(b->arena, (size_t)from->n_stages, sizeof *stages);
    for (int64_t k = 0; k < from->n_stages; k++) stages[k] = (int)from->stages[k];
    p->name = from->name;
    p->c_name = plan_unique_name(b->arena, &names, plan_identifier(b->arena, from->name));
    p->type = plan_type(from->type);
    p->init = (pp_init_kind)find_word(op_string(b->arena, from->op, "init"), PP_INIT_KIND_COUNT, inits);
    p->a = op_float(from->op, "a", 0);
    p->b = op_float(from->op, "b", 0);
    p->owner_stage = from->owner;
    p->owner_rank = (int)t->stage_ranks[from->owner];
    p->n_stages = (int)from->n_stages;
    p->stages = stages;
    p->trainable = from->trainable;
    p->line = loc_name(b, op_loc(b->ir, from->op));
  }
  b->plan->n_parameters = t->n_parameters;
  b->plan->parameters = all;
}

static pp_data_kind data_kind(const char *word, pp_dtype dtype) {
  static const char *const kinds[] = {"bytes", "tokens16", "f32_file", "i32_file", "synthetic"};
  int kind = find_word(word, 5, kinds);
  if (kind < 4) return (pp_data_kind)kind;
  return dtype == PP_I32 ? PP_DATA_SYNTHETIC_I32 : PP_DATA_SYNTHETIC_F32;
}

/* A window of n tokens predicts n - 1 of them; 0 where no source gives windows. */
static int64_t tokens_per_step(const Plan *plan) {
  int64_t samples = (int64_t)plan->microbatch * plan->n_microbatches;
  for (int i = 0; i < plan->n_sources; i++)
    if (plan->sources[i].type.dtype == PP_I32 && plan->sources[i].n > 1) return samples * (plan->sources[i].n - 1);
  return 0;
}

static void build_sources(Build *b) {
  static const char *const orders[] = {"random", "sequential", "shuffled"};
  OpVec ops = ir_ops(b->arena, ir_top(b->ir), OP_SOURCE);
  PlanSource *all = arena_alloc_array(b->arena, (size_t)ops.n, sizeof *all);
  for (int i = 0; i < ops.n; i++) {
    PlanSource *s = &all[i];
    const char *path = op_string(b->arena, ops.at[i], "path");
    s->type = plan_type(op_type_attr(ops.at[i], "type"));
    s->name = op_string(b->arena, ops.at[i], "sym");
    s->kind = data_kind(op_string(b->arena, ops.at[i], "kind"), s->type.dtype);
    s->order = (pp_data_order)find_word(op_string(b->arena, ops.at[i], "order"), PP_ORDER_COUNT, orders);
    s->path = path && path[0] ? path : NULL;
    s->vocabulary = op_int(ops.at[i], "vocabulary", 0);
    s->n = 1;
    for (int k = 1; k < s->type.rank; k++) s->n *= s->type.dims[k];
  }
  b->plan->n_sources = ops.n;
  b->plan->sources = all;
}

static void build_outputs(Build *b) {
  static const char *const kinds[] = {"sum", "mean", "max", "concat"};
  const Tasks *t = b->t;
  PlanOutput *all = arena_alloc_array(b->arena, (size_t)t->outputs.n, sizeof *all);
  for (int i = 0; i < t->outputs.n; i++) {
    const TaskOutput *o = &t->outputs.at[i];
    all[i] = (PlanOutput){o->name, (pp_output_kind)find_word(o->kind, 4, kinds), o->stage,
                          (int)t->stage_ranks[o->stage], o->n};
  }
  b->plan->n_outputs = t->outputs.n;
  b->plan->outputs = all;
}

/* --- tasks and stages ------------------------------------------------------------------------------------- */

static void build_tasks(Build *b) {
  const Tasks *t = b->t;
  PlanKernel *kernels = arena_alloc_array(b->arena, (size_t)t->n_kernels, sizeof *kernels);
  for (int i = 0; i < t->n_kernels; i++) kernels[i] = plan_kernel_build(t->kernels[i], b->arena);
  b->plan->n_kernels = t->n_kernels;
  b->plan->kernels = kernels;
  PlanTask *tasks = arena_alloc_array(b->arena, (size_t)t->n_tasks, sizeof *tasks);
  for (int i = 0; i < t->n_tasks; i++) tasks[i] = *plan_task_build(t, &t->tasks[i], b->arena);
  b->plan->n_tasks = t->n_tasks;
  b->plan->tasks = tasks;
}

static const PlanField *build_fields(Build *b, const TaskFrame *frame) {
  PlanField *fields = arena_alloc_array(b->arena, (size_t)frame->fields.n, sizeof *fields);
  Map names = {0};
  for (int i = 0; i < frame->fields.n; i++) {
    const TaskValue *v = &b->t->values[frame->fields.at[i].value];
    fields[i].name = plan_unique_name(b->arena, &names, plan_value_name(b->arena, v->name));
    fields[i].type = plan_type(v->type);
    fields[i].offset = frame->fields.at[i].offset;
    fields[i].line = loc_name(b, v->loc);
  }
  return fields;
}

/* Lines of the model's own text that a stage comes from; library lines only when there are no others. */
static void find_lines(Build *b, const Task *fwd, PlanStage *stage) {
  OpVec ops = block_ops(b->arena, func_body(fwd->func));
  const char *file = op_string(b->arena, ir_top(b->ir), "pp.file");
  Loc first = {0}, last = {0};
  for (int i = 0; i < ops.n; i++) {
    Loc loc = op_loc(b->ir, ops.at[i]);
    if (!loc.line || !file || strcmp(diag_source_name(ir_diag(b->ir), loc.file), file)) continue;
    if (!first.line || loc.line < first.line) first = loc;
    if (loc.line > last.line) last = loc;
  }
  if (!first.line) first = last = op_loc(b->ir, fwd->func);
  stage->first_line = loc_name(b, first);
  stage->last_line = loc_name(b, last);
}

static void build_stages(Build *b) {
  const Tasks *t = b->t;
  PlanStage *all = arena_alloc_array(b->arena, (size_t)t->n_stages, sizeof *all);
  for (int s = 0; s < t->n_stages; s++) {
    PlanStage *stage = &all[s];
    stage->index = s;
    stage->rank = (int)t->stage_ranks[s];
    int *tasks = arena_alloc_array(b->arena, PP_TASK_KIND_COUNT, sizeof *tasks);
    for (int kind = 0; kind < PP_TASK_KIND_COUNT; kind++) {
      const Task *task = tasks_find(t, s, (pp_task_kind)kind);
      if (!task) continue;
      tasks[stage->n_tasks++] = (int)(task - t->tasks);
      if (kind == PP_FWD) find_lines(b, task, stage);
    }
    stage->tasks = tasks;
    stage->n_fields = t->frames[s].fields.n;
    stage->fields = build_fields(b, &t->frames[s]);
    stage->frame_bytes = t->frames[s].bytes;
    stage->n_weight_fields = t->weight_frames[s].fields.n;
    stage->weight_fields = build_fields(b, &t->weight_frames[s]);
    stage->weight_frame_bytes = t->weight_frames[s].bytes;
    stage->stash_bytes = tasks_stash_bytes(t, s);
    stage->weight_stash_bytes = tasks_weight_stash_bytes(t, s);
  }
  b->plan->n_stages_ = t->n_stages;
  b->plan->stages = all;
}

static void build_values(Build *b) {
  const char **names = arena_alloc_array(b->arena, (size_t)b->t->n_values, sizeof *names);
  bool *prepared = arena_alloc_array(b->arena, (size_t)b->t->n_values + 1, sizeof *prepared);
  for (int i = 0; i < b->t->n_values; i++) {
    names[i] = b->t->values[i].name;
    prepared[i] = tasks_is_prepared(b->t, i);
  }
  b->plan->n_values = b->t->n_values;
  b->plan->values = names;
  b->plan->prepared = prepared;
}

/* --- the job ----------------------------------------------------------------------------------------------- */

/* The file's folder as an absolute path, and its name. */
static void split_path(Build *b, const char *file) {
  const char *slash = strrchr(file, '/');
  b->plan->model = slash ? slash + 1 : file;
  const char *folder = !slash ? "." : slash == file ? "/" : arena_strndup(b->arena, file, (size_t)(slash - file));
  char *absolute = realpath(folder, NULL);
  b->plan->directory = absolute ? arena_strdup(b->arena, absolute) : folder;
  free(absolute);
}

static void build_job(Build *b, const CompileOptions *options) {
  Op top = ir_top(b->ir);
  Plan *p = b->plan;
  const char *file = op_string(b->arena, top, "pp.file"), *dtype = op_string(b->arena, top, "pp.dtype");
  const char *schedule = op_string(b->arena, top, "pp.schedule"), *nonfinite = op_string(b->arena, top, "pp.nonfinite");
  const char *precision = op_string(b->arena, top, "pp.precision");
  split_path(b, file ? file : "model.pp");
  p->schedule = schedule ? schedule : "";
  p->dtype = dtype && !strcmp(dtype, "f64") ? PP_F64 : PP_F32;
  p->tf32 = precision && !strcmp(precision, "tf32");
  p->target = b->t->target;
  p->arch = options ? options->arch : NULL;
  p->scratch_bytes = b->t->scratch_bytes;
  p->partial_bytes = b->t->partial_bytes;
  p->seed = (uint64_t)op_int(top, "pp.seed", 0);
  p->steps = op_int(top, "pp.steps", 0);
  p->microbatch = (int)op_int(top, "pp.microbatch", 1);
  p->n_microbatches = b->t->n_microbatches;
  p->n_ranks = b->t->n_ranks;
  p->n_stages = b->t->n_stages;
  p->threads = options && options->threads > 0 ? options->threads : 1;
  p->nonfinite_skip = nonfinite && !strcmp(nonfinite, "skip");
  p->first_loss_scale = loss_scale_changes(b->ir) ? op_float(top, "pp.loss_scale", 1) : 0;
  p->loss_pair = op_unit(top, "pp.loss_pair");
  p->generate = b->t->generate;
  p->loss_stage = b->t->loss_stage;
  p->loss_rank = p->loss_stage < 0 ? 0 : (int)b->t->stage_ranks[p->loss_stage];
  p->n_states = b->t->n_states;
  p->states = b->t->states;
}

static void build_generation(Build *b) {
  OpVec data = ir_ops(b->arena, ir_top(b->ir), OP_DATA), outputs = ir_ops(b->arena, ir_top(b->ir), OP_OUTPUT);
  if (!b->t->generate || !data.n || !outputs.n) return;
  Type prompt = value_type(op_result(data.at[0], 0)), logits = value_type(op_operand(outputs.at[0], 0));
  b->plan->length = type_dim(prompt, type_rank(prompt) - 1);
  b->plan->vocabulary = type_dim(logits, type_rank(logits) - 1);
}

/* --- hash ----------------------------------------------------------------------------------------------- */

/* FNV-1a over 64-bit words. */
typedef struct {
  uint64_t value;
} Hash;

static void hash_int(Hash *h, int64_t x) { h->value = (h->value ^ (uint64_t)x) * UINT64_C(1099511628211); }

static void hash_text(Hash *h, const char *text) {
  hash_int(h, text ? (int64_t)str_hash(text, strlen(text)) : 0);
}

static void hash_type(Hash *h, const PlanType *type) {
  hash_int(h, type->dtype);
  hash_int(h, type->rank);
  for (int i = 0; i < type->rank; i++) hash_int(h, type->dims[i]);
}

static void hash_double(Hash *h, double x) {
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  hash_int(h, bits);
}

static void hash_attrs(Hash *h, const PlanAttrs *a) {
  hash_double(h, a->value);
  hash_int(h, a->integer);
  for (int i = 0; i < a->n_axes; i++) {
    hash_int(h, a->axes[i]);
    if (a->limits) hash_int(h, a->limits[i]);
  }
  hash_text(h, a->predicate);
  hash_int(h, a->ta | a->tb << 1 | a->causal << 2 | (int)a->epilogue << 3);
}

static void hash_ints(Hash *h, int n, const int *x) {
  hash_int(h, n);
  for (int i = 0; i < n; i++) hash_int(h, x[i]);
}

static void hash_kernel(Hash *h, const PlanKernel *k) {
  hash_text(h, k->name);
  for (int i = 0; i < k->n_inputs; i++) hash_type(h, &k->inputs[i]);
  for (int i = 0; i < k->n_nodes; i++) {
    hash_int(h, k->nodes[i].op);
    hash_ints(h, k->nodes[i].n_in, k->nodes[i].in);
    hash_type(h, &k->nodes[i].type);
    hash_attrs(h, &k->nodes[i].attrs);
  }
  hash_ints(h, k->n_outputs, k->outputs);
}

static void hash_task(Hash *h, const PlanTask *t) {
  hash_text(h, t->name);
  hash_int(h, t->workspace_bytes);
  for (int i = 0; i < t->n_buffers; i++) {
    const PlanBuffer *b = &t->buffers[i];
    hash_type(h, &b->type);
    hash_int(h, b->place);
    hash_int(h, b->index);
    hash_int(h, b->sub);
  }
  for (int i = 0; i < t->n_statements; i++) {
    const PlanStatement *s = &t->statements[i];
    hash_int(h, s->op);
    hash_int(h, s->kernel);
    hash_ints(h, s->n_in, s->in);
    hash_ints(h, s->n_out, s->out);
    hash_attrs(h, &s->attrs);
    hash_int(h, s->index);
    hash_int(h, s->first_use);
  }
}

static void hash_rank(Hash *h, const Plan *plan, const PlanRank *r) {
  hash_int(h, (int64_t)r->arena_bytes);
  hash_int(h, (int64_t)r->window_bytes);
  for (int i = 0; i < r->n_actions; i++) {
    const PlanAction *a = &r->actions[i];
    hash_int(h, a->task);
    hash_int(h, a->microbatch);
    for (int k = 0; k < plan->tasks[a->task].n_arguments; k++) hash_int(h, (int64_t)a->offsets[k]);
    for (int k = 0; k < a->n_before; k++) hash_int(h, a->before[k].op + 4 * (int64_t)a->before[k].transfer);
    for (int k = 0; k < a->n_after; k++) hash_int(h, a->after[k].op + 4 * (int64_t)a->after[k].transfer);
  }
  for (int i = 0; i < r->n_held; i++) {
    hash_int(h, r->held[i].parameter);
    hash_int(h, (int64_t)r->held[i].value);
  }
}

static uint64_t hash_plan(const Plan *p) {
  Hash h = {UINT64_C(14695981039346656037)};
  hash_text(&h, p->model);
  hash_text(&h, p->schedule);
  const int64_t numbers[] = {PP_ABI_VERSION, p->dtype, (int64_t)p->seed, p->steps, p->microbatch, p->n_microbatches,
                             p->n_ranks, p->n_stages, p->nonfinite_skip, p->loss_pair, p->generate, p->loss_rank};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) hash_int(&h, numbers[i]);
  if (p->first_loss_scale != 0) hash_double(&h, p->first_loss_scale);
  if (p->target != PP_TARGET_CPU) hash_ints(&h, 1, (int[]){p->target}), hash_int(&h, p->scratch_bytes), hash_int(&h, p->tf32);
  for (int i = 0; i < p->n_parameters; i++) {
    const PlanParameter *x = &p->parameters[i];
    hash_text(&h, x->name);
    hash_type(&h, &x->type);
    hash_int(&h, x->init);
    hash_double(&h, x->a);
    hash_double(&h, x->b);
  }
  for (int i = 0; i < p->n_sources; i++) {
    hash_text(&h, p->sources[i].name);
    hash_int(&h, p->sources[i].kind * 8 + p->sources[i].order);
    hash_type(&h, &p->sources[i].type);
  }
  for (int i = 0; i < p->n_kernels; i++) hash_kernel(&h, &p->kernels[i]);
  for (int i = 0; i < p->n_tasks; i++) hash_task(&h, &p->tasks[i]);
  for (int i = 0; i < p->n_transfers; i++) {
    const PlanTransfer *t = &p->transfers[i];
    hash_ints(&h, 4, (int[]){t->value, t->microbatch, t->from, t->to});
    hash_int(&h, (int64_t)t->send_offset);
    hash_int(&h, (int64_t)t->receive_offset);
  }
  for (int i = 0; i < p->n_ranks; i++) hash_rank(&h, p, &p->ranks[i]);
  return h.value;
}

Plan *plan_build(Ir *ir, Arena *arena, const CompileOptions *options) {
  Plan *plan = arena_alloc(arena, sizeof *plan);
  Build b = {.ir = ir, .arena = arena, .t = tasks_read(ir, arena), .plan = plan};
  build_job(&b, options);
  build_parameters(&b);
  build_sources(&b);
  build_outputs(&b);
  build_tasks(&b);
  build_stages(&b);
  build_values(&b);
  build_generation(&b);
  plan->tokens_per_step = tokens_per_step(plan);
  plan_ranks_build(plan, b.t, arena);
  plan->hash = hash_plan(plan);
  return plan;
}
