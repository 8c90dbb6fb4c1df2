/* Reads the split module into arrays. In: task functions, parameters and, after `schedule`, the
 * pp.rank ops. Out: Tasks. Besides reading it answers one question, the same for every later pass:
 * where does a value that crosses tasks lie?
 *   - values of a stage's fwd that only its own backward uses are fields of the stage's frame, values
 *     from bwd_input to bwd_weight fields of its weight frame;
 *   - where a schedule runs the halves, what fwd leaves for bwd_weight has items of its own, so that
 *     the frame can go after bwd_input;
 *   - what another stage uses has an item of its own (one buffer, be it sent or not);
 *   - accumulators, updated parameters, outputs and the control vector lie where they lie anyway. */
#include "compiler/tasks.h"

#include <string.h>

char tasks_kind_letter(pp_task_kind kind) {
  static const char letters[] = {[PP_FWD] = 'F',    [PP_BWD] = 'B',    [PP_BWD_INPUT] = 'I', [PP_BWD_WEIGHT] = 'W',
                                 [PP_FINISH] = '+', [PP_DECIDE] = '+', [PP_UPDATE] = '+',    [PP_REFRESH] = '+',
                                 [PP_PREPARE] = '+'};
  _Static_assert(sizeof letters == PP_TASK_KIND_COUNT, "one letter per kind");
  return letters[kind];
}

const char *tasks_action_text(Arena *arena, pp_task_kind kind, int stage, int microbatch) {
  if (microbatch < 0) return arena_printf(arena, "%s(%d)", pp_task_kind_name(kind), stage);
  return arena_printf(arena, "%s(%d, %d)", pp_task_kind_name(kind), stage, microbatch);
}

Task *tasks_find(const Tasks *t, int stage, pp_task_kind kind) {
  int i = t->by_stage[stage * PP_TASK_KIND_COUNT + kind];
  return i < 0 ? NULL : &t->tasks[i];
}

/* Linear: there are few outputs, and parameters are looked up through the module's own index. */
int tasks_output(const Tasks *t, const char *name) {
  for (int i = 0; i < t->outputs.n; i++)
    if (!strcmp(t->outputs.at[i].name, name)) return i;
  return -1;
}

/* --- declarations ---------------------------------------------------------------------------------- */

static void read_parameters(Tasks *t) {
  OpVec ops = ir_ops(t->arena, ir_top(t->ir), OP_PARAMETER);
  t->n_parameters = ops.n;
  t->parameters = arena_alloc_array(t->arena, (size_t)ops.n, sizeof *t->parameters);
  for (int i = 0; i < ops.n; i++) {
    TaskParameter *p = &t->parameters[i];
    p->op = ops.at[i];
    p->name = op_string(t->arena, p->op, "sym");
    p->type = op_type_attr(p->op, "type");
    p->bytes = type_bytes(p->type);
    p->owner = (int)op_int(p->op, "owner", 0);
    p->stages = op_ints(t->arena, p->op, "stages", &p->n_stages);
    p->accumulators = op_ints(t->arena, p->op, "accumulators", &p->n_accumulators);
    p->trainable = p->n_accumulators > 0;
    map_put(t->arena, &t->parameter_index, p->name, p);
  }
}

int tasks_parameter(const Tasks *t, const char *name) {
  TaskParameter *p = map_get(&t->parameter_index, name);
  if (!p) bug("no parameter '%s'", name);
  return (int)(p - t->parameters);
}

static void read_sources(Tasks *t) {
  OpVec ops = ir_ops(t->arena, ir_top(t->ir), OP_SOURCE);
  for (int i = 0; i < ops.n; i++)
    map_put(t->arena, &t->source_index, op_string(t->arena, ops.at[i], "sym"), (void *)(intptr_t)(i + 1));
}

int tasks_source(const Tasks *t, const char *name) {
  int number = (int)(intptr_t)map_get(&t->source_index, name);
  if (number == 0) bug("no source '%s'", name);
  return number - 1;
}

static const char **split_words(Arena *arena, const char *text, char separator, int *out_n) {
  VEC(const char *) words = {0};
  while (text && *text) {
    const char *end = strchr(text, separator);
    size_t length = end ? (size_t)(end - text) : strlen(text);
    VEC_PUSH(arena, &words, arena_strndup(arena, text, length));
    text += length + (end != NULL);
  }
  *out_n = words.n;
  return words.at;
}

static void read_kernels(Tasks *t) {
  OpVec funcs = ir_funcs(t->arena, ir_top(t->ir));
  VEC(Op) kernels = {0};
  for (int i = 0; i < funcs.n; i++) {
    if (!op_unit(funcs.at[i], "pp.kernel")) continue;
    VEC_PUSH(t->arena, &kernels, funcs.at[i]);
    map_put(t->arena, &t->kernel_index, func_name(t->arena, funcs.at[i]), (void *)(intptr_t)kernels.n);
  }
  t->n_kernels = kernels.n;
  t->kernels = kernels.at;
}

int tasks_callee(const Tasks *t, Op call) {
  const char *name = call_callee(t->arena, call);
  int number = (int)(intptr_t)map_get(&t->kernel_index, name);
  if (number == 0) bug("no kernel '%s'", name);
  return number - 1;
}

/* --- tasks ------------------------------------------------------------------------------------------- */

static void read_output(Tasks *t, Op op, int stage) {
  const char *name = op_string(t->arena, op, "output");
  if (tasks_output(t, name) >= 0) return;
  Type type = value_type(op_operand(op, 0));
  TaskOutput o = {.name = name, .kind = op_string(t->arena, op, "kind"), .stage = stage, .bytes = type_bytes(type)};
  o.n = strcmp(o.kind, "concat") ? 1 : type_elements(type);
  VEC_PUSH(t->arena, &t->outputs, o);
}

/* What one look at a task's ops tells about it and about the job. */
static void scan_ops(Tasks *t, Task *task) {
  OpVec ops = block_ops(t->arena, func_body(task->func));
  for (int i = 0; i < ops.n; i++) {
    switch (op_id(ops.at[i])) {
    case OP_LOSS: t->loss_stage = task->stage; break;
    case OP_OUTPUT: read_output(t, ops.at[i], task->stage); break;
    case OP_MATMUL_ACCUMULATE:
    case OP_ACCUMULATE:
    case OP_SCATTER_ACCUMULATE: task->accumulates = true; break;
    default: break;
    }
  }
}

static const int64_t *value_ids(Tasks *t, Op func, const char *name, int expected, int *out_n) {
  int64_t n = 0;
  const int64_t *ids = op_ints(t->arena, func, name, &n);
  if (n != expected) bug("%s of @%s: %d ids for %d values", name, func_name(t->arena, func), (int)n, expected);
  *out_n = (int)n;
  for (int i = 0; i < n; i++)
    if (ids[i] >= t->n_values) t->n_values = (int)ids[i] + 1;
  return ids;
}

typedef VEC(Task) TaskVec;

static void read_stage(Tasks *t, Op module, TaskVec *tasks) {
  int stage = (int)op_int(module, "pp.stage", -1);
  OpVec funcs = ir_funcs(t->arena, module);
  for (int i = 0; i < funcs.n; i++) {
    Task task = {.func = funcs.at[i], .stage = stage};
    task.kind = (pp_task_kind)op_int(task.func, "pp.kind", -1);
    if ((int)task.kind < 0 || task.kind >= PP_TASK_KIND_COUNT) bug("@%s is no task", func_name(t->arena, task.func));
    task.in = value_ids(t, task.func, "pp.in", func_n_args(task.func), &task.n_in);
    task.out = value_ids(t, task.func, "pp.out", op_n_operands(func_return_op(task.func)), &task.n_out);
    VEC_PUSH(t->arena, tasks, task);
  }
}

static void read_tasks(Tasks *t) {
  TaskVec tasks = {0};
  OpVec top = block_ops(t->arena, ir_body(t->ir));
  for (int i = 0; i < top.n; i++) {
    bool is_stage = op_id(top.at[i]) == OP_NONE && !op_is_func(top.at[i]) && op_int(top.at[i], "pp.stage", -1) >= 0;
    if (is_stage) read_stage(t, top.at[i], &tasks);
  }
  t->n_tasks = tasks.n;
  t->tasks = tasks.at;
  int *by_stage = arena_alloc_array(t->arena, (size_t)t->n_stages * PP_TASK_KIND_COUNT, sizeof *by_stage);
  for (int i = 0; i < t->n_stages * PP_TASK_KIND_COUNT; i++) by_stage[i] = -1;
  for (int i = 0; i < tasks.n; i++) {
    Task *task = &tasks.at[i];
    if (task->stage >= t->n_stages) bug("stage %d of %d", task->stage, t->n_stages);
    by_stage[task->stage * PP_TASK_KIND_COUNT + (int)task->kind] = i;
  }
  t->by_stage = by_stage;
  for (int s = 0; s < t->n_stages; s++) /* outputs in the order of stages, whatever that of modules */
    for (int kind = 0; kind < PP_TASK_KIND_COUNT; kind++) {
      Task *task = tasks_find(t, s, (pp_task_kind)kind);
      if (task) scan_ops(t, task);
    }
}

/* --- values ------------------------------------------------------------------------------------------ */

Value tasks_view_base(Value v) {
  for (;;) {
    Op op = value_owner(v);
    if (op_is_null(op) || op_id(op) != OP_RESHAPE) return v;
    v = op_operand(op, 0);
  }
}

/* A result that an effect of the same task stores in a fixed place is passed on from there. */
static bool stored_by_effect(Tasks *t, const Task *task, Value base, TaskValue *v) {
  OpVec users = value_users(t->arena, base);
  for (int i = 0; i < users.n; i++) {
    Op op = users.at[i];
    OpId id = op_id(op);
    if (id == OP_RESHAPE && stored_by_effect(t, task, op_result(op, 0), v)) return true;
    if (id == OP_CONTROL) {
      v->store = STORE_CONTROL;
    } else if (id == OP_ASSIGN && !op_string(t->arena, op, "state")) {
      v->store = STORE_PARAMETER;
      v->index = tasks_parameter(t, op_string(t->arena, op, "param"));
    } else {
      continue;
    }
    return true;
  }
  return false;
}

static void place_result(Tasks *t, const Task *task, int k) {
  TaskValue *v = &t->values[task->out[k]];
  Op ret = func_return_op(task->func);
  Value base = tasks_view_base(op_operand(ret, k));
  Op made = value_owner(base);
  if (op_is_null(made)) {
    int argument = value_index(base);
    if (v->alias < 0 && task->in[argument] != task->out[k]) v->alias = (int)task->in[argument];
    return;
  }
  switch (op_id(made)) {
  case OP_GRADIENT:
    v->store = STORE_GRADIENT;
    v->index = tasks_parameter(t, op_string(t->arena, made, "param"));
    return;
  case OP_PARAM:
    v->store = STORE_PARAMETER;
    v->index = tasks_parameter(t, op_string(t->arena, made, "param"));
    return;
  case OP_OUTPUTS:
    v->store = STORE_OUTPUT;
    v->index = tasks_output(t, op_string(t->arena, made, "output"));
    return;
  default: break;
  }
  if (stored_by_effect(t, task, base, v)) return;
  for (int i = 0; i < k && v->alias < 0; i++)
    if (value_equal(tasks_view_base(op_operand(ret, i)), base) && t->values[task->out[i]].alias != task->out[k])
      v->alias = (int)task->out[i];
}

static void read_results(Tasks *t, const Task *task) {
  Op ret = func_return_op(task->func);
  for (int k = 0; k < task->n_out; k++) {
    TaskValue *v = &t->values[task->out[k]];
    if (v->stage >= 0 && v->stage != task->stage) bug("value %d is made by two stages", (int)task->out[k]);
    v->stage = task->stage;
    v->made_by |= 1u << task->kind;
    v->type = value_type(op_operand(ret, k));
    v->bytes = type_bytes(v->type);
    Op made = value_owner(op_operand(ret, k));
    v->loc = op_loc(t->ir, op_is_null(made) ? ret : made);
    place_result(t, task, k);
  }
}

static void read_uses(Tasks *t, const Task *task) {
  for (int k = 0; k < task->n_in; k++) {
    TaskValue *v = &t->values[task->in[k]];
    if (v->stage < 0) bug("nothing makes value %d, used by @%s of stage %d", (int)task->in[k],
                          func_name(t->arena, task->func), task->stage);
    if (v->stage == task->stage) v->used_by |= 1u << task->kind;
    else v->leaves = true;
  }
}

static void read_values(Tasks *t) {
  t->values = arena_alloc_array(t->arena, (size_t)t->n_values, sizeof *t->values);
  int n_names = 0;
  const char **names = split_words(t->arena, op_string(t->arena, ir_top(t->ir), "pp.value_names"), '\n', &n_names);
  for (int i = 0; i < t->n_values; i++) {
    const char *name = i < n_names && names[i][0] ? names[i] : arena_printf(t->arena, "v%d", i);
    t->values[i] = (TaskValue){.stage = -1, .alias = -1, .name = name};
  }
  for (int i = 0; i < t->n_tasks; i++) read_results(t, &t->tasks[i]);
  for (int i = 0; i < t->n_tasks; i++) read_uses(t, &t->tasks[i]);
  for (int i = 0; i < t->n_values; i++) {
    TaskValue *v = &t->values[i];
    if (v->store == STORE_PARAMETER)
      v->name = arena_printf(t->arena, "new %s (%s)", t->parameters[v->index].name, diag_loc_name(ir_diag(t->ir), v->loc));
  }
}

/* --- frames ------------------------------------------------------------------------------------------ */

static StoreKind own_store(const Tasks *t, const TaskValue *v) {
  const unsigned backward = 1u << PP_BWD | 1u << PP_BWD_INPUT | 1u << PP_BWD_WEIGHT;
  if (v->store != STORE_ITEM) return v->store;
  if (v->leaves || v->stage < 0 || (v->used_by & ~backward)) return STORE_ITEM;
  if (v->made_by == 1u << PP_FWD) {
    bool outlives = t->halves[v->stage] && (v->used_by & 1u << PP_BWD_WEIGHT);
    return outlives ? STORE_ITEM : STORE_FRAME;
  }
  return v->made_by == 1u << PP_BWD_INPUT ? STORE_WEIGHT_FRAME : STORE_ITEM;
}

/* Values in one piece of memory lie in a frame only when all of them may. */
static void join_views(Tasks *t) {
  for (bool changed = true; changed;) { /* chains of views are a few links long */
    changed = false;
    for (int i = 0; i < t->n_values; i++) {
      TaskValue *v = &t->values[i], *base = v->alias < 0 ? NULL : &t->values[v->alias];
      if (!base || base->store == v->store) continue;
      if (base->store == STORE_FRAME || base->store == STORE_WEIGHT_FRAME) base->store = STORE_ITEM, changed = true;
      if (v->store == STORE_FRAME || v->store == STORE_WEIGHT_FRAME) v->store = STORE_ITEM, changed = true;
    }
  }
}

static void add_field(Tasks *t, TaskFrame *frame, int value) {
  TaskValue *v = &t->values[value];
  v->index = frame->fields.n;
  VEC_PUSH(t->arena, &frame->fields, (TaskField){value, frame->bytes});
  frame->bytes += pp_align(v->bytes);
}

static void place_values(Tasks *t) {
  t->frames = arena_alloc_array(t->arena, (size_t)t->n_stages, sizeof *t->frames);
  t->weight_frames = arena_alloc_array(t->arena, (size_t)t->n_stages, sizeof *t->weight_frames);
  for (int i = 0; i < t->n_values; i++) t->values[i].store = own_store(t, &t->values[i]);
  join_views(t);
  for (int i = 0; i < t->n_values; i++) {
    TaskValue *v = &t->values[i];
    if (v->alias >= 0) continue;
    if (v->store == STORE_FRAME) add_field(t, &t->frames[v->stage], i);
    if (v->store == STORE_WEIGHT_FRAME && t->halves[v->stage]) add_field(t, &t->weight_frames[v->stage], i);
  }
}

int tasks_root(const Tasks *t, int rank, int value) {
  while (t->values[value].alias >= 0 && t->stage_ranks[t->values[value].stage] == rank) value = t->values[value].alias;
  return value;
}

StoreKind tasks_storage(const Tasks *t, int rank, int root) {
  const TaskValue *v = &t->values[root];
  bool away = t->stage_ranks[v->stage] != rank;
  return v->store == STORE_GRADIENT && away ? STORE_ITEM : v->store;
}

bool tasks_is_prepared(const Tasks *t, int value) { return t->values[value].made_by == 1u << PP_PREPARE; }

/* Marks in `seen` the items (by root; frames by kind behind the values) that a task touches. */
static void mark_items(const Tasks *t, const Task *task, bool *seen) {
  int rank = task ? (int)t->stage_ranks[task->stage] : 0;
  for (int k = 0; task && k < task->n_in + task->n_out; k++) {
    int root = tasks_root(t, rank, (int)(k < task->n_in ? task->in[k] : task->out[k - task->n_in]));
    switch (tasks_storage(t, rank, root)) {
    case STORE_FRAME: seen[t->n_values] = true; break;
    case STORE_WEIGHT_FRAME: seen[t->n_values + 1] = true; break;
    case STORE_ITEM: seen[root] = !tasks_is_prepared(t, root); break;
    default: break;
    }
  }
}

/* Bytes of what both some task of `before` and one of `after` (bits per kind) touch. */
static int64_t kept_bytes(const Tasks *t, int stage, unsigned before, unsigned after) {
  size_t n = (size_t)t->n_values + 2;
  Arena *tmp = arena_create();
  bool *early = arena_alloc_array(tmp, n, sizeof *early), *late = arena_alloc_array(tmp, n, sizeof *late);
  for (int kind = 0; kind < LOOP_KINDS; kind++) {
    const Task *task = tasks_find(t, stage, (pp_task_kind)kind);
    if (before & 1u << kind) mark_items(t, task, early);
    if (after & 1u << kind) mark_items(t, task, late);
  }
  int64_t bytes = 0;
  for (int v = 0; v < t->n_values; v++)
    if (early[v] && late[v]) bytes += t->values[v].bytes;
  if (early[t->n_values] && late[t->n_values]) bytes += t->frames[stage].bytes;
  if (early[t->n_values + 1] && late[t->n_values + 1]) bytes += t->weight_frames[stage].bytes;
  arena_destroy(tmp);
  return bytes;
}

int64_t tasks_stash_bytes(const Tasks *t, int stage) {
  return kept_bytes(t, stage, 1u << PP_FWD, 1u << PP_BWD | 1u << PP_BWD_INPUT | 1u << PP_BWD_WEIGHT);
}

int64_t tasks_weight_stash_bytes(const Tasks *t, int stage) {
  return kept_bytes(t, stage, 1u << PP_FWD | 1u << PP_BWD_INPUT, 1u << PP_BWD_WEIGHT);
}

/* --- ranks ------------------------------------------------------------------------------------------- */

int tasks_block_begin(const TaskRank *rank, int index) {
  if (!rank->overlaps || rank->overlaps[index] < 0) return index;
  while (index > 0 && rank->overlaps[index - 1] == rank->overlaps[index]) index--;
  return index;
}

int tasks_block_end(const TaskRank *rank, int index) {
  int end = index + 1;
  if (!rank->overlaps || rank->overlaps[index] < 0) return end;
  while (end < rank->n_actions && rank->overlaps[end] == rank->overlaps[index]) end++;
  return end;
}

static void read_rank(Tasks *t, Op op) {
  TaskRank rank = {.rank = (int)op_int(op, "rank", -1), .op = op};
  if (rank.rank < 0 || rank.rank >= t->n_ranks) bug("rank %d of %d", rank.rank, t->n_ranks);
  int64_t n = 0, n_lines = 0;
  rank.actions = op_ints(t->arena, op, "actions", &n);
  rank.lines = op_lines(t->ir, t->arena, op, "lines", &n_lines);
  rank.n_actions = (int)(n / 3);
  rank.overlaps = op_ints(t->arena, op, "overlaps", &n);
  if (n_lines != rank.n_actions) bug("rank %d: %d lines for %d actions", rank.rank, (int)n_lines, rank.n_actions);
  for (int i = 0; i < rank.n_actions; i++) {
    int64_t kind = rank.actions[3 * i];
    if (kind == PP_BWD_INPUT || kind == PP_BWD_WEIGHT) t->halves[rank.actions[3 * i + 1]] = true;
  }
  t->ranks[rank.rank] = rank;
}

static void read_ranks(Tasks *t) {
  int64_t n = 0;
  t->halves = arena_alloc_array(t->arena, (size_t)t->n_stages, sizeof *t->halves);
  t->stage_ranks = op_ints(t->arena, ir_top(t->ir), "pp.stage_ranks", &n);
  if (!t->stage_ranks) return;
  t->ranks = arena_alloc_array(t->arena, (size_t)t->n_ranks, sizeof *t->ranks);
  OpVec ops = ir_ops(t->arena, ir_top(t->ir), OP_RANK);
  if (ops.n != t->n_ranks) bug("%d ops for %d ranks", ops.n, t->n_ranks);
  for (int i = 0; i < ops.n; i++) read_rank(t, ops.at[i]);
}

/* Partial sums that kernel `func` leaves: of each of its sums over everything, one for each chunk. */
static int64_t count_partials(Arena *arena, Op func) {
  OpVec ops = block_ops(arena, func_body(func));
  int64_t n = 0;
  for (int i = 0; i < ops.n; i++)
    if (op_id(ops.at[i]) != OP_NONE && op_class(op_id(ops.at[i])) == CLASS_REDUCE && type_elements(value_type(op_result(ops.at[i], 0))) == 1)
      n += (type_elements(value_type(op_operand(ops.at[i], 0))) - 1) / PP_CUDA_CHUNK + 1;
  return n;
}

static int64_t align_device(int64_t bytes) { return (bytes + PP_CUDA_ALIGNMENT - 1) / PP_CUDA_ALIGNMENT * PP_CUDA_ALIGNMENT; }

static int64_t partial_bytes(const Tasks *t) {
  int64_t most = PP_CUDA_PARTIALS;
  for (int i = 0; i < t->n_kernels; i++) {
    int64_t n = count_partials(t->arena, t->kernels[i]);
    if (n > most) most = n;
  }
  return align_device(most * (int64_t)sizeof(double));
}

/* On CUDA each compute stream has a workspace for the library of products, and one for partial sums. */
static void read_target(Tasks *t, Op top) {
  const char *target = op_string(t->arena, top, "pp.target");
  if (!target) return;
  if (strcmp(target, "cuda") != 0) bug("no target '%s'", target);
  t->target = PP_TARGET_CUDA;
  t->partial_bytes = partial_bytes(t);
  t->scratch_bytes = align_device(op_int(top, "pp.products_workspace", 0)) + t->partial_bytes;
}

int tasks_streams(const TaskRank *rank) {
  for (int i = 0; rank->overlaps && i < rank->n_actions; i++)
    if (rank->overlaps[i] >= 0) return 2;
  return 1;
}

Tasks *tasks_read(Ir *ir, Arena *arena) {
  Tasks *t = arena_alloc(arena, sizeof *t);
  Op top = ir_top(ir);
  t->ir = ir;
  t->arena = arena;
  t->n_stages = (int)op_int(top, "pp.stages", 1);
  t->n_ranks = (int)op_int(top, "pp.ranks", 1);
  t->n_microbatches = (int)op_int(top, "pp.microbatches", 1);
  t->generate = op_unit(top, "pp.generate");
  t->loss_stage = -1;
  t->states = split_words(arena, op_string(arena, top, "pp.states"), ',', &t->n_states);
  read_parameters(t);
  read_sources(t);
  read_kernels(t);
  read_target(t, top);
  read_tasks(t);
  read_values(t);
  read_ranks(t);
  if (t->stage_ranks) place_values(t);
  return t;
}
