/* The body of one kernel: from a straight line of ops to loops.
 *
 * In: a PlanKernel. Out: C text. Outputs of one size share a nest of loops over their elements;
 * smaller ones that have an element per outer turn are written there; sums over leading axes get a
 * nest of [16 lanes][columns]. Inside, values are evaluated on demand at symbolic indexes: movement
 * ops only change the index, a MAP becomes one statement, put into the outermost loop that knows its
 * operands, and a reduction becomes a loop of its own in the outermost loop that knows its index. So
 * a softmax turns into: rows { maximum; sum of exponentials; quotients }. Three passes over the text:
 * the first counts where costly values are computed twice (they get a row buffer from then on), the
 * second which reductions meet (they share a loop in the third). Bits depend on the ops alone: every value is rounded to
 * its type, every reduction has the association of runtime/kernels/reduce.h.
 * Not here: which ops belong together (compiler/fuse.c), threads. */
#include "codegen/kernel_emit.h"

enum {
  BUFFER_BYTES = 64 << 10, /* of row buffers on the stack */
  MAX_SEGMENTS = 4096, /* pieces of a nest, split where a concat or pad changes sides */
  COLUMN_BYTES = 64 << 10 /* of the accumulators of a nest of column sums: wide rows beat a small cache footprint */
};

/* --- nests of outputs ----------------------------------------------------------------------------------------------- */

/* Outputs that one nest writes: `full` ones at every element, others after an outer loop. */
typedef struct {
  int output;   /* number among the kernel's outputs */
  int level;    /* loops around its store */
} Root;

typedef struct {
  int n;
  Root *roots;
  int lead;                 /* the output whose axes make the loops */
  Groups groups;
  Accesses accesses;        /* of a trial with the loops as they are */
  VEC(int64_t) cuts[PP_MAX_RANK];
} Nest;

static const PlanType *output_type(const Emit *e, int o) { return type_of(e, e->k->outputs[o]); }

/* Index of output o from the indexes of the first `level` loops of the nest. */
static void root_index(Emit *e, const Nest *nest, const Root *root, const Index *group_index, Index *out) {
  const PlanType *t = output_type(e, root->output);
  Index linear = index_linear(&e->space, root->level, nest->groups.extents, group_index);
  index_split(&e->space, linear, t->rank, t->dims, out);
}

static void store_roots(Emit *e, const Nest *nest, int level, const Index *group_index) {
  const char **texts = arena_alloc_array(e->arena, (size_t)nest->n, sizeof *texts);
  Index *at = arena_alloc_array(e->arena, (size_t)nest->n, sizeof *at);
  Index index[PP_MAX_RANK];
  for (int i = 0; i < nest->n; i++) {
    if (nest->roots[i].level != level) continue;
    root_index(e, nest, &nest->roots[i], group_index, index);
    kernel_prefetch(e, e->k->outputs[nest->roots[i].output], index);
  }
  for (int i = 0; i < nest->n; i++) {
    const Root *root = &nest->roots[i];
    if (root->level != level || e->random_output[root->output]) continue;
    root_index(e, nest, root, group_index, index);
    const PlanType *t = output_type(e, root->output);
    at[i] = index_linear(&e->space, t->rank, t->dims, index);
    kernel_note_access(e, at[i]);
    texts[i] = kernel_evaluate(e, e->k->outputs[root->output], index).text;
  }
  for (int i = 0; i < nest->n; i++)
    if (texts[i]) kernel_line(e, e->scope, "%s[%s] = %s;", e->names[e->k->n_inputs + nest->roots[i].output], index_text(&e->space, at[i]), texts[i]);
}

static void nest_loops(Emit *e, Nest *nest, int level, Index *group_index, const int *loops) {
  store_roots(e, nest, level, group_index);
  if (level == nest->groups.n) return;
  int64_t extent = nest->groups.extents[level];
  bool innermost = level == nest->groups.n - 1, has_points = false;
  for (int i = 0; i <= nest->cuts[level].n; i++) {
    int64_t low = i == 0 ? 0 : nest->cuts[level].at[i - 1];
    has_points |= (i == nest->cuts[level].n ? extent : nest->cuts[level].at[i]) - low == 1;
  }
  for (int i = 0; i <= nest->cuts[level].n; i++) {
    int64_t low = i == 0 ? 0 : nest->cuts[level].at[i - 1];
    int64_t high = i == nest->cuts[level].n ? extent : nest->cuts[level].at[i];
    Scope *s = kernel_open_loop(e, loops[level], low, high, extent);
    kernel_extend_path(e, 'o', nest->lead, low);
    s->has_points = has_points;
    group_index[level] = index_loop(&e->space, s->atom);
    nest_loops(e, nest, level + 1, group_index, loops);
    kernel_close_loop(e, innermost);
  }
  kernel_finish_loop(e, loops[level]);
}

/* Runs the nest without keeping its text; notes every access. */
static void try_nest(Emit *e, Nest *nest, int *out_atoms) {
  Trial trial;
  nest->accesses = (Accesses){0};
  kernel_trial_begin(e, &trial, &nest->accesses);
  Scope *outer = e->scope;
  Index group_index[PP_MAX_RANK];
  for (int level = 0;; level++) {
    store_roots(e, nest, level, group_index);
    if (level == nest->groups.n) break;
    Scope *s = kernel_open_loop(e, e->n_loops++, 0, nest->groups.extents[level], nest->groups.extents[level]);
    out_atoms[level] = s->atom;
    group_index[level] = index_loop(&e->space, s->atom);
  }
  while (e->scope != outer) {
    str_free(&e->scope->text);
    e->scope = e->scope->parent;
  }
  kernel_trial_end(e, &trial);
}

static void add_cut(Emit *e, Nest *nest, int level, int64_t at) {
  if (at <= 0 || at >= nest->groups.extents[level]) return;
  int i = 0;
  while (i < nest->cuts[level].n && nest->cuts[level].at[i] < at) i++;
  if (i < nest->cuts[level].n && nest->cuts[level].at[i] == at) return;
  VEC_PUSH(e->arena, &nest->cuts[level], at);
  for (int j = nest->cuts[level].n - 1; j > i; j--) nest->cuts[level].at[j] = nest->cuts[level].at[j - 1];
  nest->cuts[level].at[i] = at;
}

/* Where a comparison of one loop variable with a number changes sides, the loop is cut. */
static void find_cuts(Emit *e, Nest *nest, const int *atoms) {
  for (int i = 0; i < nest->accesses.n; i++) {
    const Access *a = &nest->accesses.at[i];
    if (!a->condition || a->e.n != 1) continue;
    for (int level = 0; level < nest->groups.n; level++) {
      if (a->e.terms[0].atom != atoms[level]) continue;
      int64_t coef = a->e.terms[0].coef, rest = a->threshold - a->e.constant;
      add_cut(e, nest, level, (rest + coef - 1) / coef);
    }
  }
  int64_t pieces = 1;
  for (int level = 0; level < nest->groups.n; level++) {
    pieces *= nest->cuts[level].n + 1;
    if (pieces <= MAX_SEGMENTS) continue;
    pieces /= nest->cuts[level].n + 1;
    nest->cuts[level].n = 0;
  }
}

/* Outputs with as many elements as the first `level` loops have turns go there. */
static int level_of(const Nest *nest, int64_t n) {
  int64_t turns = 1;
  for (int level = 0; level <= nest->groups.n; level++) {
    if (turns == n) return level;
    if (level < nest->groups.n) turns *= nest->groups.extents[level];
  }
  return -1;
}

static void collect_roots(Emit *e, Nest *nest, const bool *done, bool full_only) {
  int64_t size = plan_elements(output_type(e, nest->lead));
  nest->n = 0;
  for (int o = 0; o < e->k->n_outputs; o++) {
    int64_t n = plan_elements(output_type(e, o));
    int level = level_of(nest, n);
    if (done[o] || level < 0 || (full_only && n != size)) continue;
    if (n == size) level = nest->groups.n;
    nest->roots[nest->n++] = (Root){o, level};
  }
}

static void print_nest(Emit *e, int lead, bool *done) {
  Nest nest = {.lead = lead, .roots = arena_alloc_array(e->arena, (size_t)e->k->n_outputs, sizeof(Root))};
  int atoms[PP_MAX_RANK], loops[PP_MAX_RANK];
  const PlanType *t = output_type(e, lead);
  for (int i = 0; i < t->rank; i++)
    if (t->dims[i] != 1) nest.groups.extents[nest.groups.n++] = t->dims[i];
  collect_roots(e, &nest, done, true);
  try_nest(e, &nest, atoms);
  if (nest.groups.n) nest.groups = kernel_merge_axes(e, nest.groups.n, atoms, nest.groups.extents, &nest.accesses);
  collect_roots(e, &nest, done, false);
  try_nest(e, &nest, atoms);
  find_cuts(e, &nest, atoms);
  for (int i = 0; i < nest.groups.n; i++) loops[i] = e->n_loops++;
  Index group_index[PP_MAX_RANK];
  nest_loops(e, &nest, 0, group_index, loops);
  for (int i = 0; i < nest.n; i++) done[nest.roots[i].output] = true;
}

/* --- sums over leading axes: [16 lanes][columns] -------------------------------------------------------------------------- */

/* The result's trailing axes that follow the last reduced axis: its columns; 0 when there are none. */
static int64_t n_columns(const Emit *e, const PlanNode *n, int *out_axes) {
  const PlanType *t = type_of(e, n->in[0]);
  int64_t columns = 1;
  *out_axes = 0;
  for (int i = t->rank - 1; i >= 0 && !kernel_is_reduced(n, i); i--) columns *= t->dims[i], ++*out_axes;
  int64_t reduced = plan_elements(t) / plan_elements(&n->type);
  return columns > 1 && reduced > 1 ? columns : 0;
}

static bool is_column_output(const Emit *e, int o, int *out_axes) {
  int v = e->k->outputs[o];
  return !is_input(e, v) && kernel_ops[node_of(e, v)->op].class == CLASS_REDUCE && n_columns(e, node_of(e, v), out_axes) > 0;
}

typedef struct {
  int n;                          /* outputs */
  int outputs[MAX_JOINED];
  const char *lanes[MAX_JOINED];
  int kept_axes;                  /* of the result, before the columns */
  int column_axes;
  int64_t columns, width;         /* width: columns at a time */
  int64_t reduced_dims[PP_MAX_RANK];
  int n_reduced;
} Columns;

static const PlanNode *column_node(const Emit *e, const Columns *c, int i) { return node_of(e, e->k->outputs[c->outputs[i]]); }

/* acc[k mod 16][column] takes one row of `width` columns that begin at `start`. */
static void column_row(Emit *e, const Columns *c, const Index *kept, const Index *reduced, const char *start, int64_t low, int64_t high) {
  Scope *s = kernel_open_scope(e, false);
  s->loop = e->n_loops++, s->extent = c->columns;
  s->atom = index_new_loop(&e->space, kernel_loop_name(e, s->depth), low, high, s->depth);
  kernel_extend_path(e, 'c', c->outputs[0], low);
  Index column = index_loop(&e->space, s->atom), position = index_linear(&e->space, c->n_reduced, c->reduced_dims, reduced);
  const char *row = index_text(&e->space, index_modulo(&e->space, position, 16));
  for (int i = 0; i < c->n; i++) {
    const PlanNode *n = column_node(e, c, i);
    Index result[PP_MAX_RANK], index[PP_MAX_RANK];
    memcpy(result, kept, sizeof *kept * (size_t)c->kept_axes);
    index_split(&e->space, column, c->column_axes, n->type.dims + c->kept_axes, result + c->kept_axes);
    kernel_operand_index(e, n, result, reduced, index);
    Val x = kernel_evaluate(e, n->in[0], index);
    const char *at = arena_printf(e->arena, "%s[%s][c]", c->lanes[i], row);
    kernel_line(e, s, "%s = %s;", at, kernel_combine_text(e, n, at, x.text));
  }
  const IndexAtom a = e->space.atoms.at[s->atom];
  const char *first = a.used ? arena_printf(e->arena, "const int64_t %s = %s + c;", a.name, start) : NULL;
  kernel_close_scope(e, s->has_loops ? NULL : "#pragma omp simd", arena_printf(e->arena, "for (int64_t c = 0; c < %lld; c++) ", (long long)(high - low > c->width ? c->width : high - low)), first);
}

static void column_rows(Emit *e, const Columns *c, const Index *kept, Index *reduced, int axis, const char *start, int64_t low, int64_t high) {
  if (axis == c->n_reduced) {
    column_row(e, c, kept, reduced, start, low, high);
    return;
  }
  Scope *s = kernel_open_loop(e, e->n_loops++, 0, c->reduced_dims[axis], c->reduced_dims[axis]);
  kernel_extend_path(e, 'k', c->outputs[0], axis);
  reduced[axis] = index_loop(&e->space, s->atom);
  column_rows(e, c, kept, reduced, axis + 1, start, low, high);
  kernel_close_loop(e, false);
}

/* Columns start … start + width - 1, where start lies in low … high - width. */
static void column_block(Emit *e, Columns *c, const Index *kept, const char *start, int64_t low, int64_t high) {
  int64_t width = high - low > c->width ? c->width : high - low;
  Scope *s = e->scope;
  for (int i = 0; i < c->n; i++) {
    const PlanNode *n = column_node(e, c, i);
    c->lanes[i] = kernel_fresh_name(e, arena_printf(e->arena, "%s_lane", kernel_base_name(e, e->k->outputs[c->outputs[i]])));
    if (!kernel_is_max(n)) kernel_line(e, s, "%s %s[16][%lld] = {{0}};", kernel_type(n->type.dtype), c->lanes[i], (long long)width);
    else {
      kernel_line(e, s, "%s %s[16][%lld];", kernel_type(n->type.dtype), c->lanes[i], (long long)width);
      kernel_line(e, s, "for (int lane = 0; lane < 16; lane++)");
      kernel_line(e, s, "  for (int64_t c = 0; c < %lld; c++) %s[lane][c] = %s;", (long long)width, c->lanes[i], kernel_least(n->type.dtype));
    }
  }
  Index reduced[PP_MAX_RANK];
  column_rows(e, c, kept, reduced, 0, start, low, high);
  for (int i = 0; i < c->n; i++) {
    const PlanNode *n = column_node(e, c, i);
    const char *out = e->names[e->k->n_inputs + c->outputs[i]];
    Index row = index_scale(&e->space, index_linear(&e->space, c->kept_axes, n->type.dims, kept), c->columns);
    bool no_row = row.n == 0 && row.constant == 0;
    kernel_print_line(s, "#pragma omp simd");
    kernel_line(e, s, "for (int64_t c = 0; c < %lld; c++) %s[%s%s%s + c] = pp_fold_%s_%s(&%s[0][c], %lld);", (long long)width, out,
         no_row ? "" : index_text(&e->space, row), no_row ? "" : " + ", start, kernel_is_max(n) ? "max" : "sum", pp_dtype_name(n->type.dtype),
         c->lanes[i], (long long)width);
  }
}

static void column_blocks(Emit *e, Columns *c, Index *kept, int axis) {
  const PlanType *t = output_type(e, c->outputs[0]);
  if (axis < c->kept_axes) {
    Scope *s = kernel_open_loop(e, e->n_loops++, 0, t->dims[axis], t->dims[axis]);
    kept[axis] = index_loop(&e->space, s->atom);
    column_blocks(e, c, kept, axis + 1);
    kernel_close_loop(e, false);
    return;
  }
  int64_t whole = c->columns / c->width * c->width;
  if (whole) {
    Scope *s = kernel_open_scope(e, false);
    const char *start = arena_printf(e->arena, "%s0", kernel_loop_name(e, s->depth));
    column_block(e, c, kept, start, 0, whole);
    kernel_close_scope(e, NULL, arena_printf(e->arena, "for (int64_t %s = 0; %s < %lld; %s += %lld) ", start, start, (long long)whole, start, (long long)c->width), NULL);
  }
  if (whole == c->columns) return;
  Scope *s = kernel_open_scope(e, false);
  (void)s;
  column_block(e, c, kept, arena_printf(e->arena, "%lld", (long long)whole), whole, c->columns);
  kernel_close_scope(e, NULL, "", NULL);
}

/* All outputs that are such sums over the same space as output `lead`. */
static void print_columns(Emit *e, int lead, bool *done) {
  Columns c = {0};
  int v = e->k->outputs[lead];
  const PlanNode *n = node_of(e, v);
  c.columns = n_columns(e, n, &c.column_axes);
  c.kept_axes = n->type.rank - c.column_axes;
  c.n_reduced = kernel_reduced_dims(e, n, c.reduced_dims);
  int largest = 4;
  for (int o = lead; o < e->k->n_outputs && c.n < MAX_JOINED; o++) {
    int axes, w = e->k->outputs[o];
    if (done[o] || !is_column_output(e, o, &axes) || !kernel_same_space(e, v, w)) continue;
    c.outputs[c.n++] = o;
    done[o] = true;
    if (pp_dtype_bytes(output_type(e, o)->dtype) > largest) largest = 8;
  }
  int64_t most = COLUMN_BYTES / 16 / largest / c.n / 16 * 16, blocks = (c.columns + most - 1) / most;
  c.width = ((c.columns + blocks - 1) / blocks + 15) / 16 * 16; /* blocks of nearly one width */
  if (c.width > c.columns) c.width = c.columns;
  Index kept[PP_MAX_RANK];
  column_blocks(e, &c, kept, 0);
}

/* --- random numbers: an array of them is filled before all loops ---------------------------------------------------------- */

static Val load_random(Emit *e, int v, Index linear) {
  kernel_note_access(e, linear);
  const char *text = arena_printf(e->arena, "%s[%s]", e->random[v], index_text(&e->space, linear));
  return kernel_define(e, index_depth(&e->space, linear), "float", arena_printf(e->arena, "%s_i", e->random[v]), text);
}

static const KernelForm form = {.index_type = "int64_t", .simd = "#pragma omp simd", .keeps_rows = true, .random = load_random};

/* --- the whole body ----------------------------------------------------------------------------------------------------------- */

static void print_randoms(Emit *e) {
  const PlanKernel *k = e->k;
  for (int v = k->n_inputs; v < k->n_inputs + k->n_nodes; v++) {
    const PlanNode *n = node_of(e, v);
    if (n->op != PLAN_OP_RANDOM) continue;
    int64_t count = plan_elements(&n->type);
    for (int o = 0; o < k->n_outputs && !e->random[v]; o++)
      if (k->outputs[o] == v) e->random[v] = e->names[k->n_inputs + o], e->random_output[o] = true;
    if (!e->random[v]) {
      if (count * 4 > BUFFER_BYTES) bug("kernel %s: random numbers inside must be few or an output", k->name);
      e->random[v] = kernel_fresh_name(e, kernel_base_name(e, v));
      kernel_line(e, e->scope, "float %s[%lld];", e->random[v], (long long)count);
    }
    kernel_line(e, e->scope, "pp_random_uniform(call, %lluu, %s, %lld);", (unsigned long long)n->attrs.integer, e->random[v], (long long)count);
  }
}

static void print_outputs(Emit *e) {
  bool *done = arena_alloc_array(e->arena, (size_t)e->k->n_outputs, sizeof *done);
  for (int o = 0; o < e->k->n_outputs; o++) done[o] = e->random_output[o];
  for (int o = 0; o < e->k->n_outputs; o++) {
    int axes;
    if (!done[o] && is_column_output(e, o, &axes)) print_columns(e, o, done);
  }
  for (;;) {
    int lead = -1;
    for (int o = 0; o < e->k->n_outputs; o++)
      if (!done[o] && (lead < 0 || plan_elements(output_type(e, o)) > plan_elements(output_type(e, lead)))) lead = o;
    if (lead < 0) return;
    print_nest(e, lead, done);
  }
}

/* In-place pairs need one nest in which the input is read where the output is written. */
static void check_in_place(const Emit *e) {
  const PlanKernel *k = e->k;
  for (int i = 0; i < k->n_in_place; i++) {
    const PlanType *out = output_type(e, k->in_place[2 * i]), *in = type_of(e, k->in_place[2 * i + 1]);
    if (plan_elements(out) != plan_elements(in) || out->dtype != in->dtype) bug("kernel %s: pair %d can't be one buffer", k->name, i);
  }
  for (int v = k->n_inputs; k->n_in_place && v < k->n_inputs + k->n_nodes; v++)
    if (kernel_ops[node_of(e, v)->op].class == CLASS_REDUCE) bug("kernel %s: a reduction and outputs in place", k->name);
}

static void start_pass(Emit *e) {
  static const char *const words[] = {"call", "lane", "c", "i", "j", "k", "l", "i0", "j0", "k0", "l0",
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto",
    "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "typedef", "union", "unsigned", "void", "volatile", "while", "kernels", "NAN", "INFINITY"};
  const PlanKernel *k = e->k;
  e->taken = (Texts){0};
  e->space = (IndexSpace){.arena = e->arena, .namer = kernel_name_quotient, .context = e};
  e->n_loops = 0;
  e->finished.n = 0;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) VEC_PUSH(e->arena, &e->taken, words[i]);
  for (int i = 0; i < k->n_inputs + k->n_outputs; i++) VEC_PUSH(e->arena, &e->taken, e->names[i]);
  e->random = arena_alloc_array(e->arena, (size_t)(k->n_inputs + k->n_nodes), sizeof *e->random);
  e->random_output = arena_alloc_array(e->arena, (size_t)k->n_outputs, sizeof *e->random_output);
  e->scope = NULL;
  kernel_open_scope(e, false);
}

/* Inputs that no output depends on (sliced away, multiplied by nothing). */
static void print_unused(Emit *e, Str *out) {
  for (int i = 0; i < e->k->n_inputs; i++)
    if (!kernel_count_mentions(str_text(&e->scope->text), e->names[i])) str_printf(out, "  (void)%s;\n", e->names[i]);
  if (e->k->uses_call && !kernel_count_mentions(str_text(&e->scope->text), "call")) str_puts(out, "  (void)call;\n");
}

void kernel_print_body(Arena *arena, Str *out, const PlanKernel *k, const char *const *names) {
  size_t n_values = (size_t)(k->n_inputs + k->n_nodes);
  Emit e = {.arena = arena, .form = &form, .k = k, .names = names};
  e.buffered = arena_alloc_array(arena, n_values, sizeof *e.buffered);
  kernel_count_reductions(&e);
  check_in_place(&e);
  for (int pass = 0; pass < 3; pass++) {
    e.final = pass == 2;
    e.demanded = (Texts){.at = e.demanded.at, .n = e.final ? e.demanded.n : 0, .cap = e.demanded.cap};
    start_pass(&e);
    print_randoms(&e);
    print_outputs(&e);
    kernel_print_unread(&e, e.scope);
    if (pass == 0) kernel_choose_buffers(&e);
    if (pass == 1) e.draft = arena_strndup(arena, str_text(&e.scope->text), e.scope->text.length);
    if (e.final) {
      str_puts(out, "{\n");
      print_unused(&e, out);
      str_append(out, str_text(&e.scope->text), e.scope->text.length);
      str_puts(out, "}\n");
    }
    str_free(&e.scope->text);
  }
}
