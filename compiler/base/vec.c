// The one function behind VEC_PUSH: doubling growth by copying.
#include "compiler/base/vec.h"

#include <limits.h>
#include <string.h>

#include "compiler/base/diag.h"

void *vec_grow(Arena *arena, const void *at, int n, int *cap,
               size_t element_bytes) {
  if (*cap > INT_MAX / 2) bug("a vector of more than %d elements", *cap);
  *cap = *cap ? *cap * 2 : 8;
  void *grown = arena_alloc_array(arena, (size_t)*cap, element_bytes);
  if (n > 0) memcpy(grown, at, (size_t)n * element_bytes);
  return grown;
}
