/* Groups → kernel functions and calls, the second half of the pass `fuse`.
 *
 * In: a grouped task. Out: the task with a pp.call for each group, in the order of the groups, and a
 * function for each kernel that no earlier one equals: same ops, types, attributes and results'
 * names. A kernel's name says what it computes, from well-known patterns of ops or the ops
 * themselves, and over which shape. Virtual ops are cloned into each kernel that uses them. */
#include <ctype.h>
#include <string.h>

#include "compiler/fuse.h"

enum { MAX_NAME = 40, MAX_LINES = 4 };

typedef struct {
  FuseTask *t;
  FuseKernels *kernels;
  int group;
  Builder b;          /* in the function */
  Op func;
  PtrMap map;         /* value of the task → value of the function */
  VEC(Value) inputs, outputs;
  Str content;        /* text that is equal for equal kernels */
  PtrMap numbers;     /* value of the function → number + 1 */
  int n_values;
} Maker;

/* --- the body ----------------------------------------------------------------------------------------- */

static void number_value(Maker *m, Value v) { ptrmap_put(m->t->arena, &m->numbers, v.ptr, (void *)(intptr_t)++m->n_values); }

static void print_ints(Maker *m, Op op, const char *name) {
  int64_t n;
  const int64_t *v = op_ints(m->t->arena, op, name, &n);
  if (!v) return;
  str_printf(&m->content, " %s", name);
  for (int64_t i = 0; i < n; i++) str_printf(&m->content, ",%lld", (long long)v[i]);
}

static void describe(Maker *m, Op op) {
  Str *s = &m->content;
  str_printf(s, "%s", op_name(op_id(op)));
  for (int i = 0; i < op_n_operands(op); i++) str_printf(s, " %d", (int)(intptr_t)ptrmap_get(&m->numbers, op_operand(op, i).ptr));
  static const char *const lists[] = {"axes", "starts", "limits", "before", "after"};
  for (int i = 0; i < 5; i++) print_ints(m, op, lists[i]);
  if (op_id(op) == OP_IOTA || op_id(op) == OP_CONCAT) str_printf(s, " %lld", (long long)op_int(op, "axis", 0));
  if (op_id(op) == OP_RANDOM) str_printf(s, " %lld", (long long)op_int(op, "key", 0));
  if (op_id(op) == OP_COMPARE) str_printf(s, " %s", op_string(m->t->arena, op, "predicate"));
  if (op_id(op) == OP_CONSTANT && op_constant_is_float(op)) str_printf(s, " %a", op_float(op, "value", 0));
  else if (op_id(op) == OP_CONSTANT) str_printf(s, " %lld", (long long)op_int(op, "value", 0));
  str_printf(s, " %s\n", type_text(m->t->arena, value_type(op_result(op, 0))));
}

static void add_input(Maker *m, Value v) {
  Value arg = func_add_arg(m->t->ir, m->func, value_type(v), m->b.loc);
  ptrmap_put(m->t->arena, &m->map, v.ptr, (void *)arg.ptr);
  VEC_PUSH(m->t->arena, &m->inputs, v);
  number_value(m, arg);
  str_printf(&m->content, "in %s\n", type_text(m->t->arena, value_type(v)));
}

static void clone_op(Maker *m, Op op) {
  static const char *const dropped[] = {"pp.stage", "pp.backward", "pp.weight_half", "pp.task", "pp.path"};
  Op clone = op_clone_into(&m->b, op, &m->map);
  for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++) op_remove_attr(clone, dropped[i]);
  describe(m, clone);
  number_value(m, op_result(clone, 0));
}

/* Sees to it that v is in the map: as an argument, or as the clone of a virtual op. */
static void provide(Maker *m, Value v) {
  if (ptrmap_get(&m->map, v.ptr)) return;
  int k = fuse_node_of(m->t, v);
  if (k < 0 || m->t->nodes[k].kind != NODE_VIRTUAL) {
    add_input(m, v);
    return;
  }
  Op op = m->t->nodes[k].op;
  for (int i = 0; i < op_n_operands(op); i++) provide(m, op_operand(op, i));
  clone_op(m, op);
}

static void add_member(Maker *m, const FuseNode *n) {
  for (int i = 0; i < op_n_operands(n->op); i++) provide(m, op_operand(n->op, i));
  if (!ptrmap_get(&m->map, op_result(n->op, 0).ptr)) clone_op(m, n->op);
}

static const char *value_name(Maker *m, Value v) {
  Op op = value_owner(v);
  while (!op_is_null(op) && op_id(op) == OP_RESHAPE) v = op_operand(op, 0), op = value_owner(v);
  if (op_is_null(op)) return NULL;
  const char *name = op_string(m->t->arena, op, "pp.name");
  if (!name && op_id(op) == OP_PARAM) name = op_string(m->t->arena, op, "param");
  if (!name && op_id(op) == OP_STATE) name = op_string(m->t->arena, op, "state");
  if (!name && op_id(op) == OP_GRADIENT) return "gradient";
  if (!name && op_id(op) == OP_STEP) return "step";
  if (!name && op_id(op) == OP_DATA) name = op_string(m->t->arena, op, "source");
  if (!name) return op_id(op) == OP_CALL || op_id(op) == OP_NONE ? NULL : op_name(op_id(op));
  const char *dot = strrchr(name, '.');
  return dot ? dot + 1 : name;
}

/* Values that something outside uses, in program order. */
static void find_outputs(Maker *m) {
  const FuseGroup *g = &m->t->groups[m->group];
  for (int i = 0; i < g->n; i++) {
    const FuseNode *n = &m->t->nodes[g->nodes[i]];
    Value v = op_result(n->op, 0);
    if (n->kind == NODE_REAL && !fuse_is_outside_use(m->t, v, m->group)) continue;
    VEC_PUSH(m->t->arena, &m->outputs, v);
    const char *name = op_string(m->t->arena, n->op, "pp.name");
    str_printf(&m->content, "out %d %s\n", (int)(intptr_t)ptrmap_get(&m->numbers, ptrmap_get(&m->map, v.ptr)), name ? name : "");
  }
}

/* --- names ------------------------------------------------------------------------------------------------ */

/* What the ops of a group are, for its name. */
typedef struct {
  int count[OP_COUNT];
  int n_maps, n_moves, n_rows, n_columns;
  bool backward, assigns, squares;
  bool counts;          /* has an iota */
  Type shape;           /* of the loops */
} Summary;

static bool is_assigned(Maker *m, Value v) {
  OpVec users = value_users(m->t->arena, v);
  for (int i = 0; i < users.n; i++) {
    if (op_id(users.at[i]) == OP_ASSIGN) return true;
    if (op_id(users.at[i]) == OP_RESHAPE && is_assigned(m, op_result(users.at[i], 0))) return true;
  }
  return false;
}

static bool keeps_last(Maker *m, Op reduce) {
  int64_t n;
  const int64_t *axes = op_ints(m->t->arena, reduce, "axes", &n);
  Type t = value_type(op_operand(reduce, 0));
  int last = type_rank(t) - 1;
  while (last > 0 && type_dim(t, last) == 1) last--;
  for (int64_t i = 0; i < n; i++)
    if (axes[i] == last) return false;
  return true;
}

static Summary summarize(Maker *m) {
  Summary s = {.shape = value_type(op_result(m->t->nodes[m->t->groups[m->group].nodes[0]].op, 0))};
  const FuseGroup *g = &m->t->groups[m->group];
  for (int i = 0; i < g->n; i++) {
    Op op = m->t->nodes[g->nodes[i]].op;
    OpId id = op_id(op);
    OpClass class = op_class(id);
    s.count[id]++;
    s.n_maps += class == CLASS_MAP;
    s.n_moves += class == CLASS_MOVE;
    s.backward |= op_unit(op, "pp.backward");
    if (id == OP_MUL && value_equal(op_operand(op, 0), op_operand(op, 1))) s.squares = true;
    Type t = value_type(class == CLASS_REDUCE ? op_operand(op, 0) : op_result(op, 0));
    if (type_elements(t) > type_elements(s.shape)) s.shape = t;
    if (class == CLASS_REDUCE && keeps_last(m, op)) s.n_columns++;
    else if (class == CLASS_REDUCE) s.n_rows++;
  }
  s.counts = strstr(str_text(&m->content), "iota") != NULL;
  for (int i = 0; i < m->outputs.n; i++) s.assigns |= is_assigned(m, m->outputs.at[i]);
  return s;
}

static const char *known_pattern(const Summary *s) {
  const int *n = s->count;
  if (s->assigns) return n[OP_SQRT] ? (n[OP_DIV] >= 2 ? "adamw" : "update") : "sgd";
  if (s->n_columns) return s->n_maps ? "product_column_sums" : "column_sums";
  if (s->n_rows && n[OP_REDUCE_MAX] && n[OP_EXP]) return n[OP_LOG] ? "cross_entropy" : "softmax";
  if (s->n_rows && n[OP_RSQRT] && !s->backward) return s->n_rows >= 2 ? "layer_norm" : "rms_norm";
  if (s->n_rows && s->squares && !s->backward && type_rank(s->shape) > 0 && n[OP_CAST]) return "squared_norm";
  if (s->n_rows >= 2 && s->backward) return "layer_norm_grad";
  if (s->n_rows == 1 && s->backward && s->n_maps > 3) return n[OP_DIV] ? "rms_norm_grad" : "softmax_grad";
  if (s->n_rows == 0 && (n[OP_ERF] || n[OP_TANH]) && n[OP_MUL]) return "gelu";
  if (s->n_rows == 0 && n[OP_EXP] && n[OP_NEG] && n[OP_DIV]) return n[OP_MUL] ? "silu" : "sigmoid";
  if (s->n_rows == 0 && n[OP_SELECT] && n[OP_COMPARE]) return s->counts ? "cross_entropy" : n[OP_DIV] ? "dropout" : NULL;
  return NULL;
}

/* "add_" before a pattern whose first op adds: a bias or a residual. */
static bool begins_with_add(Maker *m) { return m->t->nodes[m->t->groups[m->group].nodes[0]].id == OP_ADD; }

/* The ops of the group, each once, in the order in which they come. */
static void append_ops(Maker *m, Str *name) {
  const FuseGroup *g = &m->t->groups[m->group];
  bool seen[OP_COUNT] = {false};
  for (int i = 0; i < g->n && name->length < MAX_NAME - 12; i++) {
    OpId id = m->t->nodes[g->nodes[i]].id;
    if (seen[id]) continue;
    seen[id] = true;
    str_printf(name, "%s%s", name->length ? "_" : "", id == OP_REDUCE_SUM ? "sum" : id == OP_REDUCE_MAX ? "max" : op_name(id));
  }
}

/* "_512x128": the last axis apart, the others as one; so no name is a word or a function of C. */
static void append_shape(Str *name, Type t) {
  if (type_elements(t) == 1) {
    str_puts(name, "_scalar");
    return;
  }
  int64_t last = type_dim(t, type_rank(t) - 1), rows = type_elements(t) / last;
  if (rows > 1) str_printf(name, "_%lldx%lld", (long long)rows, (long long)last);
  else str_printf(name, "_%lld", (long long)last);
}

static const char *kernel_name(Maker *m, const Summary *s) {
  Str name = {0};
  const char *pattern = m->t->groups[m->group].n > 1 ? known_pattern(s) : NULL;
  if (pattern) {
    bool prefix = begins_with_add(m) && !s->assigns && !s->n_columns;
    str_printf(&name, "%s%s", prefix ? "add_" : "", pattern);
    if (s->backward && !str_ends_with(pattern, "grad") && !s->n_columns) str_puts(&name, "_grad");
  } else {
    append_ops(m, &name);
    if (s->backward && m->t->groups[m->group].n > 1) str_puts(&name, "_grad");
  }
  append_shape(&name, s->shape);
  Arena *a = m->t->arena;
  const char *base = arena_strdup(a, str_text(&name)), *unique = base;
  str_free(&name);
  for (int i = (int)(intptr_t)map_get(&m->kernels->names, base) + 1; map_find(&m->kernels->names, unique); i++) {
    unique = arena_printf(a, "%s_%d", base, i + 1);
    map_put(a, &m->kernels->names, base, (void *)(intptr_t)i);
  }
  map_put(a, &m->kernels->names, unique, NULL);
  return unique;
}

/* "reduce_sum, div, sub, … (nn.pp:31, gpt2.pp:12)" */
static const char *make_comment(Maker *m) {
  const FuseGroup *g = &m->t->groups[m->group];
  Diag *diag = ir_diag(m->t->ir);
  Str s = {0}, lines = {0};
  int n_lines = 0;
  const char *seen[MAX_LINES];
  for (int i = 0; i < g->n; i++) {
    Op op = m->t->nodes[g->nodes[i]].op;
    const char *name = op_string(m->t->arena, op, "pp.name");
    if (i < 24) str_printf(&s, name ? "%s%s = %s" : "%s%s%s", i ? ", " : "", name ? name : "", op_name(op_id(op)));
    if (i == 24) str_puts(&s, ", …");
    const char *line = diag_loc_name(diag, op_loc(m->t->ir, op));
    bool known = n_lines == MAX_LINES;
    for (int k = 0; k < n_lines; k++) known |= !strcmp(seen[k], line);
    if (known) continue;
    str_printf(&lines, "%s%s", n_lines ? ", " : "", line);
    seen[n_lines++] = line;
  }
  const char *text = arena_printf(m->t->arena, "%s (%s)", str_text(&s), str_text(&lines));
  str_free(&s);
  str_free(&lines);
  return text;
}

static const char *make_names(Maker *m) {
  Str s = {0};
  for (int i = 0; i < m->inputs.n; i++) {
    const char *name = value_name(m, m->inputs.at[i]);
    str_printf(&s, "%s%s", i ? "," : "", name ? name : "");
  }
  str_putc(&s, ';');
  for (int i = 0; i < m->outputs.n; i++) {
    const char *name = value_name(m, m->outputs.at[i]);
    str_printf(&s, "%s%s", i ? "," : "", name ? name : "");
  }
  const char *text = arena_strdup(m->t->arena, str_text(&s));
  str_free(&s);
  return text;
}

/* --- in place ---------------------------------------------------------------------------------------------- */

/* Pairs that may share a buffer: kernels of elementwise ops alone, an argument and a result of the size
 * of the loop: element i is read, at most through reshapes, where element i is written. */
static void set_in_place(Maker *m) {
  const FuseGroup *g = &m->t->groups[m->group];
  int64_t full = 1;
  for (int i = 0; i < g->n; i++) {
    const FuseNode *n = &m->t->nodes[g->nodes[i]];
    OpClass class = op_class(n->id);
    if (class != CLASS_MAP) return;
    if (n->elements > full) full = n->elements;
  }
  VEC(int64_t) pairs = {0};
  for (int o = 0; o < m->outputs.n; o++)
    for (int i = 0; i < m->inputs.n; i++) {
      Type a = value_type(m->outputs.at[o]), b = value_type(m->inputs.at[i]);
      if (type_elements(a) != full || type_elements(b) != full || type_dtype(a) != type_dtype(b)) continue;
      VEC_PUSH(m->t->arena, &pairs, o);
      VEC_PUSH(m->t->arena, &pairs, i);
    }
  if (pairs.n) op_set_ints(m->t->ir, m->func, "pp.in_place", pairs.n, pairs.at);
}

/* --- function and call --------------------------------------------------------------------------------------- */

static void finish_function(Maker *m) {
  Arena *a = m->t->arena;
  Ir *ir = m->t->ir;
  Value *values = arena_alloc_array(a, (size_t)m->outputs.n, sizeof *values);
  for (int i = 0; i < m->outputs.n; i++) values[i].ptr = ptrmap_get(&m->map, m->outputs.at[i].ptr);
  func_return(ir, m->func, m->b.loc, m->outputs.n, values);
  Op known = {map_get(&m->kernels->by_content, str_text(&m->content))};
  if (!op_is_null(known)) {
    op_erase(m->func);
    m->func = known;
    return;
  }
  Summary s = summarize(m);
  op_set_string(ir, m->func, "sym_name", arena_printf(a, "kernel_%s", kernel_name(m, &s)));
  op_set_string(ir, m->func, "sym_visibility", "private");
  op_set_unit(ir, m->func, "pp.kernel");
  op_set_string(ir, m->func, "pp.comment", make_comment(m));
  op_set_string(ir, m->func, "pp.names", make_names(m));
  set_in_place(m);
  map_put(a, &m->kernels->by_content, arena_strdup(a, str_text(&m->content)), m->func.ptr);
}

static void call_kernel(Maker *m) {
  Arena *a = m->t->arena;
  const FuseGroup *g = &m->t->groups[m->group];
  Op first = m->t->nodes[g->nodes[g->n - 1]].op;
  Builder b = {.ir = m->t->ir, .block = func_body(m->t->func), .before = func_return_op(m->t->func), .loc = op_loc(m->t->ir, first), .stage = op_stage(first)};
  b.backward = op_unit(first, "pp.backward");
  b.path = op_string(a, first, "pp.path");
  if (m->outputs.n == 1) b.name = op_string(a, value_owner(m->outputs.at[0]), "pp.name");
  Type *types = arena_alloc_array(a, (size_t)m->outputs.n, sizeof *types);
  for (int i = 0; i < m->outputs.n; i++) types[i] = value_type(m->outputs.at[i]);
  Op call = call_create(&b, m->func, m->inputs.n, m->inputs.at, m->outputs.n, types);
  for (int i = 0; i < m->outputs.n; i++) value_replace(m->outputs.at[i], op_result(call, i));
}

static void make_kernel(FuseTask *t, FuseKernels *kernels, int group) {
  const FuseGroup *g = &t->groups[group];
  Maker m = {.t = t, .kernels = kernels, .group = group};
  Loc loc = op_loc(t->ir, t->nodes[g->nodes[0]].op);
  m.func = func_create(t->ir, ir_body(t->ir), loc, "kernel");
  m.b = (Builder){.ir = t->ir, .block = func_body(m.func), .loc = loc, .stage = -1};
  for (int i = 0; i < g->n; i++) add_member(&m, &t->nodes[g->nodes[i]]);
  find_outputs(&m);
  if (m.outputs.n == 0) op_erase(m.func); /* dead */
  else {
    finish_function(&m);
    call_kernel(&m);
  }
  str_free(&m.content);
}

/* --- the task ---------------------------------------------------------------------------------------------------- */

/* Reshapes that stay in the task stand before their first user. */
static void move_views(FuseTask *t, Value v, bool *moved, Op before) {
  int k = fuse_node_of(t, v);
  if (k < 0 || moved[k] || t->nodes[k].kind != NODE_VIRTUAL || t->nodes[k].id != OP_RESHAPE) return;
  moved[k] = true;
  move_views(t, op_operand(t->nodes[k].op, 0), moved, before);
  op_move_before(t->nodes[k].op, before);
}

void fuse_rewrite(FuseTask *t, FuseKernels *kernels) {
  Op end = func_return_op(t->func);
  bool *moved = arena_alloc_array(t->arena, (size_t)t->n, sizeof *moved);
  for (int r = 0; r < t->n_order; r++) {
    const FuseGroup *g = &t->groups[t->order[r]];
    if (g->n == 0) continue;
    const FuseNode *first = &t->nodes[g->nodes[0]];
    if (first->kind != NODE_BOUNDARY) {
      make_kernel(t, kernels, t->order[r]);
      continue;
    }
    for (int i = 0; i < op_n_operands(first->op); i++) move_views(t, op_operand(first->op, i), moved, end);
    op_move_before(first->op, end);
  }
  for (int i = 0; i < op_n_operands(end); i++) move_views(t, op_operand(end, i), moved, end);
  for (int i = t->n - 1; i >= 0; i--)
    if (t->nodes[i].kind != NODE_BOUNDARY && !op_has_uses(t->nodes[i].op)) op_erase(t->nodes[i].op);
}
