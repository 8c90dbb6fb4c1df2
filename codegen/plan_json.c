/* The plan as JSON, for tools. In: the plan. Out: plan.json: the job, stages, tasks, ranks with bytes by
 * class, actions with what they issue, transfers in their total order, parameters and kernels. Numbers
 * are those of the tables in rank_R.c, but transfers and tasks are numbered over the whole job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/parts.h"
#include "compiler/base/diag.h"
#include "compiler/base/json.h"

static const char *const class_names[] = {"parameters", "gradients", "optimizer", "stashes", "transfers", "workspace"};
_Static_assert(sizeof class_names / sizeof *class_names == PP_CLASS_COUNT, "one name per class");

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
    json_put(o, "name", json_text(p->name));
    json_put(o, "dtype", json_text(pp_dtype_name(p->type.dtype)));
    json_put(o, "shape", shape(&p->type));
    json_put(o, "stages", ints(p->n_stages, p->stages));
    json_put(o, "owner_rank", json_integer(p->owner_rank));
    json_put(o, "trainable", json_boolean(p->trainable));
    json_put(o, "line", json_text(p->line));
    push(all, o);
  }
  return all;
}

static json_t *stages(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_stages; i++) {
    const PlanStage *s = &plan->stages[i];
    json_t *o = json_object();
    json_put(o, "stage", json_integer(s->index));
    json_put(o, "rank", json_integer(s->rank));
    json_put(o, "tasks", ints(s->n_tasks, s->tasks));
    json_put(o, "frame_bytes", json_integer(s->frame_bytes));
    json_put(o, "weight_frame_bytes", json_integer(s->weight_frame_bytes));
    json_put(o, "first_line", json_text(s->first_line));
    json_put(o, "last_line", json_text(s->last_line));
    push(all, o);
  }
  return all;
}

static json_t *tasks(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_tasks; i++) {
    const PlanTask *t = &plan->tasks[i];
    json_t *o = json_object();
    json_put(o, "name", json_text(t->name));
    json_put(o, "kind", json_text(pp_task_kind_name(t->kind)));
    json_put(o, "stage", json_integer(t->stage));
    json_put(o, "flops", json_integer(t->flops));
    json_put(o, "workspace_bytes", json_integer(t->workspace_bytes));
    push(all, o);
  }
  return all;
}

static json_t *transfer_ops(int n, const PlanTransferOp *ops) {
  static const char *const names[] = {"post_receive", "post_send", "await_receive", "await_send"};
  json_t *all = json_array();
  for (int i = 0; i < n; i++) push(all, json_pack("[s, i, i]", names[ops[i].op], ops[i].transfer, ops[i].waits));
  return all;
}

static json_t *actions(const PlanRank *rank) {
  json_t *all = json_array();
  for (int i = 0; i < rank->n_actions; i++) {
    const PlanAction *a = &rank->actions[i];
    json_t *o = json_object();
    json_put(o, "task", json_integer(a->task));
    json_put(o, "microbatch", json_integer(a->microbatch));
    json_put(o, "line", json_text(a->line));
    if (a->overlap >= 0) json_put(o, "overlap", json_integer(a->overlap));
    if (a->streams) json_put(o, "streams", json_integer(a->streams));
    if (a->n_before) json_put(o, "before", transfer_ops(a->n_before, a->before));
    if (a->n_after) json_put(o, "after", transfer_ops(a->n_after, a->after));
    push(all, o);
  }
  return all;
}

static json_t *ranks(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_ranks; i++) {
    const PlanRank *r = &plan->ranks[i];
    json_t *o = json_object(), *classes = json_object();
    json_put(o, "rank", json_integer(r->rank));
    json_put(o, "mapped_bytes", integer(r->arena_bytes + r->window_bytes));
    json_put(o, "arena_bytes", integer(r->arena_bytes));
    json_put(o, "window_bytes", integer(r->window_bytes));
    if (plan->scratch_bytes) {
      json_put(o, "compute_streams", json_integer(r->n_streams));
      json_put(o, "scratch_bytes", json_integer(plan_scratch_bytes(plan, r)));
      json_put(o, "device_bytes", json_integer(plan_device_bytes(plan, r)));
    }
    for (int c = 0; c < PP_CLASS_COUNT; c++) json_put(classes, class_names[c], json_integer(r->class_bytes[c]));
    json_put(o, "bytes", classes);
    json_put(o, "peak_action", json_integer(r->peak_action));
    json_put(o, "actions", actions(r));
    push(all, o);
  }
  return all;
}

static json_t *transfers(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_transfers; i++) {
    const PlanTransfer *t = &plan->transfers[i];
    json_t *o = json_object();
    json_put(o, "value", json_text(plan->values[t->value]));
    json_put(o, "microbatch", json_integer(t->microbatch));
    json_put(o, "from", json_integer(t->from));
    json_put(o, "to", json_integer(t->to));
    json_put(o, "bytes", json_integer(t->size_bytes));
    push(all, o);
  }
  return all;
}

static json_t *kernels(const Plan *plan) {
  json_t *all = json_array();
  for (int i = 0; i < plan->n_kernels; i++) push(all, json_text(plan->kernels[i].name));
  return all;
}

static json_t *job(const Plan *plan, const char *target, const char *products) {
  json_t *o = json_object();
  json_put(o, "model", json_text(plan->model));
  json_put(o, "target", json_text(target));
  json_put(o, "products", json_text(products));
  json_put(o, "plan_hash", hex(plan->hash));
  json_put(o, "schedule", json_text(plan->schedule));
  json_put(o, "dtype", json_text(pp_dtype_name(plan->dtype)));
  json_put(o, "seed", json_sprintf("%llu", (unsigned long long)plan->seed)); /* 64 bits don't fit a JSON number */
  json_put(o, "steps", json_integer(plan->steps));
  json_put(o, "threads", json_integer(plan->threads));
  json_put(o, "n_ranks", json_integer(plan->n_ranks));
  json_put(o, "n_stages", json_integer(plan->n_stages));
  json_put(o, "n_microbatches", json_integer(plan->n_microbatches));
  json_put(o, "microbatch", json_integer(plan->microbatch));
  json_put(o, "tokens_per_step", json_integer(plan->tokens_per_step));
  json_put(o, "loss_rank", json_integer(plan->loss_rank));
  json_put(o, "generate", json_boolean(plan->generate));
  return o;
}

void emit_plan_json(Arena *arena, const Plan *plan, const char *target, const char *products, EmitFiles *files) {
  json_t *o = job(plan, target, products);
  json_put(o, "ranks", ranks(plan));
  json_put(o, "stages", stages(plan));
  json_put(o, "tasks", tasks(plan));
  json_put(o, "transfers", transfers(plan));
  json_put(o, "parameters", parameters(plan));
  json_put(o, "kernels", kernels(plan));
  Str out = {0};
  json_print(&out, o, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
  emit_add(arena, files, "plan.json", &out);
}
