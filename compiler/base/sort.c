// Counting sort, then comparisons among equal keys.
#include "compiler/base/sort.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/diag.h"

typedef struct {
  char *at;
  size_t n, size, key_offset;
  int64_t low, high;  // of the keys
  int (*compare)(const void *, const void *);
} Sort;

static int64_t key_of(const Sort *s, const char *at, size_t i) {
  int64_t key;
  memcpy(&key, at + i * s->size + s->key_offset, sizeof key);
  return key;
}

// True when the elements are in order already, as far as keys tell.
static bool find_range(Sort *s) {
  int64_t before = key_of(s, s->at, 0);
  bool sorted = true;
  s->low = s->high = before;
  for (size_t i = 1; i < s->n; i++) {
    int64_t key = key_of(s, s->at, i);
    if (key < s->low) s->low = key;
    if (key > s->high) s->high = key;
    sorted = sorted && before <= key;
    before = key;
  }
  return sorted;
}

static void *need_memory(size_t count, size_t bytes) {
  void *p = calloc(count, bytes);
  if (!p) bug("out of memory");
  return p;
}

static void scatter(const Sort *s) {
  size_t n_keys = (size_t)(s->high - s->low) + 1;
  size_t *begin = need_memory(n_keys + 1, sizeof *begin);
  char *copy = need_memory(s->n, s->size);
  memcpy(copy, s->at, s->n * s->size);
  for (size_t i = 0; i < s->n; i++) begin[key_of(s, copy, i) - s->low + 1]++;
  for (size_t k = 0; k < n_keys; k++) begin[k + 1] += begin[k];
  for (size_t i = 0; i < s->n; i++)
    memcpy(s->at + begin[key_of(s, copy, i) - s->low]++ * s->size, copy + i * s->size, s->size);
  free(begin);
  free(copy);
}

static void sort_runs(const Sort *s) {
  for (size_t i = 0; i < s->n;) {
    size_t end = i + 1;
    int64_t key = key_of(s, s->at, i);
    while (end < s->n && key_of(s, s->at, end) == key) end++;
    if (end - i > 1) qsort(s->at + i * s->size, end - i, s->size, s->compare);
    i = end;
  }
}

void sort_by_key(void *at, size_t n, size_t element_bytes, size_t key_offset,
                 int (*compare)(const void *, const void *)) {
  Sort s = {at, n, element_bytes, key_offset, 0, 0, compare};
  if (n < 2) return;
  bool sorted = find_range(&s);
  bool close = (uint64_t)s.high - (uint64_t)s.low <= 4 * (uint64_t)n + 1024;
  if (!sorted && !close) {
    qsort(at, n, element_bytes, compare);
    return;
  }
  if (!sorted) scatter(&s);
  sort_runs(&s);
}
