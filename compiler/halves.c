/* What bwd_input hands to bwd_weight: as few bytes as the graph allows.
 *
 * In: the nodes of a stage with their halves and the forward's stashes chosen. Out: ops of the weight half
 * that move to bwd_input (`home`), ops that the weight half makes again (`again`), forward results that
 * bwd_input makes and saves (`saved`); what is left to cross is stashed between the halves.
 *
 * A minimum cut. Each value is a node whose capacity is its bytes. The weight half must have the operands
 * of what only it may do: accumulations, products, the library's kernels, transcendental functions. It gets
 * a value by keeping it, or by computing it from operands that it gets: its own ops, reshapes and
 * broadcasts, and cheap elementwise ops and moves of the other tasks, so edges run from operands to
 * results. Forward stashes, values of other stages, and what bwd_input alone can make come from the source.
 * Cheap ops of the weight half with nothing costly before them may as well run in bwd_input, which pays
 * where they make their operands smaller (sums for biases and norms). Among equal cuts the nearest to the
 * source: the weight half does what it can, for bwd_input is what others wait for. No op gets other
 * operands or another order within its task, so bits stay. */
#include "compiler/compiler.h"
#include "compiler/flow.h"
#include "compiler/split.h"

typedef struct {
  Split *s;
  int stage;
  VEC(Value) values;  /* vertices: 2 + 2i takes in value i, 3 + 2i hands it on */
  PtrMap number;      /* value → i + 1 */
  PtrMap fixed;       /* ops of the weight half that stay there */
  Flow *flow;
} Halves;

enum { SOURCE, SINK };

static bool is_cheap(const Node *n) {
  OpId id = op_id(n->op);
  return (op_class(id) == CLASS_MAP && !split_is_transcendental(id)) || op_class(id) == CLASS_MOVE;
}

static bool is_here(const Halves *h, const Node *n) { return n->stage == h->stage; }

/* Must the weight half do it? Its operands come first. */
static bool is_fixed(const Halves *h, const Node *n) {
  if (!is_here(h, n) || n->home != PP_BWD_WEIGHT || n->is_light) return false;
  return ptrmap_get(&h->fixed, n->op.ptr) != NULL;
}

static void find_fixed(Halves *h, const NodeVec *weight) {
  for (int i = 0; i < weight->n; i++) {
    const Node *n = weight->at[i];
    bool fixed = !is_cheap(n) && op_class(op_id(n->op)) != CLASS_REDUCE;
    for (int k = 0; k < op_n_operands(n->op) && !fixed; k++) fixed = is_fixed(h, split_node(h->s, op_operand(n->op, k)));
    if (fixed) ptrmap_put(h->s->tmp, &h->fixed, n->op.ptr, weight->at[i]);
  }
}

/* Can the weight half compute it from its operands? */
static bool is_computable(const Halves *h, const Node *n) {
  if (!is_here(h, n)) return false;
  if (n->home == PP_BWD_WEIGHT) return true;
  return n->home == PP_FWD ? n->remake == ALWAYS : is_cheap(n);
}

static bool leaves_stage(Split *s, Value v, int stage) {
  OpVec users = value_users(s->tmp, v);
  for (int i = 0; i < users.n; i++)
    if (op_stage(users.at[i]) != stage) return true;
  return false;
}

/* A forward result that other stages use too is made by the forward: bwd_input can't be its maker. */
static int64_t capacity_of(const Halves *h, const Node *n, Value v) {
  bool remade = is_here(h, n) && n->home == PP_FWD && n->remake == ALWAYS;
  return remade && leaves_stage(h->s, v, h->stage) ? FLOW_ENDLESS : type_bytes(value_type(v));
}

/* The vertex of a value; on first sight it and what it can be computed from are to be entered. */
static int vertex(Halves *h, Value v) {
  int known = (int)(intptr_t)ptrmap_get(&h->number, v.ptr);
  if (known) return 2 * known;
  VEC_PUSH(h->s->tmp, &h->values, v);
  ptrmap_put(h->s->tmp, &h->number, v.ptr, (void *)(intptr_t)h->values.n);
  return 2 * h->values.n;
}

static bool is_free(const Halves *h, Value v) { return split_node(h->s, v)->is_light; }

/* Edges as pairs of vertices, made before their number is known. */
typedef struct {
  int from, to;
  int64_t capacity;
} Edge;
typedef VEC(Edge) Edges;

static void enter_value(Halves *h, Edges *edges, int i) {
  Value v = h->values.at[i];
  const Node *n = split_node(h->s, v);
  int in = 2 + 2 * i, out = in + 1;
  Arena *tmp = h->s->tmp;
  VEC_PUSH(tmp, edges, (Edge){in, out, capacity_of(h, n, v)});
  if (!is_computable(h, n)) VEC_PUSH(tmp, edges, (Edge){SOURCE, in, FLOW_ENDLESS});
  for (int k = 0; is_computable(h, n) && k < op_n_operands(n->op); k++)
    if (!is_free(h, op_operand(n->op, k))) VEC_PUSH(tmp, edges, (Edge){vertex(h, op_operand(n->op, k)) + 1, in, FLOW_ENDLESS});
}

/* The graph behind all that the fixed ops need. What a fixed op makes is there. */
static void build_graph(Halves *h, const NodeVec *weight) {
  Edges edges = {0};
  Arena *tmp = h->s->tmp;
  for (int i = 0; i < weight->n; i++) {
    if (!is_fixed(h, weight->at[i])) continue;
    for (int k = 0; k < op_n_operands(weight->at[i]->op); k++) {
      Value v = op_operand(weight->at[i]->op, k);
      if (!is_free(h, v) && !is_fixed(h, split_node(h->s, v))) VEC_PUSH(tmp, &edges, (Edge){vertex(h, v) + 1, SINK, FLOW_ENDLESS});
    }
  }
  for (int i = 0; i < h->values.n; i++) enter_value(h, &edges, i);
  h->flow = flow_create(tmp, 2 + 2 * h->values.n);
  for (int i = 0; i < edges.n; i++) flow_add(h->flow, edges.at[i].from, edges.at[i].to, edges.at[i].capacity);
}

/* Moves an op to bwd_input with what it needs; what lies behind the cut the weight half computes again. */
static void move(Halves *h, Node *moved) {
  NodeVec stack = {0};
  Arena *tmp = h->s->tmp;
  VEC_PUSH(tmp, &stack, moved);
  while (stack.n) {
    Node *n = VEC_POP(&stack);
    if (n->home != PP_BWD_WEIGHT) continue;
    n->home = PP_BWD_INPUT;
    for (int k = 0; k < op_n_operands(n->op); k++) {
      Node *from = split_node(h->s, op_operand(n->op, k));
      if (is_here(h, from) && from->home == PP_BWD_WEIGHT && !from->is_light) VEC_PUSH(tmp, &stack, from);
    }
  }
}

/* Before the cut: bwd_input has it. Behind it: the weight half computes it. */
static void apply(Halves *h) {
  for (int i = 0; i < h->values.n; i++) {
    Node *n = split_node(h->s, h->values.at[i]);
    bool before = flow_is_before_cut(h->flow, 2 + 2 * i), handed_on = before && !flow_is_before_cut(h->flow, 3 + 2 * i);
    if (!is_here(h, n)) continue;
    n->saved = n->home == PP_FWD && n->remake == ALWAYS && handed_on;
    n->again = !before;
  }
  for (int i = 0; i < h->values.n; i++) {
    Node *n = split_node(h->s, h->values.at[i]);
    if (is_here(h, n) && n->home == PP_BWD_WEIGHT && !n->again) move(h, n);
  }
}

/* Lists of ops stay in program order, which is that of the nodes. */
static void move_homes(Halves *h, NodeVec *input, NodeVec *weight) {
  NodeVec all = {0}, both[2] = {{0}, {0}};
  int i = 0, k = 0;
  while (i < input->n || k < weight->n) {
    bool from_input = k == weight->n || (i < input->n && input->at[i] < weight->at[k]);
    VEC_PUSH(h->s->tmp, &all, from_input ? input->at[i++] : weight->at[k++]);
  }
  for (int j = 0; j < all.n; j++) VEC_PUSH(h->s->tmp, &both[all.at[j]->home == PP_BWD_WEIGHT], all.at[j]);
  *input = both[0];
  *weight = both[1];
}

void halves_choose(Split *s, int stage) {
  NodeVec *forward = split_home(s, stage, PP_FWD);
  NodeVec *input = split_home(s, stage, PP_BWD_INPUT), *weight = split_home(s, stage, PP_BWD_WEIGHT);
  for (int i = 0; i < forward->n; i++) forward->at[i]->again = forward->at[i]->remake == ALWAYS;
  if (!input->n || !weight->n) return; /* nothing runs between forward and weights */
  Halves h = {.s = s, .stage = stage};
  find_fixed(&h, weight);
  build_graph(&h, weight);
  if (flow_run(h.flow, SOURCE, SINK) >= FLOW_ENDLESS) bug("stage %d: no cut between the halves", stage);
  apply(&h);
  move_homes(&h, input, weight);
}
