/* Packing against its definition: random lives, no two items that live together overlap. */
#include "compiler/layout.h"

#include <stdlib.h>

#include "compiler/base/test.h"

static uint64_t state = 1;
static int64_t random_below(int64_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)n);
}

static int overlap(const LayoutItem *x, const LayoutItem *y) {
  int in_time = x->start <= y->end && y->start <= x->end;
  int in_space = x->offset < y->offset + y->size && y->offset < x->offset + x->size;
  return in_time && in_space;
}

typedef struct {
  const LayoutItem *items;
  int n_visits;
} Seen;

static void see(void *context, int item, int earlier) {
  Seen *seen = context;
  seen->n_visits++;
  const LayoutItem *x = &seen->items[item], *y = &seen->items[earlier];
  CHECK(y->end < x->start);
  CHECK(x->offset < y->offset + y->size && y->offset < x->offset + x->size);
}

static void try_random(int n) {
  LayoutItem *items = calloc((size_t)n, sizeof *items);
  for (int i = 0; i < n; i++) {
    items[i].size = 64 * random_below(20);
    items[i].start = random_below(2 * n);
    items[i].end = items[i].start + random_below(n < 40 ? n : 40);
  }
  Layout layout = layout_open(items, n);
  int64_t extent = layout_pack(&layout), bound = layout_peak(&layout, NULL);
  CHECK(extent >= bound);
  CHECK(extent <= 2 * bound);
  for (int i = 0; i < n; i++) {
    CHECK(items[i].offset >= 0 && items[i].offset + items[i].size <= extent);
    for (int k = 0; k < i; k++) CHECK(!overlap(&items[i], &items[k]));
  }
  Seen seen = {items, 0};
  layout_visit_earlier(&layout, see, &seen);
  layout_close(&layout);
  free(items);
}

/* A pipeline's frames: each lives over `depth` steps; the layout meets the lower bound. */
static void try_pipeline(int n, int depth) {
  LayoutItem *items = calloc((size_t)n * 2, sizeof *items);
  for (int i = 0; i < n; i++) {
    items[2 * i] = (LayoutItem){.size = 1024, .start = 2 * i, .end = 2 * (i + depth) + 1};
    items[2 * i + 1] = (LayoutItem){.size = 4096, .start = 2 * i, .end = 2 * i};
  }
  Layout layout = layout_open(items, 2 * n);
  CHECK(layout_pack(&layout) == layout_peak(&layout, NULL));
  layout_close(&layout);
  free(items);
}

static void random_items_do_not_overlap(void) {
  for (int k = 0; k < 200; k++) try_random(1 + (int)random_below(60));
  try_random(2000);
}

static void pipelines_meet_the_lower_bound(void) {
  try_pipeline(100, 4);
  try_pipeline(20000, 16);
}

static void nothing_takes_no_bytes(void) {
  LayoutItem none;
  Layout layout = layout_open(&none, 0);
  CHECK(layout_pack(&layout) == 0);
  layout_close(&layout);
}

int main(void) {
  TEST(random_items_do_not_overlap);
  TEST(pipelines_meet_the_lower_bound);
  TEST(nothing_takes_no_bytes);
  return test_end();
}
