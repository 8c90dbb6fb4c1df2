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
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "codegen/c/kernel.h"
#include "compiler/base/diag.h"

enum {
  BUFFER_BYTES = 64 << 10, /* of row buffers on the stack */
  MAX_SEGMENTS = 4096,     /* pieces of a nest, split where a concat or pad changes sides */
  COLUMN_BYTES = 64 << 10  /* of the accumulators of a nest of column sums: wide rows beat a small cache footprint */
};

typedef enum { CLASS_LEAF, CLASS_MAP, CLASS_REDUCE, CLASS_MOVE, CLASS_PRODUCT, CLASS_SPECIAL, CLASS_EFFECT, CLASS_STRUCT } OpClass;
static const struct { const char *name; OpClass class; } ops[] = {
#define OP(id, name, class, ...) {name, CLASS_##class},
#include "compiler/ir/ops.def"
};

/* --- state ---------------------------------------------------------------------------------------- */

/* A value in C: a variable or a literal, and the depth of the scope from which it can be seen. */
typedef struct {
  const char *text;
  int depth;
} Val;

typedef struct {
  uint64_t hash;
  const char *key;
  Val val;
} Memo;

/* A value kept for a whole row: [extent] elements named `name`, filled by loop `loop`. */
typedef struct {
  int node, loop;
  Index base;
  int64_t coef, extent;
  const char *name;
  bool is_read;
} Buffer;

typedef struct Scope {
  struct Scope *parent;
  int depth, indent;
  bool is_condition;  /* nothing moves out of it: its loads hold under its condition only */
  bool has_loops;     /* closed ones inside */
  const char *path;   /* what it is for: the same in both passes */
  Str text;
  VEC(Memo) memos;
  VEC(Buffer) buffers;
  VEC(const char *) results; /* of reductions */
  int loop;           /* logical loop: pieces of one loop have one number; -1: no loop */
  int atom;
  int64_t extent;     /* of the logical loop */
  bool has_points;    /* a piece of the logical loop is one value, so not every piece knows the variable */
} Scope;

typedef struct {
  int node, loop;
  Index base;
  int64_t coef, extent;
} Costly;

typedef struct {
  Index e;
  bool condition;     /* it is compared with `threshold`, not used as an address */
  int64_t threshold;
} Access;

typedef VEC(Access) Accesses;
typedef VEC(const char *) Texts;

typedef struct {
  Arena *arena;
  const PlanKernel *k;
  const char *const *names;   /* parameters */
  IndexSpace space;
  Scope *scope;               /* innermost open one */
  Texts taken;                /* variable names */
  Accesses *record;           /* where a trial notes accesses; null: nowhere */
  bool final;                 /* third pass */
  int trials;                 /* nested trials that are running */
  VEC(Costly) costly;         /* of the first pass */
  bool *buffered;             /* nodes that get a row buffer */
  int64_t buffer_bytes;
  Texts demanded;             /* reductions of the second pass */
  int n_loops;
  VEC(int) finished;          /* loops whose last piece is closed */
  bool prefetch;              /* evaluate nothing but the reductions on the way */
  const char **random;        /* per node: name of the array that holds it */
  bool *random_output;        /* per output: filled in the prologue */
  int *depth_of_reductions;   /* per value: reductions on the longest path to it */
} Emit;

static bool is_input(const Emit *e, int v) { return v < e->k->n_inputs; }
static const PlanNode *node_of(const Emit *e, int v) { return &e->k->nodes[v - e->k->n_inputs]; }
static const PlanType *type_of(const Emit *e, int v) {
  return is_input(e, v) ? &e->k->inputs[v] : &node_of(e, v)->type;
}
static int64_t elements(const PlanType *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->dims[i];
  return n;
}
static int element_bytes(pp_dtype d) { return d == PP_F64 ? 8 : d == PP_BOOL ? 1 : 4; }

const char *kernel_type(pp_dtype dtype) {
  static const char *const names[] = {"float", "double", "int32_t", "uint8_t"};
  return names[dtype];
}
const char *kernel_suffix(pp_dtype dtype) {
  static const char *const names[] = {"f32", "f64", "i32", "bool"};
  return names[dtype];
}

/* --- scopes ----------------------------------------------------------------------------------------- */

static Scope *open_scope(Emit *e, bool is_condition) {
  Scope *s = arena_alloc(e->arena, sizeof *s);
  s->parent = e->scope;
  s->depth = e->scope ? e->scope->depth + 1 : 0;
  s->indent = e->scope ? e->scope->indent + 1 : 1;
  s->is_condition = is_condition;
  s->path = e->scope ? e->scope->path : "";
  s->loop = -1;
  e->scope = s;
  return s;
}

static void extend_path(Emit *e, char kind, int a, int64_t b) {
  e->scope->path = arena_printf(e->arena, "%s/%c%d.%lld", e->scope->path, kind, a, (long long)b);
}

static void print_line(Scope *s, const char *line) {
  str_pad(&s->text, ' ', 2 * s->indent);
  str_puts(&s->text, line);
  str_putc(&s->text, '\n');
}

static void line(Emit *e, Scope *s, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void line(Emit *e, Scope *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  print_line(s, arena_vprintf(e->arena, format, args));
  va_end(args);
}

static int count_mentions(const char *text, const char *name) {
  size_t n = strlen(name);
  int count = 0;
  for (const char *at = text; (at = strstr(at, name)); at += n) {
    bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
    count += begins && !(isalnum((unsigned char)at[n]) || at[n] == '_');
  }
  return count;
}

/* Row buffers and reductions that nothing reads after all. */
static void print_unread(Emit *e, Scope *s) {
  for (int i = 0; i < s->results.n; i++)
    if (count_mentions(str_text(&s->text), s->results.at[i]) == 1) line(e, s, "(void)%s;", s->results.at[i]);
  for (int i = 0; i < s->buffers.n; i++)
    if (!s->buffers.at[i].is_read) line(e, s, "(void)%s;", s->buffers.at[i].name);
}

static bool is_finished(const Emit *e, int loop) {
  for (int i = 0; i < e->finished.n; i++)
    if (e->finished.at[i] == loop) return true;
  return false;
}

static void finish_loop(Emit *e, int loop) {
  if (!e->trials) VEC_PUSH(e->arena, &e->finished, loop);
}

/* Closes the innermost scope: its text, behind `first`, goes under `head` to its parent. */
static void close_scope(Emit *e, const char *pragma, const char *head, const char *first) {
  Scope *s = e->scope, *parent = s->parent;
  print_unread(e, s);
  if (pragma) print_line(parent, pragma);
  line(e, parent, "%s{", head);
  if (first) {
    str_pad(&parent->text, ' ', 2 * s->indent);
    str_puts(&parent->text, first);
    str_putc(&parent->text, '\n');
  }
  str_append(&parent->text, str_text(&s->text), s->text.length);
  print_line(parent, "}");
  str_free(&s->text);
  parent->has_loops |= s->has_loops || !strncmp(head, "for", 3);
  e->scope = parent;
}

static Scope *scope_at(Emit *e, int depth) {
  Scope *s = e->scope;
  while (s->depth > depth && !s->is_condition) s = s->parent;
  return s;
}

static const Memo *find_memo(Emit *e, const char *key) {
  uint64_t hash = str_hash(key, strlen(key));
  for (Scope *s = e->scope; s; s = s->parent)
    for (int i = s->memos.n - 1; i >= 0; i--)
      if (s->memos.at[i].hash == hash && !strcmp(s->memos.at[i].key, key)) return &s->memos.at[i];
  return NULL;
}

static void remember(Emit *e, Scope *s, const char *key, Val val) {
  Memo m = {str_hash(key, strlen(key)), key, val};
  VEC_PUSH(e->arena, &s->memos, m);
}

static bool is_taken(const Emit *e, const char *name) {
  for (int i = 0; i < e->taken.n; i++)
    if (!strcmp(e->taken.at[i], name)) return true;
  return false;
}

static const char *fresh_name(Emit *e, const char *base) {
  const char *name = base;
  for (int n = 2; is_taken(e, name); n++) name = arena_printf(e->arena, "%s_%d", base, n);
  VEC_PUSH(e->arena, &e->taken, name);
  return name;
}

/* --- trials: evaluate, note the accesses, forget the text --------------------------------------------- */

typedef struct {
  size_t length;
  int n_memos, n_buffers, n_results;
} ScopeMark;

typedef struct {
  ScopeMark marks[128];
  int n_taken, n_loops;
  Accesses *record;
} Trial;

static void trial_begin(Emit *e, Trial *t, Accesses *record) {
  int n = 0;
  for (Scope *s = e->scope; s; s = s->parent) {
    if (n == 128) bug("scopes nest too deep");
    t->marks[n++] = (ScopeMark){s->text.length, s->memos.n, s->buffers.n, s->results.n};
  }
  t->n_taken = e->taken.n, t->n_loops = e->n_loops, t->record = e->record;
  e->record = record;
  e->trials++;
}

static void trial_end(Emit *e, Trial *t) {
  int n = 0;
  for (Scope *s = e->scope; s; s = s->parent, n++) {
    str_truncate(&s->text, t->marks[n].length);
    s->memos.n = t->marks[n].n_memos, s->buffers.n = t->marks[n].n_buffers, s->results.n = t->marks[n].n_results;
  }
  e->taken.n = t->n_taken, e->n_loops = t->n_loops;
  if (t->record)
    for (int i = 0; i < e->record->n; i++) VEC_PUSH(e->arena, t->record, e->record->at[i]);
  e->record = t->record;
  e->trials--;
}

static void note_access(Emit *e, Index index) {
  Access a = {.e = index};
  if (e->record) VEC_PUSH(e->arena, e->record, a);
}

/* --- leaves and statements ------------------------------------------------------------------------------ */

static const char *index_key(Emit *e, int v, int rank, const Index *index) {
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

static const char *base_name(Emit *e, int v) {
  const PlanNode *n = node_of(e, v);
  if (n->name && (isalpha((unsigned char)n->name[0]) || n->name[0] == '_')) {
    char *name = arena_strdup(e->arena, n->name);
    for (char *c = name; *c; c++)
      if (!isalnum((unsigned char)*c)) *c = '_';
    if (strlen(name) > 40) name[40] = 0;
    return name;
  }
  return arena_printf(e->arena, "%s_%d", ops[n->op].name, v);
}

/* A constant variable of value `text`, in the scope at `depth`; equal texts share one. */
static Val define(Emit *e, int depth, pp_dtype dtype, const char *base, const char *text) {
  const char *key = arena_printf(e->arena, "=%s %s", kernel_type(dtype), text);
  const Memo *m = find_memo(e, key);
  if (m) return m->val;
  Scope *s = scope_at(e, depth);
  Val val = {fresh_name(e, base), s->depth};
  line(e, s, "const %s %s = %s;", kernel_type(dtype), val.text, text);
  remember(e, s, key, val);
  return val;
}

static Val load(Emit *e, const char *array, pp_dtype dtype, Index linear) {
  note_access(e, linear);
  const char *text = arena_printf(e->arena, "%s[%s]", array, index_text(&e->space, linear));
  const char *base = arena_printf(e->arena, "%s_i", array);
  return define(e, index_depth(&e->space, linear), dtype, base, text);
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
  else if (n->type.dtype == PP_I32)
    text = n->attrs.integer == INT32_MIN ? "INT32_MIN" : arena_printf(e->arena, "%d", (int)n->attrs.integer);
  else text = float_text(e, n->attrs.value, n->type.dtype);
  if (text[0] == '-') text = arena_printf(e->arena, "(%s)", text);
  return (Val){text, 0};
}

static const char *cast_text(Emit *e, pp_dtype from, pp_dtype to, const char *x) {
  if (from == to) return x;
  if (to == PP_BOOL) return arena_printf(e->arena, "(uint8_t)(%s != 0)", x);
  if (to == PP_I32 && (from == PP_F32 || from == PP_F64)) return arena_printf(e->arena, "pp_i32_from_%s(%s)", kernel_suffix(from), x);
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
  const char *suffix = kernel_suffix(d), *op = infix(n->op);
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
  if (n->n_in == 1) return arena_printf(a, "pp_%s_%s(%s)", ops[n->op].name, suffix, in[0]);
  return arena_printf(a, "pp_%s_%s(%s, %s)", ops[n->op].name, suffix, in[0], in[1]);
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
    if (same_row(b, &p) && b->loop != p.loop && is_finished(e, b->loop)) return b;
  }
  return NULL;
}

static Val read_buffer(Emit *e, int v, Buffer *b) {
  b->is_read = true;
  const char *text = arena_printf(e->arena, "%s[%s]", b->name, innermost_text(e));
  return define(e, e->scope->depth, type_of(e, v)->dtype, base_name(e, v), text);
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
    p.name = fresh_name(e, arena_printf(e->arena, "%s_row", base_name(e, v)));
    line(e, home, "%s %s[%lld];", kernel_type(dtype), p.name, (long long)p.extent);
    VEC_PUSH(e->arena, &home->buffers, p);
    found = &VEC_LAST(&home->buffers);
  }
  line(e, e->scope, "%s[%s] = %s;", found->name, innermost_text(e), val.text);
}

static void count_costly(Emit *e, int v, Index linear) {
  Buffer p;
  if (e->trials || e->final || !row_scope(e, linear, &p)) return;
  Costly c = {.node = v, .loop = p.loop, .base = p.base, .coef = p.coef, .extent = p.extent};
  VEC_PUSH(e->arena, &e->costly, c);
}

/* Nodes that two loops of one row compute, as far as the stack allows. */
static void choose_buffers(Emit *e) {
  for (int i = 0; i < e->costly.n; i++) {
    const Costly *a = &e->costly.at[i];
    if (e->buffered[a->node]) continue;
    for (int j = 0; j < i; j++) {
      const Costly *b = &e->costly.at[j];
      if (a->node != b->node || a->loop == b->loop || a->extent != b->extent || a->coef != b->coef || !index_equal(a->base, b->base)) continue;
      int64_t bytes = a->extent * element_bytes(type_of(e, a->node)->dtype);
      if (e->buffer_bytes + bytes > BUFFER_BYTES) break;
      e->buffer_bytes += bytes;
      e->buffered[a->node] = true;
      break;
    }
  }
}

/* --- evaluation ------------------------------------------------------------------------------------------------ */

static Val evaluate(Emit *e, int v, const Index *index);
static Val reduce(Emit *e, int v, const Index *index, const char *key);

static Val evaluate_map(Emit *e, int v, const Index *index) {
  const PlanNode *n = node_of(e, v);
  Index linear = index_linear(&e->space, n->type.rank, n->type.dims, index);
  bool costly = is_costly(n->op) && elements(&n->type) > 1;
  Buffer *kept = find_buffer(e, v, linear);
  if (kept) return read_buffer(e, v, kept);
  const char *in[3];
  pp_dtype dtypes[3];
  int depth = 0;
  for (int i = 0; i < n->n_in; i++) {
    Val x = evaluate(e, n->in[i], index);
    in[i] = x.text;
    dtypes[i] = type_of(e, n->in[i])->dtype;
    if (x.depth > depth) depth = x.depth;
  }
  const char *text = map_text(e, n, in, dtypes);
  if (n->op == PLAN_OP_CAST && text == in[0]) return (Val){text, depth};
  Val val = define(e, depth, n->type.dtype, base_name(e, v), text);
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

/* Operands i … of a concat, at a position that begins with operand i. */
static Val evaluate_concat(Emit *e, int v, const Index *index, int i) {
  const PlanNode *n = node_of(e, v);
  int axis = (int)n->attrs.integer;
  int64_t size = type_of(e, n->in[i])->dims[axis];
  if (i == n->n_in - 1 || index_high(&e->space, index[axis]) < size) return evaluate(e, n->in[i], index);
  Index rest[PP_MAX_RANK];
  memcpy(rest, index, sizeof *index * (size_t)n->type.rank);
  rest[axis] = index_offset(index[axis], -size);
  if (index_low(&e->space, index[axis]) >= size) return evaluate_concat(e, v, rest, i + 1);
  if (e->prefetch) return zero(n->type.dtype); /* a reduction there may hold on one side only */
  note_condition(e, index[axis], size);
  Scope *s = e->scope;
  Val val = {fresh_name(e, base_name(e, v)), s->depth};
  line(e, s, "%s %s;", kernel_type(n->type.dtype), val.text);
  const char *position = index_text(&e->space, index[axis]);
  for (int side = 0; side < 2; side++) {
    Scope *c = open_scope(e, true);
    extend_path(e, '?', v, i * 2 + side);
    Val x = side == 0 ? evaluate(e, n->in[i], index) : evaluate_concat(e, v, rest, i + 1);
    line(e, c, "%s = %s;", val.text, x.text);
    close_scope(e, NULL, side == 0 ? arena_printf(e->arena, "if (%s < %lld) ", position, (long long)size) : "else ", NULL);
  }
  return val;
}

static Val evaluate_pad(Emit *e, int v, const Index *index, int axis) {
  const PlanNode *n = node_of(e, v);
  const PlanType *t = type_of(e, n->in[0]);
  if (axis == t->rank) {
    Index inner[PP_MAX_RANK];
    for (int i = 0; i < t->rank; i++) inner[i] = index_offset(index[i], -n->attrs.axes[i]);
    return evaluate(e, n->in[0], inner);
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
  Val val = {fresh_name(e, base_name(e, v)), s->depth};
  line(e, s, "%s %s = 0;", kernel_type(n->type.dtype), val.text);
  const char *text = index_text(&e->space, p);
  Scope *c = open_scope(e, true);
  extend_path(e, '?', v, axis);
  Val x = evaluate_pad(e, v, index, axis + 1);
  line(e, c, "%s = %s;", val.text, x.text);
  const char *head = low && high ? arena_printf(e->arena, "if (%s >= %lld && %s < %lld) ", text, (long long)before, text, (long long)end)
                     : low       ? arena_printf(e->arena, "if (%s >= %lld) ", text, (long long)before)
                                 : arena_printf(e->arena, "if (%s < %lld) ", text, (long long)end);
  close_scope(e, NULL, head, NULL);
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
  case PLAN_OP_CONCAT: return evaluate_concat(e, v, index, 0);
  case PLAN_OP_PAD: return evaluate_pad(e, v, index, 0);
  default: bug("op %s in a kernel", ops[n->op].name);
  }
  return evaluate(e, n->in[0], inner);
}

static Val evaluate_leaf(Emit *e, int v, const Index *index) {
  const PlanNode *n = node_of(e, v);
  if (n->op == PLAN_OP_CONSTANT) return constant(e, n);
  if (n->op == PLAN_OP_IOTA) {
    Index i = index[n->attrs.integer];
    note_access(e, i);
    if (i.n == 0) return (Val){arena_printf(e->arena, "%lld", (long long)i.constant), 0};
    return define(e, index_depth(&e->space, i), PP_I32, base_name(e, v), arena_printf(e->arena, "(int32_t)(%s)", index_text(&e->space, i)));
  }
  if (n->op != PLAN_OP_RANDOM) bug("op %s in a kernel", ops[n->op].name);
  return load(e, e->random[v], PP_F32, index_linear(&e->space, n->type.rank, n->type.dims, index));
}

/* Evaluates only the reductions that `v` needs, so that their loops come before what is open. */
static void prefetch(Emit *e, int v, const Index *index) {
  if (e->depth_of_reductions[v] == 0) return;
  e->prefetch = true;
  evaluate(e, v, index);
  e->prefetch = false;
}

static Val evaluate_prefetch(Emit *e, int v, const Index *index) {
  const Val nothing = {"0", 0};
  if (is_input(e, v) || e->depth_of_reductions[v] == 0) return nothing;
  const PlanNode *n = node_of(e, v);
  const char *key = arena_printf(e->arena, "?%s", index_key(e, v, n->type.rank, index));
  if (find_memo(e, key)) return nothing;
  remember(e, e->scope, key, nothing);
  OpClass class = ops[n->op].class;
  if (class == CLASS_MAP && !find_buffer(e, v, index_linear(&e->space, n->type.rank, n->type.dims, index)))
    for (int i = 0; i < n->n_in; i++) evaluate(e, n->in[i], index);
  if (class == CLASS_MOVE) evaluate_move(e, v, index);
  if (class == CLASS_REDUCE) {
    e->prefetch = false;
    evaluate(e, v, index);
    e->prefetch = true;
  }
  return nothing;
}

/* The element of value v at `index` (one for each of its axes). */
static Val evaluate(Emit *e, int v, const Index *index) {
  if (e->prefetch) return evaluate_prefetch(e, v, index);
  const PlanType *t = type_of(e, v);
  if (is_input(e, v)) return load(e, e->names[v], t->dtype, index_linear(&e->space, t->rank, t->dims, index));
  OpClass class = ops[node_of(e, v)->op].class;
  if (class == CLASS_LEAF) return evaluate_leaf(e, v, index);
  const char *key = index_key(e, v, t->rank, index);
  const Memo *m = find_memo(e, key);
  if (m) return m->val;
  if (class == CLASS_REDUCE) return reduce(e, v, index, key);
  Val val = class == CLASS_MAP ? evaluate_map(e, v, index) : evaluate_move(e, v, index);
  remember(e, scope_at(e, val.depth), key, val);
  return val;
}

/* --- loops ----------------------------------------------------------------------------------------------------- */

static const char *loop_name(Emit *e, int depth) {
  static const char *const names[] = {"i", "j", "k", "l"};
  return depth <= 4 ? names[depth - 1] : arena_printf(e->arena, "i%d", depth);
}

static Scope *open_loop(Emit *e, int loop, int64_t low, int64_t high, int64_t extent) {
  Scope *s = open_scope(e, false);
  s->loop = loop;
  s->extent = extent;
  s->atom = index_new_loop(&e->space, loop_name(e, s->depth), low, high, s->depth);
  return s;
}

static void close_loop(Emit *e, bool simd) {
  Scope *s = e->scope;
  const IndexAtom a = e->space.atoms.at[s->atom];
  if (a.high - a.low == 1 && !a.keep) {
    close_scope(e, NULL, "", NULL);
    return;
  }
  const char *head = arena_printf(e->arena, "for (int64_t %s = %lld; %s < %lld; %s++) ", a.name, (long long)a.low, a.name, (long long)a.high, a.name);
  close_scope(e, simd && !s->has_loops ? "#pragma omp simd" : NULL, head, NULL);
}

/* Several axes as one when every access allows it. groups: extents, outermost first; axis_group[k] is
 * the group of axis k, −1 for an axis of 1. */
typedef struct {
  int n;
  int64_t extents[PP_MAX_RANK];
} Groups;

static bool can_merge(Emit *e, const Accesses *accesses, int outer, int inner, int64_t extent) {
  for (int i = 0; i < accesses->n; i++) {
    const Access *a = &accesses->at[i];
    if (a->condition && (index_mentions(&e->space, a->e, outer) || index_mentions(&e->space, a->e, inner))) return false;
    if (!index_merges(&e->space, a->e, outer, inner, extent)) return false;
  }
  return true;
}

static Groups merge_axes(Emit *e, int n, const int *atoms, const int64_t *extents, const Accesses *accesses) {
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

typedef struct {
  int value;            /* the REDUCE node */
  const char *name;     /* of the result */
  const char *key;
  const char *lanes;
} Reduction;

static bool is_reduced(const PlanNode *n, int axis) {
  for (int i = 0; i < n->attrs.n_axes; i++)
    if (n->attrs.axes[i] == axis) return true;
  return false;
}

static bool is_max(const PlanNode *n) { return n->op == PLAN_OP_REDUCE_MAX; }

static const char *least(pp_dtype d) { return d == PP_I32 ? "INT32_MIN" : d == PP_F64 ? "-(double)INFINITY" : "-INFINITY"; }

static const char *combine_text(Emit *e, const PlanNode *n, const char *a, const char *b) {
  if (!is_max(n) && n->type.dtype != PP_I32) return arena_printf(e->arena, "%s + %s", a, b);
  return arena_printf(e->arena, "pp_%s_%s(%s, %s)", is_max(n) ? "max" : "add", kernel_suffix(n->type.dtype), a, b);
}

/* The operand's index: kept axes from `kept` (the result's index), reduced ones from `reduced`. */
static void operand_index(const Emit *e, const PlanNode *n, const Index *kept, const Index *reduced, Index *out) {
  const PlanType *t = type_of(e, n->in[0]);
  int a = 0, b = 0;
  for (int i = 0; i < t->rank; i++) out[i] = is_reduced(n, i) ? reduced[b++] : kept[a++];
}

static int reduced_dims(const Emit *e, const PlanNode *n, int64_t *dims) {
  const PlanType *t = type_of(e, n->in[0]);
  int count = 0;
  for (int i = 0; i < t->rank; i++)
    if (is_reduced(n, i)) dims[count++] = t->dims[i];
  return count;
}

static Groups reduce_groups(Emit *e, const PlanNode *n, const Index *kept) {
  int64_t dims[PP_MAX_RANK], extents[PP_MAX_RANK];
  int atoms[PP_MAX_RANK], count = reduced_dims(e, n, dims), used = 0;
  Index reduced[PP_MAX_RANK] = {{0}}, index[PP_MAX_RANK];
  Accesses accesses = {0};
  Trial trial;
  trial_begin(e, &trial, &accesses);
  Scope *outer = e->scope;
  int loop = e->n_loops++;
  for (int i = 0; i < count; i++) {
    reduced[i] = index_constant(0);
    if (dims[i] == 1) continue;
    Scope *s = open_loop(e, loop, 0, dims[i], dims[i]);
    reduced[i] = index_loop(&e->space, s->atom);
    atoms[used] = s->atom, extents[used++] = dims[i];
  }
  operand_index(e, n, kept, reduced, index);
  evaluate(e, n->in[0], index);
  while (e->scope != outer) {
    str_free(&e->scope->text);
    e->scope = e->scope->parent;
  }
  trial_end(e, &trial);
  if (used == 0) return (Groups){.n = 1, .extents = {1}};
  return merge_axes(e, used, atoms, extents, &accesses);
}

static void reduction_operand(Emit *e, const Reduction *r, const Index *kept, const Groups *g, const Index *group_index, Index *out) {
  const PlanNode *node = node_of(e, r->value);
  int64_t dims[PP_MAX_RANK];
  Index reduced[PP_MAX_RANK];
  int count = reduced_dims(e, node, dims);
  index_from_groups(e, g, group_index, count, dims, reduced);
  operand_index(e, node, kept, reduced, out);
}

/* One turn of the loop: lane[position] takes the operand of each reduction. */
static void accumulate(Emit *e, int n, const Reduction *r, const Index *kept, const Groups *g, const Index *group_index, const char *lane) {
  Index index[PP_MAX_RANK];
  for (int i = 0; i < n; i++) {
    reduction_operand(e, &r[i], kept, g, group_index, index);
    prefetch(e, node_of(e, r[i].value)->in[0], index);
  }
  for (int i = 0; i < n; i++) {
    const PlanNode *node = node_of(e, r[i].value);
    reduction_operand(e, &r[i], kept, g, group_index, index);
    Val x = evaluate(e, node->in[0], index);
    const char *at = arena_printf(e->arena, "%s[%s]", r[i].lanes, lane);
    line(e, e->scope, "%s = %s;", at, combine_text(e, node, at, x.text));
  }
}

/* Elements low … high - 1 of the innermost group, 16 at a time or, for the rest, fewer than 16. */
static void lane_loop(Emit *e, int loop, int n, const Reduction *r, const Index *kept, const Groups *g, Index *group_index) {
  int64_t extent = g->extents[g->n - 1], whole = extent / 16 * 16;
  if (whole) {
    Scope *chunks = open_scope(e, false);
    chunks->loop = loop, chunks->extent = extent, chunks->atom = -1;
    Scope *s = open_loop(e, loop, 0, whole, extent);
    extend_path(e, 'r', r->value, 0);
    const char *chunk = arena_printf(e->arena, "%s0", e->space.atoms.at[s->atom].name);
    group_index[g->n - 1] = index_loop(&e->space, s->atom);
    accumulate(e, n, r, kept, g, group_index, "lane");
    const IndexAtom a = e->space.atoms.at[s->atom];
    const char *first = a.used ? arena_printf(e->arena, "const int64_t %s = %s + lane;", a.name, chunk) : NULL;
    close_scope(e, s->has_loops ? NULL : "#pragma omp simd", "for (int64_t lane = 0; lane < 16; lane++) ", first);
    close_scope(e, NULL, arena_printf(e->arena, "for (int64_t %s = 0; %s < %lld; %s += 16) ", chunk, chunk, (long long)whole, chunk), NULL);
  }
  if (extent == whole) return;
  Scope *s = open_loop(e, loop, whole, extent, extent);
  extend_path(e, 'r', r->value, whole);
  e->space.atoms.at[s->atom].keep = whole > 0;
  group_index[g->n - 1] = index_loop(&e->space, s->atom);
  const char *name = e->space.atoms.at[s->atom].name;
  accumulate(e, n, r, kept, g, group_index, whole ? arena_printf(e->arena, "%s - %lld", name, (long long)whole) : extent == 1 ? "0" : name);
  close_loop(e, true);
}

/* Several reduced groups whose innermost one isn't a multiple of 16: element by element. */
static void element_loop(Emit *e, int loop, int n, const Reduction *r, const Index *kept, const Groups *g, Index *group_index) {
  Scope *s = open_loop(e, loop, 0, g->extents[g->n - 1], g->extents[g->n - 1]);
  extend_path(e, 'e', r->value, 0);
  group_index[g->n - 1] = index_loop(&e->space, s->atom);
  Index position = index_linear(&e->space, g->n, g->extents, group_index);
  accumulate(e, n, r, kept, g, group_index, arena_printf(e->arena, "(%s) %% 16", index_text(&e->space, position)));
  close_loop(e, false);
}

static void reduce_loops(Emit *e, int loop, int n, const Reduction *r, const Index *kept, const Groups *g, int level, Index *group_index) {
  if (level == g->n - 1) {
    if (g->n == 1 || g->extents[level] % 16 == 0) lane_loop(e, loop, n, r, kept, g, group_index);
    else element_loop(e, loop, n, r, kept, g, group_index);
    return;
  }
  Scope *s = open_loop(e, e->n_loops++, 0, g->extents[level], g->extents[level]);
  extend_path(e, 'g', r->value, level);
  group_index[level] = index_loop(&e->space, s->atom);
  reduce_loops(e, loop, n, r, kept, g, level + 1, group_index);
  close_loop(e, false);
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

static bool same_space(const Emit *e, int a, int b) {
  const PlanNode *x = node_of(e, a), *y = node_of(e, b);
  const PlanType *s = type_of(e, x->in[0]), *t = type_of(e, y->in[0]);
  if (s->rank != t->rank || memcmp(s->dims, t->dims, sizeof *s->dims * (size_t)s->rank)) return false;
  for (int i = 0; i < s->rank; i++)
    if (is_reduced(x, i) != is_reduced(y, i)) return false;
  return e->depth_of_reductions[a] == e->depth_of_reductions[b];
}

static bool joins(Emit *e, int v, int other, const Index *index) {
  if (!e->final || e->trials || other == v || is_input(e, other) || ops[node_of(e, other)->op].class != CLASS_REDUCE) return false;
  int rank = type_of(e, v)->rank;
  return same_space(e, v, other) && is_demanded(e, demand_key(e, other, rank, index)) && !find_memo(e, index_key(e, other, rank, index));
}

enum { MAX_JOINED = 8 };

static void start_reduction(Emit *e, Scope *s, Reduction *r) {
  const PlanNode *n = node_of(e, r->value);
  r->name = fresh_name(e, base_name(e, r->value));
  r->lanes = fresh_name(e, arena_printf(e->arena, "%s_lane", r->name));
  const char *type = kernel_type(n->type.dtype);
  if (!is_max(n)) {
    line(e, s, "%s %s[16] = {0};", type, r->lanes);
    return;
  }
  line(e, s, "%s %s[16];", type, r->lanes);
  line(e, s, "for (int lane = 0; lane < 16; lane++) %s[lane] = %s;", r->lanes, least(n->type.dtype));
}

static Val reduce(Emit *e, int v, const Index *index, const char *key) {
  int rank = type_of(e, v)->rank, depth = 0;
  for (int i = 0; i < rank; i++)
    if (index_depth(&e->space, index[i]) > depth) depth = index_depth(&e->space, index[i]);
  Scope *saved = e->scope, *home = scope_at(e, depth);
  e->scope = home;
  Reduction r[MAX_JOINED] = {{.value = v, .key = key}};
  int n = 1;
  for (int other = e->k->n_inputs; other < e->k->n_inputs + e->k->n_nodes && n < MAX_JOINED; other++)
    if (joins(e, v, other, index)) r[n++] = (Reduction){.value = other, .key = index_key(e, other, rank, index)};
  if (!e->final && !e->trials) VEC_PUSH(e->arena, &e->demanded, demand_key(e, v, rank, index));
  Groups g = reduce_groups(e, node_of(e, v), index);
  for (int i = 1; i < n; i++) { /* joined ones must fall into the same loops */
    Groups other = reduce_groups(e, node_of(e, r[i].value), index);
    bool same = other.n == g.n && !memcmp(other.extents, g.extents, sizeof *g.extents * (size_t)g.n);
    if (!same) r[i--] = r[--n];
  }
  Index group_index[PP_MAX_RANK];
  for (int i = 0; i < n; i++) start_reduction(e, home, &r[i]);
  int loop = e->n_loops++;
  reduce_loops(e, loop, n, r, index, &g, 0, group_index);
  finish_loop(e, loop);
  Val first = {0};
  for (int i = 0; i < n; i++) {
    const PlanNode *node = node_of(e, r[i].value);
    Val val = {r[i].name, home->depth};
    line(e, home, "const %s %s = pp_fold_%s_%s(%s, 1);", kernel_type(node->type.dtype), val.text, is_max(node) ? "max" : "sum",
         kernel_suffix(node->type.dtype), r[i].lanes);
    remember(e, home, r[i].key, val);
    VEC_PUSH(e->arena, &home->results, val.text);
    if (i == 0) first = val;
  }
  e->scope = saved;
  return first;
}

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
    prefetch(e, e->k->outputs[nest->roots[i].output], index);
  }
  for (int i = 0; i < nest->n; i++) {
    const Root *root = &nest->roots[i];
    if (root->level != level || e->random_output[root->output]) continue;
    root_index(e, nest, root, group_index, index);
    const PlanType *t = output_type(e, root->output);
    at[i] = index_linear(&e->space, t->rank, t->dims, index);
    note_access(e, at[i]);
    texts[i] = evaluate(e, e->k->outputs[root->output], index).text;
  }
  for (int i = 0; i < nest->n; i++)
    if (texts[i]) line(e, e->scope, "%s[%s] = %s;", e->names[e->k->n_inputs + nest->roots[i].output], index_text(&e->space, at[i]), texts[i]);
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
    Scope *s = open_loop(e, loops[level], low, high, extent);
    extend_path(e, 'o', nest->lead, low);
    s->has_points = has_points;
    group_index[level] = index_loop(&e->space, s->atom);
    nest_loops(e, nest, level + 1, group_index, loops);
    close_loop(e, innermost);
  }
  finish_loop(e, loops[level]);
}

/* Runs the nest without keeping its text; notes every access. */
static void try_nest(Emit *e, Nest *nest, int *out_atoms) {
  Trial trial;
  nest->accesses = (Accesses){0};
  trial_begin(e, &trial, &nest->accesses);
  Scope *outer = e->scope;
  Index group_index[PP_MAX_RANK];
  for (int level = 0;; level++) {
    store_roots(e, nest, level, group_index);
    if (level == nest->groups.n) break;
    Scope *s = open_loop(e, e->n_loops++, 0, nest->groups.extents[level], nest->groups.extents[level]);
    out_atoms[level] = s->atom;
    group_index[level] = index_loop(&e->space, s->atom);
  }
  while (e->scope != outer) {
    str_free(&e->scope->text);
    e->scope = e->scope->parent;
  }
  trial_end(e, &trial);
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
  int64_t size = elements(output_type(e, nest->lead));
  nest->n = 0;
  for (int o = 0; o < e->k->n_outputs; o++) {
    int64_t n = elements(output_type(e, o));
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
  if (nest.groups.n) nest.groups = merge_axes(e, nest.groups.n, atoms, nest.groups.extents, &nest.accesses);
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
  for (int i = t->rank - 1; i >= 0 && !is_reduced(n, i); i--) columns *= t->dims[i], ++*out_axes;
  int64_t reduced = elements(t) / elements(&n->type);
  return columns > 1 && reduced > 1 ? columns : 0;
}

static bool is_column_output(const Emit *e, int o, int *out_axes) {
  int v = e->k->outputs[o];
  return !is_input(e, v) && ops[node_of(e, v)->op].class == CLASS_REDUCE && n_columns(e, node_of(e, v), out_axes) > 0;
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
  Scope *s = open_scope(e, false);
  s->loop = e->n_loops++, s->extent = c->columns;
  s->atom = index_new_loop(&e->space, loop_name(e, s->depth), low, high, s->depth);
  extend_path(e, 'c', c->outputs[0], low);
  Index column = index_loop(&e->space, s->atom), position = index_linear(&e->space, c->n_reduced, c->reduced_dims, reduced);
  const char *row = index_text(&e->space, index_modulo(&e->space, position, 16));
  for (int i = 0; i < c->n; i++) {
    const PlanNode *n = column_node(e, c, i);
    Index result[PP_MAX_RANK], index[PP_MAX_RANK];
    memcpy(result, kept, sizeof *kept * (size_t)c->kept_axes);
    index_split(&e->space, column, c->column_axes, n->type.dims + c->kept_axes, result + c->kept_axes);
    operand_index(e, n, result, reduced, index);
    Val x = evaluate(e, n->in[0], index);
    const char *at = arena_printf(e->arena, "%s[%s][c]", c->lanes[i], row);
    line(e, s, "%s = %s;", at, combine_text(e, n, at, x.text));
  }
  const IndexAtom a = e->space.atoms.at[s->atom];
  const char *first = a.used ? arena_printf(e->arena, "const int64_t %s = %s + c;", a.name, start) : NULL;
  close_scope(e, s->has_loops ? NULL : "#pragma omp simd", arena_printf(e->arena, "for (int64_t c = 0; c < %lld; c++) ", (long long)(high - low > c->width ? c->width : high - low)), first);
}

static void column_rows(Emit *e, const Columns *c, const Index *kept, Index *reduced, int axis, const char *start, int64_t low, int64_t high) {
  if (axis == c->n_reduced) {
    column_row(e, c, kept, reduced, start, low, high);
    return;
  }
  Scope *s = open_loop(e, e->n_loops++, 0, c->reduced_dims[axis], c->reduced_dims[axis]);
  extend_path(e, 'k', c->outputs[0], axis);
  reduced[axis] = index_loop(&e->space, s->atom);
  column_rows(e, c, kept, reduced, axis + 1, start, low, high);
  close_loop(e, false);
}

/* Columns start … start + width - 1, where start lies in low … high - width. */
static void column_block(Emit *e, Columns *c, const Index *kept, const char *start, int64_t low, int64_t high) {
  int64_t width = high - low > c->width ? c->width : high - low;
  Scope *s = e->scope;
  for (int i = 0; i < c->n; i++) {
    const PlanNode *n = column_node(e, c, i);
    c->lanes[i] = fresh_name(e, arena_printf(e->arena, "%s_lane", base_name(e, e->k->outputs[c->outputs[i]])));
    if (!is_max(n)) line(e, s, "%s %s[16][%lld] = {{0}};", kernel_type(n->type.dtype), c->lanes[i], (long long)width);
    else {
      line(e, s, "%s %s[16][%lld];", kernel_type(n->type.dtype), c->lanes[i], (long long)width);
      line(e, s, "for (int lane = 0; lane < 16; lane++)");
      line(e, s, "  for (int64_t c = 0; c < %lld; c++) %s[lane][c] = %s;", (long long)width, c->lanes[i], least(n->type.dtype));
    }
  }
  Index reduced[PP_MAX_RANK];
  column_rows(e, c, kept, reduced, 0, start, low, high);
  for (int i = 0; i < c->n; i++) {
    const PlanNode *n = column_node(e, c, i);
    const char *out = e->names[e->k->n_inputs + c->outputs[i]];
    Index row = index_scale(&e->space, index_linear(&e->space, c->kept_axes, n->type.dims, kept), c->columns);
    bool no_row = row.n == 0 && row.constant == 0;
    print_line(s, "#pragma omp simd");
    line(e, s, "for (int64_t c = 0; c < %lld; c++) %s[%s%s%s + c] = pp_fold_%s_%s(&%s[0][c], %lld);", (long long)width, out,
         no_row ? "" : index_text(&e->space, row), no_row ? "" : " + ", start, is_max(n) ? "max" : "sum", kernel_suffix(n->type.dtype),
         c->lanes[i], (long long)width);
  }
}

static void column_blocks(Emit *e, Columns *c, Index *kept, int axis) {
  const PlanType *t = output_type(e, c->outputs[0]);
  if (axis < c->kept_axes) {
    Scope *s = open_loop(e, e->n_loops++, 0, t->dims[axis], t->dims[axis]);
    kept[axis] = index_loop(&e->space, s->atom);
    column_blocks(e, c, kept, axis + 1);
    close_loop(e, false);
    return;
  }
  int64_t whole = c->columns / c->width * c->width;
  if (whole) {
    Scope *s = open_scope(e, false);
    const char *start = arena_printf(e->arena, "%s0", loop_name(e, s->depth));
    column_block(e, c, kept, start, 0, whole);
    close_scope(e, NULL, arena_printf(e->arena, "for (int64_t %s = 0; %s < %lld; %s += %lld) ", start, start, (long long)whole, start, (long long)c->width), NULL);
  }
  if (whole == c->columns) return;
  Scope *s = open_scope(e, false);
  (void)s;
  column_block(e, c, kept, arena_printf(e->arena, "%lld", (long long)whole), whole, c->columns);
  close_scope(e, NULL, "", NULL);
}

/* All outputs that are such sums over the same space as output `lead`. */
static void print_columns(Emit *e, int lead, bool *done) {
  Columns c = {0};
  int v = e->k->outputs[lead];
  const PlanNode *n = node_of(e, v);
  c.columns = n_columns(e, n, &c.column_axes);
  c.kept_axes = n->type.rank - c.column_axes;
  c.n_reduced = reduced_dims(e, n, c.reduced_dims);
  int largest = 4;
  for (int o = lead; o < e->k->n_outputs && c.n < MAX_JOINED; o++) {
    int axes, w = e->k->outputs[o];
    if (done[o] || !is_column_output(e, o, &axes) || !same_space(e, v, w)) continue;
    c.outputs[c.n++] = o;
    done[o] = true;
    if (element_bytes(output_type(e, o)->dtype) > largest) largest = 8;
  }
  int64_t most = COLUMN_BYTES / 16 / largest / c.n / 16 * 16, blocks = (c.columns + most - 1) / most;
  c.width = ((c.columns + blocks - 1) / blocks + 15) / 16 * 16; /* blocks of nearly one width */
  if (c.width > c.columns) c.width = c.columns;
  Index kept[PP_MAX_RANK];
  column_blocks(e, &c, kept, 0);
}

/* --- the whole body ----------------------------------------------------------------------------------------------------------- */

static void print_randoms(Emit *e) {
  const PlanKernel *k = e->k;
  for (int v = k->n_inputs; v < k->n_inputs + k->n_nodes; v++) {
    const PlanNode *n = node_of(e, v);
    if (n->op != PLAN_OP_RANDOM) continue;
    int64_t count = elements(&n->type);
    for (int o = 0; o < k->n_outputs && !e->random[v]; o++)
      if (k->outputs[o] == v) e->random[v] = e->names[k->n_inputs + o], e->random_output[o] = true;
    if (!e->random[v]) {
      if (count * 4 > BUFFER_BYTES) bug("kernel %s: random numbers inside must be few or an output", k->name);
      e->random[v] = fresh_name(e, base_name(e, v));
      line(e, e->scope, "float %s[%lld];", e->random[v], (long long)count);
    }
    line(e, e->scope, "pp_random_uniform(call, %lluu, %s, %lld);", (unsigned long long)n->attrs.integer, e->random[v], (long long)count);
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
      if (!done[o] && (lead < 0 || elements(output_type(e, o)) > elements(output_type(e, lead)))) lead = o;
    if (lead < 0) return;
    print_nest(e, lead, done);
  }
}

static void count_reductions(Emit *e) {
  const PlanKernel *k = e->k;
  for (int v = k->n_inputs; v < k->n_inputs + k->n_nodes; v++) {
    const PlanNode *n = node_of(e, v);
    int most = 0;
    for (int i = 0; i < n->n_in; i++)
      if (e->depth_of_reductions[n->in[i]] > most) most = e->depth_of_reductions[n->in[i]];
    e->depth_of_reductions[v] = most + (ops[n->op].class == CLASS_REDUCE);
  }
}

/* In-place pairs need one nest in which the input is read where the output is written. */
static void check_in_place(const Emit *e) {
  const PlanKernel *k = e->k;
  for (int i = 0; i < k->n_in_place; i++) {
    const PlanType *out = output_type(e, k->in_place[2 * i]), *in = type_of(e, k->in_place[2 * i + 1]);
    if (elements(out) != elements(in) || out->dtype != in->dtype) bug("kernel %s: pair %d can't be one buffer", k->name, i);
  }
  for (int v = k->n_inputs; k->n_in_place && v < k->n_inputs + k->n_nodes; v++)
    if (ops[node_of(e, v)->op].class == CLASS_REDUCE) bug("kernel %s: a reduction and outputs in place", k->name);
}

static void start_pass(Emit *e) {
  static const char *const words[] = {"call", "lane", "c", "i", "j", "k", "l", "i0", "j0", "k0", "l0",
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto",
    "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "typedef", "union", "unsigned", "void", "volatile", "while", "kernels", "NAN", "INFINITY"};
  const PlanKernel *k = e->k;
  e->taken = (Texts){0};
  e->space = (IndexSpace){.arena = e->arena};
  e->n_loops = 0;
  e->finished.n = 0;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) VEC_PUSH(e->arena, &e->taken, words[i]);
  for (int i = 0; i < k->n_inputs + k->n_outputs; i++) VEC_PUSH(e->arena, &e->taken, e->names[i]);
  e->random = arena_alloc_array(e->arena, (size_t)(k->n_inputs + k->n_nodes), sizeof *e->random);
  e->random_output = arena_alloc_array(e->arena, (size_t)k->n_outputs, sizeof *e->random_output);
  e->scope = NULL;
  open_scope(e, false);
}

/* Inputs that no output depends on (sliced away, multiplied by nothing). */
static void print_unused(Emit *e, Str *out) {
  for (int i = 0; i < e->k->n_inputs; i++)
    if (!count_mentions(str_text(&e->scope->text), e->names[i])) str_printf(out, "  (void)%s;\n", e->names[i]);
  if (e->k->uses_call && !count_mentions(str_text(&e->scope->text), "call")) str_puts(out, "  (void)call;\n");
}

void kernel_print_body(Arena *arena, Str *out, const PlanKernel *k, const char *const *names) {
  size_t n_values = (size_t)(k->n_inputs + k->n_nodes);
  Emit e = {.arena = arena, .k = k, .names = names};
  e.buffered = arena_alloc_array(arena, n_values, sizeof *e.buffered);
  e.depth_of_reductions = arena_alloc_array(arena, n_values, sizeof *e.depth_of_reductions);
  count_reductions(&e);
  check_in_place(&e);
  for (int pass = 0; pass < 3; pass++) {
    e.final = pass == 2;
    e.demanded = (Texts){.at = e.demanded.at, .n = e.final ? e.demanded.n : 0, .cap = e.demanded.cap};
    start_pass(&e);
    print_randoms(&e);
    print_outputs(&e);
    print_unread(&e, e.scope);
    if (pass == 0) choose_buffers(&e);
    if (e.final) {
      str_puts(out, "{\n");
      print_unused(&e, out);
      str_append(out, str_text(&e.scope->text), e.scope->text.length);
      str_puts(out, "}\n");
    }
    str_free(&e.scope->text);
  }
}
