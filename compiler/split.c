/* Tasks: functions for each stage, and the values that cross between them.
 *
 * In: @microbatch and @step with final stages, `pp.weight_half` and `pp.task`. Out: a module for each
 * stage with @prepare, @fwd, @bwd, its two halves, @finish, @decide, @update, @refresh; the rest is gone. A
 * value that a task uses and another makes has one id; arguments and results carry them.
 *
 * What a backward task needs of the forward pass is either stashed or made again from what is:
 * constants, parameters, reshapes and broadcasts always (they cost nothing to make and their operands
 * are smaller), cheap elementwise ops when what they are made from is stashed anyway or no larger,
 * permutes, slices and the like only when it is stashed anyway. Products, reductions, random numbers
 * and transcendental functions are never done twice. The choice is greedy in program order with a
 * bounded search for each value, so all is linear; it depends on the stage alone, not on the schedule,
 * and what is made again has the same bits. */
#include <string.h>

#include "compiler/compiler.h"
#include "compiler/split.h"

static bool is_backward(pp_task_kind kind) { return kind == PP_BWD_INPUT || kind == PP_BWD_WEIGHT; }

/* --- what can be made again ----------------------------------------------------------- */

static Remake remake_of(const Node *n) {
  OpId id = op_id(n->op);
  if (n->is_light || id == OP_RESHAPE || id == OP_BROADCAST) return ALWAYS;
  if (n->home != PP_FWD) return NEVER;
  OpClass class = op_class(id);
  return (class == CLASS_MAP && !split_is_transcendental(id)) || class == CLASS_MOVE ? MAYBE : NEVER;
}

/* Worth making once a step, before the loop: casts of parameters to bf16, which cost more than they save
 * when each microbatch makes them. The value stays in its stage. */
static bool is_prepared(Split *s, const Node *n) {
  if (n->home != PP_FWD || op_id(n->op) != OP_CAST || n->is_free || !n->is_light) return false;
  Value v = op_result(n->op, 0);
  if (type_dtype(value_type(v)) != PP_BF16) return false;
  OpVec users = value_users(s->tmp, v);
  for (int i = 0; i < users.n; i++)
    if (op_stage(users.at[i]) != n->stage) return false;
  return true;
}

static void classify(Split *s, Node *n) {
  OpId id = op_id(n->op);
  OpClass class = op_class(id);
  bool light = class == CLASS_MAP || class == CLASS_MOVE || class == CLASS_REDUCE;
  n->is_free = (op_traits(id) & TRAIT_FREE) || (class != CLASS_LEAF && (op_traits(id) & TRAIT_PURE));
  n->is_light = (op_traits(id) & TRAIT_FREE) || light;
  for (int i = 0; i < op_n_operands(n->op); i++) {
    Node *from = split_node(s, op_operand(n->op, i));
    n->is_free = n->is_free && from->is_free;
    n->is_light = n->is_light && from->is_light;
  }
  bool loop = n->home <= PP_BWD_WEIGHT; /* after it a parameter changes: read where the source says */
  n->is_light = n->is_light || n->is_free || (id == OP_PARAM && loop) || id == OP_LOSS_SCALE;
  if (is_prepared(s, n)) n->home = PP_PREPARE;
  n->remake = n->home == PP_PREPARE ? NEVER : remake_of(n);
}

static pp_task_kind home_of(Op op, bool in_loop) {
  int64_t task = op_int(op, "pp.task", -1);
  if (!in_loop && task < 0) bug("%s belongs to no task", op_name(op_id(op)));
  if (!in_loop) return (pp_task_kind)task;
  if (!op_unit(op, "pp.backward")) return PP_FWD;
  return op_unit(op, "pp.weight_half") ? PP_BWD_WEIGHT : PP_BWD_INPUT;
}

static void read_func(Split *s, OpVec ops, bool in_loop) {
  for (int i = 0; i < ops.n; i++) {
    Op op = ops.at[i];
    if (op_is_return(op) || op_id(op) == OP_LOOP) continue;
    Node *n = &s->nodes[s->n_nodes++];
    *n = (Node){.op = op, .stage = op_stage(op), .home = home_of(op, in_loop)};
    if (n->stage < 0 || n->stage >= s->n_stages) bug("%s in stage %d", op_name(op_id(op)), n->stage);
    ptrmap_put(s->tmp, &s->index, op.ptr, n);
    classify(s, n);
    VEC_PUSH(s->tmp, split_home(s, n->stage, n->home), n);
  }
}

static void read_module(Split *s, Op microbatch, Op step) {
  OpVec loop = block_ops(s->tmp, func_body(microbatch)), after = block_ops(s->tmp, func_body(step));
  int n_homes = s->n_stages * PP_TASK_KIND_COUNT;
  s->nodes = arena_alloc_array(s->tmp, (size_t)(loop.n + after.n), sizeof *s->nodes);
  s->homes = arena_alloc_array(s->tmp, (size_t)n_homes, sizeof *s->homes);
  s->by_stage = arena_alloc_array(s->tmp, (size_t)n_homes, sizeof *s->by_stage);
  s->modules = arena_alloc_array(s->tmp, (size_t)s->n_stages, sizeof *s->modules);
  read_func(s, loop, true);
  read_func(s, after, false);
}

/* --- what to stash ----------------------------------------------------------------------- */

static bool is_received(const Node *n, int stage) { return n->stage != stage; }

static void push_operands(Split *s, Op op) {
  for (int i = 0; i < op_n_operands(op); i++) VEC_PUSH(s->tmp, &s->stack, op_operand(op, i));
}

/* Marks what the backward ops of a stage use of its forward ops, seen through what is always made again. */
static void mark_needed(Split *s, int stage, const NodeVec *users) {
  s->stack.n = 0;
  for (int i = 0; i < users->n; i++) push_operands(s, users->at[i]->op);
  while (s->stack.n) {
    Value v = VEC_POP(&s->stack);
    Node *n = split_node(s, v);
    if (is_received(n, stage)) {
      if (n->home == PP_FWD) ptrmap_put(s->tmp, &s->received, v.ptr, n);
      continue;
    }
    if (n->needed || n->home != PP_FWD) continue;
    n->needed = true;
    if (n->remake == ALWAYS) push_operands(s, n->op);
  }
}

enum { SEARCH_LIMIT = 64 };

/* Bytes that would have to be stashed to make n again; -1: the search got too long. */
static int64_t cost_to_remake(Split *s, Node *n) {
  int64_t cost = 0;
  s->stamp++;
  s->search.n = s->missing.n = s->stack.n = 0;
  push_operands(s, n->op);
  while (s->stack.n) {
    Value v = VEC_POP(&s->stack);
    Node *from = split_node(s, v);
    bool here = !is_received(from, n->stage);
    if (from->home == PP_PREPARE) continue;
    if (here ? from->kept || from->stamp == s->stamp : ptrmap_get(&s->received, v.ptr) != NULL) continue;
    if (here) from->stamp = s->stamp;
    if (here && from->remake != NEVER) {
      VEC_PUSH(s->tmp, &s->search, from);
      push_operands(s, from->op);
    } else {
      VEC_PUSH(s->tmp, &s->missing, v);
      cost += type_bytes(value_type(v));
    }
    if (s->search.n + s->missing.n > SEARCH_LIMIT) return -1;
  }
  return cost;
}

/* Makes n again, and what the last search went through, from what it found to be missing. */
static void remake(Split *s, Node *n) {
  n->remake = ALWAYS;
  for (int i = 0; i < s->search.n; i++) s->search.at[i]->remake = ALWAYS;
  for (int i = 0; i < s->missing.n; i++) {
    Node *from = split_node(s, s->missing.at[i]);
    if (is_received(from, n->stage))
      ptrmap_put(s->tmp, &s->received, s->missing.at[i].ptr, from);
    else
      from->kept = true;
  }
}

static void decide(Split *s, Node *n) {
  if (!n->needed || n->kept || n->remake == ALWAYS) return;
  int64_t cost = n->remake == MAYBE ? cost_to_remake(s, n) : -1;
  int64_t bytes = type_bytes(value_type(op_result(n->op, 0)));
  bool moves = op_class(op_id(n->op)) == CLASS_MOVE;
  if (cost >= 0 && (moves ? cost == 0 : cost <= bytes))
    remake(s, n);
  else
    n->kept = true;
}

/* Ops of MAYBE that are made again become ALWAYS, the others NEVER. Reductions and products are
 * marked first: they are stashed whatever else is chosen. */
static void choose_stashes(Split *s, int stage) {
  NodeVec *fwd = split_home(s, stage, PP_FWD);
  s->received = (PtrMap){0};
  mark_needed(s, stage, split_home(s, stage, PP_BWD_INPUT));
  mark_needed(s, stage, split_home(s, stage, PP_BWD_WEIGHT));
  for (int i = 0; i < fwd->n; i++)
    if (fwd->at[i]->needed && fwd->at[i]->remake == NEVER) fwd->at[i]->kept = true;
  for (int i = 0; i < fwd->n; i++) decide(s, fwd->at[i]);
  for (int i = 0; i < fwd->n; i++)
    if (fwd->at[i]->remake == MAYBE) fwd->at[i]->remake = NEVER;
}

/* --- tasks --------------------------------------------------------------------------------- */

static Op stage_module(Split *s, int stage) {
  if (op_is_null(s->modules[stage])) {
    const NodeVec *fwd = split_home(s, stage, PP_FWD);
    Loc loc = fwd->n ? op_loc(s->ir, fwd->at[0]->op) : (Loc){0};
    const char *name = arena_printf(s->tmp, "stage_%d", stage);
    s->modules[stage] = module_create(s->ir, ir_body(s->ir), loc, name);
    op_set_int(s->ir, s->modules[stage], "pp.stage", stage);
  }
  return s->modules[stage];
}

static Task *open_task(Split *s, int stage, pp_task_kind kind, Loc loc) {
  Task *t = arena_alloc(s->tmp, sizeof *t);
  t->func = func_create(s->ir, module_body(stage_module(s, stage)), loc, pp_task_kind_name(kind));
  t->stage = stage;
  t->kind = kind;
  t->b = (Builder){.ir = s->ir, .block = func_body(t->func), .loc = loc, .stage = -1};
  op_set_int(s->ir, t->func, "pp.kind", kind);
  VEC_PUSH(s->tmp, &s->tasks, t);
  s->by_stage[stage * PP_TASK_KIND_COUNT + kind] = t;
  return t;
}

static bool holds(const Task *t, const Node *n) {
  return t->stage == n->stage && (t->kind == n->home || (t->kind == PP_BWD && is_backward(n->home)));
}

/* The id of a value that `user` takes from another task. */
static int64_t cross(Split *s, const Task *user, Value v) {
  PtrMapEntry *known = ptrmap_find(&s->ids, v.ptr);
  if (!known) {
    VEC_PUSH(s->tmp, &s->crossings, (Crossing){.value = v});
    ptrmap_put(s->tmp, &s->ids, v.ptr, (void *)(intptr_t)s->crossings.n);
    known = ptrmap_find(&s->ids, v.ptr);
  }
  int64_t id = (int64_t)(intptr_t)known->value - 1;
  const Node *n = split_node(s, v);
  if (user->stage != n->stage || user->kind != PP_BWD_WEIGHT || n->home != PP_BWD_INPUT)
    s->crossings.at[id].leaves = true;
  return id;
}

static void add_argument(Split *s, Task *t, Value v) {
  if (ptrmap_get(&t->values, v.ptr)) return;
  VEC_PUSH(s->tmp, &t->in, cross(s, t, v));
  Value arg = func_add_arg(s->ir, t->func, value_type(v), op_loc(s->ir, value_owner(v)));
  ptrmap_put(s->tmp, &t->values, v.ptr, (void *)(uintptr_t)arg.ptr);
}

static void clone(Task *t, Node *n) {
  Op copy = op_clone_into(&t->b, n->op, &t->values);
  op_remove_attr(copy, "pp.task");
}

/* The weight half has a choice of its own. What bwd_input saves for it is made again there. */
static bool is_made_in(const Task *t, const Node *n) {
  bool chosen = t->kind == PP_BWD_WEIGHT && !n->is_light && n->home != PP_BWD_WEIGHT;
  return chosen ? n->again : n->remake == ALWAYS;
}

/* Makes v available in t: an argument, or the ops that make it again, operands first. */
static void provide(Split *s, Task *t, Value v) {
  s->stack.n = 0;
  VEC_PUSH(s->tmp, &s->stack, v);
  while (s->stack.n) {
    Value next = VEC_LAST(&s->stack);
    Node *n = split_node(s, next);
    bool mine = n->stage == t->stage && is_made_in(t, n);
    if (ptrmap_get(&t->values, next.ptr)) {
      s->stack.n--;
    } else if (!mine) {
      if (holds(t, n)) bug("%s is used before it is made", op_name(op_id(n->op)));
      add_argument(s, t, next);
    } else {
      int before = s->stack.n;
      for (int i = op_n_operands(n->op) - 1; i >= 0; i--)
        if (!ptrmap_get(&t->values, op_operand(n->op, i).ptr)) VEC_PUSH(s->tmp, &s->stack, op_operand(n->op, i));
      if (s->stack.n == before) clone(t, n);
    }
  }
}

static void place(Split *s, Task *t, Node *n) {
  for (int i = 0; i < op_n_operands(n->op); i++) provide(s, t, op_operand(n->op, i));
  clone(t, n);
}

/* Reads, constants, reshapes and broadcasts come where they are used; what else can be made again
 * keeps its place in the task that it belongs to. */
static bool is_placed_on_demand(const Node *n) {
  OpId id = op_id(n->op);
  return n->home != PP_PREPARE && (n->is_light || id == OP_RESHAPE || id == OP_BROADCAST);
}

static void fill_task(Split *s, Task *t, const NodeVec *ops) {
  for (int i = 0; i < ops->n; i++)
    if (!is_placed_on_demand(ops->at[i])) place(s, t, ops->at[i]);
}

static Loc first_loc(Split *s, const NodeVec *ops) {
  return ops->n ? op_loc(s->ir, ops->at[0]->op) : (Loc){0};
}

/* Both halves in program order: nodes lie in the order of the source. */
static NodeVec merge_halves(Split *s, const NodeVec *input, const NodeVec *weight) {
  NodeVec both = {0};
  int i = 0, k = 0;
  while (i < input->n || k < weight->n) {
    bool from_input = k == weight->n || (i < input->n && input->at[i] < weight->at[k]);
    VEC_PUSH(s->tmp, &both, from_input ? input->at[i++] : weight->at[k++]);
  }
  return both;
}

static void build_loop_tasks(Split *s, int stage) {
  NodeVec *input = split_home(s, stage, PP_BWD_INPUT), *weight = split_home(s, stage, PP_BWD_WEIGHT);
  NodeVec both = merge_halves(s, input, weight);
  Loc loc = first_loc(s, split_home(s, stage, PP_FWD));
  NodeVec *prepared = split_home(s, stage, PP_PREPARE);
  if (prepared->n) fill_task(s, open_task(s, stage, PP_PREPARE, first_loc(s, prepared)), prepared);
  fill_task(s, open_task(s, stage, PP_FWD, loc), split_home(s, stage, PP_FWD));
  fill_task(s, open_task(s, stage, PP_BWD, both.n ? first_loc(s, &both) : loc), &both);
  if (input->n) fill_task(s, open_task(s, stage, PP_BWD_INPUT, first_loc(s, input)), input);
  if (weight->n) fill_task(s, open_task(s, stage, PP_BWD_WEIGHT, first_loc(s, weight)), weight);
}

/* --- after the loop ------------------------------------------------------------------------ */

/* `decide` takes the partial results of all outputs: it is where they meet. */
static void add_outputs(Split *s, Task *decide_task, Op step) {
  OpVec outputs = ir_ops(s->tmp, step, OP_OUTPUTS);
  for (int i = 0; i < outputs.n; i++) add_argument(s, decide_task, op_result(outputs.at[i], 0));
}

/* Every stage has an update that takes the control vector, so that every rank learns of it. */
static void build_update_task(Split *s, int stage, Value control) {
  NodeVec *ops = split_home(s, stage, PP_UPDATE);
  Op owner = value_owner(control);
  Task *t = open_task(s, stage, PP_UPDATE, ops->n ? first_loc(s, ops) : op_loc(s->ir, owner));
  add_argument(s, t, control);
  fill_task(s, t, ops);
}

/* The value that @step assigns to each parameter. */
static void find_assigned(Split *s, Op step, Map *out_values) {
  OpVec all = ir_ops(s->tmp, step, OP_ASSIGN);
  for (int i = 0; i < all.n; i++)
    if (!op_string(s->tmp, all.at[i], "state"))
      map_put(s->tmp, out_values, op_string(s->tmp, all.at[i], "param"), (void *)(uintptr_t)op_operand(all.at[i], 0).ptr);
}

static void refresh_in(Split *s, int stage, const char *name, Value v, Loc loc) {
  Task *t = s->by_stage[stage * PP_TASK_KIND_COUNT + PP_REFRESH];
  const char *names = name;
  if (t)
    names = arena_printf(s->tmp, "%s,%s", op_string(s->tmp, t->func, "pp.refresh"), name);
  else
    t = open_task(s, stage, PP_REFRESH, loc);
  op_set_string(s->ir, t->func, "pp.refresh", names);
  add_argument(s, t, v);
}

/* Stages that use a parameter but don't own it take its new value. */
static void build_refreshes(Split *s, Op step) {
  Map assigned = {0};
  find_assigned(s, step, &assigned);
  OpVec parameters = ir_ops(s->tmp, ir_top(s->ir), OP_PARAMETER);
  for (int i = 0; i < parameters.n; i++) {
    Op p = parameters.at[i];
    const char *name = op_string(s->tmp, p, "sym");
    Value v = {map_get(&assigned, name)};
    int64_t n, owner = op_int(p, "owner", 0);
    const int64_t *stages = op_ints(s->tmp, p, "stages", &n);
    for (int64_t k = 0; k < n && !value_is_null(v); k++)
      if (stages[k] != owner) refresh_in(s, (int)stages[k], name, v, op_loc(s->ir, p));
  }
}

static void build_after_loop(Split *s, Op step) {
  OpVec controls = ir_ops(s->tmp, step, OP_CONTROL);
  for (int stage = 0; stage < s->n_stages; stage++) {
    NodeVec *finish = split_home(s, stage, PP_FINISH), *decision = split_home(s, stage, PP_DECIDE);
    if (finish->n) fill_task(s, open_task(s, stage, PP_FINISH, first_loc(s, finish)), finish);
    if (decision->n) {
      Task *t = open_task(s, stage, PP_DECIDE, first_loc(s, decision));
      fill_task(s, t, decision);
      add_outputs(s, t, step);
    }
    if (controls.n) build_update_task(s, stage, op_operand(controls.at[0], 0));
  }
  build_refreshes(s, step);
}

/* --- results ---------------------------------------------------------------------------------- */

static void return_from(Split *s, int stage, pp_task_kind kind, int64_t id) {
  Task *t = s->by_stage[stage * PP_TASK_KIND_COUNT + kind];
  if (!t) bug("value %d of a task that is not there", (int)id);
  provide(s, t, s->crossings.at[id].value);
  VEC_PUSH(s->tmp, &t->out, id);
}

/* Each value goes out of the task that makes it; of both forms of the backward pass. */
static void return_crossings(Split *s) {
  for (int id = 0; id < s->crossings.n; id++) {
    Crossing *c = &s->crossings.at[id];
    Node *n = split_node(s, c->value);
    return_from(s, n->stage, n->saved ? PP_BWD_INPUT : n->home, id);
    if (is_backward(n->home) && c->leaves) return_from(s, n->stage, PP_BWD, id);
  }
}

static void close_task(Split *s, Task *t) {
  Value *results = arena_alloc_array(s->tmp, (size_t)t->out.n, sizeof *results);
  for (int i = 0; i < t->out.n; i++)
    results[i] = (Value){ptrmap_get(&t->values, s->crossings.at[t->out.at[i]].value.ptr)};
  func_return(s->ir, t->func, t->b.loc, t->out.n, results);
  op_set_ints(s->ir, t->func, "pp.in", t->in.n, t->in.at);
  op_set_ints(s->ir, t->func, "pp.out", t->out.n, t->out.at);
  simplify_dead_ops(s->ir, t->func);
}

/* The parameter that takes this value; null: it is no new value of one. */
static const char *assigned_parameter(Split *s, Value v) {
  OpVec users = value_users(s->tmp, v);
  for (int i = 0; i < users.n; i++)
    if (op_id(users.at[i]) == OP_ASSIGN && !op_string(s->tmp, users.at[i], "state"))
      return op_string(s->tmp, users.at[i], "param");
  return NULL;
}

/* "x (gpt2.pp:31)" */
static const char *name_of(Split *s, Value v) {
  Op op = value_owner(v);
  OpId id = op_id(op) == OP_MATMUL && value_index(v) == 1 ? OP_ADD : op_id(op); /* the sum that gelu takes */
  const char *what = op_string(s->tmp, op, "pp.name"), *path = op_string(s->tmp, op, "pp.path");
  if (id == OP_GRADIENT)
    what = arena_printf(s->tmp, "gradient of %s", op_string(s->tmp, op, "param"));
  else if (id == OP_OUTPUTS)
    what = arena_printf(s->tmp, "output %s", op_string(s->tmp, op, "output"));
  else if (assigned_parameter(s, v))
    what = arena_printf(s->tmp, "new %s", assigned_parameter(s, v));
  else if (!what)
    what = arena_printf(s->tmp, "%s%s%s%s", op_unit(op, "pp.backward") ? "adjoint: " : "", path ? path : "", path ? "." : "", op_name(id));
  return arena_printf(s->tmp, "%s (%s)", what, diag_loc_name(ir_diag(s->ir), op_loc(s->ir, op)));
}

static void name_values(Split *s) {
  Str names = {0};
  for (int i = 0; i < s->crossings.n; i++)
    str_printf(&names, "%s%s", i ? "\n" : "", name_of(s, s->crossings.at[i].value));
  op_set_string(s->ir, ir_top(s->ir), "pp.value_names", str_text(&names));
  str_free(&names);
}

bool split_run(Ir *ir) {
  Op microbatch = func_find(ir, ir_top(ir), "microbatch"), step = func_find(ir, ir_top(ir), "step");
  Split s = {.ir = ir, .tmp = arena_create(), .n_stages = (int)op_int(ir_top(ir), "pp.stages", 1)};
  read_module(&s, microbatch, step);
  for (int stage = 0; stage < s.n_stages; stage++) {
    choose_stashes(&s, stage);
    halves_choose(&s, stage);
  }
  for (int stage = 0; stage < s.n_stages; stage++) build_loop_tasks(&s, stage);
  build_after_loop(&s, step);
  return_crossings(&s);
  for (int i = 0; i < s.tasks.n; i++) close_task(&s, s.tasks.at[i]);
  name_values(&s);
  op_erase(microbatch);
  op_erase(step);
  arena_destroy(s.tmp);
  return true;
}
