/* Values of a kernel's body, evaluated on demand at symbolic indexes. Movement ops only change the index, a
 * MAP becomes one statement, a concat or pad a condition. What is costly and needed twice in a row is kept in
 * a row buffer on the stack. Each value is rounded to its type. */
#include <ctype.h>
#include <math.h>

#include "codegen/kernel_emit.h"
#include "codegen/parts.h"
#include "runtime/kernels/bf16.h"

enum {
  BUFFER_BYTES = 64 << 10 /* of row buffers on the stack */
};

/* --- leaves and statements ------------------------------------------------------------------------------ */

const char *kernel_index_key(Emit *e, int v, int rank, const Index *index) {
  Str s = {0};
  str_printf(&s, "%d:", v);
  for (int i = 0; i < rank; i++) {
    Index a = index[i];
    str_printf(&s, "[%lld", (long long)a.constant);
    for (int j = 0; j < a.n; j++) str_printf(&s, "+%d*%lld", a.terms[j].atom, (long long)a.terms[j].coef);
  }
  const char *key = arena_strndup(e->arena, str_text(&s), s.length);
  str_free(&s);
  return key;
}

const char *kernel_base_name(Emit *e, int v) {
  const PlanNode *n = node_of(e, v);
  if (n->name && (isalpha((unsigned char)n->name[0]) || n->name[0] == '_')) {
    char *name = arena_strdup(e->arena, n->name);
    for (char *c = name; *c; c++)
      if (!isalnum((unsigned char)*c)) *c = '_';
    if (strlen(name) > 40) name[40] = 0;
    return emit_may_be_taken(name) ? arena_printf(e->arena, "%s_", name) : name;
  }
  return arena_printf(e->arena, "%s_%d", kernel_ops[n->op].name, v);
}

Val kernel_define_in(Emit *e, Scope *s, const char *type, const char *base, const char *text) {
  const char *key = arena_printf(e->arena, "=%s %s", type, text);
  const Memo *m = kernel_find_memo(e, key);
  if (m) return m->val;
  Val val = {kernel_fresh_name(e, base), s->depth};
  kernel_line(e, s, "const %s %s = %s;", type, val.text, text);
  kernel_remember(e, s, key, val);
  return val;
}

Val kernel_define(Emit *e, int depth, const char *type, const char *base, const char *text) {
  return kernel_define_in(e, kernel_scope_at(e, depth), type, base, text);
}

static Val define(Emit *e, int depth, pp_dtype dtype, const char *base, const char *text) {
  return kernel_define(e, depth, kernel_type(dtype), base, text);
}

/* --- indexes ----------------------------------------------------------------------------------------------- */

/* More than once in the body, or in a long line, or of a sum, whose parts may have names by now. */
static bool deserves_name(const char *body, const char *text) {
  size_t n = strlen(text);
  int count = 0;
  bool is_long = *text == '(';
  for (const char *at = body; (at = strstr(at, text)); at += n) {
    const char *begin = at;
    if (isdigit((unsigned char)at[n])) continue; /* of another divisor */
    while (begin > body && begin[-1] != '\n') begin--;
    is_long |= strcspn(begin, "\n") > EMIT_COLUMNS;
    count++;
  }
  return count > 1 || is_long;
}

/* Arithmetic does no harm outside of conditions, where more can share it. */
static Scope *scope_of_index(Emit *e, int depth) {
  Scope *s = e->scope;
  while (s->depth > depth && !s->is_else) s = s->parent;
  return s;
}

/* "i_2" for "i / 8 % 128" */
const char *kernel_name_quotient(void *context, const char *text, int depth) {
  Emit *e = context;
  if (!e->draft || e->trials || !deserves_name(e->draft, text)) return NULL;
  const char *begin = text + strspn(text, "("), *end = begin;
  while (isalpha((unsigned char)*end)) end++;
  return kernel_define_in(e, scope_of_index(e, depth), e->form->index_type, arena_strndup(e->arena, begin, (size_t)(end - begin)), text).text;
}

/* --- loads and constants ------------------------------------------------------------------------------- */

/* Element `linear` of input v. */
static Val load(Emit *e, int v, Index linear) {
  Val val;
  kernel_note_access(e, linear);
  if (e->form->load && e->form->load(e, v, linear, &val)) return val;
  const char *text = arena_printf(e->arena, "%s[%s]", e->names[v], index_text(&e->space, linear));
  const char *base = arena_printf(e->arena, "%s_i", e->names[v]);
  return define(e, index_depth(&e->space, linear), type_of(e, v)->dtype, base, text);
}

static const char *float_text(Emit *e, double value, pp_dtype dtype) {
  if (isnan(value)) return dtype == PP_F64 ? "(double)NAN" : "NAN";
  if (isinf(value))
    return dtype == PP_F64 ? (value < 0 ? "-(double)INFINITY" : "(double)INFINITY") : (value < 0 ? "-INFINITY" : "INFINITY");
  if (dtype == PP_F64) {
    char text[32];
    str_format_double(value, text);
    return arena_strdup(e->arena, text);
  }
  float f = (float)value;
  if (isinf(f)) return f < 0 ? "-INFINITY" : "INFINITY";
  for (int digits = 6;; digits++) {
    char *text = arena_printf(e->arena, "%.*g", digits, (double)f);
    double back;
    if (digits < 9 && (!str_to_double(text, &back) || (float)back != f)) continue;
    bool whole = !strpbrk(text, ".e");
    return arena_printf(e->arena, "%s%sf", text, whole ? ".0" : "");
  }
}

static Val constant(Emit *e, const PlanNode *n) {
  const char *text;
  if (n->type.dtype == PP_BOOL) text = n->attrs.integer ? "1" : "0";
  else if (n->type.dtype == PP_BF16)
    text = arena_printf(e->arena, "(uint16_t)0x%04x", pp_bf16_from_f32((float)n->attrs.value));
  else if (n->type.dtype == PP_I32)
    text = n->attrs.integer == INT32_MIN ? "INT32_MIN" : arena_printf(e->arena, "%d", (int)n->attrs.integer);
  else text = float_text(e, n->attrs.value, n->type.dtype);
  if (text[0] == '-') text = arena_printf(e->arena, "(%s)", text);
  return (Val){text, 0};
}

static const char *cast_text(Emit *e, pp_dtype from, pp_dtype to, const char *x) {
  if (from == to) return x;
  if (from == PP_BF16) {
    x = arena_printf(e->arena, "pp_f32_from_bf16(%s)", x);
    return cast_text(e, PP_F32, to, x);
  }
  if (to == PP_BF16) return arena_printf(e->arena, from == PP_F32 ? "pp_bf16_from_f32(%s)" : "pp_bf16_from_f32((float)%s)", x);
  if (to == PP_BOOL) return arena_printf(e->arena, "(uint8_t)(%s != 0)", x);
  if (to == PP_I32 && (from == PP_F32 || from == PP_F64)) return arena_printf(e->arena, "pp_i32_from_%s(%s)", pp_dtype_name(from), x);
  return arena_printf(e->arena, "(%s)%s", kernel_type(to), x);
}

static const char *infix(PlanOp op) {
  switch (op) {
  case PLAN_OP_ADD: return "+";
  case PLAN_OP_SUB: return "-";
  case PLAN_OP_MUL: return "*";
  case PLAN_OP_DIV: return "/";
  default: return NULL;
  }
}

static const char *compare_text(Emit *e, const char *predicate, const char *a, const char *b) {
  static const char *const table[][2] = {{"eq", "=="}, {"ne", "!="}, {"lt", "<"}, {"le", "<="}, {"gt", ">"}, {"ge", ">="}};
  for (int i = 0; i < 6; i++)
    if (!strcmp(predicate, table[i][0])) return arena_printf(e->arena, "(uint8_t)(%s %s %s)", a, table[i][1], b);
  bug("unknown predicate %s", predicate);
}

/* The expression of a MAP op; in[] are variables or literals. */
static const char *map_text(Emit *e, const PlanNode *n, const char *const *in, const pp_dtype *dtypes) {
  Arena *a = e->arena;
  pp_dtype d = n->type.dtype;
  const char *suffix = pp_dtype_name(d), *op = infix(n->op);
  if (op && d != PP_I32) return arena_printf(a, "%s %s %s", in[0], op, in[1]);
  switch (n->op) {
  case PLAN_OP_NEG: return d == PP_I32 ? arena_printf(a, "pp_neg_i32(%s)", in[0]) : arena_printf(a, "-%s", in[0]);
  case PLAN_OP_NOT: return arena_printf(a, "(uint8_t)(%s ^ 1)", in[0]);
  case PLAN_OP_AND: return arena_printf(a, "(uint8_t)(%s & %s)", in[0], in[1]);
  case PLAN_OP_OR: return arena_printf(a, "(uint8_t)(%s | %s)", in[0], in[1]);
  case PLAN_OP_COMPARE: return compare_text(e, n->attrs.predicate, in[0], in[1]);
  case PLAN_OP_SELECT: return arena_printf(a, "%s ? %s : %s", in[0], in[1], in[2]);
  case PLAN_OP_CAST: return cast_text(e, dtypes[0], d, in[0]);
  default: break;
  }
  if (n->n_in == 1) return arena_printf(a, "pp_%s_%s(%s)", kernel_ops[n->op].name, suffix, in[0]);
  return arena_printf(a, "pp_%s_%s(%s, %s)", kernel_ops[n->op].name, suffix, in[0], in[1]);
}

/* --- row buffers ------------------------------------------------------------------------------------------ */

static bool is_costly(PlanOp op) {
  return op == PLAN_OP_EXP || op == PLAN_OP_LOG || op == PLAN_OP_TANH || op == PLAN_OP_ERF || op == PLAN_OP_SIN ||
         op == PLAN_OP_COS || op == PLAN_OP_POW;
}

/* The scope that holds the loops over `linear`'s innermost variable; null when it isn't one loop. */
static Scope *row_scope(Emit *e, Index linear, Buffer *out_pattern) {
  Scope *s = e->scope;
  while (s && s->loop < 0) {
    if (s->is_condition) return NULL;
    s = s->parent;
  }
  if (!s || s->atom < 0 || s->has_points) return NULL;
  int64_t coef = index_coef(linear, s->atom);
  Index base = index_without(&e->space, linear, s->atom);
  if (coef <= 0 || index_mentions(&e->space, base, s->atom)) return NULL;
  Scope *home = s->parent;
  while (home && home->loop == s->loop) home = home->parent; /* the chunks of one loop */
  if (!home || index_depth(&e->space, base) > home->depth) return NULL;
  *out_pattern = (Buffer){.loop = s->loop, .base = base, .coef = coef, .extent = s->extent};
  return home;
}

static bool same_row(const Buffer *a, const Buffer *b) {
  return a->node == b->node && a->coef == b->coef && a->extent == b->extent && index_equal(a->base, b->base);
}

static int innermost_atom(const Emit *e) {
  Scope *s = e->scope;
  while (s->loop < 0) s = s->parent;
  return s->atom;
}

static const char *innermost_text(Emit *e) { return index_text(&e->space, index_loop(&e->space, innermost_atom(e))); }

/* The row buffer in which an earlier loop has left node v; null when there is none. */
static Buffer *find_buffer(Emit *e, int v, Index linear) {
  Buffer p;
  Scope *home = e->buffered[v] ? row_scope(e, linear, &p) : NULL;
  if (!home) return NULL;
  p.node = v;
  for (int i = 0; i < home->buffers.n; i++) {
    Buffer *b = &home->buffers.at[i];
    if (same_row(b, &p) && b->loop != p.loop && kernel_is_finished(e, b->loop)) return b;
  }
  return NULL;
}

static Val read_buffer(Emit *e, int v, Buffer *b) {
  b->is_read = true;
  const char *text = arena_printf(e->arena, "%s[%s]", b->name, innermost_text(e));
  return define(e, e->scope->depth, type_of(e, v)->dtype, kernel_base_name(e, v), text);
}

static void write_buffer(Emit *e, int v, Index linear, Val val) {
  Buffer p;
  Scope *home = row_scope(e, linear, &p);
  if (!home) return;
  p.node = v;
  const Buffer *found = NULL;
  for (int i = 0; i < home->buffers.n && !found; i++)
    if (same_row(&home->buffers.at[i], &p)) found = &home->buffers.at[i];
  if (!found) {
    pp_dtype dtype = type_of(e, v)->dtype;
    p.name = kernel_fresh_name(e, arena_printf(e->arena, "%s_row", kernel_base_name(e, v)));
    kernel_line(e, home, "%s %s[%lld];", kernel_type(dtype), p.name, (long long)p.extent);
    VEC_PUSH(e->arena, &home->buffers, p);
    found = &VEC_LAST(&home->buffers);
  }
  kernel_line(e, e->scope, "%s[%s] = %s;", found->name, innermost_text(e), val.text);
}

static void count_costly(Emit *e, int v, Index linear) {
  Buffer p;
  if (e->trials || e->final || !row_scope(e, linear, &p)) return;
  Costly c = {.node = v, .loop = p.loop, .base = p.base, .coef = p.coef, .extent = p.extent};
  VEC_PUSH(e->arena, &e->costly, c);
}

/* Nodes that two loops of one row compute, as far as the stack allows. */
void kernel_choose_buffers(Emit *e) {
  for (int i = 0; i < e->costly.n; i++) {
    const Costly *a = &e->costly.at[i];
    if (e->buffered[a->node]) continue;
    for (int j = 0; j < i; j++) {
      const Costly *b = &e->costly.at[j];
      if (a->node != b->node || a->loop == b->loop || a->extent != b->extent || a->coef != b->coef || !index_equal(a->base, b->base)) continue;
      int64_t bytes = a->extent * pp_dtype_bytes(type_of(e, a->node)->dtype);
      if (e->buffer_bytes + bytes > BUFFER_BYTES) break;
      e->buffer_bytes += bytes;
      e->buffered[a->node] = true;
      break;
    }
  }
}

/* --- evaluation ------------------------------------------------------------------------------------------------ */

static Val evaluate_map(Emit *e, int v, const Index *index) {
  const PlanNode *n = node_of(e, v);
  Index linear = index_linear(&e->space, n->type.rank, n->type.dims, index);
  bool costly = e->form->keeps_rows && is_costly(n->op) && plan_elements(&n->type) > 1;
  Buffer *kept = find_buffer(e, v, linear);
  if (kept) return read_buffer(e, v, kept);
  const char *in[3];
  pp_dtype dtypes[3];
  int depth = 0;
  for (int i = 0; i < n->n_in; i++) {
    Val x = kernel_evaluate(e, n->in[i], index);
    in[i] = x.text;
    dtypes[i] = type_of(e, n->in[i])->dtype;
    if (x.depth > depth) depth = x.depth;
  }
  const char *text = map_text(e, n, in, dtypes);
  if (n->op == PLAN_OP_CAST && text == in[0]) return (Val){text, depth};
  Val val = define(e, depth, n->type.dtype, kernel_base_name(e, v), text);
  if (costly && val.depth == e->scope->depth) {
    count_costly(e, v, linear);
    if (e->buffered[v]) write_buffer(e, v, linear, val);
  }
  return val;
}

static Val zero(pp_dtype d) { return (Val){d == PP_F32 ? "0.0f" : d == PP_F64 ? "0.0" : "0", 0}; }

static void note_condition(Emit *e, Index position, int64_t threshold) {
  Access a = {.e = position, .condition = true, .threshold = threshold};
  if (e->record) VEC_PUSH(e->arena, e->record, a);
}

/* Operand i of a concat, whose elements begin at `begin` of the axis. */
static Val concat_operand(Emit *e, int v, const Index *index, int i, int64_t begin) {
  const PlanNode *n = node_of(e, v);
  Index inner[PP_MAX_RANK];
  memcpy(inner, index, sizeof *index * (size_t)n->type.rank);
  inner[n->attrs.integer] = index_offset(index[n->attrs.integer], -begin);
  return kernel_evaluate(e, n->in[i], inner);
}

static int64_t concat_extent(const Emit *e, int v, int i) {
  const PlanNode *n = node_of(e, v);
  return type_of(e, n->in[i])->dims[n->attrs.integer];
}

/* One condition after the other, for the operands from number i on, which begins at `begin`, to that of the highest position. */
static Val concat_cases(Emit *e, int v, const Index *index, int i, int64_t begin) {
  const PlanNode *n = node_of(e, v);
  Index at = index[n->attrs.integer];
  Scope *s = e->scope;
  Val val = {kernel_fresh_name(e, kernel_base_name(e, v)), s->depth};
  kernel_line(e, s, "%s %s;", kernel_type(n->type.dtype), val.text);
  const char *position = index_text(&e->space, at), *otherwise = "";
  for (bool last = false; !last; i++, otherwise = "else ") {
    int64_t end = begin + concat_extent(e, v, i);
    last = i == n->n_in - 1 || index_high(&e->space, at) < end;
    if (!last) note_condition(e, at, end);
    Scope *c = kernel_open_scope(e, true);
    c->condition = at;
    c->is_else = *otherwise != 0;
    kernel_extend_path(e, '?', v, i);
    Val x = concat_operand(e, v, index, i, begin);
    kernel_line(e, c, "%s = %s;", val.text, x.text);
    kernel_close_scope(e, NULL, last ? otherwise : arena_printf(e->arena, "%sif (%s < %lld) ", otherwise, position, (long long)end), NULL);
    begin = end;
  }
  return val;
}

static Val evaluate_concat(Emit *e, int v, const Index *index) {
  const PlanNode *n = node_of(e, v);
  Index at = index[n->attrs.integer];
  int i = 0;
  int64_t begin = 0;
  while (i < n->n_in - 1 && index_low(&e->space, at) >= begin + concat_extent(e, v, i)) begin += concat_extent(e, v, i++);
  bool is_one = i == n->n_in - 1 || index_high(&e->space, at) < begin + concat_extent(e, v, i);
  if (is_one) return concat_operand(e, v, index, i, begin);
  if (e->prefetch) return zero(n->type.dtype); /* a reduction there may hold in one case only */
  return concat_cases(e, v, index, i, begin);
}

static Val evaluate_pad(Emit *e, int v, const Index *index, int axis) {
  const PlanNode *n = node_of(e, v);
  const PlanType *t = type_of(e, n->in[0]);
  if (axis == t->rank) {
    Index inner[PP_MAX_RANK];
    for (int i = 0; i < t->rank; i++) inner[i] = index_offset(index[i], -n->attrs.axes[i]);
    return kernel_evaluate(e, n->in[0], inner);
  }
  int64_t before = n->attrs.axes[axis], end = before + t->dims[axis];
  Index p = index[axis];
  if (index_high(&e->space, p) < before || index_low(&e->space, p) >= end) return zero(n->type.dtype);
  bool low = index_low(&e->space, p) < before, high = index_high(&e->space, p) >= end;
  if (!low && !high) return evaluate_pad(e, v, index, axis + 1);
  if (e->prefetch) return zero(n->type.dtype);
  if (low) note_condition(e, p, before);
  if (high) note_condition(e, p, end);
  Scope *s = e->scope;
  Val val = {kernel_fresh_name(e, kernel_base_name(e, v)), s->depth};
  kernel_line(e, s, "%s %s = 0;", kernel_type(n->type.dtype), val.text);
  const char *text = index_text(&e->space, p);
  Scope *c = kernel_open_scope(e, true);
  c->condition = p;
  kernel_extend_path(e, '?', v, axis);
  Val x = evaluate_pad(e, v, index, axis + 1);
  kernel_line(e, c, "%s = %s;", val.text, x.text);
  const char *head = low && high ? arena_printf(e->arena, "if (%s >= %lld && %s < %lld) ", text, (long long)before, text, (long long)end)
                     : low       ? arena_printf(e->arena, "if (%s >= %lld) ", text, (long long)before)
                                 : arena_printf(e->arena, "if (%s < %lld) ", text, (long long)end);
  kernel_close_scope(e, NULL, head, NULL);
  return val;
}

static Val evaluate_move(Emit *e, int v, const Index *index) {
  const PlanNode *n = node_of(e, v);
  const PlanType *t = type_of(e, n->in[0]);
  Index inner[PP_MAX_RANK];
  switch (n->op) {
  case PLAN_OP_RESHAPE:
    index_split(&e->space, index_linear(&e->space, n->type.rank, n->type.dims, index), t->rank, t->dims, inner);
    break;
  case PLAN_OP_PERMUTE:
    for (int i = 0; i < t->rank; i++) inner[n->attrs.axes[i]] = index[i];
    break;
  case PLAN_OP_BROADCAST:
    for (int i = 0; i < t->rank; i++) inner[i] = t->dims[i] == 1 ? index_constant(0) : index[i];
    break;
  case PLAN_OP_SLICE:
    for (int i = 0; i < t->rank; i++) inner[i] = index_offset(index[i], n->attrs.axes[i]);
    break;
  case PLAN_OP_CONCAT: return evaluate_concat(e, v, index);
  case PLAN_OP_PAD: return evaluate_pad(e, v, index, 0);
  default: bug("op %s in a kernel", kernel_ops[n->op].name);
  }
  return kernel_evaluate(e, n->in[0], inner);
}

static Val evaluate_leaf(Emit *e, int v, const Index *index) {
  const PlanNode *n = node_of(e, v);
  if (n->op == PLAN_OP_CONSTANT) return constant(e, n);
  if (n->op == PLAN_OP_IOTA) {
    Index i = index[n->attrs.integer];
    kernel_note_access(e, i);
    if (i.n == 0) return (Val){arena_printf(e->arena, "%lld", (long long)i.constant), 0};
    return define(e, index_depth(&e->space, i), PP_I32, kernel_base_name(e, v), arena_printf(e->arena, "(int32_t)(%s)", index_text(&e->space, i)));
  }
  if (n->op != PLAN_OP_RANDOM) bug("op %s in a kernel", kernel_ops[n->op].name);
  return e->form->random(e, v, index_linear(&e->space, n->type.rank, n->type.dims, index));
}

/* Evaluates only the reductions that `v` needs, so that their loops come before what is open. */
void kernel_prefetch(Emit *e, int v, const Index *index) {
  if (e->depth_of_reductions[v] == 0) return;
  e->prefetch = true;
  kernel_evaluate(e, v, index);
  e->prefetch = false;
}

static Val evaluate_prefetch(Emit *e, int v, const Index *index) {
  const Val nothing = {"0", 0};
  if (is_input(e, v) || e->depth_of_reductions[v] == 0) return nothing;
  const PlanNode *n = node_of(e, v);
  const char *key = arena_printf(e->arena, "?%s", kernel_index_key(e, v, n->type.rank, index));
  if (kernel_find_memo(e, key)) return nothing;
  kernel_remember(e, e->scope, key, nothing);
  OpClass class = kernel_ops[n->op].class;
  if (class == CLASS_MAP && !find_buffer(e, v, index_linear(&e->space, n->type.rank, n->type.dims, index)))
    for (int i = 0; i < n->n_in; i++) kernel_evaluate(e, n->in[i], index);
  if (class == CLASS_MOVE) evaluate_move(e, v, index);
  if (class == CLASS_REDUCE) {
    e->prefetch = false;
    kernel_evaluate(e, v, index);
    e->prefetch = true;
  }
  return nothing;
}

/* The element of value v at `index` (one for each of its axes). */
Val kernel_evaluate(Emit *e, int v, const Index *index) {
  if (e->prefetch) return evaluate_prefetch(e, v, index);
  const PlanType *t = type_of(e, v);
  if (is_input(e, v)) return load(e, v, index_linear(&e->space, t->rank, t->dims, index));
  OpClass class = kernel_ops[node_of(e, v)->op].class;
  if (class == CLASS_LEAF) return evaluate_leaf(e, v, index);
  const char *key = kernel_index_key(e, v, t->rank, index);
  const Memo *m = kernel_find_memo(e, key);
  if (m) return m->val;
  if (class == CLASS_REDUCE) return kernel_reduce(e, v, index, key);
  Val val = class == CLASS_MAP ? evaluate_map(e, v, index) : evaluate_move(e, v, index);
  kernel_remember(e, kernel_scope_at(e, val.depth), key, val);
  return val;
}
