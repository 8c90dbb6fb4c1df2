/* Affine index expressions, see index.h. Terms are kept sorted; quotient and remainder atoms are
 * interned, so that equal expressions are equal term by term. */
#include "codegen/index.h"

#include <string.h>

#include "compiler/base/diag.h"

int index_new_loop(IndexSpace *s, const char *name, int64_t low, int64_t high, int depth) {
  IndexAtom atom = {.kind = ATOM_LOOP, .name = name, .low = low, .high = high, .depth = depth};
  VEC_PUSH(s->arena, &s->atoms, atom);
  return s->atoms.n - 1;
}

Index index_constant(int64_t c) { return (Index){.constant = c}; }

static Index single(IndexSpace *s, int atom) {
  IndexTerm *term = arena_alloc(s->arena, sizeof *term);
  *term = (IndexTerm){atom, 1};
  return (Index){.n = 1, .terms = term};
}

Index index_loop(IndexSpace *s, int atom) {
  const IndexAtom *a = &s->atoms.at[atom];
  return a->high - a->low == 1 && !a->keep ? index_constant(a->low) : single(s, atom);
}

Index index_offset(Index a, int64_t c) {
  a.constant += c;
  return a;
}

Index index_scale(IndexSpace *s, Index a, int64_t factor) {
  if (factor == 0) return index_constant(0);
  IndexTerm *terms = arena_alloc_array(s->arena, (size_t)a.n, sizeof *terms);
  for (int i = 0; i < a.n; i++) terms[i] = (IndexTerm){a.terms[i].atom, a.terms[i].coef * factor};
  return (Index){a.constant * factor, a.n, terms};
}

static Index add_terms(IndexSpace *s, Index a, Index b) {
  IndexTerm *terms = arena_alloc_array(s->arena, (size_t)(a.n + b.n), sizeof *terms);
  int n = 0;
  for (int i = 0, j = 0; i < a.n || j < b.n;) {
    if (j == b.n || (i < a.n && a.terms[i].atom < b.terms[j].atom)) terms[n++] = a.terms[i++];
    else if (i == a.n || b.terms[j].atom < a.terms[i].atom) terms[n++] = b.terms[j++];
    else {
      terms[n++] = (IndexTerm){a.terms[i].atom, a.terms[i].coef + b.terms[j].coef};
      i++, j++;
    }
  }
  return (Index){a.constant + b.constant, n, terms};
}

static Index drop_terms(IndexSpace *s, Index a, int i, int j) {
  IndexTerm *terms = arena_alloc_array(s->arena, (size_t)a.n, sizeof *terms);
  int n = 0;
  for (int k = 0; k < a.n; k++)
    if (k != i && k != j) terms[n++] = a.terms[k];
  return (Index){a.constant, n, terms};
}

/* d·c·(e / d) + c·(e mod d) = c·e */
static bool rejoin(IndexSpace *s, Index *a) {
  for (int i = 0; i < a->n; i++) {
    const IndexAtom *q = &s->atoms.at[a->terms[i].atom];
    if (q->kind != ATOM_DIVIDE) continue;
    for (int j = 0; j < a->n; j++) {
      const IndexAtom *r = &s->atoms.at[a->terms[j].atom];
      if (r->kind != ATOM_MODULO || r->divisor != q->divisor || !index_equal(r->inner, q->inner)) continue;
      if (a->terms[i].coef != a->terms[j].coef * q->divisor) continue;
      Index whole = index_scale(s, q->inner, a->terms[j].coef);
      *a = add_terms(s, drop_terms(s, *a, i, j), whole);
      return true;
    }
  }
  return false;
}

Index index_add(IndexSpace *s, Index a, Index b) {
  if (a.n == 0) return index_offset(b, a.constant);
  if (b.n == 0) return index_offset(a, b.constant);
  Index sum = add_terms(s, a, b);
  while (rejoin(s, &sum)) continue;
  return sum;
}

static void range(const IndexSpace *s, int atom, int64_t *low, int64_t *high) {
  const IndexAtom *a = &s->atoms.at[atom];
  if (a->kind == ATOM_LOOP) {
    *low = a->low, *high = a->high - 1;
    return;
  }
  *low = index_low(s, a->inner), *high = index_high(s, a->inner);
  if (a->kind == ATOM_DIVIDE) *low /= a->divisor, *high /= a->divisor;
  else if (*low / a->divisor == *high / a->divisor) *low %= a->divisor, *high %= a->divisor;
  else *low = 0, *high = a->divisor - 1;
}

int64_t index_low(const IndexSpace *s, Index a) {
  int64_t sum = a.constant, low, high;
  for (int i = 0; i < a.n; i++) range(s, a.terms[i].atom, &low, &high), sum += low * a.terms[i].coef;
  return sum;
}

int64_t index_high(const IndexSpace *s, Index a) {
  int64_t sum = a.constant, low, high;
  for (int i = 0; i < a.n; i++) range(s, a.terms[i].atom, &low, &high), sum += high * a.terms[i].coef;
  return sum;
}

bool index_equal(Index a, Index b) {
  if (a.constant != b.constant || a.n != b.n) return false;
  for (int i = 0; i < a.n; i++)
    if (a.terms[i].atom != b.terms[i].atom || a.terms[i].coef != b.terms[i].coef) return false;
  return true;
}

int index_depth(const IndexSpace *s, Index a) {
  int depth = 0;
  for (int i = 0; i < a.n; i++) {
    const IndexAtom *atom = &s->atoms.at[a.terms[i].atom];
    int d = atom->kind == ATOM_LOOP ? atom->depth : index_depth(s, atom->inner);
    if (d > depth) depth = d;
  }
  return depth;
}

int64_t index_coef(Index a, int atom) {
  for (int i = 0; i < a.n; i++)
    if (a.terms[i].atom == atom) return a.terms[i].coef;
  return 0;
}

bool index_mentions(const IndexSpace *s, Index a, int atom) {
  for (int i = 0; i < a.n; i++) {
    const IndexAtom *t = &s->atoms.at[a.terms[i].atom];
    if (a.terms[i].atom == atom || (t->kind != ATOM_LOOP && index_mentions(s, t->inner, atom))) return true;
  }
  return false;
}

Index index_without(IndexSpace *s, Index a, int atom) {
  for (int i = 0; i < a.n; i++)
    if (a.terms[i].atom == atom) return drop_terms(s, a, i, i);
  return a;
}

static Index intern(IndexSpace *s, int kind, Index inner, int64_t divisor) {
  for (int i = 0; i < s->atoms.n; i++) {
    const IndexAtom *a = &s->atoms.at[i];
    if ((int)a->kind == kind && a->divisor == divisor && index_equal(a->inner, inner)) return single(s, i);
  }
  IndexAtom atom = {.kind = kind, .inner = inner, .divisor = divisor};
  VEC_PUSH(s->arena, &s->atoms, atom);
  return single(s, s->atoms.n - 1);
}

static int64_t gcd(int64_t a, int64_t b) { return b == 0 ? a : gcd(b, a % b); }

/* Terms whose coefficient d divides (all = true), or the others; without the constant. */
static Index part(IndexSpace *s, Index a, int64_t d, bool divisible) {
  IndexTerm *terms = arena_alloc_array(s->arena, (size_t)a.n, sizeof *terms);
  int n = 0;
  for (int i = 0; i < a.n; i++)
    if ((a.terms[i].coef % d == 0) == divisible) terms[n++] = a.terms[i];
  return (Index){0, n, terms};
}

static Index shrink(IndexSpace *s, Index a, int64_t g) {
  IndexTerm *terms = arena_alloc_array(s->arena, (size_t)a.n, sizeof *terms);
  for (int i = 0; i < a.n; i++) terms[i] = (IndexTerm){a.terms[i].atom, a.terms[i].coef / g};
  return (Index){a.constant / g, a.n, terms};
}

static int64_t floor_divide(int64_t a, int64_t d) { return a / d - (a % d < 0); }

/* a = g · high + low with 0 <= low < g and d a multiple of g: low decides nothing about a / d. The largest g; 1: low is 0. */
static int64_t split_low(IndexSpace *s, Index a, int64_t d, Index *out_high, Index *out_low) {
  int64_t best = 1;
  *out_high = a, *out_low = index_constant(0);
  for (int k = 0; k < a.n; k++) {
    int64_t g = d;
    for (int i = 0; i < a.n; i++)
      if (a.terms[i].coef >= a.terms[k].coef) g = gcd(g, a.terms[i].coef);
    IndexTerm *low = arena_alloc_array(s->arena, (size_t)a.n, sizeof *low), *high = arena_alloc_array(s->arena, (size_t)a.n, sizeof *high);
    int n_low = 0, n_high = 0;
    for (int i = 0; i < a.n; i++) {
      if (a.terms[i].coef < a.terms[k].coef) low[n_low++] = a.terms[i];
      else high[n_high] = a.terms[i], high[n_high++].coef /= g;
    }
    Index rest = {a.constant % g, n_low, low};
    if (g <= best || index_high(s, rest) >= g) continue;
    best = g;
    *out_high = (Index){a.constant / g, n_high, high}, *out_low = rest;
  }
  return best;
}

static void divide(IndexSpace *s, Index a, int64_t d, Index *out_quotient, Index *out_rest) {
  Index whole = part(s, a, d, true), rest = part(s, a, d, false);
  int64_t q = floor_divide(a.constant, d);
  whole.constant = q * d;
  rest.constant = a.constant - q * d;
  Index base = shrink(s, whole, d);
  if (index_high(s, rest) < d) {
    *out_quotient = base, *out_rest = rest;
    return;
  }
  Index high, low;
  int64_t g = split_low(s, rest, d, &high, &low);
  Index quotient, remainder;
  if (g > 1) divide(s, high, d / g, &quotient, &remainder);
  else quotient = intern(s, ATOM_DIVIDE, high, d), remainder = intern(s, ATOM_MODULO, high, d);
  *out_quotient = index_add(s, base, quotient);
  *out_rest = index_add(s, index_scale(s, remainder, g), low);
}

Index index_divide(IndexSpace *s, Index a, int64_t d) {
  Index quotient, rest;
  divide(s, a, d, &quotient, &rest);
  return quotient;
}

Index index_modulo(IndexSpace *s, Index a, int64_t d) {
  Index quotient, rest;
  divide(s, a, d, &quotient, &rest);
  return rest;
}

Index index_linear(IndexSpace *s, int rank, const int64_t *dims, const Index *index) {
  Index sum = index_constant(0);
  int64_t stride = 1;
  for (int k = rank - 1; k >= 0; k--) {
    if (dims[k] != 1) sum = index_add(s, sum, index_scale(s, index[k], stride));
    stride *= dims[k];
  }
  return sum;
}

void index_split(IndexSpace *s, Index linear, int rank, const int64_t *dims, Index *out_index) {
  int first = 0;
  while (first < rank && dims[first] == 1) out_index[first++] = index_constant(0);
  for (int k = rank - 1; k >= first; k--) {
    Index quotient, rest;
    if (k == first) quotient = index_constant(0), rest = linear;
    else if (dims[k] == 1) quotient = linear, rest = index_constant(0);
    else divide(s, linear, dims[k], &quotient, &rest);
    out_index[k] = rest;
    linear = quotient;
  }
}

bool index_merges(const IndexSpace *s, Index a, int outer, int inner, int64_t extent) {
  if (index_coef(a, outer) != index_coef(a, inner) * extent) return false;
  for (int i = 0; i < a.n; i++) {
    const IndexAtom *t = &s->atoms.at[a.terms[i].atom];
    if (t->kind != ATOM_LOOP && !index_merges(s, t->inner, outer, inner, extent)) return false;
  }
  return true;
}

static bool is_bare(Index a) { return a.n == 1 && a.constant == 0 && a.terms[0].coef == 1; }

/* a / b / c is a / (b · c), for nothing is negative. */
static Index divided(const IndexSpace *s, Index a, int64_t *divisor) {
  while (is_bare(a) && s->atoms.at[a.terms[0].atom].kind == ATOM_DIVIDE) {
    *divisor *= s->atoms.at[a.terms[0].atom].divisor;
    a = s->atoms.at[a.terms[0].atom].inner;
  }
  return a;
}

/* (a mod b·c) mod c is a mod c. */
static Index reduced(const IndexSpace *s, Index a, int64_t divisor) {
  while (is_bare(a) && s->atoms.at[a.terms[0].atom].kind == ATOM_MODULO && s->atoms.at[a.terms[0].atom].divisor % divisor == 0)
    a = s->atoms.at[a.terms[0].atom].inner;
  return a;
}

/* "i / 8 % 128" */
static const char *plain_text(IndexSpace *s, const IndexAtom *a) {
  int64_t divisor = a->divisor;
  Index inner = a->kind == ATOM_DIVIDE ? divided(s, a->inner, &divisor) : reduced(s, a->inner, divisor);
  bool bare = is_bare(inner);
  IndexNamer *namer = s->namer;
  if (bare) s->namer = NULL; /* one name for the whole */
  const char *text = index_text(s, inner);
  s->namer = namer;
  return arena_printf(s->arena, bare ? "%s %c %lld" : "(%s) %c %lld", text, a->kind == ATOM_DIVIDE ? '/' : '%', (long long)divisor);
}

static void print_atom(IndexSpace *s, Str *out, int atom, int64_t coef) {
  IndexAtom *a = &s->atoms.at[atom];
  const char *text = a->name;
  bool compound = false;
  if (a->kind == ATOM_LOOP) a->used = true;
  else {
    text = plain_text(s, a);
    const char *name = s->namer ? s->namer(s->context, text, index_depth(s, a->inner)) : NULL;
    compound = !name && coef != 1;
    if (name) text = name;
  }
  str_printf(out, compound ? "(%s)" : "%s", text);
  if (coef != 1) str_printf(out, " * %lld", (long long)coef);
}

const char *index_text(IndexSpace *s, Index a) {
  Str out = {0};
  int64_t below = INT64_MAX;
  for (int printed = 0; printed < a.n;) {
    int64_t coef = 0;
    for (int i = 0; i < a.n; i++)
      if (a.terms[i].coef < below && a.terms[i].coef > coef) coef = a.terms[i].coef;
    for (int i = 0; i < a.n; i++) {
      if (a.terms[i].coef != coef) continue;
      if (printed++) str_puts(&out, " + ");
      print_atom(s, &out, a.terms[i].atom, coef);
    }
    below = coef;
  }
  if (a.n == 0) str_printf(&out, "%lld", (long long)a.constant);
  else if (a.constant) str_printf(&out, " %c %lld", a.constant < 0 ? '-' : '+', (long long)(a.constant < 0 ? -a.constant : a.constant));
  const char *text = arena_strndup(s->arena, str_text(&out), out.length);
  str_free(&out);
  return text;
}
