/* Minimum cuts against all cuts: small random graphs, every set of nodes tried. */
#include "compiler/flow.h"

#include "compiler/base/test.h"

static uint64_t state = 1;
static int pick(int n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int)((state >> 33) % (uint64_t)n);
}

enum { NODES = 8, EDGES = 24 };
typedef struct {
  int from, to;
  int64_t capacity;
} Given;

static int64_t cut_value(const Given *edges, int n, unsigned before) {
  int64_t sum = 0;
  for (int i = 0; i < n; i++)
    if ((before >> edges[i].from & 1) && !(before >> edges[i].to & 1)) sum += edges[i].capacity;
  return sum;
}

static void try_graph(void) {
  Arena *arena = arena_create();
  Given edges[EDGES];
  int n = pick(EDGES);
  Flow *f = flow_create(arena, NODES);
  for (int i = 0; i < n; i++) {
    edges[i] = (Given){pick(NODES), pick(NODES), pick(6) ? pick(20) : 100000};
    flow_add(f, edges[i].from, edges[i].to, edges[i].capacity);
  }
  int64_t least = INT64_MAX, found = flow_run(f, 0, NODES - 1);
  unsigned before = 0;
  for (unsigned set = 1; set < 1u << (NODES - 1); set += 2)
    if (cut_value(edges, n, set) < least) least = cut_value(edges, n, set);
  for (int i = 0; i < NODES; i++) before |= (unsigned)flow_is_before_cut(f, i) << i;
  CHECK(found == least);
  CHECK((before & 1) && !(before >> (NODES - 1) & 1) && cut_value(edges, n, before) == least);
  for (unsigned set = 1; set < 1u << (NODES - 1); set += 2) /* none lies nearer to the source */
    if (cut_value(edges, n, set) == least) CHECK((set & before) == before);
  arena_destroy(arena);
}

static void smallest_cuts_are_found(void) {
  for (int i = 0; i < 3000; i++) try_graph();
}

/* A ladder of many rungs: long paths, many of them. */
static void long_graphs_end(void) {
  Arena *arena = arena_create();
  int n = 20000;
  Flow *f = flow_create(arena, n);
  for (int i = 0; i + 2 < n; i++) {
    flow_add(f, i, i + 1, 3 + i % 5);
    flow_add(f, i, i + 2, 4 + i % 3);
  }
  flow_add(f, n - 2, n - 1, 9);
  CHECK(flow_run(f, 0, n - 1) > 0);
  arena_destroy(arena);
}

static void an_endless_path_has_no_cut(void) {
  Arena *arena = arena_create();
  Flow *f = flow_create(arena, 3);
  flow_add(f, 0, 1, FLOW_ENDLESS);
  flow_add(f, 1, 2, FLOW_ENDLESS);
  CHECK(flow_run(f, 0, 2) >= FLOW_ENDLESS);
  arena_destroy(arena);
}

int main(void) {
  TEST(smallest_cuts_are_found);
  TEST(long_graphs_end);
  TEST(an_endless_path_has_no_cut);
  return test_end();
}
