/* A stage for every op, and what each parameter is in each stage.
 *
 * In: @microbatch, where each op has the stage that was open when it was traced (backward ops: that
 * of the op they belong to), and @step with the loop. Out: reads of data and parameters, and what
 * depends on constants, random numbers, data and parameters alone, have a copy in each stage that uses
 * them, at the place of the original, so that the program order within a stage does not depend on
 * the cut; `pp.weight_half` on the ops of bwd_weight; owner, users and accumulators of each
 * parameter; finish, decision and update behind the loop (update.c).
 *
 * Two linear walks: against the program order each op tells its operands where they are needed, in
 * program order the copies are made. Work that shrinks a parameter (the sum of its squares) and products
 * stay where they are: their results are sent. */
#include <stdlib.h>
#include <string.h>

#include "compiler/compiler.h"

/* --- localize ------------------------------------------------------------------------ */

typedef struct {
  int stage;
  Op op;
} Copy;

typedef struct {
  Op op;
  int stage;
  bool moves;             /* has copies where it is used */
  bool mobile;            /* so may what depends on it */
  bool free;              /* follows from constants alone */
  bool reads_data;
  int64_t param_elements; /* of the largest parameter that it depends on */
  VEC(Copy) copies;
} Site;

typedef struct {
  Ir *ir;
  Arena *tmp;
  int64_t n_microbatches;
  int n;
  Site *sites;
  PtrMap index; /* op → Site */
} Localize;

static Site *site_of(Localize *l, Value v) { return ptrmap_get(&l->index, value_owner(v).ptr); }

static int64_t result_elements(Op op) {
  int64_t n = 0;
  for (int i = 0; i < op_n_results(op); i++) n += type_elements(value_type(op_result(op, i)));
  return n;
}

/* Not worth doing twice. */
static bool is_heavy(OpId id) {
  return op_class(id) == CLASS_PRODUCT || (op_class(id) == CLASS_SPECIAL && id != OP_GATHER);
}

/* Of the backward pass only what follows from constants moves: an adjoint that happens to depend on
 * parameters alone stays in the stage of its op. */
static void classify(Localize *l, Site *s) {
  OpId id = op_id(s->op);
  bool pure = op_traits(id) & TRAIT_PURE, is_leaf = op_class(id) == CLASS_LEAF;
  s->mobile = pure && !is_heavy(id);
  s->free = is_leaf ? op_traits(id) & TRAIT_FREE : pure;
  s->reads_data = id == OP_DATA;
  s->param_elements = id == OP_PARAM ? result_elements(s->op) : 0;
  for (int i = 0; i < op_n_operands(s->op); i++) {
    Site *from = site_of(l, op_operand(s->op, i));
    s->mobile = s->mobile && from->mobile;
    s->free = s->free && from->free;
    s->reads_data = s->reads_data || from->reads_data;
    if (from->param_elements > s->param_elements) s->param_elements = from->param_elements;
  }
  if (s->reads_data && s->param_elements > 0) s->mobile = false; /* an activation */
  if (op_unit(s->op, "pp.backward")) s->mobile = s->mobile && s->free;
  /* A parameter's copy moves once a step, a value once a microbatch. */
  if (result_elements(s->op) < s->param_elements / l->n_microbatches) s->mobile = false;
  s->moves = s->mobile;
}

static void demand(Localize *l, Value v, int stage) {
  Site *s = site_of(l, v);
  if (!s->moves) return;
  for (int i = s->copies.n - 1; i >= 0; i--)
    if (s->copies.at[i].stage == stage) return;
  VEC_PUSH(l->tmp, &s->copies, (Copy){.stage = stage});
}

static void demand_operands(Localize *l, Site *s) {
  for (int i = 0; i < op_n_operands(s->op); i++) {
    if (!s->moves) demand(l, op_operand(s->op, i), s->stage);
    for (int k = 0; k < s->copies.n; k++) demand(l, op_operand(s->op, i), s->copies.at[k].stage);
  }
}

static int by_stage(const void *a, const void *b) {
  return ((const Copy *)a)->stage - ((const Copy *)b)->stage;
}

static Op copy_in(const Site *s, int stage) {
  Copy key = {.stage = stage};
  Copy *found = bsearch(&key, s->copies.at, (size_t)s->copies.n, sizeof key, by_stage);
  if (!found) bug("no copy of %s in stage %d", op_name(op_id(s->op)), stage);
  return found->op;
}

/* Operands that moved are read from their copies in `stage`. */
static void rewire(Localize *l, const Value *operands, Op op, int stage) {
  for (int i = 0; i < op_n_operands(op); i++) {
    Site *from = site_of(l, operands[i]);
    if (from->moves) op_set_operand(op, i, op_result(copy_in(from, stage), value_index(operands[i])));
  }
}

/* The first copy is the op itself; the others stand before it. */
static void make_copies(Localize *l, Site *s, const Value *operands) {
  Builder b = {.ir = l->ir, .block = op_block(s->op), .before = s->op, .stage = -1};
  PtrMap none = {0};
  qsort(s->copies.at, (size_t)s->copies.n, sizeof *s->copies.at, by_stage);
  for (int k = s->copies.n - 1; k >= 0; k--) {
    Copy *c = &s->copies.at[k];
    c->op = k ? op_clone_into(&b, s->op, &none) : s->op;
    if (op_stage(c->op) != c->stage) op_set_stage(l->ir, c->op, c->stage);
    rewire(l, operands, c->op, c->stage);
  }
}

static void place(Localize *l, Site *s) {
  int n = op_n_operands(s->op);
  Value *operands = arena_alloc_array(l->tmp, (size_t)n, sizeof *operands);
  for (int i = 0; i < n; i++) operands[i] = op_operand(s->op, i);
  if (s->moves)
    make_copies(l, s, operands);
  else
    rewire(l, operands, s->op, s->stage);
}

void stages_localize(Ir *ir, Op func) {
  Localize l = {.ir = ir, .tmp = arena_create(), .n_microbatches = op_int(ir_top(ir), "pp.microbatches", 1)};
  OpVec ops = block_ops(l.tmp, func_body(func));
  l.sites = arena_alloc_array(l.tmp, (size_t)ops.n, sizeof *l.sites);
  for (int i = 0; i < ops.n && !op_is_return(ops.at[i]); i++) {
    Site *s = &l.sites[l.n++];
    *s = (Site){.op = ops.at[i], .stage = op_stage(ops.at[i])};
    ptrmap_put(l.tmp, &l.index, s->op.ptr, s);
    classify(&l, s);
  }
  for (int i = l.n - 1; i >= 0; i--) demand_operands(&l, &l.sites[i]);
  for (int i = 0; i < l.n; i++)
    if (!l.sites[i].moves || l.sites[i].copies.n) place(&l, &l.sites[i]);
  for (int i = l.n - 1; i >= 0; i--)
    if (l.sites[i].moves && !l.sites[i].copies.n) op_erase(l.sites[i].op);
  arena_destroy(l.tmp);
}

/* --- halves ---------------------------------------------------------------------------- */

static bool is_accumulation(OpId id) {
  return id == OP_ACCUMULATE || id == OP_MATMUL_ACCUMULATE || id == OP_SCATTER_ACCUMULATE;
}

/* All that uses op is in its stage's bwd_weight. */
static bool only_feeds_weights(Arena *tmp, Op op) {
  for (int r = 0; r < op_n_results(op); r++) {
    OpVec users = value_users(tmp, op_result(op, r));
    for (int i = 0; i < users.n; i++)
      if (!op_unit(users.at[i], "pp.weight_half") || op_stage(users.at[i]) != op_stage(op)) return false;
  }
  return true;
}

/* Against the program order: an accumulation, or what leads to nothing but those of its stage and is
 * no adjoint of an activation. */
static void mark_halves(Ir *ir, Op func) {
  Arena *tmp = arena_create();
  OpVec ops = block_ops(tmp, func_body(func));
  for (int i = ops.n - 1; i >= 0; i--) {
    Op op = ops.at[i];
    if (!op_unit(op, "pp.backward")) continue;
    bool weight = is_accumulation(op_id(op)) || (!op_unit(op, "pp.adjoint") && only_feeds_weights(tmp, op));
    if (weight) op_set_unit(ir, op, "pp.weight_half");
    op_remove_attr(op, "pp.adjoint");
  }
  arena_destroy(tmp);
}

/* --- parameters --------------------------------------------------------------------------- */

typedef struct {
  bool uses, accumulates;
} Role;

/* roles[stage] of one parameter; null where nothing names it. */
static Role *roles_of(Arena *tmp, Map *parameters, const char *name, int n_stages) {
  Role *roles = map_get(parameters, name);
  if (!roles) {
    roles = arena_alloc_array(tmp, (size_t)n_stages, sizeof *roles);
    map_put(tmp, parameters, name, roles);
  }
  return roles;
}

static void find_roles(Arena *tmp, Op func, Map *parameters, int n_stages) {
  OpVec ops = block_ops(tmp, func_body(func));
  for (int i = 0; i < ops.n; i++) {
    OpId id = op_id(ops.at[i]);
    if (id != OP_PARAM && !is_accumulation(id)) continue;
    Role *roles = roles_of(tmp, parameters, op_string(tmp, ops.at[i], "param"), n_stages);
    Role *role = &roles[op_stage(ops.at[i])];
    role->uses = true;
    role->accumulates = role->accumulates || id != OP_PARAM;
  }
}

static void describe_parameter(Ir *ir, Op p, const char *name, const Role *roles, int n_stages, bool trains) {
  int64_t used[n_stages], accumulated[n_stages];
  int n_used = 0, n_accumulated = 0;
  for (int s = 0; s < n_stages && roles; s++) {
    if (roles[s].uses) used[n_used++] = s;
    if (roles[s].accumulates) accumulated[n_accumulated++] = s;
  }
  op_set_int(ir, p, "owner", n_used ? used[0] : 0);
  op_set_ints(ir, p, "stages", n_used, used);
  op_set_ints(ir, p, "accumulators", n_accumulated, accumulated);
  if (!trains || n_accumulated) return;
  if (n_used)
    diag_warning(ir_diag(ir), op_loc(ir, p), "the loss does not depend on parameter '%s': it keeps its initial value", name);
  else
    diag_warning(ir_diag(ir), op_loc(ir, p), "parameter '%s' is not used: it keeps its initial value", name);
}

static void describe_parameters(Ir *ir, Op func, bool trains) {
  Arena *tmp = arena_create();
  Map parameters = {0};
  int n_stages = (int)op_int(ir_top(ir), "pp.stages", 1);
  find_roles(tmp, func, &parameters, n_stages);
  OpVec ops = block_ops(tmp, ir_body(ir));
  for (int i = 0; i < ops.n; i++) {
    if (op_id(ops.at[i]) != OP_PARAMETER) continue;
    const char *name = op_string(tmp, ops.at[i], "sym");
    describe_parameter(ir, ops.at[i], name, map_get(&parameters, name), n_stages, trains);
  }
  arena_destroy(tmp);
}

/* Without a loss (generation) nothing trains and there is nothing after the loop. */
bool stages_run(Ir *ir) {
  Op microbatch = func_find(ir, ir_top(ir), "microbatch");
  if (op_is_null(microbatch)) bug("no @microbatch");
  Arena *tmp = arena_create();
  bool trains = ir_ops(tmp, microbatch, OP_LOSS).n > 0;
  arena_destroy(tmp);
  stages_localize(ir, microbatch);
  mark_halves(ir, microbatch);
  describe_parameters(ir, microbatch, trains);
  return !trains || update_build(ir);
}
