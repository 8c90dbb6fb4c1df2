/* Minimum cuts in directed graphs with capacities. */
#ifndef PPC_FLOW_H
#define PPC_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "compiler/base/vec.h"

#define FLOW_ENDLESS (INT64_MAX / 4)

typedef struct {
  int to, next;      /* next edge out of the same node, -1 */
  int64_t room;      /* what may still flow */
} FlowEdge;          /* its opposite is the one next to it: number ^ 1 */

typedef struct {
  Arena *arena;
  int n;             /* nodes */
  VEC(FlowEdge) edges;
  int *first;        /* [n] edge out of a node, -1 */
  int *level;        /* [n] distance from the source, -1: the cut lies before it */
  int *at;           /* [n] first edge that is worth trying */
} Flow;

Flow *flow_create(Arena *arena, int n_nodes);
void flow_add(Flow *f, int from, int to, int64_t capacity);
/* The value of the smallest cut, FLOW_ENDLESS or more: there is no finite one. */
int64_t flow_run(Flow *f, int source, int sink);
/* After flow_run: is a node on the source's side of the smallest cut that lies nearest to the source? */
bool flow_is_before_cut(const Flow *f, int node);

#endif
