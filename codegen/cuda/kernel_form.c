/* Values on the device, where they aren't made as on the CPU: four neighbouring elements come with one load,
 * random numbers are functions of their place, and the 16 lanes of a reduction are threads. A reduction in a
 * place where these threads aren't together (inside another one's loop) is written as on the CPU: one thread
 * sums all 16 lanes. The order of additions is the same in all three ways. */
#include "codegen/cuda/kernel_form.h"

/* --- loads ------------------------------------------------------------------------------------------------- */

/* linear = rest + element of the pack, with an aligned rest, wherever in the pack; rest in *out_rest. */
static bool is_packed(Emit *e, Index linear, Index *out_rest) {
  const Device *d = device_of(e);
  Index rest = index_without(&e->space, linear, d->pack_atom);
  if (index_coef(linear, d->pack_atom) != 1 || index_mentions(&e->space, rest, d->pack_atom) || rest.constant % PACK) return false;
  for (int i = 0; i < rest.n; i++)
    if (rest.terms[i].coef % PACK) return false;
  for (const Scope *s = e->scope; s; s = s->parent)
    if (s->is_condition && index_mentions(&e->space, s->condition, d->pack_atom)) return false;
  *out_rest = rest;
  return true;
}

const char *device_pack_type(const Emit *e, int v) {
  return arena_printf(e->arena, "pp_%sx%d", pp_dtype_name(type_of(e, v)->dtype), PACK);
}

static bool load(Emit *e, int v, Index linear, Val *out_val) {
  Device *d = device_of(e);
  if (d->pack_atom < 0 || !index_mentions(&e->space, linear, d->pack_atom)) return false;
  Index rest;
  if (!is_packed(e, linear, &rest)) {
    d->n_single++;
    return false;
  }
  const char *type = device_pack_type(e, v);
  const char *at = rest.n || rest.constant ? arena_printf(e->arena, "(%s + %s)", e->names[v], index_text(&e->space, rest)) : e->names[v];
  Val pack = kernel_define(e, index_depth(&e->space, rest), type, arena_printf(e->arena, "%s_i", e->names[v]),
                           arena_printf(e->arena, "*(const %s *)%s", type, at));
  const char *element = index_text(&e->space, index_loop(&e->space, d->pack_atom));
  *out_val = (Val){arena_printf(e->arena, "%s.at[%s]", pack.text, element), pack.depth > d->pack_depth ? pack.depth : d->pack_depth};
  return true;
}

static Val load_random(Emit *e, int v, Index linear) {
  const PlanNode *n = node_of(e, v);
  device_of(e)->uses_random = true;
  const char *seed = arena_printf(e->arena, "pp_random_stream(random, microbatch, %lluu)", (unsigned long long)n->attrs.integer);
  Val stream = kernel_define(e, 0, "pp_words", "stream", seed);
  const char *text = arena_printf(e->arena, "pp_random_element(%s, %s)", stream.text, index_text(&e->space, linear));
  return kernel_define(e, index_depth(&e->space, linear), "float", kernel_base_name(e, v), text);
}

/* --- reductions ---------------------------------------------------------------------------------------------- */

int64_t device_chunks(const Emit *e, int v) {
  return (plan_elements(type_of(e, node_of(e, v)->in[0])) + CHUNK - 1) / CHUNK;
}

void device_start_reduction(Emit *e, const Reduction *r) {
  const PlanNode *n = node_of(e, r->value);
  kernel_line(e, e->scope, "%s %s = %s;", kernel_type(n->type.dtype), r->lanes, kernel_is_max(n) ? kernel_least(n->type.dtype) : "0");
}

void device_fold_reduction(Emit *e, const Reduction *r) {
  const PlanNode *n = node_of(e, r->value);
  const Device *d = device_of(e);
  const char *what = kernel_is_max(n) ? "max" : "sum";
  const char *fold = d->width ? arena_printf(e->arena, "pp_column_%s<%d>", what, d->width) : arena_printf(e->arena, "pp_half_%s", what);
  kernel_line(e, e->scope, "const %s %s = %s(%s);", kernel_type(n->type.dtype), r->name, fold, r->lanes);
}

/* Turns low … high - 1, where high - low is a multiple of 16, or less than 16. */
static void lane_piece(Emit *e, int loop, char kind, int id, int64_t low, int64_t high, int64_t extent, DeviceTurn *turn, const void *context) {
  Scope *s = kernel_open_loop(e, loop, low, high, extent);
  kernel_extend_path(e, kind, id, low);
  s->diverges = true;
  turn(e, index_loop(&e->space, s->atom), context);
  const IndexAtom a = e->space.atoms.at[s->atom];
  const char *type = e->form->index_type, *first = NULL;
  if (high - low > 16) {
    if (a.used) first = arena_printf(e->arena, "const %s %s = %s0 + lane;", type, a.name, a.name);
    kernel_close_scope(e, NULL, arena_printf(e->arena, "for (%s %s0 = 0; %s0 < %lld; %s0 += 16) ", type, a.name, a.name, (long long)high, a.name), first);
    return;
  }
  if (a.used) first = low ? arena_printf(e->arena, "const %s %s = %lld + lane;", type, a.name, (long long)low) : arena_printf(e->arena, "const %s %s = lane;", type, a.name);
  kernel_close_scope(e, NULL, high - low == 16 ? "" : arena_printf(e->arena, "if (lane < %lld) ", (long long)(high - low)), first);
}

void device_lane_loop(Emit *e, int loop, char kind, int id, int64_t extent, DeviceTurn *turn, const void *context) {
  int64_t whole = extent / 16 * 16;
  if (whole) lane_piece(e, loop, kind, id, 0, whole, extent, turn, context);
  if (extent > whole) lane_piece(e, loop, kind, id, whole, extent, extent, turn, context);
}

typedef struct {
  int n;
  const Reduction *r;
  const Index *kept;
  const Groups *g;
} Joined;

static void accumulate(Emit *e, Index at, const void *context) {
  const Joined *j = context;
  kernel_accumulate(e, j->n, j->r, j->kept, j->g, &at, NULL);
}

/* The chunks' sums are there already. */
static void fold_partial(Emit *e, const Reduction *r) {
  const PlanNode *n = node_of(e, r->value);
  const Device *d = device_of(e);
  bool team = d->team && !d->width && !e->scope->diverges;
  kernel_line(e, e->scope, "const %s %s = pp_%s_partial_%s<%s>(partial + %lld, %lld);", kernel_type(n->type.dtype), r->name, team ? "half" : "thread",
              kernel_is_max(n) ? "max" : "sum", kernel_type(n->type.dtype), (long long)d->partial[r->value], (long long)device_chunks(e, r->value));
}

static bool reduce(Emit *e, int loop, int n, const Reduction *r, const Index *kept, const Groups *g) {
  Device *d = device_of(e);
  if (d->chunked[r[0].value]) {
    for (int i = 0; i < n; i++) fold_partial(e, &r[i]);
    return true;
  }
  if (!d->team || e->scope->diverges) return false;
  if (e->scope->depth > d->deepest) d->deepest = e->scope->depth;
  Joined joined = {n, r, kept, g};
  for (int i = 0; i < n; i++) device_start_reduction(e, &r[i]);
  device_lane_loop(e, loop, 'r', r->value, g->extents[0], accumulate, &joined);
  for (int i = 0; i < n; i++) device_fold_reduction(e, &r[i]);
  return true;
}

const KernelForm device_form = {.index_type = "int", .simd = "#pragma unroll", .joins_axes = true, .random = load_random, .load = load, .reduce = reduce};
const KernelForm device_form_wide = {.index_type = "int64_t", .simd = "#pragma unroll", .joins_axes = true, .random = load_random, .load = load, .reduce = reduce};
