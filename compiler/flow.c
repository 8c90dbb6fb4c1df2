/* Minimum cuts by Dinic's algorithm: In: a graph with capacities. Out: the largest flow, which is the
 * smallest cut, and the nodes before it. Each phase numbers nodes by their distance from the source and
 * saturates the shortest paths; no recursion, for paths are as long as a stage is deep. */
#include "compiler/flow.h"

#include <string.h>

Flow *flow_create(Arena *arena, int n_nodes) {
  Flow *f = arena_alloc(arena, sizeof *f);
  f->arena = arena;
  f->n = n_nodes;
  f->first = arena_alloc_array(arena, (size_t)n_nodes, sizeof *f->first);
  f->level = arena_alloc_array(arena, (size_t)n_nodes, sizeof *f->level);
  f->at = arena_alloc_array(arena, (size_t)n_nodes, sizeof *f->at);
  for (int i = 0; i < n_nodes; i++) f->first[i] = f->level[i] = -1;
  return f;
}

static void add_half(Flow *f, int from, int to, int64_t room) {
  VEC_PUSH(f->arena, &f->edges, (FlowEdge){to, f->first[from], room});
  f->first[from] = f->edges.n - 1;
}

void flow_add(Flow *f, int from, int to, int64_t capacity) {
  add_half(f, from, to, capacity);
  add_half(f, to, from, 0);
}

/* Distances from the source over edges with room; false when the sink is out of reach. */
static bool number_nodes(Flow *f, int source, int sink, int *queue) {
  int head = 0, tail = 0;
  for (int i = 0; i < f->n; i++) f->level[i] = -1;
  f->level[source] = 0;
  queue[tail++] = source;
  while (head < tail) {
    int node = queue[head++];
    for (int e = f->first[node]; e >= 0; e = f->edges.at[e].next) {
      const FlowEdge *x = &f->edges.at[e];
      if (x->room <= 0 || f->level[x->to] >= 0) continue;
      f->level[x->to] = f->level[node] + 1;
      queue[tail++] = x->to;
    }
  }
  return f->level[sink] >= 0;
}

/* Sends what fits along the path, and returns how many of its edges stay usable. */
static int send(Flow *f, const int *path, int n, int64_t *out_sent) {
  int64_t room = INT64_MAX;
  int kept = n;
  for (int i = 0; i < n; i++)
    if (f->edges.at[path[i]].room < room) room = f->edges.at[path[i]].room;
  for (int i = n - 1; i >= 0; i--) {
    f->edges.at[path[i]].room -= room;
    f->edges.at[path[i] ^ 1].room += room;
    if (f->edges.at[path[i]].room == 0) kept = i;
  }
  *out_sent = room;
  return kept;
}

/* Saturates all shortest paths: a walk that goes forward while it can, else gives up its last edge. */
static int64_t saturate(Flow *f, int source, int sink, int *path) {
  int64_t total = 0, sent = 0;
  int n = 0, node = source;
  memcpy(f->at, f->first, (size_t)f->n * sizeof *f->at);
  for (;;) {
    if (node == sink) {
      n = send(f, path, n, &sent);
      total += sent;
      if (total >= FLOW_ENDLESS) return total;
      node = n ? f->edges.at[path[n - 1]].to : source;
    }
    int e = f->at[node];
    while (e >= 0 && (f->edges.at[e].room <= 0 || f->level[f->edges.at[e].to] != f->level[node] + 1)) e = f->edges.at[e].next;
    f->at[node] = e;
    if (e >= 0) {
      path[n++] = e;
      node = f->edges.at[e].to;
    } else if (n == 0) {
      return total;
    } else {
      node = f->edges.at[path[--n] ^ 1].to;
      f->at[node] = f->edges.at[path[n]].next;
    }
  }
}

int64_t flow_run(Flow *f, int source, int sink) {
  int *queue = arena_alloc_array(f->arena, (size_t)f->n, sizeof *queue);
  int64_t total = 0;
  while (total < FLOW_ENDLESS && number_nodes(f, source, sink, queue)) total += saturate(f, source, sink, queue);
  return total;
}

bool flow_is_before_cut(const Flow *f, int node) { return f->level[node] >= 0; }
