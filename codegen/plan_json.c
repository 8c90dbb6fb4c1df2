/* The plan as JSON, for tools. In: the plan. Out: plan.json: the job, stages, tasks, ranks with bytes by
 * class, actions with what they issue, transfers in their total order, parameters and kernels. Numbers
 * are those of the tables in rank_R.c, but transfers and tasks are numbered over the whole job. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/parts.h"
#include "compiler/base/diag.h"

static const char *const class_names[] = {"parameters", "gradients", "optimizer", "stashes", "transfers", "workspace"};
_Static_assert(sizeof class_names / sizeof *class_names == PP_CLASS_COUNT, "one name per class");

/* Text that is not UTF-8 (a path) is shown with replacements. */
static json_t *text(const char *s) {
  if (!s) return json_null();
  json_t *j = json_string(s);
  if (j) return j;
  char *clean = strdup(s);
  for (char *p = clean; *p; p++)
    if ((unsigned char)*p >= 0x80) *p = '?';
  j = json_string(clean);
  free(clean);
  return j;
}

static void set(json_t *object, const char *key, json_t *value) {
  if (!value || json_object_set_new(object, key, value) != 0) bug("plan.json: '%s'", key);
}

static void push(json_t *array, json_t *value) {
  if (!value || json_array_append_new(array, value) != 0) bug("plan.json: an array");
}

static json_t *integer(uint64_t n) { return json_integer((json_int_t)n); }

static json_t *ints(int n, const int *at) {
  json_t *a = json_array();
  for (int i = 0; i < n; i++) push(a, json_integer(at[i]));
  return a;
}

static json_t *hex(uint64_t n) { return json_sprintf("%016llx", (unsigned long long)n); }

static const char *dtype_word(pp_dtype dtype) {
  static const char *const names[] = {"f32", "f64", "i32", "bool"};
  return names[dtype];
}

static json_t *shape(const PlanType *type) {
  json_t *a = json_array();
  for (int i = 0; i < type->rank; i++) push(a, json_integer(type->dims[i]));
  return a;
}

static json_t *parameters(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_parameters; i++) {
    const PlanParameter *p = &plan->parameters[i];
    json_t *o = json_object();
    set(o, "name", text(p->name));
    set(o, "dtype", text(dtype_word(p->type.dtype)));
    set(o, "shape", shape(&p->type));
    set(o, "stages", ints(p->n_stages, p->stages));
    set(o, "owner_rank", json_integer(p->owner_rank));
    set(o, "trainable", json_boolean(p->trainable));
    set(o, "line", text(p->line));
    push(all, o);
  }
  return all;
}

static json_t *stages(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_stages; i++) {
    const PlanStage *s = &plan->stages[i];
    json_t *o = json_object();
    set(o, "stage", json_integer(s->index));
    set(o, "rank", json_integer(s->rank));
    set(o, "tasks", ints(s->n_tasks, s->tasks));
    set(o, "frame_bytes", json_integer(s->frame_bytes));
    set(o, "weight_frame_bytes", json_integer(s->weight_frame_bytes));
    set(o, "first_line", text(s->first_line));
    set(o, "last_line", text(s->last_line));
    push(all, o);
  }
  return all;
}

static json_t *tasks(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_tasks; i++) {
    const PlanTask *t = &plan->tasks[i];
    json_t *o = json_object();
    set(o, "name", text(t->name));
    set(o, "kind", text(pp_task_kind_name(t->kind)));
    set(o, "stage", json_integer(t->stage));
    set(o, "flops", json_integer(t->flops));
    set(o, "workspace_bytes", json_integer(t->workspace_bytes));
    push(all, o);
  }
  return all;
}

static json_t *transfer_ops(int n, const PlanTransferOp *ops) {
  static const char *const names[] = {"post_receive", "post_send", "await_receive", "await_send"};
  json_t *all = json_array();
  for (int i = 0; i < n; i++) push(all, json_pack("[s, i]", names[ops[i].op], ops[i].transfer));
  return all;
}

static json_t *actions(const PlanRank *rank) {
  json_t *all = json_array();
  for (int i = 0; i < rank->n_actions; i++) {
    const PlanAction *a = &rank->actions[i];
    json_t *o = json_object();
    set(o, "task", json_integer(a->task));
    set(o, "microbatch", json_integer(a->microbatch));
    set(o, "line", text(a->line));
    if (a->n_before) set(o, "before", transfer_ops(a->n_before, a->before));
    if (a->n_after) set(o, "after", transfer_ops(a->n_after, a->after));
    push(all, o);
  }
  return all;
}

static json_t *ranks(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_ranks; i++) {
    const PlanRank *r = &plan->ranks[i];
    json_t *o = json_object(), *classes = json_object();
    set(o, "rank", json_integer(r->rank));
    set(o, "mapped_bytes", integer(r->arena_bytes + r->window_bytes));
    set(o, "arena_bytes", integer(r->arena_bytes));
    set(o, "window_bytes", integer(r->window_bytes));
    for (int c = 0; c < PP_CLASS_COUNT; c++) set(classes, class_names[c], json_integer(r->class_bytes[c]));
    set(o, "bytes", classes);
    set(o, "peak_action", json_integer(r->peak_action));
    set(o, "actions", actions(r));
    push(all, o);
  }
  return all;
}

static json_t *transfers(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_transfers; i++) {
    const PlanTransfer *t = &plan->transfers[i];
    json_t *o = json_object();
    set(o, "value", text(plan->values[t->value]));
    set(o, "microbatch", json_integer(t->microbatch));
    set(o, "from", json_integer(t->from));
    set(o, "to", json_integer(t->to));
    set(o, "bytes", json_integer(t->size_bytes));
    push(all, o);
  }
  return all;
}

static json_t *kernels(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_kernels; i++) push(all, text(plan->kernels[i].name));
  return all;
}

static json_t *job(const Plan *plan, const char *target, const char *products) {
  json_t *o = json_object();
  set(o, "model", text(plan->model));
  set(o, "target", text(target));
  set(o, "products", text(products));
  set(o, "plan_hash", hex(plan->hash));
  set(o, "schedule", text(plan->schedule));
  set(o, "dtype", text(dtype_word(plan->dtype)));
  set(o, "seed", json_sprintf("%llu", (unsigned long long)plan->seed)); /* 64 bits don't fit a JSON number */
  set(o, "steps", json_integer(plan->steps));
  set(o, "threads", json_integer(plan->threads));
  set(o, "n_ranks", json_integer(plan->n_ranks));
  set(o, "n_stages", json_integer(plan->n_stages));
  set(o, "n_microbatches", json_integer(plan->n_microbatches));
  set(o, "microbatch", json_integer(plan->microbatch));
  set(o, "tokens_per_step", json_integer(plan->tokens_per_step));
  set(o, "loss_rank", json_integer(plan->loss_rank));
  set(o, "generate", json_boolean(plan->generate));
  return o;
}

void emit_plan_json(Arena *arena, const Plan *plan, const char *target, const char *products, EmitFiles *files) {
  json_t *o = job(plan, target, products);
  set(o, "ranks", ranks(plan));
  set(o, "stages", stages(plan));
  set(o, "tasks", tasks(plan));
  set(o, "transfers", transfers(plan));
  set(o, "parameters", parameters(plan));
  set(o, "kernels", kernels(plan));
  char *dumped = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
  if (!dumped) bug("plan.json can't be written");
  Str out = {0};
  str_puts(&out, dumped);
  str_putc(&out, '\n');
  free(dumped);
  json_decref(o);
  emit_add(arena, files, "plan.json", &out);
}
