/* The actions of all ranks as one graph: who makes what an action uses, and when everything runs when
 * each action costs one unit (a whole backward two), hops cost nothing and sends are asynchronous. */
#ifndef PPC_ACTIONS_H
#define PPC_ACTIONS_H

#include "compiler/tasks.h"

typedef struct {
  int action;  /* global number of the one that makes the value */
  int value;   /* a value that is needed from it, for messages */
} Need;

typedef struct {
  const Tasks *tasks;
  int n;                     /* of all ranks */
  const int *first;          /* [n_ranks + 1] global number of each rank's first action */
  const int *at;             /* where an action stands: [stage][loop kind][microbatch], then [stage][kind] */
  int64_t *start, *end;      /* after actions_time */
  /* when some can never run: */
  int *stuck_at;             /* [n_ranks] global number of the first action that can't run, -1 */
  Need *stuck_for;           /* [n_ranks] what it waits for */
} Actions;

Actions *actions_create(const Tasks *tasks, Arena *arena);
/* Global number of an action, -1 when it is in no rank's list. microbatch: -1 outside the loop. */
int actions_find(const Actions *a, int stage, pp_task_kind kind, int microbatch);
/* The action that makes a value for that microbatch, -1. */
int actions_maker(const Actions *a, int value, int microbatch);
int actions_rank(const Actions *a, int action);
static inline int actions_kind(const Actions *a, int rank, int index) { return (int)a->tasks->ranks[rank].actions[3 * index]; }
static inline int actions_stage(const Actions *a, int rank, int index) { return (int)a->tasks->ranks[rank].actions[3 * index + 1]; }
static inline int actions_microbatch(const Actions *a, int rank, int index) { return (int)a->tasks->ranks[rank].actions[3 * index + 2]; }
const Task *actions_task(const Actions *a, int rank, int index);
/* Fills start and end. False when some action can never run; then stuck_at and stuck_for are filled. */
bool actions_time(Actions *a, Arena *arena);

#endif
