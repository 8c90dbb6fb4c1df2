/* fuse: groups the elementwise, reducing and moving ops of each task into kernels.
 *
 * In: task functions after `transfers`. Out: docs/ir.md. Ops merge greedily along their uses, in
 * program order, when the result is still one of the forms that code generation makes fast: a loop
 * over elements; rows with reductions over their trailing axes; sums over leading axes; moves with
 * what feeds only them. The order of groups is kept topological: a merge looks at the groups between
 * its two ends and moves those that depend on the first behind it, so that the pass is linear as long
 * as merges are local. Constants, reshapes, broadcasts and computations on single numbers cost
 * nothing and are made in every kernel that uses them. Bits don't change: the ops stay the same.
 * What it does not do: compute an expensive value twice; look across tasks. */
#include "compiler/fuse.h"

#include <string.h>

#include "compiler/compiler.h"

enum {
  MAX_NODES = 64,     /* real ops of one kernel */
  MAX_PINS = 40,      /* inputs and outputs */
  MAX_WEIGHT = 48,    /* ops of a virtual value */
  MAX_REGION = 256    /* groups that a merge may have to look at */
};

_Static_assert((int)MAX_PINS <= (int)IR_MAX_RUNS, "a call of a kernel may have inputs of as many types");

/* A member of a group reads another node's value, through virtual ops. */
typedef struct {
  int node;
  bool skewed;        /* element i of the reader isn't element i, or row i, of the value */
} Use;

typedef VEC(Use) Uses;
typedef VEC(int) Ints;

typedef struct {
  FuseTask t;
  Uses *reads;        /* per node: what it needs, virtual ops looked through */
  Uses *readers;      /* per node: who needs it; node n stands for the terminator */
  Ints *after;        /* per node: nodes that must have run before, besides those it reads */
  int *rank;          /* per group: its place in the order */
  int *mark;          /* per group: stamp of the last scan that reached it */
  int stamp;
} Fuser;

/* --- properties of ops ------------------------------------------------------------------------------- */

static bool is_fusable(OpId id) {
  if (id == OP_NONE) return false;
  OpClass c = op_class(id);
  return c == CLASS_MAP || c == CLASS_REDUCE || c == CLASS_MOVE || id == OP_CONSTANT || id == OP_IOTA || id == OP_RANDOM;
}

static bool is_costly(OpId id) {
  return id == OP_EXP || id == OP_LOG || id == OP_TANH || id == OP_ERF || id == OP_SIN || id == OP_COS || id == OP_POW;
}

static bool is_view(OpId id) { return id == OP_RESHAPE || id == OP_BROADCAST; }
static bool is_move(OpId id) { return op_class(id) == CLASS_MOVE && !is_view(id); }
static bool is_reduce(OpId id) { return op_class(id) == CLASS_REDUCE; }

static Value result(const FuseNode *n) { return op_result(n->op, 0); }

int fuse_node_of(const FuseTask *t, Value v) {
  Op owner = value_owner(v);
  return op_is_null(owner) ? -1 : (int)(intptr_t)ptrmap_get(&t->index, owner.ptr) - 1;
}

/* A broadcast that repeats whole rows' numbers along trailing axes, or a single number. */
static bool is_row_broadcast(Op op) {
  Type from = value_type(op_operand(op, 0)), to = value_type(op_result(op, 0));
  if (type_elements(from) == 1) return true;
  bool grown = false;
  for (int i = 0; i < type_rank(from); i++) {
    if (type_dim(from, i) != type_dim(to, i)) grown = true;
    else if (grown && type_dim(from, i) != 1) return false;
  }
  return true;
}

/* Reductions: over trailing axes (a number per row), or with columns left behind the last reduced axis. */
typedef struct {
  int64_t n_in, n_out;
  bool rows, columns;
} Reduction;

static Reduction reduction_of(Fuser *f, Op op) {
  Type t = value_type(op_operand(op, 0));
  int64_t n;
  const int64_t *axes = op_ints(f->t.arena, op, "axes", &n);
  Reduction r = {.n_in = type_elements(t), .n_out = type_elements(value_type(op_result(op, 0))), .rows = true};
  bool seen = false, after = false;
  for (int i = 0; i < type_rank(t); i++) {
    bool reduced = false;
    for (int64_t k = 0; k < n; k++) reduced |= axes[k] == i;
    if (type_dim(t, i) == 1) continue;
    if (reduced) seen = true, after = false;
    else if (seen) after = true, r.rows = false;
  }
  r.columns = after;
  return r;
}

/* --- nodes and their uses -------------------------------------------------------------------------------- */

static bool is_virtual(Fuser *f, const FuseNode *n, int *out_weight) {
  *out_weight = 1;
  for (int i = 0; i < op_n_operands(n->op); i++) {
    int k = fuse_node_of(&f->t, op_operand(n->op, i));
    if (k >= 0 && f->t.nodes[k].kind == NODE_VIRTUAL) *out_weight += f->t.nodes[k].weight;
  }
  if (*out_weight > MAX_WEIGHT) return false;
  if (n->id == OP_CONSTANT || n->id == OP_IOTA || is_view(n->id)) return true;
  if (n->elements != 1) return false;
  return op_class(n->id) == CLASS_MAP || n->id == OP_SLICE || n->id == OP_PERMUTE;
}

static void read_nodes(Fuser *f, bool enabled) {
  FuseTask *t = &f->t;
  OpVec ops = block_ops(t->arena, func_body(t->func));
  t->nodes = arena_alloc_array(t->arena, (size_t)ops.n, sizeof *t->nodes);
  for (int i = 0; i < ops.n && !op_is_return(ops.at[i]); i++) {
    FuseNode *n = &t->nodes[t->n++];
    *n = (FuseNode){.op = ops.at[i], .id = op_id(ops.at[i]), .group = -1};
    ptrmap_put(t->arena, &t->index, n->op.ptr, (void *)(intptr_t)t->n);
    if (op_n_results(n->op) > 0) n->elements = type_elements(value_type(result(n)));
    bool fusable = is_fusable(n->id);
    if (fusable && (enabled ? is_virtual(f, n, &n->weight) : n->id == OP_RESHAPE)) n->kind = NODE_VIRTUAL;
    else n->kind = fusable ? NODE_REAL : NODE_BOUNDARY;
  }
}

static bool changes_index(Op op, OpId id) { return id != OP_RESHAPE && !(id == OP_BROADCAST && is_row_broadcast(op)); }

/* Real and boundary nodes below value v, through virtual ones. */
static void collect_reads(Fuser *f, Uses *out, Value v, bool skewed) {
  int k = fuse_node_of(&f->t, v);
  if (k < 0) return;
  const FuseNode *n = &f->t.nodes[k];
  if (n->kind == NODE_VIRTUAL) {
    bool s = skewed || (op_class(n->id) == CLASS_MOVE && changes_index(n->op, n->id));
    for (int i = 0; i < op_n_operands(n->op); i++) collect_reads(f, out, op_operand(n->op, i), s);
    return;
  }
  for (int i = 0; i < out->n; i++)
    if (out->at[i].node == k) {
      out->at[i].skewed |= skewed;
      return;
    }
  Use use = {k, skewed};
  VEC_PUSH(f->t.arena, out, use);
}

/* What is no kernel needs the value itself: reshapes are followed, they stay in the task. */
static void need(Fuser *f, Value v) {
  int k = fuse_node_of(&f->t, v);
  while (k >= 0 && f->t.nodes[k].id == OP_RESHAPE && f->t.nodes[k].kind == NODE_VIRTUAL) k = fuse_node_of(&f->t, op_operand(f->t.nodes[k].op, 0));
  if (k >= 0 && f->t.nodes[k].kind == NODE_VIRTUAL) f->t.nodes[k].needed = true;
}

static void find_needed(Fuser *f) {
  for (int i = 0; i < f->t.n; i++)
    if (f->t.nodes[i].kind == NODE_BOUNDARY)
      for (int j = 0; j < op_n_operands(f->t.nodes[i].op); j++) need(f, op_operand(f->t.nodes[i].op, j));
  Op ret = func_return_op(f->t.func);
  for (int j = 0; j < op_n_operands(ret); j++) need(f, op_operand(ret, j));
}

static void read_uses(Fuser *f) {
  FuseTask *t = &f->t;
  f->reads = arena_alloc_array(t->arena, (size_t)t->n + 1, sizeof *f->reads);
  f->readers = arena_alloc_array(t->arena, (size_t)t->n + 1, sizeof *f->readers);
  for (int i = 0; i <= t->n; i++) {
    if (i < t->n && t->nodes[i].kind == NODE_VIRTUAL && !t->nodes[i].needed) continue;
    Op op = i < t->n ? t->nodes[i].op : func_return_op(t->func);
    bool skewed = i < t->n && t->nodes[i].kind == NODE_VIRTUAL && changes_index(op, t->nodes[i].id);
    for (int j = 0; j < op_n_operands(op); j++) collect_reads(f, &f->reads[i], op_operand(op, j), skewed);
    for (int j = 0; j < f->reads[i].n; j++) {
      Use use = {i, f->reads[i].at[j].skewed};
      VEC_PUSH(t->arena, &f->readers[f->reads[i].at[j].node], use);
    }
  }
}

/* Effects stay in their order, and behind the readers of what they change. */
static void order_effects(Fuser *f) {
  FuseTask *t = &f->t;
  f->after = arena_alloc_array(t->arena, (size_t)t->n + 1, sizeof *f->after);
  Map leaves = {0}; /* content → its leaves so far */
  int last = -1;
  for (int i = 0; i < t->n; i++) {
    const FuseNode *n = &t->nodes[i];
    if (n->kind != NODE_BOUNDARY || n->id == OP_NONE) continue;
    OpClass class = op_class(n->id);
    if (class != CLASS_LEAF && class != CLASS_EFFECT) continue;
    if (last >= 0) VEC_PUSH(t->arena, &f->after[i], last);
    const char *content = op_content(t->arena, n->op);
    Ints *known = content ? map_get(&leaves, content) : NULL;
    if (content && !known) {
      known = arena_alloc(t->arena, sizeof *known);
      map_put(t->arena, &leaves, content, known);
    }
    if (class == CLASS_LEAF && known) VEC_PUSH(t->arena, known, i);
    if (class == CLASS_LEAF) continue;
    for (int k = 0; known && k < known->n; k++) {
      const Uses *readers = &f->readers[known->at[k]];
      for (int r = 0; r < readers->n; r++)
        if (readers->at[r].node < i) VEC_PUSH(t->arena, &f->after[i], readers->at[r].node);
    }
    last = i;
  }
}

static void make_groups(Fuser *f) {
  FuseTask *t = &f->t;
  t->groups = arena_alloc_array(t->arena, (size_t)t->n + 1, sizeof *t->groups);
  t->order = arena_alloc_array(t->arena, (size_t)t->n + 1, sizeof *t->order);
  f->rank = arena_alloc_array(t->arena, (size_t)t->n + 1, sizeof *f->rank);
  f->mark = arena_alloc_array(t->arena, (size_t)t->n + 1, sizeof *f->mark);
  for (int i = 0; i < t->n; i++) {
    FuseNode *n = &t->nodes[i];
    if (n->kind == NODE_VIRTUAL && !n->needed) continue;
    int g = t->n_order;
    n->group = g;
    t->groups[g] = (FuseGroup){.n = 1, .nodes = arena_alloc(t->arena, sizeof(int))};
    t->groups[g].nodes[0] = i;
    t->order[g] = g;
    f->rank[g] = g;
    t->n_order++;
  }
}

/* --- may these ops be one kernel? ---------------------------------------------------------------------------- */

/* A set of nodes, ascending; member[] by node number is a stamp. */
typedef struct {
  int n;
  int nodes[MAX_NODES];
} Set;

static bool contains(const Set *s, int node) {
  for (int i = 0; i < s->n; i++)
    if (s->nodes[i] == node) return true;
  return false;
}

static bool leaves_set(const Fuser *f, const Set *s, int node) {
  const Uses *u = &f->readers[node];
  for (int i = 0; i < u->n; i++)
    if (!contains(s, u->at[i].node)) return true;
  return false;
}

/* True when the kernel would have more inputs and outputs than MAX_PINS. */
static bool has_many_pins(const Fuser *f, const Set *s) {
  int seen[MAX_PINS], n_seen = 0, n_outputs = 0;
  for (int i = 0; i < s->n; i++) {
    n_outputs += leaves_set(f, s, s->nodes[i]);
    const Uses *r = &f->reads[s->nodes[i]];
    for (int j = 0; j < r->n; j++) {
      bool known = contains(s, r->at[j].node);
      for (int k = 0; k < n_seen && !known; k++) known = seen[k] == r->at[j].node;
      if (known) continue;
      if (n_seen + n_outputs >= MAX_PINS) return true;
      seen[n_seen++] = r->at[j].node;
    }
  }
  return false;
}

/* Sums over leading axes: everything else feeds only them. */
static bool fits_columns(Fuser *f, const Set *s, Op first) {
  Type t = value_type(op_operand(first, 0));
  int64_t n, m;
  const int64_t *axes = op_ints(f->t.arena, first, "axes", &n);
  for (int i = 0; i < s->n; i++) {
    const FuseNode *x = &f->t.nodes[s->nodes[i]];
    for (int j = 0; j < f->reads[s->nodes[i]].n; j++) {
      Use u = f->reads[s->nodes[i]].at[j];
      if (contains(s, u.node) && (u.skewed || is_reduce(f->t.nodes[u.node].id))) return false;
    }
    if (!is_reduce(x->id)) {
      if (leaves_set(f, s, s->nodes[i]) || is_move(x->id) || x->elements > type_elements(t)) return false;
      if (is_costly(x->id) && x->elements < type_elements(t)) return false;
      continue;
    }
    Type u = value_type(op_operand(x->op, 0));
    const int64_t *other = op_ints(f->t.arena, x->op, "axes", &m);
    if (type_rank(u) != type_rank(t) || n != m || memcmp(axes, other, sizeof *axes * (size_t)n)) return false;
    for (int k = 0; k < type_rank(t); k++)
      if (type_dim(u, k) != type_dim(t, k)) return false;
  }
  return true;
}

/* Rows: values of `full` elements, numbers per row (`rows` of them), single numbers. */
static bool fits_rows(Fuser *f, const Set *s, int64_t full, int64_t rows) {
  for (int i = 0; i < s->n; i++) {
    const FuseNode *x = &f->t.nodes[s->nodes[i]];
    if (is_move(x->id) || x->id == OP_RANDOM) return false;
    if (is_reduce(x->id)) {
      Reduction r = reduction_of(f, x->op);
      if (!r.rows || r.n_in != full || r.n_out != rows) return false;
    } else if (x->elements != full && x->elements != rows && x->elements != 1) {
      return false;
    }
    for (int j = 0; j < f->reads[s->nodes[i]].n; j++) {
      Use u = f->reads[s->nodes[i]].at[j];
      if (u.skewed && contains(s, u.node)) return false;
    }
  }
  return true;
}

/* Nodes that a move of the set reads, and what feeds them: only moves may use them. */
static bool fits_moves(Fuser *f, const Set *s) {
  bool under[MAX_NODES] = {false};
  int movers = 0;
  bool costly = false;
  for (int i = s->n - 1; i >= 0; i--) {
    int v = s->nodes[i];
    bool direct = leaves_set(f, s, v);
    for (int j = 0; j < f->readers[v].n; j++) {
      for (int k = i + 1; k < s->n; k++) {
        if (s->nodes[k] != f->readers[v].at[j].node) continue;
        if (f->readers[v].at[j].skewed) return false;
        if (is_move(f->t.nodes[s->nodes[k]].id)) movers++, under[i] = true;
        else if (under[k]) under[i] = true;
        else direct = true;
      }
    }
    if (under[i] && direct) return false;
    const FuseNode *x = &f->t.nodes[v];
    if (x->id == OP_RANDOM || is_reduce(x->id)) return false;
    costly |= under[i] && is_costly(x->id);
    if (under[i] || is_move(x->id)) continue;
    for (int j = 0; j < f->reads[v].n; j++)
      if (contains(s, f->reads[v].at[j].node) && f->t.nodes[f->reads[v].at[j].node].elements != x->elements) return false;
  }
  return !costly || movers <= 1;
}

static bool fits(Fuser *f, const Set *s) {
  int64_t full = 1, rows = 0;
  bool moves = false, columns = false;
  Op first = {0};
  for (int i = 0; i < s->n; i++) {
    const FuseNode *x = &f->t.nodes[s->nodes[i]];
    if (x->kind == NODE_BOUNDARY || (x->kind == NODE_VIRTUAL && s->n > 1)) return false;
    moves |= is_move(x->id);
    int64_t n = x->elements;
    if (is_reduce(x->id)) {
      Reduction r = reduction_of(f, x->op);
      if (!r.rows && !r.columns) return false;
      if (r.columns) columns = true, first = x->op;
      else rows = r.n_out;
      n = r.n_in;
    }
    if (n > full) full = n;
  }
  if (has_many_pins(f, s)) return false;
  if (columns) return rows == 0 && fits_columns(f, s, first);
  if (moves) return rows == 0 && fits_moves(f, s);
  if (rows) return fits_rows(f, s, full, rows);
  for (int i = 0; i < s->n; i++) { /* a loop, perhaps with numbers per row */
    int64_t n = f->t.nodes[s->nodes[i]].elements;
    if (n == full || n == 1) continue;
    if (rows && n != rows) return false;
    rows = n;
  }
  return fits_rows(f, s, full, rows ? rows : full);
}

/* --- merging --------------------------------------------------------------------------------------------------- */

static bool reads_marked(const Fuser *f, int group, int stamp) {
  const FuseGroup *g = &f->t.groups[group];
  for (int i = 0; i < g->n; i++) {
    int v = g->nodes[i];
    for (int j = 0; j < f->reads[v].n; j++)
      if (f->mark[f->t.nodes[f->reads[v].at[j].node].group] == stamp) return true;
    for (int j = 0; j < f->after[v].n; j++) {
      int other = f->t.nodes[f->after[v].at[j]].group;
      if (other >= 0 && f->mark[other] == stamp) return true;
    }
  }
  return false;
}

static void renumber(Fuser *f, int from, int n, const int *groups) {
  for (int i = 0; i < n; i++) {
    f->t.order[from + i] = groups[i];
    f->rank[groups[i]] = from + i;
  }
}

static bool is_among(int n, const int *groups, int g) {
  for (int i = 0; i < n; i++)
    if (groups[i] == g) return true;
  return false;
}

/* Puts the groups side by side in the order; false when one of them depends on another through a third. */
static bool bring_together(Fuser *f, int n, const int *groups) {
  int low = f->rank[groups[0]], high = low;
  for (int i = 1; i < n; i++) {
    if (f->rank[groups[i]] < low) low = f->rank[groups[i]];
    if (f->rank[groups[i]] > high) high = f->rank[groups[i]];
  }
  if (high - low > MAX_REGION) return false;
  int before[MAX_REGION + 1], middle[MAX_NODES], behind[MAX_REGION + 1], n_before = 0, n_middle = 0, n_behind = 0;
  int inside = ++f->stamp, dependent = ++f->stamp;
  for (int r = low; r <= high; r++) {
    int g = f->t.order[r];
    if (is_among(n, groups, g)) {
      if (reads_marked(f, g, dependent)) return false;
      f->mark[g] = inside;
      middle[n_middle++] = g;
    } else if (reads_marked(f, g, inside) || reads_marked(f, g, dependent)) {
      f->mark[g] = dependent;
      behind[n_behind++] = g;
    } else {
      before[n_before++] = g;
    }
  }
  renumber(f, low, n_before, before);
  renumber(f, low + n_before, n_middle, middle);
  renumber(f, low + n_before + n_middle, n_behind, behind);
  return true;
}

static void sort(int n, int *v) {
  for (int i = 1; i < n; i++)
    for (int j = i; j > 0 && v[j - 1] > v[j]; j--) {
      int s = v[j];
      v[j] = v[j - 1], v[j - 1] = s;
    }
}

/* Makes one group of several, if the result fits and nothing has to run between them. */
static bool merge(Fuser *f, int n, const int *groups) {
  Set s = {0};
  for (int i = 0; i < n; i++) {
    const FuseGroup *g = &f->t.groups[groups[i]];
    if (s.n + g->n > MAX_NODES) return false;
    for (int k = 0; k < g->n; k++) s.nodes[s.n++] = g->nodes[k];
  }
  sort(s.n, s.nodes);
  if (!fits(f, &s) || !bring_together(f, n, groups)) return false;
  int keep = groups[0], place = f->rank[keep];
  for (int i = 1; i < n; i++)
    if (f->rank[groups[i]] < place) place = f->rank[groups[i]];
  FuseGroup *g = &f->t.groups[keep];
  g->n = s.n;
  g->nodes = arena_alloc_array(f->t.arena, (size_t)s.n, sizeof(int));
  memcpy(g->nodes, s.nodes, sizeof(int) * (size_t)s.n);
  for (int i = 0; i < s.n; i++) f->t.nodes[s.nodes[i]].group = keep;
  f->t.order[place] = keep;
  f->rank[keep] = place;
  for (int i = 1; i < n; i++) { /* emptied ones keep their place in the order */
    f->t.order[place + i] = groups[i] == keep ? keep : groups[i];
    f->rank[groups[i]] = place + i;
    f->t.groups[groups[i]].n = 0;
  }
  return true;
}

static void try_pair(Fuser *f, int a, int b) {
  int ga = f->t.nodes[a].group, gb = f->t.nodes[b].group;
  if (ga >= 0 && gb >= 0 && ga != gb) merge(f, 2, (int[]){ga, gb});
}

/* A value that only moves use, with all of them. */
static void try_moves(Fuser *f, int v) {
  int groups[MAX_NODES], n = 0;
  groups[n++] = f->t.nodes[v].group;
  for (int i = 0; i < f->readers[v].n; i++) {
    int r = f->readers[v].at[i].node;
    if (r == f->t.n || f->t.nodes[r].kind != NODE_REAL || !is_move(f->t.nodes[r].id)) return;
    if (!is_among(n, groups, f->t.nodes[r].group) && n < MAX_NODES) groups[n++] = f->t.nodes[r].group;
  }
  if (n > 2) merge(f, n, groups);
}

/* Column sums that read the same value share a kernel. */
static void try_columns(Fuser *f, int v) {
  for (int i = 0; i < f->reads[v].n; i++) {
    int x = f->reads[v].at[i].node;
    for (int j = 0; j < f->readers[x].n; j++) {
      int r = f->readers[x].at[j].node;
      if (r >= v || f->t.nodes[r].kind != NODE_REAL) continue;
      const FuseGroup *g = &f->t.groups[f->t.nodes[r].group];
      for (int k = 0; k < g->n; k++)
        if (is_reduce(f->t.nodes[g->nodes[k]].id) && reduction_of(f, f->t.nodes[g->nodes[k]].op).columns) {
          try_pair(f, v, r);
          break;
        }
    }
  }
}

static void merge_all(Fuser *f) {
  for (int v = 0; v < f->t.n; v++) {
    if (f->t.nodes[v].kind != NODE_REAL) continue;
    for (int i = f->reads[v].n - 1; i >= 0; i--) {
      int x = f->reads[v].at[i].node;
      if (f->t.nodes[x].kind == NODE_REAL) try_pair(f, v, x);
    }
    for (int i = 0; i < f->reads[v].n && is_move(f->t.nodes[v].id); i++) {
      int x = f->reads[v].at[i].node;
      if (f->t.nodes[x].kind == NODE_REAL && VEC_LAST(&f->readers[x]).node == v) try_moves(f, x);
    }
    if (is_reduce(f->t.nodes[v].id) && reduction_of(f, f->t.nodes[v].op).columns) try_columns(f, v);
  }
}

/* --- the pass ------------------------------------------------------------------------------------------------------ */

static bool uses_outside(const FuseTask *t, Value v, int group, int depth) {
  OpVec users = value_users(t->arena, v);
  for (int i = 0; i < users.n; i++) {
    int k = (int)(intptr_t)ptrmap_get(&t->index, users.at[i].ptr) - 1;
    if (k < 0) return true;
    const FuseNode *n = &t->nodes[k];
    if (n->kind == NODE_VIRTUAL) {
      if (n->needed && n->group != group) return true;
      if (uses_outside(t, op_result(n->op, 0), group, depth + 1)) return true;
    } else if (n->group != group) {
      return true;
    }
  }
  return false;
}

bool fuse_is_outside_use(const FuseTask *t, Value v, int group) { return uses_outside(t, v, group, 0); }

static void fuse_task(Ir *ir, Arena *arena, Op func, bool enabled, FuseKernels *kernels) {
  Fuser f = {.t = {.ir = ir, .arena = arena, .func = func}};
  read_nodes(&f, enabled);
  find_needed(&f);
  read_uses(&f);
  order_effects(&f);
  make_groups(&f);
  if (enabled) merge_all(&f);
  fuse_rewrite(&f.t, kernels);
}

bool fuse_run(Ir *ir, bool enabled) {
  Arena *arena = arena_create();
  FuseKernels kernels = {0};
  OpVec top = block_ops(arena, ir_body(ir));
  for (int i = 0; i < top.n; i++) {
    if (op_int(top.at[i], "pp.stage", -1) < 0 || op_is_func(top.at[i]) || op_id(top.at[i]) != OP_NONE) continue;
    OpVec funcs = ir_funcs(arena, top.at[i]);
    for (int k = 0; k < funcs.n; k++) fuse_task(ir, arena, funcs.at[k], enabled, &kernels);
  }
  arena_destroy(arena);
  return true;
}
