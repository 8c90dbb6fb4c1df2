/* Loops of a kernel's body, and reductions: each is a loop in the outermost scope that knows its index;
 * reductions that the pass before found side by side share one. Sums have the 16 lanes and the tree of
 * runtime/kernels/reduce.h. */
#include "codegen/kernel_emit.h"

/* --- loops ----------------------------------------------------------------------------------------------------- */

const char *kernel_loop_name(Emit *e, int depth) {
  static const char *const names[] = {"i", "j", "k", "l"};
  return depth <= 4 ? names[depth - 1] : arena_printf(e->arena, "i%d", depth);
}

Scope *kernel_open_loop(Emit *e, int loop, int64_t low, int64_t high, int64_t extent) {
  Scope *s = kernel_open_scope(e, false);
  s->loop = loop;
  s->extent = extent;
  s->atom = index_new_loop(&e->space, kernel_loop_name(e, s->depth), low, high, s->depth);
  return s;
}

void kernel_close_loop(Emit *e, bool simd) {
  Scope *s = e->scope;
  const IndexAtom a = e->space.atoms.at[s->atom];
  if (a.high - a.low == 1 && !a.keep) {
    kernel_close_scope(e, NULL, "", NULL);
    return;
  }
  const char *head = arena_printf(e->arena, "for (%s %s = %lld; %s < %lld; %s++) ", e->form->index_type, a.name, (long long)a.low, a.name, (long long)a.high, a.name);
  kernel_close_scope(e, simd && !s->has_loops ? e->form->simd : NULL, head, NULL);
}

static bool can_merge(Emit *e, const Accesses *accesses, int outer, int inner, int64_t extent) {
  for (int i = 0; i < accesses->n; i++) {
    const Access *a = &accesses->at[i];
    if (a->condition && (index_mentions(&e->space, a->e, outer) || index_mentions(&e->space, a->e, inner))) return false;
    if (!index_merges(&e->space, a->e, outer, inner, extent)) return false;
  }
  return true;
}

Groups kernel_merge_axes(Emit *e, int n, const int *atoms, const int64_t *extents, const Accesses *accesses) {
  Groups g = {0};
  for (int i = 0; i < n; i++) {
    if (g.n && can_merge(e, accesses, atoms[i - 1], atoms[i], extents[i])) g.extents[g.n - 1] *= extents[i];
    else g.extents[g.n++] = extents[i];
  }
  return g;
}

/* Index of a tensor of `dims` from one index per group: the groups are its axes, row-major, merged. */
static void index_from_groups(Emit *e, const Groups *g, const Index *group_index, int rank, const int64_t *dims, Index *out) {
  int axis = 0;
  for (int i = 0; i < rank; i++) out[i] = index_constant(0);
  for (int k = 0; k < g->n; k++) {
    int first = axis;
    int64_t size = 1;
    while (axis < rank && size * dims[axis] <= g->extents[k] && !(size == g->extents[k] && dims[axis] != 1)) size *= dims[axis++];
    if (size != g->extents[k]) bug("groups don't cover the axes");
    index_split(&e->space, group_index[k], axis - first, dims + first, out + first);
  }
}

/* --- reductions: over an index that the scope knows ---------------------------------------------------------------- */

bool kernel_is_reduced(const PlanNode *n, int axis) {
  for (int i = 0; i < n->attrs.n_axes; i++)
    if (n->attrs.axes[i] == axis) return true;
  return false;
}

bool kernel_is_max(const PlanNode *n) { return n->op == PLAN_OP_REDUCE_MAX; }

const char *kernel_least(pp_dtype d) { return d == PP_I32 ? "INT32_MIN" : d == PP_F64 ? "-(double)INFINITY" : "-INFINITY"; }

const char *kernel_combine_text(Emit *e, const PlanNode *n, const char *a, const char *b) {
  if (!kernel_is_max(n) && n->type.dtype != PP_I32) return arena_printf(e->arena, "%s + %s", a, b);
  return arena_printf(e->arena, "pp_%s_%s(%s, %s)", kernel_is_max(n) ? "max" : "add", pp_dtype_name(n->type.dtype), a, b);
}

/* The operand's index: kept axes from `kept` (the result's index), reduced ones from `reduced`. */
void kernel_operand_index(const Emit *e, const PlanNode *n, const Index *kept, const Index *reduced, Index *out) {
  const PlanType *t = type_of(e, n->in[0]);
  int a = 0, b = 0;
  for (int i = 0; i < t->rank; i++) out[i] = kernel_is_reduced(n, i) ? reduced[b++] : kept[a++];
}

int kernel_reduced_dims(const Emit *e, const PlanNode *n, int64_t *dims) {
  const PlanType *t = type_of(e, n->in[0]);
  int count = 0;
  for (int i = 0; i < t->rank; i++)
    if (kernel_is_reduced(n, i)) dims[count++] = t->dims[i];
  return count;
}

static Groups reduce_groups(Emit *e, const PlanNode *n, const Index *kept) {
  int64_t dims[PP_MAX_RANK], extents[PP_MAX_RANK];
  int atoms[PP_MAX_RANK], count = kernel_reduced_dims(e, n, dims), used = 0;
  Index reduced[PP_MAX_RANK] = {{0}}, index[PP_MAX_RANK];
  Accesses accesses = {0};
  Trial trial;
  kernel_trial_begin(e, &trial, &accesses);
  Scope *outer = e->scope;
  int loop = e->n_loops++;
  for (int i = 0; i < count; i++) {
    reduced[i] = index_constant(0);
    if (dims[i] == 1) continue;
    Scope *s = kernel_open_loop(e, loop, 0, dims[i], dims[i]);
    reduced[i] = index_loop(&e->space, s->atom);
    atoms[used] = s->atom, extents[used++] = dims[i];
  }
  kernel_operand_index(e, n, kept, reduced, index);
  kernel_evaluate(e, n->in[0], index);
  while (e->scope != outer) {
    str_free(&e->scope->text);
    e->scope = e->scope->parent;
  }
  kernel_trial_end(e, &trial);
  if (used == 0) return (Groups){.n = 1, .extents = {1}};
  return kernel_merge_axes(e, used, atoms, extents, &accesses);
}

static Groups reduce_loops_of(Emit *e, const PlanNode *n, const Index *kept) {
  if (!e->form->joins_axes) return reduce_groups(e, n, kept);
  return (Groups){.n = 1, .extents = {plan_elements(type_of(e, n->in[0])) / plan_elements(&n->type)}};
}

static void reduction_operand(Emit *e, const Reduction *r, const Index *kept, const Groups *g, const Index *group_index, Index *out) {
  const PlanNode *node = node_of(e, r->value);
  int64_t dims[PP_MAX_RANK];
  Index reduced[PP_MAX_RANK];
  int count = kernel_reduced_dims(e, node, dims);
  index_from_groups(e, g, group_index, count, dims, reduced);
  kernel_operand_index(e, node, kept, reduced, out);
}

void kernel_accumulate(Emit *e, int n, const Reduction *r, const Index *kept, const Groups *g, const Index *group_index, const char *lane) {
  Index index[PP_MAX_RANK];
  for (int i = 0; i < n; i++) {
    reduction_operand(e, &r[i], kept, g, group_index, index);
    kernel_prefetch(e, node_of(e, r[i].value)->in[0], index);
  }
  for (int i = 0; i < n; i++) {
    const PlanNode *node = node_of(e, r[i].value);
    reduction_operand(e, &r[i], kept, g, group_index, index);
    Val x = kernel_evaluate(e, node->in[0], index);
    const char *at = lane ? arena_printf(e->arena, "%s[%s]", r[i].lanes, lane) : r[i].lanes;
    kernel_line(e, e->scope, "%s = %s;", at, kernel_combine_text(e, node, at, x.text));
  }
}

/* Elements low … high - 1 of the innermost group, 16 at a time or, for the rest, fewer than 16. */
static void lane_loop(Emit *e, int loop, int n, const Reduction *r, const Index *kept, const Groups *g, Index *group_index) {
  int64_t extent = g->extents[g->n - 1], whole = extent / 16 * 16;
  if (whole) {
    Scope *chunks = kernel_open_scope(e, false);
    chunks->loop = loop, chunks->extent = extent, chunks->atom = -1;
    Scope *s = kernel_open_loop(e, loop, 0, whole, extent);
    kernel_extend_path(e, 'r', r->value, 0);
    const char *chunk = arena_printf(e->arena, "%s0", e->space.atoms.at[s->atom].name);
    group_index[g->n - 1] = index_loop(&e->space, s->atom);
    kernel_accumulate(e, n, r, kept, g, group_index, "lane");
    const IndexAtom a = e->space.atoms.at[s->atom];
    const char *first = a.used ? arena_printf(e->arena, "const %s %s = %s + lane;", e->form->index_type, a.name, chunk) : NULL;
    kernel_close_scope(e, s->has_loops ? NULL : e->form->simd, arena_printf(e->arena, "for (%s lane = 0; lane < 16; lane++) ", e->form->index_type), first);
    kernel_close_scope(e, NULL, arena_printf(e->arena, "for (%s %s = 0; %s < %lld; %s += 16) ", e->form->index_type, chunk, chunk, (long long)whole, chunk), NULL);
  }
  if (extent == whole) return;
  Scope *s = kernel_open_loop(e, loop, whole, extent, extent);
  kernel_extend_path(e, 'r', r->value, whole);
  e->space.atoms.at[s->atom].keep = whole > 0;
  group_index[g->n - 1] = index_loop(&e->space, s->atom);
  const char *name = e->space.atoms.at[s->atom].name;
  kernel_accumulate(e, n, r, kept, g, group_index, whole ? arena_printf(e->arena, "%s - %lld", name, (long long)whole) : extent == 1 ? "0" : name);
  kernel_close_loop(e, true);
}

/* Several reduced groups whose innermost one isn't a multiple of 16: element by element. */
static void element_loop(Emit *e, int loop, int n, const Reduction *r, const Index *kept, const Groups *g, Index *group_index) {
  Scope *s = kernel_open_loop(e, loop, 0, g->extents[g->n - 1], g->extents[g->n - 1]);
  kernel_extend_path(e, 'e', r->value, 0);
  group_index[g->n - 1] = index_loop(&e->space, s->atom);
  Index position = index_linear(&e->space, g->n, g->extents, group_index);
  kernel_accumulate(e, n, r, kept, g, group_index, arena_printf(e->arena, "(%s) %% 16", index_text(&e->space, position)));
  kernel_close_loop(e, false);
}

static void reduce_loops(Emit *e, int loop, int n, const Reduction *r, const Index *kept, const Groups *g, int level, Index *group_index) {
  if (level == g->n - 1) {
    if (g->n == 1 || g->extents[level] % 16 == 0) lane_loop(e, loop, n, r, kept, g, group_index);
    else element_loop(e, loop, n, r, kept, g, group_index);
    return;
  }
  Scope *s = kernel_open_loop(e, e->n_loops++, 0, g->extents[level], g->extents[level]);
  kernel_extend_path(e, 'g', r->value, level);
  group_index[level] = index_loop(&e->space, s->atom);
  reduce_loops(e, loop, n, r, kept, g, level + 1, group_index);
  kernel_close_loop(e, false);
}

static bool is_demanded(const Emit *e, const char *key) {
  for (int i = 0; i < e->demanded.n; i++)
    if (!strcmp(e->demanded.at[i], key)) return true;
  return false;
}

/* The key of a reduction in this scope that survives from the first pass to the second: by names. */
static const char *demand_key(Emit *e, int v, int rank, const Index *index) {
  Str s = {0};
  str_printf(&s, "%s:%d", e->scope->path, v);
  for (int i = 0; i < rank; i++) {
    for (int j = 0; j < index[i].n; j++) { /* doesn't mark the variable as used */
      const IndexAtom *a = &e->space.atoms.at[index[i].terms[j].atom];
      str_printf(&s, "%c%s*%lld", j ? '+' : ',', a->kind == ATOM_LOOP ? a->name : "?", (long long)index[i].terms[j].coef);
    }
    str_printf(&s, "+%lld", (long long)index[i].constant);
  }
  const char *key = arena_strndup(e->arena, str_text(&s), s.length);
  str_free(&s);
  return key;
}

bool kernel_same_space(const Emit *e, int a, int b) {
  const PlanNode *x = node_of(e, a), *y = node_of(e, b);
  const PlanType *s = type_of(e, x->in[0]), *t = type_of(e, y->in[0]);
  if (s->rank != t->rank || memcmp(s->dims, t->dims, sizeof *s->dims * (size_t)s->rank)) return false;
  for (int i = 0; i < s->rank; i++)
    if (kernel_is_reduced(x, i) != kernel_is_reduced(y, i)) return false;
  return e->depth_of_reductions[a] == e->depth_of_reductions[b];
}

static bool joins(Emit *e, int v, int other, const Index *index) {
  if (!e->final || e->trials || other == v || is_input(e, other) || kernel_ops[node_of(e, other)->op].class != CLASS_REDUCE) return false;
  int rank = type_of(e, v)->rank;
  return kernel_same_space(e, v, other) && is_demanded(e, demand_key(e, other, rank, index)) && !kernel_find_memo(e, kernel_index_key(e, other, rank, index));
}

static void start_lanes(Emit *e, const Reduction *r) {
  const PlanNode *n = node_of(e, r->value);
  const char *type = kernel_type(n->type.dtype);
  if (!kernel_is_max(n)) {
    kernel_line(e, e->scope, "%s %s[16] = {0};", type, r->lanes);
    return;
  }
  kernel_line(e, e->scope, "%s %s[16];", type, r->lanes);
  kernel_line(e, e->scope, "for (int lane = 0; lane < 16; lane++) %s[lane] = %s;", r->lanes, kernel_least(n->type.dtype));
}

/* All 16 lanes by who runs here, in loops over the groups. */
static void reduce_in_turn(Emit *e, int loop, int n, const Reduction *r, const Index *kept, const Groups *g) {
  Index group_index[PP_MAX_RANK];
  for (int i = 0; i < n; i++) start_lanes(e, &r[i]);
  reduce_loops(e, loop, n, r, kept, g, 0, group_index);
  for (int i = 0; i < n; i++) {
    const PlanNode *node = node_of(e, r[i].value);
    kernel_line(e, e->scope, "const %s %s = pp_fold_%s_%s(%s, 1);", kernel_type(node->type.dtype), r[i].name,
                kernel_is_max(node) ? "max" : "sum", pp_dtype_name(node->type.dtype), r[i].lanes);
  }
}

Val kernel_reduce(Emit *e, int v, const Index *index, const char *key) {
  int rank = type_of(e, v)->rank, depth = 0;
  for (int i = 0; i < rank; i++)
    if (index_depth(&e->space, index[i]) > depth) depth = index_depth(&e->space, index[i]);
  Scope *saved = e->scope, *home = kernel_scope_at(e, depth);
  e->scope = home;
  Reduction r[MAX_JOINED] = {{.value = v, .key = key}};
  int n = 1;
  for (int other = e->k->n_inputs; other < e->k->n_inputs + e->k->n_nodes && n < MAX_JOINED; other++)
    if (joins(e, v, other, index)) r[n++] = (Reduction){.value = other, .key = kernel_index_key(e, other, rank, index)};
  if (!e->final && !e->trials) VEC_PUSH(e->arena, &e->demanded, demand_key(e, v, rank, index));
  Groups g = reduce_loops_of(e, node_of(e, v), index);
  for (int i = 1; i < n; i++) { /* joined ones must fall into the same loops */
    Groups other = reduce_loops_of(e, node_of(e, r[i].value), index);
    bool same = other.n == g.n && !memcmp(other.extents, g.extents, sizeof *g.extents * (size_t)g.n);
    if (!same) r[i--] = r[--n];
  }
  int loop = e->n_loops++;
  for (int i = 0; i < n; i++) r[i].name = kernel_fresh_name(e, kernel_base_name(e, r[i].value));
  for (int i = 0; i < n; i++) r[i].lanes = kernel_fresh_name(e, arena_printf(e->arena, "%s_lane", r[i].name));
  if (!e->form->reduce || !e->form->reduce(e, loop, n, r, index, &g)) reduce_in_turn(e, loop, n, r, index, &g);
  kernel_finish_loop(e, loop);
  for (int i = 0; i < n; i++) {
    kernel_remember(e, home, r[i].key, (Val){r[i].name, home->depth});
    VEC_PUSH(e->arena, &home->results, r[i].name);
  }
  e->scope = saved;
  return (Val){r[0].name, home->depth};
}

void kernel_count_reductions(Emit *e) {
  const PlanKernel *k = e->k;
  e->depth_of_reductions = arena_alloc_array(e->arena, (size_t)(k->n_inputs + k->n_nodes), sizeof *e->depth_of_reductions);
  for (int v = k->n_inputs; v < k->n_inputs + k->n_nodes; v++) {
    const PlanNode *n = node_of(e, v);
    int most = 0;
    for (int i = 0; i < n->n_in; i++)
      if (e->depth_of_reductions[n->in[i]] > most) most = e->depth_of_reductions[n->in[i]];
    e->depth_of_reductions[v] = most + (kernel_ops[n->op].class == CLASS_REDUCE);
  }
}
