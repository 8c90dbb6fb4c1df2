/* Reference semantics of the op table: see interpret.h. One function for each class of op, which
 * reads operands as Tensors and fills the results; a function is a walk in program order.
 * Slow on purpose. It does not know what is not in ops.def. */
#include "compiler/interpret.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  Machine *m;
  Arena *arena;
  PtrMap values; /* value → Tensor */
} Frame;

/* --- tensors ---------------------------------------------------------------------------- */

Tensor *tensor_create(Arena *arena, Type type) {
  Tensor *t = arena_alloc(arena, sizeof *t);
  t->type = type;
  t->dtype = type_dtype(type);
  t->rank = type_rank(type);
  for (int i = 0; i < t->rank; i++) t->dims[i] = type_dim(type, i);
  t->n = type_elements(type);
  t->at = arena_alloc_array(arena, (size_t)t->n, sizeof *t->at);
  return t;
}

static Tensor *copy(Arena *arena, const Tensor *from) {
  Tensor *t = tensor_create(arena, from->type);
  memcpy(t->at, from->at, (size_t)t->n * sizeof *t->at);
  return t;
}

static double rounded(const Tensor *t, double x) {
  switch (t->dtype) {
    case PP_F32:
    case PP_BF16: return dtype_round(t->dtype, x);
    case PP_I32: return (int32_t)(uint32_t)(uint64_t)(int64_t)x;
    default: return x;
  }
}

/* Row-major coordinates that count up. */
static void advance(const Tensor *t, int64_t *at) {
  for (int i = t->rank - 1; i >= 0; i--) {
    if (++at[i] < t->dims[i]) return;
    at[i] = 0;
  }
}

static int64_t offset(const Tensor *t, const int64_t *at) {
  int64_t n = 0;
  for (int i = 0; i < t->rank; i++) n = n * t->dims[i] + at[i];
  return n;
}

static Tensor *in(Frame *f, Op op, int i) {
  Tensor *t = ptrmap_get(&f->values, op_operand(op, i).ptr);
  if (!t) bug("an operand of %s has no value", op_name(op_id(op)));
  return t;
}

static Tensor *out(Frame *f, Op op, int i) {
  Tensor *t = ptrmap_get(&f->values, op_result(op, i).ptr);
  if (t) return t;
  t = tensor_create(f->arena, value_type(op_result(op, i)));
  ptrmap_put(f->arena, &f->values, op_result(op, i).ptr, t);
  return t;
}

static const int64_t *ints(Frame *f, Op op, const char *name) {
  int64_t n;
  return op_ints(f->arena, op, name, &n);
}

/* --- the machine ------------------------------------------------------------------------------ */

Machine *machine_create(Ir *ir, Arena *arena) {
  Machine *m = arena_alloc(arena, sizeof *m);
  m->ir = ir;
  m->arena = arena;
  m->step = 1;
  m->n_stages = (int)op_int(ir_top(ir), "pp.stages", 1);
  m->n_microbatches = op_int(ir_top(ir), "pp.microbatches", 1);
  m->losses = arena_alloc_array(arena, (size_t)m->n_microbatches, sizeof *m->losses);
  m->counts = arena_alloc_array(arena, (size_t)m->n_microbatches, sizeof *m->counts);
  m->control = arena_alloc_array(arena, PP_CONTROL_SIZE, sizeof *m->control);
  m->loss_scale = arena_alloc_array(arena, PP_LOSS_SCALE_SIZE, sizeof *m->loss_scale);
  m->loss_scale[PP_LOSS_SCALE_NEXT] = op_float(ir_top(ir), "pp.loss_scale", 1);
  OpVec parameters = ir_ops(arena, ir_top(ir), OP_PARAMETER);
  for (int i = 0; i < parameters.n; i++)
    map_put(arena, &m->params, op_string(arena, parameters.at[i], "sym"),
            tensor_create(arena, op_type_attr(parameters.at[i], "type")));
  machine_start_step(m);
  return m;
}

void machine_start_step(Machine *m) {
  m->accumulators = arena_alloc_array(m->arena, (size_t)m->n_stages, sizeof *m->accumulators);
}

Tensor *machine_param(Machine *m, const char *name) {
  Tensor *t = map_get(&m->params, name);
  if (!t) bug("no parameter '%s'", name);
  return t;
}

Tensor *machine_accumulator(Machine *m, const char *name, int stage) {
  return map_get(&m->accumulators[stage], name);
}

/* The first use overwrites. */
static void add_to_accumulator(Machine *m, Op op, const Tensor *x) {
  const char *name = op_string(m->arena, op, "param");
  Map *map = &m->accumulators[op_stage(op)];
  Tensor *a = map_get(map, name);
  if (!a) {
    map_put(m->arena, map, name, copy(m->arena, x));
    return;
  }
  for (int64_t i = 0; i < a->n; i++) a->at[i] = rounded(a, a->at[i] + x->at[i]);
}

/* --- elementwise ---------------------------------------------------------------------------------- */

static double floor_divide(double x, double y) { return y == 0 ? 0 : floor(x / y); }

static double map_element(OpId id, bool real, double x, double y, double z) {
  switch (id) {
    case OP_NEG: return -x;
    case OP_EXP: return exp(x);
    case OP_LOG: return log(x);
    case OP_TANH: return tanh(x);
    case OP_SQRT: return sqrt(x);
    case OP_RSQRT: return 1 / sqrt(x);
    case OP_ERF: return erf(x);
    case OP_SIN: return sin(x);
    case OP_COS: return cos(x);
    case OP_NOT: return !x;
    case OP_ADD: return x + y;
    case OP_SUB: return x - y;
    case OP_MUL: return x * y;
    case OP_DIV: return real ? x / y : floor_divide(x, y);
    case OP_POW: return pow(x, y);
    case OP_MIN: return x <= y ? x : y;
    case OP_MAX: return x >= y ? x : y;
    case OP_AND: return x && y;
    case OP_OR: return x || y;
    case OP_SELECT: return x ? y : z;
    default: bug("no meaning of %s", op_name(id));
  }
}

static bool compare(const char *predicate, double x, double y) {
  if (!strcmp(predicate, "eq")) return x == y;
  if (!strcmp(predicate, "ne")) return x != y;
  if (!strcmp(predicate, "lt")) return x < y;
  if (!strcmp(predicate, "le")) return x <= y;
  if (!strcmp(predicate, "gt")) return x > y;
  return x >= y;
}

static double cast(pp_dtype from, pp_dtype to, double x) {
  if (to == PP_BOOL) return x != 0;
  bool real = from == PP_F32 || from == PP_F64 || from == PP_BF16;
  return to == PP_I32 && real ? trunc(x) : x;
}

static void run_map(Frame *f, Op op) {
  OpId id = op_id(op);
  Tensor *to = out(f, op, 0), *x = in(f, op, 0);
  Tensor *y = op_n_operands(op) > 1 ? in(f, op, 1) : x, *z = op_n_operands(op) > 2 ? in(f, op, 2) : x;
  const char *predicate = id == OP_COMPARE ? op_string(f->arena, op, "predicate") : NULL;
  bool real = type_is_real(x->type);
  for (int64_t i = 0; i < to->n; i++) {
    double v;
    if (predicate)
      v = compare(predicate, x->at[i], y->at[i]);
    else if (id == OP_CAST)
      v = cast(x->dtype, to->dtype, x->at[i]);
    else
      v = map_element(id, real, x->at[i], y->at[i], z->at[i]);
    to->at[i] = rounded(to, v);
  }
}

/* --- leaves ------------------------------------------------------------------------------------------ */

/* Some function of (step, microbatch, key, element); not the runtime's. */
static double random_unit(const Machine *m, int64_t key, int64_t element) {
  uint64_t x = (uint64_t)key * 0x9E3779B97F4A7C15u + (uint64_t)element * 0xBF58476D1CE4E5B9u;
  x += (uint64_t)(m->microbatch + 1) * 0x94D049BB133111EBu + (uint64_t)m->step * 0xD6E8FEB86659FD93u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return (double)((x ^ x >> 31) >> 40) / 16777216.0;
}

static void run_iota(Op op, Tensor *to) {
  int64_t at[PP_MAX_RANK] = {0}, axis = op_int(op, "axis", 0);
  for (int64_t i = 0; i < to->n; i++, advance(to, at)) to->at[i] = (double)at[axis];
}

static void fill_constant(Op op, Tensor *to) {
  double v = rounded(to, op_constant_is_float(op) ? op_float(op, "value", 0) : (double)op_int(op, "value", 0));
  for (int64_t i = 0; i < to->n; i++) to->at[i] = v;
}

static void fill_random(const Machine *m, Op op, Tensor *to) {
  int64_t key = op_int(op, "key", 0);
  for (int64_t i = 0; i < to->n; i++) to->at[i] = random_unit(m, key, i);
}

static void read_vector(Tensor *to, const double *from) {
  memcpy(to->at, from, (size_t)to->n * sizeof *from);
}

static void read_stored(Tensor *to, const Tensor *from) {
  if (from) read_vector(to, from->at);
}

static const char *state_key(Frame *f, Op op) {
  return arena_printf(f->m->arena, "%s/%s", op_string(f->arena, op, "param"), op_string(f->arena, op, "state"));
}

static void run_leaf(Frame *f, Op op) {
  Machine *m = f->m;
  Tensor *to = out(f, op, 0);
  const char *param = op_string(f->arena, op, "param");
  switch (op_id(op)) {
    case OP_CONSTANT: fill_constant(op, to); break;
    case OP_PARAM: read_stored(to, machine_param(m, param)); break;
    case OP_DATA: m->data(m, op_string(m->arena, op, "source"), to); break;
    case OP_IOTA: run_iota(op, to); break;
    case OP_RANDOM: fill_random(m, op, to); break;
    case OP_GRADIENT: read_stored(to, machine_accumulator(m, param, (int)op_int(op, "of_stage", 0))); break;
    case OP_STATE: read_stored(to, map_get(&m->states, state_key(f, op))); break;
    case OP_LOSSES: read_vector(to, m->losses); break;
    case OP_COUNTS: read_vector(to, m->counts); break;
    case OP_OUTPUTS: read_stored(to, map_get(&m->outputs, op_string(f->arena, op, "output"))); break;
    case OP_STEP: to->at[0] = m->step; break;
    case OP_LOSS_SCALE: read_vector(to, m->loss_scale); break;
    default: bug("no meaning of %s", op_name(op_id(op)));
  }
}

/* --- reductions ----------------------------------------------------------------------------------------- */

/* 16 lanes, then l + 8, l + 4, l + 2, l + 1. A lane starts with its first element. */
static double reduce_lanes(OpId id, const Tensor *t, int64_t n, const double *x) {
  double lanes[16];
  int64_t used = n < 16 ? n : 16;
  for (int64_t i = 0; i < 16; i++) lanes[i] = id == OP_REDUCE_SUM ? 0 : -INFINITY;
  for (int64_t i = 0; i < used; i++) lanes[i] = x[i];
  for (int64_t i = 16; i < n; i++) {
    double *lane = &lanes[i % 16];
    *lane = id == OP_REDUCE_SUM ? rounded(t, *lane + x[i]) : *lane >= x[i] ? *lane : x[i];
  }
  for (int step = 8; step; step /= 2)
    for (int l = 0; l < step; l++) {
      double y = lanes[l + step];
      lanes[l] = id == OP_REDUCE_SUM ? rounded(t, lanes[l] + y) : lanes[l] >= y ? lanes[l] : y;
    }
  return lanes[0];
}

static void run_reduce(Frame *f, Op op) {
  Tensor *x = in(f, op, 0), *to = out(f, op, 0);
  int64_t n_axes, at[PP_MAX_RANK] = {0};
  const int64_t *axes = op_ints(f->arena, op, "axes", &n_axes);
  bool reduced[PP_MAX_RANK] = {false};
  for (int64_t i = 0; i < n_axes; i++) reduced[axes[i]] = true;
  int64_t each = to->n ? x->n / to->n : 0;
  double *rows = arena_alloc_array(f->arena, (size_t)x->n, sizeof *rows);
  int64_t *filled = arena_alloc_array(f->arena, (size_t)to->n, sizeof *filled);
  for (int64_t i = 0; i < x->n; i++, advance(x, at)) {
    int64_t kept[PP_MAX_RANK], k = 0;
    for (int a = 0; a < x->rank; a++)
      if (!reduced[a]) kept[k++] = at[a];
    int64_t row = offset(to, kept);
    rows[row * each + filled[row]++] = x->at[i];
  }
  for (int64_t r = 0; r < to->n; r++) to->at[r] = reduce_lanes(op_id(op), to, each, rows + r * each);
}

/* --- movement ---------------------------------------------------------------------------------------------- */

/* Where element `at` of the result comes from. */
static int64_t source_of(OpId id, const Tensor *x, const int64_t *at, const int64_t *axes) {
  int64_t from[PP_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    if (id == OP_PERMUTE)
      from[axes[i]] = at[i];
    else if (id == OP_SLICE)
      from[i] = at[i] + axes[i];
    else if (id == OP_PAD)
      from[i] = at[i] - axes[i];
    else
      from[i] = x->dims[i] == 1 ? 0 : at[i];
  }
  for (int i = 0; i < x->rank; i++)
    if (from[i] < 0 || from[i] >= x->dims[i]) return -1;
  return offset(x, from);
}

static void run_concat(Frame *f, Op op) {
  Tensor *to = out(f, op, 0);
  int axis = (int)op_int(op, "axis", 0);
  int64_t start = 0;
  for (int k = 0; k < op_n_operands(op); k++) {
    Tensor *x = in(f, op, k);
    int64_t at[PP_MAX_RANK] = {0}, there[PP_MAX_RANK];
    for (int64_t i = 0; i < x->n; i++, advance(x, at)) {
      memcpy(there, at, sizeof there);
      there[axis] += start;
      to->at[offset(to, there)] = x->at[i];
    }
    start += x->dims[axis];
  }
}

static void run_move(Frame *f, Op op) {
  OpId id = op_id(op);
  if (id == OP_CONCAT) {
    run_concat(f, op);
    return;
  }
  Tensor *x = in(f, op, 0), *to = out(f, op, 0);
  const char *name = id == OP_PERMUTE ? "axes" : id == OP_SLICE ? "starts" : "before";
  const int64_t *axes = ints(f, op, name);
  int64_t at[PP_MAX_RANK] = {0};
  for (int64_t i = 0; i < to->n; i++, advance(to, at)) {
    int64_t from = id == OP_RESHAPE ? i : source_of(id, x, at, axes);
    to->at[i] = from < 0 ? 0 : x->at[from];
  }
}

/* --- products -------------------------------------------------------------------------------------------------- */

typedef struct {
  int64_t batch, m, n, k;
  bool ta, tb;
} Shape;

static Shape product_shape(Op op, const Tensor *x, const Tensor *y) {
  int r = x->rank;
  Shape s = {.ta = op_unit(op, "ta"), .tb = op_unit(op, "tb")};
  s.m = x->dims[s.ta ? r - 1 : r - 2];
  s.k = x->dims[s.ta ? r - 2 : r - 1];
  s.n = y->dims[s.tb ? r - 2 : r - 1];
  s.batch = x->n / (s.m * s.k);
  return s;
}

static double product_element(const Shape *s, const double *x, const double *y, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < s->k; k++)
    sum += x[s->ta ? k * s->m + i : i * s->k + k] * y[s->tb ? j * s->k + k : k * s->n + j];
  return sum;
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

/* What a library does to a product before it stores it. */
static void run_epilogue(Frame *f, Op op) {
  Tensor *to = out(f, op, 0), *bias = in(f, op, 2);
  bool is_gelu = strcmp(op_string(f->arena, op, "epilogue"), "bias") != 0;
  for (int64_t i = 0; i < to->n; i++) {
    double sum = rounded(to, to->at[i] + bias->at[i % bias->n]);
    if (op_n_results(op) == 2) out(f, op, 1)->at[i] = sum;
    to->at[i] = is_gelu ? rounded(to, gelu(sum)) : sum;
  }
}

static void multiply(Op op, const Tensor *x, const Tensor *y, Tensor *to) {
  Shape s = product_shape(op, x, y);
  for (int64_t b = 0; b < s.batch; b++)
    for (int64_t i = 0; i < s.m; i++)
      for (int64_t j = 0; j < s.n; j++)
        to->at[(b * s.m + i) * s.n + j] =
            rounded(to, product_element(&s, x->at + b * s.m * s.k, y->at + b * s.k * s.n, i, j));
}

/* --- rows ---------------------------------------------------------------------------------------------------- */

static int64_t row_of(const Tensor *index, int64_t i, int64_t rows) {
  if (index->at[i] < 0 || index->at[i] >= (double)rows) bug("index %g of %d rows", index->at[i], (int)rows);
  return (int64_t)index->at[i];
}

static void run_gather(Frame *f, Op op) {
  Tensor *table = in(f, op, 0), *index = in(f, op, 1), *to = out(f, op, 0);
  int64_t rows = table->dims[0], width = table->n / rows;
  for (int64_t i = 0; i < index->n; i++)
    memcpy(to->at + i * width, table->at + row_of(index, i, rows) * width, (size_t)width * sizeof *to->at);
}

static void scatter(const Tensor *dy, const Tensor *index, Tensor *to) {
  int64_t rows = to->dims[0], width = to->n / rows;
  for (int64_t i = 0; i < index->n; i++) {
    double *row = to->at + row_of(index, i, rows) * width;
    for (int64_t j = 0; j < width; j++) row[j] = rounded(to, row[j] + dy->at[i * width + j]);
  }
}

/* --- attention -------------------------------------------------------------------------------------------------- */

typedef struct {
  int64_t batch, heads, kv_heads, t, t_kv, d;
  bool causal;
  double scale;
} Attention;

static Attention attention_shape(Op op, const Tensor *q, const Tensor *k) {
  return (Attention){.batch = q->dims[0], .heads = q->dims[1], .kv_heads = k->dims[1],
                     .t = q->dims[2], .t_kv = k->dims[2], .d = q->dims[3],
                     .causal = op_unit(op, "causal"), .scale = op_float(op, "scale", 1)};
}

/* Row i of a causal mask sees keys 0 … i + t_kv - t. */
static int64_t visible(const Attention *a, int64_t i) {
  int64_t n = a->causal ? i + 1 + a->t_kv - a->t : a->t_kv;
  return n < 0 ? 0 : n > a->t_kv ? a->t_kv : n;
}

static double dot(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
  return sum;
}

/* One query row: probabilities into p, returns log of the sum of exponentials. */
static double attend(const Attention *a, const double *q, const double *k, int64_t i, double *p) {
  double max = -INFINITY, sum = 0;
  int64_t n = visible(a, i);
  for (int64_t j = 0; j < n; j++) {
    p[j] = dot(q, k + j * a->d, a->d) * a->scale;
    if (p[j] > max) max = p[j];
  }
  for (int64_t j = 0; j < n; j++) sum += exp(p[j] - max);
  double lse = max + log(sum);
  for (int64_t j = 0; j < a->t_kv; j++) p[j] = j < n ? exp(p[j] - lse) : 0;
  return lse;
}

static void run_attention(Frame *f, Op op) {
  Tensor *q = in(f, op, 0), *k = in(f, op, 1), *v = in(f, op, 2), *o = out(f, op, 0), *lse = out(f, op, 1);
  Attention a = attention_shape(op, q, k);
  double *p = arena_alloc_array(f->arena, (size_t)a.t_kv, sizeof *p);
  for (int64_t row = 0; row < a.batch * a.heads * a.t; row++) {
    int64_t head = row / a.t, kv = head / a.heads * a.kv_heads + head % a.heads / (a.heads / a.kv_heads);
    lse->at[row] = rounded(lse, attend(&a, q->at + row * a.d, k->at + kv * a.t_kv * a.d, row % a.t, p));
    for (int64_t c = 0; c < a.d; c++) {
      double sum = 0;
      for (int64_t j = 0; j < a.t_kv; j++) sum += p[j] * v->at[(kv * a.t_kv + j) * a.d + c];
      o->at[row * a.d + c] = rounded(o, sum);
    }
  }
}

/* ds = p · (dp - Σ p·dp), with dp = dout · v; dq, dk from ds · scale, dv from p. */
static void run_attention_grad(Frame *f, Op op) {
  Tensor *q = in(f, op, 0), *k = in(f, op, 1), *v = in(f, op, 2), *dout = in(f, op, 5);
  Tensor *dq = out(f, op, 0), *dk = out(f, op, 1), *dv = out(f, op, 2);
  Attention a = attention_shape(op, q, k);
  double *p = arena_alloc_array(f->arena, (size_t)a.t_kv, sizeof *p);
  double *dp = arena_alloc_array(f->arena, (size_t)a.t_kv, sizeof *dp);
  for (int64_t row = 0; row < a.batch * a.heads * a.t; row++) {
    int64_t head = row / a.t, kv = head / a.heads * a.kv_heads + head % a.heads / (a.heads / a.kv_heads);
    const double *qr = q->at + row * a.d, *g = dout->at + row * a.d;
    const double *keys = k->at + kv * a.t_kv * a.d, *values = v->at + kv * a.t_kv * a.d;
    attend(&a, qr, keys, row % a.t, p);
    for (int64_t j = 0; j < a.t_kv; j++) dp[j] = dot(g, values + j * a.d, a.d);
    double mean = dot(p, dp, a.t_kv);
    for (int64_t j = 0; j < a.t_kv; j++)
      for (int64_t c = 0; c < a.d; c++) {
        double ds = p[j] * (dp[j] - mean) * a.scale;
        dq->at[row * a.d + c] += ds * keys[j * a.d + c];
        dk->at[(kv * a.t_kv + j) * a.d + c] += ds * qr[c];
        dv->at[(kv * a.t_kv + j) * a.d + c] += p[j] * g[c];
      }
  }
  Tensor *all[] = {dq, dk, dv};
  for (int t = 0; t < 3; t++)
    for (int64_t i = 0; i < all[t]->n; i++) all[t]->at[i] = rounded(all[t], all[t]->at[i]);
}

static void run_special(Frame *f, Op op) {
  switch (op_id(op)) {
    case OP_GATHER: run_gather(f, op); break;
    case OP_SCATTER_ADD: scatter(in(f, op, 0), in(f, op, 1), out(f, op, 0)); break;
    case OP_ATTENTION: run_attention(f, op); break;
    case OP_ATTENTION_GRAD: run_attention_grad(f, op); break;
    default: bug("no meaning of %s", op_name(op_id(op)));
  }
}

/* --- effects --------------------------------------------------------------------------------------------------- */

static Type parameter_type(Frame *f, Op op) {
  return op_type_attr(ir_parameter(f->m->ir, op_string(f->arena, op, "param")), "type");
}

static void accumulate_product(Frame *f, Op op) {
  Tensor *product = tensor_create(f->arena, parameter_type(f, op));
  multiply(op, in(f, op, 0), in(f, op, 1), product);
  add_to_accumulator(f->m, op, product);
}

/* Rows are added to the accumulator one by one. */
static void accumulate_rows(Frame *f, Op op) {
  Machine *m = f->m;
  const char *name = op_string(m->arena, op, "param");
  Map *map = &m->accumulators[op_stage(op)];
  if (!map_get(map, name)) map_put(m->arena, map, name, tensor_create(m->arena, parameter_type(f, op)));
  scatter(in(f, op, 0), in(f, op, 1), map_get(map, name));
}

static void store_loss(Frame *f, Op op) {
  Machine *m = f->m;
  m->losses[m->microbatch] = in(f, op, 0)->at[0];
  m->counts[m->microbatch] = op_n_operands(op) > 1 ? in(f, op, 1)->at[0] : 1;
}

static void store_output(Frame *f, Op op) {
  Machine *m = f->m;
  Tensor *x = in(f, op, 0);
  const char *kind = op_string(f->arena, op, "kind"), *name = op_string(m->arena, op, "output");
  bool whole = !strcmp(kind, "concat");
  int64_t n = whole ? x->n : 1, total = n * m->n_microbatches;
  Tensor *to = map_get(&m->outputs, name);
  if (!to) map_put(m->arena, &m->outputs, name, to = tensor_create(m->arena, type_tensor(m->ir, PP_F64, 1, &total)));
  double *at = to->at + m->microbatch * n;
  if (whole) {
    memcpy(at, x->at, (size_t)n * sizeof *at);
    return;
  }
  OpId id = strcmp(kind, "max") ? OP_REDUCE_SUM : OP_REDUCE_MAX;
  *at = reduce_lanes(id, x, x->n, x->at) / (strcmp(kind, "mean") ? 1 : (double)x->n);
}

static void store_assigned(Frame *f, Op op) {
  Machine *m = f->m;
  if (op_string(f->arena, op, "state"))
    map_put(m->arena, &m->states, state_key(f, op), copy(m->arena, in(f, op, 0)));
  else
    read_vector(machine_param(m, op_string(f->arena, op, "param")), in(f, op, 0)->at);
}

static void run_effect(Frame *f, Op op) {
  Machine *m = f->m;
  switch (op_id(op)) {
    case OP_MATMUL_ACCUMULATE: accumulate_product(f, op); break;
    case OP_ACCUMULATE: add_to_accumulator(m, op, in(f, op, 0)); break;
    case OP_SCATTER_ACCUMULATE: accumulate_rows(f, op); break;
    case OP_LOSS: store_loss(f, op); break;
    case OP_OUTPUT: store_output(f, op); break;
    case OP_ASSIGN: store_assigned(f, op); break;
    case OP_CONTROL: memcpy(m->control, in(f, op, 0)->at, PP_CONTROL_SIZE * sizeof *m->control); break;
    case OP_RESCALE: memcpy(m->loss_scale, in(f, op, 0)->at, PP_LOSS_SCALE_SIZE * sizeof *m->loss_scale); break;
    case OP_FOLD:
      map_put(m->arena, &m->accumulators[op_stage(op)], op_string(m->arena, op, "param"), copy(m->arena, in(f, op, 0)));
      break;
    default: bug("no meaning of %s", op_name(op_id(op)));
  }
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

static void run_loop(Frame *f, Op op) {
  Machine *m = f->m;
  Op body = func_find(m->ir, ir_top(m->ir), op_string(f->arena, op, "body"));
  for (m->microbatch = 0; m->microbatch < op_int(op, "count", 0); m->microbatch++) interpret_func(m, body, 0, NULL, NULL);
  m->microbatch = -1;
}

static void run_call(Frame *f, Op op) {
  Op func = func_find(f->m->ir, ir_top(f->m->ir), call_callee(f->arena, op));
  int n = op_n_operands(op);
  Tensor **args = arena_alloc_array(f->arena, (size_t)n, sizeof *args);
  Tensor **results = arena_alloc_array(f->arena, (size_t)op_n_results(op), sizeof *results);
  for (int i = 0; i < n; i++) args[i] = in(f, op, i);
  interpret_func(f->m, func, n, args, results);
  for (int i = 0; i < op_n_results(op); i++) read_stored(out(f, op, i), results[i]);
}

static void run_structure(Frame *f, Op op) {
  switch (op_id(op)) {
    case OP_LOOP: run_loop(f, op); break;
    case OP_CALL: run_call(f, op); break;
    case OP_WITH_DERIVATIVE:
      for (int i = 0; i < op_n_results(op); i++) read_stored(out(f, op, i), in(f, op, i));
      break;
    default: bug("no meaning of %s", op_name(op_id(op)));
  }
}

static void run_op(Frame *f, Op op) {
  switch (op_class(op_id(op))) {
    case CLASS_LEAF: run_leaf(f, op); break;
    case CLASS_MAP: run_map(f, op); break;
    case CLASS_REDUCE: run_reduce(f, op); break;
    case CLASS_MOVE: run_move(f, op); break;
    case CLASS_PRODUCT:
      multiply(op, in(f, op, 0), in(f, op, 1), out(f, op, 0));
      if (op_n_operands(op) == 3) run_epilogue(f, op);
      break;
    case CLASS_SPECIAL: run_special(f, op); break;
    case CLASS_EFFECT: run_effect(f, op); break;
    case CLASS_STRUCT: run_structure(f, op); break;
  }
}

void interpret_func(Machine *m, Op func, int n, Tensor *const *args, Tensor **out_results) {
  Frame f = {.m = m, .arena = arena_create()};
  if (n != func_n_args(func)) bug("%d arguments for a function of %d", n, func_n_args(func));
  for (int i = 0; i < n; i++) ptrmap_put(f.arena, &f.values, func_arg(func, i).ptr, args[i]);
  OpVec ops = block_ops(f.arena, func_body(func));
  for (int i = 0; i < ops.n; i++)
    if (!op_is_return(ops.at[i])) run_op(&f, ops.at[i]);
  Op ret = func_return_op(func);
  for (int i = 0; i < op_n_operands(ret); i++) out_results[i] = copy(m->arena, in(&f, ret, i));
  arena_destroy(f.arena);
}
