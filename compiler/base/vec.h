// Vectors that grow inside an arena.
//
//   VEC(int) sizes = {0};
//   VEC_PUSH(arena, &sizes, 3);
//   for (int i = 0; i < sizes.n; i++) use(sizes.at[i]);
//
// The old array stays in the arena when a vector grows, so pointers into it
// remain readable but go stale. Give a vector type that crosses functions a
// name with typedef: two uses of VEC(T) are two distinct types in C.
#pragma once

#include "compiler/base/arena.h"

#define VEC(T)  \
  struct {      \
    T *at;      \
    int n, cap; \
  }

#define VEC_PUSH(arena, v, ...)                                           \
  do {                                                                    \
    if ((v)->n == (v)->cap)                                               \
      (v)->at = vec_grow((arena), (v)->at, (v)->n, &(v)->cap,             \
                         sizeof *(v)->at);                                \
    (v)->at[(v)->n++] = (__VA_ARGS__);                                    \
  } while (0)

// Removes and yields the last element; the vector must not be empty.
#define VEC_POP(v) ((v)->at[--(v)->n])

#define VEC_LAST(v) ((v)->at[(v)->n - 1])

// Room for `count` elements in an empty vector: no copies are left behind while it
// fills.
#define VEC_RESERVE(arena, v, count)                                      \
  do {                                                                    \
    (v)->cap = (count);                                                   \
    (v)->at = arena_alloc_array((arena), (size_t)(v)->cap, sizeof *(v)->at); \
  } while (0)

// A copy of `at` with room for more; sets *cap. Used by VEC_PUSH only.
void *vec_grow(Arena *arena, const void *at, int n, int *cap,
               size_t element_bytes);
