/* What split.c and halves.c share: the ops of @microbatch and @step as nodes, and what is known of them.
 * Internal to these two. */
#ifndef PPC_SPLIT_H
#define PPC_SPLIT_H

#include "compiler/ir/ir.h"

typedef enum {
  NEVER,  /* crosses between tasks as a value */
  ALWAYS, /* each task that uses it makes it */
  MAYBE   /* decided for the backward tasks of its stage */
} Remake;

typedef struct {
  Op op;
  int stage;
  pp_task_kind home;  /* the task that holds it; BWD holds both halves */
  Remake remake;
  bool is_free;       /* follows from constants alone */
  bool is_light;      /* follows from constants and parameters alone, without products */
  bool needed;        /* of a forward op: a backward task of its stage uses it */
  bool kept;          /* its results are stashed */
  bool again;         /* bwd_weight makes it too, though another task does */
  bool saved;         /* of a forward op: bwd_input makes it too and saves it for bwd_weight */
  int stamp;          /* of the last search that saw it */
} Node;
typedef VEC(Node *) NodeVec;

typedef struct {
  Value value;
  bool leaves; /* used by more than its own stage's bwd_weight */
} Crossing;

typedef struct {
  Op func;
  int stage;
  pp_task_kind kind;
  Builder b;
  PtrMap values; /* original → its copy or argument here */
  VEC(int64_t) in, out;
} Task;

typedef struct {
  Ir *ir;
  Arena *tmp;
  int n_stages, n_nodes, stamp;
  Node *nodes;
  PtrMap index;          /* op → Node */
  NodeVec *homes;        /* [n_stages * PP_TASK_KIND_COUNT] ops in program order */
  Op *modules;           /* [n_stages] */
  VEC(Task *) tasks;
  Task **by_stage;       /* [n_stages * PP_TASK_KIND_COUNT] */
  PtrMap ids;            /* value → id + 1 */
  VEC(Crossing) crossings;
  PtrMap received;       /* values of other stages that the backward of the current stage keeps */
  NodeVec search;        /* of the current search: what it went through */
  ValueVec missing;      /* and what would have to be stashed for it */
  ValueVec stack;
} Split;

static inline Node *split_node(const Split *s, Value v) { return ptrmap_get(&s->index, value_owner(v).ptr); }

static inline NodeVec *split_home(const Split *s, int stage, pp_task_kind kind) {
  return &s->homes[stage * PP_TASK_KIND_COUNT + kind];
}

/* exp, log, tanh, … */
static inline bool split_is_transcendental(OpId id) {
  return id == OP_EXP || id == OP_LOG || id == OP_TANH || id == OP_ERF || id == OP_SIN || id == OP_COS || id == OP_POW;
}

/* Chooses what bwd_input hands to bwd_weight, see halves.c. After the stashes of the stage are chosen. */
void halves_choose(Split *s, int stage);

#endif
