/* The body of one kernel on the device: which threads make which elements.
 *
 * In: a PlanKernel. Out: CudaKernels, launched one after the other. Outputs of one size share a nest, nests
 * have blocks of their own. Without reductions a thread makes an element, or four neighbouring ones where all
 * loads allow it. With reductions a team of 16 lanes makes a point: the axes on which the reductions depend;
 * the team then sweeps the others, which need the same sums (rows). Lanes of a team are neighbours (half a
 * warp), or, for sums over leading axes, as far apart as there are points in a block, so that loads are
 * coalesced (columns). Sums of whole tensors that are long are made in chunks by kernels of their own, which
 * leave partial sums in scratch memory. Values come from kernel_value.c, so the bits are those of the CPU.
 * Not here: which ops belong together (compiler/fuse.c). */
#include "codegen/cuda/kernel_form.h"

enum {
  LANES = 16,
  FLAT_BLOCK = 256,
  SHARED_BLOCK = 256,      /* of kernels with several nests */
  MANY_BLOCKS = 264,       /* two for each processor of the larger devices */
  PACK_THREADS = 16384,    /* fewer threads are better spread over the device one by one */
  LARGE = 4096             /* elements of an output that many threads make: not each of them sums a whole tensor for it */
};

typedef enum { NEST_FLAT, NEST_TEAM, NEST_CHUNKS } NestKind;

typedef struct {
  NestKind kind;
  int n;
  int *outputs;            /* CHUNKS: one value */
  int64_t points;          /* threads of FLAT, teams */
  int64_t sweep;           /* elements of a point */
  int width;               /* TEAM: points side by side; 0: half warps */
  int64_t blocks;
  int block;
} Nest;

typedef VEC(Nest) Nests;

static const PlanType *output_type(const Emit *e, int o) { return type_of(e, e->k->outputs[o]); }
static const char *output_name(const Emit *e, int o) { return e->names[e->k->n_inputs + o]; }

/* --- sums of whole tensors ------------------------------------------------------------------------------- */

static bool is_chunked(const Emit *e, int v) {
  const PlanNode *n = node_of(e, v);
  if (kernel_ops[n->op].class != CLASS_REDUCE || plan_elements(&n->type) != 1) return false;
  int64_t count = plan_elements(type_of(e, n->in[0])), largest = 0;
  for (int o = 0; o < e->k->n_outputs; o++)
    if (plan_elements(output_type(e, o)) > largest) largest = plan_elements(output_type(e, o));
  return count > CHUNK || largest > LARGE;
}

/* Stages of such sums; how many there are. */
static int find_chunked(Emit *e, const Plan *plan) {
  Device *d = device_of(e);
  int n_stages = 0;
  int64_t used = 0;
  for (int v = e->k->n_inputs; v < e->k->n_inputs + e->k->n_nodes; v++) {
    const PlanNode *n = node_of(e, v);
    for (int i = 0; i < n->n_in; i++)
      if (d->stage[n->in[i]] > d->stage[v]) d->stage[v] = d->stage[n->in[i]];
    if (!is_chunked(e, v)) continue;
    d->chunked[v] = true;
    d->partial[v] = used;
    used += device_chunks(e, v);
    if (++d->stage[v] > n_stages) n_stages = d->stage[v];
  }
  if (used > PP_CUDA_PARTIALS && used > plan->partial_bytes / (int64_t)sizeof(double)) bug("kernel %s: %lld partial sums", e->k->name, (long long)used);
  return n_stages;
}

/* --- evaluating outputs ------------------------------------------------------------------------------------ */

/* Index of output o at element `linear`. */
static void output_index(Emit *e, int o, Index linear, Index *out) { index_split(&e->space, linear, output_type(e, o)->rank, output_type(e, o)->dims, out); }

/* The values of `outputs` at element `linear`. */
static const char **evaluate_outputs(Emit *e, int n, const int *outputs, Index linear) {
  const char **texts = arena_alloc_array(e->arena, (size_t)n, sizeof *texts);
  Index index[PP_MAX_RANK];
  for (int i = 0; i < n; i++) {
    output_index(e, outputs[i], linear, index);
    kernel_prefetch(e, e->k->outputs[outputs[i]], index);
  }
  for (int i = 0; i < n; i++) {
    output_index(e, outputs[i], linear, index);
    texts[i] = kernel_evaluate(e, e->k->outputs[outputs[i]], index).text;
  }
  return texts;
}

void device_store_outputs(Emit *e, int n, const int *outputs, Index linear, const char *condition) {
  const char **texts = evaluate_outputs(e, n, outputs, linear), *at = index_text(&e->space, linear);
  if (condition && n > 1) kernel_line(e, e->scope, "%s{", condition);
  for (int i = 0; i < n; i++)
    kernel_line(e, e->scope, "%s%s[%s] = %s;", !condition ? "" : n > 1 ? "  " : condition, output_name(e, outputs[i]), at, texts[i]);
  if (condition && n > 1) kernel_print_line(e->scope, "}");
}

/* --- choosing nests -------------------------------------------------------------------------------------------- */

static void end_trial(Emit *e, Trial *trial, Scope *outer) {
  while (e->scope != outer) {
    str_free(&e->scope->text);
    e->scope = e->scope->parent;
  }
  kernel_trial_end(e, trial);
}

/* How many leading axes of output `lead` the reductions of these outputs depend on; -1: there are none. */
static int reduced_depth(Emit *e, int lead, int n, const int *outputs) {
  Device *d = device_of(e);
  const PlanType *t = output_type(e, lead);
  Trial trial;
  Accesses accesses = {0};
  Scope *outer = e->scope;
  Index index[PP_MAX_RANK];
  kernel_trial_begin(e, &trial, &accesses);
  d->team = true, d->deepest = -1;
  for (int i = 0; i < t->rank; i++) index[i] = index_loop(&e->space, kernel_open_loop(e, e->n_loops++, 0, t->dims[i], t->dims[i])->atom);
  evaluate_outputs(e, n, outputs, index_linear(&e->space, t->rank, t->dims, index));
  end_trial(e, &trial, outer);
  d->team = false;
  return d->deepest < 0 ? -1 : d->deepest - outer->depth;
}

static void open_pack(Emit *e, int64_t elements, Index *out_linear);

/* Whether all loads bring four neighbours at once, or one value for all four. */
static bool takes_packs(Emit *e, int n, const int *outputs, int64_t elements) {
  Device *d = device_of(e);
  if (elements % PACK || elements / PACK < PACK_THREADS) return false;
  Trial trial;
  Accesses accesses = {0};
  Scope *outer = e->scope;
  Index linear;
  kernel_trial_begin(e, &trial, &accesses);
  d->n_single = 0;
  open_pack(e, elements, &linear);
  evaluate_outputs(e, n, outputs, linear);
  d->pack_atom = -1;
  end_trial(e, &trial, outer);
  return d->n_single == 0;
}

/* Sums over leading axes whose points lie side by side in memory. */
static bool is_column_output(const Emit *e, int o) {
  int v = e->k->outputs[o];
  if (is_input(e, v) || kernel_ops[node_of(e, v)->op].class != CLASS_REDUCE || e->depth_of_reductions[v] != 1 || device_of(e)->chunked[v]) return false;
  const PlanNode *n = node_of(e, v);
  const PlanType *t = type_of(e, n->in[0]);
  int64_t columns = 1;
  for (int i = t->rank - 1; i >= 0 && !kernel_is_reduced(n, i); i--) columns *= t->dims[i];
  return columns > 1 && plan_elements(t) > plan_elements(&n->type);
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* A power of two from `least` to `most`, the largest that still gives many blocks. */
static int choose_size(int64_t n, int least, int most) {
  int size = most;
  while (size > least && divide_up(n, size) < MANY_BLOCKS) size /= 2;
  return size;
}

static Nest column_nest(Emit *e, int lead, bool *done) {
  Nest nest = {.kind = NEST_TEAM, .points = plan_elements(output_type(e, lead)), .sweep = 1};
  nest.outputs = arena_alloc_array(e->arena, (size_t)e->k->n_outputs, sizeof(int));
  for (int o = lead; o < e->k->n_outputs && nest.n < MAX_JOINED; o++) {
    if (done[o] || !is_column_output(e, o) || !kernel_same_space(e, e->k->outputs[lead], e->k->outputs[o])) continue;
    nest.outputs[nest.n++] = o;
    done[o] = true;
  }
  nest.width = choose_size(nest.points, 8, 32);
  nest.block = LANES * nest.width;
  return nest;
}

static void collect(Emit *e, Nest *nest, int64_t elements, bool *done) {
  for (int o = 0; o < e->k->n_outputs; o++) {
    if (done[o] || plan_elements(output_type(e, o)) != elements) continue;
    nest->outputs[nest->n++] = o;
    done[o] = true;
  }
}

static Nest element_nest(Emit *e, int lead, bool *done) {
  const PlanType *t = output_type(e, lead);
  int64_t elements = plan_elements(t);
  Nest nest = {.kind = NEST_FLAT, .points = elements, .sweep = 1, .block = FLAT_BLOCK};
  nest.outputs = arena_alloc_array(e->arena, (size_t)e->k->n_outputs, sizeof(int));
  collect(e, &nest, elements, done);
  int axes = reduced_depth(e, lead, nest.n, nest.outputs);
  if (axes < 0) {
    if (takes_packs(e, nest.n, nest.outputs, elements)) nest.points = elements / PACK, nest.sweep = PACK;
    if (nest.points < FLAT_BLOCK) nest.block = (int)divide_up(nest.points, 32) * 32;
    return nest;
  }
  nest.kind = NEST_TEAM;
  nest.points = 1;
  for (int i = 0; i < axes && i < t->rank; i++) nest.points *= t->dims[i];
  nest.sweep = elements / nest.points;
  if (nest.points != elements) collect(e, &nest, nest.points, done);
  nest.block = nest.points == 1 ? LANES : LANES * choose_size(nest.points, 2, SHARED_BLOCK / LANES);
  return nest;
}

static Nests output_nests(Emit *e) {
  Nests nests = {0};
  bool *done = arena_alloc_array(e->arena, (size_t)e->k->n_outputs, sizeof *done);
  for (int o = 0; o < e->k->n_outputs; o++)
    if (!done[o] && is_column_output(e, o)) VEC_PUSH(e->arena, &nests, column_nest(e, o, done));
  for (;;) {
    int lead = -1;
    for (int o = 0; o < e->k->n_outputs; o++)
      if (!done[o] && (lead < 0 || plan_elements(output_type(e, o)) > plan_elements(output_type(e, lead)))) lead = o;
    if (lead < 0) return nests;
    VEC_PUSH(e->arena, &nests, element_nest(e, lead, done));
  }
}

static Nests chunk_nests(Emit *e, int stage) {
  Nests nests = {0};
  const Device *d = device_of(e);
  for (int v = e->k->n_inputs; v < e->k->n_inputs + e->k->n_nodes; v++) {
    if (!d->chunked[v] || d->stage[v] != stage) continue;
    Nest nest = {.kind = NEST_CHUNKS, .n = 1, .points = device_chunks(e, v), .sweep = CHUNK};
    nest.outputs = arena_alloc(e->arena, sizeof(int));
    nest.outputs[0] = v;
    nest.block = nest.points == 1 ? LANES : LANES * choose_size(nest.points, 2, SHARED_BLOCK / LANES);
    VEC_PUSH(e->arena, &nests, nest);
  }
  return nests;
}

/* Nests of one kernel have one block size. */
static int64_t place_nests(Nests *nests) {
  int64_t blocks = 0;
  for (int i = 0; i < nests->n; i++) {
    Nest *nest = &nests->at[i];
    if (nests->n > 1) nest->block = SHARED_BLOCK;
    if (nest->width) nest->width = nest->block / LANES;
    nest->blocks = divide_up(nest->points, nest->kind == NEST_FLAT ? nest->block : nest->block / LANES);
    blocks += nest->blocks;
  }
  return blocks;
}

/* --- writing nests ------------------------------------------------------------------------------------------------ */

/* A nest under emission: its scope knows which point this thread works on. */
typedef struct {
  const Nest *nest;
  const char *block;  /* "blockIdx.x", "(blockIdx.x - 12)" */
  const char *head;   /* of its braces; null: none */
  const char *name;   /* of the point's number */
  Index point;
} Place;

static void open_nest(Emit *e, Place *p, const char *name) {
  Scope *s = kernel_open_scope(e, true); /* what depends on no loop stays inside, behind the point's number */
  if (!p->head) s->indent--;
  s->loop = e->n_loops++;
  s->extent = p->nest->points;
  s->atom = index_new_loop(&e->space, name, 0, p->nest->points, s->depth);
  p->name = name;
  p->point = index_loop(&e->space, s->atom);
}

static void add_line(const Scope *s, Str *out, const char *text) {
  if (out->length) {
    str_putc(out, '\n');
    str_pad(out, ' ', 2 * s->indent);
  }
  str_puts(out, text);
}

static void close_nest(Emit *e, const Place *p, const Str *first) {
  kernel_close_scope(e, NULL, p->head, first->length ? arena_strndup(e->arena, first->text, first->length) : NULL);
}

/* "const int row = blockIdx.x * 16 + threadIdx.x / 16;" */
static const char *point_line(Emit *e, const Place *p, int per_block, const char *thread) {
  const char *type = e->form->index_type, *wide = strcmp(type, "int") ? "(int64_t)" : "";
  if (p->nest->blocks == 1) return arena_printf(e->arena, "const %s %s = %s;", type, p->name, thread);
  return arena_printf(e->arena, "const %s %s = %s%s * %d + %s;", type, p->name, wide, p->block, per_block, thread);
}

static void add_point(Emit *e, const Place *p, Str *first, int per_block, const char *thread) {
  const Scope *s = e->scope;
  bool guarded = p->nest->points != p->nest->blocks * per_block;
  if (e->space.atoms.at[s->atom].used || guarded) add_line(s, first, point_line(e, p, per_block, thread));
  if (guarded) add_line(s, first, arena_printf(e->arena, "if (%s >= %lld) return;", p->name, (long long)p->nest->points));
}

static void open_pack(Emit *e, int64_t elements, Index *out_linear) {
  Device *d = device_of(e);
  Scope *s = kernel_open_loop(e, e->n_loops++, 0, elements / PACK, elements / PACK);
  Index start = index_scale(&e->space, index_loop(&e->space, s->atom), PACK);
  s = kernel_open_loop(e, e->n_loops++, 0, PACK, PACK);
  d->pack_atom = s->atom, d->pack_depth = s->depth;
  *out_linear = index_add(&e->space, start, index_loop(&e->space, s->atom));
}

/* Four elements of each output: made one by one, stored at once. */
void device_store_packs(Emit *e, int n, const int *outputs, Index point) {
  Device *d = device_of(e);
  Scope *outer = e->scope, *s = kernel_open_loop(e, e->n_loops++, 0, PACK, PACK);
  kernel_extend_path(e, 'p', outputs[0], 0);
  d->pack_atom = s->atom, d->pack_depth = s->depth;
  Index start = index_scale(&e->space, point, PACK);
  const char **texts = evaluate_outputs(e, n, outputs, index_add(&e->space, start, index_loop(&e->space, s->atom)));
  const char **packs = arena_alloc_array(e->arena, (size_t)n, sizeof *packs), **types = arena_alloc_array(e->arena, (size_t)n, sizeof *types);
  const char *element = index_text(&e->space, index_loop(&e->space, s->atom));
  for (int i = 0; i < n; i++) {
    packs[i] = kernel_fresh_name(e, arena_printf(e->arena, "%s_o", output_name(e, outputs[i])));
    types[i] = device_pack_type(e, e->k->outputs[outputs[i]]);
    kernel_line(e, outer, "%s %s;", types[i], packs[i]);
    kernel_line(e, s, "%s.at[%s] = %s;", packs[i], element, texts[i]);
  }
  d->pack_atom = -1;
  kernel_close_loop(e, true);
  for (int i = 0; i < n; i++)
    kernel_line(e, outer, "*(%s *)(%s + %s) = %s;", types[i], output_name(e, outputs[i]), index_text(&e->space, start), packs[i]);
}

static void print_flat(Emit *e, Place *p) {
  Str first = {0};
  open_nest(e, p, "i");
  kernel_extend_path(e, 'f', p->nest->outputs[0], 0);
  if (p->nest->sweep == PACK) device_store_packs(e, p->nest->n, p->nest->outputs, p->point);
  else device_store_outputs(e, p->nest->n, p->nest->outputs, p->point, NULL);
  add_point(e, p, &first, p->nest->block, "threadIdx.x");
  close_nest(e, p, &first);
  str_free(&first);
}

typedef struct {
  const Place *place;
  int n;
  int *outputs;
} Sweep;

static void sweep_turn(Emit *e, Index at, const void *context) {
  const Sweep *s = context;
  device_store_outputs(e, s->n, s->outputs, index_add(&e->space, index_scale(&e->space, s->place->point, s->place->nest->sweep), at), NULL);
}

static const char *lane_line(Emit *e, const Nest *nest) {
  if (nest->width) return arena_printf(e->arena, "const int lane = threadIdx.x / %d;", nest->block / LANES);
  return nest->block == LANES ? "const int lane = threadIdx.x;" : "const int lane = threadIdx.x % 16;";
}

/* Who has no point of his own takes part in the last one's: all threads of a block meet. */
static void add_clamped_point(Emit *e, const Place *p, Str *first, int per_block) {
  const char *line = point_line(e, p, per_block, arena_printf(e->arena, "threadIdx.x %% %d", per_block));
  add_line(e->scope, first, line + strlen("const "));
  add_line(e->scope, first, arena_printf(e->arena, "const bool is_own = %s < %lld;", p->name, (long long)p->nest->points));
  add_line(e->scope, first, arena_printf(e->arena, "if (!is_own) %s = %lld;", p->name, (long long)p->nest->points - 1));
}

/* A row, or a point without a sweep: outputs of one element for each point are stored by lane 0. */
static void print_team(Emit *e, Place *p) {
  const Nest *nest = p->nest;
  Device *d = device_of(e);
  Str first = {0};
  open_nest(e, p, nest->width ? "column" : "row");
  kernel_extend_path(e, 't', nest->outputs[0], 0);
  d->team = true, d->width = nest->width;
  Sweep small = {.place = p}, full = {.place = p};
  small.outputs = arena_alloc_array(e->arena, (size_t)nest->n, sizeof(int)), full.outputs = arena_alloc_array(e->arena, (size_t)nest->n, sizeof(int));
  for (int i = 0; i < nest->n; i++) {
    Sweep *s = plan_elements(output_type(e, nest->outputs[i])) == nest->points ? &small : &full;
    s->outputs[s->n++] = nest->outputs[i];
  }
  int per_block = nest->block / LANES;
  bool ragged = nest->points != nest->blocks * per_block;
  if (small.n) device_store_outputs(e, small.n, small.outputs, p->point, nest->width && ragged ? "if (lane == 0 && is_own) " : "if (lane == 0) ");
  if (full.n) {
    int loop = e->n_loops++;
    device_lane_loop(e, loop, 's', full.outputs[0], nest->sweep, sweep_turn, &full);
    kernel_finish_loop(e, loop);
  }
  add_line(e->scope, &first, lane_line(e, nest));
  if (nest->width && ragged) add_clamped_point(e, p, &first, per_block);
  else add_point(e, p, &first, per_block, nest->width ? arena_printf(e->arena, "threadIdx.x %% %d", per_block) : "threadIdx.x / 16");
  d->team = false, d->width = 0;
  close_nest(e, p, &first);
  str_free(&first);
}

/* Partial sums of one value: a team for each chunk. */
static void print_chunks(Emit *e, Place *p) {
  const Nest *nest = p->nest;
  Device *d = device_of(e);
  int v = nest->outputs[0];
  int64_t total = plan_elements(type_of(e, node_of(e, v)->in[0])), rest = total % CHUNK;
  Reduction r = {.value = v, .name = kernel_fresh_name(e, kernel_base_name(e, v))};
  r.lanes = kernel_fresh_name(e, arena_printf(e->arena, "%s_lane", r.name));
  Groups g = {.n = 1, .extents = {total}};
  Index kept[PP_MAX_RANK] = {{0}};
  Str first = {0};
  open_nest(e, p, "chunk");
  Scope *outer = e->scope;
  d->team = true;
  device_start_reduction(e, &r);
  const char *type = e->form->index_type;
  const char *end = total < CHUNK ? arena_printf(e->arena, "%lld", (long long)total) : rest == 0 ? arena_printf(e->arena, "%d", CHUNK)
                    : nest->points == 1 ? arena_printf(e->arena, "%lld", (long long)rest)
                    : arena_printf(e->arena, "(%s < %lld ? %d : %lld)", index_text(&e->space, p->point), (long long)nest->points - 1, CHUNK, (long long)rest);
  Scope *s = kernel_open_loop(e, e->n_loops++, 0, CHUNK, CHUNK);
  s->diverges = true;
  Index at = index_add(&e->space, index_scale(&e->space, p->point, CHUNK), index_loop(&e->space, s->atom));
  kernel_accumulate(e, 1, &r, kept, &g, &at, NULL);
  const char *name = e->space.atoms.at[s->atom].name;
  kernel_close_scope(e, NULL, arena_printf(e->arena, "for (%s %s = lane; %s < %s; %s += 16) ", type, name, name, end, name), NULL);
  device_fold_reduction(e, &r);
  kernel_line(e, outer, "if (lane == 0) partial[%s] = %s;", index_text(&e->space, index_offset(p->point, d->partial[v])), r.name);
  add_line(outer, &first, lane_line(e, nest));
  add_point(e, p, &first, nest->block / LANES, "threadIdx.x / 16");
  d->team = false;
  close_nest(e, p, &first);
  str_free(&first);
}

static void print_nests(Emit *e, const Nests *nests) {
  int64_t before = 0;
  for (int i = 0; i < nests->n; i++) {
    const Nest *nest = &nests->at[i];
    Place p = {.nest = nest, .block = before ? arena_printf(e->arena, "(blockIdx.x - %lld)", (long long)before) : "blockIdx.x"};
    before += nest->blocks;
    if (nests->n > 1) p.head = i < nests->n - 1 ? arena_printf(e->arena, "%sif (blockIdx.x < %lld) ", i ? "else " : "", (long long)before) : "else ";
    switch (nest->kind) {
    case NEST_FLAT: print_flat(e, &p); break;
    case NEST_TEAM: print_team(e, &p); break;
    case NEST_CHUNKS: print_chunks(e, &p); break;
    }
  }
}

/* --- the whole kernel ------------------------------------------------------------------------------------------------ */

static const char *const device_words[] = {
    "c", "call", "is_own", "lane", "row", "column", "chunk", "control", "random", "microbatch", "partial", "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize",
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char", "class", "compl", "const",
    "const_cast", "constexpr", "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export",
    "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "linux", "long", "min", "mutable", "namespace", "new", "noexcept", "not",
    "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "requires", "return",
    "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this", "thread_local", "throw",
    "true", "try", "typedef", "typeid", "typename", "union", "unix", "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while",
    "xor", "xor_eq", "i", "j", "k", "l", "i0", "j0", "k0", "l0", "NAN", "INFINITY", "NULL", "INT32_MIN"};

static bool is_word(const char *name) {
  for (size_t i = 0; i < sizeof device_words / sizeof *device_words; i++)
    if (!strcmp(device_words[i], name)) return true;
  return false;
}

const char *const *device_parameter_names(Arena *arena, const PlanKernel *k, int control) {
  int n = k->n_inputs + k->n_outputs;
  const char *const *given = kernel_parameter_names(arena, k);
  const char **names = arena_alloc_array(arena, (size_t)n, sizeof *names);
  for (int i = 0; i < n; i++) {
    names[i] = given[i];
    bool taken = is_word(names[i]);
    for (int number = 2; taken; number++) {
      names[i] = arena_printf(arena, "%s_%d", given[i], number);
      taken = false;
      for (int j = 0; j < n; j++) taken |= !strcmp(given[j], names[i]) || (j < i && !strcmp(names[j], names[i]));
    }
  }
  if (control >= 0) names[control] = "control";
  return names;
}

static const CudaParameter *make_parameters(const Emit *e) {
  const PlanKernel *k = e->k;
  int n = k->n_inputs + k->n_outputs;
  CudaParameter *p = arena_alloc_array(e->arena, (size_t)n, sizeof *p);
  for (int i = 0; i < n; i++) {
    bool output = i >= k->n_inputs;
    const PlanType *t = output ? output_type(e, i - k->n_inputs) : &k->inputs[i];
    p[i] = (CudaParameter){arena_printf(e->arena, "%s%s *", output ? "" : "const ", kernel_type(t->dtype)), e->names[i], true};
    for (int j = 0; j < k->n_in_place; j++) p[i].is_restrict &= k->in_place[2 * j + !output] != (output ? i - k->n_inputs : i);
  }
  return p;
}

void device_start_pass(Emit *e) {
  e->taken = (Texts){0};
  e->space = (IndexSpace){.arena = e->arena, .namer = kernel_name_quotient, .context = e};
  e->n_loops = 0;
  e->finished.n = 0;
  e->scope = NULL;
  for (size_t i = 0; i < sizeof device_words / sizeof *device_words; i++) VEC_PUSH(e->arena, &e->taken, device_words[i]);
  for (int i = 0; i < e->k->n_inputs + e->k->n_outputs; i++) VEC_PUSH(e->arena, &e->taken, e->names[i]);
  device_of(e)->pack_atom = -1;
  kernel_open_scope(e, false);
}

/* Stage 0: the outputs; others: partial sums. The first pass finds which reductions meet. */
static CudaKernel print_kernel(Emit *e, const char *name, int stage) {
  CudaKernel kernel = {.name = name, .include = "lanes.cuh", .n_parameters = e->k->n_inputs + e->k->n_outputs, .grid = {1, 1, 1}};
  e->demanded = (Texts){0};
  e->draft = NULL;
  for (int pass = 0; pass < 2; pass++) {
    e->final = pass == 1;
    device_start_pass(e);
    Nests nests = stage ? chunk_nests(e, stage) : output_nests(e);
    kernel.grid[0] = place_nests(&nests);
    kernel.block = nests.at[0].block;
    print_nests(e, &nests);
    kernel_print_unread(e, e->scope);
    kernel.body = e->draft = arena_strndup(e->arena, str_text(&e->scope->text), e->scope->text.length);
    str_free(&e->scope->text);
  }
  return kernel;
}

/* More elements than an int counts, with room for the last block. */
static bool is_wide(const Emit *e) {
  int64_t most = 0;
  for (int v = 0; v < e->k->n_inputs + e->k->n_nodes; v++)
    if (plan_elements(type_of(e, v)) > most) most = plan_elements(type_of(e, v));
  return most > INT32_MAX - 2 * CHUNK;
}

CudaKernel cuda_fused_kernel(Arena *arena, const Plan *plan, int number, bool guarded, int control) {
  const PlanKernel *k = &plan->kernels[number];
  size_t n_values = (size_t)(k->n_inputs + k->n_nodes);
  Device device = {.stage = arena_alloc_array(arena, n_values, sizeof(int)), .chunked = arena_alloc_array(arena, n_values, sizeof(bool)),
                   .partial = arena_alloc_array(arena, n_values, sizeof(int64_t))};
  Emit e = {.arena = arena, .own = &device, .k = k, .names = device_parameter_names(arena, k, control)};
  e.buffered = arena_alloc_array(arena, n_values, sizeof *e.buffered);
  e.form = is_wide(&e) ? &device_form_wide : &device_form;
  kernel_count_reductions(&e);
  int n_stages = find_chunked(&e, plan);
  const char *name = guarded ? arena_printf(arena, "%s_guarded", k->name) : k->name;
  const CudaParameter *parameters = make_parameters(&e);
  CudaKernel *before = NULL;
  for (int stage = 1; stage <= n_stages + 1; stage++) {
    bool last = stage == n_stages + 1;
    device.uses_random = false;
    CudaKernel *kernel = arena_alloc(arena, sizeof *kernel);
    *kernel = print_kernel(&e, last ? name : arena_printf(arena, "%s_sums_%d", name, stage), last ? 0 : stage);
    kernel->parameters = parameters;
    kernel->comment = last ? kernel_comment(arena, k, e.names) : arena_printf(arena, "The partial sums of %s.", k->name);
    kernel->guarded = guarded, kernel->random = device.uses_random, kernel->partial = n_stages > 0;
    kernel->before = before;
    before = kernel;
  }
  return *before;
}
