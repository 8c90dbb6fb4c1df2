/* Runs the tasks of a split module one by one, as ranks would: each stage has its own memory, values
 * go by id. For tests of split and of what is made of its tasks. */
#ifndef PPC_JOB_TEST_H
#define PPC_JOB_TEST_H

#include "compiler/pass_test.h"

enum { MAX_STAGES = 8 };

/* --- an executor of tasks --------------------------------------------------------------------- */

typedef struct {
  Fixture *f;
  int n_stages, n_microbatches;
  Machine *machines[MAX_STAGES]; /* a rank for each stage */
  Op modules[MAX_STAGES];
  VEC(Tensor *) *values;         /* [n_microbatches + 1] by id; the last: after the loop */
} Job;

static inline Op find_module(Fixture *f, int stage) {
  OpVec ops = block_ops(f->arena, ir_body(f->ir));
  for (int i = 0; i < ops.n; i++) {
    const char *name = op_is_func(ops.at[i]) ? NULL : op_string(f->arena, ops.at[i], "sym_name");
    if (name && !strcmp(name, arena_printf(f->arena, "stage_%d", stage))) return ops.at[i];
  }
  return (Op){NULL};
}

static inline Job job_start(Fixture *f, Machine *(*start)(Ir *, Arena *)) {
  Job j = {.f = f, .n_stages = (int)op_int(ir_top(f->ir), "pp.stages", 1)};
  j.n_microbatches = (int)op_int(ir_top(f->ir), "pp.microbatches", 1);
  j.values = arena_alloc_array(f->arena, (size_t)j.n_microbatches + 1, sizeof *j.values);
  for (int s = 0; s < j.n_stages; s++) {
    j.machines[s] = start(f->ir, f->arena);
    j.modules[s] = find_module(f, s);
    CHECK(!op_is_null(j.modules[s]));
  }
  return j;
}

static inline Op task(Job *j, int stage, const char *name) { return func_find(j->f->ir, j->modules[stage], name); }

static inline bool is_prepared(Job *j, int stage, int64_t id) {
  Op func = task(j, stage, "prepare");
  int64_t n = 0;
  const int64_t *out = op_is_null(func) ? NULL : op_ints(j->f->arena, func, "pp.out", &n);
  for (int64_t i = 0; i < n; i++)
    if (out[i] == id) return true;
  return false;
}

static inline Tensor **slot(Job *j, int microbatch, int64_t id) {
  int at = microbatch < 0 ? j->n_microbatches : microbatch;
  while (j->values[at].n <= id) VEC_PUSH(j->f->arena, &j->values[at], NULL);
  return &j->values[at].at[id];
}

/* The updated parameters that have arrived take the place of the copies. */
static inline void refresh(Job *j, Op func, Machine *m, Tensor **args) {
  const char *text = op_string(j->f->arena, func, "pp.refresh");
  for (int i = 0; text && *text; i++) {
    size_t length = strcspn(text, ",");
    Tensor *p = machine_param(m, arena_strndup(j->f->arena, text, length));
    memcpy(p->at, args[i]->at, (size_t)p->n * sizeof *p->at);
    text += length + (text[length] == ',');
  }
}

static inline void run_task(Job *j, int stage, const char *name, int microbatch) {
  Op func = task(j, stage, name);
  if (op_is_null(func)) return;
  int64_t n_in, n_out;
  const int64_t *in = op_ints(j->f->arena, func, "pp.in", &n_in), *out = op_ints(j->f->arena, func, "pp.out", &n_out);
  CHECK(n_in == func_n_args(func) && n_out == op_n_operands(func_return_op(func)));
  Tensor **args = arena_alloc_array(j->f->arena, (size_t)n_in, sizeof *args);
  Tensor **results = arena_alloc_array(j->f->arena, (size_t)n_out, sizeof *results);
  for (int64_t i = 0; i < n_in; i++) {
    args[i] = *slot(j, is_prepared(j, stage, in[i]) ? -1 : microbatch, in[i]);
    if (!args[i]) bug("stage %d %s: value %d is not there", stage, name, (int)in[i]);
  }
  j->machines[stage]->microbatch = microbatch;
  interpret_func(j->machines[stage], func, (int)n_in, args, results);
  for (int64_t i = 0; i < n_out; i++) *slot(j, microbatch, out[i]) = results[i];
  refresh(j, func, j->machines[stage], args);
}

/* Forward all, then backward in ascending microbatches: gpipe's order, which keeps the bits. */
static inline void run_job_step(Job *j, bool halves) {
  for (int i = 0; i <= j->n_microbatches; i++) j->values[i].n = 0;
  for (int s = 0; s < j->n_stages; s++) machine_start_step(j->machines[s]);
  for (int s = 0; s < j->n_stages; s++) run_task(j, s, "prepare", -1);
  for (int i = 0; i < j->n_microbatches; i++)
    for (int s = 0; s < j->n_stages; s++) run_task(j, s, "fwd", i);
  for (int i = 0; i < j->n_microbatches; i++)
    for (int s = j->n_stages - 1; s >= 0; s--) run_task(j, s, halves ? "bwd_input" : "bwd", i);
  for (int i = 0; i < j->n_microbatches && halves; i++)
    for (int s = 0; s < j->n_stages; s++) run_task(j, s, "bwd_weight", i);
  for (int s = j->n_stages - 1; s >= 0; s--) run_task(j, s, "finish", -1);
  for (int s = 0; s < j->n_stages; s++) run_task(j, s, "decide", -1);
  for (int s = 0; s < j->n_stages; s++) run_task(j, s, "update", -1);
  for (int s = 0; s < j->n_stages; s++) run_task(j, s, "refresh", -1);
  for (int s = 0; s < j->n_stages; s++) j->machines[s]->step++;
}

/* --- against the whole step ----------------------------------------------------------------------- */

static inline bool same_bits(const Tensor *a, const Tensor *b) {
  return a->n == b->n && !memcmp(a->at, b->at, (size_t)a->n * sizeof *a->at);
}

static inline Machine *run_whole(Fixture *f, int steps, Machine *(*start)(Ir *, Arena *)) {
  Machine *m = start(f->ir, f->arena);
  for (int i = 0; i < steps; i++) {
    machine_start_step(m);
    interpret_func(m, func_find(f->ir, ir_top(f->ir), "step"), 0, NULL, NULL);
    m->step++;
  }
  return m;
}

static inline bool has_stage(Fixture *f, Op parameter, int stage) {
  int64_t n;
  const int64_t *stages = op_ints(f->arena, parameter, "stages", &n);
  for (int64_t i = 0; i < n; i++)
    if (stages[i] == stage) return true;
  return false;
}

static inline bool compare(Fixture *f, const Machine *whole, Job *j) {
  OpVec parameters = ir_ops(f->arena, ir_top(f->ir), OP_PARAMETER);
  bool ok = true;
  for (int i = 0; i < parameters.n; i++) {
    const char *name = op_string(f->arena, parameters.at[i], "sym");
    for (int s = 0; s < j->n_stages; s++)
      if (has_stage(f, parameters.at[i], s))
        ok = ok && same_bits(map_get(&whole->params, name), machine_param(j->machines[s], name));
  }
  return ok;
}

/* Values that cross are few: no value and a reshape of it from one task, no constants. */
static inline bool check_crossings(Fixture *f) {
  bool ok = true;
  OpVec all = ir_ops(f->arena, ir_top(f->ir), OP_CONSTANT);
  for (int i = 0; i < all.n; i++) {
    OpVec users = value_users(f->arena, op_result(all.at[i], 0));
    for (int k = 0; k < users.n; k++) ok = ok && !op_is_return(users.at[k]);
  }
  return ok;
}

/* Two steps, so that refreshed copies count. */
static inline bool check_split(Fixture *f, Machine *(*start)(Ir *, Arena *)) {
  bool ok = autodiff_run(f->ir) && stages_run(f->ir) && ir_verify(f->ir);
  Machine *whole = ok ? run_whole(f, 2, start) : NULL;
  ok = ok && split_run(f->ir) && ir_verify(f->ir);
  for (int halves = 0; halves < 2 && ok; halves++) {
    Job j = job_start(f, start);
    run_job_step(&j, halves);
    run_job_step(&j, halves);
    ok = compare(f, whole, &j) && check_crossings(f);
  }
  return ok;
}

#endif
