/* Index expressions of emitted kernels: affine sums of loop variables, and of quotients and
 * remainders of such sums where a reshape leaves no other way. Everything is non-negative where it
 * is used, ranges are known, and sums stay simplified: quotient and remainder of one sum join again,
 * and divisions that the ranges decide disappear. All memory is in the arena of the space. */
#ifndef PPC_INDEX_H
#define PPC_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "compiler/base/arena.h"
#include "compiler/base/str.h"
#include "compiler/base/vec.h"

typedef struct {
  int atom;
  int64_t coef; /* > 0 */
} IndexTerm;

/* constant + Σ coef · atom; terms by ascending atom. */
typedef struct {
  int64_t constant;
  int n;
  const IndexTerm *terms;
} Index;

typedef struct {
  enum { ATOM_LOOP, ATOM_DIVIDE, ATOM_MODULO } kind;
  const char *name;  /* LOOP */
  int64_t low, high; /* LOOP: low <= value < high */
  int depth;         /* LOOP: of the scope that declares it */
  Index inner;       /* DIVIDE, MODULO */
  int64_t divisor;
  bool used;         /* LOOP: appears in some text */
  bool keep;         /* LOOP: stays a variable even with one value */
} IndexAtom;

/* A variable that holds a quotient or remainder, of this text and depth; null: its text stands in for it. */
typedef const char *IndexNamer(void *context, const char *text, int depth);

typedef struct {
  Arena *arena;
  VEC(IndexAtom) atoms;
  IndexNamer *namer; /* may be null */
  void *context;     /* the namer's */
} IndexSpace;

int index_new_loop(IndexSpace *s, const char *name, int64_t low, int64_t high, int depth);
Index index_constant(int64_t c);
Index index_loop(IndexSpace *s, int atom); /* a constant when its range is one value */
Index index_add(IndexSpace *s, Index a, Index b);
Index index_offset(Index a, int64_t c);
Index index_scale(IndexSpace *s, Index a, int64_t factor); /* factor >= 0 */
Index index_divide(IndexSpace *s, Index a, int64_t d);     /* d > 0 */
Index index_modulo(IndexSpace *s, Index a, int64_t d);
int64_t index_low(const IndexSpace *s, Index a);  /* least value */
int64_t index_high(const IndexSpace *s, Index a); /* greatest value */
bool index_equal(Index a, Index b);
int index_depth(const IndexSpace *s, Index a);    /* of the innermost loop it depends on; 0: none */
int64_t index_coef(Index a, int atom);            /* 0 when absent */
bool index_mentions(const IndexSpace *s, Index a, int atom); /* inside quotients too */
Index index_without(IndexSpace *s, Index a, int atom);
const char *index_text(IndexSpace *s, Index a);   /* terms by falling coefficient */

/* a = Σ index[k] · stride of dims, and the other way round. */
Index index_linear(IndexSpace *s, int rank, const int64_t *dims, const Index *index);
void index_split(IndexSpace *s, Index linear, int rank, const int64_t *dims, Index *out_index);

/* True when a depends on (outer, inner) through outer · extent + inner alone. */
bool index_merges(const IndexSpace *s, Index a, int outer, int inner, int64_t extent);

#endif
